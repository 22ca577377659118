// RUN: tilec-opt %s --split-input-file --verify-diagnostics

// The grid has three dimensions.
func.func @dimension() {
  // expected-error@+1 {{'"w"' does not satisfy the constraint}}
  %block = "kernel.block_id"() {dimension = "w"} : () -> index
  return
}

// -----

// Every load of global memory says how it treats the caches, in one of three words.
func.func @cache(%buffer: memref<256xf32, 1>, %i: index) {
  // expected-error@+1 {{'"readonly"' does not satisfy the constraint}}
  %value = "kernel.load_global"(%buffer, %i) {cache = "readonly"} : (memref<256xf32, 1>, index) -> f32
  return
}

// -----

// A condition is one bit, and what is read under it a vector.
func.func @condition(%buffer: memref<256xf32, 1>, %i: index, %flag: i1, %word: i32) {
  // expected-error@+1 {{when must be i1 and result a vector, but are i1 and f32}}
  %scalar = "kernel.load_global"(%buffer, %i, %flag) {cache = "held"} : (memref<256xf32, 1>, index, i1) -> f32
  // expected-error@+1 {{when must be i1 and result a vector, but are i32 and vector<4xf32>}}
  %vector = "kernel.load_global"(%buffer, %i, %word) {cache = "held"} : (memref<256xf32, 1>, index, i32) -> vector<4xf32>
  return
}

// -----

// So is that of a load over another value, which has the type of what is read.
func.func @over(%buffer: memref<256xf32, 1>, %halves: memref<256xf16, 1>, %i: index, %flag: i1, %word: i32, %value: vector<4xf32>, %short: vector<2xf32>) {
  // expected-error@+1 {{when must be i1 and value have the result's type vector<4xf32>, but are i32 and vector<4xf32>}}
  %condition = "kernel.load_over"(%value, %buffer, %i, %word) : (vector<4xf32>, memref<256xf32, 1>, index, i32) -> vector<4xf32>
  // expected-error@+1 {{when must be i1 and value have the result's type vector<4xf32>, but are i1 and vector<2xf32>}}
  %type = "kernel.load_over"(%short, %buffer, %i, %flag) : (vector<2xf32>, memref<256xf32, 1>, index, i1) -> vector<4xf32>
  // expected-error@+1 {{'kernel.load_over' op buffer must have elements f32, but is memref<256xf16, 1>}}
  %element = "kernel.load_over"(%value, %halves, %i, %flag) : (vector<4xf32>, memref<256xf16, 1>, index, i1) -> vector<4xf32>
  return
}

// -----

// A barrier takes and gives nothing, and neither does one half of a cluster's barrier.
func.func @barrier() {
  // expected-error@+1 {{expects exactly 0 results, but got 1}}
  %token = "kernel.barrier"() : () -> index
  return
}

// -----

func.func @cluster_arrive() {
  // expected-error@+1 {{expects exactly 0 results, but got 1}}
  %token = "kernel.cluster_arrive"() : () -> index
  return
}

// -----

// Shared memory is a one-dimensional array in its address space.
func.func @shared() {
  // expected-error@+1 {{'kernel.shared' op result must be one-dimensional in address space 3, but is memref<256xf32>}}
  %space = "kernel.shared"() {symbol = "parts"} : () -> memref<256xf32>
  // expected-error@+1 {{result must be one-dimensional in address space 3, but is memref<16x16xf32, 3>}}
  %rank = "kernel.shared"() {symbol = "parts"} : () -> memref<16x16xf32, 3>
  return
}

// -----

// Global accesses take a one-dimensional buffer in address space 1 whose elements are those of the value.
func.func @global(%value: vector<4xf32>, %buffer: memref<256xf16, 1>, %matrix: memref<16x16xf32, 1>, %shared: memref<256xf32, 3>, %i: index) {
  // expected-error@+1 {{'kernel.load_global' op buffer must have elements f32, but is memref<256xf16, 1>}}
  %element = "kernel.load_global"(%buffer, %i) {cache = "plain"} : (memref<256xf16, 1>, index) -> vector<4xf32>
  // expected-error@+1 {{buffer must be one-dimensional in address space 1, but is memref<16x16xf32, 1>}}
  %rank = "kernel.load_global"(%matrix, %i) {cache = "plain"} : (memref<16x16xf32, 1>, index) -> vector<4xf32>
  // expected-error@+1 {{'kernel.store_global' op buffer must be one-dimensional in address space 1, but is memref<256xf32, 3>}}
  "kernel.store_global"(%value, %shared, %i) : (vector<4xf32>, memref<256xf32, 3>, index) -> ()
  return
}

// -----

// Shared accesses take a buffer in address space 3.
func.func @shared_access(%value: f32, %global: memref<256xf32, 1>, %shared: memref<256xf16, 3>, %i: index) {
  // expected-error@+1 {{'kernel.load_shared' op buffer must be one-dimensional in address space 3, but is memref<256xf32, 1>}}
  %space = "kernel.load_shared"(%global, %i) : (memref<256xf32, 1>, index) -> f32
  // expected-error@+1 {{'kernel.store_shared' op buffer must have elements f32, but is memref<256xf16, 3>}}
  "kernel.store_shared"(%value, %shared, %i) : (f32, memref<256xf16, 3>, index) -> ()
  return
}

// -----

// A warp combines scalars over lanes that differ by single bits.
func.func @warp_reduce(%value: f32, %vector: vector<4xf32>) {
  // expected-error@+1 {{'kernel.warp_reduce' op lanes must be powers of two below 32, but are [1, 3]}}
  %bits = "kernel.warp_reduce"(%value) {kind = "add", lanes = array<i64: 1, 3>} : (f32) -> f32
  // expected-error@+1 {{lanes must be powers of two below 32, but are [32]}}
  %far = "kernel.warp_reduce"(%value) {kind = "add", lanes = array<i64: 32>} : (f32) -> f32
  // expected-error@+1 {{value must be a scalar, but is vector<4xf32>}}
  %wide = "kernel.warp_reduce"(%vector) {kind = "max", lanes = array<i64: 1>} : (vector<4xf32>) -> vector<4xf32>
  // expected-error@+1 {{result must have the type of value, f32, but has i32}}
  %type = "kernel.warp_reduce"(%value) {kind = "max", lanes = array<i64: 1>} : (f32) -> i32
  return
}

// -----

// Another block's shared memory is read a scalar at a time, or four of its elements.
func.func @load_remote(%global: memref<256xf32, 1>, %shared: memref<256xf32, 3>, %i: index) {
  // expected-error@+1 {{'kernel.load_remote' op buffer must be one-dimensional in address space 3, but is memref<256xf32, 1>}}
  %space = "kernel.load_remote"(%global, %i, %i) : (memref<256xf32, 1>, index, index) -> f32
  // expected-error@+1 {{result must be a scalar or a vector of a multiple of four, but is vector<2xf32>}}
  %narrow = "kernel.load_remote"(%shared, %i, %i) : (memref<256xf32, 3>, index, index) -> vector<2xf32>
  return
}

// -----

// Barriers are an array in shared memory, whoever works on them.
func.func @mbarriers(%global: memref<3xi64, 1>, %matrix: memref<3x2xi64, 3>, %map: memref<128xi8, 4>, %ring: memref<64xbf16, 3>, %i: index) {
  // expected-error@+1 {{'kernel.mbarrier_init' op barriers must be one-dimensional in address space 3, but is memref<3xi64, 1>}}
  "kernel.mbarrier_init"(%global, %i) {count = 1 : i64} : (memref<3xi64, 1>, index) -> ()
  // expected-error@+1 {{'kernel.mbarrier_expect' op barriers must be one-dimensional in address space 3, but is memref<3x2xi64, 3>}}
  "kernel.mbarrier_expect"(%matrix, %i) {bytes = 64 : i64} : (memref<3x2xi64, 3>, index) -> ()
  // expected-error@+1 {{'kernel.mbarrier_wait' op barriers must be one-dimensional in address space 3, but is memref<3xi64, 1>}}
  "kernel.mbarrier_wait"(%global, %i, %i) : (memref<3xi64, 1>, index, index) -> ()
  // expected-error@+1 {{'kernel.mbarrier_arrive' op barriers must be one-dimensional in address space 3, but is memref<3xi64, 1>}}
  "kernel.mbarrier_arrive"(%global, %i) : (memref<3xi64, 1>, index) -> ()
  // expected-error@+1 {{'kernel.tma_load' op barriers must be one-dimensional in address space 3, but is memref<3xi64, 1>}}
  "kernel.tma_load"(%global, %i, %map, %i, %i, %i, %ring, %i) {element = bf16} : (memref<3xi64, 1>, index, memref<128xi8, 4>, index, index, index, memref<64xbf16, 3>, index) -> ()
  return
}

// -----

// A product has as many accumulators as its columns need, its right operand in shared memory, and its left one in a place or
// in as many pairs as its depth needs.
func.func @wgmma(%a: memref<4096xbf16, 3>, %b: memref<512xbf16, 3>, %global: memref<512xbf16, 1>, %i: index, %p: vector<2xbf16>, %x: f32) {
  // expected-error@+1 {{'kernel.wgmma' op acc and results must be 4 values for 8 columns, but are 2 and 2}}
  %few:2 = "kernel.wgmma"(%a, %i, %b, %i, %x, %x) {element = bf16, columns = 8 : i64, depth = 16 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 2>} : (memref<4096xbf16, 3>, index, memref<512xbf16, 3>, index, f32, f32) -> (f32, f32)
  // expected-error@+1 {{rhs must be one-dimensional in address space 3, but is memref<512xbf16, 1>}}
  %space:4 = "kernel.wgmma"(%a, %i, %global, %i, %x, %x, %x, %x) {element = bf16, columns = 8 : i64, depth = 16 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<4096xbf16, 3>, index, memref<512xbf16, 1>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  // expected-error@+1 {{lhs must be one place in shared memory or 4 pairs, but is 0 and 2}}
  %pairs:4 = "kernel.wgmma"(%p, %p, %b, %i, %x, %x, %x, %x) {element = bf16, columns = 8 : i64, depth = 16 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 0, 0, 2, 1, 1, 4>} : (vector<2xbf16>, vector<2xbf16>, memref<512xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  return
}

// -----

// What is read as TF32 is f32 in memory, and lies in shared memory along the depth.
func.func @wgmma_tf32(%a: memref<2048xf32, 3>, %b: memref<256xf32, 3>, %narrow: memref<512xbf16, 3>, %i: index, %p: vector<2xbf16>, %x: f32) {
  // expected-error@+1 {{'kernel.wgmma' op element must be what tensor cores multiply, bf16, f16 or tf32, but is f32}}
  %element:4 = "kernel.wgmma"(%a, %i, %b, %i, %x, %x, %x, %x) {element = f32, columns = 8 : i64, depth = 8 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<2048xf32, 3>, index, memref<256xf32, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  // expected-error@+1 {{rhs must have elements f32, but is memref<512xbf16, 3>}}
  %memory:4 = "kernel.wgmma"(%a, %i, %narrow, %i, %x, %x, %x, %x) {element = tf32, columns = 8 : i64, depth = 8 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<2048xf32, 3>, index, memref<512xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  // expected-error@+1 {{operands of tf32 must lie in shared memory in rows along the depth}}
  %across:4 = "kernel.wgmma"(%a, %i, %b, %i, %x, %x, %x, %x) {element = tf32, columns = 8 : i64, depth = 8 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, transposed = true, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<2048xf32, 3>, index, memref<256xf32, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  // expected-error@+1 {{operands of tf32 must lie in shared memory in rows along the depth}}
  %registers:4 = "kernel.wgmma"(%p, %p, %b, %i, %x, %x, %x, %x) {element = tf32, columns = 8 : i64, depth = 8 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 0, 0, 2, 1, 1, 4>} : (vector<2xbf16>, vector<2xbf16>, memref<256xf32, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  return
}

// -----

// Lanes that exchange differ by one bit of their numbers.
func.func @exchange(%word: i32) {
  // expected-error@+1 {{'kernel.exchange' op lanes must be a power of two below 32, but is 3}}
  %other = "kernel.exchange"(%word) {lanes = 3 : i64} : (i32) -> i32
  return
}
