// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#d = {name = "d", extent = affine_map<() -> (96)>, layout = array<i64: 96, 4, 2, 1>, walk = "loop"}

module {
module @kernels {

// Rows of 192 bytes take two blocks of 128. Every thread copies 16 bytes of a row to each: of the second block only those that
// the row has, because the memory may end there.
// CHECK-LABEL: func.func @half_a_swizzle(
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[RING:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"} : () -> memref<2048xbf16, 3>
// CHECK: %[[PLACE:.*]] = arith.remui %[[THREAD]], %c8
// CHECK: "kernel.copy_async"(%[[RING]], %[[INTO:.*]], %{{.*}}, %{{.*}}, %c16)
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %[[PLACE]], %c4
// CHECK: scf.if %[[INSIDE]] {
// CHECK: %[[FURTHER:.*]] = arith.addi %[[INTO]], %c1024
// CHECK: "kernel.copy_async"(%[[RING]], %[[FURTHER]], %{{.*}}, %{{.*}}, %c16)
// CHECK: }
func.func @half_a_swizzle(%q: memref<16x96xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #d], order = array<i64>, unroll = 1 : i64, dot = true, tensor, copied, stages = 1 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x16x96xbf16, 3>
  %c0 = arith.constant 0 : index
  "tile.fetch"(%qs, %c0, %q, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d) -> (m, d)>} : (memref<1x16x96xbf16, 3>, index, memref<16x96xbf16>, index, index) -> ()
  "tile.commit"() : () -> ()
  return
}

}
}
