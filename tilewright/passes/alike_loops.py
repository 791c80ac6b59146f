"""alike-loops: nests of loops that differ in nothing but the values they read from around them are one function.

    scf.for .. { scf.for .. { .. mach.load %p .. } }           call @f_nest0(%p)
    scf.for .. { scf.for .. { .. mach.load %q .. } }           call @f_nest0(%q)

Products that follow one another (the nine of a convolution, two of one operand) become the same micro-kernels again and
again, and to print and to compile code takes longer than all passes before. A call per nest costs nothing beside its
loops; those with tiles of AMX stay, which each function configures anew. Requires functions of the last stage;
guarantees that what is computed, and in which order, stays. Takes time in proportion to the ops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.mach.types import is_data
from tilewright.dialects.nesting import values_made

LEAST = 100
"""Ops of a nest from which on it is worth a function."""
MOST = 40
"""Values that a call passes."""


def share_alike_loops(module: ModuleOp) -> None:
    """Makes one function of loops that differ in what they are given alone."""
    for function in [op for op in module.ops if isinstance(op, func.FuncOp)]:
        if not function.attributes.keys() & {"mach.once", "mach.common"}:
            for made in _nests(function):
                Rewriter.insert_op(made, InsertPoint.before(function))


def _nests(function: func.FuncOp) -> Iterator[func.FuncOp]:
    """The functions that stand for nests of a function's, which calls them; of nests in nests the outer ones."""
    sizes: dict[int, int] = {}
    alike: dict[int, list[scf.ForOp]] = defaultdict(list)
    for block in function.body.blocks:
        _outlines(block, sizes, alike)
    count = 0
    for outline in sorted(
        (n for n, loops in alike.items() if len(loops) > 1), key=lambda n: -sizes[n]
    ):
        forms: dict[Hashable, list[Nest]] = defaultdict(list)
        for loop in alike[outline]:
            if function.is_ancestor(loop):
                nest = Nest(loop)
                if nest.is_data and nest.passes:
                    forms[nest.form].append(nest)
        for nests in forms.values():
            if len(nests) > 1:
                yield shared(f"{function.sym_name.data}_nest{count}", nests)
                count += 1


def _outlines(
    block: Block, sizes: dict[int, int], alike: dict[int, list[scf.ForOp]]
) -> tuple[int, int, bool]:
    """A number that alike blocks have, their ops, and whether loops are among them. The nests in a block are added to
    `alike` by such a number, whose ops are in `sizes`."""
    outline, size, loops = list[object](), 0, False
    for op in block.ops:
        outline.append(op.name)
        size += 1
        if not op.regions:
            continue
        nested = False
        for region in op.regions:
            for number, own, has in (_outlines(inner, sizes, alike) for inner in region.blocks):
                outline.append(number)
                size += own
                nested |= has
                if has and own >= LEAST and isinstance(op, scf.ForOp) and not op.results:
                    sizes[number] = own
                    alike[number].append(op)
        loops |= nested or isinstance(op, scf.ForOp)
    return hash(tuple(outline)), size, loops


class Nest:
    """A loop (or condition), the `form` that alike ones have in common, and what else it is `given`, in the order of
    its first use: by which operands of which ops (`uses`), constants among them. `is_data`: all that it computes can
    be in memory."""

    def __init__(self, loop: Operation):
        self.loop, self.is_data = loop, True
        self.given: list[SSAValue] = []
        self.uses: list[tuple[Operation, int, SSAValue]] = []
        numbers: dict[SSAValue, int] = {}
        form: list[Hashable] = []
        for op in loop.walk():
            form += op.name, *op.properties.items(), *op.attributes.items()
            for i, value in enumerate(op.operands):
                number = numbers.get(value, 0)
                if number <= 0:
                    self.uses.append((op, i, value))
                    known = _constant(value)
                    if known is not None:
                        form.append(known.value)
                        continue
                    if number == 0:
                        self.given.append(value)
                        number = numbers[value] = -len(self.given)
                        form.append(value.type)
                form.append(number)
            for value in values_made(op) if op.regions else op.results:
                numbers[value] = len(numbers) + 1
                form.append(value.type)
                self.is_data &= is_data(value.type)
        self.form = tuple(form)

    @property
    def passes(self) -> bool:
        """Can a call pass what it is given?"""
        return len(self.given) <= MOST and all(is_data(v.type) for v in self.given)


def _constant(value: SSAValue) -> arith.ConstantOp | None:
    if isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp):
        return value.op
    return None


def shared(name: str, nests: Sequence[Nest]) -> func.FuncOp:
    """The function of alike nests, or of one, called in their places. Other modules may have it."""
    first, *others = nests
    for nest in nests:
        call = func.CallOp(name, nest.given, [])
        Rewriter.insert_op(call, InsertPoint.before(nest.loop))
        nest.loop.detach()
    for nest in others:
        nest.loop.erase()
    types = [value.type for value in first.given]
    block = Block(arg_types=types)
    inside: dict[SSAValue, SSAValue] = dict(zip(first.given, block.args, strict=True))
    for op, i, value in first.uses:
        known = _constant(value)
        if known is not None and value not in inside:
            own = known.clone()
            block.add_op(own)
            inside[value] = own.result
        op.operands[i] = inside[value]
    block.add_ops((first.loop, func.ReturnOp()))
    function = func.FuncOp(name, (types, []), Region(block))
    function.attributes["mach.common"] = StringAttr(name)
    return function
