// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

// The layouts of a warp's tensor core: of the 32 lanes, 8 lie along the rows and 4 along the columns of the result, two
// neighbours each. Operands have the same 4 lanes along the depth, 8 neighbours each, and the right one has its columns, the
// twin axis, on the 8 lanes of the rows.

#m = {name = "m", extent = affine_map<() -> (16)>, layout = array<i64: 16, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m"}

module {
module @kernels {

// Operands come in 16 bytes a lane: of a row, of the one 8 further, and of a column. Which elements along the depth meet in
// one instruction does not matter as long as both operands agree: the first takes two words of each lane, the second the
// other two. Its registers are those of the row and the one 8 further in turn.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: memref<512xbf16, 1>, %[[W:[^:]*]]: memref<256xbf16, 1>, %[[Y:[^:]*]]: memref<128xf32, 1>
// CHECK-SAME: kernel.block = 32 : i64
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
func.func @product(%x: memref<16x32xbf16>, %w: memref<8x32xbf16>, %y: memref<16x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, twin = 1 : i64}} {
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
#twin = {name = "n_twin", extent = affine_map<()[n] -> (20)>, layout = array<i64: 16, 8, 1, 1>, walk = "loop", lanes_of = "m"}

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
func.func @ragged(%x: memref<48x32xbf16>, %w: memref<20x32xbf16>, %y: memref<48x20xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, twin = 1 : i64}} {
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
#twin = {name = "n_twin", extent = affine_map<() -> (9)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m"}

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
func.func @product_of_f32(%x: memref<16x16xf32>, %w: memref<9x16xf32>, %y: memref<16x9xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, tf32, twin = 1 : i64}} {
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
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m"}

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
func.func @parts(%x: memref<16x64xbf16>, %w: memref<8x64xbf16>, %y: memref<16x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, twin = 1 : i64}} {
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
#twin = {name = "n_twin", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m"}

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
func.func @walks(%x: memref<16x1088xbf16>, %w: memref<8x1088xbf16>, %y: memref<16x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k, #twin], order = array<i64>, unroll = 1 : i64, dot = true, twin = 1 : i64}} {
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
