"""Whether every use of a value lies behind its definition, over the blocks and nested regions of a program.

A value is seen by the ops after it in its block, by the regions of these, and by the blocks of its region to which
every way leads through its own (those that its block dominates). A block that no way leads to may use what it likes,
as in MLIR: it never runs, and no code is made of it. Stock xDSL asks none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.traits import IsolatedFromAbove

NOT_DEFINED = "no definition of that name is visible here"
"""Of a name that the parser met before its definition, which then came in a region that is none of the use's."""


N = TypeVar("N", bound=Hashable)


def following(block: Block) -> Sequence[Block]:
    """The blocks that one may go on with at its end."""
    return block.last_op.successors if block.last_op is not None else ()


def reachable(entry: N, following: Callable[[N], Iterable[N]]) -> list[N]:
    """Nodes that ways from `entry` lead to, in reverse postorder: each after all that dominate it.

    Iterative: chains of blocks may be long.
    """
    order, seen = list[N](), {entry}
    stack = [(entry, iter(following(entry)))]
    while stack:
        node, rest = stack[-1]
        new = next((n for n in rest if n not in seen), None)
        if new is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(following(new))))
    return order[::-1]


class Dominators(Generic[N]):
    """Which node of a graph, a region's blocks for one, dominates which: Cooper, Harvey and Kennedy's iteration over
    immediate dominators."""

    def __init__(self, entry: N, following: Callable[[N], Iterable[N]]) -> None:
        order = reachable(entry, following)
        self._place = {node: at for at, node in enumerate(order)}
        sources: list[list[int]] = [[] for _ in order]
        for at, node in enumerate(order):
            for goal in following(node):
                sources[self._place[goal]].append(at)
        above = [0] + [-1] * (len(order) - 1)
        changed = True
        while changed:
            changed = False
            for at in range(1, len(order)):
                known = [source for source in sources[at] if above[source] >= 0]
                found = known[0]
                for other in known[1:]:
                    while found != other:
                        if found > other:
                            found = above[found]
                        else:
                            other = above[other]
                if above[at] != found:
                    above[at], changed = found, True
        self._order, self._sources, self._intervals = order, sources, _intervals(above)

    def reachable(self, node: N) -> bool:
        return node in self._place

    def dominates(self, one: N, other: N) -> bool:
        """Do all ways to `other`, a node that can be reached, lead through `one`?"""
        if one not in self._place:
            return False
        first, end = self._intervals[self._place[one]]
        return first <= self._intervals[self._place[other]][0] < end

    def loops(self) -> dict[N, set[N]]:
        """The natural loops, by their heads: what goes back to a head that dominates it, and all on the way there."""
        found: dict[N, set[N]] = {}
        for head, sources in zip(self._order, self._sources, strict=True):
            todo = [source for source in sources if self.dominates(head, self._order[source])]
            while todo:
                node, inside = self._order[at := todo.pop()], found.setdefault(head, {head})
                if node not in inside:
                    inside.add(node)
                    todo += self._sources[at]
        return found


def _intervals(above: list[int]) -> list[tuple[int, int]]:
    """Of every node of a tree, given by its parents, a stretch of numbers that holds those of all below it."""
    below: list[list[int]] = [[] for _ in above]
    for node in range(1, len(above)):
        below[above[node]].append(node)
    sizes = [1] * len(above)
    # A dominator stands before what it dominates in reverse postorder, so children are summed before their parents.
    for node in range(len(above) - 1, 0, -1):
        sizes[above[node]] += sizes[node]
    first = [0] * len(above)
    for node, children in enumerate(below):
        at = first[node] + 1
        for child in children:
            first[child] = at
            at += sizes[child]
    return [(at, at + size) for at, size in zip(first, sizes, strict=True)]


class Dominance:
    """The rule for all uses in `top`; `broken(op)` asks it of one op's operands."""

    def __init__(self, top: Operation) -> None:
        self._order = {op: place for place, op in enumerate(top.walk())}
        self._regions: dict[Region, Dominators[Block]] = {}

    def broken(self, operation: Operation) -> tuple[SSAValue, str] | None:
        """The first operand that the op must not use and why, in words that follow the op's name."""
        for number, operand in enumerate(operation.operands):
            why = self._why(operand, operation)
            if why is not None:
                return (
                    operand,
                    f"operand #{number}{_called(operand)} does not dominate this use: {why}",
                )
        return None

    def _why(self, operand: SSAValue, user: Operation) -> str | None:
        if isinstance(operand, ForwardDeclaredValue):
            return NOT_DEFINED
        owner = operand.owner
        home = owner if isinstance(owner, Block) else owner.parent
        if home is None:
            return None  # the op that a caller verifies stands in no block, and neither do its operands
        place, wall = user, None
        while place.parent is not None and place.parent.parent is not home.parent:
            above = place.parent.parent_op()
            if above is None:
                break
            place = above
            if wall is None and place.has_trait(IsolatedFromAbove):
                wall = place
        block = place.parent
        if block is None or block.parent is not home.parent:
            return "it is defined in a region that does not surround its use"
        if wall is not None:
            return f"it is defined outside of '{wall.name}', which cannot use values from outside"
        if block is home:
            if isinstance(owner, Block):
                return None
            if owner is place and user is not place:
                return "it is used inside the op that defines it"
            before = self._order.get(owner, -1) < self._order[place]
            return None if before else "it is used before the op that defines it"
        region = home.parent
        assert region is not None
        dominators = self._regions.get(region)
        if dominators is None:
            dominators = self._regions[region] = Dominators(region.blocks[0], following)
        if not dominators.reachable(block) or dominators.dominates(home, block):
            return None
        return "it is defined in a block that does not dominate this one"


def _called(value: SSAValue) -> str:
    return f" (%{value.name_hint})" if value.name_hint else ""
