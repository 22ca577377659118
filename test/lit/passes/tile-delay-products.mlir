// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-delay-products,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#d = {name = "d", extent = affine_map<()[n] -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop", lanes_of = "t"}
#t = {name = "t", extent = affine_map<()[n] -> (4 * n)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// Attention as it is staged: keys that all queries see, then those under a mask. The first turn comes before the loops, under
// the mask of the last one, which is right for all turns, and without its second product, whose operands stay: the shares in
// registers, the values in their slot.
// CHECK-LABEL: func.func @attention(
// CHECK-SAME: %[[Q:[^:]*]]: memref<128x64xbf16>, %[[K:[^:]*]]: memref<512x64xbf16>, %[[V:[^:]*]]: memref<512x64xbf16>
// CHECK: %[[QS:.*]] = "tile.ring"()
// CHECK: %[[KS:.*]] = "tile.ring"()
// CHECK: %[[VS:.*]] = "tile.ring"()
// CHECK: %[[BEGIN:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[END:.*]] = arith.addi %[[BEGIN]], %{{.*}}
// CHECK: %[[WHOLE:.*]] = arith.addi %[[BEGIN]], %{{.*}}
// CHECK: %[[QUERIES:.*]] = "tile.await"(%[[QS]], %c0)
// CHECK: %[[SECOND:.*]] = arith.addi %[[BEGIN]], %c64
// CHECK-NOT: scf.for
// CHECK: "tile.fetch"(%[[KS]], %c0, %[[K]], %{{.*}}, %c0, %[[BEGIN]], %[[BEGIN]])
// CHECK: %[[SCORES:.*]] = "tile.dot_shared"(%[[QUERIES]], %{{.*}}, %{{.*}}) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>}
// CHECK: "tile.release"(%[[KS]], %c0) {running = 0 : i64}
// CHECK: "tile.index"(%{{.*}}, %c0, %[[BEGIN]], %[[BEGIN]]) {map = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 * 4 - 1)>}
// CHECK: %[[MASKED:.*]] = arith.select %{{.*}}, %[[SCORES]], %{{.*}}
// CHECK: %[[MENDED:.*]] = arith.mulf
// CHECK: %[[POWERS:.*]] = math.exp2 %[[MASKED]]
// CHECK: %[[SHARES:.*]] = arith.truncf %[[POWERS]]
// CHECK: "tile.fetch"(%[[VS]], %c0, %[[V]], %{{.*}}, %c0, %[[BEGIN]], %[[BEGIN]]) {column = 1 : i64, limit = affine_map<()[s0] -> (s0 * 4)>
// CHECK-NOT: "tile.await"
// CHECK-NOT: "tile.dot_shared"
// CHECK-NOT: "tile.release"
// CHECK: %[[TOTAL:.*]] = arith.addf

// The number of the last turn, which may be the first, is counted as the loops count theirs.
// CHECK: %[[BEYOND:.*]] = arith.maxsi %[[END]], %[[SECOND]]
// CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[BEYOND]], %c64
// CHECK-NEXT: %[[WALKED:.*]] = arith.subi %[[LAST]], %[[BEGIN]]
// CHECK-NEXT: %[[FINAL:.*]] = arith.divui %[[WALKED]], %c64

// The loops begin a turn later and also carry the shares. Each turn starts its first product and, beside it, the second one of
// the turn before, for which values have come when both start; the first one has been made while the second still runs.
// CHECK: %[[FIRST:.*]]:3 = scf.for %[[T:.*]] = %[[SECOND]] to %[[WHOLE]] step %c64 iter_args(%[[MIXED:.*]] = %[[MENDED]], %{{.*}} = %[[TOTAL]], %[[BEFORE:.*]] = %[[SHARES]])
// CHECK: %[[TURN:.*]] = arith.divui
// CHECK: %[[KEYS:.*]] = "tile.await"(%[[KS]], %[[TURN]])
// CHECK-NEXT: %[[LAST_TURN:.*]] = arith.subi %[[TURN]], %c1
// CHECK-NEXT: %[[VALUES:.*]] = "tile.await"(%[[VS]], %[[LAST_TURN]])
// CHECK-NEXT: %[[PRODUCT:.*]] = "tile.dot_shared"(%[[QUERIES]], %[[KEYS]], %{{.*}})
// CHECK-NEXT: %[[MIX:.*]] = "tile.dot_shared"(%[[BEFORE]], %[[VALUES]], %[[MIXED]]) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true}
// CHECK-NEXT: %[[SCORES:.*]] = "tile.made"(%[[PRODUCT]]) {running = 1 : i64}
// CHECK-NEXT: "tile.release"(%[[KS]], %[[TURN]]) {running = 1 : i64}
// CHECK-NOT: "tile.index"

// What needs neither the second product nor its registers comes first, such as the sum of the powers. Then that product is
// waited for, and its slot is released, a turn after it was filled. Only then are shares made narrow, in the registers that the
// product has read, and what it has summed is mended.
// CHECK: %[[POWERS:.*]] = math.exp2 %[[SCORES]]
// CHECK-NEXT: %[[PARTS:.*]] = "tile.reduce"(%[[POWERS]])
// CHECK-NEXT: %[[MORE:.*]] = arith.addf %{{.*}}, %[[PARTS]]
// CHECK: "tile.fetch"(%[[VS]], %[[TURN]], %[[V]], %{{.*}}, %c0, %[[T]], %{{.*}})
// CHECK-NEXT: %[[MADE:.*]] = "tile.made"(%[[MIX]]) {running = 0 : i64}
// CHECK-NEXT: "tile.release"(%[[VS]], %[[LAST_TURN]]) {running = 0 : i64}
// CHECK-NEXT: %[[SHARES:.*]] = arith.truncf %[[POWERS]]
// CHECK-NEXT: %[[MENDED:.*]] = arith.mulf %[[MADE]], %{{.*}}
// CHECK-NEXT: scf.yield %[[MENDED]], %[[MORE]], %[[SHARES]]

// The second loop goes on, not before the second turn, where the first one had none.
// CHECK: %[[GO_ON:.*]] = arith.maxsi %[[WHOLE]], %[[SECOND]]
// CHECK: %[[ALL:.*]]:3 = scf.for %{{.*}} = %[[GO_ON]] to %[[END]] step %c64 iter_args(%{{.*}} = %[[FIRST]]#0, %{{.*}} = %[[FIRST]]#1, %{{.*}} = %[[FIRST]]#2)
// CHECK-COUNT-2: "tile.dot_shared"
// CHECK: "tile.made"({{.*}}) {running = 1 : i64}
// CHECK: "tile.index"
// CHECK: "tile.made"({{.*}}) {running = 0 : i64}
// CHECK: scf.yield

// The second product of that turn comes after the loops.
// CHECK: %[[VALUES:.*]] = "tile.await"(%[[VS]], %[[FINAL]])
// CHECK: %[[SUM:.*]] = "tile.dot_shared"(%[[ALL]]#2, %[[VALUES]], %[[ALL]]#0)
// CHECK: "tile.release"(%[[VS]], %[[FINAL]]) {running = 0 : i64}
// CHECK: arith.divf %[[SUM]],
func.func @attention(%q: memref<128x64xbf16>, %k: memref<512x64xbf16>, %v: memref<512x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %seen = arith.muli %n, %c3 : index
  %turns = arith.ceildivui %seen, %c64 : index
  %walked_all = arith.muli %turns, %c64 : index
  %end = arith.addi %n, %walked_all : index
  %turns_of_all = arith.divui %seen, %c64 : index
  %seen_by_all = arith.muli %turns_of_all, %c64 : index
  %whole = arith.addi %n, %seen_by_all : index
  %zero = arith.constant dense<0> : vector<64x1x64xi32>
  %excluded = arith.constant dense<0xFF800000> : vector<64x1x64xf32>
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64x1xf32>
  %nothing = arith.constant dense<0.0> : vector<64x1x1xf32>
  "tile.fetch"(%qs, %c0, %q, %i, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x64x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %first:2 = scf.for %t = %n to %whole step %c64 iter_args(%mixed = %zeros, %total = %nothing) -> (vector<64x64x1xf32>, vector<64x1x1xf32>) {
    %walked = arith.subi %t, %n : index
    %turn = arith.divui %walked, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %scores = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %largest = "tile.reduce"(%scores) {kind = "max", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %factor = math.exp2 %largest : vector<64x1x1xf32>
    %mend = vector.broadcast %factor : vector<64x1x1xf32> to vector<64x64x1xf32>
    %mended = arith.mulf %mixed, %mend : vector<64x64x1xf32>
    %powers = math.exp2 %scores : vector<64x1x64xf32>
    %shares = arith.truncf %powers : vector<64x1x64xf32> to vector<64x1x64xbf16>
    "tile.fetch"(%vs, %turn, %v, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %values = "tile.await"(%vs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %mix = "tile.dot_shared"(%shares, %values, %mended) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %sum = "tile.reduce"(%powers) {kind = "add", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %more = arith.addf %total, %sum : vector<64x1x1xf32>
    scf.yield %mix, %more : vector<64x64x1xf32>, vector<64x1x1xf32>
  }
  %all:2 = scf.for %t = %whole to %end step %c64 iter_args(%mixed = %first#0, %total = %first#1) -> (vector<64x64x1xf32>, vector<64x1x1xf32>) {
    %walked = arith.subi %t, %n : index
    %turn = arith.divui %walked, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %product = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %left = "tile.index"(%i, %c0, %t, %n) {map = affine_map<(m, d, t)[n] -> (4 * n - t - 1)>} : (index, index, index, index) -> vector<64x1x64xi32>
    %exists = arith.cmpi sge, %left, %zero : vector<64x1x64xi32>
    %scores = arith.select %exists, %product, %excluded : vector<64x1x64xi1>, vector<64x1x64xf32>
    %largest = "tile.reduce"(%scores) {kind = "max", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %factor = math.exp2 %largest : vector<64x1x1xf32>
    %mend = vector.broadcast %factor : vector<64x1x1xf32> to vector<64x64x1xf32>
    %mended = arith.mulf %mixed, %mend : vector<64x64x1xf32>
    %powers = math.exp2 %scores : vector<64x1x64xf32>
    %shares = arith.truncf %powers : vector<64x1x64xf32> to vector<64x1x64xbf16>
    "tile.fetch"(%vs, %turn, %v, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, limit = affine_map<()[n] -> (4 * n)>, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %values = "tile.await"(%vs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %mix = "tile.dot_shared"(%shares, %values, %mended) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %sum = "tile.reduce"(%powers) {kind = "add", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %more = arith.addf %total, %sum : vector<64x1x1xf32>
    scf.yield %mix, %more : vector<64x64x1xf32>, vector<64x1x1xf32>
  }
  %totals = vector.broadcast %all#1 : vector<64x1x1xf32> to vector<64x64x1xf32>
  %result = arith.divf %all#0, %totals : vector<64x64x1xf32>
  "tile.store"(%result, %y, %i, %c0, %c0, %n) {map = affine_map<(m, d, t)[n] -> (m, d)>, mask = affine_map<(m, d, t)[n] -> (n - m - 1)>} : (vector<64x64x1xf32>, memref<128x64xf32>, index, index, index, index) -> ()
  return
}

// What a turn itself reads cannot be made in the next one.
// CHECK-LABEL: func.func @reads_the_product(
// CHECK-NOT: "tile.made"
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c64 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (vector<64x64x1xf32>, vector<64x1x1xf32>)
// CHECK: %[[SHARES:.*]] = arith.truncf
// CHECK: %[[MIX:.*]] = "tile.dot_shared"(%[[SHARES]],
// CHECK: "tile.reduce"(%[[MIX]])
// CHECK: scf.yield %[[MIX]],
// CHECK-NOT: "tile.dot_shared"
// CHECK: return
func.func @reads_the_product(%q: memref<128x64xbf16>, %k: memref<512x64xbf16>, %v: memref<512x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %seen = arith.muli %n, %c3 : index
  %turns = arith.ceildivui %seen, %c64 : index
  %walked_all = arith.muli %turns, %c64 : index
  %end = arith.addi %n, %walked_all : index
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64x1xf32>
  %nothing = arith.constant dense<0.0> : vector<64x1x1xf32>
  "tile.fetch"(%qs, %c0, %q, %i, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x64x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %all:2 = scf.for %t = %n to %end step %c64 iter_args(%mixed = %zeros, %total = %nothing) -> (vector<64x64x1xf32>, vector<64x1x1xf32>) {
    %walked = arith.subi %t, %n : index
    %turn = arith.divui %walked, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %scores = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %largest = "tile.reduce"(%scores) {kind = "max", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %factor = math.exp2 %largest : vector<64x1x1xf32>
    %mend = vector.broadcast %factor : vector<64x1x1xf32> to vector<64x64x1xf32>
    %mended = arith.mulf %mixed, %mend : vector<64x64x1xf32>
    %powers = math.exp2 %scores : vector<64x1x64xf32>
    %shares = arith.truncf %powers : vector<64x1x64xf32> to vector<64x1x64xbf16>
    "tile.fetch"(%vs, %turn, %v, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %values = "tile.await"(%vs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %mix = "tile.dot_shared"(%shares, %values, %mended) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %sum = "tile.reduce"(%mix) {kind = "add", axes = array<i64: 1>} : (vector<64x64x1xf32>) -> vector<64x1x1xf32>
    %more = arith.addf %total, %sum : vector<64x1x1xf32>
    scf.yield %mix, %more : vector<64x64x1xf32>, vector<64x1x1xf32>
  }
  %totals = vector.broadcast %all#1 : vector<64x1x1xf32> to vector<64x64x1xf32>
  %result = arith.divf %all#0, %totals : vector<64x64x1xf32>
  "tile.store"(%result, %y, %i, %c0, %c0, %n) {map = affine_map<(m, d, t)[n] -> (m, d)>, mask = affine_map<(m, d, t)[n] -> (n - m - 1)>} : (vector<64x64x1xf32>, memref<128x64xf32>, index, index, index, index) -> ()
  return
}

// The mask of the last loop would be wrong for a first turn whose own loop has another one.
// CHECK-LABEL: func.func @another_mask(
// CHECK-NOT: "tile.made"
// CHECK: scf.for
// CHECK: "tile.index"({{.*}}) {map = affine_map<(d0, d1, d2)[s0] -> (d2 - d0)>}
// CHECK: scf.for
// CHECK: "tile.index"({{.*}}) {map = affine_map<(d0, d1, d2)[s0] -> (-d2 + s0 * 4 - 1)>}
// CHECK-NOT: "tile.made"
// CHECK: scf.yield
// CHECK-NOT: "tile.dot_shared"
// CHECK: return
func.func @another_mask(%q: memref<128x64xbf16>, %k: memref<512x64xbf16>, %v: memref<512x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %seen = arith.muli %n, %c3 : index
  %turns = arith.ceildivui %seen, %c64 : index
  %walked_all = arith.muli %turns, %c64 : index
  %end = arith.addi %n, %walked_all : index
  %turns_of_all = arith.divui %seen, %c64 : index
  %seen_by_all = arith.muli %turns_of_all, %c64 : index
  %whole = arith.addi %n, %seen_by_all : index
  %zero = arith.constant dense<0> : vector<64x1x64xi32>
  %excluded = arith.constant dense<0xFF800000> : vector<64x1x64xf32>
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64x1xf32>
  %nothing = arith.constant dense<0.0> : vector<64x1x1xf32>
  "tile.fetch"(%qs, %c0, %q, %i, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x64x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %first:2 = scf.for %t = %n to %whole step %c64 iter_args(%mixed = %zeros, %total = %nothing) -> (vector<64x64x1xf32>, vector<64x1x1xf32>) {
    %walked = arith.subi %t, %n : index
    %turn = arith.divui %walked, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %product = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %left = "tile.index"(%i, %c0, %t, %n) {map = affine_map<(m, d, t)[n] -> (t - m)>} : (index, index, index, index) -> vector<64x1x64xi32>
    %exists = arith.cmpi sge, %left, %zero : vector<64x1x64xi32>
    %scores = arith.select %exists, %product, %excluded : vector<64x1x64xi1>, vector<64x1x64xf32>
    %largest = "tile.reduce"(%scores) {kind = "max", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %factor = math.exp2 %largest : vector<64x1x1xf32>
    %mend = vector.broadcast %factor : vector<64x1x1xf32> to vector<64x64x1xf32>
    %mended = arith.mulf %mixed, %mend : vector<64x64x1xf32>
    %powers = math.exp2 %scores : vector<64x1x64xf32>
    %shares = arith.truncf %powers : vector<64x1x64xf32> to vector<64x1x64xbf16>
    "tile.fetch"(%vs, %turn, %v, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %values = "tile.await"(%vs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %mix = "tile.dot_shared"(%shares, %values, %mended) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %sum = "tile.reduce"(%powers) {kind = "add", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %more = arith.addf %total, %sum : vector<64x1x1xf32>
    scf.yield %mix, %more : vector<64x64x1xf32>, vector<64x1x1xf32>
  }
  %all:2 = scf.for %t = %whole to %end step %c64 iter_args(%mixed = %first#0, %total = %first#1) -> (vector<64x64x1xf32>, vector<64x1x1xf32>) {
    %walked = arith.subi %t, %n : index
    %turn = arith.divui %walked, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %product = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %left = "tile.index"(%i, %c0, %t, %n) {map = affine_map<(m, d, t)[n] -> (4 * n - t - 1)>} : (index, index, index, index) -> vector<64x1x64xi32>
    %exists = arith.cmpi sge, %left, %zero : vector<64x1x64xi32>
    %scores = arith.select %exists, %product, %excluded : vector<64x1x64xi1>, vector<64x1x64xf32>
    %largest = "tile.reduce"(%scores) {kind = "max", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %factor = math.exp2 %largest : vector<64x1x1xf32>
    %mend = vector.broadcast %factor : vector<64x1x1xf32> to vector<64x64x1xf32>
    %mended = arith.mulf %mixed, %mend : vector<64x64x1xf32>
    %powers = math.exp2 %scores : vector<64x1x64xf32>
    %shares = arith.truncf %powers : vector<64x1x64xf32> to vector<64x1x64xbf16>
    "tile.fetch"(%vs, %turn, %v, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, limit = affine_map<()[n] -> (4 * n)>, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %values = "tile.await"(%vs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %mix = "tile.dot_shared"(%shares, %values, %mended) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %sum = "tile.reduce"(%powers) {kind = "add", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %more = arith.addf %total, %sum : vector<64x1x1xf32>
    scf.yield %mix, %more : vector<64x64x1xf32>, vector<64x1x1xf32>
  }
  %totals = vector.broadcast %all#1 : vector<64x1x1xf32> to vector<64x64x1xf32>
  %result = arith.divf %all#0, %totals : vector<64x64x1xf32>
  "tile.store"(%result, %y, %i, %c0, %c0, %n) {map = affine_map<(m, d, t)[n] -> (m, d)>, mask = affine_map<(m, d, t)[n] -> (n - m - 1)>} : (vector<64x64x1xf32>, memref<128x64xf32>, index, index, index, index) -> ()
  return
}

// A warp's own tensor core makes its products at once: nothing can run beside them.
// CHECK-LABEL: func.func @copied(
// CHECK-NOT: "tile.made"
// CHECK: scf.for
// CHECK-NOT: "tile.made"
// CHECK: scf.yield
// CHECK-NOT: "tile.dot_shared"
// CHECK: return
func.func @copied(%q: memref<128x64xbf16>, %k: memref<512x64xbf16>, %v: memref<512x64xbf16>, %y: memref<128x64xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "read", "write"], tile.schedule = {axes = [#m, #d, #t], order = array<i64>, unroll = 1 : i64, dot = true, copied, tensor, stages = 2 : i64}} {
  %qs = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %ks = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %vs = "tile.ring"() : () -> memref<2x64x64xbf16, 3>
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %i = arith.muli %row, %c64 : index
  %seen = arith.muli %n, %c3 : index
  %turns = arith.ceildivui %seen, %c64 : index
  %walked_all = arith.muli %turns, %c64 : index
  %end = arith.addi %n, %walked_all : index
  %none = arith.constant dense<0.0> : vector<64x1x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x64x1xf32>
  %nothing = arith.constant dense<0.0> : vector<64x1x1xf32>
  "tile.fetch"(%qs, %c0, %q, %i, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, d, t) -> (m, d)>} : (memref<1x64x64xbf16, 3>, index, memref<128x64xbf16>, index, index, index) -> ()
  %queries = "tile.await"(%qs, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %all:2 = scf.for %t = %n to %end step %c64 iter_args(%mixed = %zeros, %total = %nothing) -> (vector<64x64x1xf32>, vector<64x1x1xf32>) {
    %walked = arith.subi %t, %n : index
    %turn = arith.divui %walked, %c64 : index
    "tile.fetch"(%ks, %turn, %k, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %keys = "tile.await"(%ks, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %scores = "tile.dot_shared"(%queries, %keys, %none) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 2>} : (memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, vector<64x1x64xf32>) -> vector<64x1x64xf32>
    "tile.release"(%ks, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %largest = "tile.reduce"(%scores) {kind = "max", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %factor = math.exp2 %largest : vector<64x1x1xf32>
    %mend = vector.broadcast %factor : vector<64x1x1xf32> to vector<64x64x1xf32>
    %mended = arith.mulf %mixed, %mend : vector<64x64x1xf32>
    %powers = math.exp2 %scores : vector<64x1x64xf32>
    %shares = arith.truncf %powers : vector<64x1x64xf32> to vector<64x1x64xbf16>
    "tile.fetch"(%vs, %turn, %v, %i, %c0, %t, %n) {rows = array<i64: 2>, column = 1 : i64, map = affine_map<(m, d, t)[n] -> (t, d)>} : (memref<2x64x64xbf16, 3>, index, memref<512x64xbf16>, index, index, index, index) -> ()
    %values = "tile.await"(%vs, %turn) : (memref<2x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %mix = "tile.dot_shared"(%shares, %values, %mended) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x64xbf16>, memref<64x64xbf16, 3>, vector<64x64x1xf32>) -> vector<64x64x1xf32>
    "tile.release"(%vs, %turn) {running = 0 : i64} : (memref<2x64x64xbf16, 3>, index) -> ()
    %sum = "tile.reduce"(%powers) {kind = "add", axes = array<i64: 2>} : (vector<64x1x64xf32>) -> vector<64x1x1xf32>
    %more = arith.addf %total, %sum : vector<64x1x1xf32>
    scf.yield %mix, %more : vector<64x64x1xf32>, vector<64x1x1xf32>
  }
  %totals = vector.broadcast %all#1 : vector<64x1x1xf32> to vector<64x64x1xf32>
  %result = arith.divf %all#0, %totals : vector<64x64x1xf32>
  "tile.store"(%result, %y, %i, %c0, %c0, %n) {map = affine_map<(m, d, t)[n] -> (m, d)>, mask = affine_map<(m, d, t)[n] -> (n - m - 1)>} : (vector<64x64x1xf32>, memref<128x64xf32>, index, index, index, index) -> ()
  return
}

}
}
