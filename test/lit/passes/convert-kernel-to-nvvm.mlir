// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-kernel-to-nvvm)' | FileCheck %s

gpu.module @kernels {

// A kernel is a function over global pointers. What a launch needs to know stays an attribute.
// CHECK: llvm.func @frame(
// CHECK-SAME: !llvm.ptr<1> {llvm.align = 16 : i64}, %{{[^:]*}}: !llvm.ptr<1> {llvm.align = 16 : i64})
// CHECK-SAME: kernel.dependent, kernel.grid = [affine_map<()[s0] -> (s0)>
// CHECK-SAME: kernel.wide_indices
// CHECK-SAME: nvvm.cluster_dim = array<i32: 4, 1, 1>, nvvm.kernel, nvvm.reqntid = array<i32: 64, 1, 1>
// CHECK-NOT: nvvm.minctasm
// CHECK: llvm.return
func.func @frame(%x: memref<64xf32, 1>, %table: memref<1xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.cluster = 4 : i64, kernel.dependent, kernel.wide_indices, kernel.grid = [affine_map<()[n] -> (n)>, affine_map<()[n] -> ()>, affine_map<()[n] -> ()>]} {
  return
}

// Places are special registers, 32 bits each.
// CHECK: llvm.func @places(
// CHECK: %[[THREAD:.*]] = nvvm.read.ptx.sreg.tid.x : i32
// CHECK-NEXT: arith.index_cast %[[THREAD]] : i32 to index
// CHECK: nvvm.read.ptx.sreg.ctaid.x
// CHECK: nvvm.read.ptx.sreg.ctaid.z
// CHECK: llvm.inline_asm {{.*}}"mov.u32 $0, %cluster_ctarank;"
func.func @places(%y: memref<64xindex, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["write"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %thread = "kernel.thread_id"() : () -> index
  %x = "kernel.block_id"() {dimension = "x"} : () -> index
  %z = "kernel.block_id"() {dimension = "z"} : () -> index
  %rank = "kernel.cluster_rank"() : () -> index
  return
}

// Accesses are loads and stores as wide as the vector, at an offset in elements. Truth values are bytes.
// CHECK: llvm.func @memory(
// CHECK-SAME: %[[X:[^:]*]]: !llvm.ptr<1> {llvm.align = 16 : i64}, %[[FLAGS:[^:]*]]: !llvm.ptr<1>
// CHECK: %[[OFFSET:.*]] = arith.index_cast %{{.*}} : index to i64
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[X]][%[[OFFSET]]] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
// CHECK: llvm.load %[[AT]] {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
// CHECK: llvm.getelementptr %[[FLAGS]][{{.*}}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
// CHECK: %[[BYTE:.*]] = llvm.load {{.*}} -> i8
// CHECK: %[[FLAG:.*]] = arith.cmpi ne, %[[BYTE]]
// CHECK: %[[STORED:.*]] = arith.extui %[[FLAG]] : i1 to i8
// CHECK: llvm.store %[[STORED]]
func.func @memory(%x: memref<64xf32, 1>, %flags: memref<64xi1, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["write", "write"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %vector = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> vector<4xf32>
  "kernel.store_global"(%vector, %x, %i) : (vector<4xf32>, memref<64xf32, 1>, index) -> ()
  %flag = "kernel.load_global"(%flags, %i) {cache = "plain"} : (memref<64xi1, 1>, index) -> i1
  "kernel.store_global"(%flag, %flags, %i) : (i1, memref<64xi1, 1>, index) -> ()
  return
}

// Under a condition 16 bytes are read at once, or 8 where that is all, or are zeros without an access.
// CHECK: llvm.func @condition(
// CHECK: %[[OLD:.*]] = arith.cmpi
// CHECK: llvm.inline_asm has_side_effects {{.*}}"mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; @$5 ld.global.v4.b32 {$0, $1, $2, $3}, [$4+0];", "=&r,=&r,=&r,=&r,l,b,~{memory}" %{{.*}}, %[[OLD]]
// CHECK: @$5 ld.global.v4.b32 {$0, $1, $2, $3}, [$4+16];
// CHECK: vector.bitcast {{.*}} : vector<8xi32> to vector<8xf32>
// CHECK: %[[TWO:.*]] = llvm.inline_asm has_side_effects {{.*}}"mov.b32 $0, 0; mov.b32 $1, 0; @$3 ld.global.v2.b32 {$0, $1}, [$2+0];", "=&r,=&r,l,b,~{memory}" %{{.*}}, %[[OLD]]
// CHECK: %[[FIRST:.*]] = llvm.extractvalue %[[TWO]][0]
// CHECK: %[[SECOND:.*]] = llvm.extractvalue %[[TWO]][1]
// CHECK: %[[WORDS:.*]] = vector.from_elements %[[FIRST]], %[[SECOND]] : vector<2xi32>
// CHECK: vector.bitcast %[[WORDS]] : vector<2xi32> to vector<4xbf16>
func.func @condition(%x: memref<64xf32, 1>, %y: memref<64xbf16, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["write", "write"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %c4 = arith.constant 4 : index
  %old = arith.cmpi ult, %i, %c4 : index
  %vector = "kernel.load_global"(%x, %i, %old) {cache = "held"} : (memref<64xf32, 1>, index, i1) -> vector<8xf32>
  "kernel.store_global"(%vector, %x, %i) : (vector<8xf32>, memref<64xf32, 1>, index) -> ()
  %short = "kernel.load_global"(%y, %i, %old) {cache = "held"} : (memref<64xbf16, 1>, index, i1) -> vector<4xbf16>
  "kernel.store_global"(%short, %y, %i) : (vector<4xbf16>, memref<64xbf16, 1>, index) -> ()
  return
}

// Or they stay those of another value, whose words are the registers that are read into. Such a load is one that assemblers
// leave in its place.
// CHECK: llvm.func @over(
// CHECK: %[[NEW:.*]] = arith.cmpi
// CHECK: %[[LOADED:.*]] = llvm.load
// CHECK: %[[WORDS:.*]] = vector.bitcast %[[LOADED]] : vector<8xf32> to vector<8xi32>
// CHECK: %[[W0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[W3:.*]] = vector.extract %[[WORDS]][3]
// CHECK: %[[W4:.*]] = vector.extract %[[WORDS]][4]
// CHECK: %[[W7:.*]] = vector.extract %[[WORDS]][7]
// CHECK: %[[FOUR:.*]] = llvm.inline_asm has_side_effects {{.*}}"@$5 ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$4+0];", "=&r,=&r,=&r,=&r,l,b,0,1,2,3,~{memory}" %[[AT:.*]], %[[NEW]], %[[W0]], %{{.*}}, %{{.*}}, %[[W3]] :
// CHECK: %[[FIRST:.*]] = llvm.extractvalue %[[FOUR]][0]
// CHECK: %[[FOUR:.*]] = llvm.inline_asm has_side_effects {{.*}}"@$5 ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$4+16];", "=&r,=&r,=&r,=&r,l,b,0,1,2,3,~{memory}" %[[AT]], %[[NEW]], %[[W4]], %{{.*}}, %{{.*}}, %[[W7]] :
// CHECK: %[[LAST:.*]] = llvm.extractvalue %[[FOUR]][3]
// CHECK: %[[READ:.*]] = vector.from_elements %[[FIRST]], {{.*}}, %[[LAST]] : vector<8xi32>
// CHECK: vector.bitcast %[[READ]] : vector<8xi32> to vector<8xf32>
// CHECK: llvm.inline_asm has_side_effects {{.*}}"@$3 ld.relaxed.gpu.global.v2.b32 {$0, $1}, [$2+0];", "=&r,=&r,l,b,0,1,~{memory}" %{{.*}}, %[[NEW]],
func.func @over(%x: memref<64xf32, 1>, %y: memref<64xbf16, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["write", "write"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %c4 = arith.constant 4 : index
  %new = arith.cmpi eq, %i, %c4 : index
  %old = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> vector<8xf32>
  %vector = "kernel.load_over"(%old, %x, %i, %new) : (vector<8xf32>, memref<64xf32, 1>, index, i1) -> vector<8xf32>
  "kernel.store_global"(%vector, %x, %i) : (vector<8xf32>, memref<64xf32, 1>, index) -> ()
  %four = "kernel.load_global"(%y, %i) {cache = "plain"} : (memref<64xbf16, 1>, index) -> vector<4xbf16>
  %short = "kernel.load_over"(%four, %y, %i, %new) : (vector<4xbf16>, memref<64xbf16, 1>, index, i1) -> vector<4xbf16>
  "kernel.store_global"(%short, %y, %i) : (vector<4xbf16>, memref<64xbf16, 1>, index) -> ()
  return
}

// Weights stream past the first cache, 16 bytes at a time; narrower reads have no such instruction.
// CHECK: llvm.func @weights(
// CHECK: %[[WORDS:.*]] = llvm.inline_asm has_side_effects {{.*}}"ld.global.L1::no_allocate.L2::128B.v4.b32 {$0, $1, $2, $3}, [$4];"
// CHECK: llvm.extractvalue %[[WORDS]][3]
// CHECK: vector.bitcast {{.*}} : vector<4xi32> to vector<8xbf16>
// CHECK: llvm.load {{.*}} -> bf16
func.func @weights(%w: memref<64xbf16, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["weight"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %eight = "kernel.load_global"(%w, %i) {cache = "stream"} : (memref<64xbf16, 1>, index) -> vector<8xbf16>
  %one = "kernel.load_global"(%w, %i) {cache = "stream"} : (memref<64xbf16, 1>, index) -> bf16
  return
}

// How many blocks shall be resident on a multiprocessor bounds the registers of a thread.
// CHECK: llvm.func @resident(
// CHECK-SAME: nvvm.minctasm = 3 : i32
func.func @resident(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.resident = 3 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  return
}

// Threads of a block meet in shared memory, an array of the module that is named after its kernel, and at barriers. Ops
// of one symbol are one array.
// CHECK: llvm.mlir.global internal @block_parts() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<128 x f32>
// CHECK: llvm.func @block(
// CHECK: %[[PARTS:.*]] = llvm.mlir.addressof @block_parts : !llvm.ptr<3>
// CHECK: llvm.getelementptr %[[PARTS]]
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c256_i32
// CHECK: nvvm.barrier.arrive id = %{{.*}} number_of_threads = %c256_i32
// CHECK: nvvm.redux.sync or
// CHECK: nvvm.bar.warp.sync %{{.*}} : i32
// CHECK: llvm.inline_asm has_side_effects {{.*}} @never st.shared.b32 [lanes], all; }"
// CHECK-NEXT: %{{.*}} = arith.constant -1 : i32
// CHECK-NEXT: nvvm.bar.warp.sync %{{.*}} : i32
// CHECK: %[[SAME_PARTS:.*]] = llvm.mlir.addressof @block_parts
// CHECK: llvm.getelementptr %[[SAME_PARTS]]
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f32
func.func @block(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 128 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %one = arith.constant 1.0 : f32
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<128xf32, 3>
  "kernel.store_shared"(%one, %parts, %i) : (f32, memref<128xf32, 3>, index) -> ()
  "kernel.barrier"() : () -> ()
  %c2 = arith.constant 2 : index
  "kernel.group_barrier"(%c2) {threads = 256 : i64} : (index) -> ()
  "kernel.group_barrier"(%c2) {threads = 256 : i64, arrive = true} : (index) -> ()
  %same = "kernel.uniform"(%i) : (index) -> index
  "kernel.warp_barrier"() : () -> ()
  "kernel.warp_barrier"(%one) : (f32) -> ()
  %same_parts = "kernel.shared"() {symbol = "parts"} : () -> memref<128xf32, 3>
  %part = "kernel.load_shared"(%same_parts, %i) : (memref<128xf32, 3>, index) -> f32
  return
}

// Lanes combine by one shuffle for each bit, the widest first, so that all get the same sum. Eight bytes go as two
// words.
// CHECK: llvm.func @warp(
// CHECK: %[[FAR:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[VALUE:.*]], %c16{{.*}} : f32 -> f32
// CHECK: %[[HALF:.*]] = arith.addf %[[VALUE]], %[[FAR]]
// CHECK: %[[NEAR:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[HALF]], %c1_{{.*}} : f32 -> f32
// CHECK: arith.addf %[[HALF]], %[[NEAR]]
// CHECK: %[[WORDS:.*]] = llvm.bitcast %{{.*}} : i64 to vector<2xi32>
// CHECK-COUNT-2: nvvm.shfl.sync bfly {{.*}} : i32 -> i32
// CHECK: %[[OTHER:.*]] = llvm.bitcast %{{.*}} : vector<2xi32> to i64
// CHECK: arith.maxsi %{{.*}}, %[[OTHER]] : i64
func.func @warp(%x: memref<64xf32, 1>, %n: memref<64xi64, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read", "read"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %value = "kernel.load_global"(%x, %i) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %sum = "kernel.warp_reduce"(%value) {kind = "add", lanes = array<i64: 1, 16>} : (f32) -> f32
  %number = "kernel.load_global"(%n, %i) {cache = "plain"} : (memref<64xi64, 1>, index) -> i64
  %largest = "kernel.warp_reduce"(%number) {kind = "max", lanes = array<i64: 4>} : (i64) -> i64
  return
}

// Blocks of a cluster wait in two steps and map an address of theirs to the same place in another block, where they read
// one word or four at a time. Before they arrive once more, what they have computed from that must be known: here because a
// store would need it.
// CHECK: llvm.func @cluster(
// CHECK: nvvm.fence.sync_restrict {order = #nvvm.mem_order<release>}
// CHECK-NEXT: nvvm.cluster.arrive.relaxed {aligned}
// CHECK-NEXT: nvvm.cluster.wait {aligned}
// CHECK: %[[ONE:.*]] = llvm.inline_asm asm_dialect = att "mapa.shared::cluster.u32 $0, $1, $2;"
// CHECK: llvm.inline_asm has_side_effects {{.*}}"ld.shared::cluster.b32 $0, [$1];"{{.*}} %[[ONE]]
// CHECK: %[[EIGHT:.*]] = llvm.inline_asm asm_dialect = att "mapa.shared::cluster.u32 $0, $1, $2;"
// CHECK: llvm.inline_asm has_side_effects {{.*}}"ld.shared::cluster.v4.b32 {$0, $1, $2, $3}, [$4+0];"{{.*}} %[[EIGHT]]
// CHECK: llvm.inline_asm has_side_effects {{.*}}"ld.shared::cluster.v4.b32 {$0, $1, $2, $3}, [$4+16];"{{.*}} %[[EIGHT]]
// CHECK: vector.from_elements {{.*}} : vector<8xf32>
// CHECK: %[[WORD:.*]] = llvm.bitcast %{{.*}} : f32 to i32
// CHECK: llvm.inline_asm has_side_effects {{.*}}"{ {{.*}}mov.b32 all, $0; {{.*}}@never st.shared.b32 [lanes], all; }"{{.*}} %[[WORD]]
// CHECK-NEXT: nvvm.fence.sync_restrict
// CHECK-NEXT: nvvm.cluster.arrive.relaxed {aligned}
func.func @cluster(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.cluster = 4 : i64, kernel.grid = [affine_map<() -> (4)>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %i = "kernel.thread_id"() : () -> index
  %rank = arith.constant 2 : index
  %parts = "kernel.shared"() {symbol = "parts"} : () -> memref<64xf32, 3>
  "kernel.cluster_arrive"() : () -> ()
  "kernel.cluster_wait"() : () -> ()
  %remote = "kernel.load_remote"(%parts, %i, %rank) : (memref<64xf32, 3>, index, index) -> f32
  %eight = "kernel.load_remote"(%parts, %i, %rank) : (memref<64xf32, 3>, index, index) -> vector<8xf32>
  "kernel.cluster_arrive"(%remote) : (f32) -> ()
  return
}

// Launches overlap by instructions that only assembly has. What is inside a branch is converted as well.
// CHECK: llvm.func @launch(
// CHECK: llvm.inline_asm has_side_effects {{.*}}"griddepcontrol.launch_dependents;"
// CHECK: scf.if
// CHECK: llvm.inline_asm has_side_effects {{.*}}"griddepcontrol.wait;"
func.func @launch(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>]} {
  %true = arith.constant true
  "kernel.launch_dependents"() : () -> ()
  scf.if %true {
    "kernel.grid_wait"() : () -> ()
  }
  return
}

}
