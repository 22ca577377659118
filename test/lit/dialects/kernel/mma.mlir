// RUN: tilec-opt %s | tilec-opt | FileCheck %s

// A warp's product of 16 x 8 x 16: four words of a lane's left operand, two of its right one, and four sums. Of f32 that is
// read as TF32 a word is one element, so the depth is 8.
// CHECK-LABEL: func.func @mma
// CHECK-SAME: %[[W:.*]]: i32, %[[X:.*]]: f32
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"(%[[W]], %[[W]], %[[W]], %[[W]], %[[W]], %[[W]], %[[X]], %[[X]], %[[X]], %[[X]]) {element = bf16
// CHECK: "kernel.mma"({{.*}}, %[[SUM]]#0, %[[SUM]]#1, %[[SUM]]#2, %[[SUM]]#3) {element = f16
// CHECK: "kernel.mma"({{.*}}) {element = tf32
func.func @mma(%w: i32, %x: f32) {
  %sum:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %x, %x, %x, %x) {element = bf16, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %more:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %sum#0, %sum#1, %sum#2, %sum#3) {element = f16, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %last:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %more#0, %more#1, %more#2, %more#3) {element = tf32, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  return
}
