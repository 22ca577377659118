// RUN: not tilec-opt %s --split-input-file --verify-diagnostics 2>&1 | FileCheck %s

// A diagnostic that comes unexpected, or does not come, fails the run and is named with its line in the whole file.
// CHECK: verify-diagnostics-fails.mlir:[[@LINE+2]]: unexpected error: 'func.return' op has 0 operands
func.func @unexpected() -> i32 {
  return
}

// -----

// CHECK: verify-diagnostics-fails.mlir:[[@LINE+1]]: expected error 'nothing of the kind' was not produced
// expected-error {{nothing of the kind}}
