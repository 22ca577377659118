"""A schedule is a value that can be read, printed and searched; the passes read their own part of it.

It lists the axes of a tile function. Each axis has an extent (in the module's symbols), the size of one tile along it,
and how a tile is laid out: element `e = (register * threads + thread) * vector + lane`. On the CPU `threads` is 1 and
`vector` the SIMD width; on the GPU the product of all `threads` is the block size. A worked example, a matrix-vector
product by one warp a row:

    n: extent 4096, grid, tile 4, threads 4, vector 1     -> warp w holds row w
    k: extent 2048, loop, tile 512, threads 32, vector 8  -> lane l holds elements 8l..8l+7 of each 256

An axis may be dealt to `warps` first, each taking one run of it: `e = ((warp * registers + register) * threads / warps +
thread) * vector + lane`. So lie the results of tensor cores: m over eight warps with rows 0..7 and 8..15 of each in two
registers, n over the four lanes of a row with two neighbours each. Two axes may lie on the same threads (`lanes_of` names
the other one), where no tile in registers varies along both: the keys of one product and the columns of the next. An axis
with `lanes_of` "*" lies on all threads of the block, as they are numbered. One with fewer threads than the axis that it
names lies on the first of these, over and over; one that is dealt to warps has these for itself, and only its neighbours
lie on the other axis: so the warps of a block share the depth of a product. An axis that names such a one lies where that does.

The last axes may be second layouts of others (`twin_of` names the first), of the same extent and tile. A warp's tensor core
reads the right operand of a product with its columns on eight lanes and leaves the result with the same columns on four, two
of them in each: `product` is C[m, n] += A[m, k] B[n, k] with A along (m, k), B along (n_twin, k) and C along (m, n). A twin
whose axis is dealt to warps is dealt to the same ones. Of at most eight rows, half of what a tensor core takes, B may be along
(n_twin, k_twin): its columns lie on four lanes, k on eight, in longer runs of memory.

With a vector there is nothing to lay along columns: its products by `cores` have k on the first 8 or 16 lanes of each warp,
over and over, and n on what is left: four rows or two.

Threads are numbered with the last axis fastest, axes that are read in vectors before the others, and the warps of an axis
after the lanes of all axes: so n may have two lanes of each warp and m the other sixteen. The threads along one
axis may be spread over the blocks of a `cluster`, which reduce together through each other's shared memory: so one program
reads a long axis with many multiprocessors. `grid` axes are split over programs, first axis slowest unless `order`
says otherwise; `loop` axes are walked inside a program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from mlir import ir

from tilec.dialects.index_expr import Linear, ceildiv, linear, make_map, map_results


@dataclass(frozen=True)
class Axis:
    """One axis of a tile function."""

    name: str
    extent: Linear
    tile: int = 1
    threads: int = 1
    vector: int = 1
    grid: bool = True
    cluster: int = 1
    warps: int = 1
    lanes_of: str = ""
    twin_of: str = ""

    def __post_init__(self) -> None:
        if self.threads % self.warps:
            raise ValueError(f"axis {self.name}: {self.threads} threads cannot be spread over {self.warps} warps")
        if self.threads % self.cluster:
            raise ValueError(f"axis {self.name}: {self.threads} threads cannot be spread over {self.cluster} blocks")
        if self.tile < 1 or self.threads < 1 or self.vector < 1:
            raise ValueError(f"axis {self.name}: sizes must be positive, but got {self}")
        if self.tile % (self.threads * self.vector):
            raise ValueError(f"axis {self.name}: tile must be a multiple of threads * vector = "
                             f"{self.threads * self.vector}, but is {self.tile}")

    @property
    def neighbours(self) -> int:
        """Threads between two registers of one thread along this axis."""
        return self.threads // self.warps

    @property
    def registers(self) -> int:
        """How many vectors of a full tile one thread holds along this axis."""
        return self.tile // (self.threads * self.vector)

    def twin(self, **changes: object) -> Axis:
        """A second layout of this axis."""
        return replace(self, name=f"{self.name}_twin", grid=False, twin_of=self.name, **changes)  # type: ignore[arg-type]

    @property
    def programs(self) -> Linear:
        """Number of tiles along the axis."""
        return ceildiv(self.extent, self.tile)


@dataclass(frozen=True)
class Schedule:
    """The axes of a tile function and what its passes shall do."""

    axes: tuple[Axis, ...]
    order: tuple[int, ...] = ()  # grid axes, slowest first
    unroll: int = 1  # copies of the body of the innermost reduction loop
    dot: bool = False  # contractions by `tile.dot` (outer products) instead of lane-wise products
    tensor: bool = False  # contractions by tensor cores, their operands through shared memory
    staged: bool = False  # contractions by multiply-adds of all threads, their operands through shared memory
    copied: bool = False  # what comes through shared memory is copied by all threads, instead of by TMA
    stages: int = 1  # tiles of an operand in shared memory
    persistent: int = 0  # blocks that walk over the programs; 0: one for each
    reversed: tuple[int, ...] = ()  # grid axes whose last programs come first, because they have the most to do
    ahead: bool = False  # loops read the tiles of their next turn early
    split: int = 1  # blocks of a cluster that share the depth of a product (see tile/split.py)
    resident: int = 0  # blocks that shall fit a multiprocessor at once, which bounds their registers; 0: as it comes
    tf32: bool = False  # the tensor cores read f32 operands as TF32
    cores: bool = False  # products with a vector by the tensor core of each warp, whose lanes have the same sums

    @property
    def twins(self) -> dict[int, int]:
        """The axes that are second layouts, each with the one that it is a layout of: contractions by a warp's tensor core."""
        names = [axis.name for axis in self.axes]
        return {i: names.index(axis.twin_of) for i, axis in enumerate(self.axes) if axis.twin_of}

    @property
    def depth_twin(self) -> int | None:
        """The second layout of a product's depth, on eight lanes, where there is one: that of the columns then has four."""
        *columns, last = self.twins or [0]
        return last if any(self.axes[i].neighbours == 4 for i in columns) else None

    @property
    def rings(self) -> bool:
        """Whether the operands of contractions come through rings in shared memory."""
        return self.tensor or self.staged

    @property
    def roles(self) -> bool:
        """Whether some threads only fetch."""
        return self.rings and self.stages > 1 and not self.copied

    @property
    def grid(self) -> tuple[int, ...]:
        """Grid axes, slowest first."""
        return self.order or tuple(i for i, axis in enumerate(self.axes) if axis.grid)

    @property
    def threads(self) -> int:
        """Threads of one block."""
        own = prod(a.neighbours if a.twin_of else a.threads // a.cluster for a in self.axes if not a.lanes_of)
        placed = {a.name for a in self.axes if a.lanes_of}
        return own * prod(a.warps // a.cluster for a in self.axes if a.lanes_of not in ("", *placed) and not a.twin_of)

    @property
    def thread_order(self) -> list[int]:
        """Axes in the order in which thread numbers run through them, fastest first, and twins last."""
        last_first = range(len(self.axes) - 1, -1, -1)
        return sorted(last_first, key=lambda i: (self.axes[i].twin_of != "", self.axes[i].vector == 1))

    @property
    def cluster(self) -> int:
        """Blocks that run one program together."""
        return prod(axis.cluster for axis in self.axes if not axis.twin_of)

    def __str__(self) -> str:
        """For people: tile, threads and vector of each axis, and what is not as usual."""
        axes = [f"{a.name} {a.tile}" + (f" by {a.threads} threads" if a.threads > 1 else "") +
                (f" of {a.vector}" if a.vector > 1 else "") + (f" over {a.cluster} blocks" if a.cluster > 1 else "")
                for a in self.axes if a.extent != linear(1) and not a.twin_of]
        copied = ", copied by all threads" if self.copied else ""
        rest = [f"{self.stages} stages on tensor cores{copied}"] if self.tensor else \
            ["a tensor core a warp"] if self.twins or self.cores else []
        rest += ["f32 read as TF32"] if self.tf32 else []
        rest += [f"the depth over {self.split} blocks"] if self.split > 1 else []
        rest += [f"{self.stages} stages, multiply-adds from shared memory{copied}"] if self.staged else []
        rest += [f"{self.persistent} blocks walk over the programs"] if self.persistent else []
        return ", ".join([*axes, *rest])

    def to_attribute(self, symbols: int) -> ir.Attribute:
        """The attribute `tile.schedule`, in the current context."""
        axes = [
            ir.DictAttr.get({
                "name": ir.StringAttr.get(a.name),
                "extent": ir.AffineMapAttr.get(make_map(0, symbols, [a.extent])),
                "layout": ir.DenseI64ArrayAttr.get([a.tile, a.threads, a.vector, a.cluster]),
                "walk": ir.StringAttr.get("grid" if a.grid else "loop"),
                **({"warps": _number(a.warps)} if a.warps > 1 else {}),
                **({"lanes_of": ir.StringAttr.get(a.lanes_of)} if a.lanes_of else {}),
                **({"twin_of": ir.StringAttr.get(a.twin_of)} if a.twin_of else {}),
            })
            for a in self.axes
        ]
        return ir.DictAttr.get({
            "axes": ir.ArrayAttr.get(axes),
            "order": ir.DenseI64ArrayAttr.get(list(self.order)),
            "unroll": _number(self.unroll),
            "dot": ir.BoolAttr.get(self.dot),
            **({"tensor": ir.UnitAttr.get()} if self.tensor else {}),
            **({"staged": ir.UnitAttr.get()} if self.staged else {}),
            **({"copied": ir.UnitAttr.get()} if self.copied else {}),
            **({"stages": _number(self.stages)} if self.rings else {}),
            **({"persistent": _number(self.persistent)} if self.persistent else {}),
            **({"reversed": ir.DenseI64ArrayAttr.get(list(self.reversed))} if self.reversed else {}),
            **({"ahead": ir.UnitAttr.get()} if self.ahead else {}),
            **({"split": _number(self.split)} if self.split > 1 else {}),
            **({"resident": _number(self.resident)} if self.resident else {}),
            **({"tf32": ir.UnitAttr.get()} if self.tf32 else {}),
            **({"cores": ir.UnitAttr.get()} if self.cores else {}),
        })

    @staticmethod
    def from_attribute(attribute: ir.Attribute) -> Schedule:
        """The inverse of `to_attribute`."""
        entries = ir.DictAttr(attribute)
        axes = []
        for item in ir.ArrayAttr(entries["axes"]):
            axis = ir.DictAttr(item)
            tile, threads, vector, cluster = ir.DenseI64ArrayAttr(axis["layout"])
            axes.append(Axis(
                name=ir.StringAttr(axis["name"]).value,
                extent=map_results(ir.AffineMapAttr(axis["extent"]).value)[0],
                tile=tile, threads=threads, vector=vector,
                grid=ir.StringAttr(axis["walk"]).value == "grid",
                cluster=cluster, warps=ir.IntegerAttr(axis["warps"]).value if "warps" in axis else 1,
                lanes_of=ir.StringAttr(axis["lanes_of"]).value if "lanes_of" in axis else "",
                twin_of=ir.StringAttr(axis["twin_of"]).value if "twin_of" in axis else "",
            ))
        return Schedule(
            tuple(axes),
            tuple(ir.DenseI64ArrayAttr(entries["order"])),
            ir.IntegerAttr(entries["unroll"]).value,
            ir.BoolAttr(entries["dot"]).value,
            "tensor" in entries,
            "staged" in entries,
            "copied" in entries,
            ir.IntegerAttr(entries["stages"]).value if "stages" in entries else 1,
            ir.IntegerAttr(entries["persistent"]).value if "persistent" in entries else 0,
            tuple(ir.DenseI64ArrayAttr(entries["reversed"])) if "reversed" in entries else (),
            "ahead" in entries,
            ir.IntegerAttr(entries["split"]).value if "split" in entries else 1,
            ir.IntegerAttr(entries["resident"]).value if "resident" in entries else 0,
            "tf32" in entries,
            "cores" in entries,
        )

    def with_axis(self, position: int, **changes: object) -> Schedule:
        """This schedule with one axis changed."""
        axes = list(self.axes)
        axes[position] = replace(axes[position], **changes)  # type: ignore[arg-type]
        return replace(self, axes=tuple(axes))


def _number(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
