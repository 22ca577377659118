// RUN: tilec-opt %s --verify-diagnostics --pass-pipeline='builtin.module(convert-kernel-to-nvvm)'

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
