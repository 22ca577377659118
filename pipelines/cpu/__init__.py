"""Passes that only the CPU path runs."""
