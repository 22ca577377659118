"""Passes on the level of NVVM."""
