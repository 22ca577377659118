// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-tile-to-kernel,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 128, 2, 64, 2>, walk = "loop"}

module {
module @kernels {

// A block leaves the rows of the other one in shared memory, those of the first rank where its own are not. Of what two blocks
// added up each goes on with its own rows, in a branch of its own: it reads nothing for the other block, and nothing is
// selected.
// CHECK-LABEL: func.func @shares(
// CHECK-SAME: %[[Z:[^:]*]]: memref<65536xf32, 1>, %[[R:[^:]*]]: memref<512xf32, 1>, %[[Y:[^:]*]]: memref<512xf32, 1>
// CHECK: "kernel.shared"() {symbol = "exchange0"} : () -> memref<256xf32, 3>
// CHECK: %[[OTHERS:.*]] = arith.cmpi ne, %{{.*}}, %c0
// CHECK: scf.if %[[OTHERS]] {
// CHECK-COUNT-2: "kernel.store_shared"
// CHECK: %[[OTHERS:.*]] = arith.cmpi ne, %{{.*}}, %c1
// CHECK: scf.if %[[OTHERS]] {
// CHECK-COUNT-2: "kernel.store_shared"
// CHECK: "kernel.cluster_wait"
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[RANK:.*]], %c0
// CHECK: scf.if %[[FIRST]] -> (f32, f32)
// CHECK: "kernel.load_remote"
// CHECK: %[[SECOND:.*]] = arith.cmpi eq, %[[RANK]], %c1
// CHECK: scf.if %[[SECOND]] -> (f32, f32)
// CHECK: "kernel.cluster_arrive"
// CHECK-NEXT: scf.if %[[FIRST]] {
// CHECK: %[[READ:.*]] = "kernel.load_global"(%[[R]], %[[AT:.*]]) {{.*}} -> vector<2xf32>
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %{{.*}}, %[[READ]]
// CHECK-NEXT: "kernel.store_global"(%[[SUM]], %[[Y]], %[[AT]])
// CHECK-NEXT: }
// CHECK-NEXT: scf.if %[[SECOND]] {
// CHECK: "kernel.load_global"(%[[R]], %[[BELOW:.*]]) {{.*}} -> vector<2xf32>
// CHECK-NOT: kernel.load_global
// CHECK: "kernel.store_global"(%{{.*}}, %[[Y]], %[[BELOW]])
// CHECK-NOT: kernel.store_global
// CHECK: "kernel.cluster_wait"
func.func @shares(%z: memref<128x64x8xf32>, %r: memref<64x8xf32>, %y: memref<64x8xf32>) attributes {tile.kernel, tile.arguments = ["read", "read", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %parts = "tile.load"(%z, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (k, m, n)>} : (memref<128x64x8xf32>, index, index, index) -> vector<64x8x2xf32>
  %sum = "tile.reduce"(%parts) {kind = "add", axes = array<i64: 2>, dealt = array<i64: 0, 1>} : (vector<64x8x2xf32>) -> vector<64x8x1xf32>
  %residual = "tile.load"(%r, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (memref<64x8xf32>, index, index, index) -> vector<64x8x1xf32>
  %total = arith.addf %sum, %residual : vector<64x8x1xf32>
  "tile.store"(%total, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m, n)>} : (vector<64x8x1xf32>, memref<64x8xf32>, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (128)>, layout = array<i64: 128, 2, 64, 2>, walk = "loop"}

module {
module @kernels {

// Where all threads must meet again, for a sum along the columns, every block keeps all results.
// CHECK-LABEL: func.func @together(
// CHECK-SAME: %[[Z:[^:]*]]: memref<65536xf32, 1>, %[[Y:[^:]*]]: memref<64xf32, 1>
// CHECK: "kernel.load_remote"
// CHECK: "kernel.warp_reduce"
func.func @together(%z: memref<128x64x8xf32>, %y: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %parts = "tile.load"(%z, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (k, m, n)>} : (memref<128x64x8xf32>, index, index, index) -> vector<64x8x2xf32>
  %sum = "tile.reduce"(%parts) {kind = "add", axes = array<i64: 2>, dealt = array<i64: 0, 1>} : (vector<64x8x2xf32>) -> vector<64x8x1xf32>
  %row = "tile.reduce"(%sum) {kind = "add", axes = array<i64: 1>} : (vector<64x8x1xf32>) -> vector<64x1x1xf32>
  "tile.store"(%row, %y, %c0, %c0, %c0) {map = affine_map<(m, n, k) -> (m)>} : (vector<64x1x1xf32>, memref<64xf32>, index, index, index) -> ()
  return
}

}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#h = {name = "h", extent = affine_map<() -> (2)>, layout = array<i64: 2, 1, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (128)>, layout = array<i64: 128, 4, 2, 1>, walk = "grid"}
#half = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}

module {
module @kernels {

// What is reversed needs two results for each. A thread has 128 of them, and reads as many more: too much, so the upper row
// is stored before the lower one is read.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:[^:]*]]: memref<16384xf32, 1>, %[[Y:[^:]*]]: memref<16384xf32, 1>
// CHECK-COUNT-32: "kernel.load_global"(%[[X]],
// CHECK-NOT: kernel.load_global
// CHECK-COUNT-32: "kernel.store_global"(%{{.*}}, %[[Y]],
// CHECK-COUNT-32: "kernel.load_global"(%[[X]],
// CHECK-COUNT-32: "kernel.store_global"(%{{.*}}, %[[Y]],
func.func @rows(%x: memref<64x2x128xf32>, %y: memref<64x2x128xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #h, #n], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0, %c0) {map = affine_map<(m, h, n) -> (m, h, n)>} : (memref<64x2x128xf32>, index, index, index) -> vector<64x2x128xf32>
  %reversed = "tile.reverse"(%tile) {axis = 1 : i64} : (vector<64x2x128xf32>) -> vector<64x2x128xf32>
  %product = arith.mulf %tile, %reversed : vector<64x2x128xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0) {map = affine_map<(m, h, n) -> (m, h, n)>} : (vector<64x2x128xf32>, memref<64x2x128xf32>, index, index, index) -> ()
  return
}

// A quarter of that fits.
// CHECK-LABEL: func.func @fitting(
// CHECK-COUNT-16: "kernel.load_global"
// CHECK-COUNT-16: "kernel.store_global"
func.func @fitting(%x: memref<64x2x32xf32>, %y: memref<64x2x32xf32>) attributes {tile.kernel, tile.arguments = ["read", "write"], tile.schedule = {axes = [#m, #h, #half], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0, %c0, %c0) {map = affine_map<(m, h, n) -> (m, h, n)>} : (memref<64x2x32xf32>, index, index, index) -> vector<64x2x32xf32>
  %reversed = "tile.reverse"(%tile) {axis = 1 : i64} : (vector<64x2x32xf32>) -> vector<64x2x32xf32>
  %product = arith.mulf %tile, %reversed : vector<64x2x32xf32>
  "tile.store"(%product, %y, %c0, %c0, %c0) {map = affine_map<(m, h, n) -> (m, h, n)>} : (vector<64x2x32xf32>, memref<64x2x32xf32>, index, index, index) -> ()
  return
}

}
}
