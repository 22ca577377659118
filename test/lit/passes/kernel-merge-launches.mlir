// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(kernel-merge-launches,canonicalize)' | FileCheck %s

#shape = affine_map<()[n] -> (n)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// Two kernels that read the same input are one launch with the arguments of both; the third needs what the first
// computes.
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?xf32>
// CHECK-NEXT: %[[BOTH:.*]]:2 = call @layer_double_and_negate(%[[X]], %[[X]])
// CHECK-NEXT: %[[LAST:.*]] = call @layer_double(%[[BOTH]]#0)
// CHECK-NEXT: return %[[BOTH]]#1, %[[LAST]]
func.func private @layer(%x: tensor<?xf32> {primop.kind = "argument", primop.shape = #shape}) -> (tensor<?xf32>, tensor<?xf32>) attributes {primop.chunk} {
  %a = call @layer_double(%x) : (tensor<?xf32>) -> tensor<?xf32>
  %b = call @layer_negate(%x) : (tensor<?xf32>) -> tensor<?xf32>
  %c = call @layer_double(%a) : (tensor<?xf32>) -> tensor<?xf32>
  return %b, %c : tensor<?xf32>, tensor<?xf32>
}

// The launch says which kernel argument is which operand or result.
// CHECK: func.func private @layer_double_and_negate(tensor<?xf32>
// CHECK-SAME: tile.binding = array<i64: 0, -1, 1, -2>, tile.results = array<i64: 1, 3>
func.func private @layer_double(tensor<?xf32> {primop.kind = "argument", primop.shape = #shape}) -> (tensor<?xf32> {primop.shape = #shape})
func.func private @layer_negate(tensor<?xf32> {primop.kind = "argument", primop.shape = #shape}) -> (tensor<?xf32> {primop.shape = #shape})

gpu.module @kernels {

// A kernel that no call names any more is gone.
// CHECK-NOT: func.func @layer_negate
// CHECK: func.func @layer_double(
func.func @layer_double(%x: memref<64xf32, 1>, %y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, kernel.resident = 3 : i64, kernel.grid = [affine_map<()[n] -> (n floordiv 32)>, affine_map<()[n] -> ()>, affine_map<()[n] -> ()>], tile.arguments = ["read", "write"]} {
  %block = "kernel.block_id"() {dimension = "x"} : () -> index
  %v = "kernel.load_global"(%x, %block) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %twice = arith.addf %v, %v : f32
  "kernel.store_global"(%twice, %y, %block) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

func.func @layer_negate(%x: memref<64xf32, 1>, %y: memref<64xf32, 1>, %symbols: memref<1xi64, 1>) attributes {kernel.block = 32 : i64, kernel.wide_indices, kernel.resident = 2 : i64, kernel.grid = [affine_map<()[n] -> (4)>, affine_map<()[n] -> (2)>, affine_map<()[n] -> ()>], tile.arguments = ["read", "write"]} {
  %column = "kernel.block_id"() {dimension = "x"} : () -> index
  %row = "kernel.block_id"() {dimension = "y"} : () -> index
  %at = arith.addi %row, %column : index
  %v = "kernel.load_global"(%x, %at) {cache = "plain"} : (memref<64xf32, 1>, index) -> f32
  %minus = arith.negf %v : f32
  "kernel.store_global"(%minus, %y, %at) : (f32, memref<64xf32, 1>, index) -> ()
  return
}

// Blocks below the first kernel's count run it, the others find their coordinates in the second one's grid. The smaller
// number of resident blocks leaves registers for both. Indices are wide if those of one are.
// CHECK: func.func @layer_double_and_negate(%[[A:[^:]*]]: memref<64xf32, 1>, %[[B:[^:]*]]: memref<64xf32, 1>, %[[C:[^:]*]]: memref<64xf32, 1>, %[[D:[^:]*]]: memref<64xf32, 1>, %[[SYMBOLS:[^:]*]]: memref<1xi64, 1>)
// CHECK-SAME: kernel.grid = [affine_map<()[s0] -> (s0 floordiv 32 + 8)>, affine_map<()[s0] -> ()>, affine_map<()[s0] -> ()>]
// CHECK-SAME: kernel.resident = 2 : i64, kernel.wide_indices
// CHECK: %[[BLOCK:.*]] = "kernel.block_id"() {dimension = "x"}
// CHECK: "kernel.load_global"(%[[SYMBOLS]], %c0)
// CHECK: %[[COUNT:.*]] = affine.apply {{.*}} floordiv 32
// CHECK: %[[FIRST:.*]] = arith.cmpi ult, %[[BLOCK]], %[[COUNT]]
// CHECK: scf.if %[[FIRST]]
// CHECK:   "kernel.load_global"(%[[A]], %[[BLOCK]])
// CHECK:   "kernel.store_global"(%{{.*}}, %[[B]], %[[BLOCK]])
// CHECK: else
// CHECK:   %[[LOCAL:.*]] = arith.subi %[[BLOCK]], %{{.*}}
// CHECK-DAG: %[[COLUMN:.*]] = arith.remui %[[LOCAL]], %c4
// CHECK-DAG: %[[ROW:.*]] = arith.divui %[[LOCAL]], %c4
// CHECK:   arith.addi %[[ROW]], %[[COLUMN]]
// CHECK:   arith.negf
}
}

// -----

#shape = affine_map<() -> (64)>

module {

// Kernels stay apart where one reads what the other writes in place, and where their blocks differ in size.
// CHECK-LABEL: func.func private @overwritten(
// CHECK-NEXT: call @reader(
// CHECK-NEXT: call @writer(
// CHECK-LABEL: func.func private @block_sizes(
// CHECK-NEXT: call @reader(
// CHECK-NEXT: call @wide_reader(
func.func private @overwritten(%x: tensor<64xf32> {primop.kind = "state", primop.shape = #shape}) -> (tensor<64xf32>, tensor<64xf32>) attributes {primop.chunk} {
  %a = call @reader(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %b = call @writer(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %a, %b : tensor<64xf32>, tensor<64xf32>
}
func.func private @block_sizes(%x: tensor<64xf32> {primop.kind = "argument", primop.shape = #shape}) -> (tensor<64xf32>, tensor<64xf32>) attributes {primop.chunk} {
  %a = call @reader(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %b = call @wide_reader(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %a, %b : tensor<64xf32>, tensor<64xf32>
}
func.func private @reader(tensor<64xf32> {primop.kind = "argument", primop.shape = #shape}) -> (tensor<64xf32> {primop.shape = #shape})
func.func private @wide_reader(tensor<64xf32> {primop.kind = "argument", primop.shape = #shape}) -> (tensor<64xf32> {primop.shape = #shape})
func.func private @writer(tensor<64xf32> {primop.kind = "state", primop.shape = #shape}) -> (tensor<64xf32> {primop.shape = #shape})
gpu.module @kernels {
  func.func @reader(%x: memref<64xf32, 1>, %y: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read", "write"], kernel.block = 32 : i64, kernel.grid = [affine_map<() -> (2)>, affine_map<() -> ()>, affine_map<() -> ()>]} {
    return
  }
  func.func @wide_reader(%x: memref<64xf32, 1>, %y: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["read", "write"], kernel.block = 64 : i64, kernel.grid = [affine_map<() -> (2)>, affine_map<() -> ()>, affine_map<() -> ()>]} {
    return
  }
  func.func @writer(%x: memref<64xf32, 1>, %table: memref<0xi64, 1>) attributes {tile.arguments = ["write"], kernel.block = 32 : i64, kernel.grid = [affine_map<() -> (2)>, affine_map<() -> ()>, affine_map<() -> ()>]} {
    return
  }
}

}

// -----

#x_shape = affine_map<() -> (64, 64)>
#y_shape = affine_map<() -> (64)>

module {

// Tensor maps come last, those of the first kernel before those of the second, and the numbers of their buffers are those
// of the merged kernel. Each part has shared memory under names of its own, alignment included.
// CHECK-LABEL: func.func private @chunk(
// CHECK-NEXT: %{{.*}}:2 = call @fetch_x_and_w(
func.func private @chunk(%x: tensor<64x64xbf16> {primop.kind = "argument", primop.shape = #x_shape}) -> (tensor<64xf32>, tensor<64xf32>) attributes {primop.chunk} {
  %a = call @fetch_x(%x) : (tensor<64x64xbf16>) -> tensor<64xf32>
  %b = call @fetch_w(%x) : (tensor<64x64xbf16>) -> tensor<64xf32>
  return %a, %b : tensor<64xf32>, tensor<64xf32>
}
func.func private @fetch_x(tensor<64x64xbf16> {primop.kind = "argument", primop.shape = #x_shape}) -> (tensor<64xf32> {primop.shape = #y_shape})
func.func private @fetch_w(tensor<64x64xbf16> {primop.kind = "argument", primop.shape = #x_shape}) -> (tensor<64xf32> {primop.shape = #y_shape})
gpu.module @kernels {
  // CHECK: func.func @fetch_x_and_w(
  // CHECK-SAME: %[[SYMBOLS:[^:]*]]: memref<0xi64, 1>, %[[FIRST:[^:]*]]: memref<128xi8, 4>, %[[SECOND:[^:]*]]: memref<128xi8, 4>)
  // CHECK-SAME: kernel.tensor_maps = [{argument = 0 : i64, rows = 64 : i64}, {argument = 2 : i64, rows = 32 : i64}]
  // CHECK: scf.if
  // CHECK: %[[RING:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "part0_ring"}
  // CHECK: %[[FULL:.*]] = "kernel.shared"() {symbol = "part0_full"}
  // CHECK: "kernel.tma_load"(%[[FULL]], %{{.*}}, %[[FIRST]], %{{.*}}, %[[RING]], %{{.*}})
  // CHECK: else
  // CHECK: %[[RING:.*]] = "kernel.shared"() {align = 1024 : i64, symbol = "part1_ring"}
  // CHECK: %[[FULL:.*]] = "kernel.shared"() {symbol = "part1_full"}
  // CHECK: "kernel.tma_load"(%[[FULL]], %{{.*}}, %[[SECOND]], %{{.*}}, %[[RING]], %{{.*}})
  func.func @fetch_x(%x: memref<4096xbf16, 1>, %y: memref<64xf32, 1>, %symbols: memref<0xi64, 1>, %map: memref<128xi8, 4>) attributes {tile.arguments = ["read", "write"], kernel.block = 256 : i64, kernel.grid = [affine_map<() -> (2)>, affine_map<() -> ()>, affine_map<() -> ()>], kernel.tensor_maps = [{argument = 0 : i64, rows = 64 : i64}]} {
    %c0 = arith.constant 0 : index
    %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<4096xbf16, 3>
    %full = "kernel.shared"() {symbol = "full"} : () -> memref<1xi64, 3>
    "kernel.tma_load"(%full, %c0, %map, %c0, %c0, %c0, %ring, %c0) {element = bf16} : (memref<1xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<4096xbf16, 3>, index) -> ()
    return
  }
  func.func @fetch_w(%w: memref<4096xbf16, 1>, %y: memref<64xf32, 1>, %symbols: memref<0xi64, 1>, %map: memref<128xi8, 4>) attributes {tile.arguments = ["read", "write"], kernel.block = 256 : i64, kernel.grid = [affine_map<() -> (2)>, affine_map<() -> ()>, affine_map<() -> ()>], kernel.tensor_maps = [{argument = 0 : i64, rows = 32 : i64}]} {
    %c0 = arith.constant 0 : index
    %ring = "kernel.shared"() {symbol = "ring", align = 1024 : i64} : () -> memref<2048xbf16, 3>
    %full = "kernel.shared"() {symbol = "full"} : () -> memref<1xi64, 3>
    "kernel.tma_load"(%full, %c0, %map, %c0, %c0, %c0, %ring, %c0) {element = bf16} : (memref<1xi64, 3>, index, memref<128xi8, 4>, index, index, index, memref<2048xbf16, 3>, index) -> ()
    return
  }
}

}
