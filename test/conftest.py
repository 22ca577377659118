"""Fixtures of several files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilec.pipelines import compiler


@pytest.fixture(scope="module")
def every_pass_is_verified() -> Iterator[None]:
    """Not only every level, as where users compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "VERIFY_EACH", True)
        yield
