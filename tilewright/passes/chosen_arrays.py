"""chosen-arrays: which of several arrays control flow chose is a number, and each access is made in the array of it.

    %m = scf.if %c -> memref<8xf32> {                    %n = scf.if %c -> index { yield 0 } else { yield 1 }
      scf.yield %a : memref<8xf32>                       %first = arith.cmpi eq, %n, 0
    } else {                                       ->    %v = scf.if %first -> vector<8xf32> {
      scf.yield %b : memref<8xf32>                         yield (vector.load %a[%i])
    }                                                    } else {
    %v = vector.load %m[%i] : ..                           yield (vector.load %b[%i])
                                                         }

Requires: arrays that are there before they are chosen: arguments, shared memory, and views of these. Guarantees: no
memref is carried by a loop, or comes out of a branch or a selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import IsTerminator

from tilewright.diagnostics import unsupported
from tilewright.dialects.nesting import values_made
from tilewright.passes.carried import origins
from tilewright.passes.emit import Before
from tilewright.passes.memory_objects import chosen_from
from tilewright.passes.positions import hoisted

Arrays = Mapping[int, SSAValue]
"""Of the numbers that choose, the arrays."""


def chosen_arrays(kernel: gpu.FuncOp) -> bool:
    """Chooses numbers instead of arrays. Returns whether arrays were chosen."""
    chosen = [v for v in _memrefs(kernel) if chosen_from(v)]
    if not chosen:
        return False
    flow = {_chooser(v) for v in chosen}
    roots = {v: origins([v], chosen_from) for v in chosen}
    numbers: dict[SSAValue, int] = {}
    for root in (r for found in roots.values() for r in found):
        numbers.setdefault(root, len(numbers))
        _made_before(root, flow)
        if isinstance(root, OpResult) and any(v in roots for v in root.op.operands):
            raise unsupported(root.op, f"{root.op.name}: a view of a chosen array is chosen again")
    at = Before(kernel.body.block.first_op)  # pyright: ignore[reportArgumentType]
    constants = {root: at.index(n) for root, n in numbers.items()}
    ends = {op: op.parent_op() in flow for op in kernel.walk() if op.has_trait(IsTerminator)}
    for op in [*flow, *(op for op, ours in ends.items() if ours)]:
        op.operands = [constants.get(v, v) for v in op.operands]
    work: list[tuple[SSAValue, Arrays]] = []
    for value, found in roots.items():
        number = Rewriter.replace_value_with_new_type(value, IndexType())
        work.append((number, {numbers[root]: root for root in found}))
    for number, arrays in work:
        for use in list(number.uses):
            op = use.operation
            if op not in flow and not ends.get(op) and op.parent is not None:
                work += _in_each(op, number, arrays)
    return True


def _memrefs(kernel: gpu.FuncOp) -> Iterator[SSAValue]:
    for op in kernel.walk():
        yield from (v for v in values_made(op) if isinstance(v.type, MemRefType))


def _chooser(value: SSAValue) -> Operation:
    op = value.op if isinstance(value, OpResult) else value.owner.parent_op()
    assert isinstance(op, Operation)
    return op


def _made_before(root: SSAValue, flow: set[Operation]) -> None:
    """Moves a view out of the branches and loops that choose."""
    op, above = root.owner, None
    while isinstance(op, Operation):
        op = op.parent_op()
        above = op if op in flow else above
    if above is None or (found := hoisted(root, above)) is None:
        return
    op, changes = found
    if changes:
        why = "an array that changes inside of the loop that chooses it", "carry its offset instead"
    else:
        why = (
            "an array that is made inside of the loop or branch that chooses it",
            "make it in front of that",
        )
    raise unsupported(op, f"{op.name}: {why[0]}", hint=why[1])


def _in_each(op: Operation, number: SSAValue, arrays: Arrays) -> Iterator[tuple[SSAValue, Arrays]]:
    """An op on the array chosen is the op on each, of which one is done; a view is made of each."""
    at = Before(op)

    def on(array: SSAValue) -> Operation:
        new = op.clone()
        new.operands = [array if v is number else v for v in op.operands]
        return new

    if len(op.results) == 1 and isinstance(op.results[0].type, MemRefType):
        views = {n: at.add(on(array)) for n, array in arrays.items()}
        for use in list(op.results[0].uses):
            use.operation.operands[use.index] = number
            yield from _in_each(use.operation, number, views)
        Rewriter.erase_op(op)
        return
    used = [v for v in op.results if v.first_use is not None]
    kinds = [v.type for v in used]

    def choose(first: tuple[int, SSAValue], *others: tuple[int, SSAValue]) -> Sequence[SSAValue]:
        n, array = first
        if not others:
            made = at.insert(on(array))
            return [made.results[v.index] for v in used]
        hit = at.compare("eq", number, n)
        return at.choose(hit, kinds, lambda: choose(first), lambda: choose(*others))

    for old, new in zip(used, choose(*arrays.items()), strict=True):
        old.replace_all_uses_with(new)
    Rewriter.erase_op(op)
