"""rematerialize-loads: a tile that a loop of products loads for its next iteration is loaded in that iteration.

    %a0 = load %A[0]                                        scf.for %k = %c64 to %n step %c64 .. {
    scf.for %k = %c64 to %n step %c64 iter_args(%a = %a0)     %a = load %A[%k - 64]
      %next = load %A[%k]                             ->      .. tile_mma %a ..
      .. tile_mma %a ..                                       scf.yield }
      scf.yield %next

Whoever writes the left form copies ahead by hand. How far ahead is the target's to choose, and it knows loads where
their values are used: as panels, through shared memory, by the copy engine.

Requires: tiles that no loop carries (carry-offsets). Guarantees: the same results. It is done where nothing writes the
array, both loads are alike, and the one in front of the loop is of where the other would have been an iteration before
the first (access analysis). What the loop hands on at its end is loaded behind it.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.nesting import terminator
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.affine import Expr
from tilewright.passes.loops import drop_unread
from tilewright.passes.materialise import Materialiser, NoValue
from tilewright.passes.tile_origin import is_read_only


def rematerialize_loads(function: gpu.FuncOp) -> None:
    """Loads tiles in the iterations whose products use them."""
    loops = [op for op in function.walk() if isinstance(op, scf.ForOp)]
    found = [(loop, at) for loop in loops for at in _carried_loads(loop)]
    analysis = AccessAnalysis(function) if found else None
    old = dict[Operation, None]()
    for loop, at in found:
        assert analysis is not None
        if _rematerialize(analysis, loop, at):
            ends = loop.iter_args[at], terminator(loop.body.block).operands[at]
            old |= {value.op: None for value in ends if isinstance(value, OpResult)}
    if old:
        drop_unread(function)
    for op in old:
        if op.results[0].first_use is None:
            Rewriter.erase_op(op)


def _carried_loads(loop: scf.ForOp) -> list[int]:
    """Which of what a loop of products carries is loaded in front of it, and then for the next iteration."""
    body = loop.body.block
    if not any(isinstance(op, xetile.TileMmaOp) for op in body.ops):
        return []
    pairs = zip(loop.iter_args, terminator(body).operands, strict=True)
    return [at for at, (first, next) in enumerate(pairs) if _are_alike(first, next, loop)]


def _are_alike(first: SSAValue, next: SSAValue, loop: scf.ForOp) -> bool:
    if not (isinstance(first, OpResult) and isinstance(next, OpResult) and next.has_one_use()):
        return False
    one, other = first.op, next.op
    if not (isinstance(one, xetile.LoadTileOp) and isinstance(other, xetile.LoadTileOp)):
        return False
    alike = one.properties == other.properties and one.attributes == other.attributes
    same = one.operands[0].type == other.operands[0].type and one.operands[1:] == other.operands[1:]
    return alike and same and other.parent is loop.body.block and is_read_only(other.tile)


def _rematerialize(analysis: AccessAnalysis, loop: scf.ForOp, at: int) -> bool:
    body, here = loop.body.block, analysis.loop(loop)
    next = terminator(body).operands[at].owner
    assert isinstance(next, xetile.LoadTileOp)
    first, later = (analysis.find(op) for op in (loop.iter_args[at].owner, next))  # pyright: ignore
    if first is None or later is None or not _same_array(first, later):
        return False

    def offsets(counter: Expr) -> tuple[Expr, ...]:
        return tuple(each.substitute({here.counter: counter}) for each in later.offsets)

    if offsets(Expr.of(-1)) != first.offsets:
        return False
    places: list[tuple[InsertPoint, SSAValue, Expr]] = [
        (InsertPoint.at_start(body), body.args[1 + at], Expr.symbol(here.counter) - 1)
    ]
    if loop.results[at].first_use is not None:
        if here.trips is None:
            return False
        places.append((InsertPoint.after(loop), loop.results[at], here.trips - 1))
    loads = list[tuple[SSAValue, SSAValue]]()
    for point, value, counter in places:
        try:
            # What makes the tile in front of the loop is there wherever the loop is.
            tile = Materialiser(point).tile(first.origin, offsets(counter))
        except NoValue:
            return False
        loads.append((value, tile))
    for value, tile in loads:
        load = next.clone()
        load.operands[0] = tile
        tile.owner.parent.insert_op_after(load, tile.owner)  # pyright: ignore
        load.results[0].name_hint = value.name_hint
        value.replace_all_uses_with(load.results[0])
    return True


def _same_array(a: Access, b: Access) -> bool:
    apart = a.scattered or b.scattered or a.base is not b.base
    return not apart and (a.extents, a.strides) == (b.extents, b.strides)
