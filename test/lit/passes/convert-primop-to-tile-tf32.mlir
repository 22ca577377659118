// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_90a},tilec-cse,tilec-dce)' --mlir-print-local-scope | FileCheck %s --check-prefixes=CHECK,HOPPER
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_80},tilec-cse,tilec-dce)' --mlir-print-local-scope | FileCheck %s --check-prefixes=CHECK,WARPS

#y = affine_map<()[s] -> (s, 64)>
#x = affine_map<()[s] -> (s, 136)>
#w = affine_map<()[s] -> (64, 136)>
#products = affine_map<()[s] -> (s, 64, 136)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

// Where the module allows TF32, tensor cores multiply f32, and the schedule says so: on Hopper in steps of 32 elements, which
// are the 128 bytes that 64 of 16 bits are; elsewhere by each warp, out of the same rows, which all threads copy.
// CHECK: module attributes {{{.*}}primop.tf32}
// CHECK-LABEL: func.func @product(
// HOPPER-SAME: layout = array<i64: 64, 32, 1, 1>, name = "m", walk = "grid", warps = 4 : i64
// HOPPER-SAME: layout = array<i64: 32, 1, 1, 1>, name = "k", walk = "loop"
// HOPPER-SAME: tensor, tf32
// HOPPER: scf.for %{{.*}} = %c0 to %c160 step %c32
// HOPPER: "tile.dot"(
// WARPS-SAME: layout = array<i64: 32, 1, 1, 1>, name = "k", walk = "loop"
// WARPS-SAME: copied, {{.*}}tensor, tf32
// WARPS: scf.for %{{.*}} = %c0 to %c160 step %c32
// WARPS: "tile.dot"(
module attributes {primop.symbols = {n = array<i64: 1, 64>}, primop.tf32} {
func.func private @product(%x: tensor<?x136xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<64x136xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x136xf32>, tensor<64x136xf32>) -> tensor<?x64x136xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x64x136xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// Few rows come to a warp straight from memory, in runs of four elements, also on Hopper.
// CHECK-LABEL: func.func @few(
// CHECK-SAME: lanes_of = "n", layout = array<i64: {{[0-9]+}}, 4, 4, 1>, name = "k", walk = "loop"
// CHECK-SAME: lanes_of = "m", {{.*}}name = "n_twin", twin_of = "n"
// CHECK-SAME: tf32
// CHECK: "tile.dot_twin"(
func.func private @few(%x: tensor<8x136xf32> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (8, 136)>}, %w: tensor<64x136xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<8x64xf32> {primop.shape = affine_map<()[s] -> (8, 64)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[s] -> (8, 64, 136)>, maps = [#lhs, #rhs]} : (tensor<8x136xf32>, tensor<64x136xf32>) -> tensor<8x64x136xf32>
  %y = "primop.sum"(%products) {space = affine_map<()[s] -> (8, 64, 136)>, maps = [#all], dims = array<i64: 2>} : (tensor<8x64x136xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// What lies as (k, n) they do not read as TF32, so it is multiplied and added as ever.
// CHECK-LABEL: func.func @across(
// CHECK-NOT: tf32
// CHECK: "tile.dot"(
func.func private @across(%x: tensor<?x136xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<136x64xf32> {primop.kind = "weight", primop.shape = affine_map<()[s] -> (136, 64)>}) -> (tensor<?x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, affine_map<(m, n, k)[s] -> (k, n)>]} : (tensor<?x136xf32>, tensor<136x64xf32>) -> tensor<?x64x136xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x64x136xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// Elements of 16 bits are multiplied as they are.
// CHECK-LABEL: func.func @narrow(
// HOPPER-SAME: layout = array<i64: 64, 1, 1, 1>, name = "k"
// HOPPER-SAME: stages = 8 : i64, tensor, unroll
// WARPS-SAME: layout = array<i64: 64, 1, 1, 1>, name = "k"
// WARPS-SAME: copied, {{.*}}tensor, unroll
func.func private @narrow(%x: tensor<?x136xbf16> {primop.kind = "argument", primop.shape = #x}, %w: tensor<64x136xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x136xbf16>, tensor<64x136xbf16>) -> tensor<?x64x136xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x64x136xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
}

// -----

#products = affine_map<()[s] -> (s, 64, 136)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

// Nobody asked: the same product is made of multiply-adds.
// CHECK: module attributes
// CHECK-NOT: tf32
// CHECK-LABEL: func.func @product(
// CHECK-NOT: tensor
// CHECK-NOT: twin
// CHECK: "tile.dot"(
module attributes {primop.symbols = {n = array<i64: 1, 64>}} {
func.func private @product(%x: tensor<?x136xf32> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (s, 136)>}, %w: tensor<64x136xf32> {primop.kind = "weight", primop.shape = affine_map<()[s] -> (64, 136)>}) -> (tensor<?x64xf32> {primop.shape = affine_map<()[s] -> (s, 64)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x136xf32>, tensor<64x136xf32>) -> tensor<?x64x136xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [affine_map<(m, n, k)[s] -> (m, n, k)>], dims = array<i64: 2>} : (tensor<?x64x136xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
}
