"""Tile sizes by what the arrays live on: a kernel's defaults fit CPUs, a GPU's workgroup is smaller.

These are the sizes that a user would pass by hand; the kernels are the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tilewright as tw
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target


def product_tile(a: Any, m: int, n: int, target: str | None = None) -> dict[str, Any]:
    """BM, BN, BK of a product of operands like `a`. The planner knows warpgroups' best; a CPU's tiles are no larger
    than the product, by powers of two.

    `target`: the machine that the caller asked for, if any.
    """
    arg = describe(a)
    if not arg.on_device:
        return {"BM": _covering(m), "BN": _covering(n)}
    size = arg.dtype.itemsize
    if size > 2:
        # Multiply-add on registers: smaller tiles, shorter steps.
        return {"BM": 64, "BN": 64, "BK": 16} if size > 4 else {"BM": 128, "BN": 128, "BK": 16}
    if _has_warpgroups(target or arg.device.partition(":")[0]):
        return dict.fromkeys(("BM", "BN", "BK"), tw.auto)
    bn = 256 if n > 128 else 128 if n > 64 else 64
    return {"BM": 128 if m > 64 else 64, "BN": bn, "BK": 128 // size}


def _covering(extent: int) -> int:
    """The smallest power of two from 32 to 256 that is not below an extent; 256 where none is."""
    return min(256, max(32, 1 << (extent - 1).bit_length()))


def attention_tile(q: Any, d: int, target: str | None = None) -> dict[str, int]:
    """BM, BN of attention with head dimension `d`: what fits a GPU's registers; {} elsewhere.

    `target`: the machine that the caller asked for, if any.
    """
    arg = describe(q)
    if not arg.on_device:
        return {}
    if arg.dtype.itemsize > 2:
        return {"BM": 64, "BN": 64}
    if d <= 64 and _has_warpgroups(target or arg.device.partition(":")[0]):
        # Exponentials take as long as the products: three warpgroups of 64 rows keep both units busy, at about 9 / 8
        # of the speed of two. That is more than the rows cost that they have too many.
        three, two = (-(-arg.shape[-2] // rows) * rows for rows in (192, 128))
        return {"BM": 192 if 8 * three <= 9 * two else 128, "BN": 128}
    return {"BM": 128, "BN": 64 if d > 128 else 128}


@cache
def _has_warpgroups(target: str) -> bool:
    """Does the machine of a target ("cuda": the one at hand) multiply by several subgroups together?"""
    machine = get_target(target).machine(CompileOptions(target=target))
    return machine is not None and any(each.subgroups > 1 for each in machine.matrix)
