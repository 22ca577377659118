// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-partition)' --split-input-file | FileCheck %s

#rows = affine_map<()[seq] -> (seq, 64)>
#vector = affine_map<()[seq] -> (64)>
#identity = affine_map<(i, j)[seq] -> (i, j)>
#columns = affine_map<(i, j)[seq] -> (j)>

module attributes {primop.symbols = {seq = array<i64: 1, 64>}} {

// Inputs come first and outputs last, in their order; between them one call a chunk. Ops before the first break are
// chunk 'main'.
// CHECK-LABEL: func.func @decode() attributes {primop.entry}
// CHECK-NEXT: %[[X:.*]] = "primop.input"() {{.*}} label = "x"
// CHECK-NEXT: %[[SCALE:.*]] = "primop.input"() {{.*}} label = "scale"
// CHECK-NEXT: %[[POWERS:.*]] = call @decode_main(%[[X]])
// CHECK-NEXT: %[[LAYER:.*]] = call @decode_layer(%[[POWERS]], %[[SCALE]])
// CHECK-NEXT: "primop.output"(%[[POWERS]]) {label = "powers"}
// CHECK-NEXT: "primop.output"(%[[LAYER]]) {label = "y"}
// CHECK-NEXT: return
func.func @decode() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #rows} : () -> tensor<?x64xf32>
  %powers = "primop.exp2"(%x) {maps = [#identity], space = #rows} : (tensor<?x64xf32>) -> tensor<?x64xf32>
  "primop.output"(%powers) {label = "powers"} : (tensor<?x64xf32>) -> ()
  %scale = "primop.input"() {kind = "weight", label = "scale", shape = #vector} : () -> tensor<64xf32>
  %scaled = "primop.mul"(%powers, %scale) {maps = [#identity, #columns], space = #rows, primop.chunk = "layer", primop.chunk_index = 0 : i64} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
  %y = "primop.sqrt"(%scaled) {maps = [#identity], space = #rows, primop.chunk = "layer", primop.chunk_index = 0 : i64} : (tensor<?x64xf32>) -> tensor<?x64xf32>
  "primop.output"(%y) {label = "y"} : (tensor<?x64xf32>) -> ()
  return
}

// A chunk's arguments say what they are and, in symbols, how large; its ops no longer name the chunk.
// CHECK: func.func private @decode_main({{.*}}) attributes {primop.chunk}
// CHECK: func.func private @decode_layer(
// CHECK-SAME: %[[POWERS:[^:]*]]: tensor<?x64xf32> {primop.kind = "argument", primop.shape = affine_map<()[s0] -> (s0, 64)>}
// CHECK-SAME: %[[SCALE:[^:]*]]: tensor<64xf32> {primop.kind = "weight", primop.shape = affine_map<()[s0] -> (64)>}
// CHECK-SAME: -> (tensor<?x64xf32> {primop.shape = affine_map<()[s0] -> (s0, 64)>}) attributes {primop.chunk}
// CHECK-NEXT: %[[SCALED:.*]] = "primop.mul"(%[[POWERS]], %[[SCALE]])
// CHECK-NOT: primop.chunk
// CHECK: return
}

// -----

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>

// Chunks of one name are numbered, and a value that leaves its chunk is a result of it, others are not.
// CHECK-LABEL: func.func @main
// CHECK: %[[FIRST:.*]]:2 = call @main_layer(%[[X:.*]])
// CHECK: %[[SECOND:.*]] = call @main_layer_2(%[[FIRST]]#0)
// CHECK: call @main_head(%[[FIRST]]#1, %[[SECOND]])
func.func @main() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #vector} : () -> tensor<64xf32>
  %a = "primop.exp2"(%x) {maps = [#identity], space = #vector, primop.chunk = "layer", primop.chunk_index = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %inner = "primop.recip"(%a) {maps = [#identity], space = #vector, primop.chunk = "layer", primop.chunk_index = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %b = "primop.sqrt"(%inner) {maps = [#identity], space = #vector, primop.chunk = "layer", primop.chunk_index = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %c = "primop.exp2"(%a) {maps = [#identity], space = #vector, primop.chunk = "layer", primop.chunk_index = 1 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %d = "primop.add"(%b, %c) {maps = [#identity, #identity], space = #vector, primop.chunk = "head", primop.chunk_index = 2 : i64} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  "primop.output"(%d) {label = "y"} : (tensor<64xf32>) -> ()
  return
}

// -----

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>
#one = affine_map<(i) -> ()>

// A constant that two chunks read is repeated in both, because no kernel computes it and so none can pass it on.
// CHECK-LABEL: func.func @constants
// CHECK: %[[FIRST:.*]] = call @constants_first(%{{.*}}) : (tensor<64xf32>) -> tensor<64xf32>
// CHECK-NEXT: call @constants_second(%[[FIRST]]) : (tensor<64xf32>) -> tensor<64xf32>
// CHECK: func.func private @constants_first(
// CHECK-NEXT: %[[TWO:.*]] = "primop.constant"
// CHECK-NEXT: "primop.mul"(%{{.*}}, %[[TWO]])
// CHECK: func.func private @constants_second(
// CHECK-NEXT: %[[TWO:.*]] = "primop.constant"
// CHECK-NEXT: "primop.add"(%{{.*}}, %[[TWO]])
func.func @constants() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #vector} : () -> tensor<64xf32>
  %two = "primop.constant"() {value = 2.0 : f32, primop.chunk = "first", primop.chunk_index = 0 : i64} : () -> tensor<f32>
  %doubled = "primop.mul"(%x, %two) {maps = [#identity, #one], space = #vector, primop.chunk = "first", primop.chunk_index = 0 : i64} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %y = "primop.add"(%doubled, %two) {maps = [#identity, #one], space = #vector, primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  "primop.output"(%y) {label = "y"} : (tensor<64xf32>) -> ()
  return
}

// -----

#vector = affine_map<() -> (64)>

// An output that is an input or an iota is copied into memory of its own; a state that stays what it is needs no copy.
// CHECK-LABEL: func.func @uncomputed
// CHECK: %[[STATE:.*]] = "primop.input"() {kind = "state"
// CHECK-NEXT: %[[COPIES:.*]]:2 = call @uncomputed_main(
// CHECK-NEXT: "primop.output"(%[[COPIES]]#0) {label = "x"}
// CHECK-NEXT: "primop.output"(%[[COPIES]]#1) {label = "positions"}
// CHECK-NEXT: "primop.output"(%[[STATE]]) {alias = "state", label = "unchanged"}
// CHECK: func.func private @uncomputed_main(
// CHECK: primop.cast
// CHECK: %[[IOTA:.*]] = "primop.iota"
// CHECK-NEXT: "primop.cast"(%[[IOTA]])
func.func @uncomputed() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #vector} : () -> tensor<64xf32>
  %state = "primop.input"() {kind = "state", label = "state", shape = #vector} : () -> tensor<64xf32>
  %positions = "primop.iota"() {space = #vector} : () -> tensor<64xi32>
  "primop.output"(%x) {label = "x"} : (tensor<64xf32>) -> ()
  "primop.output"(%positions) {label = "positions"} : (tensor<64xi32>) -> ()
  "primop.output"(%state) {alias = "state", label = "unchanged"} : (tensor<64xf32>) -> ()
  return
}

// -----

// Functions that are no entry point are left alone.
// CHECK-LABEL: func.func @helper
// CHECK: primop.exp2
func.func @helper(%x: tensor<64xf32>) -> tensor<64xf32> {
  %y = "primop.exp2"(%x) {maps = [affine_map<(i) -> (i)>], space = affine_map<() -> (64)>} : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
