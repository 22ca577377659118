// RUN: tilec-opt %s --mlir-print-local-scope --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-online-reductions, primop-fuse, primop-held-rows, \
// RUN:   convert-primop-to-tile{target=sm_90a}, tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s
// RUN: tilec-opt %s --mlir-print-local-scope --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, primop-online-reductions, primop-fuse, primop-held-rows, \
// RUN:   convert-primop-to-tile{target=sm_80})' \
// RUN: | FileCheck %s --check-prefix=SM80

#query = affine_map<()[past] -> (2, 16)>
#new = affine_map<()[past] -> (2, 1, 16)>
#cache = affine_map<()[past] -> (2, 64, 16)>
#seen = affine_map<()[past] -> (2, past + 1, 16)>
#scores = affine_map<()[past] -> (2, past + 1)>
#products = affine_map<()[past] -> (2, 16, past + 1)>
#core_query = affine_map<()[past] -> (8, 64)>
#core_new = affine_map<()[past] -> (4, 1, 64)>
#core_cache = affine_map<()[past] -> (4, 64, 64)>
#core_seen = affine_map<()[past] -> (8, past + 1, 64)>
#core_scores = affine_map<()[past] -> (8, past + 1)>
#core_products = affine_map<()[past] -> (8, 64, past + 1)>
#two_new = affine_map<()[past] -> (2, 2, 16)>
#two_seen = affine_map<()[past] -> (2, past + 2, 16)>
#two_scores = affine_map<()[past] -> (2, past + 2)>
#two_products = affine_map<()[past] -> (2, 16, past + 2)>
#same2 = affine_map<(h, j)[past] -> (h, j)>
#same3 = affine_map<(h, j, d)[past] -> (h, j, d)>
#nothing = affine_map<(h, j)[past] -> ()>
#later = affine_map<(h, j)[past] -> (j - past - 1)>
#to_row = affine_map<(h, j, d, row)[past] -> (h, row, d)>
#row = affine_map<(h, j, d)[past] -> (j + past)>

module attributes {primop.symbols = {past = array<i64: 0, 62>}} {

// Of a cache to which a step adds one row, what whole turns leave, and that row, are one turn without a loop, which comes first.
// Values and keys are each read in two loads: the rows that are there before the kernel, and over them what a kernel writes.
// CHECK-LABEL: func.func @step_mul(
// CHECK-SAME: %[[Q:[^:]*]]: memref<2x16xf32>, %[[K:[^:]*]]: memref<2x64x16xf32>, %[[V:[^:]*]]: memref<2x64x16xf32>
// CHECK-SAME: tile.schedule = {ahead, {{.*}}layout = array<i64: 2048, 512, 1, 8>, name = "k"
// CHECK: %[[PAST:.*]] = "tile.symbol"() {symbol = "past"}
// CHECK: %[[TURNS:.*]] = arith.divui %[[PAST]], %c2048
// CHECK-NEXT: %[[MOST:.*]] = arith.muli %[[TURNS]], %c2048
// CHECK-NOT: scf.for
// CHECK: %[[OLD:.*]] = "tile.load"(%[[V]], %[[H:.*]], %c0, %[[MOST]], %[[PAST]]) {held = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 - 1)>, {{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 - 1)>} : {{.*}} -> vector<1x16x2048xf32>
// CHECK-NEXT: %[[VALUES:.*]] = "tile.load_over"(%[[OLD]], %[[V]], %[[H]], %c0, %[[MOST]], %[[PAST]]) {{{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0, d2 - s0)>}
// CHECK: %[[OLD:.*]] = "tile.load"(%[[K]], %[[H]], %c0, %[[MOST]], %[[PAST]]) {held = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 - 1)>, {{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 - 1)>}
// CHECK-NEXT: %[[KEYS:.*]] = "tile.load_over"(%[[OLD]], %[[K]], %[[H]], %c0, %[[MOST]], %[[PAST]]) {{{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0, d2 - s0)>}

// The one query sees every key, so the causal mask adds nothing. What is read where nothing exists is zero already, and the
// score there is -inf: keys and values need no other mask.
// CHECK-NOT: arith.select
// CHECK: "tile.dot"(%{{.*}}, %[[KEYS]],
// CHECK-NOT: arith.addf
// CHECK: %[[SUMS:.*]] = "tile.reduce"(%{{.*}}) {axes = array<i64: 1>, kind = "add"}
// CHECK-NEXT: "tile.index"({{.*}}) {map = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0)>}
// CHECK: %[[SEEN:.*]] = arith.select %{{.*}}, %[[SUMS]], %{{.*}} : vector<1x1x2048xi1>, vector<1x1x2048xf32>
// CHECK: "tile.reduce"(%[[SEEN]]) {axes = array<i64: 2>, kind = "max"}
// CHECK: %[[MAX:.*]] = arith.maximumf
// CHECK: math.fma %[[SEEN]],
// CHECK-NEXT: %[[POWERS:.*]] = math.exp2
// CHECK-NEXT: %[[MIXED:.*]] = "tile.dot"(%[[POWERS]], %[[VALUES]],
// CHECK: "tile.reduce"(%[[POWERS]]) {axes = array<i64: 2>, kind = "add"}
// CHECK-NEXT: %[[TOTAL:.*]] = arith.addf

// Whole turns of what is there before follow, without a mask.
// CHECK-NEXT: scf.for %[[J:.*]] = %c0 to %[[MOST]] step %c2048 iter_args(%{{.*}} = %[[MAX]], %{{.*}} = %[[MIXED]], %{{.*}} = %[[TOTAL]])
// CHECK-NEXT: "tile.load"(%[[V]], %[[H]], %c0, %[[J]], %[[PAST]]) {held = affine_map<(d0, d1, d2)[s0] -> (-d2 + (s0 floordiv 2048) * 2048 - 1)>, map = affine_map<(d0, d1, d2)[s0] -> (d0, d2, d1)>} :
// CHECK: "tile.load"(%[[K]], %[[H]], %c0, %[[J]], %[[PAST]]) {held = affine_map<(d0, d1, d2)[s0] -> (-d2 + (s0 floordiv 2048) * 2048 - 1)>, map = affine_map<(d0, d1, d2)[s0] -> (d0, d2, d1)>} :
// CHECK-NOT: tile.index
// CHECK-NOT: scf.for
// CHECK: return
func.func private @step(%q: tensor<2x16xf32> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x64x16xf32> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x64x16xf32> {primop.kind = "state", primop.shape = #cache}, %key: tensor<2x1x16xf32> {primop.kind = "argument", primop.shape = #new}, %value: tensor<2x1x16xf32> {primop.kind = "argument", primop.shape = #new}) -> (tensor<2x64x16xf32> {primop.shape = #cache}, tensor<2x64x16xf32> {primop.shape = #cache}, tensor<2x16xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %rows = "primop.iota"() {space = affine_map<()[past] -> (past + 1)>} : () -> tensor<?xi32>
  %keys = "primop.scatter"(%k, %rows, %key) {space = #new, maps = [#to_row, #row, #same3], extent = 64 : i64, inplace = true} : (tensor<2x64x16xf32>, tensor<?xi32>, tensor<2x1x16xf32>) -> tensor<2x64x16xf32>
  %values = "primop.scatter"(%v, %rows, %value) {space = #new, maps = [#to_row, #row, #same3], extent = 64 : i64, inplace = true} : (tensor<2x64x16xf32>, tensor<?xi32>, tensor<2x1x16xf32>) -> tensor<2x64x16xf32>
  %scores = "primop.mul"(%q, %keys) {space = #seen, maps = [affine_map<(h, j, d)[past] -> (h, d)>, #same3]} : (tensor<2x16xf32>, tensor<2x64x16xf32>) -> tensor<2x?x16xf32>
  %x = "primop.sum"(%scores) {space = #seen, maps = [#same3], dims = array<i64: 2>} : (tensor<2x?x16xf32>) -> tensor<2x?xf32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %masked = "primop.add"(%x, %excluded) {space = #scores, maps = [#same2, #nothing], bounds = [#nothing, #later]} : (tensor<2x?xf32>, tensor<f32>) -> tensor<2x?xf32>
  %shares = "primop.softmax"(%masked) {space = #scores, maps = [#same2], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %products = "primop.mul"(%shares, %values) {space = #products, maps = [affine_map<(h, d, j)[past] -> (h, j)>, affine_map<(h, d, j)[past] -> (h, j, d)>]} : (tensor<2x?xf32>, tensor<2x64x16xf32>) -> tensor<2x16x?xf32>
  %mixed = "primop.sum"(%products) {space = #products, maps = [#same3], dims = array<i64: 2>} : (tensor<2x16x?xf32>) -> tensor<2x16xf32>
  return %keys, %values, %mixed : tensor<2x64x16xf32>, tensor<2x64x16xf32>, tensor<2x16xf32>
}

// Where a step adds two rows, whole turns come first, and another loop takes what is left, the new rows with it, under a mask
// alone.
// CHECK-LABEL: func.func @two_mul(
// CHECK: scf.for %{{.*}} = %c0 to %[[MOST:.*]] step %c2048
// CHECK-NEXT: "tile.load"({{.*}}) {held = affine_map<(d0, d1, d2)[s0] -> (-d2 + (s0 floordiv 2048) * 2048 - 1)>,
// CHECK: scf.for %{{.*}} = %[[MOST]] to %{{.*}} step %c512
// CHECK-NOT: held
// CHECK-NOT: tile.load_over
// CHECK: "tile.load"({{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 + 1)>}
// CHECK-NOT: held
// CHECK-NOT: tile.load_over
// CHECK: return
func.func private @two(%q: tensor<2x16xf32> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x64x16xf32> {primop.kind = "state", primop.shape = #cache}, %key: tensor<2x2x16xf32> {primop.kind = "argument", primop.shape = #two_new}) -> (tensor<2x64x16xf32> {primop.shape = #cache}, tensor<2x16xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %rows = "primop.iota"() {space = affine_map<()[past] -> (past + 2)>} : () -> tensor<?xi32>
  %keys = "primop.scatter"(%k, %rows, %key) {space = #two_new, maps = [#to_row, #row, #same3], extent = 64 : i64, inplace = true} : (tensor<2x64x16xf32>, tensor<?xi32>, tensor<2x2x16xf32>) -> tensor<2x64x16xf32>
  %scores = "primop.mul"(%q, %keys) {space = #two_seen, maps = [affine_map<(h, j, d)[past] -> (h, d)>, #same3]} : (tensor<2x16xf32>, tensor<2x64x16xf32>) -> tensor<2x?x16xf32>
  %x = "primop.sum"(%scores) {space = #two_seen, maps = [#same3], dims = array<i64: 2>} : (tensor<2x?x16xf32>) -> tensor<2x?xf32>
  %shares = "primop.softmax"(%x) {space = #two_scores, maps = [#same2], dim = 1 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %products = "primop.mul"(%shares, %keys) {space = #two_products, maps = [affine_map<(h, d, j)[past] -> (h, j)>, affine_map<(h, d, j)[past] -> (h, j, d)>]} : (tensor<2x?xf32>, tensor<2x64x16xf32>) -> tensor<2x16x?xf32>
  %mixed = "primop.sum"(%products) {space = #two_products, maps = [#same3], dims = array<i64: 2>} : (tensor<2x16x?xf32>) -> tensor<2x16xf32>
  return %keys, %mixed : tensor<2x64x16xf32>, tensor<2x16xf32>
}

// Few programs give clusters of four blocks, of four warps with a tensor core each, what a short cache holds as one turn; without
// clusters there are none. The keys are read along their second layout, and the values along the first one.
// SM80-LABEL: func.func @cores_mul(
// SM80-NOT: twin
// SM80: "tile.dot"(
// SM80-NOT: twin
// SM80: return
// CHECK-LABEL: func.func @cores_mul(
// CHECK-SAME: memref<8x64xbf16>, %[[K:[^:]*]]: memref<4x64x64xbf16>, %[[V:[^:]*]]: memref<4x64x64xbf16>
// CHECK-SAME: tile.schedule = {ahead, {{.*}}layout = array<i64: 512, 64, 1, 4>, name = "k", walk = "loop", warps = 16 : i64}
// CHECK: %[[PAST:.*]] = "tile.symbol"() {symbol = "past"}
// CHECK: %[[TURNS:.*]] = arith.divui %[[PAST]], %c512
// CHECK-NEXT: %[[MOST:.*]] = arith.muli %[[TURNS]], %c512
// CHECK-NOT: scf.for
// CHECK: %[[OLD:.*]] = "tile.load"(%[[V]], %[[H:.*]], %c0, %[[MOST]], %c0, %c0, %[[PAST]]) {held = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d2 + s0 - 1)>, {{.*}}mask = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d2 + s0 - 1)>}
// CHECK-NEXT: %[[VALUES:.*]] = "tile.load_over"(%[[OLD]], %[[V]], {{.*}}mask = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d2 + s0, d2 - s0)>}
// CHECK: %[[OLD:.*]] = "tile.load"(%[[K]], %[[H]], %c0, %[[MOST]], %[[MOST]], %c0, %[[PAST]]) {held = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d3 + s0 - 1)>, {{.*}}mask = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d3 + s0 - 1)>}
// CHECK-NEXT: %[[KEYS:.*]] = "tile.load_over"(%[[OLD]], %[[K]], {{.*}}mask = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d3 + s0, d3 - s0)>}
// CHECK-NEXT: "tile.dot_twin"(%{{.*}}, %[[KEYS]],
// CHECK: %[[NARROW:.*]] = arith.truncf
// CHECK-NEXT: "tile.dot_twin"(%[[NARROW]], %[[VALUES]],
// CHECK: scf.for %[[J:.*]] = %c0 to %[[MOST]] step %c512
// CHECK-NEXT: "tile.load"(%[[V]], %[[H]], %c0, %[[J]], %c0, %c0, %[[PAST]]) {held = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d2 + (s0 floordiv 512) * 512 - 1)>, map = affine_map<(d0, d1, d2, d3, d4)[s0] -> (d0 floordiv 2, d2, d4)>} :
// CHECK: "tile.load"(%[[K]], %[[H]], %c0, %[[J]], %[[J]], %c0, %[[PAST]]) {held = affine_map<(d0, d1, d2, d3, d4)[s0] -> (-d3 + (s0 floordiv 512) * 512 - 1)>, map = affine_map<(d0, d1, d2, d3, d4)[s0] -> (d0 floordiv 2, d3, d1)>} :
// CHECK-NOT: scf.for
// CHECK: return
func.func private @cores(%q: tensor<8x64xbf16> {primop.kind = "argument", primop.shape = #core_query}, %k: tensor<4x64x64xbf16> {primop.kind = "state", primop.shape = #core_cache}, %v: tensor<4x64x64xbf16> {primop.kind = "state", primop.shape = #core_cache}, %key: tensor<4x1x64xbf16> {primop.kind = "argument", primop.shape = #core_new}, %value: tensor<4x1x64xbf16> {primop.kind = "argument", primop.shape = #core_new}) -> (tensor<4x64x64xbf16> {primop.shape = #core_cache}, tensor<4x64x64xbf16> {primop.shape = #core_cache}, tensor<8x64xf32> {primop.shape = #core_query}) attributes {primop.chunk} {
  %rows = "primop.iota"() {space = affine_map<()[past] -> (past + 1)>} : () -> tensor<?xi32>
  %keys = "primop.scatter"(%k, %rows, %key) {space = #core_new, maps = [#to_row, #row, #same3], extent = 64 : i64, inplace = true} : (tensor<4x64x64xbf16>, tensor<?xi32>, tensor<4x1x64xbf16>) -> tensor<4x64x64xbf16>
  %values = "primop.scatter"(%v, %rows, %value) {space = #core_new, maps = [#to_row, #row, #same3], extent = 64 : i64, inplace = true} : (tensor<4x64x64xbf16>, tensor<?xi32>, tensor<4x1x64xbf16>) -> tensor<4x64x64xbf16>
  %scores = "primop.mul"(%q, %keys) {space = #core_seen, maps = [affine_map<(h, j, d)[past] -> (h, d)>, affine_map<(h, j, d)[past] -> (h floordiv 2, j, d)>]} : (tensor<8x64xbf16>, tensor<4x64x64xbf16>) -> tensor<8x?x64xf32>
  %x = "primop.sum"(%scores) {space = #core_seen, maps = [#same3], dims = array<i64: 2>} : (tensor<8x?x64xf32>) -> tensor<8x?xf32>
  %shares = "primop.softmax"(%x) {space = #core_scores, maps = [#same2], dim = 1 : i64} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  %narrow = "primop.cast"(%shares) {space = #core_scores, maps = [#same2]} : (tensor<8x?xf32>) -> tensor<8x?xbf16>
  %products = "primop.mul"(%narrow, %values) {space = #core_products, maps = [affine_map<(h, d, j)[past] -> (h, j)>, affine_map<(h, d, j)[past] -> (h floordiv 2, j, d)>]} : (tensor<8x?xbf16>, tensor<4x64x64xbf16>) -> tensor<8x64x?xf32>
  %mixed = "primop.sum"(%products) {space = #core_products, maps = [#same3], dims = array<i64: 2>} : (tensor<8x64x?xf32>) -> tensor<8x64xf32>
  return %keys, %values, %mixed : tensor<4x64x64xbf16>, tensor<4x64x64xbf16>, tensor<8x64xf32>
}

}
