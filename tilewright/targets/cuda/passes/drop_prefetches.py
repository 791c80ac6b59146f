"""drop-prefetches: those of arrays that products read are left out; their loads are copied ahead anyway.

    xetile.prefetch_tile %a1            ->    (nothing)
    %a = xetile.load_tile %a0                 %a = xetile.load_tile %a0
    %d = xetile.tile_mma %a, %b, %c           %d = xetile.tile_mma %a, %b, %c

Requires: XeTile at workgroup level. Guarantees: the same results.

Multi-buffers and cp.async bring the operands of products several iterations ahead, into shared memory: to fetch their
lines into the caches besides costs instructions, and tiles that only prefetches move keep a kernel from being split.
Where the copies of products are switched off, prefetches stay.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.passes.loops import drop_unread
from tilewright.passes.tile_origin import root_of
from tilewright.targets.cuda.passes.multi_buffering import loads_of


def drop_prefetches(function: gpu.FuncOp) -> int:
    """Removes prefetches of data that is copied asynchronously anyway. Returns how many."""
    copied: set[SSAValue | None] = set()
    for op in function.walk():
        if isinstance(op, xetile.TileMmaOp):
            for operand in (op.a, op.b):
                copied |= {root_of(load.tile) for load in loads_of(operand, computed=True)}
    found = [
        op
        for op in function.walk()
        if isinstance(op, xetile.PrefetchTileOp) and root_of(op.tile) in copied - {None}
    ]
    for op in found:
        Rewriter.erase_op(op)
    if found:
        # Loops carry the tiles that prefetches moved along: nothing needs those now.
        drop_unread(function)
    return len(found)
