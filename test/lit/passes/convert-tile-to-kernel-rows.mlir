// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#n = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 2, 2, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 32, 8, 1>, walk = "loop"}
#r = {name = "r", extent = affine_map<() -> (256)>, layout = array<i64: 256, 64, 4, 1>, walk = "loop", lanes_of = "*"}

module {
module @kernels {

// A row that all threads of a block make lies along them as they are numbered, whatever other axes they have. What all hold
// is combined by warps and then through shared memory; the row itself is shared memory, and no thread reads it before all
// have stored their part.
// CHECK-LABEL: func.func @row(
// CHECK-SAME: %[[X:[^:]*]]: memref<256xf32, 1>, %[[W:[^:]*]]: memref<4096xbf16, 1>
// CHECK-SAME: kernel.block = 64 : i64
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c32
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: %[[ROW:.*]] = "kernel.shared"() {symbol = "[[SYMBOL:.*]]"} : () -> memref<256xbf16, 3>
// CHECK: %[[OWN:.*]] = arith.muli %[[THREAD]], %c4
// CHECK: %[[FOUR:.*]] = "kernel.load_global"(%[[X]], %[[OWN]]) {{.*}} -> vector<4xf32>
// CHECK: %[[OF_WARP:.*]] = "kernel.warp_reduce"(%{{.*}}) {kind = "max", lanes = array<i64: 1, 2, 4, 8, 16>}
// CHECK-NOT: symbol = "[[SYMBOL]]"
// CHECK: %[[PARTS:.*]] = "kernel.shared"() {{.*}} -> memref<2xf32, 3>
// CHECK: "kernel.store_shared"(%[[OF_WARP]], %[[PARTS]], %[[WARP]])
// CHECK: "kernel.barrier"()
// CHECK: arith.maximumf
// CHECK: %[[NARROW:.*]] = arith.truncf %{{.*}} : vector<4xf32> to vector<4xbf16>
// CHECK-NEXT: "kernel.store_shared"(%[[NARROW]], %[[ROW]], %[[OWN]])
// CHECK-NEXT: "kernel.barrier"() : () -> ()
// CHECK: %[[AT:.*]] = arith.muli %[[LANE]], %c8
// CHECK: "kernel.load_shared"(%[[ROW]], %[[AT]]) : {{.*}} -> vector<8xbf16>
// CHECK: %[[N:.*]] = arith.addi %{{.*}}, %[[WARP]]
// CHECK: "kernel.load_global"(%[[W]], %{{.*}}) {{.*}} -> vector<8xbf16>
// CHECK-NOT: kernel.barrier
// CHECK: return
func.func @row(%x: memref<256xf32>, %w: memref<16x256xbf16>, %y: memref<16xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#n, #k, #r], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %i = arith.muli %program, %c2 : index
  %row = "tile.alloc"() : () -> memref<256xbf16, 3>
  %tile = "tile.load"(%x, %i, %c0, %c0) {map = affine_map<(n, k, r) -> (r)>} : (memref<256xf32>, index, index, index) -> vector<1x1x256xf32>
  %largest = "tile.reduce"(%tile) {kind = "max", axes = array<i64: 2>} : (vector<1x1x256xf32>) -> vector<1x1x1xf32>
  %all = vector.broadcast %largest : vector<1x1x1xf32> to vector<1x1x256xf32>
  %scaled = arith.divf %tile, %all : vector<1x1x256xf32>
  %narrow = arith.truncf %scaled : vector<1x1x256xf32> to vector<1x1x256xbf16>
  "tile.store"(%narrow, %row, %i, %c0, %c0) {map = affine_map<(n, k, r) -> (r)>} : (vector<1x1x256xbf16>, memref<256xbf16, 3>, index, index, index) -> ()
  "tile.barrier"() : () -> ()
  %lhs = "tile.load"(%row, %i, %c0, %c0) {map = affine_map<(n, k, r) -> (k)>} : (memref<256xbf16, 3>, index, index, index) -> vector<1x256x1xbf16>
  %rhs = "tile.load"(%w, %i, %c0, %c0) {map = affine_map<(n, k, r) -> (n, k)>} : (memref<16x256xbf16>, index, index, index) -> vector<2x256x1xbf16>
  %zeros = arith.constant dense<0.0> : vector<2x32x1xf32>
  %parts = "tile.dot"(%lhs, %rhs, %zeros) : (vector<1x256x1xbf16>, vector<2x256x1xbf16>, vector<2x32x1xf32>) -> vector<2x32x1xf32>
  %sums = "tile.reduce"(%parts) {kind = "add", axes = array<i64: 1>} : (vector<2x32x1xf32>) -> vector<2x1x1xf32>
  "tile.store"(%sums, %y, %i, %c0, %c0) {map = affine_map<(n, k, r) -> (n)>} : (vector<2x1x1xf32>, memref<16xf32>, index, index, index) -> ()
  return
}

}
}
