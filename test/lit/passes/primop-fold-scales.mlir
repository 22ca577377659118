// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-decompose-softmax,primop-fold-scales,tilec-dce)' --mlir-print-local-scope | FileCheck %s

#scores = affine_map<()[n] -> (4, n)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#nothing = affine_map<(i, j)[n] -> ()>
#later = affine_map<(i, j)[n] -> (j - i - 1)>
#earlier = affine_map<(i, j)[n] -> (i - j - 2)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// A softmax of scores times a quarter is one of the scores themselves: log2(e) in its exponential becomes a quarter of that.
// CHECK-LABEL: func.func private @scaled(
// CHECK-SAME: %[[S:[^:]*]]: tensor<4x?xf32>
// CHECK-NEXT: %[[LARGEST:.*]] = "primop.max"(%[[S]])
// CHECK: %[[FINITE:.*]] = "primop.custom"(%{{.*}}, %{{.*}}, %[[LARGEST]]) {kind = "arith.select"
// CHECK: %[[NEGATED:.*]] = "primop.mul"(%[[FINITE]],
// CHECK-NEXT: %[[DISTANCE:.*]] = "primop.add"(%[[S]], %[[NEGATED]])
// CHECK-NEXT: %[[FACTOR:.*]] = "primop.constant"() {value = 0.360673755 : f32}
// CHECK-NEXT: %[[SCALED:.*]] = "primop.mul"(%[[DISTANCE]], %[[FACTOR]])
// CHECK-NEXT: "primop.exp2"(%[[SCALED]])
func.func private @scaled(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<4x?xf32> attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares : tensor<4x?xf32>
}

// Under a mask too, which adds -inf to what does not count and nothing to the rest: both stay what they are.
// CHECK-LABEL: func.func private @masked(
// CHECK-SAME: %[[S:[^:]*]]: tensor<4x?xf32>
// CHECK-NEXT: %[[EXCLUDED:.*]] = "primop.constant"() {value = 0xFF800000 : f32}
// CHECK-NEXT: %[[MASKED:.*]] = "primop.add"(%[[S]], %[[EXCLUDED]]) {bounds = [affine_map<(d0, d1)[s0] -> ()>, affine_map<(d0, d1)[s0] -> (d1 - d0 - 1)>]
// CHECK-NEXT: "primop.max"(%[[MASKED]])
// CHECK: %[[DISTANCE:.*]] = "primop.add"(%[[MASKED]],
// CHECK-NEXT: %[[FACTOR:.*]] = "primop.constant"() {value = 0.360673755 : f32}
// CHECK-NEXT: "primop.mul"(%[[DISTANCE]], %[[FACTOR]])
func.func private @masked(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<4x?xf32> attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %masked = "primop.add"(%x, %excluded) {space = #scores, maps = [#identity, #nothing], bounds = [#nothing, #later]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%masked) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares : tensor<4x?xf32>
}

// And under two, of a window.
// CHECK-LABEL: func.func private @masked_twice(
// CHECK-SAME: %[[S:[^:]*]]: tensor<4x?xf32>
// CHECK: %[[CAUSAL:.*]] = "primop.add"(%[[S]],
// CHECK-NEXT: %[[MASKED:.*]] = "primop.add"(%[[CAUSAL]],
// CHECK-NEXT: "primop.max"(%[[MASKED]])
// CHECK: "primop.constant"() {value = 0.360673755 : f32}
func.func private @masked_twice(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<4x?xf32> attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %causal = "primop.add"(%x, %excluded) {space = #scores, maps = [#identity, #nothing], bounds = [#nothing, #later]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %masked = "primop.add"(%causal, %excluded) {space = #scores, maps = [#identity, #nothing], bounds = [#nothing, #earlier]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%masked) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares : tensor<4x?xf32>
}

// What is added must not be a number, which would have to be divided by the factor.
// CHECK-LABEL: func.func private @shifted(
// CHECK: "primop.constant"() {value = 2.500000e-01 : f32}
// CHECK: "primop.constant"() {value = 1.44269502 : f32}
func.func private @shifted(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<4x?xf32> attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %less = "primop.constant"() {value = -8.0 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shifted = "primop.add"(%x, %less) {space = #scores, maps = [#identity, #nothing], bounds = [#nothing, #later]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%shifted) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares : tensor<4x?xf32>
}

// By a negative factor the largest score becomes the smallest.
// CHECK-LABEL: func.func private @negative(
// CHECK-SAME: %[[S:[^:]*]]: tensor<4x?xf32>
// CHECK-NEXT: %[[FACTOR:.*]] = "primop.constant"() {value = -2.500000e-01 : f32}
// CHECK-NEXT: %[[X:.*]] = "primop.mul"(%[[S]], %[[FACTOR]])
// CHECK-NEXT: "primop.max"(%[[X]])
// CHECK: "primop.constant"() {value = 1.44269502 : f32}
func.func private @negative(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<4x?xf32> attributes {primop.chunk} {
  %factor = "primop.constant"() {value = -0.25 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares : tensor<4x?xf32>
}

// A product that somebody else reads is made anyway, before a mask as well as without one.
// CHECK-LABEL: func.func private @read_elsewhere(
// CHECK: %[[X:.*]] = "primop.mul"(
// CHECK-NEXT: "primop.max"(%[[X]])
// CHECK: "primop.constant"() {value = 1.44269502 : f32}
// CHECK: return %{{.*}}, %[[X]]
func.func private @read_elsewhere(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> (tensor<4x?xf32>, tensor<4x?xf32>) attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares, %x : tensor<4x?xf32>, tensor<4x?xf32>
}
// CHECK-LABEL: func.func private @masked_and_read_elsewhere(
// CHECK: %[[X:.*]] = "primop.mul"(
// CHECK-NEXT: "primop.add"(%[[X]],
// CHECK: "primop.constant"() {value = 1.44269502 : f32}
// CHECK: return %{{.*}}, %[[X]]
func.func private @masked_and_read_elsewhere(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> (tensor<4x?xf32>, tensor<4x?xf32>) attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %excluded = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %masked = "primop.add"(%x, %excluded) {space = #scores, maps = [#identity, #nothing], bounds = [#nothing, #later]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%masked) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %shares, %x : tensor<4x?xf32>, tensor<4x?xf32>
}

// The constant stays for others that multiply with it.
// CHECK-LABEL: func.func private @factor_read_elsewhere(
// CHECK-SAME: %[[S:[^:]*]]: tensor<4x?xf32>
// CHECK-NEXT: %[[FACTOR:.*]] = "primop.constant"() {value = 2.500000e-01 : f32}
// CHECK-NEXT: "primop.max"(%[[S]])
// CHECK: "primop.constant"() {value = 0.360673755 : f32}
// CHECK: "primop.recip"
// CHECK-NEXT: %[[SHARES:.*]] = "primop.mul"
// CHECK-NEXT: "primop.mul"(%[[SHARES]], %[[FACTOR]])
func.func private @factor_read_elsewhere(%s: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}) -> tensor<4x?xf32> attributes {primop.chunk} {
  %factor = "primop.constant"() {value = 0.25 : f32} : () -> tensor<f32>
  %x = "primop.mul"(%s, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 1 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  %y = "primop.mul"(%shares, %factor) {space = #scores, maps = [#identity, #nothing]} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  return %y : tensor<4x?xf32>
}

}
