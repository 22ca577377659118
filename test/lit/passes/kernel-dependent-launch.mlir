// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-dependent-launch)' | FileCheck %s
// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-dependent-launch{prefetch=false})' | FileCheck %s --check-prefix=LATE

gpu.module @kernels {

// The next kernel may start at once. The weights, and the arithmetic for their place, come before the wait; what
// another kernel may have written comes after it.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: memref<64xf32, 1>, %[[W:[^:]*]]: memref<64xf32, 1>, %[[Y:[^:]*]]: memref<64xf32, 1>
// CHECK-SAME: kernel.dependent
// CHECK-NEXT: "kernel.launch_dependents"
// CHECK: %[[PLACE:.*]] = arith.addi
// CHECK: "kernel.load_global"(%[[W]], %[[PLACE]]) {cache = "stream"}
// CHECK-NEXT: "kernel.grid_wait"
// CHECK-NEXT: "kernel.load_global"(%[[X]]
// LATE-LABEL: func.func @product(
// LATE: "kernel.grid_wait"
// LATE: cache = "plain"
// LATE: cache = "stream"
func.func @product(%x: memref<64xf32, 1>, %w: memref<64xf32, 1>, %y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, tile.arguments = ["read", "weight", "write"]} {
  %thread = "kernel.thread_id"() : () -> index
  %a = "kernel.load_global"(%x, %thread) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %c32 = arith.constant 32 : index
  %place = arith.addi %thread, %c32 : index
  %b = "kernel.load_global"(%w, %place) {cache = "stream"} : (memref<64xf32, 1>, index) -> f32
  %p = arith.mulf %a, %b : f32
  "kernel.store_global"(%p, %y, %thread) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

// What was written in an earlier run is there before the wait as well.
// CHECK-LABEL: func.func @held(
// CHECK: cache = "held"
// CHECK-NEXT: "kernel.grid_wait"
// CHECK-NEXT: cache = "plain"
func.func @held(%x: memref<64xf32, 1>, %y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, tile.arguments = ["read", "write"]} {
  %thread = "kernel.thread_id"() : () -> index
  %c4 = arith.constant 4 : index
  %old = arith.cmpi ult, %thread, %c4 : index
  %a = "kernel.load_global"(%x, %thread) {cache = "plain"} : (memref<64xf32, 1>, index) -> vector<4xf32>
  %b = "kernel.load_global"(%x, %thread, %old) {cache = "held"} : (memref<64xf32, 1>, index, i1) -> vector<4xf32>
  %p = arith.mulf %a, %b : vector<4xf32>
  "kernel.store_global"(%p, %y, %thread) : (vector<4xf32>, memref<64xf32, 1>, index) -> ()
  return
}

// What is read over it may be about to be written and stays behind the wait.
// CHECK-LABEL: func.func @over(
// CHECK: %[[HELD:.*]] = "kernel.load_global"(%{{.*}}) {cache = "held"}
// CHECK-NEXT: "kernel.grid_wait"
// CHECK-NEXT: "kernel.load_over"(%[[HELD]],
// CHECK-NOT: kernel.grid_wait
// CHECK: return
func.func @over(%x: memref<64xf32, 1>, %y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, tile.arguments = ["read", "write"]} {
  %thread = "kernel.thread_id"() : () -> index
  %c4 = arith.constant 4 : index
  %old = arith.cmpi ult, %thread, %c4 : index
  %new = arith.cmpi eq, %thread, %c4 : index
  %a = "kernel.load_global"(%x, %thread, %old) {cache = "held"} : (memref<64xf32, 1>, index, i1) -> vector<4xf32>
  %b = "kernel.load_over"(%a, %x, %thread, %new) : (vector<4xf32>, memref<64xf32, 1>, index, i1) -> vector<4xf32>
  "kernel.store_global"(%b, %y, %thread) : (vector<4xf32>, memref<64xf32, 1>, index) -> ()
  return
}

// Where whole blocks take one of two arms, each arm has its own wait, so that each can read its weights first.
// CHECK-LABEL: func.func @arms(
// CHECK: "kernel.launch_dependents"
// CHECK-NOT: "kernel.grid_wait"
// CHECK: scf.if
// CHECK-NEXT: cache = "stream"
// CHECK-NEXT: "kernel.grid_wait"
// CHECK-NEXT: "kernel.store_global"
// CHECK: else
// CHECK-NEXT: "kernel.grid_wait"
// CHECK-NEXT: "kernel.load_global"
func.func @arms(%x: memref<64xf32, 1>, %w: memref<64xf32, 1>, %y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, tile.arguments = ["read", "weight", "write"]} {
  %block = "kernel.block_id"() {dimension = "x"} : () -> index
  %c1 = arith.constant 1 : index
  %first = arith.cmpi ult, %block, %c1 : index
  scf.if %first {
    %b = "kernel.load_global"(%w, %block) {cache = "stream"} : (memref<64xf32, 1>, index) -> f32
    "kernel.store_global"(%b, %y, %block) : (f32, memref<64xf32, 1>, index) -> ()
  } else {
    %a = "kernel.load_global"(%x, %block) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
    "kernel.store_global"(%a, %y, %block) : (f32, memref<64xf32, 1>, index) -> ()
  }
  return
}

// Copies of weights by threads that only fetch need not wait. Those of another warp, which read what kernels write, do, and so
// do the threads that compute before they store: each arm of the roles has its own wait.
// CHECK-LABEL: func.func @roles(
// CHECK-SAME: %[[WMAP:[^:]*]]: memref<128xi8, 4>, %[[XMAP:[^:]*]]: memref<128xi8, 4>)
// CHECK: "kernel.launch_dependents"
// CHECK-NOT: "kernel.grid_wait"
// CHECK: scf.if %[[PRODUCER:.*]] {
// CHECK-NOT: "kernel.grid_wait"
// CHECK: "kernel.tma_load"(%{{.*}}, %{{.*}}, %[[WMAP]], {{.*}}) {constant = true, element = bf16}
// CHECK: }
// CHECK: "kernel.grid_wait"
// CHECK-NEXT: scf.if
// CHECK-NEXT: "kernel.tma_load"(%{{.*}}, %{{.*}}, %[[XMAP]], {{.*}}) {element = bf16}
// CHECK-NOT: "kernel.grid_wait"
// CHECK: } else {
// CHECK-NEXT: "kernel.mbarrier_wait"
// CHECK-NEXT: "kernel.grid_wait"
// CHECK-NEXT: "kernel.store_global"
// CHECK-NOT: "kernel.grid_wait"
// CHECK: return
func.func @roles(%y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>, %wmap: memref<128xi8, 4>, %xmap: memref<128xi8, 4>) attributes {kernel.block = 256 : i64, tile.arguments = ["write"]} {
  %thread = "kernel.thread_id"() : () -> index
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c160 = arith.constant 160 : index
  %one = arith.constant 1.0 : f32
  %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<4096xbf16, 3>
  %full = "kernel.shared"() {symbol = "full"} : () -> memref<1xi64, 3>
  %producer = arith.cmpi uge, %thread, %c128 : index
  scf.if %producer {
    %weights = arith.cmpi eq, %thread, %c128 : index
    scf.if %weights {
      "kernel.tma_load"(%full, %c0, %wmap, %c0, %c0, %c0, %ring, %c0) {constant = true, element = bf16} : (memref<1xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<4096xbf16, 3>, index) -> ()
    }
    %others = arith.cmpi eq, %thread, %c160 : index
    scf.if %others {
      "kernel.tma_load"(%full, %c0, %xmap, %c0, %c0, %c0, %ring, %c0) {element = bf16} : (memref<1xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<4096xbf16, 3>, index) -> ()
    }
  } else {
    "kernel.mbarrier_wait"(%full, %c0, %c0) : (memref<1xi64, 3>, index, index) -> ()
    "kernel.store_global"(%one, %y, %thread) : (f32, memref<64xf32, 1>, index) -> ()
  }
  return
}

// Symbols change only between runs and are read early; a loop that reads what kernels write is waited for as a whole.
// CHECK-LABEL: func.func @loop(
// CHECK: "kernel.load_global"(%{{.*}}) {cache = "plain"} : (memref<1xi64, 1>
// CHECK: "kernel.grid_wait"
// CHECK-NEXT: scf.for
// CHECK-NOT: kernel.grid_wait
// CHECK: return
func.func @loop(%x: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, tile.arguments = ["read"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %value = "kernel.load_global"(%symbols, %c0) {cache = "plain"} : (memref<1xi64, 1>, index) -> i64
  %n = arith.index_cast %value : i64 to index
  scf.for %i = %c0 to %n step %c1 {
    %a = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  }
  return
}

}
