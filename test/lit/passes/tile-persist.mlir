// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-persist)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (96)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 4096>}} {
module @kernels {

// Each block takes every eighth program. It finds the program's coordinates from its number, the fastest axis of the grid in
// groups of 16. Turns of rings count on from program to program: a slot of the last one is released in the next.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: tile.workers = 8 : i64
// CHECK: %[[RING:.*]] = "tile.ring"()
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[ROWS:.*]] = affine.apply affine_map<()[s0] -> ((s0 + 63) floordiv 64)>()[%[[N]]]
// CHECK: %[[PROGRAMS:.*]] = arith.muli %{{.*}}, %[[ROWS]]
// CHECK: %[[WORKER:.*]] = "tile.worker"() : () -> index
// CHECK: scf.for %[[NUMBER:.*]] = %[[WORKER]] to %[[PROGRAMS]] step %c8{{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}) -> (index) {
// CHECK-NOT: tile.program_id
// CHECK: %[[GROUP:.*]] = arith.divui %[[NUMBER]],
// CHECK: %[[INSIDE:.*]] = arith.remui %[[NUMBER]],
// CHECK: %[[START:.*]] = arith.muli %[[GROUP]], %c16
// CHECK: %[[LEFT:.*]] = arith.subi %[[ROWS]], %[[START]]
// CHECK: %[[HEIGHT:.*]] = arith.minui %[[LEFT]], %c16
// CHECK: %[[IN_GROUP:.*]] = arith.remui %[[INSIDE]], %[[HEIGHT]]
// CHECK: %[[ROW:.*]] = arith.addi %[[START]], %[[IN_GROUP]]
// CHECK: %[[REST:.*]] = arith.divui %[[INSIDE]], %[[HEIGHT]]
// CHECK: %[[COLUMN:.*]] = arith.remui %[[REST]],
// CHECK: arith.muli %[[ROW]], %c64
// CHECK: arith.muli %[[COLUMN]], %c32
// CHECK: scf.for %[[K:.*]] = %c0 to %c128 step %c64
// CHECK-NEXT: %[[OWN:.*]] = arith.divui %[[K]], %c64
// CHECK-NEXT: %[[TURN:.*]] = arith.addi %[[OWN]], %[[BEFORE]]
// CHECK-NEXT: "tile.fetch"(%[[RING]], %[[TURN]],
// CHECK-NEXT: "tile.await"(%[[RING]], %[[TURN]])
// CHECK-NEXT: "tile.release"(%[[RING]], %[[TURN]])
// CHECK: %[[TURNS:.*]] = arith.ceildivui
// CHECK-NEXT: %[[SO_FAR:.*]] = arith.addi %[[BEFORE]], %[[TURNS]]
// CHECK-NEXT: scf.yield %[[SO_FAR]]
// CHECK: return
func.func @product(%x: memref<4096x128xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64, persistent = 8 : i64}} {
  %ring = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  scf.for %k = %c0 to %c128 step %c64 {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%ring, %turn, %x, %i, %j, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<3x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
    %a = "tile.await"(%ring, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    "tile.release"(%ring, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
  }
  return
}

// What comes once in a program, before the loops, comes in one of two slots, which the loops release: so the next program's is
// on its way meanwhile. Loops that go on where the one before ended count their turns together.
// CHECK-LABEL: func.func @filled_before(
// CHECK: %[[ONCE:.*]] = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
// CHECK-NEXT: %[[RING:.*]] = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
// CHECK: scf.for %{{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}, %[[PROGRAM:.*]] = %{{.*}}) -> (index, index) {
// CHECK: "tile.fetch"(%[[ONCE]], %[[PROGRAM]],
// CHECK: "tile.await"(%[[ONCE]], %[[PROGRAM]])
// CHECK: scf.for %[[K:.*]] = %c0 to %c128 step %c64 {
// CHECK-NEXT: %[[OWN:.*]] = arith.divui %[[K]], %c64
// CHECK-NEXT: arith.addi %[[OWN]], %[[BEFORE]]
// CHECK: scf.for %[[LAST:.*]] = %c128 to %c192 step %c64 {
// CHECK-NEXT: %[[OWN:.*]] = arith.divui %[[LAST]], %c64
// CHECK-NEXT: %[[TURN:.*]] = arith.addi %[[OWN]], %[[BEFORE]]
// CHECK: "tile.release"(%[[RING]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: }
// CHECK-NEXT: "tile.release"(%[[ONCE]], %[[PROGRAM]]) {running = 0 : i64}
// CHECK-NEXT: %[[LENGTH:.*]] = arith.subi %c192, %c0
// CHECK-NEXT: %[[TURNS:.*]] = arith.ceildivui %[[LENGTH]], %c64
// CHECK-NEXT: %[[SO_FAR:.*]] = arith.addi %[[BEFORE]], %[[TURNS]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[PROGRAM]], %c1
// CHECK-NEXT: scf.yield %[[SO_FAR]], %[[NEXT]]
func.func @filled_before(%x: memref<4096x128xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64, persistent = 8 : i64}} {
  %once = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ring = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c192 = arith.constant 192 : index
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  "tile.fetch"(%once, %c0, %x, %i, %c0, %c0) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<1x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
  %a = "tile.await"(%once, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  scf.for %k = %c0 to %c128 step %c64 {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%ring, %turn, %x, %i, %c0, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<3x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
    %b = "tile.await"(%ring, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    "tile.release"(%ring, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
  }
  scf.for %k = %c128 to %c192 step %c64 {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%ring, %turn, %x, %i, %c0, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<3x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
    %b = "tile.await"(%ring, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    "tile.release"(%ring, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
  }
  return
}

// A kernel keeps a block for each program where its schedule asks for nothing else, and where something comes after the loops.
// CHECK-LABEL: func.func @filled_after(
// CHECK-NOT: tile.worker
// CHECK: "tile.program_id"
// CHECK-LABEL: func.func @not_persistent(
// CHECK-NOT: tile.worker
// CHECK: "tile.program_id"
func.func @filled_after(%x: memref<4096x128xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64, persistent = 8 : i64}} {
  %once = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ring = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  scf.for %k = %c0 to %c128 step %c64 {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%ring, %turn, %x, %i, %c0, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<3x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
    %b = "tile.await"(%ring, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    "tile.release"(%ring, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
  }
  "tile.fetch"(%once, %c0, %x, %i, %c0, %c0) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<1x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
  %a = "tile.await"(%once, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  return
}
func.func @not_persistent(%x: memref<4096x128xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64}} {
  %ring = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  scf.for %k = %c0 to %c128 step %c64 {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%ring, %turn, %x, %i, %c0, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<3x64x64xbf16, 3>, index, memref<4096x128xbf16>, index, index, index) -> ()
    %a = "tile.await"(%ring, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  }
  return
}

}
}
