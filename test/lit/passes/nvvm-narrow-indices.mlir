// RUN: tilec-opt %s --pass-pipeline='builtin.module(nvvm-narrow-indices)' | FileCheck %s

gpu.module @kernels {

// Indices are words whose sums do not overflow. What was one already passes through; an address is widened where it is made.
// CHECK-LABEL: llvm.func @narrow
// CHECK-SAME: %[[P:.*]]: !llvm.ptr<1>, %[[N:[^:]*]]: i32, %[[WIDE:[^:]*]]: i64
// CHECK-DAG: %[[C6:.*]] = arith.constant 6 : i32
// CHECK-DAG: %[[MINUS:.*]] = arith.constant -1 : i32
// CHECK-DAG: %[[COUNT:.*]] = arith.trunci %[[WIDE]] : i64 to i32
// CHECK: scf.for %[[I:.*]] = %[[N]] to %[[COUNT]] step %[[C6]] iter_args(%[[C:.*]] = %[[MINUS]]) -> (i32) : i32 {
// CHECK: %[[SUM:.*]] = arith.addi %[[I]], %[[C]] overflow<nsw> : i32
// CHECK: %[[REST:.*]] = arith.remui %[[SUM]], %[[C6]] : i32
// CHECK: %[[AT:.*]] = arith.extsi %[[REST]] : i32 to i64
// CHECK: llvm.getelementptr %[[P]][%[[AT]]]
// CHECK: %[[PLAIN:.*]] = arith.addi %[[N]], %[[N]] : i32
// CHECK: llvm.store %[[PLAIN]]
// CHECK: scf.yield %[[REST]] : i32
llvm.func @narrow(%p: !llvm.ptr<1>, %n: i32, %wide: i64) {
  %c6 = arith.constant 6 : index
  %minus = arith.constant -1 : index
  %begin = arith.index_cast %n : i32 to index
  %count = arith.index_cast %wide : i64 to index
  %all = scf.for %i = %begin to %count step %c6 iter_args(%c = %minus) -> (index) {
    %sum = arith.addi %i, %c : index
    %rest = arith.remui %sum, %c6 : index
    %at = arith.index_cast %rest : index to i64
    %place = llvm.getelementptr %p[%at] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
    %plain = arith.addi %n, %n : i32
    llvm.store %plain, %place : i32, !llvm.ptr<1>
    scf.yield %rest : index
  }
  llvm.return
}

// An index that is read as a number without a sign is widened as one.
// CHECK-LABEL: llvm.func @unsigned
// CHECK: arith.extui %{{.*}} : i32 to i64
llvm.func @unsigned(%n: i32) -> i64 {
  %i = arith.index_castui %n : i32 to index
  %wide = arith.index_castui %i : index to i64
  llvm.return %wide : i64
}

// A function that is marked keeps wide indices, whatever it computes; one that is not does not.
// CHECK-LABEL: llvm.func @few_rows
// CHECK: arith.addi %{{.*}}, %{{.*}} : index
// CHECK: arith.index_cast %{{.*}} : index to i64
// CHECK-LABEL: llvm.func @attention
// CHECK: arith.addi %{{.*}}, %{{.*}} overflow<nsw> : i32
llvm.func @few_rows(%n: i32) -> i64 attributes {kernel.wide_indices} {
  %i = arith.index_cast %n : i32 to index
  %sum = arith.addi %i, %i : index
  %at = arith.index_cast %sum : index to i64
  llvm.return %at : i64
}
llvm.func @attention(%n: i32, %x: f32) -> i64 {
  %i = arith.index_cast %n : i32 to index
  %sum = arith.addi %i, %i : index
  %at = arith.index_cast %sum : index to i64
  llvm.inline_asm has_side_effects asm_dialect = att "mma.sync.aligned $0;", "f" %x : (f32) -> ()
  llvm.return %at : i64
}

}
