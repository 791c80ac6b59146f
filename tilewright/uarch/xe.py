"""Intel Xe: what PVC, BMG and DG2 have in common. DPAS and 2D block messages as tables.

Sources: SPV_INTEL_subgroup_matrix_multiply_accumulate, SPV_INTEL_2d_block_io, the XeGPU RFC's sg_map
tables, and the XeArch tables of the public implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import frozen, guarded
from tilewright.uarch import fragments as fr
from tilewright.uarch import machine
from tilewright.uarch.base import Limit, Machine, MatrixFragments, MatrixInstruction

DPAS_SOURCE = "SPV_INTEL_subgroup_matrix_multiply_accumulate; XeGPU RFC, sg_map tables"
XE_SOURCE = "XeArch and uArch tables of the public implementation"
BLOCK_SOURCE = "SPV_INTEL_2d_block_io; XeArch table of the public implementation"


@frozen
class BlockForm:
    """One row of the 2D block table: legal sizes for elements of ``bits`` bits, in elements.

    ``form`` is load, transform (VNNI), transpose, store or prefetch. ``span`` bounds width * count.
    """

    form: str
    bits: int
    width: tuple[int, int]
    height: tuple[int, int]
    counts: tuple[int, ...]
    span: int

    def fault(self, width: int, height: int, count: int) -> str | None:
        for what, value, (least, most) in (
            ("width", width, self.width),
            ("height", height, self.height),
        ):
            if not least <= value <= most:
                return f"{what} {value} is not within {least} to {most}"
        if count not in self.counts:
            return f"{count} blocks, where {' or '.join(map(str, self.counts))} are possible"
        if width * count > self.span:
            return f"{count} blocks of width {width} span more than {self.span} elements"
        if width * self.bits % 32:
            return f"width {width} is no multiple of 4 bytes"
        return None


@frozen
class RowForm:
    """1-D block messages: consecutive words of ``bits`` bits, ``counts`` of them per lane.

    ``form`` is load or store. Word i of lane l is word i * lanes + l of the row. No message checks bounds.
    """

    form: str
    bits: int
    counts: tuple[int, ...]
    align: int
    """Bytes that divide the address of a row in global memory."""
    shared_align: int
    """The same in shared local memory."""


@guarded
class AccessCosts:
    """Relative weights by which a lowering chooses accesses, in issue slots; not times (see docs/xe.md).

    A message costs `message`, its data a slot per so many bytes, and a lane's own addresses `addresses`.
    """

    message: int = 4
    row_bytes: int = 64
    lane_bytes: int = 32
    addresses: int = 4
    move: int = 1
    """One instruction on a register of every lane: packing two halves of a word takes two."""
    mask: int = 3
    """Guarding one access of a lane: compare, combine, select."""


@guarded
class XeMachine(Machine):
    """An Xe machine: besides, its 2D block messages, empty where it has none (DG2)."""

    blocks: tuple[BlockForm, ...] = ()
    rows: tuple[RowForm, ...] = ()
    lane_words: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Accesses of single lanes: (bits of a word, how many consecutive ones in one message)."""
    costs: AccessCosts = AccessCosts()
    grf_bytes: int = 64
    """Bytes of one general register; a subgroup has 128 of them, or 256 in large mode."""

    @property
    def lanes(self) -> int:
        """Of a subgroup whose size nothing states: as many as dpas has columns."""
        return self.matrix[0].n[0]

    def subgroup_for(self, lanes: int) -> int | None:
        """The size of the subgroup that runs one of so many lanes: the same, or the smallest where it is a part of
        that; None where the machine has none."""
        if lanes in self.subgroup_sizes:
            return lanes
        smallest = self.subgroup_sizes[0]
        return None if smallest % lanes else smallest

    def row_form(self, form: str, bits: int) -> RowForm | None:
        """The 1-D block messages of words of so many bits; None where there are none."""
        return next((r for r in self.rows if (r.form, r.bits) == (form, bits)), None)

    def block(self, op: str, form: str, bits: int, width: int, height: int, count: int = 1) -> None:
        """Refuse a 2D block message that the machine lacks. UnsupportedError says which limit."""
        rows = [b for b in self.blocks if (b.form, b.bits) == (form, bits)]
        size = f"{form} of {count} x {height}x{width} blocks of {bits} bits"
        if not rows:
            raise UnsupportedError(
                f"{op}: {self.name} has no 2D block {form} of {bits}-bit elements"
                if self.blocks
                else f"{op}: {self.name} has no 2D block messages",
                rule=BLOCK_SOURCE,
                hint="1-D block loads or gathers do it" if not self.blocks else None,
            )
        faults = [b.fault(width, height, count) for b in rows]
        if all(faults):
            raise UnsupportedError(
                f"{op}: a {size} is not possible on {self.name}: {faults[0]}", rule=BLOCK_SOURCE
            )
        total = width * height * count * bits // 8
        most = 512 if form == "store" else 2048
        if form != "prefetch" and total > most:
            raise UnsupportedError(
                f"{op}: a {size} moves {total} bytes, {self.name} moves at most {most} at once",
                rule=BLOCK_SOURCE,
            )


def _fragments(k: int, lanes: int, pack_a: int, pack_b: int, m: int, n: int) -> MatrixFragments:
    return MatrixFragments(fr.dpas_a(m, k, lanes, pack_a), fr.dpas_b(k, n, pack_b), fr.dpas_c(m, n))


def dpas(
    types: tuple[str, str, str], lanes: int, unit_bits: int, rows: Sequence[int] = (1, 2, 4, 8)
) -> MatrixInstruction:
    """DPAS with systolic depth 8: K is 8 units of 32 bits; A comes in units of ``unit_bits``."""
    bits = {"tf32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8, "i4": 4, "u4": 4}[types[0]]
    pack_a, pack_b = max(1, unit_bits // bits), 32 // bits
    k = 8 * pack_b
    return MatrixInstruction(
        "dpas",
        types,
        tuple(rows),
        (lanes,),
        k,
        partial(_fragments, k, lanes, pack_a, pack_b),
        DPAS_SOURCE,
        pack_a,
        pack_b,
    )


def integer_types(*names: str) -> list[tuple[str, str, str]]:
    """Every mix of signedness, accumulating in i32."""
    return [(a, b, "i32") for a in names for b in names]


XE2_BLOCKS = (
    BlockForm("load", 8, (4, 64), (1, 32), (1, 2, 4), 64),
    BlockForm("load", 16, (2, 32), (1, 32), (1, 2, 4), 32),
    BlockForm("load", 32, (1, 16), (1, 32), (1, 2), 16),
    BlockForm("load", 64, (1, 8), (1, 32), (1,), 8),
    BlockForm("transform", 8, (4, 16), (4, 32), (1, 2, 4), 64),
    BlockForm("transform", 16, (2, 16), (2, 32), (1, 2, 4), 32),
    BlockForm("transpose", 32, (1, 8), (1, 32), (1,), 8),
    BlockForm("transpose", 64, (1, 4), (8, 8), (1,), 4),
    BlockForm("store", 8, (4, 64), (1, 8), (1,), 64),
    BlockForm("store", 16, (2, 32), (1, 8), (1,), 32),
    BlockForm("store", 32, (1, 16), (1, 8), (1,), 16),
    BlockForm("store", 64, (1, 8), (1, 8), (1,), 8),
    BlockForm("prefetch", 8, (4, 64), (1, 32), (1, 2, 4), 64),
    BlockForm("prefetch", 16, (2, 32), (1, 32), (1, 2, 4), 32),
    BlockForm("prefetch", 32, (1, 16), (1, 32), (1, 2), 16),
    BlockForm("prefetch", 64, (1, 8), (1, 32), (1,), 8),
)

# cl_intel_subgroups, _char, _short, _long, cl_intel_subgroup_local_block_io: reads of global memory ask
# for multiples of 4 bytes, everything else for 16.
XE_ROWS = (
    RowForm("load", 8, (1, 2, 4, 8, 16), 4, 16),
    RowForm("load", 16, (1, 2, 4, 8), 4, 16),
    RowForm("load", 32, (1, 2, 4, 8), 4, 16),
    RowForm("load", 64, (1, 2, 4, 8), 8, 16),
    RowForm("store", 8, (1, 2, 4, 8, 16), 16, 16),
    RowForm("store", 16, (1, 2, 4, 8), 16, 16),
    RowForm("store", 32, (1, 2, 4, 8), 16, 16),
    RowForm("store", 64, (1, 2, 4, 8), 16, 16),
)

# LSC messages: d8u32 and d16u32 one element per lane, d32 x1..x8 (32 bytes per lane), d64 x1..x4.
LSC_WORDS = ((8, (1,)), (16, (1,)), (32, (1, 2, 3, 4, 8)), (64, (1, 2, 3, 4)))

# (L1, last level) policies that one message can ask for; first those that keep lines longest.
LOAD_CACHE_PAIRS = (
    ("cached", "cached"),
    ("uncached", "cached"),
    ("streaming", "cached"),
    ("read_invalidate", "cached"),
    ("cached", "uncached"),
    ("streaming", "uncached"),
    ("uncached", "uncached"),
)
STORE_CACHE_PAIRS = (
    ("write_back", "write_back"),
    ("write_through", "write_back"),
    ("uncached", "write_back"),
    ("streaming", "write_back"),
    ("write_through", "uncached"),
    ("streaming", "uncached"),
    ("uncached", "uncached"),
)
CACHE_SOURCE = "LSC cache controls of Xe-HPC: seven pairs for loads, seven for stores"


def cache_pair(first: str | None, last: str | None, *, store: bool) -> tuple[str, str] | None:
    """The policies that a message names for the hints of a load or a store; None where there is no such pair.

    A level without a hint keeps its lines as long as the other's policy lets it. A store that asks for `cached`
    means to keep the line: write_back.
    """
    if store:
        first, last = ("write_back" if hint == "cached" else hint for hint in (first, last))
    pairs = STORE_CACHE_PAIRS if store else LOAD_CACHE_PAIRS
    return next((p for p in pairs if first in (None, p[0]) and last in (None, p[1])), None)


SURFACE_LIMITS = {
    "block_base_align": Limit(
        "base address", BLOCK_SOURCE, multiple=64, unit="bytes (its misalignment moves into x)"
    ),
    "block_surface_width": Limit(
        "base matrix width", BLOCK_SOURCE, least=64, most=1 << 24, multiple=4, unit="bytes"
    ),
    "block_surface_height": Limit(
        "base matrix height", BLOCK_SOURCE, least=1, most=1 << 24, unit="rows"
    ),
    "block_surface_pitch": Limit(
        "base matrix pitch", BLOCK_SOURCE, least=64, most=1 << 24, multiple=16, unit="bytes"
    ),
}

COMMON_LIMITS = {
    "named_barriers": Limit(
        "named barrier", "vISA nbarrier; id 0 is the workgroup's", least=0, most=31
    ),
    "scratch": Limit(
        "scratch memory per thread",
        "CPlatform.hpp of the graphics compiler: 256 KiB per thread from XeHP on",
        most=256 << 10,
        unit="bytes",
    ),
    "chunk_bytes": Limit(
        "gather or scatter", "XeGPU RFC, chunk_size: total of all lanes", most=512, unit="bytes"
    ),
}


def xe_machine(name: str) -> XeMachine:
    """The table of an Xe machine, by its name with or without `xe-`. UnsupportedError for any other."""
    found = machine(name if name.startswith("xe-") else f"xe-{name}")
    if not isinstance(found, XeMachine):
        raise UnsupportedError(f"{name} is no Xe machine", hint="xe-pvc, xe-bmg or xe-dg2")
    return found
