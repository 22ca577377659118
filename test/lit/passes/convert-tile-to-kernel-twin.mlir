// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

// The layouts of a warp's tensor core: of the 32 lanes, 8 lie along the rows and 4 along the columns of the result, two
// neighbours each. Operands have the same 4 lanes along the depth, 8 neighbours each, and the right one has its columns, the
// twin axis, on the 8 lanes of the rows.

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// Operands come in 16 bytes a lane: of a row, of the one 8 further, and of a column. Which elements along the depth meet in
// one instruction does not matter as long as both operands agree: the first takes two words of each lane, the second the
// other two. Its registers are those of the row and the one 8 further in turn. Such a kernel keeps wide indices.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: memref<512xbf16, 1>, %[[W:[^:]*]]: memref<256xbf16, 1>, %[[Y:[^:]*]]: memref<128xf32, 1>
// CHECK-SAME: kernel.block = 32 : i64, {{.*}}kernel.wide_indices
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD]], %c4
// CHECK: %[[EIGHTH:.*]] = arith.divui %[[THREAD]], %c4
// CHECK: %[[DEPTH:.*]] = arith.muli %[[QUARTER]], %c8
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 32 + s1)>()[%[[EIGHTH]], %[[DEPTH]]]
// CHECK: %[[UPPER:.*]] = "kernel.load_global"(%[[X]], %[[AT]]) {{.*}} -> vector<8xbf16>
// CHECK: %[[BELOW:.*]] = arith.addi %[[AT]], %c256
// CHECK: %[[LOWER:.*]] = "kernel.load_global"(%[[X]], %[[BELOW]]) {{.*}} -> vector<8xbf16>
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 + s1 * 32)>()[%[[DEPTH]], %[[EIGHTH]]]
// CHECK: %[[COLUMN:.*]] = "kernel.load_global"(%[[W]], %[[AT]]) {{.*}} -> vector<8xbf16>
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[UPPER]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[U0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[U1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[U2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[U3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[LOWER]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[L0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[L1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[L2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[L3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[COLUMN]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[C1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[C2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[C3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[HALF:.*]]:4 = "kernel.mma"(%[[U0]], %[[L0]], %[[U1]], %[[L1]], %[[C0]], %[[C1]], %[[ZERO:.*]], %[[ZERO]], %[[ZERO]], %[[ZERO]]) {element = bf16
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"(%[[U2]], %[[L2]], %[[U3]], %[[L3]], %[[C2]], %[[C3]], %[[HALF]]#0, %[[HALF]]#1, %[[HALF]]#2, %[[HALF]]#3) {element = bf16

// Two neighbours of each row are stored.
// CHECK: %[[UPPER:.*]] = vector.from_elements %[[SUM]]#0, %[[SUM]]#1
// CHECK: %[[LOWER:.*]] = vector.from_elements %[[SUM]]#2, %[[SUM]]#3
// CHECK: %[[PAIR:.*]] = arith.muli %[[QUARTER]], %c2
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 8 + s1)>()[%[[EIGHTH]], %[[PAIR]]]
// CHECK: "kernel.store_global"(%[[UPPER]], %[[Y]], %[[AT]])
// CHECK: %[[BELOW:.*]] = arith.addi %[[AT]], %c64
// CHECK: "kernel.store_global"(%[[LOWER]], %[[Y]], %[[BELOW]])
func.func @product(%x: memref<16x32xbf16>, %w: memref<8x32xbf16>, %y: memref<16x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x32xbf16>, index, index, index, index) -> vector<16x1x32x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x32xbf16>, index, index, index, index) -> vector<1x1x32x8xbf16>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<16x8x1x1xf32>, memref<16x8xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<()[n] -> (20)>, layout = array<i64: 16, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<()[n] -> (20)>, layout = array<i64: 16, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module attributes {primop.symbols = {n = array<i64: 1, 48>}} {
module @kernels {

// At a ragged edge a lane asks for its own row and its own column, whose run along the depth exists as a whole or not at all:
// then it reads the first elements of the buffer and takes zeros, in words of two. The words of a row serve all columns.
// CHECK-LABEL: func.func @ragged(
// CHECK-SAME: %[[X:[^:]*]]: memref<1536xbf16, 1>, %[[W:[^:]*]]: memref<640xbf16, 1>, %[[Y:[^:]*]]: memref<960xf32, 1>
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD:.*]], %c4
// CHECK: %[[EIGHTH:.*]] = arith.divui %[[THREAD]], %c4
// CHECK: %[[ROW:.*]] = arith.addi %[[I:.*]], %[[EIGHTH]]
// CHECK: %[[LEFT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 - s1 - 1)>()[%[[N:.*]], %[[ROW]]]
// CHECK: %[[EXISTS:.*]] = arith.cmpi sge, %[[LEFT]], %c0
// CHECK: %[[SAFE:.*]] = arith.select %[[EXISTS]], %{{.*}}, %c0 : index
// CHECK: %[[READ:.*]] = "kernel.load_global"(%[[X]], %[[SAFE]])
// CHECK: %[[READ_WORDS:.*]] = vector.bitcast %[[READ]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[UPPER:.*]] = arith.select %[[EXISTS]], %[[READ_WORDS]], %{{.*}} : vector<4xi32>
// CHECK: %[[LEFT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 - s1 - 9)>()[%[[N]], %[[ROW]]]
// CHECK: %[[EXISTS_BELOW:.*]] = arith.cmpi sge, %[[LEFT]], %c0
// CHECK: %[[LOWER:.*]] = arith.select %[[EXISTS_BELOW]], %{{.*}}, %{{.*}} : vector<4xi32>
// CHECK: %[[COLUMN:.*]] = arith.addi %[[J:.*]], %[[EIGHTH]]
// CHECK: affine.apply affine_map<()[s0] -> (-s0 + 19)>()[%[[COLUMN]]]
// CHECK: %[[FIRST:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<4xi32>
// CHECK: affine.apply affine_map<()[s0] -> (-s0 + 11)>()[%[[COLUMN]]]
// CHECK: %[[SECOND:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<4xi32>
// CHECK: vector.extract %[[UPPER]][0]
// CHECK: vector.extract %[[LOWER]][0]
// CHECK: vector.extract %[[FIRST]][0]
// CHECK: "kernel.mma"(%[[U0:[^,]*]], %[[L0:[^,]*]], %[[U1:[^,]*]], %[[L1:[^,]*]],
// CHECK: %[[ONE:.*]]:4 = "kernel.mma"
// CHECK: vector.extract %[[SECOND]][0]
// CHECK: "kernel.mma"(%[[U0]], %[[L0]], %[[U1]], %[[L1]],
// CHECK: %[[TWO:.*]]:4 = "kernel.mma"

// A result is stored if the row and the column that the lane holds exist, wherever the lane read its operand.
// CHECK: %[[PAIR:.*]] = arith.muli %[[QUARTER]], %c2
// CHECK: %[[COLUMN:.*]] = arith.addi %[[J]], %[[PAIR]]
// CHECK: scf.if %[[EXISTS]] {
// CHECK-NEXT: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 20 + s1)>()[%[[ROW]], %[[COLUMN]]]
// CHECK-NEXT: %[[FLAG:.*]] = vector.extract %[[FLAGS:.*]][0]
// CHECK-NEXT: scf.if %[[FLAG]] {
// CHECK-NEXT: "kernel.store_global"(%[[ONE]]#0, %[[Y]], %[[AT]])
// CHECK: %[[FLAG:.*]] = vector.extract %[[FLAGS]][1]
// CHECK-NEXT: scf.if %[[FLAG]] {
// CHECK: "kernel.store_global"(%[[ONE]]#1, %[[Y]],
// CHECK: scf.if %[[EXISTS]] {
// CHECK: "kernel.store_global"(%[[TWO]]#0, %[[Y]],
// CHECK: "kernel.store_global"(%[[TWO]]#1, %[[Y]],
// CHECK: scf.if %[[EXISTS_BELOW]] {
// CHECK: "kernel.store_global"(%[[ONE]]#2, %[[Y]],
// CHECK: scf.if %[[EXISTS_BELOW]] {
// CHECK: "kernel.store_global"(%[[TWO]]#2, %[[Y]],
func.func @ragged(%x: memref<48x32xbf16>, %w: memref<20x32xbf16>, %y: memref<48x20xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %i = arith.muli %row, %c16 : index
  %j = arith.muli %column, %c16 : index
  %zeros = arith.constant dense<0.0> : vector<16x16x1x1xf32>
  %rows = "tile.load"(%x, %i, %j, %c0, %j, %n) {map = affine_map<(m, n, k, t)[s] -> (m, k)>, mask = affine_map<(m, n, k, t)[s] -> (s - m - 1)>} : (memref<48x32xbf16>, index, index, index, index, index) -> vector<16x1x32x1xbf16>
  %columns = "tile.load"(%w, %i, %j, %c0, %j) {map = affine_map<(m, n, k, t) -> (t, k)>, mask = affine_map<(m, n, k, t) -> (19 - t)>} : (memref<20x32xbf16>, index, index, index, index) -> vector<1x1x32x16xbf16>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x16xbf16>, vector<16x16x1x1xf32>) -> vector<16x16x1x1xf32>
  "tile.store"(%product, %y, %i, %j, %c0, %j, %n) {map = affine_map<(m, n, k, t)[s] -> (m, n)>, mask = affine_map<(m, n, k, t)[s] -> (s - m - 1, 19 - n)>} : (vector<16x16x1x1xf32>, memref<48x20xf32>, index, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (9)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 4, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (9)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// f32 that is read as TF32 has four elements in 16 bytes, a word each, and the same two instructions: half the depth. Rows of
// nine elements begin at odd ones as well, so their pairs are not stored as pairs.
// CHECK-LABEL: func.func @product_of_f32(
// CHECK: %[[WORDS:.*]] = vector.bitcast %{{.*}} : vector<4xf32> to vector<4xi32>
// CHECK: %[[U0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[U1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[HALF:.*]]:4 = "kernel.mma"(%[[U0]], %{{.*}}, %[[U1]], %{{.*}}) {element = tf32
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"({{.*}}, %[[HALF]]#0, %[[HALF]]#1, %[[HALF]]#2, %[[HALF]]#3) {element = tf32
// CHECK-NOT: kernel.mma
// CHECK: "kernel.store_global"(%[[SUM]]#0, {{.*}} : (f32,
// CHECK: "kernel.store_global"(%[[SUM]]#1, {{.*}} : (f32,
func.func @product_of_f32(%x: memref<16x16xf32>, %w: memref<9x16xf32>, %y: memref<16x9xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, tf32}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x16xf32>, index, index, index, index) -> vector<16x1x16x1xf32>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<9x16xf32>, index, index, index, index) -> vector<1x1x16x8xf32>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x16x1xf32>, vector<1x1x16x8xf32>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<16x8x1x1xf32>, memref<16x9xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 8, 1>, walk = "loop", lanes_of = "n", warps = 2 : i64}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// Two warps share the depth, each four lanes of it. They exchange what they have summed, and the first one stores all of it.
// CHECK-LABEL: func.func @parts(
// CHECK-SAME: %[[X:[^:]*]]: memref<1024xbf16, 1>, %[[W:[^:]*]]: memref<512xbf16, 1>, %[[Y:[^:]*]]: memref<128xf32, 1>
// CHECK-SAME: kernel.block = 64 : i64
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD]], %c4
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: %[[EARLIER:.*]] = arith.muli %[[WARP]], %c4
// CHECK: %[[LANE:.*]] = arith.addi %[[QUARTER]], %[[EARLIER]]
// CHECK: %[[DEPTH:.*]] = arith.muli %[[LANE]], %c8
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 64 + s1)>()[%{{.*}}, %[[DEPTH]]]
// CHECK: "kernel.load_global"(%[[X]], %[[AT]])
// CHECK: "kernel.mma"
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"
// CHECK-NOT: "kernel.warp_reduce"
// CHECK: %[[PLACE:.*]] = arith.divui %[[LANE]], %c4
// CHECK: %[[PART:.*]] = arith.muli %[[PLACE]], %c32
// CHECK: %[[OWN:.*]] = arith.addi %[[ALL:.*]], %[[PART]]
// CHECK: %[[PARTS:.*]] = "kernel.shared"() {symbol = "exchange0"} : () -> memref<256xf32, 3>
// CHECK: "kernel.store_shared"(%[[SUM]]#0, %[[PARTS]], %[[OWN]])
// CHECK-COUNT-3: "kernel.store_shared"
// CHECK: "kernel.barrier"()
// CHECK: %[[ONE:.*]] = "kernel.load_shared"(%[[PARTS]], %[[ALL]])
// CHECK: %[[NEXT:.*]] = arith.addi %[[ALL]], %c32
// CHECK: %[[OTHER:.*]] = "kernel.load_shared"(%[[PARTS]], %[[NEXT]])
// CHECK: arith.addf %[[ONE]], %[[OTHER]]
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[PLACE]], %c0
// CHECK-NEXT: scf.if %[[FIRST]] {
// CHECK-COUNT-2: "kernel.store_global"(%{{.*}}, %[[Y]],
// CHECK-NOT: "kernel.store_global"
// CHECK: return
func.func @parts(%x: memref<16x64xbf16>, %w: memref<8x64xbf16>, %y: memref<16x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<16x8x2x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x64xbf16>, index, index, index, index) -> vector<16x1x64x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x64xbf16>, index, index, index, index) -> vector<1x1x64x8xbf16>
  %parts = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x64x1xbf16>, vector<1x1x64x8xbf16>, vector<16x8x2x1xf32>) -> vector<16x8x2x1xf32>
  %product = "tile.reduce"(%parts) {kind = "add", axes = array<i64: 2>} : (vector<16x8x2x1xf32>) -> vector<16x8x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<16x8x1x1xf32>, memref<16x8xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (1088)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// A walk of 16 turns may be written out as a whole; of a longer one, two turns are.
// CHECK-LABEL: func.func @walks(
// CHECK: scf.for
// CHECK: scf.yield
// CHECK-NEXT: }{{$}}
// CHECK: scf.for
// CHECK: scf.yield
// CHECK-NEXT: } {loop_annotation = #llvm.loop_annotation<unroll = <count = 2 : i32>>}
func.func @walks(%x: memref<16x1088xbf16>, %w: memref<8x1088xbf16>, %y: memref<16x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c512 = arith.constant 512 : index
  %c1088 = arith.constant 1088 : index
  %zeros = arith.constant dense<0.0> : vector<16x8x1x1xf32>
  %first = scf.for %k = %c0 to %c512 step %c32 iter_args(%sum = %zeros) -> (vector<16x8x1x1xf32>) {
    %rows = "tile.load"(%x, %c0, %c0, %k, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x1088xbf16>, index, index, index, index) -> vector<16x1x32x1xbf16>
    %columns = "tile.load"(%w, %c0, %c0, %k, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x1088xbf16>, index, index, index, index) -> vector<1x1x32x8xbf16>
    %more = "tile.dot_twin"(%rows, %columns, %sum) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
    scf.yield %more : vector<16x8x1x1xf32>
  }
  %second = scf.for %k = %c512 to %c1088 step %c32 iter_args(%sum = %first) -> (vector<16x8x1x1xf32>) {
    %rows = "tile.load"(%x, %c0, %c0, %k, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<16x1088xbf16>, index, index, index, index) -> vector<16x1x32x1xbf16>
    %columns = "tile.load"(%w, %c0, %c0, %k, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x1088xbf16>, index, index, index, index) -> vector<1x1x32x8xbf16>
    %more = "tile.dot_twin"(%rows, %columns, %sum) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
    scf.yield %more : vector<16x8x1x1xf32>
  }
  "tile.store"(%second, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<16x8x1x1xf32>, memref<16x8xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// Eight rows are the upper half of what an instruction makes. The lower half gets the words of the same rows, and what it makes
// of them is dropped: a lane stores two neighbours of one row.
// CHECK-LABEL: func.func @eight_rows(
// CHECK-SAME: %[[X:[^:]*]]: memref<256xbf16, 1>, %[[W:[^:]*]]: memref<256xbf16, 1>, %[[Y:[^:]*]]: memref<64xf32, 1>
// CHECK-SAME: kernel.block = 32 : i64
// CHECK: %[[ROW:.*]] = "kernel.load_global"(%[[X]], %{{.*}}) {{.*}} -> vector<8xbf16>
// CHECK-NOT: "kernel.load_global"(%[[X]]
// CHECK: %[[COLUMN:.*]] = "kernel.load_global"(%[[W]], %{{.*}}) {{.*}} -> vector<8xbf16>
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[ROW]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[R0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[R1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[R2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[R3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[COLUMN]] : vector<8xbf16> to vector<4xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[C1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[C2:.*]] = vector.extract %[[WORDS]][2]
// CHECK: %[[C3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[HALF:.*]]:4 = "kernel.mma"(%[[R0]], %[[R0]], %[[R1]], %[[R1]], %[[C0]], %[[C1]], %[[ZERO:.*]], %[[ZERO]], %[[ZERO]], %[[ZERO]]) {element = bf16
// CHECK: %[[SUM:.*]]:4 = "kernel.mma"(%[[R2]], %[[R2]], %[[R3]], %[[R3]], %[[C2]], %[[C3]], %[[HALF]]#0, %[[HALF]]#1, %[[HALF]]#2, %[[HALF]]#3) {element = bf16
// CHECK-NOT: %[[SUM]]#2
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[SUM]]#0, %[[SUM]]#1 : vector<2xf32>
// CHECK: "kernel.store_global"(%[[PAIR]], %[[Y]],
// CHECK-NOT: "kernel.store_global"
// CHECK: return
func.func @eight_rows(%x: memref<8x32xbf16>, %w: memref<8x32xbf16>, %y: memref<8x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<8x32xbf16>, index, index, index, index) -> vector<8x1x32x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x32xbf16>, index, index, index, index) -> vector<1x1x32x8xbf16>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<8x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<8x8x1x1xf32>) -> vector<8x8x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<8x8x1x1xf32>, memref<8x8xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 4, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// Runs of four elements are two words, of one instruction.
// CHECK-LABEL: func.func @short_runs(
// CHECK: %[[WORDS:.*]] = vector.bitcast %{{.*}} : vector<4xbf16> to vector<2xi32>
// CHECK: %[[R0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[R1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[WORDS:.*]] = vector.bitcast %{{.*}} : vector<4xbf16> to vector<2xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[C1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: "kernel.mma"(%[[R0]], %[[R0]], %[[R1]], %[[R1]], %[[C0]], %[[C1]],
// CHECK-NOT: "kernel.mma"
// CHECK: return
func.func @short_runs(%x: memref<8x16xbf16>, %w: memref<8x16xbf16>, %y: memref<8x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x8x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<8x16xbf16>, index, index, index, index) -> vector<8x1x16x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x16xbf16>, index, index, index, index) -> vector<1x1x16x8xbf16>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<8x1x16x1xbf16>, vector<1x1x16x8xbf16>, vector<8x8x1x1xf32>) -> vector<8x8x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<8x8x1x1xf32>, memref<8x8xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#d = {name = "d", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "grid"}
#t = {name = "t", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 1, 1>, walk = "loop", lanes_of = "d"}
#twin = {name = "d_twin", extent = affine_map<() -> (32)>, layout = array<i64: 32, 8, 4, 1>, walk = "loop", lanes_of = "m", twin_of = "d"}

module {
module @kernels {

// Values of 16 keys are the right operand as they lie in memory: a lane reads four neighbours along the columns, of each of its
// four keys. Every instruction takes one of these columns, whose words are elements of two keys, as the rows' are. It leaves
// the columns of two lanes beside each other in one lane: the elements i and 4 + i of the eight that it has of the result.
// CHECK-LABEL: func.func @values(
// CHECK-SAME: %[[X:[^:]*]]: memref<128xbf16, 1>, %[[V:[^:]*]]: memref<512xbf16, 1>, %[[Y:[^:]*]]: memref<256xf32, 1>
// CHECK-SAME: kernel.block = 32 : i64
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD:.*]], %c4
// CHECK: %[[EIGHTH:.*]] = arith.divui %[[THREAD]], %c4
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 16 + s1)>()[%[[EIGHTH]], %[[QUARTER]]]
// CHECK: %[[X0:.*]] = "kernel.load_global"(%[[X]], %[[AT]]) {{.*}} -> bf16
// CHECK: %[[X1:.*]] = "kernel.load_global"(%[[X]], %{{.*}}) {{.*}} -> bf16
// CHECK: %[[X2:.*]] = "kernel.load_global"(%[[X]], %{{.*}}) {{.*}} -> bf16
// CHECK: %[[X3:.*]] = "kernel.load_global"(%[[X]], %{{.*}}) {{.*}} -> bf16
// CHECK: %[[COLUMN:.*]] = arith.muli %[[EIGHTH]], %c4
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 32 + s1)>()[%[[QUARTER]], %[[COLUMN]]]
// CHECK: %[[V0:.*]] = "kernel.load_global"(%[[V]], %[[AT]]) {{.*}} -> vector<4xbf16>
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c128
// CHECK: %[[V1:.*]] = "kernel.load_global"(%[[V]], %[[FURTHER]]) {{.*}} -> vector<4xbf16>
// CHECK: %[[V2:.*]] = "kernel.load_global"(%[[V]], %{{.*}}) {{.*}} -> vector<4xbf16>
// CHECK: %[[V3:.*]] = "kernel.load_global"(%[[V]], %{{.*}}) {{.*}} -> vector<4xbf16>
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[X0]], %[[X1]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[R0:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[X2]], %[[X3]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[R1:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[E0:.*]] = vector.extract %[[V0]][0]
// CHECK: %[[E1:.*]] = vector.extract %[[V1]][0]
// CHECK: %[[E2:.*]] = vector.extract %[[V2]][0]
// CHECK: %[[E3:.*]] = vector.extract %[[V3]][0]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E0]], %[[E1]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E2]], %[[E3]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C1:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[SUM0:.*]]:4 = "kernel.mma"(%[[R0]], %[[R0]], %[[R1]], %[[R1]], %[[C0]], %[[C1]], %{{.*}}) {element = bf16
// CHECK: %[[E0:.*]] = vector.extract %[[V0]][1]
// CHECK: %[[E1:.*]] = vector.extract %[[V1]][1]
// CHECK: %[[E2:.*]] = vector.extract %[[V2]][1]
// CHECK: %[[E3:.*]] = vector.extract %[[V3]][1]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E0]], %[[E1]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E2]], %[[E3]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C1:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[SUM1:.*]]:4 = "kernel.mma"(%[[R0]], %[[R0]], %[[R1]], %[[R1]], %[[C0]], %[[C1]], %{{.*}}) {element = bf16
// CHECK: %[[E0:.*]] = vector.extract %[[V0]][2]
// CHECK: %[[E1:.*]] = vector.extract %[[V1]][2]
// CHECK: %[[E2:.*]] = vector.extract %[[V2]][2]
// CHECK: %[[E3:.*]] = vector.extract %[[V3]][2]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E0]], %[[E1]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E2]], %[[E3]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C1:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[SUM2:.*]]:4 = "kernel.mma"(%[[R0]], %[[R0]], %[[R1]], %[[R1]], %[[C0]], %[[C1]], %{{.*}}) {element = bf16
// CHECK: %[[E0:.*]] = vector.extract %[[V0]][3]
// CHECK: %[[E1:.*]] = vector.extract %[[V1]][3]
// CHECK: %[[E2:.*]] = vector.extract %[[V2]][3]
// CHECK: %[[E3:.*]] = vector.extract %[[V3]][3]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E0]], %[[E1]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C0:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[PAIR:.*]] = vector.from_elements %[[E2]], %[[E3]] : vector<2xbf16>
// CHECK: %[[WORD:.*]] = vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[C1:.*]] = vector.extract %[[WORD]][0]
// CHECK: %[[SUM3:.*]]:4 = "kernel.mma"(%[[R0]], %[[R0]], %[[R1]], %[[R1]], %[[C0]], %[[C1]], %{{.*}}) {element = bf16
// CHECK: %[[ALL:.*]] = vector.from_elements %[[SUM0]]#0, %[[SUM1]]#0, %[[SUM2]]#0, %[[SUM3]]#0, %[[SUM0]]#1, %[[SUM1]]#1, %[[SUM2]]#1, %[[SUM3]]#1 : vector<8xf32>
// CHECK: %[[COLUMN:.*]] = arith.muli %[[QUARTER]], %c8
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 32 + s1)>()[%[[EIGHTH]], %[[COLUMN]]]
// CHECK: "kernel.store_global"(%[[ALL]], %[[Y]], %[[AT]])
func.func @values(%x: memref<8x16xbf16>, %v: memref<16x32xbf16>, %y: memref<8x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #d, #t, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x32x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, d, t, e) -> (m, t)>} : (memref<8x16xbf16>, index, index, index, index) -> vector<8x1x16x1xbf16>
  %values = "tile.load"(%v, %c0, %c0, %c0, %c0) {map = affine_map<(m, d, t, e) -> (t, e)>} : (memref<16x32xbf16>, index, index, index, index) -> vector<1x1x16x32xbf16>
  %product = "tile.dot_twin"(%rows, %values, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<8x1x16x1xbf16>, vector<1x1x16x32xbf16>, vector<8x32x1x1xf32>) -> vector<8x32x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, d, t, e) -> (m, d)>} : (vector<8x32x1x1xf32>, memref<8x32xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 16, 4, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// Keys that are the depth of the next product are one by one in registers, four apart. An instruction leaves the columns of two
// lanes beside each other in one lane, so of eight keys lane g reads the one at (g mod 2) * 4 + g / 2: these are four apart.
// CHECK-LABEL: func.func @keys(
// CHECK-SAME: %[[X:[^:]*]]: memref<256xbf16, 1>, %[[W:[^:]*]]: memref<512xbf16, 1>, %[[Y:[^:]*]]: memref<128xf32, 1>
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD:.*]], %c4
// CHECK: %[[EIGHTH:.*]] = arith.divui %[[THREAD]], %c4
// CHECK: %[[PAIR:.*]] = arith.divui %[[EIGHTH]], %c2
// CHECK: %[[SIDE:.*]] = arith.remui %[[EIGHTH]], %c2
// CHECK: %[[APART:.*]] = arith.muli %[[SIDE]], %c4
// CHECK: %[[KEY:.*]] = arith.addi %[[PAIR]], %[[APART]]
// CHECK: %[[DEPTH:.*]] = arith.muli %[[QUARTER]], %c8
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 32 + s1)>()[%[[EIGHTH]], %[[DEPTH]]]
// CHECK: "kernel.load_global"(%[[X]], %[[AT]])
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 + s1 * 32)>()[%[[DEPTH]], %[[KEY]]]
// CHECK: %[[FIRST:.*]] = "kernel.load_global"(%[[W]], %[[AT]])
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c256
// CHECK: %[[SECOND:.*]] = "kernel.load_global"(%[[W]], %[[FURTHER]])

// Each eight keys are one column a lane to read, and two registers of the result.
// CHECK: vector.bitcast %[[FIRST]]
// CHECK: "kernel.mma"
// CHECK: %[[ONE:.*]]:4 = "kernel.mma"
// CHECK: vector.bitcast %[[SECOND]]
// CHECK: "kernel.mma"
// CHECK: %[[TWO:.*]]:4 = "kernel.mma"
// CHECK: %[[AT:.*]] = affine.apply affine_map<()[s0, s1] -> (s0 * 16 + s1)>()[%[[EIGHTH]], %[[QUARTER]]]
// CHECK: "kernel.store_global"(%[[ONE]]#0, %[[Y]], %[[AT]])
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c4
// CHECK: "kernel.store_global"(%[[ONE]]#1, %[[Y]], %[[FURTHER]])
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c8
// CHECK: "kernel.store_global"(%[[TWO]]#0, %[[Y]], %[[FURTHER]])
// CHECK: %[[FURTHER:.*]] = arith.addi %[[AT]], %c12
// CHECK: "kernel.store_global"(%[[TWO]]#1, %[[Y]], %[[FURTHER]])
func.func @keys(%x: memref<8x32xbf16>, %w: memref<16x32xbf16>, %y: memref<8x16xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x16x1x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<8x32xbf16>, index, index, index, index) -> vector<8x1x32x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<16x32xbf16>, index, index, index, index) -> vector<1x1x32x16xbf16>
  %product = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<8x1x32x1xbf16>, vector<1x1x32x16xbf16>, vector<8x16x1x1xf32>) -> vector<8x16x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<8x16x1x1xf32>, memref<8x16xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "loop", warps = 2 : i64}

module {
module @kernels {

// A reduction to one result a warp combines what a lane has, and then the lanes of each warp. Warps exchange nothing: each has
// its own result, which it uses with its own elements.
// CHECK-LABEL: func.func @warp_parts(
// CHECK-SAME: kernel.block = 64 : i64
// CHECK-NOT: kernel.shared
// CHECK-NOT: kernel.barrier
// CHECK: %[[ONE:.*]] = "kernel.load_global"
// CHECK: %[[TWO:.*]] = "kernel.load_global"
// CHECK: %[[OWN:.*]] = arith.maximumf %[[ONE]], %[[TWO]]
// CHECK: %[[LARGEST:.*]] = "kernel.warp_reduce"(%[[OWN]]) {kind = "max", lanes = array<i64: 1, 2>}
// CHECK-NOT: kernel.warp_reduce
// CHECK-NOT: kernel.shared
// CHECK-NOT: kernel.barrier
// CHECK: arith.subf %[[ONE]], %[[LARGEST]]
// CHECK: arith.subf %[[TWO]], %[[LARGEST]]
// CHECK-NOT: kernel.shared
// CHECK-NOT: kernel.barrier
// CHECK: return
func.func @warp_parts(%x: memref<8x16xf32>, %y: memref<8x16xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %rows = "tile.load"(%x, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (memref<8x16xf32>, index, index) -> vector<8x16xf32>
  %largest = "tile.reduce"(%rows) {kind = "max", axes = array<i64: 1>} : (vector<8x16xf32>) -> vector<8x2xf32>
  %spread = "tile.spread"(%largest) : (vector<8x2xf32>) -> vector<8x16xf32>
  %left = arith.subf %rows, %spread : vector<8x16xf32>
  "tile.store"(%left, %y, %c0, %c0) {map = affine_map<(m, n) -> (m, n)>} : (vector<8x16xf32>, memref<8x16xf32>, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 8, 1>, walk = "loop", lanes_of = "n", warps = 2 : i64}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// Attention, whose warps' parts have a maximum each, does not.
// CHECK-LABEL: func.func @attention(
// CHECK-NOT: kernel.wide_indices
// CHECK: "kernel.mma"
func.func @attention(%x: memref<8x64xbf16>, %w: memref<8x64xbf16>, %m: memref<8x2xf32>, %y: memref<8x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<8x8x2x1xf32>
  %largest = arith.constant dense<0.0> : vector<8x1x2x1xf32>
  %rows = "tile.load"(%x, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, k)>} : (memref<8x64xbf16>, index, index, index, index) -> vector<8x1x64x1xbf16>
  %columns = "tile.load"(%w, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (t, k)>} : (memref<8x64xbf16>, index, index, index, index) -> vector<1x1x64x8xbf16>
  %parts = "tile.dot_twin"(%rows, %columns, %zeros) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<8x1x64x1xbf16>, vector<1x1x64x8xbf16>, vector<8x8x2x1xf32>) -> vector<8x8x2x1xf32>
  %product = "tile.reduce_online"(%largest, %parts) {scale = 2.0 : f64, floor = -100.0 : f64, axes = array<i64: 2>} : (vector<8x1x2x1xf32>, vector<8x8x2x1xf32>) -> vector<8x8x1x1xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, t) -> (m, n)>} : (vector<8x8x1x1xf32>, memref<8x8xf32>, index, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 8, 1>, walk = "loop", lanes_of = "n", warps = 2 : i64}
#r = {name = "r", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 2, 1>, walk = "loop", lanes_of = "k", warps = 2 : i64}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m", twin_of = "n"}

module {
module @kernels {

// An axis that names one of those lies where that does, on its lanes and its warps, and takes no threads of its own. What lanes
// have added up is the same for all columns: one of them speaks for a row.
// CHECK-LABEL: func.func @beside_the_depth(
// CHECK-SAME: kernel.block = 64 : i64
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK: %[[QUARTER:.*]] = arith.remui %[[THREAD]], %c4
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: %[[EARLIER:.*]] = arith.muli %[[WARP]], %c4
// CHECK: %[[PLACE:.*]] = arith.addi %[[QUARTER]], %[[EARLIER]]
// CHECK: %[[PAIR:.*]] = arith.muli %[[PLACE]], %c2
// CHECK: affine.apply affine_map<()[s0, s1] -> (s0 * 16 + s1)>()[%{{.*}}, %[[PAIR]]]
// CHECK: "kernel.warp_reduce"(%{{.*}}) {kind = "add", lanes = array<i64: 1, 2>}
// CHECK: %[[PARTS:.*]] = "kernel.shared"() {symbol = "exchange0"} : () -> memref<16xf32, 3>
// CHECK: scf.if
// CHECK-NEXT: "kernel.store_shared"(%{{.*}}, %[[PARTS]],
// CHECK: "kernel.barrier"()
// CHECK-COUNT-2: "kernel.load_shared"(%[[PARTS]],
func.func @beside_the_depth(%x: memref<8x16xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n, #k, #r, #twin], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %terms = "tile.load"(%x, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, r, t) -> (m, r)>} : (memref<8x16xf32>, index, index, index, index, index) -> vector<8x1x1x16x1xf32>
  %sums = "tile.reduce"(%terms) {kind = "add", axes = array<i64: 3>} : (vector<8x1x1x16x1xf32>) -> vector<8x1x1x1x1xf32>
  "tile.store"(%sums, %y, %c0, %c0, %c0, %c0, %c0) {map = affine_map<(m, n, k, r, t) -> (m)>} : (vector<8x1x1x1x1xf32>, memref<8xf32>, index, index, index, index, index) -> ()
  return
}

}
}
