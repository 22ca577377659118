// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_80},tilec-cse,tilec-dce)' --mlir-print-local-scope | FileCheck %s

#y = affine_map<()[s] -> (s, 24)>
#x = affine_map<()[s] -> (s, 64)>
#w = affine_map<()[s] -> (24, 64)>
#products = affine_map<()[s] -> (s, 24, 64)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// A product of 16-bit matrices that are both contiguous along the depth is made by each warp's tensor core, straight from
// memory. The columns have two layouts: that of the result, and that of the right operand, which is one more axis, their
// twin, over the lanes of the rows, and says whose it is. The depth lies over the lanes of the columns, in runs of 16 bytes.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: memref<64x64xbf16>, %[[W:[^:]*]]: memref<24x64xbf16>, %[[Y:[^:]*]]: memref<64x24xf32>
// CHECK-SAME: tile.schedule = {ahead,
// CHECK-SAME: layout = array<i64: 64, 16, 1, 1>, name = "m", walk = "grid", warps = 2 : i64
// CHECK-SAME: layout = array<i64: 16, 4, 2, 1>, name = "n", walk = "grid"
// CHECK-SAME: lanes_of = "n", layout = array<i64: 32, 4, 8, 1>, name = "k", walk = "loop"
// CHECK-SAME: lanes_of = "m", layout = array<i64: 16, 8, 1, 1>, name = "n_twin", twin_of = "n", walk = "loop"
// CHECK-SAME: dot = true,

// Tiles of the twin begin where those of the columns do, and the accumulator is of size 1 along it.
// CHECK: %[[ROW:.*]] = "tile.program_id"() {axis = 0 : i64}
// CHECK: %[[I:.*]] = arith.muli %[[ROW]], %c64
// CHECK: %[[COLUMN:.*]] = "tile.program_id"() {axis = 1 : i64}
// CHECK: %[[J:.*]] = arith.muli %[[COLUMN]], %c16
// CHECK: scf.if
// CHECK: %[[SUM:.*]] = scf.for %[[K:.*]] = %c0 to %c64 step %c32 iter_args(%[[ACC:.*]] = %{{.*}}) -> (vector<64x16x1x1xf32>)
// CHECK-NEXT: %[[ROWS:.*]] = "tile.load"(%[[X]], %[[I]], %[[J]], %[[K]], %[[J]]) {map = affine_map<(d0, d1, d2, d3) -> (d0, d2)>} : {{.*}} -> vector<64x1x32x1xbf16>
// CHECK-NEXT: %[[COLUMNS:.*]] = "tile.load"(%[[W]], %[[I]], %[[J]], %[[K]], %[[J]]) {map = affine_map<(d0, d1, d2, d3) -> (d3, d2)>} : {{.*}} -> vector<1x1x32x16xbf16>
// CHECK-NEXT: %[[NEXT:.*]] = "tile.dot_twin"(%[[ROWS]], %[[COLUMNS]], %[[ACC]]) {column = 1 : i64, depth = 2 : i64, twin = 3 : i64}
// CHECK-NEXT: scf.yield %[[NEXT]]
// CHECK: "tile.store"(%[[SUM]], %[[Y]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1)>}

// At a ragged edge rows are masked along their axis, the right operand along the twin, and the result along the columns.
// CHECK: } else {
// CHECK: "tile.load"(%[[X]], {{.*}}mask = affine_map<(d0, d1, d2, d3)[s0] -> (-d0 + s0 - 1)>
// CHECK-NEXT: "tile.load"(%[[W]], {{.*}}mask = affine_map<(d0, d1, d2, d3) -> (-d3 + 23)>
// CHECK-NEXT: "tile.dot_twin"
// CHECK: "tile.store"(%{{.*}}, %[[Y]], {{.*}}mask = affine_map<(d0, d1, d2, d3)[s0] -> (-d0 + s0 - 1, -d1 + 23
func.func private @product(%x: tensor<?x64xbf16> {primop.kind = "argument", primop.shape = #x}, %w: tensor<24x64xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x24xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x64xbf16>, tensor<24x64xbf16>) -> tensor<?x24x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x24x64xf32>) -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}

// What is left of a depth that is not a multiple of 32 counts as zero, on both sides: what is read under a mask is zero outside.
// CHECK-LABEL: func.func @depth(
// CHECK: scf.if
// CHECK: "tile.dot_twin"
// CHECK: %[[ROWS:.*]] = "tile.load"({{.*}}mask = affine_map<(d0, d1, d2, d3) -> (-d2 + 39)>{{.*}} -> vector<64x1x32x1xbf16>
// CHECK: %[[COLUMNS:.*]] = "tile.load"({{.*}}mask = affine_map<(d0, d1, d2, d3) -> (-d2 + 39)>{{.*}} -> vector<1x1x32x16xbf16>
// CHECK-NEXT: "tile.dot_twin"(%[[ROWS]], %[[COLUMNS]],
func.func private @depth(%x: tensor<?x40xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (s, 40)>}, %w: tensor<24x40xbf16> {primop.kind = "weight", primop.shape = affine_map<()[s] -> (24, 40)>}) -> (tensor<?x24xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[s] -> (s, 24, 40)>, maps = [#lhs, #rhs]} : (tensor<?x40xbf16>, tensor<24x40xbf16>) -> tensor<?x24x40xf32>
  %y = "primop.sum"(%products) {space = affine_map<()[s] -> (s, 24, 40)>, maps = [#all], dims = array<i64: 2>} : (tensor<?x24x40xf32>) -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}

// 32-bit operands are multiplied without tensor cores, in runs of the depth that are short enough for both of them to fit the
// registers. Of few rows, eight, a warp takes a deeper part of them, and as many blocks are asked for as have registers for the
// operands of two turns, alike on the four schedulers of a multiprocessor.
// CHECK-LABEL: func.func @wide(
// CHECK-SAME: layout = array<i64: 4, 1, 4, 1>, name = "k"
// CHECK-NOT: tile.dot_twin
// CHECK-LABEL: func.func @few(
// CHECK-SAME: layout = array<i64: 8, 8, 1, 1>, name = "m"
// CHECK-SAME: lanes_of = "n", layout = array<i64: 64, 4, 8, 1>, name = "k"
// CHECK-SAME: resident = 20 : i64
// CHECK: "tile.load"({{.*}} -> vector<8x1x64x1x1xbf16>
// CHECK: "tile.load"({{.*}} -> vector<1x1x1x16x64xbf16>
// CHECK: "tile.dot_twin"({{.*}} -> vector<8x16x1x1x1xf32>

// Of few rows the depth has a second layout, too, if it is a multiple of 128 bytes: the right operand is read along that one,
// and masked along it where the depth ends inside a tile.
// CHECK-LABEL: func.func @deep(
// CHECK-SAME: %[[X:[^:]*]]: memref<8x136xbf16>, %[[W:[^:]*]]: memref<32x136xbf16>
// CHECK-SAME: lanes_of = "n", layout = array<i64: 64, 4, 8, 1>, name = "k"
// CHECK-SAME: lanes_of = "m", layout = array<i64: 16, 4, 1, 1>, name = "n_twin", twin_of = "n"
// CHECK-SAME: lanes_of = "m", layout = array<i64: 64, 8, 8, 1>, name = "k_twin", twin_of = "k"
// CHECK: scf.for %[[K:.*]] = %c0 to %c128 step %c64
// CHECK-NEXT: %[[ROWS:.*]] = "tile.load"(%[[X]], %{{.*}}, %{{.*}}, %[[K]], %{{.*}}, %{{.*}}) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2)>}
// CHECK-NEXT: %[[COLUMNS:.*]] = "tile.load"(%[[W]], %{{.*}}, %{{.*}}, %[[K]], %{{.*}}, %[[K]]) {map = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4)>}
// CHECK-NEXT: "tile.dot_twin"(%[[ROWS]], %[[COLUMNS]], %{{.*}}) {column = 1 : i64, depth = 2 : i64, depth_twin = 4 : i64, twin = 3 : i64}
// CHECK: "tile.load"(%[[X]], {{.*}}mask = affine_map<(d0, d1, d2, d3, d4) -> (-d2 + 135)>
// CHECK-NEXT: "tile.load"(%[[W]], {{.*}}mask = affine_map<(d0, d1, d2, d3, d4) -> (-d4 + 135)>
// CHECK-NEXT: "tile.dot_twin"
func.func private @wide(%x: tensor<?x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<24x64xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x24xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x64xf32>, tensor<24x64xf32>) -> tensor<?x24x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x24x64xf32>) -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}
func.func private @few(%x: tensor<8x64xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (8, 64)>}, %w: tensor<24x64xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<8x24xf32> {primop.shape = affine_map<()[s] -> (8, 24)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[s] -> (8, 24, 64)>, maps = [#lhs, #rhs]} : (tensor<8x64xbf16>, tensor<24x64xbf16>) -> tensor<8x24x64xf32>
  %y = "primop.sum"(%products) {space = affine_map<()[s] -> (8, 24, 64)>, maps = [#all], dims = array<i64: 2>} : (tensor<8x24x64xf32>) -> tensor<8x24xf32>
  return %y : tensor<8x24xf32>
}
func.func private @deep(%x: tensor<8x136xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (8, 136)>}, %w: tensor<32x136xbf16> {primop.kind = "weight", primop.shape = affine_map<()[s] -> (32, 136)>}) -> (tensor<8x32xf32> {primop.shape = affine_map<()[s] -> (8, 32)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[s] -> (8, 32, 136)>, maps = [#lhs, #rhs]} : (tensor<8x136xbf16>, tensor<32x136xbf16>) -> tensor<8x32x136xf32>
  %y = "primop.sum"(%products) {space = affine_map<()[s] -> (8, 32, 136)>, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x136xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}

}
