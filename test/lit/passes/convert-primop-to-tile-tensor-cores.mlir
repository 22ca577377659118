// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_90a},tilec-cse,tilec-dce)' --mlir-print-local-scope | FileCheck %s

#y = affine_map<()[s] -> (s, 64)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// A product on tensor cores has one body and one loop over the depth, whose last tiles read zero past its end. The mask is
// all that says so here; copies into shared memory, which the tiles become, do it by themselves.
// CHECK-LABEL: func.func @ragged_depth(
// CHECK-SAME: %[[X:[^:]*]]: memref<64x136xbf16>, %[[W:[^:]*]]: memref<64x136xbf16>
// CHECK-NOT: scf.if
// CHECK: scf.for %[[K:.*]] = %c0 to %c192 step %c64
// CHECK-NEXT: %[[ROWS:.*]] = "tile.load"(%[[X]], {{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d0 + s0 - 1, -d2 + 135)>
// CHECK-NEXT: %[[COLUMNS:.*]] = "tile.load"(%[[W]], {{.*}}mask = affine_map<(d0, d1, d2) -> (-d2 + 135)>
// CHECK-NEXT: "tile.dot"(%[[ROWS]], %[[COLUMNS]],
// CHECK: "tile.store"({{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d0 + s0 - 1)>
func.func private @ragged_depth(%x: tensor<?x136xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (s, 136)>}, %w: tensor<64x136xbf16> {primop.kind = "weight", primop.shape = affine_map<()[s] -> (64, 136)>}) -> (tensor<?x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[s] -> (s, 64, 136)>, maps = [#lhs, #rhs]} : (tensor<?x136xbf16>, tensor<64x136xbf16>) -> tensor<?x64x136xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[s] -> (s, 64, 136)>, maps = [#all], dims = array<i64: 2>} : (tensor<?x64x136xf32>) -> tensor<?x64xf32>
  return %sum : tensor<?x64xf32>
}

// Whole tiles of the depth need no mask.
// CHECK-LABEL: func.func @whole_depth(
// CHECK: "tile.load"(%{{.*}}mask = affine_map<(d0, d1, d2)[s0] -> (-d0 + s0 - 1)>
// CHECK-NEXT: "tile.load"(%{{[^{]*}}{map = affine_map<(d0, d1, d2) -> (d1, d2)>}
func.func private @whole_depth(%x: tensor<?x128xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s] -> (s, 128)>}, %w: tensor<64x128xbf16> {primop.kind = "weight", primop.shape = affine_map<()[s] -> (64, 128)>}) -> (tensor<?x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[s] -> (s, 64, 128)>, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<64x128xbf16>) -> tensor<?x64x128xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[s] -> (s, 64, 128)>, maps = [#all], dims = array<i64: 2>} : (tensor<?x64x128xf32>) -> tensor<?x64xf32>
  return %sum : tensor<?x64xf32>
}

}
