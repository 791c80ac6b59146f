"""xegpu-wg-to-sg-distribute, ops that change shapes: broadcast, transpose, shape_cast, slices, bitcast.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. Each is local: the operand's layout is the one that
gives every subgroup what its part of the result is made of.
"""

from __future__ import annotations

from xdsl.dialects import vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import (
    InsertStridedSliceOp,
)
from tilewright.layout import BoundMap
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.layout_relations import operand_map
from tilewright.passes.xegpu.split import local, rearranged
from tilewright.passes.xegpu.wg_to_sg import SubgroupDistributor, rule


@rule("vector.broadcast", "vector.transpose", "vector.shape_cast", "vector.extract_strided_slice")
def moving(to: SubgroupDistributor, op: Operation) -> None:
    """Boxes of the source, turned or repeated where the op does that."""
    d = to.cut_of(op.results[0])
    if isinstance(op.operands[0].type, VectorType):
        rearranged(to, op, d)
        return
    result = op.results[0]
    made = to.add(to.mark(vector.BroadcastOp(to.same(op.operands[0]), to.typed(result, d)), d))
    to.give(result, d, [made] * to.count(d, own.shape_of(result)))


@rule("vector.bitcast", "vector.interleave", "vector.deinterleave")
def resized(to: SubgroupDistributor, op: Operation) -> None:
    d = to.cut_of(op.results[0])
    local(to, op, *(operand_map(op, n, d) for n in range(len(op.operands))))


@rule("xegpu.convert_layout")
def convert_layout(to: SubgroupDistributor, op: xegpu.ConvertLayoutOp) -> None:
    """Between layouts that give every subgroup the same elements: only fragments and lanes change."""
    if not isinstance(op.source.type, VectorType):
        to.env[op.result] = to.same(op.source)
        return
    want, shape = to.cut_of(op.results[0]), own.shape_of(op.result)
    have = to.cut_of(op.source)
    fragments = to.fragments(op.source, want, "the source")
    before, after = own.remainder(have), own.remainder(want)
    if before is not None and after is not None and not own.alike(before, after):
        fragments = [
            to.add(xegpu.ConvertLayoutOp(fragment, own.attribute(after), own.attribute(before)))
            for fragment in fragments
        ]
    assert len(fragments) == to.count(want, shape)
    to.give(op.result, want, fragments)


# --- Slices: along dimensions that every subgroup holds whole --------------------------------------


@rule("vector.insert_strided_slice")
def insert_strided_slice(to: SubgroupDistributor, op: InsertStridedSliceOp) -> None:
    d, shape = to.cut_of(op.results[0]), own.shape_of(op.result)
    small = own.shape_of(op.source)
    lead = len(shape) - len(small)
    have = operand_map(op, 0, d)
    sources = to.fragments(op.source, have, "the inserted value")
    dests = to.fragments(op.dest, d, "the destination")
    grid = to.grid(d, shape)
    if any(n > 1 for n in grid[:lead]):
        raise to.refuse("into a value that is distributed along its outer dimensions")
    offsets = [
        o if dim < lead or shape[dim] != small[dim - lead] else 0
        for dim, o in enumerate(op.offsets)
    ]
    found: list[SSAValue] = []
    for fragment, dest in zip(sources, dests, strict=True):
        new = InsertStridedSliceOp(fragment, dest, offsets)
        found.append(to.add(to.mark(new, d)))
    to.give(op.result, d, found)


@rule("vector.extract")
def extract(to: SubgroupDistributor, op: vector.ExtractOp) -> None:
    result, source = op.results[0], own.shape_of(op.operands[0])
    if isinstance(result.type, VectorType):
        d = to.cut_of(op.results[0])
        have = operand_map(op, 0, d)
        kind = to.typed(result, d)
    else:
        d, kind = None, result.type
        have = own.replicated(to.subgroups, len(source), source)
    fragments = to.fragments(op.operands[0], have, "the source")
    positions = _positions(to, op)
    made: list[SSAValue] = []
    for fragment in fragments:
        new = vector.ExtractOp(fragment, positions, kind)
        made.append(to.add(to.mark(new, d) if d is not None else new))
    if d is None:
        (to.env[result],) = made
    else:
        to.give(result, d, made)


@rule("vector.insert")
def insert(to: SubgroupDistributor, op: vector.InsertOp) -> None:
    result = op.results[0]
    d, shape = to.cut_of(op.results[0]), own.shape_of(result)
    source, dest = op.operands[0], op.operands[1]
    if isinstance(source.type, VectorType):
        have = operand_map(op, 0, d)
        sources = to.fragments(source, have, "the inserted value")
    else:
        sources = [to.same(source)]
    dests = to.fragments(dest, d, "the destination")
    positions = _positions(to, op)
    if len(sources) != len(dests) or any(
        not BoundMap(d, shape).is_whole(dim) for dim in range(len(positions))
    ):
        raise to.refuse("into a value that is distributed along the position's dimensions")
    found = [
        to.add(to.mark(vector.InsertOp(s, t, positions), d))
        for s, t in zip(sources, dests, strict=True)
    ]
    to.give(result, d, found)


def _positions(
    to: SubgroupDistributor, op: vector.ExtractOp | vector.InsertOp
) -> list[SSAValue | int]:
    dynamic = iter(op.dynamic_position)
    return [
        to.same(next(dynamic)) if int(p) == DYNAMIC_INDEX else int(p)
        for p in op.static_position.get_values()
    ]
