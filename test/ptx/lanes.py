"""Sets of threads. All threads of a batch of blocks are lanes of one vector; block sizes are padded to whole warps."""

from __future__ import annotations

import numpy as np

from .formats import Array


class Lanes:
    """An immutable set of lanes; sets that are equal are mostly one object, so that identity is a quick first test."""

    __slots__ = ("_ballot", "_index", "_warps", "_whole", "count", "full", "mask")

    def __init__(self, mask: Array) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self.full = self.count == len(mask)
        self._index: slice | Array | None = None
        self._ballot: Array | None = None
        self._warps: Array | None = None
        self._whole: dict[int, bool] = {}

    @property
    def index(self) -> slice | Array:
        """What picks these lanes out of a full vector."""
        if self._index is None:
            self._index = slice(None) if self.full else np.flatnonzero(self.mask)
        return self._index

    @property
    def numbers(self) -> Array:
        return np.flatnonzero(self.mask)

    @property
    def warps(self) -> Array:
        """The warps that have lanes here."""
        if self._warps is None:
            self._warps = np.flatnonzero(self.ballot)
        return self._warps

    @property
    def ballot(self) -> Array:
        """One uint32 per warp: bit i is lane i."""
        if self._ballot is None:
            self._ballot = np.packbits(self.mask, bitorder="little").view(np.uint32)
        return self._ballot

    def whole(self, width: int, size: int) -> bool:
        """Whether each aligned run of `width` lanes has either none or `size` of its lanes here."""
        if self.full and width == size:
            return True
        if width not in self._whole:
            counts = np.count_nonzero(self.mask.reshape(-1, width), axis=1)
            self._whole[width] = bool(np.all((counts == 0) | (counts == size)))
        return self._whole[width]


class Issuer:
    """One lane that touches many addresses at once, with as many entries where `Lanes` has one each."""

    def __init__(self, lane: int, count: int) -> None:
        self.numbers = np.full(count, lane)
        self.index: slice | Array = self.numbers


Actors = Lanes | Issuer


class LaneSets:
    """Makes `Lanes`, one object per distinct set, and remembers unions and inclusions between them."""

    LIMIT = 4096

    def __init__(self, size: int) -> None:
        self.everyone = Lanes(np.ones(size, bool))
        self._known: dict[bytes, Lanes] = {}
        self._unions: dict[tuple[Lanes, Lanes], Lanes] = {}
        self._inside: dict[tuple[Lanes, Lanes], bool] = {}

    def of(self, mask: Array) -> Lanes:
        key = mask.tobytes()
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self.LIMIT:
                for cache in (self._known, self._unions, self._inside):
                    cache.clear()
            found = Lanes(mask)
            found = self._known[key] = self.everyone if found.full else found
        return found

    def union(self, a: Lanes, b: Lanes) -> Lanes:
        found = self._unions.get((a, b))
        if found is None:
            found = self._unions[a, b] = self.of(a.mask | b.mask)
        return found

    def inside(self, a: Lanes, b: Lanes) -> bool:
        """Whether every lane of `a` is one of `b`."""
        found = self._inside.get((a, b))
        if found is None:
            found = self._inside[a, b] = not np.any(a.mask & ~b.mask)
        return found
