"""k-coarsening: several iterations of a loop of products are taken at once, so that lines in shared memory are full.

    scf.for %k = 0 to %K step 32 {                       scf.for %k = 0 to %K step 64 {
      %a = load_tile %A[%m, %k] : 128x32                   %a = load_tile %A[%m, %k] : 128x64
      %b = load_tile %B[%k, %n] : 32x256            ->     %b = load_tile %B[%k, %n] : 64x256
      %s = tile_mma %a, %b, %acc                           %s = tile_mma %a, %b, %acc
      scf.yield %s }                                       scf.yield %s }

Requires: XeTile at workgroup level, tiles placed where they are loaded (`rematerialize-tiles`), the loop's form as
`split-k` has it. Guarantees: the same sums in the same order.

Takes part: a loop all of whose products multiply tiles as they are loaded (rounded to tf32, transposed), each tile
next to that of the iteration before, and whose length is known to be a multiple of the longer step: from the facts of
extents that code is specialised on (`steps_per_line`), or from the extents of a launch (`buffer-reuse`).
"""

from __future__ import annotations

from xdsl.dialects import gpu, memref, scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr, VectorType
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.emit import Before
from tilewright.targets.cuda.passes.split_k import shared_loop
from tilewright.targets.cuda.passes.tf32_rounding import loaded, rounding_of
from tilewright.targets.cuda.passes.wgmma_legality import TRANSPOSES, untransposed, users
from tilewright.uarch.nvidia import LINE

Sides = dict[xetile.LoadTileOp, int]
"""Which dimension of each load's tile is summed over."""


def steps_per_line(function: gpu.FuncOp) -> int:
    """How many iterations of a kernel's loop fill a line, as far as its length is known to be a multiple; else 1."""
    loop = shared_loop(function)
    step = None if loop is None else constant(loop.step)
    if loop is None or not step:
        return 1
    products = [op for op in loop.body.block.ops if isinstance(op, xetile.TileMmaOp)]
    widest = max(
        dtypes.from_mlir(vector_type(v).element_type).itemsize for p in products for v in (p.a, p.b)
    )
    times = LINE // (step * widest)
    while times > 1 and not _divides(function, loop, times * step):
        times //= 2
    return max(times, 1)


def can_merge(analysis: AccessAnalysis) -> bool:
    """Has a kernel a loop whose iterations can be taken several at once, if its length allows it?"""
    loop = shared_loop(analysis.func)
    return loop is not None and _sides(analysis, loop) is not None


def coarsen_k(function: gpu.FuncOp, times: int) -> bool:
    """Rewrites one kernel; whether its loop takes so many iterations at once now."""
    loop = shared_loop(function)
    sides = None if loop is None or times < 2 else _sides(AccessAnalysis(function), loop)
    if loop is None or sides is None:
        return False
    at = Before(loop)
    step = constant(loop.step)
    loop.operands[2] = at.index(at.times(loop.step if step is None else step, times))
    for load, side in sides.items():
        _widen(load, side, times)
    return True


def _divides(function: gpu.FuncOp, loop: scf.ForOp, by: int) -> bool:
    """Is the loop's length known to be a multiple of a number?"""
    start, end = constant(loop.lb), loop.ub.owner
    if start is None or start % by:
        return False
    if (known := constant(loop.ub)) is not None:
        return known % by == 0
    if not isinstance(end, memref.DimOp) or (dimension := constant(end.index)) is None:
        return False
    div = AccessAnalysis(function).facts(end.source).div
    return dimension < len(div) and div[dimension] % by == 0


def _sides(analysis: AccessAnalysis, loop: scf.ForOp) -> Sides | None:
    """The loads of the loop's products; None where one of them is anything but a tile next to the last one."""
    found: Sides = {}
    block = loop.body.block
    for op in block.ops:
        if not isinstance(op, xetile.TileMmaOp):
            continue
        for value, side in ((op.a, 1), (op.b, 0)):
            source, transposed = untransposed(value)
            load = loaded(source)
            side = 1 - side if transposed else side
            if load is None or load.parent is not block or found.setdefault(load, side) != side:
                return None
    around = analysis.loop(loop)
    for load, side in found.items():
        access, step = analysis.find(load), constant(loop.step)
        if access is None or access.scattered or step is None:
            return None
        if len(load.values) != 1 or not isinstance(load.tile.owner, xetile.InitTileOp):
            return None
        moves = [None if m is None else m.constant for m in access.step(around)[-2:]]
        wanted = [0, 0]
        wanted[side] = step
        if moves != wanted or load.tile_type.get_shape()[side] != step:
            return None
        used = users(load.values[0], also=rounding_of(load))
        if not all(isinstance(u, xetile.TileMmaOp) for u in used) or not load.tile.has_one_use():
            return None
    return found or None


def _widen(load: xetile.LoadTileOp, side: int, times: int) -> None:
    """The tile of several iterations in place of one's."""
    old, origin = load.tile_type, load.tile.owner
    assert isinstance(origin, xetile.InitTileOp)
    shape = [n * times if d == side else n for d, n in enumerate(old.get_shape())]
    extents = ArrayAttr(IntAttr(n) for n in shape)
    wide = xetile.TileType.new([extents, old.element_type, old.encoding])
    made = xetile.InitTileOp(
        origin.source,
        wide,
        origin.mixed_offsets,
        origin.mixed_sizes,
        origin.mixed_strides,
    )
    at = Before(origin)
    at.replace(at.add(made))
    work: list[tuple[SSAValue, int]] = [(load.values[0], side)]
    while work:
        value, at = work.pop()
        type = vector_type(value)
        kind = [n * times if d == at else n for d, n in enumerate(type.get_shape())]
        fresh = Rewriter.replace_value_with_new_type(value, VectorType(type.element_type, kind))
        for use in fresh.uses:
            user = use.operation
            if isinstance(user, TRANSPOSES):
                work.append((user.results[0], 1 - at))
            elif not isinstance(user, xetile.TileMmaOp):
                work.append((user.results[0], at))
