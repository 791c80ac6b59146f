"""The `mach` dialect: what the last IR stage says and no upstream dialect can.

The last stage is `func.func` with scf, cf, arith, math, vector and index ops, plus these: raw
memory through `!llvm.ptr`, one machine instruction (`mach.instr`), lane masks, atomics, and calls
of runtime functions. The emitter (`tilewright.codegen`) prints each op one to one; nothing here
implies a loop or a memory access that is not written.

Conventions, for every op:
- A pointer is `!llvm.ptr` (generic) or `!llvm.ptr<n>` (an address space of the target). Offsets
  count bytes.
- `alignment` is a power of two in bytes that the address is known to have; absent means the
  element's own size.
- A value in memory takes its element type's storage: i1 one byte, tf32 four, bf16 and f16 two, f8
  one, index eight.
- Lanes whose mask bit is 0 touch no memory; a masked load gives them the lanes of `passthru`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import (
    BoolAttr,
    ContainerType,
    DictionaryAttr,
    FlatSymbolRefAttrConstr,
    IndexType,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    VectorType,
    i1,
    i64,
)
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import (
    Attribute,
    Dialect,
    Operation,
    ParametrizedAttribute,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

ptr = LLVMPointerType()

Value = SSAValue | Operation


@irdl_attr_definition
class AmxType(ParametrizedAttribute, TypeAttribute):
    """One AMX tile register: 16 rows of 64 bytes; instructions give them element types."""

    name = "mach.amx"


amx = AmxType()

ATOMIC_KINDS: Mapping[str, str] = {
    "addf": "fadd",
    "addi": "add",
    "assign": "xchg",
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
"""Kinds of `mach.atomic_rmw` (arith.AtomicRMWKind) -> LLVM's atomicrmw operation."""

ORDERINGS = ("monotonic", "acquire", "release", "acq_rel", "seq_cst")
SCOPES = ("system", "device", "workgroup", "subgroup")


def _int(value: int | None) -> IntegerAttr | None:
    return None if value is None else IntegerAttr(value, 64)


def _unit(value: bool) -> UnitAttr | None:
    return UnitAttr() if value else None


def _is_data(type: Attribute) -> bool:
    """Is `type` a value that memory can hold: a scalar, a pointer or a vector of scalars?"""
    return not isinstance(type, AmxType) and not (
        isinstance(type, ContainerType) and not isinstance(type, VectorType)
    )


def _check_alignment(op: IRDLOperation, alignment: IntegerAttr | None) -> None:
    if alignment is not None:
        value = alignment.value.data
        if value <= 0 or value & (value - 1):
            raise VerifyException(f"{op.name}: alignment {value} is not a power of two")


def _check_data(op: IRDLOperation, type: Attribute) -> None:
    if not _is_data(type):
        raise VerifyException(f"{op.name}: {type} is not a value that memory holds")


def _lanes(op: IRDLOperation, type: Attribute, what: str) -> int:
    """Number of lanes of a 1-D vector; anything else is an error."""
    if not isinstance(type, VectorType) or type.get_num_dims() != 1:
        raise VerifyException(f"{op.name}: {what} must be a 1-D vector, got {type}")
    return type.get_shape()[0]


def _check_offsets(op: IRDLOperation, type: Attribute) -> None:
    element = cast(VectorType, type).element_type
    if isinstance(element, IntegerType) and element.width.data not in (32, 64):
        raise VerifyException(f"{op.name}: offsets are index, i32 or i64, not {element}")


def _check_lanes(op: IRDLOperation, data: SSAValue, *others: tuple[str, SSAValue]) -> None:
    n = _lanes(op, data.type, "the value")
    for what, value in others:
        m = _lanes(op, value.type, what)
        if m != n:
            raise VerifyException(f"{op.name}: {what} has {m} lanes, the value has {n}")


_Ptr = base(LLVMPointerType)


@irdl_op_definition
class PtrAddOp(IRDLOperation):
    """`%q = mach.ptr_add %p, %bytes : !llvm.ptr`: `bytes` (signed) further in the same object."""

    name = "mach.ptr_add"
    T: ClassVar = VarConstraint("T", _Ptr)
    pointer = operand_def(T)
    offset = operand_def(IndexType)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$pointer `,` $offset attr-dict `:` type($pointer)"

    def __init__(self, pointer: Value, offset: Value):
        super().__init__(operands=[pointer, offset], result_types=[SSAValue.get(pointer).type])


@irdl_op_definition
class LoadOp(IRDLOperation):
    """`%v = mach.load %p {alignment = 64 : i64} : !llvm.ptr -> vector<16xf32>`; scalars and vectors
    alike.

    `invariant`: the memory does not change while the function runs. `nontemporal`: not worth a
    place in the cache.
    """

    name = "mach.load"
    pointer = operand_def(_Ptr)
    result = result_def()
    alignment = opt_prop_def(IntegerAttr)
    volatile = opt_prop_def(UnitAttr)
    nontemporal = opt_prop_def(UnitAttr)
    invariant = opt_prop_def(UnitAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$pointer attr-dict `:` type($pointer) `->` type($result)"

    def __init__(
        self,
        pointer: Value,
        result_type: Attribute,
        *,
        alignment: int | None = None,
        volatile: bool = False,
        nontemporal: bool = False,
        invariant: bool = False,
    ):
        super().__init__(
            operands=[pointer],
            result_types=[result_type],
            properties={
                "alignment": _int(alignment),
                "volatile": _unit(volatile),
                "nontemporal": _unit(nontemporal),
                "invariant": _unit(invariant),
            },
        )

    def verify_(self) -> None:
        _check_data(self, self.result.type)
        _check_alignment(self, self.alignment)


@irdl_op_definition
class StoreOp(IRDLOperation):
    """`mach.store %v, %p {alignment = 64 : i64} : vector<16xf32>, !llvm.ptr`."""

    name = "mach.store"
    value = operand_def()
    pointer = operand_def(_Ptr)
    alignment = opt_prop_def(IntegerAttr)
    volatile = opt_prop_def(UnitAttr)
    nontemporal = opt_prop_def(UnitAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$value `,` $pointer attr-dict `:` type($value) `,` type($pointer)"

    def __init__(
        self,
        value: Value,
        pointer: Value,
        *,
        alignment: int | None = None,
        volatile: bool = False,
        nontemporal: bool = False,
    ):
        super().__init__(
            operands=[value, pointer],
            properties={
                "alignment": _int(alignment),
                "volatile": _unit(volatile),
                "nontemporal": _unit(nontemporal),
            },
        )

    def verify_(self) -> None:
        _check_data(self, self.value.type)
        _check_alignment(self, self.alignment)


@irdl_op_definition
class MaskedLoadOp(IRDLOperation):
    """`%v = mach.masked_load %p, %mask, %passthru : !llvm.ptr, vector<16xi1> -> vector<16xf32>`.

    Lane i reads the element i after `p`; lanes off give `passthru`.
    """

    name = "mach.masked_load"
    T: ClassVar = VarConstraint("T", base(VectorType))
    pointer = operand_def(_Ptr)
    mask = operand_def(VectorType.constr(i1))
    passthru = operand_def(T)
    result = result_def(T)
    alignment = opt_prop_def(IntegerAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$pointer `,` $mask `,` $passthru attr-dict "
        "`:` type($pointer) `,` type($mask) `->` type($result)"
    )

    def __init__(
        self, pointer: Value, mask: Value, passthru: Value, *, alignment: int | None = None
    ):
        super().__init__(
            operands=[pointer, mask, passthru],
            result_types=[SSAValue.get(passthru).type],
            properties={"alignment": _int(alignment)},
        )

    def verify_(self) -> None:
        _check_lanes(self, self.result, ("the mask", self.mask))
        _check_alignment(self, self.alignment)


@irdl_op_definition
class MaskedStoreOp(IRDLOperation):
    """`mach.masked_store %v, %p, %mask : vector<16xf32>, !llvm.ptr, vector<16xi1>`."""

    name = "mach.masked_store"
    value = operand_def(VectorType)
    pointer = operand_def(_Ptr)
    mask = operand_def(VectorType.constr(i1))
    alignment = opt_prop_def(IntegerAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$value `,` $pointer `,` $mask attr-dict "
        "`:` type($value) `,` type($pointer) `,` type($mask)"
    )

    def __init__(self, value: Value, pointer: Value, mask: Value, *, alignment: int | None = None):
        super().__init__(operands=[value, pointer, mask], properties={"alignment": _int(alignment)})

    def verify_(self) -> None:
        _check_lanes(self, self.value, ("the mask", self.mask))
        _check_alignment(self, self.alignment)


_Offsets = VectorType.constr(base(IndexType) | base(IntegerType))


@irdl_op_definition
class GatherOp(IRDLOperation):
    """`%v = mach.gather %p, %offsets, %mask, %passthru : !llvm.ptr, vector<16xi32>, vector<16xi1>
    -> vector<16xf32>`.

    Lane i reads at `p + offsets[i]` bytes, the offset signed.
    """

    name = "mach.gather"
    T: ClassVar = VarConstraint("T", base(VectorType))
    pointer = operand_def(_Ptr)
    offsets = operand_def(_Offsets)
    mask = operand_def(VectorType.constr(i1))
    passthru = operand_def(T)
    result = result_def(T)
    alignment = opt_prop_def(IntegerAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$pointer `,` $offsets `,` $mask `,` $passthru attr-dict "
        "`:` type($pointer) `,` type($offsets) `,` type($mask) `->` type($result)"
    )

    def __init__(
        self,
        pointer: Value,
        offsets: Value,
        mask: Value,
        passthru: Value,
        *,
        alignment: int | None = None,
    ):
        super().__init__(
            operands=[pointer, offsets, mask, passthru],
            result_types=[SSAValue.get(passthru).type],
            properties={"alignment": _int(alignment)},
        )

    def verify_(self) -> None:
        _check_lanes(self, self.result, ("the mask", self.mask), ("the offsets", self.offsets))
        _check_offsets(self, self.offsets.type)
        _check_alignment(self, self.alignment)


@irdl_op_definition
class ScatterOp(IRDLOperation):
    """`mach.scatter %v, %p, %offsets, %mask : vector<16xf32>, !llvm.ptr, vector<16xi32>,
    vector<16xi1>`.

    Lanes that hit the same address store in lane order: the highest lane's value stays.
    """

    name = "mach.scatter"
    value = operand_def(VectorType)
    pointer = operand_def(_Ptr)
    offsets = operand_def(_Offsets)
    mask = operand_def(VectorType.constr(i1))
    alignment = opt_prop_def(IntegerAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$value `,` $pointer `,` $offsets `,` $mask attr-dict "
        "`:` type($value) `,` type($pointer) `,` type($offsets) `,` type($mask)"
    )

    def __init__(
        self,
        value: Value,
        pointer: Value,
        offsets: Value,
        mask: Value,
        *,
        alignment: int | None = None,
    ):
        super().__init__(
            operands=[value, pointer, offsets, mask], properties={"alignment": _int(alignment)}
        )

    def verify_(self) -> None:
        _check_lanes(self, self.value, ("the mask", self.mask), ("the offsets", self.offsets))
        _check_offsets(self, self.offsets.type)
        _check_alignment(self, self.alignment)


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """`mach.prefetch %p {locality = 3 : i64} : !llvm.ptr`, with `write` when the line will be
    written.

    locality 3 = all cache levels, 2 = not the first, 1 = last level, 0 = streaming.
    """

    name = "mach.prefetch"
    pointer = operand_def(_Ptr)
    locality = prop_def(IntegerAttr)
    write = opt_prop_def(UnitAttr)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$pointer attr-dict `:` type($pointer)"

    def __init__(self, pointer: Value, *, locality: int = 3, write: bool = False):
        super().__init__(
            operands=[pointer],
            properties={"locality": IntegerAttr(locality, 64), "write": _unit(write)},
        )

    def verify_(self) -> None:
        if not 0 <= self.locality.value.data <= 3:
            raise VerifyException(
                f"mach.prefetch: locality {self.locality.value.data} is not in 0..3"
            )


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

    Kinds without an instruction anywhere (mulf, muli) are a `mach.cmpxchg` loop, which the IR must
    then spell out.
    """

    name = "mach.atomic_rmw"
    T: ClassVar = VarConstraint("T", AnyAttr())
    kind = prop_def(StringAttr)
    value = operand_def(T)
    pointer = operand_def(_Ptr)
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
        if kind in ("mulf", "muli"):
            raise VerifyException(
                f"mach.atomic_rmw: no machine multiplies atomically ('{kind}'); write a mach.cmpxchg loop"
            )
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
    pointer = operand_def(_Ptr)
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
    pointer = operand_def(_Ptr)
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
    pointer = operand_def(_Ptr)
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


@irdl_op_definition
class AllocaOp(IRDLOperation):
    """`%p = mach.alloca {bytes = 4096 : i64, alignment = 64 : i64} : !llvm.ptr`.

    Uninitialised scratch that lives as long as the function; inside a loop it is the same memory
    every time.
    """

    name = "mach.alloca"
    bytes = prop_def(IntegerAttr)
    alignment = prop_def(IntegerAttr)
    result = result_def(_Ptr)
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
        _check_alignment(self, self.alignment)


@irdl_op_definition
class PtrFromIntOp(IRDLOperation):
    """`%p = mach.ptr_from_int %i : index -> !llvm.ptr`."""

    name = "mach.ptr_from_int"
    value = operand_def(base(IndexType) | base(IntegerType))
    result = result_def(_Ptr)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($result)"

    def __init__(self, value: Value, result_type: LLVMPointerType | None = None):
        super().__init__(operands=[value], result_types=[result_type or ptr])


@irdl_op_definition
class IntFromPtrOp(IRDLOperation):
    """`%i = mach.int_from_ptr %p : !llvm.ptr -> index`."""

    name = "mach.int_from_ptr"
    pointer = operand_def(_Ptr)
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
    result = result_def(_Ptr)
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict `:` type($result)"

    def __init__(self, symbol: str, result_type: LLVMPointerType | None = None):
        super().__init__(
            result_types=[result_type or ptr], properties={"symbol": SymbolRefAttr(symbol)}
        )


@irdl_op_definition
class MaskFirstOp(IRDLOperation):
    """`%m = mach.mask_first %n : vector<16xi1>`: lane i is on when i < n (n signed)."""

    name = "mach.mask_first"
    count = operand_def(IndexType)
    result = result_def(VectorType.constr(i1))
    traits = traits_def(Pure())
    assembly_format = "$count attr-dict `:` type($result)"

    def __init__(self, count: Value, lanes: int):
        super().__init__(operands=[count], result_types=[VectorType(i1, [lanes])])

    def verify_(self) -> None:
        _lanes(self, self.result.type, "the mask")


@irdl_op_definition
class CallOp(IRDLOperation):
    """`%r = mach.call @tw_runtime_fn(%a, %b) : (index, !llvm.ptr) -> i32`: a C function of the
    runtime.

    Each operand passes as the registers of its type; at most one result. The symbol resolves when
    the object is loaded.
    """

    name = "mach.call"
    callee = prop_def(FlatSymbolRefAttrConstr)
    arguments = var_operand_def()
    results_ = var_result_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$callee `(` $arguments `)` attr-dict `:` functional-type($arguments, $results_)"
    )

    def __init__(
        self, callee: str, arguments: Sequence[Value], result_types: Sequence[Attribute] = ()
    ):
        super().__init__(
            operands=[arguments],
            result_types=[result_types],
            properties={"callee": SymbolRefAttr(callee)},
        )

    def verify_(self) -> None:
        if len(self.results_) > 1:
            raise VerifyException(
                f"mach.call: a C function gives at most one result, not {len(self.results_)}"
            )


@irdl_op_definition
class CallIndirectOp(IRDLOperation):
    """`%r = mach.call_indirect %f(%a) : !llvm.ptr, (index) -> i32`: the C function at address `f`.
    """

    name = "mach.call_indirect"
    callee = operand_def(_Ptr)
    arguments = var_operand_def()
    results_ = var_result_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$callee `(` $arguments `)` attr-dict "
        "`:` type($callee) `,` functional-type($arguments, $results_)"
    )

    def __init__(
        self, callee: Value, arguments: Sequence[Value], result_types: Sequence[Attribute] = ()
    ):
        super().__init__(operands=[callee, arguments], result_types=[result_types])

    def verify_(self) -> None:
        if len(self.results_) > 1:
            raise VerifyException(
                f"mach.call_indirect: a C function gives at most one result, not {len(self.results_)}"
            )


@irdl_op_definition
class InstrOp(IRDLOperation):
    """`%d = mach.instr "x86.amx.tdpbf16ps"(%c, %a, %b) : (!mach.amx, !mach.amx, !mach.amx) ->
    !mach.amx`.

    One entry of the instruction table (`tilewright.codegen.instructions`): its name fixes operands,
    results, meaning and emission. `params` are its immediates, by name. The table checks both when
    the module is emitted.
    """

    name = "mach.instr"
    instruction = prop_def(StringAttr)
    params = opt_prop_def(DictionaryAttr)
    arguments = var_operand_def()
    results_ = var_result_def()
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$instruction `(` $arguments `)` attr-dict `:` functional-type($arguments, $results_)"
    )

    def __init__(
        self,
        instruction: str,
        arguments: Sequence[Value] = (),
        result_types: Sequence[Attribute] = (),
        params: Mapping[str, int | bool | str] | None = None,
    ):
        attrs: dict[str, Attribute] = {}
        for key, value in (params or {}).items():
            if isinstance(value, bool):
                attrs[key] = BoolAttr.from_bool(value)
            elif isinstance(value, int):
                attrs[key] = IntegerAttr(value, i64)
            else:
                attrs[key] = StringAttr(value)
        super().__init__(
            operands=[arguments],
            result_types=[result_types],
            properties={
                "instruction": StringAttr(instruction),
                "params": DictionaryAttr(attrs) if attrs else None,
            },
        )

    def immediates(self) -> dict[str, int | str]:
        """The immediates by name, as Python values."""
        out: dict[str, int | str] = {}
        for key, attr in (self.params.data if self.params else {}).items():
            if isinstance(attr, IntegerAttr):
                out[key] = cast(IntegerAttr[IntegerType], attr).value.data
            elif isinstance(attr, StringAttr):
                out[key] = attr.data
        return out

    def verify_(self) -> None:
        for key, attr in (self.params.data if self.params else {}).items():
            if not isinstance(attr, IntegerAttr | StringAttr):
                raise VerifyException(
                    f"mach.instr: immediate '{key}' must be an integer or a string, got {attr}"
                )


MACH = Dialect(
    "mach",
    [
        PtrAddOp,
        LoadOp,
        StoreOp,
        MaskedLoadOp,
        MaskedStoreOp,
        GatherOp,
        ScatterOp,
        PrefetchOp,
        AtomicRmwOp,
        CmpxchgOp,
        AtomicLoadOp,
        AtomicStoreOp,
        FenceOp,
        AllocaOp,
        PtrFromIntOp,
        IntFromPtrOp,
        AddressOfOp,
        MaskFirstOp,
        CallOp,
        CallIndirectOp,
        InstrOp,
    ],
    [AmxType],
)
