"""What the next turn of a loop waits for is asked for in this turn, while its products are made.

    for i: wait b[slot]; start products; wait for products   ->   for i, carrying slot and ended: wait b[slot] unless ended;
                                                                  start products; ended = test b[next slot]; wait for products

A barrier answers after dozens of clocks, and with one wait after the other at the head of a turn the tensor cores have
nothing to do meanwhile. What has not come when it is asked for is waited for as before.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import kernel
from tilec.pipelines.kernel import kernel_loops
from tilec.pipelines.loops import carry_on, carrying, next_of
from tilec.pipelines.passes import Pass


@dataclass(frozen=True)
class PeekBarriers(Pass):
    """Test in each turn what the next one waits for before its products."""

    name = "kernel-peek-barriers"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for loop in kernel_loops(op):
            _peek(loop)


def _peek(loop: scf.ForOp) -> None:
    body = list(loop.body.operations)
    started = next((i for i, o in enumerate(body) if isinstance(o, kernel.Wgmma)), 0)
    made = [o for o in body if isinstance(o, kernel.WgmmaWait) and len(o.acc)]
    counted = list(loop.inner_iter_args)
    waits = [o for o in body[:started] if isinstance(o, kernel.MbarrierWait) and o.index in counted and o.parity in counted]
    if not waits or not made:
        return
    with loop.operation.location, ir.InsertionPoint(loop):
        unknown = arith.constant(ir.IntegerType.get_signless(1), 0)
    loop, carried = carrying(loop, [unknown] * len(waits))
    for wait, ended in zip(waits, carried, strict=True):
        with wait.operation.location, ir.InsertionPoint(made[-1]):
            index, parity = (next_of(loop, v) for v in (wait.index, wait.parity))
            carry_on(loop, ended, kernel.MbarrierTest(barriers=wait.barriers, index=index, parity=parity,
                                                      result=ended.type).result)
        with wait.operation.location, ir.InsertionPoint(wait):
            kernel.MbarrierWait(barriers=wait.barriers, index=wait.index, parity=wait.parity, ended=[ended])
        wait.operation.erase()
