// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-write-states)' | FileCheck %s

#cache = affine_map<() -> (16, 8)>
#new = affine_map<() -> (4, 8)>
#rows = affine_map<() -> (4)>
#identity = affine_map<(i, j) -> (i, j)>

// What a scatter wrote in place already is the state; a second output of the same value is a copy of it.
// CHECK-LABEL: func.func @scattered
// CHECK: %[[WRITTEN:.*]] = call @scatter(
// CHECK-NEXT: %[[COPY:.*]] = call @scattered_copy(%[[WRITTEN]])
// CHECK-NEXT: "primop.output"(%[[WRITTEN]]) {alias = "cache", label = "new"}
// CHECK-NEXT: "primop.output"(%[[COPY]]) {label = "copy"}
// CHECK: func.func private @scattered_copy({{.*}}) attributes {primop.chunk}
// CHECK-NEXT: primop.cast
func.func @scattered() attributes {primop.entry} {
  %cache = "primop.input"() {kind = "state", label = "cache", shape = #cache} : () -> tensor<16x8xf32>
  %rows = "primop.input"() {kind = "argument", label = "rows", shape = #rows} : () -> tensor<4xi32>
  %x = "primop.input"() {kind = "argument", label = "x", shape = #new} : () -> tensor<4x8xf32>
  %written = call @scatter(%cache, %rows, %x) : (tensor<16x8xf32>, tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  "primop.output"(%written) {label = "new", alias = "cache"} : (tensor<16x8xf32>) -> ()
  "primop.output"(%written) {label = "copy"} : (tensor<16x8xf32>) -> ()
  return
}
func.func private @scatter(%cache: tensor<16x8xf32> {primop.kind = "state", primop.shape = #cache}, %rows: tensor<4xi32> {primop.kind = "argument", primop.shape = #rows}, %x: tensor<4x8xf32> {primop.kind = "argument", primop.shape = #new}) -> (tensor<16x8xf32> {primop.shape = #cache}) attributes {primop.chunk} {
  %written = "primop.scatter"(%cache, %rows, %x) {space = #new, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>, #identity], extent = 16 : i64, inplace = true} : (tensor<16x8xf32>, tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  return %written : tensor<16x8xf32>
}

// -----

#cache = affine_map<() -> (16, 8)>
#identity = affine_map<(i, j) -> (i, j)>

// An output that replaces a state but was computed elsewhere is written onto it, row by row, after the others have read
// it.
// CHECK-LABEL: func.func @computed
// CHECK: %[[CACHE:.*]] = "primop.input"() {kind = "state"
// CHECK-NEXT: %[[POWERS:.*]] = call @exp2(%[[CACHE]])
// CHECK-NEXT: %[[OLD:.*]] = call @computed_old(%[[CACHE]])
// CHECK-NEXT: %[[NEW:.*]] = call @computed_new(%[[CACHE]], %[[POWERS]])
// CHECK-NEXT: "primop.output"(%[[NEW]]) {alias = "cache", label = "new"}
// CHECK-NEXT: "primop.output"(%[[OLD]]) {label = "old"}
// CHECK: func.func private @computed_new(
// CHECK: %[[ROWS:.*]] = "primop.iota"() {space = affine_map<() -> (16)>}
// CHECK-NEXT: "primop.scatter"(%{{.*}}, %[[ROWS]], %{{.*}}) {extent = 16 : i64, inplace = true, maps = [affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]
func.func @computed() attributes {primop.entry} {
  %cache = "primop.input"() {kind = "state", label = "cache", shape = #cache} : () -> tensor<16x8xf32>
  %powers = call @exp2(%cache) : (tensor<16x8xf32>) -> tensor<16x8xf32>
  "primop.output"(%powers) {label = "new", alias = "cache"} : (tensor<16x8xf32>) -> ()
  "primop.output"(%cache) {label = "old"} : (tensor<16x8xf32>) -> ()
  return
}
func.func private @exp2(%x: tensor<16x8xf32> {primop.kind = "state", primop.shape = #cache}) -> (tensor<16x8xf32> {primop.shape = #cache}) attributes {primop.chunk} {
  %y = "primop.exp2"(%x) {space = #cache, maps = [#identity]} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %y : tensor<16x8xf32>
}
