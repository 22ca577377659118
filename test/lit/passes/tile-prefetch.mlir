// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-prefetch,tilec-dce)' | FileCheck %s

#k = {name = "k", extent = affine_map<()[n] -> (n)>, layout = array<i64: 8, 1, 8, 1>, walk = "loop"}
#m = {name = "m", extent = affine_map<()[n] -> (20)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#p = {name = "p", extent = affine_map<()[n] -> (4)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {
module @kernels {

// A masked tile is read one turn ahead and carried in registers. The last turn reads a tile that does not exist.
// CHECK-LABEL: func.func @masked(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32>
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[FIRST:.*]] = "tile.load"(%[[X]], %c0, %[[N]]) {map = affine_map<(d0)[s0] -> (d0)>, mask = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>}
// CHECK-NEXT: %[[LOOP:.*]]:2 = scf.for %[[K:.*]] = %c0 to %[[N]] step %c8 iter_args(%[[SUM:.*]] = %{{.*}}, %[[TILE:.*]] = %[[FIRST]])
// CHECK-NEXT: %[[FOLLOWING:.*]] = arith.addi %[[K]], %c8
// CHECK-NEXT: %[[NEXT:.*]] = "tile.load"(%[[X]], %[[FOLLOWING]], %[[N]]) {map = affine_map<(d0)[s0] -> (d0)>, mask = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>}
// CHECK-NEXT: %[[MORE:.*]] = arith.addf %[[SUM]], %[[TILE]]
// CHECK-NEXT: scf.yield %[[MORE]], %[[NEXT]]
// CHECK: "tile.store"(%[[LOOP]]#0,
func.func @masked(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %c0 to %n step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

// Of a loop over rows that are there before the kernel, each tile that is read ahead takes what is there and no more: there may
// be no turn, and the last turn reads nothing.
// CHECK-LABEL: func.func @held(
// CHECK: "tile.load"(%[[X:.*]], %c0, %[[N:.*]]) {held = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>, map = affine_map<(d0)[s0] -> (d0)>, mask = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>}
// CHECK-NEXT: scf.for %[[K:.*]] = %c0
// CHECK-NEXT: %[[FOLLOWING:.*]] = arith.addi %[[K]], %c8
// CHECK-NEXT: "tile.load"(%[[X]], %[[FOLLOWING]], %[[N]]) {held = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>, map = affine_map<(d0)[s0] -> (d0)>, mask = affine_map<(d0)[s0] -> (-d0 + s0 - 1)>}
// CHECK-NOT: tile.load
// CHECK: return
func.func @held(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %turns = arith.divui %n, %c8 : index
  %end = arith.muli %turns, %c8 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %c0 to %end step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, held = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

// A mask of theirs stays beside that condition.
// CHECK-LABEL: func.func @held_of_rows(
// CHECK: "tile.load"(%[[X:.*]], %[[I:.*]], %c0, %[[N:.*]]) {{{.*}}mask = affine_map<(d0, d1)[s0] -> (-d0 + 19, -d1 + s0 - 1)>}
// CHECK-NEXT: scf.for %[[K:.*]] = %c0
// CHECK-NEXT: %[[FOLLOWING:.*]] = arith.addi %[[K]], %c8
// CHECK-NEXT: "tile.load"(%[[X]], %[[I]], %[[FOLLOWING]], %[[N]]) {{{.*}}mask = affine_map<(d0, d1)[s0] -> (-d0 + 19, -d1 + s0 - 1)>}
func.func @held_of_rows(%x: memref<20x64xf32>, %y: memref<24x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %i = arith.muli %program, %c8 : index
  %turns = arith.divui %n, %c8 : index
  %end = arith.muli %turns, %c8 : index
  %zeros = arith.constant dense<0.0> : vector<8x8xf32>
  %sum = scf.for %k = %c0 to %end step %c8 iter_args(%so_far = %zeros) -> vector<8x8xf32> {
    %tile = "tile.load"(%x, %i, %k, %n) {map = affine_map<(m, k)[n] -> (m, k)>, mask = affine_map<(m, k)[n] -> (19 - m)>, held = affine_map<(m, k)[n] -> (n - k - 1)>} : (memref<20x64xf32>, index, index, index) -> vector<8x8xf32>
    %more = arith.addf %so_far, %tile : vector<8x8xf32>
    scf.yield %more : vector<8x8xf32>
  }
  "tile.store"(%sum, %y, %i, %c0) {map = affine_map<(m, k) -> (m, k)>} : (vector<8x8xf32>, memref<24x8xf32>, index, index) -> ()
  return
}

// Without a mask the last turn reads its own tile again.
// CHECK-LABEL: func.func @whole(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32>
// CHECK: %[[FIRST:.*]] = "tile.load"(%[[X]], %c0)
// CHECK-NEXT: scf.for %[[K:.*]] = %c0 to %[[END:.*]] step %c8 iter_args(%[[SUM:.*]] = %{{.*}}, %[[TILE:.*]] = %[[FIRST]])
// CHECK-NEXT: %[[FOLLOWING:.*]] = arith.addi %[[K]], %c8
// CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[END]], %c8
// CHECK-NEXT: %[[INSIDE:.*]] = arith.minsi %[[FOLLOWING]], %[[LAST]]
// CHECK-NEXT: %[[NEXT:.*]] = "tile.load"(%[[X]], %[[INSIDE]])
// CHECK-NEXT: %[[MORE:.*]] = arith.addf %[[SUM]], %[[TILE]]
// CHECK-NEXT: scf.yield %[[MORE]], %[[NEXT]]
func.func @whole(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %turns = arith.divui %n, %c8 : index
  %end = arith.muli %turns, %c8 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %c0 to %end step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<64xf32>, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

// So it does where a mask only says which rows exist, the same ones in every turn: the tile is read ahead under this mask,
// which does not end the loop.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:[^:]*]]: memref<20x64xf32>
// CHECK: %[[I:.*]] = arith.muli
// CHECK: %[[FIRST:.*]] = "tile.load"(%[[X]], %[[I]], %c0) {map = affine_map<(d0, d1) -> (d0, d1)>, mask = affine_map<(d0, d1) -> (-d0 + 19)>}
// CHECK-NEXT: scf.for %[[K:.*]] = %c0 to %[[END:.*]] step %c8 iter_args(%[[SUM:.*]] = %{{.*}}, %[[TILE:.*]] = %[[FIRST]])
// CHECK-NEXT: %[[FOLLOWING:.*]] = arith.addi %[[K]], %c8
// CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[END]], %c8
// CHECK-NEXT: %[[INSIDE:.*]] = arith.minsi %[[FOLLOWING]], %[[LAST]]
// CHECK-NEXT: %[[NEXT:.*]] = "tile.load"(%[[X]], %[[I]], %[[INSIDE]]) {map = affine_map<(d0, d1) -> (d0, d1)>, mask = affine_map<(d0, d1) -> (-d0 + 19)>}
// CHECK-NEXT: %[[MORE:.*]] = arith.addf %[[SUM]], %[[TILE]]
// CHECK-NEXT: scf.yield %[[MORE]], %[[NEXT]]
func.func @rows(%x: memref<20x64xf32>, %y: memref<24x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %i = arith.muli %program, %c8 : index
  %turns = arith.divui %n, %c8 : index
  %end = arith.muli %turns, %c8 : index
  %zeros = arith.constant dense<0.0> : vector<8x8xf32>
  %sum = scf.for %k = %c0 to %end step %c8 iter_args(%so_far = %zeros) -> vector<8x8xf32> {
    %tile = "tile.load"(%x, %i, %k) {map = affine_map<(m, k) -> (m, k)>, mask = affine_map<(m, k) -> (19 - m)>} : (memref<20x64xf32>, index, index) -> vector<8x8xf32>
    %more = arith.addf %so_far, %tile : vector<8x8xf32>
    scf.yield %more : vector<8x8xf32>
  }
  "tile.store"(%sum, %y, %i, %c0) {map = affine_map<(m, k) -> (m, k)>} : (vector<8x8xf32>, memref<24x8xf32>, index, index) -> ()
  return
}

// Of a loop whose steps are longer than its tiles, because other programs take what is between, the last turn reads the last
// tile before the end.
// CHECK-LABEL: func.func @shared(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32>
// CHECK: %[[PROGRAM:.*]] = "tile.program_id"
// CHECK: %[[OWN:.*]] = arith.muli %[[PROGRAM]], %c8
// CHECK: %[[INSIDE:.*]] = arith.minsi %[[OWN]], %c56
// CHECK-NEXT: %[[FIRST:.*]] = "tile.load"(%[[X]], %[[PROGRAM]], %[[INSIDE]])
// CHECK-NEXT: scf.for %[[K:.*]] = %[[OWN]] to %[[END:.*]] step %c32 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %[[FIRST]])
// CHECK-NEXT: %[[FOLLOWING:.*]] = arith.addi %[[K]], %c32
// CHECK-NEXT: %[[TILE:.*]] = arith.constant 8 : index
// CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[END]], %[[TILE]]
// CHECK-NEXT: arith.minsi %[[FOLLOWING]], %[[LAST]]
func.func @shared(%x: memref<64xf32>, %y: memref<4x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#p, #k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %program = "tile.program_id"() {axis = 0 : i64} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c32 = arith.constant 32 : index
  %turns = arith.divui %n, %c8 : index
  %end = arith.muli %turns, %c8 : index
  %own = arith.muli %program, %c8 : index
  %zeros = arith.constant dense<0.0> : vector<1x8xf32>
  %sum = scf.for %k = %own to %end step %c32 iter_args(%so_far = %zeros) -> vector<1x8xf32> {
    %tile = "tile.load"(%x, %program, %k) {map = affine_map<(p, k) -> (k)>} : (memref<64xf32>, index, index) -> vector<1x8xf32>
    %more = arith.addf %so_far, %tile : vector<1x8xf32>
    scf.yield %more : vector<1x8xf32>
  }
  "tile.store"(%sum, %y, %program, %c0) {map = affine_map<(p, k) -> (p, k)>} : (vector<1x8xf32>, memref<4x8xf32>, index, index) -> ()
  return
}

// The first tiles of a loop are read before the loops that precede it as well, so that they are there when those end: here
// both loops' first tiles, one after the other, and the second loop starts with its own.
// CHECK-LABEL: func.func @two_loops(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32>
// CHECK: %[[HALF:.*]] = arith.divui
// CHECK-NOT: scf.for
// CHECK: %[[OF_FIRST:.*]] = "tile.load"(%[[X]], %c0, %{{.*}})
// CHECK-NEXT: %[[OF_SECOND:.*]] = "tile.load"(%[[X]], %[[HALF]], %{{.*}})
// CHECK-NEXT: %[[FIRST:.*]]:2 = scf.for %{{.*}} = %c0 to %[[HALF]] step %c8 iter_args(%{{[^,]*}} = %{{[^,]*}}, %{{[^,]*}} = %[[OF_FIRST]])
// CHECK: scf.for %{{.*}} = %[[HALF]] to %{{.*}} step %c8 iter_args(%{{[^,]*}} = %[[FIRST]]#0, %{{[^,]*}} = %[[OF_SECOND]])
func.func @two_loops(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %half = arith.divui %n, %c2 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %c0 to %half step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n floordiv 2 - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  %all = scf.for %k = %half to %n step %c8 iter_args(%so_far = %sum) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%all, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

// A loop that begins at a length may begin, and make no turn, where a tile no longer fits the buffer: the first tile is read
// inside it all the same.
// CHECK-LABEL: func.func @begins_late(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32>
// CHECK: %[[N:.*]] = "tile.symbol"() {symbol = "n"}
// CHECK: %[[INSIDE:.*]] = arith.minsi %[[N]], %c56
// CHECK-NEXT: %[[FIRST:.*]] = "tile.load"(%[[X]], %[[INSIDE]])
// CHECK-NEXT: scf.for %{{.*}} = %[[N]] to %{{.*}} step %c8 iter_args(%{{[^,]*}} = %{{[^,]*}}, %{{[^,]*}} = %[[FIRST]])
func.func @begins_late(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %left = arith.subi %c64, %n : index
  %turns = arith.divui %left, %c8 : index
  %whole = arith.muli %turns, %c8 : index
  %end = arith.addi %n, %whole : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %n to %end step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<64xf32>, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

// It stays where the first tile might not exist: the buffer may be shorter than a tile, and the loop may make no turn.
// CHECK-LABEL: func.func @short_buffer(
// CHECK: scf.for %[[K:.*]] = %c0 to %{{.*}} step %c8 iter_args(%{{[^,]*}} = %{{[^,]*}}) ->
// CHECK-NEXT: "tile.load"(%{{.*}}, %[[K]])
func.func @short_buffer(%x: memref<4xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c100 = arith.constant 100 : index
  %turns = arith.divui %n, %c100 : index
  %end = arith.muli %turns, %c8 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %c0 to %end step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<4xf32>, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

// A tile that is the same in every turn is read once before the loop, also where its origin names the turn for an axis
// that its map leaves out.
// CHECK-LABEL: func.func @invariant(
// CHECK-SAME: %[[X:[^:]*]]: memref<1xf32>
// CHECK: %[[TILE:.*]] = "tile.load"(%[[X]], %c0)
// CHECK-NEXT: scf.for %{{.*}} = %c0 to %{{.*}} step %c8 iter_args(%[[SUM:[^,]*]] = %{{[^,]*}}) ->
// CHECK-NEXT: arith.addf %[[SUM]], %[[TILE]]
func.func @invariant(%x: memref<1xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant dense<0.0> : vector<1xf32>
  %sum = scf.for %k = %c0 to %n step %c8 iter_args(%so_far = %zero) -> vector<1xf32> {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (0)>} : (memref<1xf32>, index) -> vector<1xf32>
    %more = arith.addf %so_far, %tile : vector<1xf32>
    scf.yield %more : vector<1xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<8xf32>, index) -> ()
  return
}

// Of two loops that take the same tile, it is read once.
// CHECK-LABEL: func.func @invariant_of_both(
// CHECK: %[[TILE:.*]] = "tile.load"
// CHECK-NOT: tile.load
// CHECK: scf.for
// CHECK: arith.addf %{{.*}}, %[[TILE]]
// CHECK: scf.for
// CHECK: arith.addf %{{.*}}, %[[TILE]]
func.func @invariant_of_both(%x: memref<1xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %half = arith.divui %n, %c2 : index
  %zero = arith.constant dense<0.0> : vector<1xf32>
  %sum = scf.for %k = %c0 to %half step %c8 iter_args(%so_far = %zero) -> vector<1xf32> {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (0)>} : (memref<1xf32>, index) -> vector<1xf32>
    %more = arith.addf %so_far, %tile : vector<1xf32>
    scf.yield %more : vector<1xf32>
  }
  %all = scf.for %k = %half to %n step %c8 iter_args(%so_far = %sum) -> vector<1xf32> {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (0)>} : (memref<1xf32>, index) -> vector<1xf32>
    %more = arith.addf %so_far, %tile : vector<1xf32>
    scf.yield %more : vector<1xf32>
  }
  "tile.store"(%all, %y, %c0) {map = affine_map<(k) -> (0)>} : (vector<1xf32>, memref<8xf32>, index) -> ()
  return
}

// A loop that stores is left alone: it could store what the next turn reads.
// CHECK-LABEL: func.func @stores(
// CHECK-NOT: tile.load
// CHECK: scf.for %[[K:.*]] = %c0 to %{{.*}} step %c8 {
// CHECK-NEXT: %[[TILE:.*]] = "tile.load"(%{{.*}}, %[[K]], %{{.*}})
// CHECK-NEXT: "tile.store"(%[[TILE]],
func.func @stores(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  scf.for %k = %c0 to %n step %c8 {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    "tile.store"(%tile, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  }
  return
}

// So is a kernel whose schedule does not ask for it.
// CHECK-LABEL: func.func @not_ahead(
// CHECK-NOT: tile.load
// CHECK: scf.for %[[K:.*]] = %c0 to %{{.*}} step %c8 iter_args(%[[SUM:[^,]*]] = %{{[^,]*}}) ->
// CHECK-NEXT: %[[TILE:.*]] = "tile.load"(%{{.*}}, %[[K]], %{{.*}})
// CHECK-NEXT: %[[MORE:.*]] = arith.addf %[[SUM]], %[[TILE]]
// CHECK-NEXT: scf.yield %[[MORE]]
func.func @not_ahead(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum = scf.for %k = %c0 to %n step %c8 iter_args(%so_far = %zeros) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%sum, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

}
}
