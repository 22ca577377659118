// RUN: tilec-opt %s --pass-pipeline='builtin.module(tile-software-pipeline,canonicalize,tilec-cse)' | FileCheck %s

#m = {name = "m", extent = affine_map<()[n] -> (n)>, layout = array<i64: 64, 16, 1, 1>, walk = "grid", warps = 2 : i64}
#n = {name = "n", extent = affine_map<()[n] -> (72)>, layout = array<i64: 32, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<()[n] -> (200)>, layout = array<i64: 64, 1, 1, 1>, walk = "loop"}

module attributes {primop.symbols = {n = array<i64: 1, 128>}} {
module @kernels {

// With three slots the first two turns are fetched before the loop, a group each, and then each turn awaits all groups but the
// last and fetches for two turns later, if there is such a turn.
// CHECK-LABEL: func.func @product(
// CHECK: %[[WS:.*]] = "tile.ring"() : () -> memref<3x32x64xbf16, 3>
// CHECK: %[[XS:.*]] = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
// CHECK: "tile.fetch"(%[[XS]], %c0, %arg0, %{{.*}}, %{{.*}}, %c0)
// CHECK-NEXT: "tile.fetch"(%[[WS]], %c0, %arg1, %{{.*}}, %{{.*}}, %c0)
// CHECK-NEXT: "tile.commit"()
// CHECK-NEXT: "tile.fetch"(%[[XS]], %c1, %arg0, %{{.*}}, %{{.*}}, %c64)
// CHECK-NEXT: "tile.fetch"(%[[WS]], %c1, %arg1, %{{.*}}, %{{.*}}, %c64)
// CHECK-NEXT: "tile.commit"()
// CHECK-NEXT: scf.for %[[K:.*]] = %c0 to %c256 step %c64 iter_args(%[[SO_FAR:.*]] = %{{.*}})
// CHECK-NEXT: %[[TURN:.*]] = arith.divui %[[K]], %c64
// CHECK-NEXT: %[[A:.*]] = "tile.await"(%[[XS]], %[[TURN]]) {later = 1 : i64}
// CHECK-NEXT: %[[B:.*]] = "tile.await"(%[[WS]], %[[TURN]]) {later = 1 : i64}
// CHECK-NEXT: %[[AHEAD:.*]] = arith.addi %[[K]], %c128
// CHECK-NEXT: %[[EXISTS:.*]] = arith.cmpi ult, %[[AHEAD]], %c256
// CHECK-NEXT: scf.if %[[EXISTS]] {
// CHECK-NEXT:   %[[LATER:.*]] = arith.divui %[[AHEAD]], %c64
// CHECK-NEXT:   "tile.fetch"(%[[XS]], %[[LATER]], %arg0, %{{.*}}, %{{.*}}, %[[AHEAD]])
// CHECK-NEXT:   "tile.fetch"(%[[WS]], %[[LATER]], %arg1, %{{.*}}, %{{.*}}, %[[AHEAD]]){{.*}}
// CHECK-NEXT: }
// CHECK-NEXT: "tile.commit"()
// CHECK-NEXT: "tile.dot_shared"(%[[A]], %[[B]], %[[SO_FAR]])
// CHECK-NEXT: "tile.release"(%[[XS]], %[[TURN]])
// CHECK-NEXT: "tile.release"(%[[WS]], %[[TURN]])
// CHECK-NEXT: scf.yield
func.func @product(%x: memref<128x200xbf16>, %w: memref<72x200xbf16>, %y: memref<128x72xf32>) attributes {tile.arguments = ["read", "weight", "write"], tile.kernel, tile.schedule = {axes = [#m, #n, #k], copied, dot = true, order = array<i64: 1, 0>, stages = 3 : i64, tensor, unroll = 1 : i64}} {
  %ws = "tile.ring"() : () -> memref<3x32x64xbf16, 3>
  %xs = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c256 step %c64 iter_args(%so_far = %zeros) -> (vector<64x32x1xf32>) {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%xs, %turn, %x, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (m, k)>, rows = array<i64: 0>} : (memref<3x64x64xbf16, 3>, index, memref<128x200xbf16>, index, index, index) -> ()
    "tile.fetch"(%ws, %turn, %w, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (n, k)>, rows = array<i64: 1>} : (memref<3x32x64xbf16, 3>, index, memref<72x200xbf16>, index, index, index) -> ()
    "tile.commit"() : () -> ()
    %a = "tile.await"(%xs, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %b = "tile.await"(%ws, %turn) : (memref<3x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    %more = "tile.dot_shared"(%a, %b, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<32x64xbf16, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    "tile.release"(%xs, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<3x32x64xbf16, 3>, index) -> ()
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1, 71 - n)>} : (vector<64x32x1xf32>, memref<128x72xf32>, index, index, index, index) -> ()
  return
}

// Two loops along one axis are one, also where only one of them looks at a length: there is one prologue, and the first loop
// fetches what the second one awaits.
// CHECK-LABEL: func.func @two_loops(
// CHECK-COUNT-2: "tile.commit"()
// CHECK-NEXT: scf.for %[[K:.*]] = %c0 to %c128 step %c64
// CHECK: %[[AHEAD:.*]] = arith.addi %[[K]], %c128
// CHECK-NEXT: arith.cmpi ult, %[[AHEAD]], %c256
// CHECK: "tile.commit"()
// CHECK: scf.yield
// CHECK-NOT: tile.fetch
// CHECK: scf.for %[[K:.*]] = %c128 to %c256 step %c64
// CHECK: "tile.await"({{.*}}) {later = 1 : i64}
// CHECK: %[[AHEAD:.*]] = arith.addi %[[K]], %c128
// CHECK-NEXT: arith.cmpi ult, %[[AHEAD]], %c256
func.func @two_loops(%x: memref<128x200xbf16>, %w: memref<72x200xbf16>, %y: memref<128x72xf32>) attributes {tile.arguments = ["read", "weight", "write"], tile.kernel, tile.schedule = {axes = [#m, #n, #k], copied, dot = true, order = array<i64: 1, 0>, stages = 3 : i64, tensor, unroll = 1 : i64}} {
  %ws = "tile.ring"() : () -> memref<3x32x64xbf16, 3>
  %xs = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %part = scf.for %k = %c0 to %c128 step %c64 iter_args(%so_far = %zeros) -> (vector<64x32x1xf32>) {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%xs, %turn, %x, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (m, k)>, rows = array<i64: 0>} : (memref<3x64x64xbf16, 3>, index, memref<128x200xbf16>, index, index, index) -> ()
    "tile.fetch"(%ws, %turn, %w, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (n, k)>, rows = array<i64: 1>} : (memref<3x32x64xbf16, 3>, index, memref<72x200xbf16>, index, index, index) -> ()
    "tile.commit"() : () -> ()
    %a = "tile.await"(%xs, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %b = "tile.await"(%ws, %turn) : (memref<3x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    %more = "tile.dot_shared"(%a, %b, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<32x64xbf16, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    "tile.release"(%xs, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<3x32x64xbf16, 3>, index) -> ()
    scf.yield %more : vector<64x32x1xf32>
  }
  %sum = scf.for %k = %c128 to %c256 step %c64 iter_args(%so_far = %part) -> (vector<64x32x1xf32>) {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%xs, %turn, %x, %i, %j, %k, %n) {column = 2 : i64, column_limit = affine_map<()[s] -> (200)>, map = affine_map<(m, n, k)[s] -> (m, k)>, rows = array<i64: 0>} : (memref<3x64x64xbf16, 3>, index, memref<128x200xbf16>, index, index, index, index) -> ()
    "tile.fetch"(%ws, %turn, %w, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (n, k)>, rows = array<i64: 1>} : (memref<3x32x64xbf16, 3>, index, memref<72x200xbf16>, index, index, index) -> ()
    "tile.commit"() : () -> ()
    %a = "tile.await"(%xs, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %b = "tile.await"(%ws, %turn) : (memref<3x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    %more = "tile.dot_shared"(%a, %b, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<32x64xbf16, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    "tile.release"(%xs, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<3x32x64xbf16, 3>, index) -> ()
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1, 71 - n)>} : (vector<64x32x1xf32>, memref<128x72xf32>, index, index, index, index) -> ()
  return
}

// Where threads of their own fetch, these run ahead by themselves.
// CHECK-LABEL: func.func @by_tma(
// CHECK-NOT: tile.commit
// CHECK: scf.for
// CHECK: "tile.fetch"
// CHECK: "tile.await"({{[^)]*}}) :
func.func @by_tma(%x: memref<128x200xbf16>, %w: memref<72x200xbf16>, %y: memref<128x72xf32>) attributes {tile.arguments = ["read", "weight", "write"], tile.kernel, tile.schedule = {axes = [#m, #n, #k], dot = true, order = array<i64: 1, 0>, stages = 3 : i64, tensor, unroll = 1 : i64}} {
  %ws = "tile.ring"() : () -> memref<3x32x64xbf16, 3>
  %xs = "tile.ring"() : () -> memref<3x64x64xbf16, 3>
  %row = "tile.program_id"() {axis = 0 : i64} : () -> index
  %column = "tile.program_id"() {axis = 1 : i64} : () -> index
  %n = "tile.symbol"() {symbol = "n"} : () -> index
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %i = arith.muli %row, %c64 : index
  %j = arith.muli %column, %c32 : index
  %zeros = arith.constant dense<0.0> : vector<64x32x1xf32>
  %sum = scf.for %k = %c0 to %c256 step %c64 iter_args(%so_far = %zeros) -> (vector<64x32x1xf32>) {
    %turn = arith.divui %k, %c64 : index
    "tile.fetch"(%xs, %turn, %x, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (m, k)>, rows = array<i64: 0>} : (memref<3x64x64xbf16, 3>, index, memref<128x200xbf16>, index, index, index) -> ()
    "tile.fetch"(%ws, %turn, %w, %i, %j, %k) {column = 2 : i64, column_limit = affine_map<() -> (200)>, map = affine_map<(m, n, k) -> (n, k)>, rows = array<i64: 1>} : (memref<3x32x64xbf16, 3>, index, memref<72x200xbf16>, index, index, index) -> ()
    %a = "tile.await"(%xs, %turn) : (memref<3x64x64xbf16, 3>, index) -> memref<64x64xbf16, 3>
    %b = "tile.await"(%ws, %turn) : (memref<3x32x64xbf16, 3>, index) -> memref<32x64xbf16, 3>
    %more = "tile.dot_shared"(%a, %b, %so_far) {lhs_rows = array<i64: 0>, rhs_rows = array<i64: 1>} : (memref<64x64xbf16, 3>, memref<32x64xbf16, 3>, vector<64x32x1xf32>) -> vector<64x32x1xf32>
    "tile.release"(%xs, %turn) {running = 0 : i64} : (memref<3x64x64xbf16, 3>, index) -> ()
    "tile.release"(%ws, %turn) {running = 0 : i64} : (memref<3x32x64xbf16, 3>, index) -> ()
    scf.yield %more : vector<64x32x1xf32>
  }
  "tile.store"(%sum, %y, %i, %j, %c0, %n) {map = affine_map<(m, n, k)[s] -> (m, n)>, mask = affine_map<(m, n, k)[s] -> (s - m - 1, 71 - n)>} : (vector<64x32x1xf32>, memref<128x72xf32>, index, index, index, index) -> ()
  return
}

}
}
