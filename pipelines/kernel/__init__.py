"""Passes on the kernel level."""
