// RUN: tilec-opt %s --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-fold-scales, primop-online-reductions, primop-fuse, primop-share-chains{programs=48 longest=8192}, \
// RUN:   convert-primop-to-tile{target=sm_90a}, tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s

#query = affine_map<()[n] -> (2, 16)>
#cache = affine_map<()[n] -> (2, n, 16)>
#scores = affine_map<()[n] -> (2, n)>
#products = affine_map<()[n] -> (2, 16, n)>

module attributes {primop.symbols = {n = array<i64: 1, 8192>}} {

// What the programs leave has memory of its own, behind the operands.
// CHECK: func.func private @attention_mul_parts({{.*}}tile.binding = array<i64: 0, 1, 2, -1, -2, -3>, tile.results = array<i64: 3, 4, 5>

// Programs that share a loop take whole turns one after the other, and the last of them what is left. Each leaves its maximum
// and its sums.
// CHECK-LABEL: func.func @attention_mul_parts(
// CHECK-SAME: %[[Y:[^:,]*]]: memref<24x2x16xf32>, %[[M:[^:,]*]]: memref<24x2xf32>, %[[L:[^:,]*]]: memref<24x2xf32>
// CHECK-SAME: tile.arguments = ["read", "read", "read", "write", "write", "write"]
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[PART:.*]] = "tile.program_id"() {axis = 3 : i64}
// CHECK: %[[FIRST:.*]] = arith.muli %[[PART]], %c256
// CHECK: %[[LAST:.*]] = arith.cmpi eq, %[[PART]], %c23
// CHECK: %[[TURNS:.*]] = arith.divui %[[N]], %c256
// CHECK: %[[WHOLE:.*]] = arith.muli %[[TURNS]], %c256
// CHECK: %[[REST:.*]] = arith.select %[[LAST]], %[[WHOLE]], %[[N]]
// CHECK: scf.for %{{.*}} = %[[FIRST]] to %[[WHOLE]] step %c6144
// CHECK: %[[LOOP:.*]]:3 = scf.for %{{.*}} = %[[REST]] to %[[N]] step %c64
// CHECK: %[[LARGEST:.*]] = "tile.reduce"(%[[LOOP]]#0) {axes = array<i64: 2>, kind = "max"}
// CHECK: %[[MIXED:.*]] = "tile.reduce_online"(%[[LOOP]]#0, %[[LOOP]]#1)
// CHECK: %[[TOTAL:.*]] = "tile.reduce_online"(%[[LOOP]]#0, %[[LOOP]]#2)
// CHECK: "tile.store"(%[[MIXED]], %[[Y]], {{.*}}map = affine_map<(d0, d1, d2, d3) -> (d3, d0, d1)>
// CHECK: "tile.store"(%[[LARGEST]], %[[M]], {{.*}}map = affine_map<(d0, d1, d2, d3) -> (d3, d0)>
// CHECK: "tile.store"(%[[TOTAL]], %[[L]],

// The kernel that adds them up is a chain like any other, of one turn.
// CHECK-LABEL: func.func @attention_mul(
// CHECK-NOT: scf.for
// CHECK: "tile.reduce_online"
// CHECK: "tile.store"
func.func private @attention(%q: tensor<2x16xf32> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x16xf32> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x16xf32> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x16xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #cache, maps = [affine_map<(h, j, d)[n] -> (h, d)>, affine_map<(h, j, d)[n] -> (h, j, d)>]} : (tensor<2x16xf32>, tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %x = "primop.sum"(%scores) {space = #cache, maps = [affine_map<(h, j, d)[n] -> (h, j, d)>], dims = array<i64: 2>} : (tensor<2x?x16xf32>) -> tensor<2x?xf32>
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %scaled = "primop.mul"(%x, %factor) {space = #scores, maps = [affine_map<(h, j)[n] -> (h, j)>, affine_map<(h, j)[n] -> ()>]} : (tensor<2x?xf32>, tensor<f32>) -> tensor<2x?xf32>
  %shares = "primop.softmax"(%scaled) {space = #scores, maps = [affine_map<(h, j)[n] -> (h, j)>], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %products = "primop.mul"(%shares, %v) {space = #products, maps = [affine_map<(h, d, j)[n] -> (h, j)>, affine_map<(h, d, j)[n] -> (h, j, d)>]} : (tensor<2x?xf32>, tensor<2x?x16xf32>) -> tensor<2x16x?xf32>
  %mixed = "primop.sum"(%products) {space = #products, maps = [affine_map<(h, d, j)[n] -> (h, d, j)>], dims = array<i64: 2>} : (tensor<2x16x?xf32>) -> tensor<2x16xf32>
  return %mixed : tensor<2x16xf32>
}

}
