// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-kernel)'

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 4, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

// Of the columns, a lane has two of the result for each that it reads, not four.
module {
module @kernels {
func.func @four_columns(%x: memref<16x32xbf16>, %w: memref<16x32xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x16x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x32xbf16>, index, index, index, index) -> vector<16x1x32x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<16x32xbf16>, index, index, index, index) -> vector<1x1x32x16xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x16xbf16>, vector<16x16x1x1xf32>) -> vector<16x16x1x1xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

// Nor one: these are dealt to eight lanes, as their twin is.
module {
module @kernels {
func.func @one_column(%x: memref<16x64xbf16>, %w: memref<8x64xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x64xbf16>, index, index, index, index) -> vector<16x1x64x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x64xbf16>, index, index, index, index) -> vector<1x1x64x8xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x64x1xbf16>, vector<1x1x64x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (24)>, layout = array<i64: 24, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

// Of the rows a lane has one, which is that of the upper half, or pairs of the two halves, not three.
module {
module @kernels {
func.func @odd_rows(%x: memref<24x32xbf16>, %w: memref<8x32xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<24x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<24x32xbf16>, index, index, index, index) -> vector<24x1x32x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x32xbf16>, index, index, index, index) -> vector<1x1x32x8xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<24x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<24x8x1x1xf32>) -> vector<24x8x1x1xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 2, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 1, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

// Operands have runs along the depth, and the right one may have them along its columns, but none has them along the rows.
module {
module @kernels {
func.func @row_runs(%x: memref<16x16xbf16>, %w: memref<8x16xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
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

// -----

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (4)>, layout = array<i64: 4, 4, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#n_twin = {name = "n_twin", extent = affine_map<() -> (4)>, layout = array<i64: 4, 4, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}
#k_twin = {name = "k_twin", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 8, 1>, walk = "loop", lanes_of = "m", twin_of = "k"}

// Where the depth has a second layout, the rows of both halves of a tensor core are the same eight.
module {
module @kernels {
func.func @sixteen_rows(%x: memref<16x64xbf16>, %w: memref<4x64xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k, #n_twin, #k_twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x4x1x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t, u) -> (m, k)>} : (memref<16x64xbf16>, index, index, index, index, index) -> vector<16x1x64x1x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t, u) -> (t, u)>} : (memref<4x64xbf16>, index, index, index, index, index) -> vector<1x1x1x4x64xbf16>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's operands}}
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64, depth_twin = 4 : i64} : (vector<16x1x64x1x1xbf16>, vector<1x1x1x4x64xbf16>, vector<16x4x1x1x1xf32>) -> vector<16x4x1x1x1xf32>
  return
}
}
}
