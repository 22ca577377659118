// RUN: tilec-opt %s --mlir-print-local-scope --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-online-reductions{rows=true}, primop-fuse, convert-primop-to-tile{target=sm_90a}, \
// RUN:   tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s
// RUN: tilec-opt %s --mlir-print-local-scope --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-online-reductions{rows=true}, primop-fuse, convert-primop-to-tile{target=sm_89})' \
// RUN: | FileCheck %s --check-prefix=SM89

#query = affine_map<()[past, seq] -> (2, seq, 64)>
#cache = affine_map<()[past, seq] -> (2, past + seq, 64)>
#scores = affine_map<()[past, seq] -> (2, seq, past + seq)>
#qk = affine_map<()[past, seq] -> (2, seq, past + seq, 64)>
#pv = affine_map<()[past, seq] -> (2, seq, 64, past + seq)>
#same3 = affine_map<(h, i, j)[past, seq] -> (h, i, j)>
#same4 = affine_map<(h, i, j, d)[past, seq] -> (h, i, j, d)>
#nothing = affine_map<(h, i, j)[past, seq] -> ()>
#later = affine_map<(h, i, j)[past, seq] -> (j - i - past - 1)>

module attributes {primop.symbols = {past = array<i64: 0, 63>, seq = array<i64: 1, 256>}} {

// Attention of many queries is one kernel on tensor cores: rows of queries over the warps, keys and, where nothing varies
// along both, columns of the head over the four lanes of a row. Rings have as many slots as fit. Programs with the last
// queries of any head, which see the most keys, start first. Of this narrow head two blocks share a multiprocessor.
// Where all threads copy, a warp takes 32 rows of this narrow head, and 64 keys in each turn.
// SM89-LABEL: func.func @attention_mul(
// SM89-SAME: layout = array<i64: 128, 32, 1, 1>, name = "m", walk = "grid", warps = 4 : i64
// SM89-SAME: lanes_of = "k", layout = array<i64: 64, 4, 2, 1>, name = "n", walk = "loop"
// SM89-SAME: layout = array<i64: 64, 4, 2, 1>, name = "k", walk = "loop"
// SM89-SAME: copied, dot = true, order = array<i64: 1, 0>, reversed = array<i64: 1>, stages = 4 : i64, tensor

// CHECK-LABEL: func.func @attention_mul(
// CHECK-SAME: %[[Q:[^:]*]]: memref<2x256x64xbf16>, %[[K:[^:]*]]: memref<2x319x64xbf16>, %[[V:[^:]*]]: memref<2x319x64xbf16>, %[[Y:[^:]*]]: memref<2x256x64xf32>
// CHECK-SAME: layout = array<i64: 1, 1, 1, 1>, name = "b", walk = "grid"
// CHECK-SAME: layout = array<i64: 64, 32, 1, 1>, name = "m", walk = "grid", warps = 4 : i64
// CHECK-SAME: lanes_of = "k", layout = array<i64: 64, 4, 2, 1>, name = "n", walk = "loop"
// CHECK-SAME: layout = array<i64: 128, 4, 2, 1>, name = "k", walk = "loop"
// CHECK-SAME: order = array<i64: 1, 0>, resident = 2 : i64, reversed = array<i64: 1>, stages = 3 : i64, tensor
// CHECK: %[[PAST:.*]] = "tile.symbol"() {symbol = "past"}
// CHECK: %[[SEQ:.*]] = "tile.symbol"() {symbol = "seq"}
// CHECK: %[[PROGRAM:.*]] = "tile.program_id"() {axis = 1 : i64}
// CHECK: %[[LAST:.*]] = arith.divui
// CHECK: %[[FROM_LAST:.*]] = arith.subi %[[LAST]], %[[PROGRAM]]
// CHECK: %[[I:.*]] = arith.muli %[[FROM_LAST]], %c64

// Whole tiles of keys that even the first of the tile's queries sees need no mask. The loop over the others ends where the
// last query sees no more of them; neither goes beyond the cache.
// CHECK: %[[KEYS:.*]] = arith.addi %[[PAST]], %[[SEQ]]
// CHECK: %[[OF_FIRST:.*]] = affine.apply affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 + s0 + 1)>(%{{.*}}, %[[I]], %c0, %c0)[%[[PAST]], %[[SEQ]]]
// CHECK: %[[AT_LEAST:.*]] = arith.maxsi %[[OF_FIRST]], %c0
// CHECK: %[[SEEN:.*]] = arith.minsi %[[KEYS]], %[[AT_LEAST]]
// CHECK: %[[TILES:.*]] = arith.divui %[[SEEN]], %c128
// CHECK: %[[WHOLE:.*]] = arith.muli %[[TILES]], %c128
// CHECK: affine.apply affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 + s0 + 64)>(%{{.*}}, %[[I]], %c0, %c0)[%[[PAST]], %[[SEQ]]]
// CHECK: %[[SEEN:.*]] = arith.minsi %[[KEYS]],
// CHECK: %[[TILES:.*]] = arith.ceildivui %[[SEEN]], %c128
// CHECK: %[[END:.*]] = arith.muli %[[TILES]], %c128

// Carried are the maximum of each row and what was mixed, each in one place, and the total as one part for each lane of a
// row, which are added once at the end.
// CHECK: %[[FIRST:.*]]:3 = scf.for %[[J:.*]] = %c0 to %[[WHOLE]] step %c128 iter_args(%[[MAX:.*]] = %{{.*}}, %[[MIXED:.*]] = %{{.*}}, %[[TOTAL:.*]] = %{{.*}}) -> (vector<1x64x1x1xf32>, vector<1x64x64x1xf32>, vector<1x64x1x4xf32>)
// CHECK-NOT: tile.index
// CHECK: %[[VALUES:.*]] = "tile.load"(%[[V]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>}
// CHECK-NOT: tile.index
// CHECK: %[[QUERIES:.*]] = "tile.load"(%[[Q]],
// CHECK: %[[READ:.*]] = "tile.load"(%[[K]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>}
// CHECK: %[[SCORES:.*]] = "tile.dot"(%[[QUERIES]], %[[READ]], %{{.*}}) : {{.*}} -> vector<1x64x1x128xf32>
// CHECK: %[[LARGEST:.*]] = "tile.reduce"(%[[SCORES]]) {axes = array<i64: 3>, kind = "max"} : {{.*}} -> vector<1x64x1x1xf32>
// CHECK: %[[LARGER:.*]] = arith.maximumf %[[MAX]], %[[LARGEST]]
// CHECK: %[[MEND:.*]] = math.exp2 %{{.*}} fastmath<afn> : vector<1x64x1x1xf32>
// CHECK: %[[MENDED:.*]] = arith.mulf %[[MIXED]], %{{.*}}
// CHECK: %[[DISTANCES:.*]] = math.fma %[[SCORES]], %{{.*}}, %{{.*}} : vector<1x64x1x128xf32>
// CHECK: %[[POWERS:.*]] = math.exp2 %[[DISTANCES]] fastmath<afn>
// CHECK-NOT: arith.select
// CHECK: %[[SHARES:.*]] = arith.truncf %[[POWERS]] : {{.*}} to vector<1x64x1x128xbf16>
// CHECK-NOT: arith.select
// CHECK: %[[MIX:.*]] = "tile.dot"(%[[SHARES]], %[[VALUES]], %[[MENDED]])
// CHECK: %[[SUM:.*]] = "tile.reduce"(%[[POWERS]]) {axes = array<i64: 3>, kind = "add"} : {{.*}} -> vector<1x64x1x4xf32>
// CHECK: %[[MORE:.*]] = arith.addf %{{.*}}, %[[SUM]]
// CHECK: scf.yield %[[LARGER]], %[[MIX]], %[[MORE]]

// The second loop goes on with them, under the causal mask and that of the length. The power of a score that is left out is
// zero, as the score is -inf: nothing else leaves it out.
// CHECK: %[[ALL:.*]]:3 = scf.for %{{.*}} = %[[WHOLE]] to %[[END]] step %c128 iter_args(%{{.*}} = %[[FIRST]]#0, %{{.*}} = %[[FIRST]]#1, %{{.*}} = %[[FIRST]]#2)
// CHECK: "tile.load"(%[[K]], {{.*}}mask = affine_map<(d0, d1, d2, d3)[s0, s1] -> (-d3 + s0 + s1 - 1)>
// CHECK: %[[SCORES:.*]] = "tile.dot"
// CHECK: "tile.index"({{.*}}) {map = affine_map<(d0, d1, d2, d3)[s0, s1] -> (-d1 + d3 - s0 - 1)>} {{.*}} -> vector<1x64x1x128xi32>
// CHECK: %[[EXCLUDED:.*]] = arith.select
// CHECK: %[[CAUSAL:.*]] = arith.addf %[[SCORES]], %[[EXCLUDED]]
// CHECK: "tile.index"({{.*}}) {map = affine_map<(d0, d1, d2, d3)[s0, s1] -> (-d3 + s0 + s1 - 1)>} {{.*}} -> vector<1x1x1x128xi32>
// CHECK: %[[MASKED:.*]] = arith.select %{{.*}}, %[[CAUSAL]], %{{.*}}
// CHECK: "tile.reduce"(%[[MASKED]]) {axes = array<i64: 3>, kind = "max"}
// CHECK: %[[DISTANCES:.*]] = math.fma %[[MASKED]], %{{.*}}, %{{.*}} : vector<1x64x1x128xf32>
// CHECK-NEXT: %[[POWERS:.*]] = math.exp2 %[[DISTANCES]] fastmath<afn>
// CHECK-NOT: arith.select
// CHECK: %[[SHARES:.*]] = arith.truncf %[[POWERS]]
// CHECK-NOT: arith.select
// CHECK: "tile.dot"(%[[SHARES]],
// CHECK-NOT: arith.select
// CHECK: "tile.reduce"(%[[POWERS]]) {axes = array<i64: 3>, kind = "add"}

// What was mixed is divided by the total. Only what is stored is masked along the queries: one body serves all programs.
// CHECK: "tile.reduce"(%[[ALL]]#2) {axes = array<i64: 3>, kind = "add"} : (vector<1x64x1x4xf32>) -> vector<1x64x1x1xf32>
// CHECK: arith.divf
// CHECK: %[[RESULT:.*]] = arith.mulf %[[ALL]]#1,
// CHECK: "tile.store"(%[[RESULT]], %[[Y]], {{.*}}mask = affine_map<(d0, d1, d2, d3)[s0, s1] -> (-d1 + s1 - 1)>
// CHECK-NEXT: return
func.func private @attention(%q: tensor<2x?x64xbf16> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x?x64xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [affine_map<(h, i, j, d)[past, seq] -> (h, i, d)>, affine_map<(h, i, j, d)[past, seq] -> (h, j, d)>]} : (tensor<2x?x64xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x?x64xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#same4], dims = array<i64: 3>} : (tensor<2x?x?x64xf32>) -> tensor<2x?x?xf32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %masked = "primop.add"(%x, %excluded) {space = #scores, maps = [#same3, #nothing], bounds = [#nothing, #later]} : (tensor<2x?x?xf32>, tensor<f32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%masked) {space = #scores, maps = [#same3], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#same3]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [affine_map<(h, i, d, j)[past, seq] -> (h, i, j)>, affine_map<(h, i, d, j)[past, seq] -> (h, j, d)>]} : (tensor<2x?x?xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x64x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#same4], dims = array<i64: 3>} : (tensor<2x?x64x?xf32>) -> tensor<2x?x64xf32>
  return %mixed : tensor<2x?x64xf32>
}

}
