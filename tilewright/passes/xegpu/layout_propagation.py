"""Spreading layouts over a program: the engine of xegpu-propagate-layout, for every level.

It knows values, relations and costs; what a level's anchors and defaults are, its caller says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright import layout as ly
from tilewright.diagnostics import error_at
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import is_vector, vector_type
from tilewright.frozen import record
from tilewright.layout import Distribution
from tilewright.passes.carried import LOOPS, given_as
from tilewright.passes.emit import Behind
from tilewright.passes.level import among
from tilewright.passes.ownership import Planner, Relation, attempt, values_of
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.layout_defaults import bytes_of, distributed
from tilewright.passes.xegpu.layout_relations import Mma, is_free, relations

Same = Callable[[Distribution, Distribution, Sequence[int]], bool]

EXCHANGE = 4096
"""What a barrier costs, in bytes moved through shared memory."""
TRIPS = 16
"""Iterations of a loop, for costs."""


@record
class LayoutConstraint:
    """An operand that needs a layout whatever the op's other values have: a store's, a product's."""

    op: Operation
    operand: int
    layout: Distribution

    @property
    def value(self) -> SSAValue:
        return self.op.operands[self.operand]


class LayoutPropagation(Planner[Distribution]):
    """Layouts of all vector values of a kernel, as they are found."""

    def __init__(self, kernel: Operation, same: Same = own.same_owners, mma: Mma = lambda _: None):
        self.kernel, self.same = kernel, same
        self.fixed: set[SSAValue] = set()
        self.constraints: list[LayoutConstraint] = []
        self._depths: dict[Operation, int] = {}
        self.of_op: dict[Operation, list[Relation[Distribution]]] = defaultdict(list)
        super().__init__(
            values_of(kernel),
            fits=lambda value, d: d.fault(own.shape_of(value)) is None,
            urgency=self.depth,
        )
        for op in kernel.walk():
            for _, names in given_as(op):
                self.tie(names)
            for relation in relations(op, mma):
                if relation.operand is not None and relation.forth is not None:
                    self.of_op[relation.op].append(relation)
                self.relate(relation)

    # --- Spreading -----------------------------------------------------------------------------

    def depth(self, op: Operation) -> int:
        """How many loops stand around an op."""
        if op not in self._depths:
            parent = op.parent_op()
            inside = parent is not None and parent is not self.kernel
            outer = self.depth(parent) if parent is not None and inside else 0
            self._depths[op] = outer + isinstance(parent, LOOPS)
        return self._depths[op]

    def fix(self, value: SSAValue, d: Distribution) -> None:
        """A layout that a value has and keeps, unless it has one."""
        if self.assign(value, d):
            self.fixed.add(self.find(value))

    def constrain(self, constraint: LayoutConstraint) -> None:
        """The layout that an operand has to have, for its value unless it has another."""
        self.constraints.append(constraint)

    def run(self) -> None:
        """Propagates until nothing more follows; then one guess, and again."""
        pending = sorted(self.constraints, key=lambda d: -self.depth(d.op))
        while True:
            self.follow()
            while pending and self.find(pending[0].value) in self.layouts:
                pending.pop(0)
            if pending:
                first = pending.pop(0)
                self.assign(first.value, first.layout)
            elif not self.guess():
                return

    # --- Conflicts ------------------------------------------------------------------------------

    def needs(self) -> list[LayoutConstraint]:
        """Every operand whose layout its op determines, with that layout."""
        found: list[LayoutConstraint] = []
        for relation in self.relations:
            if relation.operand is None or relation.forth is None:
                continue
            need = self._need(relation)
            found.append(LayoutConstraint(relation.op, relation.operand, need))
        return [*found, *self.constraints]

    def _need(self, relation: Relation[Distribution]) -> Distribution:
        d = self.layouts[self.find(relation.a)]
        try:
            need = relation.forth(d) if relation.forth is not None else None
        except ly.LayoutError as error:
            raise error_at(
                relation.op,
                f"{relation.op.name} with the result {own.attribute(d)}: {error}",
                hint="insert a convert_layout after it, to a layout that its operands can follow",
            ) from error
        if need is None:
            raise error_at(
                relation.op,
                f"{relation.op.name}: no layout of operand {relation.operand} gives the result "
                f"{own.attribute(d)}",
                hint="insert a convert_layout after it",
            )
        return need

    def repair(self, subgroups: int) -> None:
        """Gives another layout to what no layout of an op's operands leads to, and converts behind it."""
        for op in list(self.kernel.walk()):
            mine = [r for r in self.of_op.get(op, ()) if self.find(r.a) in op.results]
            values = {self.find(r.a) for r in mine}
            if len(values) != 1:
                continue
            (value,) = values
            shape = own.shape_of(value)
            before = self.layouts[value]
            forward = [
                attempt(r.back, self.layouts[self.find(r.b)]) for r in mine if r.back is not None
            ]
            share = among(op, subgroups)
            rows = [distributed(shape, share, (dim,)) for dim in range(len(shape))]
            whole = own.replicated(share, len(shape), shape)
            for d in (before, *forward, *rows, whole):
                if d is None or d.fault(shape) is not None:
                    continue
                if all(attempt(r.forth, d) is not None for r in mine):
                    break
            else:
                continue
            if d == before:
                continue
            self.layouts[value] = d
            if value in self.fixed:
                convert = xegpu.ConvertLayoutOp(value, own.attribute(before), own.attribute(d))
                new = Behind(op).instead(value, convert)
                self.adopt(new, before)
                self.fixed.discard(value)
                self.fixed.add(new)

    def satisfied(self, value: SSAValue, need: Distribution) -> bool:
        have = self.layouts[self.find(value)]
        return self.same(have, need, own.shape_of(value))

    def cost(self, value: SSAValue) -> int:
        """Bytes that a conversion of a value moves, times the loops around its definition."""
        kind = vector_type(value)
        op = value.op if isinstance(value, OpResult) else value.owner.parent_op()  # pyright: ignore
        depth = 0 if op is None else self.depth(op)
        if isinstance(value, BlockArgument):
            depth += 1
        return (EXCHANGE + 2 * bytes_of(own.shape_of(value), kind)) * TRIPS**depth

    def slide(self) -> None:
        """Moves conflicts up to where they cost less, op by op from the end."""
        for op in reversed(list(self.kernel.walk())):
            if len(op.results) != 1 or not is_vector(op.results[0]):
                continue
            value = op.results[0]
            if value in self.fixed or not (_follows(op) or isinstance(op, _LOADS)):
                continue
            wanted = self._wanted(value)
            if wanted is None:
                continue
            before = self.layouts[value]
            if self.same(before, wanted, own.shape_of(value)):
                continue
            if isinstance(op, _LOADS) and not isinstance(op, xegpu.LoadGatherOp):
                self.layouts[value] = wanted
                continue
            was = self._conflicts(op)
            self.layouts[value] = wanted
            try:
                now = self._conflicts(op)
            except Exception:
                now = None
            if now is None or now > was + self.cost(value):
                self.layouts[value] = before

    def _wanted(self, value: SSAValue) -> Distribution | None:
        """The one layout that all uses of a value need, where it is another than it has."""
        found: Distribution | None = None
        uses = self.uses.get(value, [])
        if not uses:
            return None
        for needed in uses:
            try:
                need = needed()
            except Exception:
                return None
            if found is not None and not self.same(found, need, own.shape_of(value)):
                return None
            found = need
        total = sum(1 for _ in value.uses)
        return found if len(uses) == total else None

    def index_uses(self) -> None:
        """What the relations and constraints of its uses need of each value."""
        self.uses: dict[SSAValue, list[Callable[[], Distribution]]] = defaultdict(list)
        for relation in self.relations:
            if relation.operand is not None and relation.forth is not None:
                operand = relation.op.operands[relation.operand]
                self.uses[operand].append(partial(self._need, relation))
        for constraint in self.constraints:
            self.uses[constraint.value].append(lambda c=constraint: c.layout)

    def _conflicts(self, op: Operation) -> int:
        """The cost of the conversions that an op's operands need."""
        total = 0
        for relation in self.of(op.results[0]):
            if relation.op is not op or relation.operand is None or relation.forth is None:
                continue
            operand = op.operands[relation.operand]
            owner = operand.owner
            if isinstance(owner, Operation) and is_free(owner):
                continue
            if not self.satisfied(operand, self._need(relation)):
                total += self.cost(operand)
        return total


_LOADS = (xegpu.LoadNdOp, xegpu.LoadMatrixOp, xegpu.LoadGatherOp)


def _follows(op: Operation) -> bool:
    """Whether an op works under any layout that its operands have too."""
    return (
        is_free(op)
        or is_elementwise_on_vectors(op)
        or op.name
        in ("vector.broadcast", "vector.transpose", "vector.shape_cast", "vector.bitcast")
    )
