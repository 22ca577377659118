"""What every tile op means, in NumPy: an interpreter of tile functions that shares no code with any lowering.

    run_pipeline(module, tile_pipeline("sm_90a"))      # and any prefix of the tile passes
    results = run(module, program)                     # outputs by label, states that they replace included

A program of the grid is one thread that holds whole tiles, so layouts only say which elements a partial sum adds up. Roles
are the exception: they run by turns, each until it must wait for a slot, because a ring with few slots has no other order.
Floats are computed in f64 and rounded once by every op.

Memory starts out as poison and rules are enforced. A `Fault` is an access out of bounds or to what another program wrote,
memory of the program read before a barrier, a slot filled, read or released out of its turn, and a wait that never ends.
"""

from .machine import Kernel, run
from .memory import Fault, Memory

__all__ = ["Fault", "Kernel", "Memory", "run"]
