"""Loops and branches: every thread takes them alike, and carries its fragments as values."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field, replace

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from tilewright.codegen.builder import Idx
from tilewright.dialects import xetile
from tilewright.dialects.movement import is_vector, shape_of
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import IndexCastUIOp
from tilewright.frozen import record
from tilewright.passes.control import Parts, bind_all, convert_if, convert_while, flat
from tilewright.passes.memory_objects import may_overlap_itself
from tilewright.passes.tile_origin import tile_accesses
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.rules_memory import as_words, bitcast, place_of, sums_of
from tilewright.targets.cuda.rules_product import hold_operands
from tilewright.targets.cuda.sync import RangeAccess


@record
class FragmentCarrier:
    """Loops and branches of a thread (`passes.control`): a tile-shaped value is carried as its fragment in the assigned
    layout of its place."""

    d: Distributor
    op: Operation
    left: list[tuple[set[RangeAccess], bool]] = field(
        default_factory=list[tuple[set[RangeAccess], bool]]
    )
    """What the sides of a branch leave behind (`sync.Hazards.join`)."""

    def flatten(self, values: Sequence[SSAValue], places: Sequence[SSAValue]) -> Parts:
        return [self._flat(v, place) for v, place in zip(values, places, strict=True)]

    def _flat(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        d = self.d
        if is_vector(value):
            assigned = d.assigned(place)
            assert assigned is not None
            fragment = d.fragment_of(value, assigned).value
            return [as_words(d, fragment) if 1 in shape_of(place) else fragment]
        return [d.scalar(value)]

    def bind(self, place: SSAValue, parts: Sequence[SSAValue], sample: SSAValue) -> None:
        if is_vector(place):
            assigned = self.d.assigned(place)
            assert assigned is not None
            type = self.d.fragment_type(place.type, assigned)
            self.d.set_fragment(place, bitcast(self.d, parts[0], type), assigned)
        else:
            self.d.define(place, parts[0])

    def scalar(self, value: SSAValue) -> SSAValue:
        return self.d.scalar(value)

    @contextmanager
    def region(self, new: Block) -> Generator[None]:
        d = self.d
        branch = d.hazards.branch(self.left) if isinstance(self.op, scf.IfOp) else nullcontext()
        with branch, d.b.inside(new), d.scope():
            yield

    def inner(self, old: Block) -> None:
        self.d.lower_block(old)

    def build(self, new: Operation, old: Operation) -> None:
        self.d.b.op(new)


def accesses(d: Distributor, body: Operation) -> list[RangeAccess]:
    """What the ops inside an op do to arrays."""
    found: list[RangeAccess] = []
    touched = [*tile_accesses(body)]
    writes_any = isinstance(body, scf.ForOp) and any(writes for _, _, writes in touched)
    for op, tile, writes in touched:
        other = writes_any and op.parent_op() is body and _is_apart(d, op, body)  # pyright: ignore
        place = replace(place_of(tile, None), tile=tile if other else None)
        found.append(RangeAccess(place, writes, sums_of(op), other))
    return found


def _is_apart(d: Distributor, op: Operation, loop: scf.ForOp) -> bool:
    """Does an access touch other elements in each iteration of a loop?"""
    analysis = d.analysis_of(loop)
    access = analysis.find(op)
    if access is None or not isinstance(op, xetile.LoadTileOp | xetile.StoreTileOp):
        return False
    if may_overlap_itself(access.root):
        return False
    return analysis.loop(loop).counter in analysis.separated_by(access)


@rule("scf.for")
def lower_for(d: Distributor, op: scf.ForOp) -> None:
    b = d.b
    body = op.body.block
    last = terminator(body)
    to = FragmentCarrier(d, op)
    inits = to.flatten(op.iter_args, body.args[1:])
    carry = flat(inits)
    lo, hi, step = (_bound(d, op, v) for v in (op.lb, op.ub, op.step))
    hold_operands(d, op)
    with d.hazards.loop(d, accesses(d, op)), b.loop(lo, hi, step, carry) as loop, d.scope():
        _set_counter(d, body.args[0], b.idx(loop.iv))
        bind_all(to, body.args[1:], op.iter_args, inits, loop.carried)
        d.lower_block(body)
        loop.out = flat(to.flatten(last.operands, body.args[1:]))
    bind_all(to, op.results, op.iter_args, inits, loop.results)


def _bound(d: Distributor, op: scf.ForOp, value: SSAValue) -> Idx:
    """As an index: loops count in those."""
    known = d.idx(value)
    if isinstance(known, int) or isinstance(known.type, IndexType):
        return known
    cast = IndexCastUIOp if "unsignedCmp" in op.properties else arith.IndexCastOp
    return d.b.value(cast(known, IndexType()))


def _set_counter(d: Distributor, counter: SSAValue, found: SSAValue) -> None:
    if not isinstance(counter.type, IndexType):
        found = d.b.value(arith.IndexCastOp(found, counter.type))
    d.set_scalar(counter, found)


@rule("scf.while")
def lower_while(d: Distributor, op: scf.WhileOp) -> None:
    with d.hazards.loop(d, accesses(d, op)):
        convert_while(FragmentCarrier(d, op), op)


@rule("scf.if")
def lower_if(d: Distributor, op: scf.IfOp) -> None:
    to = FragmentCarrier(d, op)
    convert_if(to, op)
    if not op.false_region.blocks:
        with d.hazards.branch(to.left):
            pass
    d.hazards.join(to.left)
