"""Addresses: arithmetic, casts, scratch, symbols."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    FlatSymbolRefAttrConstr,
    IndexType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    SymbolRefAttr,
)
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import (
    Attribute,
    SSAValue,
)
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryAllocEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.mach.types import PtrConstraint, Value, check_alignment, ptr


@irdl_op_definition
class PtrAddOp(IRDLOperation):
    """`%q = mach.ptr_add %p, %bytes : !llvm.ptr`: `bytes` (signed) further in the same object."""

    name = "mach.ptr_add"
    T: ClassVar = VarConstraint("T", PtrConstraint)
    pointer = operand_def(T)
    offset = operand_def(IndexType)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$pointer `,` $offset attr-dict `:` type($pointer)"

    def __init__(self, pointer: Value, offset: Value):
        super().__init__(operands=[pointer, offset], result_types=[SSAValue.get(pointer).type])


@irdl_op_definition
class AllocaOp(IRDLOperation):
    """`%p = mach.alloca {bytes = 4096 : i64, alignment = 64 : i64} : !llvm.ptr`.

    Uninitialised scratch that lives as long as the function; inside a loop it is the same memory
    every time.
    """

    name = "mach.alloca"
    bytes = prop_def(IntegerAttr)
    alignment = prop_def(IntegerAttr)
    result = result_def(PtrConstraint)
    traits = traits_def(MemoryAllocEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(
        self, bytes: int, *, alignment: int = 64, result_type: LLVMPointerType | None = None
    ):
        super().__init__(
            result_types=[result_type or ptr],
            properties={"bytes": IntegerAttr(bytes, 64), "alignment": IntegerAttr(alignment, 64)},
        )

    def verify_(self) -> None:
        if self.bytes.value.data <= 0:
            raise VerifyException(f"mach.alloca: {self.bytes.value.data} bytes is not positive")
        check_alignment(self, self.alignment)


@irdl_op_definition
class SharedBaseOp(IRDLOperation):
    """`%p = mach.shared_base {alignment = 1024 : i64} : !llvm.ptr<3>`: the workgroup's dynamic shared
    memory.

    Its size is the launch's. The driver aligns it to 16 bytes; more is rounded up here, so that the
    launch asks for `alignment` bytes more than are used.
    """

    name = "mach.shared_base"
    alignment = prop_def(IntegerAttr)
    result = result_def(PtrConstraint)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, *, alignment: int = 16):
        super().__init__(
            result_types=[LLVMPointerType(IntAttr(3))],
            properties={"alignment": IntegerAttr(alignment, 64)},
        )

    def verify_(self) -> None:
        check_alignment(self, self.alignment)


@irdl_op_definition
class PtrFromIntOp(IRDLOperation):
    """`%p = mach.ptr_from_int %i : index -> !llvm.ptr`."""

    name = "mach.ptr_from_int"
    value = operand_def(base(IndexType) | base(IntegerType))
    result = result_def(PtrConstraint)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($result)"

    def __init__(self, value: Value, result_type: LLVMPointerType | None = None):
        super().__init__(operands=[value], result_types=[result_type or ptr])


@irdl_op_definition
class IntFromPtrOp(IRDLOperation):
    """`%i = mach.int_from_ptr %p : !llvm.ptr -> index`."""

    name = "mach.int_from_ptr"
    pointer = operand_def(PtrConstraint)
    result = result_def(base(IndexType) | base(IntegerType))
    traits = traits_def(Pure())
    assembly_format = "$pointer attr-dict `:` type($pointer) `->` type($result)"

    def __init__(self, pointer: Value, result_type: Attribute | None = None):
        super().__init__(operands=[pointer], result_types=[result_type or IndexType()])


@irdl_op_definition
class AddressOfOp(IRDLOperation):
    """`%f = mach.address_of @task : !llvm.ptr`: a function or global of module or runtime."""

    name = "mach.address_of"
    symbol = prop_def(FlatSymbolRefAttrConstr)
    result = result_def(PtrConstraint)
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict `:` type($result)"

    def __init__(self, symbol: str, result_type: LLVMPointerType | None = None):
        super().__init__(
            result_types=[result_type or ptr], properties={"symbol": SymbolRefAttr(symbol)}
        )
