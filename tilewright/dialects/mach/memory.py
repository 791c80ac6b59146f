"""Memory: plain, masked and indexed access, prefetch, and lane masks."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    IntegerType,
    UnitAttr,
    VectorType,
    i1,
)
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
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import CACHES, Acts
from tilewright.dialects.mach.types import (
    PtrConstraint,
    Value,
    check_alignment,
    check_data,
    check_lanes,
    check_offsets,
    int_attr,
    lanes,
    unit_attr,
)


@irdl_op_definition
class LoadOp(IRDLOperation):
    """`%v = mach.load %p {alignment = 64 : i64} : !llvm.ptr -> vector<16xf32>`; scalars and vectors
    alike.

    `invariant`: the memory does not change while the function runs. `nontemporal`: not worth a
    place in the cache.
    """

    name = "mach.load"
    pointer = operand_def(PtrConstraint)
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
                "alignment": int_attr(alignment),
                "volatile": unit_attr(volatile),
                "nontemporal": unit_attr(nontemporal),
                "invariant": unit_attr(invariant),
            },
        )

    def verify_(self) -> None:
        check_data(self, self.result.type)
        check_alignment(self, self.alignment)


@irdl_op_definition
class StoreOp(IRDLOperation):
    """`mach.store %v, %p {alignment = 64 : i64} : vector<16xf32>, !llvm.ptr`."""

    name = "mach.store"
    value = operand_def()
    pointer = operand_def(PtrConstraint)
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
                "alignment": int_attr(alignment),
                "volatile": unit_attr(volatile),
                "nontemporal": unit_attr(nontemporal),
            },
        )

    def verify_(self) -> None:
        check_data(self, self.value.type)
        check_alignment(self, self.alignment)


@irdl_op_definition
class MaskedLoadOp(IRDLOperation):
    """`%v = mach.masked_load %p, %mask, %passthru : !llvm.ptr, vector<16xi1> -> vector<16xf32>`.

    Lane i reads the element i after `p`; lanes off give `passthru`.
    """

    name = "mach.masked_load"
    T: ClassVar = VarConstraint("T", base(VectorType))
    pointer = operand_def(PtrConstraint)
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
            properties={"alignment": int_attr(alignment)},
        )

    def verify_(self) -> None:
        check_lanes(self, self.result, ("the mask", self.mask))
        check_alignment(self, self.alignment)


@irdl_op_definition
class MaskedStoreOp(IRDLOperation):
    """`mach.masked_store %v, %p, %mask : vector<16xf32>, !llvm.ptr, vector<16xi1>`."""

    name = "mach.masked_store"
    value = operand_def(VectorType)
    pointer = operand_def(PtrConstraint)
    mask = operand_def(VectorType.constr(i1))
    alignment = opt_prop_def(IntegerAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$value `,` $pointer `,` $mask attr-dict "
        "`:` type($value) `,` type($pointer) `,` type($mask)"
    )

    def __init__(self, value: Value, pointer: Value, mask: Value, *, alignment: int | None = None):
        super().__init__(
            operands=[value, pointer, mask], properties={"alignment": int_attr(alignment)}
        )

    def verify_(self) -> None:
        check_lanes(self, self.value, ("the mask", self.mask))
        check_alignment(self, self.alignment)


_Offsets = VectorType.constr(base(IndexType) | base(IntegerType))


@irdl_op_definition
class GatherOp(IRDLOperation):
    """`%v = mach.gather %p, %offsets, %mask, %passthru : !llvm.ptr, vector<16xi32>, vector<16xi1>
    -> vector<16xf32>`.

    Lane i reads at `p + offsets[i]` bytes, the offset signed.
    """

    name = "mach.gather"
    T: ClassVar = VarConstraint("T", base(VectorType))
    pointer = operand_def(PtrConstraint)
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
            properties={"alignment": int_attr(alignment)},
        )

    def verify_(self) -> None:
        check_lanes(self, self.result, ("the mask", self.mask), ("the offsets", self.offsets))
        check_offsets(self, self.offsets.type)
        check_alignment(self, self.alignment)


@irdl_op_definition
class ScatterOp(IRDLOperation):
    """`mach.scatter %v, %p, %offsets, %mask : vector<16xf32>, !llvm.ptr, vector<16xi32>,
    vector<16xi1>`.

    Lanes that hit the same address store in lane order: the highest lane's value stays.
    """

    name = "mach.scatter"
    value = operand_def(VectorType)
    pointer = operand_def(PtrConstraint)
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
            operands=[value, pointer, offsets, mask], properties={"alignment": int_attr(alignment)}
        )

    def verify_(self) -> None:
        check_lanes(self, self.value, ("the mask", self.mask), ("the offsets", self.offsets))
        check_offsets(self, self.offsets.type)
        check_alignment(self, self.alignment)


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """`mach.prefetch %p {locality = 3 : i64} : !llvm.ptr`, with `write` when the line will be
    written.

    locality 3 = all cache levels, 2 = not the first, 1 = last level, 0 = streaming.
    """

    name = "mach.prefetch"
    pointer = operand_def(PtrConstraint)
    locality = prop_def(IntegerAttr)
    write = opt_prop_def(UnitAttr)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$pointer attr-dict `:` type($pointer)"
    traits = traits_def(Acts(CACHES))

    def __init__(self, pointer: Value, *, locality: int = 3, write: bool = False):
        super().__init__(
            operands=[pointer],
            properties={"locality": IntegerAttr(locality, 64), "write": unit_attr(write)},
        )

    def verify_(self) -> None:
        if not 0 <= self.locality.value.data <= 3:
            raise VerifyException(
                f"mach.prefetch: locality {self.locality.value.data} is not in 0..3"
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
        lanes(self, self.result.type, "the mask")
