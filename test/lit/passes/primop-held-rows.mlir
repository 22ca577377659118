// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-held-rows)' | FileCheck %s

#cache = affine_map<()[past, n] -> (2, 16, 8)>
#new = affine_map<()[past, n] -> (2, n, 8)>
#sum = affine_map<()[past, n] -> (2, 8)>
#all = affine_map<(i, j, k)[past, n] -> (i, j, k)>
#to_row = affine_map<(i, j, k, row)[past, n] -> (i, row, k)>

module attributes {primop.symbols = {past = array<i64: 0, 12>, n = array<i64: 1, 4>}} {

func.func @main() attributes {primop.entry} {
  %cache = "primop.input"() {kind = "state", label = "cache", shape = #cache} : () -> tensor<2x16x8xf32>
  %other = "primop.input"() {kind = "state", label = "other", shape = #cache} : () -> tensor<2x16x8xf32>
  %new = "primop.input"() {kind = "argument", label = "new", shape = #new} : () -> tensor<2x?x8xf32>
  %a, %x = call @appended(%cache, %new) : (tensor<2x16x8xf32>, tensor<2x?x8xf32>) -> (tensor<2x16x8xf32>, tensor<2x8xf32>)
  %b, %y = call @anywhere(%other, %new) : (tensor<2x16x8xf32>, tensor<2x?x8xf32>) -> (tensor<2x16x8xf32>, tensor<2x8xf32>)
  "primop.output"(%a) {label = "a", alias = "cache"} : (tensor<2x16x8xf32>) -> ()
  "primop.output"(%b) {label = "b", alias = "other"} : (tensor<2x16x8xf32>) -> ()
  "primop.output"(%x) {label = "x"} : (tensor<2x8xf32>) -> ()
  "primop.output"(%y) {label = "y"} : (tensor<2x8xf32>) -> ()
  return
}

func.func private @appended(%cache: tensor<2x16x8xf32> {primop.kind = "state", primop.shape = #cache}, %new: tensor<2x?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> (tensor<2x16x8xf32> {primop.shape = #cache}, tensor<2x8xf32> {primop.shape = #sum}) attributes {primop.chunk} {
  %written = call @append(%cache, %new) : (tensor<2x16x8xf32>, tensor<2x?x8xf32>) -> tensor<2x16x8xf32>
  %sum = call @read(%written) : (tensor<2x16x8xf32>) -> tensor<2x8xf32>
  return %written, %sum : tensor<2x16x8xf32>, tensor<2x8xf32>
}

// Rows are written from `past` on, along the second dimension.
// CHECK-LABEL: func.func private @append(
// CHECK-NOT: primop.held
func.func private @append(%cache: tensor<2x16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %new: tensor<2x?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> (tensor<2x16x8xf32> {primop.shape = #cache}) attributes {primop.kernel} {
  %rows = "primop.iota"() {space = affine_map<()[past, n] -> (past + n)>} : () -> tensor<?xi32>
  %written = "primop.scatter"(%cache, %rows, %new) {extent = 16 : i64, inplace = true, maps = [#to_row, affine_map<(i, j, k)[past, n] -> (j + past)>, #all], space = #new} : (tensor<2x16x8xf32>, tensor<?xi32>, tensor<2x?x8xf32>) -> tensor<2x16x8xf32>
  return %written : tensor<2x16x8xf32>
}

// CHECK-LABEL: func.func private @read(
// CHECK-SAME: primop.held = affine_map<()[s0, s1] -> (1, s0)>
func.func private @read(%cache: tensor<2x16x8xf32> {primop.kind = "argument", primop.shape = #cache}) -> (tensor<2x8xf32> {primop.shape = #sum}) attributes {primop.kernel} {
  %sum = "primop.sum"(%cache) {dims = array<i64: 1>, maps = [#all], space = affine_map<()[past, n] -> (2, past + n, 8)>} : (tensor<2x16x8xf32>) -> tensor<2x8xf32>
  return %sum : tensor<2x8xf32>
}

// Nothing is known of rows that are written at places from memory or counted down, or of what is read from elsewhere as well.
func.func private @anywhere(%other: tensor<2x16x8xf32> {primop.kind = "state", primop.shape = #cache}, %new: tensor<2x?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> (tensor<2x16x8xf32> {primop.shape = #cache}, tensor<2x8xf32> {primop.shape = #sum}) attributes {primop.chunk} {
  %written = call @down(%other, %new) : (tensor<2x16x8xf32>, tensor<2x?x8xf32>) -> tensor<2x16x8xf32>
  %sum = call @read_of_down(%written) : (tensor<2x16x8xf32>) -> tensor<2x8xf32>
  %again = call @append(%written, %new) : (tensor<2x16x8xf32>, tensor<2x?x8xf32>) -> tensor<2x16x8xf32>
  %last = call @read_of_both(%again) : (tensor<2x16x8xf32>) -> tensor<2x8xf32>
  return %again, %last : tensor<2x16x8xf32>, tensor<2x8xf32>
}

func.func private @down(%other: tensor<2x16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %new: tensor<2x?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> (tensor<2x16x8xf32> {primop.shape = #cache}) attributes {primop.kernel} {
  %rows = "primop.iota"() {space = affine_map<()[past, n] -> (past + n)>} : () -> tensor<?xi32>
  %written = "primop.scatter"(%other, %rows, %new) {extent = 16 : i64, inplace = true, maps = [#to_row, affine_map<(i, j, k)[past, n] -> (-j + past + n - 1)>, #all], space = #new} : (tensor<2x16x8xf32>, tensor<?xi32>, tensor<2x?x8xf32>) -> tensor<2x16x8xf32>
  return %written : tensor<2x16x8xf32>
}

// CHECK-LABEL: func.func private @read_of_down(
// CHECK-NOT: primop.held
// CHECK-LABEL: func.func private @read_of_both(
// CHECK-NOT: primop.held
func.func private @read_of_down(%cache: tensor<2x16x8xf32> {primop.kind = "argument", primop.shape = #cache}) -> (tensor<2x8xf32> {primop.shape = #sum}) attributes {primop.kernel} {
  %sum = "primop.sum"(%cache) {dims = array<i64: 1>, maps = [#all], space = affine_map<()[past, n] -> (2, past + n, 8)>} : (tensor<2x16x8xf32>) -> tensor<2x8xf32>
  return %sum : tensor<2x8xf32>
}
func.func private @read_of_both(%cache: tensor<2x16x8xf32> {primop.kind = "argument", primop.shape = #cache}) -> (tensor<2x8xf32> {primop.shape = #sum}) attributes {primop.kernel} {
  %sum = "primop.sum"(%cache) {dims = array<i64: 1>, maps = [#all], space = affine_map<()[past, n] -> (2, past + n, 8)>} : (tensor<2x16x8xf32>) -> tensor<2x8xf32>
  return %sum : tensor<2x8xf32>
}

}
