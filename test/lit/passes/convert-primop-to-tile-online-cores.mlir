// RUN: tilec-opt %s --mlir-print-local-scope --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-fold-scales, primop-online-reductions, primop-fuse, \
// RUN:   convert-primop-to-tile{target=sm_90a}, tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s

#query = affine_map<(h, j, d)[n] -> (h, d)>
#keys = affine_map<(h, j, d)[n] -> (h floordiv 2, j, d)>
#shares = affine_map<(h, d, j)[n] -> (h, j)>
#values = affine_map<(h, d, j)[n] -> (h floordiv 2, j, d)>
#same2 = affine_map<(h, j)[n] -> (h, j)>
#same3 = affine_map<(h, i, j)[n] -> (h, i, j)>
#nothing = affine_map<(h, j)[n] -> ()>

module attributes {primop.symbols = {n = array<i64: 1, 4096>}} {

// Attention of one query with many heads of keys is made by the tensor core of each warp, straight from memory: its rows are
// the queries that read the same keys. 16 warps, of two blocks, share the keys. Two axes have a second layout: the keys where
// they are the columns of the first product, and the head where it is the columns of the second one. The head lies over four
// lanes, and so do the keys that are the depth of the second product; the head's twin lies over the eight others, and so do the
// queries and the keys' twin.
// CHECK-LABEL: func.func @attention_mul(
// CHECK-SAME: %[[Q:[^:]*]]: memref<64x64xbf16>, %[[K:[^:]*]]: memref<32x4096x64xbf16>, %[[V:[^:]*]]: memref<32x4096x64xbf16>, %[[Y:[^:]*]]: memref<64x64xf32>
// CHECK-SAME: lanes_of = "n_twin", layout = array<i64: 2, 2, 1, 1>, name = "b", walk = "grid"}
// CHECK-SAME: {extent = affine_map<()[s0] -> (64)>, layout = array<i64: 64, 4, 8, 1>, name = "n", walk = "loop"}
// CHECK-SAME: lanes_of = "n", layout = array<i64: 512, 64, 1, 2>, name = "k", walk = "loop", warps = 16 : i64}
// CHECK-SAME: lanes_of = "n_twin", layout = array<i64: 512, 128, 1, 2>, name = "k_twin", twin_of = "k", walk = "loop", warps = 16 : i64}
// CHECK-SAME: {extent = affine_map<()[s0] -> (64)>, layout = array<i64: 64, 8, 4, 1>, name = "n_twin", twin_of = "n", walk = "loop"}
// CHECK-SAME: dot = true, order = array<i64>, resident = 1 : i64, unroll

// Whole turns come first. What is carried has one part a warp: maxima, what was mixed, and totals. Values are read first, along
// the twin of the head, and keys along their twin, which begins where they do.
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[PROGRAM:.*]] = "tile.program_id"() {axis = 0 : i64}
// CHECK: %[[H:.*]] = arith.muli %[[PROGRAM]], %c2
// CHECK: %[[TURNS:.*]] = arith.divui %[[N]], %c512
// CHECK: %[[WHOLE:.*]] = arith.muli %[[TURNS]], %c512
// CHECK: %[[FIRST:.*]]:3 = scf.for %[[J:.*]] = %c0 to %[[WHOLE]] step %c512 iter_args(%[[MAX:.*]] = %{{.*}}, %[[MIXED:.*]] = %{{.*}}, %[[TOTAL:.*]] = %{{.*}}) -> (vector<2x1x16x1x1xf32>, vector<2x64x16x1x1xf32>, vector<2x1x16x1x1xf32>)
// CHECK-NEXT: %[[VALUES:.*]] = "tile.load"(%[[V]], %[[H]], %c0, %[[J]], %c0, %c0) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0 floordiv 2, d2, d4)>} : {{.*}} -> vector<1x1x512x1x64xbf16>
// CHECK: %[[QUERIES:.*]] = "tile.load"(%[[Q]], %[[H]], %c0, {{.*}}) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>} : {{.*}} -> vector<2x64x1x1x1xbf16>
// CHECK: %[[KEYS:.*]] = "tile.load"(%[[K]], %[[H]], %c0, %[[J]], %[[J]], %c0) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0 floordiv 2, d3, d1)>} : {{.*}} -> vector<1x64x1x512x1xbf16>
// CHECK: %[[SCORES:.*]] = "tile.dot_twin"(%[[QUERIES]], %[[KEYS]], %{{.*}}) {column = 2 : i64, depth = 1 : i64, twin = 3 : i64} : {{.*}} -> vector<2x1x512x1x1xf32>
// CHECK: %[[LARGEST:.*]] = "tile.reduce"(%[[SCORES]]) {axes = array<i64: 2>, kind = "max"} : (vector<2x1x512x1x1xf32>) -> vector<2x1x16x1x1xf32>
// CHECK: %[[LARGER:.*]] = arith.maximumf %[[MAX]], %[[LARGEST]]
// CHECK: %[[MEND:.*]] = math.exp2 %{{.*}} : vector<2x1x16x1x1xf32>
// CHECK: %[[MENDED:.*]] = arith.mulf %[[MIXED]], %{{.*}} : vector<2x64x16x1x1xf32>
// CHECK: %[[OFFSET:.*]] = "tile.spread"(%{{.*}}) : (vector<2x1x16x1x1xf32>) -> vector<2x1x512x1x1xf32>
// CHECK: %[[EXPONENT:.*]] = math.fma %[[SCORES]], %{{.*}}, %[[OFFSET]]
// CHECK: %[[SHARES:.*]] = math.exp2 %[[EXPONENT]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[SHARES]] : vector<2x1x512x1x1xf32> to vector<2x1x512x1x1xbf16>
// CHECK: %[[NEXT:.*]] = "tile.dot_twin"(%[[NARROW]], %[[VALUES]], %[[MENDED]]) {column = 1 : i64, depth = 2 : i64, twin = 4 : i64} : {{.*}} -> vector<2x64x16x1x1xf32>
// CHECK: %[[KEPT:.*]] = arith.mulf %[[TOTAL]], %[[MEND]]
// CHECK: %[[MORE:.*]] = "tile.reduce"(%[[SHARES]]) {axes = array<i64: 2>, kind = "add"} : (vector<2x1x512x1x1xf32>) -> vector<2x1x16x1x1xf32>
// CHECK: %[[SUM:.*]] = arith.addf %[[KEPT]], %[[MORE]]
// CHECK: scf.yield %[[LARGER]], %[[NEXT]], %[[SUM]]

// What is left is a whole turn as well, as a tensor core takes no less, under a mask: of values along the keys, of keys along
// their twin. Scores of keys that do not exist are -inf, which is no maximum and whose share is zero.
// CHECK: %[[LAST:.*]]:3 = scf.for %[[J:.*]] = %[[WHOLE]] to %[[N]] step %c512 iter_args(%[[MAX:.*]] = %[[FIRST]]#0, %{{.*}} = %[[FIRST]]#1, %{{.*}} = %[[FIRST]]#2)
// CHECK-NEXT: %[[VALUES:.*]] = "tile.load"(%[[V]], {{.*}}, %[[N]]) {{{.*}}mask = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d2 + s0 - 1)>} : {{.*}} -> vector<1x1x512x1x64xbf16>
// CHECK: %[[KEYS:.*]] = "tile.load"(%[[K]], {{.*}}%[[J]], %[[J]], %c0, %[[N]]) {{{.*}}mask = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d3 + s0 - 1)>} : {{.*}} -> vector<1x64x1x512x1xbf16>
// CHECK: %[[SCORES:.*]] = "tile.dot_twin"(%{{.*}}, %[[KEYS]], %{{.*}}) {column = 2 : i64, depth = 1 : i64, twin = 3 : i64}
// CHECK: "tile.index"({{.*}}) {map = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d2 + s0 - 1)>}
// CHECK: %[[EXISTS:.*]] = vector.broadcast %{{.*}} : vector<1x1x512x1x1xi1> to vector<2x1x512x1x1xi1>
// CHECK: %[[NEVER:.*]] = arith.constant dense<0xFF800000> : vector<2x1x512x1x1xf32>
// CHECK: %[[SEEN:.*]] = arith.select %[[EXISTS]], %[[SCORES]], %[[NEVER]]
// CHECK: "tile.reduce"(%[[SEEN]]) {axes = array<i64: 2>, kind = "max"}
// CHECK: %[[EXPONENT:.*]] = math.fma %[[SEEN]], %{{.*}} : vector<2x1x512x1x1xf32>
// CHECK-NEXT: %[[SHARES:.*]] = math.exp2 %[[EXPONENT]]
// CHECK-NEXT: %[[NARROW:.*]] = arith.truncf %[[SHARES]]
// CHECK-NEXT: "tile.dot_twin"(%[[NARROW]], %[[VALUES]], %{{.*}}) {column = 1 : i64, depth = 2 : i64, twin = 4 : i64}
// CHECK-NOT: arith.select
// CHECK: "tile.reduce"(%[[SHARES]]) {axes = array<i64: 2>, kind = "add"}

// After the loops the warps' parts are mended and combined.
// CHECK: %[[ALL:.*]] = "tile.reduce_online"(%[[LAST]]#0, %[[LAST]]#1) {axes = array<i64: 2>, {{.*}}} : (vector<2x1x16x1x1xf32>, vector<2x64x16x1x1xf32>) -> vector<2x64x1x1x1xf32>
// CHECK: "tile.reduce_online"(%[[LAST]]#0, %[[LAST]]#2) {axes = array<i64: 2>, {{.*}}} : (vector<2x1x16x1x1xf32>, vector<2x1x16x1x1xf32>) -> vector<2x1x1x1x1xf32>
// CHECK: %[[RESULT:.*]] = arith.mulf %[[ALL]], %{{.*}}
// CHECK: "tile.store"(%[[RESULT]], %[[Y]], %[[H]], {{.*}}) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>}
func.func private @attention(%q: tensor<64x64xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (64, 64)>}, %k: tensor<32x?x64xbf16> {primop.kind = "state", primop.shape = affine_map<()[n] -> (32, n, 64)>}, %v: tensor<32x?x64xbf16> {primop.kind = "state", primop.shape = affine_map<()[n] -> (32, n, 64)>}) -> (tensor<64x64xf32> {primop.shape = affine_map<()[n] -> (64, 64)>}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = affine_map<()[n] -> (64, n, 64)>, maps = [#query, #keys]} : (tensor<64x64xbf16>, tensor<32x?x64xbf16>) -> tensor<64x?x64xf32>
  %x = "primop.sum"(%scores) {space = affine_map<()[n] -> (64, n, 64)>, maps = [#same3], dims = array<i64: 2>} : (tensor<64x?x64xf32>) -> tensor<64x?xf32>
  %factor = "primop.constant"() {value = 0.125 : f32} : () -> tensor<f32>
  %scaled = "primop.mul"(%x, %factor) {space = affine_map<()[n] -> (64, n)>, maps = [#same2, #nothing]} : (tensor<64x?xf32>, tensor<f32>) -> tensor<64x?xf32>
  %shares = "primop.softmax"(%scaled) {space = affine_map<()[n] -> (64, n)>, maps = [#same2], dim = 1 : i64} : (tensor<64x?xf32>) -> tensor<64x?xf32>
  %narrow = "primop.cast"(%shares) {space = affine_map<()[n] -> (64, n)>, maps = [#same2]} : (tensor<64x?xf32>) -> tensor<64x?xbf16>
  %products = "primop.mul"(%narrow, %v) {space = affine_map<()[n] -> (64, 64, n)>, maps = [#shares, #values]} : (tensor<64x?xbf16>, tensor<32x?x64xbf16>) -> tensor<64x64x?xf32>
  %mixed = "primop.sum"(%products) {space = affine_map<()[n] -> (64, 64, n)>, maps = [#same3], dims = array<i64: 2>} : (tensor<64x64x?xf32>) -> tensor<64x64xf32>
  return %mixed : tensor<64x64xf32>
}

// Of few heads two blocks each would leave multiprocessors idle, where no rows are known to have been there before the kernel,
// and f32 is no operand of these products: there are no twins.
// CHECK-LABEL: func.func @few_mul(
// CHECK-NOT: twin
// CHECK: "tile.dot"(
// CHECK-NOT: twin
// CHECK-LABEL: func.func @wide_mul(
// CHECK-NOT: twin
// CHECK: "tile.dot"(
// CHECK-NOT: twin
// CHECK: return
func.func private @few(%q: tensor<8x64xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (8, 64)>}, %k: tensor<4x?x64xbf16> {primop.kind = "state", primop.shape = affine_map<()[n] -> (4, n, 64)>}, %v: tensor<4x?x64xbf16> {primop.kind = "state", primop.shape = affine_map<()[n] -> (4, n, 64)>}) -> (tensor<8x64xf32> {primop.shape = affine_map<()[n] -> (8, 64)>}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = affine_map<()[n] -> (8, n, 64)>, maps = [#query, #keys]} : (tensor<8x64xbf16>, tensor<4x?x64xbf16>) -> tensor<8x?x64xf32>
  %x = "primop.sum"(%scores) {space = affine_map<()[n] -> (8, n, 64)>, maps = [#same3], dims = array<i64: 2>} : (tensor<8x?x64xf32>) -> tensor<8x?xf32>
  %factor = "primop.constant"() {value = 0.125 : f32} : () -> tensor<f32>
  %scaled = "primop.mul"(%x, %factor) {space = affine_map<()[n] -> (8, n)>, maps = [#same2, #nothing]} : (tensor<8x?xf32>, tensor<f32>) -> tensor<8x?xf32>
  %shares = "primop.softmax"(%scaled) {space = affine_map<()[n] -> (8, n)>, maps = [#same2], dim = 1 : i64} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  %narrow = "primop.cast"(%shares) {space = affine_map<()[n] -> (8, n)>, maps = [#same2]} : (tensor<8x?xf32>) -> tensor<8x?xbf16>
  %products = "primop.mul"(%narrow, %v) {space = affine_map<()[n] -> (8, 64, n)>, maps = [#shares, #values]} : (tensor<8x?xbf16>, tensor<4x?x64xbf16>) -> tensor<8x64x?xf32>
  %mixed = "primop.sum"(%products) {space = affine_map<()[n] -> (8, 64, n)>, maps = [#same3], dims = array<i64: 2>} : (tensor<8x64x?xf32>) -> tensor<8x64xf32>
  return %mixed : tensor<8x64xf32>
}
func.func private @wide(%q: tensor<64x64xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (64, 64)>}, %k: tensor<32x?x64xf32> {primop.kind = "state", primop.shape = affine_map<()[n] -> (32, n, 64)>}, %v: tensor<32x?x64xf32> {primop.kind = "state", primop.shape = affine_map<()[n] -> (32, n, 64)>}) -> (tensor<64x64xf32> {primop.shape = affine_map<()[n] -> (64, 64)>}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = affine_map<()[n] -> (64, n, 64)>, maps = [#query, #keys]} : (tensor<64x64xf32>, tensor<32x?x64xf32>) -> tensor<64x?x64xf32>
  %x = "primop.sum"(%scores) {space = affine_map<()[n] -> (64, n, 64)>, maps = [#same3], dims = array<i64: 2>} : (tensor<64x?x64xf32>) -> tensor<64x?xf32>
  %factor = "primop.constant"() {value = 0.125 : f32} : () -> tensor<f32>
  %scaled = "primop.mul"(%x, %factor) {space = affine_map<()[n] -> (64, n)>, maps = [#same2, #nothing]} : (tensor<64x?xf32>, tensor<f32>) -> tensor<64x?xf32>
  %shares = "primop.softmax"(%scaled) {space = affine_map<()[n] -> (64, n)>, maps = [#same2], dim = 1 : i64} : (tensor<64x?xf32>) -> tensor<64x?xf32>
  %products = "primop.mul"(%shares, %v) {space = affine_map<()[n] -> (64, 64, n)>, maps = [#shares, #values]} : (tensor<64x?xf32>, tensor<32x?x64xf32>) -> tensor<64x64x?xf32>
  %mixed = "primop.sum"(%products) {space = affine_map<()[n] -> (64, 64, n)>, maps = [#same3], dims = array<i64: 2>} : (tensor<64x64x?xf32>) -> tensor<64x64xf32>
  return %mixed : tensor<64x64xf32>
}

}
