// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-specialise)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (128)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// What comes before the first fetch is for all threads. Then producers walk the loop with no more than the fetches and
// their arithmetic, and carry nothing; the others await, compute, release and store.
// CHECK-LABEL: func.func @product(
// CHECK: %[[XS:.*]] = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
// CHECK: %[[ROW:.*]] = arith.muli
// CHECK: %[[PRODUCER:.*]] = "tile.producer"() : () -> i1
// CHECK-NEXT: scf.if %[[PRODUCER]] {
// CHECK-NEXT:   scf.for %[[K:.*]] = %c0 to %c128 step %c64 {
// CHECK-NEXT:     %[[TURN:.*]] = arith.divui %[[K]], %c64
// CHECK-NEXT:     "tile.fetch"(%[[XS]], %[[TURN]], %{{[^,]*}}, %[[ROW]], %c0, %[[K]])
// CHECK-NEXT:     "tile.fetch"(%[[WS:[^,]*]], %[[TURN]], %{{[^,]*}}, %[[ROW]], %c0, %[[K]]){{.*}}
// CHECK-NEXT:   }
// CHECK-NEXT: } else {
// CHECK-NEXT:   %[[SUM:.*]] = scf.for %[[K:.*]] = %c0 to %c128 step %c64 iter_args(%[[SO_FAR:.*]] = %{{.*}})
// CHECK-NEXT:     %[[TURN:.*]] = arith.divui %[[K]], %c64
// CHECK-NOT:      tile.fetch
// CHECK:          %[[A:.*]] = "tile.await"(%[[XS]], %[[TURN]])
// CHECK-NEXT:     %[[B:.*]] = "tile.await"(%[[WS]], %[[TURN]])
// CHECK-NEXT:     %[[MORE:.*]] = "tile.dot_shared"(%[[A]], %[[B]], %[[SO_FAR]])
// CHECK-NEXT:     "tile.release"(%[[XS]], %[[TURN]])
// CHECK-NEXT:     "tile.release"(%[[WS]], %[[TURN]])
// CHECK-NEXT:     scf.yield %[[MORE]]
// CHECK:        "tile.store"(%[[SUM]],{{.*}}
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @product(%x: memref<128x128xbf16>, %w: memref<32x128xbf16>, %y: memref<128x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64}} {
  %xs = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<3x32x64xbf16, 3>
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %i = arith.muli %program, %c64 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%xs, %turn, %x, %i, %c0, %k) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<3x64x64xbf16, 3>, index, memref<128x128xbf16>, index, index, index) -> ()
    %a = "tile.await"(%xs, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    "tile.fetch"(%ws, %turn, %w, %i, %c0, %k) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<3x32x64xbf16, 3>, index, memref<32x128xbf16>, index, index, index) -> ()
    %b = "tile.await"(%ws, %turn) : (memref<3x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    %more = "tile.dot_shared"(%a, %b, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<32x64xbf16, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    "tile.release"(%xs, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<3x32x64xbf16, 3>, index) -> ()
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<128x32xf32>, index, index, index) -> ()
  return
}

// A tile that is fetched before the loop is fetched by the producer as well, before its loop.
// CHECK-LABEL: func.func @before_the_loop(
// CHECK: scf.if
// CHECK-NEXT:   "tile.fetch"(%[[XS:[^,]*]], %c0,
// CHECK-NEXT:   scf.for
// CHECK:          "tile.fetch"
// CHECK:      } else {
// CHECK-NEXT:   "tile.await"(%[[XS]], %c0)
// CHECK-NEXT:   scf.for
func.func @before_the_loop(%x: memref<128x64xbf16>, %w: memref<128x64xbf16>) attributes {tile.kernel, tile.arguments = ["read", "weight"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<2x32x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  "tile.fetch"(%xs, %c0, %x, %c0, %c0, %c0) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<1x64x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %a = "tile.await"(%xs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  scf.for %n = %c0 to %c128 step %c32 {
    %turn = arith.divui %n, %c32 : index
    "tile.fetch"(%ws, %turn, %w, %c0, %n, %c0) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<2x32x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
    %b = "tile.await"(%ws, %turn) : (memref<2x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    %product = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<32x64xbf16, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<2x32x64xbf16, 3>, index) -> ()
  }
  return
}

// An index that a loop carries is counted by both: here the turns of earlier programs.
// CHECK-LABEL: func.func @counted(
// CHECK: scf.if
// CHECK-NEXT:   scf.for %{{.*}} = %c0 to %c128 step %c32 iter_args(%[[TURN:.*]] = %c0) -> (index) {
// CHECK-NEXT:     "tile.fetch"(%{{[^,]*}}, %[[TURN]],
// CHECK-NEXT:     %[[NEXT:.*]] = arith.addi %[[TURN]], %c1
// CHECK-NEXT:     scf.yield %[[NEXT]] : index
// CHECK:      } else {
// CHECK-NEXT:   scf.for %{{.*}} = %c0 to %c128 step %c32 iter_args(%[[TURN:[^,]*]] = %c0, %[[SUM:[^,]*]] = %{{[^,]*}})
// CHECK-NEXT:     "tile.await"(%{{[^,]*}}, %[[TURN]])
func.func @counted(%w: memref<128x64xbf16>) attributes {tile.kernel, tile.arguments = ["weight"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %ws = "tile.ring"() : () -> memref<2x32x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %both:2 = scf.for %n = %c0 to %c128 step %c32 iter_args(%turn = %c0, %sum = %zeros) -> (index, vector<64x32x1xf32>) {
    "tile.fetch"(%ws, %turn, %w, %c0, %n, %c0) {rows = array<i64: 1>, column = 2 : i64, map = affine_map<(m, n, k) -> (n, k)>} : (memref<2x32x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
    %b = "tile.await"(%ws, %turn) : (memref<2x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<2x32x64xbf16, 3>, index) -> ()
    %next = arith.addi %turn, %c1 : index
    %more = arith.addf %sum, %sum : vector<64x32x1xf32>
    scf.yield %next, %more : index, vector<64x32x1xf32>
  }
  return
}

// With one slot nobody can fetch ahead, so all threads do everything; a schedule without tensor cores has no roles.
// CHECK-LABEL: func.func @one_slot(
// CHECK-NOT: tile.producer
// CHECK: "tile.fetch"
// CHECK-NEXT: "tile.await"
// CHECK-LABEL: func.func @no_tensor_cores(
// CHECK-NOT: tile.producer
// CHECK: "tile.load"
func.func @one_slot(%x: memref<128x64xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  "tile.fetch"(%xs, %c0, %x, %c0, %c0, %c0) {rows = array<i64: 0>, column = 2 : i64, map = affine_map<(m, n, k) -> (m, k)>} : (memref<1x64x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %a = "tile.await"(%xs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  return
}
func.func @no_tensor_cores(%x: memref<128x64xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true}} {
  %c0 = arith.constant 0 : index
  %a = "tile.load"(%x, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<128x64xbf16>, index, index, index) -> vector<64x1x64xbf16>
  return
}

}
}
