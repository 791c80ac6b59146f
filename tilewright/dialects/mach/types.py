"""The type of AMX tiles, the pointer type, and what the ops' verifiers share."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ContainerType, IntegerType, VectorType
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import IRDLOperation, base, irdl_attr_definition
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.pointer import LLVMPointerType

ptr = LLVMPointerType()


@irdl_attr_definition
class AmxType(ParametrizedAttribute, TypeAttribute):
    """One AMX tile register: 16 rows of 64 bytes; instructions give them element types."""

    name = "mach.amx"


amx = AmxType()


def is_data(type: Attribute) -> bool:
    """Is `type` a value that memory can hold: a scalar, a pointer or a vector of scalars?"""
    return not isinstance(type, AmxType) and not (
        isinstance(type, ContainerType) and not isinstance(type, VectorType)
    )


def check_alignment(op: IRDLOperation, alignment: int | None) -> None:
    if alignment is not None and (alignment <= 0 or alignment & (alignment - 1)):
        raise VerifyException(f"{op.name}: alignment {alignment} is not a power of two")


def check_data(op: IRDLOperation, type: Attribute) -> None:
    if not is_data(type):
        raise VerifyException(f"{op.name}: {type} is not a value that memory holds")


def lanes(op: IRDLOperation, type: Attribute, what: str) -> int:
    """Number of lanes of a 1-D vector; anything else is an error."""
    if not isinstance(type, VectorType) or type.get_num_dims() != 1:
        raise VerifyException(f"{op.name}: {what} must be a 1-D vector, got {type}")
    return type.get_shape()[0]


def check_offsets(op: IRDLOperation, type: Attribute) -> None:
    element = cast(VectorType, type).element_type
    if isinstance(element, IntegerType) and element.width.data not in (32, 64):
        raise VerifyException(f"{op.name}: offsets are index, i32 or i64, not {element}")


def check_lanes(op: IRDLOperation, data: SSAValue, *others: tuple[str, SSAValue]) -> None:
    n = lanes(op, data.type, "the value")
    for what, value in others:
        m = lanes(op, value.type, what)
        if m != n:
            raise VerifyException(f"{op.name}: {what} has {m} lanes, the value has {n}")


PtrConstraint = base(LLVMPointerType)
