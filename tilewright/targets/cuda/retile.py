"""How far a workgroup's tiles are split so that the registers of its threads can hold them.

A product's accumulators may take half of a thread's registers, with eight warps; other values so much
that several workgroups share a multiprocessor and one's arithmetic hides another's loads. Tiles that
nothing can split stay as they are.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, i64

from tilewright.dialects import xetile as xt
from tilewright.passes.kernel import PROGRAMS, programs_of
from tilewright.passes.retile import computed, halve, tile_size
from tilewright.targets.cuda.products import feeds_product
from tilewright.targets.cuda.warps import accumulators
from tilewright.targets.cuda.work_split import LEAST_SIDE
from tilewright.uarch.nvidia import WGMMA_ROWS

MOST_ACCUMULATORS = 160 * 256
"""Elements of all accumulators of a workgroup whose products run beside the program (wgmma): 160
registers in each of 256 threads."""
MOST_ELEMENTS = 8192
"""Elements of the largest value of a kernel without products."""


def retile(kernel: gpu.FuncOp, remarks: list[str], most: int | None = None, least: int = 1) -> int:
    """Splits the workgroup as often as it takes, into `least` if it can; how many programs along x one has become."""
    before = factor = programs_of(kernel)
    most = MOST_ACCUMULATORS if most is None else most
    if any(feeds_product(op) for op in kernel.walk() if isinstance(op, xt.TileMmaOp)):
        # Both products' sums are held, and their rows share loads: the more the better.
        most = max(most, MOST_ACCUMULATORS)
    while True:
        products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
        values = [op.result for op in products] or computed(kernel)
        if not values:
            break
        load = accumulators(products) if products else max(tile_size(v) for v in values)
        if load <= (most if products else MOST_ELEMENTS) and factor >= least:
            break
        side, rows = (LEAST_SIDE, WGMMA_ROWS) if products else (1, 1)
        parts = halve(kernel, values, side, rows=rows)
        if parts == 1:
            break
        factor *= parts
    if factor > before:
        share_programs(kernel, factor)
        remarks.append(f"a workgroup's tiles are shared by {factor} workgroups along x")
    return factor


def share_programs(kernel: gpu.FuncOp, factor: int) -> None:
    """So many programs along x stand for one of the launch's from here on."""
    if factor > 1:
        kernel.attributes[PROGRAMS] = IntegerAttr(factor, i64)
