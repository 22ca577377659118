// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-stage)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 16, 1, 1>, walk = "grid", warps = 2 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (72)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (200)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// Where all threads fetch, what a turn fetches is one group, which it then awaits. Products are made when they are used, so
// its slots are released at its end. What lies past the depth is zero: a limit says so, also where it is a constant.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: memref<128x200xbf16>, %[[W:[^:]*]]: memref<72x200xbf16>
// CHECK: scf.for %[[K:.*]] = %c0 to %c256 step %c64 iter_args(%[[SO_FAR:.*]] = %{{.*}})
// CHECK: %[[TURN:.*]] = arith.divui %[[K]], %c64
// CHECK-NEXT: "tile.fetch"(%[[XS:.*]], %[[TURN]], %[[X]], {{.*}}) {column = 2 : i64, column_limit = affine_map<() -> (200)>,
// CHECK-NEXT: "tile.fetch"(%[[WS:.*]], %[[TURN]], %[[W]], {{.*}}) {column = 2 : i64, column_limit = affine_map<() -> (200)>,
// CHECK-NEXT: "tile.commit"()
// CHECK-NEXT: %[[A:.*]] = "tile.await"(%[[XS]], %[[TURN]])
// CHECK-NEXT: %[[B:.*]] = "tile.await"(%[[WS]], %[[TURN]])
// CHECK-NEXT: %[[MORE:.*]] = "tile.dot_shared"(%[[A]], %[[B]], %[[SO_FAR]])
// CHECK-NEXT: "tile.release"(%[[XS]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: "tile.release"(%[[WS]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: scf.yield %[[MORE]]
func.func @product(%x: memref<128x200xbf16>, %w: memref<72x200xbf16>, %y: memref<128x72xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, copied, stages = 3 : i64}} {
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c256 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>, mask = affine_map<(m, n, k) -> (199 - k)>} : (memref<128x200xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %i, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (199 - k, 71 - n)>} : (memref<72x200xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1, 71 - n)>} : (vector<64x32x1xf32>, memref<128x72xf32>, index, index, index, index) -> ()
  return
}

// Operands that lie across the depth have its rows in their slots, and the product turns them.
// CHECK-LABEL: func.func @across(
// CHECK: "tile.fetch"({{.*}}) {column = 0 : i64, limit = affine_map<() -> (200)>, map = {{.*}}, rows = array<i64: 2>} : (memref<3x64x64xbf16, 3>
// CHECK: "tile.fetch"({{.*}}) {column = 1 : i64, limit = affine_map<() -> (200)>, map = {{.*}}, rows = array<i64: 2>} : (memref<3x64x32xbf16, 3>
// CHECK: "tile.dot_shared"({{.*}}) {lhs_rows = array<i64: 0>, lhs_transposed = true, rhs_rows = array<i64: 1>, transposed = true}
func.func @across(%x: memref<200x128xbf16>, %w: memref<200x72xbf16>, %y: memref<128x72xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, copied, stages = 3 : i64}} {
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c256 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %i, %j, %k) {map = affine_map<(m, n, k) -> (k, m)>, mask = affine_map<(m, n, k) -> (199 - k)>} : (memref<200x128xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %i, %j, %k) {map = affine_map<(m, n, k) -> (k, n)>, mask = affine_map<(m, n, k) -> (199 - k, 71 - n)>} : (memref<200x72xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1, 71 - n)>} : (vector<64x32x1xf32>, memref<128x72xf32>, index, index, index, index) -> ()
  return
}

}
}
