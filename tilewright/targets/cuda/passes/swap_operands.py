"""swap-operands: a product is computed transposed where that suits warpgroups better.

It has few rows: then its columns fill a warpgroup's 64 rows. Or its right operand is computed (dequantised weights) and
its left one is not: warpgroups read a right operand in shared memory only, where threads would have to write what they
computed, but a left one from registers. Or the right operand's lines run along n, the left one's along k, in a type
other than of 16 bits: in shared memory these have to run along k, but threads may load the left operand as it lies.

    %s = scf.for .. iter_args(%acc = 0 : 16x128) {        %s = scf.for .. iter_args(%acc = 0 : 128x16) {
      %d = tile_mma %a, %b, %acc                            %d = tile_mma T(%b), T(%a), %acc
      scf.yield %d }                                  ->    scf.yield %d }
    %y = gelu(%s) : 16x128                                %y = gelu(%s) : 128x16
    store_tile %y, %t                                     store_tile T(%y), %t

Requires: XeTile at workgroup level. Guarantees: the same sums in the same order.

What an operand is computed of is transposed where it is loaded. Takes part: a kernel all of whose products gain so and
have columns that the instruction takes as rows, none of which feeds another, and whose sums go through `for` and `if`
alone. All values that sums meet element by element are transposed with them; what comes in (a bias, a residual) and
goes out (a store, a reduction) is transposed there.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, scf, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue, Use
from xdsl.rewriter import Rewriter

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.elementwise import is_elementwise_on_vectors, retyped
from tilewright.dialects.movement import shape_of
from tilewright.dialects.numerals import dense
from tilewright.dialects.upstream.vector import InterleaveOp, TransposeOp
from tilewright.passes.carried import names_of, reached
from tilewright.passes.emit import Before, Behind, with_shape
from tilewright.passes.fold_identities import splat
from tilewright.targets.cuda.passes.tf32_rounding import source_load
from tilewright.targets.cuda.passes.wgmma_legality import TRANSPOSES, instruction_for
from tilewright.uarch.base import Machine


def swap_operands(function: gpu.FuncOp, machine: Machine) -> bool:
    """Computes a product transposed if it has few rows, or if warpgroups can read its operands only so. Returns
    whether."""
    products = [op for op in function.walk() if isinstance(op, xetile.TileMmaOp)]
    if not products or not all(_gains(op, machine) for op in products):
        return False
    values = _connected(products)
    if values is None:
        return False
    outside = [value for value in values if _comes_in(value)]
    inside = [value for value in values if not _comes_in(value)]
    known = set(inside)
    for value in outside:
        _enter(value, known)
    for op in products:
        a, b = (_operand(v, op) for v in (op.a, op.b))
        op.operands[0], op.operands[1] = b, a
    turned = [Rewriter.replace_value_with_new_type(value, _turned(value)) for value in inside]
    known = set(turned)
    for value in turned:
        _leave(value, known)
    return True


def _gains(op: xetile.TileMmaOp, machine: Machine) -> bool:
    """Is there a warpgroup's instruction for the transposed product alone, or does that one read its operands as they
    are?"""
    a, b, c = (v.type for v in (op.a, op.b, op.result))
    found = instruction_for(machine, b, a, c)
    if found is None:
        return False
    m, n = c.get_shape()
    fits = n % found.m[0] == 0 and (m in found.n or m % found.n[-1] == 0)
    return fits and (m % found.m[0] != 0 or _turned_memory(op) or _computed_right(op))


def _computed_right(op: xetile.TileMmaOp) -> bool:
    """Is the right operand alone computed, of what can be transposed where it is loaded?"""
    left = source_load(op.a, 1)
    if left is None or source_load(op.b, 1) is not None:
        return False
    load, k = left
    wide = dtypes.from_mlir(load.tile_type.element_type).itemsize
    return (wide == 2 or load.tile_type.order[0] == k) and _turnable(op.b)


def _turned_memory(op: xetile.TileMmaOp) -> bool:
    """Do lines of the arrays, of a type that is not 16 bits wide, run along k on the left, along n on the right?"""
    right = source_load(op.b, 1)
    left = source_load(op.a, 1)
    if left is None or right is None:
        return False
    (a, k), (b, n) = left, right
    wide = dtypes.from_mlir(b.tile_type.element_type).itemsize
    return wide != 2 and a.tile_type.order[0] == k and b.tile_type.order[0] == n


def _connected(products: Sequence[xetile.TileMmaOp]) -> list[SSAValue] | None:
    """The products' sums and all values of their shape that they meet element by element, in the order found; None
    where one of them takes a way that cannot be followed."""
    found: dict[SSAValue, None] = {}
    work: list[SSAValue] = [op.result for op in products]
    while work:
        value = work.pop()
        if value in found:
            continue
        found[value] = None
        beside = _beside(value, set(products))
        if beside is None:
            return None
        work += beside
    return list(found)


def _beside(value: SSAValue, products: set[xetile.TileMmaOp]) -> list[SSAValue] | None:
    """The values that have to be transposed with one."""
    found: list[SSAValue] = []
    owner = value.owner
    if isinstance(owner, Block):
        if not isinstance(loop := owner.parent_op(), scf.ForOp):
            return None
        found += names_of(loop, value.index - 1)  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(owner, scf.ForOp | scf.IfOp) and isinstance(value, OpResult):
        found += names_of(owner, value.index)
    elif isinstance(owner, xetile.TileMmaOp) and owner in products:
        found += [owner.c] if owner.c is not None else []
    elif is_elementwise_on_vectors(owner):
        found += _tiles(owner)
    elif owner.regions:
        return None
    for use in value.uses:
        user = use.operation
        if isinstance(user, scf.ForOp):
            found += names_of(user, use.index - 3)
        elif isinstance(user, scf.YieldOp):
            around = user.parent_op()
            if not isinstance(around, scf.ForOp | scf.IfOp):
                return None
            found += names_of(around, use.index)
        elif isinstance(user, xetile.TileMmaOp):
            if user.c is not value or use.index != len(user.operands) - 1:
                return None  # it feeds another product
            found.append(user.result)
        elif is_elementwise_on_vectors(user):
            found += _tiles(user)
        elif user.regions or isinstance(user, scf.ConditionOp):
            return None
    return found


def _tiles(op: Operation) -> list[SSAValue]:
    return [v for v in (*op.operands, *op.results) if shape_of(v)]


def _comes_in(value: SSAValue) -> bool:
    """Is a value made by an op that is not transposed itself?"""
    owner = value.owner
    return isinstance(owner, Operation) and not (
        isinstance(owner, xetile.TileMmaOp | scf.ForOp | scf.IfOp)
        or is_elementwise_on_vectors(owner)
    )


def _enter(value: SSAValue, known: set[SSAValue]) -> None:
    """What is transposed uses a transposed copy of what comes in."""
    owner = value.owner
    assert isinstance(owner, Operation)
    made = _repeated(value) or TransposeOp(value, [1, 0])
    value.replace_uses_with_if(Behind(owner).add(made), lambda use: _follows(use, known))


def _leave(value: SSAValue, known: set[SSAValue]) -> None:
    """What is not transposed uses the value as it was."""
    for use in list(value.uses):
        if not _follows(use, known):
            use.operation.operands[use.index] = _transposed(value, use.operation)


def _follows(use: Use, known: set[SSAValue]) -> bool:
    """Is a use one of an op that is transposed with its values?"""
    op = use.operation
    if isinstance(op, scf.YieldOp):
        op = op.parent_op()
    return op is not None and any(v in known for v in op.results)


def _transposed(value: SSAValue, at: Operation) -> SSAValue:
    """The value with its dimensions exchanged, made before an op."""
    return Before(at).add(TransposeOp(value, [1, 0]))


def _operand(value: SSAValue, at: Operation) -> SSAValue:
    """An operand with its dimensions exchanged, and so what it is computed of, where that can be done."""
    return _pushed(value, at, {}) if _turnable(value) else _transposed(value, at)


def _turnable(value: SSAValue) -> bool:
    """Is a value computed, one by one, of loads, of what is the same along a dimension, or of what is transposed or
    alternates?"""
    return None not in map(_turned_with, reached([value], lambda v: _turned_with(v) or ()))


def _turned_with(value: SSAValue) -> Sequence[SSAValue] | None:
    """The values that are turned where one is; None where it is not computed one by one."""
    owner = value.owner
    if isinstance(owner, Block) or len(shape_of(value)) != 2:
        return None
    if isinstance(owner, xetile.BroadcastOp):
        plain = owner.broadcast_size is None and len(shape_of(owner.source)) == 2
        return () if plain else None
    if isinstance(owner, InterleaveOp):
        return owner.operands
    turns = isinstance(owner, xetile.LoadTileOp | vector.BroadcastOp | TRANSPOSES)
    if turns or splat(value) is not None:
        return ()
    tiles = _tiles(owner) if is_elementwise_on_vectors(owner) else []
    return [v for v in tiles if v is not value] if tiles else None


def _pushed(value: SSAValue, at: Operation, known: dict[SSAValue, SSAValue]) -> SSAValue:
    """A turnable value, transposed before an op."""
    if value in known:
        return known[value]
    owner = value.owner
    assert isinstance(owner, Operation)
    if isinstance(owner, TRANSPOSES):
        made = owner.operands[0]
    elif isinstance(owner, xetile.BroadcastOp):
        dims = [1 - d for d in owner.dims]
        made = Before(at).add(
            xetile.BroadcastOp(_transposed(owner.source, at), _turned(value), dims)
        )
    elif (scalar := _repeated(value)) is not None:
        made = Before(at).add(scalar)
    elif is_elementwise_on_vectors(owner):
        operands = [_pushed(v, at, known) if shape_of(v) else v for v in owner.operands]
        made = Before(at).add(retyped(owner, operands, [_turned(v) for v in owner.results]))
    else:
        made = _transposed(value, at)
    made.name_hint = made.name_hint or value.name_hint
    known[value] = made
    return made


def _repeated(value: SSAValue) -> Operation | None:
    """The value with its dimensions exchanged, where all of its elements are one number; None where they are not."""
    owner = value.owner
    if isinstance(owner, vector.BroadcastOp) and not shape_of(owner.operands[0]):
        return vector.BroadcastOp(owner.operands[0], _turned(value))
    if isinstance(owner, arith.ConstantOp) and (same := splat(value)) is not None:
        return arith.ConstantOp(dense(_turned(value), [same]))
    return None


def _turned(value: SSAValue) -> VectorType:
    return with_shape(value.type, shape_of(value)[::-1])
