// RUN: tilec-opt %s --mlir-print-local-scope --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-online-reductions{rows=true}, primop-fuse, convert-primop-to-tile{target=sm_90a}, \
// RUN:   tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s

#query = affine_map<()[past, seq] -> (2, seq, 64)>
#cache = affine_map<()[past, seq] -> (2, past + seq, 64)>
#scores = affine_map<()[past, seq] -> (2, seq, past + seq)>
#qk = affine_map<()[past, seq] -> (2, seq, past + seq, 64)>
#pv = affine_map<()[past, seq] -> (2, seq, 64, past + seq)>
#same3 = affine_map<(h, i, j)[past, seq] -> (h, i, j)>
#same4 = affine_map<(h, i, j, d)[past, seq] -> (h, i, j, d)>
#nothing = affine_map<(h, i, j)[past, seq] -> ()>
#later = affine_map<(h, i, j)[past, seq] -> (j - i - past - 1)>
#earlier = affine_map<(h, i, j)[past, seq] -> (i + past - 300 - j)>

#one = affine_map<()[past, seq] -> (2, 64)>
#one_cache = affine_map<()[past, seq] -> (2, past, 64)>
#one_scores = affine_map<()[past, seq] -> (2, past)>
#one_products = affine_map<()[past, seq] -> (2, 64, past)>
#same2 = affine_map<(h, j)[past, seq] -> (h, j)>
#never = affine_map<(h, j)[past, seq] -> ()>
#one_earlier = affine_map<(h, j)[past, seq] -> (past - 301 - j)>

module attributes {primop.symbols = {past = array<i64: 1, 2048>, seq = array<i64: 1, 256>}} {

// A second mask, of a window of 300 keys, leaves out what comes first: tiles of keys are counted from the first key that the
// first of the tile's queries sees. No key before it is read.
// CHECK-LABEL: func.func @many_mul(
// CHECK-SAME: %[[Q:[^:]*]]: memref<2x256x64xbf16>, %[[K:[^:]*]]: memref<2x2304x64xbf16>, %[[V:[^:]*]]: memref<2x2304x64xbf16>
// CHECK: %[[PAST:.*]] = "tile.symbol"() {symbol = "past"}
// CHECK: %[[SEQ:.*]] = "tile.symbol"() {symbol = "seq"}
// CHECK: %[[I:.*]] = arith.muli %{{.*}}, %c64
// CHECK: %[[FIRST:.*]] = affine.apply affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 + s0 - 299)>(%{{.*}}, %[[I]], %c0, %c0)[%[[PAST]], %[[SEQ]]]
// CHECK: %[[SEEN:.*]] = arith.maxsi %c0, %[[FIRST]]
// CHECK: %[[KEYS:.*]] = arith.addi %[[PAST]], %[[SEQ]]
// CHECK: %[[BEGIN:.*]] = arith.minsi %[[SEEN]], %[[KEYS]]

// The end is that of the last query, in whole tiles from there. All queries see the keys from the last one's first key on, and
// up to the first one's last.
// CHECK: affine.apply affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 + s0 + 64)>
// CHECK: arith.ceildivui
// CHECK: %[[END:.*]] = arith.addi %[[BEGIN]],
// CHECK: affine.apply affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 + s0 - 236)>
// CHECK: arith.ceildivui
// CHECK: %[[ALL_SEE:.*]] = arith.addi %[[BEGIN]],
// CHECK: %[[CLEAR:.*]] = arith.minsi %[[ALL_SEE]], %[[END]]
// CHECK: affine.apply affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 + s0 + 1)>
// CHECK: arith.divui
// CHECK: %[[ALL_SAW:.*]] = arith.addi %[[BEGIN]],
// CHECK: %[[CUT:.*]] = arith.maxsi %[[ALL_SAW]], %[[CLEAR]]

// Three loops: under the masks, without any, and under the masks again.
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[CLEAR]] step %c128
// CHECK: "tile.dot"
// CHECK: "tile.index"({{.*}} -> (-d1 + d3 - s0 - 1)>}
// CHECK: "tile.index"({{.*}} -> (d1 - d3 + s0 - 300)>}
// CHECK: "tile.dot"
// CHECK: scf.for %{{.*}} = %[[CLEAR]] to %[[CUT]] step %c128
// CHECK: "tile.dot"
// CHECK-NOT: "tile.index"
// CHECK: "tile.dot"
// CHECK: scf.for %{{.*}} = %[[CUT]] to %[[END]] step %c128
// CHECK: "tile.dot"
// CHECK: "tile.index"({{.*}} -> (-d1 + d3 - s0 - 1)>}
// CHECK: "tile.index"({{.*}} -> (d1 - d3 + s0 - 300)>}
// CHECK: "tile.dot"
// CHECK: return
func.func private @many(%q: tensor<2x?x64xbf16> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x?x64xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [affine_map<(h, i, j, d)[past, seq] -> (h, i, d)>, affine_map<(h, i, j, d)[past, seq] -> (h, j, d)>]} : (tensor<2x?x64xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x?x64xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#same4], dims = array<i64: 3>} : (tensor<2x?x?x64xf32>) -> tensor<2x?x?xf32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %causal = "primop.add"(%x, %excluded) {space = #scores, maps = [#same3, #nothing], bounds = [#nothing, #later]} : (tensor<2x?x?xf32>, tensor<f32>) -> tensor<2x?x?xf32>
  %masked = "primop.add"(%causal, %excluded) {space = #scores, maps = [#same3, #nothing], bounds = [#nothing, #earlier]} : (tensor<2x?x?xf32>, tensor<f32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%masked) {space = #scores, maps = [#same3], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#same3]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [affine_map<(h, i, d, j)[past, seq] -> (h, i, j)>, affine_map<(h, i, d, j)[past, seq] -> (h, j, d)>]} : (tensor<2x?x?xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x64x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#same4], dims = array<i64: 3>} : (tensor<2x?x64x?xf32>) -> tensor<2x?x64xf32>
  return %mixed : tensor<2x?x64xf32>
}

// One query, at the end of the cache: the loops begin at the first key of its window, so that the threads of the cluster share
// its keys evenly, and nothing is left to mask but what is past the end.
// CHECK-LABEL: func.func @one_mul(
// CHECK: %[[PAST:.*]] = "tile.symbol"() {symbol = "past"}
// CHECK: %[[FIRST:.*]] = affine.apply affine_map<(d0, d1, d2)[s0, s1] -> (s0 - 300)>
// CHECK: %[[SEEN:.*]] = arith.maxsi %c0, %[[FIRST]]
// CHECK: %[[BEGIN:.*]] = arith.minsi %[[SEEN]], %[[PAST]]
// CHECK: %[[TILES:.*]] = arith.divui %{{.*}}, %c512
// CHECK: %[[KEYS:.*]] = arith.muli %[[TILES]], %c512
// CHECK: %[[WHOLE:.*]] = arith.addi %[[BEGIN]], %[[KEYS]]
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[WHOLE]] step %c512
// CHECK-NOT: "tile.index"
// CHECK: scf.for %{{.*}} = %[[WHOLE]] to %[[PAST]] step %c128
// CHECK: "tile.index"({{.*}} -> (-d2 + s0 - 1)>}
// CHECK-NOT: "tile.index"
// CHECK: return
func.func private @one(%q: tensor<2x64xbf16> {primop.kind = "argument", primop.shape = #one}, %k: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #one_cache}, %v: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #one_cache}) -> (tensor<2x64xf32> {primop.shape = #one}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #one_cache, maps = [affine_map<(h, j, d)[past, seq] -> (h, d)>, affine_map<(h, j, d)[past, seq] -> (h, j, d)>]} : (tensor<2x64xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x64xf32>
  %x = "primop.sum"(%scores) {space = #one_cache, maps = [affine_map<(h, j, d)[past, seq] -> (h, j, d)>], dims = array<i64: 2>} : (tensor<2x?x64xf32>) -> tensor<2x?xf32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %masked = "primop.add"(%x, %excluded) {space = #one_scores, maps = [#same2, #never], bounds = [#never, #one_earlier]} : (tensor<2x?xf32>, tensor<f32>) -> tensor<2x?xf32>
  %shares = "primop.softmax"(%masked) {space = #one_scores, maps = [#same2], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %p = "primop.cast"(%shares) {space = #one_scores, maps = [#same2]} : (tensor<2x?xf32>) -> tensor<2x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #one_products, maps = [affine_map<(h, d, j)[past, seq] -> (h, j)>, affine_map<(h, d, j)[past, seq] -> (h, j, d)>]} : (tensor<2x?xbf16>, tensor<2x?x64xbf16>) -> tensor<2x64x?xf32>
  %mixed = "primop.sum"(%products) {space = #one_products, maps = [affine_map<(h, d, j)[past, seq] -> (h, d, j)>], dims = array<i64: 2>} : (tensor<2x64x?xf32>) -> tensor<2x64xf32>
  return %mixed : tensor<2x64xf32>
}

}
