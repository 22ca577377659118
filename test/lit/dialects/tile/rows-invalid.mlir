// RUN: tilec-opt %s --split-input-file --verify-diagnostics

// A program's own memory is one row, in shared memory.
func.func @alloc() {
  // expected-error@+1 {{'tile.alloc' op result must have rank 1 in address space 3, but is memref<4x64xf32, 3>}}
  %rank = "tile.alloc"() : () -> memref<4x64xf32, 3>
  // expected-error@+1 {{result must have rank 1 in address space 3, but is memref<64xf32>}}
  %space = "tile.alloc"() : () -> memref<64xf32>
  return
}

// -----

// A barrier takes and gives nothing.
func.func @barrier() {
  // expected-error@+1 {{expects exactly 0 results, but got 1}}
  %token = "tile.barrier"() : () -> index
  return
}

// -----

// A block's number is an index, and a thread's role a flag.
func.func @worker() {
  // expected-error@+1 {{expected base type 'builtin.index' but got 'builtin.integer'}}
  %number = "tile.worker"() : () -> i32
  return
}

// -----

func.func @producer() {
  // expected-error@+1 {{expected base type 'builtin.integer' but got 'builtin.index'}}
  %fetches = "tile.producer"() : () -> index
  return
}

// -----

// The right operand runs along the twin as the result along its columns, and both operands along the depth, of which
// the result may have equal parts.
func.func @dot_twin(%lhs: vector<16x1x32x1xbf16>, %shallow: vector<16x1x16x1xbf16>, %flat: vector<16x32xbf16>, %rhs: vector<1x1x32x8xbf16>, %columns: vector<1x8x32x1xbf16>, %acc: vector<16x8x1x1xf32>, %wide: vector<16x16x1x1xf32>, %parts: vector<16x8x3x1xf32>, %few: vector<8x1x64x1x1xbf16>, %everywhere: vector<1x1x64x8x64xbf16>, %deep: vector<8x8x2x1x1xf32>) {
  // expected-error@+1 {{'tile.dot_twin' op only rhs may run along axis 4, and not along 2, but are [8, 1, 64, 1, 1], [1, 1, 64, 8, 64] and [8, 8, 2, 1, 1]}}
  %both = "tile.dot_twin"(%few, %everywhere, %deep) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64, depth_twin = 4 : i64} : (vector<8x1x64x1x1xbf16>, vector<1x1x64x8x64xbf16>, vector<8x8x2x1x1xf32>) -> vector<8x8x2x1x1xf32>
  // expected-error@+1 {{'tile.dot_twin' op rhs must run along axis 3 as acc along 1, but are [1, 8, 32, 1] and [16, 8, 1, 1]}}
  %same = "tile.dot_twin"(%lhs, %columns, %acc) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x8x32x1xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  // expected-error@+1 {{rhs must run along axis 3 as acc along 1, but are [1, 1, 32, 8] and [16, 16, 1, 1]}}
  %number = "tile.dot_twin"(%lhs, %rhs, %wide) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x16x1x1xf32>) -> vector<16x16x1x1xf32>
  // expected-error@+1 {{lhs and rhs must agree along axis 2 and acc have equal parts of it, but are [16, 1, 16, 1], [1, 1, 32, 8] and [16, 8, 1, 1]}}
  %depth = "tile.dot_twin"(%shallow, %rhs, %acc) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x16x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  // expected-error@+1 {{acc have equal parts of it, but are [16, 1, 32, 1], [1, 1, 32, 8] and [16, 8, 3, 1]}}
  %thirds = "tile.dot_twin"(%lhs, %rhs, %parts) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x3x1xf32>) -> vector<16x8x3x1xf32>
  // expected-error@+1 {{lhs, rhs and acc must have one rank, but have 2, 4 and 4}}
  %rank = "tile.dot_twin"(%flat, %rhs, %acc) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x32xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xf32>
  // expected-error@+1 {{result must have the type of acc, vector<16x8x1x1xf32>, but has vector<16x8x1x1xbf16>}}
  %result = "tile.dot_twin"(%lhs, %rhs, %acc) {column = 1 : i64, twin = 3 : i64, depth = 2 : i64} : (vector<16x1x32x1xbf16>, vector<1x1x32x8xbf16>, vector<16x8x1x1xf32>) -> vector<16x8x1x1xbf16>
  return
}
