// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-primop-to-tile)'

// The target is one that exists.
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=z80})' 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tilec-opt: error: unknown target 'z80'; choose cpu (this machine) or one of {{.*}}x86-64-avx2{{.*}}sm_90a

#x = affine_map<() -> (8, 64)>

// A kernel holds one view of each reduction; fusion sees to it.
func.func private @two_views(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8x64xf32> {primop.shape = #x}) attributes {primop.kernel} {
  // expected-error@+1 {{a reduction is read through two different views in one kernel}}
  %largest = "primop.max"(%x) {space = #x, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%largest, %largest) {space = #x, maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (7 - i)>]} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}
