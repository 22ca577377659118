"""A positive factor of a softmax's scores moves into its exponential, where there is a factor anyway.

    exp2((a s + mask - max(a s + mask)) c)   =   exp2((s + mask - max(s + mask)) a c),   a > 0, mask 0 or -inf

That saves a multiplication of every score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import identity, map_results
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.online_reductions import Chain, match_power
from tilec.pipelines.primop.outline import body_of, functions, place_in_chunk
from tilec.pipelines.primop.structure import defining_op, excludes


@dataclass(frozen=True)
class FoldScales(Pass):
    """Move a constant positive factor of what a softmax normalises into the factor of its exponential."""

    name = "primop-fold-scales"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function in functions(op, "primop.chunk"):
            for power in list(body_of(function).operations):
                chain = match_power(power)
                if chain is not None:
                    _fold(chain)


def _fold(chain: Chain) -> None:
    """Rewrites one chain, if its scores are a product with a constant, under masks or not."""
    scores = scaled = defining_op(chain.maximum.operand)
    masks: list[primop.Add] = []
    while isinstance(scaled, primop.Add) and _is_mask(scaled):
        masks.append(scaled)
        scaled = defining_op(scaled.lhs)
    factor = defining_op(scaled.rhs) if isinstance(scaled, primop.Mul) else None
    whole = identity(len(primop.space_of(scores))) if scores is not None else ()
    if not isinstance(factor, primop.Constant) or scaled.bounds is not None or \
            any(map_results(op.maps[0]) != whole for op in (scaled, *masks)):
        return
    value, element = ir.FloatAttr(factor.attributes["value"]).value, primop.element_type(scaled.result)
    users = [use.owner for use in scores.result.uses]
    expected = (chain.maximum, defining_op(defining_op(chain.power.operand).lhs))
    if not (0 < value < math.inf) or primop.element_type(scaled.lhs) != element or len(users) != 2 or \
            any(all(u != e for e in expected) for u in users) or \
            any(len(list(op.result.uses)) > 1 for op in (*masks[1:], scaled) if op != scores):
        return
    if masks:
        masks[-1].operation.operands[0] = scaled.lhs
    else:
        scaled.result.replace_all_uses_with(scaled.lhs)
    product = defining_op(chain.power.operand)
    known = ir.FloatAttr(defining_op(chain.scale).attributes["value"])
    with product.operation.location, ir.InsertionPoint(product):
        combined = primop.Constant(value=ir.FloatAttr.get(known.type, known.value * value), result=chain.scale.type)
    place_in_chunk(combined, product)
    product.operation.operands[1] = combined.result
    scaled.operation.erase()


def _is_mask(op: primop.Add) -> bool:
    """Whether an op adds -inf where a condition holds and nothing elsewhere."""
    return excludes(op.rhs) and op.bounds is not None and not op.bounds[0].results
