// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

// Products with a vector by each warp's tensor core, whose 16 x 16 left operand is all matrix: a row lies on 8 or 16 of a
// warp's lanes, and the four words that a lane reads at once are its part of the operand, in their order.

#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 8, 1>, walk = "loop"}

module {
module @kernels {
// On 8 lanes a row is four of the operand's, two for words 0 and 2 of its loads and two for words 1 and 3. Lanes whose row is
// even hold the vector at the former places, the others at the latter: what is chosen serves all rows. Of a product each lane has
// one element that counts, as its bits 2 and 0 say, and a row's lanes add them up. The matrix may be either operand.
// CHECK-LABEL: func.func @eight_lanes(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xbf16, 1>, %[[W:[^:]*]]: memref<512xbf16, 1>, %[[Y:[^:]*]]: memref<8xf32, 1>
// CHECK-SAME: kernel.block = 32 : i64
// CHECK-NOT: kernel.wide_indices
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c8
// CHECK: %[[ROW:.*]] = arith.divui %[[THREAD]], %c8
// CHECK: %[[DEPTH:.*]] = arith.muli %[[LANE]], %c8
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 64 + s1)>()[%[[ROW]], %[[DEPTH]]]
// CHECK: %[[FIRST:.*]] = "kernel.load_global"(%[[W]], %[[AT]]) {{.*}} -> vector<8xbf16>
// CHECK: %[[SECOND:.*]] = "kernel.load_global"(%[[W]], %{{.*}})
// CHECK: %[[VECTOR:.*]] = "kernel.load_global"(%[[X]], %[[DEPTH]])
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[VECTOR]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[V0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[V1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[V2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[V3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[REST:.*]] = arith.remui %[[ROW]], %c2
// CHECK: %[[ODD:.*]] = arith.cmpi eq, %[[REST]], %c1
// CHECK: %[[A:.*]] = arith.select %[[ODD]], %[[V1]], %[[V0]]
// CHECK: %[[B:.*]] = arith.select %[[ODD]], %[[V3]], %[[V2]]
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[FIRST]]
// CHECK: %[[M0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[M1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[M2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[M3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"(%[[M0]], %[[M1]], %[[M2]], %[[M3]], %[[A]], %[[B]], %cst, %cst, %cst, %cst) {element = bf16
// CHECK: %[[SHIFTED:.*]] = arith.divui %[[THREAD]], %c4
// CHECK: %[[REST:.*]] = arith.remui %[[SHIFTED]], %c2
// CHECK: %[[BIT2:.*]] = arith.cmpi eq, %[[REST]], %c1
// CHECK: %[[UPPER:.*]] = arith.select %[[BIT2]], %[[SUM]]#1, %[[SUM]]#0
// CHECK: %[[LOWER:.*]] = arith.select %[[BIT2]], %[[SUM]]#3, %[[SUM]]#2
// CHECK: %[[REST:.*]] = arith.remui %[[THREAD]], %c2
// CHECK: %[[BIT0:.*]] = arith.cmpi eq, %[[REST]], %c1
// CHECK: %[[OWN:.*]] = arith.select %[[BIT0]], %[[LOWER]], %[[UPPER]]
// CHECK: "kernel.warp_reduce"(%[[OWN]]) {kind = "add", lanes = array<i64: 1, 4>}
// CHECK: vector.bitcast %[[SECOND]]
// CHECK: "kernel.mma"({{.*}}, %[[A]], %[[B]], %cst
// CHECK: "kernel.warp_reduce"
// CHECK-NOT: kernel.shared
// CHECK: arith.cmpi eq, %[[LANE]], %c0
// CHECK-NEXT: scf.if
// CHECK-COUNT-2: "kernel.store_global"(%{{.*}}, %[[Y]],
func.func @eight_lanes(%x: memref<64xbf16>, %w: memref<8x64xbf16>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true, cores}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x1xf32>
  %matrix = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<8x64xbf16>, index, index) -> vector<8x64xbf16>
  %vector = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<64xbf16>, index, index) -> vector<1x64xbf16>
  %sums = "tile.dot"(%matrix, %vector, %zeros) : (vector<8x64xbf16>, vector<1x64xbf16>, vector<8x1xf32>) -> vector<8x1xf32>
  "tile.store"(%sums, %y, %c0, %c0) {map = affine_map<(n, k) -> (n)>} : (vector<8x1xf32>, memref<8xf32>, index, index) -> ()
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (2)>, layout = array<i64: 2, 2, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (512)>, layout = array<i64: 512, 32, 8, 1>, walk = "loop", warps = 2 : i64}

module {
module @kernels {
// On 16 lanes a row is eight of the operand's, and half of the lanes have nothing that counts. Two loads are two products of
// one sum, to which what there was before is added once; two warps that share the depth exchange their sums.
// CHECK-LABEL: func.func @sixteen_lanes(
// CHECK-SAME: kernel.block = 64 : i64
// CHECK: %[[BEFORE:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[SIXTEENTH:.*]] = arith.divui %[[THREAD]], %c16
// CHECK: %[[ROW:.*]] = arith.remui %[[SIXTEENTH]], %c2
// CHECK: %[[LOWER:.*]] = arith.cmpi eq, %[[ROW]], %c1
// CHECK-COUNT-4: arith.select %[[LOWER]],
// CHECK: %[[FIRST:.*]]:4 = "kernel.mma"({{.*}}, %cst, %cst, %cst, %cst) {element = f16
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"({{.*}}, %[[FIRST]]#0, %[[FIRST]]#1, %[[FIRST]]#2, %[[FIRST]]#3) {element = f16
// CHECK: %[[BIT2:.*]] = arith.cmpi
// CHECK: %[[A:.*]] = arith.select %[[BIT2]], %[[SUM]]#1, %[[SUM]]#0
// CHECK: %[[B:.*]] = arith.select %[[BIT2]], %[[SUM]]#3, %[[SUM]]#2
// CHECK: %[[SHIFTED:.*]] = arith.divui %[[THREAD]], %c2
// CHECK: %[[REST:.*]] = arith.remui %[[SHIFTED]], %c2
// CHECK: %[[BIT1:.*]] = arith.cmpi eq, %[[REST]], %c1
// CHECK: %[[OWN:.*]] = arith.select %[[BIT1]], %[[B]], %[[A]]
// CHECK: %[[REST:.*]] = arith.remui %[[THREAD]], %c2
// CHECK: %[[BIT0:.*]] = arith.cmpi eq, %[[REST]], %c1
// CHECK: %[[SHIFTED:.*]] = arith.divui %[[THREAD]], %c8
// CHECK: %[[REST:.*]] = arith.remui %[[SHIFTED]], %c2
// CHECK: %[[BIT3:.*]] = arith.cmpi eq, %[[REST]], %c1
// CHECK: %[[ELSEWHERE:.*]] = arith.xori %[[BIT0]], %[[BIT3]]
// CHECK: %[[COUNTED:.*]] = arith.select %[[ELSEWHERE]], %cst, %[[OWN]]
// CHECK: %[[ALL:.*]] = "kernel.warp_reduce"(%[[COUNTED]]) {kind = "add", lanes = array<i64: 1, 2, 4, 8>}
// CHECK: %[[PART:.*]] = arith.addf %[[ALL]], %[[BEFORE]]
// CHECK: "kernel.store_shared"(%[[PART]],
// CHECK: "kernel.barrier"()
// CHECK-COUNT-2: "kernel.load_shared"
// CHECK: scf.if
// CHECK-NEXT: "kernel.store_global"
func.func @sixteen_lanes(%x: memref<512xf16>, %w: memref<2x512xf16>, %y: memref<2xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true, cores}} {
  %c0 = arith.constant 0 : index
  %before = arith.constant dense<2.0> : vector<2x2xf32>
  %vector = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<512xf16>, index, index) -> vector<1x512xf16>
  %matrix = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<2x512xf16>, index, index) -> vector<2x512xf16>
  %parts = "tile.dot"(%vector, %matrix, %before) : (vector<1x512xf16>, vector<2x512xf16>, vector<2x2xf32>) -> vector<2x2xf32>
  %sums = "tile.reduce"(%parts) {kind = "add", axes = array<i64: 1>} : (vector<2x2xf32>) -> vector<2x1xf32>
  "tile.store"(%sums, %y, %c0, %c0) {map = affine_map<(n, k) -> (n)>} : (vector<2x1xf32>, memref<2xf32>, index, index) -> ()
  return
}
}
}
