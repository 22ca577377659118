// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-kernel-to-nvvm)'

// Words of 4 or 8 bytes are read from another block, nothing narrower.
gpu.module @kernels {
func.func @remote(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<64xbf16, 3>
  // expected-error@+1 {{words of 4 or 8 bytes are read from another block, not bf16}}
  %remote = "kernel.load_remote"(%parts, %i, %i) : (memref<64xbf16, 3>, index, index) -> bf16
  return
}
}

// -----

// What lies over other memory is not larger than that.
gpu.module @kernels {
// expected-error@+1 {{sums has 256 bytes, but ring0, ring1 only 128}}
func.func @over(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %first = "kernel.shared"() {symbol = "ring0", align = 1024 : i64} : () -> memref<16xf32, 3>
  %second = "kernel.shared"() {symbol = "ring1", align = 1024 : i64} : () -> memref<16xf32, 3>
  %sums = "kernel.shared"() {symbol = "sums", over = "ring"} : () -> memref<64xf32, 3>
  return
}
}

// -----

// Under a condition nothing shorter than 8 bytes is read.
gpu.module @kernels {
func.func @condition(%x: memref<64xbf16, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %old = arith.cmpi ult, %i, %i : index
  // expected-error@+1 {{under a condition 8 or 16 bytes are read at once, not vector<2xbf16>}}
  %pair = "kernel.load_global"(%x, %i, %old) {cache = "held"} : (memref<64xbf16, 1>, index, i1) -> vector<2xbf16>
  return
}
}

// -----

// Over another value nothing between 8 and 16 bytes is read either.
gpu.module @kernels {
func.func @over(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %new = arith.cmpi eq, %i, %i : index
  %zeros = arith.constant dense<0.0> : vector<3xf32>
  // expected-error@+1 {{under a condition 8 or 16 bytes are read at once, not vector<3xf32>}}
  %three = "kernel.load_over"(%zeros, %x, %i, %new) : (vector<3xf32>, memref<64xf32, 1>, index, i1) -> vector<3xf32>
  return
}
}
