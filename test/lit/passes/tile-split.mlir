// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-split,canonicalize)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#h = {name = "h", extent = affine_map<()[n] -> (2)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[n] -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#c = {name = "c", extent = affine_map<()[n] -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "grid"}
#f = {name = "f", extent = affine_map<()[n] -> (16)>, layout = array<i64: 16, 4, 4, 1>, walk = "loop", lanes_of = "c"}
#k = {name = "k", extent = affine_map<()[n] -> (512)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// A turn takes a tile of 64 for each of two blocks, which both have a sum. The results are dealt out by their place along all
// axes but the one that is reversed afterwards.
// CHECK-LABEL: func.func @halves(
// CHECK-SAME: layout = array<i64: 128, 2, 64, 2>, name = "k"
// CHECK-NOT: split
// CHECK: %[[ZEROS:.*]] = arith.constant dense<0.000000e+00> : vector<64x2x32x2xf32>
// CHECK: %[[PARTS:.*]] = scf.for %[[K:.*]] = %c0 to %c512 step %c128 iter_args(%[[ACC:.*]] = %[[ZEROS]])
// CHECK: %[[A:.*]] = "tile.load"(%{{.*}}, %[[K]]{{.*}}) {{.*}} -> vector<64x1x1x128xbf16>
// CHECK: %[[B:.*]] = "tile.load"(%{{.*}}, %[[K]]) {{.*}} -> vector<1x2x32x128xbf16>
// CHECK: "tile.dot"(%[[A]], %[[B]], %[[ACC]]) {{.*}} -> vector<64x2x32x2xf32>
// CHECK: %[[SUM:.*]] = "tile.reduce"(%[[PARTS]]) {axes = array<i64: 3>, dealt = array<i64: 0, 2>, kind = "add"} {{.*}} -> vector<64x2x32x1xf32>
// CHECK: "tile.reverse"(%[[SUM]])
func.func @halves(%x: memref<128x512xbf16>, %w: memref<2x32x512xbf16>, %y: memref<128x2x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #h, #n, #k], order = array<i64: 1, 2, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64, split = 2 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c512 = arith.constant 512 : index
  %zeros = arith.constant dense<0.0> : vector<64x2x32x1xf32>
  %sum = scf.for %k = %c0 to %c512 step %c64 iter_args(%so_far = %zeros) -> vector<64x2x32x1xf32> {
    %a = "tile.load"(%x, %i, %c0, %c0, %k, %n) {map = affine_map<(m, h, n, k)[s] -> (m, k)>, mask = affine_map<(m, h, n, k)[s] -> (s - m - 1)>} : (memref<128x512xbf16>, index, index, index, index, index) -> vector<64x1x1x64xbf16>
    %b = "tile.load"(%w, %i, %c0, %c0, %k) {map = affine_map<(m, h, n, k) -> (h, n, k)>} : (memref<2x32x512xbf16>, index, index, index, index) -> vector<1x2x32x64xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x1x64xbf16>, vector<1x2x32x64xbf16>, vector<64x2x32x1xf32>) -> vector<64x2x32x1xf32>
    scf.yield %more : vector<64x2x32x1xf32>
  }
  %reversed = "tile.reverse"(%sum) {axis = 1 : i64} : (vector<64x2x32x1xf32>) -> vector<64x2x32x1xf32>
  "tile.store"(%reversed, %y, %i, %c0, %c0, %c0) {map = affine_map<(m, h, n, k) -> (m, h, n)>} : (vector<64x2x32x1xf32>, memref<128x2x32xf32>, index, index, index, index) -> ()
  return
}

// An axis that results are added up along afterwards is not dealt out, so that a block has whole sums. What is added up besides,
// the factor of each row, stands before the results are dealt: all blocks need all of it.
// CHECK-LABEL: func.func @blocks_of_rows(
// CHECK: %[[TERMS:.*]] = "tile.load"(%arg2,
// CHECK: %[[PARTS:.*]] = scf.for
// CHECK: %[[FACTOR:.*]] = "tile.reduce"(%[[TERMS]]) {axes = array<i64: 4>, kind = "add"} {{.*}} -> vector<64x1x1x1x1xf32>
// CHECK-NEXT: %[[SUM:.*]] = "tile.reduce"(%[[PARTS]]) {axes = array<i64: 3>, dealt = array<i64: 0, 1>, kind = "add"} {{.*}} -> vector<64x2x64x1x1xf32>
// CHECK: %[[FACTORS:.*]] = vector.broadcast %[[FACTOR]]
// CHECK-NEXT: %[[SCALED:.*]] = arith.mulf %[[SUM]], %[[FACTORS]]
// CHECK-NEXT: "tile.reduce"(%[[SCALED]]) {axes = array<i64: 2>, kind = "add"}
func.func @blocks_of_rows(%x: memref<128x512xbf16>, %w: memref<2x64x512xbf16>, %t: memref<128x16xf32>, %y: memref<128x2x64xf32>, %s: memref<128x2xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "read", "write", "write"], tile.schedule = {axes = [#m, #h, #c, #k, #f], order = array<i64: 1, 2, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64, split = 2 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c512 = arith.constant 512 : index
  %terms = "tile.load"(%t, %i, %c0, %c0, %c0, %c0) {map = affine_map<(m, h, c, k, f) -> (m, f)>} : (memref<128x16xf32>, index, index, index, index, index) -> vector<64x1x1x1x16xf32>
  %zeros = arith.constant dense<0.0> : vector<64x2x64x1x1xf32>
  %sum = scf.for %k = %c0 to %c512 step %c64 iter_args(%so_far = %zeros) -> vector<64x2x64x1x1xf32> {
    %a = "tile.load"(%x, %i, %c0, %c0, %k, %c0, %n) {map = affine_map<(m, h, c, k, f)[s] -> (m, k)>, mask = affine_map<(m, h, c, k, f)[s] -> (s - m - 1)>} : (memref<128x512xbf16>, index, index, index, index, index, index) -> vector<64x1x1x64x1xbf16>
    %b = "tile.load"(%w, %i, %c0, %c0, %k, %c0) {map = affine_map<(m, h, c, k, f) -> (h, c, k)>} : (memref<2x64x512xbf16>, index, index, index, index, index) -> vector<1x2x64x64x1xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x1x64x1xbf16>, vector<1x2x64x64x1xbf16>, vector<64x2x64x1x1xf32>) -> vector<64x2x64x1x1xf32>
    scf.yield %more : vector<64x2x64x1x1xf32>
  }
  %factor = "tile.reduce"(%terms) {axes = array<i64: 4>, kind = "add"} : (vector<64x1x1x1x16xf32>) -> vector<64x1x1x1x1xf32>
  %factors = vector.broadcast %factor : vector<64x1x1x1x1xf32> to vector<64x2x64x1x1xf32>
  %scaled = arith.mulf %sum, %factors : vector<64x2x64x1x1xf32>
  %sums = "tile.reduce"(%scaled) {axes = array<i64: 2>, kind = "add"} : (vector<64x2x64x1x1xf32>) -> vector<64x2x1x1x1xf32>
  "tile.store"(%scaled, %y, %i, %c0, %c0, %c0, %c0) {map = affine_map<(m, h, c, k, f) -> (m, h, c)>} : (vector<64x2x64x1x1xf32>, memref<128x2x64xf32>, index, index, index, index, index) -> ()
  "tile.store"(%sums, %s, %i, %c0, %c0, %c0, %c0) {map = affine_map<(m, h, c, k, f) -> (m, h)>} : (vector<64x2x1x1x1xf32>, memref<128x2xf32>, index, index, index, index, index) -> ()
  return
}

// Without a split in its schedule a function stays as it is.
// CHECK-LABEL: func.func @whole(
// CHECK: -> vector<64x32x1xf32>
// CHECK-NOT: tile.reduce
// CHECK: return
func.func @whole(%x: memref<128x512xbf16>, %w: memref<32x512xbf16>, %y: memref<128x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64}} {
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c512 = arith.constant 512 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c512 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %i, %c0, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<128x512xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %i, %c0, %k) {map = affine_map<(m, n, k) -> (n, k)>} : (memref<32x512xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<128x32xf32>, index, index, index) -> ()
  return
}

}
}
