// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-kernel-to-nvvm)' | FileCheck %s

// A warp's product is one instruction, whose four results are the next one's accumulators.
// CHECK-LABEL: llvm.func @mma(
// CHECK: %[[W:.*]] = arith.constant 1 : i32
// CHECK: %[[X:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[SUMS:.*]] = llvm.inline_asm asm_dialect = att "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};", "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f" %[[W]], %[[W]], %[[W]], %[[W]], %[[W]], %[[W]], %[[X]], %[[X]], %[[X]], %[[X]] :
// CHECK: %[[S0:.*]] = llvm.extractvalue %[[SUMS]][0]
// CHECK: %[[S1:.*]] = llvm.extractvalue %[[SUMS]][1]
// CHECK: %[[S2:.*]] = llvm.extractvalue %[[SUMS]][2]
// CHECK: %[[S3:.*]] = llvm.extractvalue %[[SUMS]][3]
// CHECK: llvm.inline_asm asm_dialect = att "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{.*}}%[[S0]], %[[S1]], %[[S2]], %[[S3]] :
// CHECK: llvm.inline_asm asm_dialect = att "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
gpu.module @kernels {
func.func @mma(%y: memref<4xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["write"], kernel.block = 32 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %w = arith.constant 1 : i32
  %x = arith.constant 0.0 : f32
  %sum:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %x, %x, %x, %x) {element = bf16, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %more:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %sum#0, %sum#1, %sum#2, %sum#3) {element = f16, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %last:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %more#0, %more#1, %more#2, %more#3) {element = tf32, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %four = vector.from_elements %last#0, %last#1, %last#2, %last#3 : vector<4xf32>
  "kernel.store_global"(%four, %y, %c0) : (vector<4xf32>, memref<4xf32, 1>, index) -> ()
  return
}
}
