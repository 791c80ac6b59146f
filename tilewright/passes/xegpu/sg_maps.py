"""Which sg_maps and dpas types a machine has, derived from its table of matrix instructions.

Part of :mod:`tilewright.passes.xegpu.check_legal`.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import IntegerType, Signedness, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import TilewrightError, UnsupportedError, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu.layouts import SgMapAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.frozen import frozen
from tilewright.uarch.base import MatrixInstruction
from tilewright.uarch.xe import XeMachine

SG_MAP_SOURCE = "XeGPU RFC, rules of sg_map setting"


def refuse(op: Operation, message: str, rule: str, hint: str | None = None) -> TilewrightError:
    return unsupported(op, f"{op.name}: {message}", rule=rule, hint=hint)


def type_name(value: SSAValue) -> str:
    """Tilewright's name of an operand's element type."""
    return element_name(
        value.type.element_type if isinstance(value.type, VectorType) else value.type
    )


def dpas_instruction(xe: XeMachine, op: xegpu.DpasOp) -> MatrixInstruction:
    try:
        return xe.instruction(type_name(op.lhs), type_name(op.rhs), type_name(op.result))
    except UnsupportedError as error:
        raise refuse(op, error.message, "XeGPU RFC, sg_map tables", error.hint) from None


def multiplies(xe: XeMachine, a: SSAValue, b: SSAValue, result: SSAValue) -> bool:
    """Does some matrix instruction multiply and add numbers of a product's types?"""
    try:
        xe.instruction(*(type_name(v) for v in (a, b, result)))
    except UnsupportedError:
        return False
    return True


@frozen
class _Maps:
    """The sg_maps that a machine works with, derived from its matrix instructions."""

    a: SgMapAttr
    b: SgMapAttr
    c: SgMapAttr


def _maps_of(instruction: MatrixInstruction) -> _Maps:
    (lanes,) = instruction.n
    # A row of A that is shorter than the subgroup takes several rows at once (tf32: [2, 8]).
    across = min(lanes, instruction.k // instruction.pack_a)
    return _Maps(
        SgMapAttr([lanes // across, across], [1, instruction.pack_a]),
        SgMapAttr([1, lanes], [instruction.pack_b, 1]),
        SgMapAttr([1, lanes], [1, 1]),
    )


def check_dpas_maps(xe: XeMachine, op: xegpu.DpasOp) -> None:
    maps = _maps_of(dpas_instruction(xe, op))
    for name, have, want in zip("ABC", op.layouts, (maps.a, maps.b, maps.c), strict=True):
        # B's map may also be that of the register, rows unpacked (RFC, "2D load" use case).
        plain = maps.c if name == "B" else want
        if isinstance(have, SgMapAttr) and have not in (want, plain):
            raise refuse(
                op, f"{have} of {name} is not possible on {xe.name}: it is {want}", SG_MAP_SOURCE
            )


def check_descriptor_map(xe: XeMachine, op: xegpu.CreateNdDescOp | xegpu.CreateDescOp) -> None:
    tdesc: TensorDescType = op.tdesc
    sg_map = tdesc.sg_map
    if sg_map is None:
        return
    lanes = prod(ints(sg_map.wi_layout))
    width = xe.lanes
    if lanes != width:
        raise refuse(
            op,
            f"{lanes} work items of {sg_map} are not possible on {xe.name}: a subgroup has {width}",
            SG_MAP_SOURCE,
        )
    allowed = _allowed_maps(xe, tdesc, width)
    if sg_map not in allowed:
        known = "; ".join(sorted({str(each) for each in allowed}))
        raise refuse(
            op,
            f"{sg_map} on {tdesc.element_type} is not possible on {xe.name}: {known}",
            SG_MAP_SOURCE,
        )


def _allowed_maps(xe: XeMachine, tdesc: TensorDescType, width: int) -> set[SgMapAttr]:
    unit = max(1, 32 // element_bits(tdesc.element_type))
    column = SgMapAttr([width, 1], [1, unit])
    if tdesc.scattered:
        return {column} if tdesc.chunk_size > 1 else {SgMapAttr([1, width], [1, 1])}
    if len(tdesc.get_shape()) == 1:
        return {SgMapAttr([1, width], [1, unit])}
    allowed = {SgMapAttr([1, width], [1, 1]), column, SgMapAttr([width, 1], [1, 1])}
    name = element_name(tdesc.element_type)
    for instruction in xe.matrix:
        maps = _maps_of(instruction)
        for role, operand in zip((maps.a, maps.b, maps.c), instruction.types, strict=True):
            if operand == name:
                allowed.add(role)
    return allowed


def element_name(element: Attribute) -> str:
    if isinstance(element, IntegerType):
        unsigned = element.signedness.data is Signedness.UNSIGNED
        return f"{'u' if unsigned else 'i'}{element.width.data}"
    return str(element)
