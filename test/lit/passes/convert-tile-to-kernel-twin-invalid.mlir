// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-kernel)'

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 4, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m"}

// A lane reads its operands in runs of eight along the depth.
module {
module @kernels {
func.func @runs(%x: memref<16x16xbf16>, %w: memref<8x16xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, twin = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x16xbf16>, index, index, index, index) -> vector<16x1x16x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x16xbf16>, index, index, index, index) -> vector<1x1x16x8xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x16x1xbf16>, vector<1x1x16x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  return
}
}
}
