// A matrix product with a bias and an activation, from primops to LLVM's dialect, as one text of tilec's and upstream's
// passes.
// RUN: tilec-opt %s --pass-pipeline='builtin.module( \
// RUN:   primop-decompose-softmax, tilec-cse, tilec-dce, primop-partition, primop-group, primop-inplace-scatter, \
// RUN:   primop-write-states, primop-fold-scales, primop-fuse, primop-group, \
// RUN:   primop-pack-weights{target=x86-64-avx512bf16}, \
// RUN:   convert-primop-to-tile{target=x86-64-avx512bf16}, tilec-cse, tilec-dce, \
// RUN:   cpu-expand-math, convert-tile-to-cpu{target=x86-64-avx512bf16}, \
// RUN:   builtin.module(lower-affine, canonicalize, cse, loop-invariant-code-motion, convert-scf-to-cf, \
// RUN:     convert-math-to-llvm, convert-math-to-libm, convert-vector-to-llvm, convert-arith-to-llvm, convert-cf-to-llvm, \
// RUN:     convert-func-to-llvm, reconcile-unrealized-casts, cse))' \
// RUN: | FileCheck %s --implicit-check-not=primop.mul --implicit-check-not=tile. --implicit-check-not=unrealized_conversion_cast

module attributes {primop.symbols = {seq = array<i64: 1, 64>}} {

// The entry point calls its chunk and the chunk its kernel, on tensors; weights say how they are laid out.
// CHECK-LABEL: func.func @main() attributes {primop.entry}
// CHECK-DAG: label = "w", pack = affine_map<(d0, d1) -> (d0 floordiv 16, d1 floordiv 2, d0 mod 16, d1 mod 2)>
// CHECK: %[[Y:.*]] = call @main_main(
// CHECK-NEXT: "primop.output"(%[[Y]]) {label = "y"}
// CHECK: func.func private @main_main(
// CHECK-NEXT: call @main_main_linear(

// The kernel is a program over pointers, with a loop around pair products and a polynomial after it ...
// CHECK: llvm.func @main_main_linear_program(
// CHECK-SAME: !llvm.ptr {llvm.noalias}
// CHECK: %[[PANEL:.*]] = llvm.load {{.*}} -> vector<32xbf16>
// CHECK: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({{.*}}, %[[PANEL]], {{.*}})
// CHECK: llvm.intr.roundeven
// CHECK: llvm.store {{.*}} : vector<16xf32>, !llvm.ptr

// ... and what the runtime calls to run a share of the programs.
// CHECK: llvm.func @main_main_linear(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64)
// CHECK: llvm.call @main_main_linear_program(
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
