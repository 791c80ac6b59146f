"""How many warps a workgroup has, and how many workgroups a multiprocessor should hold."""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, gpu

from tilewright.dialects import xetile as xt
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda.ownership import LANES, Ownership, is_tile, shape_of
from tilewright.targets.cuda.products import feeds_product


def choose_warps(kernel: gpu.FuncOp) -> int:
    """Warps of a workgroup: about 32 accumulators, or one vector, per thread and at most 64 values."""
    products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
    values = [
        v
        for op in kernel.walk()
        for v in op.results
        if is_tile(v) and not isinstance(op, arith.ConstantOp)
    ]
    if products:
        largest = max(prod(shape_of(op.result)) for op in products)
        warps = _power(largest // 1024, 8)
        while warps < 16 and largest > LANES * warps * 128:
            warps *= 2
        # Products that feed products share rows: a warp for each 16 of them, so that nothing moves.
        rows = [shape_of(op.result)[0] // 16 for op in products if feeds_product(op)]
        most = min((n for n in rows if n > 0), default=warps)
        return min(warps, max(4, _power(most, 16)))
    if not values:
        return 1
    largest = max(values, key=lambda v: prod(shape_of(v)))
    # Only powers of two are dealt out: more threads than those hold replicas.
    parts = prod(bl.power_of_two_in(n) for n in shape_of(largest))
    warps = _power(parts // (LANES * 4), 8)
    while warps < 32 and prod(shape_of(largest)) > LANES * warps * 64 and parts > LANES * warps:
        warps *= 2
    return warps


def resident_workgroups(ownership: Ownership) -> int:
    """Two where accumulators leave room for it: one computes while the other waits."""
    held = sum(plan.c.registers for plan in ownership.products.values())
    return 2 if ownership.products and held <= 64 and ownership.warps <= 8 else 1


def _power(n: int, most: int) -> int:
    """The largest power of two up to n, between 1 and `most`."""
    return max(1, min(most, 1 << max(0, n.bit_length() - 1)))
