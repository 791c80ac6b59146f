"""Fragments of the matrix instructions, by shape rules that several machines share.

In each function `lane` is the index in the subgroup and `register` the index of an element in what a
lane holds; 16- and 8-bit elements are packed little-endian into 32-bit registers in that order.
"""

from __future__ import annotations

from tilewright.layout import Axis, Layout, LayoutError, number
from tilewright.layout.memory import panels
from tilewright.uarch.cpu import MicroKernel

Triple = tuple[int, int | None, int]

ROW, COL = 0, 1


def _layout(
    shape: tuple[int, int],
    register: list[Triple],
    lane: list[Triple] | None = None,
    subgroup: list[Triple] | None = None,
) -> Layout:
    return Layout.of(
        shape,
        number(Axis.REGISTER, register)
        + number(Axis.LANE, lane or [])
        + number(Axis.SUBGROUP, subgroup or []),
    )


# Intel DPAS (SPV_INTEL_subgroup_matrix_multiply_accumulate; vISA DPAS).
def dpas_a(m: int, k: int, lanes: int, pack: int) -> Layout:
    """A [m, k]: lane l holds columns ``pack*l ..`` of every row; k < lanes packs several rows."""
    columns = k // pack
    rows = lanes // columns
    if rows == 1:
        return _layout((m, k), [(pack, COL, 1), (m, ROW, 1)], [(lanes, COL, pack)])
    # tf32: two rows per register; with a single row the upper lanes are ignored.
    owners = min(rows, m)
    lane: list[Triple] = [(columns, COL, pack), (owners, ROW, 1), (rows // owners, None, 0)]
    return _layout((m, k), [(pack, COL, 1), (m // owners, ROW, owners)], lane)


def dpas_b(k: int, n: int, pack: int) -> Layout:
    """B [k, n]: lane l holds column l, ``pack`` consecutive rows in each 32-bit register (VNNI)."""
    return _layout((k, n), [(pack, ROW, 1), (k // pack, ROW, pack)], [(n, COL, 1)])


def dpas_c(m: int, n: int) -> Layout:
    """C and D [m, n]: register i of lane l is element [i, l]."""
    return _layout((m, n), [(m, ROW, 1)], [(n, COL, 1)])


# NVIDIA mma.sync and wgmma (PTX ISA, "Matrix Fragments"). `pack` elements fill a 32-bit register.
def mma_a(m: int, k: int, pack: int) -> Layout:
    """A [m, k]: quads of lanes own rows; registers go down the rows first (column-major)."""
    register: list[Triple] = [
        (pack, COL, 1),
        (max(1, m // 8), ROW, 8),
        (k // (4 * pack), COL, 4 * pack),
    ]
    return _layout((m, k), register, [(4, COL, pack), *_repeated(8, m, ROW)])


def _repeated(lanes: int, extent: int, dim: int, step: int = 1) -> list[Triple]:
    """So many lanes along a dimension, one for each `step` elements; where these are fewer, each is in several."""
    own = min(lanes, extent // step)
    return [(own, dim, step), (lanes // own, None, 0)]


def mma_b(k: int, n: int, pack: int) -> Layout:
    """B [k, n]: the transposed pattern of A; each lane owns one column."""
    register: list[Triple] = [(pack, ROW, 1), (k // (4 * pack), ROW, 4 * pack)]
    return _layout((k, n), register, [(4, ROW, pack), *_repeated(8, n, COL)])


def mma_c(m: int, n: int) -> Layout:
    """C and D [m, n]: two columns, then the row eight below, then the next eight columns."""
    register: list[Triple] = [(2, COL, 1), (max(1, m // 8), ROW, 8), (max(1, n // 8), COL, 8)]
    return _layout((m, n), register, [*_repeated(4, n, COL, 2), *_repeated(8, m, ROW)])


def wgmma_a(k: int, pack: int) -> Layout:
    """Register operand A [64, k] of four warps: warp w owns rows 16w to 16w + 15 as in mma.sync."""
    register: list[Triple] = [(pack, COL, 1), (2, ROW, 8), (k // (4 * pack), COL, 4 * pack)]
    return _layout((64, k), register, [(4, COL, pack), (8, ROW, 1)], [(4, ROW, 16)])


def wgmma_c(n: int) -> Layout:
    """Accumulator [64, n] of four warps, as [j][two rows][two columns] per lane."""
    register: list[Triple] = [(2, COL, 1), (2, ROW, 8), (n // 8, COL, 8)]
    return _layout((64, n), register, [(4, COL, 2), (8, ROW, 1)], [(4, ROW, 16)])


# x86: tiles and panels. One lane; a tile register's bytes are its elements in order.
def amx_a(rows: int, k: int) -> Layout:
    """Tile register A [rows, k]: one row of at most 64 bytes per tile row."""
    return _layout((rows, k), [(k, COL, 1), (rows, ROW, 1)])


def amx_b(k: int, n: int, pack: int) -> Layout:
    """Tile register B [k, n], VNNI: tile row i holds k = pack*i .. for each n, ``pack`` together."""
    return _layout((k, n), [(pack, ROW, 1), (n, COL, 1), (k // pack, ROW, pack)])


def rows_c(m: int, n: int) -> Layout:
    """Accumulators [m, n], row by row: an AMX tile, or vectors of a micro-kernel."""
    return _layout((m, n), [(n, COL, 1), (m, ROW, 1)])


# Operands of the micro-kernels of CPUs, as packed in memory.
def b_panel(kernel: MicroKernel, k: int, columns: int) -> Layout:
    """Packed B [k, columns]: panels one after the other, in each `group` k of every column by turns: of two or four k
    that is the VNNI arrangement. LayoutError where they are not filled."""
    group, lanes = kernel.group, kernel.lanes_b
    step = max(kernel.k_step, group)
    if columns % lanes or k % step:
        raise LayoutError(
            f"B of {columns} x k={k} does not fill panels of {lanes} x {step} of {kernel.name}: pad it while packing"
        )
    return panels(
        (k, columns),
        [
            (group, ROW, 1),
            (lanes, COL, 1),
            (k // group, ROW, group),
            (columns // lanes, COL, lanes),
        ],
    )
