"""xegpu-wg-to-sg-distribute, ops that change shapes: broadcast, transpose, shape_cast, slices, bitcast.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. Each is local: the operand's layout is the one that
gives every subgroup what its part of the result is made of.
"""

from __future__ import annotations

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import InsertStridedSliceOp
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


@rule("vector.insert_strided_slice", "vector.insert")
def insert(to: SubgroupDistributor, op: InsertStridedSliceOp | vector.InsertOp) -> None:
    d, (source, _, *positions) = to.cut_of(op.result), op.operands
    whole = BoundMap(d, own.shape_of(op.result))
    have = operand_map(op, 0, d) if isinstance(source.type, VectorType) else None
    if have is None and not all(map(whole.is_whole, range(whole.rank))):
        raise to.refuse("into a value that is distributed along the position's dimensions")
    local(to, op, have, d, *(None for _ in positions))


@rule("vector.extract")
def extract(to: SubgroupDistributor, op: vector.ExtractOp) -> None:
    source, *positions = op.operands
    if isinstance(op.result.type, VectorType):
        local(to, op, operand_map(op, 0, to.cut_of(op.result)), *(None for _ in positions))
        return
    shape = own.shape_of(source)
    (whole,) = to.fragments(source, own.replicated(to.subgroups, len(shape), shape), "the source")
    new = op.clone({source: whole} | {p: to.same(p) for p in positions})
    to.env[op.result] = to.add(new)
