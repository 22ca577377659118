// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (96)>, layout = array<i64: 16, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// A kernel with roles has four warps more than its schedule, which only fetch. Tensor maps are its last arguments, in the
// order of the fetches, weights first: rows of the whole buffer, boxes of a tile in rows of 128 bytes.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[TABLE:[^:]*]]: memref<1xi64, 1>, %[[WMAP:[^:]*]]: memref<128xi8, 4>, %[[XMAP:[^:]*]]: memref<128xi8, 4>)
// CHECK-SAME: kernel.block = 256 : i64
// CHECK-SAME: kernel.tensor_maps = [{argument = 1 : i64, columns = 64 : i64, element = "bf16", height = affine_map<()[s0] -> (96)>, plane_rows = 96 : i64, planes = 1 : i64, rows = 16 : i64, width = 128 : i64}
// CHECK-SAME: {argument = 0 : i64, {{.*}}height = affine_map<()[s0] -> (128)>, {{.*}}rows = 64 : i64, width = 128 : i64}]

// A ring is its slots, at a multiple of the 1024 bytes after which the swizzle repeats, and for each slot a barrier that says
// it is full, of one arrival, and one that says it is empty, of one for each group of 128 threads that computes. One thread
// makes them, and all meet before they are used.
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[XS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"} : () -> memref<8192xbf16, 3>
// CHECK: %[[XFULL:.*]] = "kernel.shared"() {symbol = "ring0_full"} : () -> memref<2xi64, 3>
// CHECK: %[[XEMPTY:.*]] = "kernel.shared"() {symbol = "ring0_empty"} : () -> memref<2xi64, 3>
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[THREAD]], %c0
// CHECK: scf.if %[[FIRST]] {
// CHECK-NEXT: "kernel.mbarrier_init"(%[[XFULL]], %c0) {count = 1 : i64}
// CHECK-NEXT: "kernel.mbarrier_init"(%[[XEMPTY]], %c0) {count = 1 : i64}
// CHECK-NEXT: "kernel.mbarrier_init"(%[[XFULL]], %c1) {count = 1 : i64}
// CHECK-NEXT: "kernel.mbarrier_init"(%[[XEMPTY]], %c1) {count = 1 : i64}
// CHECK-NOT: kernel.fence_mbarriers
// CHECK-NOT: kernel.barrier
// CHECK: %[[WS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring1"} : () -> memref<2048xbf16, 3>
// CHECK: %[[WFULL:.*]] = "kernel.shared"() {symbol = "ring1_full"} : () -> memref<2xi64, 3>
// CHECK: %[[WEMPTY:.*]] = "kernel.shared"() {symbol = "ring1_empty"} : () -> memref<2xi64, 3>
// CHECK: "kernel.fence_mbarriers"()
// CHECK-NEXT: }
// CHECK-NEXT: "kernel.barrier"() : () -> ()

// One thread of the producer fetches weights, which no kernel writes and nobody has to wait for: when a slot has been emptied
// once less often than it was filled, so with the other parity, it says how many bytes come and starts the copy. One of
// another warp does so with the rest.
// CHECK: %[[PRODUCER:.*]] = arith.cmpi uge, %[[THREAD]], %c128
// CHECK: scf.if %[[PRODUCER]] {
// CHECK: %[[ONE:.*]] = arith.cmpi eq, %[[THREAD]], %c128
// CHECK: scf.if %[[ONE]] {
// CHECK: scf.for %[[K:.*]] = %c0 to %c128 step %c64 {
// CHECK: %[[TURN:.*]] = arith.divui %[[K]], %c64
// CHECK: %[[SLOT:.*]] = arith.remui %[[TURN]], %c2
// CHECK: %[[TIMES:.*]] = arith.divui %[[TURN]], %c2
// CHECK: %[[PARITY:.*]] = arith.remui %[[TIMES]], %c2
// CHECK: %[[OTHER:.*]] = arith.subi %c1, %[[PARITY]]
// CHECK: "kernel.mbarrier_wait"(%[[WEMPTY]], %[[SLOT]], %[[OTHER]])
// CHECK: "kernel.mbarrier_expect"(%[[WFULL]], %[[SLOT]]) {bytes = 2048 : i64}
// CHECK: %[[AT:.*]] = arith.muli %[[SLOT]], %c1024
// CHECK: "kernel.tma_load"(%[[WFULL]], %[[SLOT]], %[[WMAP]], %[[K]], %[[COLUMN:.*]], %c0, %[[WS]], %[[AT]]) {constant = true, element = bf16}
// CHECK-NOT: "kernel.tma_load"
// CHECK: %[[OTHERS:.*]] = arith.cmpi eq, %[[THREAD]], %c160
// CHECK: scf.if %[[OTHERS]] {
// CHECK: scf.for %[[K:.*]] = %c0 to %c128 step %c64 {
// CHECK: "kernel.mbarrier_wait"(%[[XEMPTY]], %[[SLOT:.*]], %{{.*}})
// CHECK: "kernel.mbarrier_expect"(%[[XFULL]], %[[SLOT]]) {bytes = 8192 : i64}
// CHECK: "kernel.tma_load"(%[[XFULL]], %[[SLOT]], %[[XMAP]], %[[K]], %{{.*}}, %c0, %[[XS]], %{{.*}}) {element = bf16}
// CHECK-NOT: "kernel.tma_load"

// The others wait for the slots and multiply. Loops carry the accumulators one by one, in the order of the instruction: for
// every 8 columns two neighbours of a row, and those of the row 8 further.
// CHECK: } else {
// CHECK: scf.for %[[K:.*]] = %c0 to %c128 step %c64 iter_args(%[[R0:[^,]*]] = %{{[^,]*}}, %[[R1:[^,]*]] = %{{[^,]*}}, %[[R2:[^,]*]] = %{{[^,]*}}, %[[R3:[^,]*]] = %{{[^,]*}}, %[[R4:[^,]*]] =
// CHECK: "kernel.mbarrier_wait"(%[[XFULL]], %[[SLOT:.*]], %[[PARITY:.*]])
// CHECK: "kernel.mbarrier_wait"(%[[WFULL]], %[[SLOT]], %[[PARITY]])
// CHECK: %[[SUM:.*]]:8 = "kernel.wgmma"(%[[XS]], %{{.*}}, %[[WS]], %{{.*}}, %[[R0]], %[[R1]], %[[R4]], %{{[^,]*}}, %[[R2]], %[[R3]], %{{.*}}) {columns = 16 : i64, depth = 64 : i64, element = bf16, lhs_rows = 64 : i64, {{.*}}rhs_rows = 16 : i64}

// One thread of a group of four warps gives slots back, when the products that read them have ended: one wait for both.
// CHECK-NEXT: "kernel.wgmma_wait"() {running = 1 : i64}
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c128
// CHECK: %[[SPEAKS:.*]] = arith.cmpi eq, %[[LANE]], %c0
// CHECK: scf.if %[[SPEAKS]] {
// CHECK-NEXT: "kernel.mbarrier_arrive"(%[[XEMPTY]], %[[SLOT]])
// CHECK-NOT: kernel.wgmma_wait
// CHECK: "kernel.mbarrier_arrive"
// CHECK: scf.yield %[[SUM]]#0, %[[SUM]]#1, %[[SUM]]#4, %[[SUM]]#5, %[[SUM]]#2, %[[SUM]]#3, %[[SUM]]#6, %[[SUM]]#7

// Results are read after all products; a thread stores two neighbours at a time.
// CHECK: "kernel.wgmma_wait"({{.*}}) {running = 0 : i64}
// CHECK-COUNT-4: "kernel.store_global"({{.*}}) : (vector<2xf32>,
func.func @product(%x: memref<128x128xbf16>, %w: memref<96x128xbf16>, %y: memref<128x96xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %xs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<2x16x64xbf16, 3>
  %rows = "tile.program_id"() {axis = 0 : i64} : () -> index
  %columns = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %i = arith.muli %rows, %c64 : index
  %j = arith.muli %columns, %c16 : index
  %zeros = arith.constant dense<0.0> : vector<64x16x1xf32>
  %fetches = "tile.producer"() : () -> i1
  scf.if %fetches {
    scf.for %k = %c0 to %c128 step %c64 {
      %turn = arith.divui %k, %c64 : index
      "tile.fetch"(%xs, %turn, %x, %i, %j, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<2x64x64xbf16, 3>, index, memref<128x128xbf16>, index, index, index) -> ()
      "tile.fetch"(%ws, %turn, %w, %i, %j, %k) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<2x16x64xbf16, 3>, index, memref<96x128xbf16>, index, index, index) -> ()
    }
  } else {
    %sum = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> vector<64x16x1xf32> {
      %turn = arith.divui %k, %c64 : index
      %a = "tile.await"(%xs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
      %b = "tile.await"(%ws, %turn) : (memref<2x16x64xbf16, 3>, index) -> memref<16x64xbf16, 3>
      %more = "tile.dot_shared"(%a, %b, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<16x64xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
      "tile.release"(%xs, %turn) {running = 1 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
      "tile.release"(%ws, %turn) {running = 1 : i64} : (memref<2x16x64xbf16, 3>, index) -> ()
      scf.yield %more : vector<64x16x1xf32>
    }
    "tile.store"(%sum, %y, %i, %j, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x16x1xf32>, memref<128x96xf32>, index, index, index) -> ()
  }
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (128)>, layout = array<i64: 128, 64, 1, 1>, walk = "grid", warps = 8 : i64}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module {
module @kernels {

// Two groups of warps release a slot, and each multiplies 64 rows of it. The producer gives its registers to them, which the
// assembler allows where the number of resident blocks says how many there are. What they exchange needs barriers that the
// producer does not come to. That all lanes of a warp are of one group is said where all threads are together. Each group has
// a barrier where it waits for its turn, until the group before it, or before the first one the last, passes that on.
// CHECK-LABEL: func.func @groups(
// CHECK-SAME: kernel.block = 384 : i64
// CHECK-SAME: kernel.resident = 1 : i64
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: "kernel.mbarrier_init"(%[[FULL:.*]], %c0) {count = 1 : i64}
// CHECK: "kernel.mbarrier_init"(%[[EMPTY:.*]], %c0) {count = 2 : i64}
// CHECK: "kernel.barrier"() : () -> ()
// CHECK: %[[NUMBER:.*]] = arith.divui %[[THREAD]], %c128
// CHECK: %[[GROUP:.*]] = "kernel.uniform"(%[[NUMBER]])
// CHECK: %[[LAST:.*]] = arith.cmpi eq, %[[GROUP]], %c1
// CHECK: scf.if %[[LAST]] {
// CHECK-NEXT: "kernel.group_barrier"(%c2) {arrive = true, threads = 256 : i64}
// CHECK: scf.if
// CHECK-NEXT: "kernel.set_registers"() {count = 40 : i64, more = false}
// CHECK: } else {
// CHECK-NEXT: "kernel.set_registers"() {count = 232 : i64, more = true}
// CHECK: %[[MINE:.*]] = arith.addi %[[GROUP]], %c2
// CHECK-NEXT: "kernel.group_barrier"(%[[MINE]]) {threads = 256 : i64}
// CHECK: %[[ROWS:.*]] = arith.muli %[[GROUP]], %c4096
// CHECK: %[[SUM:.*]]:4 = "kernel.wgmma"(%{{.*}}, %[[ROWS]], %{{.*}}, %c0, {{.*}}) {{{.*}}lhs_rows = 128 : i64
// CHECK-NEXT: "kernel.wgmma_wait"(%[[SUM]]#0, %[[SUM]]#1, %[[SUM]]#2, %[[SUM]]#3) {running = 0 : i64}
// CHECK: %[[FOLLOWING:.*]] = arith.addi %[[GROUP]], %c1
// CHECK: %[[NEXT:.*]] = arith.remui %[[FOLLOWING]], %c2
// CHECK: %[[THEIRS:.*]] = arith.addi %[[NEXT]], %c2
// CHECK-NEXT: "kernel.group_barrier"(%[[THEIRS]]) {arrive = true, threads = 256 : i64}
// CHECK: "kernel.store_shared"
// CHECK: "kernel.barrier"() {threads = 256 : i64}
// CHECK: "kernel.load_shared"
func.func @groups(%x: memref<128x64xbf16>, %w: memref<8x64xbf16>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x128x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<1x8x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<128x8x1xf32>
  %fetches = "tile.producer"() : () -> i1
  scf.if %fetches {
    "tile.fetch"(%xs, %c0, %x, %c0, %c0, %c0) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<1x128x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
    "tile.fetch"(%ws, %c0, %w, %c0, %c0, %c0) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<1x8x64xbf16, 3>, index, memref<8x64xbf16>, index, index, index) -> ()
  } else {
    %a = "tile.await"(%xs, %c0) : (memref<1x128x64xbf16, 3>, index) -> memref<128x64xbf16, 3>
    %b = "tile.await"(%ws, %c0) : (memref<1x8x64xbf16, 3>, index) -> memref<8x64xbf16, 3>
    "tile.take_turn"() : () -> ()
    %product = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<128x64xbf16, 3>, memref<8x64xbf16, 3>, vector<128x8x1xf32>) -> vector<128x8x1xf32>
    "tile.pass_turn"() : () -> ()
    %sums = "tile.reduce"(%product) {kind = "add", axes = array<i64: 0>} : (vector<128x8x1xf32>) -> vector<1x8x1xf32>
    "tile.store"(%sums, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (n)>} : (vector<1x8x1xf32>, memref<8xf32>, index, index, index) -> ()
  }
  return
}

}
}

// -----

#h = {name = "h", extent = affine_map<()[n] -> (8)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#t = {name = "t", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "loop", warps = 4 : i64}
#d = {name = "d", extent = affine_map<()[n] -> (128)>, layout = array<i64: 128, 4, 2, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 96>}} {
module @kernels {

// Rows of 256 bytes are copied as two blocks of 128 bytes, side by side, that count for one barrier. Where rows end at a
// limit, everything else in the offset is the plane, and rows of a plane from the limit on read as zero. With one slot every
// thread has every role, and the first one copies.
// CHECK-LABEL: func.func @planes(
// CHECK-SAME: kernel.block = 128 : i64
// CHECK-SAME: {argument = 0 : i64, columns = 64 : i64, element = "bf16", height = affine_map<()[s0] -> (s0)>, plane_rows = 96 : i64, planes = 4 : i64, rows = 64 : i64, width = 128 : i64}
// CHECK: %[[HEAD:.*]] = "kernel.block_id"() {dimension = "x"}
// CHECK: %[[PLANE:.*]] = affine.apply affine_map<()[s0] -> (s0 floordiv 2)>()[%[[HEAD]]]
// CHECK: scf.if
// CHECK: "kernel.mbarrier_expect"(%[[FULL:.*]], %c0) {bytes = 16384 : i64}
// CHECK-NEXT: "kernel.tma_load"(%[[FULL]], %c0, %[[MAP:.*]], %c0, %c64, %[[PLANE]], %[[RING:.*]], %c0)
// CHECK-NEXT: "kernel.tma_load"(%[[FULL]], %c0, %[[MAP]], %c64, %c64, %[[PLANE]], %[[RING]], %c4096)
func.func @planes(%v: memref<4x96x128xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#h, #t, #d], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %ring = "tile.ring"() : () -> memref<1x64x128xbf16, 3>
  %head = "tile.program_id"() {axis = 0 : i64} : () -> index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  "tile.fetch"(%ring, %c0, %v, %head, %c64, %c0, %n) {rows = array<i64: 1>, column = 2 : i64, limit = affine_map<()[n] -> (n)>, map = affine_map<(h, t, d)[n] -> (h floordiv 2, t, d)>} : (memref<1x64x128xbf16, 3>, index, memref<4x96x128xbf16>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#d = {name = "d", extent = affine_map<() -> (96)>, layout = array<i64: 96, 4, 2, 1>, walk = "loop", lanes_of = "t"}
#t = {name = "t", extent = affine_map<() -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

module {
module @kernels {

// Rows of 192 bytes take two blocks of 128: the second copy runs past the row, and products, of 96 columns or to a depth of
// 96, do not read what it brings there.
// CHECK-LABEL: func.func @half_a_swizzle(
// CHECK-SAME: {argument = 0 : i64, columns = 64 : i64, {{.*}}rows = 64 : i64, width = 192 : i64}
// CHECK-SAME: {argument = 1 : i64, columns = 64 : i64, {{.*}}rows = 64 : i64, width = 96 : i64}
// CHECK: %[[QS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"} : () -> memref<8192xbf16, 3>
// CHECK: %[[VS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring1"} : () -> memref<8192xbf16, 3>
// CHECK: "kernel.mbarrier_expect"(%[[FULL:.*]], %c0) {bytes = 16384 : i64}
// CHECK-NEXT: "kernel.tma_load"(%[[FULL]], %c0, %[[MAP:.*]], %c96, %c0, %c0, %[[QS]], %c0)
// CHECK-NEXT: "kernel.tma_load"(%[[FULL]], %c0, %[[MAP]], %c160, %c0, %c0, %[[QS]], %c4096)
// CHECK: "kernel.tma_load"({{.*}}, %c0, %c0, %c0, %[[VS]], %c0)
// CHECK: "kernel.tma_load"({{.*}}, %c64, %c0, %c0, %[[VS]], %c4096)
// CHECK: "kernel.wgmma"(%[[QS]], %c0, %[[VS]], %c0, {{.*}}) {columns = 64 : i64, depth = 96 : i64, element = bf16, lhs_rows = 64 : i64, {{.*}}rhs_rows = 64 : i64}
// CHECK: "kernel.wgmma"({{.*}}%[[VS]], %c0, {{.*}}) {columns = 96 : i64, depth = 64 : i64, element = bf16, {{.*}}rhs_rows = 64 : i64, transposed = true}
func.func @half_a_swizzle(%q: memref<64x2x96xbf16>, %v: memref<64x96xbf16>, %y: memref<64x96xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x96xbf16, 3>
  %vs = "tile.ring"() : () -> memref<1x64x96xbf16, 3>
  %c0 = arith.constant 0 : index
  %scores = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x96x1xf32>
  "tile.fetch"(%qs, %c0, %q, %c0, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, 1, d)>} : (memref<1x64x96xbf16, 3>, index, memref<64x2x96xbf16>, index, index, index) -> ()
  "tile.fetch"(%vs, %c0, %v, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<1x64x96xbf16, 3>, index, memref<64x96xbf16>, index, index, index) -> ()
  %a = "tile.await"(%qs, %c0) : (memref<1x64x96xbf16, 3>, index) -> memref<64x96xbf16, 3>
  %b = "tile.await"(%vs, %c0) : (memref<1x64x96xbf16, 3>, index) -> memref<64x96xbf16, 3>
  %x = "tile.dot_shared"(%a, %b, %scores) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x96xbf16, 3>, memref<64x96xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
  %p = arith.truncf %x : vector<64x1x64xf32> to vector<64x1x64xbf16>
  %mixed = "tile.dot_shared"(%p, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x96xbf16, 3>, vector<64x96x1xf32>) -> vector<64x96x1xf32>
  "tile.store"(%mixed, %y, %c0, %c0, %c0) {map = affine_map<(m, d, t) -> (m, d)>} : (vector<64x96x1xf32>, memref<64x96xf32>, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// Where several products run on from turn to turn, LLVM may not take the loop apart: it would make the zeros that one starts
// with while another runs. Lengths are 32-bit and not negative.
// CHECK-LABEL: func.func @together(
// CHECK-SAME: %[[TABLE:[^:]*]]: memref<1xi64, 1>,
// CHECK: %[[LONG:.*]] = "kernel.load_global"(%[[TABLE]], %c0)
// CHECK: %[[WORD:.*]] = arith.trunci %[[LONG]] : i64 to i32
// CHECK: %[[N:.*]] = arith.index_castui %[[WORD]] : i32 to index
// CHECK: scf.for
// CHECK-COUNT-2: "kernel.tma_load"({{.*}}) {constant = true, element = bf16}
// CHECK: scf.for
// CHECK: "kernel.tma_load"({{.*}}) {element = bf16}
// CHECK-NOT: loop_annotation
// CHECK: } else {
// CHECK: scf.for
// CHECK-COUNT-2: "kernel.wgmma"(
// CHECK: } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
// CHECK: affine.apply affine_map<{{.*}}>({{.*}})[%[[N]]
func.func @together(%x: memref<128x128xbf16>, %w: memref<8x128xbf16>, %v: memref<8x128xbf16>, %y: memref<128x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %xs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<2x8x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x8x64xbf16, 3>
  %rows = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %i = arith.muli %rows, %c64 : index
  %zeros = arith.constant dense<0.0> : vector<64x8x1xf32>
  %fetches = "tile.producer"() : () -> i1
  scf.if %fetches {
    scf.for %k = %c0 to %c128 step %c64 {
      %turn = arith.divui %k, %c64 : index
      "tile.fetch"(%xs, %turn, %x, %i, %c0, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<2x64x64xbf16, 3>, index, memref<128x128xbf16>, index, index, index) -> ()
      "tile.fetch"(%ws, %turn, %w, %i, %c0, %k) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<2x8x64xbf16, 3>, index, memref<8x128xbf16>, index, index, index) -> ()
      "tile.fetch"(%vs, %turn, %v, %i, %c0, %k) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<2x8x64xbf16, 3>, index, memref<8x128xbf16>, index, index, index) -> ()
    }
  } else {
    %sums:2 = scf.for %k = %c0 to %c128 step %c64 iter_args(%one = %zeros, %two = %zeros) -> (vector<64x8x1xf32>, vector<64x8x1xf32>) {
      %turn = arith.divui %k, %c64 : index
      %a = "tile.await"(%xs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
      %b = "tile.await"(%ws, %turn) : (memref<2x8x64xbf16, 3>, index) -> memref<8x64xbf16, 3>
      %c = "tile.await"(%vs, %turn) : (memref<2x8x64xbf16, 3>, index) -> memref<8x64xbf16, 3>
      %first = "tile.dot_shared"(%a, %b, %one) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<8x64xbf16, 3>, vector<64x8x1xf32>) -> vector<64x8x1xf32>
      %second = "tile.dot_shared"(%a, %c, %two) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<8x64xbf16, 3>, vector<64x8x1xf32>) -> vector<64x8x1xf32>
      scf.yield %first, %second : vector<64x8x1xf32>, vector<64x8x1xf32>
    }
    %sum = arith.addf %sums#0, %sums#1 : vector<64x8x1xf32>
    "tile.store"(%sum, %y, %i, %c0, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1)>} : (vector<64x8x1xf32>, memref<128x8xf32>, index, index, index, index) -> ()
  }
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#d = {name = "d", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 2, 1>, walk = "loop", lanes_of = "t"}
#t = {name = "t", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 2, 1>, walk = "loop"}

module {
module @kernels {

// Two products run side by side, and what is computed from the first one waits for that alone. Where a product is said to have
// been made, no other wait is needed, and none after a loop of them.
// CHECK-LABEL: func.func @side_by_side(
// CHECK: scf.for
// CHECK: %[[FIRST:.*]]:8 = "kernel.wgmma"(
// CHECK-NEXT: %[[SECOND:.*]]:8 = "kernel.wgmma"(
// CHECK-NEXT: %[[SCORES:.*]]:8 = "kernel.wgmma_wait"(%[[FIRST]]#0, {{.*}}) {running = 1 : i64}
// CHECK-NEXT: vector.from_elements %[[SCORES]]#0, %[[SCORES]]#1
// CHECK: "kernel.warp_reduce"
// CHECK: %[[MIXED:.*]]:8 = "kernel.wgmma_wait"(%[[SECOND]]#0, {{.*}}) {running = 0 : i64}
// CHECK-NEXT: vector.from_elements %[[MIXED]]#0, %[[MIXED]]#1
// CHECK-NOT: "kernel.wgmma_wait"
// CHECK: return
func.func @side_by_side(%q: memref<64x16xbf16>, %k: memref<16x16xbf16>, %v: memref<16x16xbf16>, %y: memref<64x16xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x16xbf16, 3>
  %ks = "tile.ring"() : () -> memref<1x16x16xbf16, 3>
  %vs = "tile.ring"() : () -> memref<1x16x16xbf16, 3>
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %none = arith.constant dense<0.0> : vector<64x1x16xf32>
  %zeros = arith.constant dense<0.0> : vector<64x16x1xf32>
  %before = arith.constant dense<1.0> : vector<64x1x16xbf16>
  "tile.fetch"(%qs, %c0, %q, %c0, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x64x16xbf16, 3>, index, memref<64x16xbf16>, index, index, index) -> ()
  "tile.fetch"(%ks, %c0, %k, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<1x16x16xbf16, 3>, index, memref<16x16xbf16>, index, index, index) -> ()
  "tile.fetch"(%vs, %c0, %v, %c0, %c0, %c0) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t) -> (t, d)>} : (memref<1x16x16xbf16, 3>, index, memref<16x16xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x64x16xbf16, 3>, index) -> memref<64x16xbf16, 3>
  %keys = "tile.await"(%ks, %c0) : (memref<1x16x16xbf16, 3>, index) -> memref<16x16xbf16, 3>
  %values = "tile.await"(%vs, %c0) : (memref<1x16x16xbf16, 3>, index) -> memref<16x16xbf16, 3>
  %all = scf.for %turn = %c0 to %c64 step %c16 iter_args(%so_far = %zeros) -> vector<64x16x1xf32> {
    %product = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x16xbf16, 3>, memref<16x16xbf16, 3>, vector<64x1x16xf32>) -> vector<64x1x16xf32>
    %mix = "tile.dot_shared"(%before, %values, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x16xbf16>, memref<16x16xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
    %scores = "tile.made"(%product) {running = 1 : i64} : (vector<64x1x16xf32>) -> vector<64x1x16xf32>
    %sums = "tile.reduce"(%scores) {kind = "add", axes = array<i64: 2>} : (vector<64x1x16xf32>) -> vector<64x1x1xf32>
    %mixed = "tile.made"(%mix) {running = 0 : i64} : (vector<64x16x1xf32>) -> vector<64x16x1xf32>
    %factor = vector.broadcast %sums : vector<64x1x1xf32> to vector<64x16x1xf32>
    %result = arith.mulf %mixed, %factor : vector<64x16x1xf32>
    scf.yield %result : vector<64x16x1xf32>
  }
  "tile.store"(%all, %y, %c0, %c0, %c0) {map = affine_map<(m, d, t) -> (m, d)>} : (vector<64x16x1xf32>, memref<64x16xf32>, index, index, index) -> ()
  return
}

}
}
