"""Blocking, values: arithmetic, constants, masks, products, reductions, and what only rearranges elements.

Part of :mod:`tilewright.passes.xegpu.blocking`. All is done fragment by fragment; what does not fall into fragments
stays whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from math import lcm

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    Float32Type,
    Float64Type,
    FloatTF32Type,
    IntegerType,
    Signedness,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, remark_at, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.movement import integers, positions_at_run_time, shape_of, static_position
from tilewright.dialects.numerals import dense, number_attr
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.passes.xegpu.inst_fragments import Fragments, Shape, grid_of, rule, starts
from tilewright.passes.xegpu.lane_elements import widened
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.lane_values import combine
from tilewright.passes.xegpu.lazy_registers import Free
from tilewright.passes.xegpu.ownership import (
    box_of_insertion,
    dpas_fragments,
    has_instruction,
    right_layout,
)
from tilewright.passes.xegpu.sg_maps import dpas_instruction
from tilewright.passes.xegpu.split import fragmentwise, rearranged

MOST_STEPS = 8192
"""Outer products that one product becomes at most: each is 16 bytes of code or more, 128 KB in all."""


@rule("arith.constant")
def constant_op(d: Fragments, op: arith.ConstantOp) -> None:
    value = op.value
    if not isinstance(value, DenseIntOrFPElementsAttr):
        d.keep(op)
        return
    element, shape = element_of(op.result.type), shape_of(op.result)
    if value.is_splat():
        d.grids[op.result] = Free(element, value.data, None)
        return
    fragment = d.owners.fragment(op.result)
    numbers = np.array(value.get_values(), dtype=object).reshape(shape)
    kind = d.typed(op.result, fragment)
    fragments = [
        d.constant(dense(kind, list(numbers[box(start, fragment)].reshape(-1))))
        for start in starts(shape, fragment)
    ]
    d.give(op.result, fragment, fragments)


@rule("xegpu.dpas")
def dpas(d: Fragments, op: xegpu.DpasOp) -> None:
    xe = d.owners.xe
    dims = op.dims()
    assert dims is not None
    if not has_instruction(xe, op):
        outer_products(d, op, dims)
        return
    matrices = dpas_fragments(xe, op)
    assert matrices.a is not None and matrices.b is not None
    m, k = matrices.a.shape
    n = matrices.c.shape[1]
    a = d.fragments(op.lhs, (m, k))
    b = d.fragments(op.rhs, right_layout(matrices.b, op.rhs).shape)
    rows, columns, depth = dims[0] // m, dims[1] // n, dims[2] // k
    sums: list[SSAValue | None] = (
        [None] * (rows * columns) if op.acc is None else [*d.fragments(op.acc, (m, n))]
    )
    kind = d.typed(op.result, (m, n))
    for step, i, j in product(range(depth), range(rows), range(columns)):
        acc = sums[i * columns + j]
        operands = [a[i * depth + step], b[step * columns + j]]
        if acc is not None:
            operands.append(acc)
        new = xegpu.DpasOp.create(operands=operands, result_types=[kind])
        sums[i * columns + j] = d.add(new)
    d.give(op.result, (m, n), [s for s in sums if s is not None])


def outer_products(d: Fragments, op: xegpu.DpasOp, dims: tuple[int, int, int]) -> None:
    """A product that no dpas does: outer products of columns of A and rows of B, one after the other."""
    if len(shape_of(op.lhs)) != 2 or len(shape_of(op.rhs)) != 2:
        raise d.refuse("packed operands of a product that no dpas does")
    result = element_of(op.result.type)
    wide = _sum_type(result)
    sums = isinstance(result, AnyFloat) or wide == result
    if (
        wide is None
        or not sums
        or any(_sum_type(element_of(v.type)) is None for v in (op.lhs, op.rhs))
    ):
        dpas_instruction(d.owners.xe, op)
        raise d.refuse(f"a product of {element_of(op.lhs.type)} by {element_of(op.rhs.type)}")
    fragment = d.owners.fragment(op.result)
    steps = math.prod(grid_of(shape_of(op.result), fragment)) * dims[2]
    if steps > MOST_STEPS:
        raise unsupported(
            op,
            f"no dpas does a product of {' x '.join(map(str, dims))}, and it would be {steps} outer "
            f"products, more than {MOST_STEPS}",
            hint="extents that the machine's dpas divides, more subgroups, or a smaller tile",
        )
    _remark(d, op, dims)
    kind = d.typed(op.result, fragment)
    wide_kind = VectorType(wide, list(fragment))
    places = list(starts(shape_of(op.result), fragment))

    def summand(value: SSAValue, start: Shape, size: Shape) -> SSAValue:
        part = d.box(value, start, size)
        return d.once(("wide", part, wide), lambda: widened(d.add, part, wide))

    totals = [
        d.constant(number_attr(wide_kind, 0))
        if op.acc is None
        else summand(op.acc, start, fragment)
        for start in places
    ]
    # Step by step along k: what a step repeats of A and B is alive in it only.
    for k in range(dims[2]):
        for n, start in enumerate(places):
            a = summand(op.lhs, (start[0], k), (fragment[0], 1))
            b = summand(op.rhs, (k, start[1]), (1, fragment[1]))
            a, b = (
                v
                if v.type == wide_kind
                else d.once(("broadcast", v, wide_kind), vector.BroadcastOp(v, wide_kind))
                for v in (a, b)
            )
            if isinstance(wide, AnyFloat):
                fma = vector.FMAOp.create(operands=[a, b, totals[n]], result_types=[wide_kind])
                totals[n] = d.add(fma)
            else:
                totals[n] = d.binary(arith.AddiOp, d.binary(arith.MuliOp, a, b), totals[n])
    if wide != result:
        totals = [
            d.add(arith.TruncFOp.create(operands=[total], result_types=[kind])) for total in totals
        ]
    d.give(op.result, fragment, totals)


def _remark(d: Fragments, op: xegpu.DpasOp, dims: tuple[int, int, int]) -> None:
    """What keeps a product from the machine's dpas; of types that have none, nothing but themselves does."""
    try:
        instruction = dpas_instruction(d.owners.xe, op)
    except UnsupportedError:
        return
    steps = {"N": (dims[1], instruction.n[0]), "K": (dims[2], instruction.k)}
    odd = [f"{name} = {n} is no multiple of {by}" for name, (n, by) in steps.items() if n % by]
    remark = f"{op.name} does not use the machine's dpas: {' and '.join(odd)}"
    d.remarks.append(remark_at(op, remark))


# --- Reductions ----------------------------------------------------------------------------------


@rule("vector.multi_reduction")
def multi_reduction(d: Fragments, op: more.MultiReductionOp) -> None:
    fragment = d.owners.fragment(op.source)
    shape = shape_of(op.source)
    kept = [d for d in range(len(shape)) if d not in op.dims]
    groups: dict[Shape, SSAValue] = {}
    for start, value in zip(starts(shape, fragment), d.fragments(op.source, fragment), strict=True):
        key = tuple(start[d] for d in kept)
        groups[key] = combine(d, op.kind, groups[key], value) if key in groups else value
    if not isinstance(op.dest.type, VectorType) or not kept:
        (total,) = groups.values()
        acc = d.env[op.acc]
        d.env[op.dest] = d.add(more.MultiReductionOp(op.kind, total, acc, op.dims))
        return
    part = tuple(fragment[d] for d in kept)
    made: list[SSAValue] = []
    for key, total in groups.items():
        acc = d.box(op.acc, key, part)
        made.append(d.add(more.MultiReductionOp(op.kind, total, acc, op.dims)))
    d.give(op.dest, part, made)


@rule("xegpu.update_nd_offset", "xegpu.create_tdesc", "xegpu.update_offset")
def older(d: Fragments, op: Operation) -> None:
    raise d.refuse("a descriptor of the older text", "run xegpu-upgrade first")


def _sum_type(element: Attribute) -> Attribute | None:
    """The type in which products of this type are summed; None where that is not known."""
    match element:
        case Float64Type():
            return element
        case _ if isinstance(element, AnyFloat) and not isinstance(element, FloatTF32Type):
            return Float32Type()
        case IntegerType() if element.signedness.data is not Signedness.SIGNED:
            return IntegerType(max(32, element.width.data))
        case _:
            return None


def box(start: Shape, size: Shape) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))


# --- Ops that only rearrange elements -------------------------------------------------------------


def rearrange(d: Fragments, op: Operation, fragment: Shape) -> None:
    """Piece by fragment; what is one number everywhere stays that."""
    (source,), (result,) = op.operands, op.results
    held = d.grids[source]
    if isinstance(held, Free):
        d.grids[result] = held
        return
    rearranged(d, op, fragment)


@rule("vector.broadcast")
def broadcast(d: Fragments, op: vector.BroadcastOp) -> None:
    if isinstance(op.source.type, VectorType):
        rearrange(d, op, d.owners.fragment(op.vector))
    else:
        d.grids[op.vector] = Free(op.source.type, None, d.env[op.source])


@rule("vector.transpose")
def transpose(d: Fragments, op: more.TransposeOp) -> None:
    """Piece by fragment where the source is distributed as the result is, else in tiles of whole fragments of both."""
    p = op.permutation
    fragment, given = d.owners.fragment(op.result), d.owners.fragment(op.vector)
    if tuple(given[d] for d in p) != fragment:
        tile = tuple(lcm(n, given[d]) for n, d in zip(fragment, p, strict=True))
        shape = shape_of(op.result)
        if all(extent % n == 0 for extent, n in zip(shape, tile, strict=True)):
            fragment = tile
    rearrange(d, op, fragment)


@rule("vector.shape_cast")
def shape_cast(d: Fragments, op: more.ShapeCastOp) -> None:
    """Piece by fragment where dimensions of extent 1 come and go, else as a whole."""
    before, after = shape_of(op.source), shape_of(op.result)
    single = [n for n in before if n != 1] == [n for n in after if n != 1]
    rearrange(d, op, d.owners.fragment(op.result) if single else after)


@rule("vector.extract_strided_slice")
def extract_strided_slice(d: Fragments, op: more.ExtractStridedSliceOp) -> None:
    rearrange(d, op, d.owners.fragment(op.result))


@rule("vector.extract")
def extract(d: Fragments, op: vector.ExtractOp) -> None:
    if positions_at_run_time(op):
        raise d.refuse("a position that is known only at run time")
    if isinstance(op.result.type, VectorType):
        rearrange(d, op, d.owners.fragment(op.result))
        return
    held = d.grids[op.vector]
    if isinstance(held, Free):
        d.env[op.result] = d.element_at(held.splat(d, [1]), [0])
        return
    position = static_position(op)
    index = tuple(p // n for p, n in zip(position, held.fragment, strict=True))
    local = [p % n for p, n in zip(position, held.fragment, strict=True)]
    d.env[op.result] = d.element_at(held.values[held.number(index)], local)


@rule("vector.bitcast")
def bitcast(d: Fragments, op: vector.BitcastOp) -> None:
    before, after = shape_of(op.source)[-1], shape_of(op.result)[-1]
    fragment = d.owners.fragment(op.result)
    last = fragment[-1] * before
    if last % after or last < after:
        d.unruled(op)
        return
    part = (*fragment[:-1], last // after)
    values = d.fragments(op.source, part)
    kind = d.typed(op.result, fragment)
    made = [d.add(vector.BitcastOp(v, kind)) for v in values]
    d.give(op.result, fragment, made)


@rule("vector.insert_strided_slice", "vector.insert")
def insert_strided_slice(d: Fragments, op: more.InsertStridedSliceOp | vector.InsertOp) -> None:
    """The destination with the source in a box of it, fragment by fragment."""
    result, source, dest = op.result, op.source, op.dest
    box = box_of_insertion(op)
    if box is None:
        raise d.refuse("a position that is known only at run time")
    offsets, size, lead = box
    if not isinstance(source.type, VectorType):
        d.grids[source] = Free(source.type, None, d.env[source])
    fragment = d.owners.fragment(result)
    made: list[SSAValue] = []
    for start in starts(shape_of(result), fragment):
        low = [max(a, b) for a, b in zip(start, offsets, strict=True)]
        high = [
            min(a + p, b + n) for a, p, b, n in zip(start, fragment, offsets, size, strict=True)
        ]
        if any(a >= b for a, b in zip(low, high, strict=True)):
            made.append(d.box(dest, start, fragment))
            continue
        extent = tuple(b - a for a, b in zip(low, high, strict=True))
        where = tuple(a - b for a, b in zip(low, offsets, strict=True))
        part = (
            d.cast(d.box(source, where[lead:], extent[lead:]), extent)
            if extent[lead:]
            else _free(d, source).splat(d, extent)
        )
        if extent != fragment:
            local = [a - b for a, b in zip(low, start, strict=True)]
            part = d.add(more.InsertStridedSliceOp(part, d.box(dest, start, fragment), local))
        made.append(part)
    d.give(result, fragment, made)


def _free(d: Fragments, value: SSAValue) -> Free:
    held = d.grids[value]
    assert isinstance(held, Free)
    return held


@rule("vector.shuffle")
def shuffle(d: Fragments, op: vector.ShuffleOp) -> None:
    """Each fragment from the rows that it takes of the operands, in whole fragments of these."""
    sources = (op.v1, op.v2)
    inner = _tile(d, (op.result, *sources), 1) if shape_of(op.v1) else None
    if inner is None:
        d.unruled(op)
        return
    tile = (d.owners.fragment(op.result)[0], *inner)
    count = shape_of(op.v1)[0]
    mask = [max(n, 0) for n in integers(op, "mask")]
    made: list[SSAValue] = []
    for start in starts(shape_of(op.result), tile):
        wanted = mask[start[0] : start[0] + tile[0]]
        boxes: list[SSAValue] = []
        place: dict[int, int] = {}
        for source, of in ((op.v1, range(count)), (op.v2, range(count, max(mask) + 1))):
            if rows := [n for n in wanted if n in of]:
                step = d.owners.fragment(source)[0]
                low = (min(rows) - of.start) // step * step
                high = -(-(max(rows) + 1 - of.start) // step) * step
                at = sum(shape_of(box)[0] for box in boxes) - of.start - low
                place |= {n: n + at for n in rows}
                boxes.append(d.box(source, (low, *start[1:]), (high - low, *tile[1:])))
        rows = DenseArrayBase.from_list(i64, [place[n] for n in wanted])
        kind = d.typed(op.result, tile)
        new = vector.ShuffleOp(boxes[0], boxes[-1], rows, result_type=kind)
        made.append(d.add(d.mark(new, tile)))
    d.give(op.result, tile, made)


@rule("vector.interleave", "vector.deinterleave")
def interleave(d: Fragments, op: Operation) -> None:
    """Tile by tile, of half the length where a value has half the length."""
    tile = _tile(d, (*op.operands, *op.results))
    if tile is None:
        d.unruled(op)
        return
    longest = max(shape_of(v)[-1] for v in (op.operands[0], op.results[0]))

    def cut(value: SSAValue) -> Shape:
        return (*tile[:-1], tile[-1] * shape_of(value)[-1] // longest)

    made = fragmentwise(d, op, [cut(v) for v in op.operands], cut(op.results[0]))
    for result, fragments in zip(op.results, made, strict=True):
        d.give(result, cut(result), fragments)


def _tile(d: Fragments, values: Sequence[SSAValue], dim: int = 0) -> Shape | None:
    """The smallest box of whole fragments of all values in the dimensions from `dim` on, in elements of the longest;
    None where they are not made of such."""
    longest = tuple(max(extents) for extents in zip(*map(shape_of, values), strict=True))[dim:]
    own: list[Shape] = []
    for value in values:
        if not isinstance(d.grids.get(value), Free):
            each = zip(d.owners.fragment(value)[dim:], shape_of(value)[dim:], longest, strict=True)
            own.append(tuple(part * most // extent for part, extent, most in each))
    tile = tuple(lcm(*each) for each in zip(*own, strict=True))
    return tile if all(n % m == 0 for n, m in zip(longest, tile, strict=True)) else None


@rule("xegpu.convert_layout")
def convert_layout(d: Fragments, op: xegpu.ConvertLayoutOp) -> None:
    if not isinstance(op.source.type, VectorType):
        d.env[op.result] = d.env[op.source]
        return
    held = d.grids[op.source]
    if isinstance(held, Free):
        d.grids[op.result] = held
        return
    layout = d.owners.layout(op.result)
    target = lane_attribute(layout)
    values = d.fragments(op.source, layout.shape)
    if target is not None:
        values = [d.add(xegpu.ConvertLayoutOp(v, target)) for v in values]
    d.give(op.result, layout.shape, values)
