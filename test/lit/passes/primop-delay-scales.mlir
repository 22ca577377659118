// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-delay-scales,tilec-dce)' | FileCheck %s
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-delay-scales{block=32},tilec-dce)' | FileCheck %s --check-prefix=HALF

#x = affine_map<()[n] -> (n, 128)>
#rows = affine_map<()[n] -> (n)>
#a = affine_map<()[n] -> (n, 72)>
#w = affine_map<()[n] -> (128, 72)>
#v = affine_map<()[n] -> (32, 128)>
#g = affine_map<()[n] -> (128)>
#before = affine_map<()[n] -> (n, 128, 72)>
#after = affine_map<()[n] -> (n, 32, 128)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#column = affine_map<(i, j)[n] -> (j)>
#scalar = affine_map<(i)[n] -> ()>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// What a norm reads is the sum of a residual and a product, in the chunk before its own. Sums of 64 squares each and the row
// times its weights, rounded, become a part of that chunk and stand beside the sum. All that is left of the norm adds up the
// sums of blocks and makes a number a row of them; it is a factor, which multiplies both products that read the row.
// CHECK-LABEL: func.func @norm(
// CHECK: %[[G:.*]] = "primop.input"() {{.*}} label = "g"
// CHECK: %[[X:.*]] = "primop.add"(%{{.*}}) {{{.*}}primop.chunk = "first", primop.chunk_index = 0 : i64
// CHECK: %[[SQUARES:.*]] = "primop.mul"(%[[X]], %[[X]]) {{{.*}}primop.chunk = "first", primop.chunk_index = 0 : i64
// CHECK: %[[BLOCKS:.*]] = "primop.sum"(%[[SQUARES]]) {dims = array<i64: 2>,
// CHECK-SAME: maps = [affine_map<(d0, d1, d2)[s0] -> (d0, d1 * 64 + d2)>], primop.beside,
// CHECK-SAME: primop.chunk = "first", primop.chunk_index = 0 : i64, space = affine_map<()[s0] -> (s0, 2, 64)>}
// CHECK-SAME: -> tensor<?x2xf32>
// CHECK: %[[TOTAL:.*]] = "primop.sum"(%[[BLOCKS]]) {dims = array<i64: 1>,
// CHECK-SAME: primop.chunk = "second", primop.chunk_index = 1 : i64, primop.factor, space = affine_map<()[s0] -> (s0, 2)>}
// CHECK-NOT: primop.factor
// CHECK: %[[ROOT:.*]] = "primop.sqrt"(%[[TOTAL]]) {{{.*}}primop.chunk = "second", primop.chunk_index = 1 : i64, primop.factor
// CHECK: %[[FACTOR:.*]] = "primop.recip"(%[[ROOT]]) {{{.*}}primop.chunk = "second", primop.chunk_index = 1 : i64, primop.factor
// CHECK: %[[SCALED:.*]] = "primop.mul"(%[[X]], %[[G]]) {{{.*}}primop.chunk = "first", primop.chunk_index = 0 : i64
// CHECK: %[[Y:.*]] = "primop.cast"(%[[SCALED]]) {{{.*}}primop.beside, primop.chunk = "first", primop.chunk_index = 0 : i64
// CHECK: "primop.mul"(%[[Y]],
// CHECK: %[[P:.*]] = "primop.sum"({{.*}}primop.chunk = "second"
// CHECK: %[[DONE:.*]] = "primop.mul"(%[[P]], %[[FACTOR]]) {maps = [affine_map<(d0, d1)[s0] -> (d0, d1)>, affine_map<(d0, d1)[s0] -> (d0)>],
// CHECK-SAME: primop.chunk = "second", primop.chunk_index = 1 : i64, space = affine_map<()[s0] -> (s0, 32)>}
// CHECK: "primop.mul"(%[[Y]],
// CHECK: %[[Q:.*]] = "primop.sum"({{.*}}primop.chunk = "second"
// CHECK: %[[OTHER:.*]] = "primop.mul"(%[[Q]], %[[FACTOR]])
// CHECK: "primop.output"(%[[DONE]]) {label = "p"}
// CHECK: "primop.output"(%[[OTHER]]) {label = "q"}

// Blocks may have another size.
// HALF-LABEL: func.func @norm(
// HALF: "primop.sum"({{.*}} -> (d0, d1 * 32 + d2)>], primop.beside, {{.*}} -> (s0, 4, 32)>}
// HALF: "primop.sum"({{.*}}primop.factor, space = affine_map<()[s0] -> (s0, 4)>}
func.func @norm() attributes {primop.entry} {
  %r = "primop.input"() {kind = "argument", label = "r", shape = #x} : () -> tensor<?x128xf32>
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %g = "primop.input"() {kind = "weight", label = "g", shape = #g} : () -> tensor<128xf32>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %u = "primop.input"() {kind = "weight", label = "u", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs], primop.chunk = "first", primop.chunk_index = 0 : i64} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %sum = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>, primop.chunk = "first", primop.chunk_index = 0 : i64} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %x = "primop.add"(%r, %sum) {space = #x, maps = [#identity, #identity], primop.chunk = "first", primop.chunk_index = 0 : i64} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>, primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xf32>) -> tensor<?xf32>
  %root = "primop.sqrt"(%total) {space = #rows, maps = [#i], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%root) {space = #rows, maps = [#i], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %weighted = "primop.mul"(%scaled, %g) {space = #x, maps = [#identity, #column], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%weighted) {space = #x, maps = [#identity], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>, primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  %c = "primop.mul"(%y, %u) {space = #after, maps = [#lhs, #rhs], primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %q = "primop.sum"(%c) {space = #after, maps = [#all], dims = array<i64: 2>, primop.chunk = "second", primop.chunk_index = 1 : i64} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  "primop.output"(%q) {label = "q"} : (tensor<?x32xf32>) -> ()
  return
}

}

// -----

#x = affine_map<()[n] -> (n, 128)>
#rows = affine_map<()[n] -> (n)>
#a = affine_map<()[n] -> (n, 72)>
#w = affine_map<()[n] -> (128, 72)>
#v = affine_map<()[n] -> (32, 128)>
#before = affine_map<()[n] -> (n, 128, 72)>
#after = affine_map<()[n] -> (n, 32, 128)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// So is a norm without weights, of a product alone, outside all chunks: what is rounded is the product.
// CHECK-LABEL: func.func @plain(
// CHECK: %[[X:.*]] = "primop.sum"({{.*}}space = affine_map<()[s0] -> (s0, 128, 72)>}
// CHECK: "primop.sum"({{.*}}primop.beside, space = affine_map<()[s0] -> (s0, 2, 64)>}
// CHECK: %[[FACTOR:.*]] = "primop.recip"({{.*}}primop.factor
// CHECK-NEXT: %[[Y:.*]] = "primop.cast"(%[[X]]) {{{.*}}primop.beside
// CHECK-NEXT: "primop.mul"(%[[Y]],
// CHECK-NEXT: %[[P:.*]] = "primop.sum"(
// CHECK-NEXT: %[[SCALED:.*]] = "primop.mul"(%[[P]], %[[FACTOR]])
// CHECK-NEXT: "primop.output"(%[[SCALED]])
func.func @plain() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

// A row without its factor may leave the range of f16.
// CHECK-LABEL: func.func @half(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @half() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xf16>, tensor<32x128xf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

// What anything but a product reads, an output or another op, has to be whole.
// CHECK-LABEL: func.func @read_outside(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @read_outside() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  "primop.output"(%y) {label = "y"} : (tensor<?x128xbf16>) -> ()
  return
}

// CHECK-LABEL: func.func @read_by_element(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @read_by_element() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  %twice = "primop.add"(%y, %y) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  "primop.output"(%twice) {label = "twice"} : (tensor<?x128xbf16>) -> ()
  return
}

// So has a row of which a product reads a part.
// CHECK-LABEL: func.func @read_in_part(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @read_in_part() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = affine_map<()[n] -> (32, 64)>} : () -> tensor<32x64xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = affine_map<()[n] -> (n, 32, 64)>, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x64xbf16>) -> tensor<?x32x64xf32>
  %p = "primop.sum"(%b) {space = affine_map<()[n] -> (n, 32, 64)>, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x64xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

// A factor has to be made of sums along the row: a maximum is none, nor is what comes from outside.
// CHECK-LABEL: func.func @largest(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @largest() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %total = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @given(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @given() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %scale = "primop.input"() {kind = "argument", label = "scale", shape = #rows} : () -> tensor<?xf32>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<128x72xbf16>) -> tensor<?x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x128x72xf32>) -> tensor<?x128xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

// Beside an input there is no kernel that has further results.
// CHECK-LABEL: func.func @of_an_input(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @of_an_input() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = #x} : () -> tensor<?x128xf32>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x128xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x128xf32>, tensor<?xf32>) -> tensor<?x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x128xbf16>, tensor<32x128xbf16>) -> tensor<?x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x128xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

}

// -----

#x = affine_map<()[n] -> (8, 128)>
#rows = affine_map<()[n] -> (8)>
#a = affine_map<()[n] -> (8, 72)>
#w = affine_map<()[n] -> (128, 72)>
#v = affine_map<()[n] -> (32, 128)>
#before = affine_map<()[n] -> (8, 128, 72)>
#after = affine_map<()[n] -> (8, 32, 128)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// Products of at most eight rows are made in tiles of few columns, and so are the blocks of their sums: 16 neighbours ...
// CHECK-LABEL: func.func @few_rows(
// CHECK: "primop.sum"(%{{.*}}) {dims = array<i64: 2>, {{.*}}primop.beside, space = affine_map<()[s0] -> (8, 8, 16)>} : {{.*}} -> tensor<8x8xf32>
// CHECK: "primop.sum"(%{{.*}}) {dims = array<i64: 1>, {{.*}}primop.factor, space = affine_map<()[s0] -> (8, 8)>} : (tensor<8x8xf32>) -> tensor<8xf32>
// CHECK: "primop.cast"({{.*}}primop.beside
// CHECK: return
func.func @few_rows() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<8x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<8x72xbf16>, tensor<128x72xbf16>) -> tensor<8x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<8x128x72xf32>) -> tensor<8x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<8x128xf32>, tensor<8x128xf32>) -> tensor<8x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<8x128xf32>) -> tensor<8xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<8xf32>) -> tensor<8xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<8x128xf32>, tensor<8xf32>) -> tensor<8x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<8x128xf32>) -> tensor<8x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<8x128xbf16>, tensor<32x128xbf16>) -> tensor<8x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<8x32x128xf32>) -> tensor<8x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<8x32xf32>) -> ()
  return
}

}

// -----

#x = affine_map<()[n] -> (9, 128)>
#rows = affine_map<()[n] -> (9)>
#a = affine_map<()[n] -> (9, 72)>
#w = affine_map<()[n] -> (128, 72)>
#v = affine_map<()[n] -> (32, 128)>
#before = affine_map<()[n] -> (9, 128, 72)>
#after = affine_map<()[n] -> (9, 32, 128)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// ... of nine rows 64 ...
// CHECK-LABEL: func.func @nine_rows(
// CHECK: primop.beside, space = affine_map<()[s0] -> (9, 2, 64)>
// CHECK: primop.factor
// CHECK: primop.beside
// CHECK: return
func.func @nine_rows() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<9x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<9x72xbf16>, tensor<128x72xbf16>) -> tensor<9x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<9x128x72xf32>) -> tensor<9x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<9x128xf32>, tensor<9x128xf32>) -> tensor<9x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<9x128xf32>) -> tensor<9xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<9xf32>) -> tensor<9xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<9x128xf32>, tensor<9xf32>) -> tensor<9x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<9x128xf32>) -> tensor<9x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<9x128xbf16>, tensor<32x128xbf16>) -> tensor<9x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<9x32x128xf32>) -> tensor<9x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<9x32xf32>) -> ()
  return
}

}

// -----

#x = affine_map<()[n] -> (1, 128)>
#rows = affine_map<()[n] -> (1)>
#a = affine_map<()[n] -> (1, 72)>
#w = affine_map<()[n] -> (128, 72)>
#v = affine_map<()[n] -> (32, 128)>
#before = affine_map<()[n] -> (1, 128, 72)>
#after = affine_map<()[n] -> (1, 32, 128)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// ... and one row, which each kernel makes for itself, stays.
// CHECK-LABEL: func.func @one_row(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
func.func @one_row() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<1x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<128x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x128xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<1x72xbf16>, tensor<128x72xbf16>) -> tensor<1x128x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<1x128x72xf32>) -> tensor<1x128xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<1x128xf32>, tensor<1x128xf32>) -> tensor<1x128xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<1x128xf32>) -> tensor<1xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<1xf32>) -> tensor<1xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<1x128xf32>, tensor<1xf32>) -> tensor<1x128xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<1x128xf32>) -> tensor<1x128xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<1x128xbf16>, tensor<32x128xbf16>) -> tensor<1x32x128xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<1x32x128xf32>) -> tensor<1x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<1x32xf32>) -> ()
  return
}

}

// -----

#x = affine_map<()[n] -> (n, 64)>
#rows = affine_map<()[n] -> (n)>
#a = affine_map<()[n] -> (n, 72)>
#w = affine_map<()[n] -> (64, 72)>
#v = affine_map<()[n] -> (32, 64)>
#before = affine_map<()[n] -> (n, 64, 72)>
#after = affine_map<()[n] -> (n, 32, 64)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// A row of one block is as soon added up as the block is ...
// CHECK-LABEL: func.func @one_block(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
// HALF-LABEL: func.func @one_block(
// HALF: primop.beside
func.func @one_block() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<64x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x64xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<64x72xbf16>) -> tensor<?x64x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x64x72xf32>) -> tensor<?x64xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x64xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x64xf32>, tensor<?xf32>) -> tensor<?x64xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x64xf32>) -> tensor<?x64xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x64xbf16>, tensor<32x64xbf16>) -> tensor<?x32x64xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x64xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

}

// -----

#x = affine_map<()[n] -> (n, 96)>
#rows = affine_map<()[n] -> (n)>
#a = affine_map<()[n] -> (n, 72)>
#w = affine_map<()[n] -> (96, 72)>
#v = affine_map<()[n] -> (32, 96)>
#before = affine_map<()[n] -> (n, 96, 72)>
#after = affine_map<()[n] -> (n, 32, 96)>
#i = affine_map<(i)[n] -> (i)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#row = affine_map<(i, j)[n] -> (i)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 256>}} {

// ... and one of 96 has no whole number of blocks of 64.
// CHECK-LABEL: func.func @cut_blocks(
// CHECK-NOT: primop.{{beside|factor}}
// CHECK: return
// HALF-LABEL: func.func @cut_blocks(
// HALF: primop.beside
func.func @cut_blocks() attributes {primop.entry} {
  %a = "primop.input"() {kind = "argument", label = "a", shape = #a} : () -> tensor<?x72xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = #w} : () -> tensor<96x72xbf16>
  %v = "primop.input"() {kind = "weight", label = "v", shape = #v} : () -> tensor<32x96xbf16>
  %products = "primop.mul"(%a, %w) {space = #before, maps = [#lhs, #rhs]} : (tensor<?x72xbf16>, tensor<96x72xbf16>) -> tensor<?x96x72xf32>
  %x = "primop.sum"(%products) {space = #before, maps = [#all], dims = array<i64: 2>} : (tensor<?x96x72xf32>) -> tensor<?x96xf32>
  %squares = "primop.mul"(%x, %x) {space = #x, maps = [#identity, #identity]} : (tensor<?x96xf32>, tensor<?x96xf32>) -> tensor<?x96xf32>
  %total = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<?x96xf32>) -> tensor<?xf32>
  %scale = "primop.recip"(%total) {space = #rows, maps = [#i]} : (tensor<?xf32>) -> tensor<?xf32>
  %scaled = "primop.mul"(%x, %scale) {space = #x, maps = [#identity, #row]} : (tensor<?x96xf32>, tensor<?xf32>) -> tensor<?x96xf32>
  %y = "primop.cast"(%scaled) {space = #x, maps = [#identity]} : (tensor<?x96xf32>) -> tensor<?x96xbf16>
  %b = "primop.mul"(%y, %v) {space = #after, maps = [#lhs, #rhs]} : (tensor<?x96xbf16>, tensor<32x96xbf16>) -> tensor<?x32x96xf32>
  %p = "primop.sum"(%b) {space = #after, maps = [#all], dims = array<i64: 2>} : (tensor<?x32x96xf32>) -> tensor<?x32xf32>
  "primop.output"(%p) {label = "p"} : (tensor<?x32xf32>) -> ()
  return
}

}
