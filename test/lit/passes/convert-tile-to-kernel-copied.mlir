// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 32, 16, 1, 1>, walk = "grid", warps = 2 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (64)>, layout = array<i64: 32, 8, 2, 1>, walk = "grid", warps = 2 : i64}
#k = {name = "k", extent = affine_map<()[n] -> (200)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// Thread t copies place t mod 8 of row t floordiv 8, and of the row as many further as threads fill; what lies past either
// end has no bytes. In its slot a place is swizzled by its row.
// CHECK-LABEL: func.func @copies(
// CHECK-SAME: %[[X:[^:]*]]: memref<25600xbf16, 1>
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK-DAG: %[[RING:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"} : () -> memref<4096xbf16, 3>
// CHECK: %[[SLOT:.*]] = arith.muli %{{.*}}, %c2048
// CHECK: %[[PLACE:.*]] = arith.remui %[[THREAD]], %c8
// CHECK: %[[ROW:.*]] = arith.divui %[[THREAD]], %c8
// CHECK: %[[IN_EIGHT:.*]] = arith.remui %[[ROW]], %c8
// CHECK: %[[SWIZZLED:.*]] = arith.xori %[[PLACE]], %[[IN_EIGHT]]
// CHECK: %[[ROW_BEGINS:.*]] = arith.muli %[[ROW]], %c64
// CHECK: %[[INSIDE:.*]] = arith.muli %[[SWIZZLED]], %c8
// CHECK: %[[IN_SLOT:.*]] = arith.addi %[[ROW_BEGINS]], %[[INSIDE]]
// CHECK: %[[INTO:.*]] = arith.addi %[[SLOT]], %[[IN_SLOT]]
// CHECK: %[[M:.*]] = arith.addi %{{.*}}, %[[ROW]]
// CHECK: %[[IN_ROWS:.*]] = arith.cmpi ult, %[[M]], %{{.*}}
// CHECK: %[[COLUMN:.*]] = arith.muli %[[PLACE]], %c8
// CHECK: %[[IN_COLUMNS:.*]] = arith.cmpi ult, %[[COLUMN]], %c200
// CHECK: %[[EXISTS:.*]] = arith.andi %[[IN_ROWS]], %[[IN_COLUMNS]]
// CHECK: %[[BYTES:.*]] = arith.select %[[EXISTS]], %c16, %c0
// CHECK: "kernel.copy_async"(%[[RING]], %[[INTO]], %[[X]], %{{.*}}, %[[BYTES]]) {element = bf16}
// CHECK: %[[NEXT:.*]] = arith.addi %[[ROW]], %c16
// CHECK: "kernel.copy_async"(%[[RING]],
// CHECK-NOT: kernel.copy_async
// CHECK: "kernel.commit_copies"()
// CHECK-NEXT: "kernel.wait_copies"() {later = 1 : i64}
// CHECK-NEXT: "kernel.barrier"()
// CHECK-NEXT: return
func.func @copies(%x: memref<128x200xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, copied, stages = 2 : i64}} {
  %xs = "tile.ring"() : () -> memref<2x32x64xbf16, 3>
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %turn = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %i = arith.muli %row, %c32 : index
  "tile.fetch"(%xs, %turn, %x, %i, %c0, %c0) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (m, k)>, rows = array<i64: 0>} : (memref<2x32x64xbf16, 3>, index, memref<128x200xbf16>, index, index, index) -> ()
  "tile.commit"() : () -> ()
  %a = "tile.await"(%xs, %turn) {later = 1 : i64} : (memref<2x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
  "tile.release"(%xs, %turn) {running = 0 : i64} : (memref<2x32x64xbf16, 3>, index) -> ()
  return
}

// Of the right operand a lane addresses a row of its warp's columns: eight, then eight further along the depth, then the same
// of the next eight columns. Of the left one, eight rows, the next eight, then the same further along the depth. The matrices
// of the next step lie at places that differ in one bit.
// CHECK-LABEL: func.func @product(
// CHECK: %[[THREAD:.*]] = "kernel.thread_id"()
// CHECK-DAG: %[[XS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring0"}
// CHECK-DAG: %[[WS:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "ring1"}
// CHECK: %[[LANE:.*]] = arith.remui %[[THREAD]], %c32
// CHECK: %[[IN_EIGHT:.*]] = arith.remui %[[LANE]], %c8
// CHECK: %[[FOURTH:.*]] = arith.divui %[[LANE]], %c8
// CHECK: %[[ODD:.*]] = arith.remui %[[FOURTH]], %c2
// CHECK: %[[HIGH:.*]] = arith.divui %[[FOURTH]], %c2
// CHECK: %[[B_PLACE:.*]] = arith.xori %[[ODD]], %[[IN_EIGHT]]
// CHECK: %[[B:.*]] = arith.addi %{{.*}}, %{{.*}}
// CHECK: %[[A_PLACE:.*]] = arith.xori %[[HIGH]], %[[IN_EIGHT]]
// CHECK: %[[A:.*]] = arith.addi %{{.*}}, %{{.*}}
// CHECK: %[[LEFT:.*]]:4 = "kernel.load_matrix"(%[[XS]], %[[A]])
// CHECK: %[[RIGHT:.*]]:4 = "kernel.load_matrix"(%[[WS]], %[[B]])
// CHECK: "kernel.mma"(%[[LEFT]]#0, %[[LEFT]]#1, %[[LEFT]]#2, %[[LEFT]]#3, %[[RIGHT]]#0, %[[RIGHT]]#1,
// CHECK: "kernel.mma"(%[[LEFT]]#0, %[[LEFT]]#1, %[[LEFT]]#2, %[[LEFT]]#3, %[[RIGHT]]#2, %[[RIGHT]]#3,
// CHECK: %[[FURTHER:.*]] = arith.xori %[[A]], %c16
// CHECK: "kernel.load_matrix"(%[[XS]], %[[FURTHER]])
// CHECK-COUNT-6: "kernel.mma"
// CHECK-NOT: "kernel.mma"
// CHECK-NOT: kernel.wgmma
// CHECK: return
func.func @product(%y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, copied, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x32x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<1x32x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<32x32x1xf32>
  %a = "tile.await"(%xs, %c0) : (memref<1x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
  %b = "tile.await"(%ws, %c0) : (memref<1x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
  %sum = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<32x64xbf16, 3>, memref<32x64xbf16, 3>, vector<32x32x1xf32>) -> vector<32x32x1xf32>
  "tile.store"(%sum, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<32x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// A slot of which there is one may be filled again when all threads have met.
// CHECK-LABEL: func.func @one_slot(
// CHECK: "kernel.barrier"()
// CHECK-NEXT: return
func.func @one_slot() attributes {tile.kernel, tile.arguments = [], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, copied, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x32x64xbf16, 3>
  %c0 = arith.constant 0 : index
  "tile.release"(%xs, %c0) {running = 0 : i64} : (memref<1x32x64xbf16, 3>, index) -> ()
  return
}

}
}
