"""What the body of a structured op does to elements: what it combines, how, and whether that is a sum of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from xdsl.dialects import arith, memref
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.combining import KINDS_OF_ATOMICS, neutral, reduction_of
from tilewright.frozen import frozen
from tilewright.passes.emit import Before
from tilewright.passes.expand_ops import EXPANSIONS

KINDS: Mapping[type[Operation], str] = {
    op: reduction_of(kind) for op, kind in KINDS_OF_ATOMICS.items()
}
"""Ops of two elements whose order is free, with their kind of reduction."""
_WIDEN = (arith.ExtFOp, arith.ExtSIOp)


@frozen
class Combined:
    """A result that is `op` of what was there and of `value`, which does not depend on that."""

    op: Operation
    value: SSAValue

    @property
    def kind(self) -> str:
        return KINDS[type(self.op)]

    @property
    def nothing(self) -> int | float:
        """What `op` leaves alone: an infinity instead of NaN where its flags rule NaN out."""
        flags = self.op.properties.get("fastmath")
        no_nans = isinstance(flags, FastMathFlagsAttr) and FastMathFlag.NO_NANS in flags.data
        kind = self.kind.replace("numf", "imumf") if no_nans else self.kind
        return neutral(kind, self.value.type)


class Body:
    """The body of a generic op."""

    def __init__(self, op: GenericOp) -> None:
        self.op = op

    @property
    def block(self) -> Block:
        return self.op.body.block

    @property
    def arguments(self) -> Sequence[BlockArgument]:
        return self.block.args

    @property
    def before(self) -> Sequence[BlockArgument]:
        """The elements of the outputs as they were."""
        return self.arguments[len(self.op.inputs) :]

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = terminator(self.block)
        return last.operands

    @cached_property
    def loaded(self) -> Sequence[SSAValue]:
        """Memory that the body reads at indices of its own."""
        return [op.memref for op in self.block.ops if isinstance(op, memref.LoadOp)]

    @cached_property
    def reads_results(self) -> bool:
        return any(argument.first_use is not None for argument in self.before)

    @cached_property
    def combined(self) -> Sequence[Combined] | None:
        """How each result is combined with what was there; None where one is not, or in an order that matters."""
        found = [self._combined(b, y) for b, y in zip(self.before, self.yielded, strict=True)]
        whole = [each for each in found if each is not None]
        return whole if len(whole) == len(found) else None

    def _combined(self, before: BlockArgument, result: SSAValue) -> Combined | None:
        op = result.owner
        if (
            not isinstance(op, Operation)
            or type(op) not in KINDS
            or len(list(before.uses)) != 1
            or before not in op.operands
        ):
            return None
        value = op.operands[1 if op.operands[0] is before else 0]
        return None if self.inputs_of(value, self.before) else Combined(op, value)

    @cached_property
    def factors(self) -> tuple[SSAValue, SSAValue] | None:
        """Of one sum of products: the factors, which no input is in both of, without what widens them."""
        if self.combined is None or len(self.combined) != 1 or self.combined[0].kind != "add":
            return None
        product = self.combined[0].value.owner
        if not isinstance(product, arith.MulfOp | arith.MuliOp):
            return None
        sides = [self._narrow(v) for v in product.operands]
        inputs = [self.inputs_of(v, self.arguments) for v in sides]
        apart = inputs[0] and inputs[1] and not inputs[0] & inputs[1]
        return (sides[0], sides[1]) if apart and sides[0].type == sides[1].type else None

    @staticmethod
    def _narrow(value: SSAValue) -> SSAValue:
        while isinstance(value.owner, _WIDEN):
            value = value.owner.input
        return value

    def inputs_of(self, value: SSAValue, among: Sequence[BlockArgument]) -> set[BlockArgument]:
        """The arguments among some that a value of the body depends on."""
        if isinstance(value, BlockArgument):
            return {value} & set(among)
        owner = value.owner
        if not isinstance(owner, Operation) or owner.parent is not self.block:
            return set()
        return {a for operand in owner.operands for a in self.inputs_of(operand, among)}


def plain_bodies(module: Operation) -> None:
    """Numbers by affine maps, as tiles make them of linalg.index, become arithmetic on elements, in place."""
    bodies = [op.body for op in module.walk() if isinstance(op, GenericOp)]
    for op in [op for body in bodies for op in body.walk()]:
        if op.name in EXPANSIONS and not is_elementwise(op):
            EXPANSIONS[op.name](op, Before(op))
