"""Atomics: read-modify-write, compare-exchange, atomic access, fences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from xdsl.dialects.builtin import (
    IndexType,
    IntegerType,
    StringAttr,
    VectorType,
    i1,
)
from xdsl.ir import (
    Attribute,
    SSAValue,
)
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.mach.types import PtrConstraint, Value

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
SCOPES = ("system", "device", "workgroup", "subgroup")


def _check_atomic(op: IRDLOperation, ordering: StringAttr, scope: StringAttr | None) -> None:
    if ordering.data not in ORDERINGS:
        raise VerifyException(
            f"{op.name}: ordering '{ordering.data}' is not one of {', '.join(ORDERINGS)}"
        )
    if scope is not None and scope.data not in SCOPES:
        raise VerifyException(f"{op.name}: scope '{scope.data}' is not one of {', '.join(SCOPES)}")


def _scope(scope: str | None) -> StringAttr | None:
    return None if scope is None else StringAttr(scope)


@irdl_op_definition
class AtomicRmwOp(IRDLOperation):
    """`%old = mach.atomic_rmw "addf" %v, %p {ordering = "monotonic"} : f32, !llvm.ptr`.

    What a code generator has no instruction for becomes a `mach.cmpxchg` loop (`codegen.atomic_loops`).
    """

    name = "mach.atomic_rmw"
    T: ClassVar = VarConstraint("T", AnyAttr())
    kind = prop_def(StringAttr)
    value = operand_def(T)
    pointer = operand_def(PtrConstraint)
    result = result_def(T)
    ordering = prop_def(StringAttr)
    scope = opt_prop_def(StringAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$kind $value `,` $pointer attr-dict `:` type($value) `,` type($pointer)"

    def __init__(
        self,
        kind: str,
        value: Value,
        pointer: Value,
        *,
        ordering: str = "monotonic",
        scope: str | None = None,
    ):
        super().__init__(
            operands=[value, pointer],
            result_types=[SSAValue.get(value).type],
            properties={
                "kind": StringAttr(kind),
                "ordering": StringAttr(ordering),
                "scope": _scope(scope),
            },
        )

    def verify_(self) -> None:
        kind, type = self.kind.data, self.value.type
        if kind not in ATOMIC_KINDS:
            raise VerifyException(f"mach.atomic_rmw: unknown kind '{kind}'")
        if isinstance(type, VectorType):
            raise VerifyException(f"mach.atomic_rmw: takes a scalar, got {type}")
        integer = isinstance(type, IntegerType | IndexType)
        if kind != "assign" and integer != (not kind.endswith("f")):
            raise VerifyException(f"mach.atomic_rmw: kind '{kind}' does not apply to {type}")
        _check_atomic(self, self.ordering, self.scope)


@irdl_op_definition
class CmpxchgOp(IRDLOperation):
    """`%old, %won = mach.cmpxchg %p, %expected, %new {ordering = "acq_rel"} : !llvm.ptr, i32`; bits
    are compared.
    """

    name = "mach.cmpxchg"
    T: ClassVar = VarConstraint("T", base(IntegerType) | base(IndexType))
    pointer = operand_def(PtrConstraint)
    expected = operand_def(T)
    desired = operand_def(T)
    old = result_def(T)
    success = result_def(i1)
    ordering = prop_def(StringAttr)
    scope = opt_prop_def(StringAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$pointer `,` $expected `,` $desired attr-dict `:` type($pointer) `,` type($old)"
    )

    def __init__(
        self,
        pointer: Value,
        expected: Value,
        desired: Value,
        *,
        ordering: str = "acq_rel",
        scope: str | None = None,
    ):
        super().__init__(
            operands=[pointer, expected, desired],
            result_types=[SSAValue.get(expected).type, i1],
            properties={"ordering": StringAttr(ordering), "scope": _scope(scope)},
        )

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)


@irdl_op_definition
class AtomicLoadOp(IRDLOperation):
    """`%v = mach.atomic_load %p {ordering = "acquire"} : !llvm.ptr -> i32`."""

    name = "mach.atomic_load"
    pointer = operand_def(PtrConstraint)
    result = result_def()
    ordering = prop_def(StringAttr)
    scope = opt_prop_def(StringAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$pointer attr-dict `:` type($pointer) `->` type($result)"

    def __init__(
        self,
        pointer: Value,
        result_type: Attribute,
        *,
        ordering: str = "acquire",
        scope: str | None = None,
    ):
        super().__init__(
            operands=[pointer],
            result_types=[result_type],
            properties={"ordering": StringAttr(ordering), "scope": _scope(scope)},
        )

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        if self.ordering.data in ("release", "acq_rel"):
            raise VerifyException(f"mach.atomic_load: a load cannot be '{self.ordering.data}'")
        if isinstance(self.result.type, VectorType):
            raise VerifyException(f"mach.atomic_load: gives a scalar, got {self.result.type}")


@irdl_op_definition
class AtomicStoreOp(IRDLOperation):
    """`mach.atomic_store %v, %p {ordering = "release"} : i32, !llvm.ptr`."""

    name = "mach.atomic_store"
    value = operand_def()
    pointer = operand_def(PtrConstraint)
    ordering = prop_def(StringAttr)
    scope = opt_prop_def(StringAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$value `,` $pointer attr-dict `:` type($value) `,` type($pointer)"

    def __init__(
        self, value: Value, pointer: Value, *, ordering: str = "release", scope: str | None = None
    ):
        super().__init__(
            operands=[value, pointer],
            properties={"ordering": StringAttr(ordering), "scope": _scope(scope)},
        )

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        if self.ordering.data in ("acquire", "acq_rel"):
            raise VerifyException(f"mach.atomic_store: a store cannot be '{self.ordering.data}'")
        if isinstance(self.value.type, VectorType):
            raise VerifyException(f"mach.atomic_store: takes a scalar, got {self.value.type}")


@irdl_op_definition
class FenceOp(IRDLOperation):
    """`mach.fence {ordering = "seq_cst"}`: orders this thread's memory accesses before and after
    it.
    """

    name = "mach.fence"
    ordering = prop_def(StringAttr)
    scope = opt_prop_def(StringAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"

    def __init__(self, *, ordering: str = "seq_cst", scope: str | None = None):
        super().__init__(properties={"ordering": StringAttr(ordering), "scope": _scope(scope)})

    def verify_(self) -> None:
        _check_atomic(self, self.ordering, self.scope)
        if self.ordering.data == "monotonic":
            raise VerifyException("mach.fence: a monotonic fence orders nothing")
