"""deferred-reduction: what a loop reduces into a value that it carries is kept apart for each lane, and combined at its
end.

    for { %t [m, 1]                                   for { %u [m, 4]
      %r = reduction<add> %p [1] : [m, n]               %q = reduction<add> (%p as [m, n/8, 4, 2]) [1, 3]
      %x = mulf %t, %keep                      ->       %x = mulf %u, broadcast %keep
      %y = addf %x, %r }                                %y = addf %x, (%q as [m, 4]) }
                                                      %t = reduction<add> %u [1]

Here each lane of four has two columns out of eight, as in the result of a warpgroup's product: what the iteration
combines lies in the registers of one lane. What others hold, in lanes or in warps, meets once.

Requires: XeTile at workgroup level, or products issued. Guarantees: the same values, reductions being free in their
order; sums and products of floats only where they may be contracted.

A carried value takes part when one chain of ops leads from it to what the loop yields for it, and nothing else reads a
link of the chain. Each link combines it with a reduction of the same kind, or is an op over which that distributes
(sums: to be multiplied or divided by what does not depend on it). Its first value goes to one part, the others begin
with what changes nothing; where it does no harm to have it twice (minima, maxima), each begins with it; and a loop that
goes on where another ends takes over its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.combining import REDUCTIONS, combiner, neutral
from tilewright.frozen import field, record
from tilewright.layout import Axis, Layout
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before, Behind
from tilewright.passes.fold_identities import splat
from tilewright.passes.loops import with_start
from tilewright.targets.cuda.ownership import Ownership

DISTRIBUTES: dict[str, tuple[type[Operation], ...]] = {
    "add": (arith.MulfOp, arith.DivfOp, arith.MuliOp),
}
"""For kinds of reductions, the ops over which they distribute in the first operand."""
COMMUTES = (arith.MulfOp, arith.MuliOp)
IDEMPOTENT = frozenset(REDUCTIONS) - {"add", "mul", "xor"}

Factors = dict[int, list[tuple[int, bool]]]
"""For each dimension that is reduced the radix of its indices, slowest first: a size, and whether a lane holds all."""


@record
class _CarriedReduction:
    """How a carried value of a loop (its argument `position + 1`) goes to the next iteration, link by link."""

    loop: scf.ForOp
    position: int
    links: list[Operation] = field(default_factory=list[Operation])
    parts: dict[Operation, xetile.ReductionOp] = field(
        default_factory=dict[Operation, xetile.ReductionOp]
    )
    """The reductions that links combine the value with."""

    @property
    def carried(self) -> BlockArgument:
        return self.loop.body.block.args[self.position + 1]

    @property
    def part(self) -> xetile.ReductionOp:
        """One of them: all are alike in kind, shape and layout."""
        return next(iter(self.parts.values()))


def defer_reductions(function: gpu.FuncOp, planned: Callable[[], Ownership]) -> int:
    """Rewrites one kernel, `planned` telling who owns what in it; how many values are kept apart."""
    count = 0
    assigned_layouts: Mapping[SSAValue, Layout] | None = None
    for op in list(function.walk()):
        loop: scf.ForOp | None = op if isinstance(op, scf.ForOp) else None
        if loop is None:
            continue
        for position in range(len(loop.iter_args)):
            chain = _chain(loop, position)
            if chain is None:
                continue
            assigned_layouts = (
                planned().assigned_layouts if assigned_layouts is None else assigned_layouts
            )
            factors = _factors(chain, assigned_layouts)
            if factors is not None:
                loop = _rewrite(chain, factors)
                count += 1
    eliminate_dead(function.body.block)
    return count


# Which values -----------------------------------------------------------------------------------


def _chain(loop: scf.ForOp, position: int) -> _CarriedReduction | None:
    block = loop.body.block
    chain = _CarriedReduction(loop, position)
    here: SSAValue = chain.carried
    while len(uses := list(here.uses)) == 1:
        user, at = uses[0].operation, uses[0].index
        if user is block.last_op:
            alike = len({(p.kind, p.dims, p.source.type) for p in chain.parts.values()}) == 1
            done = at == position and alike and all(_fits(op, chain) for op in chain.links)
            return chain if done else None
        if user.parent is not block or len(user.operands) != 2 or len(user.results) != 1:
            return None
        part = user.operands[1 - at].owner
        if isinstance(part, xetile.ReductionOp) and _combines(user, part):
            chain.parts[user] = part
        elif at and not isinstance(user, COMMUTES):
            return None
        chain.links.append(user)
        here = user.results[0]
    return None


def _combines(op: Operation, part: xetile.ReductionOp) -> bool:
    """Does an op combine a value with a reduction of the same kind, which nothing else reads?"""
    kind = part.result.type
    alone = part.parent is op.parent and part.result.has_one_use() and part.reduction_size is None
    return (
        alone and op.results[0].type == kind and type(op) is combiner(part.kind, kind.element_type)
    )


def _fits(op: Operation, chain: _CarriedReduction) -> bool:
    """May a link act on each part alone?"""
    if isinstance(op, arith.AddfOp | arith.MulfOp | arith.DivfOp):
        flags = {flag.value for flag in op.fastmath.data}
        if not {"contract", "fast"} & flags:
            return False
    return op in chain.parts or isinstance(op, DISTRIBUTES.get(chain.part.kind, ()))


def _factors(
    chain: _CarriedReduction, assigned_layouts: Mapping[SSAValue, Layout]
) -> Factors | None:
    """How the dimensions that are reduced are made up; None where each lane has all of them, or nothing is known."""
    layouts = [assigned_layouts.get(part.source) for part in chain.parts.values()]
    layout = layouts[0]
    if layout is None or any(each != layout for each in layouts):
        return None
    found: Factors = {}
    for dim in chain.part.dims:
        found[dim] = []
        for digit in reversed(layout.along(dim)):
            held = digit.axis is Axis.REGISTER
            size = found[dim].pop()[0] if found[dim] and found[dim][-1][1] == held else 1
            found[dim].append((size * digit.size, held))
    return found if any(not held for factors in found.values() for _, held in factors) else None


# The new program --------------------------------------------------------------------------------


def _rewrite(chain: _CarriedReduction, factors: Factors) -> scf.ForOp:
    loop, position, old = chain.loop, chain.position, chain.carried
    block, kind, dims = loop.body.block, chain.part.kind, chain.part.dims
    type = _apart(chain.part, factors)
    inits = list(loop.iter_args)
    inits[position] = _start(inits[position], type, chain.part, loop)
    value: SSAValue = block.insert_arg(type, position + 1)
    value.name_hint = old.name_hint
    before: SSAValue = old
    for link in chain.links:
        part = chain.parts.get(link)
        if part is not None:
            other = _partial(part, type, factors)
        else:
            (scale,) = (o for o in link.operands if o is not before)
            other = Before(link).add(xetile.BroadcastOp(scale, type, dims))
        operands = [value if o is before else other for o in link.operands]
        made = link.create(operands=operands, result_types=[type], properties=dict(link.properties))
        before, value = link.results[0], Before(link).add(made)
        value.name_hint = before.name_hint
    terminator(block).operands[position] = value
    for op in (*reversed(chain.links), *chain.parts.values()):
        Rewriter.erase_op(op)
    block.erase_arg(old)
    new = with_start(loop, inits)
    sums = new.results[position]
    Behind(new).instead(sums, xetile.ReductionOp(kind, sums, dims))
    return new


def _apart(part: xetile.ReductionOp, factors: Factors) -> VectorType:
    """The type of the parts of a reduction: along what is reduced, one for each lane that holds some."""
    type = part.source.type
    shape = list(type.get_shape())
    for dim, found in factors.items():
        shape[dim] = prod(size for size, held in found if not held)
    return VectorType(type.element_type, shape)


def _partial(part: xetile.ReductionOp, type: VectorType, factors: Factors) -> SSAValue:
    """What a reduction comes to in each lane alone."""
    shape: list[int] = []
    own: list[int] = []
    for dim, extent in enumerate(part.source.type.get_shape()):
        for size, held in factors.get(dim, [(extent, False)]):
            own += [len(shape)] * held
            shape.append(size)
    at = Before(part)
    value = at.cast(part.source, shape)
    if own:
        value = at.add(xetile.ReductionOp(part.kind, value, own))
    return at.cast(value, type.get_shape())


def _start(
    value: SSAValue, type: VectorType, part: xetile.ReductionOp, loop: scf.ForOp
) -> SSAValue:
    """Parts that combine to `value`."""
    owner = value.owner
    if (
        isinstance(owner, xetile.ReductionOp)
        and (owner.kind, owner.dims) == (part.kind, part.dims)
        and owner.source.type == type
    ):
        return owner.source
    at = Before(loop)
    nothing = neutral(part.kind, type.element_type)
    known = splat(value)
    if known is not None and known == nothing:
        return at.constant(type, known)
    whole = at.add(xetile.BroadcastOp(value, type, part.dims))
    if part.kind in IDEMPOTENT:
        return whole
    shape = type.get_shape()
    everywhere = VectorType(IndexType(), shape)
    for dim in part.dims:
        # The first part has it, the others nothing.
        others = [d for d in range(len(shape)) if d != dim]
        where = at.add(xetile.BroadcastOp(at.iota(shape, dim), everywhere, others))
        first = at.add(arith.CmpiOp(where, at.constant(everywhere, 0), "eq"))
        whole = at.add(arith.SelectOp(first, whole, at.constant(type, nothing)))
    return whole
