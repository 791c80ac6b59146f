"""Atomic read-modify-write on scattered elements."""

from __future__ import annotations

from xdsl.ir import Attribute
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect

from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import Inferred, Operand, OptInt, OptOperand, Str, op_definition
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_scatter as rules
from tilewright.dialects.xegpu.scatter import ScatterAccess, ScatterText, value_and_mask
from tilewright.dialects.xetile.kinds import ATOMIC_KIND, parse_atomic_kind


@op_definition
class AtomicRMWOp(ScatterAccess):
    """Atomic read-modify-write, one address per lane; gives the old values (RFC: atomic_rmw).

    ```mlir
    %old = xegpu.atomic_rmw addf %t, %mask, %v
      : !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>, vector<16xi1>, vector<16xf32> -> vector<16xf32>
    %old = xegpu.atomic_rmw addf %base[%offsets], %mask, %v
      : memref<1024xf32>, vector<16xindex>, vector<16xi1>, vector<16xf32> -> vector<16xf32>
    ```
    The address form is ours: today's upstream text has no atomic. The kind is arith.AtomicRMWKind.
    """

    name = "xegpu.atomic_rmw"

    kind: Str = Str(*ATOMIC_KIND)
    source: Operand = Operand()
    offsets: OptOperand = OptOperand(default=None, kw_only=True)
    mask: Operand = Operand()
    value: Operand = Operand()
    chunk_size: OptInt = OptInt()
    result = Inferred(Attribute, "value")

    traits = traits_def(MemoryReadEffect(), Writes("source"))

    CHECK = rules.verify_atomic_rmw

    @classmethod
    def parse(cls, parser: Parser) -> AtomicRMWOp:
        named = parse_atomic_kind(parser)
        text = assembly.parse_op(parser, results=True)
        parsed = ScatterText(parser, text)
        value, mask = value_and_mask(parser, parsed)
        results = text.results or [value.type]
        return parsed.build(
            cls, behind=[mask, value], results=results, properties=named(element_of(value.type))
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind}")
        super().print(printer)
