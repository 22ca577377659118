// RUN: tilec-opt %s --pass-pipeline='builtin.module(tilec-cse, func.func(tilec-dce, canonicalize{max-iterations=1}))' | FileCheck %s

// Passes of both kinds run in the order written, nested where the text says so.
// CHECK-LABEL: func.func @mixed
// CHECK-NEXT: %[[TWO:.*]] = arith.constant 2
// CHECK-NEXT: return %[[TWO]]
func.func @mixed() -> i32 {
  %0 = arith.constant 1 : i32
  %1 = arith.constant 1 : i32
  %2 = arith.addi %0, %1 : i32
  %3 = arith.muli %0, %1 : i32
  return %2 : i32
}
