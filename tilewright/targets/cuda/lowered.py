"""What the pipeline hands to the rest of the target: last-stage IR of one thread, and how to launch it.

The kernel function's parameters are described one by one by `Slot`s, so that the executable packs
them without knowing what the kernel does. Everything here is plain data with a JSON form: it is
stored beside the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64

from tilewright.dialects.mach import KERNEL
from tilewright.dialects.stage import CLUSTER
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.frozen import frozen, record
from tilewright.passes.kernel import LEVEL, SUBGROUPS
from tilewright.reference.batch import WARP
from tilewright.reference.pointers import SHARED_BYTES
from tilewright.targets.cuda.work_split import LoopWork


@frozen
class Pointer:
    """Address of an array argument: `!llvm.ptr<1>`."""

    argument: int


@frozen
class Extent:
    """Extent of an array argument's dimension, in elements: index (or i32 with `bits` 32)."""

    argument: int
    dimension: int
    bits: int = 64


@frozen
class Stride:
    """Stride of an array argument's dimension, in elements: index (or i32 with `bits` 32)."""

    argument: int
    dimension: int
    bits: int = 64


@frozen
class Scalar:
    """A scalar argument, of any type that a tile's elements have."""

    argument: int
    kind: str
    """See `host_arguments.scalar_format`."""


@frozen
class Programs:
    """Number of programs along an axis of the user's grid: index (or i32 with `bits` 32).

    Needed where the launched grid is another one (persistent workgroups, a remapped raster).
    """

    axis: int
    bits: int = 64


LACKING, END, WRAP = -1, -2, -3
"""Dimensions of a tensor map that its array has not."""
OPEN = 1 << 30
"""More lines than an array that the copy engine addresses has (`reach.MOST_EXTENT`)."""
COORDINATES = (1 << 31) - (1 << 16)
"""A dimension of so many elements has all coordinates that a copy names."""


@frozen
class TensorMapOf:
    """A tensor map of an array argument: `!llvm.ptr` with the argument attribute `mach.tensor_map`.

    `dimensions` are the array's dimensions, innermost (unit stride) first, 1 to 5 of them; `box` is
    in elements, in the same order. A dimension beyond the array's rank (a vector seen as a row) is
    `LACKING`: extent 1. `element` is the MLIR name of the element type (`driver.TENSOR_MAP_TYPE`).

    With `END` and `WRAP` last, lines end where a copy says, in front of the array's end: at coordinates
    (OPEN + line - end, end, OPEN) of (lines, `END`, `WRAP`) lies line `line`, outside from `end` on, because strides
    of (pitch, pitch, 2^34 - pitch) bytes add up to line * pitch modulo 2^64. (Triton has the same in ragged_tma.)
    """

    argument: int
    dimensions: tuple[int, ...]
    box: tuple[int, ...]
    element: str
    swizzle: int = 128
    """Span of the shared-memory swizzle in bytes: 0, 32, 64 or 128."""
    rest: tuple[int, ...] = ()
    """(array argument, dimension): a box has as many lines as are left of that extent behind whole boxes."""

    @property
    def ended(self) -> bool:
        """Do lines end where a copy says?"""
        return END in self.dimensions

    def sides(self, shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
        """Extent and stride in bytes of each dimension of an array with these, innermost first."""
        found: list[tuple[int, int]] = []
        for place, dim in enumerate(self.dimensions):
            if dim in (END, WRAP):
                pitch = found[1][1]
                found.append((COORDINATES, pitch if dim == END else (1 << 34) - pitch))
                continue
            extent = shape[dim] if dim >= 0 else 1
            # A dimension of one element has any stride; the driver wants a legal one.
            stride = strides[dim] if place == 0 or extent > 1 else 16
            found.append((OPEN if self.ended and place == 1 else extent, stride))
        return found

    def box_of(self, extent: Callable[[int, int], int]) -> tuple[int, ...]:
        """The box of a launch, by the extents of its arrays; a whole one where nothing is left."""
        if not self.rest:
            return self.box
        width, lines, *lead = self.box
        return (width, extent(*self.rest) % lines or lines, *lead)


Slot = Pointer | Extent | Stride | Scalar | Programs | TensorMapOf

_KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind for kind in (Pointer, Extent, Stride, Scalar, Programs, TensorMapOf)
}


@record
class LoweredThread:
    """The pipeline's result."""

    module: ModuleOp
    """Last-stage IR with one `func.func @entry {mach.kernel}`, whose body is one thread's program."""
    entry: str
    slots: Sequence[Slot]
    """One per parameter of the function, in order."""
    threads: int
    """Threads of a workgroup; the function gets `nvvm.reqntid` from it."""
    shared_bytes: int = 0
    """Dynamic shared memory in bytes (`mach.shared_base`, alignment beyond 16 included)."""
    cluster: tuple[int, int, int] = (1, 1, 1)
    persistent: int = 0
    """0: one workgroup per program of the grid. n: at most n per multiprocessor, in a grid along x,
    which is a multiple of the cluster; the kernel loops over the programs."""
    barriers: int = 1
    """Named barriers that the kernel uses, number 0 included."""
    registers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Per role: registers per thread that setmaxnreg gives it times its threads, if roles are split."""
    minimum_per_multiprocessor: int = 1
    split: int = 1
    """Programs along x for each of the launch's (`retile`): the grid that everything else sees."""
    merges: bool = False
    """May other programs than the launch's be taken?"""
    work: LoopWork | None = None
    """The kernel's loop, if several workgroups may compute one of its programs (`buffer-reuse`)."""
    shares: int = 1
    """Workgroups that may share the iterations of one program, where they are persistent."""
    short: bool = False
    """Are there loops that read so little in an iteration that memory waits where programs are few?"""
    lanes: int = WARP
    """Threads that the program's collective ops are of: a warp, or a part of one."""


@frozen
class LaunchPlan:
    """The part of `LoweredThread` that a launch needs, without the module."""

    entry: str
    slots: tuple[Slot, ...]
    threads: int
    shared_bytes: int
    cluster: tuple[int, int, int]
    persistent: int
    split: int = 1
    work: LoopWork | None = None
    shares: int = 1
    short: bool = False
    merges: bool = False

    @property
    def splits(self) -> bool:
        """May launches of few programs have code of their own?"""
        return self.work is not None or self.short or self.merges

    def to_json(self) -> dict[str, Any]:
        slots = [[type(s).__name__, asdict(s)] for s in self.slots]
        return {**asdict(self), "slots": slots}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LaunchPlan:
        """The plan that `to_json` wrote; KeyError or TypeError for anything else."""
        slots: list[Slot] = []
        for kind, fields in data["slots"]:
            slots.append(_KINDS[kind](**_tuples(fields)))
        x, y, z = data["cluster"]
        return LaunchPlan(
            data["entry"],
            tuple(slots),
            data["threads"],
            data["shared_bytes"],
            (x, y, z),
            data["persistent"],
            data["split"],
            LoopWork(**_tuples(data["work"])) if data["work"] else None,
            data["shares"],
            data["short"],
            data["merges"],
        )


def annotate(lowered: LoweredThread) -> None:
    """The kernel function says what the assembler needs of its launch, and what the reference executor does."""
    for op in lowered.module.body.block.ops:
        if KERNEL not in op.attributes:
            continue
        op.attributes[LEVEL] = StringAttr("lane")
        op.attributes[LANES] = IntegerAttr(lowered.lanes, i64)
        op.attributes[SUBGROUPS] = IntegerAttr(lowered.threads // lowered.lanes, i64)
        op.attributes[SHARED_BYTES] = IntegerAttr(lowered.shared_bytes, i64)
        op.attributes["nvvm.reqntid"] = StringAttr(f"{lowered.threads},1,1")
        least = lowered.minimum_per_multiprocessor
        op.attributes["nvvm.minctasm"] = StringAttr(str(least))
        if lowered.cluster != (1, 1, 1):
            op.attributes[CLUSTER] = IntegerAttr(lowered.cluster[0], i64)
            op.attributes["nvvm.cluster_dim"] = StringAttr(",".join(map(str, lowered.cluster)))


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def plan_of(lowered: LoweredThread) -> LaunchPlan:
    return LaunchPlan(
        lowered.entry,
        tuple(lowered.slots),
        lowered.threads,
        lowered.shared_bytes,
        lowered.cluster,
        lowered.persistent,
        lowered.split,
        lowered.work,
        lowered.shares,
        lowered.short,
        lowered.merges,
    )
