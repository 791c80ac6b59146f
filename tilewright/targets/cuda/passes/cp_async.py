"""cp-async: threads copy the operands of products into multi-buffers in shared memory, iterations ahead (cp.async).

    scf.for %k {                              %r = stage.multi_buffer {by_threads}
      %a = xetile.load_tile %ta               (the fills of iterations 0 .. S - 2)
      %b = xetile.load_tile %tb        ->     scf.for %k {
      %d = xetile.tile_mma %a, %b }             %a, %b = stage.copy.wait %r[%here] {pending = S - 2}
                                                stage.copy.issue %r[%ahead] when %runs, %ta', %tb'    (of k + S - 1)
                                                %d = xetile.tile_mma %a, %b
                                                stage.copy.release %r[%here] }
                                              stage.dealloc %r

Requires: XeTile at workgroup level, not asynchronous. Guarantees: the same results.

A load of a loop's body takes part when products alone use it, as it is or transposed; when its place follows from the
loop's counter, values from outside, and single elements that a table names (the number of a page); when nothing in the
kernel writes the array; when padding is zero; and when its lines are made of aligned chunks of at least 4 bytes. All
those of a loop share a multi-buffer, whose fills are the loop's first stage (`loop_pipeliner`); the others stay loads.
What tables name is loaded one stage before the fills that need it, so that no iteration waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from xdsl.dialects import gpu, scf
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.codegen.tiles import itemsize, plain
from tilewright.dialects import stage, xetile
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import record
from tilewright.layout import LayoutError
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.loop_pipeliner import PipelineSchedule, expand_ahead
from tilewright.passes.loops import set_yield, with_carried
from tilewright.passes.tile_origin import is_read_only
from tilewright.targets.cuda.blocked import run_along
from tilewright.targets.cuda.exchange import addresses
from tilewright.targets.cuda.ownership import COPIES, contiguous_dimension, copied_bytes
from tilewright.targets.cuda.passes.multi_buffering import place_ops
from tilewright.targets.cuda.passes.wgmma_legality import through_transposes, users
from tilewright.targets.cuda.products import ProductPlan, plan_product
from tilewright.targets.cuda.staged import copied_layout, memory_of
from tilewright.targets.cuda.warps import LEAST_STAGES, resident_workgroups
from tilewright.uarch.base import Machine

MOST_STAGES = 4
SWIZZLES = (128, 64, 32, 0)
"""Bytes of panels, in the order of preference; 0: none. Addresses of panels part into thread and register, also as
products read them, where extents are powers of two. Their chunks of 16 bytes are for ldmatrix: pairs of 8 bytes, which
plain loads take four of a line, would meet in a bank."""


@record
class _Copies:
    """The loads of one loop that are copied ahead."""

    loop: scf.ForOp
    loads: list[xetile.LoadTileOp]
    parts: list[stage.PartAttr]
    slots: int = 0
    workgroups: int = 1
    """Of a multiprocessor, that these slots leave room for."""
    around: int = 0
    """Bytes of the multi-buffers of the loops around."""

    @property
    def bytes(self) -> int:
        """With those of the loops around, if it has a multi-buffer of its own."""
        own = self.slots * stage.MultiBufferType(1, self.parts).slot_bytes
        return self.around + own if self.slots >= 2 else 0


def copy_ahead(
    function: gpu.FuncOp,
    machine: Machine,
    stages: int,
    rest: int,
    choose: Callable[[], int],
    use_mma: bool,
) -> tuple[int, int]:
    """Rewrites one kernel; the bytes that its multi-buffers take at a time, and for how many workgroups of a
    multiprocessor they leave room. `choose` gives its warps, which may use matrix instructions.

    A multi-buffer has `stages` slots, or as many as shared memory has room for beside `rest` bytes; fewer than 2: none.
    """
    found: list[_Copies] = []
    plans: dict[xetile.TileMmaOp, ProductPlan] = {}
    warps = 0
    for op in function.walk():
        if not isinstance(op, scf.ForOp):
            continue
        loads = [each for each in op.body.block.ops if isinstance(each, xetile.LoadTileOp)]
        fed = {load: feeds for load in loads if (feeds := _products(load)) and _is_placed(load)}
        if not fed:
            continue
        if not plans:
            products = [each for each in function.walk() if isinstance(each, xetile.TileMmaOp)]
            warps = choose()
            plans = {
                each: plan_product(each, warps, machine if use_mma else None) for each in products
            }
        held = [
            (load, part)
            for load, products in fed.items()
            if (part := _part(load, [plans[each] for each in products], warps))
        ]
        if held:
            each = _Copies(op, [load for load, _ in held], [part for _, part in held])
            each.around = max((o.bytes for o in found if o.loop.is_ancestor(op)), default=0)
            resident = resident_workgroups(plans.values(), warps)
            _fill(each, machine, resident, rest, stages)
            found.append(each)
    # Inner loops first: what is planned for those around them stays as it is.
    made = [each for each in reversed(found) if each.slots >= 2]
    for each in made:
        _rewrite(each)
    if made:
        eliminate_dead(function.body.block)
    taken = max((each.bytes for each in made), default=0)
    return taken, min((each.workgroups for each in made), default=1)


def _fill(each: _Copies, machine: Machine, resident: int, rest: int, stages: int) -> None:
    """As many slots as fit where several workgroups share a multiprocessor, if those are better than one; else for
    one."""
    size = stage.MultiBufferType(1, each.parts).slot_bytes
    for each.workgroups in range(resident, 0, -1):
        room = machine.memories["smem"].size // each.workgroups - rest - each.around
        each.slots = max(0, min(stages, room // size))
        if each.slots >= LEAST_STAGES:
            break


# Which loads ------------------------------------------------------------------------------------


def _is_placed(load: xetile.LoadTileOp) -> bool:
    """Does an array that nothing writes, at a place that follows from the loop's counter, give the tile?"""
    if len(load.values) != 1 or load.padding_value != 0:
        return False
    ops, body = place_ops(load, is_named), load.parent
    if ops is None or not isinstance(load.tile.owner, xetile.InitTileOp):
        return False
    carried = any(
        isinstance(value, BlockArgument) and value.block is body and value.index > 0
        for op in ops
        for value in op.operands
    )
    return not carried and load.tile_type.memory_space == 0 and is_read_only(load.tile)


def is_named(op: Operation) -> bool:
    """Does an op load one element of a table that nothing writes? It may as well be loaded early, or in vain."""
    return (
        isinstance(op, xetile.LoadTileOp)
        and prod(op.tile_type.get_shape()) == 1
        and op.tile_type.memory_space == 0
        and is_read_only(op.tile)
    )


def _products(load: xetile.LoadTileOp) -> list[xetile.TileMmaOp]:
    """The products of the load's block that are its only users, also transposed; none where there are others."""
    found = [user for value in load.results for user in users(value)]
    fed = [u for u in found if isinstance(u, xetile.TileMmaOp) and u.parent is load.parent]
    added = any(op.c is not None and through_transposes(op.c) in load.results for op in fed)
    return fed if len(fed) == len(found) and not added else []


_AS_LOADED = {"f16": 2, "bf16": 2, "tf32": 4, "i8": 1, "u8": 1, "f64": 8}
"""Element types that instructions take as memory holds them, and their bytes."""


def _part(load: xetile.LoadTileOp, plans: list[ProductPlan], warps: int) -> stage.PartAttr | None:
    """How the tile of a load lies in a slot; None where copies do not bring it as products take it."""
    type = load.tile_type
    size = itemsize(plain(type.element_type))
    if any(p.instruction is None or _AS_LOADED.get(p.element) != size for p in plans):
        return None
    fast, bytes_ = contiguous_dimension(load.tile), copied_bytes(load.tile)
    if bytes_ not in COPIES:
        return None
    order = (1, 0) if fast == 1 else (0, 1)
    lines, line = type.get_shape()[1 - fast], type.get_shape()[fast] * size
    for swizzle in SWIZZLES:
        if swizzle and (size == 8 or line % swizzle or line & (line - 1) or lines & (lines - 1)):
            continue
        part = stage.PartAttr(type.get_shape(), type.element_type, order, swizzle)
        layout = copied_layout(part, warps, bytes_ // size)
        if run_along(layout) != (fast, bytes_ // size):
            return None
        try:
            if addresses(layout, memory_of(part), size).vector * size == bytes_:
                return part
        except LayoutError:
            continue
    return None


# Rewriting --------------------------------------------------------------------------------------


def _rewrite(each: _Copies) -> None:
    """The fills of the multi-buffer are the loop's first stage, all else the last."""
    slots = each.slots
    buffer = stage.MultiBufferOp(stage.MultiBufferType(slots, each.parts), True)
    state = stage.PipelineStateOp(slots)
    buffer.result.name_hint, state.result.name_hint = "buffer", "state"
    Rewriter.insert_op([buffer, state], InsertPoint.before(each.loop))
    loop, ahead = with_carried(each.loop, state.result)
    loop, here = with_carried(loop, state.result)
    body = loop.body.block
    rest = [op for op in body.ops if op not in each.loads and op is not body.last_op]
    places = {op for load in each.loads for op in place_ops(load, is_named) or ()}
    copies: dict[SSAValue, SSAValue] = {}
    early = [op.clone(copies) for op in rest if op in places]
    tiles = [copies.get(load.tile, load.tile) for load in each.loads]
    named = dict[Operation, None]()
    for op in reversed(early):
        used = (use.operation in named for result in op.results for use in result.uses)
        if is_named(op) or any(used):
            named[op] = None
    # The wait stands before the issue of its step.
    wait = stage.CopyWaitOp(buffer.result, here, pending=slots - 2)
    early += [stage.CopyIssueOp(buffer.result, ahead, tiles), stage.AdvanceOp(ahead)]
    set_yield(body, -2, early[-1].results[0])
    late = [wait, *rest, stage.CopyReleaseOp(buffer.result, here), stage.AdvanceOp(here)]
    set_yield(body, -1, late[-1].results[0])
    for load, value in zip(each.loads, wait.values, strict=True):
        value.name_hint = load.result.name_hint
        Rewriter.replace_op(load, [], [value])
    Rewriter.insert_op([wait, *early], InsertPoint.at_start(body))
    Rewriter.insert_op(late[-2:], InsertPoint.before(terminator(body)))
    first = 1 if named else 0
    last = first + slots - 1
    stages = dict.fromkeys(late, last) | {op: first for op in early if op not in named}
    # Addresses of copies are computed while the first product runs.
    behind = next(i for i, op in enumerate(late) if isinstance(op, xetile.TileMmaOp)) + 1
    schedule = PipelineSchedule(loop, stages, [*late[:behind], *early, *late[behind:]], last)
    made = expand_ahead(schedule, _predicate)
    Rewriter.insert_op(stage.DeallocOp(buffer.result), InsertPoint.after(made[-1]))


def _predicate(op: Operation, holds: Callable[[], SSAValue]) -> Operation:
    """An iteration beyond the loop's end copies nothing."""
    if not isinstance(op, stage.CopyIssueOp) or constant(condition := holds()) == 1:
        return op
    return stage.CopyIssueOp(op.buffer, op.state, op.tiles, condition=condition)
