// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-cpu{target=x86-64-avx512bf16},tilec-cse)' | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-cpu{target=x86-64-avx2},tilec-cse)' | FileCheck %s --check-prefixes=CHECK,AVX2
// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-cpu{target=x86-64},tilec-cse)' | FileCheck %s --check-prefixes=CHECK,SSE

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 16, 1, 16, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 1, 1, 1, 1>, walk = "loop"}
#k_pair = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 2, 1, 2, 1>, walk = "loop"}

module {
module @kernels {

// A product of f32 is one multiply-add for each register of the accumulator, fused where the processor can.
// CHECK-LABEL: func.func private @f32_program(
// CHECK: %[[PANEL:.*]] = llvm.load {{.*}} -> vector<16xf32>
// CHECK: %[[ROW0:.*]] = vector.broadcast %{{.*}} : f32 to vector<16xf32>
// AVX2-NEXT: math.fma %[[ROW0]], %[[PANEL]], %{{.*}} : vector<16xf32>
// SSE-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[ROW0]], %[[PANEL]]
// SSE-NEXT: arith.addf %[[PRODUCT]], %{{.*}}
// CHECK: %[[ROW1:.*]] = vector.broadcast %{{.*}} : f32 to vector<16xf32>
// AVX2-NEXT: math.fma %[[ROW1]], %[[PANEL]], %{{.*}} : vector<16xf32>
// CHECK-LABEL: func.func @f32(
func.func @f32(%x: memref<64x256xf32>, %w: memref<256x64xf32>, %y: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %k = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<2x16x1xf32>
  %rows = "tile.load"(%x, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<64x256xf32>, index, index, index) -> vector<2x1x1xf32>
  %panel = "tile.load"(%w, %i, %j, %k) {map = affine_map<(m, n, k) -> (k, n)>} : (memref<256x64xf32>, index, index, index) -> vector<1x16x1xf32>
  %sum = "tile.dot"(%rows, %panel, %zeros) : (vector<2x1x1xf32>, vector<1x16x1xf32>, vector<2x16x1xf32>) -> vector<2x16x1xf32>
  "tile.store"(%sum, %y, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<2x16x1xf32>, memref<64x64xf32>, index, index, index) -> ()
  return
}

// A product of bf16 pairs repeats the row's pair, a word, for all columns. One instruction does the rest where there is
// one; elsewhere both halves become f32 by moving their bits.
// CHECK-LABEL: func.func private @pairs_program(
// CHECK: %[[PAIR0:.*]] = llvm.load {{.*}} -> vector<2xbf16>
// CHECK: %[[PAIR1:.*]] = llvm.load {{.*}} -> vector<2xbf16>
// CHECK: %[[PANEL:.*]] = llvm.load {{.*}} -> vector<32xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR0]] : vector<2xbf16> to vector<1xi32>
// CHECK: vector.broadcast %{{.*}} : i32 to vector<16xi32>
// BF16: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"(%{{.*}}, %[[PANEL]], %{{.*}}) : (vector<16xf32>, vector<32xbf16>, vector<32xbf16>) -> vector<16xf32>
// BF16: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"
// AVX2: %[[WEIGHTS:.*]] = vector.bitcast %[[PANEL]] : vector<32xbf16> to vector<16xi32>
// AVX2: %[[EVEN:.*]] = arith.shli %[[WEIGHTS]], %{{.*}} : vector<16xi32>
// AVX2: arith.bitcast %[[EVEN]] : vector<16xi32> to vector<16xf32>
// AVX2: math.fma
// AVX2: %[[ODD:.*]] = arith.andi %[[WEIGHTS]], %{{.*}} : vector<16xi32>
// AVX2: arith.bitcast %[[ODD]]
// AVX2: math.fma
// CHECK-LABEL: func.func @pairs(
func.func @pairs(%x: memref<64x256xbf16>, %w: memref<128x64x2xbf16>, %y: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k_pair], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %k = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<2x16x1xf32>
  %rows = "tile.load"(%x, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<64x256xbf16>, index, index, index) -> vector<2x1x2xbf16>
  %panel = "tile.load"(%w, %i, %j, %k) {map = affine_map<(m, n, k) -> (k floordiv 2, n, k mod 2)>} : (memref<128x64x2xbf16>, index, index, index) -> vector<1x16x2xbf16>
  %sum = "tile.dot"(%rows, %panel, %zeros) : (vector<2x1x2xbf16>, vector<1x16x2xbf16>, vector<2x16x1xf32>) -> vector<2x16x1xf32>
  "tile.store"(%sum, %y, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<2x16x1xf32>, memref<64x64xf32>, index, index, index) -> ()
  return
}

// Pairs of other elements than bf16 are taken apart: those of one position along k form a vector.
// CHECK-LABEL: func.func private @split_program(
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31]
// CHECK-LABEL: func.func @split(
func.func @split(%x: memref<64x256xf32>, %w: memref<128x64x2xf32>, %y: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k_pair], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %k = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<2x16x1xf32>
  %rows = "tile.load"(%x, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<64x256xf32>, index, index, index) -> vector<2x1x2xf32>
  %panel = "tile.load"(%w, %i, %j, %k) {map = affine_map<(m, n, k) -> (k floordiv 2, n, k mod 2)>} : (memref<128x64x2xf32>, index, index, index) -> vector<1x16x2xf32>
  %sum = "tile.dot"(%rows, %panel, %zeros) : (vector<2x1x2xf32>, vector<1x16x2xf32>, vector<2x16x1xf32>) -> vector<2x16x1xf32>
  "tile.store"(%sum, %y, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<2x16x1xf32>, memref<64x64xf32>, index, index, index) -> ()
  return
}

}
}
