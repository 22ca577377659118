// RUN: tilec-opt --run-reproducer %s | FileCheck %s

// The pipeline comes from the file.
// pipeline: builtin.module(func.func(tilec-dce))

// CHECK-LABEL: func.func @reproduced
// CHECK-NEXT: return
func.func @reproduced() {
  %0 = arith.constant 1 : i32
  return
}
