// RUN: tilec-opt %s | tilec-opt | FileCheck %s

#scalar = affine_map<()[n] -> ()>
#rows = affine_map<()[n] -> (n)>
#grid = affine_map<()[n] -> (n, 8)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#first = affine_map<(i, j)[n] -> (i)>
#nothing = affine_map<(i, j)[n] -> ()>

// A module has named lengths, and may allow tensor cores to read f32 as TF32.
// CHECK: module attributes {primop.symbols = {n = array<i64: 1, 64>}, primop.tf32}
module attributes {primop.symbols = {n = array<i64: 1, 64>}, primop.tf32} {

// An entry point is given values by name and names what it returns; a result may be written onto a state.
// CHECK-LABEL: func.func @entry
// CHECK: %[[TOKENS:.*]] = "primop.input"() {kind = "argument", label = "tokens", shape = affine_map<()[s0] -> (s0, 8)>} : () -> tensor<?x8xf32>
// CHECK: "primop.input"() {kind = "weight", {{.*}}pack = affine_map<(d0, d1) -> (d0 floordiv 4, d1, d0 mod 4)>
// CHECK: "primop.input"() {kind = "state"
// CHECK: "primop.output"(%[[TOKENS]]) {label = "logits"} : (tensor<?x8xf32>) -> ()
// CHECK: "primop.output"(%{{.*}}) {alias = "cache", label = "cache.new"}
func.func @entry() attributes {primop.entry} {
  %tokens = "primop.input"() {kind = "argument", label = "tokens", shape = #grid} : () -> tensor<?x8xf32>
  %weight = "primop.input"() {kind = "weight", label = "w", shape = affine_map<()[n] -> (8, 8)>, pack = affine_map<(i, j) -> (i floordiv 4, j, i mod 4)>} : () -> tensor<2x8x4xf32>
  %cache = "primop.input"() {kind = "state", label = "cache", shape = affine_map<()[n] -> (16, 8)>} : () -> tensor<16x8xf32>
  "primop.output"(%tokens) {label = "logits"} : (tensor<?x8xf32>) -> ()
  "primop.output"(%cache) {label = "cache.new", alias = "cache"} : (tensor<16x8xf32>) -> ()
  return
}

// What needs no operand: a scalar, and the numbers from zero up to an extent.
// CHECK-LABEL: func.func @sources
// CHECK: "primop.constant"() {value = 2.500000e+00 : f32} : () -> tensor<f32>
// CHECK: "primop.iota"() {space = affine_map<()[s0] -> (s0)>} : () -> tensor<?xi32>
func.func @sources() {
  %two_and_a_half = "primop.constant"() {value = 2.5 : f32} : () -> tensor<f32>
  %positions = "primop.iota"() {space = #rows} : () -> tensor<?xi32>
  return
}

// One operand; only a cast changes the element type.
// CHECK-LABEL: func.func @unary
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>
// CHECK: "primop.cast"(%[[X]]) {maps = [affine_map<(d0, d1)[s0] -> (d0, d1)>], space = affine_map<()[s0] -> (s0, 8)>} : (tensor<?x8xf32>) -> tensor<?x8xbf16>
// CHECK: "primop.exp2"(%[[X]])
// CHECK: "primop.log2"(%[[X]])
// CHECK: "primop.sin"(%[[X]])
// CHECK: "primop.recip"(%[[X]])
// CHECK: "primop.sqrt"(%[[X]])
func.func @unary(%x: tensor<?x8xf32>) {
  %narrow = "primop.cast"(%x) {space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  %power = "primop.exp2"(%x) {space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %log = "primop.log2"(%x) {space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %sine = "primop.sin"(%x) {space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %inverse = "primop.recip"(%x) {space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %root = "primop.sqrt"(%x) {space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// Two operands of one element type; bf16 may be widened to f32 on the way, and a comparison gives i1.
// CHECK-LABEL: func.func @binary
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[H:.*]]: tensor<?x8xbf16>
// CHECK: "primop.add"(%[[X]], %[[X]])
// CHECK: "primop.mul"(%[[H]], %[[H]]) {{.*}} -> tensor<?x8xf32>
// CHECK: "primop.mod"(%[[X]], %[[X]])
// CHECK: "primop.less_than"(%[[X]], %[[X]]) {{.*}} -> tensor<?x8xi1>
func.func @binary(%x: tensor<?x8xf32>, %h: tensor<?x8xbf16>) {
  %sum = "primop.add"(%x, %x) {space = #grid, maps = [#identity, #identity]} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %exact = "primop.mul"(%h, %h) {space = #grid, maps = [#identity, #identity]} : (tensor<?x8xbf16>, tensor<?x8xbf16>) -> tensor<?x8xf32>
  %rest = "primop.mod"(%x, %x) {space = #grid, maps = [#identity, #identity]} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %less = "primop.less_than"(%x, %x) {space = #grid, maps = [#identity, #identity]} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xi1>
  return
}

// Views broadcast, transpose and slice; bounds say where the element of an operand exists.
// CHECK-LABEL: func.func @views
// CHECK: maps = [affine_map<(d0, d1)[s0] -> ()>, affine_map<(d0, d1)[s0] -> (d1, d0 + 2)>]
// CHECK: bounds = [affine_map<(d0, d1)[s0] -> (d1 - 3)>], maps = [affine_map<(d0, d1)[s0] -> (d0, d1 - 3)>]
func.func @views(%one: tensor<f32>, %turned: tensor<8x?xf32>, %x: tensor<?x8xf32>) {
  %sum = "primop.add"(%one, %turned) {space = #grid, maps = [#nothing, affine_map<(i, j)[n] -> (j, i + 2)>]} : (tensor<f32>, tensor<8x?xf32>) -> tensor<?x8xf32>
  %padded = "primop.cast"(%x) {space = #grid, maps = [affine_map<(i, j)[n] -> (i, j - 3)>], bounds = [affine_map<(i, j)[n] -> (j - 3)>]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// Programs that share a reduction have a part each, along a new first dimension.
// CHECK-LABEL: func.func @parts
// CHECK: "primop.part"(%{{.*}}) {count = 6 : i64, map = affine_map<(d0, d1)[s0] -> (d0)>} : (tensor<?xf32>) -> tensor<6x?xf32>
func.func @parts(%total: tensor<?xf32>) {
  %parts = "primop.part"(%total) {count = 6 : i64, map = affine_map<(i, j)[n] -> (i)>} : (tensor<?xf32>) -> tensor<6x?xf32>
  return
}

// Reductions drop the dimensions they name; softmax keeps its own.
// CHECK-LABEL: func.func @reductions
// CHECK: "primop.sum"(%{{.*}}) {dims = array<i64: 1>, {{.*}} -> tensor<?xf32>
// CHECK: "primop.max"(%{{.*}}) {dims = array<i64: 0, 1>, {{.*}} -> tensor<f32>
// CHECK: "primop.softmax"(%{{.*}}) {dim = 1 : i64, {{.*}} -> tensor<?x8xf32>
func.func @reductions(%x: tensor<?x8xf32>) {
  %total = "primop.sum"(%x) {space = #grid, maps = [#identity], dims = array<i64: 1>} : (tensor<?x8xf32>) -> tensor<?xf32>
  %largest = "primop.max"(%x) {space = #grid, maps = [#identity], dims = array<i64: 0, 1>} : (tensor<?x8xf32>) -> tensor<f32>
  %shares = "primop.softmax"(%x) {space = #grid, maps = [#identity], dim = 1 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// A computed index is one more dimension, last, of the map of the tensor that is read or written there.
// CHECK-LABEL: func.func @indexed
// CHECK: "primop.gather"(%{{.*}}) {extent = 16 : i64, maps = [affine_map<(d0, d1, d2)[s0] -> (d2, d1)>, affine_map<(d0, d1)[s0] -> (d0)>]
// CHECK: "primop.scatter"(%{{.*}}) {extent = 16 : i64, maps
// CHECK: "primop.scatter"(%{{.*}}) {extent = 16 : i64, inplace = true
func.func @indexed(%table: tensor<16x8xf32>, %rows: tensor<?xi32>, %new: tensor<?x8xf32>) {
  %read = "primop.gather"(%table, %rows) {space = #grid, maps = [affine_map<(i, j, row)[n] -> (row, j)>, #first], extent = 16 : i64} : (tensor<16x8xf32>, tensor<?xi32>) -> tensor<?x8xf32>
  %written = "primop.scatter"(%table, %rows, %new) {space = #grid, maps = [affine_map<(i, j, row)[n] -> (row, j)>, #first, #identity], extent = 16 : i64} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  %again = "primop.scatter"(%table, %rows, %new) {space = #grid, maps = [affine_map<(i, j, row)[n] -> (row, j)>, #first, #identity], extent = 16 : i64, inplace = true} : (tensor<16x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> tensor<16x8xf32>
  return
}

// Any op of a list of upstream's elementwise ops, with one operand, two or three.
// CHECK-LABEL: func.func @custom
// CHECK: "primop.custom"(%{{[^,]*}}) {kind = "math.tanh"
// CHECK: "primop.custom"(%{{[^,]*}}, %{{[^,]*}}) {kind = "arith.divf"
// CHECK: "primop.custom"(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}) {kind = "arith.select"
func.func @custom(%flag: tensor<?x8xi1>, %x: tensor<?x8xf32>) {
  %tanh = "primop.custom"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>, kind = "math.tanh", space = #grid, maps = [#identity]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %ratio = "primop.custom"(%x, %x) {operandSegmentSizes = array<i32: 1, 1, 0>, kind = "arith.divf", space = #grid, maps = [#identity, #identity]} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %chosen = "primop.custom"(%flag, %x, %x) {operandSegmentSizes = array<i32: 1, 1, 1>, kind = "arith.select", space = #grid, maps = [#identity, #identity, #identity]} : (tensor<?x8xi1>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

}
