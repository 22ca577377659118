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

// Beyond a warp one lane of each leaves its value in shared memory, and every thread combines those of the four warps.
// A barrier before the reads, and one after them, because a loop may write again.
// CHECK-LABEL: func.func @block(
// CHECK-SAME: kernel.block = 128
// CHECK: %[[WARP_MAX:.*]] = "kernel.warp_reduce"(%{{.*}}) {kind = "max", lanes = array<i64: 1, 2, 4, 8, 16>}
// CHECK: %[[SHARED:.*]] = "kernel.shared"() {symbol = "reduce0"} : () -> memref<4xf32, 3>
// CHECK: scf.if
// CHECK: "kernel.store_shared"(%[[WARP_MAX]], %[[SHARED]],
// CHECK: "kernel.barrier"()
// CHECK-COUNT-4: "kernel.load_shared"(%[[SHARED]],
// CHECK-COUNT-2: arith.maximumf
// CHECK: %[[MAX:.*]] = arith.maximumf
// CHECK: "kernel.barrier"()
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

#n = {name = "n", extent = affine_map<() -> (100)>, layout = array<i64: 64, 32, 2, 1>, walk = "grid"}

module {
module @kernels {

// A mask that differs inside a vector is taken element by element: reads go to the buffer's start instead.
// CHECK-LABEL: func.func @masked(
// CHECK: %[[EXIST:.*]] = arith.cmpi sge, %{{.*}}, %{{.*}} : vector<2xi32>
// CHECK: %[[FIRST:.*]] = vector.extract %[[EXIST]][0]
// CHECK: %[[SAFE:.*]] = arith.select %[[FIRST]], %{{.*}}, %c0
// CHECK: "kernel.load_global"(%{{.*}}, %[[SAFE]]) {{.*}} -> f32
// CHECK: vector.extract %[[EXIST]][1]
// CHECK: %[[READ:.*]] = vector.from_elements {{.*}} : vector<2xf32>
// CHECK: arith.select %[[EXIST]], %[[READ]]
// CHECK-COUNT-2: scf.if
func.func @masked(%x: memref<100xf32>, %y: memref<100xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c64 = arith.constant 64 : index
  %i = arith.muli %program, %c64 : index
  %tile = "tile.load"(%x, %i) {map = affine_map<(n) -> (n)>, mask = affine_map<(n) -> (99 - n)>} : (memref<100xf32>, index) -> vector<64xf32>
  "tile.store"(%tile, %y, %i) {map = affine_map<(n) -> (n)>, mask = affine_map<(n) -> (99 - n)>} : (vector<64xf32>, memref<100xf32>, index) -> ()
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
// threads, each reading what the others left, and none ends before all have read.
// CHECK-LABEL: func.func @cluster(
// CHECK-SAME: kernel.block = 32
// CHECK-SAME: kernel.cluster = 4
// CHECK: %[[RANK:.*]] = "kernel.cluster_rank"()
// CHECK: kernel.warp_reduce
// CHECK: %[[SHARED:.*]] = "kernel.shared"() {symbol = "reduce0"}
// CHECK: kernel.store_shared
// CHECK: "kernel.cluster_barrier"()
// CHECK-COUNT-4: "kernel.load_remote"(%[[SHARED]], %{{.*}}, %{{.*}}) : (memref<1xf32, 3>, index, index) -> f32
// CHECK: kernel.store_global
// CHECK: "kernel.cluster_barrier"()
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
