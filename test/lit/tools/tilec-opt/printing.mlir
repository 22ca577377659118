// Maps are written where they are used; aliases on request.
// RUN: tilec-opt %s | FileCheck %s --check-prefix=LOCAL
// LOCAL-NOT: #map
// LOCAL: affine.apply affine_map<(d0) -> (d0 * 2)>
// RUN: tilec-opt %s --no-mlir-print-local-scope | FileCheck %s --check-prefix=ALIAS
// ALIAS: #map = affine_map

// After every pass, after a pass that changes something, or as a difference.
// RUN: tilec-opt %s --pass-pipeline='builtin.module(tilec-cse,tilec-dce)' --print-ir-after-all 2>&1 >/dev/null | FileCheck %s --check-prefix=ALL
// ALL: IR after tilec-cse
// ALL: IR after tilec-dce
// RUN: tilec-opt %s --pass-pipeline='builtin.module(tilec-cse,tilec-dce)' --print-ir-after-change 2>&1 >/dev/null | FileCheck %s --check-prefix=CHANGE
// CHANGE-NOT: IR after tilec-cse
// CHANGE: IR after tilec-dce
// RUN: tilec-opt %s --pass-pipeline='builtin.module(tilec-cse,tilec-dce)' --diff-ir-after-change 2>&1 >/dev/null | FileCheck %s --check-prefix=DIFF
// DIFF: +++ tilec-dce
// DIFF: -{{.*}}arith.constant 7

// RUN: tilec-opt %s --pass-pipeline='builtin.module(tilec-cse,canonicalize)' --timing 2>&1 >/dev/null | FileCheck %s --check-prefix=TIMING
// TIMING: {{[0-9.]+}} s  tilec-cse
// TIMING: {{[0-9.]+}} s  canonicalize

// RUN: tilec-opt --list-passes | FileCheck %s --check-prefix=LIST
// LIST: tilec-cse: Merges equal pure operations
func.func @maps(%i: index) -> index {
  %unused = arith.constant 7 : i32
  %0 = affine.apply affine_map<(d0) -> (d0 * 2)>(%i)
  return %0 : index
}
