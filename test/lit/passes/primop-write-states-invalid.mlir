// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-write-states)' --verify-diagnostics

#cache = affine_map<() -> (16, 8)>
#part = affine_map<() -> (4, 8)>

// A state is replaced as a whole.
func.func @part() attributes {primop.entry} {
  %cache = "primop.input"() {kind = "state", label = "cache", shape = #cache} : () -> tensor<16x8xf32>
  %x = "primop.input"() {kind = "argument", label = "x", shape = #part} : () -> tensor<4x8xf32>
  // expected-error@+1 {{output new must have the type of the state that it replaces, tensor<16x8xf32>, with at least one dimension, but has tensor<4x8xf32>}}
  "primop.output"(%x) {label = "new", alias = "cache"} : (tensor<4x8xf32>) -> ()
  return
}
