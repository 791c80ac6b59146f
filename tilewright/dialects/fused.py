"""Ops of the cpu target: passes over memory, contractions, packed arrays.

A kernel at this level is still the program of one workgroup over whole tiles. What is new is that every tile-shaped
value that lives in memory is the result of a stage op, and that each stage op is one pass over memory:

- `stage.fused` runs its ops row by row (or column by column), all at once; inside, values are registers.
- `stage.contract` sums products over a range of k, one range whatever steps the loop of the user took.
- `stage.pack` copies a whole array, once per launch, into panels that a contraction reads in order; `stage.panel` reads
  a tile of it.

Meaning (numpy): a fused group executes its region; a contract is the loop that it shows; a pack is the array itself,
with the region applied elementwise; a panel is a tile of it, zero outside.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, IntAttr, IntegerType, MemRefType, VectorType
from xdsl.ir import Attribute, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition, traits_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, MemoryReadEffect, NoTerminator, Pure, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import say
from tilewright.dialects.fields import (
    Body,
    Flag,
    Int,
    Op,
    Operand,
    Operands,
    Prop,
    Result,
    Results,
    op_definition,
)
from tilewright.dialects.nesting import terminator


@irdl_attr_definition
class PanelsType(ParametrizedAttribute, TypeAttribute):
    """`!stage.panels<8x1xf32, k = 1>`: a packed array.

    The array's two inner dimensions are x (the dimension that is kept) and k (the dimension that is summed); `k` says
    which of the two k is. Panels hold `lanes` consecutive x; in a panel, groups of `group` consecutive k follow one
    another: element (x, k) lies at `((x / lanes) * K + k / group * group) * lanes + (x % lanes) * group + k % group`
    within its block of k. Missing elements are zero. With `biased` the top bit of each (integer) element is stored
    flipped, as instructions want that take one operand unsigned and the other signed; a panel's values are the array's
    all the same.
    """

    name = "stage.panels"

    lanes: IntAttr
    group: IntAttr
    element_type: Attribute
    k: IntAttr
    biased: IntAttr

    def __init__(
        self, lanes: int, group: int, element_type: Attribute, k: int, biased: bool = False
    ):
        super().__init__(
            IntAttr(lanes), IntAttr(group), element_type, IntAttr(k), IntAttr(int(biased))
        )

    def verify(self) -> None:
        if self.biased.data and not isinstance(self.element_type, IntegerType):
            raise VerifyException(f"biased panels hold integers, not {self.element_type}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            lanes, group = parser.parse_dimension_list()
            parser.parse_shape_delimiter()
            element = parser.parse_type()
            parser.parse_punctuation(",")
            parser.parse_keyword("k")
            parser.parse_punctuation("=")
            k = parser.parse_integer()
            biased = parser.parse_optional_punctuation(",") is not None
            if biased:
                parser.parse_keyword("biased")
        return [IntAttr(lanes), IntAttr(group), element, IntAttr(k), IntAttr(int(biased))]

    def print_parameters(self, printer: Printer) -> None:
        last = f", k = {self.k.data}{', biased' if self.biased.data else ''}>"
        say(printer, f"<{self.lanes.data}x{self.group.data}x", self.element_type, last)


@op_definition
class YieldOp(Op):
    """Ends the region of a stage op and gives its values."""

    name = "stage.yield"
    values: Operands = Operands(default=())
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "($values^ `:` type($values))? attr-dict"


@op_definition
class FusedOp(Op):
    """Runs its ops in one pass; its results are values that stay in memory.

    ```mlir
    %e, %s = stage.fused {
      %x = xetile.load_tile %t : !xetile.tile<64x64xf32> -> vector<64x64xf32>
      %y = math.exp %x : vector<64x64xf32>
      %r = xetile.reduction <add>, %y [1] : vector<64x64xf32> -> vector<64x1xf32>
      stage.yield %y, %r : vector<64x64xf32>, vector<64x1xf32>
    } : vector<64x64xf32>, vector<64x1xf32>
    ```
    No op inside reads what another op inside writes at a different element.
    """

    name = "stage.fused"
    body: Body = Body()
    values: Results[Attribute] = Results()
    traits = traits_def(RecursiveMemoryEffect())
    assembly_format = "$body attr-dict (`:` type($values)^)?"

    def verify_(self) -> None:
        last = self.body.block.last_op
        if not isinstance(last, YieldOp) or [v.type for v in last.operands] != list(
            self.result_types
        ):
            raise VerifyException("stage.fused ends with a stage.yield of its results")


@op_definition
class ContractOp(Op):
    """Sums of products over k: for k in range(lo, hi, step): acc_i += A_i(k) B_i(k).

    ```mlir
    %c = stage.contract %c0 to %K step %c32 init(%z : vector<64x64xf32>) {
    ^bb0(%k : index):
      %a = ...   // depends on %k only through the k offset of its tile
      %b = ...
      stage.yield %a, %b : vector<64x32xf32>, vector<32x64xf32>
    } -> vector<64x64xf32>
    ```
    Tile k covers columns k .. k+step-1 of A and those rows of B, so any other cut of the range into steps gives the
    same sum; a lowering is free to choose one.
    """

    name = "stage.contract"
    lo: Operand[IndexType] = Operand(IndexType)
    hi: Operand[IndexType] = Operand(IndexType)
    step: Operand[IndexType] = Operand(IndexType)
    inits: Operands[VectorType] = Operands(VectorType)
    body: Body = Body()
    values: Results[VectorType] = Results(VectorType)
    traits = traits_def(RecursiveMemoryEffect())
    assembly_format = (
        "$lo `to` $hi `step` $step `init` `(` $inits `:` type($inits) `)` $body attr-dict "
        "`->` type($values)"
    )

    def __init__(
        self, lo: SSAValue, hi: SSAValue, step: SSAValue, inits: Sequence[SSAValue], body: Region
    ):
        super().__init__(lo, hi, step, inits, body, [v.type for v in inits])

    @property
    def pairs(self) -> list[tuple[SSAValue, SSAValue]]:
        """The operands (A, B) of each accumulator."""
        last = terminator(self.body.block)
        return list(zip(last.operands[::2], last.operands[1::2], strict=True))

    def verify_(self) -> None:
        last = self.body.block.last_op
        if not isinstance(last, YieldOp) or len(last.operands) != 2 * len(self.inits):
            raise VerifyException("stage.contract yields one A and one B for each accumulator")
        if list(self.inits.types) != list(self.result_types):
            raise VerifyException("stage.contract returns values of the types of its inits")
        for (a, b), c in zip(self.pairs, self.inits, strict=True):
            assert isinstance(a.type, VectorType) and isinstance(b.type, VectorType)
            m, k = a.type.get_shape()
            k2, n = b.type.get_shape()
            if k != k2 or c.type.get_shape() != (m, n):  # pyright: ignore
                raise VerifyException(
                    f"stage.contract: {m}x{k} by {k2}x{n} does not add to {c.type}"
                )


@op_definition
class PackOp(Op):
    """A packed copy of an array, made before the workgroups start.

    ```mlir
    %p = "stage.pack"(%A, %used, %reads) <{depth = 256, padding = 0}> ({
    ^bb0(%x : bf16):
      %y = arith.extf %x : bf16 to f32
      stage.yield %y : f32
    }) : (memref<?x?xbf16, strided<[?, 1]>>, index, index) -> !stage.panels<8x1xf32, k = 1>
    ```
    Only x < `used` (a bound of what any workgroup reads) is copied; the region applies to every element.
    `reads`: how many times a launch reads each element. Where these are few, a target may leave the copy to
    those who read; the values are the same.
    """

    name = "stage.pack"
    source: Operand[MemRefType] = Operand(MemRefType)
    used: Operand[IndexType] = Operand(IndexType)
    reads: Operand[IndexType] = Operand(IndexType)
    body: Body = Body()
    result: Result[PanelsType] = Result(PanelsType)
    depth: Int = Int()
    """Rows of k per block: blocks of k follow one another, so that one block of all panels is close together."""
    padding: Prop[Attribute] = Prop()
    pitch: Int = Int(default=0, implicit=True)
    """Panels begin anew at every multiple of it along x, where tiles do that do not start at multiples of `lanes`; 0:
    they follow one another."""
    traits = traits_def(NoTerminator(), RecursiveMemoryEffect(), MemoryReadEffect())


@op_definition
class PanelOp(Op):
    """The tile of a packed array at offsets, one per dimension of the array; `transposed`: its transpose.

    ```mlir
    %a = stage.panel %p[%m, %k] : !stage.panels<8x1xf32, k = 1> -> vector<64x32xf32>
    %b = stage.panel %q[%n, %k] transposed : !stage.panels<32x1xf32, k = 1> -> vector<32x64xf32>
    ```
    """

    name = "stage.panel"
    panels: Operand[PanelsType] = Operand(PanelsType)
    offsets: Operands[IndexType] = Operands(IndexType)
    result: Result[VectorType] = Result(VectorType)
    transposed: Flag = Flag()
    traits = traits_def(Pure())
    assembly_format = (
        "$panels `[` $offsets `]` (`transposed` $transposed^)? attr-dict "
        "`:` type($panels) `->` type($result)"
    )
