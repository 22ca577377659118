// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-online-rows)' --mlir-print-local-scope | FileCheck %s --implicit-check-not=primop.mended
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-online-rows{near=262144})' | FileCheck %s --check-prefix=NEAR --implicit-check-not=primop.mended

#x = affine_map<() -> (64, 65536)>
#rows = affine_map<() -> (64)>
#row = affine_map<(i) -> (i)>
#identity = affine_map<(i, j) -> (i, j)>
#of_row = affine_map<(i, j) -> (i)>
#scalar = affine_map<(i, j) -> ()>
#row_scalar = affine_map<(i) -> ()>

// The logarithm of a sum of exponentials: the sum sees the maximum only in a term of the exponent, which falls as the maximum
// grows, so that parts of the row differ by a factor. It may share the maximum's loop, if the row is not near.
// NEAR-LABEL: func.func private @log_sum_exp(
// CHECK-LABEL: func.func private @log_sum_exp(
// CHECK: "primop.max"
// CHECK: "primop.exp2"
// CHECK: "primop.sum"(%{{.*}}) {{{.*}}primop.mended
func.func private @log_sum_exp(%x: tensor<64x65536xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<64xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %minus = "primop.constant"() {value = -1.0 : f32} : () -> tensor<f32>
  %negative = "primop.mul"(%largest, %minus) {space = #rows, maps = [#row, #row_scalar]} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %distance = "primop.add"(%x, %negative) {space = #x, maps = [#identity, #of_row]} : (tensor<64x65536xf32>, tensor<64xf32>) -> tensor<64x65536xf32>
  %scale = "primop.constant"() {value = 1.5 : f32} : () -> tensor<f32>
  %scaled = "primop.mul"(%distance, %scale) {space = #x, maps = [#identity, #scalar]} : (tensor<64x65536xf32>, tensor<f32>) -> tensor<64x65536xf32>
  %powers = "primop.exp2"(%scaled) {space = #x, maps = [#identity]} : (tensor<64x65536xf32>) -> tensor<64x65536xf32>
  %total = "primop.sum"(%powers) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %log = "primop.log2"(%total) {space = #rows, maps = [#row]} : (tensor<64xf32>) -> tensor<64xf32>
  %result = "primop.add"(%log, %largest) {space = #rows, maps = [#row, #row]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %result : tensor<64xf32>
}

// -----

#x = affine_map<() -> (64, 65536)>
#rows = affine_map<() -> (64)>
#row = affine_map<(i) -> (i)>
#identity = affine_map<(i, j) -> (i, j)>
#of_row = affine_map<(i, j) -> (i)>
#scalar = affine_map<(i, j) -> ()>
#row_scalar = affine_map<(i) -> ()>

// Variance: squares of distances from one number a row, whichever it is.
// NEAR-LABEL: func.func private @variance(
// CHECK-LABEL: func.func private @variance(
// CHECK: "primop.sum"
// CHECK: %[[DISTANCE:.*]] = "primop.add"
// CHECK: "primop.mul"(%[[DISTANCE]], %[[DISTANCE]])
// CHECK: "primop.sum"(%{{.*}}) {{{.*}}primop.mended
func.func private @variance(%x: tensor<64x65536xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<64xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %total = "primop.sum"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %share = "primop.constant"() {value = -1.52587890625e-5 : f32} : () -> tensor<f32>
  %negative = "primop.mul"(%total, %share) {space = #rows, maps = [#row, #row_scalar]} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %distance = "primop.add"(%x, %negative) {space = #x, maps = [#identity, #of_row]} : (tensor<64x65536xf32>, tensor<64xf32>) -> tensor<64x65536xf32>
  %squares = "primop.mul"(%distance, %distance) {space = #x, maps = [#identity, #identity]} : (tensor<64x65536xf32>, tensor<64x65536xf32>) -> tensor<64x65536xf32>
  %spread = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  return %spread : tensor<64xf32>
}

// -----

#x = affine_map<() -> (64, 65536)>
#rows = affine_map<() -> (64)>
#identity = affine_map<(i, j) -> (i, j)>
#of_row = affine_map<(i, j) -> (i)>

// An exponent that rises with the maximum: mending could overflow where the sum itself does not.
// NEAR-LABEL: func.func private @rising(
// CHECK-LABEL: func.func private @rising(
func.func private @rising(%x: tensor<64x65536xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<64xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %more = "primop.add"(%x, %largest) {space = #x, maps = [#identity, #of_row]} : (tensor<64x65536xf32>, tensor<64xf32>) -> tensor<64x65536xf32>
  %powers = "primop.exp2"(%more) {space = #x, maps = [#identity]} : (tensor<64x65536xf32>) -> tensor<64x65536xf32>
  %total = "primop.sum"(%powers) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  return %total : tensor<64xf32>
}
