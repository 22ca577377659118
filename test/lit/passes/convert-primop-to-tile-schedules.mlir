// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx512})' | FileCheck %s --check-prefix=AVX512
// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=x86-64-avx2})' | FileCheck %s --check-prefix=AVX2
// RUN: tilec-opt %s --pass-pipeline='builtin.module(convert-primop-to-tile{target=sm_90a})' | FileCheck %s --check-prefix=SM90A

// A layout reads: elements of a tile, threads along the axis, neighbouring elements of one thread, blocks of a cluster.

#square = affine_map<()[n] -> (1024, 1024)>
#rows = affine_map<()[n] -> (1024)>
#identity = affine_map<(i, j)[n] -> (i, j)>
#x = affine_map<()[n] -> (n, 1024)>
#vector = affine_map<()[n] -> (1024)>
#y = affine_map<()[n] -> (n, 1024)>
#products = affine_map<()[n] -> (n, 1024, 1024)>
#packed = affine_map<()[n] -> (64, 512, 16, 2)>
#all = affine_map<(m, n, k)[s] -> (m, n, k)>
#long = affine_map<()[n] -> (131072)>
#same = affine_map<(i)[n] -> (i)>
#one = affine_map<()[n] -> ()>
#scalar = affine_map<()[n] -> ()>
#lhs = affine_map<(m, n, k)[s] -> (m, k)>
#rhs = affine_map<(m, n, k)[s] -> (n, k)>

module attributes {primop.symbols = {n = array<i64: 1, 64>}} {

// Elementwise work is spread along the axis in which memory is contiguous: four registers of a CPU, 16 bytes of bf16
// for each of a GPU's threads.
// AVX512-LABEL: func.func @elementwise(
// AVX512-SAME: layout = array<i64: 1, 1, 1, 1>, name = "x0", walk = "grid"
// AVX512-SAME: layout = array<i64: 64, 1, 16, 1>, name = "x1", walk = "grid"
// AVX2-LABEL: func.func @elementwise(
// AVX2-SAME: layout = array<i64: 32, 1, 8, 1>, name = "x1", walk = "grid"
// SM90A-LABEL: func.func @elementwise(
// SM90A-SAME: layout = array<i64: 1024, 128, 8, 1>, name = "x1", walk = "grid"
func.func private @elementwise(%x: tensor<1024x1024xbf16> {primop.kind = "argument", primop.shape = #square}) -> (tensor<1024x1024xbf16> {primop.shape = #square}) attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {space = #square, maps = [#identity]} : (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %y : tensor<1024x1024xbf16>
}

// A transposed copy is contiguous once along either axis; then the last one is spread.
// AVX512-LABEL: func.func @transposed(
// AVX512-SAME: layout = array<i64: 1, 1, 1, 1>, name = "x0"
// AVX512-SAME: layout = array<i64: 64, 1, 16, 1>, name = "x1"
func.func private @transposed(%x: tensor<1024x1024xf32> {primop.kind = "argument", primop.shape = #square}) -> (tensor<1024x1024xf32> {primop.shape = #square}) attributes {primop.kernel} {
  %y = "primop.exp2"(%x) {space = #square, maps = [affine_map<(i, j)[n] -> (j, i)>]} : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %y : tensor<1024x1024xf32>
}

// A norm splits its rows over the grid and walks a row inside a program.
// AVX512-LABEL: func.func @norm(
// AVX512-SAME: layout = array<i64: 1, 1, 1, 1>, name = "x0", walk = "grid"
// AVX512-SAME: layout = array<i64: 64, 1, 16, 1>, name = "r1", walk = "loop"
// SM90A-LABEL: func.func @norm(
// SM90A-SAME: layout = array<i64: 1, 1, 1, 1>, name = "x0", walk = "grid"
// SM90A-SAME: layout = array<i64: 1024, 128, 8, 1>, name = "r1", walk = "loop"
func.func private @norm(%x: tensor<1024x1024xf32> {primop.kind = "argument", primop.shape = #square}) -> (tensor<1024x1024xf32> {primop.shape = #square}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = #square, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x1024xf32>) -> tensor<1024xf32>
  %y = "primop.mul"(%x, %largest) {space = #square, maps = [#identity, affine_map<(i, j)[n] -> (i)>]} : (tensor<1024x1024xf32>, tensor<1024xf32>) -> tensor<1024x1024xf32>
  return %y : tensor<1024x1024xf32>
}

// A short row that is read again is kept: two vectors of each thread. One that is read once is not.
// SM90A-LABEL: func.func @kept(
// SM90A-SAME: layout = array<i64: 4096, 256, 8, 1>, name = "r1", walk = "loop"
// SM90A-LABEL: func.func @passing(
// SM90A-SAME: layout = array<i64: 2048, 256, 8, 1>, name = "r1", walk = "loop"
func.func private @kept(%x: tensor<1024x4096xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (1024, 4096)>}) -> (tensor<1024x4096xf32> {primop.shape = affine_map<()[n] -> (1024, 4096)>}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = affine_map<()[n] -> (1024, 4096)>, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x4096xf32>) -> tensor<1024xf32>
  %y = "primop.mul"(%x, %largest) {space = affine_map<()[n] -> (1024, 4096)>, maps = [#identity, affine_map<(i, j)[n] -> (i)>]} : (tensor<1024x4096xf32>, tensor<1024xf32>) -> tensor<1024x4096xf32>
  return %y : tensor<1024x4096xf32>
}
func.func private @passing(%x: tensor<1024x4096xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (1024, 4096)>}) -> (tensor<1024xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %largest = "primop.max"(%x) {space = affine_map<()[n] -> (1024, 4096)>, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x4096xf32>) -> tensor<1024xf32>
  return %largest : tensor<1024xf32>
}

// A matrix product with packed weights: eight rows by two registers of columns, bf16 in pairs, all row tiles of one
// panel in turn. On a GPU a square of threads, each with a small square of results.
// AVX512-LABEL: func.func @matmul(
// AVX512-SAME: layout = array<i64: 8, 1, 1, 1>, name = "m", walk = "grid"
// AVX512-SAME: layout = array<i64: 32, 1, 16, 1>, name = "n", walk = "grid"
// AVX512-SAME: layout = array<i64: 2, 1, 2, 1>, name = "k", walk = "loop"
// AVX512-SAME: dot = true, order = array<i64: 1, 0>
// SM90A-LABEL: func.func @matmul(
// SM90A-SAME: layout = array<i64: {{[0-9]+}}, 16, 1, 1>, name = "m", walk = "grid"
// SM90A-SAME: layout = array<i64: {{[0-9]+}}, 16, 1, 1>, name = "n", walk = "grid"
// SM90A-SAME: name = "k", walk = "loop"
// SM90A-SAME: dot = true
func.func private @matmul(%x: tensor<?x1024xbf16> {primop.kind = "argument", primop.shape = #x}, %w: tensor<64x512x16x2xbf16> {primop.kind = "weight", primop.shape = #packed}) -> (tensor<?x1024xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, affine_map<(m, n, k)[s] -> (n floordiv 16, k floordiv 2, n mod 16, k mod 2)>]} : (tensor<?x1024xbf16>, tensor<64x512x16x2xbf16>) -> tensor<?x1024x1024xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x1024x1024xf32>) -> tensor<?x1024xf32>
  return %sum : tensor<?x1024xf32>
}

// One row has few accumulators, so several steps along k are in flight: copies of the loop's body on a CPU, and on a
// GPU four 16-byte loads of each thread, of which as many blocks are resident as their registers allow. Four rows at once lie on
// the lanes of each warp, eight lanes each, for its tensor core; the warps share the depth.
// AVX512-LABEL: func.func @packed_matrix_vector(
// AVX512-SAME: layout = array<i64: 16, 1, 16, 1>, name = "n", walk = "grid"
// AVX512-SAME: unroll = 4
// SM90A-LABEL: func.func @matrix_vector(
// SM90A-SAME: layout = array<i64: 8, 4, 1, 1>, name = "n", walk = "grid"
// SM90A-SAME: layout = array<i64: 1024, 64, 8, 1>, name = "k", walk = "loop", warps = 8
// SM90A-SAME: cores
// SM90A-SAME: resident = 4
func.func private @packed_matrix_vector(%x: tensor<1024xbf16> {primop.kind = "argument", primop.shape = #vector}, %w: tensor<64x512x16x2xbf16> {primop.kind = "weight", primop.shape = #packed}) -> (tensor<1024xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #square, maps = [affine_map<(n, k)[s] -> (k)>, affine_map<(n, k)[s] -> (n floordiv 16, k floordiv 2, n mod 16, k mod 2)>]} : (tensor<1024xbf16>, tensor<64x512x16x2xbf16>) -> tensor<1024x1024xf32>
  %sum = "primop.sum"(%products) {space = #square, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x1024xf32>) -> tensor<1024xf32>
  return %sum : tensor<1024xf32>
}
func.func private @matrix_vector(%x: tensor<1024xbf16> {primop.kind = "argument", primop.shape = #vector}, %w: tensor<1024x1024xbf16> {primop.kind = "weight", primop.shape = #square}) -> (tensor<1024xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #square, maps = [affine_map<(n, k)[s] -> (k)>, #identity]} : (tensor<1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xf32>
  %sum = "primop.sum"(%products) {space = #square, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x1024xf32>) -> tensor<1024xf32>
  return %sum : tensor<1024xf32>
}

// Where there are many rounds of blocks, memory counts more than what threads do: two rows at once, each a longer run.
// SM90A-LABEL: func.func @many_rows(
// SM90A-SAME: layout = array<i64: 8, 2, 1, 1>, name = "n", walk = "grid"
// SM90A-SAME: layout = array<i64: 1024, 128, 8, 1>, name = "k", walk = "loop", warps = 8
// SM90A-SAME: cores
func.func private @many_rows(%x: tensor<1024xbf16> {primop.kind = "argument", primop.shape = #vector}, %w: tensor<65536x1024xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (65536, 1024)>}) -> (tensor<65536xf32> {primop.shape = affine_map<()[n] -> (65536)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (65536, 1024)>, maps = [affine_map<(n, k)[s] -> (k)>, #identity]} : (tensor<1024xbf16>, tensor<65536x1024xbf16>) -> tensor<65536x1024xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (65536, 1024)>, maps = [#identity], dims = array<i64: 1>} : (tensor<65536x1024xf32>) -> tensor<65536xf32>
  return %sum : tensor<65536xf32>
}

// A block of one long row has none to lay beside it: multiply-adds, as in f32.
// SM90A-LABEL: func.func @long_rows(
// SM90A-SAME: layout = array<i64: 1, 1, 1, 1>, name = "n", walk = "grid"
// SM90A-SAME: layout = array<i64: 8192, 256, 8, 1>, name = "k", walk = "loop"
// SM90A-NOT: cores
func.func private @long_rows(%x: tensor<8192xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (8192)>}, %w: tensor<1024x8192xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (1024, 8192)>}) -> (tensor<1024xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (1024, 8192)>, maps = [affine_map<(n, k)[s] -> (k)>, #identity]} : (tensor<8192xbf16>, tensor<1024x8192xbf16>) -> tensor<1024x8192xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (1024, 8192)>, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x8192xf32>) -> tensor<1024xf32>
  return %sum : tensor<1024xf32>
}

// Loads are of 16 bytes, whatever the type.
// SM90A-LABEL: func.func @wide_matrix_vector(
// SM90A-NOT: cores
// SM90A-SAME: layout = array<i64: 1024, 64, 4, 1>, name = "k", walk = "loop"
// SM90A-NOT: cores
func.func private @wide_matrix_vector(%x: tensor<1024xf32> {primop.kind = "argument", primop.shape = #vector}, %w: tensor<1024x1024xf32> {primop.kind = "weight", primop.shape = #square}) -> (tensor<1024xf32> {primop.shape = #rows}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #square, maps = [affine_map<(n, k)[s] -> (k)>, #identity]} : (tensor<1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %sum = "primop.sum"(%products) {space = #square, maps = [#identity], dims = array<i64: 1>} : (tensor<1024x1024xf32>) -> tensor<1024xf32>
  return %sum : tensor<1024xf32>
}

// One long row is read by blocks of as many threads as there can be, but of half as many where these would not have the
// registers for all that is read and added up, and then all of these.
// SM90A-LABEL: func.func @long_row(
// SM90A-SAME: layout = array<i64: 65536, 8192, 8, 8>, name = "r0", walk = "loop"
// SM90A-NOT: resident
// SM90A-LABEL: func.func @three_sums(
// SM90A-SAME: layout = array<i64: 32768, 4096, 8, 8>, name = "r0", walk = "loop"
// SM90A-SAME: resident = 1
func.func private @long_row(%x: tensor<131072xf32> {primop.kind = "argument", primop.shape = #long}) -> (tensor<f32> {primop.shape = #one}) attributes {primop.kernel} {
  %sum = "primop.sum"(%x) {space = #long, maps = [#same], dims = array<i64: 0>} : (tensor<131072xf32>) -> tensor<f32>
  return %sum : tensor<f32>
}
func.func private @three_sums(%x: tensor<131072xf32> {primop.kind = "argument", primop.shape = #long}, %y: tensor<131072xf32> {primop.kind = "argument", primop.shape = #long}) -> (tensor<f32> {primop.shape = #one}) attributes {primop.kernel} {
  %product = "primop.mul"(%x, %y) {space = #long, maps = [#same, #same]} : (tensor<131072xf32>, tensor<131072xf32>) -> tensor<131072xf32>
  %a = "primop.sum"(%x) {space = #long, maps = [#same], dims = array<i64: 0>} : (tensor<131072xf32>) -> tensor<f32>
  %b = "primop.sum"(%y) {space = #long, maps = [#same], dims = array<i64: 0>} : (tensor<131072xf32>) -> tensor<f32>
  %c = "primop.max"(%product) {space = #long, maps = [#same], dims = array<i64: 0>} : (tensor<131072xf32>) -> tensor<f32>
  %ab = "primop.add"(%a, %b) {space = #one, maps = [#scalar, #scalar]} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %abc = "primop.add"(%ab, %c) {space = #one, maps = [#scalar, #scalar]} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %abc : tensor<f32>
}

// A product of 16-bit matrices that are both contiguous along the depth goes through tensor cores: eight warps of 16 rows
// each, four lanes along the columns, as much of the depth as a swizzle spans, and as many tiles of both on their way as fit.
// Where there are more programs than multiprocessors, one block for each of these walks over them.
// SM90A-LABEL: func.func @tensor_cores(
// SM90A-SAME: layout = array<i64: 128, 64, 1, 1>, name = "m", walk = "grid", warps = 8
// SM90A-SAME: layout = array<i64: 256, 4, 2, 1>, name = "n", walk = "grid"
// SM90A-SAME: layout = array<i64: 64, 1, 1, 1>, name = "k", walk = "loop"
// SM90A-SAME: dot = true, order = array<i64: 1, 0>, persistent = 132 : i64, stages = 4 : i64, tensor
func.func private @tensor_cores(%x: tensor<4096x1024xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (4096, 1024)>}, %w: tensor<4096x1024xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (4096, 1024)>}) -> (tensor<4096x4096xf32> {primop.shape = affine_map<()[n] -> (4096, 4096)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (4096, 4096, 1024)>, maps = [#lhs, #rhs]} : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096x1024xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (4096, 4096, 1024)>, maps = [#all], dims = array<i64: 2>} : (tensor<4096x4096x1024xf32>) -> tensor<4096x4096xf32>
  return %sum : tensor<4096x4096xf32>
}

// Where the tiles are too few for the multiprocessors, blocks of a cluster split the depth: two of them, for 64 clusters of two
// run at once, but not 32 of four.
// SM90A-LABEL: func.func @few_tiles(
// SM90A-SAME: layout = array<i64: 128, 64, 1, 1>, name = "m"
// SM90A-SAME: layout = array<i64: 64, 4, 2, 1>, name = "n"
// SM90A-SAME: split = 2 : i64, stages = 8 : i64, tensor
func.func private @few_tiles(%x: tensor<128x4096xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (128, 4096)>}, %w: tensor<4096x4096xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (4096, 4096)>}) -> (tensor<128x4096xf32> {primop.shape = affine_map<()[n] -> (128, 4096)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (128, 4096, 4096)>, maps = [#lhs, #rhs]} : (tensor<128x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<128x4096x4096xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (128, 4096, 4096)>, maps = [#all], dims = array<i64: 2>} : (tensor<128x4096x4096xf32>) -> tensor<128x4096xf32>
  return %sum : tensor<128x4096xf32>
}

// A width that is no power of two may fill the waves better: 4 x 64 tiles of 128 x 224 are two waves of 132 blocks but for
// eight, of 128 x 256 as many waves of larger tiles.
// SM90A-LABEL: func.func @even_waves(
// SM90A-SAME: layout = array<i64: 128, 64, 1, 1>, name = "m"
// SM90A-SAME: layout = array<i64: 224, 4, 2, 1>, name = "n"
// SM90A-SAME: tensor
func.func private @even_waves(%x: tensor<512x4096xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (512, 4096)>}, %w: tensor<14336x4096xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (14336, 4096)>}) -> (tensor<512x14336xf32> {primop.shape = affine_map<()[n] -> (512, 14336)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (512, 14336, 4096)>, maps = [#lhs, #rhs]} : (tensor<512x4096xbf16>, tensor<14336x4096xbf16>) -> tensor<512x14336x4096xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (512, 14336, 4096)>, maps = [#all], dims = array<i64: 2>} : (tensor<512x14336x4096xf32>) -> tensor<512x14336xf32>
  return %sum : tensor<512x14336xf32>
}

// Tiles are runs of whole axes: where no power of two is one, their width is what is. It must be one in memory as well.
// SM90A-LABEL: func.func @three_parts(
// SM90A-SAME: layout = array<i64: 2, 1, 1, 1>, name = "n0"
// SM90A-SAME: layout = array<i64: 3, 1, 1, 1>, name = "n1"
// SM90A-SAME: layout = array<i64: 8, 4, 2, 1>, name = "n2"
// SM90A-SAME: tensor
// SM90A-LABEL: func.func @parts_in_another_order(
// SM90A-NOT: tensor
// SM90A-SAME: twin
func.func private @three_parts(%x: tensor<4096x1024xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (4096, 1024)>}, %w: tensor<2x3x8x1024xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (2, 3, 8, 1024)>}) -> (tensor<4096x2x3x8xf32> {primop.shape = affine_map<()[n] -> (4096, 2, 3, 8)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (4096, 2, 3, 8, 1024)>, maps = [affine_map<(m, a, b, c, k)[s] -> (m, k)>, affine_map<(m, a, b, c, k)[s] -> (a, b, c, k)>]} : (tensor<4096x1024xbf16>, tensor<2x3x8x1024xbf16>) -> tensor<4096x2x3x8x1024xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (4096, 2, 3, 8, 1024)>, maps = [affine_map<(m, a, b, c, k)[s] -> (m, a, b, c, k)>], dims = array<i64: 4>} : (tensor<4096x2x3x8x1024xf32>) -> tensor<4096x2x3x8xf32>
  return %sum : tensor<4096x2x3x8xf32>
}
func.func private @parts_in_another_order(%x: tensor<4096x1024xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (4096, 1024)>}, %w: tensor<3x2x8x1024xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (3, 2, 8, 1024)>}) -> (tensor<4096x2x3x8xf32> {primop.shape = affine_map<()[n] -> (4096, 2, 3, 8)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (4096, 2, 3, 8, 1024)>, maps = [affine_map<(m, a, b, c, k)[s] -> (m, k)>, affine_map<(m, a, b, c, k)[s] -> (b, a, c, k)>]} : (tensor<4096x1024xbf16>, tensor<3x2x8x1024xbf16>) -> tensor<4096x2x3x8x1024xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (4096, 2, 3, 8, 1024)>, maps = [affine_map<(m, a, b, c, k)[s] -> (m, a, b, c, k)>], dims = array<i64: 4>} : (tensor<4096x2x3x8x1024xf32>) -> tensor<4096x2x3x8xf32>
  return %sum : tensor<4096x2x3x8xf32>
}

// Few rows take the time of reading the matrix, which every warp's tensor core does straight from memory: small tiles, so that
// every multiprocessor reads, whose depth eight warps of a block share, each four lanes of it with runs of 16 bytes, and as
// many blocks on each as have registers for what is in flight. Eight rows are half of a tensor core's: a lane has one of them.
// Of the matrix, whose depth has a second layout, too, eight lanes read a column in runs of 128 bytes.
// SM90A-LABEL: func.func @few_rows(
// SM90A-NOT: stages
// SM90A-SAME: layout = array<i64: 8, 8, 1, 1>, name = "m"
// SM90A-SAME: layout = array<i64: 16, 4, 1, 1>, name = "n"
// SM90A-SAME: lanes_of = "n", layout = array<i64: 512, 32, 8, 1>, name = "k", walk = "loop", warps = 8
// SM90A-SAME: lanes_of = "m", layout = array<i64: 16, 4, 1, 1>, name = "n_twin", twin_of = "n"
// SM90A-SAME: lanes_of = "m", layout = array<i64: 512, 64, 8, 1>, name = "k_twin", twin_of = "k", walk = "loop", warps = 8
// SM90A-SAME: resident = 2 : i64
// SM90A: %[[PARTS:.*]] = scf.for %{{.*}} -> (vector<8x16x8x1x1xf32>)
// SM90A: "tile.dot_twin"({{.*}} {column = 1 : i64, depth = 2 : i64, depth_twin = 4 : i64, twin = 3 : i64}{{.*}} -> vector<8x16x8x1x1xf32>
// SM90A: "tile.reduce"(%[[PARTS]]) {axes = array<i64: 2>, kind = "add"} : (vector<8x16x8x1x1xf32>) -> vector<8x16x1x1x1xf32>
func.func private @few_rows(%x: tensor<8x4096xbf16> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (8, 4096)>}, %w: tensor<4096x4096xbf16> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (4096, 4096)>}) -> (tensor<8x4096xf32> {primop.shape = affine_map<()[n] -> (8, 4096)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (8, 4096, 4096)>, maps = [#lhs, #rhs]} : (tensor<8x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<8x4096x4096xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (8, 4096, 4096)>, maps = [#all], dims = array<i64: 2>} : (tensor<8x4096x4096xf32>) -> tensor<8x4096xf32>
  return %sum : tensor<8x4096xf32>
}

// One of f32 comes the same way and is made by multiply-adds: every thread takes eight rows 16 apart and two runs of four
// columns, two lanes of each warp lie along the columns.
// SM90A-LABEL: func.func @multiply_adds(
// SM90A-SAME: layout = array<i64: 128, 16, 1, 1>, name = "m", walk = "grid"
// SM90A-SAME: layout = array<i64: 128, 16, 4, 1>, name = "n", walk = "grid", warps = 8
// SM90A-SAME: layout = array<i64: 32, 1, 1, 1>, name = "k", walk = "loop"
// SM90A-SAME: dot = true, order = array<i64: 1, 0>, persistent = 132 : i64, resident = 1 : i64, staged, stages = 6 : i64
func.func private @multiply_adds(%x: tensor<4096x1024xf32> {primop.kind = "argument", primop.shape = affine_map<()[n] -> (4096, 1024)>}, %w: tensor<4096x1024xf32> {primop.kind = "weight", primop.shape = affine_map<()[n] -> (4096, 1024)>}) -> (tensor<4096x4096xf32> {primop.shape = affine_map<()[n] -> (4096, 4096)>}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = affine_map<()[n] -> (4096, 4096, 1024)>, maps = [#lhs, #rhs]} : (tensor<4096x1024xf32>, tensor<4096x1024xf32>) -> tensor<4096x4096x1024xf32>
  %sum = "primop.sum"(%products) {space = affine_map<()[n] -> (4096, 4096, 1024)>, maps = [#all], dims = array<i64: 2>} : (tensor<4096x4096x1024xf32>) -> tensor<4096x4096xf32>
  return %sum : tensor<4096x4096xf32>
}

// A short one is made in smaller tiles, whose depth blocks of a cluster split, so that more multiprocessors have one: two
// blocks to each, of half as many threads.
// SM90A-LABEL: func.func @short_multiply_adds(
// SM90A-SAME: layout = array<i64: 32, 16, 1, 1>, name = "m", walk = "grid"
// SM90A-SAME: layout = array<i64: 32, 8, 4, 1>, name = "n", walk = "grid", warps = 4
// SM90A-SAME: layout = array<i64: 32, 1, 1, 1>, name = "k", walk = "loop"
// SM90A-SAME: resident = 2 : i64, split = 2 : i64, staged, stages = 6 : i64
func.func private @short_multiply_adds(%x: tensor<?x1024xf32> {primop.kind = "argument", primop.shape = #x}, %w: tensor<1024x1024xf32> {primop.kind = "weight", primop.shape = #square}) -> (tensor<?x1024xf32> {primop.shape = #y}) attributes {primop.kernel} {
  %products = "primop.mul"(%x, %w) {space = #products, maps = [#lhs, #rhs]} : (tensor<?x1024xf32>, tensor<1024x1024xf32>) -> tensor<?x1024x1024xf32>
  %sum = "primop.sum"(%products) {space = #products, maps = [#all], dims = array<i64: 2>} : (tensor<?x1024x1024xf32>) -> tensor<?x1024xf32>
  return %sum : tensor<?x1024xf32>
}

}
