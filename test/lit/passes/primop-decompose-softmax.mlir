// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-decompose-softmax)' | FileCheck %s

#rows = affine_map<()[n] -> (n, 8)>
#identity = affine_map<(i, j)[n] -> (i, j)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// Softmax is exp2 of the scaled distance to the largest element, times the reciprocal of the sum.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>
// CHECK: %[[LARGEST:.*]] = "primop.max"(%[[X]]) {dims = array<i64: 1>, {{.*}} -> tensor<?xf32>
// CHECK: %[[FINITE:.*]] = "primop.custom"(%{{.*}}, %{{.*}}, %[[LARGEST]]) {kind = "arith.select"
// CHECK: %[[MINUS_ONE:.*]] = "primop.constant"() {value = -1.000000e+00 : f32}
// CHECK: %[[NEGATED:.*]] = "primop.mul"(%[[FINITE]], %[[MINUS_ONE]])
// CHECK: %[[DISTANCE:.*]] = "primop.add"(%[[X]], %[[NEGATED]]) {maps = [affine_map<(d0, d1)[s0] -> (d0, d1)>, affine_map<(d0, d1)[s0] -> (d0)>]
// CHECK: %[[LOG2_E:.*]] = "primop.constant"() {value = 1.442{{.*}} : f32}
// CHECK: %[[SCALED:.*]] = "primop.mul"(%[[DISTANCE]], %[[LOG2_E]])
// CHECK: %[[POWERS:.*]] = "primop.exp2"(%[[SCALED]])
// CHECK: %[[SUM:.*]] = "primop.sum"(%[[POWERS]]) {dims = array<i64: 1>
// CHECK: %[[TOTAL:.*]] = "primop.custom"(%{{.*}}, %{{.*}}, %[[SUM]]) {kind = "arith.select"
// CHECK: %[[INVERSE:.*]] = "primop.recip"(%[[TOTAL]])
// CHECK: %[[SHARES:.*]] = "primop.mul"(%[[POWERS]], %[[INVERSE]]) {maps = [affine_map<(d0, d1)[s0] -> (d0, d1)>, affine_map<(d0, d1)[s0] -> (d0)>]
// CHECK: return %[[SHARES]]
func.func @rows(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %shares = "primop.softmax"(%x) {dim = 1 : i64, maps = [#identity], space = #rows} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %shares : tensor<?x8xf32>
}

// A row that is -inf throughout has a finite stand-in for its maximum and 1 for its sum of zero, so it gives zeros.
// CHECK-LABEL: func.func @empty_row
// CHECK: %[[LARGEST:.*]] = "primop.max"
// CHECK: %[[LOWEST:.*]] = "primop.constant"() {value = -1.000000e+30 : f32}
// CHECK: %[[EMPTY:.*]] = "primop.less_than"(%[[LARGEST]], %[[LOWEST]])
// CHECK: "primop.custom"(%[[EMPTY]], %{{.*}}, %[[LARGEST]])
// CHECK: %[[SUM:.*]] = "primop.sum"
// CHECK: %[[HALF:.*]] = "primop.constant"() {value = 5.000000e-01 : f32}
// CHECK: %[[NOTHING:.*]] = "primop.less_than"(%[[SUM]], %[[HALF]])
// CHECK: %[[ONE:.*]] = "primop.constant"() {value = 1.000000e+00 : f32}
// CHECK: "primop.custom"(%[[NOTHING]], %[[ONE]], %[[SUM]])
func.func @empty_row(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %shares = "primop.softmax"(%x) {dim = 1 : i64, maps = [#identity], space = #rows} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %shares : tensor<?x8xf32>
}

// The view of the operand, its bounds and the element type stay; the row is what is left without the dimension.
// CHECK-LABEL: func.func @columns_of_a_view
// CHECK-SAME: %[[X:.*]]: tensor<8x?xf16>
// CHECK: "primop.max"(%[[X]]) {bounds = [affine_map<(d0, d1)[s0] -> (d1 - d0)>], dims = array<i64: 0>, maps = [affine_map<(d0, d1)[s0] -> (d1, d0)>], {{.*}} -> tensor<8xf16>
// CHECK: "primop.constant"() {value = -1.000000e+00 : f16}
// CHECK: "primop.add"(%[[X]], %{{.*}}) {bounds = [affine_map<(d0, d1)[s0] -> (d1 - d0)>, affine_map<(d0, d1)[s0] -> ()>], maps = [affine_map<(d0, d1)[s0] -> (d1, d0)>, affine_map<(d0, d1)[s0] -> (d1)>]
func.func @columns_of_a_view(%x: tensor<8x?xf16>) -> tensor<?x8xf16> {
  %shares = "primop.softmax"(%x) {dim = 0 : i64, maps = [affine_map<(i, j)[n] -> (j, i)>], bounds = [affine_map<(i, j)[n] -> (j - i)>], space = #rows} : (tensor<8x?xf16>) -> tensor<?x8xf16>
  return %shares : tensor<?x8xf16>
}

// What softmax becomes belongs to its chunk.
// CHECK-LABEL: func.func @chunk
// CHECK: "primop.max"({{.*}}) {{{.*}}primop.chunk = "layer", primop.chunk_index = 3 : i64
// CHECK: "primop.recip"({{.*}}) {{{.*}}primop.chunk = "layer", primop.chunk_index = 3 : i64
func.func @chunk(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %shares = "primop.softmax"(%x) {dim = 1 : i64, maps = [#identity], space = #rows, primop.chunk = "layer", primop.chunk_index = 3 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %shares : tensor<?x8xf32>
}

}
