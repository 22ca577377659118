// RUN: tilec-opt %s --split-input-file --verify-diagnostics

// A warp's product has four words of a left operand, two of a right one and four sums.
func.func @registers(%w: i32, %x: f32) {
  // expected-error@+1 {{'kernel.mma' op lhs, rhs, acc and results must be 4, 2, 4 and 4 registers, but are [2, 2, 4, 4]}}
  %few:4 = "kernel.mma"(%w, %w, %w, %w, %x, %x, %x, %x) {element = bf16, operandSegmentSizes = array<i32: 2, 2, 4>} : (i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  // expected-error@+1 {{lhs, rhs, acc and results must be 4, 2, 4 and 4 registers, but are [4, 2, 4, 2]}}
  %results:2 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %x, %x, %x, %x) {element = bf16, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32)
  return
}

// -----

// Sums are kept in f32.
func.func @accumulator(%w: i32, %h: f16) {
  // expected-error@+1 {{expected base type 'builtin.f32' but got 'builtin.f16'}}
  %sum:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %h, %h, %h, %h) {element = f16, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f16, f16, f16, f16) -> (f32, f32, f32, f32)
  return
}

// -----

// Tensor cores do not multiply f32, but what they read of it.
func.func @element(%w: i32, %x: f32) {
  // expected-error@+1 {{'kernel.mma' op element must be what tensor cores multiply, bf16, f16 or tf32, but is f32}}
  %sum:4 = "kernel.mma"(%w, %w, %w, %w, %w, %w, %x, %x, %x, %x) {element = f32, operandSegmentSizes = array<i32: 4, 2, 4>} : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  return
}
