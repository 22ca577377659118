// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_90a})'

// The target is one that exists.
// RUN: not tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-primop-to-tile{target=z80})' 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tilec-opt: error: unknown target 'z80'; choose cpu (this machine) or one of {{.*}}x86-64-avx2{{.*}}sm_90a

#x = affine_map<() -> (8, 64)>

// A kernel holds one view of each reduction, apart from its mirror images; fusion sees to it.
func.func private @two_views(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8x64xf32> {primop.shape = #x}) attributes {primop.kernel} {
  // expected-error@+1 {{a reduction is read through two different views in one kernel}}
  %largest = "primop.max"(%x) {space = #x, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%largest, %largest) {space = #x, maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (0)>]} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#rows = affine_map<() -> (8)>

// A chain that is marked as one loop has the exponential by which its sums are mended.
func.func private @no_exponential(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  // expected-error@+1 {{an online chain has no exponential of its maximum}}
  %largest = "primop.max"(%x) {space = #x, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>, primop.online} : (tensor<8x64xf32>) -> tensor<8xf32>
  %scaled = "primop.mul"(%x, %largest) {space = #x, maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], primop.online} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  %sum = "primop.sum"(%scaled) {space = #x, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>, primop.online} : (tensor<8x64xf32>) -> tensor<8xf32>
  return %sum : tensor<8xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#rows = affine_map<() -> (8)>

// All reductions of a kernel belong to its chain, or none does.
func.func private @beside_a_chain(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>, primop.online} : (tensor<8x64xf32>) -> tensor<8xf32>
  %sum = "primop.sum"(%x) {space = #x, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  // expected-error@+1 {{an online chain shares its kernel with other reductions}}
  %both = "primop.add"(%largest, %sum) {space = #rows, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %both : tensor<8xf32>
}
