// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-native-math)' | FileCheck %s

gpu.module @kernels {

// The sum of a power and 1 is never subnormal, and a power below 2^-126 does not change it: nothing is scaled.
// CHECK-LABEL: func.func @sigmoid
// CHECK-SAME: %[[X:.*]]: f32, %[[Y:.*]]: vector<2xf32>
// CHECK: %[[P:.*]] = llvm.inline_asm {{.*}}"ex2.approx.ftz.f32 $0, $1;", "=f,f" %[[X]]
// CHECK: %[[S:.*]] = arith.addf %[[P]]
// CHECK: llvm.inline_asm {{.*}}"rcp.approx.ftz.f32 $0, $1;", "=f,f" %[[S]]
// CHECK-COUNT-2: "ex2.approx.ftz.f32 $0, $1;"
// CHECK-COUNT-2: "rcp.approx.ftz.f32 $0, $1;"
func.func @sigmoid(%x: f32, %y: vector<2xf32>) -> (f32, vector<2xf32>) {
  %one = arith.constant 1.0 : f32
  %p = math.exp2 %x : f32
  %s = arith.addf %p, %one : f32
  %r = arith.divf %one, %s : f32
  %ones = vector.broadcast %one : f32 to vector<2xf32>
  %splat = arith.constant dense<1.0> : vector<2xf32>
  %ps = math.exp2 %y : vector<2xf32>
  %ss = arith.addf %ones, %ps : vector<2xf32>
  %rs = arith.divf %splat, %ss : vector<2xf32>
  return %r, %rs : f32, vector<2xf32>
}

// A sigmoid of 16 bits is made in f32.
// CHECK-LABEL: func.func @narrow
// CHECK: %[[S:.*]] = arith.addf
// CHECK: %[[WIDE:.*]] = arith.extf %[[S]] : bf16 to f32
// CHECK: %[[R:.*]] = llvm.inline_asm {{.*}}"rcp.approx.ftz.f32 $0, $1;", "=f,f" %[[WIDE]]
// CHECK: arith.truncf %[[R]] : f32 to bf16
func.func @narrow(%x: bf16) -> bf16 {
  %one = arith.constant 1.0 : bf16
  %p = math.exp2 %x : bf16
  %s = arith.addf %p, %one : bf16
  %r = arith.divf %one, %s : bf16
  return %r : bf16
}

// A power that is used otherwise too, or joins a smaller constant, stays, and so do all other quotients.
// CHECK-LABEL: func.func @kept
// CHECK: math.exp2
// CHECK: math.exp2
// CHECK: arith.divf
// CHECK: arith.divf
// CHECK: arith.divf
// CHECK: math.exp2 {{.*}} fastmath<nnan>
func.func @kept(%x: f32) -> (f32, f32, f32, f32, f32, f32) {
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %p = math.exp2 %x : f32
  %s = arith.addf %p, %one : f32
  %q = math.exp2 %s : f32
  %t = arith.addf %half, %q : f32
  %r = arith.divf %one, %t : f32
  %i = arith.divf %one, %x : f32
  %h = arith.divf %half, %s : f32
  %n = math.exp2 %x fastmath<nnan> : f32
  return %p, %s, %r, %i, %h, %n : f32, f32, f32, f32, f32, f32
}

// Where its maker says so, results below 2^-126 may be zero, as for the factors of a sum whose largest is 1.
// CHECK-LABEL: func.func @flushed
// CHECK-COUNT-3: "ex2.approx.ftz.f32 $0, $1;"
// CHECK-NOT: math.exp2
func.func @flushed(%x: f32, %y: vector<2xf32>) -> (f32, vector<2xf32>) {
  %power = math.exp2 %x fastmath<afn> : f32
  %powers = math.exp2 %y fastmath<afn> : vector<2xf32>
  return %power, %powers : f32, vector<2xf32>
}

}

// What is outside the kernels stays.
// CHECK-LABEL: func.func @host
// CHECK: arith.divf
func.func @host(%x: f32) -> f32 {
  %one = arith.constant 1.0 : f32
  %r = arith.divf %one, %x : f32
  return %r : f32
}
