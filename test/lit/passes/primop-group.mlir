// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-group)' | FileCheck %s

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>

module {

// Calls of equal functions go to the first of them.
// CHECK-LABEL: func.func @main
// CHECK: call @layer(
// CHECK: call @layer(
// CHECK: call @last_layer(
func.func @main() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #vector} : () -> tensor<64xf32>
  %a = call @layer(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %b = call @"layer.2"(%a) : (tensor<64xf32>) -> tensor<64xf32>
  %c = call @last_layer(%b) : (tensor<64xf32>) -> tensor<64xf32>
  "primop.output"(%c) {label = "y"} : (tensor<64xf32>) -> ()
  return
}

// Chunks are compared after their kernels have become the same.
// CHECK: func.func private @layer(
// CHECK-NEXT: call @exp2(
// CHECK-NOT: @layer.2
// CHECK: func.func private @last_layer(
// CHECK-NEXT: call @sqrt(
func.func private @layer(%x: tensor<64xf32>) -> tensor<64xf32> attributes {primop.chunk} {
  %y = call @exp2(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
func.func private @"layer.2"(%x: tensor<64xf32>) -> tensor<64xf32> attributes {primop.chunk} {
  %y = call @exp2_again(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
func.func private @last_layer(%x: tensor<64xf32>) -> tensor<64xf32> attributes {primop.chunk} {
  %y = call @sqrt(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// CHECK: func.func private @exp2(
// CHECK-NOT: @exp2_again
// CHECK: func.func private @sqrt(
func.func private @exp2(%x: tensor<64xf32>) -> tensor<64xf32> attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {maps = [#identity], space = #vector} : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
func.func private @exp2_again(%x: tensor<64xf32>) -> tensor<64xf32> attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {maps = [#identity], space = #vector} : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
func.func private @sqrt(%x: tensor<64xf32>) -> tensor<64xf32> attributes {primop.kernel} {
  %y = "primop.sqrt"(%x) {maps = [#identity], space = #vector} : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// Functions that differ in what their arguments are stay apart, and so do those that are neither chunk nor kernel.
// CHECK: func.func private @of_a_weight(
// CHECK: func.func private @helper(
func.func private @of_a_weight(%x: tensor<64xf32> {primop.kind = "weight"}) -> tensor<64xf32> attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {maps = [#identity], space = #vector} : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
func.func private @helper(%x: tensor<64xf32>) -> tensor<64xf32> {
  %y = "primop.exp2"(%x) {maps = [#identity], space = #vector} : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

}
