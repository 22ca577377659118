// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-prefetch)' | FileCheck %s

#k = {name = "k", extent = affine_map<()[n] -> (n)>, layout = array<i64: 8, 1, 8, 1>, walk = "loop"}
module attributes {primop.symbols = {n = array<i64: 1, 64>}} {
module @kernels {
// Not where a loop that precedes makes what they need: here, at which place the second one starts.
// CHECK-LABEL: func.func @known_later(
// CHECK: "tile.load"(
// CHECK-NEXT: %[[FIRST:.*]]:3 = scf.for
// CHECK: %[[NEXT:.*]] = "tile.load"(%{{.*}}, %[[FIRST]]#1,
// CHECK-NEXT: scf.for %{{.*}} = %[[FIRST]]#1 to %{{.*}} step %c8 iter_args(%{{[^,]*}} = %[[FIRST]]#0, %{{[^,]*}} = %[[NEXT]])
func.func @known_later(%x: memref<64xf32>, %y: memref<8xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false, ahead}} {
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %half = arith.divui %n, %c2 : index
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %sum, %end = scf.for %k = %c0 to %half step %c8 iter_args(%so_far = %zeros, %reached = %c0) -> (vector<8xf32>, index) {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    %next = arith.addi %k, %c8 : index
    scf.yield %more, %next : vector<8xf32>, index
  }
  %all = scf.for %k = %end to %n step %c8 iter_args(%so_far = %sum) -> vector<8xf32> {
    %tile = "tile.load"(%x, %k, %n) {map = affine_map<(k)[n] -> (k)>, mask = affine_map<(k)[n] -> (n - k - 1)>} : (memref<64xf32>, index, index) -> vector<8xf32>
    %more = arith.addf %so_far, %tile : vector<8xf32>
    scf.yield %more : vector<8xf32>
  }
  "tile.store"(%all, %y, %c0) {map = affine_map<(k) -> (k)>} : (vector<8xf32>, memref<8xf32>, index) -> ()
  return
}

}
}
