// RUN: tilec-opt %s | tilec-opt | FileCheck %s

// A program's own memory is written by all its threads, which meet before they read it. An access is that of a buffer.
// CHECK-LABEL: func.func @memory
// CHECK-SAME: %[[TILE:.*]]: vector<1x256xbf16>, %[[I:.*]]: index
// CHECK: %[[ROW:.*]] = "tile.alloc"() : () -> memref<256xbf16, 3>
// CHECK: "tile.store"(%[[TILE]], %[[ROW]], %[[I]], %[[I]]) {map = affine_map<(d0, d1) -> (d1)>}
// CHECK: "tile.barrier"() : () -> ()
// CHECK: "tile.load"(%[[ROW]], %[[I]], %[[I]]) {map = affine_map<(d0, d1) -> (d0)>} : (memref<256xbf16, 3>, index, index) -> vector<64x1xbf16>
func.func @memory(%tile: vector<1x256xbf16>, %i: index) {
  %row = "tile.alloc"() : () -> memref<256xbf16, 3>
  "tile.store"(%tile, %row, %i, %i) {map = affine_map<(k, r) -> (r)>} : (vector<1x256xbf16>, memref<256xbf16, 3>, index, index) -> ()
  "tile.barrier"() : () -> ()
  %part = "tile.load"(%row, %i, %i) {map = affine_map<(k, r) -> (k)>} : (memref<256xbf16, 3>, index, index) -> vector<64x1xbf16>
  return
}

// A warp's tensor core takes its right operand along another axis than its result has for the columns. Where two warps
// share the depth, the result has an element along it for each of them. The depth of the right operand may be another axis, too.
// CHECK-LABEL: func.func @dot_twin
// CHECK-SAME: %[[LHS:[^:]*]]: vector<16x1x32x1xbf16>, %[[RHS:[^:]*]]: vector<1x1x32x8xbf16>, %[[ACC:[^:]*]]: vector<16x8x1x1xf32>, %[[PARTS:[^:]*]]: vector<16x8x2x1xf32>
// CHECK: "tile.dot_twin"(%[[LHS]], %[[RHS]], %[[ACC]]) {column = 1 : i64, depth = 2 : i64, twin = 3 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
// CHECK: "tile.dot_twin"(%[[LHS]], %[[RHS]], %[[PARTS]]) {column = 1 : i64, depth = 2 : i64, twin = 3 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x2x1xf32>) -> vector<16x8x2x1xf32>
// CHECK: "tile.dot_twin"(%{{.*}}, %{{.*}}, %{{.*}}) {column = 1 : i64, depth = 2 : i64, depth_twin = 4 : i64, twin = 3 : i64} : (vector<8x1x64x1x1xbf16>, vector<1x1x1x8x64xbf16>, vector<8x8x2x1x1xf32>) -> vector<8x8x2x1x1xf32>
func.func @dot_twin(%lhs: vector<16x1x32x1xbf16>, %rhs: vector<1x1x32x8xbf16>, %acc: vector<16x8x1x1xf32>, %parts: vector<16x8x2x1xf32>, %few: vector<8x1x64x1x1xbf16>, %runs: vector<1x1x1x8x64xbf16>, %both: vector<8x8x2x1x1xf32>) {
  %product = "tile.dot_twin"(%lhs, %rhs, %acc) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  %shared = "tile.dot_twin"(%lhs, %rhs, %parts) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x2x1xf32>) -> vector<16x8x2x1xf32>
  %deep = "tile.dot_twin"(%few, %runs, %both) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64, depth_twin = 4 : i64} : (vector<8x1x64x1x1xbf16>, vector<1x1x1x8x64xbf16>, vector<8x8x2x1x1xf32>) -> vector<8x8x2x1x1xf32>
  return
}
