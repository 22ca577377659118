// A wrong command line gives one sentence and no IR.
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(tilec-csee)' 2>&1 | FileCheck %s --check-prefix=NAME --implicit-check-not=func.func
// NAME: tilec-opt: error: no pass is named 'tilec-csee'; did you mean 'tilec-cse'? tilec's passes are {{.*}}tilec-dce
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(tilec-cse{depth=2})' 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: tilec-opt: error: pass 'tilec-cse' has no option 'depth'; it has no options
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(canonicalize{depth=2})' 2>&1 | FileCheck %s --check-prefix=UPSTREAM
// UPSTREAM: tilec-opt: error: upstream refuses 'canonicalize{depth=2}': {{.*}}no such option depth
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(cse' 2>&1 | FileCheck %s --check-prefix=SYNTAX
// SYNTAX: tilec-opt: error: need ')' at character 19 of the pipeline, but got 'its end'
// RUN: not tilec-opt %s --pass-pipeline='cse' 2>&1 | FileCheck %s --check-prefix=ANCHOR
// ANCHOR: tilec-opt: error: need one anchor around the passes
// RUN: not tilec-opt %s.missing 2>&1 | FileCheck %s --check-prefix=FILE
// FILE: tilec-opt: error: {{.*}}errors.mlir.missing: No such file or directory

// Wrong input gives its diagnostic with the name of the file, and no IR.
// RUN: echo 'func.func @f( {}' > %t.mlir
// RUN: not tilec-opt %t.mlir 2>&1 | FileCheck %s --check-prefix=PARSE --implicit-check-not=func.func
// PARSE: {{.*}}errors.mlir.tmp.mlir:1:14: error: expected non-function type

func.func @f() {
  return
}
