// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel)' | FileCheck %s

#row = {name = "row", extent = affine_map<()[n] -> (n)>, layout = array<i64: 32, 32, 1, 1>, walk = "loop"}
#d = {name = "d", extent = affine_map<()[n] -> (8)>, layout = array<i64: 8, 1, 8, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {
module @kernels {

// What is read ahead of its use, 16 bytes at a time, is read only where it exists, and stays where it is. Otherwise the place
// of what does not exist is that of the buffer's first element.
// CHECK-LABEL: func.func @ahead(
// CHECK-SAME: %[[X:[^:]*]]: memref<512xbf16, 1>
// CHECK: %[[THERE:.*]] = arith.cmpi sge
// CHECK: "kernel.load_global"(%[[X]], %{{.*}}, %[[THERE]]) {cache = "plain"} : (memref<512xbf16, 1>, index, i1) -> vector<8xbf16>
func.func @ahead(%x: memref<64x8xbf16>, %y: memref<64x8xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#row, #d], order = array<i64>, unroll = 1 : i64, dot = true, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0, %n) {map = affine_map<(row, d)[n] -> (row, d)>, mask = affine_map<(row, d)[n] -> (n - row - 1)>} : (memref<64x8xbf16>, index, index, index) -> vector<32x8xbf16>
  "tile.store"(%tile, %y, %c0, %c0) {map = affine_map<(row, d) -> (row, d)>} : (vector<32x8xbf16>, memref<64x8xbf16>, index, index) -> ()
  return
}

// CHECK-LABEL: func.func @in_time(
// CHECK-SAME: %[[X:[^:]*]]: memref<512xbf16, 1>
// CHECK: %[[THERE:.*]] = arith.cmpi sge
// CHECK: %[[PLACE:.*]] = arith.select %[[THERE]], %{{.*}}, %c0
// CHECK: "kernel.load_global"(%[[X]], %[[PLACE]]) {cache = "plain"} : (memref<512xbf16, 1>, index) -> vector<8xbf16>
func.func @in_time(%x: memref<64x8xbf16>, %y: memref<64x8xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#row, #d], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0, %n) {map = affine_map<(row, d)[n] -> (row, d)>, mask = affine_map<(row, d)[n] -> (n - row - 1)>} : (memref<64x8xbf16>, index, index, index) -> vector<32x8xbf16>
  "tile.store"(%tile, %y, %c0, %c0) {map = affine_map<(row, d) -> (row, d)>} : (vector<32x8xbf16>, memref<64x8xbf16>, index, index) -> ()
  return
}

// So it is with what is read over another tile, which stays where nothing is read. Otherwise one of the two is selected.
// CHECK-LABEL: func.func @over_ahead(
// CHECK-SAME: %[[X:[^:]*]]: memref<512xbf16, 1>, %[[Y:[^:]*]]: memref<512xbf16, 1>
// CHECK: %[[OLD:.*]] = "kernel.load_global"(%[[X]], %{{.*}}, %{{.*}}) {cache = "held"} : (memref<512xbf16, 1>, index, i1) -> vector<8xbf16>
// CHECK: %[[NEW:.*]] = arith.cmpi sge
// CHECK-NOT: arith.select
// CHECK: %[[ALL:.*]] = "kernel.load_over"(%[[OLD]], %[[X]], %{{.*}}, %[[NEW]]) : (vector<8xbf16>, memref<512xbf16, 1>, index, i1) -> vector<8xbf16>
// CHECK: "kernel.store_global"(%[[ALL]], %[[Y]],
func.func @over_ahead(%x: memref<64x8xbf16>, %y: memref<64x8xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#row, #d], order = array<i64>, unroll = 1 : i64, dot = true, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %old = "tile.load"(%x, %c0, %c0, %n) {map = affine_map<(row, d)[n] -> (row, d)>, mask = affine_map<(row, d)[n] -> (n - row - 1)>, held = affine_map<(row, d)[n] -> (n - row - 1)>} : (memref<64x8xbf16>, index, index, index) -> vector<32x8xbf16>
  %all = "tile.load_over"(%old, %x, %c0, %c0, %n) {map = affine_map<(row, d)[n] -> (row, d)>, mask = affine_map<(row, d)[n] -> (row - n)>} : (vector<32x8xbf16>, memref<64x8xbf16>, index, index, index) -> vector<32x8xbf16>
  "tile.store"(%all, %y, %c0, %c0) {map = affine_map<(row, d) -> (row, d)>} : (vector<32x8xbf16>, memref<64x8xbf16>, index, index) -> ()
  return
}

// CHECK-LABEL: func.func @over_in_time(
// CHECK-SAME: %[[X:[^:]*]]: memref<512xbf16, 1>, %[[Y:[^:]*]]: memref<512xbf16, 1>
// CHECK: %[[OLD:.*]] = "kernel.load_global"(%[[X]], %{{.*}}, %{{.*}}) {cache = "held"}
// CHECK: %[[NEW:.*]] = arith.cmpi sge
// CHECK: %[[PLACE:.*]] = arith.select %[[NEW]], %{{.*}}, %c0
// CHECK: %[[READ:.*]] = "kernel.load_global"(%[[X]], %[[PLACE]]) {cache = "plain"} : (memref<512xbf16, 1>, index) -> vector<8xbf16>
// CHECK: %[[ALL:.*]] = arith.select %[[NEW]], %[[READ]], %[[OLD]] : vector<8xbf16>
// CHECK: "kernel.store_global"(%[[ALL]], %[[Y]],
func.func @over_in_time(%x: memref<64x8xbf16>, %y: memref<64x8xbf16>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#row, #d], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %old = "tile.load"(%x, %c0, %c0, %n) {map = affine_map<(row, d)[n] -> (row, d)>, mask = affine_map<(row, d)[n] -> (n - row - 1)>, held = affine_map<(row, d)[n] -> (n - row - 1)>} : (memref<64x8xbf16>, index, index, index) -> vector<32x8xbf16>
  %all = "tile.load_over"(%old, %x, %c0, %c0, %n) {map = affine_map<(row, d)[n] -> (row, d)>, mask = affine_map<(row, d)[n] -> (row - n)>} : (vector<32x8xbf16>, memref<64x8xbf16>, index, index, index) -> vector<32x8xbf16>
  "tile.store"(%all, %y, %c0, %c0) {map = affine_map<(row, d) -> (row, d)>} : (vector<32x8xbf16>, memref<64x8xbf16>, index, index) -> ()
  return
}

}
}
