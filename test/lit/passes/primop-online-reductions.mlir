// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-decompose-softmax,primop-online-reductions)' | FileCheck %s

#scores = affine_map<()[n] -> (2, n)>
#values = affine_map<()[n] -> (2, n, 16)>
#mixed = affine_map<()[n] -> (2, 16)>
#products = affine_map<()[n] -> (2, 16, n)>
#identity = affine_map<(h, j)[n] -> (h, j)>
#all = affine_map<(h, d, j)[n] -> (h, d, j)>
#share = affine_map<(h, d, j)[n] -> (h, j)>
#value = affine_map<(h, d, j)[n] -> (h, j, d)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// The sum of shares times values becomes the sum of powers times values, divided afterwards. What one loop can compute is
// marked: the maximum, the powers that use it, both sums, and the scores; the division is not.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x?xf32> {{{.*}}}, %[[V:[^:]*]]: tensor<2x?x16xf32> {
// CHECK: %[[SCORES:.*]] = "primop.sqrt"(%[[X]]) {{{.*}}primop.online
// CHECK: "primop.max"(%[[SCORES]]) {{{.*}}primop.online
// CHECK: %[[POWERS:.*]] = "primop.exp2"({{.*}}) {{{.*}}primop.online
// CHECK: %[[TOTAL:.*]] = "primop.sum"(%[[POWERS]]) {{{.*}}primop.online
// CHECK: %[[INVERSE:.*]] = "primop.recip"
// CHECK-NOT: primop.online
// CHECK: %[[PRODUCTS:.*]] = "primop.mul"(%[[POWERS]], %[[V]]) {maps = [affine_map<(d0, d1, d2)[s0] -> (d0, d2)>, affine_map<(d0, d1, d2)[s0] -> (d0, d2, d1)>], primop.online
// CHECK: %[[MIXED:.*]] = "primop.sum"(%[[PRODUCTS]]) {{{.*}}primop.online
// CHECK: %[[Y:.*]] = "primop.mul"(%[[MIXED]], %[[INVERSE]]) {maps = [affine_map<(d0, d1)[s0] -> (d0, d1)>, affine_map<(d0, d1)[s0] -> (d0)>], space
// CHECK-NEXT: return %[[Y]]
func.func private @attention(%x: tensor<2x?xf32> {primop.kind = "argument", primop.shape = #scores}, %v: tensor<2x?x16xf32> {primop.kind = "state", primop.shape = #values}) -> tensor<2x16xf32> attributes {primop.chunk} {
  %scores = "primop.sqrt"(%x) {space = #scores, maps = [#identity]} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %shares = "primop.softmax"(%scores) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %products = "primop.mul"(%shares, %v) {space = #products, maps = [#share, #value]} : (tensor<2x?xf32>, tensor<2x?x16xf32>) -> tensor<2x16x?xf32>
  %mixed = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<2x16x?xf32>) -> tensor<2x16xf32>
  return %mixed : tensor<2x16xf32>
}

// A softmax that is not summed with anything stays as it is.
// CHECK-LABEL: func.func private @softmax(
// CHECK-NOT: primop.online
// CHECK: return
func.func private @softmax(%x: tensor<2x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<2x?xf32> attributes {primop.chunk} {
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  return %shares : tensor<2x?xf32>
}

}

// -----

#scores = affine_map<()[n] -> (n, 64)>
#values = affine_map<()[n] -> (64, 16)>
#products = affine_map<()[n] -> (n, 16, 64)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// With a symbolic number of rows there may be many, and the scores are better made by a kernel of their own.
// CHECK-LABEL: func.func private @many_rows(
// CHECK-NOT: primop.online
// CHECK: return
func.func private @many_rows(%x: tensor<?x64xf32> {primop.kind = "argument", primop.shape = #scores}, %v: tensor<64x16xf32> {primop.kind = "state", primop.shape = #values}) -> tensor<?x16xf32> attributes {primop.chunk} {
  %shares = "primop.softmax"(%x) {space = #scores, maps = [affine_map<(i, j)[n] -> (i, j)>], dim = 1 : i64} : (tensor<?x64xf32>) -> tensor<?x64xf32>
  %products = "primop.mul"(%shares, %v) {space = #products, maps = [affine_map<(i, d, j)[n] -> (i, j)>, affine_map<(i, d, j)[n] -> (j, d)>]} : (tensor<?x64xf32>, tensor<64x16xf32>) -> tensor<?x16x64xf32>
  %mixed = "primop.sum"(%products) {space = #products, maps = [affine_map<(i, d, j)[n] -> (i, d, j)>], dims = array<i64: 2>} : (tensor<?x16x64xf32>) -> tensor<?x16xf32>
  return %mixed : tensor<?x16xf32>
}

}
