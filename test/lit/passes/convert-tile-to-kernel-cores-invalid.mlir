// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-kernel)'

#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop"}

// Elements of f32 are two words of what a tensor core reads.
module {
module @kernels {
func.func @f32(%x: memref<32xf32>, %w: memref<8x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true, cores}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x1xf32>
  %vector = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<32xf32>, index, index) -> vector<1x32xf32>
  %matrix = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<8x32xf32>, index, index) -> vector<8x32xf32>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %sums = "tile.dot"(%vector, %matrix, %zeros) : (vector<1x32xf32>, vector<8x32xf32>, vector<8x1xf32>) -> vector<8x1xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 4, 1>, walk = "loop"}

// A lane reads four words at once.
module {
module @kernels {
func.func @short(%x: memref<16xbf16>, %w: memref<8x16xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true, cores}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x1xf32>
  %vector = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<16xbf16>, index, index) -> vector<1x16xbf16>
  %matrix = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<8x16xbf16>, index, index) -> vector<8x16xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %sums = "tile.dot"(%vector, %matrix, %zeros) : (vector<1x16xbf16>, vector<8x16xbf16>, vector<8x1xf32>) -> vector<8x1xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 16, 16, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (16)>, layout = array<i64: 16, 2, 8, 1>, walk = "loop"}

// On 2 lanes a row would be less than one of the operand, on 4 reads of it would be shorter than what memory gives at once.
module {
module @kernels {
func.func @two_lanes(%x: memref<16xbf16>, %w: memref<16x16xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true, cores}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x1xf32>
  %vector = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<16xbf16>, index, index) -> vector<1x16xbf16>
  %matrix = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<16x16xbf16>, index, index) -> vector<16x16xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %sums = "tile.dot"(%vector, %matrix, %zeros) : (vector<1x16xbf16>, vector<16x16xbf16>, vector<16x1xf32>) -> vector<16x1xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (1)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 32, 8, 1>, walk = "loop"}

// A row on all lanes would be 16 of the operand, but a product has 8 columns.
module {
module @kernels {
func.func @all_lanes(%x: memref<256xbf16>, %w: memref<1x256xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true, cores}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<1x1xf32>
  %vector = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<256xbf16>, index, index) -> vector<1x256xbf16>
  %matrix = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<1x256xbf16>, index, index) -> vector<1x256xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %sums = "tile.dot"(%vector, %matrix, %zeros) : (vector<1x256xbf16>, vector<1x256xbf16>, vector<1x1xf32>) -> vector<1x1xf32>
  return
}
}
}
