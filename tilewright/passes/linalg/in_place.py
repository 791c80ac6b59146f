"""Tensors that change a part: where they lie if nothing reads them afterwards, else in a copy of their own.

    %r = scf.for .. iter_args(%t = %init) {            the loop has one memory: %init's, if nothing else reads that,
      %n = tensor.insert_slice %x into %t[..] ..       else a copy; the op writes its part there
      scf.yield %n
    }

A tensor may be changed by an op of its own block if its memory is its own (`_owned`) and every other use, of it and of
what lies in the same memory, is done before. A loop's argument has memory of its own if each round hands on such a
tensor, something in the loop changes it, and no other argument is given what becomes of it. A part that goes back to
where it was read is changed there. Everything else keeps the memory of its value: what the analysis does not know, it
takes to be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.bufferization import AllocTensorOp
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.scf import ForallOp
from tilewright.passes.emit import Before
from tilewright.passes.linalg import has_tensors

_ALIASES = ("tensor.extract_slice", "tensor.cast", "tensor.collapse_shape", "tensor.expand_shape")
"""Ops whose result may lie in their operand's memory."""
_UPDATES = ("tensor.insert_slice", "tensor.insert", "tensor.scatter", "vector.transfer_write")
"""Ops whose result is their second operand with a part that differs."""
_FRESH = (*_UPDATES, "tensor.empty", "tensor.generate", "tensor.pad", "bufferization.alloc_tensor")
_READS = (
    "tensor.extract",
    "tensor.dim",
    "tensor.gather",
    "vector.transfer_read",
    "vector.gather",
    "tensor.parallel_insert_slice",
)
_BOUNDS = 3  # operands of scf.for before what it carries


def copy_before_changes(module: ModuleOp) -> set[Operation]:
    """Inserts, in place, `bufferization.alloc_tensor() copy(..)` of each tensor that an op may not change where it is.

    Returns the insertions of a part that lies there already.
    Requires: tensors, none of which is a memref yet. Guarantees: the memory of the operand that an op of `_UPDATES`,
    a scf.forall or a loop around them changes is read by nothing else from then on.
    """
    analysis = _InPlace()
    ops = [op for op in module.walk() if has_tensors(op)]
    found = [(op, number) for op in ops for number in analysis.copied(op)]
    for op, number in found:
        before, value = Before(op), op.operands[number]
        op.operands[number] = before.add(AllocTensorOp(value.type, copy=value))
    return analysis.there


class _InPlace:
    """Answers, about ops and the numbers of their operands."""

    def __init__(self) -> None:
        self._known: dict[SSAValue, bool] = {}
        self.there = set[Operation]()
        """Insertions of a part that was changed where it lies."""

    def copied(self, op: Operation) -> list[int]:
        """Of which operands an op changes a copy."""
        changed = _targets(op)
        if isinstance(op, scf.ForOp):
            changed = [n for n in range(_BOUNDS, len(op.operands)) if self._changes(op, n)]
        return [n for n in changed if not (self._free(op, n) or self._goes_back(op, n))]

    def _changes(self, loop: scf.ForOp, number: int) -> bool:
        """Does a loop change the memory that it is given by this operand?"""
        return self._owned(loop.body.block.args[number - _BOUNDS + 1])

    def _free(self, op: Operation, number: int) -> bool:
        value = op.operands[number]
        here = _block_of(value) is op.parent
        return here and self._owned(value) and self._last(value, op, number)

    def _goes_back(self, op: Operation, number: int) -> bool:
        """Is a part of a tensor changed, and then inserted where it was, with no look at the tensor in between?

        %s = tensor.extract_slice %t[..]; %u = vector.transfer_write %v, %s[..]; tensor.insert_slice %u into %t[..]
        """
        part = op.operands[number].owner
        if not isinstance(part, Operation) or part.name != "tensor.extract_slice":
            return False
        whole = part.operands[0]
        if part.parent is not op.parent or not self._last(part.results[0], op, number):
            return False
        end = self._inserted(_changed_by(op, number))
        if end is None or not _same_part(part, end) or not self._free(end, 1):
            return False
        block = op.parent
        assert block is not None
        for use in whole.uses:
            around = block.find_ancestor_op_in_block(use.operation)
            if around not in (part, end) and (around is None or not around.is_before_in_block(op)):
                return False
        self.there.add(end)
        return True

    def _inserted(self, value: SSAValue) -> Operation | None:
        """The op of this block that inserts a changed part, or what further changes make of it, and its last use."""
        block = _block_of(value)
        ends = [u for u in value.uses if u.operation.name not in _READS]
        if len(ends) != 1 or ends[0].operation.parent is not block:
            return None
        ((op, number),) = ((use.operation, use.index) for use in ends)
        if not self._last(value, op, number):
            return None
        if op.name == "tensor.insert_slice" and number == 0:
            return op
        return self._inserted(_changed_by(op, number)) if number in _targets(op) else None

    def _owned(self, value: SSAValue) -> bool:
        if value not in self._known:
            # What loops hand round in a circle, as two arguments that change places, is nobody's own.
            self._known[value] = False
            self._known[value] = self._is_owned(value)
        return self._known[value]

    def _is_owned(self, value: SSAValue) -> bool:
        """Is the memory of this tensor that of no other value, but for `_ALIASES` of it?"""
        if isinstance(value, BlockArgument):
            loop = value.block.parent_op()
            return isinstance(loop, scf.ForOp) and value.index > 0 and self._owns(loop, value)
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, scf.ForOp):
            return self._owned(op.body.block.args[value.index + 1])
        return _makes_memory(op)

    def _owns(self, loop: scf.ForOp, argument: BlockArgument) -> bool:
        last = terminator(argument.block)
        number = argument.index - 1
        handed = last.operands[number]
        return (
            _changed(argument)
            and handed is not argument
            and _block_of(handed) is argument.block
            and self._owned(handed)
            and self._last(handed, last, number)
            and not any(
                _is_changed_from(argument, other)
                for n, other in enumerate(last.operands)
                if n != number
            )
        )

    def _last(self, value: SSAValue, at: Operation, number: int) -> bool:
        """Is operand `number` of `at` the last use of this tensor, and of what lies in its memory?"""
        block = at.parent
        assert block is not None
        for use in value.uses:
            op = use.operation
            if op is at and use.index == number:
                continue
            around = block.find_ancestor_op_in_block(op)
            if around is None or around is at or not around.is_before_in_block(at):
                return False
            if op.name in _ALIASES:
                if not self._last(op.results[0], at, -1):
                    return False
            elif not self._reads(op, use.index):
                return False
        return True

    def _reads(self, op: Operation, number: int) -> bool:
        """Is this operand read, or copied by `copied`, and no result in its memory?"""
        if isinstance(op, scf.ForOp):
            return number >= _BOUNDS and self._changes(op, number)
        return op.name in _READS or _makes_memory(op)


def _makes_memory(op: Operation) -> bool:
    """Do the results have memory of their own, whose elements are there once the op is done?"""
    if isinstance(op, arith.SelectOp | arith.ConstantOp):
        return False
    return isinstance(op, GenericOp | ForallOp) or op.name in _FRESH or is_elementwise(op)


def _same_part(one: Operation, other: Operation) -> bool:
    """Do a slice and an insertion name the same part of the same tensor?"""
    names = ("static_offsets", "static_sizes", "static_strides")
    same = all(one.properties[n] == other.properties[n] for n in names)
    return same and list(one.operands) == list(other.operands[1:])


def _block_of(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent


def _targets(op: Operation) -> Sequence[int]:
    """The operands of an op that its results are, with changes."""
    if isinstance(op, ForallOp):
        return range(len(op.operands) - len(op.outputs), len(op.operands))
    return (1,) if op.name in _UPDATES else ()


def _changed_by(op: Operation, target: int) -> OpResult:
    """What the operand of `_targets`, or that a loop carries, has become."""
    carried = isinstance(op, scf.ForOp | ForallOp)
    return op.results[target - len(op.operands) + len(op.results) if carried else 0]


def _is_changed_from(argument: BlockArgument, value: SSAValue) -> bool:
    """Is a value what ops of a block make of an argument of it by changes?"""
    while isinstance(value, OpResult) and value.op.parent is argument.block:
        op = value.op
        if isinstance(op, scf.ForOp):
            value = op.operands[_BOUNDS + value.index]
        elif targets := _targets(op):
            value = op.operands[targets[value.index]]
        else:
            break
    return value is argument


def _changed(argument: BlockArgument) -> bool:
    """Does an op of a loop, or of a loop in it, change what this argument of it is?"""
    return any(
        use.index in _targets(use.operation)
        or (
            isinstance(use.operation, scf.ForOp)
            and use.index >= _BOUNDS
            and _changed(use.operation.body.block.args[use.index - _BOUNDS + 1])
        )
        for use in argument.uses
    )
