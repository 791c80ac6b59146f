"""Products that run beside the program: issue and wait.

Products are queued in the order of their issues and finish in that order. A `!stage.pending` is what a product will
be; only another product (as its accumulator) or a wait may use it. Operands that a multi-buffer holds must stay in
their slot until the product is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, VectorType
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition, traits_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import say
from tilewright.dialects.effects import ORDER, Acts
from tilewright.dialects.fields import (
    Flag,
    Follows,
    Int,
    Op,
    Operand,
    Operands,
    OptInt,
    OptOperand,
    Result,
    Results,
    op_definition,
)


@irdl_attr_definition
class PendingType(ParametrizedAttribute, TypeAttribute):
    """`!stage.pending<vector<128x256xf32>>`: the result of a product that may not be done yet.

    `!stage.pending<vector<128x256xf32>, paired>`: rows 2 i and 2 i + 1 of every 16 are those that the instruction has
    as i and i + 8, both of which a thread holds. So are the rows of A, which threads hold too.
    """

    name = "stage.pending"

    vector: VectorType
    paired: BoolAttr

    def __init__(self, vector: VectorType, paired: bool = False):
        super().__init__(vector, BoolAttr.from_bool(paired))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            vector, paired = parser.parse_type(), parser.parse_optional_punctuation(",") is not None
            if paired:
                parser.parse_keyword("paired")
            return [vector, BoolAttr.from_bool(paired)]

    def print_parameters(self, printer: Printer) -> None:
        say(printer, "<", self.vector, ", paired>" if self.paired.value.data else ">")


def is_paired(type: Attribute) -> bool:
    """Are the rows of a product paired?"""
    return isinstance(type, PendingType) and bool(type.paired.value.data)


def computes(op: Operation) -> bool:
    """Is it arithmetic on tiles?"""
    return not op.name.startswith("stage.") and any(
        isinstance(r.type, VectorType) for r in op.results
    )


def vector_of(type: Attribute) -> VectorType:
    """The vector that a value is or will be."""
    found = type.vector if isinstance(type, PendingType) else type
    assert isinstance(found, VectorType)
    return found


@op_definition
class ProductIssueOp(Op):
    """Starts a matrix product, `[m, k] x [k, n] (+ [m, n])`, as xetile.tile_mma computes it.

    ```mlir
    %p = stage.mma.issue %a, %b, %c
      : vector<128x64xbf16>, vector<64x256xbf16>, vector<128x256xf32> -> !stage.pending<vector<128x256xf32>>
    ```
    With `first`, A is values that threads hold, and meets the rows of B from that one on. `transpose_a` and
    `transpose_b` say that an operand is given transposed ([k, m], [n, k]): so a tile in shared
    memory is multiplied as its transpose without being moved.
    """

    name = "stage.mma.issue"
    a: Operand[VectorType] = Operand(VectorType)
    b: Operand[VectorType] = Operand(VectorType)
    c: OptOperand = OptOperand()
    result: Result[PendingType] = Result(PendingType)
    transpose_a: Flag = Flag()
    transpose_b: Flag = Flag()
    first: OptInt = OptInt()
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$a `,` $b (`,` $c^)? attr-dict "
        "`:` type($a) `,` type($b) (`,` type($c)^)? `->` type($result)"
    )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        m, k = _oriented(self.a, self.transpose_a)
        return m, _oriented(self.b, self.transpose_b)[1], k

    @property
    def rows(self) -> slice:
        """The rows of B that A meets."""
        first = self.first or 0
        return slice(first, first + self.sizes[2])

    def verify_(self) -> None:
        m, n, k = self.sizes
        result = vector_of(self.result.type)
        height = _oriented(self.b, self.transpose_b)[0]
        fits = height == k if self.first is None else 0 <= self.rows.start <= height - k
        if not fits or result.get_shape() != (m, n):
            raise VerifyException(
                f"{self.name}: {m}x{k} by {'x'.join(map(str, _oriented(self.b, self.transpose_b)))} is not {result}"
            )
        if self.c is not None and vector_of(self.c.type) != result:
            raise VerifyException(f"{self.name}: adds {self.c.type} and gives {result}")
        if (
            self.c is not None
            and isinstance(self.c.type, PendingType)
            and self.c.type != self.result.type
        ):
            raise VerifyException(f"{self.name}: adds {self.c.type} and gives {self.result.type}")


def _oriented(value: SSAValue, transposed: bool) -> tuple[int, int]:
    assert isinstance(value.type, VectorType)
    rows, columns = value.type.get_shape()
    return (columns, rows) if transposed else (rows, columns)


def _pending(type: Attribute) -> PendingType:
    if not isinstance(type, VectorType):
        raise VerifyException("stage.mma.start takes a vector")
    return PendingType(type)


@op_definition
class ProductStartOp(Op):
    """`%p = stage.mma.start %v : vector<128x256xf32>`: a value as the accumulator of later products."""

    name = "stage.mma.start"
    value: Operand[VectorType] = Operand(VectorType)
    result = Follows("value", rule=_pending)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value)"


@op_definition
class ProductWaitOp(Op):
    """Waits until all products but the last `pending` ones are done; the values of some of those.

    ```mlir
    %d = stage.mma.wait %p {pending = 0} : !stage.pending<vector<128x256xf32>> -> vector<128x256xf32>
    stage.mma.wait {pending = 1}
    ```
    """

    name = "stage.mma.wait"
    products: Operands[PendingType] = Operands(PendingType)
    pending: Int = Int()
    values: Results[VectorType] = Results(VectorType)
    traits = traits_def(Acts(ORDER))
    assembly_format = "($products^ `:` type($products) `->` type($values))? attr-dict"

    def __init__(self, products: Sequence[SSAValue] = (), pending: int = 0):
        super().__init__(products, pending, [vector_of(p.type) for p in products])

    def verify_(self) -> None:
        if [vector_of(p.type) for p in self.products] != [v.type for v in self.values]:
            raise VerifyException(f"{self.name}: its results are the vectors of its products")
        if self.pending < 0:
            raise VerifyException(f"{self.name}: {self.pending} products cannot stay pending")


__all__ = ["PendingType", "ProductIssueOp", "ProductStartOp", "ProductWaitOp", "vector_of"]
