// RUN: tilec-opt %s --split-input-file --verify-diagnostics

// A coordinate is an index.
func.func @result_type() {
  // expected-error@+1 {{expected base type 'builtin.index' but got 'builtin.integer'}}
  %id = "tile.program_id"() {axis = 0 : i64} : () -> i32
  return
}

// -----

// Numbers are integers where the op counts.
func.func @attribute_type() {
  // expected-error@+1 {{expected base attribute 'builtin.integer' but got 'builtin.float'}}
  %id = "tile.program_id"() {axis = 0.0 : f32} : () -> index
  return
}

// -----

// The dialect has no other operations than its own.
func.func @unknown_op() {
  // expected-error@+1 {{unregistered operation 'tile.launch' found in dialect ('tile')}}
  "tile.launch"() : () -> ()
  return
}

// -----

// Origins and symbols are values of one type, index.
func.func @origin_type(%source: memref<16xf32>, %i: index, %n: i32) {
  // expected-error@+1 {{expected 'index' but got 'i32'}}
  %tile = "tile.load"(%source, %i, %n) {map = affine_map<(i)[n] -> (i + n)>} : (memref<16xf32>, index, i32) -> vector<4xf32>
  return
}

// -----

// A mask, where there is one, is a map.
func.func @mask_type(%source: memref<16xf32>, %i: index) {
  // expected-error@+1 {{'tile.load' op need attribute 'mask' to be AffineMap, but got true}}
  %tile = "tile.load"(%source, %i) {map = affine_map<(i) -> (i)>, mask = true} : (memref<16xf32>, index) -> vector<4xf32>
  return
}

// -----

// A load's map takes the tile's axes and gives the buffer's indices; origins and symbols are as many as it takes.
func.func @load(%source: memref<64x64xf32>, %i: index) {
  // expected-error@+1 {{'tile.load' op map must give 2 indices (the rank of the buffer), but gives 1}}
  %indices = "tile.load"(%source, %i, %i) {map = affine_map<(i, j) -> (i)>} : (memref<64x64xf32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{map must take 2 dimensions (the rank of the tile), but takes 1}}
  %axes = "tile.load"(%source, %i, %i) {map = affine_map<(i) -> (i, i)>} : (memref<64x64xf32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{needs 2 tile origins and 1 symbols, but got 2}}
  %origin = "tile.load"(%source, %i, %i) {map = affine_map<(i, j)[n] -> (i, j)>} : (memref<64x64xf32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{tile must have the buffer's element type f32, but has f16}}
  %element = "tile.load"(%source, %i, %i) {map = affine_map<(i, j) -> (i, j)>} : (memref<64x64xf32>, index, index) -> vector<4x4xf16>
  // expected-error@+1 {{held must take 2 dimensions and 0 symbols, but takes 2 and 1}}
  %early = "tile.load"(%source, %i, %i) {map = affine_map<(i, j) -> (i, j)>, held = affine_map<(i, j)[n] -> (n - i)>} : (memref<64x64xf32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{mask must take 2 dimensions and 0 symbols, but takes 1 and 1}}
  %mask = "tile.load"(%source, %i, %i) {map = affine_map<(i, j) -> (i, j)>, mask = affine_map<(i)[n] -> (n - i)>} : (memref<64x64xf32>, index, index) -> vector<4x4xf32>
  return
}

// -----

// So do those of a load over another tile, which has its type and stays where the mask does not hold: there is one.
func.func @load_over(%value: vector<4x4xf32>, %short: vector<4x1xf32>, %source: memref<64x64xf32>, %i: index) {
  // expected-error@+1 {{'tile.load_over' op map must give 2 indices (the rank of the buffer), but gives 1}}
  %indices = "tile.load_over"(%value, %source, %i, %i) {map = affine_map<(i, j) -> (i)>, mask = affine_map<(i, j) -> (i)>} : (vector<4x4xf32>, memref<64x64xf32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{needs a mask, as all of value would be replaced}}
  %all = "tile.load_over"(%value, %source, %i, %i) {map = affine_map<(i, j) -> (i, j)>} : (vector<4x4xf32>, memref<64x64xf32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{value and result must have one type, but have vector<4x1xf32> and vector<4x4xf32>}}
  %type = "tile.load_over"(%short, %source, %i, %i) {map = affine_map<(i, j) -> (i, j)>, mask = affine_map<(i, j) -> (i)>} : (vector<4x1xf32>, memref<64x64xf32>, index, index) -> vector<4x4xf32>
  return
}

// -----

// A store follows the rules of a load.
func.func @store(%tile: vector<4x4xf32>, %dest: memref<64x64xf32>, %i: index) {
  // expected-error@+1 {{'tile.store' op map must give 2 indices (the rank of the buffer), but gives 1}}
  "tile.store"(%tile, %dest, %i, %i) {map = affine_map<(i, j) -> (i)>} : (vector<4x4xf32>, memref<64x64xf32>, index, index) -> ()
  return
}

// -----

// A gather's map takes the index as well; its index is one integer for each element, or for all along an axis.
func.func @gather(%source: memref<64x64xf32>, %rows: vector<4x1xi32>, %floats: vector<4x1xf32>, %long: vector<8x1xi32>, %i: index) {
  // expected-error@+1 {{'tile.gather' op map must take 3 dimensions (the rank of the tile and one for the index), but takes 2}}
  %axes = "tile.gather"(%source, %rows, %i, %i) {map = affine_map<(i, j) -> (i, j)>} : (memref<64x64xf32>, vector<4x1xi32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{index must have the tile's shape [4, 4] or 1 along an axis, but has [8, 1]}}
  %shape = "tile.gather"(%source, %long, %i, %i) {map = affine_map<(i, j, row) -> (row, j)>} : (memref<64x64xf32>, vector<8x1xi32>, index, index) -> vector<4x4xf32>
  // expected-error@+1 {{index must hold integers, but is vector<4x1xf32>}}
  %element = "tile.gather"(%source, %floats, %i, %i) {map = affine_map<(i, j, row) -> (row, j)>} : (memref<64x64xf32>, vector<4x1xf32>, index, index) -> vector<4x4xf32>
  return
}

// -----

// A scatter follows the rules of a gather.
func.func @scatter(%tile: vector<4x4xf32>, %rows: vector<4x1xi32>, %row: vector<4xi32>, %dest: memref<64x64xf32>, %i: index) {
  // expected-error@+1 {{'tile.scatter' op map must take 3 dimensions (the rank of the tile and one for the index), but takes 2}}
  "tile.scatter"(%tile, %rows, %dest, %i, %i) {map = affine_map<(i, j) -> (i, j)>, extent = 64 : i64} : (vector<4x4xf32>, vector<4x1xi32>, memref<64x64xf32>, index, index) -> ()
  // expected-error@+1 {{'tile.scatter' op index must have the tile's shape [4, 4] or 1 along an axis, but has [4]}}
  "tile.scatter"(%tile, %row, %dest, %i, %i) {map = affine_map<(i, j, row) -> (row, j)>, extent = 64 : i64} : (vector<4x4xf32>, vector<4xi32>, memref<64x64xf32>, index, index) -> ()
  return
}

// -----

// An index tile has one value an element, made of its axes and symbols.
func.func @index(%i: index) {
  // expected-error@+1 {{'tile.index' op map must give one index, but gives 2}}
  %two = "tile.index"(%i) {map = affine_map<(i) -> (i, i)>} : (index) -> vector<4xi32>
  // expected-error@+1 {{map must take 1 dimensions (the rank of the tile), but takes 2}}
  %axes = "tile.index"(%i, %i) {map = affine_map<(i, j) -> (i + j)>} : (index, index) -> vector<4xi32>
  // expected-error@+1 {{needs 1 tile origins and 1 symbols, but got 1}}
  %origin = "tile.index"(%i) {map = affine_map<(i)[n] -> (n - i)>} : (index) -> vector<4xi32>
  return
}

// -----

// A reduction names axes of its tile, each once and in order; they keep size 1, or a part for each of some threads.
func.func @reduce(%x: vector<4x8xf32>) {
  // expected-error@+1 {{'tile.reduce' op axes must be a non-empty ascending list below 2, but is [2]}}
  %outside = "tile.reduce"(%x) {kind = "add", axes = array<i64: 2>} : (vector<4x8xf32>) -> vector<4x8xf32>
  // expected-error@+1 {{result must be vector<4x1xf32>, but is vector<4xf32>}}
  %rank = "tile.reduce"(%x) {kind = "add", axes = array<i64: 1>} : (vector<4x8xf32>) -> vector<4xf32>
  // expected-error@+1 {{result must be vector<1x1xf32>, but is vector<1x1xf16>}}
  %element = "tile.reduce"(%x) {kind = "max", axes = array<i64: 0, 1>} : (vector<4x8xf32>) -> vector<1x1xf16>
  // expected-error@+1 {{result must be vector<4x1xf32>, but is vector<4x3xf32>}}
  %parts = "tile.reduce"(%x) {kind = "add", axes = array<i64: 1>} : (vector<4x8xf32>) -> vector<4x3xf32>
  // expected-error@+1 {{result must be vector<4x1xf32>, but is vector<2x1xf32>}}
  %stays = "tile.reduce"(%x) {kind = "add", axes = array<i64: 1>} : (vector<4x8xf32>) -> vector<2x1xf32>
  return
}

// -----

// An online reduction follows the rules of a reduction; each part has a maximum, which may be one along axes that stay.
func.func @reduce_online(%x: vector<4x8xf32>, %rows: vector<4x1xf32>, %half: vector<2x8xf32>, %flat: vector<8xf32>) {
  // expected-error@+1 {{'tile.reduce_online' op axes must be a non-empty ascending list below 2, but is []}}
  %none = "tile.reduce_online"(%x, %x) {scale = 1.0 : f64, floor = -1.0 : f64, axes = array<i64>} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<4x8xf32>
  // expected-error@+1 {{result must be vector<4x1xf32>, but is vector<1x8xf32>}}
  %result = "tile.reduce_online"(%x, %x) {scale = 1.0 : f64, floor = -1.0 : f64, axes = array<i64: 1>} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<1x8xf32>
  // expected-error@+1 {{maximum must have the shape of value, or 1 along axes that stay, but is vector<4x1xf32>}}
  %reduced = "tile.reduce_online"(%rows, %x) {scale = 1.0 : f64, floor = -1.0 : f64, axes = array<i64: 1>} : (vector<4x1xf32>, vector<4x8xf32>) -> vector<4x1xf32>
  // expected-error@+1 {{maximum must have the shape of value, or 1 along axes that stay, but is vector<2x8xf32>}}
  %stays = "tile.reduce_online"(%half, %x) {scale = 1.0 : f64, floor = -1.0 : f64, axes = array<i64: 1>} : (vector<2x8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
  // expected-error@+1 {{maximum must have the shape of value, or 1 along axes that stay, but is vector<8xf32>}}
  %rank = "tile.reduce_online"(%flat, %x) {scale = 1.0 : f64, floor = -1.0 : f64, axes = array<i64: 1>} : (vector<8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
  return
}

// -----

// An online reduction says how its parts are mended.
func.func @reduce_online_scale(%x: vector<4x8xf32>) {
  // expected-error@+1 {{'tile.reduce_online' op attribute "scale" is expected but not provided}}
  %y = "tile.reduce_online"(%x, %x) {floor = -1.0 : f64, axes = array<i64: 1>} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<4x1xf32>
  return
}

// -----

// A reversed tile has the type that it had, and the axis is one of its own.
func.func @reverse(%x: vector<4x8xf32>) {
  // expected-error@+1 {{'tile.reverse' op result must have the type of value, vector<4x8xf32>, but has vector<8x4xf32>}}
  %type = "tile.reverse"(%x) {axis = 1 : i64} : (vector<4x8xf32>) -> vector<8x4xf32>
  // expected-error@+1 {{axis must be below 2, but is 2}}
  %outside = "tile.reverse"(%x) {axis = 2 : i64} : (vector<4x8xf32>) -> vector<4x8xf32>
  // expected-error@+1 {{axis must be below 2, but is -1}}
  %from_the_end = "tile.reverse"(%x) {axis = -1 : i64} : (vector<4x8xf32>) -> vector<4x8xf32>
  return
}

// -----

// Elements combine in one of the known ways.
func.func @reduce_kind(%x: vector<4x8xf32>) {
  // expected-error@+1 {{'"min"' does not satisfy the constraint}}
  %y = "tile.reduce"(%x) {kind = "min", axes = array<i64: 1>} : (vector<4x8xf32>) -> vector<4x1xf32>
  return
}

// -----

// The operands of a dot have one rank; along each axis lhs and rhs agree or one has size 1, and acc is as large
// or holds partial sums.
func.func @dot(%lhs: vector<4x1x2xf32>, %rhs: vector<1x8x2xf32>, %flat: vector<8x2xf32>, %acc: vector<4x8x1xf32>, %turned: vector<4x2x1xf32>, %wide: vector<8x8x1xf32>) {
  // expected-error@+1 {{'tile.dot' op lhs, rhs and acc must have one rank, but have 3, 2 and 3}}
  %rank = "tile.dot"(%lhs, %flat, %acc) : (vector<4x1x2xf32>, vector<8x2xf32>, vector<4x8x1xf32>) -> vector<4x8x1xf32>
  // expected-error@+1 {{axis 1: lhs and rhs must agree or be 1, but are 8 and 2}}
  %sides = "tile.dot"(%acc, %turned, %acc) : (vector<4x8x1xf32>, vector<4x2x1xf32>, vector<4x8x1xf32>) -> vector<4x8x1xf32>
  // expected-error@+1 {{axis 0: acc must divide 4, but is 8}}
  %accumulator = "tile.dot"(%lhs, %rhs, %wide) : (vector<4x1x2xf32>, vector<1x8x2xf32>, vector<8x8x1xf32>) -> vector<8x8x1xf32>
  // expected-error@+1 {{result must have the type of acc, vector<4x8x1xf32>, but has vector<4x8x2xf32>}}
  %result = "tile.dot"(%lhs, %rhs, %acc) : (vector<4x1x2xf32>, vector<1x8x2xf32>, vector<4x8x1xf32>) -> vector<4x8x2xf32>
  return
}

// -----

// Elements are repeated a whole number of times, and stay what they are.
func.func @spread(%x: vector<4x2xf32>) {
  // expected-error@+1 {{'tile.spread' op axis 1: 2 elements cannot be repeated to 5}}
  %part = "tile.spread"(%x) : (vector<4x2xf32>) -> vector<4x5xf32>
  // expected-error@+1 {{result must have the rank and the elements of vector<4x2xf32>, but is vector<8xf32>}}
  %rank = "tile.spread"(%x) : (vector<4x2xf32>) -> vector<8xf32>
  // expected-error@+1 {{result must have the rank and the elements of vector<4x2xf32>, but is vector<4x4xf16>}}
  %element = "tile.spread"(%x) : (vector<4x2xf32>) -> vector<4x4xf16>
  return
}

// -----

// Rings have slots, rows and columns, and lie in shared memory, as everything does that works on them.
func.func @ring(%global: memref<3x64x64xbf16>, %i: index) {
  // expected-error@+1 {{'tile.ring' op result must have rank 3 in address space 3, but is memref<64x64xbf16, 3>}}
  %rank = "tile.ring"() : () -> memref<64x64xbf16, 3>
  // expected-error@+1 {{result must have rank 3 in address space 3, but is memref<3x64x64xbf16>}}
  %space = "tile.ring"() : () -> memref<3x64x64xbf16>
  // expected-error@+1 {{'tile.release' op ring must have rank 3 in address space 3, but is memref<3x64x64xbf16>}}
  "tile.release"(%global, %i) {running = 0 : i64} : (memref<3x64x64xbf16>, index) -> ()
  return
}

// -----

// A fetch reads as a load does, the elements of its ring.
func.func @fetch(%ring: memref<3x64x64xbf16, 3>, %source: memref<128x256xbf16>, %floats: memref<128x256xf32>, %i: index) {
  // expected-error@+1 {{'tile.fetch' op map must give 2 indices (the rank of source), but gives 1}}
  "tile.fetch"(%ring, %i, %source, %i, %i) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(i, j) -> (j)>} : (memref<3x64x64xbf16, 3>, index, memref<128x256xbf16>, index, index) -> ()
  // expected-error@+1 {{needs 2 tile origins and 1 symbols, but got 2}}
  "tile.fetch"(%ring, %i, %source, %i, %i) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(i, j)[n] -> (i, j)>} : (memref<3x64x64xbf16, 3>, index, memref<128x256xbf16>, index, index) -> ()
  // expected-error@+1 {{ring must have the elements of source, memref<128x256xf32>, but is memref<3x64x64xbf16, 3>}}
  "tile.fetch"(%ring, %i, %floats, %i, %i) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(i, j) -> (i, j)>} : (memref<3x64x64xbf16, 3>, index, memref<128x256xf32>, index, index) -> ()
  return
}

// -----

// What is awaited is one slot.
func.func @await(%ring: memref<3x64x32xbf16, 3>, %i: index) {
  // expected-error@+1 {{'tile.await' op result must have the shape of a slot of memref<3x64x32xbf16, 3>, but is memref<32x64xbf16, 3>}}
  %turned = "tile.await"(%ring, %i) : (memref<3x64x32xbf16, 3>, index) -> memref<32x64xbf16, 3>
  // expected-error@+1 {{result must have rank 2 in address space 3, but is memref<3x64x32xbf16, 3>}}
  %all = "tile.await"(%ring, %i) : (memref<3x64x32xbf16, 3>, index) -> memref<3x64x32xbf16, 3>
  return
}

// -----

// The rows of operands are those of the result, and both have the depth that is summed.
func.func @dot_shared(%a: memref<64x32xbf16, 3>, %p: vector<64x1x48xbf16>, %b: memref<16x32xbf16, 3>, %v: memref<32x16xbf16, 3>, %global: memref<16x32xbf16>, %acc: vector<64x16x1xf32>) {
  // expected-error@+1 {{'tile.dot_shared' op lhs must have 16 rows, those of acc along [1], but is memref<64x32xbf16, 3>}}
  %sides = "tile.dot_shared"(%a, %b, %acc) {lhs_rows = array<i64: 1>, rhs_rows = array<i64: 0>} : (memref<64x32xbf16, 3>, memref<16x32xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
  // expected-error@+1 {{rhs must have 16 rows, those of acc along [1], but is memref<32x16xbf16, 3>}}
  %turned = "tile.dot_shared"(%a, %v, %acc) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x32xbf16, 3>, memref<32x16xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
  // expected-error@+1 {{lhs and rhs must have the same depth, but are vector<64x1x48xbf16> and memref<32x16xbf16, 3>}}
  %depth = "tile.dot_shared"(%p, %v, %acc) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>, transposed = true} : (vector<64x1x48xbf16>, memref<32x16xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
  // expected-error@+1 {{rhs must have rank 2 in address space 3, but is memref<16x32xbf16>}}
  %space = "tile.dot_shared"(%a, %global, %acc) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x32xbf16, 3>, memref<16x32xbf16>, vector<64x16x1xf32>) -> vector<64x16x1xf32>
  // expected-error@+1 {{result must have the type of acc, vector<64x16x1xf32>, but has vector<64x16x1xf16>}}
  %result = "tile.dot_shared"(%a, %b, %acc) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x32xbf16, 3>, memref<16x32xbf16, 3>, vector<64x16x1xf32>) -> vector<64x16x1xf16>
  return
}

// -----

// A product that has been made is the one that was started, and says how many others may still run.
func.func @made(%product: vector<64x16x1xf32>) {
  // expected-error@+1 {{'tile.made' op result must have the type of value, vector<64x16x1xf32>, but has vector<64x16x1xbf16>}}
  %narrow = "tile.made"(%product) {running = 0 : i64} : (vector<64x16x1xf32>) -> vector<64x16x1xbf16>
  return
}

// -----

func.func @running(%product: vector<64x16x1xf32>) {
  // expected-error@+1 {{'tile.made' op attribute "running" is expected but not provided}}
  %made = "tile.made"(%product) : (vector<64x16x1xf32>) -> vector<64x16x1xf32>
  return
}
