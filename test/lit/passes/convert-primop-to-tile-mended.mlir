// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_80}, tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s --check-prefix=APART
// RUN: tilec-opt %s --split-input-file --pass-pipeline='builtin.module( \
// RUN:   primop-online-rows, convert-primop-to-tile{target=sm_80}, tilec-cse, tilec-dce)' \
// RUN: | FileCheck %s

#x = affine_map<() -> (64, 65536)>
#rows = affine_map<() -> (64)>
#row = affine_map<(i) -> (i)>
#identity = affine_map<(i, j) -> (i, j)>
#of_row = affine_map<(i, j) -> (i)>
#scalar = affine_map<(i, j) -> ()>
#row_scalar = affine_map<(i) -> ()>

// As it is written: a loop for the maximum, and one for the exponentials.
// APART-LABEL: func.func @log_sum_exp(
// APART: scf.for
// APART: arith.maximumf
// APART: scf.for
// APART: math.exp2
// APART-NOT: scf.for
// APART: return

// In one loop every thread carries the maximum of what it has seen, and the sum relative to it, of 16 elements a turn. When
// the maximum grows, the sum is mended; where nothing has been seen but -inf, the exponentials are relative to zero.
// CHECK-LABEL: func.func @log_sum_exp(
// CHECK-SAME: %[[X:[^:]*]]: memref<64x65536xf32>
// CHECK: %[[ROW:.*]]:2 = scf.for %{{.*}} = %c0 to %c65536 step %c4096 iter_args(%[[MAX:.*]] = %[[NONE:.*]], %[[SUM:.*]] = %[[ZERO:[^)]*]]) ->
// CHECK-NEXT: %[[TILE:.*]] = "tile.load"(%[[X]],
// CHECK: %[[HERE:.*]] = "tile.reduce"(%[[TILE]]) {axes = array<i64: 1>, kind = "max"} : (vector<1x4096xf32>) -> vector<1x256xf32>
// CHECK: %[[LARGER:.*]] = arith.maximumf %[[MAX]], %[[HERE]]
// CHECK: %[[FACTOR:.*]] = math.exp2 {{.*}} : vector<1x256xf32>
// CHECK: %[[SAME:.*]] = arith.cmpf oeq, %[[MAX]], %[[LARGER]]
// CHECK: %[[MEND:.*]] = arith.select %[[SAME]], %{{.*}}, %[[FACTOR]]
// CHECK: %[[NOTHING:.*]] = arith.cmpf oeq, %[[LARGER]], %[[NONE]]
// CHECK: %[[REFERENCE:.*]] = arith.select %[[NOTHING]], %[[ZERO]], %[[LARGER]]
// CHECK: %[[MENDED:.*]] = arith.mulf %[[SUM]], %[[MEND]]
// CHECK: %[[TERM:.*]] = arith.mulf %[[REFERENCE]],
// CHECK: "tile.spread"(%[[TERM]])
// CHECK: %[[POWERS:.*]] = math.exp2 {{.*}} : vector<1x4096xf32>
// CHECK: %[[MORE:.*]] = "tile.reduce"(%[[POWERS]]) {axes = array<i64: 1>, kind = "add"} : (vector<1x4096xf32>) -> vector<1x256xf32>
// CHECK: %[[NEXT:.*]] = arith.addf %[[MENDED]], %[[MORE]]
// CHECK: scf.yield %[[LARGER]], %[[NEXT]]

// After it the threads' sums are mended to the maximum of the whole row.
// CHECK-NOT: scf.for
// CHECK: %[[LARGEST:.*]] = "tile.reduce"(%[[ROW]]#0) {axes = array<i64: 1>, kind = "max"} : (vector<1x256xf32>) -> vector<1x1xf32>
// CHECK: math.exp2
// CHECK: %[[PARTS:.*]] = arith.mulf %[[ROW]]#1,
// CHECK: %[[TOTAL:.*]] = "tile.reduce"(%[[PARTS]]) {axes = array<i64: 1>, kind = "add"} : (vector<1x256xf32>) -> vector<1x1xf32>
// CHECK: math.log2 %[[TOTAL]]
func.func private @log_sum_exp(%x: tensor<64x65536xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<64xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %minus = "primop.constant"() {value = -1.0 : f32} : () -> tensor<f32>
  %negative = "primop.mul"(%largest, %minus) {space = #rows, maps = [#row, #row_scalar]} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %distance = "primop.add"(%x, %negative) {space = #x, maps = [#identity, #of_row]} : (tensor<64x65536xf32>, tensor<64xf32>) -> tensor<64x65536xf32>
  %scale = "primop.constant"() {value = 1.5 : f32} : () -> tensor<f32>
  %scaled = "primop.mul"(%distance, %scale) {space = #x, maps = [#identity, #scalar]} : (tensor<64x65536xf32>, tensor<f32>) -> tensor<64x65536xf32>
  %powers = "primop.exp2"(%scaled) {space = #x, maps = [#identity]} : (tensor<64x65536xf32>) -> tensor<64x65536xf32>
  %total = "primop.sum"(%powers) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %log = "primop.log2"(%total) {space = #rows, maps = [#row]} : (tensor<64xf32>) -> tensor<64xf32>
  %result = "primop.add"(%log, %largest) {space = #rows, maps = [#row, #row]} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %result : tensor<64xf32>
}

// -----

#x = affine_map<() -> (64, 65536)>
#rows = affine_map<() -> (64)>
#row = affine_map<(i) -> (i)>
#identity = affine_map<(i, j) -> (i, j)>
#of_row = affine_map<(i, j) -> (i)>
#scalar = affine_map<(i, j) -> ()>
#row_scalar = affine_map<(i) -> ()>

// APART-LABEL: func.func @variance(
// APART: scf.for
// APART: scf.for
// APART-NOT: scf.for
// APART: return

// A thread carries its sum, as before, and of the squares a reference, a count, a mean and what lies around it: the mean of
// its first tile is the reference, and the distances from it are what is added up. Then two parts merge.
// CHECK-LABEL: func.func @variance(
// CHECK-SAME: %[[X:[^:]*]]: memref<64x65536xf32>
// CHECK: %[[ROW:.*]]:5 = scf.for {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}, %[[OLD:.*]] = %{{.*}}, %[[COUNT:.*]] = %[[ZERO:.*]], %[[MEAN:.*]] = %{{.*}}, %[[SQUARES:.*]] = %{{.*}}) -> (vector<1x4096xf32>, vector<1x256xf32>,
// CHECK-NEXT: %[[TILE:.*]] = "tile.load"(%[[X]],
// CHECK: %[[FIRST:.*]] = arith.cmpf oeq, %[[COUNT]],
// CHECK: %[[REFERENCE:.*]] = arith.select %[[FIRST]], %{{.*}}, %[[OLD]]
// CHECK: %[[NEAR:.*]] = arith.subf %[[TILE]],
// CHECK: "tile.reduce"(%[[NEAR]])
// CHECK: %[[CENTER:.*]] = arith.divf
// CHECK: %[[DISTANCE:.*]] = arith.subf %[[NEAR]],
// CHECK: %[[ALL:.*]] = arith.addf %[[COUNT]],
// CHECK: %[[SHARE:.*]] = arith.divf %{{.*}}, %[[ALL]]
// CHECK: %[[STEP:.*]] = arith.subf %[[CENTER]], %[[MEAN]]
// CHECK: arith.mulf %[[DISTANCE]], %[[DISTANCE]]
// CHECK: scf.yield

// The mean of all is known only now, and the parts' squares around it follow.
// CHECK-NOT: tile.load
// CHECK: %[[PART:.*]] = arith.addf %{{.*}}, %[[ROW]]#3
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[PART]], %[[PART]]
// CHECK: arith.mulf %[[ROW]]#2, %[[SQUARE]]
// CHECK: arith.addf %[[ROW]]#4,
// CHECK: "tile.reduce"
// CHECK: "tile.store"
func.func private @variance(%x: tensor<64x65536xf32> {primop.kind = "argument", primop.shape = #x}) -> (tensor<64xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %total = "primop.sum"(%x) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  %share = "primop.constant"() {value = -1.52587890625e-5 : f32} : () -> tensor<f32>
  %negative = "primop.mul"(%total, %share) {space = #rows, maps = [#row, #row_scalar]} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %distance = "primop.add"(%x, %negative) {space = #x, maps = [#identity, #of_row]} : (tensor<64x65536xf32>, tensor<64xf32>) -> tensor<64x65536xf32>
  %squares = "primop.mul"(%distance, %distance) {space = #x, maps = [#identity, #identity]} : (tensor<64x65536xf32>, tensor<64x65536xf32>) -> tensor<64x65536xf32>
  %spread = "primop.sum"(%squares) {space = #x, maps = [#identity], dims = array<i64: 1>} : (tensor<64x65536xf32>) -> tensor<64xf32>
  return %spread : tensor<64xf32>
}
