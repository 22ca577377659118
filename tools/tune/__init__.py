"""`tilec tune`: which of the schedules that the cost model considers are the fastest on this machine."""
