// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-stage-rows)' --mlir-print-local-scope | FileCheck %s
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-stage-rows{bytes=128})' | FileCheck %s --check-prefix=FEW --implicit-check-not=primop.staged

#x = affine_map<() -> (1, 64)>
#one = affine_map<() -> (1)>
#length = affine_map<() -> (64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (1, 32, 64)>
#identity = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// A norm of one row that matrices are multiplied with: its last value is the row, what it alone is computed from are parts of
// it, down to what is read from memory. What is added before the norm is read by others as well, so it is not a part.
// CHECK-LABEL: func.func private @norm(
// CHECK: %[[SUM:.*]] = "primop.add"({{.*}}) {maps
// CHECK: "primop.mul"(%[[SUM]], %[[SUM]]) {{{.*}}primop.staged = "part"
// CHECK: "primop.sum"(%{{.*}}) {{{.*}}primop.staged = "part"
// CHECK: "primop.recip"(%{{.*}}) {{{.*}}primop.staged = "part"
// CHECK: %[[SCALED:.*]] = "primop.mul"(%[[SUM]], %{{.*}}) {{{.*}}primop.staged = "part"
// CHECK: %[[ROW:.*]] = "primop.mul"(%[[SCALED]], %{{.*}}) {{{.*}}primop.staged = "row"
// CHECK-NOT: primop.staged
// CHECK: "primop.mul"(%[[ROW]],
// CHECK: "primop.mul"(%[[ROW]],
// CHECK-NOT: primop.staged
// CHECK: return

// The row is of a size that may be chosen, because all of it lies in shared memory.
// FEW-LABEL: func.func private @norm(
func.func private @norm(%x: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %y: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %g: tensor<64xf32> {primop.kind = "weight", primop.shape = #length}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}, %v: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<1x64xf32>, tensor<1x32xf32>, tensor<1x32xf32>) attributes {primop.chunk} {
  %both = "primop.add"(%x, %y) {space = #x, maps = [#identity, #identity]} : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
  %squares = "primop.mul"(%both, %both) {space = #x, maps = [#identity, #identity]} : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
  %sum = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<1x64xf32>) -> tensor<1xf32>
  %scale = "primop.recip"(%sum) {space = #one, maps = [affine_map<(i) -> (i)>]} : (tensor<1xf32>) -> tensor<1xf32>
  %scaled = "primop.mul"(%both, %scale) {space = #x, maps = [#identity, #row]} : (tensor<1x64xf32>, tensor<1xf32>) -> tensor<1x64xf32>
  %norm = "primop.mul"(%scaled, %g) {space = #x, maps = [#identity, #column]} : (tensor<1x64xf32>, tensor<64xf32>) -> tensor<1x64xf32>
  %a = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %b = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  %c = "primop.mul"(%norm, %v) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %d = "primop.sum"(%c) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  return %both, %b, %d : tensor<1x64xf32>, tensor<1x32xf32>, tensor<1x32xf32>
}

// -----

#x = affine_map<() -> (1, 16384)>
#one = affine_map<() -> (1)>
#w = affine_map<() -> (32, 16384)>
#products = affine_map<() -> (1, 32, 16384)>
#identity = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// A row of more than 32 KiB is left to a kernel of its own ...
// CHECK-LABEL: func.func private @long(
// CHECK-NOT: primop.staged
// CHECK: return
func.func private @long(%x: tensor<1x16384xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x16384xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<1x32xf32> attributes {primop.chunk} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<1x16384xf32>) -> tensor<1xf32>
  %norm = "primop.mul"(%x, %largest) {space = #x, maps = [#identity, #row]} : (tensor<1x16384xf32>, tensor<1xf32>) -> tensor<1x16384xf32>
  %a = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x16384xf32>, tensor<32x16384xf32>) -> tensor<1x32x16384xf32>
  %b = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x16384xf32>) -> tensor<1x32xf32>
  return %b : tensor<1x32xf32>
}

// -----

#x = affine_map<()[n] -> (n, 64)>
#rows = affine_map<()[n] -> (n)>
#w = affine_map<()[n] -> (32, 64)>
#products = affine_map<()[n] -> (n, 32, 64)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// ... and so are many rows, which every program would make again.
// CHECK-LABEL: func.func private @rows(
// CHECK-NOT: primop.staged
// CHECK: return
func.func private @rows(%x: tensor<?x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<?x32xf32> attributes {primop.chunk} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x64xf32>) -> tensor<?xf32>
  %norm = "primop.mul"(%x, %largest) {space = #x, maps = [#identity, #row]} : (tensor<?x64xf32>, tensor<?xf32>) -> tensor<?x64xf32>
  %a = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32x64xf32>
  %b = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x64xf32>) -> tensor<?x32xf32>
  return %b : tensor<?x32xf32>
}

}

// -----

#x = affine_map<() -> (1, 64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (1, 32, 64)>
#identity = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// A row that anything but a product reads has to be in memory anyway: a result of the chunk, or an operand of a sum.
// CHECK-LABEL: func.func private @result(
// CHECK-NOT: primop.staged
// CHECK: return
func.func private @result(%x: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<1x64xf32>, tensor<1x32xf32>) attributes {primop.chunk} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<1x64xf32>) -> tensor<1xf32>
  %norm = "primop.mul"(%x, %largest) {space = #x, maps = [#identity, #row]} : (tensor<1x64xf32>, tensor<1xf32>) -> tensor<1x64xf32>
  %a = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %b = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  return %norm, %b : tensor<1x64xf32>, tensor<1x32xf32>
}

// CHECK-LABEL: func.func private @residual(
// CHECK-NOT: primop.staged
// CHECK: return
func.func private @residual(%x: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<64x64xf32> {primop.kind = "weight", primop.shape = affine_map<() -> (64, 64)>}) -> tensor<1x64xf32> attributes {primop.chunk} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<1x64xf32>) -> tensor<1xf32>
  %norm = "primop.mul"(%x, %largest) {space = #x, maps = [#identity, #row]} : (tensor<1x64xf32>, tensor<1xf32>) -> tensor<1x64xf32>
  %a = "primop.mul"(%norm, %w) {space = affine_map<() -> (1, 64, 64)>, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64x64xf32>
  %b = "primop.sum"(%a) {space = affine_map<() -> (1, 64, 64)>, maps = [#all], dims = array<i64: 2>} : (tensor<1x64x64xf32>) -> tensor<1x64xf32>
  %y = "primop.add"(%b, %norm) {space = #x, maps = [#identity, #identity]} : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
  return %y : tensor<1x64xf32>
}

// So does the result of another product, which costs more than a launch. Without a reduction a product takes a row as its
// prologue, and nothing is gained.
// CHECK-LABEL: func.func private @products(
// CHECK-NOT: primop.staged
// CHECK: return
func.func private @products(%x: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %v: tensor<64x64xf32> {primop.kind = "weight", primop.shape = affine_map<() -> (64, 64)>}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<1x32xf32> attributes {primop.chunk} {
  %a = "primop.mul"(%x, %v) {space = affine_map<() -> (1, 64, 64)>, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64x64xf32>
  %b = "primop.sum"(%a) {space = affine_map<() -> (1, 64, 64)>, maps = [#all], dims = array<i64: 2>} : (tensor<1x64x64xf32>) -> tensor<1x64xf32>
  %power = "primop.exp2"(%b) {space = #x, maps = [#identity]} : (tensor<1x64xf32>) -> tensor<1x64xf32>
  %c = "primop.mul"(%power, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %d = "primop.sum"(%c) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  return %d : tensor<1x32xf32>
}

// CHECK-LABEL: func.func private @elementwise(
// CHECK-NOT: primop.staged
// CHECK: return
func.func private @elementwise(%x: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<1x32xf32> attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #x, maps = [#identity]} : (tensor<1x64xf32>) -> tensor<1x64xf32>
  %a = "primop.mul"(%power, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %b = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  return %b : tensor<1x32xf32>
}
