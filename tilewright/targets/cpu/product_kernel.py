"""The micro-kernel that multiplies elements of some types, and how a product takes it, as the model of products
(`product_cost`) sees them."""

from __future__ import annotations

from functools import lru_cache

from tilewright import dtypes
from tilewright.frozen import frozen
from tilewright.targets.cpu.machine import (
    FEW_USES,
    LONGEST,
    WIDE_COLUMNS,
    CpuMachine,
    columns_at_once,
    turns_often,
)
from tilewright.uarch.products import PlacedProduct, Side

LINE = 64
"""Bytes of memory that are read together, and of a row of a tile."""
TILE_DEPTH = 1024
"""Bytes of a block of k where tiles are multiplied."""
COPIED_BYTES = 1 << 20
"""Of the second cache, for C and an operand's block that a reader packs or fetches."""


@frozen
class ProductKernel:
    """The micro-kernel that multiplies elements of some types."""

    tiles: bool
    rows: int
    columns: int
    wide: int
    """Columns that it multiplies at once."""
    rate: float
    """Multiplications per clock."""
    depth: int
    """Bytes of a row or column of a panel in a block of k."""
    bytes: int
    """Of an element in panels, at least."""
    lanes: tuple[int, int]
    """Rows and columns of a panel."""
    verbatim: bool = True
    """Does it read elements of A as they are in the array?"""
    single: bool = False
    """Does it read vectors of B as they are, one k after the other?"""

    @property
    def step(self) -> int:
        """Bytes of a row that it multiplies at least."""
        return LINE if self.tiles else self.bytes

    @property
    def dots(self) -> bool:
        """Does it add dot products of vectors?"""
        return self.verbatim and not (self.tiles or self.single)


@lru_cache(64)
def kernel_for(m: CpuMachine, types: tuple[str, str, str]) -> ProductKernel:
    """That of the machine's table; floats of 16 bits that it does not multiply are two bf16 each in tiles, else f32."""
    known, times = m.architecture.able(m.target.features, *types), 1
    able = (
        [each for each in known if each.rows > 1]
        or [each for each in m.dots if each.types == types]
        or [each for each in known if each.group == 1]
    )
    verbatim = bool(able)
    if not able and types == ("f16", "f16", "f32") and m.has("amx-bf16"):
        able, times = m.architecture.able(m.target.features, "bf16", "bf16", "f32"), 4
    if not able and types[2] == "i32":
        able = [each for each in m.dots if each.types[2] == "i32"]
    if able:
        found, rate = able[0], able[0].flops_per_cycle / 2 / times
        tiles, wide = found.rows > 1, found.nr * found.panels
        depth = TILE_DEPTH if tiles else m.kc * itemsize_of(found.types[1])
        least = 1 if times == 1 else 4
        lanes = found.lanes_a, found.lanes_b
        single = verbatim and not tiles and found.group == 1
        return ProductKernel(
            tiles, found.mr, found.nr, wide, rate, depth, least, lanes, verbatim, single
        )
    size = max(4, itemsize_of(types[2]))
    nr, rate = m.nr(size), 2.0 * m.vector_bytes / size
    return ProductKernel(False, m.mr, nr, nr * m.panels, rate, m.kc * size, size, (m.mr, nr), False)


def is_swapped(p: PlacedProduct, kernel: ProductKernel) -> bool:
    """Does B lie where it is multiplied, the product turned round (see `roles`)?"""
    few = kernel.tiles and p.a.tile <= WIDE_COLUMNS and p.b.tile > p.a.tile
    few = few and not turns_often(p.a.tile, p.k if p.times > 1 else None)
    return few and kernel.verbatim and p.b.along_k


def roles(p: PlacedProduct, kernel: ProductKernel) -> tuple[Side, Side]:
    """The sides in role A and in role B (see `roles`)."""
    return (p.b, p.a) if is_swapped(p, kernel) else (p.a, p.b)


def is_wide(p: PlacedProduct, kernel: ProductKernel) -> bool:
    """Are rows of an array multiplied by all of the other side at once (see `roles`)?"""
    rows, beside = roles(p, kernel)
    lying = kernel.tiles and kernel.verbatim and rows.along_k
    return lying and kernel.columns < beside.tile <= most_columns(p, kernel)


def has_rest(p: PlacedProduct, kernel: ProductKernel) -> bool:
    """Is what is left of k behind whole tiles a block of its own, as what would leave its array is beside few columns
    (see `contract`)?"""
    few = kernel.tiles and roles(p, kernel)[1].tile <= FEW_USES * kernel.columns
    return few and p.k * itemsize_of(p.types[1]) % LINE > 0


def padded_in(p: PlacedProduct, kernel: ProductKernel) -> tuple[int, int]:
    """Rows and columns of C that micro-kernels compute, of the operand in role A and of the other one."""
    rows, beside = roles(p, kernel)
    if is_wide(p, kernel):  # all of one side, rows of a tile of the other
        least = columns_at_once(beside.tile, kernel.columns // 2)
        return in_whole(rows.mean, kernel.rows // 2), in_whole(beside.tile, least)
    found: list[int] = []
    for side, whole, rest in (
        (rows, kernel.rows, rows.tile % kernel.rows),
        (beside, kernel.columns, beside.tile),
    ):
        few = side is rows and rows.tile <= FEW_USES * kernel.rows
        half = 0 < 2 * rest <= whole if kernel.tiles else few
        found.append(in_whole(side.mean, whole // 2 if half else whole))
    return found[0], found[1]


def ragged_in(p: PlacedProduct, kernel: ProductKernel) -> float:
    """The share of small tiles that are no whole blocks of a micro-kernel, or do not lie wholly in their array: sums of
    vectors, which are stored as they are, wait in a buffer there (see `sums_in_place`)."""
    if max(p.a.tile, p.b.tile) > LONGEST:
        return 0.0
    if p.a.tile % kernel.rows or p.b.tile % kernel.columns:
        return 1.0
    whole = (p.a.whole // p.a.tile) * (p.b.whole // p.b.tile)
    return 1 - whole / (p.a.tiles * p.b.tiles)


def most_columns(p: PlacedProduct, kernel: ProductKernel) -> int:
    """Beside which rows of an array are multiplied in deep blocks (see `roles`)."""
    return FEW_USES * kernel.columns if p.times == 1 else WIDE_COLUMNS


def in_whole(extent: int, block: int) -> int:
    """In whole blocks."""
    return -(-extent // block) * block


def fetched(bytes: int, paired: float) -> float:
    """What comes for a part of a row: lines, some of which come in pairs (see `PanelRates.paired`)."""
    lines, pairs = (in_whole(bytes, n * LINE) for n in (1, 2))
    return lines + paired * (pairs - lines)


def itemsize_of(name: str) -> int:
    return dtypes.from_name(name).itemsize


def result_bytes(types: tuple[str, str, str]) -> int:
    """Of an element of the result, as far as the operands' types and the sums' tell: floats are stored as A's are."""
    return itemsize_of(types[0] if dtypes.from_name(types[0]).is_float else types[2])
