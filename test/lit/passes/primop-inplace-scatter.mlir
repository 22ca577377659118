// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-inplace-scatter)' | FileCheck %s

#cache = affine_map<()[n] -> (16, 8)>
#new = affine_map<()[n] -> (n, 8)>
#length = affine_map<()[n] -> (n)>
#to_row = affine_map<(i, j, row)[n] -> (row, j)>
#row = affine_map<(i, j)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>

module attributes {primop.symbols = {n = array<i64: 1, 4>}} {

func.func @main() attributes {primop.entry} {
  %cache = "primop.input"() {kind = "state", label = "cache", shape = #cache} : () -> tensor<16x8xf32>
  %shared = "primop.input"() {kind = "state", label = "shared", shape = #cache} : () -> tensor<16x8xf32>
  %rows = "primop.input"() {kind = "argument", label = "rows", shape = #length} : () -> tensor<?xi32>
  %new = "primop.input"() {kind = "argument", label = "new", shape = #new} : () -> tensor<?x8xf32>
  %a = call @state(%cache, %rows, %new) : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  %b = call @state_read_elsewhere(%shared, %rows, %new) : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  %kept = "primop.input"() {kind = "state", label = "kept", shape = #cache} : () -> tensor<16x8xf32>
  %c = call @state_kept(%kept, %rows, %new) : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  "primop.output"(%a) {label = "a", alias = "cache"} : (tensor<16x8xf32>) -> ()
  "primop.output"(%b) {label = "b", alias = "shared"} : (tensor<16x8xf32>) -> ()
  "primop.output"(%shared) {label = "old"} : (tensor<16x8xf32>) -> ()
  "primop.output"(%c) {label = "c"} : (tensor<16x8xf32>) -> ()
  return
}

// A state that only this call reads, and that an output replaces, is written itself.
// CHECK-LABEL: func.func private @state(
// CHECK-SAME: %[[CACHE:.*]]: tensor<16x8xf32> {
// CHECK-NEXT: "primop.scatter"(%[[CACHE]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
func.func private @state(%cache: tensor<16x8xf32> {primop.kind = "state", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}, %new: tensor<?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %written = "primop.scatter"(%cache, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  return %written : tensor<16x8xf32>
}

// A state that its entry point reads elsewhere is copied, and the copy is written.
// CHECK-LABEL: func.func private @state_read_elsewhere(
// CHECK-SAME: %[[SHARED:.*]]: tensor<16x8xf32> {
// CHECK-NEXT: %[[COPY:.*]] = "primop.cast"(%[[SHARED]]) {{.*}} : (tensor<16x8xf32>) -> tensor<16x8xf32>
// CHECK-NEXT: "primop.scatter"(%[[COPY]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
func.func private @state_read_elsewhere(%cache: tensor<16x8xf32> {primop.kind = "state", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}, %new: tensor<?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %written = "primop.scatter"(%cache, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  return %written : tensor<16x8xf32>
}

// A state that no output replaces keeps its contents.
// CHECK-LABEL: func.func private @state_kept(
// CHECK: %[[COPY:.*]] = "primop.cast"
// CHECK: "primop.scatter"(%[[COPY]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
func.func private @state_kept(%cache: tensor<16x8xf32> {primop.kind = "state", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}, %new: tensor<?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %written = "primop.scatter"(%cache, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  return %written : tensor<16x8xf32>
}

// An argument is the caller's and is copied.
// CHECK-LABEL: func.func private @argument(
// CHECK: %[[COPY:.*]] = "primop.cast"
// CHECK: "primop.scatter"(%[[COPY]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
func.func private @argument(%dest: tensor<16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}, %new: tensor<?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %written = "primop.scatter"(%dest, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  return %written : tensor<16x8xf32>
}

// A value computed in the chunk is written itself, also by a second scatter.
// CHECK-LABEL: func.func private @computed(
// CHECK: %[[POWERS:.*]] = "primop.exp2"
// CHECK-NEXT: %[[ONCE:.*]] = "primop.scatter"(%[[POWERS]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
// CHECK-NEXT: "primop.scatter"(%[[ONCE]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
func.func private @computed(%x: tensor<16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}, %new: tensor<?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %powers = "primop.exp2"(%x) {maps = [#identity], space = #cache} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %once = "primop.scatter"(%powers, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  %twice = "primop.scatter"(%once, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  return %twice : tensor<16x8xf32>
}

// A value that something else reads is copied, even if that stands before: fusion may compute the root in the kernel of
// the sum, after the scatter.
// CHECK-LABEL: func.func private @read_before(
// CHECK: %[[POWERS:.*]] = "primop.exp2"
// CHECK-NEXT: %[[ROOTS:.*]] = "primop.sqrt"(%[[POWERS]])
// CHECK-NEXT: %[[COPY:.*]] = "primop.cast"(%[[POWERS]])
// CHECK-NEXT: %[[WRITTEN:.*]] = "primop.scatter"(%[[COPY]], %{{.*}}, %{{.*}}) {{{.*}}inplace = true
// CHECK-NEXT: "primop.add"(%[[ROOTS]], %[[WRITTEN]])
func.func private @read_before(%x: tensor<16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}, %new: tensor<?x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %powers = "primop.exp2"(%x) {maps = [#identity], space = #cache} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %roots = "primop.sqrt"(%powers) {maps = [#identity], space = #cache} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %written = "primop.scatter"(%powers, %rows, %new) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  %both = "primop.add"(%roots, %written) {maps = [#identity, #identity], space = #cache} : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %both : tensor<16x8xf32>
}

// A scatter of its own destination is copied: it would read what it writes.
// CHECK-LABEL: func.func private @of_itself(
// CHECK: %[[POWERS:.*]] = "primop.exp2"
// CHECK-NEXT: %[[COPY:.*]] = "primop.cast"(%[[POWERS]])
// CHECK-NEXT: "primop.scatter"(%[[COPY]], %{{.*}}, %[[POWERS]]) {{{.*}}inplace = true
func.func private @of_itself(%x: tensor<16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %rows: tensor<?xi32> {primop.kind = "argument", primop.shape = #length}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %powers = "primop.exp2"(%x) {maps = [#identity], space = #cache} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %moved = "primop.scatter"(%powers, %rows, %powers) {extent = 16 : i64, maps = [#to_row, #row, #identity], space = #new} : (tensor<16x8xf32>, tensor<?xi32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %moved : tensor<16x8xf32>
}

}
