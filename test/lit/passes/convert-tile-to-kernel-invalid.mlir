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
    // expected-error@+1 {{blocks of a cluster cannot combine in a loop}}
    %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  }
  return
}
}
}

// -----

#k = {name = "k", extent = affine_map<() -> (1024)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

// That holds for online reductions as well.
module {
module @kernels {
func.func @online_cluster(%x: memref<1024xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %k = %c0 to %c1024 step %c256 {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<1024xf32>, index) -> vector<256xf32>
    %part = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<128xf32>
    // expected-error@+1 {{blocks of a cluster cannot combine in a loop}}
    %sum = "tile.reduce_online"(%part, %part) {scale = 1.0 : f64, floor = 0.0 : f64, axes = array<i64: 0>} : (vector<128xf32>, vector<128xf32>) -> vector<1xf32>
  }
  return
}
}
}

// -----

#j = {name = "j", extent = affine_map<() -> (4)>, layout = array<i64: 4, 4, 1, 1>, walk = "loop"}
#k = {name = "k", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop"}

// Threads along one axis combine their online parts.
module {
module @kernels {
func.func @two_axes(%x: memref<4x8xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#j, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %part = "tile.load"(%x, %c0, %c0) {map = affine_map<(j, k) -> (j, k)>} : (memref<4x8xf32>, index, index) -> vector<4x8xf32>
  // expected-error@+1 {{an online reduction over threads needs one axis and scalar maxima}}
  %sum = "tile.reduce_online"(%part, %part) {scale = 1.0 : f64, floor = 0.0 : f64, axes = array<i64: 0, 1>} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<1x1xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 2, 1>, walk = "grid"}

// One thread holds all of an axis that is reversed.
module {
module @kernels {
func.func @reverse(%x: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(n) -> (n)>} : (memref<64xf32>, index) -> vector<64xf32>
  // expected-error@+1 {{axis n is reversed, but spread over 32 threads}}
  %reversed = "tile.reverse"(%tile) {axis = 0 : i64} : (vector<64xf32>) -> vector<64xf32>
  return
}
}
}
