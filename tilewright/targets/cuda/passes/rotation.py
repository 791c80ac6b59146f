"""A loop to rotate, and its two halves as new blocks: `rotate` and `chains` put them together.

An iteration is A (up to the last product) and L (the last product, and what only it needs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.dialects import stage

Values = dict[SSAValue, SSAValue]


def clone(ops: Iterable[Operation], into: Block, values: Values) -> None:
    """Copies ops, with `values` in place of what they read; it learns their results."""
    for op in ops:
        into.add_op(op.clone(values))


@dataclass
class Rotation:
    """A loop to rotate: its products, the ops of L in order, and what they read of A."""

    loop: scf.ForOp
    first: stage.ProductIssueOp
    last: stage.ProductIssueOp
    late: list[Operation]
    crossing: list[SSAValue]

    @property
    def rest(self) -> list[Operation]:
        """The ops of A, in order."""
        ops = [op for op in self.loop.body.block.ops if op not in set(self.late)]
        return ops[:-1]

    @property
    def yields(self) -> list[SSAValue]:
        end = self.loop.body.block.last_op
        assert end is not None
        return list(end.operands)

    def is_late(self, value: SSAValue) -> bool:
        return value.owner in self.late

    def first_iteration(self, into: Block, start: Sequence[SSAValue]) -> list[SSAValue]:
        """A of the iteration `lb`: the carried values after it (of L's, those before), and what crosses to L."""
        iv, *args = self.loop.body.block.args
        values: Values = {iv: self.loop.lb, **dict(zip(args, start, strict=True))}
        clone(self.rest, into, values)
        state = [
            before if self.is_late(y) else values.get(y, y)
            for before, y in zip(start, self.yields, strict=True)
        ]
        return [*state, *(values[x] for x in self.crossing)]

    def last_product(self, into: Block, state: Sequence[SSAValue]) -> list[SSAValue]:
        """L of the iteration before: what is carried after it. `state`: it, carried values, what crosses."""
        iv, *args = self.loop.body.block.args
        values: Values = dict(zip([iv, *args, *self.crossing], state, strict=True))
        clone(self.late, into, values)
        return [values[y] if self.is_late(y) else state[1 + i] for i, y in enumerate(self.yields)]

    def body(self) -> Block:
        """One iteration: the next first product, L, the rest of A, with each wait before the first use.

        Arguments: the iteration, the one before, carried values, what crosses to L; all but the first are yielded.
        """
        iv, *args = self.loop.body.block.args
        types = [iv.type, *(v.type for v in (*args, *self.crossing))]
        body = Block(arg_types=[iv.type, *types])
        new_iv, before, *others = body.args
        state, extra = others[: len(args)], others[len(args) :]
        late = [self.is_late(y) for y in self.yields]
        of_late: Values = {iv: before, **dict(zip(args, state, strict=True))}
        of_late |= dict(zip(self.crossing, extra, strict=True))
        values: Values = {iv: new_iv, **dict(zip(args, state, strict=True))}
        head, middle, tail = self._parts()
        issue = self.late.index(self.last) + 1
        clone(head, body, values)
        clone(self.late[:issue], body, of_late)
        clone(middle, body, values)
        clone(self.late[issue:], body, of_late)
        # From here on L is done: what it gives is what the iteration began with.
        current = [of_late[y] if is_late else s
                   for y, is_late, s in zip(self.yields, late, state, strict=True)]  # fmt: skip
        values |= dict(zip(args, current, strict=True))
        clone(tail, body, values)
        yields = [
            now if is_late else values.get(y, y)
            for now, y, is_late in zip(current, self.yields, late, strict=True)
        ]
        body.add_op(scf.YieldOp(new_iv, *yields, *(values[x] for x in self.crossing)))
        waits = [op for op in body.ops if isinstance(op, stage.ProductWaitOp) and op.products]
        # The first product was issued before L, and is waited for while L is under way.
        waits[0].properties["pending"] = IntegerAttr(1, i64)
        return body

    def _parts(self) -> tuple[list[Operation], list[Operation], list[Operation]]:
        """A in three: up to the first product's issue; up to the first use of what L gives; the rest."""
        ops = self.rest
        at = ops.index(self.first) + 1
        block = self.loop.body.block
        late = {block.args[i + 1] for i, y in enumerate(self.yields) if self.is_late(y)}
        need = next(
            (
                i
                for i, op in enumerate(ops)
                if any(v in late for o in op.walk() for v in o.operands)
            ),
            len(ops),
        )
        need = max(need, at)
        return ops[:at], ops[at:need], ops[need:]


def rewrite(rotation: Rotation) -> None:
    """Replaces a loop by A of its first iteration, the loop from the second on, and L of the last."""
    loop = rotation.loop
    parent = loop.parent
    assert parent is not None
    then = Block()
    made = rotation.first_iteration(then, list(loop.iter_args))
    second = arith.AddiOp(loop.lb, loop.step)
    then.add_op(second)
    new = scf.ForOp(second.result, loop.ub, loop.step, [loop.lb, *made], Region(rotation.body()))
    new.attributes.update(loop.attributes)
    then.add_op(new)
    then.add_op(scf.YieldOp(*rotation.last_product(then, list(new.results))))
    otherwise = Block([scf.YieldOp(*loop.iter_args)])
    ran = arith.CmpiOp(loop.lb, loop.ub, "slt")
    choice = scf.IfOp(ran, list(loop.result_types), Region(then), Region(otherwise))
    parent.insert_ops_before([ran, choice], loop)
    for result, fresh in zip(loop.results, choice.results, strict=True):
        fresh.name_hint = result.name_hint
        result.replace_all_uses_with(fresh)
    loop.detach()
    loop.erase()
