"""What a machine table consists of: matrix instructions with fragments, memories, limits.

A table states facts, each with its source; it decides nothing. Fragments are ownership in normal form
(:class:`tilewright.layout.Layout`), so that every pass compares layouts of any machine with the same
code. A limit is refused with a sentence that names the op, the number and the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import frozen, guarded

if TYPE_CHECKING:  # a launch from the disk cache needs no ownership
    from tilewright.layout import Layout, MmaShapes

K = TypeVar("K")
V = TypeVar("V")


class MatrixFragments(NamedTuple):
    """Ownership of the operands of one matrix instruction: A [m, k], B [k, n], C and D [m, n].

    None for an operand that the instruction reads from memory only.
    """

    a: Layout | None
    b: Layout | None
    c: Layout


@frozen
class MatrixInstruction:
    """One multiply-accumulate instruction, D = A B + C, for one choice of element types.

    ``types`` are (A, B, accumulator) by Tilewright's dtype names. ``m`` and ``n`` list the legal
    sizes, ascending; ``k`` is fixed by the types. ``pack_a`` elements along k of A, ``pack_b`` of B form
    one unit of a lane. ``subgroups`` act together (4 warps for wgmma).
    """

    name: str
    types: tuple[str, str, str]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int
    fragments_of: Callable[[int, int], MatrixFragments]
    source: str
    pack_a: int = 1
    pack_b: int = 1
    subgroups: int = 1
    flops_per_cycle: float | None = None
    """Of one core or streaming multiprocessor at its peak rate; None where it is not known."""

    def fragments(self, m: int | None = None, n: int | None = None) -> MatrixFragments:
        """Fragments for an instruction size, by default the largest. UnsupportedError if not legal."""
        m = self.m[-1] if m is None else m
        n = self.n[-1] if n is None else n
        for what, value, legal in (("M", m, self.m), ("N", n, self.n)):
            if value not in legal:
                raise UnsupportedError(
                    f"{self.name} of {' x '.join(self.types[:2])} has no {what} = {value}: "
                    f"{what} is {_listed(legal)}",
                    rule=self.source,
                )
        return self.fragments_of(m, n)

    def shapes(self, m: int | None = None, n: int | None = None) -> MmaShapes:
        """Sizes and packing for deriving maps of operands, by default the largest instruction."""
        from tilewright.layout import MmaShapes

        return MmaShapes(m or self.m[-1], n or self.n[-1], self.k, self.pack_a, self.pack_b)


@frozen
class MemoryLevel:
    """One memory: ``size`` in bytes that one ``scope`` (workgroup, core, device) can use."""

    name: str
    size: int
    scope: str
    source: str
    line: int = 64
    """Bytes of a cache line or bank row."""


@frozen
class Limit:
    """Bounds of a number: inclusive ``least`` and ``most``, a divisor, or a list of legal values."""

    what: str
    source: str
    least: int | None = None
    most: int | None = None
    multiple: int = 1
    values: tuple[int, ...] = ()
    unit: str = ""

    def fault(self, number: int) -> str | None:
        """The end of the sentence that refuses ``number``, None where it is legal."""
        unit = f" {self.unit}" if self.unit else ""
        if self.values and number not in self.values:
            return f"it is {_listed(self.values)}{unit}"
        if self.least is not None and number < self.least:
            return f"it is at least {self.least}{unit}"
        if self.most is not None and number > self.most:
            return f"it is at most {self.most}{unit}"
        if number % self.multiple:
            return f"it is a multiple of {self.multiple}{unit}"
        return None


@frozen
class Rates:
    """How fast a machine is and what it holds near: what the planner costs launches by. Per core, per second.

    Peaks of data sheets less what good kernels lose, or measured; ratios decide, not the numbers.
    """

    cores: int
    product_flops: float
    """Multiplications and additions of products, at 4 bytes per element."""
    elementwise_bytes: float
    """Bytes of results of an op on values."""
    memory_bytes: float
    """Bytes that loads and stores move to and from memory."""
    shared_bytes: float
    """Bytes from the cache that all cores share."""
    cache_bytes: int
    """Values stay near the core up to this size; larger ones move at ``memory_bytes``."""
    value_bytes: int
    """Bytes of the largest value that a kernel is given."""
    accumulator_bytes: int
    """Bytes of all results of products that live at once."""
    stage_bytes: int
    """Bytes of the operands of one step of a product: several steps are under way at once."""
    op_seconds: float
    """What an op costs besides."""
    launch_seconds: float
    """What one more kernel costs."""
    program_seconds: float = 0.0
    """What a program costs besides what it does."""
    wait_seconds: float = 0.0
    """From a load to what is done with it, and of a program's start and end, while its core runs others. 0: it runs
    none."""
    threads: int = 0
    """Of a core that runs several programs, and `registers` of 32 bits for all of them."""
    registers: int = 0
    gather_ops: float = 1
    """A tile that is gathered is waited for as long as so many ops."""
    kept_bytes: int = 0
    """Bytes of the cache that all cores share, where it answers what programs load again. 0: that is not told."""
    access_bytes: int = 0
    """What memory moves at least, of neighbours in a row of an array."""
    asynchronous: bool = False
    """Copies and products run beside other ops, and accumulators stay in registers from step to step."""
    parts: int = 1
    """Cores that can share one program with products, where there are fewer programs than cores."""
    row_seconds: float = 0.0
    """What each row of a tile that is loaded, stored or computed costs besides: it begins anew."""
    streams: int = 0
    """Rows that caches fetch ahead side by side, where a tile has parts of them; more come late, and take up to twice
    as long. 0: that is not told."""
    plain: Rates | None = None
    """Those of kernels without products, where they are known apart."""
    product_rows: int = 16
    """Rows that the matrix unit takes at once of elements of 16 bits or fewer: tiles of fewer are for a slower one."""
    product_run: int = 16
    """Bytes along k that a step of such a product has at least, as its panels lie near the core."""
    by_size: tuple[tuple[int, float], ...] = ()
    """Bytes of an element and operations of products per second, where they are not in the ratio of the bytes."""
    origin: str = "assumed"
    """Where the numbers are from."""

    def resident(self, elements: int) -> int:
        """Programs that a core runs at the same time, whose largest value has so many elements: of its threads
        a program has one for four elements, 256 at most, and registers that hold the value and half of it."""
        if not self.wait_seconds:
            return 1
        threads = min(256, max(32, elements // 4))
        registers = threads * (16 + 3 * elements // (2 * threads))
        return max(1, min(32, self.threads // threads, self.registers // registers))

    def flops(self, size: int) -> float:
        """Multiplications and additions of products of elements of so many bytes."""
        return dict(self.by_size).get(size, self.product_flops * 4 / size)


GENERIC = Rates(
    cores=8,
    product_flops=1e11,
    elementwise_bytes=3e10,
    memory_bytes=1e10,
    shared_bytes=2e10,
    cache_bytes=1 << 20,
    value_bytes=1 << 20,
    accumulator_bytes=1 << 19,
    stage_bytes=1 << 20,
    op_seconds=1e-7,
    launch_seconds=5e-6,
    origin="assumed: the ratios of any of today's CPU cores",
)
"""A machine of no name: the ratios are those of any of today's CPU cores."""


def gpu_rates(
    cores: int,
    product_flops: float,
    memory_bytes: float,
    shared_bytes: float,
    shared_memory: int,
    parts: int = 1,
    wait_seconds: float = 0.0,
    origin: str = "the data sheet",
) -> Rates:
    """The rates of a GPU, whose cores are multiprocessors or Xe cores of 128 lanes with 256 KiB of registers."""
    return Rates(
        cores=cores,
        product_flops=product_flops,
        elementwise_bytes=4e11,
        memory_bytes=memory_bytes,
        shared_bytes=shared_bytes,
        cache_bytes=128 << 10,
        value_bytes=128 << 10,
        accumulator_bytes=128 << 10,
        stage_bytes=shared_memory // 4,
        op_seconds=2e-8,
        launch_seconds=3e-6,
        gather_ops=32,
        asynchronous=True,
        parts=parts,
        wait_seconds=wait_seconds,
        origin=origin,
    )


@guarded
class Machine:
    """The table of one machine. ``kind`` is the target that compiles for it."""

    name: str
    kind: str
    subgroup_sizes: tuple[int, ...]
    matrix: tuple[MatrixInstruction, ...]
    memories: Mapping[str, MemoryLevel]
    limits: Mapping[str, Limit]
    source: str
    rates: Rates
    notes: tuple[str, ...] = field(default=())

    def instruction(self, a: str, b: str, accumulator: str) -> MatrixInstruction:
        """The matrix instruction for these element types. UnsupportedError names what there is."""
        for each in self.matrix:
            if each.types == (a, b, accumulator):
                return each
        known = sorted({" x ".join(i.types[:2]) + f" -> {i.types[2]}" for i in self.matrix})
        raise UnsupportedError(
            f"{self.name} has no matrix instruction for {a} x {b} -> {accumulator}",
            hint=f"it multiplies {', '.join(known) or 'nothing'}",
        )

    def fault(self, op: str, limit: str, number: int) -> str | None:
        """Why ``op`` cannot have ``number`` here, as a sentence; None where it can."""
        entry = self.limits[limit]
        end = entry.fault(number)
        unit = f" {entry.unit}" if entry.unit else ""
        if end is None:
            return None
        return f"{op}: {entry.what} of {number}{unit} is not possible on {self.name}: {end}"

    def require(self, op: str, limit: str, number: int) -> None:
        """Refuse a number beyond a limit. UnsupportedError names op, number, limit and source."""
        message = self.fault(op, limit, number)
        if message is not None:
            raise UnsupportedError(message, rule=self.limits[limit].source)


def table(entries: Mapping[K, V]) -> Mapping[K, V]:
    """A read-only mapping."""
    return MappingProxyType(dict(entries))


def by_name(*memories: MemoryLevel) -> Mapping[str, MemoryLevel]:
    return table({m.name: m for m in memories})


def _listed(values: tuple[int, ...]) -> str:
    """A list of legal values as a reader wants it: "8, 16 or 24", "8 to 256 in steps of 8"."""
    steps = {b - a for a, b in pairwise(values)}
    if len(values) > 4 and len(steps) == 1:
        (step,) = steps
        each = f" in steps of {step}" if step != 1 else ""
        return f"{min(values)} to {max(values)}{each}"
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last
