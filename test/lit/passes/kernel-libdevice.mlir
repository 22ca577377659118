// RUN: tilec-opt %s --pass-pipeline='builtin.module(kernel-libdevice)' | FileCheck %s

// Each function that is called is declared once.
// CHECK-LABEL: gpu.module @kernels
// CHECK-DAG: llvm.func @__nv_fmodf(f32, f32) -> f32
// CHECK-DAG: llvm.func @__nv_sinf(f32) -> f32
// CHECK-DAG: llvm.func @__nv_tanhf(f32) -> f32
// CHECK-NOT: llvm.func @__nv
gpu.module @kernels {

// A scalar is one call.
// CHECK: func.func @scalar
// CHECK-SAME: %[[X:.*]]: f32
// CHECK-NEXT: %[[SINE:.*]] = llvm.call @__nv_sinf(%[[X]]) : (f32) -> f32
// CHECK-NEXT: return %[[SINE]]
func.func @scalar(%x: f32) -> f32 {
  %sine = math.sin %x : f32
  return %sine : f32
}

// A vector is one call for each element.
// CHECK: func.func @vector
// CHECK-SAME: %[[X:.*]]: vector<2xf32>, %[[Y:.*]]: vector<2xf32>
// CHECK-NEXT: %[[X0:.*]] = vector.extract %[[X]][0]
// CHECK-NEXT: %[[Y0:.*]] = vector.extract %[[Y]][0]
// CHECK-NEXT: %[[R0:.*]] = llvm.call @__nv_fmodf(%[[X0]], %[[Y0]])
// CHECK-NEXT: %[[X1:.*]] = vector.extract %[[X]][1]
// CHECK-NEXT: %[[Y1:.*]] = vector.extract %[[Y]][1]
// CHECK-NEXT: %[[R1:.*]] = llvm.call @__nv_fmodf(%[[X1]], %[[Y1]])
// CHECK-NEXT: vector.from_elements %[[R0]], %[[R1]] : vector<2xf32>
func.func @vector(%x: vector<2xf32>, %y: vector<2xf32>) -> vector<2xf32> {
  %rest = arith.remf %x, %y : vector<2xf32>
  return %rest : vector<2xf32>
}

// Narrow floats are computed in f32.
// CHECK: func.func @narrow
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf
// CHECK-NEXT: %[[TANH:.*]] = llvm.call @__nv_tanhf(%[[WIDE]])
// CHECK-NEXT: arith.truncf %[[TANH]] : f32 to bf16
func.func @narrow(%x: bf16) -> bf16 {
  %tanh = math.tanh %x : bf16
  return %tanh : bf16
}

// The hardware's own 16-bit exponential is not accurate to its last place: it is taken in f32.
// CHECK: func.func @narrow_exponential
// CHECK-SAME: %[[X:.*]]: bf16
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[X]] : bf16 to f32
// CHECK-NEXT: %[[POWER:.*]] = math.exp2 %[[WIDE]] : f32
// CHECK-NEXT: arith.truncf %[[POWER]] : f32 to bf16
func.func @narrow_exponential(%x: bf16) -> bf16 {
  %a = math.exp2 %x : bf16
  return %a : bf16
}

// exp2 of f32 is left to the GPU's own instruction.
// CHECK: func.func @kept
// CHECK-NEXT: math.exp2
func.func @kept(%x: f32) -> f32 {
  %power = math.exp2 %x : f32
  return %power : f32
}

}

// What is outside the kernels stays.
// CHECK-LABEL: func.func @host
// CHECK-NEXT: math.sin
func.func @host(%x: f32) -> f32 {
  %sine = math.sin %x : f32
  return %sine : f32
}
