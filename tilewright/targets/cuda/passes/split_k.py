"""split-k: the workgroups of a cluster do a loop's iterations in turn, and add up what each has summed.

    %x = gpu.block_id x                                %b = gpu.block_id x    %x = %b / 8    %r = stage.rank
    %s = scf.for %k = %lo to %hi step %d               %p = scf.for %k = %lo + %r * %d to %hi step 8 * %d
        iter_args(%acc = 0) {                     ->       iter_args(%acc = 0) {
      scf.yield tile_mma(%a, %b, %acc) }                 scf.yield tile_mma(%a, %b, %acc) }
    xetile.store_tile f(%s), %t[0, 0]                  %s = stage.cluster.sum %p : 64x128 to 64x16
                                                       xetile.store_tile f(%s), %t[0, %r * 16]

Each workgroup does what is left of the program for its part of the columns, or the first ones do it, as many as can
have equal parts: rank 0 alone where parts cannot be told apart (`split_workgroups`).

Requires: XeTile at workgroup level, tiles placed where they are loaded (`rematerialize-tiles`). Guarantees: the same
sums in another order, which is the same in every run; `size` times as many workgroups along x, in clusters of `size`.

Takes part: a kernel whose products all stand in one loop of its outermost block, which carries nothing but sums of
products and only loads; what stands before the loop acts on nothing, and the kernel shares no memory. Few large tiles
with a long loop leave most of the machine idle: `buffer-reuse` says where this pays.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, scf, vector
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright import dtypes
from tilewright.dialects import stage, xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.nesting import move, ops_behind, terminator
from tilewright.dialects.numerals import number_attr
from tilewright.passes.emit import Before, Behind
from tilewright.passes.fold_identities import splat
from tilewright.passes.kernel import programs_of
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.split_workgroups import choices, inside, narrow
from tilewright.targets.cuda.passes.wgmma_legality import shares_memory
from tilewright.targets.cuda.retile import share_programs
from tilewright.targets.cuda.work_split import finishing

_QUIET = (
    xetile.LoadTileOp,
    xetile.LoadGatherOp,
    xetile.PrefetchTileOp,
    gpu.BlockIdOp,
    gpu.GridDimOp,
)
"""Ops that act on nothing, besides those that depend on their operands alone."""


def shared_loop(function: gpu.FuncOp) -> scf.ForOp | None:
    """The loop of a kernel that a cluster can share; None if there is none."""
    if shares_memory(function):
        return None
    products = [op for op in function.walk() if isinstance(op, xetile.TileMmaOp)]
    loops = {op.parent_op() for op in products}
    loop = loops.pop() if len(loops) == 1 else None
    if not isinstance(loop, scf.ForOp) or loop.parent is not function.body.block:
        return None
    block = loop.body.block
    last = terminator(block)
    if not last.operands or not all(
        _is_sum(value, block, position) for position, value in enumerate(last.operands)
    ):
        return None
    before: list[Operation] = []
    here = loop.prev_op
    while here is not None:
        before += here.walk()
        here = here.prev_op
    inside = all(
        op.regions or is_pure(op) or isinstance(op, _QUIET) or op.name == "scf.yield"
        for op in (*before, *block.walk())
    )
    return loop if inside else None


def _is_sum(value: SSAValue, block: Block, position: int) -> bool:
    """Is what the loop yields at a position a product added to what it carried there?"""
    product = value.owner
    if not isinstance(product, xetile.TileMmaOp) or product.parent is not block:
        return False
    arg = block.args[position + 1]
    kind = vector_type(value)
    return (
        product.c is arg
        and arg.has_one_use()
        and value.has_one_use()
        and dtypes.from_mlir(kind.element_type).itemsize == 4
    )


def split_k(function: gpu.FuncOp, size: int) -> bool:
    """Rewrites one kernel; whether clusters of `size` share its loop now."""
    loop = shared_loop(function)
    if loop is None or size < 2:
        return False
    top = function.body.block
    rank = _as_cluster(function, size)
    at, behind = Before(loop), Behind(loop)
    count = at.index(size)
    start = at.add(arith.AddiOp(loop.lb, at.add(arith.MuliOp(rank, loop.step))))
    step = at.add(arith.MuliOp(loop.step, count))
    inits = [
        init if splat(init) == 0 else [at.add(op) for op in _zeros(init)][-1]
        for init in loop.iter_args
    ]
    sums: list[SSAValue] = []
    for result, old, init in zip(loop.results, list(loop.iter_args), inits, strict=True):
        total = behind.instead(result, stage.ClusterSumOp(result, vector_type(result)))
        sums.append(total)
        total.name_hint = result.name_hint
        if init is not old:
            behind.instead(total, (arith.AddfOp if _is_float(old) else arith.AddiOp)(total, old))
    loop.operands[0], loop.operands[2] = start, step
    for position, init in enumerate(inits):
        loop.operands[3 + position] = init
    ranks = _by_columns(function, sums, size, rank)
    if ranks < size:
        _only_first(top, behind.last, rank, ranks)
    return True


def _by_columns(function: gpu.FuncOp, sums: Sequence[SSAValue], size: int, rank: SSAValue) -> int:
    """Has ranks do each its columns of all that comes of the sums; how many do so."""
    for choice in choices(function, ranked=True):
        dims, ranks = inside(choice), finishing(choice.extent, size)
        if any(dims.get(value) != {1} for value in sums) or ranks == 1:
            continue
        assert isinstance(rank.owner, Operation)
        at = Behind(rank.owner)
        narrow(choice, ranks, at.add(arith.MuliOp(rank, at.index(choice.extent // ranks))))
        return ranks
    return 1


def _as_cluster(function: gpu.FuncOp, size: int) -> SSAValue:
    """Makes `size` neighbouring workgroups along x of each program; the rank of this one."""
    top = function.body.block
    first = top.first_op
    assert first is not None
    ids = [op for op in function.walk() if isinstance(op, gpu.BlockIdOp | gpu.GridDimOp)]
    at = Before(first)
    count, rank = at.index(size), at.add(stage.RankOp())
    for op in ids:
        if op.dimension.data is gpu.DimensionEnum.X:
            Behind(op).instead(op.result, arith.DivUIOp(op.result, count))
    function.attributes[stage.CLUSTER] = IntegerAttr(size, i64)
    share_programs(function, programs_of(function) * size)
    return rank


def _only_first(top: Block, after: Operation, rank: SSAValue, ranks: int) -> None:
    """What stands after an op is done by the first ranks alone."""
    last = terminator(top)
    *rest, _ = ops_behind(after)
    at, then = Before(last), Block()
    first = at.add(arith.CmpiOp(rank, at.index(ranks), "ult"))
    move(rest, InsertPoint.at_end(then))
    then.add_op(scf.YieldOp())
    at.insert(scf.IfOp(first, [], Region(then), Region(Block([scf.YieldOp()]))))


def _zeros(like: SSAValue) -> list[Operation]:
    """The ops that make zeros of a value's type, the last of which gives them."""
    type = vector_type(like)
    scalar = arith.ConstantOp(number_attr(type.element_type, 0))
    return [scalar, vector.BroadcastOp(scalar.result, type)]


def _is_float(value: SSAValue) -> bool:
    return dtypes.from_mlir(vector_type(value).element_type).is_float
