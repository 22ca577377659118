// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-cpu{target=x86-64-avx2})'

// A GPU is no CPU target.
// RUN: not tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-cpu{target=sm_90a})' 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: pass 'convert-tile-to-cpu{target=sm_90a}': convert-tile-to-cpu needs a CPU target, but got sm_90a

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 16, 1, 8, 1>, walk = "grid"}

// A tile is as large as its schedule says, or 1 along an axis.
module {
module @kernels {
func.func @size(%x: memref<64xf32>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %i = arith.muli %program, %c16 : index
  // expected-error@+1 {{axis n has tiles of 16, but a tile of size 4 is used}}
  %tile = "tile.load"(%x, %i) {map = affine_map<(i) -> (i)>} : (memref<64xf32>, index) -> vector<4xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 16, 2, 8, 1>, walk = "grid"}

// A program runs on one thread.
module {
module @kernels {
func.func @threads(%x: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %i = arith.muli %program, %c16 : index
  %tile = "tile.load"(%x, %i) {map = affine_map<(i) -> (i)>} : (memref<64xf32>, index) -> vector<16xf32>
  // expected-error@+1 {{a CPU program has one thread, but the schedule spreads an axis over several}}
  %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<16xf32>) -> vector<1xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 16, 1, 8, 1>, walk = "grid"}

// A branch decides what is written, not what is computed.
module {
module @kernels {
func.func @branch(%flag: i1, %x: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %i = arith.muli %program, %c16 : index
  %inside = arith.cmpi slt, %i, %i : index
  // expected-error@+1 {{a branch of a tile function cannot have results}}
  %either = scf.if %inside -> index {
    scf.yield %i : index
  } else {
    scf.yield %i : index
  }
  return
}
}
}
