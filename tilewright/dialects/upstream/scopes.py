"""memref: ops that are read as what others say as well, in a region that gives their results.

%b = memref.realloc %a(%n) : ..      ->      %b = scf.execute_region -> memref<?xf32> {
                                               %c = memref.alloc(%n) ; memref.copy ; memref.dealloc %a
                                               scf.yield %c : memref<?xf32>
                                             }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    IndexType,
    IntegerAttr,
    MemRefType,
    StridedLayoutAttr,
)
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.rewriter import Rewriter
from xdsl.traits import IsTerminator, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_names, parse_result_types
from tilewright.dialects.fields import (
    Op,
    Operand,
    Operands,
    OptProp,
    Result,
    Results,
    op_definition,
)
from tilewright.dialects.upstream.complete import add_ops, set_custom, set_format
from tilewright.dialects.upstream.memref import in_rows


def _read_as_others(kind: Any) -> None:
    """Let an op be read as its `meaning`: ops, and the results of these that are its own."""
    parse, create = kind.parse, kind.create

    def becomes(op: Any) -> Operation:
        op.verify(verify_nested_ops=False)
        inside, results = op.meaning()
        made = scf.ExecuteRegionOp.build(
            regions=[Region(Block([*inside, scf.YieldOp(*results)]))],
            result_types=[[r.type for r in op.results]],
        )
        op.erase()
        return made

    set_custom(kind, lambda _, parser: becomes(parse(parser)), kind.print)
    kind.create = classmethod(lambda _, **given: becomes(create(**given)))


@op_definition
class DistinctObjectsOp(Op):
    """`%1, %2 = memref.distinct_objects %a, %b : memref<8xf32>, memref<8xf32>`: arrays that share nothing."""

    name = "memref.distinct_objects"
    arrays: Operands[MemRefType] = Operands(MemRefType)
    same: Results[MemRefType] = Results(MemRefType)
    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> DistinctObjectsOp:
        names, at = parse_names(parser), parser.pos
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.build(operands=[parser.resolve_operands(names, types, at)], result_types=[types])

    def verify_(self) -> None:
        if not self.arrays or [*self.arrays.types] != [*self.same.types]:
            raise VerifyException("expected arrays, and results of the same types")

    def meaning(self) -> tuple[Sequence[Operation], Sequence[SSAValue]]:
        return [], self.arrays


@op_definition
class ReallocOp(Op):
    """`%b = memref.realloc %a(%n) : memref<?xf32> to memref<?xf32>`: another row, which begins with what there was."""

    name = "memref.realloc"
    source: Operand[MemRefType] = Operand(MemRefType)
    size: Operands[IndexType] = Operands(IndexType)
    result: Result[MemRefType] = Result(MemRefType)
    alignment: OptProp[IntegerAttr] = OptProp(IntegerAttr)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$source (`(` $size^ `)`)? attr-dict `:` type($source) `to` type($result)"

    def verify_(self) -> None:
        source, result = self.source.type, self.result.type
        if len(source.get_shape()) != 1 or len(result.get_shape()) != 1:
            raise VerifyException("expected rows: arrays of one dimension")
        if source.element_type != result.element_type or source.memory_space != result.memory_space:
            raise VerifyException(f"expected elements and memory of {source}, got {result}")
        if not (in_rows(source) and in_rows(result)):
            raise VerifyException("expected arrays without a layout")
        if len(self.size) != (result.get_shape()[0] == DYNAMIC_INDEX):
            raise VerifyException(f"expected a size exactly where {result} leaves it open")

    def meaning(self) -> tuple[Sequence[Operation], Sequence[SSAValue]]:
        kind, part = self.result.type, self.source.type.element_type
        zero = arith.ConstantOp.from_int_and_width(0, IndexType())
        had = memref.DimOp(self.source, zero)
        made = memref.AllocOp.get(
            part, self.alignment, kind.get_shape(), self.size, memory_space=kind.memory_space
        )
        has = memref.DimOp(made, zero)
        kept = arith.MinUIOp(had.result, has.result)
        space = kind.memory_space
        row = MemRefType(part, [DYNAMIC_INDEX], StridedLayoutAttr([1], 0), space)
        parts = [
            memref.SubviewOp.get(whole, [0], [kept.result], [1], row)
            for whole in (self.source, made.results[0])
        ]
        copied = memref.CopyOp(*parts)
        released = memref.DeallocOp.get(self.source)
        return [zero, had, made, has, kept, *parts, copied, released], made.results


def _parse_alloca_scope(_: Any, parser: Parser) -> Operation:
    """`memref.alloca_scope -> (f32) {..}`: what its region does, where it stands; memory is released further out."""
    types = parse_result_types(parser)
    region = parser.parse_region()
    for block in region.blocks:
        last = block.last_op
        if isinstance(last, memref.AllocaScopeReturnOp):
            Rewriter.replace_op(last, scf.YieldOp(*last.ops), [])
        elif last is None or not last.has_trait(IsTerminator):
            block.add_op(scf.YieldOp())
    return scf.ExecuteRegionOp.build(regions=[region], result_types=[types])


def complete() -> None:
    set_format("attr-dict ($ops^ `:` type($ops))?", memref.AllocaScopeReturnOp)
    set_custom(memref.AllocaScopeOp, _parse_alloca_scope, memref.AllocaScopeOp.print)
    add_ops(memref.MemRef, (DistinctObjectsOp, ReallocOp))
    for each in (DistinctObjectsOp, ReallocOp):
        _read_as_others(each)
