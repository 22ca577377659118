// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-stage,canonicalize)' | FileCheck %s
// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-stage,tile-specialise,convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s --check-prefix=KERNEL

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (136)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}
#rows = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#columns = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 2, 1>, walk = "grid"}
#depth = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}

module {
module @kernels {

// f32 that tensor cores read as TF32 comes as any operand does, 32 elements a row: 128 bytes, the span of a swizzle. A product
// runs on while the next turn begins, which one of multiply-adds does not.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: tensor, tf32
// CHECK-DAG: "tile.ring"() : () -> memref<3x64x32xf32, 3>
// CHECK-DAG: "tile.ring"() : () -> memref<3x32x32xf32, 3>
// CHECK: scf.for %{{.*}} = %c0 to %c160 step %c32
// CHECK: "tile.dot_shared"({{.*}} : (memref<64x32xf32, 3>, memref<32x32xf32, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
// CHECK: "tile.release"({{.*}}) {running = 1 : i64}

// The copies stay copies of f32; what the instruction multiplies is tf32.
// KERNEL-LABEL: func.func @product(
// KERNEL-SAME: columns = 32 : i64, element = "f32"
// KERNEL: "kernel.tma_load"({{.*}}) {element = f32}
// KERNEL: "kernel.wgmma"({{.*}}) {columns = 32 : i64, depth = 32 : i64, element = tf32, lhs_rows = 64 : i64,
func.func @product(%x: memref<64x136xf32>, %w: memref<32x136xf32>, %y: memref<64x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, tf32, stages = 3 : i64}} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c160 = arith.constant 160 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c160 step %c32 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (m, k)>, mask = affine_map<(m, n, k) -> (135 - k)>} : (memref<64x136xf32>, index, index, index) -> vector<64x1x32xf32>
    %b = "tile.load"(%w, %c0, %c0, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (135 - k)>} : (memref<32x136xf32>, index, index, index) -> vector<1x32x32xf32>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x32xf32>, vector<1x32x32xf32>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<64x32xf32>, index, index, index) -> ()
  return
}

// Where threads copy, a matrix of 8 rows of 16 bytes is 8 x 4 elements, and what a lane gets of it is what mma.sync of tf32
// wants: 32 of the depth are four steps of 8.
// CHECK-LABEL: func.func @copied(
// CHECK: "tile.dot_shared"({{.*}} : (memref<16x32xf32, 3>, memref<16x32xf32, 3>, vector<16x16x1xf32>) -> vector<16x16x1xf32>
// KERNEL-LABEL: func.func @copied(
// KERNEL: "kernel.copy_async"({{.*}}) {element = f32}
// KERNEL: %[[A:.*]]:4 = "kernel.load_matrix"(
// KERNEL: %[[B:.*]]:4 = "kernel.load_matrix"(
// KERNEL: "kernel.mma"(%[[A]]#0, %[[A]]#1, %[[A]]#2, %[[A]]#3, %[[B]]#0, %[[B]]#1, {{.*}}) {element = tf32
// KERNEL: "kernel.mma"(%[[A]]#0, %[[A]]#1, %[[A]]#2, %[[A]]#3, %[[B]]#2, %[[B]]#3, {{.*}}) {element = tf32
// KERNEL-COUNT-6: "kernel.mma"
// KERNEL-NOT: "kernel.mma"
func.func @copied(%x: memref<16x32xf32>, %w: memref<16x32xf32>, %y: memref<16x16xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#rows, #columns, #depth], order = array<i64>, unroll = 1 : i64, dot = true, copied, tensor, tf32, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x16x1xf32>
  %a = "tile.load"(%x, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<16x32xf32>, index, index, index) -> vector<16x1x32xf32>
  %b = "tile.load"(%w, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (n, k)>} : (memref<16x32xf32>, index, index, index) -> vector<1x16x32xf32>
  %sum = "tile.dot"(%a, %b, %zeros) : (vector<16x1x32xf32>, vector<1x16x32xf32>, vector<16x16x1xf32>) -> vector<16x16x1xf32>
  "tile.store"(%sum, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<16x16x1xf32>, memref<16x16xf32>, index, index, index) -> ()
  return
}

}
}
