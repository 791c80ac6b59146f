"""Addresses: arithmetic, casts, scratch, symbols."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntAttr, IntegerType
from xdsl.ir import Attribute
from xdsl.irdl import VarConstraint, base, traits_def
from xdsl.traits import MemoryAllocEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import Inferred, Int, Op, Operand, Result, Symbol, op_definition
from tilewright.dialects.mach.types import PtrConstraint, check_alignment, ptr
from tilewright.dialects.upstream.pointer import LLVMPointerType


@op_definition
class PtrAddOp(Op):
    """`%q = mach.ptr_add %p, %bytes : !llvm.ptr`: `bytes` (signed) further in the same object."""

    name = "mach.ptr_add"
    T: ClassVar = VarConstraint("T", PtrConstraint)
    pointer: Operand = Operand(T)
    offset: Operand[IndexType] = Operand(IndexType)
    result = Inferred(T, "pointer")
    traits = traits_def(Pure())
    assembly_format = "$pointer `,` $offset attr-dict `:` type($pointer)"


@op_definition
class AllocaOp(Op):
    """`%p = mach.alloca {bytes = 4096 : i64, alignment = 64 : i64} : !llvm.ptr`.

    Uninitialised scratch that lives as long as the function; inside a loop it is the same memory
    every time.
    """

    name = "mach.alloca"
    bytes: Int = Int()
    alignment: Int = Int(default=64)
    result: Result[LLVMPointerType] = Result(PtrConstraint, default=ptr)
    traits = traits_def(MemoryAllocEffect())
    assembly_format = "attr-dict `:` type($result)"

    def verify_(self) -> None:
        if self.bytes <= 0:
            raise VerifyException(f"mach.alloca: {self.bytes} bytes is not positive")
        check_alignment(self, self.alignment)


@op_definition
class SharedBaseOp(Op):
    """`%p = mach.shared_base {alignment = 1024 : i64} : !llvm.ptr<3>`: the workgroup's dynamic shared
    memory.

    Its size is the launch's. The driver aligns it to 16 bytes; more is rounded up here, so that the
    launch asks for `alignment` bytes more than are used.
    """

    name = "mach.shared_base"
    alignment: Int = Int(default=16)
    result: Result[LLVMPointerType] = Result(PtrConstraint, default=LLVMPointerType(IntAttr(3)))
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def verify_(self) -> None:
        check_alignment(self, self.alignment)


@op_definition
class PtrFromIntOp(Op):
    """`%p = mach.ptr_from_int %i : index -> !llvm.ptr`."""

    name = "mach.ptr_from_int"
    value: Operand = Operand(base(IndexType) | base(IntegerType))
    result: Result[LLVMPointerType] = Result(PtrConstraint, default=ptr)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($result)"


@op_definition
class IntFromPtrOp(Op):
    """`%i = mach.int_from_ptr %p : !llvm.ptr -> index`."""

    name = "mach.int_from_ptr"
    pointer: Operand = Operand(PtrConstraint)
    result: Result[Attribute] = Result(base(IndexType) | base(IntegerType), default=IndexType())
    traits = traits_def(Pure())
    assembly_format = "$pointer attr-dict `:` type($pointer) `->` type($result)"


@op_definition
class AddressOfOp(Op):
    """`%f = mach.address_of @task : !llvm.ptr`: a function or global of module or runtime."""

    name = "mach.address_of"
    symbol: Symbol = Symbol()
    result: Result[LLVMPointerType] = Result(PtrConstraint, default=ptr)
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict `:` type($result)"
