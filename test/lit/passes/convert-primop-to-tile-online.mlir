// RUN: tilec-opt %s --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-fold-scales, primop-online-reductions, primop-fuse, \
// RUN:   convert-primop-to-tile{target=sm_90a}, tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s

#query = affine_map<()[n] -> (2, 16)>
#cache = affine_map<()[n] -> (2, n, 16)>
#scores = affine_map<()[n] -> (2, n)>
#products = affine_map<()[n] -> (2, 16, n)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// Attention of one query is one kernel, whose loops read ahead, by clusters of eight blocks of 128 threads, so that few threads
// have something to combine in the end. They carry, for each thread along the cache, the maximum so far and both sums relative
// to it. Values are read first; a larger maximum mends the sums by one factor. The factor of the scores is part of the one in
// their exponential, and each of these is one multiply-add.
// CHECK-LABEL: func.func @attention_mul(
// CHECK-SAME: %[[Q:[^:]*]]: memref<2x16xf32>, %[[K:[^:]*]]: memref<2x64x16xf32>, %[[V:[^:]*]]: memref<2x64x16xf32>
// CHECK-SAME: tile.schedule = {ahead, {{.*}}layout = array<i64: 2048, 512, 1, 8>, name = "k"{{.*}}resident = 3 : i64
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[TURNS:.*]] = arith.divui %[[N]], %c2048
// CHECK: %[[WHOLE:.*]] = arith.muli %[[TURNS]], %c2048
// CHECK: %[[FIRST:.*]]:3 = scf.for %{{.*}} = %c0 to %[[WHOLE]] step %c2048 iter_args(%[[MAX:.*]] = %{{.*}}, %[[MIXED:.*]] = %{{.*}}, %[[TOTAL:.*]] = %{{.*}})
// CHECK: "tile.load"(%[[V]],
// CHECK: "tile.load"(%[[K]],
// CHECK: "tile.dot"
// CHECK: %[[LARGEST:.*]] = "tile.reduce"(%{{.*}}) {axes = array<i64: 2>, kind = "max"} : (vector<1x1x2048xf32>) -> vector<1x1x512xf32>
// CHECK: %[[LARGER:.*]] = arith.maximumf %[[MAX]], %[[LARGEST]]
// CHECK: %[[MEND:.*]] = math.exp2
// CHECK: %[[MENDED:.*]] = arith.mulf %[[MIXED]], %{{.*}}
// CHECK: %[[OFFSET:.*]] = "tile.spread"(%{{.*}}) : (vector<1x1x512xf32>) -> vector<1x1x2048xf32>
// CHECK: %[[SCALE:.*]] = arith.constant dense<0.36067{{.*}}> : vector<1x1x2048xf32>
// CHECK: math.fma %{{.*}}, %[[SCALE]], %[[OFFSET]]
// CHECK: "tile.dot"(%{{.*}}, %{{.*}}, %[[MENDED]])
// CHECK: arith.mulf %[[TOTAL]], %[[MEND]]
// CHECK: scf.yield %[[LARGER]]

// What is left of the cache is taken one key a thread, of which some do not exist.
// CHECK: %[[LAST:.*]]:3 = scf.for %{{.*}} = %[[WHOLE]] to %[[N]] step %c512 iter_args(%{{.*}} = %[[FIRST]]#0, %{{.*}} = %[[FIRST]]#1, %{{.*}} = %[[FIRST]]#2)
// CHECK: "tile.load"(%[[K]], {{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 - 1)>{{.*}} -> vector<1x16x512xf32>
// CHECK: arith.select

// After the loops the threads' sums are mended and combined, and what was mixed is divided by the total.
// CHECK-NOT: tile.reduce"
// CHECK: %[[ALL:.*]] = "tile.reduce_online"(%[[LAST]]#0, %[[LAST]]#1) {axes = array<i64: 2>, floor = -1.0{{.*}}E+30 : f64, scale = 0.36067{{.*}} : f64} : (vector<1x1x512xf32>, vector<1x16x512xf32>) -> vector<1x16x1xf32>
// CHECK: "tile.reduce_online"(%[[LAST]]#0, %[[LAST]]#2) {{.*}} -> vector<1x1x1xf32>
// CHECK: %[[INVERSE:.*]] = arith.divf
// CHECK: vector.broadcast %[[INVERSE]]
// CHECK: %[[RESULT:.*]] = arith.mulf %[[ALL]], %{{.*}}
// CHECK: "tile.store"(%[[RESULT]],
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
