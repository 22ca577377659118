// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-cpu{target=x86-64-avx512},tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[seq] -> (seq)>, layout = array<i64: 8, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[seq] -> (64)>, layout = array<i64: 32, 1, 16, 1>, walk = "grid"}

module attributes {primop.symbols = {seq = array<i64: 1, 64>}} {
module @kernels {

// A kernel becomes a program, which takes its buffers, the symbols and its place in the grid ...
// CHECK-LABEL: func.func private @grid_program(
// CHECK-SAME: !llvm.ptr {llvm.noalias}
// CHECK-SAME: %[[SEQ:[^:]*]]: index, %[[COLUMN:[^:]*]]: index, %[[ROW:[^:]*]]: index)
// CHECK-DAG: arith.muli %[[ROW]], %c8
// CHECK-DAG: arith.muli %[[COLUMN]], %c32

// ... and what the runtime calls: the programs of one thread's share, the axis that comes last in the order fastest.
// CHECK-LABEL: func.func @grid(
// CHECK-SAME: %[[BUFFERS:.*]]: !llvm.ptr, %[[SYMBOLS:.*]]: !llvm.ptr, %[[THREAD:.*]]: i64, %[[THREADS:.*]]: i64)
// CHECK: %[[BUFFER_AT:.*]] = llvm.getelementptr %[[BUFFERS]][0]
// CHECK: %[[BUFFER:.*]] = llvm.load %[[BUFFER_AT]] {{.*}} -> !llvm.ptr
// CHECK: %[[SYMBOL_AT:.*]] = llvm.getelementptr %[[SYMBOLS]][0]
// CHECK: %[[SYMBOL:.*]] = llvm.load %[[SYMBOL_AT]] {{.*}} -> i64
// CHECK: %[[SEQ:.*]] = arith.index_cast %[[SYMBOL]]
// CHECK: %[[ROWS:.*]] = affine.apply affine_map<()[s0] -> ((s0 + 7) floordiv 8)>()[%[[SEQ]]]
// CHECK: %[[FIRST:.*]] = arith.divui
// CHECK: %[[END:.*]] = arith.divui
// CHECK: scf.for %[[PROGRAM:.*]] = %[[FIRST]] to %[[END]]
// CHECK-DAG: %[[ROW:.*]] = arith.remui %[[PROGRAM]], %[[ROWS]]
// CHECK-DAG: %[[COLUMN:.*]] = arith.divui %[[PROGRAM]], %[[ROWS]]
// CHECK: func.call @grid_program(%[[BUFFER]], %[[SEQ]], %[[COLUMN]], %[[ROW]])
func.func @grid(%y: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["write"], tile.schedule = {axes = [#m, #n], order = array<i64: 1, 0>, unroll = 1 : i64, dot = false}} {
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c8 = arith.constant 8 : index
  %i = arith.muli %row, %c8 : index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c32 = arith.constant 32 : index
  %j = arith.muli %column, %c32 : index
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 32, 1, 16, 1>, walk = "grid"}

module {
module @kernels {

// A tile of 2 by 32 is four registers of 16 elements, and a column of 2 is two scalars, each splat for its row. One
// address is computed; the others are constants away.
// CHECK-LABEL: func.func private @fragments_program(
// CHECK-SAME: %[[X:[^:]*]]: !llvm.ptr {llvm.noalias}, %[[SCALE:[^:]*]]: !llvm.ptr {llvm.noalias}, %[[Y:[^:]*]]: !llvm.ptr
// CHECK: affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1)>
// CHECK: %[[X00_AT:.*]] = llvm.getelementptr %[[X]][%{{.*}}]
// CHECK: %[[X00:.*]] = llvm.load %[[X00_AT]] {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
// CHECK: %[[X01_AT:.*]] = llvm.getelementptr %[[X00_AT]][16]
// CHECK: %[[X01:.*]] = llvm.load %[[X01_AT]]
// CHECK: %[[X10_AT:.*]] = llvm.getelementptr %[[X00_AT]][64]
// CHECK: %[[X10:.*]] = llvm.load %[[X10_AT]]
// CHECK: %[[X11_AT:.*]] = llvm.getelementptr %[[X00_AT]][80]
// CHECK: %[[X11:.*]] = llvm.load %[[X11_AT]]
// CHECK: %[[S0:.*]] = llvm.load {{.*}} -> f32
// CHECK: %[[S1:.*]] = llvm.load {{.*}} -> f32
// CHECK: %[[S0S:.*]] = vector.broadcast %[[S0]] : f32 to vector<16xf32>
// CHECK: %[[S1S:.*]] = vector.broadcast %[[S1]] : f32 to vector<16xf32>
// CHECK: arith.mulf %[[X00]], %[[S0S]]
// CHECK: arith.mulf %[[X01]], %[[S0S]]
// CHECK: arith.mulf %[[X10]], %[[S1S]]
// CHECK: arith.mulf %[[X11]], %[[S1S]]
// CHECK-COUNT-4: llvm.store
// CHECK-NOT: llvm.store
func.func @fragments(%x: memref<64x64xf32>, %scale: memref<64xf32>, %y: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c32 = arith.constant 32 : index
  %j = arith.muli %pj, %c32 : index
  %tile = "tile.load"(%x, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (memref<64x64xf32>, index, index) -> vector<2x32xf32>
  %column = "tile.load"(%scale, %i, %j) {map = affine_map<(i, j) -> (i)>} : (memref<64xf32>, index, index) -> vector<2x1xf32>
  %scales = vector.broadcast %column : vector<2x1xf32> to vector<2x32xf32>
  %scaled = arith.mulf %tile, %scales : vector<2x32xf32>
  "tile.store"(%scaled, %y, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (vector<2x32xf32>, memref<64x64xf32>, index, index) -> ()
  return
}

}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 16, 1, 16, 1>, walk = "grid"}

module {
module @kernels {

// Elements that are not neighbours in memory are read one by one.
// CHECK-LABEL: func.func private @strided_program(
// CHECK-COUNT-16: llvm.load {{.*}} -> f32
// CHECK: vector.from_elements {{.*}} : vector<16xf32>
// CHECK: llvm.store {{.*}} : vector<16xf32>
func.func @strided(%x: memref<64x64xf32>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %i = arith.muli %pi, %c16 : index
  %column = "tile.load"(%x, %i) {map = affine_map<(i) -> (i, 3)>} : (memref<64x64xf32>, index) -> vector<16xf32>
  "tile.store"(%column, %y, %i) {map = affine_map<(i) -> (i)>} : (vector<16xf32>, memref<64xf32>, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<()[seq] -> (seq)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[seq] -> (100)>, layout = array<i64: 16, 1, 16, 1>, walk = "grid"}

module attributes {primop.symbols = {seq = array<i64: 1, 64>}} {
module @kernels {

// A mask that is the same for a whole register decides by a flag: a missing row is read from the buffer's start and
// thrown away, and not written.
// CHECK-LABEL: func.func private @rows_program(
// CHECK: %[[LEFT:.*]] = affine.apply affine_map<(d0)[s0] -> (-d0 + s0 - 1)>
// CHECK: %[[EXISTS:.*]] = arith.cmpi sge, %[[LEFT]], %c0
// CHECK: %[[SAFE:.*]] = arith.select %[[EXISTS]], %{{.*}}, %c0
// CHECK: %[[READ:.*]] = llvm.load
// CHECK: arith.select %[[EXISTS]], %[[READ]], %{{.*}} : vector<16xf32>
// CHECK: scf.if %[[EXISTS]] {
// CHECK: llvm.store
func.func @rows(%x: memref<64x128xf32>, %y: memref<64x128xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %seq = "tile.symbol"() {symbol = "seq"} : () -> index
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %tile = "tile.load"(%x, %i, %j, %seq) {map = affine_map<(i, j)[seq] -> (i, j)>, mask = affine_map<(i, j)[seq] -> (seq - 1 - i)>} : (memref<64x128xf32>, index, index, index) -> vector<2x16xf32>
  "tile.store"(%tile, %y, %i, %j, %seq) {map = affine_map<(i, j)[seq] -> (i, j)>, mask = affine_map<(i, j)[seq] -> (seq - 1 - i)>} : (vector<2x16xf32>, memref<64x128xf32>, index, index, index) -> ()
  return
}

// What is read over another tile keeps that tile's register where the flag is false.
// CHECK-LABEL: func.func private @rows_over_program(
// CHECK: %[[OTHER:.*]] = llvm.load
// CHECK: %[[EXISTS:.*]] = arith.cmpi sge
// CHECK: arith.select %[[EXISTS]], %{{.*}}, %c0
// CHECK: %[[READ:.*]] = llvm.load
// CHECK: arith.select %[[EXISTS]], %[[READ]], %[[OTHER]] : vector<16xf32>
func.func @rows_over(%x: memref<64x128xf32>, %z: memref<64x128xf32>, %y: memref<64x128xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %seq = "tile.symbol"() {symbol = "seq"} : () -> index
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %other = "tile.load"(%z, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (memref<64x128xf32>, index, index) -> vector<1x16xf32>
  %tile = "tile.load_over"(%other, %x, %i, %j, %seq) {map = affine_map<(i, j)[seq] -> (i, j)>, mask = affine_map<(i, j)[seq] -> (seq - 1 - i)>} : (vector<1x16xf32>, memref<64x128xf32>, index, index, index) -> vector<1x16xf32>
  "tile.store"(%tile, %y, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (vector<1x16xf32>, memref<64x128xf32>, index, index) -> ()
  return
}

// A mask that differs inside a register is computed for each element, and reads and writes are masked.
// CHECK-LABEL: func.func private @columns_program(
// CHECK: %[[LEFT:.*]] = arith.addi %{{.*}}, %{{.*}} : vector<16xi32>
// CHECK: %[[EXIST:.*]] = arith.cmpi sge, %[[LEFT]], %{{.*}} : vector<16xi32>
// CHECK: llvm.intr.masked.load %{{.*}}, %[[EXIST]], %{{.*}} {alignment = 4 : i32}
// CHECK: llvm.intr.masked.store %{{.*}}, %{{.*}}, %{{.*}} {alignment = 4 : i32} : vector<16xf32>, vector<16xi1> into !llvm.ptr
func.func @columns(%x: memref<64x100xf32>, %y: memref<64x100xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %tile = "tile.load"(%x, %i, %j) {map = affine_map<(i, j) -> (i, j)>, mask = affine_map<(i, j) -> (99 - j)>} : (memref<64x100xf32>, index, index) -> vector<1x16xf32>
  "tile.store"(%tile, %y, %i, %j) {map = affine_map<(i, j) -> (i, j)>, mask = affine_map<(i, j) -> (99 - j)>} : (vector<1x16xf32>, memref<64x100xf32>, index, index) -> ()
  return
}

// What such a mask leaves out is, of a read over another tile, that tile's.
// CHECK-LABEL: func.func private @columns_over_program(
// CHECK: %[[OTHER:.*]] = llvm.load
// CHECK: %[[EXIST:.*]] = arith.cmpi sge, %{{.*}} : vector<16xi32>
// CHECK: %[[ALL:.*]] = llvm.intr.masked.load %{{.*}}, %[[EXIST]], %[[OTHER]] {alignment = 4 : i32}
// CHECK: llvm.store %[[ALL]],
func.func @columns_over(%x: memref<64x100xf32>, %z: memref<64x112xf32>, %y: memref<64x112xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %other = "tile.load"(%z, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (memref<64x112xf32>, index, index) -> vector<1x16xf32>
  %tile = "tile.load_over"(%other, %x, %i, %j) {map = affine_map<(i, j) -> (i, j)>, mask = affine_map<(i, j) -> (99 - j)>} : (vector<1x16xf32>, memref<64x100xf32>, index, index) -> vector<1x16xf32>
  "tile.store"(%tile, %y, %i, %j) {map = affine_map<(i, j) -> (i, j)>} : (vector<1x16xf32>, memref<64x112xf32>, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 32, 1, 16, 1>, walk = "loop"}

module {
module @kernels {

// A loop carries a tile's registers. A reduction adds registers, then halves of a register, then quarters.
// CHECK-LABEL: func.func private @sum_program(
// CHECK: %[[SUMS:.*]]:2 = scf.for {{.*}} iter_args(%[[LOW:.*]] = %{{.*}}, %[[HIGH:.*]] = %{{.*}}) -> (vector<16xf32>, vector<16xf32>)
// CHECK: scf.yield %{{.*}}, %{{.*}} : vector<16xf32>, vector<16xf32>
// CHECK: %[[WHOLE:.*]] = arith.addf %[[SUMS]]#0, %[[SUMS]]#1
// CHECK: %[[LOWER:.*]] = vector.shuffle %[[WHOLE]], %[[WHOLE]] [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: %[[UPPER:.*]] = vector.shuffle %[[WHOLE]], %[[WHOLE]] [8, 9, 10, 11, 12, 13, 14, 15]
// CHECK: arith.addf %[[LOWER]], %[[UPPER]] : vector<8xf32>
// CHECK: arith.addf {{.*}} : vector<4xf32>
// CHECK: arith.addf {{.*}} : vector<2xf32>
// CHECK: %[[LAST:.*]] = arith.addf {{.*}} : vector<1xf32>
// CHECK: %[[SUM:.*]] = vector.extract %[[LAST]][0]
// CHECK: llvm.store %[[SUM]], %{{.*}} : f32
func.func @sum(%x: memref<64x256xf32>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c256 = arith.constant 256 : index
  %zeros = arith.constant dense<0.0> : vector<1x32xf32>
  %sums = scf.for %k = %c0 to %c256 step %c32 iter_args(%so_far = %zeros) -> vector<1x32xf32> {
    %tile = "tile.load"(%x, %i, %k) {map = affine_map<(i, k) -> (i, k)>} : (memref<64x256xf32>, index, index) -> vector<1x32xf32>
    %more = arith.addf %so_far, %tile : vector<1x32xf32>
    scf.yield %more : vector<1x32xf32>
  }
  %sum = "tile.reduce"(%sums) {kind = "add", axes = array<i64: 1>} : (vector<1x32xf32>) -> vector<1x1xf32>
  "tile.store"(%sum, %y, %i, %c0) {map = affine_map<(i, k) -> (i)>} : (vector<1x1xf32>, memref<64xf32>, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 16, 1, 16, 1>, walk = "grid"}

module {
module @kernels {

// A gathered row is an index of its own for each register; a scattered row is written only if it is inside.
// CHECK-LABEL: func.func private @indexed_program(
// CHECK: %[[FIRST:.*]] = llvm.load {{.*}} -> i32
// CHECK: %[[SECOND:.*]] = llvm.load {{.*}} -> i32
// CHECK: %[[FIRST_ROW:.*]] = arith.index_cast %[[FIRST]] : i32 to index
// CHECK: affine.apply affine_map<(d0, d1) -> (d0 + d1 * 64)>(%{{.*}}, %[[FIRST_ROW]])
// CHECK: %[[SECOND_ROW:.*]] = arith.index_cast %[[SECOND]] : i32 to index
// CHECK: affine.apply affine_map<(d0, d1) -> (d0 + d1 * 64)>(%{{.*}}, %[[SECOND_ROW]])
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %c100
// CHECK: scf.if %[[INSIDE]] {
// CHECK: llvm.store
func.func @indexed(%x: memref<100x64xf32>, %rows: memref<64xi32>, %y: memref<100x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %pi = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c2 = arith.constant 2 : index
  %i = arith.muli %pi, %c2 : index
  %pj = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %index = "tile.load"(%rows, %i, %j) {map = affine_map<(i, j) -> (i)>} : (memref<64xi32>, index, index) -> vector<2x1xi32>
  %read = "tile.gather"(%x, %index, %i, %j) {map = affine_map<(i, j, row) -> (row, j)>} : (memref<100x64xf32>, vector<2x1xi32>, index, index) -> vector<2x16xf32>
  "tile.scatter"(%read, %index, %y, %i, %j) {map = affine_map<(i, j, row) -> (row, j)>, extent = 100 : i64} : (vector<2x16xf32>, vector<2x1xi32>, memref<100x64xf32>, index, index) -> ()
  return
}

// Truth values lie in memory as bytes, and an index is a ramp from the tile's origin.
// CHECK-LABEL: func.func private @flags_program(
// CHECK: %[[BYTES:.*]] = llvm.load {{.*}} -> vector<16xi8>
// CHECK: %[[FLAGS:.*]] = arith.cmpi ne, %[[BYTES]], %{{.*}} : vector<16xi8>
// CHECK: %[[RAMP:.*]] = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]>
// CHECK: %[[NUMBERS:.*]] = arith.addi %{{.*}}, %[[RAMP]]
// CHECK: %[[SMALL:.*]] = arith.cmpi slt, %[[NUMBERS]]
// CHECK: %[[BOTH:.*]] = arith.andi %[[FLAGS]], %[[SMALL]] : vector<16xi1>
// CHECK: %[[STORED:.*]] = arith.extui %[[BOTH]] : vector<16xi1> to vector<16xi8>
// CHECK: llvm.store %[[STORED]]
func.func @flags(%x: memref<64xi1>, %y: memref<64xi1>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %pj = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c16 = arith.constant 16 : index
  %j = arith.muli %pj, %c16 : index
  %flags = "tile.load"(%x, %j) {map = affine_map<(j) -> (j)>} : (memref<64xi1>, index) -> vector<16xi1>
  %numbers = "tile.index"(%j) {map = affine_map<(j) -> (j)>} : (index) -> vector<16xi32>
  %ten = arith.constant dense<10> : vector<16xi32>
  %small = arith.cmpi slt, %numbers, %ten : vector<16xi32>
  %both = arith.andi %flags, %small : vector<16xi1>
  "tile.store"(%both, %y, %j) {map = affine_map<(j) -> (j)>} : (vector<16xi1>, memref<64xi1>, index) -> ()
  return
}

}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 32, 1, 16, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (256)>, layout = array<i64: 2, 1, 2, 1>, walk = "loop"}

module {
module @kernels {

// Origins are multiples of their tiles, so the floordiv and mod of a layout go: each register of an interleaved matrix
// is one load.
// CHECK-LABEL: func.func private @interleaved_program(
// CHECK: %[[OFFSET:.*]] = affine.apply affine_map<(d0, d1) -> (d0 * 256 + d1 * 16)>
// CHECK: llvm.load {{.*}} -> vector<32xbf16>
// CHECK: llvm.getelementptr %{{.*}}[4096]
// CHECK: llvm.load {{.*}} -> vector<32xbf16>
// CHECK-NOT: llvm.load
// CHECK-LABEL: func.func @interleaved(
func.func @interleaved(%x: memref<4x128x16x2xbf16>, %y: memref<64x256xbf16>) attributes {tile.kernel, tile.arguments = ["weight", "write"], tile.schedule = {axes = [#n, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c32 = arith.constant 32 : index
  %i = arith.muli %program, %c32 : index
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c256 = arith.constant 256 : index
  scf.for %k = %c0 to %c256 step %c2 {
    %panel = "tile.load"(%x, %i, %k) {map = affine_map<(n, k) -> (n floordiv 16, k floordiv 2, n mod 16, k mod 2)>} : (memref<4x128x16x2xbf16>, index, index) -> vector<32x2xbf16>
    "tile.store"(%panel, %y, %i, %k) {map = affine_map<(n, k) -> (n, k)>} : (vector<32x2xbf16>, memref<64x256xbf16>, index, index) -> ()
  }
  return
}

// Rows that differ inside a register are read one by one.
// CHECK-LABEL: func.func private @gathered_program(
// CHECK: %[[ROWS:.*]] = llvm.load {{.*}} -> vector<16xi32>
// CHECK: vector.extract %[[ROWS]][0]
// CHECK: vector.extract %[[ROWS]][15]
// CHECK-COUNT-32: llvm.load {{.*}} -> f32
func.func @gathered(%x: memref<100x8xf32>, %rows: memref<64xi32>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c32 = arith.constant 32 : index
  %i = arith.muli %program, %c32 : index
  %index = "tile.load"(%rows, %i) {map = affine_map<(n) -> (n)>} : (memref<64xi32>, index) -> vector<32xi32>
  %read = "tile.gather"(%x, %index, %i) {map = affine_map<(n, row) -> (row, 3)>} : (memref<100x8xf32>, vector<32xi32>, index) -> vector<32xf32>
  "tile.store"(%read, %y, %i) {map = affine_map<(n) -> (n)>} : (vector<32xf32>, memref<64xf32>, index) -> ()
  return
}

}
}

// -----

#h = {name = "h", extent = affine_map<() -> (2)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 1, 16, 1>, walk = "grid"}

module {
module @kernels {

// A reversed tile is its registers in reverse order; along the axis of their elements these are reversed as well.
// CHECK-LABEL: func.func private @reverse_program(
// CHECK-SAME: %[[X:[^:]*]]: !llvm.ptr {llvm.noalias}, %[[ROWS:[^:]*]]: !llvm.ptr {llvm.noalias}, %[[COLUMNS:[^:]*]]: !llvm.ptr
// CHECK: %[[X00:.*]] = llvm.load
// CHECK: %[[X01:.*]] = llvm.load
// CHECK: %[[X10:.*]] = llvm.load
// CHECK: %[[X11:.*]] = llvm.load
// CHECK: %[[ROWS_AT:.*]] = llvm.getelementptr %[[ROWS]]
// CHECK: llvm.store %[[X10]], %[[ROWS_AT]]
// CHECK: llvm.store %[[X11]],
// CHECK: llvm.store %[[X00]],
// CHECK: llvm.store %[[X01]],
// CHECK: %[[R01:.*]] = vector.shuffle %[[X01]], %[[X01]] [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
// CHECK: %[[R00:.*]] = vector.shuffle %[[X00]], %[[X00]] [15, {{.*}}, 0]
// CHECK: %[[COLUMNS_AT:.*]] = llvm.getelementptr %[[COLUMNS]]
// CHECK: llvm.store %[[R01]], %[[COLUMNS_AT]]
// CHECK: llvm.store %[[R00]],
func.func @reverse(%x: memref<2x32xf32>, %rows: memref<2x32xf32>, %columns: memref<2x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "write", "write"], tile.schedule = {axes = [#h, #n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0) {map = affine_map<(h, n) -> (h, n)>} : (memref<2x32xf32>, index, index) -> vector<2x32xf32>
  %by_rows = "tile.reverse"(%tile) {axis = 0 : i64} : (vector<2x32xf32>) -> vector<2x32xf32>
  "tile.store"(%by_rows, %rows, %c0, %c0) {map = affine_map<(h, n) -> (h, n)>} : (vector<2x32xf32>, memref<2x32xf32>, index, index) -> ()
  %by_columns = "tile.reverse"(%tile) {axis = 1 : i64} : (vector<2x32xf32>) -> vector<2x32xf32>
  "tile.store"(%by_columns, %columns, %c0, %c0) {map = affine_map<(h, n) -> (h, n)>} : (vector<2x32xf32>, memref<2x32xf32>, index, index) -> ()
  return
}

}
}
