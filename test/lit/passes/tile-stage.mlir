// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-stage,canonicalize)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (64)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (136)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}
#lanes = {name = "d", extent = affine_map<()[n] -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop", lanes_of = "t"}
#depth = {name = "k", extent = affine_map<()[n] -> (72)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}
#keys = {name = "t", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// Both operands of a product come through rings with a slot for each stage: rows along what the result keeps, columns along
// what is reduced. A mask is dropped. The product of a turn still runs when those before it are known to have ended, and
// only their slots are released.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: memref<128x136xbf16>, %[[W:[^:]*]]: memref<64x136xbf16>
// CHECK-DAG: %[[XS:.*]] = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
// CHECK-DAG: %[[WS:.*]] = "tile.ring"() : () -> memref<3x32x64xbf16, 3>
// CHECK: scf.for %[[K:.*]] = %c0 to %c192 step %c64 iter_args(%[[ACC:.*]] = %{{.*}})
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[K]], %c64
// CHECK-NOT: tile.load
// CHECK: "tile.fetch"(%[[XS]], %[[TURN]], %[[X]], %[[ROW:[^,]*]], %[[COLUMN:[^,]*]], %[[K]], %{{[^,]*}}) {column = 2 : i64, map = affine_map<(d0, d1, d2)[s0] -> (d0, d2)>, rows = array<i64: 0>}
// CHECK-NEXT: %[[A:.*]] = "tile.await"(%[[XS]], %[[TURN]]) {{.*}} -> memref<64x64xbf16, 3>
// CHECK-NEXT: "tile.fetch"(%[[WS]], %[[TURN]], %[[W]], %[[ROW]], %[[COLUMN]], %[[K]]) {column = 2 : i64, map = affine_map<(d0, d1, d2) -> (d1, d2)>, rows = array<i64: 1>}
// CHECK-NEXT: %[[B:.*]] = "tile.await"(%[[WS]], %[[TURN]]) {{.*}} -> memref<32x64xbf16, 3>
// CHECK-NEXT: %[[SUM:.*]] = "tile.dot_shared"(%[[A]], %[[B]], %[[ACC]]) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>}
// CHECK-NEXT: %[[LATER:.*]] = arith.cmpi ugt, %[[TURN]], %c0
// CHECK-NEXT: scf.if %[[LATER]] {
// CHECK-NEXT: %[[BEFORE:.*]] = arith.subi %[[TURN]], %c1
// CHECK-NEXT: "tile.release"(%[[XS]], %[[BEFORE]]) {running = 1 : i64}
// CHECK-NEXT: "tile.release"(%[[WS]], %[[BEFORE]]) {running = 1 : i64}
// CHECK-NEXT: }
// CHECK-NEXT: scf.yield %[[SUM]]
func.func @product(%x: memref<128x136xbf16>, %w: memref<64x136xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c192 = arith.constant 192 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c192 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %i, %j, %k, %n) {map = affine_map<(m, n, k)[s] -> (m, k)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1, 135 - k)>} : (memref<128x136xbf16>, index, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %i, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (135 - k)>} : (memref<64x136xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1)>} : (vector<64x32x1xf32>, memref<128x64xf32>, index, index, index, index) -> ()
  return
}

// An operand of two products is fetched once; a slot is free when both products of its turn have ended, so two may run.
// CHECK-LABEL: func.func @two_products(
// CHECK-COUNT-3: "tile.ring"()
// CHECK-NOT: "tile.ring"()
// CHECK: scf.for
// CHECK: %[[A:.*]] = "tile.await"(%{{.*}}, %{{.*}}) {{.*}} -> memref<64x64xbf16, 3>
// CHECK: "tile.dot_shared"(%[[A]], %{{.*}}, %{{.*}})
// CHECK: "tile.dot_shared"(%[[A]], %{{.*}}, %{{.*}})
// CHECK-NOT: "tile.await"
// CHECK-COUNT-3: "tile.release"(%{{.*}}, %{{.*}}) {running = 2 : i64}
func.func @two_products(%x: memref<128x136xbf16>, %u: memref<64x136xbf16>, %v: memref<64x136xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, tensor, stages = 3 : i64}} {
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c192 = arith.constant 192 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %both:2 = scf.for %k = %c0 to %c192 step %c64 iter_args(%p = %zeros, %q = %zeros) -> (vector<64x32x1xf32>, vector<64x32x1xf32>) {
    %a = "tile.load"(%x, %c0, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>, mask = affine_map<(m, n, k) -> (135 - k)>} : (memref<128x136xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%u, %c0, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (135 - k)>} : (memref<64x136xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %c = "tile.load"(%v, %c0, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (135 - k)>} : (memref<64x136xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %more_p = "tile.dot"(%a, %b, %p) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    %more_q = "tile.dot"(%a, %c, %q) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more_p, %more_q : vector<64x32x1xf32>, vector<64x32x1xf32>
  }
  %sum = arith.mulf %both#0, %both#1 : vector<64x32x1xf32>
  "tile.store"(%sum, %y, %c0, %j, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// The first product of attention: queries are the same in every turn and have one slot, filled before the loop. What is
// computed from a product needs it to have ended, so its slot is released at once. The second product's left operand stays
// in registers; its right one lies with the reduced axis along rows, which read as zero beyond the length in use.
// CHECK-LABEL: func.func @attention(
// CHECK-SAME: %[[Q:[^:]*]]: memref<128x64xbf16>, %[[K:[^:]*]]: memref<128x64xbf16>, %[[V:[^:]*]]: memref<128x64xbf16>
// CHECK-DAG: %[[QS:.*]] = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
// CHECK: "tile.fetch"(%[[QS]], %c0, %[[Q]], %{{[^,]*}}, %c0, %c0) {column = 1 : i64, map = affine_map<(d0, d1, d2) -> (d0, d1)>, rows = array<i64: 0>}
// CHECK-NEXT: %[[QUERIES:.*]] = "tile.await"(%[[QS]], %c0)
// CHECK: scf.for %[[T:.*]] = %c0 to %{{.*}} step %c64 iter_args(%[[ACC:.*]] = %{{.*}})
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[T]], %c64
// CHECK: "tile.fetch"(%[[KS:[^,]*]], %[[TURN]], %[[K]],
// CHECK-NOT: limit
// CHECK-SAME: rows = array<i64: 2>
// CHECK-NEXT: %[[KEYS:.*]] = "tile.await"(%[[KS]], %[[TURN]])
// CHECK-NEXT: %[[SCORES:.*]] = "tile.dot_shared"(%[[QUERIES]], %[[KEYS]], %{{.*}}) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>}
// CHECK-NEXT: "tile.release"(%[[KS]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: %[[P:.*]] = arith.truncf %[[SCORES]]
// CHECK: "tile.fetch"(%[[VS:[^,]*]], %[[TURN]], %[[V]],
// CHECK-SAME: {column = 1 : i64, limit = affine_map<()[s0] -> (s0)>,
// CHECK-SAME: rows = array<i64: 2>
// CHECK-NEXT: %[[VALUES:.*]] = "tile.await"(%[[VS]], %[[TURN]])
// CHECK-NEXT: %[[SUM:.*]] = "tile.dot_shared"(%[[P]], %[[VALUES]], %[[ACC]]) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true}
// CHECK-NEXT: "tile.release"(%[[VS]], %[[TURN]]) {running = 0 : i64}
// CHECK: scf.yield %[[SUM]]
func.func @attention(%q: memref<128x64xbf16>, %k: memref<128x64xbf16>, %v: memref<128x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #lanes, #keys], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64x1xf32>
  %mixed = scf.for %t = %c0 to %n step %c64 iter_args(%so_far = %zeros) -> vector<64x64x1xf32> {
    %a = "tile.load"(%q, %i, %c0, %t) {map = affine_map<(m, d, t) -> (m, d)>} : (memref<128x64xbf16>, index, index, index) -> vector<64x64x1xbf16>
    %b = "tile.load"(%k, %i, %c0, %t, %n) {map = affine_map<(m, d, t)[s] -> (t, d)>, mask = affine_map<(m, d, t)[s] -> (s - t - 1)>} : (memref<128x64xbf16>, index, index, index, index) -> vector<1x64x64xbf16>
    %scores = "tile.dot"(%a, %b, %none) : (vector<64x64x1xbf16>, vector<1x64x64xbf16>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    %p = arith.truncf %scores : vector<64x1x64xf32> to vector<64x1x64xbf16>
    %c = "tile.load"(%v, %i, %c0, %t, %n) {map = affine_map<(m, d, t)[s] -> (t, d)>, mask = affine_map<(m, d, t)[s] -> (s - t - 1)>} : (memref<128x64xbf16>, index, index, index, index) -> vector<1x64x64xbf16>
    %more = "tile.dot"(%p, %c, %so_far) : (vector<64x1x64xbf16>, vector<1x64x64xbf16>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    scf.yield %more : vector<64x64x1xf32>
  }
  "tile.store"(%mixed, %y, %i, %c0, %c0) {map = affine_map<(m, d, t) -> (m, d)>} : (vector<64x64x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// Two loops along one axis share rings. Turns are counted from where the first of them begins, which may be anywhere.
// CHECK-LABEL: func.func @begins_late(
// CHECK: %[[BEGIN:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[HALF:.*]] = arith.addi %[[BEGIN]], %c64
// CHECK: scf.for %[[T:.*]] = %[[BEGIN]] to %[[HALF]] step %c64
// CHECK-NEXT: %[[WALKED:.*]] = arith.subi %[[T]], %[[BEGIN]]
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[WALKED]], %c64
// CHECK-NEXT: "tile.fetch"(%[[KS:.*]], %[[TURN]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[T]])
// CHECK: scf.for %[[T:.*]] = %[[HALF]] to %{{.*}} step %c64
// CHECK-NEXT: %[[WALKED:.*]] = arith.subi %[[T]], %[[BEGIN]]
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[WALKED]], %c64
// CHECK-NEXT: "tile.fetch"(%[[KS]], %[[TURN]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[T]])
func.func @begins_late(%q: memref<128x64xbf16>, %k: memref<512x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #lanes, #keys], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %half = arith.addi %n, %c64 : index
  %end = arith.addi %half, %c64 : index
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %first = scf.for %t = %n to %half step %c64 iter_args(%so_far = %none) -> vector<64x1x64xf32> {
    %a = "tile.load"(%q, %i, %c0, %t) {map = affine_map<(m, d, t) -> (m, d)>} : (memref<128x64xbf16>, index, index, index) -> vector<64x64x1xbf16>
    %b = "tile.load"(%k, %i, %c0, %t) {map = affine_map<(m, d, t) -> (t, d)>} : (memref<512x64xbf16>, index, index, index) -> vector<1x64x64xbf16>
    %scores = "tile.dot"(%a, %b, %none) : (vector<64x64x1xbf16>, vector<1x64x64xbf16>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    %larger = arith.maximumf %so_far, %scores : vector<64x1x64xf32>
    scf.yield %larger : vector<64x1x64xf32>
  }
  %all = scf.for %t = %half to %end step %c64 iter_args(%so_far = %first) -> vector<64x1x64xf32> {
    %a = "tile.load"(%q, %i, %c0, %t) {map = affine_map<(m, d, t) -> (m, d)>} : (memref<128x64xbf16>, index, index, index) -> vector<64x64x1xbf16>
    %b = "tile.load"(%k, %i, %c0, %t) {map = affine_map<(m, d, t) -> (t, d)>} : (memref<512x64xbf16>, index, index, index) -> vector<1x64x64xbf16>
    %scores = "tile.dot"(%a, %b, %none) : (vector<64x64x1xbf16>, vector<1x64x64xbf16>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    %larger = arith.maximumf %so_far, %scores : vector<64x1x64xf32>
    scf.yield %larger : vector<64x1x64xf32>
  }
  "tile.store"(%all, %y, %i, %c0, %c0) {map = affine_map<(m, d, t) -> (m, t)>} : (vector<64x1x64xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// Multiply-adds read shared memory themselves: what they have read is free at the end of the turn. Two products that share an
// operand wait for all that they read, and then take turns.
// CHECK-LABEL: func.func @staged(
// CHECK-SAME: %[[X:[^:]*]]: memref<128x72xf32>
// CHECK-DAG: "tile.ring"() : () -> memref<3x64x32xf32, 3>
// CHECK: scf.for %[[K:.*]] = %c0 to %c96 step %c32
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[K]], %c32
// CHECK: %[[A:.*]] = "tile.await"(%[[XS:.*]], %[[TURN]]) {{.*}} -> memref<64x32xf32, 3>
// CHECK: "tile.await"(%[[US:.*]], %[[TURN]])
// CHECK: "tile.await"(%[[VS:.*]], %[[TURN]])
// CHECK-NEXT: %[[P:.*]] = "tile.dot_shared"(%[[A]], %{{.*}}, %{{.*}})
// CHECK-NEXT: %[[Q:.*]] = "tile.dot_shared"(%[[A]], %{{.*}}, %{{.*}})
// CHECK-NEXT: "tile.release"(%[[XS]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: "tile.release"(%[[US]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: "tile.release"(%[[VS]], %[[TURN]]) {running = 0 : i64}
// CHECK-NEXT: scf.yield %[[P]], %[[Q]]
func.func @staged(%x: memref<128x72xf32>, %u: memref<64x72xf32>, %v: memref<64x72xf32>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "weight", "write"], tile.schedule = {axes = [#m, #n, #depth], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, staged, stages = 3 : i64}} {
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %c96 = arith.constant 96 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %both:2 = scf.for %k = %c0 to %c96 step %c32 iter_args(%p = %zeros, %q = %zeros) -> (vector<64x32x1xf32>, vector<64x32x1xf32>) {
    %a = "tile.load"(%x, %i, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>, mask = affine_map<(m, n, k) -> (71 - k)>} : (memref<128x72xf32>, index, index, index) -> vector<64x1x32xf32>
    %b = "tile.load"(%u, %i, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (71 - k)>} : (memref<64x72xf32>, index, index, index) -> vector<1x32x32xf32>
    %c = "tile.load"(%v, %i, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>, mask = affine_map<(m, n, k) -> (71 - k)>} : (memref<64x72xf32>, index, index, index) -> vector<1x32x32xf32>
    %more_p = "tile.dot"(%a, %b, %p) : (vector<64x1x32xf32>, vector<1x32x32xf32>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    %more_q = "tile.dot"(%a, %c, %q) : (vector<64x1x32xf32>, vector<1x32x32xf32>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more_p, %more_q : vector<64x32x1xf32>, vector<64x32x1xf32>
  }
  %sum = arith.mulf %both#0, %both#1 : vector<64x32x1xf32>
  "tile.store"(%sum, %y, %i, %j, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// A mask along the reduced axis is where a fetch ends: rows of what lies as (k, n), columns of what lies along it.
// CHECK-LABEL: func.func @lengths(
// CHECK: "tile.fetch"({{.*}}) {column = 2 : i64, column_limit = affine_map<()[s0] -> (s0)>, {{.*}}rows = array<i64: 0>}
// CHECK: "tile.fetch"({{.*}}) {column = 1 : i64, limit = affine_map<()[s0] -> (s0)>, {{.*}}rows = array<i64: 2>}
// CHECK: "tile.dot_shared"({{.*}}) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true}
func.func @lengths(%p: memref<128x128xf32>, %v: memref<128x64xf32>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n, #depth], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true, staged, stages = 3 : i64}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %n step %c32 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%p, %i, %j, %k, %n) {map = affine_map<(m, n, k)[s] -> (m, k)>, mask = affine_map<(m, n, k)[s] -> (s - k - 1)>} : (memref<128x128xf32>, index, index, index, index) -> vector<64x1x32xf32>
    %b = "tile.load"(%v, %i, %j, %k, %n) {map = affine_map<(m, n, k)[s] -> (k, n)>, mask = affine_map<(m, n, k)[s] -> (s - k - 1)>} : (memref<128x64xf32>, index, index, index, index) -> vector<1x32x32xf32>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x32xf32>, vector<1x32x32xf32>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

// A kernel whose schedule does not ask for rings is left alone.
// CHECK-LABEL: func.func @multiply_adds(
// CHECK-NOT: tile.ring
// CHECK: scf.for
// CHECK: %[[A:.*]] = "tile.load"
// CHECK: %[[B:.*]] = "tile.load"
// CHECK-NEXT: "tile.dot"(%[[A]], %[[B]], %{{.*}})
func.func @multiply_adds(%x: memref<128x136xbf16>, %w: memref<64x136xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "weight", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64: 1, 0>, unroll = 1 : i64, dot = true}} {
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> vector<64x32x1xf32> {
    %a = "tile.load"(%x, %c0, %j, %k) {map = affine_map<(m, n, k) -> (m, k)>} : (memref<128x136xbf16>, index, index, index) -> vector<64x1x64xbf16>
    %b = "tile.load"(%w, %c0, %j, %k) {map = affine_map<(m, n, k) -> (n, k)>} : (memref<64x136xbf16>, index, index, index) -> vector<1x32x64xbf16>
    %more = "tile.dot"(%a, %b, %so_far) : (vector<64x1x64xbf16>, vector<1x32x64xbf16>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %c0, %j, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x32x1xf32>, memref<128x64xf32>, index, index, index) -> ()
  return
}

}
}
