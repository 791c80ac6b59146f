"""Tile sizes by what the arrays live on: a kernel's defaults fit CPUs, a GPU's workgroup is smaller.

These are the sizes that a user would pass by hand; the kernels are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import tilewright as tw
from tilewright import knobs
from tilewright.arguments import HOST, NOWHERE
from tilewright.dtypes import DType
from tilewright.ops.arrays import device_of
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target

FEW = {8: (8, 24), 4: (8, 24), 2: (8, 8)}
"""By bytes of a float: rows and columns up to which a CPU leaves the other operand where it lies."""

LEAST_ROWS, MOST_ROWS = 4, 32
"""Of a tile of whole rows."""


def product_tile(
    element: DType, device: str, m: int, n: int, batches: int, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """BM, BN, BK of `batches` products on a device. The planner knows warpgroups' best; a CPU's tiles are no larger
    than the product, and so many that its threads share them evenly.

    `options`: what the caller asked of the kernel.
    """
    kind, size = device.partition(":")[0], element.itemsize
    asked = options.get("target")
    if device in (HOST, NOWHERE):
        threads = options.get("num_threads") or knobs.current().num_threads
        few = FEW[size] if element.is_float and size in FEW else (0, 0)
        unit = 8 if element.is_float and size >= 4 else 32
        return _shared_tile(m, n, batches, _cores(asked or kind, threads), few, unit)
    if size > 2:
        # Multiply-add on registers: smaller tiles, shorter steps.
        return {"BM": 64, "BN": 64, "BK": 16} if size > 4 else {"BM": 128, "BN": 128, "BK": 16}
    if _has_warpgroups(asked or kind):
        return dict.fromkeys(("BM", "BN", "BK"), tw.auto)
    bn = 256 if n > 128 else 128 if n > 64 else 64
    return {"BM": 128 if m > 64 else 64, "BN": bn, "BK": 128 // size}


def rows_of_tile(x: Any, rows: int, options: Mapping[str, Any]) -> int:
    """Whole rows per tile of so many like those of `x`: few on a GPU, whose registers hold them. On a CPU, where levels
    of successive rows overlap, as many as leave each thread some tiles."""
    if device_of(x) not in (HOST, NOWHERE):
        return LEAST_ROWS
    threads = options.get("num_threads") or knobs.current().num_threads
    cores = _cores(options.get("target") or HOST, threads)
    share = rows // (8 * cores)
    return min(MOST_ROWS, max(LEAST_ROWS, 1 << share.bit_length() >> 1))


def _shared_tile(
    m: int, n: int, batches: int, cores: int, few: tuple[int, int], unit: int
) -> dict[str, int]:
    """Tiles that cover a product: powers of two from 32 to 256. A side of `few` rows or columns is not padded to 32:
    beside it the other operand stays where it lies (docs/cpu-target.md). Tiles of few rows are long, as memory is read
    along them. The longer side is halved until each core has two tiles, or one that memory keeps busy. A
    product with too few of the smallest is cut into an equal share of rows (a multiple of `unit`) for each core, if
    these end no later."""

    def covering(extent: int, least: int, most: int = 256) -> int:
        return min(most, max(least, 1 << (extent - 1).bit_length()))

    def tiles(bm: int, bn: int) -> int:
        return -(-m // bm) * -(-n // bn) * batches

    def rounds(bm: int, bn: int) -> int:
        return -(-tiles(bm, bn) // cores)

    flat = m <= few[0]
    bm, bn = covering(m, 1 if flat else 32), covering(n, 64, 4096) if flat else covering(n, 32)
    if not flat and n <= few[1]:
        bn = -(-n // 8) * 8 if n > 4 else covering(n, 1)
    wanted = cores if flat else 2 * cores
    while cores > 1 and tiles(bm, bn) < wanted:
        if bm >= bn and bm > 32:
            bm //= 2
        elif bn > bm and bn > (128 if flat else 32):
            bn //= 2
        else:
            break
    if unit < bm == bn == 32:
        wide = covering(n, 32)
        share = -(-m * batches * -(-n // wide) // cores)
        tall = max(2 * unit, -(-share // unit) * unit)
        if rounds(tall, wide) * tall * wide <= rounds(bm, bn) * bm * bn:
            bm, bn = tall, wide
    return {"BM": bm, "BN": bn}


@cache
def _cores(target: str, threads: int | None) -> int:
    return get_target(target).rates(CompileOptions(target=target, num_threads=threads)).cores


def attention_tile(q: Any, d: int, target: str | None = None) -> dict[str, Any]:
    """BM, BN of attention with head dimension `d`: what fits a GPU's registers, or the planner's choice; {} elsewhere.

    `target`: the machine that the caller asked for, if any.
    """
    arg = describe(q)
    if not arg.on_device:
        return {}
    if arg.dtype.itemsize > 2:
        return {"BM": 64, "BN": 64}
    if _has_warpgroups(target or arg.device.partition(":")[0]):
        return {"BM": tw.auto, "BN": tw.auto}
    return {"BM": 128, "BN": 64 if d > 128 else 128}


@cache
def _has_warpgroups(target: str) -> bool:
    """Does the machine of a target ("cuda": the one at hand) multiply by several subgroups together?"""
    machine = get_target(target).machine(CompileOptions(target=target))
    return machine is not None and any(each.subgroups > 1 for each in machine.matrix)
