"""Named barriers, fences, and the scheduling barrier `compile_hint`."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, IntegerType, i64
from xdsl.ir import Attribute
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure

from tilewright.dialects.fields import (
    Inferred,
    Op,
    Operand,
    OptInt,
    OptOperand,
    OptProp,
    Property,
    op_definition,
)
from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_matrix as rules
from tilewright.dialects.xegpu.attrs import FenceOpFlushAttr, FenceScopeAttr, MemorySpaceAttr
from tilewright.dialects.xegpu.types import NbarrierType
from tilewright.dialects.xetile.assembly import AttrDict


@op_definition
class AllocNbarrierOp(Op):
    """Sets aside named barriers 0 .. n-1 of the workgroup (RFC: alloc_nbarrier).

    ```mlir
    xegpu.alloc_nbarrier 8
    xegpu.alloc_nbarrier %n : i8
    ```
    """

    name = "xegpu.alloc_nbarrier"

    total: OptOperand[IntegerType] = OptOperand(IntegerType, default=None)
    nbarrier_num: OptInt = OptInt()

    traits = traits_def(MemoryWriteEffect())

    def __init__(self, count: int):
        super().__init__(nbarrier_num=count)

    @property
    def count(self) -> int | None:
        """The number of barriers, when the text says it."""
        return self.nbarrier_num

    CHECK = rules.verify_alloc_nbarrier

    @classmethod
    def parse(cls, parser: Parser) -> AllocNbarrierOp:
        operand = parser.parse_optional_unresolved_operand()
        if operand is None:
            count = parser.parse_integer(allow_boolean=False)
            if parser.parse_optional_punctuation(":") is not None:
                parser.parse_type()
            attrs = assembly.parse_attr_dict(parser)
            number = IntegerAttr(max(-1, min(count, 2**63 - 1)), i64)
            return attrs.build(cls, [[]], properties={"nbarrier_num": number})
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":")
        type = assembly.parse_type(parser)
        return attrs.build(cls, [parser.resolve_operand(operand, type)])

    def print(self, printer: Printer) -> None:
        if self.total is not None:
            assembly.print_op(printer, self)
            return
        printer.print_string(f" {self.count}")
        assembly.print_attr_dict(printer, self.attributes)


@op_definition
class InitNbarrierOp(assembly.PlainOp):
    """Binds to the named barrier `id`, in which `count` subgroups take part (RFC: init_nbarrier).

    ```mlir
    %b = xegpu.init_nbarrier %id, %count : i8, i8 -> !xegpu.nbarrier
    ```
    """

    name = "xegpu.init_nbarrier"

    EXPECTS: ClassVar = "the barrier's id and the number of participants"
    nbarrier_id: Operand[IntegerType] = Operand(IntegerType(8))
    participant_thread_num: Operand[IntegerType] = Operand(IntegerType(8))
    result = Inferred(NbarrierType)

    traits = traits_def(Pure())


class NbarrierUse(Op):
    """An op on one named barrier."""

    nbarrier: Operand[NbarrierType] = Operand(NbarrierType)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser):
        operand = parser.parse_unresolved_operand()
        attrs = assembly.parse_attr_dict(parser)
        type: Attribute = NbarrierType()
        if parser.parse_optional_punctuation(":") is not None:  # the RFC leaves the type out
            type = assembly.parse_type(parser)
        return attrs.build(cls, [parser.resolve_operand(operand, type)])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self)


@op_definition
class NbarrierArriveOp(NbarrierUse):
    """Tells the participants that this subgroup has arrived, without waiting (RFC: nbarrier_arrive)."""

    name = "xegpu.nbarrier_arrive"


@op_definition
class NbarrierWaitOp(NbarrierUse):
    """Waits until all participants have arrived (RFC: nbarrier_wait)."""

    name = "xegpu.nbarrier_wait"


@op_definition
class FenceOp(Op):
    """Orders the memory accesses before it and those after it, for observers in its scope (RFC: fence).

    ```mlir
    xegpu.fence memory_kind = global, fence_scope = workgroup
    ```
    """

    name = "xegpu.fence"

    memory_kind: Property[MemorySpaceAttr, str] = Property(MemorySpaceAttr, MemorySpaceAttr)
    fence_scope: Property[FenceScopeAttr, str] = Property(FenceScopeAttr, FenceScopeAttr)
    fence_op_flush: OptProp[FenceOpFlushAttr] = OptProp(FenceOpFlushAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser) -> FenceOp:
        attrs = AttrDict()
        if parser.parse_optional_punctuation("{") is not None:
            while parser.parse_optional_punctuation("}") is None:
                assembly.parse_entry(parser, attrs)
                parser.parse_optional_punctuation(",")
        else:
            assembly.parse_entry(parser, attrs)
            while parser.parse_optional_punctuation(",") is not None:
                assembly.parse_entry(parser, attrs)
        assembly.parse_attr_dict(parser, attrs)
        for name in ("memory_kind", "fence_scope"):
            if name not in attrs.named:
                parser.raise_error(f"expected {name}")
        return attrs.build(cls, [])

    def print(self, printer: Printer) -> None:
        names = ("memory_kind", "fence_scope", "fence_op_flush")
        held = [(name, getattr(self, name)) for name in names]
        said = [f"{name} = {each.data.value}" for name, each in held if each is not None]
        printer.print_string(f" {', '.join(said)}")
        assembly.print_attr_dict(printer, self.attributes)


@op_definition
class CompileHintOp(Op):
    """Asks the compiler to schedule nothing across this point."""

    name = "xegpu.compile_hint"

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"
