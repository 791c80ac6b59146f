"""Memory: plain, masked and indexed access, prefetch, and lane masks."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntegerType, VectorType, i1
from xdsl.ir import Attribute
from xdsl.irdl import VarConstraint, base, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import CACHES, Acts
from tilewright.dialects.fields import (
    Flag,
    Inferred,
    Int,
    Op,
    Operand,
    OptInt,
    Result,
    Value,
    op_definition,
)
from tilewright.dialects.mach.types import (
    PtrConstraint,
    check_alignment,
    check_data,
    check_lanes,
    check_offsets,
    lanes,
)


class _Access(Op, kw_only=True):
    """What is loaded or stored from an address on, a multiple of `alignment` bytes; lane by lane under a mask."""

    alignment: OptInt = OptInt()

    def verify_(self) -> None:
        data = self.results[0] if self.results else self.operands[0]
        parts = [
            (f"the {n}", getattr(self, n)) for n in ("mask", "offsets") if n in self.__fields__
        ]
        if parts:
            check_lanes(self, data, *parts)
        else:
            check_data(self, data.type)
        if (offsets := dict(parts).get("the offsets")) is not None:
            check_offsets(self, offsets.type)
        check_alignment(self, self.alignment)


@op_definition
class LoadOp(_Access):
    """`%v = mach.load %p {alignment = 64 : i64} : !llvm.ptr -> vector<16xf32>`; scalars and vectors
    alike.

    `invariant`: the memory does not change while the function runs. `nontemporal`: not worth a
    place in the cache.
    """

    name = "mach.load"
    pointer: Operand = Operand(PtrConstraint)
    result: Result[Attribute] = Result()
    volatile: Flag = Flag()
    nontemporal: Flag = Flag()
    invariant: Flag = Flag()
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$pointer attr-dict `:` type($pointer) `->` type($result)"


@op_definition
class StoreOp(_Access):
    """`mach.store %v, %p {alignment = 64 : i64} : vector<16xf32>, !llvm.ptr`."""

    name = "mach.store"
    value: Operand = Operand()
    pointer: Operand = Operand(PtrConstraint)
    volatile: Flag = Flag()
    nontemporal: Flag = Flag()
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$value `,` $pointer attr-dict `:` type($value) `,` type($pointer)"


@op_definition
class MaskedLoadOp(_Access):
    """`%v = mach.masked_load %p, %mask, %passthru : !llvm.ptr, vector<16xi1> -> vector<16xf32>`.

    Lane i reads the element i after `p`; lanes off give `passthru`.
    """

    name = "mach.masked_load"
    T: ClassVar = VarConstraint("T", base(VectorType))
    pointer: Operand = Operand(PtrConstraint)
    mask: Operand[VectorType] = Operand(VectorType.constr(i1))
    passthru: Operand = Operand(T)
    result = Inferred(T, "passthru")
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$pointer `,` $mask `,` $passthru attr-dict "
        "`:` type($pointer) `,` type($mask) `->` type($result)"
    )


@op_definition
class MaskedStoreOp(_Access):
    """`mach.masked_store %v, %p, %mask : vector<16xf32>, !llvm.ptr, vector<16xi1>`."""

    name = "mach.masked_store"
    value: Operand[VectorType] = Operand(VectorType)
    pointer: Operand = Operand(PtrConstraint)
    mask: Operand[VectorType] = Operand(VectorType.constr(i1))
    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$value `,` $pointer `,` $mask attr-dict "
        "`:` type($value) `,` type($pointer) `,` type($mask)"
    )


_Offsets = VectorType.constr(base(IndexType) | base(IntegerType))


@op_definition
class GatherOp(_Access):
    """`%v = mach.gather %p, %offsets, %mask, %passthru : !llvm.ptr, vector<16xi32>, vector<16xi1>
    -> vector<16xf32>`.

    Lane i reads at `p + offsets[i]` bytes, the offset signed.
    """

    name = "mach.gather"
    T: ClassVar = VarConstraint("T", base(VectorType))
    pointer: Operand = Operand(PtrConstraint)
    offsets: Operand = Operand(_Offsets)
    mask: Operand[VectorType] = Operand(VectorType.constr(i1))
    passthru: Operand = Operand(T)
    result = Inferred(T, "passthru")
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$pointer `,` $offsets `,` $mask `,` $passthru attr-dict "
        "`:` type($pointer) `,` type($offsets) `,` type($mask) `->` type($result)"
    )


@op_definition
class ScatterOp(_Access):
    """`mach.scatter %v, %p, %offsets, %mask : vector<16xf32>, !llvm.ptr, vector<16xi32>,
    vector<16xi1>`.

    Lanes that hit the same address store in lane order: the highest lane's value stays.
    """

    name = "mach.scatter"
    value: Operand[VectorType] = Operand(VectorType)
    pointer: Operand = Operand(PtrConstraint)
    offsets: Operand = Operand(_Offsets)
    mask: Operand[VectorType] = Operand(VectorType.constr(i1))
    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$value `,` $pointer `,` $offsets `,` $mask attr-dict "
        "`:` type($value) `,` type($pointer) `,` type($offsets) `,` type($mask)"
    )


@op_definition
class PrefetchOp(Op):
    """`mach.prefetch %p {locality = 3 : i64} : !llvm.ptr`, with `write` when the line will be
    written.

    locality 3 = all cache levels, 2 = not the first, 1 = last level, 0 = streaming.
    """

    name = "mach.prefetch"
    pointer: Operand = Operand(PtrConstraint)
    locality: Int = Int(default=3)
    write: Flag = Flag()
    assembly_format = "$pointer attr-dict `:` type($pointer)"
    traits = traits_def(Acts(CACHES))

    def verify_(self) -> None:
        if not 0 <= self.locality <= 3:
            raise VerifyException(f"mach.prefetch: locality {self.locality} is not in 0..3")


@op_definition
class MaskFirstOp(Op):
    """`%m = mach.mask_first %n : vector<16xi1>`: lane i is on when i < n (n signed)."""

    name = "mach.mask_first"
    count: Operand[IndexType] = Operand(IndexType)
    result: Result[VectorType] = Result(VectorType.constr(i1))
    traits = traits_def(Pure())
    assembly_format = "$count attr-dict `:` type($result)"

    def __init__(self, count: Value, lanes: int):
        super().__init__(count, result=VectorType(i1, [lanes]))

    def verify_(self) -> None:
        lanes(self, self.result.type, "the mask")
