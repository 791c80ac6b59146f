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

ATTENTION_ROWS = 64
"""Rows of q that a CPU's program takes."""
LEAST_ROWS, MOST_ROWS = 4, 32
"""Of a tile of whole rows."""


def product_tile(
    types: tuple[DType, DType, DType],
    device: str,
    shape: tuple[int, int, int, int],
    along_k: tuple[bool, bool],
    options: Mapping[str, Any],
) -> Mapping[str, Any]:
    """BM, BN, BK of a batch of products on a device, as its planner knows them best (see `Target.product_tile`).

    `options`: what the caller asked of the kernel.
    """
    kind, size = device.partition(":")[0], types[0].itemsize
    asked, (_, m, n, _) = options.get("target"), shape
    if device in (HOST, NOWHERE):
        compiled = CompileOptions(
            asked or kind, machine=options.get("machine"), num_threads=options.get("num_threads")
        )
        found = get_target(compiled.target).product_tile(shape, types, along_k, compiled)
        bm, bn = found or (min(256, max(32, 1 << (x - 1).bit_length())) for x in (m, n))
        return {"BM": bm, "BN": bn}
    if _planned(asked or kind, types[0]):
        return dict.fromkeys(("BM", "BN", "BK"), tw.auto)
    if size > 2:
        # Multiply-add on registers: smaller tiles, shorter steps.
        return {"BM": 64, "BN": 64, "BK": 16} if size > 4 else {"BM": 128, "BN": 128, "BK": 16}
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


@cache
def _cores(target: str, threads: int | None) -> int:
    return get_target(target).rates(CompileOptions(target=target, num_threads=threads)).cores


def attention_tile(q: Any, d: int, target: str | None = None) -> dict[str, Any]:
    """BM, BN of attention with head dimension `d`: what fits a GPU's registers, or the planner's choice; elsewhere BM
    alone, no more rows than `q` has, up to a power of two.

    `target`: the machine that the caller asked for, if any.
    """
    arg = describe(q)
    if not arg.on_device:
        return {"BM": min(ATTENTION_ROWS, 1 << (q.shape[-2] - 1).bit_length())}
    if _planned(target or arg.device.partition(":")[0], arg.dtype):
        return {"BM": tw.auto, "BN": tw.auto}
    if arg.dtype.itemsize > 2:
        return {"BM": 64, "BN": 64}
    return {"BM": 128, "BN": 64 if d > 128 else 128}


@cache
def _planned(target: str, element: DType) -> bool:
    """Does a target's planner ("cuda": that of the machine at hand) know tiles of products of such elements?"""
    return get_target(target).tiles_products(element, element, CompileOptions(target=target))
