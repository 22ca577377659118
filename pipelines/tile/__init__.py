"""Passes on the tile level: schedules, staging, pipelining and tensor cores."""
