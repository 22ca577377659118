// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#odd = {name = "n", extent = affine_map<()[n] -> (48)>, layout = array<i64: 48, 4, 2, 1>, walk = "grid"}

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {
module @kernels {

// The results of a tensor core lie as pairs of columns in four lanes, eight columns apart in a lane's registers. 16-bit ones
// are transposed among these lanes before they are stored, so that each lane has eight neighbours, 16 bytes: words are
// exchanged with the lane whose number differs by 1, and then by 2, each lane sending what the other one shall have.
// CHECK-LABEL: func.func @result(
// CHECK-SAME: %[[X:[^:]*]]: memref<2048xbf16, 1>, %[[Y:[^:]*]]: memref<2048xbf16, 1>
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c4
// CHECK: %[[ROW:.*]] = arith.addi
// CHECK: %[[PAIR:.*]] = arith.muli %[[LANE]], %c2
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 32 + s1)>()[%[[ROW]], %[[PAIR]]]
// CHECK: %[[A:.*]] = vector.extract %{{.*}}[0] : i32 from vector<1xi32>
// CHECK: %[[B:.*]] = vector.extract %{{.*}}[0] : i32 from vector<1xi32>
// CHECK: %[[C:.*]] = vector.extract %{{.*}}[0] : i32 from vector<1xi32>
// CHECK: %[[D:.*]] = vector.extract %{{.*}}[0] : i32 from vector<1xi32>
// CHECK: %[[BIT:.*]] = arith.andi %[[LANE]], %c1
// CHECK: %[[ODD:.*]] = arith.cmpi ne, %[[BIT]], %c0
// CHECK: %[[SENT:.*]] = arith.select %[[ODD]], %[[A]], %[[B]]
// CHECK: %[[CAME:.*]] = "kernel.exchange"(%[[SENT]]) {lanes = 1 : i64}
// CHECK: %[[A1:.*]] = arith.select %[[ODD]], %[[CAME]], %[[A]]
// CHECK: %[[B1:.*]] = arith.select %[[ODD]], %[[B]], %[[CAME]]
// CHECK: %[[SENT:.*]] = arith.select %[[ODD]], %[[C]], %[[D]]
// CHECK: %[[CAME:.*]] = "kernel.exchange"(%[[SENT]]) {lanes = 1 : i64}
// CHECK: %[[C1:.*]] = arith.select %[[ODD]], %[[CAME]], %[[C]]
// CHECK: %[[D1:.*]] = arith.select %[[ODD]], %[[D]], %[[CAME]]
// CHECK: %[[BIT:.*]] = arith.andi %[[LANE]], %c2
// CHECK: %[[ODD:.*]] = arith.cmpi ne, %[[BIT]], %c0
// CHECK: %[[SENT:.*]] = arith.select %[[ODD]], %[[A1]], %[[C1]]
// CHECK: %[[CAME:.*]] = "kernel.exchange"(%[[SENT]]) {lanes = 2 : i64}
// CHECK: %[[A2:.*]] = arith.select %[[ODD]], %[[CAME]], %[[A1]]
// CHECK: %[[C2:.*]] = arith.select %[[ODD]], %[[C1]], %[[CAME]]
// CHECK: %[[SENT:.*]] = arith.select %[[ODD]], %[[B1]], %[[D1]]
// CHECK: %[[CAME:.*]] = "kernel.exchange"(%[[SENT]]) {lanes = 2 : i64}
// CHECK: %[[B2:.*]] = arith.select %[[ODD]], %[[CAME]], %[[B1]]
// CHECK: %[[D2:.*]] = arith.select %[[ODD]], %[[D1]], %[[CAME]]
// CHECK: %[[WORDS:.*]] = vector.from_elements %[[A2]], %[[B2]], %[[C2]], %[[D2]]
// CHECK: %[[EIGHT:.*]] = vector.bitcast %[[WORDS]] : vector<4xi32> to vector<8xbf16>

// All lanes exchange; what is masked along the rows is only the store. A lane's neighbours begin at eight times its number,
// where its pairs began at twice that.
// CHECK: scf.if %{{.*}} {
// CHECK-NOT: kernel.exchange
// CHECK: %[[FURTHER:.*]] = arith.muli %[[LANE]], %c6
// CHECK: %[[PLACE:.*]] = arith.addi %[[AT]], %[[FURTHER]]
// CHECK: "kernel.store_global"(%[[EIGHT]], %[[Y]], %[[PLACE]]) : (vector<8xbf16>,
// CHECK: }
// CHECK-COUNT-4: "kernel.exchange"
// CHECK: scf.if
// CHECK: "kernel.store_global"({{.*}}) : (vector<8xbf16>,
// CHECK-NOT: kernel.store_global
// CHECK: return
func.func @result(%x: memref<64x32xbf16>, %y: memref<64x32xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (memref<64x32xbf16>, index, index) -> vector<64x32xbf16>
  "tile.store"(%tile, %y, %c0, %c0, %n) {map = affine_map<(m, n)[s] -> (m, n)>, mask = affine_map<(m, n)[s] -> (s - m - 1)>} : (vector<64x32xbf16>, memref<64x32xbf16>, index, index, index) -> ()
  return
}

// Of 48 columns, a row's first 32 are four lanes' words; the pairs that are left are stored as they are.
// CHECK-LABEL: func.func @odd(
// CHECK-COUNT-4: "kernel.exchange"
// CHECK: "kernel.store_global"({{.*}}) : (vector<8xbf16>,
// CHECK-NOT: kernel.exchange
// CHECK-COUNT-2: "kernel.store_global"({{.*}}) : (vector<2xbf16>,
// CHECK-COUNT-4: "kernel.exchange"
// CHECK: "kernel.store_global"({{.*}}) : (vector<8xbf16>,
// CHECK-NOT: kernel.exchange
// CHECK-COUNT-2: "kernel.store_global"({{.*}}) : (vector<2xbf16>,
// CHECK-NOT: kernel.store_global
// CHECK: return
func.func @odd(%x: memref<64x48xbf16>, %y: memref<64x48xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #odd], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (memref<64x48xbf16>, index, index) -> vector<64x48xbf16>
  "tile.store"(%tile, %y, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (vector<64x48xbf16>, memref<64x48xbf16>, index, index) -> ()
  return
}

// Pairs are stored as they are where they are 8 bytes anyway, where rows do not begin at multiples of 16 bytes, and where not
// all columns of the tile exist.
// CHECK-LABEL: func.func @single(
// CHECK-NOT: kernel.exchange
// CHECK-COUNT-8: "kernel.store_global"({{.*}}) : (vector<2xf32>,
func.func @single(%x: memref<64x32xf32>, %y: memref<64x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (memref<64x32xf32>, index, index) -> vector<64x32xf32>
  "tile.store"(%tile, %y, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (vector<64x32xf32>, memref<64x32xf32>, index, index) -> ()
  return
}
// CHECK-LABEL: func.func @unaligned(
// CHECK-NOT: kernel.exchange
// CHECK-COUNT-8: "kernel.store_global"({{.*}}) : (vector<2xbf16>,
func.func @unaligned(%x: memref<64x32xbf16>, %y: memref<64x36xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (memref<64x32xbf16>, index, index) -> vector<64x32xbf16>
  "tile.store"(%tile, %y, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (vector<64x32xbf16>, memref<64x36xbf16>, index, index) -> ()
  return
}
// CHECK-LABEL: func.func @columns(
// CHECK-NOT: kernel.exchange
// CHECK: "kernel.store_global"({{.*}}) : (bf16,
// CHECK-NOT: kernel.exchange
func.func @columns(%x: memref<64x32xbf16>, %y: memref<64x32xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (memref<64x32xbf16>, index, index) -> vector<64x32xbf16>
  "tile.store"(%tile, %y, %c0, %c0, %n) {map = affine_map<(m, n)[s] -> (m, n)>, mask = affine_map<(m, n)[s] -> (s - n - 1)>} : (vector<64x32xbf16>, memref<64x32xbf16>, index, index, index) -> ()
  return
}

}
}
