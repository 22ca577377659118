"""Passes on the primop level: mathematics, views and fusion."""
