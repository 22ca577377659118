// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_90a},tilec-cse,tilec-dce)' --mlir-print-local-scope | FileCheck %s

#x = affine_map<()[n] -> (n, 128)>
#rows = affine_map<()[n] -> (n)>
#a = affine_map<()[n] -> (n, 72)>
#w = affine_map<()[n] -> (128, 72)>
#products = affine_map<()[n] -> (n, 128, 72)>
#g = affine_map<()[n] -> (128)>
#blocks = affine_map<()[n] -> (n, 2)>
#sixteen = affine_map<()[n] -> (n, 16)>
#wide = affine_map<()[n] -> (n, 1024)>
#y = affine_map<()[n] -> (n, 32)>
#v = affine_map<()[n] -> (32, 1024)>
#after = affine_map<()[n] -> (n, 32, 1024)>
#i = affine_map<(i)[n] -> (i)>
#whole = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#column = affine_map<(i, j)[n] -> (j)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// A product whose results have further ones beside them. The columns of all are two axes, of which the second counts through a
// block: each tile has whole blocks of it. What stands beside is made before anything is written, all of the same accumulators.
// CHECK-LABEL: func.func @beside(
// CHECK-SAME: %[[X:[^:]*]]: memref<64x128xf32>, %[[BLOCKS:[^:]*]]: memref<64x2xf32>, %[[Y:[^:]*]]: memref<64x128xbf16>)
// CHECK-SAME: tile.arguments = ["read", "weight", "read", "weight", "write", "write", "write"]
// CHECK-SAME: extent = affine_map<()[s0] -> (2)>
// CHECK-SAME: extent = affine_map<()[s0] -> (64)>, layout = array<i64: 64, 4, 2, 1>
// CHECK: %[[PRODUCT:.*]] = scf.for
// CHECK: %[[SUM:.*]] = arith.addf %{{.*}}, %[[PRODUCT]]
// CHECK-NEXT: %[[SQUARES:.*]] = arith.mulf %[[SUM]], %[[SUM]]
// CHECK-NEXT: %[[ADDED:.*]] = "tile.reduce"(%[[SQUARES]]) {axes = array<i64: 2>, kind = "add"} : (vector<64x1x64x1xf32>) -> vector<64x1x1x1xf32>
// CHECK: %[[WEIGHTED:.*]] = arith.mulf %[[SUM]],
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.truncf %[[WEIGHTED]]
// CHECK-NEXT: "tile.store"(%[[SUM]], %[[X]], {{.*}}map = affine_map<(d0, d1, d2, d3)[s0] -> (d0, d1 * 64 + d2)>
// CHECK-NEXT: "tile.store"(%[[ADDED]], %[[BLOCKS]], {{.*}}map = affine_map<(d0, d1, d2, d3)[s0] -> (d0, d1)>
// CHECK-NEXT: "tile.store"(%[[ROUNDED]], %[[Y]], {{.*}}map = affine_map<(d0, d1, d2, d3)[s0] -> (d0, d1 * 64 + d2)>
// CHECK-NEXT: return
func.func private @beside(%a: tensor<?x72xbf16> {primop.kind = "argument", primop.shape = #a}, %w: tensor<128x72xbf16> {primop.kind = "weight", primop.shape = #w}, %r: tensor<?x128xf32> {primop.kind = "argument", primop.shape = #x}, %g: tensor<128xf32> {primop.kind = "weight", primop.shape = #g}) -> (tensor<?x128xf32> {primop.shape = #x}, tensor<?x2xf32> {primop.shape = #blocks}, tensor<?x128xbf16> {primop.shape = #x}) attributes {primop.kernel} {
  %b = "primop.mul"(%a, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %c = "primop.sum"(%b) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %x = "primop.add"(%r, %c) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %blocks = "primop.sum"(%squares) {space = affine_map<()[n] -> (n, 2, 64)>, maps = [affine_map<(i, b, j)[n] -> (i, b * 64 + j)>], dims = array<i64: 2>, primop.beside} : (tensor<?x128xf32>) -> tensor<?x2xf32>
  %weighted = "primop.mul"(%x, %g) {space = #x, maps = [#whole, #column]} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%weighted) {space = #x, maps = [#whole], primop.beside} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %x, %blocks, %y : tensor<?x128xf32>, tensor<?x2xf32>, tensor<?x128xbf16>
}

// A factor of rows is the sum of 16 numbers a row, which four lanes share that hold columns of the same row. They are read before
// the products are made and added up afterwards.
// CHECK-LABEL: func.func @factor(
// CHECK-SAME: %[[TERMS:[^:]*]]: memref<64x16xf32>
// CHECK-SAME: lanes_of = "n", layout = array<i64: 16, 4, 4, 1>
// CHECK: %[[ROWS:.*]] = "tile.load"(%[[TERMS]],
// CHECK: %[[PRODUCT:.*]] = scf.for
// CHECK: %[[TOTAL:.*]] = "tile.reduce"(%[[ROWS]]) {axes = array<i64: 3>, kind = "add"} : (vector<64x1x1x16xf32>) -> vector<64x1x1x1xf32>
// CHECK: %[[ONE:.*]] = arith.divf %{{.*}}, %[[TOTAL]]
// CHECK-NEXT: %[[FACTOR:.*]] = vector.broadcast %[[ONE]]
// CHECK-NEXT: %[[SCALED:.*]] = arith.mulf %[[PRODUCT]], %[[FACTOR]]
// CHECK-NEXT: "tile.store"(%[[SCALED]],
func.func private @factor(%blocks: tensor<?x16xf32> {primop.kind = "argument", primop.shape = #sixteen}, %y: tensor<?x1024xbf16> {primop.kind = "argument", primop.shape = #wide}, %v: tensor<32x1024xbf16> {primop.kind = "weight", primop.shape = #v}) -> (tensor<?x32xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %total = "primop.sum"(%blocks) {space = #sixteen, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<?x16xf32>) -> tensor<?xf32>
  %factor = "primop.recip"(%total) {space = #rows, maps = [#i], primop.factor} : (tensor<?xf32>) -> tensor<?xf32>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x1024xbf16>, tensor<32x1024xbf16>) -> tensor<?x32x1024xf32>
  %c = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x1024xf32>) -> tensor<?x32xf32>
  %p = "primop.mul"(%c, %factor) {space = #y, maps = [#whole, #row]} : (tensor<?x32xf32>, tensor<?xf32>) -> tensor<?x32xf32>
  return %p : tensor<?x32xf32>
}

// Of few rows, whose warps share the depth, these share the numbers, too: the axis of the sum lies where the depth does. They
// meet for it before the products, while the matrix is on its way.
// CHECK-LABEL: func.func @shared_factor(
// CHECK-SAME: %[[TERMS:[^:]*]]: memref<8x64xf32>
// CHECK-SAME: lanes_of = "n", layout = array<i64: {{[0-9]+}}, 32, 8, 1>, name = "k", walk = "loop", warps = 8
// CHECK-SAME: lanes_of = "k", layout = array<i64: 64, 32, 2, 1>, name = "{{r[0-9]}}", walk = "loop", warps = 8
// CHECK: %[[ROWS:.*]] = "tile.load"(%[[TERMS]],
// CHECK: %[[TOTAL:.*]] = "tile.reduce"(%{{.*}}) {axes = array<i64: 3>, kind = "add"} : (vector<8x1x1x64x1x1xf32>) -> vector<8x1x1x1x1x1xf32>
// CHECK: "tile.dot_twin"
// CHECK: "tile.reduce"(%{{.*}}) {axes = array<i64: 2>, kind = "add"}
// CHECK: arith.divf %{{.*}}, %[[TOTAL]]
// CHECK: "tile.store"
func.func private @shared_factor(%blocks: tensor<8x64xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (8, 64)>}, %y: tensor<8x1024xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (8, 1024)>}, %v: tensor<32x1024xbf16> {primop.kind = "weight", primop.shape = #v}) -> (tensor<8x32xf32> {primop.shape = affine_map<()[n] -> (8, 32)>}) attributes {primop.kernel} {
  %total = "primop.sum"(%blocks) {space = affine_map<()[n] -> (8, 64)>, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<8x64xf32>) -> tensor<8xf32>
  %factor = "primop.recip"(%total) {space = affine_map<()[n] -> (8)>, maps = [#i], primop.factor} : (tensor<8xf32>) -> tensor<8xf32>
  %b = "primop.mul"(%y, %v) {space = affine_map<()[n] -> (8, 32, 1024)>, maps = [#lhs, #rhs]} : (tensor<8x1024xbf16>, tensor<32x1024xbf16>) -> tensor<8x32x1024xf32>
  %c = "primop.sum"(%b) {space = affine_map<()[n] -> (8, 32, 1024)>, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x1024xf32>) -> tensor<8x32xf32>
  %p = "primop.mul"(%c, %factor) {space = affine_map<()[n] -> (8, 32)>, maps = [#whole, #row]} : (tensor<8x32xf32>, tensor<8xf32>) -> tensor<8x32xf32>
  return %p : tensor<8x32xf32>
}

// Of five numbers each lane takes two, of which three are masked: they are read when the products are made, in the one turn that
// there is.
// CHECK-LABEL: func.func @five(
// CHECK-SAME: %[[TERMS:[^:]*]]: memref<64x5xf32>
// CHECK-SAME: lanes_of = "n", layout = array<i64: 8, 4, 1, 1>
// CHECK: %[[PRODUCT:.*]] = scf.for
// CHECK-NOT: %[[TERMS]]
// CHECK: scf.yield
// CHECK: "tile.load"(%[[TERMS]], {{.*}}mask = affine_map<(d0, d1, d2, d3)[s0] -> (-d0 + s0 - 1, -d3 + 4)>
// CHECK: "tile.reduce"(%{{.*}}) {axes = array<i64: 3>, kind = "add"} : (vector<64x1x1x8xf32>) -> vector<64x1x1x1xf32>
// CHECK: arith.mulf %[[PRODUCT]],
func.func private @five(%blocks: tensor<?x5xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (n, 5)>}, %y: tensor<?x320xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (n, 320)>}, %v: tensor<32x320xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (32, 320)>}) -> (tensor<?x32xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %total = "primop.sum"(%blocks) {space = affine_map<()[n] -> (n, 5)>, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<?x5xf32>) -> tensor<?xf32>
  %factor = "primop.recip"(%total) {space = #rows, maps = [#i], primop.factor} : (tensor<?xf32>) -> tensor<?xf32>
  %b = "primop.mul"(%y, %v) {space = affine_map<()[n] -> (n, 32, 320)>, maps = [#lhs, #rhs]} : (tensor<?x320xbf16>, tensor<32x320xbf16>) -> tensor<?x32x320xf32>
  %c = "primop.sum"(%b) {space = affine_map<()[n] -> (n, 32, 320)>, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x320xf32>) -> tensor<?x32xf32>
  %p = "primop.mul"(%c, %factor) {space = #y, maps = [#whole, #row]} : (tensor<?x32xf32>, tensor<?xf32>) -> tensor<?x32xf32>
  return %p : tensor<?x32xf32>
}

}
