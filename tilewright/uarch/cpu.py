"""What tables of CPUs consist of: levels of features, micro-kernels with their packed panels, caches.

A *micro-kernel* multiplies a panel of A (mr rows) by a panel of B (nr columns) over k and keeps the mr x nr
accumulators in registers. Its panels are memory layouts in normal form: the packer writes them, the
micro-kernel reads them from end to end. Which level a machine has is found at run time (`codegen/native`);
the tables (`x86`, `arm`) say what each level can do. Rates are measured ones (docs/performance).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from math import inf
from typing import Final

from tilewright.frozen import frozen
from tilewright.uarch.base import GENERIC, Limit, Machine, table

ITEMSIZE: Final = table(
    {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8}
)


@frozen
class MicroKernel:
    """mr x nr accumulators of ``types[2]`` fed by one instruction that takes ``group`` k at once.

    ``features`` are LLVM's names. ``rows`` and ``columns`` are what one instruction covers of the
    mr x nr (a tile of 16 x 16 for AMX, one row of a vector otherwise). Panels hold elements of
    types[0] and types[1]; narrower inputs are widened while packing.
    """

    name: str
    features: frozenset[str]
    types: tuple[str, str, str]
    mr: int
    nr: int
    rows: int
    columns: int
    group: int
    flops_per_cycle: float
    source: str
    k_step: int = 1
    """k per trip of the loop, a multiple of the group: one tile's worth for AMX."""
    panels: int = 1
    """Panels of B that are multiplied at once: mr x (panels * nr) accumulators."""
    instruction: str = ""
    """Of vectors that take several k at once: its entry in ``codegen/instructions``. With three operands it adds to
    the first; the products of one with two are added to the accumulators."""
    title: str = ""
    """What a person calls it, where it is worth telling."""

    @property
    def vector_bytes(self) -> int:
        """Of one accumulator; of a row of them in a tile."""
        return self.columns * ITEMSIZE[self.types[2]]

    @property
    def accumulators(self) -> int:
        """Registers (tiles or vectors) that hold the accumulators."""
        return (self.mr // self.rows) * (self.nr // self.columns) * self.panels

    @property
    def lanes_a(self) -> int:
        """Rows of one panel of A: those of a tile, or all mr."""
        return self.rows if self.rows > 1 else self.mr

    @property
    def lanes_b(self) -> int:
        """Columns of one panel of B: those of a tile, or all nr."""
        return self.columns if self.rows > 1 else self.nr


@frozen
class Vectors:
    """FMA micro-kernel of some width of vectors: ``mr`` rows of ``panels`` times ``nv`` vectors, ``kc`` of k per block.

    The accumulators, one row of B and a broadcast of A fit the vector registers. Accumulators are enough
    to hide an FMA's latency (4 cycles, two of them issued in each: 8 is the least and leaves nothing for
    a load that comes late), and loads are fewer than FMAs. What of B one block of k multiplies, ``panels`` of depth
    ``kc``, fits the first cache; a panel is one or more vectors wide and divides the tiles that people
    write, which three vectors do not. ``kc`` is a multiple of 64: packing moves that many bytes of k at once.
    """

    name: str
    """As a person calls them: AVX-512."""
    vector_bytes: int
    registers: int
    mr: int
    nv: int
    kc: int = 256
    panels: int = 1
    attributes: str = ""
    """Of functions of LLVM that use such vectors."""

    @property
    def accumulators(self) -> int:
        """Registers that sums may take, beside what they are computed from."""
        return self.registers * 3 // 4


@frozen
class Level:
    """A set of features (LLVM's names), on top of those of the levels before it in an architecture's table."""

    features: tuple[str, ...]
    core: str
    """LLVM's scheduling model."""
    vectors: Vectors
    extras: tuple[str, ...] = ()
    """What code of this level and later ones uses besides where the machine at hand has it."""
    plain: str = ""
    """The level that it is but for its matrix units."""


@frozen
class Tier:
    """A name that users choose by: the level that a machine must have for it, and the highest that is used."""

    least: str
    most: str


@frozen
class PanelRates:
    """What products from panels and their copies take on a core: bytes and seconds of the operands."""

    hertz: float
    """Clocks per second while it multiplies."""
    tiles: float
    """What micro-kernels of tiles reach of that rate, with loads from the second cache, and stores of sums."""
    inner: float
    """Thin products along whose k both sides lie together (see `thin`), of the rate of vectors."""
    stream: float
    """Bytes per second that one core reads from memory."""
    memory: float
    """The same of all cores."""
    in_place: float
    """A side that micro-kernels read where it lies, bytes per second."""
    late: float
    """Of it, what comes too late at least where it is more rows than a core fetches ahead by itself."""
    in_tiles: float
    """A side that tiles of a matrix unit read where it lies, beside two of the other side."""
    pack_lines: float
    """Copies of B where its rows run along columns."""
    pack_runs: float
    """Where they run along k."""
    pack_groups: float
    """Where they run along k, for tiles, in groups of it."""
    pack_short_runs: float
    """The same for panels that the first cache holds."""
    pack_rows: float
    """Copies of A where its rows run along k."""
    pack_columns: float
    """Where they do not."""
    run: float
    """Where a reader packs: what a row that lies together costs besides its bytes, as so many of them."""
    panels: float
    """Reads of panels that the same core packed."""
    far_panels: float
    """Of those that the second cache does not hold: other cores packed them, or they are too many."""
    far_copies: float
    """What a reader packs where that and C exceed the second cache."""
    sums: float
    """C, which is read and written once per block of k."""
    far_sums: float
    """What of C and a block of A is too much for the second cache."""
    far_tile_sums: float
    """The same where tiles are multiplied: the next block of C is fetched meanwhile."""
    row: float
    """Seconds until a row of C goes out, of any length."""
    row_of_a: float
    """Seconds until a row of A comes from its array, once per block of k, beside vectors."""
    program: float
    """Seconds of a program besides."""
    thread: float
    """Seconds until one more thread has begun."""
    shared_writes: float
    """Lines that several cores have read are written anew, bytes per second of all cores together."""
    meeting: float
    """Seconds until all cores have packed their part."""
    uneven: float
    """Programs that the last core does while others wait, by the binary logarithm of the cores."""
    parted: float = inf
    """Bytes of C per second, computed in tiles, as far as they take longer than whole rows, where programs store parts
    of rows that the second cache does not hold."""
    long_runs: float = 1.0
    """Of what a core reads from memory, where rows beside few are so long that those behind them are not fetched by
    name."""
    paired: float = 0.0
    """Of a line that is fetched because the other one of its pair is asked for, and read by another program, the part
    that is in vain."""


PANEL_RATES: Final = PanelRates(
    hertz=2.4e9, tiles=0.35, inner=0.45, stream=1.52e10, memory=2.6e11, in_place=1.65e10, late=0.45,
    in_tiles=1.8e10, pack_lines=1.34e10, pack_runs=1e10, pack_groups=7e9, pack_short_runs=2.6e10, pack_rows=4.96e10,
    pack_columns=1.11e10, run=90.0, panels=9.2e10, far_panels=3.4e10, far_copies=5.8e10, sums=6.8e10,
    far_sums=1.4e10, row=2.5e-8, row_of_a=2.5e-8, program=6.7e-7, thread=1.3e-6, shared_writes=1e10, meeting=1.6e-5,
    uneven=0.22, far_tile_sums=2.4e10, parted=1.6e10, paired=0.5,
)  # fmt: skip
"""Fitted to 97 products of drawn shapes, bf16, i8 and f32, each with up to 40 tilings, on 8 and 16 cores of a Xeon with
AMX and on one of another (2026-11-26, as `benchmarks.panel_rates` does it), starting from a fit to 381 others.
`inner`, `late` and `far_sums` were then set by hand with 72 more on 1, 4 and 16 cores in view: there the chosen tilings
run at 0.94 of the best ones (0.92 before); `panels` with 64 more on 1, 2 and 16 cores, and those of before, in view.
`tiles`, `in_tiles`, `pack_runs` and `uneven` were fitted to either half of 103 products more, of another day, on 1, 2
and 16 cores (2026-11-28), and lie between the two, which agree.
`uneven` was set anew when the last round became the faster cores' (71 products on 16 threads of two hosts, 34 on two).
`far_tile_sums` is more since blocks of C are fetched ahead, set by hand with eight products on one thread in view:
by the tilings that it chooses they run 1.16 times as fast (2026-11-28).
`in_tiles` became 1.8e10 (2.6e10) when rows beside many columns were counted as often as they are read: 49 products
on 16 threads of two hosts, 28 on one and two threads, judged on 31 more (2026-11-28).
`shared_writes` became 1.8e10 (1.2e10) with 121 products on 16 threads of five hosts in view, and was judged on 14 that
are chosen otherwise so (2026-11-29); 1e10 with `pack_groups`, which had been taken for as fast as `pack_runs`.
`parted` and `pack_groups` were set by hand with half of 249 products on 16 threads and on one in view, and judged on
the others; then `parted` and `shared_writes` were fitted to either half of 333, and lie between (2026-11-30).
`paired` was set by hand with 241 products on one thread and 177 on 16 in view: what is chosen of the tilings that were
timed runs at 0.960 and 0.945 of the best (0.958 and 0.943 without it; 2026-11-30).
Other machines are taken to be alike in proportion."""


ROW_RATES: Final = replace(
    GENERIC, elementwise_bytes=5.2e10, memory_bytes=4e10, cache_bytes=1 << 17, op_seconds=1.2e-9,
    row_seconds=2.7e-9, streams=32, program_seconds=5e-8, launch_seconds=2e-7, origin="measured on a core of Zen 5",
)  # fmt: skip
"""Of kernels without products, whose ops on values run together, row by row: fitted to 16 kinds of kernels (norms,
sums, softmax, elementwise chains, stencils, transposes, gathers; f32, bf16 and f16) at 48 drawn extents, up to 14
tilings each on one thread, programs as they are, and judged on 48 more: choices among these run at 0.942 of the best,
0.801 by `GENERIC` (2026-11-29). Values larger than `cache_bytes` wait in memory, if they are summed; nothing is lost by
keeping to it where they are not."""


@frozen
class Architecture:
    """All that code for CPUs of one instruction set depends on."""

    name: str
    """As the names of targets and of instructions begin: ``x86``."""
    machine: Machine
    triple: str
    hosts: tuple[str, ...]
    """What operating systems call machines that execute it."""
    levels: Mapping[str, Level]
    """The lowest first."""
    tiers: Mapping[str, Tier]
    abilities: Mapping[str, str]
    """What the emitter asks for (see `LLVMTarget.provides`), and the feature that gives it ("": all machines)."""
    micro_kernels: tuple[MicroKernel, ...]
    conversions: frozenset[str]
    """Features that convert narrow floats, for code that is not planned in tiles."""
    pause: str
    """LLVM's call of the instruction that a spinning thread executes."""
    syscalls: Mapping[str, int]
    """Numbers of Linux."""
    clock: tuple[str, int]
    """LLVM's call that reads a counter, and about 50 ms of it."""
    panel_rates: PanelRates = PANEL_RATES
    core_panels: Mapping[str, PanelRates] = field(default_factory=dict[str, PanelRates])
    """Those of cores (LLVM's names) on which they were measured apart."""
    core_rates: Mapping[str, Mapping[tuple[str, str], float]] = field(
        default_factory=dict[str, Mapping[tuple[str, str], float]]
    )
    """Flops per cycle of cores (LLVM's names) by micro-kernel and type of A, where they are not those of the table."""
    leave: Mapping[str, tuple[tuple[int, ...], int, int]] = field(
        default_factory=dict[str, tuple[tuple[int, ...], int, int]]
    )
    """Features that are there where a system call of Linux, asked once, gives a number from one to another."""
    auxiliary: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Features that Linux tells processes of: the type of the entry in the auxiliary vector, and the bit."""

    def features(self, level: str) -> frozenset[str]:
        """Of a level, and of all before it."""
        return frozenset(f for each in self._up_to(level) for f in each.features)

    def extras(self, level: str) -> frozenset[str]:
        """What code of a level uses beyond it where the machine has it."""
        return frozenset(f for each in self._up_to(level) for f in each.extras)

    def _up_to(self, level: str) -> list[Level]:
        names = list(self.levels)
        return [self.levels[n] for n in names[: names.index(level) + 1]]

    def rate(self, kernel: MicroKernel, core: str = "") -> float:
        """Flops per cycle of a micro-kernel's instruction on a core; of the core that was measured for others."""
        known = self.core_rates.get(core)
        found = known.get((kernel.name, kernel.types[0])) if known is not None else None
        return kernel.flops_per_cycle if found is None else found

    def able(self, features: Collection[str], *types: str, core: str = "") -> list[MicroKernel]:
        """Micro-kernels (of exactly these types, where they are given) that a machine with ``features`` can run,
        fastest first."""
        able = [m for m in self.micro_kernels if m.features <= set(features)]
        return sorted(
            (m for m in able if types in ((), m.types)), key=lambda m: -self.rate(m, core)
        )

    def dots(
        self, features: Collection[str], vector_bytes: int, core: str
    ) -> tuple[MicroKernel, ...]:
        """Those that multiply several k at once on vectors of this width, at the core's rates, fastest first; of floats
        only where the core does it faster than to multiply them widened."""
        able = [m for m in self.able(features, core=core) if m.vector_bytes == vector_bytes]
        wide = max((self.rate(m, core) for m in able if m.types[0] == "f32"), default=0.0)
        whole = ("i32", "i64")
        return tuple(
            replace(m, flops_per_cycle=self.rate(m, core))
            for m in able
            if m.instruction and (m.types[2] in whole or self.rate(m, core) > wide)
        )


def limits(source: str, widths: tuple[int, ...], **more: Limit) -> Mapping[str, Limit]:
    """What limits a workgroup on any CPU, and what its instructions do."""
    return table(
        {
            "vector_bytes": Limit("vector register", source, values=widths, unit="bytes"),
            "tile_elements": Limit(
                "size", "a core's pass over them takes a second", most=1 << 28, unit="elements"
            ),
            "workgroup_bytes": Limit(
                "memory of a workgroup",
                "each thread keeps a workgroup's memory",
                most=1 << 30,
                unit="bytes",
            ),
            **more,
        }
    )


def vector_kernel(
    vectors: Vectors,
    name: str,
    features: Collection[str],
    types: tuple[str, str, str],
    group: int,
    rate: float,
    source: str,
    instruction: str = "",
    title: str = "",
) -> MicroKernel:
    """The micro-kernel of an instruction on vectors."""
    lanes = vectors.vector_bytes // ITEMSIZE[types[2]]
    nr = vectors.nv * lanes
    return MicroKernel(
        name, frozenset(features), types, vectors.mr, nr, 1, lanes, group, rate, source, group,
        vectors.panels, instruction, title,
    )  # fmt: skip


@frozen
class Caches:
    """Sizes in bytes that blocking is computed from; found at run time, these are the defaults."""

    l1d: int = 32 << 10
    l2: int = 1 << 20
    line: int = 64
    page: int = 4096
