"""Matrices in shared memory: load_matrix and store_matrix of blocks, of runs, and of the lanes' columns.

The address of an element is `layout.mem_layout`'s: a sum over the digits of its coordinates (a blocked matrix's address
is no linear function of them).
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.xegpu import elements
from tilewright.targets.emu import values as v
from tilewright.targets.emu.blocks import element_type
from tilewright.targets.emu.builder import EmuBuilder, Idx, element_bytes, element_of, index, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import shared_start


@lowers("xegpu.create_mem_desc")
def create_mem_desc(low: Lowering, op: xegpu.CreateMemDescOp) -> None:
    low.env[op.results[0]] = v.MatrixBase(shared_start(low, op.source))


def _access(
    low: Lowering,
    op: xegpu.MatrixAccess,
    given: tuple[int, ...],
    value: SSAValue | None,
    element: Attribute,
) -> list[SSAValue]:
    """Load, or store `value`: a function of the module for the matrix' type and the accessed shape."""
    b, desc = low.b, op.desc
    matrix = low.env[op.operands[op.tdesc_operand]]
    assert isinstance(matrix, v.MatrixBase)
    places = elements.matrix_places(op, given, low.lanes)
    shape = places[0].shape or (1,)
    offsets: list[SSAValue] = []
    for number in op.mixed_offsets:
        found = v.Uniform(b.idx(number)) if isinstance(number, int) else low.plain(number)
        wide = low.lanes > 1 and not isinstance(found, v.Uniform)
        offsets.append(low.wide_of(found) if wide else low.uniform(found))
    masked = low.mask is not None and low.lanes > 1
    operands: list[Idx] = [matrix.base, *offsets]
    operands += [low.mask] if low.mask is not None and masked else []
    operands += [] if value is None else [b.shape(value, *shape)]

    def make(b: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
        base, *rest = arguments
        steps = (b.dense(vec(index, *shape), place.reshape(-1).tolist()) for place in places)
        total = elements.matrix_address(b, desc, [*map(b.plus, steps, rest)])
        addresses = b.broadcast(b.times(total, element_bytes(element)), vec(index, *shape))
        flags = vec(i1, *shape)
        mask = b.broadcast(rest[len(places)], flags) if masked else b.constant(flags, 1)
        if value is not None:
            b.scatter(rest[-1], base, addresses, mask)
            return []
        return [b.gather(base, addresses, mask, b.zeros(vec(element, *shape)))]

    return b.shared(("matrix", value is None, desc, element, masked, *places), operands, make)


@lowers("xegpu.load_matrix")
def load_matrix(low: Lowering, op: xegpu.LoadMatrixOp) -> None:
    given = shape_of_type(op.value.type)
    element = element_type(low, element_of(op.value.type))
    (found,) = _access(low, op, given, None, element)
    wanted = given if low.lanes == 1 else (*given, low.lanes)
    low.set(op.value, low.b.shape(found, *wanted) if wanted else low.b.extract(found, 0))


@lowers("xegpu.store_matrix")
def store_matrix(low: Lowering, op: xegpu.StoreMatrixOp) -> None:
    element = element_type(low, element_of(op.value.type))
    _access(low, op, shape_of_type(op.value.type), low.wide(op.value), element)


@lowers("xegpu.convert_layout")
def convert_layout(low: Lowering, op: xegpu.ConvertLayoutOp) -> None:
    """The value is unchanged; at lane level it moves where the maps differ (RFC)."""
    value = low.env[op.source]
    low.env[op.result] = value
    if low.lanes == 1 or not isinstance(value, v.Varying):
        return
    source, target = op.input_layout, op.target_layout
    if source is None or target is None or source == target:
        return
    raise low.refuse("between lanes: the whole value's shape is not known from a fragment")
