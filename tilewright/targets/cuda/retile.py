"""How far a workgroup's tiles are split so that the registers of its threads can hold them.

A product's accumulators may take half of a thread's registers, with eight warps; other values so much
that several workgroups share a multiprocessor and one's arithmetic hides another's loads. Tiles that
nothing can split stay as they are.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IntegerAttr, VectorType, i64
from xdsl.ir import SSAValue

from tilewright.dialects import xetile as xt
from tilewright.passes.kernel import PROGRAMS, programs_of
from tilewright.passes.memory_objects import may_alias
from tilewright.passes.split_workgroups import Choice, choices, shape_of, split
from tilewright.passes.tile_origin import root_of
from tilewright.targets.cuda.products import feeds_product
from tilewright.targets.cuda.warps import accumulators

MOST_ACCUMULATORS = 160 * 256
"""Elements of all accumulators of a workgroup whose products run beside the program (wgmma): 160
registers in each of 256 threads."""
MOST_ELEMENTS = 8192
"""Elements of the largest value of a kernel without products."""
LEAST_PRODUCT = 64
"""Rows or columns of a product that are not split further."""


def retile(kernel: gpu.FuncOp, remarks: list[str], most: int | None = None, least: int = 1) -> int:
    """Splits the workgroup as often as it takes, into `least` if it can; how many programs along x one has become."""
    before = factor = programs_of(kernel)
    most = MOST_ACCUMULATORS if most is None else most
    if any(feeds_product(op) for op in kernel.walk() if isinstance(op, xt.TileMmaOp)):
        # Both products' sums are held, and their rows share loads: the more the better.
        most = max(most, MOST_ACCUMULATORS)
    while True:
        products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
        values = [op.result for op in products] or _values(kernel)
        if not values:
            break
        load = accumulators(products) if products else max(_size(v) for v in values)
        if load <= (most if products else MOST_ELEMENTS) and factor >= least:
            break
        largest = max(values, key=_size)
        choice = _best(kernel, largest, LEAST_PRODUCT if products else 1)
        if choice is None:
            break
        split(kernel, choice, 2)
        factor *= 2
    if factor > before:
        share_programs(kernel, factor)
        remarks.append(f"a workgroup's tiles are shared by {factor} workgroups along x")
    return factor


def share_programs(kernel: gpu.FuncOp, factor: int) -> None:
    """So many programs along x stand for one of the launch's from here on."""
    if factor > 1:
        kernel.attributes[PROGRAMS] = IntegerAttr(factor, i64)


def _values(kernel: gpu.FuncOp) -> list[SSAValue]:
    return [
        r
        for op in kernel.walk()
        if not isinstance(op, arith.ConstantOp)
        for r in op.results
        if isinstance(r.type, VectorType)
    ]


def _size(value: SSAValue) -> int:
    return prod(shape_of(value) or (1,))


def _best(kernel: gpu.FuncOp, largest: SSAValue, least: int) -> Choice | None:
    """The longest axis of the largest value, of equals the outermost; None if none can be halved."""
    best: tuple[tuple[int, int], Choice] | None = None
    for choice in choices(kernel, root_of, may_alias):
        dims = [d for v, d in choice.members if v is largest]
        if not dims or choice.extent % 2 or choice.extent // 2 < least:
            continue
        rank = (choice.extent if least > 1 else -dims[0], -dims[0])
        if best is None or rank > best[0]:
            best = rank, choice
    return best[1] if best is not None else None
