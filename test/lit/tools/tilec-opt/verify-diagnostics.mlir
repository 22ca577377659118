// RUN: tilec-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// A diagnostic of the parser with its note, on the lines that come next.
func.func @parser() {
  // expected-note@+1 {{previously used here with type 'i32'}}
  %0 = arith.addi %1, %1 : i32
  // expected-error@+1 {{definition of SSA value '%1#0' has type 'i64'}}
  %1 = arith.constant 1 : i64
  return
}

// -----

// One of a verifier of MLIR, on the line of the operation itself.
func.func @verifier() -> i32 {
  return // expected-error-re {{has 0 operands, .* returns [0-9]}} expected-note {{see current operation}}
}

// -----

// One of IRDL's constraints, above the line that expects it.
func.func @irdl() {
  %0 = "tile.program_id"() : () -> index
  // expected-error@above {{attribute "axis" is expected but not provided}}
  return
}

// -----

// A part without diagnostics expects none.
func.func @fine() {
  "unknown.op"() : () -> ()
  return
}
