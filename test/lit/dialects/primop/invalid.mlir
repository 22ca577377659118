// RUN: tilec-opt %s --split-input-file --verify-diagnostics

// Operands and results are tensors of a known rank.
func.func @unranked(%x: tensor<*xf32>) {
  // expected-error@+1 {{expected base type 'builtin.tensor' but got 'builtin.unranked_tensor'}}
  %y = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<*xf32>) -> tensor<4xf32>
  return
}

// -----

// An attribute that every op of the kind has cannot be left out.
func.func @missing_attribute(%x: tensor<4xf32>) {
  // expected-error@+1 {{'primop.exp2' op attribute "space" is expected but not provided}}
  %y = "primop.exp2"(%x) {maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// The number of operands is the op's.
func.func @operand_count(%x: tensor<4xf32>) {
  // expected-error@+1 {{expects exactly 2 operands, but got 1}}
  %y = "primop.add"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// A word of an enumeration is one of its words.
func.func @unknown_kind() {
  // expected-error@+1 {{'"parameter"' does not satisfy the constraint}}
  %x = "primop.input"() {label = "x", kind = "parameter", shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  return
}

// -----

// Of a list attribute IRDL sees the list and we see its members.
func.func @list_of_strings(%x: tensor<4xf32>) {
  // expected-error@+1 {{'primop.exp2' op need attribute 'maps' to be list[AffineMap], but got ["(i) -> (i)"]}}
  %y = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = ["(i) -> (i)"]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// An attribute that may be absent is checked where it is present.
func.func @optional_attribute(%x: tensor<4xf32>) {
  // expected-error@+1 {{need attribute 'alias' to be str, but got 3 : i64}}
  "primop.output"(%x) {label = "y", alias = 3 : i64} : (tensor<4xf32>) -> ()
  return
}

// -----

// An input's type follows from its shape, until a layout pass packs it.
func.func @input_shape() {
  // expected-error@+1 {{'primop.input' op result dimension 1 must be 8, but is 6}}
  %x = "primop.input"() {label = "x", kind = "weight", shape = affine_map<() -> (4, 8)>} : () -> tensor<4x6xf32>
  %packed = "primop.input"() {label = "y", kind = "weight", shape = affine_map<() -> (4, 8)>, pack = affine_map<(i, j) -> (i floordiv 2, j, i mod 2)>} : () -> tensor<2x8x2xf32>
  return
}

// -----

// A constant has no shape of its own.
func.func @constant_rank() {
  // expected-error@+1 {{'primop.constant' op result must have rank 0: broadcast it through the view that reads it}}
  %x = "primop.constant"() {value = 1.0 : f32} : () -> tensor<4xf32>
  return
}

// -----

// A constant is a number of the type that it says.
func.func @constant_type() {
  // expected-error@+1 {{value must be a number of the result's element type f32, but is 1 : i32}}
  %x = "primop.constant"() {value = 1 : i32} : () -> tensor<f32>
  // expected-error@+1 {{value must be a number of the result's element type f32, but is "one"}}
  %y = "primop.constant"() {value = "one"} : () -> tensor<f32>
  return
}

// -----

// An iota counts along one extent, and its result is as long.
func.func @iota() {
  // expected-error@+1 {{'primop.iota' op space must have one extent, but has 2}}
  %x = "primop.iota"() {space = affine_map<() -> (4, 4)>} : () -> tensor<4x4xi32>
  // expected-error@+1 {{'primop.iota' op result must have rank 1, but has 2}}
  %y = "primop.iota"() {space = affine_map<() -> (4)>} : () -> tensor<4x4xi32>
  return
}

// -----

// A space is made of the module's symbols; the dimensions are what it declares.
func.func @space_with_dimensions(%x: tensor<4xf32>) {
  // expected-error@+1 {{'primop.exp2' op space must take symbols only, but takes 1 dimensions}}
  %y = "primop.exp2"(%x) {space = affine_map<(i) -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Every operand has a view, which takes the space's dimensions and symbols and gives the operand's.
func.func @views(%x: tensor<4xf32>) {
  // expected-error@+1 {{'primop.exp2' op needs one map per operand, 1, but got 2}}
  %count = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{map 0 must take 1 dimensions (the rank of space), but takes 2}}
  %dimensions = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i, j) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{map 0 must give 1 indices (the rank of its operand), but gives 2}}
  %indices = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i, i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{map 0 must take 0 symbols (as space does), but takes 1}}
  %symbols = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i)[n] -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Bounds, where there are any, take the same dimensions and symbols as the views.
func.func @bounds(%x: tensor<4xf32>) {
  // expected-error@+1 {{'primop.exp2' op needs one bounds map per operand, 1, but got 0}}
  %count = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>], bounds = []} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{bounds map 0 must take 1 dimensions and 0 symbols, but takes 2 and 1}}
  %rank = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>], bounds = [affine_map<(i, j)[n] -> (i - n)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// The result has the extents of the space, dynamic where they are symbolic.
func.func @result_shape(%x: tensor<4xf32>, %rows: tensor<?xf32>) {
  // expected-error@+1 {{'primop.exp2' op result must have rank 1, but has 0}}
  %rank = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<f32>
  // expected-error@+1 {{result dimension 0 must be 4, but is 8}}
  %size = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<8xf32>
  // expected-error@+1 {{result dimension 0 must be 4, but is dynamic}}
  %dynamic = "primop.exp2"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<?xf32>
  // expected-error@+1 {{result dimension 0 must be dynamic, because its extent is s0, but is 4}}
  %static = "primop.exp2"(%rows) {space = affine_map<()[n] -> (n)>, maps = [affine_map<(i)[n] -> (i)>]} : (tensor<?xf32>) -> tensor<4xf32>
  return
}

// -----

// Functions of one operand are for floats, and all but cast keep the element type.
func.func @unary(%x: tensor<4xf32>, %i: tensor<4xi32>) {
  // expected-error@+1 {{'primop.sqrt' op operand must be one of f32, f16, bf16, but is i32}}
  %integer = "primop.sqrt"(%i) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xi32>) -> tensor<4xi32>
  // expected-error@+1 {{'primop.recip' op result must keep the element type f32, but is f16}}
  %narrow = "primop.recip"(%x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf16>
  return
}

// -----

// Functions of two operands take one element type and do not narrow it.
func.func @binary(%x: tensor<4xf32>, %h: tensor<4xbf16>) {
  // expected-error@+1 {{'primop.mul' op operands must have one element type, but have f32 and bf16}}
  %mixed = "primop.mul"(%x, %h) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xf32>, tensor<4xbf16>) -> tensor<4xf32>
  // expected-error@+1 {{'primop.mul' op result must be f32 or wider, but is bf16}}
  %narrow = "primop.mul"(%x, %x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xbf16>
  return
}

// -----

// A comparison takes one element type and gives i1.
func.func @less_than(%x: tensor<4xf32>, %h: tensor<4xbf16>) {
  // expected-error@+1 {{'primop.less_than' op operands must have one element type, but have f32 and bf16}}
  %mixed = "primop.less_than"(%x, %h) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xf32>, tensor<4xbf16>) -> tensor<4xi1>
  // expected-error@+1 {{'primop.less_than' op result must be one of i1, but is f32}}
  %number = "primop.less_than"(%x, %x) {space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// A reduction names dimensions of its space, each once and in order, and the result lacks them.
func.func @reduction(%x: tensor<4x8xf32>, %flags: tensor<4x8xi1>) {
  // expected-error@+1 {{'primop.sum' op dims must be a non-empty ascending list below 2, but is []}}
  %none = "primop.sum"(%x) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error@+1 {{dims must be a non-empty ascending list below 2, but is [1, 0]}}
  %order = "primop.sum"(%x) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<f32>
  // expected-error@+1 {{dims must be a non-empty ascending list below 2, but is [2]}}
  %outside = "primop.max"(%x) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 2>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error@+1 {{'primop.max' op result dimension 0 must be 4, but is 8}}
  %shape = "primop.max"(%x) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<8xf32>
  // expected-error@+1 {{'primop.sum' op operand must be one of f32, f16, bf16, i64, i32, but is i1}}
  %logical = "primop.sum"(%flags) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dims = array<i64: 1>} : (tensor<4x8xi1>) -> tensor<4xi1>
  return
}

// -----

// Parts have the shape of what is shared, behind their number.
func.func @part(%total: tensor<4xf32>) {
  // expected-error@+1 {{'primop.part' op result must be 6 parts of tensor<4xf32>, but is tensor<5x4xf32>}}
  %fewer = "primop.part"(%total) {count = 6 : i64, map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> tensor<5x4xf32>
  // expected-error@+1 {{result must be 6 parts of tensor<4xf32>, but is tensor<6x4xf16>}}
  %narrow = "primop.part"(%total) {count = 6 : i64, map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> tensor<6x4xf16>
  // expected-error@+1 {{map must give 1 indices (the rank of its operand), but gives 2}}
  %place = "primop.part"(%total) {count = 6 : i64, map = affine_map<(i) -> (i, i)>} : (tensor<4xf32>) -> tensor<6x4xf32>
  return
}

// -----

// Softmax is over one dimension of its space, of floats, and keeps the type.
func.func @softmax(%x: tensor<4x8xf32>, %i: tensor<4x8xi32>) {
  // expected-error@+1 {{'primop.softmax' op dim must be below 2, but is 2}}
  %outside = "primop.softmax"(%x) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dim = 2 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error@+1 {{operand must be one of f32, f16, bf16, but is i32}}
  %integer = "primop.softmax"(%i) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dim = 1 : i64} : (tensor<4x8xi32>) -> tensor<4x8xi32>
  // expected-error@+1 {{result must keep the element type f32, but is f16}}
  %narrow = "primop.softmax"(%x) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>], dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf16>
  return
}

// -----

// A gather's view of its data takes the gathered index as well, which is an integer.
func.func @gather(%table: tensor<16x8xf32>, %rows: tensor<4xi32>, %floats: tensor<4xf32>) {
  // expected-error@+1 {{'primop.gather' op map 0 must take 3 dimensions (the rank of space and one for the index), but takes 2}}
  %map = "primop.gather"(%table, %rows) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  // expected-error@+1 {{'primop.gather' op index must be one of i64, i32, but is f32}}
  %float = "primop.gather"(%table, %floats) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  // expected-error@+1 {{'primop.gather' op result must keep the element type f32, but is f16}}
  %narrow = "primop.gather"(%table, %rows) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf16>
  return
}

// -----

// A scatter gives back its destination's type; what it writes has the same elements.
func.func @scatter(%cache: tensor<16x8xf32>, %rows: tensor<4xi32>, %floats: tensor<4xf32>, %new: tensor<4x8xf32>, %narrow: tensor<4x8xf16>) {
  // expected-error@+1 {{'primop.scatter' op index must be one of i64, i32, but is f32}}
  %index = "primop.scatter"(%cache, %floats, %new) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xf32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{'primop.scatter' op result must have the type of dest, tensor<16x8xf32>, but has tensor<4x8xf32>}}
  %result = "primop.scatter"(%cache, %rows, %new) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xi32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error@+1 {{'primop.scatter' op source must have the element type of dest, f32, but has f16}}
  %source = "primop.scatter"(%cache, %rows, %narrow) {space = affine_map<() -> (4, 8)>, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xi32>, tensor<4x8xf16>) -> tensor<16x8xf32>
  return
}

// -----

// A custom op is one of a list, each with its number of operands.
func.func @custom(%x: tensor<4xf32>, %flags: tensor<4xi1>) {
  // expected-error@+1 {{'primop.custom' op kind must be one of arith.select, arith.minimumf,}}
  %unknown = "primop.custom"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>, kind = "math.cbrt", space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{arith.divf needs 2 operands, but got 1}}
  %count = "primop.custom"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>, kind = "arith.divf", space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{arith.xori cannot make f32 of f32}}
  %xor = "primop.custom"(%x, %x) {operandSegmentSizes = array<i32: 1, 1, 0>, kind = "arith.xori", space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{arith.shrui cannot make i1 of i1}}
  %shift = "primop.custom"(%flags, %flags) {operandSegmentSizes = array<i32: 1, 1, 0>, kind = "arith.shrui", space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]} : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  // expected-error@+1 {{arith.bitcast cannot make i64 of f32}}
  %bits = "primop.custom"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>, kind = "arith.bitcast", space = affine_map<() -> (4)>, maps = [affine_map<(i) -> (i)>]} : (tensor<4xf32>) -> tensor<4xi64>
  return
}

// -----

// What a module allows it allows or not.
// expected-error@+1 {{'builtin.module' op primop.tf32 must be a unit attribute, but is true}}
module attributes {primop.tf32 = true} {
}
