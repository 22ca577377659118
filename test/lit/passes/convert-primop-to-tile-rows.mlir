// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_90a},tilec-cse,tilec-dce)' --mlir-print-local-scope | FileCheck %s

#identity = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// A row that is marked is made first, by all threads of the program, along an axis of its own: as they are numbered, four
// neighbours each, in one tile, and what was read for its sum is there for its last value. It lies in the program's memory,
// from where the product reads it along its own axis. Nothing of it is masked where it fills the tile.
// CHECK-LABEL: func.func @norm(
// CHECK-SAME: %[[X:[^:]*]]: memref<1x1024xf32>, %[[W:[^:]*]]: memref<128x1024xbf16>, %[[Y:[^:]*]]: memref<1x128xf32>
// CHECK-SAME: layout = array<i64: {{[0-9]+}}, 4, 1, 1>, name = "n", walk = "grid"
// CHECK-SAME: layout = array<i64: 1024, 64, 8, 1>, name = "k", walk = "loop", warps = 8 : i64
// CHECK-SAME: lanes_of = "*", layout = array<i64: 1024, 256, 4, 1>, name = "r3", walk = "loop"
// CHECK: %[[MEMORY:.*]] = "tile.alloc"() : () -> memref<1024xbf16, 3>
// CHECK-NOT: scf.for
// CHECK: %[[TILE:.*]] = "tile.load"(%[[X]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (0, d3)>} : {{.*}} -> vector<1x1x1x1024xf32>
// CHECK-NEXT: %[[SQUARES:.*]] = arith.mulf %[[TILE]], %[[TILE]]
// CHECK: %[[SUM:.*]] = "tile.reduce"(%{{.*}}) {axes = array<i64: 3>, kind = "add"} : (vector<1x1x1x1024xf32>) -> vector<1x1x1x1xf32>
// CHECK: %[[SUMS:.*]] = vector.broadcast %[[SUM]]
// CHECK-NEXT: %[[NORM:.*]] = arith.mulf %[[TILE]], %[[SUMS]]
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.truncf %[[NORM]] : vector<1x1x1x1024xf32> to vector<1x1x1x1024xbf16>
// CHECK-NEXT: "tile.store"(%[[ROUNDED]], %[[MEMORY]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (d3)>}
// CHECK-NEXT: "tile.barrier"()
// CHECK-NOT: "tile.load"(%[[X]]
// CHECK: %[[ROW:.*]] = "tile.load"(%[[MEMORY]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (d2)>} : {{.*}} -> vector<1x1x1024x1xbf16>
// CHECK: %[[MATRIX:.*]] = "tile.load"(%[[W]], {{.*}}) {map = affine_map<(d0, d1, d2, d3) -> (d1, d2)>}
// CHECK: "tile.dot"(%[[ROW]], %[[MATRIX]],
// CHECK-NOT: tile.barrier
// CHECK: return
func.func private @norm(%x: tensor<1x1024xf32> {primop.kind = "argument", primop.shape = affine_map<() -> (1, 1024)>}, %w: tensor<128x1024xbf16> {primop.kind = "weight", primop.shape = affine_map<() -> (128, 1024)>}) -> (tensor<1x128xf32> {primop.shape = affine_map<() -> (1, 128)>}) attributes {primop.kernel} {
  %squares = "primop.mul"(%x, %x) {space = affine_map<() -> (1, 1024)>, maps = [#identity, #identity], primop.staged = "part"} : (tensor<1x1024xf32>, tensor<1x1024xf32>) -> tensor<1x1024xf32>
  %sum = "primop.sum"(%squares) {space = affine_map<() -> (1, 1024)>, maps = [#identity], dims = array<i64: 1>, primop.staged = "part"} : (tensor<1x1024xf32>) -> tensor<1xf32>
  %norm = "primop.mul"(%x, %sum) {space = affine_map<() -> (1, 1024)>, maps = [#identity, #row], primop.staged = "part"} : (tensor<1x1024xf32>, tensor<1xf32>) -> tensor<1x1024xf32>
  %narrow = "primop.cast"(%norm) {space = affine_map<() -> (1, 1024)>, maps = [#identity], primop.staged = "row"} : (tensor<1x1024xf32>) -> tensor<1x1024xbf16>
  %products = "primop.mul"(%narrow, %w) {space = affine_map<() -> (1, 128, 1024)>, maps = [#lhs, #rhs]} : (tensor<1x1024xbf16>, tensor<128x1024xbf16>) -> tensor<1x128x1024xf32>
  %y = "primop.sum"(%products) {space = affine_map<() -> (1, 128, 1024)>, maps = [#all], dims = array<i64: 2>} : (tensor<1x128x1024xf32>) -> tensor<1x128xf32>
  return %y : tensor<1x128xf32>
}

// A row that does not fill its tile ends by a mask: missing elements count as nothing, and are not stored.
// CHECK-LABEL: func.func @ragged(
// CHECK-SAME: lanes_of = "*", layout = array<i64: 1024, 256, 4, 1>, name = "r3", walk = "loop"
// CHECK: %[[MEMORY:.*]] = "tile.alloc"() : () -> memref<576xbf16, 3>
// CHECK: "tile.load"({{.*}}mask = affine_map<(d0, d1, d2, d3) -> (-d3 + 575)>
// CHECK: %[[COUNTED:.*]] = arith.select
// CHECK: "tile.reduce"
// CHECK: "tile.store"(%{{.*}}, %[[MEMORY]], {{.*}}mask = affine_map<(d0, d1, d2, d3) -> (-d3 + 575)>
// CHECK-NEXT: "tile.barrier"()
func.func private @ragged(%x: tensor<1x576xf32> {primop.kind = "argument", primop.shape = affine_map<() -> (1, 576)>}, %w: tensor<128x576xbf16> {primop.kind = "weight", primop.shape = affine_map<() -> (128, 576)>}) -> (tensor<1x128xf32> {primop.shape = affine_map<() -> (1, 128)>}) attributes {primop.kernel} {
  %squares = "primop.mul"(%x, %x) {space = affine_map<() -> (1, 576)>, maps = [#identity, #identity], primop.staged = "part"} : (tensor<1x576xf32>, tensor<1x576xf32>) -> tensor<1x576xf32>
  %sum = "primop.sum"(%squares) {space = affine_map<() -> (1, 576)>, maps = [#identity], dims = array<i64: 1>, primop.staged = "part"} : (tensor<1x576xf32>) -> tensor<1xf32>
  %norm = "primop.mul"(%x, %sum) {space = affine_map<() -> (1, 576)>, maps = [#identity, #row], primop.staged = "part"} : (tensor<1x576xf32>, tensor<1xf32>) -> tensor<1x576xf32>
  %narrow = "primop.cast"(%norm) {space = affine_map<() -> (1, 576)>, maps = [#identity], primop.staged = "row"} : (tensor<1x576xf32>) -> tensor<1x576xbf16>
  %products = "primop.mul"(%narrow, %w) {space = affine_map<() -> (1, 128, 576)>, maps = [#lhs, #rhs]} : (tensor<1x576xbf16>, tensor<128x576xbf16>) -> tensor<1x128x576xf32>
  %y = "primop.sum"(%products) {space = affine_map<() -> (1, 128, 576)>, maps = [#all], dims = array<i64: 2>} : (tensor<1x128x576xf32>) -> tensor<1x128xf32>
  return %y : tensor<1x128xf32>
}

