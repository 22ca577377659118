// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-fuse)' --split-input-file | FileCheck %s
// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-fuse{recompute=0})' --split-input-file | FileCheck %s --check-prefix=NEVER

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>

// A chain of elementwise ops is one kernel, named after its last op. It says what its arguments are, as chunks do.
// CHECK-LABEL: func.func private @chain(
// CHECK-SAME: %[[X:[^:]*]]: tensor<64xf32> {
// CHECK-NEXT: %[[ROOT:.*]] = call @chain_sqrt(%[[X]])
// CHECK-NEXT: return %[[ROOT]]
// CHECK: func.func private @chain_sqrt(
// CHECK-SAME: %[[X:[^:]*]]: tensor<64xf32> {primop.kind = "weight", primop.shape = affine_map<() -> (64)>}
// CHECK-SAME: -> (tensor<64xf32> {primop.shape = affine_map<() -> (64)>}) attributes {primop.kernel}
// CHECK-NEXT: %[[POWER:.*]] = "primop.exp2"(%[[X]])
// CHECK-NEXT: %[[ROOT:.*]] = "primop.sqrt"(%[[POWER]])
// CHECK-NEXT: return %[[ROOT]]
func.func private @chain(%x: tensor<64xf32> {primop.kind = "weight", primop.shape = #vector}) -> tensor<64xf32> attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %root = "primop.sqrt"(%power) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  return %root : tensor<64xf32>
}

// -----

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>

// A kernel is called after the scope in which its root was recorded.
// CHECK-LABEL: func.func private @named(
// CHECK-NEXT: call @named_attention_scores(
func.func private @named(%x: tensor<64xf32> {primop.kind = "argument", primop.shape = #vector}) -> tensor<64xf32> attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32> loc("attention.scores"("model.py":7:0))
  return %power : tensor<64xf32>
}

// -----

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>

// Rule 1: every result of the chunk is a root, also one that another kernel reads.
// CHECK-LABEL: func.func private @results(
// CHECK-NEXT: %[[POWER:.*]] = call @results_exp2(
// CHECK-NEXT: %[[ROOT:.*]] = call @results_sqrt(%[[POWER]])
// CHECK-NEXT: return %[[POWER]], %[[ROOT]]
func.func private @results(%x: tensor<64xf32> {primop.kind = "argument", primop.shape = #vector}) -> (tensor<64xf32>, tensor<64xf32>) attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %root = "primop.sqrt"(%power) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  return %power, %root : tensor<64xf32>, tensor<64xf32>
}

// -----

#cache = affine_map<() -> (16, 8)>
#new = affine_map<() -> (4, 8)>
#rows = affine_map<() -> (4)>
#identity = affine_map<(i, j) -> (i, j)>

// Rule 1: a scatter is a root; what it writes is computed in it, what it writes to and what reads it are not.
// CHECK-LABEL: func.func private @scatter(
// CHECK-NEXT: %[[COPY:.*]] = call @scatter_cast(
// CHECK-NEXT: %[[WRITTEN:.*]] = call @scatter_scatter(%{{.*}}, %[[COPY]],
// CHECK-NEXT: call @scatter_exp2(%[[WRITTEN]])
// CHECK: func.func private @scatter_scatter(
// CHECK-NEXT: %[[NEW:.*]] = "primop.sqrt"
// CHECK-NEXT: "primop.scatter"(%{{.*}}, %{{.*}}, %[[NEW]])
func.func private @scatter(%cache: tensor<16x8xf32> {primop.kind = "argument", primop.shape = #cache}, %rows: tensor<4xi32> {primop.kind = "argument", primop.shape = #rows}, %x: tensor<4x8xf32> {primop.kind = "argument", primop.shape = #new}) -> tensor<16x8xf32> attributes {primop.chunk} {
  %copy = "primop.cast"(%cache) {space = #cache, maps = [#identity]} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %new = "primop.sqrt"(%x) {space = #new, maps = [#identity]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %written = "primop.scatter"(%copy, %rows, %new) {space = #new, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>, #identity], extent = 16 : i64, inplace = true} : (tensor<16x8xf32>, tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %power = "primop.exp2"(%written) {space = #cache, maps = [#identity]} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %power : tensor<16x8xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#y = affine_map<() -> (8, 32)>
#vector = affine_map<() -> (32)>
#products = affine_map<() -> (8, 32, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#identity = affine_map<(m, n) -> (m, n)>
#column = affine_map<(m, n) -> (n)>

// Rule 2: a contraction joins what uses it point by point: the bias and the activation are its epilogue.
// CHECK-LABEL: func.func private @epilogue(
// CHECK-NEXT: %[[Y:.*]] = call @epilogue_exp2(
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @epilogue_exp2(
// CHECK: primop.mul
// CHECK-NEXT: primop.sum
// CHECK-NEXT: primop.add
// CHECK-NEXT: primop.exp2
// CHECK-NEXT: return
func.func private @epilogue(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}, %bias: tensor<32xf32> {primop.kind = "weight", primop.shape = #vector}) -> tensor<8x32xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  %biased = "primop.add"(%sum, %bias) {space = #y, maps = [#identity, #column]} : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %power = "primop.exp2"(%biased) {space = #y, maps = [#identity]} : (tensor<8x32xf32>) -> tensor<8x32xf32>
  return %power : tensor<8x32xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (16, 64)>
#products = affine_map<() -> (8, 16, 64)>
#halves = affine_map<() -> (8, 2, 2, 4)>
#table = affine_map<() -> (8, 4)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

#identity = affine_map<(i, h, t, j) -> (i, h, t, j)>
#angle = affine_map<(i, h, t, j) -> (i, j)>

// Rule 2: a view that takes a dimension apart, and its mirror image, use each element once: a rotary embedding, which
// reads both halves of a head in the other order as well, is an epilogue.
// CHECK-LABEL: func.func private @rotary(
// CHECK-NEXT: %[[Y:.*]] = call @rotary_add(
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @rotary_add(
// CHECK: %[[SUM:.*]] = "primop.sum"
// CHECK-NEXT: "primop.mul"(%[[SUM]],
// CHECK-NEXT: "primop.mul"(%[[SUM]],
// CHECK-NEXT: "primop.add"
func.func private @rotary(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<16x64xf32> {primop.kind = "weight", primop.shape = #w}, %cos: tensor<8x4xf32> {primop.kind = "argument", primop.shape = #table}, %sin: tensor<8x4xf32> {primop.kind = "argument", primop.shape = #table}) -> tensor<8x2x2x4xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<16x64xf32>) -> tensor<8x16x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x16x64xf32>) -> tensor<8x16xf32>
  %straight = "primop.mul"(%y, %cos) {space = #halves, maps = [affine_map<(i, h, t, j) -> (i, h * 8 + t * 4 + j)>, #angle]} : (tensor<8x16xf32>, tensor<8x4xf32>) -> tensor<8x2x2x4xf32>
  %crossed = "primop.mul"(%y, %sin) {space = #halves, maps = [affine_map<(i, h, t, j) -> (i, h * 8 - t * 4 + j + 4)>, #angle]} : (tensor<8x16xf32>, tensor<8x4xf32>) -> tensor<8x2x2x4xf32>
  %turned = "primop.add"(%straight, %crossed) {space = #halves, maps = [#identity, #identity]} : (tensor<8x2x2x4xf32>, tensor<8x2x2x4xf32>) -> tensor<8x2x2x4xf32>
  return %turned : tensor<8x2x2x4xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (16, 64)>
#products = affine_map<() -> (8, 16, 64)>
#halves = affine_map<() -> (8, 2, 2, 4)>
#heads = affine_map<() -> (8, 2, 8)>
#cache = affine_map<() -> (32, 2, 8)>
#rows = affine_map<() -> (8)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

#identity = affine_map<(i, h, t, j) -> (i, h, t, j)>

// Rule 2: a scatter that writes every element once is the end of an epilogue, also where its view puts the halves back
// together.
// CHECK-LABEL: func.func private @into_cache(
// CHECK-NEXT: %[[CACHE:.*]] = call @into_cache_scatter(
// CHECK-NEXT: return %[[CACHE]]
// CHECK: func.func private @into_cache_scatter(
// CHECK: %[[SUM:.*]] = "primop.sum"
// CHECK-NEXT: %[[NEW:.*]] = "primop.add"(%[[SUM]], %[[SUM]])
// CHECK-NEXT: "primop.scatter"(%{{.*}}, %{{.*}}, %[[NEW]])
func.func private @into_cache(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<16x64xf32> {primop.kind = "weight", primop.shape = #w}, %cache: tensor<32x2x8xf32> {primop.kind = "state", primop.shape = #cache}, %rows: tensor<8xi32> {primop.kind = "argument", primop.shape = #rows}) -> tensor<32x2x8xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<16x64xf32>) -> tensor<8x16x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x16x64xf32>) -> tensor<8x16xf32>
  %new = "primop.add"(%y, %y) {space = #halves, maps = [affine_map<(i, h, t, j) -> (i, h * 8 + t * 4 + j)>, affine_map<(i, h, t, j) -> (i, h * 8 - t * 4 + j + 4)>]} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x2x2x4xf32>
  %written = "primop.scatter"(%cache, %rows, %new) {space = #heads, maps = [affine_map<(i, h, d, row) -> (row, h, d)>, affine_map<(i, h, d) -> (i)>, affine_map<(i, h, d) -> (i, h, d floordiv 4, d mod 4)>], extent = 32 : i64, inplace = true} : (tensor<32x2x8xf32>, tensor<8xi32>, tensor<8x2x2x4xf32>) -> tensor<32x2x8xf32>
  return %written : tensor<32x2x8xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (8, 32, 64)>
#flat = affine_map<() -> (256)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

#flat_view = affine_map<(i) -> (i floordiv 32, i mod 32)>

// Rule 2: so is an op over the contraction's elements in one row.
// CHECK-LABEL: func.func private @reshaped(
// CHECK-NEXT: %[[Y:.*]] = call @reshaped_exp2(
// CHECK-NEXT: return %[[Y]]
func.func private @reshaped(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<256xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  %power = "primop.exp2"(%y) {space = #flat, maps = [#flat_view]} : (tensor<8x32xf32>) -> tensor<256xf32>
  return %power : tensor<256xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (8, 64)>
#products = affine_map<() -> (8, 8, 64)>
#y = affine_map<() -> (8, 8)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

#identity = affine_map<(m, n) -> (m, n)>
#transposed = affine_map<(m, n) -> (n, m)>

// Rule 2: two views that are no mirror images of each other need two accumulators for each element: a matrix and its
// transpose ...
// CHECK-LABEL: func.func private @and_transposed(
// CHECK-NEXT: %[[Y:.*]] = call @and_transposed_sum(
// CHECK-NEXT: call @and_transposed_add(%[[Y]])
func.func private @and_transposed(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<8x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x8xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x8x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x8x64xf32>) -> tensor<8x8xf32>
  %both = "primop.add"(%y, %y) {space = #y, maps = [#identity, #transposed]} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %both : tensor<8x8xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (8, 32, 64)>
#half = affine_map<() -> (8, 16)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

#low = affine_map<(m, n) -> (m, n)>
#high = affine_map<(m, n) -> (m, n + 16)>

// ... or two slices, neither of which reads all of it.
// CHECK-LABEL: func.func private @slices(
// CHECK-NEXT: %[[Y:.*]] = call @slices_sum(
// CHECK-NEXT: call @slices_add(%[[Y]])
func.func private @slices(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x16xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  %both = "primop.add"(%y, %y) {space = #half, maps = [#low, #high]} : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x16xf32>
  return %both : tensor<8x16xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (8, 32, 64)>
#grown = affine_map<() -> (8, 32, 4)>
#few = affine_map<() -> (4)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// Rule 2: an op that reads each element of the contraction four times would repeat it.
// CHECK-LABEL: func.func private @repeated(
// CHECK-NEXT: %[[PRODUCT:.*]] = call @repeated_sum(
// CHECK-NEXT: call @repeated_add(%[[PRODUCT]],
func.func private @repeated(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}, %shift: tensor<4xf32> {primop.kind = "argument", primop.shape = #few}) -> tensor<8x32x4xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  %shifted = "primop.add"(%sum, %shift) {space = #grown, maps = [affine_map<(m, n, s) -> (m, n)>, affine_map<(m, n, s) -> (s)>]} : (tensor<8x32xf32>, tensor<4xf32>) -> tensor<8x32x4xf32>
  return %shifted : tensor<8x32x4xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#y = affine_map<() -> (8, 32)>
#products = affine_map<() -> (8, 32, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#identity = affine_map<(m, n) -> (m, n)>

// Rule 3: a reduction of a contraction's value reads it from memory; what is elementwise between them is the epilogue.
// CHECK-LABEL: func.func private @reduced_again(
// CHECK-NEXT: %[[POWERS:.*]] = call @reduced_again_exp2(
// CHECK-NEXT: call @reduced_again_max(%[[POWERS]])
// CHECK: func.func private @reduced_again_exp2(
// CHECK: primop.sum
// CHECK-NEXT: primop.exp2
func.func private @reduced_again(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8xf32> attributes {primop.chunk} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  %powers = "primop.exp2"(%sum) {space = #y, maps = [#identity]} : (tensor<8x32xf32>) -> tensor<8x32xf32>
  %largest = "primop.max"(%powers) {space = #y, maps = [#identity], dims = array<i64: 1>} : (tensor<8x32xf32>) -> tensor<8xf32>
  return %largest : tensor<8xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#rows = affine_map<() -> (8)>
#identity = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Rule 4: a norm is one kernel: the sum of squares of a row is read back over the same row.
// CHECK-LABEL: func.func private @norm(
// CHECK-NEXT: %[[Y:.*]] = call @norm_mul(
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @norm_mul(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x64xf32>
// CHECK-NEXT: %[[SQUARES:.*]] = "primop.mul"(%[[X]], %[[X]])
// CHECK-NEXT: %[[SUM:.*]] = "primop.sum"(%[[SQUARES]])
// CHECK-NEXT: %[[SCALE:.*]] = "primop.recip"(%[[SUM]])
// CHECK-NEXT: "primop.mul"(%[[X]], %[[SCALE]])
func.func private @norm(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> tensor<8x64xf32> attributes {primop.chunk} {
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %sum = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %scale = "primop.recip"(%sum) {space = #rows, maps = [affine_map<(i) -> (i)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#rows = affine_map<() -> (8)>
#identity = affine_map<(i, j) -> (i, j)>

// Rule 4: row sums that are read at other rows than they are of stay a kernel of their own.
// CHECK-LABEL: func.func private @other_rows(
// CHECK-NEXT: %[[SUMS:.*]] = call @other_rows_sum(
// CHECK-NEXT: call @other_rows_mul(%{{.*}}, %[[SUMS]])
func.func private @other_rows(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> tensor<8x64xf32> attributes {primop.chunk} {
  %sums = "primop.sum"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %y = "primop.mul"(%x, %sums) {space = #x, maps = [#identity, affine_map<(i, j) -> (7 - i)>]} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#rows = affine_map<() -> (8)>
#products = affine_map<() -> (8, 32, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#identity = affine_map<(i, j) -> (i, j)>

// Rule 4: of two reductions with different rows one is a kernel of its own, because a program walks one row.
// CHECK-LABEL: func.func private @rows_and_columns(
// CHECK-NEXT: %[[LARGEST:.*]] = call @rows_and_columns_max(
// CHECK-NEXT: call @rows_and_columns_mul(%{{.*}}, %[[LARGEST]])
// CHECK-NEXT: return
func.func private @rows_and_columns(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}) -> tensor<8x64xf32> attributes {primop.chunk} {
  %of_row = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %of_column = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 0>} : (tensor<8x64xf32>) -> tensor<64xf32>
  %scaled = "primop.mul"(%x, %of_row) {space = #x, maps = [#identity, affine_map<(i, j) -> (i)>]} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  %y = "primop.mul"(%scaled, %of_column) {space = #x, maps = [#identity, affine_map<(i, j) -> (j)>]} : (tensor<8x64xf32>, tensor<64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#rows = affine_map<() -> (8)>
#products = affine_map<() -> (8, 32, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#identity = affine_map<(i, j) -> (i, j)>

// Rule 5: a contraction reads a norm from memory, because it would compute it for every column.
// CHECK-LABEL: func.func private @behind_a_reduction(
// CHECK-NEXT: %[[NORM:.*]] = call @behind_a_reduction_mul(
// CHECK-NEXT: call @behind_a_reduction_sum(%[[NORM]],
func.func private @behind_a_reduction(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x32xf32> attributes {primop.chunk} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
  %norm = "primop.mul"(%x, %largest) {space = #x, maps = [#identity, affine_map<(i, j) -> (i)>]} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  %products = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (8, 32, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#identity = affine_map<(i, j) -> (i, j)>

// Rule 5: what is marked as one loop over the reduced dimension is one kernel.
// CHECK-LABEL: func.func private @online(
// CHECK-NEXT: %[[Y:.*]] = call @online_sum(
// CHECK-NEXT: return %[[Y]]
func.func private @online(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x32xf32> attributes {primop.chunk} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>, primop.online} : (tensor<8x64xf32>) -> tensor<8xf32>
  %norm = "primop.mul"(%x, %largest) {space = #x, maps = [#identity, affine_map<(i, j) -> (i)>], primop.online} : (tensor<8x64xf32>, tensor<8xf32>) -> tensor<8x64xf32>
  %products = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs], primop.online} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>, primop.online} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}

// -----

#x = affine_map<() -> (8, 64)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (8, 32, 64)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#identity = affine_map<(i, j) -> (i, j)>

// Rule 5: a contraction repeats what is cheap, such as one square, and reads from memory what is dearer, such as two
// roots.
// CHECK-LABEL: func.func private @prologue(
// CHECK-NEXT: %[[ROOTS:.*]] = call @prologue_sqrt(
// CHECK-NEXT: call @prologue_sum(%{{.*}}, %[[ROOTS]])
// CHECK: func.func private @prologue_sum(
// CHECK-NEXT: %[[SQUARES:.*]] = "primop.mul"(%[[X:.*]], %[[X]])
// CHECK-NEXT: "primop.mul"(%[[SQUARES]],
// NEVER-LABEL: func.func private @prologue(
// NEVER-NEXT: %[[SQUARES:.*]] = call @prologue_mul(
// NEVER-NEXT: %[[ROOTS:.*]] = call @prologue_sqrt(
// NEVER-NEXT: call @prologue_sum(%[[SQUARES]], %[[ROOTS]])
func.func private @prologue(%x: tensor<8x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> tensor<8x32xf32> attributes {primop.chunk} {
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %root = "primop.sqrt"(%w) {space = #w, maps = [#identity]} : (tensor<32x64xf32>) -> tensor<32x64xf32>
  %fourth_root = "primop.sqrt"(%root) {space = #w, maps = [#identity]} : (tensor<32x64xf32>) -> tensor<32x64xf32>
  %products = "primop.mul"(%squares, %fourth_root) {space = #products, maps = [#lhs, #rhs]} : (tensor<8x64xf32>, tensor<32x64xf32>) -> tensor<8x32x64xf32>
  %y = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x64xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}

// -----

#vector = affine_map<() -> (64)>
#identity = affine_map<(i) -> (i)>

// Rule 6: two kernels each compute a root that both need; two roots in a row are computed once and kept.
// CHECK-LABEL: func.func private @shared(
// CHECK-NEXT: %[[ROOTS:.*]] = call @shared_sqrt(
// CHECK-NEXT: call @shared_exp2(%[[X:.*]], %[[ROOTS]])
// CHECK-NEXT: call @shared_sin(%[[X]], %[[ROOTS]])
// CHECK: func.func private @shared_exp2(
// CHECK-NEXT: primop.recip
// CHECK: func.func private @shared_sin(
// CHECK-NEXT: primop.recip
// NEVER-LABEL: func.func private @shared(
// NEVER-NEXT: %[[INVERSE:.*]] = call @shared_recip(
// NEVER: call @shared_exp2(%[[INVERSE]],
// NEVER: call @shared_sin(%[[INVERSE]],
func.func private @shared(%x: tensor<64xf32> {primop.kind = "argument", primop.shape = #vector}) -> (tensor<64xf32>, tensor<64xf32>) attributes {primop.chunk} {
  %inverse = "primop.recip"(%x) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %root = "primop.sqrt"(%x) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %fourth_root = "primop.sqrt"(%root) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %sum = "primop.add"(%inverse, %fourth_root) {space = #vector, maps = [#identity, #identity]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %power = "primop.exp2"(%sum) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %product = "primop.mul"(%inverse, %fourth_root) {space = #vector, maps = [#identity, #identity]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %sine = "primop.sin"(%product) {space = #vector, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  return %power, %sine : tensor<64xf32>, tensor<64xf32>
}

// -----

#table = affine_map<() -> (16, 8)>
#rows = affine_map<() -> (4)>
#read = affine_map<() -> (4, 8)>
#identity = affine_map<(i, j) -> (i, j)>

// What a gather reads at computed places is in memory; constants and iotas are copied to whoever reads them.
// CHECK-LABEL: func.func private @gather(
// CHECK-NEXT: %[[TABLE:.*]] = call @gather_exp2(
// CHECK-NEXT: call @gather_gather(%[[TABLE]])
// CHECK: func.func private @gather_gather(
// CHECK-NEXT: %[[ROWS:.*]] = "primop.iota"
// CHECK-NEXT: "primop.gather"(%{{.*}}, %[[ROWS]])
func.func private @gather(%table: tensor<16x8xf32> {primop.kind = "weight", primop.shape = #table}) -> tensor<4x8xf32> attributes {primop.chunk} {
  %powers = "primop.exp2"(%table) {space = #table, maps = [#identity]} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %rows = "primop.iota"() {space = #rows} : () -> tensor<4xi32>
  %read = "primop.gather"(%powers, %rows) {space = #read, maps = [affine_map<(i, j, row) -> (row, j)>, affine_map<(i, j) -> (i)>], extent = 16 : i64} : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  return %read : tensor<4x8xf32>
}

// -----

#x = affine_map<() -> (1, 64)>
#one = affine_map<() -> (1)>
#w = affine_map<() -> (32, 64)>
#products = affine_map<() -> (1, 32, 64)>
#identity = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(m, n, k) -> (m, n, k)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>

// Rule 7: every product of a row that programs make for themselves has a copy of it, marks included. What it is made from,
// here a sum that is a result as well, is read from memory.
// CHECK-LABEL: func.func private @staged(
// CHECK-NEXT: %[[SUM:.*]] = call @staged_add(
// CHECK-NEXT: %[[Y:.*]] = call @staged_sum(%[[SUM]], %[[W:.*]])
// CHECK-NEXT: %[[Z:.*]] = call @staged_sum_2(%[[SUM]], %[[V:.*]])
// CHECK-NEXT: return %[[SUM]], %[[Y]], %[[Z]]
// CHECK: func.func private @staged_sum(
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x64xf32> {{{.*}}, %[[W:[^:]*]]: tensor<32x64xf32> {
// CHECK-NEXT: %[[LARGEST:.*]] = "primop.max"(%[[X]]) {{{.*}}primop.staged = "part"
// CHECK-NEXT: %[[SCALE:.*]] = "primop.recip"(%[[LARGEST]]) {{{.*}}primop.staged = "part"
// CHECK-NEXT: %[[ROW:.*]] = "primop.mul"(%[[X]], %[[SCALE]]) {{{.*}}primop.staged = "row"
// CHECK-NEXT: %[[PRODUCTS:.*]] = "primop.mul"(%[[ROW]], %[[W]])
// CHECK-NEXT: "primop.sum"(%[[PRODUCTS]])
// CHECK: func.func private @staged_sum_2(
// CHECK-NEXT: primop.max
// CHECK-NEXT: primop.recip
// CHECK-NEXT: %[[ROW:.*]] = "primop.mul"({{.*}}primop.staged = "row"
// CHECK-NEXT: "primop.mul"(%[[ROW]],
func.func private @staged(%x: tensor<1x64xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}, %v: tensor<32x64xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<1x64xf32>, tensor<1x32xf32>, tensor<1x32xf32>) attributes {primop.chunk} {
  %both = "primop.add"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
  %largest = "primop.max"(%both) {space = #x, maps = [#identity], dims = array<i64: 1>, primop.staged = "part"} : (tensor<1x64xf32>) -> tensor<1xf32>
  %scale = "primop.recip"(%largest) {space = #one, maps = [affine_map<(i) -> (i)>], primop.staged = "part"} : (tensor<1xf32>) -> tensor<1xf32>
  %norm = "primop.mul"(%both, %scale) {space = #x, maps = [#identity, #row], primop.staged = "row"} : (tensor<1x64xf32>, tensor<1xf32>) -> tensor<1x64xf32>
  %a = "primop.mul"(%norm, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %y = "primop.sum"(%a) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  %b = "primop.mul"(%norm, %v) {space = #products, maps = [#lhs, #rhs]} : (tensor<1x64xf32>, tensor<32x64xf32>) -> tensor<1x32x64xf32>
  %z = "primop.sum"(%b) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x64xf32>) -> tensor<1x32xf32>
  return %both, %y, %z : tensor<1x64xf32>, tensor<1x32xf32>, tensor<1x32xf32>
}

// -----

#x64 = affine_map<() -> (64)>
#x63 = affine_map<() -> (63)>
#x61 = affine_map<() -> (61)>
#x57 = affine_map<() -> (57)>
#identity = affine_map<(i) -> (i)>

// Rule 9: each sum of a value and its neighbour doubles the points at which what is below is evaluated. Eight are few.
// CHECK-LABEL: func.func private @eight_points(
// CHECK-NEXT: %[[Y:.*]] = call @eight_points_add(%arg0)
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @eight_points_add(
// CHECK-NEXT: primop.exp2
func.func private @eight_points(%x: tensor<64xf32> {primop.kind = "argument", primop.shape = #x64}) -> tensor<57xf32> attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #x64, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %a = "primop.add"(%power, %power) {space = #x63, maps = [#identity, affine_map<(i) -> (i + 1)>]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<63xf32>
  %b = "primop.add"(%a, %a) {space = #x61, maps = [#identity, affine_map<(i) -> (i + 2)>]} : (tensor<63xf32>, tensor<63xf32>) -> tensor<61xf32>
  %c = "primop.add"(%b, %b) {space = #x57, maps = [#identity, affine_map<(i) -> (i + 4)>]} : (tensor<61xf32>, tensor<61xf32>) -> tensor<57xf32>
  return %c : tensor<57xf32>
}

// -----

#x64 = affine_map<() -> (64)>
#x63 = affine_map<() -> (63)>
#x61 = affine_map<() -> (61)>
#x57 = affine_map<() -> (57)>
#x49 = affine_map<() -> (49)>
#identity = affine_map<(i) -> (i)>

// Rule 9: sixteen are too many: the value is materialised, and the sums are evaluated as before.
// CHECK-LABEL: func.func private @sixteen_points(
// CHECK-NEXT: %[[POWER:.*]] = call @sixteen_points_exp2(%arg0)
// CHECK-NEXT: %[[Y:.*]] = call @sixteen_points_add(%[[POWER]])
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @sixteen_points_add(
// CHECK-COUNT-4: primop.add
func.func private @sixteen_points(%x: tensor<64xf32> {primop.kind = "argument", primop.shape = #x64}) -> tensor<49xf32> attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #x64, maps = [#identity]} : (tensor<64xf32>) -> tensor<64xf32>
  %a = "primop.add"(%power, %power) {space = #x63, maps = [#identity, affine_map<(i) -> (i + 1)>]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<63xf32>
  %b = "primop.add"(%a, %a) {space = #x61, maps = [#identity, affine_map<(i) -> (i + 2)>]} : (tensor<63xf32>, tensor<63xf32>) -> tensor<61xf32>
  %c = "primop.add"(%b, %b) {space = #x57, maps = [#identity, affine_map<(i) -> (i + 4)>]} : (tensor<61xf32>, tensor<61xf32>) -> tensor<57xf32>
  %d = "primop.add"(%c, %c) {space = #x49, maps = [#identity, affine_map<(i) -> (i + 8)>]} : (tensor<57xf32>, tensor<57xf32>) -> tensor<49xf32>
  return %d : tensor<49xf32>
}

// -----

#vector = affine_map<() -> (60)>
#halves = affine_map<(i) -> ((i mod 6) * 10 + i floordiv 6)>
#quarters = affine_map<(i) -> ((i mod 4) * 15 + i floordiv 4)>

// Rule 9: a permuting view of a permuting view writes every index of the inner one twice. Two are read as one, the third
// would be too long and is read from memory.
// CHECK-LABEL: func.func private @permuted(
// CHECK-NEXT: %[[POWER:.*]] = call @permuted_exp2(%arg0)
// CHECK-NEXT: %[[Y:.*]] = call @permuted_sin(%[[POWER]])
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @permuted_sin(
// CHECK-NEXT: %[[ROOT:.*]] = "primop.sqrt"
// CHECK-NEXT: "primop.sin"(%[[ROOT]])
func.func private @permuted(%x: tensor<60xf32> {primop.kind = "argument", primop.shape = #vector}) -> tensor<60xf32> attributes {primop.chunk} {
  %power = "primop.exp2"(%x) {space = #vector, maps = [#halves]} : (tensor<60xf32>) -> tensor<60xf32>
  %root = "primop.sqrt"(%power) {space = #vector, maps = [#quarters]} : (tensor<60xf32>) -> tensor<60xf32>
  %y = "primop.sin"(%root) {space = #vector, maps = [#halves]} : (tensor<60xf32>) -> tensor<60xf32>
  return %y : tensor<60xf32>
}
