// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-fuse{tensor=true})' | FileCheck %s
// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-fuse)' | FileCheck %s --check-prefix=JOINED

#x = affine_map<()[n] -> (n, 64)>
#w = affine_map<()[n] -> (32, 64)>
#y = affine_map<()[n] -> (n, 32)>
#products = affine_map<()[n] -> (n, 32, 64)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>
#whole = affine_map<(i, j)[s] -> (i, j)>

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {

// A cast is made before the product of 16-bit matrices that reads it, once for all programs, and then tensor cores make that.
// CHECK-LABEL: func.func private @matrices(
// CHECK-NEXT: %[[CAST:.*]] = call @matrices_cast(%arg0)
// CHECK-NEXT: %[[Y:.*]] = call @matrices_sum(%[[CAST]], %arg1)
// CHECK-NEXT: return %[[Y]]
// JOINED-LABEL: func.func private @matrices(
// JOINED-NEXT: %[[Y:.*]] = call @matrices_sum(%arg0, %arg1)
// JOINED-NEXT: return %[[Y]]
func.func private @matrices(%x: tensor<?x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xbf16> {primop.kind = "weight", primop.shape = #w}) -> tensor<?x32xf32> attributes {primop.chunk} {
  %narrow = "primop.cast"(%x) {space = #x, maps = [#whole]} : (tensor<?x64xf32>) -> tensor<?x64xbf16>
  %a = "primop.mul"(%narrow, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x64xbf16>, tensor<32x64xbf16>) -> tensor<?x32x64xf32>
  %y = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x64xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// Of a few rows a product takes the time of reading its matrix: they are computed where they are used.
// CHECK-LABEL: func.func private @few(
// CHECK-NEXT: %[[Y:.*]] = call @few_sum(%arg0, %arg1)
// CHECK-NEXT: return %[[Y]]
func.func private @few(%x: tensor<4x64xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (4, 64)>}, %w: tensor<32x64xbf16> {primop.kind = "weight", primop.shape = #w}) -> tensor<4x32xf32> attributes {primop.chunk} {
  %narrow = "primop.cast"(%x) {space = affine_map<()[n] -> (4, 64)>, maps = [#whole]} : (tensor<4x64xf32>) -> tensor<4x64xbf16>
  %a = "primop.mul"(%narrow, %w) {space = affine_map<()[n] -> (4, 32, 64)>, maps = [#lhs, #rhs]} : (tensor<4x64xbf16>, tensor<32x64xbf16>) -> tensor<4x32x64xf32>
  %y = "primop.sum"(%a) {space = affine_map<()[n] -> (4, 32, 64)>, maps = [#all], dims = array<i64: 2>} : (tensor<4x32x64xf32>) -> tensor<4x32xf32>
  return %y : tensor<4x32xf32>
}

// Nor do tensor cores multiply f32.
// CHECK-LABEL: func.func private @wide(
// CHECK-NEXT: %[[Y:.*]] = call @wide_sum(%arg0, %arg1)
// CHECK-NEXT: return %[[Y]]
func.func private @wide(%x: tensor<?x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<?x32xf32> attributes {primop.chunk} {
  %twice = "primop.add"(%x, %x) {space = #x, maps = [#whole, #whole]} : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  %a = "primop.mul"(%twice, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32x64xf32>
  %y = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x64xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

}
