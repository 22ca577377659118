// A matrix product with a bias and an activation, from primops to PTX, as one text of tilec's and upstream's passes: with the
// tensor cores of Hopper's groups of warps, and with those of a warp.
// RUN: tilec-opt %s --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, tilec-cse, tilec-dce, primop-partition, primop-group, primop-inplace-scatter, \
// RUN:   primop-write-states, primop-fold-scales, primop-online-reductions{rows=true}, primop-stage-rows, primop-fuse, \
// RUN:   primop-group, primop-pack-weights{target=sm_90a}, convert-primop-to-tile{target=sm_90a}, tilec-cse, tilec-dce, \
// RUN:   tile-prefetch, tile-stage, tile-persist, tile-specialise, \
// RUN:   convert-tile-to-kernel, kernel-merge-launches, kernel-dependent-launch, \
// RUN:   kernel-libdevice, kernel-native-math, lower-affine, canonicalize, cse, loop-invariant-code-motion, convert-kernel-to-nvvm, \
// RUN:   nvvm-attach-target{chip=sm_90a features=+ptx86 O=3}, \
// RUN:   gpu.module(convert-scf-to-cf, canonicalize, cse, convert-to-llvm, reconcile-unrealized-casts, canonicalize, cse), \
// RUN:   gpu-module-to-binary{format=isa})' \
// RUN: | FileCheck %s
// RUN: tilec-opt %s --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, tilec-cse, tilec-dce, primop-partition, primop-group, primop-inplace-scatter, \
// RUN:   primop-write-states, primop-fold-scales, primop-fuse, \
// RUN:   primop-group, primop-pack-weights{target=sm_80}, convert-primop-to-tile{target=sm_80}, tilec-cse, tilec-dce, \
// RUN:   tile-prefetch, tile-stage, tile-persist, tile-specialise, \
// RUN:   convert-tile-to-kernel, kernel-merge-launches, \
// RUN:   kernel-libdevice, kernel-native-math, lower-affine, canonicalize, cse, loop-invariant-code-motion, convert-kernel-to-nvvm, \
// RUN:   nvvm-attach-target{chip=sm_80 features=+ptx80 O=3}, \
// RUN:   gpu.module(convert-scf-to-cf, canonicalize, cse, convert-to-llvm, reconcile-unrealized-casts, canonicalize, cse), \
// RUN:   gpu-module-to-binary{format=isa})' \
// RUN: | FileCheck %s --check-prefix=SM80

module attributes {primop.symbols = {seq = array<i64: 1, 64>}} {

// The kernel is text for the assembler inside the module that calls it: its block size, with threads that only fetch, and
// their copies, those of weights before the wait for earlier kernels; products of the others, and the function of the epilogue.
// CHECK: call @main_main_linear(
// CHECK: gpu.binary @kernels
// CHECK-SAME: .target sm_90a
// CHECK-SAME: .visible .entry main_main_linear(
// CHECK-SAME: .reqntid 256, 1, 1
// CHECK-SAME: griddepcontrol.launch_dependents;
// CHECK-SAME: mbarrier.init
// CHECK-SAME: cp.async.bulk.tensor.{{[^;]*}} [%{{[^;]*}}, [%[[WEIGHTS:[^,]*]],
// CHECK-SAME: griddepcontrol.wait;
// CHECK-NOT: [%[[WEIGHTS]],
// CHECK-SAME: cp.async.bulk.tensor
// CHECK-SAME: wgmma.mma_async
// CHECK-SAME: ex2.approx.f32
// CHECK-SAME: st.global

// Before Hopper all threads copy what each warp then multiplies.
// SM80: gpu.binary @kernels
// SM80-SAME: .target sm_80
// SM80-SAME: .visible .entry main_main_linear(
// SM80-SAME: .reqntid 128, 1, 1
// SM80-SAME: cp.async.cg.shared.global
// SM80-SAME: cp.async.commit_group
// SM80-SAME: cp.async.wait_group
// SM80-SAME: bar.sync
// SM80-SAME: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// SM80-SAME: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// SM80-SAME: ex2.approx.f32
// SM80-SAME: st.global.v2
func.func @main() attributes {primop.entry} {
  %x = "primop.input"() {kind = "argument", label = "x", shape = affine_map<()[seq] -> (seq, 256)>} : () -> tensor<?x256xbf16>
  %w = "primop.input"() {kind = "weight", label = "w", shape = affine_map<()[seq] -> (64, 256)>} : () -> tensor<64x256xbf16>
  %bias = "primop.input"() {kind = "weight", label = "bias", shape = affine_map<()[seq] -> (64)>} : () -> tensor<64xf32>
  %products = "primop.mul"(%x, %w) {space = affine_map<()[seq] -> (seq, 64, 256)>, maps = [affine_map<(m, n, k)[seq] -> (m, k)>, affine_map<(m, n, k)[seq] -> (n, k)>]} : (tensor<?x256xbf16>, tensor<64x256xbf16>) -> tensor<?x64x256xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[seq] -> (seq, 64, 256)>, maps = [affine_map<(m, n, k)[seq] -> (m, n, k)>], dims = array<i64: 2>} : (tensor<?x64x256xf32>) -> tensor<?x64xf32>
  %biased = "primop.add"(%sum, %bias) {space = affine_map<()[seq] -> (seq, 64)>, maps = [affine_map<(m, n)[seq] -> (m, n)>, affine_map<(m, n)[seq] -> (n)>]} : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
  %y = "primop.exp2"(%biased) {space = affine_map<()[seq] -> (seq, 64)>, maps = [affine_map<(m, n)[seq] -> (m, n)>]} : (tensor<?x64xf32>) -> tensor<?x64xf32> loc("linear")
  "primop.output"(%y) {label = "y"} : (tensor<?x64xf32>) -> ()
  return
}

}
