// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

// A product of eight rows whose depth has a second layout: the right operand has its four columns on every other of the lanes
// of the rows, and on eight lanes what the left one has on four, in two registers. Two warps share the depth.

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#p = {name = "p", extent = affine_map<() -> (2)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (4)>, layout = array<i64: 4, 4, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 128, 8, 8, 1>, walk = "loop", lanes_of = "n", warps = 2 : i64}
#n_twin = {name = "n_twin", extent = affine_map<() -> (4)>, layout = array<i64: 4, 4, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}
#k_twin = {name = "k_twin", extent = affine_map<() -> (128)>, layout = array<i64: 128, 16, 8, 1>, walk = "loop", lanes_of = "m", twin_of = "k", warps = 2 : i64}

module {
module @kernels {

// A lane of the rows is one of column "lane floordiv 8" of four, and of eight along the depth: four more, where its row is odd.
// CHECK-LABEL: func.func @runs(
// CHECK-SAME: %[[X:[^:]*]]: memref<1024xbf16, 1>, %[[W:[^:]*]]: memref<1024xbf16, 1>
// CHECK-SAME: kernel.block = 64 : i64
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD]], %c4
// CHECK: %[[EIGHTH:.*]] = arith.divui %[[THREAD]], %c4
// CHECK: %[[ROW:.*]] = arith.remui %[[EIGHTH]], %c8
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: %[[COLUMN:.*]] = arith.divui %[[ROW]], %c2
// CHECK: %[[ODD:.*]] = arith.remui %[[ROW]], %c2
// CHECK: %[[HALF:.*]] = arith.muli %[[ODD]], %c4
// CHECK: %[[LANE:.*]] = arith.addi %[[HALF]], %[[QUARTER]]
// CHECK: %[[BEFORE:.*]] = arith.muli %[[WARP]], %c8
// CHECK: %[[PLACE:.*]] = arith.addi %[[LANE]], %[[BEFORE]]

// It reads both halves of a run of its row, 32 elements apart, and one half of a run of its column. All have 16 bytes.
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 128 + s1)>()[%[[ROW]], %{{.*}}]
// CHECK: %[[FIRST:.*]] = "kernel.load_global"(%[[X]], %[[AT]])
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c32
// CHECK: %[[SECOND:.*]] = "kernel.load_global"(%[[X]], %[[FURTHER]])
// CHECK: %[[DEPTH:.*]] = arith.muli %[[PLACE]], %c8
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 128 + s1)>()[%[[COLUMN]], %[[DEPTH]]]
// CHECK: %[[LEFT:.*]] = "kernel.load_global"(%[[W]], %[[AT]]) {cache = "stream"}
// CHECK: %[[NEXT:.*]] = arith.addi %[[AT]], %c512
// CHECK: %[[RIGHT:.*]] = "kernel.load_global"(%[[W]], %[[NEXT]]) {cache = "stream"}

// The upper rows are first halves, the lower ones second halves. Of four results the first and the last are of the same halves.
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[FIRST]]
// CHECK: %[[U0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[U1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[U2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[U3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[SECOND]]
// CHECK: %[[L0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[L1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[L2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[L3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[LEFT]]
// CHECK: %[[C0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[C1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[C2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[C3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[PART:.*]]:4 = "kernel.mma"(%[[U0]], %[[L0]], %[[U1]], %[[L1]], %[[C0]], %[[C1]], %[[ZERO:.*]], %[[ZERO]], %[[ZERO]], %[[ZERO]])
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"(%[[U2]], %[[L2]], %[[U3]], %[[L3]], %[[C2]], %[[C3]], %[[PART]]#0, %[[PART]]#1, %[[PART]]#2, %[[PART]]#3)
// CHECK: arith.addf %[[SUM]]#0, %[[SUM]]#3
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[RIGHT]]
// CHECK: %[[C0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: "kernel.mma"(%[[U0]], %[[L0]], %[[U1]], %[[L1]], %[[C0]],
func.func @runs(%x: memref<8x128xbf16>, %w: memref<2x4x128xbf16>, %y: memref<8x2x4xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #p, #n, #k, #n_twin, #k_twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x2x4x2x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, p, n, k, t, u) -> (m, k)>} : (memref<8x128xbf16>, index, index, index, index, index, index) -> vector<8x1x1x128x1x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, p, n, k, t, u) -> (p, t, u)>} : (memref<2x4x128xbf16>, index, index, index, index, index, index) -> vector<1x2x1x1x4x128xbf16>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 2 : i64, twin = 4 : i64, depth = 3 : i64, depth_twin = 5 : i64} : (vector<8x1x1x128x1x1xbf16>, vector<1x2x1x1x4x128xbf16>, vector<8x2x4x2x1x1xf32>) -> vector<8x2x4x2x1x1xf32>
  %sum = "tile.reduce"(%product) {axes = array<i64: 3>, kind = "add"} : (vector<8x2x4x2x1x1xf32>) -> vector<8x2x4x1x1x1xf32>
  "tile.store"(%sum, %y, %c0, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, p, n, k, t, u) -> (m, p, n)>} : (vector<8x2x4x1x1x1xf32>, memref<8x2x4xf32>, index, index, index, index, index, index) -> ()
  return
}

}
}
