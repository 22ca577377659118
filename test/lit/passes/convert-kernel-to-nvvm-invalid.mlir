// RUN: tilec-opt %s --verify-diagnostics --pass-pipeline='builtin.module(convert-kernel-to-nvvm)'

// Words are read from another block, nothing wider or narrower.
gpu.module @kernels {
func.func @remote(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<64xi64, 3>
  // expected-error@+1 {{only 4-byte elements are read from another block, not i64}}
  %remote = "kernel.load_remote"(%parts, %i, %i) : (memref<64xi64, 3>, index, index) -> i64
  return
}
}
