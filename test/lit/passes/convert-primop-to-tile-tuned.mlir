// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx512})' | FileCheck %s --check-prefix=DEFAULT
// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx512 tuned=%S/Inputs/tuned.json})' | FileCheck %s --check-prefix=TUNED
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx2 tuned=%S/Inputs/tuned.json})' 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: sed 's/array<i64: 4, 1, 1, 1>/array<i64: 5, 1, 1, 1>/' %S/Inputs/tuned.json > %t.stale.json
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx512 tuned=%t.stale.json})' 2>&1 | FileCheck %s --check-prefix=STALE
// RUN: sed 's/"schedule": "{axes/"schedule": "{axis/' %S/Inputs/tuned.json > %t.unreadable.json
// RUN: not tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx512 tuned=%t.unreadable.json})' 2>&1 | FileCheck %s --check-prefix=UNREADABLE

// A schedule is the one that was recorded for this kernel, whatever the kernel is called; without a recording it is the cost
// model's: here four rows of two vectors in place of eight. A recording is for one target, and what it says is honoured or
// refused.

// TARGET: tilec-opt: error: {{.*}}tuned.json was recorded for x86-64-avx512 (a processor), but x86-64-avx2 is compiled for
// STALE: tilec-opt: error: {{.*}}stale.json: the schedule recorded for product (m 5, n 32 of 16, k 1) is not one that this version of the compiler can give it; run `tilec tune` again, or delete the file
// UNREADABLE: tilec-opt: error: {{.*}}unreadable.json: the schedule recorded for product cannot be read; run `tilec tune` again, or delete the file

#x = affine_map<()[n] -> (n, 256)>
#w = affine_map<()[n] -> (4, 256, 16)>
#y = affine_map<()[n] -> (n, 64)>
#space = affine_map<()[n] -> (n, 64, 256)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// DEFAULT-LABEL: func.func @product(
// DEFAULT-SAME: layout = array<i64: 8, 1, 1, 1>, name = "m"
// DEFAULT-SAME: layout = array<i64: 32, 1, 16, 1>, name = "n"
// TUNED-LABEL: func.func @product(
// TUNED-SAME: layout = array<i64: 4, 1, 1, 1>, name = "m"
// TUNED-SAME: layout = array<i64: 32, 1, 16, 1>, name = "n"
func.func private @product(%x: tensor<?x256xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<4x256x16xf32> {primop.kind = "weight", primop.shape = #w}) -> (tensor<?x64xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %p = "primop.mul"(%x, %w) {space = #space, maps = [affine_map<(m, n, k)[s] -> (m, k)>, affine_map<(m, n, k)[s] -> (n floordiv 16, k, n mod 16)>]} : (tensor<?x256xf32>, tensor<4x256x16xf32>) -> tensor<?x64x256xf32>
  %y = "primop.sum"(%p) {space = #space, maps = [affine_map<(m, n, k)[s] -> (m, n, k)>], dims = array<i64: 2>} : (tensor<?x64x256xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

}
