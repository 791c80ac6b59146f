"""gpu: what lanes of a subgroup hand to each other besides shuffles: subgroup_broadcast, rotate."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, i1, i32
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.fields import (
    Follows,
    Inferred,
    Int,
    Op,
    Operand,
    OptOperand,
    Prop,
    op_definition,
)
from tilewright.dialects.upstream.complete import add_attributes, add_ops

I32: Any = (IntegerAttr.constr(i32), lambda value: IntegerAttr(value, 32))
SAME_TYPE = "requires the same type for value operand and result"


BroadcastType = StrEnum("BroadcastType", "First_Active_Lane Specific_Lane")


@irdl_attr_definition
class BroadcastTypeAttr(EnumAttribute[BroadcastType], SpacedOpaqueSyntaxAttribute):
    """`#gpu<broadcast first_active_lane>`: whose value a broadcast takes."""

    name = "gpu.broadcast"


@op_definition
class SubgroupBroadcastOp(Op):
    """`%r = gpu.subgroup_broadcast %x, specific_lane %lane : f32`, or `%x, first_active_lane`: one lane's value, to
    all. Here all lanes of a subgroup are active where they exchange.
    """

    name = "gpu.subgroup_broadcast"
    src: Operand = Operand()
    lane: OptOperand = OptOperand(i32)
    broadcast_type: Prop[BroadcastTypeAttr] = Prop(BroadcastTypeAttr)
    result = Follows("src", message="requires the same type for its operand and result")
    traits = traits_def(Pure())
    assembly_format = "$src `,` $broadcast_type ($lane^)? attr-dict `:` type($src)"

    def verify_(self) -> None:
        if (self.lane is not None) != (self.broadcast_type.data is BroadcastType.Specific_Lane):
            raise VerifyException(
                "lane must be specified for a broadcast of a specific lane, and for no other"
            )


@op_definition
class RotateOp(Op):
    """`%r, %valid = gpu.rotate %x, 4, 16 : f32`: the value of the lane 4 further on in the lane's segment of 16;
    valid in the first 16 lanes.
    """

    name = "gpu.rotate"
    value: Operand = Operand()
    offset: Int = Int(*I32)
    width: Int = Int(*I32)
    rotateResult = Follows("value", message=SAME_TYPE)
    valid = Inferred(i1)
    traits = traits_def(Pure())
    assembly_format = "$value `,` $offset `,` $width attr-dict `:` type($value)"

    def verify_(self) -> None:
        offset, width = self.offset, self.width
        if width < 1 or width & (width - 1):
            raise VerifyException(f"width must be a power of two, got {width}")
        if not 0 <= offset < width:
            raise VerifyException(f"offset must be in the range [0, {width}), got {offset}")


def complete() -> None:
    add_attributes(gpu.GPU, (BroadcastTypeAttr,))
    add_ops(gpu.GPU, (SubgroupBroadcastOp, RotateOp))
