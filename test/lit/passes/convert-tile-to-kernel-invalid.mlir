// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-kernel)'

#k = {name = "k", extent = affine_map<() -> (48)>, layout = array<i64: 48, 24, 2, 1>, walk = "loop"}

// Lanes of a warp combine by halves.
module {
module @kernels {
func.func @lanes(%x: memref<48xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(k) -> (k)>} : (memref<48xf32>, index) -> vector<48xf32>
  // expected-error@+1 {{axis k is reduced over 24 threads at a stride of 1, which is no power of two inside a warp and whole warps beyond}}
  %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<48xf32>) -> vector<1xf32>
  return
}
}
}

// -----

#k = {name = "k", extent = affine_map<() -> (1024)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

// Blocks of a cluster combine once.
module {
module @kernels {
func.func @cluster(%x: memref<1024xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %k = %c0 to %c1024 step %c256 {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<1024xf32>, index) -> vector<256xf32>
    // expected-error@+1 {{blocks of a cluster cannot combine in a loop}}
    %sum = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<1xf32>
  }
  return
}
}
}

// -----

#k = {name = "k", extent = affine_map<() -> (1024)>, layout = array<i64: 256, 128, 2, 4>, walk = "loop"}

// That holds for online reductions as well.
module {
module @kernels {
func.func @online_cluster(%x: memref<1024xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  scf.for %k = %c0 to %c1024 step %c256 {
    %tile = "tile.load"(%x, %k) {map = affine_map<(k) -> (k)>} : (memref<1024xf32>, index) -> vector<256xf32>
    %part = "tile.reduce"(%tile) {kind = "add", axes = array<i64: 0>} : (vector<256xf32>) -> vector<128xf32>
    // expected-error@+1 {{blocks of a cluster cannot combine in a loop}}
    %sum = "tile.reduce_online"(%part, %part) {scale = 1.0 : f64, floor = 0.0 : f64, axes = array<i64: 0>} : (vector<128xf32>, vector<128xf32>) -> vector<1xf32>
  }
  return
}
}
}

// -----

#j = {name = "j", extent = affine_map<() -> (4)>, layout = array<i64: 4, 4, 1, 1>, walk = "loop"}
#k = {name = "k", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop"}

// Threads along one axis combine their online parts.
module {
module @kernels {
func.func @two_axes(%x: memref<4x8xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#j, #k], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %part = "tile.load"(%x, %c0, %c0) {map = affine_map<(j, k) -> (j, k)>} : (memref<4x8xf32>, index, index) -> vector<4x8xf32>
  // expected-error@+1 {{an online reduction over threads needs one axis and scalar maxima}}
  %sum = "tile.reduce_online"(%part, %part) {scale = 1.0 : f64, floor = 0.0 : f64, axes = array<i64: 0, 1>} : (vector<4x8xf32>, vector<4x8xf32>) -> vector<1x1xf32>
  return
}
}
}

// -----

#n = {name = "n", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 2, 1>, walk = "grid"}

// One thread holds all of an axis that is reversed.
module {
module @kernels {
func.func @reverse(%x: memref<64xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#n], order = array<i64>, unroll = 1 : i64, dot = false}} {
  %c0 = arith.constant 0 : index
  %tile = "tile.load"(%x, %c0) {map = affine_map<(n) -> (n)>} : (memref<64xf32>, index) -> vector<64xf32>
  // expected-error@+1 {{axis n is reversed, but spread over 32 threads}}
  %reversed = "tile.reverse"(%tile) {axis = 0 : i64} : (vector<64xf32>) -> vector<64xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

// Tiles for tensor cores lie in rows of whole steps ...
module {
module @kernels {
func.func @narrow() attributes {tile.kernel, tile.arguments = [], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  // expected-error@+1 {{rows of a tile in shared memory must be multiples of 32 bytes, but are 40 x bf16}}
  %ring = "tile.ring"() : () -> memref<1x64x40xbf16, 3>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 16, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 8, 2, 1>, walk = "loop"}

// ... and those for multiply-adds in rows of whole swizzles.
module {
module @kernels {
func.func @half() attributes {tile.kernel, tile.arguments = [], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  // expected-error@+1 {{rows of a tile in shared memory must be multiples of 128 bytes, but are 48 x f32}}
  %ring = "tile.ring"() : () -> memref<1x64x48xf32, 3>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

// A copy steps over rows by one distance, and along each row by one element.
module {
module @kernels {
func.func @distances(%x: memref<8x10x64xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %ring = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{the rows of a tile must be at equal distances in memory}}
  "tile.fetch"(%ring, %c0, %x, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, k) -> (m floordiv 8, m mod 8, k)>} : (memref<1x64x64xbf16, 3>, index, memref<8x10x64xbf16>, index, index) -> ()
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

module {
module @kernels {
func.func @columns(%x: memref<64x128xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %ring = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{a tile must be contiguous along its columns}}
  "tile.fetch"(%ring, %c0, %x, %c0, %c0) {rows = array<i64: 0>, column = 1 : i64, map = affine_map<(m, k) -> (m, 2 * k)>} : (memref<1x64x64xbf16, 3>, index, memref<64x128xbf16>, index, index) -> ()
  return
}
}
}

// -----

#h = {name = "h", extent = affine_map<() -> (2)>, layout = array<i64: 1, 1, 1, 1>, walk = "grid"}
#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 4, 2, 1>, walk = "loop"}

// Rows that end are counted from the start of a plane, so they cannot begin anywhere else.
module {
module @kernels {
func.func @planes(%x: memref<200x64xbf16>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#h, #m, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %ring = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{rows that end at a limit must lie in planes of equal size}}
  "tile.fetch"(%ring, %c0, %x, %c0, %c0, %c0) {rows = array<i64: 1>, column = 2 : i64, limit = affine_map<() -> (50)>, map = affine_map<(h, m, k) -> (h * 100 + m + 3, k)>} : (memref<1x64x64xbf16, 3>, index, memref<200x64xbf16>, index, index, index) -> ()
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (32)>, layout = array<i64: 32, 16, 1, 1>, walk = "grid", warps = 2 : i64}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

// A group of four warps multiplies 64 rows.
module {
module @kernels {
func.func @rows(%a: memref<32x64xbf16>, %b: memref<8x64xbf16>) attributes {tile.kernel, tile.arguments = ["read", "read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %as = "tile.ring"() : () -> memref<1x32x64xbf16, 3>
  %bs = "tile.ring"() : () -> memref<1x8x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<32x8x1xf32>
  %lhs = "tile.await"(%as, %c0) : (memref<1x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
  %rhs = "tile.await"(%bs, %c0) : (memref<1x8x64xbf16, 3>, index) -> memref<8x64xbf16, 3>
  // expected-error@+1 {{a tile of 32 rows cannot be dealt to 1 groups of 64}}
  %product = "tile.dot_shared"(%lhs, %rhs, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<32x64xbf16, 3>, memref<8x64xbf16, 3>, vector<32x8x1xf32>) -> vector<32x8x1xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 16, 2, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

// Where its results lie is the instruction's decision: two rows and two neighbouring columns for a thread.
module {
module @kernels {
func.func @layout(%a: memref<64x64xbf16>, %b: memref<8x64xbf16>) attributes {tile.kernel, tile.arguments = ["read", "read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %as = "tile.ring"() : () -> memref<1x64x64xbf16, 3>
  %bs = "tile.ring"() : () -> memref<1x8x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x8x1xf32>
  %lhs = "tile.await"(%as, %c0) : (memref<1x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
  %rhs = "tile.await"(%bs, %c0) : (memref<1x8x64xbf16, 3>, index) -> memref<8x64xbf16, 3>
  // expected-error@+1 {{the layout of a tile is not that of a tensor core's result}}
  %product = "tile.dot_shared"(%lhs, %rhs, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<8x64xbf16, 3>, vector<64x8x1xf32>) -> vector<64x8x1xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (32)>, layout = array<i64: 32, 16, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 8, 4, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}

// Columns that end are counted from the start of a row.
module {
module @kernels {
func.func @middle(%x: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  %ring = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{columns that end at a limit must begin with a row}}
  "tile.fetch"(%ring, %c0, %x, %c0, %c0, %c0) {rows = array<i64: 0>, column = 2 : i64, column_limit = affine_map<() -> (50)>, map = affine_map<(m, n, k) -> (m, k + 4)>} : (memref<1x32x32xf32, 3>, index, memref<64x64xf32>, index, index, index) -> ()
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (32)>, layout = array<i64: 32, 16, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 8, 4, 1>, walk = "grid", warps = 4 : i64}
#k = {name = "k", extent = affine_map<() -> (64)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

// Threads multiply f32; 16-bit operands are for tensor cores.
module {
module @kernels {
func.func @narrow(%x: memref<64x64xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, staged, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x32x64xbf16, 3>
  %ws = "tile.ring"() : () -> memref<1x32x64xbf16, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<32x32x1xf32>
  %a = "tile.await"(%xs, %c0) : (memref<1x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
  %b = "tile.await"(%ws, %c0) : (memref<1x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
  // expected-error@+1 {{only f32 operands that have come to shared memory are multiplied by multiply-adds}}
  %sum = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<32x64xbf16, 3>, memref<32x64xbf16, 3>, vector<32x32x1xf32>) -> vector<32x32x1xf32>
  return
}
}
}

// -----

#m = {name = "m", extent = affine_map<() -> (64)>, layout = array<i64: 64, 32, 1, 1>, walk = "grid", warps = 4 : i64}
#n = {name = "n", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 1, 1, 1>, walk = "loop"}

// Tensor cores are less exact than f32, so nothing gives them f32 unasked.
module {
module @kernels {
func.func @unasked(%x: memref<64x32xf32>) attributes {tile.kernel, tile.arguments = ["read"], tile.schedule = {axes = [#m, #n, #k], order = array<i64>, unroll = 1 : i64, dot = true, tensor, stages = 1 : i64}} {
  %xs = "tile.ring"() : () -> memref<1x64x32xf32, 3>
  %ws = "tile.ring"() : () -> memref<1x32x32xf32, 3>
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %a = "tile.await"(%xs, %c0) : (memref<1x64x32xf32, 3>, index) -> memref<64x32xf32, 3>
  %b = "tile.await"(%ws, %c0) : (memref<1x32x32xf32, 3>, index) -> memref<32x32xf32, 3>
  // expected-error@+1 {{tensor cores read f32 only as TF32, which this schedule does not ask for}}
  %sum = "tile.dot_shared"(%a, %b, %zeros) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x32xf32, 3>, memref<32x32xf32, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
  return
}
}
}
