// RUN: tilec-opt %s | tilec-opt | FileCheck %s

// Where a program stands: its coordinate along a grid axis and the values of the module's symbols.
// CHECK-LABEL: func.func @place
// CHECK: "tile.program_id"() {axis = 1 : i64} : () -> index
// CHECK: "tile.symbol"() {symbol = "seq"} : () -> index
func.func @place() -> (index, index) {
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %seq = "tile.symbol"() {symbol = "seq"} : () -> index
  return %column, %seq : index, index
}

// Reads and writes name a buffer, the tile's origin, the symbols, and the map from them to the buffer's indices. What a mask
// leaves out may be that of another tile.
// CHECK-LABEL: func.func @memory
// CHECK-SAME: %[[SOURCE:.*]]: memref<64x128xf32>, %[[DEST:.*]]: memref<128x64xf32>, %[[I:.*]]: index, %[[J:.*]]: index, %[[N:.*]]: index
// CHECK: %[[TILE:.*]] = "tile.load"(%[[SOURCE]], %[[I]], %[[J]], %[[N]]) {map = affine_map<(d0, d1)[s0] -> (d0, d1)>} : (memref<64x128xf32>, index, index, index) -> vector<4x32xf32>
// CHECK: "tile.load"({{.*}}) {{{.*}}mask = affine_map<(d0, d1)[s0] -> (-d0 + s0 - 1)>}
// CHECK: "tile.load_over"(%[[TILE]], %[[SOURCE]], %[[I]], %[[J]], %[[N]]) {map = affine_map<(d0, d1)[s0] -> (d0, d1)>, mask = affine_map<(d0, d1)[s0] -> (d0 - s0)>} : (vector<4x32xf32>, memref<64x128xf32>, index, index, index) -> vector<4x32xf32>
// CHECK: "tile.store"(%[[TILE]], %[[DEST]], %[[I]], %[[J]], %[[N]]) {map = affine_map<(d0, d1)[s0] -> (d1, d0)>, mask
func.func @memory(%source: memref<64x128xf32>, %dest: memref<128x64xf32>, %i: index, %j: index, %n: index) {
  %tile = "tile.load"(%source, %i, %j, %n) {map = affine_map<(i, j)[n] -> (i, j)>} : (memref<64x128xf32>, index, index, index) -> vector<4x32xf32>
  %ragged = "tile.load"(%source, %i, %j, %n) {map = affine_map<(i, j)[n] -> (i, j)>, mask = affine_map<(i, j)[n] -> (n - 1 - i)>} : (memref<64x128xf32>, index, index, index) -> vector<4x32xf32>
  %over = "tile.load_over"(%tile, %source, %i, %j, %n) {map = affine_map<(i, j)[n] -> (i, j)>, mask = affine_map<(i, j)[n] -> (i - n)>} : (vector<4x32xf32>, memref<64x128xf32>, index, index, index) -> vector<4x32xf32>
  "tile.store"(%tile, %dest, %i, %j, %n) {map = affine_map<(i, j)[n] -> (j, i)>, mask = affine_map<(i, j)[n] -> (n - 1 - i)>} : (vector<4x32xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// A computed index is the last dimension of the map.
// CHECK-LABEL: func.func @indexed
// CHECK-SAME: %[[TABLE:.*]]: memref<100x32xf32>, %[[ROWS:.*]]: vector<4x1xi32>, %[[I:.*]]: index, %[[J:.*]]: index
// CHECK: %[[READ:.*]] = "tile.gather"(%[[TABLE]], %[[ROWS]], %[[I]], %[[J]]) {map = affine_map<(d0, d1, d2) -> (d2, d1)>}
// CHECK: "tile.scatter"(%[[READ]], %[[ROWS]], %[[TABLE]], %[[I]], %[[J]]) {extent = 100 : i64, map = affine_map<(d0, d1, d2) -> (d2, d1)>}
func.func @indexed(%table: memref<100x32xf32>, %rows: vector<4x1xi32>, %i: index, %j: index) {
  %read = "tile.gather"(%table, %rows, %i, %j) {map = affine_map<(i, j, row) -> (row, j)>} : (memref<100x32xf32>, vector<4x1xi32>, index, index) -> vector<4x32xf32>
  "tile.scatter"(%read, %rows, %table, %i, %j) {map = affine_map<(i, j, row) -> (row, j)>, extent = 100 : i64} : (vector<4x32xf32>, vector<4x1xi32>, memref<100x32xf32>, index, index) -> ()
  return
}

// Index expressions become numbers, tiles are combined along axes that keep size 1, and products are accumulated.
// CHECK-LABEL: func.func @compute
// CHECK: "tile.index"(%{{.*}}, %{{.*}}) {map = affine_map<(d0, d1) -> (d0 - d1)>} : (index, index) -> vector<4x32xi32>
// CHECK: "tile.reduce"(%{{.*}}) {axes = array<i64: 1>, kind = "add"} : (vector<4x32xf32>) -> vector<4x1xf32>
// CHECK: "tile.reduce"(%{{.*}}) {axes = array<i64: 0, 1>, kind = "max"} : (vector<4x32xf32>) -> vector<1x1xf32>
// CHECK: "tile.dot"({{.*}}) : (vector<4x1x2xbf16>, vector<1x32x2xbf16>, vector<4x32x1xf32>) -> vector<4x32x1xf32>
func.func @compute(%i: index, %j: index, %x: vector<4x32xf32>, %lhs: vector<4x1x2xbf16>, %rhs: vector<1x32x2xbf16>, %acc: vector<4x32x1xf32>) {
  %distance = "tile.index"(%i, %j) {map = affine_map<(i, j) -> (i - j)>} : (index, index) -> vector<4x32xi32>
  %rows = "tile.reduce"(%x) {kind = "add", axes = array<i64: 1>} : (vector<4x32xf32>) -> vector<4x1xf32>
  %all = "tile.reduce"(%x) {kind = "max", axes = array<i64: 0, 1>} : (vector<4x32xf32>) -> vector<1x1xf32>
  %products = "tile.dot"(%lhs, %rhs, %acc) : (vector<4x1x2xbf16>, vector<1x32x2xbf16>, vector<4x32x1xf32>) -> vector<4x32x1xf32>
  return
}

// An axis may keep one part for each of its threads. Parts are repeated to what their thread holds, or combined later:
// plainly, or each relative to its own maximum, which may be one for all along an axis that stays.
// CHECK-LABEL: func.func @parts
// CHECK-SAME: %[[X:.*]]: vector<4x32xf32>
// CHECK: %[[PARTS:.*]] = "tile.reduce"(%[[X]]) {axes = array<i64: 1>, kind = "max"} : (vector<4x32xf32>) -> vector<4x8xf32>
// CHECK: %[[LARGEST:.*]] = "tile.reduce"(%[[X]]) {axes = array<i64: 0, 1>, kind = "max"} : (vector<4x32xf32>) -> vector<1x8xf32>
// CHECK: "tile.spread"(%[[PARTS]]) : (vector<4x8xf32>) -> vector<4x32xf32>
// CHECK: "tile.reduce"(%[[PARTS]]) {axes = array<i64: 1>, kind = "max"} : (vector<4x8xf32>) -> vector<4x1xf32>
// CHECK: "tile.reduce_online"(%[[PARTS]], %[[PARTS]]) {axes = array<i64: 1>, floor = -1.000000e+30 : f64, scale = 1.500000e+00 : f64} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
// CHECK: "tile.reduce_online"(%[[LARGEST]], %[[PARTS]]) {{.*}} : (vector<1x8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
func.func @parts(%x: vector<4x32xf32>) {
  %parts = "tile.reduce"(%x) {kind = "max", axes = array<i64: 1>} : (vector<4x32xf32>) -> vector<4x8xf32>
  %largest = "tile.reduce"(%x) {kind = "max", axes = array<i64: 0, 1>} : (vector<4x32xf32>) -> vector<1x8xf32>
  %repeated = "tile.spread"(%parts) : (vector<4x8xf32>) -> vector<4x32xf32>
  %whole = "tile.reduce"(%parts) {kind = "max", axes = array<i64: 1>} : (vector<4x8xf32>) -> vector<4x1xf32>
  %own = "tile.reduce_online"(%parts, %parts) {scale = 1.5 : f64, floor = -1.0e30 : f64, axes = array<i64: 1>} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
  %common = "tile.reduce_online"(%largest, %parts) {scale = 1.5 : f64, floor = -1.0e30 : f64, axes = array<i64: 1>} : (vector<1x8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
  return
}

// A tile is read from its other end along one axis.
// CHECK-LABEL: func.func @reverse
// CHECK: "tile.reverse"(%{{.*}}) {axis = 1 : i64} : (vector<4x32xbf16>) -> vector<4x32xbf16>
func.func @reverse(%x: vector<4x32xbf16>) {
  %y = "tile.reverse"(%x) {axis = 1 : i64} : (vector<4x32xbf16>) -> vector<4x32xbf16>
  return
}

// Tiles on their way to tensor cores: a slot of a ring is filled in its turn, awaited, used by a product and released. Rows
// may end at a limit, and columns too. Some threads only fetch, and blocks that walk over programs have numbers.
// CHECK-LABEL: func.func @rings
// CHECK: %[[RING:.*]] = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
// CHECK: "tile.fetch"(%[[RING]], %[[TURN:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {column = 1 : i64, map = affine_map<(d0, d1)[s0] -> (d0, d1)>, rows = array<i64: 0>}
// CHECK: "tile.fetch"({{.*}}) {column = 1 : i64, limit = affine_map<()[s0] -> (s0)>, map = {{.*}}, rows = array<i64: 0>}
// CHECK: "tile.fetch"({{.*}}) {column = 1 : i64, column_limit = affine_map<()[s0] -> (s0)>, map = {{.*}}, rows = array<i64: 0>}
// CHECK: %[[SLOT:.*]] = "tile.await"(%[[RING]], %[[TURN]]) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
// CHECK: "tile.release"(%[[RING]], %[[TURN]]) {running = 1 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
// CHECK: "tile.producer"() : () -> i1
// CHECK: "tile.worker"() : () -> index
func.func @rings(%source: memref<128x256xbf16>, %turn: index, %i: index, %j: index, %n: index) {
  %ring = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  "tile.fetch"(%ring, %turn, %source, %i, %j, %n) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(i, j)[n] -> (i, j)>} : (memref<3x64x64xbf16, 3>, index, memref<128x256xbf16>, index, index, index) -> ()
  "tile.fetch"(%ring, %turn, %source, %i, %j, %n) {rows = array<i64: 0>, column = 1 : i64, limit = affine_map<()[n] -> (n)>, map = affine_map<(i, j)[n] -> (i, j)>} : (memref<3x64x64xbf16, 3>, index, memref<128x256xbf16>, index, index, index) -> ()
  "tile.fetch"(%ring, %turn, %source, %i, %j, %n) {rows = array<i64: 0>, column = 1 : i64, column_limit = affine_map<()[n] -> (n)>, map = affine_map<(i, j)[n] -> (i, j)>} : (memref<3x64x64xbf16, 3>, index, memref<128x256xbf16>, index, index, index) -> ()
  %slot = "tile.await"(%ring, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  "tile.release"(%ring, %turn) {running = 1 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
  %fetches = "tile.producer"() : () -> i1
  %number = "tile.worker"() : () -> index
  return
}

// A product's right operand lies in shared memory, as (n, k) or transposed, its left one there or in registers. Rows of an
// operand may run along several axes. One that runs beside others has been made when at most so many later ones still run.
// CHECK-LABEL: func.func @dot_shared
// CHECK-SAME: %[[A:[^:]*]]: memref<64x32xbf16, 3>, %[[P:[^:]*]]: vector<64x1x32xbf16>, %[[B:[^:]*]]: memref<16x32xbf16, 3>, %[[V:[^:]*]]: memref<32x16xbf16, 3>, %[[ACC:[^:]*]]: vector<64x16x1xf32>
// CHECK: "tile.dot_shared"(%[[A]], %[[B]], %[[ACC]]) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>}
// CHECK: %[[MIXED:.*]] = "tile.dot_shared"(%[[P]], %[[V]], %[[ACC]]) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true}
// CHECK: "tile.dot_shared"(%[[A]], %[[B]], %{{.*}}) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1, 2>}
// CHECK: "tile.take_turn"() : () -> ()
// CHECK: "tile.pass_turn"() : () -> ()
// CHECK: "tile.made"(%[[MIXED]]) {running = 1 : i64} : (vector<64x16x1xf32>) -> vector<64x16x1xf32>
func.func @dot_shared(%a: memref<64x32xbf16, 3>, %p: vector<64x1x32xbf16>, %b: memref<16x32xbf16, 3>, %v: memref<32x16xbf16, 3>, %acc: vector<64x16x1xf32>, %heads: vector<64x2x8xf32>) {
  %product = "tile.dot_shared"(%a, %b, %acc) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x32xbf16, 3>, memref<16x32xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
  %mixed = "tile.dot_shared"(%p, %v, %acc) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x32xbf16>, memref<32x16xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
  %of_heads = "tile.dot_shared"(%a, %b, %heads) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1, 2>} : (memref<64x32xbf16, 3>, memref<16x32xbf16, 3>, vector<64x2x8xf32>) -> vector<64x2x8xf32>
  "tile.take_turn"() : () -> ()
  "tile.pass_turn"() : () -> ()
  %made = "tile.made"(%mixed) {running = 1 : i64} : (vector<64x16x1xf32>) -> vector<64x16x1xf32>
  return
}
