"""Which CPU code is made for, and the sizes that follow from it: vector width, micro-kernel shapes, cache blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import add, mod
from typing import Any, Final

from tilewright import knobs
from tilewright.codegen.native import (
    ARCHITECTURES,
    host_architecture,
    host_core,
    host_features,
    host_level,
)
from tilewright.codegen.target import LLVMTarget, for_cpu
from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import field, frozen
from tilewright.uarch.cpu import Architecture, Caches, MicroKernel, PanelRates, Vectors


@frozen
class CpuMachine:
    """Parameters of code generation for one level of an architecture."""

    architecture: Architecture = field(compare=False)
    target: LLVMTarget
    vectors: Vectors
    dots: tuple[MicroKernel, ...]
    """Instructions on vectors that take several k at once, and pay on this core; fastest first."""
    core: str = ""
    """LLVM's name of it, where its rates of products are known apart."""

    @classmethod
    def of(
        cls,
        architecture: Architecture,
        level: str,
        extra: frozenset[str] = frozenset(),
        core: str = "",
    ) -> CpuMachine:
        """A level with more features, on a core of this name (LLVM's)."""
        target, vectors = for_cpu(architecture, level, extra), architecture.levels[level].vectors
        dots = architecture.dots(target.features, vectors.vector_bytes, core)
        return cls(
            architecture, target, vectors, dots, core if core in architecture.core_panels else ""
        )

    @property
    def panel_rates(self) -> PanelRates:
        """What products from panels take on this core."""
        return self.architecture.core_panels.get(self.core, self.architecture.panel_rates)

    @property
    def vector_bytes(self) -> int:
        """Width of a vector register."""
        return self.vectors.vector_bytes

    @property
    def amx(self) -> bool:
        return self.has("amx-tile")

    @property
    def mr(self) -> int:
        """Rows of the FMA micro-kernel."""
        return self.vectors.mr

    @property
    def kc(self) -> int:
        """Elements of k per block: a panel of B of that depth fits half of the first cache."""
        return self.vectors.kc

    @property
    def panels(self) -> int:
        """Panels of B that the FMA micro-kernel multiplies at once."""
        return self.vectors.panels

    def nr(self, size: int) -> int:
        """Columns of a panel of B for accumulators of `size` bytes."""
        return self.vectors.nv * self.vector_bytes // size

    def __str__(self) -> str:
        """The instructions that products use, as a person calls them: "AVX-512 with VNNI"."""
        kinds = (("bf16", "amx-bf16"), ("f16", "amx-fp16"), ("i8", "amx-int8"))
        tiles = [name for name, feature in kinds if self.amx and self.has(feature)]
        named = list(dict.fromkeys(m.title for m in self.dots if m.title))
        named += [f"AMX for {', '.join(tiles)}"] if tiles else []
        return f"{self.vectors.name} with {' and '.join(named)}" if named else self.vectors.name

    def key(self) -> str:
        """Everything that generated code depends on."""
        return "|".join(filter(None, [self.target.key(), *(m.name for m in self.dots), self.core]))

    @property
    def row_unit(self) -> int:
        """Rows of buffers come in multiples of this, so that micro-kernels may write whole blocks."""
        return 32 if self.amx else self.mr

    @property
    def word(self) -> int:
        """Bytes that an atomic changes at once."""
        return 16 if self.has("exchange") else 8

    @property
    def accumulators(self) -> int:
        """Vector registers that sums may take, beside what they are computed from."""
        return self.vectors.accumulators

    def form(
        self,
        tile: tuple[int, int],
        along_k: tuple[bool | None, bool | None],
        *,
        tiles: bool,
        halves: bool = False,
        single: bool = False,
        turns: bool = False,
    ) -> int | None:
        """What of a product of floats with a tile of so many rows and columns is multiplied where it lies by a form of
        its own: 0, A beside few columns, or 1, B beside few rows (see `thin`); `DEEPER`, many rows of A, each few of
        them beside all columns before the next (see `roles`). None: nothing.

        `along_k`: do rows of A and of B run along k (None: that lies in no array)? `tiles` would multiply it, in which
        elements may have two `halves`, or vectors from panels; `single`: those of one k, beside rows of A as they are;
        `turns`: each turn of a loop, which reads these again and again. Fewer of them are multiplied by rows of B,
        which lie better."""
        (rows, columns), (a, b) = tile, along_k
        few = self._few(tiles, bool(b), halves, turns)[0]
        if b is not None and rows <= few:
            return 1
        if a and columns <= self._few(tiles, True, halves, turns)[1]:
            return 0
        return DEEPER if single and rows > FEW_TURNS * self.mr and not turns else None

    def _few(self, tiles: bool, inner: bool, halves: bool, turns: bool) -> tuple[int, int]:
        """Rows of A and columns of B up to which the other operand is multiplied where it lies, `inner` along k."""
        if tiles and halves:
            return self.mr, COLUMNS_OF_HALVES
        if tiles:
            return THIN_INNER_OF_TILES if inner else THIN_OF_TILES
        rows = self.mr if inner and not turns else min(THIN_ROWS * self.mr, self.accumulators)
        return rows, THIN_COLUMNS

    def unrolls(self, rows: int, group: int) -> bool:
        """Are rows of B in groups of so many k loaded by an instruction each beside so few of A (see `thin`)? More hide
        what memory takes, and one instruction serves all of B's."""
        return group == 1 and rows <= THIN_FEW

    def thin_vectors(self, rows: int, columns: int, lanes: int, unrolled: bool) -> int:
        """Of each row of B, those that few `rows` are multiplied by at once (see `thin`): a power of two."""
        most = THIN_VECTORS // 2 if unrolled else THIN_VECTORS
        return power_of_two_in(most, columns // lanes, self.accumulators // rows)

    def together(self, rows: int) -> int:
        """Of so many rows beside rows of B, those that are multiplied at once: more than a panel's in even shares."""
        return -(-rows // -(-rows // self.mr))

    def in_shares(self, rows: int) -> float:
        """The speed of such rows, by that of panels."""
        return IN_SHARES if rows > self.mr else 1.0

    def has(self, feature: str) -> bool:
        return self.target.has(feature)

    def refuse_elsewhere(self) -> None:
        """UnsupportedError where the machine at hand executes other instructions. What the operating system must
        be asked for is asked for here, by a process that never asked which level it has."""
        here = host_architecture()
        host_features()
        if here is not self.architecture:
            there = self.architecture.machine.name
            raise UnsupportedError(
                f"this is code for {there} ({self.vectors.name}), and this machine is {here.machine.name}",
                hint="tilewright compile writes it; without TILEWRIGHT_CPU and options(machine=) it is for here",
            )


THIN_OF_TILES: Final = (8, 0)
"""Up to there multiply-add on registers is faster than copies for tiles."""
THIN_INNER_OF_TILES: Final = (4, 4)
"""Up to there it keeps up with memory, as tiles that read rows where they lie do (see `roles`)."""
THIN_ROWS: Final = 2
"""Times as many rows as a panel has, beside rows of B along x, or in turns: those that a turn copies are multiplied by
no other, and a copy of B takes longer than so few rows do."""
IN_SHARES: Final = 0.72
"""Sums come and go with each run of B's rows, which the first cache has for the next share: measured on an AMX host, B
in its caches, 0.75 to 0.9 of panels that read B where it lies; where B has to be copied for those, they take twice as
long as this."""
THIN_COLUMNS: Final = 24
THIN_FEW: Final = 4
"""Rows beside which memory limits dot products: sums come and go while each group of rows of B is read from end to end
(outer), and vectors that are converted come a fifth sooner (inner)."""
THIN_RUN: Final = 8
"""Rows of B that are read side by side (outer): as many streams as caches follow, and no more than a set of the nearest
cache has lines, for rows are often a power of two apart."""
THIN_VECTORS: Final = 4
"""Vectors of each of them at a time (outer): wider parts of so many rows evict one another. Half as many of rows
that are loaded by an instruction each: that is as fast, and less code."""
THIN_AHEAD: Final = 8 << 10
"""Bytes of these rows that are on their way to the first cache meanwhile, an even part of each row."""
THIN_DEPTH: Final = 4096, 16384
"""k per block of the thin side (inner), shared by its rows, and of instructions that multiply several: the other side
is read in runs as long."""
THIN_HELD: Final = 16 << 10
"""Bytes of its rows that are read again for other columns (inner): the first cache holds them."""
COLUMNS_OF_HALVES: Final = 8
"""Tiles multiply halves in three products, not one, and all elements are copied for them."""


LONGEST: Final = 64
"""Rows and columns of products of small tiles at most that are read where they lie (see `lying`): longer ones amortise
their panels."""
DEEPEST: Final = 256
"""k of those by AMX at most: the first cache holds what is copied."""
WIDE_COLUMNS: Final = 64
"""Columns beside which tiles of AMX take rows of an array at once: four tiles of C beside one of these rows."""
SHORT: Final = 8
"""k per row of A up to which turning C round, in every turn of a loop, takes longer than packing B for all of them."""
DEEP: Final = 8
"""Times as deep as others their blocks of k are: panels of role B still stay in the second cache."""
STRIP_BYTES: Final = 1 << 19
"""What a block of k of B takes as panels beside few rows: the second cache holds it, with what is read and C."""
FEW_USES: Final = 4
"""Rows of an array are read as often as that; more often pays for a copy in which they lie together."""
FEW_TURNS: Final = 8
"""The same for rows of B whose vectors stand as they do in panels: what they lack is only to lie together."""
DEEPER: Final = 2
"""A form of products, of those that an operand's number names: many rows of A where they lie (`CpuMachine.form`)."""
MANY_TURNS: Final = 32
"""The same where each few of many rows are multiplied by all columns (`DEEPER`), which read a block of B as often from
caches: its rows share sets of the first one, where a copy costs more than that."""
BY_ROWS: Final = 2
"""Times as deep as others the blocks of k are where each few of many rows are multiplied by all columns (`DEEPER`):
sums, which the second cache has at best, are read and written once per block."""
APART: Final = 8192
"""Rows that lie a multiple of so many bytes apart, or a line more or less, share too few sets of the second cache for a
block of k to stay there."""
SHARED_BYTES: Final = 1 << 25
"""Of an array that the last cache holds. From beyond it a panel's strip, a line or two of each row, comes at half the
speed of runs as long as a tile."""
PAGED_BYTES: Final = 1 << 18
"""Whose pages the nearest table of addresses holds: what lies farther apart is best read again from a copy."""
MOST_LINES: Final = 4
"""Lines fetched per step of tiles and operand: more cost more than they hide."""
STREAM_BYTES: Final = 16 << 20
"""Results of this size and more do not stay in a core's share of the caches, nor smaller ones beside operands."""
MIN_BYTES: Final = 1 << 10, 2 << 10
"""Of a row of a fused group of one level that starts anywhere in a line, what is in the matrix; of a row of several
levels."""
STREAMS: Final = 32
"""Rows read side by side that a core fetches ahead by itself."""


def thin_depth(few: int, dots: bool, again: int) -> int:
    """k per block of `few` rows or columns, a power of two, beside rows that run along k (inner). `again`: bytes, for
    each k, of the rows that are multiplied by these and then by others; 0: there are no others."""
    depth = THIN_DEPTH[dots] // few
    return min(depth, THIN_HELD // again) if again else depth


def turns_often(rows: int, k: int | None) -> bool:
    """Does a product of tiles with so many rows of A, repeated by a loop along `k` (None: of unknown length, or in no
    loop), take less time than turning its C round? Beside one tile of rows B is best read where it lies all the same.
    """
    return k is not None and rows > WIDE_COLUMNS // 4 and k <= SHORT * rows


def shallower(rows: int, row: int, depth: int) -> int:
    """The depth of a block of k, `depth` elsewhere, where rows of B of so many bytes each stand beside `rows` of A:
    few of these read B once, in runs that are long, which leaves less room for a block."""
    least = depth // 4
    while rows <= WIDE_COLUMNS and depth > least and depth * row > STRIP_BYTES:
        depth //= 2
    return depth


def columns_at_once(columns: int, unit: int) -> int:
    """Of so many, those that a row of an array is multiplied by at once: all, or even shares, in whole units."""
    shares = -(-columns // WIDE_COLUMNS)
    return -(-columns // (shares * unit)) * unit


SPREAD: Final = 2 * Caches.line


def among_sets(
    pitch: Any, plus: Callable[[Any, int], Any] = add, rest: Callable[[Any, int], Any] = mod
) -> Any:
    """Where a row lies behind the one before, that many bytes apart, in `APART`, counted from a line before it: from
    `SPREAD` on rows use most sets of the second cache. In IR with the sum and the rest of a builder."""
    return rest(plus(pitch, Caches.line), APART)


def chosen(level: str | None) -> CpuMachine:
    """The machine of a kernel's options: of a level, or the one at hand up to the tier of `TILEWRIGHT_CPU`."""
    return machine(level, knobs.current().cpu if level is None else None)


@cache
def machine(level: str | None = None, tier: str | None = None) -> CpuMachine:
    """The machine of a level (a name in the table of an architecture); None is the one at hand, up to a tier. A level
    or a tier whose name only another architecture has is one of that.

    Raises UnsupportedError where there is no such name, or the machine at hand has not what the tier is named for.
    """
    here = host_architecture()
    known = [here, *(a for a in ARCHITECTURES if a is not here)]
    if level not in (None, "native"):
        assert level is not None
        for each in known:
            if level in each.levels:
                return CpuMachine.of(each, level)
        names = ", ".join(name for a in known for name in a.levels)
        raise UnsupportedError(f"no CPU is called {level!r}", hint=f"there are {names}")
    name = host_level()
    if tier is not None:
        of = next(a for a in known if tier in a.tiers)
        found = of.tiers[tier]
        if of is not here:
            return CpuMachine.of(of, found.most)
        order = list(here.levels)
        if order.index(name) < order.index(found.least):
            raise UnsupportedError(
                f"TILEWRIGHT_CPU={tier}: this machine executes {name} at most",
                hint="leave it out for all that the machine has",
            )
        name = min(name, found.most, key=order.index)
    return CpuMachine.of(here, name, here.extras(name) & host_features(), host_core())


def power_of_two_in(*limits: int) -> int:
    """The largest power of two that exceeds none of these, or 1."""
    return 1 << (max(min(limits), 1).bit_length() - 1)


def runs_of(count: int, most: int) -> list[tuple[int, int, int]]:
    """Parts of 0 to `count`, whose lengths are powers of two up to `most`: (start, length, how many of this length)."""
    found: list[tuple[int, int, int]] = []
    at, length = 0, 1 << (most.bit_length() - 1)
    while at < count:
        times = (count - at) // length
        if times:
            found.append((at, length, times))
        at += times * length
        length //= 2
    return found


FEW_READS: Final = 2
"""Reads of an operand up to which each reader packs it; so many for each thread where copies are shared."""
FEW_COPIES: Final = 4
"""The same of rows for tiles, which a reader copies while it multiplies (see `operands`), if they are not `APART`."""
SHARING: Final = 3
"""Threads from which on a copy has several readers besides the one that writes it."""


def few_reads(threads: int) -> int:
    """Reads of an operand by a launch on so many threads up to which each of them packs what it reads.

    A copy in memory costs more than packing twice. Where several cores share the copy, it costs more: lines that more
    than one other core has read are written anew at about 9 GB/s by all cores together, however many write.
    """
    return FEW_READS if threads < SHARING else FEW_READS * threads
