// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-kernel-to-nvvm)' | FileCheck %s

gpu.module @kernels {

// A copy has its number of bytes as an operand, which fills up with zeros. Four matrices of a warp are one instruction.
// CHECK-LABEL: llvm.func @copies(
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg, %{{.*}} : !llvm.ptr<3>, !llvm.ptr<1>, i32
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 2
// CHECK: nvvm.barrier
// CHECK: %[[ROWS:.*]] = nvvm.ldmatrix %{{.*}} {{.*}}layout = #nvvm.mma_layout<row>, num = 4 : i32
// CHECK: llvm.extractvalue %[[ROWS]][0]
// CHECK: nvvm.ldmatrix %{{.*}} {{.*}}layout = #nvvm.mma_layout<col>, num = 4 : i32
func.func @copies(%x: memref<4096xbf16, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 128 : i64, kernel.grid = [affine_map<()[s0] -> ()>, affine_map<()[s0] -> ()>, affine_map<()[s0] -> ()>], tile.arguments = ["read"]} {
  %ring = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"} : () -> memref<4096xbf16, 3>
  %i = "kernel.thread_id"() : () -> index
  "kernel.copy_async"(%ring, %i, %x, %i, %i) {element = bf16} : (memref<4096xbf16, 3>, index, memref<4096xbf16, 1>, index, index) -> ()
  "kernel.commit_copies"() : () -> ()
  "kernel.wait_copies"() {later = 2 : i64} : () -> ()
  "kernel.barrier"() : () -> ()
  %rows:4 = "kernel.load_matrix"(%ring, %i) : (memref<4096xbf16, 3>, index) -> (i32, i32, i32, i32)
  %columns:4 = "kernel.load_matrix"(%ring, %i) {transposed = true} : (memref<4096xbf16, 3>, index) -> (i32, i32, i32, i32)
  %sum = arith.addi %rows#0, %columns#1 : i32
  %word = arith.trunci %sum : i32 to i16
  %value = arith.bitcast %word : i16 to bf16
  "kernel.store_global"(%value, %x, %i) : (bf16, memref<4096xbf16, 1>, index) -> ()
  return
}

}
