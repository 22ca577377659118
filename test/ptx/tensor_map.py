"""Tensor maps, which describe to the bulk copy engine how a tensor lies in global memory and in what boxes it travels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .faults import Unsupported

BYTES = {f"{kind}{width}": width // 8 for kind in "uf" for width in (8, 16, 32, 64) if (kind, width) != ("f", 8)}
BYTES |= {"s32": 4, "s64": 8, "bf16": 2, "tf32": 4}
LAYOUT = struct.Struct("<16s2I16s5Q4Q5H6x")  # 128 bytes; not the hardware's layout, which nobody documents
MAGIC = b"tensor map\0\0\0\0\0\0"


@dataclass(frozen=True)
class TensorMap:
    """What `cuTensorMapEncodeTiled` makes, without interleaving, element strides other than 1 and fill values but zero.

    address: of element 0, a multiple of 16.
    dtype: of the elements, such as "bf16", "f32" or "u8".
    sizes: of the tensor, innermost (contiguous) dimension first, as everywhere here.
    strides: in bytes, of all dimensions but the innermost; multiples of 16.
    box: elements that one copy moves, in each dimension; what lies outside the tensor is read as zero and not written.
    swizzle: 0, or 32, 64 or 128 bytes, the width of a box row.
    """

    address: int
    dtype: str
    sizes: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    swizzle: int = 0

    def __post_init__(self) -> None:
        rank, inner = len(self.sizes), self.box[0] * self.itemsize
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1 or len(self.box) != rank:
            raise ValueError(f"need 1 to 5 sizes, as many box sizes and one stride fewer, but got {self}")
        if self.address % 16 or any(stride % 16 or not 0 < stride < 1 << 40 for stride in self.strides):
            raise ValueError(f"need an address and strides that are multiples of 16, but got {self}")
        if not all(1 <= size <= 256 for size in self.box) or inner % 16:
            raise ValueError(f"need boxes of 1 to 256 each way, in rows of whole 16 bytes, but got {self}")
        if not all(1 <= size <= 1 << 32 for size in self.sizes):
            raise ValueError(f"need sizes of 1 to 2^32, but got {self}")
        if self.swizzle not in (0, 32, 64, 128) or inner > (self.swizzle or inner):
            raise ValueError(f"need box rows of at most the swizzled 32, 64 or 128 bytes, but got {self}")
        if self.swizzle and inner < self.swizzle:
            raise Unsupported(f"box rows narrower than the swizzle, which are padded: {self}")

    @property
    def itemsize(self) -> int:
        return BYTES[self.dtype]

    def pack(self) -> bytes:
        """128 bytes that `unpack` understands: a kernel parameter, or a place in global memory."""

        def padded(values: Sequence[int], count: int) -> list[int]:
            return [*values, *[0] * (count - len(values))]

        sizes = [size % (1 << 64) for size in padded(self.sizes, 5)]
        kind = self.dtype.encode().ljust(8, b"\0") + self.address.to_bytes(8, "little")
        return LAYOUT.pack(MAGIC, len(self.sizes), self.swizzle, kind, *sizes, *padded(self.strides, 4), *padded(self.box, 5))

    @staticmethod
    def unpack(data: bytes) -> TensorMap:
        """Raises ValueError for what is no tensor map."""
        magic, rank, swizzle, kind, *numbers = LAYOUT.unpack(data[: LAYOUT.size])
        if magic != MAGIC:
            raise ValueError("no tensor map")
        address, dtype = int.from_bytes(kind[8:], "little"), kind[:8].rstrip(b"\0").decode()
        sizes, strides, box = numbers[:rank], numbers[5 : 4 + rank], numbers[9 : 9 + rank]
        return TensorMap(address, dtype, sizes, strides, box, swizzle)
