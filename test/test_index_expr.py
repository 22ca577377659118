"""Index expressions mean what they are simplified to."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilec.dialects.index_expr import Dim, Linear, Ranges, dim, floordiv, mod

from . import reference

COEFFICIENTS = st.lists(st.integers(-12, 12), min_size=1, max_size=3)


@given(COEFFICIENTS, st.integers(-9, 20), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]), st.data())
def test_quotients_and_rests_are_those_of_the_numbers(
    coefficients: list[int], constant: int, divisor: int, data: st.DataObject
) -> None:
    """Of dimensions whose ranges are known, or only some of them."""
    last = [data.draw(st.sampled_from([0, 1, 2, 3, 7])) for _ in coefficients]
    known: Ranges = {Dim(i): (0, n) for i, n in enumerate(last) if data.draw(st.booleans())}
    expr = sum((dim(i) * c for i, c in enumerate(coefficients)), Linear(constant))
    quotient, rest = floordiv(expr, divisor, known), mod(expr, divisor, known)
    for point in itertools.product(*(range(n + 1) for n in last)):
        dims = [np.asarray(x) for x in point]
        value = constant + sum(c * x for c, x in zip(coefficients, point, strict=True))
        assert reference.index(quotient, dims, {}) == value // divisor
        assert reference.index(rest, dims, {}) == value % divisor


def test_what_a_division_loses_is_left_out() -> None:
    assert floordiv(2 * dim(0) + 1, 4) == floordiv(2 * dim(0), 4)
    assert floordiv(2 * dim(0) + dim(1), 4, {Dim(1): (0, 1)}) == floordiv(2 * dim(0), 4)
    assert floordiv(2 * dim(0) + dim(1), 4) != floordiv(2 * dim(0), 4)
