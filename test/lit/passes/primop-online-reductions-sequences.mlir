// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-decompose-softmax,primop-online-reductions)' --mlir-print-local-scope | FileCheck %s

// Queries of any number of sequences, each with keys of its own: one row at a time, whose mask is a comparison of numbers.
// CHECK-LABEL: func.func private @sequences(
// CHECK-SAME: %[[LAST:.*]]: tensor<?xi32> {{{.*}}, %[[Q:.*]]: tensor<?x4x16xbf16> {{{.*}}, %[[K:.*]]: tensor<?x2x?x16xbf16> {{{.*}}, %[[V:.*]]: tensor<?x2x?x16xbf16> {
// CHECK: %[[UNSEEN:.*]] = "primop.less_than"(%[[LAST]],
// CHECK: %[[PRODUCTS:.*]] = "primop.mul"(%[[Q]], %[[K]])
// CHECK: "primop.sum"(%[[PRODUCTS]]) {{{.*}}primop.online
// CHECK: %[[SCORES:.*]] = "primop.custom"(%[[UNSEEN]], {{.*}}) {{{.*}}primop.online
// CHECK: "primop.max"(%[[SCORES]]) {{{.*}}primop.online
// CHECK: %[[POWERS:.*]] = "primop.exp2"(%{{.*}}) {{{.*}}primop.online
// CHECK: %[[INVERSE:.*]] = "primop.recip"
// CHECK: %[[SEEN:.*]] = "primop.custom"(%[[UNSEEN]], %{{.*}}, %[[V]])
// CHECK: %[[SHARES:.*]] = "primop.cast"(%[[POWERS]]) {{{.*}}primop.online
// CHECK: "primop.mul"(%[[SHARES]], %[[SEEN]]) {{{.*}}primop.online
// CHECK: %[[SUMMED:.*]] = "primop.sum"({{.*}}primop.online
// CHECK: %[[RESULT:.*]] = "primop.mul"(%[[SUMMED]], %[[INVERSE]])
// CHECK: return %[[RESULT]]
module attributes {primop.symbols = {batch = array<i64: 1, 8>, total = array<i64: 1, 64>}} {
func.func private @sequences(%last: tensor<?xi32> {primop.kind = "argument", primop.shape = affine_map<()[s0, s1] -> (s0)>}, %q: tensor<?x4x16xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s0, s1] -> (s0, 4, 16)>}, %keys: tensor<?x2x?x16xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s0, s1] -> (s0, 2, s1, 16)>}, %values: tensor<?x2x?x16xbf16> {primop.kind = "argument", primop.shape = affine_map<()[s0, s1] -> (s0, 2, s1, 16)>}) -> (tensor<?x4x16xf32> {primop.shape = affine_map<()[s0, s1] -> (s0, 4, 16)>}) attributes {primop.chunk} {
  %0 = "primop.iota"() {space = affine_map<()[s0, s1] -> (s1)>} : () -> tensor<?xi32>
  %1 = "primop.less_than"(%last, %0) {maps = [affine_map<(d0, d1)[s0, s1] -> (d0)>, affine_map<(d0, d1)[s0, s1] -> (d1)>], space = affine_map<()[s0, s1] -> (s0, s1)>} : (tensor<?xi32>, tensor<?xi32>) -> tensor<?x?xi1>
  %2 = "primop.mul"(%q, %keys) {maps = [affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1 floordiv 2, d2, d3)>], space = affine_map<()[s0, s1] -> (s0, 4, s1, 16)>} : (tensor<?x4x16xbf16>, tensor<?x2x?x16xbf16>) -> tensor<?x4x?x16xf32>
  %3 = "primop.sum"(%2) {dims = array<i64: 3>, maps = [affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d2, d3)>], space = affine_map<()[s0, s1] -> (s0, 4, s1, 16)>} : (tensor<?x4x?x16xf32>) -> tensor<?x4x?xf32>
  %4 = "primop.constant"() {value = 2.500000e-01 : f32} : () -> tensor<f32>
  %5 = "primop.mul"(%3, %4) {maps = [affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1, d2)>, affine_map<(d0, d1, d2)[s0, s1] -> ()>], space = affine_map<()[s0, s1] -> (s0, 4, s1)>} : (tensor<?x4x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %6 = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %7 = "primop.custom"(%1, %6, %5) {kind = "arith.select", maps = [affine_map<(d0, d1, d2)[s0, s1] -> (d0, d2)>, affine_map<(d0, d1, d2)[s0, s1] -> ()>, affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1, d2)>], operandSegmentSizes = array<i32: 1, 1, 1>, space = affine_map<()[s0, s1] -> (s0, 4, s1)>} : (tensor<?x?xi1>, tensor<f32>, tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %8 = "primop.softmax"(%7) {dim = 2 : i64, maps = [affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1, d2)>], space = affine_map<()[s0, s1] -> (s0, 4, s1)>} : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %9 = "primop.constant"() {value = 0.000000e+00 : bf16} : () -> tensor<bf16>
  %10 = "primop.custom"(%1, %9, %values) {kind = "arith.select", maps = [affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d3)>, affine_map<(d0, d1, d2, d3)[s0, s1] -> ()>, affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1 floordiv 2, d3, d2)>], operandSegmentSizes = array<i32: 1, 1, 1>, space = affine_map<()[s0, s1] -> (s0, 4, 16, s1)>} : (tensor<?x?xi1>, tensor<bf16>, tensor<?x2x?x16xbf16>) -> tensor<?x4x16x?xbf16>
  %11 = "primop.cast"(%8) {maps = [affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1, d2)>], space = affine_map<()[s0, s1] -> (s0, 4, s1)>} : (tensor<?x4x?xf32>) -> tensor<?x4x?xbf16>
  %12 = "primop.mul"(%11, %10) {maps = [affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d2, d3)>], space = affine_map<()[s0, s1] -> (s0, 4, 16, s1)>} : (tensor<?x4x?xbf16>, tensor<?x4x16x?xbf16>) -> tensor<?x4x16x?xf32>
  %13 = "primop.sum"(%12) {dims = array<i64: 3>, maps = [affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d2, d3)>], space = affine_map<()[s0, s1] -> (s0, 4, 16, s1)>} : (tensor<?x4x16x?xf32>) -> tensor<?x4x16xf32>
  return %13 : tensor<?x4x16xf32>
}
}
