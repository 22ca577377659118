// RUN: tilec-opt %s --pass-pipeline='builtin.module(tilec-cse)' | FileCheck %s

// Equal pure operations of our dialects become one, also through operands that became equal.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[ID:.*]] = "tile.program_id"() {axis = 0 : i64}
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[ID]], %[[ID]]
// CHECK-NEXT: return %[[SUM]], %[[SUM]]
func.func @chain() -> (index, index) {
  %0 = "tile.program_id"() {axis = 0 : i64} : () -> index
  %1 = "tile.program_id"() {axis = 0 : i64} : () -> index
  %2 = arith.addi %0, %1 : index
  %3 = arith.addi %1, %1 : index
  return %2, %3 : index, index
}

// Operations that differ in an attribute stay apart.
// CHECK-LABEL: func.func @attributes
// CHECK: axis = 0
// CHECK: axis = 1
func.func @attributes() -> (index, index) {
  %0 = "tile.program_id"() {axis = 0 : i64} : () -> index
  %1 = "tile.program_id"() {axis = 1 : i64} : () -> index
  return %0, %1 : index, index
}

// A value before a loop serves inside it, but a value inside serves nothing after it.
// CHECK-LABEL: func.func @loop
// CHECK: %[[BEFORE:.*]] = arith.addi
// CHECK-NEXT: scf.for
// CHECK-NEXT: %[[INSIDE:.*]] = arith.muli
// CHECK-NEXT: memref.store %[[BEFORE]]
// CHECK-NEXT: memref.store %[[INSIDE]]
// CHECK: %[[AFTER:.*]] = arith.muli
// CHECK: return %[[BEFORE]], %[[AFTER]]
func.func @loop(%n: index, %out: memref<?xindex>) -> (index, index) {
  %0 = arith.addi %n, %n : index
  scf.for %i = %n to %0 step %n {
    %1 = arith.addi %n, %n : index
    %2 = arith.muli %n, %n : index
    memref.store %1, %out[%i] : memref<?xindex>
    memref.store %2, %out[%i] : memref<?xindex>
  }
  %3 = arith.addi %n, %n : index
  %4 = arith.muli %n, %n : index
  return %3, %4 : index, index
}

// The two sides of a branch do not dominate each other; the entry block dominates both.
// CHECK-LABEL: func.func @branches
// CHECK: %[[ENTRY:.*]] = arith.addi
// CHECK: ^bb1:
// CHECK-NEXT: %[[LEFT:.*]] = arith.muli
// CHECK-NEXT: return %[[ENTRY]], %[[LEFT]]
// CHECK: ^bb2:
// CHECK-NEXT: %[[RIGHT:.*]] = arith.muli
// CHECK-NEXT: return %[[ENTRY]], %[[RIGHT]]
func.func @branches(%c: i1, %n: index) -> (index, index) {
  %0 = arith.addi %n, %n : index
  cf.cond_br %c, ^left, ^right
^left:
  %1 = arith.addi %n, %n : index
  %2 = arith.muli %n, %n : index
  return %1, %2 : index, index
^right:
  %3 = arith.addi %n, %n : index
  %4 = arith.muli %n, %n : index
  return %3, %4 : index, index
}

// What reads memory is not merged, because a write may lie between.
// CHECK-LABEL: func.func @memory
// CHECK-COUNT-2: memref.load
func.func @memory(%m: memref<4xf32>, %i: index) -> (f32, f32) {
  %0 = memref.load %m[%i] : memref<4xf32>
  %1 = memref.load %m[%i] : memref<4xf32>
  return %0, %1 : f32, f32
}

// A function sees nothing of another one.
// CHECK-LABEL: gpu.module
// CHECK-COUNT-2: tile.program_id
gpu.module @kernels {
  func.func @one() -> index {
    %0 = "tile.program_id"() {axis = 0 : i64} : () -> index
    return %0 : index
  }
  func.func @two() -> index {
    %0 = "tile.program_id"() {axis = 0 : i64} : () -> index
    return %0 : index
  }
}
