"""partial: a sum over columns that a loop only adds up and scales is kept per lane, and added across lanes at its end.

    for { %t [m, 1]                                   for { %u [m, 4]
      %r = reduction<add> %p [1] : [m, n]               %q = reduction<add> (%p as [m, n/8, 4, 2]) [1, 3]
      %x = mulf %t, %keep                      ->       %x = mulf %u, broadcast %keep
      %y = addf %x, %r }                                %y = addf %x, (%q as [m, 4]) }
                                                      %t = reduction<add> %u [1]

Requires: products issued (C of a warpgroup gives each lane of four two columns out of eight). Guarantees: the same
sums in another order, the order being free for reductions and for ops that may be contracted; the first value of
`%t` is added by one of the four.

A carried [m, 1] takes part when one chain of additions and multiplications leads from it to the value that the loop
yields for it, nothing else reads a link of the chain, all that is added are sums of columns of a tile computed element
by element from a product's result, and what multiplies does not depend on it. A loop whose first value is such a sum
takes it over before it is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    Float32Type,
    IndexType,
    VectorType,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tilewright.dialects import stage, xetile
from tilewright.dialects.upstream.vector import ShapeCastOp, StepOp
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.loops import depends, with_start
from tilewright.passes.neutral import splat
from tilewright.targets.cuda.ownership import is_elementwise

LANES = 4
"""Lanes that share a row of an accumulator."""
PAIR = 2
"""Neighbouring columns of a lane."""


@dataclass
class _Chain:
    """How a carried value of a loop (its argument `position + 1`) goes to the next iteration, link by link."""

    loop: scf.ForOp
    position: int
    links: list[arith.MulfOp | arith.AddfOp]
    sums: dict[Operation, xetile.ReductionOp]
    """For each addition the sum that it adds."""


def keep_partial(function: gpu.FuncOp) -> int:
    """Rewrites one kernel; how many sums are partial."""
    count = 0
    for op in list(function.walk()):
        loop: scf.ForOp | None = op if isinstance(op, scf.ForOp) else None
        if loop is None:
            continue
        for position in range(len(loop.iter_args)):
            chain = _chain(loop, position)
            if chain is not None:
                loop = _rewrite(chain)
                count += 1
    eliminate_dead(function.body.block)
    return count


# Which sums -------------------------------------------------------------------------------------


def _chain(loop: scf.ForOp, position: int) -> _Chain | None:
    block = loop.body.block
    here: SSAValue = block.args[position + 1]
    type = here.type
    if not isinstance(type, VectorType) or len(type.get_shape()) != 2 or type.get_shape()[1] != 1:
        return None
    if not isinstance(type.element_type, Float32Type):
        return None
    chain = _Chain(loop, position, [], {})
    while True:
        uses = list(here.uses)
        if len(uses) != 1:
            return None
        user = uses[0].operation
        if user is block.last_op:
            done = uses[0].index == position and bool(chain.sums)
            return chain if done else None
        if not isinstance(user, arith.MulfOp | arith.AddfOp) or user.parent is not block:
            return None
        if not _contracts(user):
            return None
        other = user.operands[1 - uses[0].index]
        if isinstance(user, arith.AddfOp):
            found = _sum_of_product(other, block)
            if found is None:
                return None
            chain.sums[user] = found
        elif depends(other, block.args[position + 1], block):
            return None
        chain.links.append(user)
        here = user.result


def _contracts(op: arith.MulfOp | arith.AddfOp) -> bool:
    return bool({"contract", "fast"} & {flag.value for flag in op.fastmath.data})


def _sum_of_product(value: SSAValue, block: Block) -> xetile.ReductionOp | None:
    """The sum over columns that a value is, of a tile that lies as a product's result does; None for others."""
    op = value.owner
    if not isinstance(op, xetile.ReductionOp) or op.parent is not block or not value.has_one_use():
        return None
    type = op.source.type
    assert isinstance(type, VectorType)
    columns = type.get_shape()[-1]
    if op.kind != "add" or op.dims != (1,) or op.reduction_size is not None:
        return None
    if len(type.get_shape()) != 2 or columns % (LANES * PAIR):
        return None
    return op if _lies_as_product(op.source) else None


def _lies_as_product(value: SSAValue) -> bool:
    seen: set[SSAValue] = set()
    work = [value]
    while work:
        here = work.pop()
        if here in seen or (here.type != value.type and not _same_shape(here, value)):
            continue
        seen.add(here)
        op = here.owner
        if isinstance(op, stage.ProductWaitOp):
            return True
        if isinstance(op, Operation) and is_elementwise(op):
            work += op.operands
    return False


def _same_shape(a: SSAValue, b: SSAValue) -> bool:
    return (
        isinstance(a.type, VectorType)
        and isinstance(b.type, VectorType)
        and a.type.get_shape() == b.type.get_shape()
    )


# The new program --------------------------------------------------------------------------------


def _rewrite(chain: _Chain) -> scf.ForOp:
    loop, position = chain.loop, chain.position
    parent, block = loop.parent, loop.body.block
    assert parent is not None
    old = block.args[position + 1]
    assert isinstance(old.type, VectorType)
    kind = VectorType(old.type.element_type, [old.type.get_shape()[0], LANES])
    inits = list(loop.iter_args)
    inits[position] = _start(inits[position], kind, loop)
    fresh = block.insert_arg(kind, position + 1)
    fresh.name_hint = old.name_hint
    value: SSAValue = fresh
    for link in chain.links:
        if isinstance(link, arith.AddfOp):
            found = chain.sums[link]
            part = _partial(found, kind)
            made: Operation = arith.AddfOp(value, part, link.fastmath)
        else:
            other = next(o for o in link.operands if not _is_link(o, old, chain))
            repeat = xetile.BroadcastOp(other, kind, [1])
            block.insert_op_before(repeat, link)
            made = arith.MulfOp(value, repeat.result, link.fastmath)
        block.insert_op_before(made, link)
        value = made.results[0]
        value.name_hint = link.result.name_hint
    last = block.last_op
    assert last is not None
    last.operands[position] = value
    for link in reversed(chain.links):
        link.detach()
        link.erase()
    for found in chain.sums.values():
        found.detach()
        found.erase()
    block.erase_arg(old)
    new = with_start(loop, inits)
    carried = new.results[position]
    total = xetile.ReductionOp("add", carried, [1])
    parent.insert_op_after(total, new)
    carried.replace_uses_with_if(total.result, lambda use: use.operation is not total)
    return new


def _is_link(value: SSAValue, carried: BlockArgument, chain: _Chain) -> bool:
    return value is carried or value.owner in chain.links


def _partial(found: xetile.ReductionOp, kind: VectorType) -> SSAValue:
    """What each lane's columns add up to: [m, 4]."""
    type = found.source.type
    block = found.parent
    assert isinstance(type, VectorType) and block is not None
    m, n = type.get_shape()
    apart = ShapeCastOp(
        found.source, VectorType(type.element_type, [m, n // (LANES * PAIR), LANES, PAIR])
    )
    added = xetile.ReductionOp("add", apart.results[0], [1, 3])
    back = ShapeCastOp(added.result, kind)
    block.insert_ops_before([apart, added, back], found)
    return back.results[0]


def _start(value: SSAValue, kind: VectorType, loop: scf.ForOp) -> SSAValue:
    """[m, 4] of which the rows add up to `value`."""
    parent = loop.parent
    assert parent is not None

    def insert(op: Operation) -> SSAValue:
        parent.insert_op_before(op, loop)
        return op.results[0]

    owner = value.owner
    if (
        isinstance(owner, xetile.ReductionOp)
        and owner.kind == "add"
        and owner.dims == (1,)
        and owner.source.type == kind
    ):
        return owner.source
    if splat(value) == 0:
        return insert(_splat(kind, 0.0))
    # One of the lanes has it, the others nothing.
    column = insert(StepOp(VectorType(IndexType(), [LANES])))
    row = insert(ShapeCastOp(column, VectorType(IndexType(), [1, LANES])))
    where = insert(xetile.BroadcastOp(row, VectorType(IndexType(), kind.get_shape()), [0]))
    zero = insert(_splat(where.type, 0))
    first = insert(arith.CmpiOp(where, zero, "eq"))
    whole = insert(xetile.BroadcastOp(value, kind, [1]))
    nothing = insert(_splat(kind, 0.0))
    return insert(arith.SelectOp(first, whole, nothing))


def _splat(type: Attribute, number: float) -> Operation:
    held = DenseIntOrFPElementsAttr.from_list(type, [number])  # pyright: ignore
    return arith.ConstantOp(held, type)  # pyright: ignore
