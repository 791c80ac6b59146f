"""xegpu-wg-to-sg-distribute, control flow and effects: carried values 1:N, scalar stores done once.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from tilewright.dialects import xegpu
from tilewright.layout import Distribution
from tilewright.passes.level import range_of, region_of_run
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.subgroup_ids import SubgroupIds
from tilewright.passes.xegpu.wg_to_sg import Distributor, handles


def _expanded(
    to: Distributor, values: Sequence[SSAValue], layouts: Sequence[Distribution | None]
) -> list[SSAValue]:
    """Pieces of all values, one after the other."""
    found: list[SSAValue] = []
    for value, d in zip(values, layouts, strict=True):
        found += [to.one(value)] if d is None else to.pieces(value, d, "a carried value")
    return found


def _layouts(values: Sequence[SSAValue], to: Distributor) -> list[Distribution | None]:
    return [to.layout(v) if isinstance(v.type, VectorType) else None for v in values]


def _counts(
    to: Distributor, values: Sequence[SSAValue], layouts: Sequence[Distribution | None]
) -> list[int]:
    return [
        1 if d is None else to.count(d, own.shape_of(v))
        for v, d in zip(values, layouts, strict=True)
    ]


def _types(
    to: Distributor, values: Sequence[SSAValue], layouts: Sequence[Distribution | None]
) -> list[Attribute]:
    found: list[Attribute] = []
    counts = _counts(to, values, layouts)
    for v, d, n in zip(values, layouts, counts, strict=True):
        found += [v.type if d is None else to.piece_type(v.type, d)] * n
    return found


def _bind(
    to: Distributor,
    old: Sequence[SSAValue],
    layouts: Sequence[Distribution | None],
    new: Sequence[SSAValue],
) -> None:
    at = 0
    for value, n in zip(old, _counts(to, old, layouts), strict=True):
        to.define(value, new[at : at + n])
        at += n


def _annotate(
    new: Operation,
    to: Distributor,
    values: Sequence[SSAValue],
    layouts: Sequence[Distribution | None],
    prefix: str = own.RESULT,
) -> None:
    """What is left of the layouts, on every piece's result."""
    at = 0
    for d, n in zip(layouts, _counts(to, values, layouts), strict=True):
        left = None if d is None else own.remainder(d)
        for i in range(at, at + n):
            if left is not None:
                new.attributes[f"{prefix}{i}"] = own.attribute(left)
        at += n


def _region(
    to: Distributor,
    old: Block,
    arguments: Sequence[SSAValue],
    layouts: Sequence[Distribution | None],
    ends: Sequence[Distribution | None],
) -> Block:
    """The block with its values in pieces; its terminator's operands have the layouts `ends`."""
    outer = to.out
    block = Block(arg_types=_types(to, arguments, layouts))
    _bind(to, arguments, layouts, block.args)
    to.out = block
    if to.ids.block is None:
        to.ids.start(block)
    terminator = old.last_op
    for op in old.ops:
        if op is terminator:
            break
        to.op = op
        to.convert(op)
    assert terminator is not None
    to.op = terminator
    match terminator:
        case scf.ConditionOp():
            values = _expanded(to, terminator.args, ends)
            to.put(scf.ConditionOp(to.one(terminator.condition), *values))
        case _:
            to.put(scf.YieldOp(*_expanded(to, terminator.operands, ends)))
    to.out = outer
    return block


@handles("scf.for")
def scf_for(to: Distributor, op: Operation) -> None:
    assert isinstance(op, scf.ForOp)
    layouts = _layouts(op.results, to)
    inits = _expanded(to, op.iter_args, layouts)
    args: Sequence[BlockArgument] = op.body.block.args
    block = _region(to, op.body.block, args, [None, *layouts], layouts)
    to.op = op
    new = scf.ForOp(to.one(op.lb), to.one(op.ub), to.one(op.step), inits, Region(block))
    _keep_attributes(op, new)
    _annotate(new, to, op.results, layouts)
    to.put(new)
    _bind(to, op.results, layouts, new.results)


@handles("scf.if")
def scf_if(to: Distributor, op: Operation) -> None:
    assert isinstance(op, scf.IfOp)
    layouts = _layouts(op.results, to)
    if (run := range_of(op)) is not None:
        regions = [Region(_of_some(to, region_of_run(op).block, run)), Region()]
    else:
        regions = [
            Region(_region(to, region.block, [], [], layouts)) if region.blocks else Region()
            for region in (op.true_region, op.false_region)
        ]
    to.op = op
    new = scf.IfOp(to.one(op.cond), _types(to, op.results, layouts), regions[0], regions[1])
    _keep_attributes(op, new)
    _annotate(new, to, op.results, layouts)
    to.put(new)
    _bind(to, op.results, layouts, new.results)


def _of_some(to: Distributor, old: Block, run: xegpu.RangeAttr) -> Block:
    """A region that a run of subgroups does: they are counted from its first."""
    first, end = run.bounds
    ids, subgroups = to.ids, to.subgroups
    to.ids, to.subgroups = SubgroupIds(first), end - first
    known: dict[object, SSAValue] = to.__dict__.get("descriptors", {})
    outside = dict(known)
    known.clear()
    block = _region(to, old, [], [], [])
    known.clear()
    known.update(outside)
    to.ids, to.subgroups = ids, subgroups
    return block


@handles("scf.while")
def scf_while(to: Distributor, op: Operation) -> None:
    assert isinstance(op, scf.WhileOp)
    before, after = op.before_region.block, op.after_region.block
    ins, outs = _layouts(before.args, to), _layouts(op.results, to)
    inits = _expanded(to, op.arguments, ins)
    first = _region(to, before, before.args, ins, outs)
    second = _region(to, after, after.args, outs, ins)
    to.op = op
    types = _types(to, op.results, outs)
    new = scf.WhileOp(inits, types, Region(first), Region(second))
    _keep_attributes(op, new)
    _annotate(new, to, op.results, outs)
    _annotate(new, to, before.args, ins, own.OPERAND)
    to.put(new)
    _bind(to, op.results, outs, new.results)


def _keep_attributes(old: Operation, new: Operation) -> None:
    for name, value in old.attributes.items():
        if not name.startswith((own.RESULT, own.OPERAND)):
            new.attributes[name] = value


@handles("memref.store")
def memref_store(to: Distributor, op: Operation) -> None:
    """A scalar is stored by the first subgroup."""
    assert isinstance(op, memref.StoreOp)
    condition = to.once(own.replicated(to.subgroups, 1, (1,)), (1,))
    if condition is None:
        to.keep(op)
        return
    outer, inner = to.out, Block()
    to.out = inner
    to.keep(op)
    inner.add_op(scf.YieldOp())
    to.out = outer
    to.put(scf.IfOp(condition, [], Region(inner)))


@handles("tw.print", "tw.breakpoint")
def debugging(to: Distributor, op: Operation) -> None:
    """The first subgroup says what the workgroup has; it holds vectors whole."""
    mapping: dict[SSAValue, SSAValue] = {}
    for n, value in enumerate(op.operands):
        shape = own.shape_of(value)
        if shape:
            whole = own.replicated(to.subgroups, len(shape), shape)
            (mapping[value],) = to.pieces(value, whole, f"operand {n}")
        else:
            mapping[value] = to.one(value)
    condition = to.once(own.replicated(to.subgroups, 1, (1,)), (1,))
    new = op.clone(mapping)
    if condition is None:
        to.put(new)
        return
    new.location = op.location
    inner = Block([new, scf.YieldOp()])
    to.put(scf.IfOp(condition, [], Region(inner)))


@handles("gpu.subgroup_id")
def subgroup_id(to: Distributor, op: Operation) -> None:
    """Text that asks which subgroup it is has a branch for some of them; every subgroup answers for itself."""
    to.env[op.results[0]] = [to.ids.linear()]


@handles("memref.atomic_rmw", "scf.parallel", "scf.forall", "gpu.thread_id")
def refused(to: Distributor, op: Operation) -> None:
    raise to.refuse("in a workgroup's program has no form for one subgroup")
