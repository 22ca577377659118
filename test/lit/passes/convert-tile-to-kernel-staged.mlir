// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[s] -> (s)>, layout = array<i64: 32, 16, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[s] -> (64)>, layout = array<i64: 32, 8, 4, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<()[s] -> (32)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}
#t = {name = "t", extent = affine_map<()[s] -> (s)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {s = array<i64: 1, 128>}} {
module @kernels {

// Two lanes of a warp lie along the columns, 16 along the rows, and warps side by side along the columns. A slot is free when
// every warp has said so.
// CHECK-LABEL: func.func @product(
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK-DAG: %[[LANE:.*]] = arith.remui %[[THREAD]], %c2
// CHECK-DAG: %[[REST:.*]] = arith.divui %[[THREAD]], %c2
// CHECK-DAG: %[[ROW:.*]] = arith.remui %[[REST]], %c16
// CHECK-DAG: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK-DAG: %[[WARPS:.*]] = arith.muli %[[WARP]], %c2
// CHECK-DAG: %[[COLUMN:.*]] = arith.addi %[[LANE]], %[[WARPS]]
// CHECK-DAG: %[[XS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"} : () -> memref<1024xf32, 3>
// CHECK-DAG: %[[EMPTY:.*]] = "kernel.shared"() {symbol = "ring0_empty"}
// CHECK: "kernel.mbarrier_init"(%[[EMPTY]], %c0) {count = 4 : i64}
// CHECK: %[[WS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring1"} : () -> memref<1024xf32, 3>

// A thread begins at its row, at the first 16 bytes of it in their swizzled place, and reads 16 bytes along the depth of its
// rows 16 apart and of its four neighbouring columns, whose places in a row differ.
// CHECK: %[[ROWS:.*]] = arith.muli %[[ROW]], %c32
// CHECK: %[[SWIZZLE:.*]] = arith.remui %[[ROW]], %c8
// CHECK: %[[PLACE:.*]] = arith.muli %[[SWIZZLE]], %c4
// CHECK: %[[X0:.*]] = arith.addi %[[ROWS]], %[[PLACE]]
// CHECK: %[[W0:.*]] = arith.addi %{{.*}}, %{{.*}}
// CHECK: %[[A0:.*]] = "kernel.load_shared"(%[[XS]], %[[X0]]) : (memref<1024xf32, 3>, index) -> vector<4xf32>
// CHECK: %[[XNEXT:.*]] = arith.addi %[[X0]], %c512
// CHECK: "kernel.load_shared"(%[[XS]], %[[XNEXT]])
// CHECK: %[[B0:.*]] = "kernel.load_shared"(%[[WS]], %[[W0]])
// CHECK: %[[SWAPPED:.*]] = arith.xori %[[W0]], %c4
// CHECK: %[[WNEXT:.*]] = arith.addi %[[SWAPPED]], %c32
// CHECK: "kernel.load_shared"(%[[WS]], %[[WNEXT]])
// CHECK-COUNT-8: math.fma
// CHECK-NOT: wgmma

// Four steps along the depth later the next 16 bytes, at the other places.
// CHECK: %[[XSWAPPED:.*]] = arith.xori %[[X0]], %c4
// CHECK: "kernel.load_shared"(%[[XS]], %[[XSWAPPED]])

// Before the slots are given back, sums are known of which every row and every column that was read is a part.
// CHECK: "kernel.warp_barrier"(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}) : (f32, f32, f32, f32) -> ()
// CHECK-COUNT-2: "kernel.mbarrier_arrive"
// CHECK-COUNT-2: "kernel.store_global"({{.*}}) : (vector<4xf32>,
func.func @product(%x: memref<128x32xf32>, %w: memref<64x32xf32>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %ws = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<32x32x1xf32>
  %a = "tile.await"(%xs, %c0) : (memref<1x32x32xf32, 3>, index) -> memref<32x32xf32, 3>
  %b = "tile.await"(%ws, %c0) : (memref<1x32x32xf32, 3>, index) -> memref<32x32xf32, 3>
  %sum = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<32x32xf32, 3>, memref<32x32xf32, 3>, vector<32x32x1xf32>) -> vector<32x32x1xf32>
  "tile.release"(%xs, %c0) {running = 0 : i64} : (memref<1x32x32xf32, 3>, index) -> ()
  "tile.release"(%ws, %c0) {running = 0 : i64} : (memref<1x32x32xf32, 3>, index) -> ()
  "tile.store"(%sum, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<32x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// A right operand that lies as (k, n) is read along its columns: 16 bytes are one step along the depth of four of them.
// CHECK-LABEL: func.func @transposed(
// CHECK: %[[A0:.*]] = "kernel.load_shared"(%{{.*}}) : (memref<1024xf32, 3>, index) -> vector<4xf32>
// CHECK: %[[A00:.*]] = vector.extract %[[A0]][0]
// CHECK: arith.addi %{{.*}}, %c512
// CHECK-NEXT: "kernel.load_shared"
// CHECK: %[[B0:.*]] = "kernel.load_shared"(%[[WS:[^,]*]], %[[W0:[^)]*]]) : (memref<1024xf32, 3>, index) -> vector<4xf32>
// CHECK: %[[B00:.*]] = vector.extract %[[B0]][0]
// CHECK: %[[B01:.*]] = vector.extract %[[B0]][1]
// CHECK: %[[SWAPPED:.*]] = arith.xori %[[W0]], %c4
// CHECK: %[[WNEXT:.*]] = arith.addi %[[SWAPPED]], %c32
// CHECK: "kernel.load_shared"(%[[WS]], %[[WNEXT]])
// CHECK: math.fma %[[A00]], %[[B00]], %{{.*}} : f32
// CHECK: math.fma %[[A00]], %[[B01]], %{{.*}} : f32
func.func @transposed(%x: memref<128x32xf32>, %w: memref<32x64xf32>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %ws = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<32x32x1xf32>
  %a = "tile.await"(%xs, %c0) : (memref<1x32x32xf32, 3>, index) -> memref<32x32xf32, 3>
  %b = "tile.await"(%ws, %c0) : (memref<1x32x32xf32, 3>, index) -> memref<32x32xf32, 3>
  %sum = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (memref<32x32xf32, 3>, memref<32x32xf32, 3>, vector<32x32x1xf32>) -> vector<32x32x1xf32>
  "tile.store"(%sum, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<32x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// Every warp releases a slot when its lanes have read it.
// CHECK-LABEL: func.func @released(
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: "kernel.warp_barrier"() : () -> ()
// CHECK-NEXT: %[[LANE:.*]] = arith.remui %[[THREAD]], %c32
// CHECK-NEXT: %[[SPEAKS:.*]] = arith.cmpi eq, %[[LANE]], %c0
// CHECK-NEXT: scf.if %[[SPEAKS]] {
// CHECK-NEXT: "kernel.mbarrier_arrive"
// CHECK-NOT: warp_barrier
// CHECK: "kernel.mbarrier_arrive"
func.func @released(%x: memref<128x32xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %ws = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %c0 = arith.constant 0 : index
  "tile.release"(%xs, %c0) {running = 0 : i64} : (memref<1x32x32xf32, 3>, index) -> ()
  "tile.release"(%ws, %c0) {running = 0 : i64} : (memref<1x32x32xf32, 3>, index) -> ()
  return
}

// Columns that end at a length known when the kernel starts end the rows of the tensor map.
// CHECK-LABEL: func.func @lengths(
// CHECK-SAME: kernel.tensor_maps = [{argument = 0 : i64, {{.*}}length = affine_map<()[s0] -> (s0)>, {{.*}}width = 128 : i64}]
func.func @lengths(%p: memref<4x64x128xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #t], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  %s = "tile.symbol"() {symbol = "s"} : () -> index
  %ring = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  "tile.fetch"(%ring, %c0, %p, %c32, %c0, %c32, %s) {rows = array<i64: 0>, column = 2 : i64, column_limit = affine_map<()[s] -> (s)>, map = affine_map<(m, n, t)[s] -> (1, m, t)>} : (memref<1x32x32xf32, 3>, index, memref<4x64x128xf32>, index, index, index, index) -> ()
  return
}

}
}
