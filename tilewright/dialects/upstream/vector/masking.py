"""vector: mask, and the yield of its region."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsTerminator, Pure, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_names, parse_type_list, say, typed
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.vector.compute import ContractionOp, MultiReductionOp
from tilewright.dialects.upstream.vector.memory import GatherOp
from tilewright.dialects.upstream.vector.products import OuterProductOp


def _transfer(op: Any) -> VectorType:
    moved = vector_type(op.vector if isinstance(op, vector.TransferWriteOp) else op.result)
    return vector.VectorTransferOperation.infer_transfer_op_mask_type(
        moved, op.permutation_map.data
    )


MASKED: Mapping[type[Operation], Callable[[Any], Attribute]] = {
    vector.TransferReadOp: _transfer,
    vector.TransferWriteOp: _transfer,
    vector.ReductionOp: lambda op: op.vector.type,
    MultiReductionOp: lambda op: op.source.type,
    GatherOp: lambda op: op.results[0].type,
    OuterProductOp: lambda op: op.result.type,
    ContractionOp: lambda op: VectorType(i1, op.iterations),
}
"""The ops that a mask may stand around: what has the shape of their masks."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """`vector.yield %v : vector<8xf32>`: what a masked region gives."""

    name = "vector.yield"

    arguments = var_operand_def()

    traits = traits_def(IsTerminator(), Pure())

    assembly_format = "attr-dict ($arguments^ `:` type($arguments))?"

    def verify_(self) -> None:
        HasParent(MaskOp).verify(self)


@irdl_op_definition
class MaskOp(IRDLOperation):
    """`%r = vector.mask %m, %other { vector.transfer_read .. } : vector<8xi1> -> vector<8xf32>`: an op on those
    elements alone where the mask is true.

    What the others are: %other where it is given, else the padding of a read, what a gather passes through, the
    accumulator of an outer product (0 without one). To a reduction or a contraction they add nothing.
    """

    name = "vector.mask"

    mask = operand_def(VectorType)
    passthru = opt_operand_def(VectorType)
    region = region_def("single_block")
    res = var_result_def()

    traits = traits_def(RecursiveMemoryEffect())

    @property
    def yielded(self) -> YieldOp:
        last = self.region.block.last_op
        assert isinstance(last, YieldOp)
        return last

    @property
    def masked(self) -> Operation | None:
        """The op that is masked; None in a region that only yields."""
        first = self.region.block.first_op
        return None if first is self.yielded else first

    def verify_(self) -> None:
        ops = list(self.region.block.ops)
        if not ops or not isinstance(ops[-1], YieldOp):
            raise VerifyException("expects a terminator within the mask region")
        if len(ops) > 2:
            raise VerifyException("expects only one operation to mask")
        given = [v.type for v in self.res]
        if [v.type for v in self.yielded.arguments] != given:
            raise VerifyException("expects the results of the op to be what its region yields")
        if self.passthru is not None and [self.passthru.type] != given:
            raise VerifyException("expects a passthru of the result's type")
        if (op := self.masked) is None:
            return
        if (shape := MASKED.get(type(op))) is None:
            raise VerifyException(f"expects a maskable operation, got {op.name}")
        if [*op.results] != [*self.yielded.arguments]:
            raise VerifyException("expects to yield what the masked operation gives")
        whole = shape(op)
        assert isinstance(whole, VectorType)
        wanted = VectorType(i1, whole.get_shape())
        if self.mask.type != wanted:
            raise VerifyException(f"expects a mask of {wanted} for {op.name}, got {self.mask.type}")
        if self.passthru is not None and not isinstance(op, (vector.TransferReadOp, GatherOp)):
            raise VerifyException(f"{op.name} passes nothing through")

    @classmethod
    def parse(cls, parser: Parser) -> MaskOp:
        pos = parser.pos
        operands = parse_names(parser)
        region = parser.parse_region()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        mask = parser.parse_type()
        results: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            results = parse_type_list(parser)
        if len(operands) > 1 + len(results[:1]):
            parser.raise_error("expected a mask, and perhaps what passes through", pos)
        _end(region)
        values = parser.resolve_operands(operands, [mask, *results[:1]][: len(operands)], pos)
        return cls.build(
            operands=[values[0], values[1:]],
            regions=[region],
            attributes=attributes,
            result_types=[results],
        )

    def print(self, printer: Printer) -> None:
        say(printer, " ", self.operands, " ")
        printer.print_region(
            self.region, print_entry_block_args=False, print_block_terminators=self.masked is None
        )
        printer.print_op_attributes(self.attributes)
        say(printer, " : ", self.mask.type, *((" -> ", typed(self.res)) if self.res else ()))


def _end(region: Region) -> None:
    """What the one op of a region gives is yielded, where the text does not say so."""
    if not region.blocks:
        region.add_block(Block())
    last = region.block.last_op
    if not isinstance(last, YieldOp):
        region.block.add_op(YieldOp.build(operands=[[] if last is None else [*last.results]]))
