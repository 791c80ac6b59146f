"""Transfers from one memory to another, `dma_start` and `dma_wait` of memref and of affine.

Their generic form is MLIR's, which does not say how many operands are subscripts: ranks, or maps, tell it.

    "memref.dma_start"(%s, %i, %d, %j, %n, %tag, %z) : (memref<8xf32>, index, memref<4xf32, 1>, index, index, ..) -> ()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from xdsl.dialects import affine, memref
from xdsl.dialects.builtin import AffineMapAttr, DenseArrayBase, IndexType, MemRefType, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, traits_def
from xdsl.traits import MemoryReadEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import ORDER, Acts, Writes
from tilewright.dialects.fields import Op, Operand, Operands, Prop, op_definition
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.affine import Subscripts, verify_subscripts
from tilewright.dialects.upstream.complete import add_ops, replace_ops

_SIZES = AttrSizedOperandSegments.attribute_name


class _Plain(Op):
    """What has no properties in MLIR."""

    GENERIC_AS_ATTRIBUTES: ClassVar[bool] = True


class _Transfer(_Plain):
    """Two arrays and a tag, subscripts of each, how many elements there are, and what rows are."""

    MAPS: ClassVar[Sequence[str]] = ()

    @classmethod
    def create(
        cls, *, operands: Sequence[SSAValue] = (), properties: Mapping[str, Attribute] = {}, **rest: Any
    ) -> Any:  # fmt: skip
        held = dict(properties)
        if _SIZES not in held:
            held[_SIZES] = DenseArrayBase.from_list(i32, cls._sizes(operands, held))
        return super().create(operands=operands, properties=held, **rest)

    @classmethod
    def _sizes(cls, operands: Sequence[SSAValue], held: Mapping[str, Attribute]) -> list[int]:
        """The number of operands of each group: an array and its subscripts, the count, and what is left."""
        arrays = [memref_type(v) for v in operands if isinstance(v.type, MemRefType)]
        if len(arrays) != 3:
            raise VerifyException(f"expected two arrays and a tag, got {len(arrays)}")
        subscripts = [array.get_num_dims() for array in arrays]
        for n, name in enumerate(cls.MAPS):
            if isinstance(map_ := held.get(name), AffineMapAttr):
                subscripts[n] = map_.data.num_dims + map_.data.num_symbols
        found = [size for count in subscripts for size in (1, count)]
        found.insert([name for name, _ in cls.get_irdl_definition().operands].index("count"), 1)
        return [*found, max(0, len(operands) - sum(found))]


def _verify_arrays(source: MemRefType, target: MemRefType, rows: Sequence[Any]) -> None:
    """Of both dialects that have transfers from one memory to another."""
    if source.element_type != target.element_type:
        raise VerifyException("expected arrays of the same elements")
    if len(rows) not in (0, 2):
        raise VerifyException("expected a stride and the number of elements of a row, or neither")


def _verify_places(memory: SSAValue, indices: Sequence[SSAValue]) -> None:
    rank = memref_type(memory).get_num_dims()
    if len(indices) != rank:
        raise VerifyException(f"expected {rank} subscripts")


@op_definition
class StartOp(_Transfer):
    """`memref.dma_start %s[%i, %j], %d[%k], %n, %tag[%z], %step, %row : memref<4x8xf32>, memref<9xf32, 1>, ..`.

    What affine.dma_start becomes by MLIR's lower-affine, with the same meaning.
    """

    name = "memref.dma_start"
    source: Operand[MemRefType] = Operand(MemRefType)
    source_indices: Operands[IndexType] = Operands(IndexType)
    target: Operand[MemRefType] = Operand(MemRefType)
    target_indices: Operands[IndexType] = Operands(IndexType)
    count: Operand[IndexType] = Operand(IndexType)
    tag: Operand[MemRefType] = Operand(MemRefType)
    tag_indices: Operands[IndexType] = Operands(IndexType)
    rows: Operands[IndexType] = Operands(IndexType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect(), Writes("target"))
    assembly_format = (
        "$source `[` $source_indices `]` `,` $target `[` $target_indices `]` `,` $count `,` "
        "$tag `[` $tag_indices `]` (`,` $rows^)? attr-dict `:` type($source) `,` type($target) `,` type($tag)"
    )

    def verify_(self) -> None:
        _verify_places(self.source, self.source_indices)
        _verify_places(self.target, self.target_indices)
        _verify_places(self.tag, self.tag_indices)
        _verify_arrays(self.source.type, self.target.type, self.rows)


@op_definition
class WaitOp(Op):
    """`memref.dma_wait %tag[%z], %n : memref<1xi32>`."""

    name = "memref.dma_wait"
    tag: Operand[MemRefType] = Operand(MemRefType)
    tag_indices: Operands[IndexType] = Operands(IndexType)
    count: Operand[IndexType] = Operand(IndexType)
    traits = traits_def(Acts(ORDER))
    assembly_format = "$tag `[` $tag_indices `]` `,` $count attr-dict `:` type($tag)"

    def verify_(self) -> None:
        _verify_places(self.tag, self.tag_indices)


@op_definition
class AffineStartOp(_Transfer):
    """`affine.dma_start %s[%i, 0], %d[0], %tag[0], %n, %step, %row : memref<4x8xf32>, memref<9xf32, 1>, memref<1xi32>`.

    n elements go from one array to another, row after row; `row` of them every `step` elements of the slower memory,
    that of the lower number. Here the elements are there at once, and `affine.dma_wait` waits for nothing.
    """

    name = "affine.dma_start"
    MAPS: ClassVar[Sequence[str]] = ("src_map", "dst_map", "tag_map")
    source: Operand[MemRefType] = Operand(MemRefType)
    source_indices: Operands[IndexType] = Operands(IndexType)
    target: Operand[MemRefType] = Operand(MemRefType)
    target_indices: Operands[IndexType] = Operands(IndexType)
    tag: Operand[MemRefType] = Operand(MemRefType)
    tag_indices: Operands[IndexType] = Operands(IndexType)
    count: Operand[IndexType] = Operand(IndexType)
    rows: Operands[IndexType] = Operands(IndexType)
    src_map: Prop[AffineMapAttr] = Prop(AffineMapAttr)
    dst_map: Prop[AffineMapAttr] = Prop(AffineMapAttr)
    tag_map: Prop[AffineMapAttr] = Prop(AffineMapAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    custom_directives = (Subscripts,)
    traits = traits_def(MemoryReadEffect(), Writes("target"))
    assembly_format = (
        "$source `` custom<Subscripts>($src_map, $source_indices) `,` "
        "$target `` custom<Subscripts>($dst_map, $target_indices) `,` "
        "$tag `` custom<Subscripts>($tag_map, $tag_indices) `,` $count (`,` $rows^)? "
        "attr-dict `:` type($source) `,` type($target) `,` type($tag)"
    )

    def verify_(self) -> None:
        verify_subscripts(self.source, self.src_map, self.source_indices)
        verify_subscripts(self.target, self.dst_map, self.target_indices)
        verify_subscripts(self.tag, self.tag_map, self.tag_indices)
        _verify_arrays(self.source.type, self.target.type, self.rows)


@op_definition
class AffineWaitOp(_Plain):
    """`affine.dma_wait %tag[0], %n : memref<1xi32>`."""

    name = "affine.dma_wait"
    tag: Operand[MemRefType] = Operand(MemRefType)
    tag_indices: Operands[IndexType] = Operands(IndexType)
    count: Operand[IndexType] = Operand(IndexType)
    tag_map: Prop[AffineMapAttr] = Prop(AffineMapAttr)
    custom_directives = (Subscripts,)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$tag `` custom<Subscripts>($tag_map, $tag_indices) `,` $count attr-dict `:` type($tag)"
    )

    def verify_(self) -> None:
        verify_subscripts(self.tag, self.tag_map, self.tag_indices)


def complete() -> None:
    replace_ops(memref.MemRef, (StartOp, WaitOp))
    add_ops(affine.Affine, (AffineStartOp, AffineWaitOp))
