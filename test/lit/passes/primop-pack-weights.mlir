// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-pack-weights{target=x86-64-avx512})' | FileCheck %s
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-pack-weights{target=x86-64-avx2})' | FileCheck %s --check-prefix=AVX2
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-pack-weights{target=sm_90a})' | FileCheck %s --check-prefix=GPU --implicit-check-not=pack

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (40, 64)>
#products = affine_map<() -> (8, 40, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

module {

// The rows of a matrix that is multiplied are interleaved by the SIMD width, the last ones with some that do not exist.
// Where it enters the layout is written down.
// CHECK-LABEL: func.func @f32
// CHECK: "primop.input"() {kind = "weight", {{.*}}pack = affine_map<(d0, d1) -> (d0 floordiv 16, d1, d0 mod 16)>, shape = affine_map<() -> (40, 64)>} : () -> tensor<3x64x16xf32>
// AVX2-LABEL: func.func @f32
// AVX2: pack = affine_map<(d0, d1) -> (d0 floordiv 8, d1, d0 mod 8)>{{.*}} -> tensor<5x64x8xf32>
// GPU-LABEL: func.func @f32
// GPU: "primop.input"() {kind = "weight", {{.*}} -> tensor<40x64xf32>
func.func @f32() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #x} : () -> tensor<8x64xf32>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<40x64xf32>
  %y = call @chunk(%x, %w) : (tensor<8x64xf32>, tensor<40x64xf32>) -> tensor<8x40xf32>
  "primop.output"(%y) {label = "y"} : (tensor<8x40xf32>) -> ()
  return
}

// All functions on the way know the new shape, and the view of the one that reads it is composed with the layout.
// CHECK: func.func private @chunk(%{{.*}}: tensor<8x64xf32> {{{.*}}}, %[[W:[^:]*]]: tensor<3x64x16xf32> {primop.kind = "weight", primop.shape = affine_map<() -> (3, 64, 16)>})
// CHECK-NEXT: call @kernel(%{{.*}}, %[[W]]) : (tensor<8x64xf32>, tensor<3x64x16xf32>)
// CHECK: func.func private @kernel(%{{.*}}: tensor<8x64xf32> {{{.*}}}, %[[W:[^:]*]]: tensor<3x64x16xf32> {
// CHECK-NEXT: "primop.mul"(%{{.*}}, %[[W]]) {maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2, d1 mod 16)>]
func.func private @chunk(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<40x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x40xf32> attributes {primop.chunk} {
  %y = call @kernel(%x, %w) : (tensor<8x64xf32>, tensor<40x64xf32>) -> tensor<8x40xf32>
  return %y : tensor<8x40xf32>
}
func.func private @kernel(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<40x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x40xf32> attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<40x64xf32>) -> tensor<8x40x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x40x64xf32>) -> tensor<8x40xf32>
  return %y : tensor<8x40xf32>
}

}

// -----

#x = affine_map<() -> (64)>
#w = affine_map<() -> (32, 64)>
#rows = affine_map<() -> (4)>
#read = affine_map<() -> (4, 64)>
#identity = affine_map<(n, k) -> (n, k)>

module {

// Columns of bf16 are paired as well. A table that is multiplied in one kernel is read in its layout by the others too.
// CHECK-LABEL: func.func @bf16
// CHECK: pack = affine_map<(d0, d1) -> (d0 floordiv 16, d1 floordiv 2, d0 mod 16, d1 mod 2)>{{.*}} -> tensor<2x32x16x2xbf16>
// CHECK: func.func private @gathered(
// CHECK-NEXT: "primop.gather"({{.*}}) {extent = 32 : i64, maps = [affine_map<(d0, d1, d2) -> (d2 floordiv 16, d1 floordiv 2, d2 mod 16, d1 mod 2)>
func.func @bf16() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #x} : () -> tensor<64xbf16>
  %table = "primop.input"() {kind = "weight", label = "table", shape = #w} : () -> tensor<32x64xbf16>
  %rows = "primop.input"() {kind = "argument", label = "rows", shape = #rows} : () -> tensor<4xi32>
  %y, %read = call @chunk(%x, %table, %rows) : (tensor<64xbf16>, tensor<32x64xbf16>, tensor<4xi32>) -> (tensor<32xf32>, tensor<4x64xbf16>)
  "primop.output"(%y) {label = "y"} : (tensor<32xf32>) -> ()
  "primop.output"(%read) {label = "read"} : (tensor<4x64xbf16>) -> ()
  return
}
func.func private @chunk(%x: tensor<64xbf16> {primop.kind = "argument", primop.shape = #x}, %table: tensor<32x64xbf16> {primop.kind = "weight", primop.shape = #w}, %rows: tensor<4xi32> {primop.kind = "argument", primop.shape = #rows}) -> (tensor<32xf32>, tensor<4x64xbf16>) attributes {primop.chunk} {
  %y = call @multiplied(%x, %table) : (tensor<64xbf16>, tensor<32x64xbf16>) -> tensor<32xf32>
  %read = call @gathered(%table, %rows) : (tensor<32x64xbf16>, tensor<4xi32>) -> tensor<4x64xbf16>
  return %y, %read : tensor<32xf32>, tensor<4x64xbf16>
}
func.func private @multiplied(%x: tensor<64xbf16> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xbf16> {primop.kind = "weight", primop.shape = #w}) -> tensor<32xf32> attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #w, maps = [affine_map<(n, k) -> (k)>, #identity]} : (tensor<64xbf16>, tensor<32x64xbf16>) -> tensor<32x64xf32>
  %y = "primop.sum"(%products) {space = #w, maps = [#identity], dims = array<i64: 1>} : (tensor<32x64xf32>) -> tensor<32xf32>
  return %y : tensor<32xf32>
}
func.func private @gathered(%table: tensor<32x64xbf16> {primop.kind = "weight", primop.shape = #w}, %rows: tensor<4xi32> {primop.kind = "argument", primop.shape = #rows}) -> tensor<4x64xbf16> attributes {primop.kernel} {
  %read = "primop.gather"(%table, %rows) {space = #read, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>], extent = 32 : i64} : (tensor<32x64xbf16>, tensor<4xi32>) -> tensor<4x64xbf16>
  return %read : tensor<4x64xbf16>
}

}

// -----

#x = affine_map<() -> (8, 64)>
#identity = affine_map<(i, j) -> (i, j)>

module {

// A weight that is only added, or that is no weight, keeps its layout.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: pack
// CHECK: return
func.func @kept() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #x} : () -> tensor<8x64xf32>
  %bias = "primop.input"() {kind = "weight", label = "bias", shape = #x} : () -> tensor<8x64xf32>
  %y = call @chunk(%x, %bias) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  "primop.output"(%y) {label = "y"} : (tensor<8x64xf32>) -> ()
  return
}
func.func private @chunk(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %bias: tensor<8x64xf32> {primop.kind = "weight", primop.shape = #x}) -> tensor<8x64xf32> attributes {primop.chunk} {
  %y = call @kernel(%x, %bias) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}
func.func private @kernel(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %bias: tensor<8x64xf32> {primop.kind = "weight", primop.shape = #x}) -> tensor<8x64xf32> attributes {primop.kernel} {
  %y = "primop.add"(%x, %bias) {space = #x, maps = [#identity, #identity]} : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

}
