"""Subgroup to lane: blocks, parts of matrices in shared memory, and accesses of single elements.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. A block is loaded by the message whose form distributes it
as the value's users want it: row by row, packed (VNNI), or transposed. Of a matrix, registers that lie side by side in
memory are one access: a run along a row, or, where the matrix lies column by column (xegpu-slm-layout), a run down the
lane's column. Gathers, scatters and atomics are one access per register.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, UnitAttr, VectorType, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import shape_of
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu.rules_block import full_load_shape
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout.blocks import lane_distribution
from tilewright.layout.memory import run_along
from tilewright.passes.carried import reached
from tilewright.passes.integers import is_multiple
from tilewright.passes.xegpu.block_messages import (
    SCATTERED,
    BlockShape,
    created,
    fits,
    form_layout,
    stays_in_lanes,
    surface_fault,
)
from tilewright.passes.xegpu.lane_addresses import (
    lane_load,
    lane_store,
    once_per_element,
    scattered_prefetch,
)
from tilewright.passes.xegpu.lane_layouts import natural, with_chunk
from tilewright.passes.xegpu.lane_rows import scattered_load, scattered_store
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.lazy_registers import LaneFragment, Register
from tilewright.passes.xegpu.row_access import whole_units
from tilewright.passes.xegpu.slm_layout import ACCESS_BITS, column_run, is_panel, message_rows
from tilewright.passes.xegpu.split import vector_of_offsets

# --- Descriptors -----------------------------------------------------------------------------


@rule("xegpu.create_nd_tdesc")
def create_nd_tdesc(d: LaneProgram, op: xegpu.CreateNdDescOp) -> None:
    operands = [d.env[v] for v in op.operands]
    made = d.add(retyped(op, operands, [op.tdesc.without_layout()], {}))
    made.name_hint = op.result.name_hint
    d.env[op.result] = made


def access_properties(op: Operation) -> dict[str, Attribute]:
    dropped = ("layout", "packed", "transpose", "transpose_bit_width")
    return {k: v for k, v in op.properties.items() if k not in dropped}


def is_scattered(d: LaneProgram, op: xegpu.BlockAccess) -> bool:
    if SCATTERED in op.attributes:
        return True
    if len(op.tdesc.get_shape()) < 2:
        return True
    source = created(op)
    return source is not None and surface_fault(d.owners.xe, source) is not None


# --- Blocks ------------------------------------------------------------------------------------


@rule("xegpu.load_nd")
def load_nd(d: LaneProgram, op: xegpu.LoadNdOp) -> None:
    if is_scattered(d, op):
        scattered_load(d, op)
        return
    layout, extra = load_form(d, op)
    if layout is None:
        scattered_load(d, op)
        return
    operands, properties = [d.env[v] for v in op.operands], access_properties(op) | extra
    kind = d.typed(op.value, layout)
    new = op.create(operands=operands, properties=properties, result_types=[kind])
    d.give_vector(op.value, d.add(new), layout)


def load_form(d: LaneProgram, op: xegpu.LoadNdOp) -> tuple[ly.Layout | None, dict[str, Attribute]]:
    """The form of a block load: what it distributes to the lanes, and its properties."""
    tdesc, value = op.tdesc, op.value
    shape, count = tdesc.get_shape(), tdesc.array_length
    bits = element_bits(tdesc.element_type)
    given = shape_of(value)
    if op.packed or op.transposes:
        return written_form(d, op), {
            k: v
            for k, v in op.properties.items()
            if k in ("packed", "transpose", "transpose_bit_width")
        }
    if len(shape) < 2:
        return natural(shape, bits, d.lanes), {}
    block = BlockShape(shape[0], shape[1], count)
    wanted = d.owners.layout(value)
    right = feeds_right_operand(value)
    forms = ("transform", "load", "transpose") if right else ("load", "transpose")
    fallback: tuple[ly.Layout | None, dict[str, Attribute]] = (None, {})
    for form in forms:
        if not fits(d.owners.xe, form, bits, block):
            continue
        layout = form_layout(form, block.shape, bits, d.lanes)
        if layout is None:
            continue
        layout = layout if layout.shape == given else layout.reshaped(given)
        extra: dict[str, Attribute] = {}
        if form == "transform":
            extra["packed"] = UnitAttr()
        elif form == "transpose":
            extra["transpose"] = DenseArrayBase.from_list(i64, [1, 0])
            if bits < 32:
                if not whole_units(op, 32):
                    continue
                extra["transpose_bit_width"] = IntegerAttr(32, i32)
        if stays_in_lanes(layout, wanted):
            return layout, extra
        if form != "transpose" and fallback[0] is None:
            fallback = layout, extra
    return fallback


def written_form(d: LaneProgram, op: xegpu.LoadNdOp) -> ly.Layout:
    """Ownership of what a load gives that is packed or transposed in the text already."""
    tdesc = op.tdesc
    shape, count = tdesc.get_shape(), tdesc.array_length
    bits = element_bits(tdesc.element_type)
    packed = max(1, 32 // bits)
    one = shape if op.packed else full_load_shape(op)
    unit = 0
    if op.transposes:
        unit = op.together
    blocks = (count, *one) if count > 1 else one
    try:
        layout = lane_distribution(blocks, bits, d.lanes, unit, packed if op.packed else 1)
    except ly.LayoutError as error:
        raise d.refuse(str(error)) from None
    if op.packed and len(shape_of(op.value)) > len(blocks):
        *lead, k, n = blocks
        layout = layout.reshaped((*lead, k // packed, packed, n))
        rank = layout.rank
        layout = layout.permuted((*range(rank - 2), rank - 1, rank - 2))
    given = shape_of(op.value)
    return layout if layout.shape == given else layout.reshaped(given)


@rule("xegpu.store_nd")
def store_nd(d: LaneProgram, op: xegpu.StoreNdOp) -> None:
    tdesc = op.tdesc
    shape, bits = tdesc.get_shape(), element_bits(tdesc.element_type)
    fit = len(shape) < 2 or fits(d.owners.xe, "store", bits, BlockShape(*shape))
    layout = form_layout("load", shape, bits, d.lanes) if fit else None
    if is_scattered(d, op) or layout is None:
        scattered_store(d, op)
        return
    value, *rest = op.operands
    operands = [d.taken(value, layout), *(d.env[v] for v in rest)]
    d.put(op.create(operands=operands, properties=access_properties(op)))


@rule("xegpu.prefetch_nd")
def prefetch_nd(d: LaneProgram, op: xegpu.PrefetchNdOp) -> None:
    if is_scattered(d, op):
        scattered_prefetch(d, op)
        return
    operands = [d.env[v] for v in op.operands]
    d.put(op.create(operands=operands, properties=access_properties(op)))


def feeds_right_operand(value: SSAValue) -> bool:
    """Does a dpas take it, or slices of it, as B?"""

    def parts(value: SSAValue) -> list[SSAValue]:
        return [use.operation.results[0] for use in value.uses if use.operation.name in _PARTS]

    uses = (use for each in reached([value], parts) for use in each.uses)
    return any(isinstance(use.operation, xegpu.DpasOp) and use.index == 1 for use in uses)


_PARTS = (
    "vector.extract",
    "vector.extract_strided_slice",
    "vector.shape_cast",
    "xegpu.convert_layout",
)


# --- Single elements, and what one lane does for all ----------------------------------------------


@rule("xegpu.load", "xegpu.store", "xegpu.atomic_rmw", "xegpu.prefetch")
def scattered(d: LaneProgram, op: xegpu.ScatterAccess) -> None:
    offsets = vector_of_offsets(d, op, partial(alone, d))
    if offsets is None:
        return
    base, layout, hints = d.env[op.source_operand], d.owners.layout(offsets), hints_of(op)
    chunk, registers = op.chunk, list[Register]()
    whole = with_chunk(layout, chunk) if chunk > 1 else layout
    match op:
        case xegpu.LoadGatherOp():
            places, element = _per_lane(d, offsets, layout), element_of(op.value.type)
            for place, mask in zip(places, _per_lane(d, op.mask, layout), strict=True):
                registers += lane_load(d, base, place, mask, element, chunk, hints, zero=False)
        case xegpu.StoreScatterOp():
            value = d.owned(op.value, whole)
            masks = _per_lane(d, op.mask, layout)
            for n, place in enumerate(_per_lane(d, offsets, layout)):
                mask = once_per_element(d, layout, masks[n])
                part = value.registers[n * chunk : (n + 1) * chunk]
                lane_store(d, base, place, mask, part, hints)
        case xegpu.AtomicRMWOp():
            if chunk > 1:
                raise d.refuse("an atomic of several elements per lane")
            values = _per_lane(d, op.value, layout)
            masks = _per_lane(d, op.mask, layout)
            for n, place in enumerate(_per_lane(d, offsets, layout)):
                mask = once_per_element(d, layout, masks[n])
                assert mask is not None
                new = xegpu.AtomicRMWOp(op.kind, base, mask, values[n], offsets=place, hints=hints)
                registers.append((_from_first(d, layout, d.add(new)), 0))
        case _:
            for place in _per_lane(d, offsets, layout):
                d.put(op.create(operands=[base, place], properties=access_properties(op)))
    for result in op.results:
        d.give(result, LaneFragment(whole, element_of(result.type), tuple(registers)))


def _per_lane(d: LaneProgram, value: SSAValue, layout: ly.Layout) -> list[SSAValue]:
    """A value's registers as scalars; a scalar operand is its own."""
    if not isinstance(value.type, VectorType):
        return [d.env[value]] * layout.registers
    return [d.scalar_of(r) for r in d.owned(value, layout).registers]


def _from_first(d: LaneProgram, layout: ly.Layout, value: SSAValue) -> SSAValue:
    """What the first of the lanes that share an element has."""
    lanes = np.arange(d.lanes)
    copies = layout.replica_part(ly.Axis.LANE, lanes)
    return d.shuffled(value, [int(x) for x in lanes - copies])


# --- What one lane does for all --------------------------------------------------------------------------


@rule("memref.store", "memref.atomic_rmw", "memref.generic_atomic_rmw", "gpu.printf", "tw.print")
def alone(d: LaneProgram, op: Operation) -> None:
    """An op with an effect that must happen once for the subgroup: the first lane does it, and has what it gives."""
    if any(isinstance(v.type, VectorType) for v in (*op.operands, *op.results)):
        d.unruled(op)
    first = d.compare("eq", d.lane(), d.number(0))
    if all(r.first_use is None for r in op.results):
        with d.when(first):
            d.keep(op)
        return
    (result,) = op.results
    none = arith.ConstantOp(number_attr(result.type, 0))
    (old,) = d.choose(first, lambda: d.keep(op).results, lambda: [d.add(none)])
    d.env[result] = d.shuffled(old, [0] * d.lanes)


# --- Matrices in shared memory --------------------------------------------------------------------


# --- Shared matrices ---------------------------------------------------------------------------------


def matrix_places(
    d: LaneProgram, op: xegpu.MatrixAccess, layout: ly.Layout
) -> tuple[list[list[Index]], int]:
    """Offsets of each register's element in its matrix, and how many registers are one access."""
    desc = op.desc
    given = op.mixed_offsets
    offsets = d.numbers(given)
    lead = len(offsets) - layout.rank
    lane = layout.lane_starts
    firsts: list[Index] = [
        offset if n < lead else d.plus(offset, d.index_table([int(x) for x in lane[n - lead]]))
        for n, offset in enumerate(offsets)
    ]
    places = [
        d.shifted(firsts, list(map(int, steps)))
        for steps in zip(*layout.register_steps, strict=True)
    ]
    bits = element_bits(desc.element_type)
    block = desc.block
    size = min(run_along(layout, -1), ACCESS_BITS // bits) if desc.stride[-1] == 1 else 1
    while size > 1:
        rows = all(s % size == 0 for s in desc.stride[:-1])
        if is_multiple(given[-1], size) and rows and not (block and block[-1] % size):
            break
        size //= 2
    return places, size


def column_places(
    d: LaneProgram, op: xegpu.MatrixAccess, layout: ly.Layout
) -> tuple[list[list[Index]], int] | None:
    """Offsets of runs down the lanes' columns and their length, where the matrix lies so; else None.

    Column by column they are a lane's own, in panels as wide as the subgroup they are rows of a block message.
    The offsets are those of lane 0: the access is one of the subgroup's (`subgroup_block_io`).
    """
    desc = op.desc
    block = desc.block
    if layout.rank != 2 or len(desc.get_shape()) != 2 or block is None:
        return None
    given = op.mixed_offsets
    run = column_run(layout, d.lanes)
    if desc.stride[0] == 1:
        most = ACCESS_BITS // element_bits(desc.element_type)
        size = min(run, block[0] & -block[0], most)
    elif is_panel(desc, d.lanes) and is_multiple(given[1], d.lanes):
        size = message_rows(d.owners.xe, op, run)
    else:
        return None
    while size > 1 and not is_multiple(given[0], size):
        size //= 2
    if size < 2:
        return None
    offsets = d.numbers(given)
    rows, columns = layout.register_steps
    places = [
        [d.plus(offsets[0], int(row)), d.plus(offsets[1], int(column))]
        for row, column in zip(rows, columns, strict=True)
    ]
    return places, size


@rule("xegpu.load_matrix")
def load_matrix(d: LaneProgram, op: xegpu.LoadMatrixOp) -> None:
    if not isinstance(op.value.type, VectorType):
        d.keep(op)
        return
    layout, element = d.owners.layout(op.value), element_of(op.value.type)
    down = column_places(d, op, layout)
    places, size = down or matrix_places(d, op, layout)
    matrix = d.env[op.mem_desc]
    kind = VectorType(element, [size]) if size > 1 else element  # pyright: ignore
    registers: list[Register] = []
    for first in range(0, layout.registers, size):
        made = d.add(
            xegpu.LoadMatrixOp(matrix, kind, places[first], subgroup_block_io=down is not None)
        )
        registers += [(made, n) for n in range(size)]
    d.give(op.value, LaneFragment(layout, element, tuple(registers)))


@rule("xegpu.store_matrix")
def store_matrix(d: LaneProgram, op: xegpu.StoreMatrixOp) -> None:
    if not isinstance(op.value.type, VectorType):
        alone(d, op)
        return
    value = d.owned(op.value, d.owners.layout(op.value))
    layout = value.layout
    down = column_places(d, op, layout)
    places, size = down or matrix_places(d, op, layout)
    matrix = d.env[op.mem_desc]
    # Lanes that hold the same element write the same number to the same place.
    for first in range(0, layout.registers, size):
        registers = value.registers[first : first + size]
        part = d.together(registers)
        d.put(xegpu.StoreMatrixOp(part, matrix, places[first], subgroup_block_io=down is not None))
