"""xegpu-wg-to-sg-distribute, ops on values: constants, products, reductions, and what changes shapes.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. An op that changes shapes is local: the operand's layout is the one
that gives every subgroup what its part of the result is made of.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IndexType, IntegerAttr, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import InsertStridedSliceOp, MultiReductionOp
from tilewright.layout import BoundMap, Distribution, derive
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.layout_relations import operand_map
from tilewright.passes.xegpu.split import local, rearranged
from tilewright.passes.xegpu.wg_to_sg import SubgroupDistributor, rule
from tilewright.passes.xegpu.wg_to_sg_constants import fragments_of


@rule("arith.constant")
def constant(to: SubgroupDistributor, op: arith.ConstantOp) -> None:
    if not isinstance(op.result.type, VectorType):
        if isinstance(op.value, IntegerAttr) and isinstance(op.result.type, IndexType):
            to.env[op.result] = to.ids.constant(op.value.value.data)
        else:
            to.keep(op)
        return
    d, shape = to.cut_of(op.results[0]), own.shape_of(op.result)
    value = op.value
    assert isinstance(value, DenseIntOrFPElementsAttr)
    part = to.typed(op.result, d)
    if value.is_splat():
        data = DenseIntOrFPElementsAttr(part, value.data)  # pyright: ignore[reportArgumentType]
        new = arith.ConstantOp(data)
        to.mark(new, d)
        to.give(op.result, d, [to.add(new)] * to.count(d, shape))
        return
    to.give(op.result, d, fragments_of(to, op, d))


# --- Products -----------------------------------------------------------------------------------


@rule("xegpu.dpas")
def dpas(to: SubgroupDistributor, op: xegpu.DpasOp) -> None:
    """Fragments of C are sums over fragments of A's row and B's column."""
    d = own.completed(to.cut_of(op.results[0]), own.shape_of(op.result))
    (m, k), n = own.shape_of(op.lhs), own.shape_of(op.rhs)[-1]
    if len(own.shape_of(op.rhs)) != 2:
        raise to.refuse("with a packed operand at workgroup level: the lowering packs it itself")
    need_a, need_b = derive.mma_operands(d, k)
    have_a = _fields(to.cut_of(op.lhs), need_a)
    have_b = _fields(to.cut_of(op.rhs), need_b)
    a = to.fragments(op.lhs, need_a, "A")
    b = to.fragments(op.rhs, need_b, "B")
    grid = to.grid(d, (m, n))
    acc = to.fragments(op.acc, d, "C") if op.acc is not None else [None] * (grid[0] * grid[1])
    kind = to.typed(op.result, d)
    left = [
        None if x is None else own.attribute(x) for x in map(own.remainder, (have_a, have_b, d))
    ]
    fragments: list[SSAValue] = []
    for i, j in product(range(grid[0]), range(grid[1])):
        c = acc[i * grid[1] + j]
        new = xegpu.DpasOp(a[i], b[j], c, kind, *left)
        for name, value in op.attributes.items():
            if not name.startswith((own.RESULT, own.OPERAND)):
                new.attributes[name] = value
        fragments.append(to.add(new))
    to.give(op.result, d, fragments)


def _fields(have: Distribution, need: Distribution) -> Distribution:
    """What the operand's own layout says below the subgroup, on the grid that the product needs."""
    if have.sliced:
        return need
    return replace(
        need, inst_data=have.inst_data, lane_layout=have.lane_layout, lane_data=have.lane_data
    )


# --- Reductions ---------------------------------------------------------------------------------


@rule("vector.multi_reduction")
def multi_reduction(to: SubgroupDistributor, op: MultiReductionOp) -> None:
    """Within a subgroup: fragments that lie along a reduced dimension accumulate one after the other."""
    shape = own.shape_of(op.source)
    source = to.cut_of(op.source)
    dims = list(op.dims)
    kept = [i for i in range(len(shape)) if i not in dims]
    grid = to.grid(source, shape)
    layout = own.bound(source, shape)
    if any(x.dim in dims for x in layout.on(ly.Axis.SUBGROUP)):
        raise to.refuse(
            f"along {dims} crosses subgroups: xegpu-exchange-through-slm reduces in two steps"
        )
    fragments = to.held[op.source]
    result = op.dest.type
    if isinstance(result, VectorType):
        d = to.cut_of(op.results[0])
        accs = to.fragments(op.acc, d, "the accumulator")
        reduced = ly.slice_(source, dims)
        if not own.same_owners(reduced, d, result.get_shape()):
            raise to.refuse(
                f"gives {own.attribute(reduced)}, its result is declared as {own.attribute(d)}"
            )
        native = to.fragments(op.acc, reduced, "the accumulator") if reduced != d else accs
        kind = VectorType(result.element_type, list(to.part(reduced, result.get_shape())))
    else:
        d, reduced = None, None
        native = [to.same(op.acc)]
        kind = result
    found: list[SSAValue] = []
    numbers = np.arange(len(fragments)).reshape(grid).transpose(*kept, *dims)
    for total, row in zip(native, numbers.reshape(len(native), -1), strict=True):
        for number in row:
            new = MultiReductionOp(op.kind, fragments[number], total, dims)
            assert new.dest.type == kind
            if reduced is not None:
                to.mark(new, reduced)
            total = to.add(new)
        found.append(total)
    if d is None or reduced is None:
        (to.env[op.dest],) = found
        return
    if own.subgroup_part(reduced) != own.subgroup_part(d):
        found = to.regrouped(found, reduced, d, own.shape_of(op.dest))
    to.give(op.dest, d, found)


# --- Shapes ---------------------------------------------------------------------------------------


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
