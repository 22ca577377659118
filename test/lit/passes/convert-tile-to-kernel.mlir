// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-kernel,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[past, seq] -> (seq)>, layout = array<i64: 4, 4, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[past, seq] -> (1024)>, layout = array<i64: 256, 32, 4, 1>, walk = "grid"}

module attributes {primop.symbols = {past = array<i64: 0, 100>, seq = array<i64: 1, 64>}} {
module @kernels {

// A kernel takes its buffers as flat arrays and the table of symbols. The axis that is last in the grid's order lies
// along x, and neighbouring threads along the axis of the vectors.
// CHECK: gpu.module @kernels
// CHECK-LABEL: func.func @layout(
// CHECK-SAME: %[[X:[^:]*]]: memref<65536xf32, 1>, %[[W:[^:]*]]: memref<1024xf32, 1>, %[[Y:[^:]*]]: memref<65536xf32, 1>, %[[TABLE:[^:]*]]: memref<2xi64, 1>)
// CHECK-SAME: kernel.block = 128 : i64
// CHECK-SAME: kernel.grid = [affine_map<()[s0, s1] -> (4)>, affine_map<()[s0, s1] -> ((s1 + 3) floordiv 4)>, affine_map<()[s0, s1] -> ()>]
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c32
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: "kernel.load_global"(%[[TABLE]], %c1) {cache = "plain"}
// CHECK: %[[ROWS:.*]] = "kernel.block_id"() {dimension = "y"}
// CHECK: %[[COLUMNS:.*]] = "kernel.block_id"() {dimension = "x"}

// Each thread reads 4 neighbours at a time, 128 apart; weights stream by the caches.
// CHECK: %[[ROW:.*]] = arith.addi %{{.*}}, %[[WARP]]
// CHECK: %[[STEP:.*]] = arith.muli %[[LANE]], %c4
// CHECK: %[[COLUMN:.*]] = arith.addi %{{.*}}, %[[STEP]]
// CHECK: %[[AT:.*]] = affine.apply affine_map<(d0, d1) -> (d0 * 1024 + d1)>(%[[ROW]], %[[COLUMN]])
// CHECK: "kernel.load_global"(%[[X]], %[[AT]]) {cache = "plain"} {{.*}} -> vector<4xf32>
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c128
// CHECK: "kernel.load_global"(%[[X]], %[[FURTHER]]) {cache = "plain"} {{.*}} -> vector<4xf32>
// CHECK: "kernel.load_global"(%[[W]], %[[COLUMN]]) {cache = "stream"} {{.*}} -> vector<4xf32>
// CHECK: "kernel.store_global"(%{{.*}}, %[[Y]], %[[AT]]) : (vector<4xf32>
// CHECK: "kernel.store_global"(%{{.*}}, %[[Y]], %[[FURTHER]])
func.func @layout(%x: memref<64x1024xf32>, %w: memref<1024xf32>, %y: memref<64x1024xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %seq = "tile.symbol"() {symbol = "seq"} : () -> index
  %rows = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c4 = arith.constant 4 : index
  %i = arith.muli %rows, %c4 : index
  %columns = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c256 = arith.constant 256 : index
  %j = arith.muli %columns, %c256 : index
  %tile = "tile.load"(%x, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (memref<64x1024xf32>, index, index) -> vector<4x256xf32>
  %row = "tile.load"(%w, %i, %j) {map = affine_map<(i, j) -> (j)>} : (memref<1024xf32>, index, index) -> vector<1x256xf32>
  %rows_of_it = vector.broadcast %row : vector<1x256xf32> to vector<4x256xf32>
  %sum = arith.addf %tile, %rows_of_it : vector<4x256xf32>
  "tile.store"(%sum, %y, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (vector<4x256xf32>, memref<64x1024xf32>, index, index) -> ()
  return
}

}
}

// -----

#a = {name = "a", extent = affine_map<() -> (2)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#b = {name = "b", extent = affine_map<() -> (3)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#c = {name = "c", extent = affine_map<() -> (5)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#d = {name = "d", extent = affine_map<() -> (64)>, layout = array<i64: 32, 32, 1, 1>, walk = "grid"}

module {
module @kernels {

// Four axes do not fit a launch's three dimensions: all are folded into x, the last one fastest.
// CHECK-LABEL: func.func @folded(
// CHECK-SAME: kernel.grid = [affine_map<() -> (2, 3, 5, 2)>, affine_map<() -> ()>, affine_map<() -> ()>]
// CHECK: %[[BLOCK:.*]] = "kernel.block_id"() {dimension = "x"}
// CHECK: %[[ABC:.*]] = arith.divui %[[BLOCK]], %c2
// CHECK: %[[AB:.*]] = arith.divui %[[ABC]], %c5
// CHECK: arith.remui %[[AB]], %c3
func.func @folded(%y: memref<2x3x5x64xindex>) attributes {tile.kernel, tile.arguments = ["write"], tile.schedule = {axes = [#a, #b, #c, #d], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %b = "tile.program_id"() {axis = 1 : i64} : () -> index
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 2, 2, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 64, 16, 4, 1>, walk = "loop"}

module {
module @kernels {

// A reduction adds a thread's registers and elements, and then over the 16 lanes that share the row. All of them have
// the sum; the first one writes.
// CHECK-LABEL: func.func @warp(
// CHECK: %[[LANE:.*]] = arith.remui %{{.*}}, %c16
// CHECK: %[[OWN:.*]] = vector.extract
// CHECK: %[[SUM:.*]] = "kernel.warp_reduce"(%[[OWN]]) {kind = "add", lanes = array<i64: 1, 2, 4, 8>} : (f32) -> f32
// CHECK-NOT: kernel.shared
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[LANE]], %c0
// CHECK: scf.if %[[FIRST]] {
// CHECK: "kernel.store_global"(%[[SUM]]
func.func @warp(%x: memref<64x256xf32>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %program, %c2 : index
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %i, %c0) {map = affine_map<(i, k) -> (i, k)>} : (memref<64x256xf32>, index, index) -> vector<2x64xf32>
  %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 1>} : (vector<2x64xf32>) -> vector<2x1xf32>
  "tile.store"(%sum, %y, %i, %c0) {map = affine_map<(i, k) -> (i)>} : (vector<2x1xf32>, memref<64xf32>, index, index) -> ()
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 128, 2, 1>, walk = "loop"}

module {
module @kernels {

// Beyond a warp one lane of each leaves its value in shared memory, and every thread combines those of the four warps
// after a barrier.
// CHECK-LABEL: func.func @block(
// CHECK-SAME: kernel.block = 128
// CHECK: %[[WARP_MAX:.*]] = "kernel.warp_reduce"(%{{.*}}) {kind = "max", lanes = array<i64: 1, 2, 4, 8, 16>}
// CHECK: %[[SHARED:.*]] = "kernel.shared"() {symbol = "exchange0"} : () -> memref<4xf32, 3>
// CHECK: scf.if
// CHECK: "kernel.store_shared"(%[[WARP_MAX]], %[[SHARED]],
// CHECK: "kernel.barrier"()
// CHECK-COUNT-4: "kernel.load_shared"(%[[SHARED]],
// CHECK-COUNT-2: arith.maximumf
// CHECK: %[[MAX:.*]] = arith.maximumf
// CHECK-NOT: "kernel.barrier"()
// CHECK: "kernel.store_global"(%[[MAX]]
func.func @block(%x: memref<256xf32>, %y: memref<1xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<256xf32>, index) -> vector<256xf32>
  %max = "tile.reduce"(%tile) {kind = "max", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  "tile.store"(%max, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<1xf32>, index) -> ()
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 64, 64, 1, 1>, walk = "loop"}

module {
module @kernels {

// In a loop a second barrier stands after the reads, because the next turn writes again.
// CHECK-LABEL: func.func @block_loop(
// CHECK: scf.for
// CHECK: kernel.store_shared
// CHECK: "kernel.barrier"()
// CHECK-COUNT-2: kernel.load_shared
// CHECK: "kernel.barrier"()
// CHECK-NOT: kernel.load_shared
// CHECK: return
func.func @block_loop(%x: memref<256xf32>, %y: memref<1xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  scf.for %k = %c0 to %c256 step %c64 {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<256xf32>, index) -> vector<64xf32>
    %max = "tile.reduce"(%tile) {kind = "max", axes = array<i64: 0>} : (vector<64xf32>) -> vector<1xf32>
    "tile.store"(%max, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<1xf32>, index) -> ()
  }
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 128, 2, 1>, walk = "loop"}

module {
module @kernels {

// An axis that keeps the number of its threads is combined inside each of them; spread gives it back to their elements.
// How many blocks shall be resident is the schedule's to say.
// CHECK-LABEL: func.func @parts(
// CHECK-SAME: kernel.resident = 3 : i64
// CHECK: %[[PAIR:.*]] = "kernel.load_global"({{.*}} -> vector<2xf32>
// CHECK-NOT: kernel.warp_reduce
// CHECK-NOT: kernel.barrier
// CHECK: %[[SUM:.*]] = vector.extract %{{.*}}[0] : f32 from vector<1xf32>
// CHECK: %[[REPEATED:.*]] = vector.broadcast %[[SUM]] : f32 to vector<2xf32>
// CHECK: "kernel.store_global"(%[[REPEATED]],
func.func @parts(%x: memref<256xf32>, %y: memref<256xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, resident = 3 : i64}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<256xf32>, index) -> vector<256xf32>
  %parts = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<128xf32>
  %repeated = "tile.spread"(%parts) : (vector<128xf32>) -> vector<256xf32>
  "tile.store"(%repeated, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<256xf32>, memref<256xf32>, index) -> ()
  return
}

}
}

// -----

#n = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 16, 16, 1, 1>, walk = "grid"}

module {
module @kernels {

// A block is whole warps; the threads that the schedule does not know repeat the work of others and write nothing.
// CHECK-LABEL: func.func @padded(
// CHECK-SAME: kernel.block = 32
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c16
// CHECK: %[[AT:.*]] = arith.addi %c0, %[[LANE]]
// CHECK: "kernel.load_global"(%{{.*}}, %[[AT]])
// CHECK: %[[KNOWN:.*]] = arith.cmpi ult, %[[THREAD]], %c16
// CHECK: scf.if %[[KNOWN]]
// CHECK: kernel.store_global
func.func @padded(%x: memref<16xf32>, %y: memref<16xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(n) -> (n)>} : (memref<16xf32>, index) -> vector<16xf32>
  "tile.store"(%tile, %y, %c0) {map = affine_map<(n) -> (n)>} : (vector<16xf32>, memref<16xf32>, index) -> ()
  return
}

}
}

// -----

#n = {name = "n", extent = affine_map<() -> (99)>, layout = array<i64: 64, 32, 2, 1>, walk = "grid"}

module {
module @kernels {

// A mask that may differ inside a vector is taken element by element: reads go to the buffer's start instead.
// CHECK-LABEL: func.func @masked(
// CHECK: %[[EXIST:.*]] = arith.cmpi sge, %{{.*}}, %{{.*}} : vector<2xi32>
// CHECK: %[[FIRST:.*]] = vector.extract %[[EXIST]][0]
// CHECK: %[[SAFE:.*]] = arith.select %[[FIRST]], %{{.*}}, %c0
// CHECK: "kernel.load_global"(%{{.*}}, %[[SAFE]]) {{.*}} -> f32
// CHECK: vector.extract %[[EXIST]][1]
// CHECK: %[[READ:.*]] = vector.from_elements {{.*}} : vector<2xf32>
// CHECK: arith.select %[[EXIST]], %[[READ]]
// CHECK-COUNT-2: scf.if
func.func @masked(%x: memref<99xf32>, %y: memref<99xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c64 = arith.constant 64 : index
  %i = arith.muli %program, %c64 : index
  %tile = "tile.load"(%x, %i) {map = affine_map<(n) -> (n)>, mask = affine_map<(n) -> (98 - n)>} : (memref<99xf32>, index) -> vector<64xf32>
  "tile.store"(%tile, %y, %i) {map = affine_map<(n) -> (n)>, mask = affine_map<(n) -> (98 - n)>} : (vector<64xf32>, memref<99xf32>, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[n] -> (100)>, layout = array<i64: 128, 1, 4, 1>, walk = "grid"}

module attributes {primop.symbols = {n = array<i64: 1, 96>}} {
module @kernels {

// A mask that cannot cut a vector, because it ends at a multiple of its length, is one flag for all of it. Where rows may be
// missing, the vectors of a row share one safe address, as far as they would lie inside the buffer at its start.
// CHECK-LABEL: func.func @whole(
// CHECK-SAME: %[[X:[^:]*]]: memref<12288xf32, 1>, %[[Y:[^:]*]]: memref<9600xf32, 1>
// CHECK: %[[LEFT:.*]] = affine.apply affine_map<(d0)[s0] -> (-d0 + s0 - 1)>
// CHECK: %[[ROW:.*]] = arith.cmpi sge, %[[LEFT]], %c0
// CHECK: %[[SAFE:.*]] = arith.select %[[ROW]], %{{.*}}, %c0
// CHECK: "kernel.load_global"(%[[X]], %[[SAFE]]) {{.*}} -> vector<4xf32>
// CHECK: %[[NEXT:.*]] = arith.addi %[[SAFE]], %c4
// CHECK: "kernel.load_global"(%[[X]], %[[NEXT]]) {{.*}} -> vector<4xf32>
// CHECK-NOT: -> f32
// CHECK: scf.if
// CHECK-NOT: vector.extract
// CHECK: "kernel.store_global"(%{{.*}}, %[[Y]], %{{.*}}) : (vector<4xf32>
func.func @whole(%x: memref<96x128xf32>, %y: memref<96x100xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c64 = arith.constant 64 : index
  %c0 = arith.constant 0 : index
  %i = arith.muli %program, %c64 : index
  %tile = "tile.load"(%x, %i, %c0, %n) {map = affine_map<(m, n)[s] -> (m, n)>, mask = affine_map<(m, n)[s] -> (s - m - 1)>} : (memref<96x128xf32>, index, index, index) -> vector<64x128xf32>
  "tile.store"(%tile, %y, %i, %c0, %n) {map = affine_map<(m, n)[s] -> (m, n)>, mask = affine_map<(m, n)[s] -> (s - m - 1, 99 - n)>} : (vector<64x128xf32>, memref<96x100xf32>, index, index, index) -> ()
  return
}

}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 8, 1, 8, 1>, walk = "loop"}

module {
module @kernels {

// A product of bf16 is multiply-adds in f32, one for each element along k; pairs become f32 by moving their bits.
// CHECK-LABEL: func.func @dot(
// CHECK: %[[WORDS:.*]] = vector.bitcast %{{.*}} : vector<8xbf16> to vector<4xi32>
// CHECK: %[[PAIR:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[LOW:.*]] = arith.shli %[[PAIR]], %c16
// CHECK: %[[HIGH:.*]] = arith.andi %[[PAIR]], %c-65536
// CHECK: arith.bitcast %[[LOW]] : i32 to f32
// CHECK: arith.bitcast %[[HIGH]] : i32 to f32
// CHECK-COUNT-16: math.fma {{.*}} : f32
// CHECK-NOT: math.fma
func.func @dot(%x: memref<256xbf16>, %w: memref<64x256xbf16>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x1xf32>
  %row = "tile.load"(%x, %c0, %c0) {map = affine_map<(n, k) -> (k)>} : (memref<256xbf16>, index, index) -> vector<1x8xbf16>
  %columns = "tile.load"(%w, %c0, %c0) {map = affine_map<(n, k) -> (n, k)>} : (memref<64x256xbf16>, index, index) -> vector<64x8xbf16>
  %sum = "tile.dot"(%row, %columns, %zeros) : (vector<1x8xbf16>, vector<64x8xbf16>, vector<64x1xf32>) -> vector<64x1xf32>
  "tile.store"(%sum, %y, %c0, %c0) {map = affine_map<(n, k) -> (n)>} : (vector<64x1xf32>, memref<64xf32>, index, index) -> ()
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

module {
module @kernels {

// The threads of an axis may be spread over a cluster of blocks, neighbours along x. Blocks combine after their
// threads, each reading what the others left. A block says when it has read, and waits for the others before it ends.
// CHECK-LABEL: func.func @cluster(
// CHECK-SAME: kernel.block = 32
// CHECK-SAME: kernel.cluster = 4
// CHECK: %[[RANK:.*]] = "kernel.cluster_rank"()
// CHECK: kernel.warp_reduce
// CHECK: %[[SHARED:.*]] = "kernel.shared"() {symbol = "exchange0"}
// CHECK: kernel.store_shared
// CHECK: "kernel.cluster_arrive"()
// CHECK-NEXT: "kernel.cluster_wait"()
// CHECK-COUNT-4: "kernel.load_remote"(%[[SHARED]], %{{.*}}, %{{.*}}) : (memref<1xf32, 3>, index, index) -> f32
// CHECK: "kernel.cluster_arrive"(%{{.*}}) : (f32) -> ()
// CHECK: kernel.store_global
// CHECK: "kernel.cluster_wait"()
// CHECK-NEXT: return
func.func @cluster(%x: memref<256xf32>, %y: memref<1xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<256xf32>, index) -> vector<256xf32>
  %max = "tile.reduce"(%tile) {kind = "max", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  "tile.store"(%max, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<1xf32>, index) -> ()
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

module {
module @kernels {

// Between two exchanges of a cluster the same wait stands, so that none is overtaken.
// CHECK-LABEL: func.func @cluster_twice(
// CHECK: "kernel.cluster_arrive"()
// CHECK-NEXT: "kernel.cluster_wait"()
// CHECK-COUNT-4: kernel.load_remote
// CHECK: "kernel.cluster_arrive"(%{{.*}}) : (f32) -> ()
// CHECK: kernel.store_shared
// CHECK: "kernel.cluster_wait"()
// CHECK-NEXT: "kernel.cluster_arrive"()
// CHECK-NEXT: "kernel.cluster_wait"()
// CHECK-COUNT-4: kernel.load_remote
// CHECK: "kernel.cluster_arrive"(%{{.*}}) : (f32) -> ()
// CHECK: kernel.store_global
// CHECK: "kernel.cluster_wait"()
// CHECK-NEXT: return
func.func @cluster_twice(%x: memref<256xf32>, %y: memref<1xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<256xf32>, index) -> vector<256xf32>
  %max = "tile.reduce"(%tile) {kind = "max", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  %both = arith.addf %max, %sum : vector<1xf32>
  "tile.store"(%both, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<1xf32>, index) -> ()
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

module {
module @kernels {

// In an arm of a branch the wait stands at the end of the arm.
// CHECK-LABEL: func.func @cluster_arm(
// CHECK: scf.if
// CHECK: "kernel.cluster_arrive"()
// CHECK-NEXT: "kernel.cluster_wait"()
// CHECK-COUNT-4: kernel.load_remote
// CHECK: "kernel.cluster_arrive"(%{{.*}}) : (f32) -> ()
// CHECK: kernel.store_global
// CHECK: "kernel.cluster_wait"()
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @cluster_arm(%x: memref<256xf32>, %y: memref<1xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %whole = arith.cmpi sle, %program, %c0 : index
  scf.if %whole {
    %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<256xf32>, index) -> vector<256xf32>
    %max = "tile.reduce"(%tile) {kind = "max", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
    "tile.store"(%max, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<1xf32>, index) -> ()
  }
  return
}

}
}

// -----

#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 32, 1, 1>, walk = "loop"}

module {
module @kernels {

// Parts with a maximum each: a warp finds the largest, every lane mends its part to that one, and the parts are added.
// Maxima below the floor count as the floor.
// CHECK-LABEL: func.func @online_warp(
// CHECK: %[[OWN:.*]] = "kernel.load_global"(%arg0,
// CHECK: %[[PART:.*]] = "kernel.load_global"(%arg1,
// CHECK: %[[MAX:.*]] = "kernel.warp_reduce"(%[[OWN]]) {kind = "max", lanes = array<i64: 1, 2, 4, 8, 16>}
// CHECK-DAG: %[[FLOOR:.*]] = arith.constant -1.000000e+02 : f32
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 2.000000e+00 : f32
// CHECK-DAG: %[[BEFORE:.*]] = arith.maximumf %[[OWN]], %[[FLOOR]]
// CHECK-DAG: %[[AFTER:.*]] = arith.maximumf %[[MAX]], %[[FLOOR]]
// CHECK: %[[LESS:.*]] = arith.subf %[[BEFORE]], %[[AFTER]]
// CHECK: %[[SCALED:.*]] = arith.mulf %[[LESS]], %[[SCALE]]
// CHECK: %[[WEIGHT:.*]] = math.exp2 %[[SCALED]]
// CHECK: %[[MENDED:.*]] = arith.mulf %[[PART]], %[[WEIGHT]]
// CHECK: %[[SUM:.*]] = "kernel.warp_reduce"(%[[MENDED]]) {kind = "add", lanes = array<i64: 1, 2, 4, 8, 16>}
// CHECK-NOT: kernel.shared
// CHECK: "kernel.store_global"(%[[SUM]],
func.func @online_warp(%m: memref<32xf32>, %x: memref<32xf32>, %y: memref<1xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %maximum = "tile.load"(%m, %c0) {map = affine_map<(k) -> (k)>} : (memref<32xf32>, index) -> vector<32xf32>
  %part = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<32xf32>, index) -> vector<32xf32>
  %sum = "tile.reduce_online"(%maximum, %part) {scale = 2.0 : f64, floor = -100.0 : f64, axes = array<i64: 0>} : (vector<32xf32>, vector<32xf32>) -> vector<1xf32>
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<1xf32>, index) -> ()
  return
}

}
}

// -----

#h = {name = "h", extent = affine_map<() -> (2)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 64, 1, 1>, walk = "loop"}

module {
module @kernels {

// Two warps leave the maxima and sums of both rows in one exchange. The rows are dealt out: the first warp combines and
// stores the first one, the second warp the second one.
// CHECK-LABEL: func.func @online_block(
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK-COUNT-2: kind = "max"
// CHECK-COUNT-2: kind = "add"
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c32
// CHECK: %[[SPEAKS:.*]] = arith.cmpi eq, %[[LANE]], %c0
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: %[[SHARED:.*]] = "kernel.shared"() {symbol = "exchange0"} : () -> memref<8xf32, 3>
// CHECK: scf.if %[[SPEAKS]] {
// CHECK-COUNT-4: "kernel.store_shared"(%{{.*}}, %[[SHARED]],
// CHECK: "kernel.barrier"()
// CHECK: %[[FIRST_WARP:.*]] = arith.cmpi eq, %[[WARP]], %c0
// CHECK: %[[FIRST:.*]] = arith.andi %[[SPEAKS]], %[[FIRST_WARP]]
// CHECK: %[[ROW:.*]]:2 = scf.if %[[FIRST]]
// CHECK-COUNT-2: "kernel.load_shared"(%[[SHARED]],
// CHECK-COUNT-2: math.exp2
// CHECK-COUNT-2: "kernel.load_shared"(%[[SHARED]],
// CHECK: arith.mulf
// CHECK-NEXT: math.fma
// CHECK: %[[SECOND_WARP:.*]] = arith.cmpi eq, %[[WARP]], %c1
// CHECK: %[[SECOND:.*]] = arith.andi %[[SPEAKS]], %[[SECOND_WARP]]
// CHECK: %[[OTHER_ROW:.*]]:2 = scf.if %[[SECOND]]
// CHECK-COUNT-4: "kernel.load_shared"(%[[SHARED]],
// CHECK-NOT: kernel.barrier
// CHECK: %[[STORES:.*]] = arith.cmpi eq, %[[THREAD]], %c0
// CHECK: scf.if %[[STORES]] {
// CHECK-NEXT: "kernel.store_global"(%[[ROW]]#1,
// CHECK: %[[OTHER_STORES:.*]] = arith.cmpi eq, %[[THREAD]], %c32
// CHECK: scf.if %[[OTHER_STORES]] {
// CHECK: "kernel.store_global"(%[[OTHER_ROW]]#1,
func.func @online_block(%m: memref<2x64xf32>, %x: memref<2x64xf32>, %y: memref<2xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#h, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %maximum = "tile.load"(%m, %c0, %c0) {map = affine_map<(h, k) -> (h, k)>} : (memref<2x64xf32>, index, index) -> vector<2x64xf32>
  %part = "tile.load"(%x, %c0, %c0) {map = affine_map<(h, k) -> (h, k)>} : (memref<2x64xf32>, index, index) -> vector<2x64xf32>
  %sum = "tile.reduce_online"(%maximum, %part) {scale = 2.0 : f64, floor = -100.0 : f64, axes = array<i64: 1>} : (vector<2x64xf32>, vector<2x64xf32>) -> vector<2x1xf32>
  "tile.store"(%sum, %y, %c0, %c0) {map = affine_map<(h, k) -> (h)>} : (vector<2x1xf32>, memref<2xf32>, index, index) -> ()
  return
}

}
}

// -----

#d = {name = "d", extent = affine_map<() -> (128)>, layout = array<i64: 128, 32, 4, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (2)>, layout = array<i64: 2, 2, 1, 2>, walk = "loop"}

module {
module @kernels {

// Two sums over a cluster that use one maximum share an exchange. The block that stores reads what the others left, sums
// of four elements at a time.
// CHECK-LABEL: func.func @online_cluster(
// CHECK: %[[RANK:.*]] = "kernel.cluster_rank"()
// CHECK: %[[SCALARS:.*]] = "kernel.shared"() {symbol = "exchange0"} : () -> memref<64xf32, 3>
// CHECK: %[[VECTORS:.*]] = "kernel.shared"() {symbol = "exchange1"} : () -> memref<128xf32, 3>
// CHECK: "kernel.store_shared"(%{{.*}}, %[[SCALARS]],
// CHECK: "kernel.store_shared"(%{{.*}}, %[[VECTORS]], %{{.*}}) : (vector<4xf32>,
// CHECK-NEXT: "kernel.store_shared"(%{{.*}}, %[[SCALARS]],
// CHECK: "kernel.cluster_arrive"()
// CHECK-NEXT: "kernel.cluster_wait"()
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[RANK]], %c0
// CHECK: %[[ALL:.*]]:3 = scf.if
// CHECK: "kernel.load_remote"(%[[SCALARS]], %{{.*}}, %c0) : (memref<64xf32, 3>, index, index) -> f32
// CHECK-NEXT: "kernel.load_remote"(%[[SCALARS]], %{{.*}}, %c1)
// CHECK: "kernel.load_remote"(%[[VECTORS]], %{{.*}}, %c0) : (memref<128xf32, 3>, index, index) -> vector<4xf32>
// CHECK-NEXT: "kernel.load_remote"(%[[VECTORS]], %{{.*}}, %c1)
// CHECK: math.fma {{.*}} : vector<4xf32>
// CHECK: math.fma {{.*}} : f32
// CHECK-NOT: kernel.shared
// CHECK: "kernel.cluster_arrive"(%{{.*}}) : (f32, f32, f32, f32, f32) -> ()
// CHECK: %[[TOTAL:.*]] = vector.broadcast %[[ALL]]#2
// CHECK: %[[SHARE:.*]] = arith.divf %[[ALL]]#1, %[[TOTAL]]
// CHECK: "kernel.store_global"(%[[SHARE]],
// CHECK: "kernel.cluster_wait"()
// CHECK-NEXT: return
func.func @online_cluster(%m: memref<2xf32>, %x: memref<128x2xf32>, %n: memref<2xf32>, %y: memref<128xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#d, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %maximum = "tile.load"(%m, %c0, %c0) {map = affine_map<(d, k) -> (k)>} : (memref<2xf32>, index, index) -> vector<1x2xf32>
  %part = "tile.load"(%x, %c0, %c0) {map = affine_map<(d, k) -> (d, k)>} : (memref<128x2xf32>, index, index) -> vector<128x2xf32>
  %count = "tile.load"(%n, %c0, %c0) {map = affine_map<(d, k) -> (k)>} : (memref<2xf32>, index, index) -> vector<1x2xf32>
  %mixed = "tile.reduce_online"(%maximum, %part) {scale = 2.0 : f64, floor = -100.0 : f64, axes = array<i64: 1>} : (vector<1x2xf32>, vector<128x2xf32>) -> vector<128x1xf32>
  %total = "tile.reduce_online"(%maximum, %count) {scale = 2.0 : f64, floor = -100.0 : f64, axes = array<i64: 1>} : (vector<1x2xf32>, vector<1x2xf32>) -> vector<1x1xf32>
  %totals = vector.broadcast %total : vector<1x1xf32> to vector<128x1xf32>
  %share = arith.divf %mixed, %totals : vector<128x1xf32>
  "tile.store"(%share, %y, %c0, %c0) {map = affine_map<(d, k) -> (d)>} : (vector<128x1xf32>, memref<128xf32>, index, index) -> ()
  return
}

}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 2, 1>, walk = "grid"}
#h = {name = "h", extent = affine_map<() -> (2)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}

module {
module @kernels {

// A thread that holds an axis reads it from the other end by exchanging its registers.
// CHECK-LABEL: func.func @reverse(
// CHECK: %[[FIRST:.*]] = "kernel.load_global"(%arg0, %[[AT:.*]]) {cache = "plain"}
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c64
// CHECK: %[[SECOND:.*]] = "kernel.load_global"(%arg0, %[[FURTHER]]) {cache = "plain"}
// CHECK-NEXT: "kernel.store_global"(%[[SECOND]], %arg1, %[[AT]])
// CHECK-NEXT: "kernel.store_global"(%[[FIRST]], %arg1, %[[FURTHER]])
func.func @reverse(%x: memref<2x64xf32>, %y: memref<2x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#h, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(h, n) -> (h, n)>} : (memref<2x64xf32>, index, index) -> vector<2x64xf32>
  %reversed = "tile.reverse"(%tile) {axis = 0 : i64} : (vector<2x64xf32>) -> vector<2x64xf32>
  "tile.store"(%reversed, %y, %c0, %c0) {map = affine_map<(h, n) -> (h, n)>} : (vector<2x64xf32>, memref<2x64xf32>, index, index) -> ()
  return
}

}
}

// -----

#r = {name = "r", extent = affine_map<() -> (4096)>, layout = array<i64: 256, 32, 8, 1>, walk = "loop"}

module {
module @kernels {

// Where a walk along a row bounds the registers, LLVM may not unroll it: a turn reads as much as was counted.
// CHECK-LABEL: func.func @walk(
// CHECK-SAME: kernel.resident = 1 : i64
// CHECK: scf.for
// CHECK: kernel.load_global
// CHECK: } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
func.func @walk(%x: memref<4096xf32>, %y: memref<f32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#r], order = array<i64>, unroll = 1 : i64, dot = false, resident = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zeros = arith.constant dense<0.0> : vector<256xf32>
  %sum = scf.for %i = %c0 to %c4096 step %c256 iter_args(%so_far = %zeros) -> vector<256xf32> {
    %part = "tile.load"(%x, %i) {map = affine_map<(r) -> (r)>} : (memref<4096xf32>, index) -> vector<256xf32>
    %more = arith.addf %so_far, %part : vector<256xf32>
    scf.yield %more : vector<256xf32>
  }
  %total = "tile.reduce"(%sum) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  "tile.store"(%total, %y, %c0) {map = affine_map<(r) -> ()>} : (vector<1xf32>, memref<f32>, index) -> ()
  return
}

}
}
