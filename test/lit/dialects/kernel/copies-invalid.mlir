// RUN: tilec-opt %s --split-input-file --verify-diagnostics

// A copy goes from global to shared memory, and both have the elements that it is counted in.
func.func @copies(%x: memref<4096xbf16, 1>, %ring: memref<4096xbf16, 3>, %floats: memref<4096xf32, 3>, %i: index) {
  // expected-error@+1 {{'kernel.copy_async' op buffer must be one-dimensional in address space 3, but is memref<4096xbf16, 1>}}
  "kernel.copy_async"(%x, %i, %x, %i, %i) {element = bf16} : (memref<4096xbf16, 1>, index, memref<4096xbf16, 1>, index, index) -> ()
  // expected-error@+1 {{source must be one-dimensional in address space 1, but is memref<4096xbf16, 3>}}
  "kernel.copy_async"(%ring, %i, %ring, %i, %i) {element = bf16} : (memref<4096xbf16, 3>, index, memref<4096xbf16, 3>, index, index) -> ()
  // expected-error@+1 {{both buffers must have elements bf16, but one is memref<4096xf32, 3>}}
  "kernel.copy_async"(%floats, %i, %x, %i, %i) {element = bf16} : (memref<4096xf32, 3>, index, memref<4096xbf16, 1>, index, index) -> ()
  return
}

// -----

// Four matrices are read at once, from shared memory.
func.func @matrices(%x: memref<4096xbf16, 1>, %ring: memref<4096xbf16, 3>, %i: index) {
  // expected-error@+1 {{'kernel.load_matrix' op needs 4 results, one of each matrix, but has 2}}
  %two:2 = "kernel.load_matrix"(%ring, %i) : (memref<4096xbf16, 3>, index) -> (i32, i32)
  // expected-error@+1 {{buffer must be one-dimensional in address space 3, but is memref<4096xbf16, 1>}}
  %global:4 = "kernel.load_matrix"(%x, %i) : (memref<4096xbf16, 1>, index) -> (i32, i32, i32, i32)
  return
}
