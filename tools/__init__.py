"""Command lines: tilec, tilec-opt and the benchmarks."""
