// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_80})' | FileCheck %s --check-prefixes=CHECK,SM80
// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_89})' | FileCheck %s --check-prefixes=CHECK,SM89

// A layout reads: elements of a tile, threads along the axis, neighbouring elements of one thread, blocks of a cluster.

#x = affine_map<()[n] -> (n, 4096)>
#w = affine_map<()[n] -> (4096, 4096)>
#p = affine_map<()[n] -> (n, n)>
#values = affine_map<()[n] -> (n, 128)>
#products = affine_map<()[n] -> (n, 4096, 4096)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 4096>}} {

// Eight warps, of which each has 64 x 64 of a tile of 128 x 256; as many slots as shared memory has room for.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: layout = array<i64: 128, 16, 1, 1>, name = "m", walk = "grid", warps = 2 : i64
// CHECK-SAME: layout = array<i64: 256, 16, 2, 1>, name = "n", walk = "grid", warps = 4 : i64
// CHECK-SAME: layout = array<i64: 64, 1, 1, 1>, name = "k", walk = "loop"
// CHECK-SAME: copied, dot = true
// SM80-SAME: stages = 3 : i64, tensor
// SM89-SAME: stages = 2 : i64, tensor
// CHECK: "tile.dot"
func.func private @product(%x: tensor<?x4096xbf16> {primop.kind = "argument", primop.shape = #x}, %w: tensor<4096x4096xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x4096xf32> {primop.shape = #x}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<?x4096x4096xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x4096x4096xf32>) -> tensor<?x4096xf32>
  return %y : tensor<?x4096xf32>
}

// A right operand that lies as (k, n), along an axis of any length.
// CHECK-LABEL: func.func @across(
// CHECK-SAME: extent = affine_map<()[s0] -> (s0)>, layout = array<i64: 64, 1, 1, 1>, name = "k", walk = "loop"
// CHECK-SAME: copied, dot = true
// CHECK-SAME: tensor
func.func private @across(%p: tensor<?x?xbf16> {primop.kind = "argument", primop.shape = #p}, %v: tensor<?x128xbf16> {primop.kind = "argument", primop.shape = #values}) -> (tensor<?x128xf32> {primop.shape = #values}) attributes {primop.kernel} {
  %products = "primop.mul"(%p, %v) {space = affine_map<()[n] -> (n, 128, n)>, maps = [#lhs, affine_map<(m, n, k)[s] -> (k, n)>]} : (tensor<?x?xbf16>, tensor<?x128xbf16>) -> tensor<?x128x?xf32>
  %y = "primop.sum"(%products) {space = affine_map<()[n] -> (n, 128, n)>, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x?xf32>) -> tensor<?x128xf32>
  return %y : tensor<?x128xf32>
}

// In f32 the same, by multiply-adds: 16 x 2 threads of a warp, warps along the columns.
// CHECK-LABEL: func.func @wide(
// CHECK-SAME: layout = array<i64: 128, 16, 1, 1>, name = "m", walk = "grid"
// CHECK-SAME: name = "n", walk = "grid", warps =
// CHECK-SAME: layout = array<i64: 32, 1, 1, 1>, name = "k", walk = "loop"
// CHECK-SAME: copied, dot = true
// CHECK-SAME: staged
func.func private @wide(%x: tensor<?x4096xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<4096x4096xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x4096xf32> {primop.shape = #x}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x4096xf32>, tensor<4096x4096xf32>) -> tensor<?x4096x4096xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x4096x4096xf32>) -> tensor<?x4096xf32>
  return %y : tensor<?x4096xf32>
}

}
