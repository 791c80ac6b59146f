"""``for`` over a range and ``while`` at run time, with inferred carried values.

A body is first written into a block of its own. What must cross its border (see
`tilewright.lang.liveness`) then decides the types of the scf op. A loop may have to be written
twice: when a name starts as a number and its body shows that it holds, say, an f16 scalar.

A loop with ``break`` carries one more value, a flag that says whether it is still going; it becomes
an scf.while whose condition asks the flag first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from xdsl.dialects import arith, cf, gpu, scf
from xdsl.dialects.builtin import IndexType, LocationAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright import dtypes
from tilewright.diagnostics import CompileError, Note
from tilewright.frozen import record
from tilewright.lang import carry
from tilewright.lang.arithmetic import binary, truth
from tilewright.lang.carry import Leaf, Mismatch, leaf_of, meet_leaf
from tilewright.lang.context import suggest_name
from tilewright.lang.convert import as_value, constant_ssa, index_value, to
from tilewright.lang.expressions import decidable, short_circuit
from tilewright.lang.frame import Binding, Frame, Unbound
from tilewright.lang.liveness import NONE, Names, binds, breaks, live_at_header
from tilewright.lang.syntax import LOOP_ELSE
from tilewright.lang.values import Array, LoopRange, Tile, Value, describe_type

_MAX_TRIALS = 8


@record
class _Carried:
    """One name that a loop carries: its structure at the start, and a leaf type per part."""

    name: str
    initial: Any
    leaves: list[Leaf | None]
    """None for parts that stay the same object in every iteration."""


def _nothing() -> None:
    """What most loops do besides their body."""


class _Retry(Exception):
    """The carried types were too narrow; they have been widened."""


class _Never(Exception):
    """The condition of a while is false, whatever the loop carries: it runs no iteration, and leaves no trace."""


def no_else(frame: Frame, node: ast.For | ast.While) -> None:
    if node.orelse:
        raise frame.lacking(node.orelse[0], *LOOP_ELSE)


def for_at_run_time(frame: Frame, node: ast.For, loop: LoopRange, live: Names) -> None:
    if not isinstance(node.target, ast.Name):
        raise frame.error(
            node.target,
            "a range yields one number: bind it to one name",
            hint="for i in range(n): j = n - i computes another",
        )
    target = node.target.id
    flag = _flag(frame, node)
    if flag is not None:
        _for_with_break(frame, node, target, loop, flag, live)
        return
    bounds, induction = _bounds(frame, node, loop)

    def write(carried: list[_Carried]) -> tuple[list[Block], list[SSAValue]]:
        block = _block(frame, carried, [IndexType()])
        block.args[0].location = _named(target, block.args[0].location)
        suggest_name(block.args[0], target)
        with frame.emitter.inside(block):
            _enter(frame, carried, iter(block.args[1:]))
            frame.bind(target, induction(block.args[0]), node.target)
            return [block], _loop_body(frame, node, carried)

    carried, (block,), initial = _settle(frame, node, live, binds([node.target]), write)
    op = frame.emitter.emit(scf.ForOp(*bounds, initial, Region(block)))
    _leave(frame, node, carried, iter(op.results), binds(node.body) | {target})


def _bounds(
    frame: Frame, node: ast.For, loop: LoopRange
) -> tuple[tuple[SSAValue, SSAValue, SSAValue], Callable[[SSAValue], Value]]:
    """Bounds of the scf.for, whose step is positive, and the variable in terms of its own."""

    def as_is(ssa: SSAValue) -> Value:
        return Value(ssa, dtypes.index, ())

    with frame.blame(node.iter):
        step = loop.step
        if isinstance(step, int) and step > 0:
            names = ("the start", "the stop", "the step")
            given = (loop.start, loop.stop, step)
            low, high, by = (index_value(x, n) for x, n in zip(given, names, strict=True))
            return (low, high, by), as_is
        # A negative step, or one of unknown sign: count the iterations.
        one = constant_ssa(1, dtypes.index)
        zero = constant_ssa(0, dtypes.index)
        trips = index_value(_trip_count(frame, loop), "the trip count")

        def counted(ssa: SSAValue) -> Value:
            with frame.blame(node.iter):
                moved = binary("*", as_is(ssa), _as_index(step))
                return binary("+", moved, _as_index(loop.start))

        return (zero, trips, one), counted


def _trip_count(frame: Frame, loop: LoopRange) -> int | Value:
    start, stop = _as_index(loop.start), _as_index(loop.stop)
    if isinstance(loop.step, int):
        if isinstance(start, int) and isinstance(stop, int):
            return len(range(start, stop, loop.step))
        return binary("cdiv", binary("-", start, stop), -loop.step)
    step = _as_index(loop.step)
    assert isinstance(step, Value)
    if isinstance(step.ssa.owner, gpu.GridDimOp):  # a grid has one program at least
        return binary("cdiv", binary("-", stop, start), step)
    nonzero = binary("!=", step, 0)
    frame.emitter.emit(cf.AssertOp(nonzero.ssa, "the step of a range is 0"))
    positive = binary(">", step, 0)
    distance = binary("-", stop, start)
    signed = arith.SelectOp(positive.ssa, distance.ssa, binary("-", 0, distance).ssa)
    size = arith.SelectOp(positive.ssa, step.ssa, binary("-", 0, step).ssa)
    counted, by = (Value(frame.emitter.result(op), dtypes.index, ()) for op in (signed, size))
    # Nothing is divided by a step of 0: the assertion alone tells of it.
    return binary("cdiv", counted, binary("max", by, 1))


def while_at_run_time(frame: Frame, node: ast.While, live: Names) -> None:
    if binds([node.test]):
        raise frame.lacking(
            node.test, ":= in the condition of a while", "assign before the loop and in its body"
        )
    flag = _flag(frame, node)

    def decide() -> Value:
        going = None if flag is None else as_value(frame.names[flag].value)
        if going is None:
            condition = frame.evaluate(node.test)
            decidable(frame, node.test, condition)
        else:
            condition = short_circuit(frame, node.test, going, node.test, True)
        if isinstance(condition, Value):
            with frame.blame(node.test):
                return truth(condition, "the condition of a while")
        if not condition:
            raise _Never
        raise frame.error(
            node.test,
            "the condition of this while is always True",
            rule="a while loop ends by a condition of run time, or by a break",
            hint="use for ... in range(...), or test a value that the loop changes",
        )

    try:
        _as_while(frame, node, live, NONE, [flag] if flag else [], decide)
    except _Never:
        frame.names.pop(flag or "", None)


def _for_with_break(
    frame: Frame, node: ast.For, target: str, loop: LoopRange, flag: str, live: Names
) -> None:
    """Counts in a variable of its own, so that the loop can end early."""
    (low, high, by), induction = _bounds(frame, node, loop)
    counter = f"count of {flag}"
    frame.bind(counter, Value(low, dtypes.index, ()), node)

    def decide() -> Value:
        inside = binary("<", frame.names[counter].value, Value(high, dtypes.index, ()))
        return binary("&", as_value(frame.names[flag].value), inside)

    def enter() -> None:
        frame.bind(target, induction(frame.names[counter].value.ssa), node.target)

    def advance() -> None:
        count = frame.names[counter].value
        frame.bind(counter, binary("+", count, Value(by, dtypes.index, ())), node)

    own = binds([node.target])
    _as_while(frame, node, live, own, [flag, counter], decide, enter, advance)


def _flag(frame: Frame, node: ast.For | ast.While) -> str | None:
    """Binds the flag of a loop that may break; None for one that cannot."""
    if not breaks(node.body):
        return None
    flag = f"loop at {node.lineno}:{node.col_offset}"  # no name of Python's
    frame.bind(flag, True, node)
    return flag


def _as_while(
    frame: Frame,
    node: ast.For | ast.While,
    live: Names,
    own: Names,
    hidden: list[str],
    decide: Callable[[], Value],
    enter: Callable[[], None] = _nothing,
    advance: Callable[[], None] = _nothing,
) -> None:
    """Makes an scf.while that carries ``hidden`` names beside those of the body."""

    def write(carried: list[_Carried]) -> tuple[list[Block], list[SSAValue]]:
        before = _block(frame, carried)
        with frame.emitter.inside(before):
            _enter(frame, carried, iter(before.args))
            decided = decide()
            frame.at(node)
            frame.emitter.emit(scf.ConditionOp(decided.ssa, *before.args))
        after = _block(frame, carried)
        with frame.emitter.inside(after):
            _enter(frame, carried, iter(after.args))
            enter()
            return [before, after], _loop_body(frame, node, carried, hidden, advance)

    carried, (before, after), initial = _settle(frame, node, live, own, write, hidden)
    types = [value.type for value in initial]
    op = frame.emitter.emit(scf.WhileOp(initial, types, Region(before), Region(after)))
    _leave(frame, node, carried, iter(op.results), binds(node.body) | own)
    for name in hidden:
        del frame.names[name]


# What both kinds of loops do.


def _settle(
    frame: Frame,
    node: ast.For | ast.While,
    live: Names,
    own: Names,
    write: Callable[[list[_Carried]], tuple[list[Block], list[SSAValue]]],
    hidden: Sequence[str] = (),
) -> tuple[list[_Carried], list[Block], list[SSAValue]]:
    """Writes the body until the carried types are those that it starts and ends with: what is carried, the blocks, and
    the values to start with."""
    header = live_at_header(node, live)
    carried: list[_Carried] = []
    for name in (*sorted((binds(node.body) - own) & header), *hidden):
        binding = frame.names.get(name)
        if binding is None or isinstance(binding.value, Unbound):
            continue
        parts = list(carry.parts(binding.value))
        kinds = [leaf_of(p) if carry.is_part(p) else None for p in parts]  # pyright: ignore[reportArgumentType]
        carried.append(_Carried(name, binding.value, kinds))
    for _ in range(_MAX_TRIALS):
        with frame.scratch_names():
            frame.at(node)
            try:
                blocks, yields = write(carried)
            except _Retry:
                continue
        with frame.emitter.inside(blocks[-1]):
            frame.at(node)
            frame.emitter.emit(scf.YieldOp(*yields))
        return carried, blocks, [v for c in carried for v in carry.handed(c.initial, c.leaves)]
    raise frame.error(
        node,
        "the types of the values that this loop carries do not settle",
        hint="give them their dtypes and shapes before it: x = x.to(tw.f32), tw.zeros(shape, dtype)",
    )


def _block(frame: Frame, carried: list[_Carried], first: Sequence[Attribute] = ()) -> Block:
    """A block with arguments of the types of what crosses the loop's border, behind `first` ones."""
    crossing = [(c.name, leaf.type) for c in carried for leaf in c.leaves if leaf is not None]
    block = frame.emitter.new_block([*first, *(type for _, type in crossing)])
    for (name, _), argument in zip(crossing, block.args[len(first) :], strict=True):
        argument.location = _named(name, argument.location)
        suggest_name(argument, name)
    return block


def _named(name: str, location: LocationAttr) -> LocationAttr:
    return NameLoc(StringAttr(name), location)


def _enter(frame: Frame, carried: list[_Carried], values: Iterator[SSAValue]) -> None:
    for c in carried:
        binding = frame.names[c.name]
        frame.names[c.name] = Binding(carry.taken(c.initial, c.leaves, values), binding.node)


def _loop_body(
    frame: Frame,
    node: ast.For | ast.While,
    carried: list[_Carried],
    hidden: Sequence[str] = (),
    advance: Callable[[], None] = _nothing,
) -> list[SSAValue]:
    """Compiles the body; gives what it hands to the next iteration."""
    frame.runtime_loops += 1
    frame.break_flags.append(hidden[0] if hidden else None)
    try:
        frame.settled(frame.block(node.body, frozenset(c.name for c in carried)))
    finally:
        frame.runtime_loops -= 1
        frame.break_flags.pop()
    advance()
    frame.at(node)
    widened = False
    yields: list[SSAValue] = []
    for c in carried:
        binding = frame.names[c.name]
        if isinstance(binding.value, Unbound):
            raise frame.error(
                node,
                f"{c.name} {binding.value.why}",
                rule="a loop hands its values to the next iteration, so each needs one",
                hint=binding.value.hint,
            )
        if not carry.shapes_agree(c.initial, binding.value):
            raise _disagreement(frame, node, c, binding, c.initial, binding.value)
        triples = zip(carry.parts(c.initial), carry.parts(binding.value), c.leaves, strict=True)
        for i, (start, end, leaf) in enumerate(triples):
            if leaf is None:
                if carry.same_object(start, end):
                    continue
                if not isinstance(start, Array):
                    raise _disagreement(frame, node, c, binding, start, end)
                leaf = leaf_of(start)
            found = _next_leaf(frame, node, c, binding, start, end, leaf)
            if found != c.leaves[i]:
                c.leaves[i] = found
                widened = True
            elif not widened:
                with frame.blame(binding.node):
                    yields.append(carry.ssa_as(end, leaf))  # pyright: ignore[reportArgumentType]
    if widened:
        raise _Retry
    return yields


def _next_leaf(
    frame: Frame, node: ast.AST, c: _Carried, binding: Binding, start: Any, end: Any, leaf: Leaf
) -> Leaf:
    """The type that a part must be carried in, when it ends an iteration as ``end``."""
    try:
        if isinstance(start, Array):
            return meet_leaf(start, end)
        if not carry.is_part(end):
            raise Mismatch
        if leaf_of(end) == leaf:
            return leaf
        if isinstance(start, (Value, Tile)):
            found = meet_leaf(start, end)
            if found.type != leaf_of(start).type and not start.dtype.is_index:
                raise Mismatch
            return found if found == leaf or found.weak != leaf.weak else leaf
        # It started as a number: it follows the body.
        met = meet_leaf(start, end)
        return leaf if met == leaf_of(start) and leaf.dtype is not met.dtype else met
    except Mismatch:
        raise _disagreement(frame, node, c, binding, start, end) from None


def _disagreement(
    frame: Frame, node: ast.AST, c: _Carried, binding: Binding, start: Any, end: Any
) -> CompileError:
    before = frame.outer_names[-1].get(c.name)
    error = frame.error(
        node,
        f"{c.name} changes its type in this loop: {describe_type(start)} before it,"
        f" {describe_type(end)} after an iteration",
        rule="what a loop carries has one type in every iteration",
        hint=_disagreement_hint(c.name, start, end),
    )
    if before is not None:
        text = f"{c.name} is {describe_type(before.value)} here"
        error.with_note(Note(text, frame.location(before.node)))
    text = f"{c.name} becomes {describe_type(binding.value)} here"
    return error.with_note(Note(text, frame.location(binding.node)))  # pyright: ignore[reportReturnType]


def _leave(
    frame: Frame, node: ast.AST, carried: list[_Carried], values: Iterator[SSAValue], bound: Names
) -> None:
    """Binds what the loop carried; what it bound besides has no value after it."""
    names = {c.name for c in carried}
    for c in carried:
        frame.bind(c.name, carry.taken(c.initial, c.leaves, values), node)
    line = getattr(node, "lineno", 0)
    for name in bound - names:
        why = f"is bound inside the loop of line {line} only, which may run no iteration"
        frame.names[name] = Binding(Unbound(why, f"give {name} a value before the loop"), node)


def _as_index(bound: int | Value) -> int | Value:
    return to(bound, dtypes.index) if isinstance(bound, Value) else bound


def _disagreement_hint(name: str, start: Any, end: Any) -> str:
    if isinstance(end, Value) and isinstance(start, Value):
        if start.shape == end.shape:
            return f"convert it in the loop: {name} = (...).to(tw.{start.dtype})"
        return f"start {name} with the shape that the loop gives it"
    if isinstance(end, Array) and isinstance(start, Array):
        if start.is_view or end.is_view:
            return "loops carry whole arrays and tiles: make a tile of each part, and carry that"
        return f"their extents and strides are known differently: {start.type} and {end.type}"
    if isinstance(end, Value) and end.shape:
        shape = ", ".join(map(str, end.shape))
        return f"start with {name} = tw.zeros(({shape}), tw.{end.dtype}), or tw.full"
    return "use another name inside of the loop"
