"""What a schedule costs and why it is so: bytes per level, arithmetic, time fused and unfused, cuts.

Bytes and operations are counted by walking the scheduled graph: every edge, times the iterations of the Tasks around
it. Times are the estimates that the schedule was chosen by.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.frozen import field, record
from tilewright.graph.affine import Affine
from tilewright.graph.fuse import Schedule
from tilewright.graph.nodes import GLOBAL, Axis, Gather, Operation, Task, TiledGraph, walk
from tilewright.graph.operations import operation as entry_of
from tilewright.graph.validate import skipped_levels


@record
class KernelCost:
    """One kernel: counts over the whole launch."""

    name: str
    programs: int = 1
    bytes: dict[str, int] = field(default_factory=dict[str, int])
    """Loaded and stored by level, in whole tiles: what another program or iteration loads again counts again."""
    least: int = 0
    """Bytes of global memory if every element that is touched moved once."""
    flops: int = 0
    seconds: float | None = None
    """Estimated; None for a graph that was scheduled by hand."""


@record
class Explanation:
    """What :meth:`TiledGraph.explain` gives; ``str()`` is the report."""

    name: str
    kernels: list[KernelCost]
    cuts: list[str]
    skipped: list[str]
    fused_seconds: float | None
    unfused_seconds: float | None

    @property
    def verdict(self) -> str:
        """What fusing was worth, in a sentence."""
        count = f"{len(self.kernels)} kernel{'s' if len(self.kernels) != 1 else ''}"
        if self.fused_seconds is None or not self.unfused_seconds:
            return f"{count}, as written"
        gain = self.unfused_seconds / self.fused_seconds
        return (
            f"{count}: {_time(self.fused_seconds)} fused, {_time(self.unfused_seconds)} with a kernel "
            f"for every operation, {gain:.2f} times that"
        )

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.verdict}"]
        for k in self.kernels:
            time = f", {_time(k.seconds)}" if k.seconds is not None else ""
            lines.append(f"  {k.name}: {k.programs} programs, {_count(k.flops)} flop{time}")
            for level, size in k.bytes.items():
                extra = f", {_count(k.least)}B at least" if level == GLOBAL else ""
                lines.append(f"    {level}: {_count(size)}B moved{extra}")
        lines += [f"  cut: {cut}" for cut in self.cuts]
        lines += [f"  skipped level: {edge}" for edge in self.skipped]
        return "\n".join(lines)


def explain(schedule: Schedule) -> Explanation:
    """The costs of a schedule whose extents are numbers."""
    graph = schedule.graph
    kernels = [kernel_cost(graph, task) for task in graph.tasks]
    for cost, kernel in zip(kernels, schedule.kernels, strict=False):
        cost.seconds = kernel.cost.seconds
    seconds = sum(k.cost.seconds for k in schedule.kernels) if schedule.kernels else None
    unfused = schedule.unfused_seconds or None
    return Explanation(graph.name, kernels, schedule.cuts, skipped_levels(graph), seconds, unfused)


def kernel_cost(graph: TiledGraph, kernel: Task) -> KernelCost:
    """The counts of one kernel."""
    cost = KernelCost(kernel.name)
    cost.programs = _trips([a for a in kernel.axes if a.mapping == "block"])
    touched: set[str] = set()
    for around, operation in walk([kernel]):
        times = _trips([axis for task in around for axis in task.axes])
        for edge in operation.edges:
            for access in edge.access.accesses():
                buffer = graph.buffers[access.buffer]
                size = _elements(access.shape) * buffer.dtype.itemsize
                if edge.combine is not None and access is edge.access:
                    size *= 2
                cost.bytes[buffer.level] = cost.bytes.get(buffer.level, 0) + size * times
                if buffer.level == GLOBAL and buffer.name not in touched:
                    touched.add(buffer.name)
                    whole = _elements(buffer.shape) * buffer.dtype.itemsize
                    gathers = any(isinstance(e, Gather) for e in access.entries)
                    cost.least += min(whole, size * times) if gathers else whole
        cost.flops += times * _flops(graph, operation)
    return cost


def _trips(axes: Sequence[Axis]) -> int:
    return prod(-(-(a.extent.number or 0) // a.step) for a in axes)


def _elements(shape: Sequence[Affine]) -> int:
    return prod(e.number or 0 for e in shape)


def _flops(graph: TiledGraph, operation: Operation) -> int:
    entry = entry_of(operation.op)
    if entry is None:
        return 0
    if entry.kind == "mma":
        a, b = (e.access.shape for e in operation.loads)
        return 2 * _elements(a) * (b[-1].number or 0 if b else 1)
    if entry.kind == "reduce":
        return _elements(operation.loads[0].access.shape)
    return entry.flops * _elements(operation.store.access.shape)


def _count(number: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} P"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
