"""Benchmarks: what is measured here is what the README quotes."""
