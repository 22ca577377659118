// RUN: tilec-opt %s --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-online-reductions, primop-fuse, convert-primop-to-tile{target=sm_90a}, tilec-cse)' \
// RUN: | FileCheck %s

#query = affine_map<()[n] -> (2, 16)>
#cache = affine_map<()[n] -> (2, n, 16)>
#scores = affine_map<()[n] -> (2, n)>
#products = affine_map<()[n] -> (2, 16, n)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// Attention of one query is one kernel. Its loop makes scores, and carries the maximum so far and both sums relative to
// it. A larger maximum mends the sums by one factor; after the loop the partial sums are mended in the same way, and
// what was mixed is divided by the total.
// CHECK-LABEL: func.func @attention_mul(
// CHECK: scf.for {{.*}} iter_args(%[[MAX:.*]] = %{{.*}}, %[[MIXED:.*]] = %{{.*}}, %[[TOTAL:.*]] = %{{.*}})
// CHECK: "tile.dot"
// CHECK: %[[LARGER:.*]] = arith.maximumf %[[MAX]], %{{.*}}
// CHECK: %[[MEND:.*]] = math.exp2
// CHECK: arith.mulf %[[MIXED]], %{{.*}}
// CHECK: "tile.dot"
// CHECK: arith.mulf %[[TOTAL]], %[[MEND]]
// CHECK: scf.yield %[[LARGER]]
// CHECK: "tile.reduce"({{.*}}) {{{.*}}kind = "max"
// CHECK: math.exp2
// CHECK: "tile.reduce"({{.*}}) {{{.*}}kind = "add"
// CHECK: arith.divf
// CHECK: tile.store
func.func private @attention(%q: tensor<2x16xf32> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x16xf32> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x16xf32> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x16xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #cache, maps = [affine_map<(h, j, d)[n] -> (h, d)>, affine_map<(h, j, d)[n] -> (h, j, d)>]} : (tensor<2x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %x = "primop.sum"(%scores) {space = #cache, maps = [affine_map<(h, j, d)[n] -> (h, j, d)>], dims = array<i64: 2>} : (tensor<2x?x16xf32>) -> tensor<2x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [affine_map<(h, j)[n] -> (h, j)>], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %products = "primop.mul"(%shares, %v) {space = #products, maps = [affine_map<(h, d, j)[n] -> (h, j)>, affine_map<(h, d, j)[n] -> (h, j, d)>]} : (tensor<2x?xf32>, tensor<2x?x16xf32>) -> tensor<2x16x?xf32>
  %mixed = "primop.sum"(%products) {space = #products, maps = [affine_map<(h, d, j)[n] -> (h, d, j)>], dims = array<i64: 2>} : (tensor<2x16x?xf32>) -> tensor<2x16xf32>
  return %mixed : tensor<2x16xf32>
}

}
