// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-decompose-softmax,primop-online-reductions{rows=true})' | FileCheck %s
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(primop-decompose-softmax,primop-online-reductions)' | FileCheck %s --check-prefix=FEW --implicit-check-not=primop.online

#query = affine_map<()[n, m] -> (2, m, 64)>
#cache = affine_map<()[n, m] -> (2, n, 64)>
#scores = affine_map<()[n, m] -> (2, m, n)>
#qk = affine_map<()[n, m] -> (2, m, n, 64)>
#pv = affine_map<()[n, m] -> (2, m, 64, n)>
#identity = affine_map<(h, i, j)[n, m] -> (h, i, j)>
#all = affine_map<(h, i, j, d)[n, m] -> (h, i, j, d)>
#rows = affine_map<(h, i, j, d)[n, m] -> (h, i, d)>
#keys = affine_map<(h, i, j, d)[n, m] -> (h, j, d)>
#shares = affine_map<(h, i, d, j)[n, m] -> (h, i, j)>
#values = affine_map<(h, i, d, j)[n, m] -> (h, j, d)>

module attributes {primop.symbols = {n = array<i64: 1, 256>, m = array<i64: 1, 256>}} {

// Many queries are one chain where both products suit tensor cores: 16-bit operands and heads of whole steps of 16. The cast
// of the shares then rounds the exponentials, before their total is known, and what is mixed is divided by the total.
// CHECK-LABEL: func.func private @many(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x?x64xbf16> {{{.*}}, %[[K:[^:]*]]: tensor<2x?x64xbf16> {{{.*}}, %[[V:[^:]*]]: tensor<2x?x64xbf16> {
// CHECK: %[[PRODUCTS:.*]] = "primop.mul"(%[[Q]], %[[K]])
// CHECK-NOT: primop.online
// CHECK: %[[SCORES:.*]] = "primop.sum"(%[[PRODUCTS]]) {{{.*}}primop.online
// CHECK: "primop.max"(%[[SCORES]]) {{{.*}}primop.online
// CHECK: %[[POWERS:.*]] = "primop.exp2"(%{{.*}}) {{{.*}}primop.online
// CHECK: %[[TOTAL:.*]] = "primop.sum"(%[[POWERS]]) {{{.*}}primop.online
// CHECK: %[[INVERSE:.*]] = "primop.recip"
// CHECK: %[[NARROW:.*]] = "primop.cast"(%[[POWERS]]) {{{.*}}primop.online{{.*}} -> tensor<2x?x?xbf16>
// CHECK: %[[WEIGHTED:.*]] = "primop.mul"(%[[NARROW]], %[[V]]) {{{.*}}primop.online
// CHECK: %[[MIXED:.*]] = "primop.sum"(%[[WEIGHTED]]) {{{.*}}primop.online
// CHECK: %[[RESULT:.*]] = "primop.mul"(%[[MIXED]], %[[INVERSE]])
// CHECK-NOT: primop.online
// CHECK: return %[[RESULT]]
// FEW-LABEL: func.func private @many(
func.func private @many(%q: tensor<2x?x64xbf16> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x?x64xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [#rows, #keys]} : (tensor<2x?x64xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x?x64xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x?x64xf32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#identity]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [#shares, #values]} : (tensor<2x?x?xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x64x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x64x?xf32>) -> tensor<2x?x64xf32>
  return %mixed : tensor<2x?x64xf32>
}

}

// -----

#query = affine_map<()[n, m] -> (2, m, 96)>
#cache = affine_map<()[n, m] -> (2, n, 96)>
#scores = affine_map<()[n, m] -> (2, m, n)>
#qk = affine_map<()[n, m] -> (2, m, n, 96)>
#pv = affine_map<()[n, m] -> (2, m, 96, n)>
#identity = affine_map<(h, i, j)[n, m] -> (h, i, j)>
#all = affine_map<(h, i, j, d)[n, m] -> (h, i, j, d)>
#rows = affine_map<(h, i, j, d)[n, m] -> (h, i, d)>
#keys = affine_map<(h, i, j, d)[n, m] -> (h, j, d)>
#shares = affine_map<(h, i, d, j)[n, m] -> (h, i, j)>
#values = affine_map<(h, i, d, j)[n, m] -> (h, j, d)>

module attributes {primop.symbols = {n = array<i64: 1, 256>, m = array<i64: 1, 256>}} {

// Heads need not be whole swizzles.
// CHECK-LABEL: func.func private @steps(
// CHECK: "primop.max"({{.*}}primop.online
// CHECK: "primop.mul"({{.*}}primop.online
// CHECK: "primop.sum"({{.*}}primop.online
// CHECK: return
func.func private @steps(%q: tensor<2x?x96xbf16> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x96xbf16> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x96xbf16> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x?x96xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [#rows, #keys]} : (tensor<2x?x96xbf16>, tensor<2x?x96xbf16>) -> tensor<2x?x?x96xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x?x96xf32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#identity]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [#shares, #values]} : (tensor<2x?x?xbf16>, tensor<2x?x96xbf16>) -> tensor<2x?x96x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x96x?xf32>) -> tensor<2x?x96xf32>
  return %mixed : tensor<2x?x96xf32>
}

}

// -----

#query = affine_map<()[n, m] -> (2, m, 64)>
#cache = affine_map<()[n, m] -> (2, n, 64)>
#scores = affine_map<()[n, m] -> (2, m, n)>
#qk = affine_map<()[n, m] -> (2, m, n, 64)>
#pv = affine_map<()[n, m] -> (2, m, 64, n)>
#identity = affine_map<(h, i, j)[n, m] -> (h, i, j)>
#all = affine_map<(h, i, j, d)[n, m] -> (h, i, j, d)>
#rows = affine_map<(h, i, j, d)[n, m] -> (h, i, d)>
#keys = affine_map<(h, i, j, d)[n, m] -> (h, j, d)>
#shares = affine_map<(h, i, d, j)[n, m] -> (h, i, j)>
#values = affine_map<(h, i, d, j)[n, m] -> (h, j, d)>

module attributes {primop.symbols = {n = array<i64: 1, 256>, m = array<i64: 1, 256>}} {

// Operands of 32 bits are left to kernels of their own ...
// CHECK-LABEL: func.func private @wide(
// CHECK-NOT: primop.online
// CHECK: return
func.func private @wide(%q: tensor<2x?x64xf32> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x64xf32> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x64xf32> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x?x64xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [#rows, #keys]} : (tensor<2x?x64xf32>, tensor<2x?x64xf32>) -> tensor<2x?x?x64xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x?x64xf32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#identity]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [#shares, #values]} : (tensor<2x?x?xf32>, tensor<2x?x64xf32>) -> tensor<2x?x64x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x64x?xf32>) -> tensor<2x?x64xf32>
  return %mixed : tensor<2x?x64xf32>
}

}

// -----

#query = affine_map<()[n, m] -> (2, m, 40)>
#cache = affine_map<()[n, m] -> (2, n, 40)>
#scores = affine_map<()[n, m] -> (2, m, n)>
#qk = affine_map<()[n, m] -> (2, m, n, 40)>
#pv = affine_map<()[n, m] -> (2, m, 40, n)>
#identity = affine_map<(h, i, j)[n, m] -> (h, i, j)>
#all = affine_map<(h, i, j, d)[n, m] -> (h, i, j, d)>
#rows = affine_map<(h, i, j, d)[n, m] -> (h, i, d)>
#keys = affine_map<(h, i, j, d)[n, m] -> (h, j, d)>
#shares = affine_map<(h, i, d, j)[n, m] -> (h, i, j)>
#values = affine_map<(h, i, d, j)[n, m] -> (h, j, d)>

module attributes {primop.symbols = {n = array<i64: 1, 256>, m = array<i64: 1, 256>}} {

// ... and so are heads that end inside a step ...
// CHECK-LABEL: func.func private @odd(
// CHECK-NOT: primop.online
// CHECK: return
func.func private @odd(%q: tensor<2x?x40xbf16> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x40xbf16> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x40xbf16> {primop.kind = "state", primop.shape = #cache}) -> (tensor<2x?x40xf32> {primop.shape = #query}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [#rows, #keys]} : (tensor<2x?x40xbf16>, tensor<2x?x40xbf16>) -> tensor<2x?x?x40xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x?x40xf32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#identity]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [#shares, #values]} : (tensor<2x?x?xbf16>, tensor<2x?x40xbf16>) -> tensor<2x?x40x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x40x?xf32>) -> tensor<2x?x40xf32>
  return %mixed : tensor<2x?x40xf32>
}

}

// -----

#query = affine_map<()[n, m] -> (2, m, 64)>
#cache = affine_map<()[n, m] -> (2, n, 64)>
#wide = affine_map<()[n, m] -> (2, n, 96)>
#result = affine_map<()[n, m] -> (2, m, 96)>
#scores = affine_map<()[n, m] -> (2, m, n)>
#qk = affine_map<()[n, m] -> (2, m, n, 64)>
#pv = affine_map<()[n, m] -> (2, m, 96, n)>
#identity = affine_map<(h, i, j)[n, m] -> (h, i, j)>
#all = affine_map<(h, i, j, d)[n, m] -> (h, i, j, d)>
#rows = affine_map<(h, i, j, d)[n, m] -> (h, i, d)>
#keys = affine_map<(h, i, j, d)[n, m] -> (h, j, d)>
#shares = affine_map<(h, i, d, j)[n, m] -> (h, i, j)>
#values = affine_map<(h, i, d, j)[n, m] -> (h, j, d)>

module attributes {primop.symbols = {n = array<i64: 1, 256>, m = array<i64: 1, 256>}} {

// ... and values that are wider than keys: one axis of the loop is both widths.
// CHECK-LABEL: func.func private @unequal(
// CHECK-NOT: primop.online
// CHECK: return
func.func private @unequal(%q: tensor<2x?x64xbf16> {primop.kind = "argument", primop.shape = #query}, %k: tensor<2x?x64xbf16> {primop.kind = "state", primop.shape = #cache}, %v: tensor<2x?x96xbf16> {primop.kind = "state", primop.shape = #wide}) -> (tensor<2x?x96xf32> {primop.shape = #result}) attributes {primop.chunk} {
  %scores = "primop.mul"(%q, %k) {space = #qk, maps = [#rows, #keys]} : (tensor<2x?x64xbf16>, tensor<2x?x64xbf16>) -> tensor<2x?x?x64xf32>
  %x = "primop.sum"(%scores) {space = #qk, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x?x64xf32>) -> tensor<2x?x?xf32>
  %shares = "primop.softmax"(%x) {space = #scores, maps = [#identity], dim = 2 : i64} : (tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %p = "primop.cast"(%shares) {space = #scores, maps = [#identity]} : (tensor<2x?x?xf32>) -> tensor<2x?x?xbf16>
  %products = "primop.mul"(%p, %v) {space = #pv, maps = [#shares, #values]} : (tensor<2x?x?xbf16>, tensor<2x?x96xbf16>) -> tensor<2x?x96x?xf32>
  %mixed = "primop.sum"(%products) {space = #pv, maps = [#all], dims = array<i64: 3>} : (tensor<2x?x96x?xf32>) -> tensor<2x?x96xf32>
  return %mixed : tensor<2x?x96xf32>
}

}
