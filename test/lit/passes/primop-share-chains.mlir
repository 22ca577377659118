// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-share-chains{programs=24 longest=8192},tilec-dce)' --mlir-print-local-scope | FileCheck %s

#scores = affine_map<()[past] -> (4, past + 1)>
#values = affine_map<()[past] -> (8192, 16)>
#rows = affine_map<()[past] -> (4)>
#result = affine_map<()[past] -> (4, 16)>
#all = affine_map<(h, t)[past] -> (h, t)>
#row = affine_map<(h)[past] -> (h)>
#of_row = affine_map<(h, t)[past] -> (h)>
#scalar = affine_map<(h, t)[past] -> ()>
#row_scalar = affine_map<(h)[past] -> ()>
#products = affine_map<()[past] -> (4, 16, past + 1)>

module attributes {primop.symbols = {past = array<i64: 0, 8191>}} {

// A call becomes two: of the kernel whose programs leave their parts, and of the one that adds them up.
// CHECK-LABEL: func.func private @layer(
// CHECK: %[[PARTS:.*]]:3 = call @attention_parts(%{{.*}}, %{{.*}}) : (tensor<4x?xf32>, tensor<8192x16xf32>) -> (tensor<24x4x16xf32>, tensor<24x4xf32>, tensor<24x4xf32>)
// CHECK-NEXT: %[[SUMS:.*]] = call @attention(%[[PARTS]]#1, %[[PARTS]]#0, %[[PARTS]]#2) : (tensor<24x4xf32>, tensor<24x4x16xf32>, tensor<24x4xf32>) -> tensor<4x16xf32>
// CHECK: call @windowed(
func.func private @layer(%scores: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}, %values: tensor<8192x16xf32> {primop.kind = "state", primop.shape = #values}) -> (tensor<4x16xf32> {primop.shape = #result}, tensor<4x16xf32> {primop.shape = #result}) attributes {primop.chunk} {
  %sums = call @attention(%scores, %values) : (tensor<4x?xf32>, tensor<8192x16xf32>) -> tensor<4x16xf32>
  %near = call @windowed(%scores, %values) : (tensor<4x?xf32>, tensor<8192x16xf32>) -> tensor<4x16xf32>
  return %sums, %near : tensor<4x16xf32>, tensor<4x16xf32>
}

// The loop stays as it is. What comes after it moves to the other kernel, a chain whose scores are the parts' maxima.
// CHECK-LABEL: func.func private @attention_parts(
// CHECK: %[[MAX:.*]] = "primop.max"(%{{.*}}) {{.*}} -> tensor<4xf32>
// CHECK: %[[TOTAL:.*]] = "primop.sum"(%{{.*}}) {{.*}} -> tensor<4xf32>
// CHECK: %[[MIXED:.*]] = "primop.sum"(%{{.*}}) {{.*}} -> tensor<4x16xf32>
// CHECK-NEXT: %[[A:.*]] = "primop.part"(%[[MIXED]]) {count = 24 : i64, map = affine_map<(d0, d1)[s0] -> (d0, d1)>}
// CHECK-NEXT: %[[B:.*]] = "primop.part"(%[[MAX]]) {count = 24 : i64, map = affine_map<(d0, d1)[s0] -> (d0)>}
// CHECK-NEXT: %[[C:.*]] = "primop.part"(%[[TOTAL]]) {count = 24 : i64, map = affine_map<(d0, d1)[s0] -> (d0)>}
// CHECK-NEXT: return %[[A]], %[[B]], %[[C]]
func.func private @attention(%scores: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}, %values: tensor<8192x16xf32> {primop.kind = "state", primop.shape = #values}) -> (tensor<4x16xf32> {primop.shape = #result}) attributes {primop.kernel} {
  %low = "primop.constant"() {value = -1.0e30 : f32} : () -> tensor<f32>
  %minus = "primop.constant"() {value = -1.0 : f32} : () -> tensor<f32>
  %scale = "primop.constant"() {value = 0.5 : f32} : () -> tensor<f32>
  %largest = "primop.max"(%scores) {space = #scores, maps = [#all], dims = array<i64: 1>, primop.online} : (tensor<4x?xf32>) -> tensor<4xf32>
  %below = "primop.less_than"(%largest, %low) {space = #rows, maps = [#row, #row_scalar], primop.online} : (tensor<4xf32>, tensor<f32>) -> tensor<4xi1>
  %clamped = "primop.custom"(%below, %low, %largest) {kind = "arith.select", space = #rows, maps = [#row, #row_scalar, #row], operandSegmentSizes = array<i32: 1, 1, 1>, primop.online} : (tensor<4xi1>, tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %negated = "primop.mul"(%clamped, %minus) {space = #rows, maps = [#row, #row_scalar], primop.online} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %distance = "primop.add"(%scores, %negated) {space = #scores, maps = [#all, #of_row], primop.online} : (tensor<4x?xf32>, tensor<4xf32>) -> tensor<4x?xf32>
  %scaled = "primop.mul"(%distance, %scale) {space = #scores, maps = [#all, #scalar], primop.online} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %power = "primop.exp2"(%scaled) {space = #scores, maps = [#all], primop.online} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  %total = "primop.sum"(%power) {space = #scores, maps = [#all], dims = array<i64: 1>, primop.online} : (tensor<4x?xf32>) -> tensor<4xf32>
  %product = "primop.mul"(%power, %values) {space = #products, maps = [affine_map<(h, d, t)[past] -> (h, t)>, affine_map<(h, d, t)[past] -> (t, d)>], primop.online} : (tensor<4x?xf32>, tensor<8192x16xf32>) -> tensor<4x16x?xf32>
  %mixed = "primop.sum"(%product) {space = #products, maps = [affine_map<(h, d, t)[past] -> (h, d, t)>], dims = array<i64: 2>, primop.online} : (tensor<4x16x?xf32>) -> tensor<4x16xf32>
  %inverse = "primop.recip"(%total) {space = #rows, maps = [#row]} : (tensor<4xf32>) -> tensor<4xf32>
  %result = "primop.mul"(%mixed, %inverse) {space = #result, maps = [#all, #of_row]} : (tensor<4x16xf32>, tensor<4xf32>) -> tensor<4x16xf32>
  return %result : tensor<4x16xf32>
}

// Where a mask leaves out what comes first the loop is short, whatever the cache.
// CHECK-LABEL: func.func private @windowed(
// CHECK-NOT: primop.part
func.func private @windowed(%scores: tensor<4x?xf32> {primop.kind = "argument", primop.shape = #scores}, %values: tensor<8192x16xf32> {primop.kind = "state", primop.shape = #values}) -> (tensor<4x16xf32> {primop.shape = #result}) attributes {primop.kernel} {
  %low = "primop.constant"() {value = -1.0e30 : f32} : () -> tensor<f32>
  %minus = "primop.constant"() {value = -1.0 : f32} : () -> tensor<f32>
  %scale = "primop.constant"() {value = 0.5 : f32} : () -> tensor<f32>
  %nothing = "primop.constant"() {value = 0xFF800000 : f32} : () -> tensor<f32>
  %seen = "primop.add"(%scores, %nothing) {space = #scores, maps = [#all, #scalar], bounds = [affine_map<(h, t)[past] -> ()>, affine_map<(h, t)[past] -> (past - t - 99)>], primop.online} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %largest = "primop.max"(%seen) {space = #scores, maps = [#all], dims = array<i64: 1>, primop.online} : (tensor<4x?xf32>) -> tensor<4xf32>
  %below = "primop.less_than"(%largest, %low) {space = #rows, maps = [#row, #row_scalar], primop.online} : (tensor<4xf32>, tensor<f32>) -> tensor<4xi1>
  %clamped = "primop.custom"(%below, %low, %largest) {kind = "arith.select", space = #rows, maps = [#row, #row_scalar, #row], operandSegmentSizes = array<i32: 1, 1, 1>, primop.online} : (tensor<4xi1>, tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %negated = "primop.mul"(%clamped, %minus) {space = #rows, maps = [#row, #row_scalar], primop.online} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %distance = "primop.add"(%seen, %negated) {space = #scores, maps = [#all, #of_row], primop.online} : (tensor<4x?xf32>, tensor<4xf32>) -> tensor<4x?xf32>
  %scaled = "primop.mul"(%distance, %scale) {space = #scores, maps = [#all, #scalar], primop.online} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %power = "primop.exp2"(%scaled) {space = #scores, maps = [#all], primop.online} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  %product = "primop.mul"(%power, %values) {space = #products, maps = [affine_map<(h, d, t)[past] -> (h, t)>, affine_map<(h, d, t)[past] -> (t, d)>], primop.online} : (tensor<4x?xf32>, tensor<8192x16xf32>) -> tensor<4x16x?xf32>
  %mixed = "primop.sum"(%product) {space = #products, maps = [affine_map<(h, d, t)[past] -> (h, d, t)>], dims = array<i64: 2>, primop.online} : (tensor<4x16x?xf32>) -> tensor<4x16xf32>
  return %mixed : tensor<4x16xf32>
}

}

// CHECK-LABEL: func.func private @attention(
// CHECK-SAME: %[[M:[^:]*]]: tensor<24x4xf32>{{.*}}, %[[Y:[^:]*]]: tensor<24x4x16xf32>{{.*}}, %[[L:[^:]*]]: tensor<24x4xf32>
// CHECK: %[[LARGEST:.*]] = "primop.max"(%[[M]]) {dims = array<i64: 0>, {{.*}}primop.online
// CHECK: %[[CLAMPED:.*]] = "primop.custom"(%{{.*}}, %{{.*}}, %[[LARGEST]])
// CHECK: %[[NEGATED:.*]] = "primop.mul"(%[[CLAMPED]],
// CHECK: %[[DISTANCE:.*]] = "primop.add"(%[[M]], %[[NEGATED]])
// CHECK: %[[SCALED:.*]] = "primop.mul"(%[[DISTANCE]],
// CHECK: %[[POWER:.*]] = "primop.exp2"(%[[SCALED]])
// CHECK: %[[WEIGHED:.*]] = "primop.mul"(%[[POWER]], %[[Y]]) {maps = [affine_map<(d0, d1, d2)[s0] -> (d0, d1)>,
// CHECK: %[[MIXED:.*]] = "primop.sum"(%[[WEIGHED]]) {dims = array<i64: 0>
// CHECK: "primop.mul"(%[[POWER]], %[[L]])
// CHECK: %[[TOTAL:.*]] = "primop.sum"
// CHECK: %[[INVERSE:.*]] = "primop.recip"(%[[TOTAL]])
// CHECK: %[[RESULT:.*]] = "primop.mul"(%[[MIXED]], %[[INVERSE]])
// CHECK: return %[[RESULT]]
