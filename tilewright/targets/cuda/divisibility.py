"""What divides an index: constants, products and sums followed back through a kernel's scalars.

Offsets of tiles are sums of multiples (program id times tile size, loop counters by their step); what
divides them all decides whether an access may be a vector, and whether a tile can straddle a border.
"""

from __future__ import annotations

from math import gcd

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType
from xdsl.ir import BlockArgument, OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.targets.cuda.aliasing import divisors_of

ANY = 0
"""The multiple of everything: zero itself."""
MOST = 1 << 12


_QUOTIENTS = frozenset(
    f"arith.{x}" for x in ("divsi", "divui", "floordivsi", "ceildivsi", "ceildivui")
)
_CASTS = frozenset(f"arith.{x}" for x in ("index_cast", "index_castui", "extsi", "extui", "trunci"))


def _constant(value: SSAValue) -> int | None:
    op = value.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return op.value.value.data
    return None


def divisor(value: SSAValue | int, seen: frozenset[SSAValue] = frozenset()) -> int:
    """The largest known divisor of an index (at most `MOST`); `ANY` for zero."""
    if isinstance(value, int):
        return gcd(value, MOST) if value else ANY
    if value in seen:
        return ANY  # what a loop adds to itself is looked at where it is added
    seen = seen | {value}
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        if isinstance(loop, scf.ForOp):
            if value.index == 0:
                return _gcd(divisor(loop.lb, seen), divisor(loop.step, seen))
            last = loop.body.block.last_op
            assert last is not None
            first = divisor(loop.iter_args[value.index - 1], seen)
            return _gcd(first, divisor(last.operands[value.index - 1], seen))
        return 1
    assert isinstance(value, OpResult)
    op = value.op
    if isinstance(op, arith.ConstantOp):
        if isinstance(op.value, IntegerAttr):
            return divisor(op.value.value.data)
        return 1
    if isinstance(op, arith.AddiOp | arith.SubiOp):
        return _gcd(divisor(op.lhs, seen), divisor(op.rhs, seen))
    if isinstance(op, arith.MuliOp):
        a, b = divisor(op.lhs, seen), divisor(op.rhs, seen)
        return ANY if ANY in (a, b) else gcd(a * b, MOST)
    if isinstance(op, arith.MinSIOp | arith.MaxSIOp):
        return _gcd(divisor(op.lhs, seen), divisor(op.rhs, seen))
    if isinstance(op, arith.SelectOp):
        return _gcd(divisor(op.lhs, seen), divisor(op.rhs, seen))
    if isinstance(op, arith.RemSIOp | arith.RemUIOp):
        return _gcd(divisor(op.lhs, seen), divisor(op.rhs, seen))
    if op.name in _QUOTIENTS:
        # Exact where the divisor divides: then nothing is rounded.
        a, b = divisor(op.operands[0], seen), _constant(op.operands[1])
        return 1 if b is None or b <= 0 or a % b else a // b
    if isinstance(op, arith.ShLIOp) and (by := _constant(op.rhs)) is not None and 0 <= by < 32:
        return gcd(divisor(op.lhs, seen) << by, MOST)
    if op.name in _CASTS:
        return divisor(op.operands[0], seen)
    if isinstance(op, scf.IfOp) and op.false_region.blocks:
        ends = [r.block.last_op for r in (op.true_region, op.false_region)]
        sides = [divisor(end.operands[value.index], seen) for end in ends if end is not None]
        return _gcd(*sides) if len(sides) == 2 else 1
    if isinstance(op, scf.ForOp):
        last = op.body.block.last_op
        assert last is not None
        first = divisor(op.iter_args[value.index], seen)
        return _gcd(first, divisor(last.operands[value.index], seen))
    if isinstance(op, memref.DimOp) and isinstance(op.source.type, MemRefType):
        at = op.index.owner
        if isinstance(at, arith.ConstantOp) and isinstance(at.value, IntegerAttr):
            dim = at.value.value.data
            rank = len(op.source.type.get_shape())
            extent = op.source.type.get_shape()[dim]
            return divisor(extent) if extent >= 0 else divisors_of(op.source, rank)[dim]
    return 1


def _gcd(a: int, b: int) -> int:
    return gcd(a, b)


def tile_divisors(
    tile: SSAValue, seen: frozenset[SSAValue] = frozenset()
) -> tuple[tuple[int, int], tuple[int, int]]:
    """((rows, columns) that divide a 2-D tile's offsets, the same of its matrix's extents)."""
    none = ((1, 1), (1, 1))
    every = ((ANY, ANY), (ANY, ANY))
    if tile in seen:
        return every
    seen = seen | {tile}
    if isinstance(tile, BlockArgument):
        loop = tile.block.parent_op()
        if not isinstance(loop, scf.ForOp):
            return none
        last = loop.body.block.last_op
        assert last is not None
        i = tile.index - 1
        return _both(tile_divisors(loop.iter_args[i], seen), tile_divisors(last.operands[i], seen))
    assert isinstance(tile, OpResult)
    op = tile.op
    if isinstance(op, xt.InitTileOp):
        return _of_init(op)
    if isinstance(op, xt.UpdateTileOffsetOp) and op.offset_vector is None:
        (rows, cols), extents = tile_divisors(op.tile, seen)
        by = [divisor(x) for x in op.mixed_offsets]
        return (_gcd(rows, by[0]), _gcd(cols, by[1])), extents
    if isinstance(op, scf.ForOp):
        last = op.body.block.last_op
        assert last is not None
        return _both(
            tile_divisors(op.iter_args[tile.index], seen),
            tile_divisors(last.operands[tile.index], seen),
        )
    return none


Pair = tuple[tuple[int, int], tuple[int, int]]


def _both(a: Pair, b: Pair) -> Pair:
    (p, q), (r, s) = a, b
    return (
        (_gcd(p[0], r[0]), _gcd(p[1], r[1])),
        (_gcd(q[0], s[0]), _gcd(q[1], s[1])),
    )


def _of_init(op: xt.InitTileOp) -> Pair:
    offsets = [divisor(x) for x in op.mixed_offsets]
    sizes: list[SSAValue | int] = list(op.mixed_sizes)
    if sizes:
        extents = [divisor(x) for x in sizes]
    elif isinstance(op.source.type, MemRefType):
        extents = [divisor(n) for n in op.source.type.get_shape()]
    else:
        extents = [1, 1]
    if len(offsets) == 1:
        offsets, extents = [ANY, *offsets], [1, *extents]
    if len(offsets) < 2:
        return (1, 1), (1, 1)
    return (offsets[-2], offsets[-1]), (extents[-2], extents[-1])
