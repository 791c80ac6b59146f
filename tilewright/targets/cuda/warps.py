"""How many warps a workgroup has, and how many workgroups a multiprocessor should hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from xdsl.dialects import arith, gpu

from tilewright.codegen.tiles import itemsize
from tilewright.dialects import stage
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import is_vector
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda.ownership import (
    LANES,
    MOST_ACROSS,
    contiguous_dimension,
    shape_of,
    widest_vector,
)
from tilewright.targets.cuda.passes.wgmma_legality import TRANSPOSES, through_transposes
from tilewright.targets.cuda.products import ProductPlan, feeds_product, uneven_grids
from tilewright.targets.cuda.smem import SPARE
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import REGISTER_FILE

LEAST_STAGES = 3
"""Slots of a loop's multi-buffer that two workgroups of a multiprocessor need each, to be better than one."""
BROAD = 128 * 128
"""Accumulators of a workgroup from which its warps are few, with parts of 64 x 64."""


def choose_warps(kernel: gpu.FuncOp) -> int:
    """Warps of a workgroup: about 32 accumulators, or one vector, per thread and at most 64 values."""
    products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
    values = [
        v
        for op in kernel.walk()
        for v in op.results
        if is_vector(v) and not isinstance(op, arith.ConstantOp)
    ]
    if products:
        held = accumulators(products)
        if held >= BROAD and all(is_copied(op) for op in products):
            # A warp's part of 64 x 64 reads least per multiplication.
            return _power(held // (64 * 64), 8)
        largest = max(prod(shape_of(op.result)) for op in products)
        # Few rows are as long as what they are multiplied with takes to come: more warps bring and read it.
        read = max(prod(shape_of(v)) for op in products for v in (op.a, op.b))
        warps = _power(max(largest // 1024, min(4, read // 512)), 8)
        while warps < 16 and largest > LANES * warps * 128:
            warps *= 2
        if (uneven := _uneven(products, warps)) is not None:
            return uneven
        # Products that feed products share rows: a warp for each 16 of them, so that nothing moves.
        rows = [shape_of(op.result)[0] // 16 for op in products if feeds_product(op)]
        most = min((n for n in rows if n > 0), default=warps)
        # Fewer than these do not hold the sums.
        least = 1
        while rows and least < 16 and held > LANES * least * 160:
            least *= 2
        return max(least, min(warps, max(4, _power(most, 16))))
    if not values:
        return 1
    largest = max(values, key=lambda v: prod(shape_of(v)))
    # Only powers of two are distributed: more threads than those hold replicas.
    parts = prod(bl.power_of_two_in(n) for n in shape_of(largest))
    # What is read along one dimension and written along another is held in square blocks of vectors.
    turned = [
        itemsize(element_of(op.operands[0].type))
        for op in kernel.walk()
        if isinstance(op, TRANSPOSES) and min(shape_of(op.operands[0])) > 1
    ]
    held = max((min(MOST_ACROSS, 16 // size) ** 2 for size in turned), default=4)
    warps = _power(parts // (LANES * held), 8)
    while warps < 32 and prod(shape_of(largest)) > LANES * warps * 64 and parts > LANES * warps:
        warps *= 2
    return warps


MOST_UNEVEN = 12
"""Warps of a workgroup where they are no power of two."""


def _uneven(products: list[xt.TileMmaOp], warps: int) -> int | None:
    """A number of warps with odd factors, where powers of two leave most warps without a part of their own."""

    def parts(op: xt.TileMmaOp, count: int) -> int:
        m, n = shape_of(op.result)
        if m % 16 or n % 8:
            return count
        if count & (count - 1):
            return count if uneven_grids(m // 16, n // 8, count) else 0
        return min(count, bl.power_of_two_in(m // 16) * bl.power_of_two_in(n // 8))

    if all(2 * parts(op, warps) > warps for op in products):
        return None
    counts = range(MOST_UNEVEN, 2, -1)
    fits = [c for c in counts if c & (c - 1) and all(parts(op, c) == c for op in products)]
    return min(fits, key=lambda c: abs(c - warps), default=None)


def resident_workgroups(products: Collection[ProductPlan], warps: int) -> int:
    """Two where accumulators take half of a thread's registers at most, and two steps of operands the rest: one
    computes while the other waits."""
    held = sum(plan.accumulators for plan in products)
    read = max((plan.operands for plan in products), default=0)
    registers = REGISTER_FILE // (2 * LANES * warps)
    return 2 if products and held + max(held, 2 * read) <= registers else 1


def synchronous_accumulators(kernel: gpu.FuncOp, machine: Machine) -> int:
    """Accumulators of a workgroup whose threads wait for their products: two workgroups of 128 x 128 take turns, or
    one has 128 x 256 where shared memory has no room for the copies of two."""
    products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
    if not products or not all(is_copied(op) for op in products):
        return BROAD
    step = max(2 * 128 * shape_of(op.a)[1] * itemsize(element_of(op.a.type)) for op in products)
    room = machine.memories["smem"].size // 2 - SPARE
    return BROAD if room >= LEAST_STAGES * step else 2 * BROAD


def accumulators(products: Sequence[xt.TileMmaOp]) -> int:
    """Elements of the results of products that a program holds at the same time: those of one block."""
    blocks = {op.parent for op in products}
    return max(sum(prod(shape_of(op.result)) for op in products if op.parent is b) for b in blocks)


def is_copied(op: xt.TileMmaOp) -> bool:
    """A product of 16-bit or shorter elements into 32 bits, both of whose operands can be copied 16 bytes at a time."""
    if itemsize(element_of(op.result.type)) != 4 or feeds_product(op):
        return False
    for operand in (op.a, op.b):
        operand = through_transposes(operand)
        load, size = operand.owner, itemsize(element_of(operand.type))
        if isinstance(load, stage.CopyWaitOp) and size <= 2:
            continue
        if not isinstance(load, xt.LoadTileOp) or size > 2:
            return False
        if widest_vector(load.tile, contiguous_dimension(load.tile)) * size != 16:
            return False
    return True


def _power(n: int, most: int) -> int:
    """The largest power of two up to n, between 1 and `most`."""
    return max(1, min(most, 1 << max(0, n.bit_length() - 1)))
