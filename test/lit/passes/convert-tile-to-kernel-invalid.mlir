// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-kernel)'

#k = {name = "k", extent = affine_map<() -> (48)>, layout = array<i64: 48, 24, 2, 1>, walk = "loop"}

// Lanes of a warp combine by halves.
module {
module @kernels {
func.func @lanes(%x: memref<48xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<48xf32>, index) -> vector<48xf32>
  // expected-error@+1 {{axis k is reduced over 24 threads at a stride of 1, which is no power of two inside a warp and whole warps beyond}}
  %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<48xf32>) -> vector<1xf32>
  return
}
}
}

// -----

#k = {name = "k", extent = affine_map<() -> (1024)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

// Blocks of a cluster combine once.
module {
module @kernels {
func.func @cluster(%x: memref<1024xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %k = %c0 to %c1024 step %c256 {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<1024xf32>, index) -> vector<256xf32>
    // expected-error@+1 {{a reduction over a cluster of blocks cannot stand in a loop}}
    %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  }
  return
}
}
}
