// RUN: tilec-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(convert-tile-to-kernel)'

#m = {name = "m", extent = affine_map<() -> (8)>, layout = array<i64: 8, 8, 1, 1>, walk = "grid"}
#n = {name = "n", extent = affine_map<() -> (8)>, layout = array<i64: 8, 4, 2, 1>, walk = "grid"}
#k = {name = "k", extent = affine_map<() -> (32)>, layout = array<i64: 32, 4, 8, 1>, walk = "loop", lanes_of = "n"}
#twin = {name = "n_twin", extent = affine_map<() -> (16)>, layout = array<i64: 8, 8, 1, 1>, walk = "loop", lanes_of = "m"}

