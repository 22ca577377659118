// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx512},tilec-cse)' | FileCheck %s

#vector = affine_map<() -> (1024)>
#identity = affine_map<(i) -> (i)>

// A kernel becomes a program over tiles in the module of kernels; for its callers the signature stays.
// CHECK-LABEL: func.func private @whole(tensor<1024xf32>
// CHECK: module @kernels
// CHECK: func.func @whole(%[[X:[^:]*]]: memref<1024xf32>, %[[Y:[^:]*]]: memref<1024xf32>) attributes {tile.arguments = ["read", "write"], tile.kernel, tile.schedule
// CHECK: %[[PROGRAM:.*]] = "tile.program_id"() {axis = 0 : i64}
// CHECK: %[[I:.*]] = arith.muli %[[PROGRAM]], %c64
// CHECK: %[[TILE:.*]] = "tile.load"(%[[X]], %[[I]]) {map = affine_map<(d0) -> (d0)>} : (memref<1024xf32>, index) -> vector<64xf32>
// CHECK-NEXT: %[[POWER:.*]] = math.exp2 %[[TILE]]
// CHECK-NEXT: "tile.store"(%[[POWER]], %[[Y]], %[[I]]) {map = affine_map<(d0) -> (d0)>}
// CHECK-NEXT: return
func.func private @whole(%x: tensor<1024xf32> {primop.kind = "argument", primop.shape = #vector}) -> (tensor<1024xf32> {primop.shape = #vector}) attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {space = #vector, maps = [#identity]} : (tensor<1024xf32>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
}

// -----

#length = affine_map<()[n] -> (n)>
#identity = affine_map<(i)[n] -> (i)>

module attributes {primop.symbols = {n = array<i64: 1, 1000>}} {

// Where a tile may reach past an extent, whole tiles are plain and others masked. Memory is as large as the symbol may
// be.
// CHECK-LABEL: func.func @ragged(
// CHECK-SAME: %[[X:[^:]*]]: memref<1008xf32>
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[END:.*]] = arith.addi %[[I:.*]], %c64
// CHECK: %[[FITS:.*]] = arith.cmpi sle, %[[END]], %[[N]]
// CHECK: scf.if %[[FITS]] {
// CHECK: "tile.load"(%[[X]], %[[I]]) {map = affine_map<(d0) -> (d0)>}
// CHECK: } else {
// CHECK: "tile.load"(%[[X]], %[[I]], %[[N]]) {map = affine_map<(d0)[s0] -> (d0)>, mask = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>}
// CHECK: "tile.store"(%{{.*}}, %[[I]], %[[N]]) {{{.*}}mask = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>}
func.func private @ragged(%x: tensor<?xf32> {primop.kind = "argument", primop.shape = #length}) -> (tensor<?xf32> {primop.shape = #length}) attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {space = #length, maps = [#identity]} : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

}

// -----

#x = affine_map<() -> (100, 64)>
#rows = affine_map<() -> (100)>
#identity = affine_map<(i, j) -> (i, j)>
#nothing = affine_map<(i, j) -> ()>

// Elementwise ops are arith and math; an iota is the index that its view asks for, and what varies less is broadcast.
// CHECK-LABEL: func.func @elementwise(
// CHECK: %[[X:.*]] = "tile.load"{{.*}} -> vector<1x64xf32>
// CHECK: %[[BACKWARDS:.*]] = "tile.index"(%{{.*}}, %{{.*}}) {map = affine_map<(d0, d1) -> (-d0 + 99)>} : (index, index) -> vector<1x1xi32>
// CHECK: %[[NUMBER:.*]] = arith.sitofp %[[BACKWARDS]] : vector<1x1xi32> to vector<1x1xf32>
// CHECK: %[[NUMBERS:.*]] = vector.broadcast %[[NUMBER]] : vector<1x1xf32> to vector<1x64xf32>
// CHECK: %[[LESS:.*]] = arith.cmpf olt, %[[X]], %[[NUMBERS]]
// CHECK: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : vector<1x1xf32>
// CHECK: %[[ONES:.*]] = vector.broadcast %[[ONE]]
// CHECK: %[[CHOSEN:.*]] = arith.select %[[LESS]], %[[X]], %[[ONES]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[CHOSEN]] : vector<1x64xf32> to vector<1x64xbf16>
// CHECK: "tile.store"(%[[NARROW]]
func.func private @elementwise(%x: tensor<100x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<100x64xbf16> {primop.shape = #x}) attributes {primop.kernel} {
  %numbers = "primop.iota"() {space = #rows} : () -> tensor<100xf32>
  %one = "primop.constant"() {value = 1.0 : f32} : () -> tensor<f32>
  %less = "primop.less_than"(%x, %numbers) {space = #x, maps = [#identity, affine_map<(i, j) -> (99 - i)>]} : (tensor<100x64xf32>, tensor<100xf32>) -> tensor<100x64xi1>
  %chosen = "primop.custom"(%less, %x, %one) {operandSegmentSizes = array<i32: 1, 1, 1>, kind = "arith.select", space = #x, maps = [#identity, #identity, #nothing]} : (tensor<100x64xi1>, tensor<100x64xf32>, tensor<f32>) -> tensor<100x64xf32>
  %narrow = "primop.cast"(%chosen) {space = #x, maps = [#identity]} : (tensor<100x64xf32>) -> tensor<100x64xbf16>
  return %narrow : tensor<100x64xbf16>
}

// -----

#x = affine_map<() -> (64, 128)>
#turned = affine_map<() -> (128, 64)>
#identity = affine_map<(i, j) -> (i, j)>

// Views compose on the way to the buffer: a transposed square of a slice is read by one map.
// CHECK-LABEL: func.func @views(
// CHECK: "tile.load"{{.*}} {map = affine_map<(d0, d1) -> (d1, -d0 + 127)>} : (memref<64x128xf32>, index, index)
func.func private @views(%x: tensor<64x128xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<128x64xf32> {primop.shape = #turned}) attributes {primop.kernel} {
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [affine_map<(i, j) -> (i, 127 - j)>, affine_map<(i, j) -> (i, 127 - j)>]} : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>
  %roots = "primop.sqrt"(%squares) {space = #turned, maps = [affine_map<(i, j) -> (j, i)>]} : (tensor<64x128xf32>) -> tensor<128x64xf32>
  return %roots : tensor<128x64xf32>
}

// -----

#x = affine_map<() -> (100, 64)>

// Elements that a bound excludes are not read and count as zero.
// CHECK-LABEL: func.func @bounds(
// CHECK: %[[READ:.*]] = "tile.load"{{.*}} {map = affine_map<(d0, d1) -> (d0, d1 - 3)>, mask = affine_map<(d0, d1) -> (d1 - 3)>}
// CHECK: %[[PLACE:.*]] = "tile.index"(%{{.*}}, %{{.*}}) {map = affine_map<(d0, d1) -> (d1 - 3)>}
// CHECK: %[[EXISTS:.*]] = arith.cmpi sge, %[[PLACE]], %{{.*}}
// CHECK: %[[VALUE:.*]] = arith.select %[[EXISTS]], %[[READ]], %{{.*}}
// CHECK: math.exp2 %[[VALUE]]
func.func private @bounds(%x: tensor<100x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<100x64xf32> {primop.shape = #x}) attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {space = #x, maps = [affine_map<(i, j) -> (i, j - 3)>], bounds = [affine_map<(i, j) -> (j - 3)>]} : (tensor<100x64xf32>) -> tensor<100x64xf32>
  return %y : tensor<100x64xf32>
}

// -----

#x = affine_map<() -> (8, 256)>
#rows = affine_map<() -> (8)>
#identity = affine_map<(i, j) -> (i, j)>

// A norm walks its row twice: a loop that reduces into an accumulator of one tile, and one that stores.
// CHECK-LABEL: func.func @norm(
// CHECK-SAME: %[[X:[^:]*]]: memref<8x256xf32>, %[[Y:[^:]*]]: memref<8x256xf32>
// CHECK: %[[ROW:.*]] = "tile.program_id"() {axis = 0 : i64}
// CHECK: %[[LOWEST:.*]] = arith.constant dense<0xFF800000> : vector<1x64xf32>
// CHECK: %[[LARGEST:.*]] = scf.for %[[J:.*]] = %c0 to %c256 step %c64 iter_args(%[[SO_FAR:.*]] = %[[LOWEST]])
// CHECK-NEXT: %[[TILE:.*]] = "tile.load"(%[[X]], %[[ROW]], %[[J]])
// CHECK-NEXT: %[[LARGER:.*]] = arith.maximumf %[[SO_FAR]], %[[TILE]]
// CHECK-NEXT: scf.yield %[[LARGER]]
// CHECK: %[[MAXIMUM:.*]] = "tile.reduce"(%[[LARGEST]]) {axes = array<i64: 1>, kind = "max"} : (vector<1x64xf32>) -> vector<1x1xf32>
// CHECK: scf.for %[[J:.*]] = %c0 to %c256 step %c64 {
// CHECK: arith.divf %{{.*}}, %[[MAXIMUM]]
// CHECK: "tile.store"(%{{.*}}, %[[Y]], %[[ROW]], %[[J]])
func.func private @norm(%x: tensor<8x256xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8x256xf32> {primop.shape = #x}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x256xf32>) -> tensor<8xf32>
  %scale = "primop.recip"(%largest) {space = #rows, maps = [affine_map<(i) -> (i)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, affine_map<(i, j) -> (i)>]} : (tensor<8x256xf32>, tensor<8xf32>) -> tensor<8x256xf32>
  return %y : tensor<8x256xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#rows = affine_map<() -> (8)>
#identity = affine_map<(i, j) -> (i, j)>

// A loop of one turn is none, and what was read for its tile is still there: a row of one tile is read once.
// CHECK-LABEL: func.func @short_norm(
// CHECK-NOT: scf.for
// CHECK: %[[TILE:.*]] = "tile.load"
// CHECK: "tile.reduce"
// CHECK-NOT: tile.load
// CHECK: %[[Y:.*]] = arith.mulf %[[TILE]], %{{.*}}
// CHECK-NEXT: "tile.store"(%[[Y]]
// CHECK-NEXT: return
func.func private @short_norm(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8x64xf32> {primop.shape = #x}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %scale = "primop.recip"(%largest) {space = #rows, maps = [affine_map<(i) -> (i)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, affine_map<(i, j) -> (i)>]} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// -----

#x = affine_map<() -> (8, 60)>
#rows = affine_map<() -> (8)>
#identity = affine_map<(i, j) -> (i, j)>

// So is a row that ends inside its only tile.
// CHECK-LABEL: func.func @short_ragged_norm(
// CHECK-NOT: scf.for
// CHECK: %[[TILE:.*]] = "tile.load"(%{{.*}}) {{{.*}}mask = affine_map<(d0, d1) -> (-d1 + 59)>}
// CHECK: "tile.reduce"
// CHECK-NOT: tile.load
// CHECK: %[[Y:.*]] = arith.mulf %[[TILE]], %{{.*}}
// CHECK-NEXT: "tile.store"(%[[Y]]
// CHECK-NEXT: return
func.func private @short_ragged_norm(%x: tensor<8x60xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<8x60xf32> {primop.shape = #x}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x60xf32>) -> tensor<8xf32>
  %scale = "primop.recip"(%largest) {space = #rows, maps = [affine_map<(i) -> (i)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, affine_map<(i, j) -> (i)>]} : (tensor<8x60xf32>, tensor<8xf32>) -> tensor<8x60xf32>
  return %y : tensor<8x60xf32>
}

// -----

#x = affine_map<()[n] -> (64, n)>
#rows = affine_map<()[n] -> (64)>
#identity = affine_map<(i, j)[n] -> (i, j)>

module attributes {primop.symbols = {n = array<i64: 1, 1000>}} {

// A symbolic extent is walked by whole tiles and then by one ragged tile, whose missing elements count as the neutral
// one. bf16 is summed in f32 and rounded once.
// CHECK-LABEL: func.func @symbolic_sum(
// CHECK: %[[N:.*]] = "tile.symbol"
// CHECK: %[[ZEROS:.*]] = arith.constant dense<0.000000e+00> : vector<1x64xf32>
// CHECK: %[[TILES:.*]] = arith.divui %[[N]], %c64
// CHECK: %[[WHOLE:.*]] = arith.muli %[[TILES]], %c64
// CHECK: %[[SUM:.*]] = scf.for %{{.*}} = %c0 to %[[WHOLE]] step %c64 iter_args(%{{.*}} = %[[ZEROS]])
// CHECK: arith.extf
// CHECK: %[[TOTAL:.*]] = scf.for %[[J:.*]] = %[[WHOLE]] to %[[N]] step %c64 iter_args(%{{.*}} = %[[SUM]])
// CHECK: "tile.load"{{.*}}mask = affine_map<(d0, d1)[s0] -> (-d1 + s0 - 1)>
// CHECK: arith.select %{{.*}}, %{{.*}}, %[[ZEROS]]
// CHECK: %[[ROUNDED:.*]] = "tile.reduce"(%[[TOTAL]])
// CHECK-NEXT: arith.truncf %[[ROUNDED]] : vector<1x1xf32> to vector<1x1xbf16>
func.func private @symbolic_sum(%x: tensor<64x?xbf16> {primop.kind = "argument", primop.shape = #x}) -> (tensor<64xbf16> {primop.shape = #rows}) attributes {primop.kernel} {
  %y = "primop.sum"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x?xbf16>) -> tensor<64xbf16>
  return %y : tensor<64xbf16>
}

}

// -----

#x = affine_map<() -> (16, 256)>
#packed = affine_map<() -> (4, 128, 16, 2)>
#bias = affine_map<() -> (64)>
#y = affine_map<() -> (16, 64)>
#products = affine_map<() -> (16, 64, 256)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n floordiv 16, k floordiv 2, n mod 16, k mod 2)>

// Where an operand is contiguous along an axis that the result keeps, a contraction accumulates outer products. The
// epilogue follows the loop.
// CHECK-LABEL: func.func @dot(
// CHECK-SAME: %[[X:[^:]*]]: memref<16x256xbf16>, %[[W:[^:]*]]: memref<4x128x16x2xbf16>, %[[BIAS:[^:]*]]: memref<64xf32>
// CHECK-SAME: tile.arguments = ["read", "weight", "weight", "write"]
// CHECK: %[[ZEROS:.*]] = arith.constant dense<0.000000e+00> : vector<8x32x1xf32>
// CHECK: %[[SUM:.*]] = scf.for %[[K:.*]] = %c0 to %c256 step %c2 iter_args(%[[ACC:.*]] = %[[ZEROS]])
// CHECK-NEXT: %[[ROWS:.*]] = "tile.load"(%[[X]], %[[M:.*]], %[[N:.*]], %[[K]]) {map = affine_map<(d0, d1, d2) -> (d0, d2)>} {{.*}} -> vector<8x1x2xbf16>
// CHECK-NEXT: %[[PANEL:.*]] = "tile.load"(%[[W]], %[[M]], %[[N]], %[[K]]) {map = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2 floordiv 2, d1 mod 16, d2 mod 2)>} {{.*}} -> vector<1x32x2xbf16>
// CHECK-NEXT: %[[NEXT:.*]] = "tile.dot"(%[[ROWS]], %[[PANEL]], %[[ACC]])
// CHECK-NEXT: scf.yield %[[NEXT]]
// CHECK: "tile.load"(%[[BIAS]], %[[M]], %[[N]], %c0) {map = affine_map<(d0, d1, d2) -> (d1)>} {{.*}} -> vector<1x32x1xf32>
// CHECK: arith.addf %[[SUM]], %{{.*}}
func.func private @dot(%x: tensor<16x256xbf16> {primop.kind = "argument", primop.shape = #x}, %w: tensor<4x128x16x2xbf16> {primop.kind = "weight", primop.shape = #packed}, %bias: tensor<64xf32> {primop.kind = "weight", primop.shape = #bias}) -> (tensor<16x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<16x256xbf16>, tensor<4x128x16x2xbf16>) -> tensor<16x64x256xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<16x64x256xf32>) -> tensor<16x64xf32>
  %y = "primop.add"(%sum, %bias) {space = #y, maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>]} : (tensor<16x64xf32>, tensor<64xf32>) -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}

// -----

#x = affine_map<() -> (16, 256)>
#w = affine_map<() -> (64, 256)>
#y = affine_map<() -> (16, 64)>
#products = affine_map<() -> (16, 64, 256)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// Where both are contiguous along the reduced axis, products are formed lane by lane and summed at the end.
// CHECK-LABEL: func.func @lanes(
// CHECK-SAME: %[[X:[^:]*]]: memref<16x256xf32>, %[[W:[^:]*]]: memref<64x256xf32>
// CHECK: %[[SUMS:.*]] = scf.for %[[K:.*]] = %c0 to %c256 step %c64 iter_args(%[[ACC:.*]] = %{{.*}}) -> (vector<1x4x64xf32>)
// CHECK-NEXT: %[[ROW:.*]] = "tile.load"(%[[X]], {{.*}} -> vector<1x1x64xf32>
// CHECK-NEXT: %[[COLUMNS:.*]] = "tile.load"(%[[W]], {{.*}} -> vector<1x4x64xf32>
// CHECK-NEXT: %[[ROWS:.*]] = vector.broadcast %[[ROW]]
// CHECK-NEXT: %[[PRODUCTS:.*]] = arith.mulf %[[ROWS]], %[[COLUMNS]]
// CHECK-NEXT: arith.addf %[[ACC]], %[[PRODUCTS]]
// CHECK: "tile.reduce"(%[[SUMS]]) {axes = array<i64: 2>, kind = "add"} : (vector<1x4x64xf32>) -> vector<1x4x1xf32>
func.func private @lanes(%x: tensor<16x256xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<64x256xf32> {primop.kind = "argument", primop.shape = #w}) -> (tensor<16x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<16x256xf32>, tensor<64x256xf32>) -> tensor<16x64x256xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<16x64x256xf32>) -> tensor<16x64xf32>
  return %sum : tensor<16x64xf32>
}

// -----

#table = affine_map<() -> (100, 64)>
#rows = affine_map<() -> (4)>
#read = affine_map<() -> (4, 64)>
#row = affine_map<(i, j) -> (i)>
#to_row = affine_map<(i, j, row) -> (row, j)>

// A gathered index is clamped to the table.
// CHECK-LABEL: func.func @gather(
// CHECK-SAME: %[[TABLE:[^:]*]]: memref<100x64xf32>, %[[ROWS:[^:]*]]: memref<4xi32>
// CHECK: %[[ROW:.*]] = "tile.load"(%[[ROWS]], {{.*}} -> vector<1x1xi32>
// CHECK: %[[FIRST:.*]] = arith.constant dense<0>
// CHECK: %[[LAST:.*]] = arith.constant dense<99>
// CHECK: %[[AT_LEAST:.*]] = arith.maxsi %[[ROW]], %[[FIRST]]
// CHECK: %[[INSIDE:.*]] = arith.minsi %[[AT_LEAST]], %[[LAST]]
// CHECK: "tile.gather"(%[[TABLE]], %[[INSIDE]], {{.*}}) {map = affine_map<(d0, d1, d2) -> (d2, d1)>}
func.func private @gather(%table: tensor<100x64xf32> {primop.kind = "weight", primop.shape = #table}, %rows: tensor<4xi32> {primop.kind = "argument", primop.shape = #rows}) -> (tensor<4x64xf32> {primop.shape = #read}) attributes {primop.kernel} {
  %read = "primop.gather"(%table, %rows) {space = #read, maps = [#to_row, #row], extent = 100 : i64} : (tensor<100x64xf32>, tensor<4xi32>) -> tensor<4x64xf32>
  return %read : tensor<4x64xf32>
}

// A wide index is clamped before it is narrowed.
// CHECK: func.func @gather_i64(
// CHECK: arith.maxsi {{.*}} : vector<1x1xi64>
// CHECK: %[[INSIDE:.*]] = arith.minsi {{.*}} : vector<1x1xi64>
// CHECK: arith.trunci %[[INSIDE]] : vector<1x1xi64> to vector<1x1xi32>
func.func private @gather_i64(%table: tensor<100x64xf32> {primop.kind = "weight", primop.shape = #table}, %rows: tensor<4xi64> {primop.kind = "argument", primop.shape = #rows}) -> (tensor<4x64xf32> {primop.shape = #read}) attributes {primop.kernel} {
  %read = "primop.gather"(%table, %rows) {space = #read, maps = [#to_row, #row], extent = 100 : i64} : (tensor<100x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
  return %read : tensor<4x64xf32>
}

// A scatter writes its destination, which is no further argument.
// CHECK: func.func @scatter(
// CHECK-SAME: %[[DEST:[^:]*]]: memref<100x64xf32>, %[[ROWS:[^:]*]]: memref<4xi32>, %[[NEW:[^:]*]]: memref<4x64xf32>) attributes {tile.arguments = ["write", "read", "read"]
// CHECK-DAG: %[[VALUE:.*]] = "tile.load"(%[[NEW]],
// CHECK-DAG: %[[ROW:.*]] = "tile.load"(%[[ROWS]],
// CHECK: "tile.scatter"(%[[VALUE]], %[[ROW]], %[[DEST]], {{.*}}) {extent = 100 : i64, map = affine_map<(d0, d1, d2) -> (d2, d1)>}
func.func private @scatter(%dest: tensor<100x64xf32> {primop.kind = "state", primop.shape = #table}, %rows: tensor<4xi32> {primop.kind = "argument", primop.shape = #rows}, %new: tensor<4x64xf32> {primop.kind = "argument", primop.shape = #read}) -> (tensor<100x64xf32> {primop.shape = #table}) attributes {primop.kernel} {
  %written = "primop.scatter"(%dest, %rows, %new) {space = #read, maps = [#to_row, #row, affine_map<(i, j) -> (i, j)>], extent = 100 : i64, inplace = true} : (tensor<100x64xf32>, tensor<4xi32>, tensor<4x64xf32>) -> tensor<100x64xf32>
  return %written : tensor<100x64xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (16, 64)>
#products = affine_map<() -> (8, 16, 64)>
#halves = affine_map<() -> (8, 2, 2, 4)>
#heads = affine_map<() -> (8, 2, 8)>
#identity = affine_map<(m, n, k) -> (m, n, k)>

// A dimension that is taken apart, here the eight columns of a head into two halves of four, is two axes. Along the one
// on which a contraction's result is also read from the other end, a tile holds everything and is reversed.
// CHECK-LABEL: func.func @mirrored(
// CHECK-SAME: %[[X:[^:]*]]: memref<8x64xf32>, %[[W:[^:]*]]: memref<16x64xf32>, %[[Y:[^:]*]]: memref<8x2x8xf32>
// CHECK-SAME: {extent = affine_map<() -> (8)>, layout = array<i64: 1, 1, 1, 1>, name = "m"
// CHECK-SAME: {extent = affine_map<() -> (2)>, layout = array<i64: 1, 1, 1, 1>, name = "n0"
// CHECK-SAME: {extent = affine_map<() -> (2)>, layout = array<i64: 2, 1, 1, 1>, name = "n1"
// CHECK-SAME: {extent = affine_map<() -> (4)>, layout = array<i64: 4, 1, 1, 1>, name = "n2"
// CHECK-SAME: {extent = affine_map<() -> (64)>, {{.*}}name = "k", walk = "loop"}
// CHECK: "tile.load"(%[[X]], {{.*}}) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4)>}
// CHECK: "tile.load"(%[[W]], {{.*}}) {map = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 8 + d2 * 4 + d3, d4)>} {{.*}} -> vector<1x1x2x4x64xf32>
// CHECK: %[[SUM:.*]] = "tile.reduce"(%{{.*}}) {axes = array<i64: 4>, kind = "add"} {{.*}} -> vector<1x1x2x4x1xf32>
// CHECK-NOT: tile.load
// CHECK: %[[SWAPPED:.*]] = "tile.reverse"(%[[SUM]]) {axis = 2 : i64}
// CHECK-NEXT: %[[BOTH:.*]] = arith.addf %[[SUM]], %[[SWAPPED]]
// CHECK-NEXT: "tile.store"(%[[BOTH]], %[[Y]], {{.*}}) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2 * 4 + d3)>}
// CHECK-NEXT: return
func.func private @mirrored(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<16x64xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<8x2x8xf32> {primop.shape = #heads}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>]} : (tensor<8x64xf32>, tensor<16x64xf32>) -> tensor<8x16x64xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#identity], dims = array<i64: 2>} : (tensor<8x16x64xf32>) -> tensor<8x16xf32>
  %both = "primop.add"(%sum, %sum) {space = #halves, maps = [affine_map<(i, h, t, j) -> (i, h * 8 + t * 4 + j)>, affine_map<(i, h, t, j) -> (i, h * 8 - t * 4 + j + 4)>]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x2x2x4xf32>
  %y = "primop.cast"(%both) {space = #heads, maps = [affine_map<(i, h, d) -> (i, h, d floordiv 4, d mod 4)>]} : (tensor<8x2x2x4xf32>) -> tensor<8x2x8xf32>
  return %y : tensor<8x2x8xf32>
}

// A scatter writes through the same axes, into the columns of a cache.
// CHECK-LABEL: func.func @mirrored_scatter(
// CHECK-SAME: %[[CACHE:[^:]*]]: memref<32x2x8xf32>, %[[ROWS:[^:]*]]: memref<8xi32>
// CHECK: %[[SWAPPED:.*]] = "tile.reverse"(%[[SUM:.*]]) {axis = 2 : i64}
// CHECK: %[[BOTH:.*]] = arith.addf %[[SUM]], %[[SWAPPED]]
// CHECK: %[[ROW:.*]] = "tile.load"(%[[ROWS]],
// CHECK: "tile.scatter"(%[[BOTH]], %[[ROW]], %[[CACHE]], {{.*}}) {extent = 32 : i64, map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d5, d1, d2 * 4 + d3)>}
func.func private @mirrored_scatter(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<16x64xf32> {primop.kind = "weight", primop.shape = #w}, %cache: tensor<32x2x8xf32> {primop.kind = "state", primop.shape = affine_map<() -> (32, 2, 8)>}, %rows: tensor<8xi32> {primop.kind = "argument", primop.shape = affine_map<() -> (8)>}) -> (tensor<32x2x8xf32> {primop.shape = affine_map<() -> (32, 2, 8)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>]} : (tensor<8x64xf32>, tensor<16x64xf32>) -> tensor<8x16x64xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#identity], dims = array<i64: 2>} : (tensor<8x16x64xf32>) -> tensor<8x16xf32>
  %both = "primop.add"(%sum, %sum) {space = #halves, maps = [affine_map<(i, h, t, j) -> (i, h * 8 + t * 4 + j)>, affine_map<(i, h, t, j) -> (i, h * 8 - t * 4 + j + 4)>]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x2x2x4xf32>
  %written = "primop.scatter"(%cache, %rows, %both) {space = #heads, maps = [affine_map<(i, h, d, row) -> (row, h, d)>, affine_map<(i, h, d) -> (i)>, affine_map<(i, h, d) -> (i, h, d floordiv 4, d mod 4)>], extent = 32 : i64, inplace = true} : (tensor<32x2x8xf32>, tensor<8xi32>, tensor<8x2x2x4xf32>) -> tensor<32x2x8xf32>
  return %written : tensor<32x2x8xf32>
}
