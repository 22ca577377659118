// RUN: tilec-opt %s --pass-pipeline='builtin.module(cpu-expand-math)' | FileCheck %s

// exp2 is a polynomial of the fraction times a power of two in two factors, so that it reaches all of f32's range. NaN
// comes out as it went in.
// CHECK-LABEL: func.func @exp2
// CHECK-SAME: %[[X:.*]]: vector<16xf32>
// CHECK: %[[IS_NAN:.*]] = arith.cmpf uno, %[[X]], %[[X]]
// CHECK: %[[WHOLE:.*]] = math.roundeven %[[SAFE:.*]] :
// CHECK: %[[FRACTION:.*]] = arith.subf %[[SAFE]], %[[WHOLE]]
// CHECK-COUNT-7: math.fma
// CHECK: %[[EXPONENT:.*]] = arith.fptosi %[[WHOLE]]
// CHECK: %[[HALF:.*]] = arith.shrsi %[[EXPONENT]]
// CHECK: arith.bitcast {{.*}} : vector<16xi32> to vector<16xf32>
// CHECK: arith.subi %[[EXPONENT]], %[[HALF]]
// CHECK: arith.bitcast {{.*}} : vector<16xi32> to vector<16xf32>
// CHECK: %[[POWER:.*]] = arith.mulf
// CHECK-NEXT: %[[RESULT:.*]] = arith.select %[[IS_NAN]], %[[X]], %[[POWER]]
// CHECK-NEXT: return %[[RESULT]]
func.func @exp2(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp2 %x : vector<16xf32>
  return %y : vector<16xf32>
}

// log2 is the exponent plus a series in the mantissa; zero, infinity and what is below zero have results of their own.
// CHECK-LABEL: func.func @log2
// CHECK-SAME: %[[X:.*]]: vector<16xf32>
// CHECK: %[[TINY:.*]] = arith.cmpf olt, %[[X]]
// CHECK: arith.bitcast {{.*}} : vector<16xf32> to vector<16xi32>
// CHECK: arith.divf
// CHECK-COUNT-5: math.fma
// CHECK: %[[ZERO:.*]] = arith.cmpf oeq, %[[X]]
// CHECK: arith.select %[[ZERO]]
// CHECK: %[[INFINITE:.*]] = arith.cmpf oeq, %[[X]]
// CHECK: arith.select %[[INFINITE]]
// CHECK: %[[NEGATIVE:.*]] = arith.cmpf ult, %[[X]]
// CHECK: arith.select %[[NEGATIVE]]
func.func @log2(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.log2 %x : vector<16xf32>
  return %y : vector<16xf32>
}

// Multiples of pi leave a sine's angle in f64, so that large angles keep their digits; the series is in f32.
// CHECK-LABEL: func.func @sin
// CHECK: %[[WIDE:.*]] = arith.extf %{{.*}} : vector<16xf32> to vector<16xf64>
// CHECK: %[[TURNS:.*]] = math.roundeven
// CHECK: math.fma %[[TURNS]], %{{.*}}, %[[WIDE]] : vector<16xf64>
// CHECK: arith.truncf {{.*}} : vector<16xf64> to vector<16xf32>
// CHECK-COUNT-6: math.fma {{.*}} : vector<16xf32>
func.func @sin(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.sin %x : vector<16xf32>
  return %y : vector<16xf32>
}

// Narrow floats are computed in f32.
// CHECK-LABEL: func.func @narrow
// CHECK: %[[WIDE:.*]] = arith.extf %{{.*}} : vector<4x16xbf16> to vector<4x16xf32>
// CHECK: arith.cmpf uno, %[[WIDE]], %[[WIDE]] : vector<4x16xf32>
// CHECK: %[[NARROW:.*]] = arith.truncf {{.*}} : vector<4x16xf32> to vector<4x16xbf16>
// CHECK: return %[[NARROW]]
func.func @narrow(%x: vector<4x16xbf16>) -> vector<4x16xbf16> {
  %y = math.exp2 %x : vector<4x16xbf16>
  return %y : vector<4x16xbf16>
}

// Scalars are left to the C library, and functions that processors have to the processor.
// CHECK-LABEL: func.func @kept
// CHECK-NEXT: math.exp2
// CHECK-NEXT: math.sqrt
// CHECK-NEXT: return
func.func @kept(%x: f32, %v: vector<16xf32>) -> (f32, vector<16xf32>) {
  %power = math.exp2 %x : f32
  %root = math.sqrt %v : vector<16xf32>
  return %power, %root : f32, vector<16xf32>
}

// Tiles of kernels in a module of their own are found as well.
// CHECK: module @kernels
// CHECK-NOT: math.exp2
module @kernels {
  func.func @kernel(%x: vector<4x16xf32>) -> vector<4x16xf32> {
    %y = math.exp2 %x : vector<4x16xf32>
    return %y : vector<4x16xf32>
  }
}
