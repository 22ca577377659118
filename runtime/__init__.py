"""Runs compiled artifacts; imports no MLIR."""
