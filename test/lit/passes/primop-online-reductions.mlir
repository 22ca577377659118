// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-online-reductions)' --mlir-print-local-scope | FileCheck %s
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-online-reductions{one=false rows=true})' --mlir-print-local-scope | FileCheck %s --check-prefix=MANY

// Where no cluster of blocks can share the loop, one query stays as it is.
// MANY-LABEL: func.func private @main_layer(
// MANY-NOT: primop.online
// MANY: return

// One query over a cache: the division by the total leaves the product with the values, and everything from the scores
// to that product is marked as one chain. The reads of keys and values are not part of it.
// CHECK-LABEL: func.func private @main_layer(
// CHECK-SAME: %[[Q:.*]]: tensor<1x4x16xf32> {{{.*}}, %[[K:.*]]: tensor<2x72x16xf32> {{{.*}}, %[[V:.*]]: tensor<2x72x16xf32> {
// CHECK: %[[PRODUCTS:.*]] = "primop.mul"(%[[Q]], %[[K]])
// CHECK: %[[SCORES:.*]] = "primop.sum"(%[[PRODUCTS]]) {{{.*}}primop.online
// CHECK: %[[LARGEST:.*]] = "primop.max"(%{{.*}}) {{{.*}}primop.online
// CHECK: %[[POWERS:.*]] = "primop.exp2"(%{{.*}}) {{{.*}}primop.online
// CHECK: %[[TOTAL:.*]] = "primop.sum"(%[[POWERS]]) {{{.*}}primop.online
// CHECK: %[[INVERSE:.*]] = "primop.recip"
// CHECK-NOT: primop.online
// CHECK: %[[WEIGHTED:.*]] = "primop.mul"(%[[POWERS]], %[[V]]) {{{.*}}primop.online
// CHECK: %[[SUMMED:.*]] = "primop.sum"(%[[WEIGHTED]]) {{{.*}}primop.online
// CHECK: %[[RESULT:.*]] = "primop.mul"(%[[SUMMED]], %[[INVERSE]])
// CHECK-NOT: primop.online
// CHECK: return %[[RESULT]]
#map = affine_map<()[s0, s1] -> (1, 4, 16)>
#map1 = affine_map<()[s0, s1] -> (2, 72, 16)>
#map2 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1, d0, d3)>
#map3 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0 floordiv 2, d2, d3)>
#map4 = affine_map<()[s0, s1] -> (4, 1, s0 + 1, 16)>
#map5 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d2, d3)>
#map6 = affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1, d2)>
#map7 = affine_map<(d0, d1, d2)[s0, s1] -> ()>
#map8 = affine_map<()[s0, s1] -> (4, 1, s0 + 1)>
#map9 = affine_map<(d0, d1, d2)[s0, s1] -> (-d1 + d2 - s0 - 1)>
#map10 = affine_map<(d0, d1)[s0, s1] -> (d0, d1)>
#map11 = affine_map<(d0, d1)[s0, s1] -> ()>
#map12 = affine_map<()[s0, s1] -> (4, 1)>
#map13 = affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1)>
#map14 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 floordiv 2, d3, d2)>
#map15 = affine_map<()[s0, s1] -> (1, 4, 16, s0 + 1)>

module attributes {primop.symbols = {past = array<i64: 0, 63>, seq = array<i64: 1, 8>}} {
  func.func private @main_layer(%arg0: tensor<1x4x16xf32> {primop.kind = "argument", primop.shape = #map}, %arg1: tensor<2x72x16xf32> {primop.kind = "argument", primop.shape = #map1}, %arg2: tensor<2x72x16xf32> {primop.kind = "argument", primop.shape = #map1}) -> (tensor<1x4x16xf32> {primop.shape = #map}) attributes {primop.chunk} {
    %0 = "primop.mul"(%arg0, %arg1) {maps = [#map2, #map3], space = #map4} : (tensor<1x4x16xf32>, tensor<2x72x16xf32>) -> tensor<4x1x?x16xf32>
    %1 = "primop.sum"(%0) {dims = array<i64: 3>, maps = [#map5], space = #map4} : (tensor<4x1x?x16xf32>) -> tensor<4x1x?xf32>
    %2 = "primop.constant"() {value = 2.500000e-01 : f32} : () -> tensor<f32>
    %3 = "primop.mul"(%1, %2) {maps = [#map6, #map7], space = #map8} : (tensor<4x1x?xf32>, tensor<f32>) -> tensor<4x1x?xf32>
    %4 = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
    %5 = "primop.add"(%3, %4) {bounds = [#map7, #map9], maps = [#map6, #map7], space = #map8} : (tensor<4x1x?xf32>, tensor<f32>) -> tensor<4x1x?xf32>
    %6 = "primop.max"(%5) {dims = array<i64: 2>, maps = [#map6], space = #map8} : (tensor<4x1x?xf32>) -> tensor<4x1xf32>
    %7 = "primop.constant"() {value = -1.000000e+30 : f32} : () -> tensor<f32>
    %8 = "primop.less_than"(%6, %7) {maps = [#map10, #map11], space = #map12} : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xi1>
    %9 = "primop.custom"(%8, %7, %6) {kind = "arith.select", maps = [#map10, #map11, #map10], operandSegmentSizes = array<i32: 1, 1, 1>, space = #map12} : (tensor<4x1xi1>, tensor<f32>, tensor<4x1xf32>) -> tensor<4x1xf32>
    %10 = "primop.constant"() {value = -1.000000e+00 : f32} : () -> tensor<f32>
    %11 = "primop.mul"(%9, %10) {maps = [#map10, #map11], space = #map12} : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
    %12 = "primop.add"(%5, %11) {maps = [#map6, #map13], space = #map8} : (tensor<4x1x?xf32>, tensor<4x1xf32>) -> tensor<4x1x?xf32>
    %13 = "primop.constant"() {value = 1.44269502 : f32} : () -> tensor<f32>
    %14 = "primop.mul"(%12, %13) {maps = [#map6, #map7], space = #map8} : (tensor<4x1x?xf32>, tensor<f32>) -> tensor<4x1x?xf32>
    %15 = "primop.exp2"(%14) {maps = [#map6], space = #map8} : (tensor<4x1x?xf32>) -> tensor<4x1x?xf32>
    %16 = "primop.sum"(%15) {dims = array<i64: 2>, maps = [#map6], space = #map8} : (tensor<4x1x?xf32>) -> tensor<4x1xf32>
    %17 = "primop.constant"() {value = 5.000000e-01 : f32} : () -> tensor<f32>
    %18 = "primop.less_than"(%16, %17) {maps = [#map10, #map11], space = #map12} : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xi1>
    %19 = "primop.constant"() {value = 1.000000e+00 : f32} : () -> tensor<f32>
    %20 = "primop.custom"(%18, %19, %16) {kind = "arith.select", maps = [#map10, #map11, #map10], operandSegmentSizes = array<i32: 1, 1, 1>, space = #map12} : (tensor<4x1xi1>, tensor<f32>, tensor<4x1xf32>) -> tensor<4x1xf32>
    %21 = "primop.recip"(%20) {maps = [#map10], space = #map12} : (tensor<4x1xf32>) -> tensor<4x1xf32>
    %22 = "primop.mul"(%15, %21) {maps = [#map6, #map13], space = #map8} : (tensor<4x1x?xf32>, tensor<4x1xf32>) -> tensor<4x1x?xf32>
    %23 = "primop.mul"(%22, %arg2) {maps = [#map2, #map14], space = #map15} : (tensor<4x1x?xf32>, tensor<2x72x16xf32>) -> tensor<1x4x16x?xf32>
    %24 = "primop.sum"(%23) {dims = array<i64: 3>, maps = [#map5], space = #map15} : (tensor<1x4x16x?xf32>) -> tensor<1x4x16xf32>
    return %24 : tensor<1x4x16xf32>
  }
}

// -----

// Any number of queries: their scores are better made by a contraction of its own, and nothing changes.
// CHECK-LABEL: func.func private @main_layer(
// CHECK-NOT: primop.online
// CHECK: return
#map = affine_map<()[s0, s1] -> (s1, 4, 16)>
#map1 = affine_map<()[s0, s1] -> (2, 72, 16)>
#map2 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1, d0, d3)>
#map3 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0 floordiv 2, d2, d3)>
#map4 = affine_map<()[s0, s1] -> (4, s1, s0 + s1, 16)>
#map5 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d0, d1, d2, d3)>
#map6 = affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1, d2)>
#map7 = affine_map<(d0, d1, d2)[s0, s1] -> ()>
#map8 = affine_map<()[s0, s1] -> (4, s1, s0 + s1)>
#map9 = affine_map<(d0, d1, d2)[s0, s1] -> (-d1 + d2 - s0 - 1)>
#map10 = affine_map<(d0, d1)[s0, s1] -> (d0, d1)>
#map11 = affine_map<(d0, d1)[s0, s1] -> ()>
#map12 = affine_map<()[s0, s1] -> (4, s1)>
#map13 = affine_map<(d0, d1, d2)[s0, s1] -> (d0, d1)>
#map14 = affine_map<(d0, d1, d2, d3)[s0, s1] -> (d1 floordiv 2, d3, d2)>
#map15 = affine_map<()[s0, s1] -> (s1, 4, 16, s0 + s1)>

module attributes {primop.symbols = {past = array<i64: 0, 63>, seq = array<i64: 1, 8>}} {
  func.func private @main_layer(%arg0: tensor<?x4x16xf32> {primop.kind = "argument", primop.shape = #map}, %arg1: tensor<2x72x16xf32> {primop.kind = "argument", primop.shape = #map1}, %arg2: tensor<2x72x16xf32> {primop.kind = "argument", primop.shape = #map1}) -> (tensor<?x4x16xf32> {primop.shape = #map}) attributes {primop.chunk} {
    %0 = "primop.mul"(%arg0, %arg1) {maps = [#map2, #map3], space = #map4} : (tensor<?x4x16xf32>, tensor<2x72x16xf32>) -> tensor<4x?x?x16xf32>
    %1 = "primop.sum"(%0) {dims = array<i64: 3>, maps = [#map5], space = #map4} : (tensor<4x?x?x16xf32>) -> tensor<4x?x?xf32>
    %2 = "primop.constant"() {value = 2.500000e-01 : f32} : () -> tensor<f32>
    %3 = "primop.mul"(%1, %2) {maps = [#map6, #map7], space = #map8} : (tensor<4x?x?xf32>, tensor<f32>) -> tensor<4x?x?xf32>
    %4 = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
    %5 = "primop.add"(%3, %4) {bounds = [#map7, #map9], maps = [#map6, #map7], space = #map8} : (tensor<4x?x?xf32>, tensor<f32>) -> tensor<4x?x?xf32>
    %6 = "primop.max"(%5) {dims = array<i64: 2>, maps = [#map6], space = #map8} : (tensor<4x?x?xf32>) -> tensor<4x?xf32>
    %7 = "primop.constant"() {value = -1.000000e+30 : f32} : () -> tensor<f32>
    %8 = "primop.less_than"(%6, %7) {maps = [#map10, #map11], space = #map12} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xi1>
    %9 = "primop.custom"(%8, %7, %6) {kind = "arith.select", maps = [#map10, #map11, #map10], operandSegmentSizes = array<i32: 1, 1, 1>, space = #map12} : (tensor<4x?xi1>, tensor<f32>, tensor<4x?xf32>) -> tensor<4x?xf32>
    %10 = "primop.constant"() {value = -1.000000e+00 : f32} : () -> tensor<f32>
    %11 = "primop.mul"(%9, %10) {maps = [#map10, #map11], space = #map12} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
    %12 = "primop.add"(%5, %11) {maps = [#map6, #map13], space = #map8} : (tensor<4x?x?xf32>, tensor<4x?xf32>) -> tensor<4x?x?xf32>
    %13 = "primop.constant"() {value = 1.44269502 : f32} : () -> tensor<f32>
    %14 = "primop.mul"(%12, %13) {maps = [#map6, #map7], space = #map8} : (tensor<4x?x?xf32>, tensor<f32>) -> tensor<4x?x?xf32>
    %15 = "primop.exp2"(%14) {maps = [#map6], space = #map8} : (tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
    %16 = "primop.sum"(%15) {dims = array<i64: 2>, maps = [#map6], space = #map8} : (tensor<4x?x?xf32>) -> tensor<4x?xf32>
    %17 = "primop.constant"() {value = 5.000000e-01 : f32} : () -> tensor<f32>
    %18 = "primop.less_than"(%16, %17) {maps = [#map10, #map11], space = #map12} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xi1>
    %19 = "primop.constant"() {value = 1.000000e+00 : f32} : () -> tensor<f32>
    %20 = "primop.custom"(%18, %19, %16) {kind = "arith.select", maps = [#map10, #map11, #map10], operandSegmentSizes = array<i32: 1, 1, 1>, space = #map12} : (tensor<4x?xi1>, tensor<f32>, tensor<4x?xf32>) -> tensor<4x?xf32>
    %21 = "primop.recip"(%20) {maps = [#map10], space = #map12} : (tensor<4x?xf32>) -> tensor<4x?xf32>
    %22 = "primop.mul"(%15, %21) {maps = [#map6, #map13], space = #map8} : (tensor<4x?x?xf32>, tensor<4x?xf32>) -> tensor<4x?x?xf32>
    %23 = "primop.mul"(%22, %arg2) {maps = [#map2, #map14], space = #map15} : (tensor<4x?x?xf32>, tensor<2x72x16xf32>) -> tensor<?x4x16x?xf32>
    %24 = "primop.sum"(%23) {dims = array<i64: 3>, maps = [#map5], space = #map15} : (tensor<?x4x16x?xf32>) -> tensor<?x4x16xf32>
    return %24 : tensor<?x4x16xf32>
  }
}
