// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(tile-stage)'

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

// A copy engine brings the right operand: it cannot be computed on the way.
module {
module @kernels {
func.func @computed(%x: memref<64x128xbf16>, %w: memref<32x128xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<64x128xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (n, k)>} : (memref<32x128xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %twice = arith.addf %b, %b : vector<1x32x64xbf16>
    // expected-error@+1 {{the right operand of a product in shared memory must be read from memory}}
    %more = "tile.dot"(%a, %twice, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

// It copies rows: neighbours along some axis of the tile are neighbours in memory. For the left operand, which has no other
// way into the instruction, that is the reduced one.
module {
module @kernels {
func.func @strided(%x: memref<64x256xbf16>, %w: memref<32x128xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (m, 2 * k)>} : (memref<64x256xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (n, k)>} : (memref<32x128xbf16>, index, index, index) -> vector<1x32x64xbf16>
    // expected-error@+1 {{an operand that comes through shared memory must be contiguous in memory}}
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module {
module @kernels {
func.func @left_transposed(%x: memref<128x64xbf16>, %w: memref<32x128xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (k, m)>} : (memref<128x64xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (n, k)>} : (memref<32x128xbf16>, index, index, index) -> vector<1x32x64xbf16>
    // expected-error@+1 {{an operand that comes through shared memory must be contiguous in memory}}
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}

// A right operand that lies as (k, n) is multiplied as it lies if its elements have 16 bits, and not as TF32.
module {
module @kernels {
func.func @right_transposed(%x: memref<64x128xf32>, %w: memref<128x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, tf32, stages = 2 : i64}} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c128 step %c32 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<64x128xf32>, index, index, index) -> vector<64x1x32xf32>
    %b = "tile.load"(%w, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (k, n)>} : (memref<128x32xf32>, index, index, index) -> vector<1x32x32xf32>
    // expected-error@+1 {{tensor cores read f32 as TF32 only along the reduced axis}}
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x32xf32>, vector<1x32x32xf32>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  return
}
}
}
