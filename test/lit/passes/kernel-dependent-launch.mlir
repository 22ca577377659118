// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-dependent-launch)' | FileCheck %s
// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-dependent-launch{prefetch=false})' | FileCheck %s --check-prefix=LATE

gpu.module @kernels {

// A kernel lets the next one start at once. It reads symbols and weights, which no kernel writes, and only then waits for
// what earlier kernels have written.
// CHECK-LABEL: func.func @prefetch(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32, 1>, %[[W:[^:]*]]: memref<64xf32, 1>, %[[TABLE:[^:]*]]: memref<1xi64, 1>
// CHECK-SAME: kernel.dependent
// CHECK-NEXT: "kernel.launch_dependents"()
// CHECK: "kernel.load_global"(%[[TABLE]],
// CHECK: "kernel.load_global"(%[[W]],
// CHECK: "kernel.grid_wait"()
// CHECK-NEXT: "kernel.load_global"(%[[X]],
// Without prefetch only what stands before the first such access is read early.
// LATE-LABEL: func.func @prefetch(
// LATE-SAME: %[[X:[^:]*]]: memref<64xf32, 1>, %[[W:[^:]*]]: memref<64xf32, 1>, %[[TABLE:[^:]*]]: memref<1xi64, 1>
// LATE: "kernel.load_global"(%[[TABLE]],
// LATE: "kernel.grid_wait"()
// LATE-NEXT: "kernel.load_global"(%[[X]],
// LATE: "kernel.load_global"(%[[W]],
func.func @prefetch(%x: memref<64xf32, 1>, %w: memref<64xf32, 1>, %table: memref<1xi64, 1>) attributes {tile.arguments = ["read", "weight"], kernel.block = 64 : i64, kernel.grid = [affine_map<()[n] -> ()>, affine_map<()[n] -> ()>, affine_map<()[n] -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %c0 = arith.constant 0 : index
  %n = "kernel.load_global"(%table, %c0) {cache = "plain"} : (memref<1xi64, 1>, index) -> i64
  %activation = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %next = arith.addi %i, %i : index
  %weight = "kernel.load_global"(%w, %next) {cache = "stream"} : (memref<64xf32, 1>, index) -> f32
  return
}

// Where blocks take different branches, each arm waits where it has to.
// CHECK-LABEL: func.func @arms(
// CHECK-NOT: kernel.grid_wait
// CHECK: scf.if
// CHECK: "kernel.grid_wait"()
// CHECK-NEXT: kernel.load_global
// CHECK: } else {
// CHECK: "kernel.grid_wait"()
// CHECK-NEXT: kernel.store_global
func.func @arms(%x: memref<64xf32, 1>, %table: memref<1xi64, 1>) attributes {tile.arguments = ["write"], kernel.block = 64 : i64, kernel.grid = [affine_map<()[n] -> ()>, affine_map<()[n] -> ()>, affine_map<()[n] -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %block = "kernel.block_id"() {dimension = "x"} : () -> index
  %first = arith.cmpi eq, %block, %i : index
  %one = arith.constant 1.0 : f32
  scf.if %first {
    %activation = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  } else {
    "kernel.store_global"(%one, %x, %i) : (f32, memref<64xf32, 1>, index) -> ()
  }
  return
}

// A loop that reads what kernels write is waited for as a whole.
// CHECK-LABEL: func.func @loop(
// CHECK: "kernel.grid_wait"()
// CHECK-NEXT: scf.for
// CHECK-NOT: kernel.grid_wait
func.func @loop(%x: memref<64xf32, 1>, %table: memref<1xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.grid = [affine_map<()[n] -> ()>, affine_map<()[n] -> ()>, affine_map<()[n] -> ()>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %c64 step %c1 {
    %activation = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  }
  return
}

}
