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

// Under a condition a vector is read; elsewhere it is zeros, or another one.
// CHECK-LABEL: func.func @condition
// CHECK-SAME: %[[BUFFER:.*]]: memref<256xf32, 1>, %[[I:.*]]: index, %[[OLD:.*]]: i1, %[[NEW:.*]]: i1
// CHECK: %[[HELD:.*]] = "kernel.load_global"(%[[BUFFER]], %[[I]], %[[OLD]]) {cache = "held"} : (memref<256xf32, 1>, index, i1) -> vector<4xf32>
// CHECK: "kernel.load_over"(%[[HELD]], %[[BUFFER]], %[[I]], %[[NEW]]) : (vector<4xf32>, memref<256xf32, 1>, index, i1) -> vector<4xf32>
func.func @condition(%buffer: memref<256xf32, 1>, %i: index, %old: i1, %new: i1) {
  %held = "kernel.load_global"(%buffer, %i, %old) {cache = "held"} : (memref<256xf32, 1>, index, i1) -> vector<4xf32>
  %all = "kernel.load_over"(%held, %buffer, %i, %new) : (vector<4xf32>, memref<256xf32, 1>, index, i1) -> vector<4xf32>
  return
}

// Threads of a block meet in shared memory, with barriers between, and those of a warp by shuffles.
// CHECK-LABEL: func.func @block
// CHECK-SAME: %[[VALUE:.*]]: f32, %[[I:.*]]: index
// CHECK: %[[SUM:.*]] = "kernel.warp_reduce"(%[[VALUE]]) {kind = "add", lanes = array<i64: 1, 2, 16>} : (f32) -> f32
// CHECK: %[[PARTS:.*]] = "kernel.shared"() {symbol = "parts"} : () -> memref<256xf32, 3>
// CHECK: "kernel.store_shared"(%[[SUM]], %[[PARTS]], %[[I]])
// CHECK: %[[WARP:.*]] = "kernel.uniform"(%[[I]]) : (index) -> index
// CHECK: %[[FREE:.*]] = "kernel.shared"() {over = "part", symbol = "sums"} : () -> memref<64xf32, 3>
// CHECK: "kernel.barrier"() : () -> ()
// CHECK: "kernel.group_barrier"(%[[WARP]]) {arrive = true, threads = 256 : i64} : (index) -> ()
// CHECK: "kernel.group_barrier"(%[[WARP]]) {threads = 256 : i64} : (index) -> ()
// CHECK: "kernel.warp_barrier"() : () -> ()
// CHECK: "kernel.warp_barrier"(%[[SUM]]) : (f32) -> ()
// CHECK: "kernel.load_shared"(%[[PARTS]], %[[I]]) : (memref<256xf32, 3>, index) -> vector<2xf32>
func.func @block(%value: f32, %i: index) {
  %sum = "kernel.warp_reduce"(%value) {kind = "add", lanes = array<i64: 1, 2, 16>} : (f32) -> f32
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<256xf32, 3>
  "kernel.store_shared"(%sum, %parts, %i) : (f32, memref<256xf32, 3>, index) -> ()
  %warp = "kernel.uniform"(%i) : (index) -> index
  %sums = "kernel.shared"() {symbol = "sums", over = "part"} : () -> memref<64xf32, 3>
  "kernel.barrier"() : () -> ()
  "kernel.group_barrier"(%warp) {threads = 256 : i64, arrive = true} : (index) -> ()
  "kernel.group_barrier"(%warp) {threads = 256 : i64} : (index) -> ()
  "kernel.warp_barrier"() : () -> ()
  "kernel.warp_barrier"(%sum) : (f32) -> ()
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
// CHECK: "kernel.cluster_arrive"(%{{.*}}) : (f32) -> ()
func.func @cluster(%parts: memref<32xf32, 3>, %i: index) {
  %rank = "kernel.cluster_rank"() : () -> index
  "kernel.cluster_arrive"() : () -> ()
  "kernel.cluster_wait"() : () -> ()
  %remote = "kernel.load_remote"(%parts, %i, %rank) : (memref<32xf32, 3>, index, index) -> f32
  %eight = "kernel.load_remote"(%parts, %i, %rank) : (memref<32xf32, 3>, index, index) -> vector<8xf32>
  "kernel.cluster_arrive"(%remote) : (f32) -> ()
  return
}

// A lane gets what another one has, whose number differs by one bit.
// CHECK-LABEL: func.func @exchange
// CHECK: "kernel.exchange"(%{{.*}}) {lanes = 2 : i64} : (i32) -> i32
func.func @exchange(%word: i32) {
  %other = "kernel.exchange"(%word) {lanes = 2 : i64} : (i32) -> i32
  return
}

// The first threads of a block meet without the others; shared memory says how it must be aligned.
// CHECK-LABEL: func.func @some_threads
// CHECK: "kernel.shared"() {align = 1024 : i64, symbol = "ring"} : () -> memref<4096xbf16, 3>
// CHECK: "kernel.barrier"() {threads = 256 : i64} : () -> ()
// CHECK: "kernel.set_registers"() {count = 40 : i64, more = false} : () -> ()
func.func @some_threads() {
  %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<4096xbf16, 3>
  "kernel.barrier"() {threads = 256 : i64} : () -> ()
  "kernel.set_registers"() {count = 40 : i64, more = false} : () -> ()
  return
}

// Barriers in shared memory have numbers. Threads arrive, copies count their bytes, and phases alternate in parity.
// A copy says of what it reads whether no kernel writes it.
// CHECK-LABEL: func.func @copies
// CHECK-SAME: %[[BARRIERS:[^:]*]]: memref<3xi64, 3>, %[[MAP:[^:]*]]: memref<128xi8, 4>, %[[RING:[^:]*]]: memref<4096xbf16, 3>, %[[I:[^:]*]]: index
// CHECK: "kernel.mbarrier_init"(%[[BARRIERS]], %[[I]]) {count = 2 : i64}
// CHECK: "kernel.fence_mbarriers"()
// CHECK: "kernel.mbarrier_expect"(%[[BARRIERS]], %[[I]]) {bytes = 8192 : i64}
// CHECK: "kernel.tma_load"(%[[BARRIERS]], %[[I]], %[[MAP]], %[[I]], %[[I]], %[[I]], %[[RING]], %[[I]]) {element = bf16}
// CHECK: "kernel.tma_load"(%[[BARRIERS]], %[[I]], %[[MAP]], %[[I]], %[[I]], %[[I]], %[[RING]], %[[I]]) {constant = true, element = bf16}
// CHECK: "kernel.mbarrier_arrive"(%[[BARRIERS]], %[[I]])
// CHECK: "kernel.mbarrier_wait"(%[[BARRIERS]], %[[I]], %[[I]])
// CHECK: %[[ENDED:.*]] = "kernel.mbarrier_test"(%[[BARRIERS]], %[[I]], %[[I]])
// CHECK: "kernel.mbarrier_wait"(%[[BARRIERS]], %[[I]], %[[I]], %[[ENDED]])
func.func @copies(%barriers: memref<3xi64, 3>, %map: memref<128xi8, 4>, %ring: memref<4096xbf16, 3>, %i: index) {
  "kernel.mbarrier_init"(%barriers, %i) {count = 2 : i64} : (memref<3xi64, 3>, index) -> ()
  "kernel.fence_mbarriers"() : () -> ()
  "kernel.mbarrier_expect"(%barriers, %i) {bytes = 8192 : i64} : (memref<3xi64, 3>, index) -> ()
  "kernel.tma_load"(%barriers, %i, %map, %i, %i, %i, %ring, %i) {element = bf16} : (memref<3xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<4096xbf16, 3>, index) -> ()
  "kernel.tma_load"(%barriers, %i, %map, %i, %i, %i, %ring, %i) {constant = true, element = bf16} : (memref<3xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<4096xbf16, 3>, index) -> ()
  "kernel.mbarrier_arrive"(%barriers, %i) : (memref<3xi64, 3>, index) -> ()
  "kernel.mbarrier_wait"(%barriers, %i, %i) : (memref<3xi64, 3>, index, index) -> ()
  %ended = "kernel.mbarrier_test"(%barriers, %i, %i) : (memref<3xi64, 3>, index, index) -> i1
  "kernel.mbarrier_wait"(%barriers, %i, %i, %ended) : (memref<3xi64, 3>, index, index, i1) -> ()
  return
}

// A product has two registers of a thread for every four of its columns. Its left operand is a place or registers.
// CHECK-LABEL: func.func @products
// CHECK: %[[SUM:.*]]:4 = "kernel.wgmma"({{.*}}) {columns = 8 : i64, depth = 16 : i64, element = bf16, lhs_rows = 64 : i64,
// CHECK-SAME: rhs_rows = 8 : i64}
// CHECK: "kernel.wgmma_wait"(%[[SUM]]#0, %[[SUM]]#1, %[[SUM]]#2, %[[SUM]]#3) {running = 0 : i64}
// CHECK: "kernel.wgmma"({{.*}}) {columns = 8 : i64, {{.*}}transposed = true}
// CHECK-SAME: vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>
// CHECK: "kernel.wgmma_wait"() {running = 1 : i64}
// CHECK: "kernel.wgmma"({{.*}}) {columns = 8 : i64, depth = 8 : i64, element = tf32, {{.*}} : (memref<2048xf32, 3>, index, memref<256xf32, 3>, index,
func.func @products(%a: memref<4096xbf16, 3>, %b: memref<512xbf16, 3>, %i: index, %p: vector<2xbf16>, %x: f32, %c: memref<2048xf32, 3>, %d: memref<256xf32, 3>) {
  %sum:4 = "kernel.wgmma"(%a, %i, %b, %i, %x, %x, %x, %x) {element = bf16, columns = 8 : i64, depth = 16 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<4096xbf16, 3>, index, memref<512xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %done:4 = "kernel.wgmma_wait"(%sum#0, %sum#1, %sum#2, %sum#3) {running = 0 : i64} : (f32, f32, f32, f32) -> (f32, f32, f32, f32)
  %more:4 = "kernel.wgmma"(%p, %p, %p, %p, %b, %i, %done#0, %done#1, %done#2, %done#3) {element = bf16, columns = 8 : i64, depth = 16 : i64, lhs_rows = 64 : i64, rhs_rows = 16 : i64, transposed = true, operandSegmentSizes = array<i32: 0, 0, 4, 1, 1, 4>} : (vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, memref<512xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  "kernel.wgmma_wait"() {running = 1 : i64} : () -> ()
  %last:4 = "kernel.wgmma"(%c, %i, %d, %i, %x, %x, %x, %x) {element = tf32, columns = 8 : i64, depth = 8 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<2048xf32, 3>, index, memref<256xf32, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  return
}
