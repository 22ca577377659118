// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-fuse{tensor=true})' | FileCheck %s

#x = affine_map<()[n] -> (n, 128)>
#square = affine_map<()[n] -> (128, 128)>
#rows = affine_map<()[n] -> (n)>
#a = affine_map<()[n] -> (n, 72)>
#w = affine_map<()[n] -> (128, 72)>
#products = affine_map<()[n] -> (n, 128, 72)>
#g = affine_map<()[n] -> (128)>
#cut = affine_map<()[n] -> (n, 2, 64)>
#blocks = affine_map<()[n] -> (n, 2)>
#y = affine_map<()[n] -> (n, 32)>
#v = affine_map<()[n] -> (32, 128)>
#after = affine_map<()[n] -> (n, 32, 128)>
#i = affine_map<(i)[n] -> (i)>
#whole = affine_map<(i, j)[n] -> (i, j)>
#swapped = affine_map<(i, j)[n] -> (j, i)>
#row = affine_map<(i, j)[n] -> (i)>
#column = affine_map<(i, j)[n] -> (j)>
#inside = affine_map<(i, b, j)[n] -> (i, b * 64 + j)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// Sums of blocks of squares and a row times its weights are results of the kernel that has the row, which is a product's: each
// program has what they are made of.
// CHECK-LABEL: func.func private @beside(
// CHECK-NEXT: %[[KERNEL:.*]]:3 = call @beside_add(%arg1, %arg2, %arg0, %arg3)
// CHECK-NEXT: return %[[KERNEL]]#0, %[[KERNEL]]#1, %[[KERNEL]]#2
func.func private @beside(%r: tensor<?x128xf32> {primop.kind = "argument", primop.shape = #x}, %a: tensor<?x72xbf16> {primop.kind = "argument", primop.shape = #a}, %w: tensor<128x72xbf16> {primop.kind = "weight", primop.shape = #w}, %g: tensor<128xf32> {primop.kind = "weight", primop.shape = #g}) -> (tensor<?x128xf32>, tensor<?x2xf32>, tensor<?x128xbf16>) attributes {primop.chunk} {
  %b = "primop.mul"(%a, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %c = "primop.sum"(%b) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %x = "primop.add"(%r, %c) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %blocks = "primop.sum"(%squares) {space = #cut, maps = [#inside], dims = array<i64: 2>, primop.beside} : (tensor<?x128xf32>) -> tensor<?x2xf32>
  %weighted = "primop.mul"(%x, %g) {space = #x, maps = [#whole, #column]} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%weighted) {space = #x, maps = [#whole], primop.beside} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %x, %blocks, %y : tensor<?x128xf32>, tensor<?x2xf32>, tensor<?x128xbf16>
}

// Where nothing else reads the product, the row is what its kernel computes.
// CHECK-LABEL: func.func private @alone(
// CHECK-NEXT: %[[Y:.*]] = call @alone_cast(%arg0, %arg1)
// CHECK-NEXT: return %[[Y]]
func.func private @alone(%a: tensor<?x72xbf16> {primop.kind = "argument", primop.shape = #a}, %w: tensor<128x72xbf16> {primop.kind = "weight", primop.shape = #w}) -> tensor<?x128xbf16> attributes {primop.chunk} {
  %b = "primop.mul"(%a, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%b) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%x) {space = #x, maps = [#whole], primop.beside} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %y : tensor<?x128xbf16>
}

// What makes the row may be no product: its kernel has one result, and the others have kernels of their own.
// CHECK-LABEL: func.func private @no_product(
// CHECK-NEXT: %[[X:.*]] = call @no_product_exp2(%arg0)
// CHECK-NEXT: %[[BLOCKS:.*]] = call @no_product_sum(%[[X]])
// CHECK-NEXT: %[[Y:.*]] = call @no_product_cast(%[[X]], %arg1)
// CHECK-NEXT: return %[[X]], %[[BLOCKS]], %[[Y]]
func.func private @no_product(%r: tensor<?x128xf32> {primop.kind = "argument", primop.shape = #x}, %g: tensor<128xf32> {primop.kind = "weight", primop.shape = #g}) -> (tensor<?x128xf32>, tensor<?x2xf32>, tensor<?x128xbf16>) attributes {primop.chunk} {
  %x = "primop.exp2"(%r) {space = #x, maps = [#whole]} : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %blocks = "primop.sum"(%squares) {space = #cut, maps = [#inside], dims = array<i64: 2>, primop.beside} : (tensor<?x128xf32>) -> tensor<?x2xf32>
  %weighted = "primop.mul"(%x, %g) {space = #x, maps = [#whole, #column]} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%weighted) {space = #x, maps = [#whole], primop.beside} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %x, %blocks, %y : tensor<?x128xf32>, tensor<?x2xf32>, tensor<?x128xbf16>
}

// A program has not what is read in another order ...
// CHECK-LABEL: func.func private @transposed(
// CHECK-NEXT: %[[X:.*]] = call @transposed_sum(%arg0, %arg1)
// CHECK-NEXT: %[[Y:.*]] = call @transposed_cast(%[[X]])
// CHECK-NEXT: return %[[X]], %[[Y]]
func.func private @transposed(%a: tensor<128x72xbf16> {primop.kind = "argument", primop.shape = #w}, %w: tensor<128x72xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<128x128xf32>, tensor<128x128xbf16>) attributes {primop.chunk} {
  %b = "primop.mul"(%a, %w) {space = affine_map<()[n] -> (128, 128, 72)>, maps = [#lhs, #rhs]} : (tensor<128x72xbf16>, tensor<128x72xbf16>) -> tensor<128x128x72xf32>
  %x = "primop.sum"(%b) {space = affine_map<()[n] -> (128, 128, 72)>, maps = [#all], dims = array<i64: 2>} : (tensor<128x128x72xf32>) -> tensor<128x128xf32>
  %y = "primop.cast"(%x) {space = #square, maps = [#swapped], primop.beside} : (tensor<128x128xf32>) -> tensor<128x128xbf16>
  return %x, %y : tensor<128x128xf32>, tensor<128x128xbf16>
}

// ... nor what another kernel makes ...
// CHECK-LABEL: func.func private @of_two(
// CHECK-NEXT: %[[OTHER:.*]] = call @of_two_exp2(%arg0)
// CHECK-NEXT: %[[X:.*]] = call @of_two_add(%arg1, %arg2, %arg0)
// CHECK-NEXT: %[[Y:.*]] = call @of_two_cast(%[[X]], %[[OTHER]])
// CHECK-NEXT: return %[[OTHER]], %[[X]], %[[Y]]
func.func private @of_two(%r: tensor<?x128xf32> {primop.kind = "argument", primop.shape = #x}, %a: tensor<?x72xbf16> {primop.kind = "argument", primop.shape = #a}, %w: tensor<128x72xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x128xf32>, tensor<?x128xf32>, tensor<?x128xbf16>) attributes {primop.chunk} {
  %other = "primop.exp2"(%r) {space = #x, maps = [#whole]} : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %b = "primop.mul"(%a, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %c = "primop.sum"(%b) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %x = "primop.add"(%r, %c) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %both = "primop.mul"(%x, %other) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%both) {space = #x, maps = [#whole], primop.beside} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %other, %x, %y : tensor<?x128xf32>, tensor<?x128xf32>, tensor<?x128xbf16>
}

// ... nor all of a row, whose sum is none of a block.
// CHECK-LABEL: func.func private @sum_of_all(
// CHECK-NEXT: %[[X:.*]] = call @sum_of_all_add(%arg1, %arg2, %arg0)
// CHECK-NEXT: %[[TOTAL:.*]] = call @sum_of_all_sum(%[[X]])
// CHECK-NEXT: return %[[X]], %[[TOTAL]]
func.func private @sum_of_all(%r: tensor<?x128xf32> {primop.kind = "argument", primop.shape = #x}, %a: tensor<?x72xbf16> {primop.kind = "argument", primop.shape = #a}, %w: tensor<128x72xbf16> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x128xf32>, tensor<?xf32>) attributes {primop.chunk} {
  %b = "primop.mul"(%a, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %c = "primop.sum"(%b) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %x = "primop.add"(%r, %c) {space = #x, maps = [#whole, #whole]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%x) {space = #x, maps = [#whole], dims = array<i64: 1>, primop.beside} : (tensor<?x128xf32>) -> tensor<?xf32>
  return %x, %total : tensor<?x128xf32>, tensor<?xf32>
}

// A factor of rows is part of each kernel of a product that it scales, with the sum that it is made of.
// CHECK-LABEL: func.func private @factor(
// CHECK-NEXT: %[[P:.*]] = call @factor_mul(%arg1, %arg0, %arg2)
// CHECK-NEXT: %[[Q:.*]] = call @factor_mul_2(%arg1, %arg0, %arg3)
// CHECK-NEXT: return %[[P]], %[[Q]]
func.func private @factor(%y: tensor<?x128xbf16> {primop.kind = "argument", primop.shape = #x}, %blocks: tensor<?x2xf32> {primop.kind = "argument", primop.shape = #blocks}, %v: tensor<32x128xbf16> {primop.kind = "weight", primop.shape = #v}, %u: tensor<32x128xbf16> {primop.kind = "weight", primop.shape = #v}) -> (tensor<?x32xf32>, tensor<?x32xf32>) attributes {primop.chunk} {
  %total = "primop.sum"(%blocks) {space = #blocks, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<?x2xf32>) -> tensor<?xf32>
  %factor = "primop.recip"(%total) {space = #rows, maps = [#i], primop.factor} : (tensor<?xf32>) -> tensor<?xf32>
  %p0 = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p1 = "primop.sum"(%p0) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  %p = "primop.mul"(%p1, %factor) {space = #y, maps = [#whole, #row]} : (tensor<?x32xf32>, tensor<?xf32>) -> tensor<?x32xf32>
  %q0 = "primop.mul"(%y, %u) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %q1 = "primop.sum"(%q0) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  %q = "primop.mul"(%q1, %factor) {space = #y, maps = [#whole, #row]} : (tensor<?x32xf32>, tensor<?xf32>) -> tensor<?x32xf32>
  return %p, %q : tensor<?x32xf32>, tensor<?x32xf32>
}

// One that anything else reads as well, such as a row by element or whoever called the chunk, is made once.
// CHECK-LABEL: func.func private @read_by_element(
// CHECK-NEXT: %[[FACTOR:.*]] = call @read_by_element_recip(%arg1)
// CHECK-NEXT: %[[P:.*]] = call @read_by_element_mul(%arg0, %arg2, %[[FACTOR]])
// CHECK-NEXT: %[[SCALED:.*]] = call @read_by_element_mul_2(%arg0, %[[FACTOR]])
// CHECK-NEXT: return %[[P]], %[[SCALED]]
func.func private @read_by_element(%y: tensor<?x128xbf16> {primop.kind = "argument", primop.shape = #x}, %blocks: tensor<?x2xf32> {primop.kind = "argument", primop.shape = #blocks}, %v: tensor<32x128xbf16> {primop.kind = "weight", primop.shape = #v}, %u: tensor<32x128xbf16> {primop.kind = "weight", primop.shape = #v}) -> (tensor<?x32xf32>, tensor<?x128xf32>) attributes {primop.chunk} {
  %total = "primop.sum"(%blocks) {space = #blocks, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<?x2xf32>) -> tensor<?xf32>
  %factor = "primop.recip"(%total) {space = #rows, maps = [#i], primop.factor} : (tensor<?xf32>) -> tensor<?xf32>
  %p0 = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p1 = "primop.sum"(%p0) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  %p = "primop.mul"(%p1, %factor) {space = #y, maps = [#whole, #row]} : (tensor<?x32xf32>, tensor<?xf32>) -> tensor<?x32xf32>
  %wide = "primop.cast"(%y) {space = #x, maps = [#whole]} : (tensor<?x128xbf16>) -> tensor<?x128xf32>
  %scaled = "primop.mul"(%wide, %factor) {space = #x, maps = [#whole, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  return %p, %scaled : tensor<?x32xf32>, tensor<?x128xf32>
}

// CHECK-LABEL: func.func private @returned(
// CHECK-NEXT: %[[FACTOR:.*]] = call @returned_recip(%arg1)
// CHECK-NEXT: %[[P:.*]] = call @returned_mul(%arg0, %arg2, %[[FACTOR]])
// CHECK-NEXT: return %[[P]], %[[FACTOR]]
func.func private @returned(%y: tensor<?x128xbf16> {primop.kind = "argument", primop.shape = #x}, %blocks: tensor<?x2xf32> {primop.kind = "argument", primop.shape = #blocks}, %v: tensor<32x128xbf16> {primop.kind = "weight", primop.shape = #v}, %u: tensor<32x128xbf16> {primop.kind = "weight", primop.shape = #v}) -> (tensor<?x32xf32>, tensor<?xf32>) attributes {primop.chunk} {
  %total = "primop.sum"(%blocks) {space = #blocks, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<?x2xf32>) -> tensor<?xf32>
  %factor = "primop.recip"(%total) {space = #rows, maps = [#i], primop.factor} : (tensor<?xf32>) -> tensor<?xf32>
  %p0 = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p1 = "primop.sum"(%p0) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  %p = "primop.mul"(%p1, %factor) {space = #y, maps = [#whole, #row]} : (tensor<?x32xf32>, tensor<?xf32>) -> tensor<?x32xf32>
  return %p, %factor : tensor<?x32xf32>, tensor<?xf32>
}

// One that scales what is multiplied, and not the product, is part of a kernel that does so once.
// CHECK-LABEL: func.func private @operand(
// CHECK-NEXT: %[[SCALED:.*]] = call @operand_mul(%arg1, %arg0)
// CHECK-NEXT: call @operand_sum(%[[SCALED]], %arg2)
func.func private @operand(%x: tensor<?x128xf32> {primop.kind = "argument", primop.shape = #x}, %blocks: tensor<?x2xf32> {primop.kind = "argument", primop.shape = #blocks}, %v: tensor<32x128xf32> {primop.kind = "weight", primop.shape = #v}) -> tensor<?x32xf32> attributes {primop.chunk} {
  %total = "primop.sum"(%blocks) {space = #blocks, maps = [#whole], dims = array<i64: 1>, primop.factor} : (tensor<?x2xf32>) -> tensor<?xf32>
  %factor = "primop.recip"(%total) {space = #rows, maps = [#i], primop.factor} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %factor) {space = #x, maps = [#whole, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %p0 = "primop.mul"(%scaled, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xf32>, tensor<32x128xf32>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%p0) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  return %p : tensor<?x32xf32>
}

// The kernels follow.
// CHECK-LABEL: func.func private @beside_add(
// CHECK-SAME: -> (tensor<?x128xf32> {{.*}}, tensor<?x2xf32> {primop.shape = affine_map<()[s0] -> (s0, 2)>}, tensor<?x128xbf16> {{.*}}) attributes {primop.kernel}
// CHECK: %[[X:.*]] = "primop.add"(
// CHECK: %[[BLOCKS:.*]] = "primop.sum"({{.*}}primop.beside
// CHECK: %[[Y:.*]] = "primop.cast"({{.*}}primop.beside
// CHECK: return %[[X]], %[[BLOCKS]], %[[Y]]
// CHECK-LABEL: func.func private @factor_mul(
// CHECK: "primop.sum"({{.*}}primop.factor
// CHECK: "primop.recip"({{.*}}primop.factor
// CHECK-LABEL: func.func private @factor_mul_2(
// CHECK: "primop.sum"({{.*}}primop.factor

}
