// RUN: tilec-opt %s --pass-pipeline='builtin.module(primop-decompose-softmax,primop-online-reductions)' --split-input-file | FileCheck %s

#row = affine_map<()[s0] -> (1, 16)>
#cache = affine_map<()[s0] -> (s0, 16)>
#products = affine_map<()[s0] -> (1, s0, 16)>
#weighted = affine_map<()[s0] -> (1, 16, s0)>
#scores = affine_map<()[s0] -> (1, s0)>
#all = affine_map<(i, j, k)[s0] -> (i, j, k)>
#first = affine_map<(i, j, k)[s0] -> (i, k)>
#second = affine_map<(i, j, k)[s0] -> (j, k)>
#across = affine_map<(i, j, k)[s0] -> (k, j)>
#whole = affine_map<(i, j)[s0] -> (i, j)>

// What only the chain reads is never in memory.
// CHECK-LABEL: func.func private @alone(
// CHECK: primop.sum{{.*}}primop.online
// CHECK: primop.exp2{{.*}}primop.online
// CHECK: return
module attributes {primop.symbols = {length = array<i64: 1, 64>}} {
func.func private @alone(%q: tensor<1x16xf32> {primop.kind = "argument", primop.shape = #row}, %keys: tensor<?x16xf32> {primop.kind = "argument", primop.shape = #cache}, %values: tensor<?x16xf32> {primop.kind = "argument", primop.shape = #cache}) -> tensor<1x16xf32> attributes {primop.chunk} {
  %0 = "primop.mul"(%q, %keys) {space = #products, maps = [#first, #second]} : (tensor<1x16xf32>, tensor<?x16xf32>) -> tensor<1x?x16xf32>
  %scores = "primop.sum"(%0) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x?x16xf32>) -> tensor<1x?xf32>
  %shares = "primop.softmax"(%scores) {space = #scores, maps = [#whole], dim = 1 : i64} : (tensor<1x?xf32>) -> tensor<1x?xf32>
  %1 = "primop.mul"(%shares, %values) {space = #weighted, maps = [#first, #across]} : (tensor<1x?xf32>, tensor<?x16xf32>) -> tensor<1x16x?xf32>
  %y = "primop.sum"(%1) {space = #weighted, maps = [#all], dims = array<i64: 2>} : (tensor<1x16x?xf32>) -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}
}

// -----

#row = affine_map<()[s0] -> (1, 16)>
#cache = affine_map<()[s0] -> (s0, 16)>
#products = affine_map<()[s0] -> (1, s0, 16)>
#weighted = affine_map<()[s0] -> (1, 16, s0)>
#scores = affine_map<()[s0] -> (1, s0)>
#all = affine_map<(i, j, k)[s0] -> (i, j, k)>
#first = affine_map<(i, j, k)[s0] -> (i, k)>
#second = affine_map<(i, j, k)[s0] -> (j, k)>
#across = affine_map<(i, j, k)[s0] -> (k, j)>
#whole = affine_map<(i, j)[s0] -> (i, j)>

// Shares that are a result as well are needed in memory, so there is no loop that makes them on the way.
// CHECK-LABEL: func.func private @shared(
// CHECK-NOT: primop.online
// CHECK: return
module attributes {primop.symbols = {length = array<i64: 1, 64>}} {
func.func private @shared(%q: tensor<1x16xf32> {primop.kind = "argument", primop.shape = #row}, %keys: tensor<?x16xf32> {primop.kind = "argument", primop.shape = #cache}, %values: tensor<?x16xf32> {primop.kind = "argument", primop.shape = #cache}) -> (tensor<1x16xf32>, tensor<1x?xf32>) attributes {primop.chunk} {
  %0 = "primop.mul"(%q, %keys) {space = #products, maps = [#first, #second]} : (tensor<1x16xf32>, tensor<?x16xf32>) -> tensor<1x?x16xf32>
  %scores = "primop.sum"(%0) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<1x?x16xf32>) -> tensor<1x?xf32>
  %shares = "primop.softmax"(%scores) {space = #scores, maps = [#whole], dim = 1 : i64} : (tensor<1x?xf32>) -> tensor<1x?xf32>
  %1 = "primop.mul"(%shares, %values) {space = #weighted, maps = [#first, #across]} : (tensor<1x?xf32>, tensor<?x16xf32>) -> tensor<1x16x?xf32>
  %y = "primop.sum"(%1) {space = #weighted, maps = [#all], dims = array<i64: 2>} : (tensor<1x16x?xf32>) -> tensor<1x16xf32>
  return %y, %shares : tensor<1x16xf32>, tensor<1x?xf32>
}
}
