// RUN: tilec-opt %s | tilec-opt | FileCheck %s

// Where a thread stands, in its block and in the grid.
// CHECK-LABEL: func.func @place
// CHECK: "kernel.thread_id"() : () -> index
// CHECK: "kernel.block_id"() {dimension = "x"} : () -> index
// CHECK: "kernel.block_id"() {dimension = "z"} : () -> index
func.func @place() {
  %thread = "kernel.thread_id"() : () -> index
  %column = "kernel.block_id"() {dimension = "x"} : () -> index
  %batch = "kernel.block_id"() {dimension = "z"} : () -> index
  return
}

// Global memory is read and written by scalars and short vectors, at an offset in elements; what is read once streams
// by the caches.
// CHECK-LABEL: func.func @global
// CHECK-SAME: %[[BUFFER:.*]]: memref<256xf32, 1>, %[[I:.*]]: index
// CHECK: %[[SCALAR:.*]] = "kernel.load_global"(%[[BUFFER]], %[[I]]) {cache = "stream"} : (memref<256xf32, 1>, index) -> f32
// CHECK: %[[VECTOR:.*]] = "kernel.load_global"(%[[BUFFER]], %[[I]]) {cache = "plain"} : (memref<256xf32, 1>, index) -> vector<4xf32>
// CHECK: "kernel.store_global"(%[[SCALAR]], %[[BUFFER]], %[[I]]) : (f32, memref<256xf32, 1>, index) -> ()
// CHECK: "kernel.store_global"(%[[VECTOR]], %[[BUFFER]], %[[I]]) : (vector<4xf32>, memref<256xf32, 1>, index) -> ()
func.func @global(%buffer: memref<256xf32, 1>, %i: index) {
  %scalar = "kernel.load_global"(%buffer, %i) {cache = "stream"} : (memref<256xf32, 1>, index) -> f32
  %vector = "kernel.load_global"(%buffer, %i) {cache = "plain"} : (memref<256xf32, 1>, index) -> vector<4xf32>
  "kernel.store_global"(%scalar, %buffer, %i) : (f32, memref<256xf32, 1>, index) -> ()
  "kernel.store_global"(%vector, %buffer, %i) : (vector<4xf32>, memref<256xf32, 1>, index) -> ()
  return
}

// Threads of a block meet in shared memory, with barriers between, and those of a warp by shuffles.
// CHECK-LABEL: func.func @block
// CHECK-SAME: %[[VALUE:.*]]: f32, %[[I:.*]]: index
// CHECK: %[[SUM:.*]] = "kernel.warp_reduce"(%[[VALUE]]) {kind = "add", lanes = array<i64: 1, 2, 16>} : (f32) -> f32
// CHECK: %[[PARTS:.*]] = "kernel.shared"() {symbol = "parts"} : () -> memref<256xf32, 3>
// CHECK: "kernel.store_shared"(%[[SUM]], %[[PARTS]], %[[I]])
// CHECK: "kernel.barrier"() : () -> ()
// CHECK: "kernel.load_shared"(%[[PARTS]], %[[I]]) : (memref<256xf32, 3>, index) -> vector<2xf32>
func.func @block(%value: f32, %i: index) {
  %sum = "kernel.warp_reduce"(%value) {kind = "add", lanes = array<i64: 1, 2, 16>} : (f32) -> f32
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<256xf32, 3>
  "kernel.store_shared"(%sum, %parts, %i) : (f32, memref<256xf32, 3>, index) -> ()
  "kernel.barrier"() : () -> ()
  %two = "kernel.load_shared"(%parts, %i) : (memref<256xf32, 3>, index) -> vector<2xf32>
  return
}

// A kernel lets the next one start early, and waits for the previous ones where it first needs what they wrote.
// CHECK-LABEL: func.func @launch
// CHECK: "kernel.launch_dependents"() : () -> ()
// CHECK: "kernel.grid_wait"() : () -> ()
func.func @launch() {
  "kernel.launch_dependents"() : () -> ()
  "kernel.grid_wait"() : () -> ()
  return
}

// Blocks of a cluster know their number, wait for each other in two steps and read each other's shared memory, four
// elements at a time or one.
// CHECK-LABEL: func.func @cluster
// CHECK: %[[RANK:.*]] = "kernel.cluster_rank"() : () -> index
// CHECK: "kernel.cluster_arrive"() : () -> ()
// CHECK: "kernel.cluster_wait"() : () -> ()
// CHECK: "kernel.load_remote"(%{{.*}}, %{{.*}}, %[[RANK]]) : (memref<32xf32, 3>, index, index) -> f32
// CHECK: "kernel.load_remote"(%{{.*}}, %{{.*}}, %[[RANK]]) : (memref<32xf32, 3>, index, index) -> vector<8xf32>
func.func @cluster(%parts: memref<32xf32, 3>, %i: index) {
  %rank = "kernel.cluster_rank"() : () -> index
  "kernel.cluster_arrive"() : () -> ()
  "kernel.cluster_wait"() : () -> ()
  %remote = "kernel.load_remote"(%parts, %i, %rank) : (memref<32xf32, 3>, index, index) -> f32
  %eight = "kernel.load_remote"(%parts, %i, %rank) : (memref<32xf32, 3>, index, index) -> vector<8xf32>
  return
}
