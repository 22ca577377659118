// RUN: tilec-opt %s --pass-pipeline='builtin.module(func.func(tilec-dce))' | FileCheck %s

// A chain of pure operations that ends in nothing goes as a whole.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: return
func.func @chain() {
  %0 = "tile.program_id"() {axis = 0 : i64} : () -> index
  %1 = arith.addi %0, %0 : index
  %2 = arith.muli %1, %0 : index
  return
}

// What is read, and what writes, stays.
// CHECK-LABEL: func.func @used
// CHECK-NEXT: tile.program_id
// CHECK-NEXT: memref.store
// CHECK-NEXT: return
func.func @used(%out: memref<4xindex>) {
  %0 = "tile.program_id"() {axis = 0 : i64} : () -> index
  memref.store %0, %out[%0] : memref<4xindex>
  return
}

// A loop that only computes goes when nothing reads its result; one that writes keeps only what it needs.
// CHECK-LABEL: func.func @loops
// CHECK-NEXT: scf.for
// CHECK-NEXT: memref.store
// CHECK-NOT: arith
// CHECK: return
func.func @loops(%c: i1, %n: index, %out: memref<?xindex>) {
  %0 = scf.for %i = %n to %n step %n iter_args(%sum = %n) -> index {
    %1 = scf.if %c -> index {
      scf.yield %i : index
    } else {
      scf.yield %sum : index
    }
    scf.yield %1 : index
  }
  scf.for %i = %n to %n step %n {
    %2 = arith.addi %i, %n : index
    memref.store %i, %out[%i] : memref<?xindex>
  }
  return
}

// A value of a block is dead once the blocks that come before it in the text no longer read it.
// CHECK-LABEL: func.func @blocks
// CHECK-NOT: arith
// CHECK: return
func.func @blocks(%n: index) {
  cf.br ^second
^first:
  %0 = arith.addi %1, %n : index
  return
^second:
  %1 = arith.muli %n, %n : index
  cf.br ^first
}

// An unused loop that may run forever stays.
// CHECK-LABEL: func.func @forever
// CHECK-NEXT: scf.while
func.func @forever(%c: i1) {
  scf.while : () -> () {
    scf.condition(%c)
  } do {
    scf.yield
  }
  return
}
