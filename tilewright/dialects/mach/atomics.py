"""Atomics: read-modify-write, compare-exchange, atomic access, fences."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntegerType, VectorType, i1
from xdsl.ir import Attribute
from xdsl.irdl import AnyAttr, IRDLOperation, VarConstraint, base, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import Inferred, Op, Operand, OptStr, Result, Str, op_definition
from tilewright.dialects.mach.types import PtrConstraint
from tilewright.dtypes import from_mlir

ATOMIC_KINDS: Mapping[str, str] = {
    "addf": "fadd",
    "addi": "add",
    "assign": "xchg",
    "mulf": "",
    "muli": "",
    "maximumf": "fmaximum",
    "minimumf": "fminimum",
    "maxnumf": "fmax",
    "minnumf": "fmin",
    "maxs": "max",
    "maxu": "umax",
    "mins": "min",
    "minu": "umin",
    "ori": "or",
    "andi": "and",
    "xori": "xor",
}
"""Kinds of `mach.atomic_rmw` (arith.AtomicRMWKind) -> LLVM's atomicrmw operation, "" for none."""

ORDERINGS = ("monotonic", "acquire", "release", "acq_rel", "seq_cst")
WORDS = (8, 16)
SCOPES = ("system", "device", "workgroup", "subgroup")


def _check_atomic(op: IRDLOperation, ordering: str, scope: str | None) -> None:
    if ordering not in ORDERINGS:
        raise VerifyException(
            f"{op.name}: ordering '{ordering}' is not one of {', '.join(ORDERINGS)}"
        )
    if scope is not None and scope not in SCOPES:
        raise VerifyException(f"{op.name}: scope '{scope}' is not one of {', '.join(SCOPES)}")


def _check_word(op: IRDLOperation, type: Attribute) -> None:
    """A vector is exchanged as one word: 8 or 16 bytes."""
    if isinstance(type, VectorType):
        element = from_mlir(type.element_type)
        size = prod(type.get_shape()) * element.itemsize
        if element.itemsize * 8 != element.bits or size not in WORDS:
            raise VerifyException(f"{op.name}: a word has 8 or 16 bytes, got {type}")


@op_definition
class AtomicRmwOp(Op):
    """`%old = mach.atomic_rmw "addf" %v, %p {ordering = "monotonic"} : f32, !llvm.ptr`.

    What a code generator has no instruction for becomes a `mach.cmpxchg` loop (`codegen.atomic_loops`).
    """

    name = "mach.atomic_rmw"
    T: ClassVar = VarConstraint("T", AnyAttr())
    kind: Str = Str()
    value: Operand = Operand(T)
    pointer: Operand = Operand(PtrConstraint)
    result = Inferred(T, "value")
    ordering: Str = Str(default="monotonic")
    scope: OptStr = OptStr()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$kind $value `,` $pointer attr-dict `:` type($value) `,` type($pointer)"

    def verify_(self) -> None:
        kind, type = self.kind, self.value.type
        if kind not in ATOMIC_KINDS:
            raise VerifyException(f"mach.atomic_rmw: unknown kind '{kind}'")
        if isinstance(type, VectorType):
            raise VerifyException(f"mach.atomic_rmw: takes a scalar, got {type}")
        integer = isinstance(type, IntegerType | IndexType)
        if kind != "assign" and integer != (not kind.endswith("f")):
            raise VerifyException(f"mach.atomic_rmw: kind '{kind}' does not apply to {type}")
        _check_atomic(self, self.ordering, self.scope)


@op_definition
class CmpxchgOp(Op):
    """`%old, %won = mach.cmpxchg %p, %expected, %new {ordering = "acq_rel"} : !llvm.ptr, i32`; bits
    are compared. All elements of a vector are one word, which lies at a multiple of its size.
    """

    name = "mach.cmpxchg"
    T: ClassVar = VarConstraint("T", base(IntegerType) | base(IndexType) | base(VectorType))
    pointer: Operand = Operand(PtrConstraint)
    expected: Operand = Operand(T)
    desired: Operand = Operand(T)
    old = Inferred(T, "expected")
    success = Inferred(i1)
    ordering: Str = Str(default="acq_rel")
    scope: OptStr = OptStr()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$pointer `,` $expected `,` $desired attr-dict `:` type($pointer) `,` type($old)"
    )

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        _check_word(self, self.expected.type)


@op_definition
class AtomicLoadOp(Op):
    """`%v = mach.atomic_load %p {ordering = "acquire"} : !llvm.ptr -> i32`; a vector is one word."""

    name = "mach.atomic_load"
    pointer: Operand = Operand(PtrConstraint)
    result: Result[Attribute] = Result()
    ordering: Str = Str(default="acquire")
    scope: OptStr = OptStr()
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$pointer attr-dict `:` type($pointer) `->` type($result)"

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        if self.ordering in ("release", "acq_rel"):
            raise VerifyException(f"mach.atomic_load: a load cannot be '{self.ordering}'")
        _check_word(self, self.result.type)


@op_definition
class AtomicStoreOp(Op):
    """`mach.atomic_store %v, %p {ordering = "release"} : i32, !llvm.ptr`."""

    name = "mach.atomic_store"
    value: Operand = Operand()
    pointer: Operand = Operand(PtrConstraint)
    ordering: Str = Str(default="release")
    scope: OptStr = OptStr()
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$value `,` $pointer attr-dict `:` type($value) `,` type($pointer)"

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        if self.ordering in ("acquire", "acq_rel"):
            raise VerifyException(f"mach.atomic_store: a store cannot be '{self.ordering}'")
        if isinstance(self.value.type, VectorType):
            raise VerifyException(f"mach.atomic_store: takes a scalar, got {self.value.type}")


@op_definition
class FenceOp(Op):
    """`mach.fence {ordering = "seq_cst"}`: orders this thread's memory accesses before and after
    it.
    """

    name = "mach.fence"
    ordering: Str = Str(default="seq_cst")
    scope: OptStr = OptStr()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        if self.ordering == "monotonic":
            raise VerifyException("mach.fence: a monotonic fence orders nothing")
