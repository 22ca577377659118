// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-count-turns,canonicalize,tilec-cse)' | FileCheck %s

gpu.module @kernels {

// What a turn waits for, its slot and its phase, is carried from turn to turn; what the turn before had is another count. The
// first ones follow from where the loop begins.
// CHECK-LABEL: func.func @turns
// CHECK-SAME: %[[FULL:.*]]: memref<6xi64, 3>, %[[BEGIN:.*]]: index, %[[END:.*]]: index
// CHECK-DAG: %[[FIRST:.*]] = arith.divui %[[BEGIN]], %c64
// CHECK-DAG: %[[SLOT0:.*]] = arith.remui %[[FIRST]], %c6
// CHECK-DAG: %[[ROUND0:.*]] = arith.divui %[[FIRST]], %c6
// CHECK-DAG: %[[PHASE0:.*]] = arith.remui %[[ROUND0]], %c2
// CHECK: %[[LAST0:.*]] = arith.remui %{{.*}}, %c6
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]] step %c64 iter_args(
// CHECK-SAME: %[[SLOT:[a-z0-9]*]] = %[[SLOT0]], %[[PHASE:[a-z0-9]*]] = %[[PHASE0]], %[[LAST:[a-z0-9]*]] = %[[LAST0]])
// CHECK-NOT: remui
// CHECK-NOT: divui
// CHECK-DAG: %[[ONE_MORE:.*]] = arith.addi %[[SLOT]], %c1
// CHECK-DAG: %[[WRAPS:.*]] = arith.cmpi eq, %[[ONE_MORE]], %c6
// CHECK-DAG: %[[NEXT:.*]] = arith.select %[[WRAPS]], %c0, %[[ONE_MORE]]
// CHECK-DAG: %[[OTHER:.*]] = arith.subi %c1, %[[PHASE]]
// CHECK-DAG: %[[NEXT_PHASE:.*]] = arith.select %[[WRAPS]], %[[OTHER]], %[[PHASE]]
// CHECK: "kernel.mbarrier_wait"(%[[FULL]], %[[SLOT]], %[[PHASE]])
// CHECK: "kernel.mbarrier_arrive"(%[[FULL]], %[[LAST]])
// CHECK: scf.yield %[[NEXT]], %[[NEXT_PHASE]], %{{.*}}
func.func @turns(%full: memref<6xi64, 3>, %begin: index, %end: index) {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %begin to %end step %c64 {
    %turn = arith.divui %i, %c64 : index
    %slot = arith.remui %turn, %c6 : index
    %round = arith.divui %turn, %c6 : index
    %phase = arith.remui %round, %c2 : index
    "kernel.mbarrier_wait"(%full, %slot, %phase) : (memref<6xi64, 3>, index, index) -> ()
    %last = arith.subi %turn, %c1 : index
    %last_slot = arith.remui %last, %c6 : index
    "kernel.mbarrier_arrive"(%full, %last_slot) : (memref<6xi64, 3>, index) -> ()
  }
  return
}

// Turns of several loops are counted on from where the programs before have ended.
// CHECK-LABEL: func.func @on
// CHECK: scf.for {{.*}} iter_args(%[[BEFORE:.*]] = %c0)
// CHECK: %[[SLOT0:.*]] = arith.remui %[[BEFORE]], %c4
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[SLOT0]], %{{.*}} = %{{.*}})
// CHECK-NOT: remui
// CHECK: scf.yield
func.func @on(%full: memref<4xi64, 3>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %all = scf.for %p = %c0 to %n step %c1 iter_args(%before = %c0) -> (index) {
    scf.for %i = %c0 to %c4 step %c1 {
      %turn = arith.addi %i, %before : index
      %slot = arith.remui %turn, %c4 : index
      %round = arith.divui %turn, %c4 : index
      %phase = arith.remui %round, %c2 : index
      "kernel.mbarrier_wait"(%full, %slot, %phase) : (memref<4xi64, 3>, index, index) -> ()
    }
    %after = arith.addi %before, %c4 : index
    scf.yield %after : index
  }
  return
}

// What grows otherwise, and remainders where nothing is waited for, stay.
// CHECK-LABEL: func.func @others
// CHECK: scf.for %[[I:.*]] = %c0 to %{{.*}} step %c2 {
// CHECK: arith.remui %[[I]], %c6
// CHECK: scf.for %[[J:.*]] = %c0 to %{{.*}} step %c1 {
// CHECK: arith.remui %[[J]], %c6
func.func @others(%full: memref<6xi64, 3>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  scf.for %i = %c0 to %n step %c2 {
    %slot = arith.remui %i, %c6 : index
    "kernel.mbarrier_wait"(%full, %slot, %c0) : (memref<6xi64, 3>, index, index) -> ()
  }
  scf.for %j = %c0 to %n step %c1 {
    %slot = arith.remui %j, %c6 : index
    "kernel.mbarrier_arrive"(%full, %slot) : (memref<6xi64, 3>, index) -> ()
  }
  return
}

}
