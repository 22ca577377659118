// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(tilec-dce))' | FileCheck %s

// Parts are modules of their own: the same name may come twice.
// CHECK: func.func @same
// CHECK: // -----
// CHECK: func.func @same
// CHECK-NOT: arith
func.func @same() {
  return
}

// -----

func.func @same() {
  %0 = arith.constant 1 : i32
  return
}
