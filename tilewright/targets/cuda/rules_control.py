"""Loops and branches: every thread takes them alike, and carries its fragments as values."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import ScatteredTile, Tile
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.tile_origin import root_of, tile_accesses
from tilewright.targets.cuda import rules_pipeline as pipeline
from tilewright.targets.cuda.distribute import Distributor, is_tile_shaped, rule
from tilewright.targets.cuda.rules_memory import UNKNOWN
from tilewright.targets.cuda.sync import Access, Place


def flatten(d: Distributor, value: SSAValue, like: SSAValue) -> list[SSAValue]:
    """The values that carry `value` as `like` (a block argument or result): a scalar, a fragment in
    the home of `like`, or what may change of a tile."""
    if isinstance(value.type, xt.TileType):
        tile = d.tile(value)
        if isinstance(tile, ScatteredTile):
            raise d.error(
                _owner(value),
                "a scattered tile cannot be carried by a loop here",
                "carry its offsets and init the tile inside the loop",
            )
        return [d.b.idx(x) for x in _changing(d, value, tile)]
    if is_tile_shaped(value):
        home = d.home(like)
        assert home is not None
        return [d.fragment_of(value, home).value]
    return [d.scalar(value)]


def _owner(value: SSAValue) -> Operation:
    found = value.owner
    if isinstance(found, Operation):
        return found
    parent = found.parent_op()
    assert parent is not None
    return parent


def _changing(d: Distributor, value: SSAValue, tile: Tile) -> list[Idx]:
    """Offsets always; extents and strides stay what the tile began with (its matrix is one)."""
    return [*tile.offsets]


def bind(d: Distributor, value: SSAValue, like: SSAValue, carried: list[SSAValue]) -> None:
    """Let `value` (a tile like `like`, or anything else) be what it was carried as."""
    if isinstance(value.type, xt.TileType):
        tile = d.tile(like)
        assert isinstance(tile, Tile)
        rows, cols = carried.pop(0), carried.pop(0)
        from dataclasses import replace

        d.set_tile(value, replace(tile, offsets=(rows, cols)))
    elif is_tile_shaped(value):
        home = d.home(value)
        assert home is not None
        d.set_fragment(value, carried.pop(0), home)
    else:
        d.set_scalar(value, carried.pop(0))


def check_same_matrix(d: Distributor, op: Operation, a: SSAValue, b: SSAValue) -> None:
    """A tile that a loop or branch carries must stay in one matrix: only its offsets are carried."""
    if not isinstance(a.type, xt.TileType):
        return
    x, y = d.tile(a), d.tile(b)
    same = isinstance(x, Tile) and isinstance(y, Tile)
    if same and (x.pointer is not y.pointer or x.extents != y.extents or x.strides != y.strides):  # pyright: ignore
        raise d.error(
            op,
            "a tile changes its matrix in a loop or branch, which the cuda target does not carry",
            "init the tile where it is used",
        )


def accesses(d: Distributor, body: Operation) -> list[Access]:
    """What the ops inside an op do to arrays."""
    return [
        Access(Place(root=UNKNOWN if (root := root_of(tile)) is None else root), writes)
        for tile, writes in tile_accesses(body)
    ]


def _values(flat: Sequence[SSAValue]) -> list[Attribute]:
    return [v.type for v in flat]


@rule("scf.for")
def lower_for(d: Distributor, op: Operation) -> None:
    assert isinstance(op, scf.ForOp)
    b = d.b
    body = op.body.block
    last = body.last_op
    assert last is not None
    carry: list[SSAValue] = []
    for init, arg in zip(op.iter_args, body.args[1:], strict=True):
        carry += flatten(d, init, arg)
    lo, hi, step = (d.idx(v) for v in (op.lb, op.ub, op.step))
    ring = pipeline.prepare(d, op)
    if ring is not None:
        pipeline.fill(d, ring)
        carry.append(b.idx(0))
    with d.hazards.loop(accesses(d, op)), b.loop(lo, hi, step, carry) as loop, d.scope():
        d.set_scalar(body.args[0], loop.iv)
        carried = list(loop.carried)
        slot = loop.carried[-1] if ring is not None else None
        if ring is not None and slot is not None:
            b.nonnegative.add(slot)
            pipeline.begin_iteration(d, ring, loop.iv, slot)
        _mark_offsets(d, op, carried)
        for init, arg in zip(op.iter_args, body.args[1:], strict=True):
            bind(d, arg, init, carried)
        d.lower_block(body)
        out: list[SSAValue] = []
        for value, arg in zip(last.operands, body.args[1:], strict=True):
            check_same_matrix(d, op, value, arg)
            out += flatten(d, value, arg)
        if ring is not None and slot is not None:
            out.append(pipeline.next_slot(d, ring, slot))
        loop.out = out
    if ring is not None:
        pipeline.end(d, ring)
    results = list(loop.results)
    _mark_offsets(d, op, results)
    for init, result in zip(op.iter_args, op.results, strict=True):
        bind(d, result, init, results)


def _mark_offsets(d: Distributor, op: scf.ForOp, carried: list[SSAValue]) -> None:
    """Offsets of carried tiles that begin at or above zero and only grow are never negative."""
    b = d.b
    at = 0
    last = op.body.block.last_op
    assert last is not None
    for i, init in enumerate(op.iter_args):
        if not isinstance(init.type, xt.TileType):
            at += 1
            continue
        tile = d.tile(init)
        assert isinstance(tile, Tile)
        growth = _growth(d, last.operands[i], op.body.block.args[1 + i])
        for dim in range(2):
            if growth[dim] and b.is_nonnegative(tile.offsets[dim]):
                b.nonnegative.add(carried[at + dim])
        at += 2


def _growth(d: Distributor, value: SSAValue, arg: SSAValue) -> tuple[bool, bool]:
    """Per dimension: does the loop only add constants that are not negative?"""
    rows = cols = True
    while value is not arg:
        op = value.owner
        if not isinstance(op, xt.UpdateTileOffsetOp) or op.offset_vector is not None:
            return False, False
        by = [constant(x) for x in op.mixed_offsets]
        rows = rows and by[0] is not None and by[0] >= 0
        cols = cols and by[1] is not None and by[1] >= 0
        value = op.tile
    return rows, cols


@rule("scf.while")
def lower_while(d: Distributor, op: Operation) -> None:
    assert isinstance(op, scf.WhileOp)
    b = d.b
    before, after = op.before_region.block, op.after_region.block
    condition, last = before.last_op, after.last_op
    assert isinstance(condition, scf.ConditionOp) and last is not None
    carry: list[SSAValue] = []
    for init, arg in zip(op.arguments, before.args, strict=True):
        carry += flatten(d, init, arg)
    new_before = Block(arg_types=_values(carry))
    with d.hazards.loop(accesses(d, op)):
        with b.inside(new_before), d.scope():
            carried: list[SSAValue] = list(new_before.args)
            for init, arg in zip(op.arguments, before.args, strict=True):
                bind(d, arg, init, carried)
            d.lower_block(before)
            passed: list[SSAValue] = []
            for value, arg in zip(condition.args, after.args, strict=True):
                passed += flatten(d, value, arg)
            b.op(scf.ConditionOp(d.scalar(condition.condition), *passed))
        new_after = Block(arg_types=_values(passed))
        with b.inside(new_after), d.scope():
            carried = list(new_after.args)
            for source, arg in zip(condition.args, after.args, strict=True):
                bind(d, arg, _initial(op, source), carried)
            d.lower_block(after)
            out: list[SSAValue] = []
            for value, arg in zip(last.operands, before.args, strict=True):
                out += flatten(d, value, arg)
            b.op(scf.YieldOp(*out))
    new = scf.WhileOp(carry, _values(passed), Region(new_before), Region(new_after))
    b.op(new)
    results: list[SSAValue] = list(new.results)
    for source, result in zip(condition.args, op.results, strict=True):
        bind(d, result, _initial(op, source), results)


def _initial(op: scf.WhileOp, source: SSAValue) -> SSAValue:
    """What a tile that the condition passes on began as: its matrix is the same."""
    block = op.before_region.block
    if source in block.args:
        return op.arguments[list[SSAValue](block.args).index(source)]
    return source


@rule("scf.if")
def lower_if(d: Distributor, op: Operation) -> None:
    assert isinstance(op, scf.IfOp)
    b = d.b
    condition = d.scalar(op.cond)
    blocks: list[Block] = []
    types: list[Attribute] = []
    left: list[tuple[set[Access], bool]] = []
    tiles: dict[int, Tile] = {}
    for region in op.regions:
        new = Block()
        with d.hazards.branch(left), b.inside(new), d.scope():
            flat: list[SSAValue] = []
            if region.blocks:
                d.lower_block(region.block)
                last = region.block.last_op
                assert last is not None
                for i, (value, result) in enumerate(zip(last.operands, op.results, strict=True)):
                    if isinstance(value.type, xt.TileType):
                        tile = d.tile(value)
                        assert isinstance(tile, Tile)
                        known = tiles.setdefault(i, tile)
                        if known.pointer is not tile.pointer:
                            raise d.error(
                                op, "a tile of a matrix that a branch chooses is not supported"
                            )
                    flat += flatten(d, value, result)
                types = _values(flat) or types
            b.op(scf.YieldOp(*flat))
        blocks.append(new)
    d.hazards.join(left)
    results = list(b.if_else(condition, blocks[0], blocks[1], types))
    for i, result in enumerate(op.results):
        if i in tiles:
            from dataclasses import replace

            d.set_tile(result, replace(tiles[i], offsets=(results.pop(0), results.pop(0))))
        else:
            bind(d, result, result, results)
