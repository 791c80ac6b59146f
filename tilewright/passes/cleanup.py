"""cleanup: what no pass should have to look through.

- dead code: ops without side effects whose results nobody uses;
- common subexpressions: equal ops without side effects in one block, and in blocks around it;
- loop-invariant code: scalar ops and tiles without side effects move out of loops that do not change their operands.

Loads do not move: what they read may be written. Requires nothing; guarantees the same results.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from tilewright.dialects.elementwise import DIVISIONS
from tilewright.dialects.nesting import blocks_in, move
from tilewright.passes import memory_objects
from tilewright.passes.budget import poll
from tilewright.passes.carried import LOOPS
from tilewright.passes.kernel import LEVEL


def cleanup(function: gpu.FuncOp) -> None:
    eliminate_common(function.body.block, {})
    level = function.attributes.get(LEVEL)
    whole = not isinstance(level, StringAttr) or level.data == "workgroup"
    hoist_invariants(function.body.block, () if whole else PARTS)
    eliminate_dead(function.body.block)


def is_pure(op: Operation) -> bool:
    return bool(op.results) and not op.regions and memory_objects.is_pure(op)


def eliminate_dead(block: Block) -> None:
    """Remove dead ops, last first, in nested blocks too. What only reads is dead as well when nobody uses it."""
    for op in list(block.walk(reverse=True, region_first=True)):
        if op.results and is_trivially_dead(op):
            Rewriter.erase_op(op)


def eliminate_common(block: Block, known: dict[object, list[Operation]]) -> None:
    """Let equal pure ops be one. `known`: those that stand before, in the blocks around, by what they are made of."""
    mine: list[list[Operation]] = []
    for op in list(block.ops):
        poll()
        if is_pure(op):
            made = (type(op), *op.operands, frozenset(op.properties.values()))
            same = known.setdefault(made, [])
            found = next((other for other in same if _are_equal(op, other)), None)
            if found is not None:
                Rewriter.replace_op(op, [], found.results)
                continue
            same.append(op)
            mine.append(same)
        for inner in blocks_in(op):
            eliminate_common(inner, known)
    for same in mine:
        same.pop()


def _are_equal(op: Operation, other: Operation) -> bool:
    """Whether two ops of one class on the same operands are."""
    return (
        op.properties == other.properties
        and op.attributes == other.attributes
        and all(a.type == b.type for a, b in zip(op.results, other.results, strict=True))
    )


PARTS = ("vector.broadcast", "vector.extract_strided_slice", "gpu.shuffle")
"""What an instruction of a subgroup mostly reads of a fragment by itself: in front of a loop each would take registers
through it."""


def hoist_invariants(block: Block, stay: tuple[str, ...] = ()) -> None:
    """Move invariant scalars, constants and tiles, but the ops named, out of the loops of a block, innermost first."""
    for op in list(block.walk(region_first=True)):
        if isinstance(op, LOOPS):
            for inner in blocks_in(op):
                for candidate in list(inner.ops):
                    if (
                        candidate.name not in stay
                        and _may_hoist(candidate)
                        and all(not op.is_ancestor(v.owner) for v in candidate.operands)
                    ):
                        move([candidate], InsertPoint.before(op))


def _may_hoist(op: Operation) -> bool:
    """Scalars and tiles cost nothing outside; a division might trap where the loop would not have run."""
    return is_pure(op) and op.name not in DIVISIONS
