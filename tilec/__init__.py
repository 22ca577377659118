"""The public face of tilec: compile, load and run."""
