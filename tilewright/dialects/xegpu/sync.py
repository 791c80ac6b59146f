"""Named barriers, fences, and the scheduling barrier `compile_hint`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, IntegerType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure

from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_matrix as rules
from tilewright.dialects.xegpu.attrs import (
    FenceOpFlush,
    FenceOpFlushAttr,
    FenceScope,
    FenceScopeAttr,
    MemorySpace,
    MemorySpaceAttr,
)
from tilewright.dialects.xegpu.types import NbarrierType

Value = SSAValue | Operation


@irdl_op_definition
class AllocNbarrierOp(IRDLOperation):
    """Sets aside named barriers 0 .. n-1 of the workgroup (RFC: alloc_nbarrier).

    ```mlir
    xegpu.alloc_nbarrier 8
    xegpu.alloc_nbarrier %n : i8
    ```
    """

    name = "xegpu.alloc_nbarrier"

    total = opt_operand_def(IntegerType)
    nbarrier_num = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryWriteEffect())

    def __init__(self, count: int):
        super().__init__(operands=[None], properties={"nbarrier_num": IntegerAttr(count, i64)})

    @property
    def count(self) -> int | None:
        """The number of barriers, when the text says it."""
        return None if self.nbarrier_num is None else self.nbarrier_num.value.data

    def verify_(self) -> None:
        rules.verify_alloc_nbarrier(self)

    @classmethod
    def parse(cls, parser: Parser) -> AllocNbarrierOp:
        operand = parser.parse_optional_unresolved_operand()
        if operand is None:
            count = parser.parse_integer(allow_boolean=False)
            if parser.parse_optional_punctuation(":") is not None:
                parser.parse_type()
            attrs = assembly.parse_attr_dict(parser)
            return cls.build(
                operands=[[]],
                properties={"nbarrier_num": IntegerAttr(max(-1, min(count, 2**63 - 1)), i64)},
                attributes=attrs.named,
            )
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":")
        type = assembly.parse_type(parser)
        return cls.build(operands=[[parser.resolve_operand(operand, type)]], attributes=attrs.named)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        if self.total is None:
            printer.print_string(str(self.count))
            assembly.print_attr_dict(printer, self.attributes)
            return
        printer.print_operand(self.total)
        assembly.print_attr_dict(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.total.type)


@irdl_op_definition
class InitNbarrierOp(IRDLOperation):
    """Binds to the named barrier `id`, in which `count` subgroups take part (RFC: init_nbarrier).

    ```mlir
    %b = xegpu.init_nbarrier %id, %count : i8, i8 -> !xegpu.nbarrier
    ```
    """

    name = "xegpu.init_nbarrier"

    nbarrier_id = operand_def(IntegerType)
    participant_thread_num = operand_def(IntegerType)
    result = result_def(NbarrierType)

    traits = traits_def(Pure())

    def __init__(self, nbarrier_id: Value, participant_thread_num: Value):
        super().__init__(
            operands=[nbarrier_id, participant_thread_num], result_types=[NbarrierType()]
        )

    def verify_(self) -> None:
        rules.verify_init_nbarrier(self)

    @classmethod
    def parse(cls, parser: Parser) -> InitNbarrierOp:
        text = assembly.parse_op(parser, results=True)
        result = assembly.one_result(parser, text)
        assembly.no_bare(parser, text)
        values = text.resolve(parser)
        if len(values) != 2 or text.indices is not None:
            parser.raise_error("expected the barrier's id and the number of participants")
        return cls.build(operands=values, attributes=text.attrs.named, result_types=[result])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self, self.operands)


class NbarrierUse(IRDLOperation):
    """An op on one named barrier."""

    nbarrier = operand_def(NbarrierType)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser):
        operand = parser.parse_unresolved_operand()
        attrs = assembly.parse_attr_dict(parser)
        type: Attribute = NbarrierType()
        if parser.parse_optional_punctuation(":") is not None:  # the RFC leaves the type out
            type = assembly.parse_type(parser)
        return cls.build(operands=[parser.resolve_operand(operand, type)], attributes=attrs.named)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.nbarrier)
        assembly.print_attr_dict(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.nbarrier.type)


@irdl_op_definition
class NbarrierArriveOp(NbarrierUse):
    """Tells the participants that this subgroup has arrived, without waiting (RFC: nbarrier_arrive)."""

    name = "xegpu.nbarrier_arrive"

    def __init__(self, nbarrier: Value):
        super().__init__(operands=[nbarrier])


@irdl_op_definition
class NbarrierWaitOp(NbarrierUse):
    """Waits until all participants have arrived (RFC: nbarrier_wait)."""

    name = "xegpu.nbarrier_wait"

    def __init__(self, nbarrier: Value):
        super().__init__(operands=[nbarrier])


@irdl_op_definition
class FenceOp(IRDLOperation):
    """Orders the memory accesses before it and those after it, for observers in its scope (RFC: fence).

    ```mlir
    xegpu.fence memory_kind = global, fence_scope = workgroup
    ```
    """

    name = "xegpu.fence"

    memory_kind = prop_def(MemorySpaceAttr)
    fence_scope = prop_def(FenceScopeAttr)
    fence_op_flush = opt_prop_def(FenceOpFlushAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(
        self,
        memory_kind: MemorySpace | str,
        fence_scope: FenceScope | str,
        fence_op_flush: FenceOpFlush | str | None = None,
    ):
        flush = None if fence_op_flush is None else FenceOpFlushAttr(fence_op_flush)
        super().__init__(
            properties={
                "memory_kind": MemorySpaceAttr(memory_kind),
                "fence_scope": FenceScopeAttr(fence_scope),
                "fence_op_flush": flush,
            }
        )

    @classmethod
    def parse(cls, parser: Parser) -> FenceOp:
        attrs = assembly.AttrDict()
        if parser.parse_optional_punctuation("{") is not None:
            while parser.parse_optional_punctuation("}") is None:
                assembly.parse_entry(parser, attrs)
                parser.parse_optional_punctuation(",")
        else:
            assembly.parse_entry(parser, attrs)
            while parser.parse_optional_punctuation(",") is not None:
                assembly.parse_entry(parser, attrs)
        assembly.parse_attr_dict(parser, attrs)
        properties, attributes = attrs.split(cls)
        for name in ("memory_kind", "fence_scope"):
            if name not in properties:
                parser.raise_error(f"expected {name}")
        return cls.build(properties=properties, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" memory_kind = {self.memory_kind.data.value}")
        printer.print_string(f", fence_scope = {self.fence_scope.data.value}")
        if self.fence_op_flush is not None:
            printer.print_string(f", fence_op_flush = {self.fence_op_flush.data.value}")
        assembly.print_attr_dict(printer, self.attributes)


@irdl_op_definition
class CompileHintOp(IRDLOperation):
    """Asks the compiler to schedule nothing across this point."""

    name = "xegpu.compile_hint"

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(self):
        super().__init__()

    @classmethod
    def parse(cls, parser: Parser) -> CompileHintOp:
        return cls.build(attributes=assembly.parse_attr_dict(parser).named)

    def print(self, printer: Printer) -> None:
        assembly.print_attr_dict(printer, self.attributes)
