"""k-slicing: a product whose A is computed from a staged tile is done in slices of k, each as soon as its A is there.

    %x = stage.read %s : 128x64                       %x0 = stage.read.part %s [0, 0] : 128x16
    %a = f(%x)                                        %x1 = stage.read.part %s [0, 16] : 128x16   ..
    %p = stage.mma.issue %a, %b, %c            ->     %p0 = stage.mma.issue f(%x0), %b, %c {first = 0}
                                                      %p1 = stage.mma.issue f(%x1), %b, %p0 {first = 16}   ..

Requires: products issued. Guarantees: the same sums in the same order.

What threads compute for one slice overlaps the product of the slice before; without that the matrix unit stands still
while a warpgroup prepares its operand. Takes part: A computed element by element from reads of staged tiles, from
constants, from one row or column repeated (a row of an array is loaded in slices), and from two such values that
alternate (`vector.interleave`); what is read or computed may be transposed. A slice is what one instruction takes. All
slices are read first: so the computation alone stands between two products.
"""

from __future__ import annotations

from itertools import takewhile

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import ArrayAttr, IntAttr, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import stage, xetile
from tilewright.dialects.elementwise import is_elementwise_on_vectors, retyped
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import ops_behind
from tilewright.dialects.stage.products import vector_of
from tilewright.dialects.upstream.arith import is_splat, resized
from tilewright.dialects.upstream.vector import InterleaveOp, TransposeOp
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before, with_shape
from tilewright.targets.cuda.passes.wgmma_legality import TRANSPOSES, instruction_for
from tilewright.uarch.base import Machine


def slice_products_along_k(function: gpu.FuncOp, machine: Machine) -> int:
    """Splits a product whose A is computed (dequantized, activated) along k: one slice is computed while another
    multiplies. Returns how many products are done in slices."""
    count = 0
    for op in list(function.walk()):
        if isinstance(op, stage.ProductIssueOp) and _depth(op, machine) is not None:
            count += _rewrite(op, machine)
    eliminate_dead(function.body.block)
    return count


def _depth(op: stage.ProductIssueOp, machine: Machine) -> int | None:
    """Elements of k in a slice; None for a product that is not cut."""
    if isinstance(op.a.owner, stage.CopyWaitOp) or op.first is not None:
        return None
    a, b, c = op.a.type, op.b.type, vector_of(op.result.type)
    instruction = instruction_for(machine, a, b, c)
    if instruction is None or op.sizes[2] <= instruction.k or op.sizes[2] % instruction.k:
        return None
    return instruction.k


def _rewrite(op: stage.ProductIssueOp, machine: Machine) -> int:
    depth, block = _depth(op, machine), op.parent
    assert depth is not None and block is not None
    chain = _chain(op.a, block)
    if not any(isinstance(o, stage.ReadOp) for o in chain) or any(
        shape_of(each.results[0])[0 if turned else 1] * depth % op.sizes[2]
        for each, turned in chain.items()
    ):
        return 0
    parts = op.sizes[2] // depth
    reads: dict[tuple[Operation, int], SSAValue] = {}
    for at in range(parts):
        for source, turned in chain.items():
            if isinstance(source, stage.ReadOp):
                reads[source, at] = _part(source, at, parts, op, turned)
            elif isinstance(source, xetile.LoadTileOp):
                reads[source, at] = _part_of_row(source, at, parts)
    before = op.c
    for at in range(parts):
        values: dict[SSAValue, SSAValue] = {}
        for each, turned in chain.items():
            if isinstance(each, stage.ReadOp | xetile.LoadTileOp):
                values[each.results[0]] = reads[each, at]
            elif isinstance(each, TRANSPOSES):
                made = TransposeOp(values[each.operands[0]], [1, 0])
                values[each.results[0]] = Before(op).add(made)
            else:
                m, k = shape_of(each.results[0])
                kind = with_shape(
                    each.results[0].type, (m // parts, k) if turned else (m, k // parts)
                )
                if isinstance(each, arith.ConstantOp):
                    slice = arith.ConstantOp(resized(each, kind))
                else:
                    slice = retyped(each, [values.get(v, v) for v in each.operands], [kind])
                values[each.results[0]] = Before(op).add(slice)
        made = stage.ProductIssueOp(
            values[op.a],
            op.b,
            before,
            op.result.type,
            transpose_b=op.transpose_b,
            first=at * depth,
        )
        block.insert_op_before(made, op)
        before = made.result
    assert before is not None
    Rewriter.replace_op(op, [], [before])
    for each in reversed(list(chain)):
        if not any(result.uses for result in each.results) and each.parent is block:
            Rewriter.erase_op(each)
    return 1


def _part(
    read: stage.ReadOp, at: int, parts: int, product: stage.ProductIssueOp, turned: bool
) -> SSAValue:
    """One part of so many along k of what is read."""
    where = Before(read if _released(read, product) else product)
    m, n = shape_of(read.result)
    shape, first = (
        ((m // parts, n), (at * m // parts, 0))
        if turned
        else ((m, n // parts), (0, at * n // parts))
    )
    kind = VectorType(read.result.type.element_type, shape)
    found = where.add(stage.ReadPartOp(read.tile, first, kind))
    found.name_hint = read.result.name_hint
    return found


def _released(read: stage.ReadOp, product: Operation) -> bool:
    """Is the slot of a read given back before the product, which another one shares its operand with?"""
    wait = read.tile.owner
    return any(
        isinstance(op, stage.CopyReleaseOp)
        and (not isinstance(wait, stage.CopyWaitOp) or op.buffer == wait.buffer)
        for op in takewhile(lambda op: op is not product, ops_behind(read))
    )


def _part_of_row(load: xetile.LoadTileOp, at: int, parts: int) -> SSAValue:
    """One part of so many along k of a row of an array."""
    tile, origin, where = load.tile_type, load.tile.owner, Before(load)
    assert isinstance(origin, xetile.InitTileOp)
    width = tile.get_shape()[1] // parts
    extents = ArrayAttr([IntAttr(1), IntAttr(width)])
    kind = xetile.TileType.new([extents, tile.element_type, tile.encoding])
    *others, along = origin.mixed_offsets
    offsets = [*others, where.plus(along, at * width)]
    made = where.add(
        xetile.InitTileOp(origin.source, kind, offsets, origin.mixed_sizes, origin.mixed_strides)
    )
    return where.add(retyped(load, [made], [with_shape(load.values[0].type, (1, width))]))


def _chain(a: SSAValue, block: Block) -> dict[Operation, bool]:
    """The ops that compute A, in order, and whether k is the first dimension of what they make, which is transposed
    behind them; empty if one of them cannot be done for a slice of k alone."""
    found: dict[Operation, bool] = {}
    work = [(a, False)]
    while work:
        value, turned = work.pop()
        if not isinstance(value.type, VectorType):
            continue  # a scalar serves every slice
        if not isinstance(value, OpResult):
            return {}
        op = value.op
        if op in found:
            if found[op] != turned:
                return {}
            continue
        found[op] = turned
        if isinstance(op, stage.ReadOp):
            if op.parent is not block:
                return {}
        elif isinstance(op, TRANSPOSES):
            work += [(each, not turned) for each in op.operands]
        elif is_elementwise_on_vectors(op) or isinstance(op, InterleaveOp):
            work += [(each, turned) for each in op.operands]
        elif _is_row(op) and not turned:
            work += [(each, False) for each in op.operands]
        elif not _repeats(op, turned) and (
            turned or not isinstance(op, xetile.LoadTileOp) or not _is_part(op, block)
        ):
            return {}
    order: dict[Operation, bool] = {}

    def visit(op: Operation) -> None:
        if op not in order and op in found:
            for operand in op.operands:
                if isinstance(operand, OpResult):
                    visit(operand.op)
            order[op] = found[op]

    assert isinstance(a, OpResult)
    visit(a.op)
    return order


def _repeats(op: Operation, turned: bool) -> bool:
    """Has the op's result the same columns all along k (rows, where k is the first dimension)?"""
    if isinstance(op, arith.ConstantOp):
        return is_splat(op)
    if op.name not in ("vector.broadcast", "xetile.broadcast"):
        return False
    source = op.operands[0].type
    return not isinstance(source, VectorType) or (source.get_shape()[-1] == 1 and not turned)


def _is_row(op: Operation) -> bool:
    """Does the op repeat one row?"""
    return isinstance(op, xetile.BroadcastOp) and op.dims == (0,) and shape_of(op.source)[0] == 1


def _is_part(load: xetile.LoadTileOp, block: Block) -> bool:
    """Does the block load one row of an array, of which parts can be loaded?"""
    origin = load.tile.owner
    return (
        load.parent is block
        and len(load.values) == 1
        and shape_of(load.values[0])[0] == 1
        and isinstance(origin, xetile.InitTileOp)
        and origin.offset_vector is None
    )
