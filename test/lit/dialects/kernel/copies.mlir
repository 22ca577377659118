// RUN: tilec-opt %s | tilec-opt | FileCheck %s

// Every thread starts copies of 16 bytes, of which so many exist; what it has started since the last commit is a group. A warp
// reads four matrices at once, each lane one row's address.
// CHECK-LABEL: func.func @copies
// CHECK-SAME: (%[[X:.*]]: memref<4096xbf16, 1>, %[[RING:.*]]: memref<4096xbf16, 3>, %[[I:.*]]: index, %[[BYTES:.*]]: index)
// CHECK: "kernel.copy_async"(%[[RING]], %[[I]], %[[X]], %[[I]], %[[BYTES]]) {element = bf16}
// CHECK: "kernel.commit_copies"() : () -> ()
// CHECK: "kernel.wait_copies"() {later = 2 : i64} : () -> ()
// CHECK: "kernel.load_matrix"(%[[RING]], %[[I]]) : (memref<4096xbf16, 3>, index) -> (i32, i32, i32, i32)
// CHECK: "kernel.load_matrix"(%[[RING]], %[[I]]) {transposed = true} : (memref<4096xbf16, 3>, index) -> (i32, i32, i32, i32)
func.func @copies(%x: memref<4096xbf16, 1>, %ring: memref<4096xbf16, 3>, %i: index, %bytes: index) {
  "kernel.copy_async"(%ring, %i, %x, %i, %bytes) {element = bf16} : (memref<4096xbf16, 3>, index, memref<4096xbf16, 1>, index, index) -> ()
  "kernel.commit_copies"() : () -> ()
  "kernel.wait_copies"() {later = 2 : i64} : () -> ()
  "kernel.barrier"() : () -> ()
  %rows:4 = "kernel.load_matrix"(%ring, %i) : (memref<4096xbf16, 3>, index) -> (i32, i32, i32, i32)
  %columns:4 = "kernel.load_matrix"(%ring, %i) {transposed = true} : (memref<4096xbf16, 3>, index) -> (i32, i32, i32, i32)
  return
}
