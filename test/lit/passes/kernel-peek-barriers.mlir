// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-peek-barriers)' | FileCheck %s

gpu.module @kernels {

// The next turn's slot is asked for when this turn's products have been started, before they are waited for. The first turn
// knows nothing.
// CHECK-LABEL: func.func @turns
// CHECK-SAME: %[[FULL:[^:]*]]: memref<2xi64, 3>, %[[A:[^:]*]]: memref
// CHECK: %[[UNKNOWN:.*]] = arith.constant false
// CHECK: scf.for {{.*}} iter_args(%[[SLOT:.*]] = %c0, %[[PHASE:.*]] = %c0, %[[ENDED:.*]] = %[[UNKNOWN]])
// CHECK: "kernel.mbarrier_wait"(%[[FULL]], %[[SLOT]], %[[PHASE]], %[[ENDED]])
// CHECK: %[[STARTED:.*]]:4 = "kernel.wgmma"
// CHECK: %[[TESTED:.*]] = "kernel.mbarrier_test"(%[[FULL]], %[[NEXT:[^,]*]], %[[NEXT_PHASE:[^)]*]])
// CHECK-NEXT: "kernel.wgmma_wait"(%[[STARTED]]#0
// What comes after the products is waited for as before.
// CHECK: "kernel.mbarrier_wait"(%[[FULL]], %[[SLOT]], %[[PHASE]]) :
// CHECK: scf.yield %[[NEXT]], %[[NEXT_PHASE]], %[[TESTED]]
func.func @turns(%full: memref<2xi64, 3>, %a: memref<4096xbf16, 3>, %b: memref<512xbf16, 3>, %n: index, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 iter_args(%slot = %c0, %phase = %c0) -> (index, index) {
    %next = arith.subi %c1, %slot : index
    %other = arith.subi %c1, %phase : index
    %next_phase = arith.addi %other, %slot : index
    "kernel.mbarrier_wait"(%full, %slot, %phase) : (memref<2xi64, 3>, index, index) -> ()
    %s:4 = "kernel.wgmma"(%a, %c0, %b, %c0, %x, %x, %x, %x) {element = bf16, columns = 8 : i64, depth = 16 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<4096xbf16, 3>, index, memref<512xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
    %w:4 = "kernel.wgmma_wait"(%s#0, %s#1, %s#2, %s#3) {running = 0 : i64} : (f32, f32, f32, f32) -> (f32, f32, f32, f32)
    "kernel.mbarrier_wait"(%full, %slot, %phase) : (memref<2xi64, 3>, index, index) -> ()
    scf.yield %next, %next_phase : index, index
  }
  return
}

// A place that is not known a turn ahead, and a turn without products, have nothing to gain.
// CHECK-LABEL: func.func @others
// CHECK-NOT: mbarrier_test
// CHECK: return
func.func @others(%full: memref<2xi64, 3>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %n step %c1 {
    %slot = arith.remui %i, %c2 : index
    "kernel.mbarrier_wait"(%full, %slot, %c0) : (memref<2xi64, 3>, index, index) -> ()
  }
  scf.for %i = %c0 to %n step %c1 iter_args(%slot = %c0) -> (index) {
    %next = arith.subi %c1, %slot : index
    "kernel.mbarrier_wait"(%full, %slot, %slot) : (memref<2xi64, 3>, index, index) -> ()
    scf.yield %next : index
  }
  return
}

}
