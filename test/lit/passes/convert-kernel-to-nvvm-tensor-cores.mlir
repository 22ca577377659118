// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-kernel-to-nvvm,canonicalize)' | FileCheck %s

gpu.module @kernels {

// More than 48 KiB of shared memory are asked for at launch: all arrays are parts of one, those of the largest alignment
// first. Swizzled tiles start at multiples of 1024 bytes, and so does the whole.
// CHECK-DAG: llvm.mlir.global external @dynamic_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK-LABEL: llvm.func @dynamic(
// CHECK-SAME: kernel.shared_bytes = 65664 : i64
// CHECK-DAG: %[[START:.*]] = llvm.mlir.addressof @dynamic_shared : !llvm.ptr<3>
// CHECK-DAG: %[[PARTS:.*]] = llvm.getelementptr %[[START]][65536] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
// CHECK-DAG: llvm.store %{{.*}}, %[[PARTS]]
// CHECK-DAG: llvm.store %{{.*}}, %[[START]] {{.*}} : bf16
func.func @dynamic(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : bf16
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<32xf32, 3>
  %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<32768xbf16, 3>
  "kernel.store_shared"(%one, %parts, %c0) : (f32, memref<32xf32, 3>, index) -> ()
  "kernel.store_shared"(%half, %ring, %c0) : (bf16, memref<32768xbf16, 3>, index) -> ()
  return
}

// What may lie over rings begins where the first of them does.
// CHECK-LABEL: llvm.func @over(
// CHECK-SAME: kernel.shared_bytes = 65664 : i64
// CHECK-DAG: %[[START:.*]] = llvm.mlir.addressof @over_shared
// CHECK-DAG: llvm.getelementptr %[[START]][65536]
// CHECK-DAG: llvm.store %{{.*}}, %[[START]] {{.*}} : f32
func.func @over(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<32xf32, 3>
  %sums = "kernel.shared"() {symbol = "sums", over = "ring"} : () -> memref<16384xf32, 3>
  %first = "kernel.shared"() {symbol = "ring0", align = 1024 : i64} : () -> memref<16384xbf16, 3>
  %second = "kernel.shared"() {symbol = "ring1", align = 1024 : i64} : () -> memref<16384xbf16, 3>
  "kernel.store_shared"(%one, %sums, %c0) : (f32, memref<16384xf32, 3>, index) -> ()
  "kernel.store_shared"(%one, %parts, %c0) : (f32, memref<32xf32, 3>, index) -> ()
  return
}

// Parts of a merged kernel run in different blocks, so they use the same bytes, and the larger of them counts.
// CHECK-LABEL: llvm.func @merged(
// CHECK-SAME: kernel.shared_bytes = 49152 : i64
// CHECK: %[[START:.*]] = llvm.mlir.addressof @merged_shared
// CHECK-NOT: llvm.getelementptr
// CHECK: llvm.store %{{.*}}, %[[START]] {{.*}} : f32
// CHECK: llvm.store %{{.*}}, %[[START]] {{.*}} : bf16
func.func @merged(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : bf16
  %first = "kernel.shared"() {symbol = "part0_ring", align = 1024 : i64} : () -> memref<8192xf32, 3>
  %second = "kernel.shared"() {symbol = "part1_ring", align = 1024 : i64} : () -> memref<24576xbf16, 3>
  "kernel.store_shared"(%one, %first, %c0) : (f32, memref<8192xf32, 3>, index) -> ()
  "kernel.store_shared"(%half, %second, %c0) : (bf16, memref<24576xbf16, 3>, index) -> ()
  return
}

// Up to 48 KiB every array is one of the module, aligned as it asks, or else for 16-byte accesses.
// CHECK-DAG: llvm.mlir.global internal @static_ring() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<4096 x bf16>
// CHECK-DAG: llvm.mlir.global internal @static_full() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<2 x i64>
// CHECK-LABEL: llvm.func @static(
// CHECK-NOT: kernel.shared_bytes
// CHECK: llvm.return

// Barriers are 64-bit words. A fill is one arrival that also says how many bytes to wait for; a wait tries for a parity until
// it succeeds.
// CHECK-LABEL: llvm.func @barriers(
// CHECK: %[[FULL:.*]] = llvm.mlir.addressof @barriers_full
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[FULL]][%{{.*}}] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i64
// CHECK: nvvm.mbarrier.init %[[AT]], %c2_i32
// CHECK: nvvm.fence.mbarrier.init
// CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c8192_i32
// CHECK: nvvm.mbarrier.arrive %{{.*}} : !llvm.ptr<3>
// CHECK: nvvm.mbarrier.try_wait.parity %{{.*}}, %{{.*}}, %c10000000_i32
// What a test has found needs no wait: in one piece of assembly, whose branches are the same in all lanes.
// CHECK: %[[ENDED:.*]] = nvvm.mbarrier.test.wait %{{.*}}, %{{.*}} : !llvm.ptr<3>, i32 -> i1
// CHECK: llvm.inline_asm has_side_effects {{.*}}"{ .reg .pred ended; @$2 bra.uni ENDED; AGAIN: mbarrier.try_wait.parity.shared.b64 ended, [$0], $1, 10000000; @!ended bra.uni AGAIN; ENDED: }", "r,r,b,~{memory}" %{{.*}}, %{{.*}}, %[[ENDED]]
func.func @static(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %half = arith.constant 0.5 : bf16
  %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<4096xbf16, 3>
  %full = "kernel.shared"() {symbol = "full"} : () -> memref<2xi64, 3>
  "kernel.store_shared"(%half, %ring, %c0) : (bf16, memref<4096xbf16, 3>, index) -> ()
  "kernel.mbarrier_init"(%full, %c0) {count = 2 : i64} : (memref<2xi64, 3>, index) -> ()
  return
}
func.func @barriers(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %slot = "kernel.thread_id"() : () -> index
  %full = "kernel.shared"() {symbol = "full"} : () -> memref<2xi64, 3>
  "kernel.mbarrier_init"(%full, %slot) {count = 2 : i64} : (memref<2xi64, 3>, index) -> ()
  "kernel.fence_mbarriers"() : () -> ()
  "kernel.mbarrier_expect"(%full, %slot) {bytes = 8192 : i64} : (memref<2xi64, 3>, index) -> ()
  "kernel.mbarrier_arrive"(%full, %slot) : (memref<2xi64, 3>, index) -> ()
  "kernel.mbarrier_wait"(%full, %slot, %slot) : (memref<2xi64, 3>, index, index) -> ()
  %ended = "kernel.mbarrier_test"(%full, %slot, %slot) : (memref<2xi64, 3>, index, index) -> i1
  "kernel.mbarrier_wait"(%full, %slot, %slot, %ended) : (memref<2xi64, 3>, index, index, i1) -> ()
  return
}

// The first threads of a block meet at a barrier of their own, number 1; groups of warps exchange registers.
// CHECK-LABEL: llvm.func @roles(
// CHECK: nvvm.barrier id = %c1_i32 number_of_threads = %c256_i32
// CHECK: nvvm.setmaxregister decrease 40
// CHECK: nvvm.setmaxregister increase 232
func.func @roles(%table: memref<0xi64, 1>) attributes {tile.arguments = [], kernel.block = 384 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  "kernel.barrier"() {threads = 256 : i64} : () -> ()
  "kernel.set_registers"() {count = 40 : i64, more = false} : () -> ()
  "kernel.set_registers"() {count = 232 : i64, more = true} : () -> ()
  return
}

// Lanes exchange words by shuffles.
// CHECK-LABEL: llvm.func @exchange(
// CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c2_i32, %c31_i32 : i32 -> i32
func.func @exchange(%x: memref<64xi32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %word = "kernel.load_global"(%x, %c0) {cache = "plain"} : (memref<64xi32, 1>, index) -> i32
  %other = "kernel.exchange"(%word) {lanes = 2 : i64} : (i32) -> i32
  "kernel.store_global"(%other, %x, %c0) : (i32, memref<64xi32, 1>, index) -> ()
  return
}

// Tensor maps are arguments by value, which the copy engine reads where the launch put them. A copy starts at a column, a
// row and a plane.
// CHECK-LABEL: llvm.func @copy(
// CHECK-SAME: %{{.*}}: !llvm.ptr<1> {llvm.align = 16 : i64}, %[[MAP:.*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant})
// CHECK-SAME: kernel.tensor_maps = [{argument = 0 : i64}]
// CHECK-DAG: %[[RING:.*]] = llvm.mlir.addressof @copy_ring
// CHECK-DAG: %[[FULL:.*]] = llvm.mlir.addressof @copy_full
// CHECK: %[[INTO:.*]] = llvm.addrspacecast %[[RING]] : !llvm.ptr<3> to !llvm.ptr<7>
// CHECK: %[[ROW:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %[[INTO]], %[[MAP]], %[[FULL]], box[%c64_i32, %[[ROW]], %c0_i32] : !llvm.ptr<7>, !llvm.ptr
func.func @copy(%x: memref<64xbf16, 1>, %table: memref<1xi64, 1>, %map: memref<128xi8, 4>) attributes {tile.arguments = ["read"], kernel.tensor_maps = [{argument = 0 : i64}], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<4096xbf16, 3>
  %full = "kernel.shared"() {symbol = "full"} : () -> memref<2xi64, 3>
  %loaded = "kernel.load_global"(%table, %c0) {cache = "plain"} : (memref<1xi64, 1>, index) -> i64
  %row = arith.index_cast %loaded : i64 to index
  "kernel.tma_load"(%full, %c0, %map, %c64, %row, %c0, %ring, %c0) {element = bf16} : (memref<2xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<4096xbf16, 3>, index) -> ()
  return
}

// A product is one piece of assembly: a fence, an instruction for every 16 of the depth, and a commit, so that nothing comes
// between them. Operands are described by their address in units of 16 bytes, 1024 bytes between groups of eight rows, and the
// swizzle of 128 bytes; a step is 32 bytes further, and after four of them in the next block, 64 rows of 128 bytes away.
// CHECK-LABEL: llvm.func @products(
// CHECK-DAG: %[[KIND:.*]] = arith.constant 4611686293305360384 : i64
// CHECK: %[[PLACE:.*]] = llvm.ptrtoint %{{.*}} : !llvm.ptr<3> to i32
// CHECK: %[[BITS:.*]] = arith.andi %[[PLACE]], %c262143_i32
// CHECK: %[[UNITS:.*]] = arith.shrui %[[BITS]], %c4_i32
// CHECK: %[[WIDE:.*]] = arith.extui %[[UNITS]] : i32 to i64
// CHECK: %[[B:.*]] = arith.ori %[[WIDE]], %[[KIND]] : i64
// CHECK: %[[A:.*]] = arith.ori
// CHECK: llvm.inline_asm has_side_effects asm_dialect = att "{ {{.*}} wgmma.fence.sync.aligned;
// CHECK-SAME: add.s64 right, $5, 0; add.s64 left, $4, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, left, right, add, 1, 1, 0, 0;
// CHECK-SAME: add.s64 right, $5, 2; add.s64 left, $4, 2; wgmma.mma_async
// CHECK-SAME: add.s64 right, $5, 4; add.s64 left, $4, 4; wgmma.mma_async
// CHECK-SAME: add.s64 right, $5, 6; add.s64 left, $4, 6; wgmma.mma_async
// CHECK-SAME: add.s64 right, $5, 64; add.s64 left, $4, 512; wgmma.mma_async
// CHECK-SAME: wgmma.commit_group.sync.aligned; }", "=f,=f,=f,=f,l,l,0,1,2,3,~{memory}" %[[A]], %[[B]],
func.func @products(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 128 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %slot = "kernel.thread_id"() : () -> index
  %lhs = "kernel.shared"() {symbol = "lhs", align = 1024 : i64} : () -> memref<8192xbf16, 3>
  %rhs = "kernel.shared"() {symbol = "rhs", align = 1024 : i64} : () -> memref<1024xbf16, 3>
  %acc = "kernel.load_global"(%x, %c0) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %sum:4 = "kernel.wgmma"(%lhs, %slot, %rhs, %slot, %acc, %acc, %acc, %acc) {element = bf16, columns = 8 : i64, depth = 80 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<8192xbf16, 3>, index, memref<1024xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  "kernel.store_global"(%sum#0, %x, %c0) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

// Places that come from counts are combined once more by all lanes, so that assemblers know that they are the same in all.
// CHECK-LABEL: llvm.func @counted(
// CHECK: %[[UNITS:.*]] = arith.shrui
// CHECK: %[[SAME:.*]] = nvvm.redux.sync or %[[UNITS]], %{{.*}} : i32 -> i32
// CHECK: arith.extui %[[SAME]] : i32 to i64
// CHECK: nvvm.redux.sync
// CHECK: llvm.inline_asm
func.func @counted(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 128 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %slot = "kernel.thread_id"() : () -> index
  %lhs = "kernel.shared"() {symbol = "lhs", align = 1024 : i64} : () -> memref<8192xbf16, 3>
  %rhs = "kernel.shared"() {symbol = "rhs", align = 1024 : i64} : () -> memref<1024xbf16, 3>
  %acc = "kernel.load_global"(%x, %c0) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %sum:4 = "kernel.wgmma"(%lhs, %slot, %rhs, %slot, %acc, %acc, %acc, %acc) {element = bf16, columns = 8 : i64, depth = 80 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, counted = true, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<8192xbf16, 3>, index, memref<1024xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  "kernel.store_global"(%sum#0, %x, %c0) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

// A right operand that lies with the reduced axis along rows is read along them, 16 rows a step; how far its blocks of columns
// are apart is part of the description. A left operand in registers has four pairs a step.
// CHECK-LABEL: llvm.func @transposed(
// CHECK-DAG: %[[KIND:.*]] = arith.constant 4611686293322072064 : i64
// CHECK: %[[B:.*]] = arith.ori %{{.*}}, %[[KIND]] : i64
// CHECK: llvm.inline_asm has_side_effects asm_dialect = att "{ {{.*}} wgmma.fence.sync.aligned;
// CHECK-SAME: add.s64 right, $12, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, {$4, $5, $6, $7}, right, add, 1, 1, 1;
// CHECK-SAME: add.s64 right, $12, 128; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, {$8, $9, $10, $11}, right, add, 1, 1, 1;
// CHECK-SAME: wgmma.commit_group.sync.aligned; }", "=f,=f,=f,=f,r,r,r,r,r,r,r,r,l,0,1,2,3,~{memory}" {{.*}}%[[B]],
func.func @transposed(%x: memref<64xf32, 1>, %p: memref<64xbf16, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read", "read"], kernel.block = 128 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %slot = "kernel.thread_id"() : () -> index
  %rhs = "kernel.shared"() {symbol = "rhs", align = 1024 : i64} : () -> memref<4096xbf16, 3>
  %acc = "kernel.load_global"(%x, %c0) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %pair = "kernel.load_global"(%p, %c0) {cache = "plain"} : (memref<64xbf16, 1>, index) -> vector<2xbf16>
  %sum:4 = "kernel.wgmma"(%pair, %pair, %pair, %pair, %pair, %pair, %pair, %pair, %rhs, %slot, %acc, %acc, %acc, %acc) {element = bf16, columns = 8 : i64, depth = 32 : i64, lhs_rows = 64 : i64, rhs_rows = 32 : i64, transposed = true, operandSegmentSizes = array<i32: 0, 0, 8, 1, 1, 4>} : (vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, vector<2xbf16>, memref<4096xbf16, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  "kernel.store_global"(%sum#0, %x, %c0) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

// f32 that is read as TF32 has 8 elements in the same 32 bytes of a step, and no say in how operands lie.
// CHECK-LABEL: llvm.func @products_of_f32(
// CHECK: llvm.inline_asm has_side_effects asm_dialect = att "{ {{.*}} wgmma.fence.sync.aligned;
// CHECK-SAME: add.s64 right, $5, 0; add.s64 left, $4, 0; wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {$0, $1, $2, $3}, left, right, add, 1, 1;
// CHECK-SAME: add.s64 right, $5, 2; add.s64 left, $4, 2; wgmma.mma_async
// CHECK-SAME: add.s64 right, $5, 6; add.s64 left, $4, 6; wgmma.mma_async
// CHECK-SAME: add.s64 right, $5, 64; add.s64 left, $4, 512; wgmma.mma_async
// CHECK-SAME: wgmma.commit_group.sync.aligned; }"
func.func @products_of_f32(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 128 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  %slot = "kernel.thread_id"() : () -> index
  %lhs = "kernel.shared"() {symbol = "lhs", align = 1024 : i64} : () -> memref<4096xf32, 3>
  %rhs = "kernel.shared"() {symbol = "rhs", align = 1024 : i64} : () -> memref<512xf32, 3>
  %acc = "kernel.load_global"(%x, %c0) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %sum:4 = "kernel.wgmma"(%lhs, %slot, %rhs, %slot, %acc, %acc, %acc, %acc) {element = tf32, columns = 8 : i64, depth = 40 : i64, lhs_rows = 64 : i64, rhs_rows = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 4>} : (memref<4096xf32, 3>, index, memref<512xf32, 3>, index, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  "kernel.store_global"(%sum#0, %x, %c0) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

// Results pass through the wait that they need, so that nothing reads them before it. Without results it only waits.
// CHECK-LABEL: llvm.func @wait(
// CHECK: nvvm.wgmma.wait.group.sync.aligned 1
// CHECK: %[[ACC:.*]] = llvm.load
// CHECK: %[[BOTH:.*]] = llvm.inline_asm has_side_effects asm_dialect = att "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,~{memory}" %[[ACC]], %[[ACC]] : (f32, f32) -> !llvm.struct<(f32, f32)>
// CHECK: %[[SECOND:.*]] = llvm.extractvalue %[[BOTH]][1]
// CHECK: llvm.store %[[SECOND]],
func.func @wait(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 128 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %c0 = arith.constant 0 : index
  "kernel.wgmma_wait"() {running = 1 : i64} : () -> ()
  %acc = "kernel.load_global"(%x, %c0) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %done:2 = "kernel.wgmma_wait"(%acc, %acc) {running = 0 : i64} : (f32, f32) -> (f32, f32)
  "kernel.store_global"(%done#1, %x, %c0) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

}
