// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-take-turns)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (128)>, layout = array<i64: 128, 64, 1, 1>, walk = "grid", warps = 8 : i64}
#one = {name = "m", extent = affine_map<()[n] -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#d = {name = "d", extent = affine_map<()[n] -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop", lanes_of = "t"}
#t = {name = "t", extent = affine_map<()[n] -> (256)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 512>}} {
module @kernels {

// Two groups of warps start a turn's products one after the other: the product of what the turn before computed stands right
// after the turn's first one. Before the loop there is nothing to take turns with.
// CHECK-LABEL: func.func @two_groups(
// CHECK-NOT: tile.take_turn
// CHECK: "tile.dot_shared"
// CHECK: scf.for
// CHECK-COUNT-2: "tile.await"
// CHECK-NEXT: "tile.take_turn"() : () -> ()
// CHECK-NEXT: "tile.dot_shared"
// CHECK-NEXT: "tile.dot_shared"
// CHECK-NEXT: "tile.pass_turn"() : () -> ()
// CHECK-NEXT: "tile.made"
// CHECK: scf.yield
// CHECK-NOT: tile.take_turn

// One group has nobody to take turns with, and neither has a loop with one product.
// CHECK-LABEL: func.func @one_group(
// CHECK-NOT: tile.take_turn
// CHECK-LABEL: func.func @one_product(
// CHECK-NOT: tile.take_turn
// CHECK: return
func.func @two_groups(%q: memref<128x64xbf16>, %k: memref<256x64xbf16>, %v: memref<256x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x128x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<128x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<128x64x1xf32>
  "tile.fetch"(%qs, %c0, %q, %c0, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x128x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x128x64xbf16, 3>, index) -> memref<128x64xbf16, 3>
  "tile.fetch"(%ks, %c0, %k, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
  "tile.fetch"(%vs, %c0, %v, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
  %first_keys = "tile.await"(%ks, %c0) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %first = "tile.dot_shared"(%queries, %first_keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<128x64xbf16, 3>, memref<64x64xbf16, 3>, vector<128x1x64xf32>) -> vector<128x1x64xf32>
  "tile.release"(%ks, %c0) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
  %shares = arith.truncf %first : vector<128x1x64xf32> to vector<128x1x64xbf16>
  %all:2 = scf.for %turn = %c1 to %c4 step %c1 iter_args(%mixed = %zeros, %before = %shares) -> (vector<128x64x1xf32>, vector<128x1x64xbf16>) {
    %at = arith.muli %turn, %c64 : index
    %last = arith.subi %turn, %c1 : index
    "tile.fetch"(%ks, %turn, %k, %c0, %c0, %at) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
    "tile.fetch"(%vs, %turn, %v, %c0, %c0, %at) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %values = "tile.await"(%vs, %last) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %product = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<128x64xbf16, 3>, memref<64x64xbf16, 3>, vector<128x1x64xf32>) -> vector<128x1x64xf32>
    %mix = "tile.dot_shared"(%before, %values, %mixed) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<128x1x64xbf16>, memref<64x64xbf16, 3>, vector<128x64x1xf32>) -> vector<128x64x1xf32>
    %made = "tile.made"(%product) {running = 1 : i64} : (vector<128x1x64xf32>) -> vector<128x1x64xf32>
    "tile.release"(%ks, %turn) {running = 1 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %summed = "tile.made"(%mix) {running = 0 : i64} : (vector<128x64x1xf32>) -> vector<128x64x1xf32>
    "tile.release"(%vs, %last) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %now = arith.truncf %made : vector<128x1x64xf32> to vector<128x1x64xbf16>
    scf.yield %summed, %now : vector<128x64x1xf32>, vector<128x1x64xbf16>
  }
  "tile.store"(%all#0, %y, %c0, %c0, %c0) {map = affine_map<(m, d, t) -> (m, d)>} : (vector<128x64x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}
func.func @one_group(%q: memref<64x64xbf16>, %k: memref<256x64xbf16>, %v: memref<256x64xbf16>, %y: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#one, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64x1xf32>
  "tile.fetch"(%qs, %c0, %q, %c0, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x64x64xbf16, 3>, index, memref<64x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  "tile.fetch"(%ks, %c0, %k, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
  "tile.fetch"(%vs, %c0, %v, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
  %first_keys = "tile.await"(%ks, %c0) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %first = "tile.dot_shared"(%queries, %first_keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
  "tile.release"(%ks, %c0) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
  %shares = arith.truncf %first : vector<64x1x64xf32> to vector<64x1x64xbf16>
  %all:2 = scf.for %turn = %c1 to %c4 step %c1 iter_args(%mixed = %zeros, %before = %shares) -> (vector<64x64x1xf32>, vector<64x1x64xbf16>) {
    %at = arith.muli %turn, %c64 : index
    %last = arith.subi %turn, %c1 : index
    "tile.fetch"(%ks, %turn, %k, %c0, %c0, %at) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
    "tile.fetch"(%vs, %turn, %v, %c0, %c0, %at) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %values = "tile.await"(%vs, %last) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %product = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    %mix = "tile.dot_shared"(%before, %values, %mixed) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    %made = "tile.made"(%product) {running = 1 : i64} : (vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 1 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %summed = "tile.made"(%mix) {running = 0 : i64} : (vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %last) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %now = arith.truncf %made : vector<64x1x64xf32> to vector<64x1x64xbf16>
    scf.yield %summed, %now : vector<64x64x1xf32>, vector<64x1x64xbf16>
  }
  "tile.store"(%all#0, %y, %c0, %c0, %c0) {map = affine_map<(m, d, t) -> (m, d)>} : (vector<64x64x1xf32>, memref<64x64xf32>, index, index, index) -> ()
  return
}
func.func @one_product(%q: memref<128x64xbf16>, %k: memref<256x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x128x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<128x1x64xf32>
  "tile.fetch"(%qs, %c0, %q, %c0, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x128x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x128x64xbf16, 3>, index) -> memref<128x64xbf16, 3>
  %sum = scf.for %turn = %c0 to %c4 step %c1 iter_args(%total = %none) -> (vector<128x1x64xf32>) {
    %at = arith.muli %turn, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %c0, %c0, %at) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<256x64xbf16>, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %product = "tile.dot_shared"(%queries, %keys, %total) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<128x64xbf16, 3>, memref<64x64xbf16, 3>, vector<128x1x64xf32>) -> vector<128x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    scf.yield %product : vector<128x1x64xf32>
  }
  "tile.store"(%sum, %y, %c0, %c0, %c0) {map = affine_map<(m, d, t) -> (m, t)>} : (vector<128x1x64xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

}
}
