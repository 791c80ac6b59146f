"""gpu: device memory, asynchronous tokens, address spaces."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, MemRefType
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.attribute_fields import Angled
from tilewright.dialects.directives import Async
from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import Op, Operand, Operands, OptResult, Result, op_definition
from tilewright.dialects.upstream.complete import (
    OpClass,
    add_attributes,
    add_ops,
    set_format,
    set_verifier,
)
from tilewright.dialects.upstream.memref import alike

_ASYNC = "custom<Async>(type($asyncToken), $asyncDependencies)"


def _verify_memcpy(op: gpu.MemcpyOp) -> None:
    """As in MLIR, memory spaces and layouts may differ."""
    source, target = op.src.type, op.dst.type
    assert isinstance(source, MemRefType) and isinstance(target, MemRefType)
    if source.element_type != target.element_type:
        raise VerifyException("arguments have incompatible element type")
    if not alike(source, target):
        raise VerifyException("arguments have incompatible shape")


@op_definition
class MemsetOp(Op):
    """`gpu.memset async [%t] %buffer, %value : memref<8xf32>, f32`."""

    name = "gpu.memset"
    asyncDependencies: Operands[gpu.AsyncTokenType] = Operands(gpu.AsyncTokenType)
    dst: Operand[MemRefType] = Operand(MemRefType)
    value: Operand = Operand()
    asyncToken: OptResult = OptResult(gpu.AsyncTokenType)
    traits = traits_def(Writes("dst"))
    assembly_format = f"{_ASYNC} $dst `,` $value attr-dict `:` type($dst) `,` type($value)"
    custom_directives = (Async,)


@op_definition
class DynamicSharedMemoryOp(Op):
    """`gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>`."""

    name = "gpu.dynamic_shared_memory"
    resultMemref: Result[MemRefType] = Result(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($resultMemref)"


class AddressSpace(StrEnum):
    """Memory spaces of MLIR's gpu dialect."""

    GLOBAL = "global"
    WORKGROUP = "workgroup"
    PRIVATE = "private"
    CONSTANT = "constant"


SHARED_MEMORY = 3
"""The number by which XeTile and XeGPU programs name memory that a workgroup shares."""


@irdl_attr_definition
class AddressSpaceAttr(Angled, EnumAttribute[AddressSpace]):
    """`#gpu.address_space<workgroup>`."""

    name = "gpu.address_space"


def memory_space_number(kind: MemRefType) -> int:
    """0 for global memory, 3 for memory that a workgroup shares, other numbers as written."""
    space = kind.memory_space
    if isinstance(space, IntegerAttr):
        return space.value.data
    return SHARED_MEMORY if space == AddressSpaceAttr(AddressSpace.WORKGROUP) else 0


def is_shared(kind: Attribute) -> bool:
    """Does a memref of this type lie in memory that its workgroup shares?"""
    return isinstance(kind, MemRefType) and memory_space_number(kind) == SHARED_MEMORY


_FORMATS: tuple[tuple[OpClass, str], ...] = (
    (
        gpu.AllocOp,
        "(`host_shared` $hostShared^)? ` ` `(` $dynamicSizes `)` (`[` $symbolOperands^ `]`)? attr-dict "
        "`:` type($result)",
    ),
    (gpu.DeallocOp, "$buffer attr-dict `:` type($buffer)"),
    (gpu.MemcpyOp, "$dst `,` $src attr-dict `:` type($dst) `,` type($src)"),
    (gpu.WaitOp, "attr-dict"),
)


def complete() -> None:
    for op, rest in _FORMATS:
        set_format(f"{_ASYNC} {rest}", op, using=(Async,))
    set_verifier(gpu.MemcpyOp, _verify_memcpy)
    add_ops(gpu.GPU, (MemsetOp, DynamicSharedMemoryOp))
    add_attributes(gpu.GPU, (AddressSpaceAttr,))
