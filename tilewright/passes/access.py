"""Access analysis: where every load, store, prefetch and atomic of a kernel goes.

Requires: workgroup- or subgroup-level XeTile (DESIGN §2) in one gpu.func, verified.
Guarantees: changes nothing; results describe the IR as it stood when the analysis was built.

Offsets are expressions in program ids, loop counters, extents and kernel arguments, alike for
`update_tile_offset` chains carried by a loop and for `init_tile` in the loop. Both of

    scf.for %k = %c0 to %K step %c32 iter_args(%t = %t0) {       scf.for %k = %c0 to %K step %c32 {
      %v = xetile.load_tile %t                                     %t = xetile.init_tile %A[%m, %k]
      %u = xetile.update_tile_offset %t, [0, 32]                   %v = xetile.load_tile %t
      scf.yield %u }                                               ... }

give the load offsets ``(256*pid0, 32*n0)``: it does not depend on pid1, moves by (0, 32) per iteration,
and covers 256 rows from 256*pid0 and ``32*trips`` columns from 0 over the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    MemRefType,
    UnitAttr,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects import xetile
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.induction import Loop, Scalars, same_view

ARGS = "tilewright.args"
SLM = 3


class AccessKind(StrEnum):
    LOAD = "load"
    STORE = "store"
    PREFETCH = "prefetch"
    ATOMIC = "atomic"


@dataclass(frozen=True)
class ArgFacts:
    """What specialisation promises of an array argument (`tilewright.args`, see the cache key).

    ``align``: power-of-two alignment in bytes of base and non-unit strides. ``div``: per dimension a
    power of two that divides the extent. ``noalias``: overlaps no other argument.
    """

    align: int = 1
    div: tuple[int, ...] = ()
    noalias: bool = False


@dataclass(frozen=True)
class Interval:
    """Elements ``[start, start + length)`` of one dimension; ``dense`` if all of them are touched."""

    start: Expr
    length: Expr
    dense: bool

    def __str__(self) -> str:
        return f"{self.start} +{self.length}" + ("" if self.dense else " (with gaps)")


@dataclass(frozen=True, eq=False)
class Access:
    """One memory op on a tile.

    ``offsets``, ``extents`` and ``strides`` have one entry per dimension of the base matrix, at least
    two (a 1-D array is a row of extent 1); the last two are the tile's rows and columns, whose
    ``shape`` (array_length included) they address. A scattered access has no offsets: ``scattered``
    is set and only :meth:`depends_on` is known. ``loops`` stand around the op, outermost first;
    ``conditional`` says that an scf.if does too.
    """

    op: Operation
    kind: AccessKind
    origin: xetile.InitTileOp
    root: SSAValue
    offsets: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    shape: tuple[int, int]
    loops: tuple[Loop, ...]
    conditional: bool
    scattered: bool
    atoms: frozenset[Symbol]

    @property
    def base(self) -> SSAValue:
        """The memref (or address) that `init_tile` names; ``root`` is what that is a view of."""
        return self.origin.source

    @property
    def tile_type(self) -> xetile.TileType:
        return self.origin.tile_type

    @property
    def writes(self) -> bool:
        return self.kind in (AccessKind.STORE, AccessKind.ATOMIC)

    @property
    def memory_space(self) -> int:
        return self.tile_type.memory_space

    @property
    def box_shape(self) -> tuple[int, ...]:
        """Extent of the access in every dimension of the base: 1, .., 1, rows, columns."""
        return (1,) * (len(self.offsets) - 2) + self.shape

    def depends_on(self, symbol: Symbol | Loop) -> bool:
        """Whether the place accessed may change with a program id or loop counter."""
        return (symbol.counter if isinstance(symbol, Loop) else symbol) in self.atoms

    @property
    def axes(self) -> frozenset[int]:
        """The grid axes whose program id the place depends on."""
        found = (s.key for s in self.atoms if s.kind is Kind.PROGRAM_ID)
        return frozenset(axis for axis in found if isinstance(axis, int))

    @property
    def invariant_loops(self) -> tuple[Loop, ...]:
        """Enclosing loops that repeat the same access."""
        return tuple(loop for loop in self.loops if not self.depends_on(loop))

    def step(self, loop: Loop) -> tuple[Expr | None, ...]:
        """Change of each offset per iteration; None where it is not always the same."""
        return tuple(offset.step(loop.counter) for offset in self.offsets)

    def fits(self, dim: int) -> bool:
        """Whether the access provably stays inside its base matrix along ``dim``, for every id."""
        low, _ = self.offsets[dim].range()
        _, over = (self.offsets[dim] + self.box_shape[dim] - self.extents[dim]).range()
        return low is not None and low >= 0 and over is not None and over <= 0

    def __str__(self) -> str:
        where = "scattered" if self.scattered else ", ".join(map(str, self.offsets))
        name = self.root.name_hint or "?"
        return f"{self.kind} {self.shape[0]}x{self.shape[1]} of %{name}[{where}]"


class AccessAnalysis:
    """All accesses of a gpu.func and the questions that passes ask about them."""

    def __init__(self, func: gpu.FuncOp):
        self.func = func
        self.scalars = Scalars()
        self.scalars.components = self._tile_component
        self.accesses: tuple[Access, ...] = ()
        self._origins: dict[SSAValue, xetile.InitTileOp | None] = {}
        self._by_op: dict[Operation, Access] = {}
        self._foreign_writes: list[Operation] = []
        for op in func.walk():
            access = self._access(op)
            if access is not None:
                self._by_op[op] = access
            elif _may_write(op):
                self._foreign_writes.append(op)
        self.accesses = tuple(self._by_op.values())

    # Symbols and expressions.
    def program_id(self, axis: int) -> Symbol:
        return self.scalars.program_ids[axis]

    def grid_dim(self, axis: int) -> Symbol:
        return self.scalars.grid_dim(axis)

    def expr(self, value: SSAValue | int) -> Expr:
        """Any integer scalar of the kernel as an expression."""
        return self.scalars.expr(value)

    def loop(self, op: Operation) -> Loop:
        """An scf.for or scf.while (or the first dimension of an scf.parallel)."""
        return self.scalars.loop(op)

    def of(self, op: Operation) -> Access:
        """The access of a memory op. KeyError for an op that is none."""
        return self._by_op[op]

    @cached_property
    def used_axes(self) -> frozenset[int]:
        """Grid axes whose program id occurs in the kernel."""
        ids = (op for op in self.func.walk() if isinstance(op, gpu.BlockIdOp))
        return frozenset("xyz".index(op.dimension.data) for op in ids)

    def facts(self, root: SSAValue) -> ArgFacts:
        """Promises about the array argument that ``root`` is; none for anything else."""
        facts = self.func.attributes.get(ARGS)
        if not isinstance(root, BlockArgument) or not isinstance(facts, ArrayAttr):
            return ArgFacts()
        if root.block is not self.func.body.blocks.first or root.index >= len(facts.data):
            return ArgFacts()
        entry = facts.data[root.index]
        if not isinstance(entry, DictionaryAttr):
            return ArgFacts()
        align, div = entry.data.get("align"), entry.data.get("div")
        return ArgFacts(
            align.value.data if isinstance(align, IntegerAttr) else 1,
            tuple(_integers(div)) if div is not None else (),
            isinstance(entry.data.get("noalias"), UnitAttr),
        )

    # Regions.
    def region(
        self, access: Access, *, loops: Iterable[Loop] = (), axes: Iterable[int] = ()
    ) -> tuple[Interval, ...] | None:
        """The box that an access covers while the counters of ``loops`` and the program ids of
        ``axes`` take all of their values and everything else stays; one interval per dimension.

        None where an offset is not affine in them with known coefficients, or a trip count is
        unknown. Not clipped to the base matrix. A loop that may run zero times covers what one trip
        would.
        """
        if access.scattered:
            return None
        counts = {self.program_id(a): Expr.symbol(self.grid_dim(a)) for a in axes}
        for loop in loops:
            if access.depends_on(loop) and loop.trips is None:
                return None
            counts[loop.counter] = loop.trips if loop.trips is not None else Expr.of(1)
        dims = [
            _interval(offset, size, counts)
            for offset, size in zip(access.offsets, access.box_shape, strict=True)
        ]
        known = tuple(d for d in dims if d is not None)
        return known if len(known) == len(dims) else None

    # Aliasing and order.
    def may_alias(self, a: SSAValue, b: SSAValue) -> bool:
        """Whether two roots may share memory: by space, allocation and the `noalias` facts."""
        if a is b:
            return True
        spaces = _space(a), _space(b)
        if None not in spaces and spaces[0] != spaces[1]:
            return False
        for root in (a, b):
            if isinstance(root, OpResult) and isinstance(
                root.op, (memref.AllocOp, memref.AllocaOp)
            ):
                return False
            if self.facts(root).noalias and isinstance(a, BlockArgument) is isinstance(
                b, BlockArgument
            ):
                return False
        return True

    def read_only(self, root: SSAValue) -> bool:
        """Whether nothing in the whole launch may write the memory of ``root``."""
        if any(a.writes and self.may_alias(a.root, root) for a in self.accesses):
            return False
        return not any(
            self.may_alias(memory_root(v), root)
            for op in self._foreign_writes
            for v in (op.operands if any(_is_memref(v) for v in op.operands) else [root])
            if _is_memref(v)
        )

    def may_overlap(self, a: Access, b: Access, *, common: Collection[Symbol] = ()) -> bool:
        """Whether two accesses may touch one element.

        Symbols in ``common`` (program ids, counters) have the same value for both; all other program
        ids and counters vary independently. ``common=analysis.program_ids`` asks within a workgroup.
        """
        if not self.may_alias(a.root, b.root):
            return False
        if not _same_matrix(a, b):
            return True
        for x, y, size_x, size_y in zip(
            a.offsets, b.offsets, a.box_shape, b.box_shape, strict=True
        ):
            low, high = _difference(x, y, common)
            if (low is not None and low >= size_y) or (high is not None and high <= -size_x):
                return False
        return True

    @property
    def program_ids(self) -> tuple[Symbol, ...]:
        return self.scalars.program_ids

    def separated_by(self, a: Access, b: Access | None = None) -> frozenset[Symbol]:
        """Program ids and counters of which different values mean disjoint regions.

        Two instances of ``a`` (or one of ``a`` and one of ``b``) that differ in such a symbol touch no
        common element, whatever the other symbols are. A store of which every grid axis in use
        separates needs no order between workgroups.
        """
        b = a if b is None else b
        if not _same_matrix(a, b):
            return frozenset()
        found: set[Symbol] = set()
        for x, y, size in zip(
            a.offsets, b.offsets, map(max, a.box_shape, b.box_shape), strict=True
        ):
            shift = (x - y).constant
            if shift is not None:
                found |= _digits(x, size + abs(shift))
        grew = True
        while grew:
            joined = _joined(found)
            grew = not joined <= found
            found |= joined
        return frozenset(s for s in found if s.kind in (Kind.PROGRAM_ID, Kind.COUNTER))

    # Building.
    def _access(self, op: Operation) -> Access | None:
        match op:
            case xetile.LoadTileOp() | xetile.LoadGatherOp():
                kind = AccessKind.LOAD
            case xetile.StoreTileOp() | xetile.StoreScatterOp():
                kind = AccessKind.STORE
            case xetile.PrefetchTileOp():
                kind = AccessKind.PREFETCH
            case xetile.AtomicRmwOp():
                kind = AccessKind.ATOMIC
            case _:
                return None
        origin = self.origin(op.tile)
        if origin is None:
            self._foreign_writes.append(op)
            return None
        tile = origin.tile_type
        scattered = tile.scattered
        shape = tile.get_shape()
        rows, columns = (1, *shape)[-2:]
        rank = max(2, len(origin.mixed_offsets))
        offsets = () if scattered else tuple(self.scalars.expr(op.tile, d) for d in range(rank))
        atoms = frozenset[Symbol]().union(*(e.atoms for e in offsets))
        if scattered:
            atoms = self._scatter_atoms(op.tile)
        return Access(
            op,
            kind,
            origin,
            memory_root(origin.source),
            offsets,
            () if scattered else self._sizes(origin, rank),
            () if scattered else self._strides(origin, rank),
            (rows, columns * tile.array_length),
            self.scalars.enclosing(op),
            _is_conditional(op),
            scattered,
            atoms,
        )

    def origin(self, tile: SSAValue) -> xetile.InitTileOp | None:
        """The init_tile that a tile goes back to, through moves, loops and branches.

        Several of the same memref, sizes and strides count as one; None where they differ.
        """
        if tile not in self._origins:
            found = _reachable(tile)
            same = found and all(_same_base(found[0], o) for o in found)
            self._origins[tile] = found[0] if same else None
        return self._origins[tile]

    def _tile_component(self, result: OpResult, dim: int) -> Expr:
        """Offset of a tile along dimension ``dim`` of its base (a 1-D base counts as one row)."""
        match result.op:
            case xetile.InitTileOp() as op if not op.tile_type.scattered:
                offsets = op.mixed_offsets
                missing = max(0, 2 - len(offsets))
                return self.expr(offsets[dim - missing]) if dim >= missing else Expr.of(0)
            case xetile.UpdateTileOffsetOp() as op if not op.tile_type.scattered:
                origin = self.origin(op.tile)
                rank = max(2, len(origin.mixed_offsets)) if origin is not None else 2
                deltas = op.mixed_offsets
                moved = self.scalars.expr(op.tile, dim)
                place = dim - (rank - len(deltas))
                return moved + self.expr(deltas[place]) if place >= 0 else moved
            case arith.SelectOp() as op:
                parts = [self.scalars.expr(v, dim) for v in (op.lhs, op.rhs)]
                condition = self.expr(op.cond)
                same = parts[0] == parts[1]
                return parts[0] if same else self.scalars.symbols.apply("select", condition, *parts)
            case _:
                return self.scalars.unknown(result, dim)

    def _scatter_atoms(self, tile: SSAValue) -> frozenset[Symbol]:
        if isinstance(tile, OpResult) and isinstance(
            tile.op, (xetile.InitTileOp, xetile.UpdateTileOffsetOp)
        ):
            vector = tile.op.offset_vector
            found = self.scalars.atoms(vector) if vector is not None else frozenset[Symbol]()
            if isinstance(tile.op, xetile.UpdateTileOffsetOp):
                found |= self._scatter_atoms(tile.op.tile)
            return found
        return self.scalars.unknown(tile).atoms

    def _sizes(self, origin: xetile.InitTileOp, rank: int) -> tuple[Expr, ...]:
        if origin.mixed_sizes:
            sizes = [self.expr(v) for v in origin.mixed_sizes]
        else:
            assert isinstance(origin.source.type, MemRefType)
            sizes = [
                self.scalars.extent(origin.source, d)
                for d in range(origin.source.type.get_num_dims())
            ]
        return (Expr.of(1),) * (rank - len(sizes)) + tuple(sizes)

    def _strides(self, origin: xetile.InitTileOp, rank: int) -> tuple[Expr, ...]:
        if origin.mixed_strides:
            strides = [self.expr(v) for v in origin.mixed_strides]
        else:
            assert isinstance(origin.source.type, MemRefType)
            strides = [
                self.scalars.stride(origin.source, d)
                for d in range(origin.source.type.get_num_dims())
            ]
        return (Expr.of(0),) * (rank - len(strides)) + tuple(strides)


def memory_root(value: SSAValue) -> SSAValue:
    """What a memref is a view of: a kernel argument, an allocation, or an address."""
    while isinstance(value, OpResult):
        op = value.op
        if isinstance(op, (memref.AllocOp, memref.AllocaOp)) or not any(
            _is_memref(v) for v in op.operands
        ):
            return value
        value = next(v for v in op.operands if _is_memref(v))
    return value


def _interval(offset: Expr, size: int, counts: dict[Symbol, Expr]) -> Interval | None:
    start, length, dense = offset, Expr.of(size), True
    steps: list[tuple[int, Symbol]] = []
    for symbol in counts:
        if not offset.depends_on(symbol):
            continue
        step = offset.step(symbol)
        if step is None or (c := step.constant) is None:
            return None
        steps.append((c, symbol))
    for c, symbol in sorted(steps, key=lambda item: abs(item[0])):
        _, reach = (abs(c) - length).range()
        dense = dense and reach is not None and reach <= 0
        last = counts[symbol] - 1
        start = start.substitute({symbol: Expr.of(0) if c > 0 else last})
        length = length + last * abs(c)
    return Interval(start, length, dense)


def _difference(x: Expr, y: Expr, common: Collection[Symbol]) -> tuple[int | None, int | None]:
    """Bounds of x - y where symbols that vary and are not common take independent values."""
    shared = {s for s in x.symbols | y.symbols if _is_fixed(s, common)}
    fixed_x = Expr({m: k for m, k in x.terms.items() if all(s in shared for s in m)})
    fixed_y = Expr({m: k for m, k in y.terms.items() if all(s in shared for s in m)})
    low, high = (fixed_x - fixed_y).range()
    for part, sign in ((x - fixed_x, 1), (y - fixed_y, -1)):
        lo, hi = (part * sign).range()
        low = None if low is None or lo is None else low + lo
        high = None if high is None or hi is None else high + hi
    return low, high


def _is_fixed(symbol: Symbol, common: Collection[Symbol]) -> bool:
    varying = {s for s in {symbol, *symbol.atoms} if s.kind in (Kind.PROGRAM_ID, Kind.COUNTER)}
    return all(s in common for s in varying)


def _digits(offset: Expr, size: int) -> set[Symbol]:
    """Symbols that stand in an offset like digits of a mixed radix above ``size`` elements."""
    found: set[Symbol] = set()
    cover: int | None = size
    varying = [s for s in offset.symbols if not _is_fixed(s, ())]
    for symbol in sorted(varying, key=lambda s: abs(offset.coefficient(s).constant or 0)):
        c = offset.coefficient(symbol).constant
        if c is None or c == 0 or cover is None:
            # A product of symbols, or nothing known of what stands below: no digit from here on.
            return found
        if abs(c) >= cover:
            found.add(symbol)
        if symbol.lower is None or symbol.upper is None:
            cover = None
        else:
            cover += abs(c) * (symbol.upper - symbol.lower)
    return found


def _joined(found: set[Symbol]) -> set[Symbol]:
    """x, where both x // d and x % d are told apart."""
    parts: dict[tuple[Expr, ...], set[str]] = {}
    for symbol in found:
        if symbol.kind is Kind.APPLY and isinstance(symbol.key, tuple):
            parts.setdefault(symbol.args, set()).add(str(symbol.key[0]))
    whole = (args[0].as_symbol() for args, ops in parts.items() if {"floordiv", "mod"} <= ops)
    return {symbol for symbol in whole if symbol is not None}


def _same_matrix(a: Access, b: Access) -> bool:
    """Whether offsets of both count in one coordinate system."""
    if a.scattered or b.scattered or len(a.offsets) != len(b.offsets):
        return False
    return same_view(a.base) is same_view(b.base) and a.strides == b.strides


def _same_base(a: xetile.InitTileOp, b: xetile.InitTileOp) -> bool:
    return (
        same_view(a.source) is same_view(b.source)
        and a.tile_type == b.tile_type
        and a.mixed_sizes == b.mixed_sizes
        and a.mixed_strides == b.mixed_strides
    )


def _reachable(tile: SSAValue) -> list[xetile.InitTileOp]:
    """The init_tile ops that a tile may go back to; empty where one source is of another kind."""
    found: list[xetile.InitTileOp] = []
    seen: set[SSAValue] = set()
    pending = [tile]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, OpResult) and isinstance(value.op, xetile.InitTileOp):
            found.append(value.op)
            continue
        sources = list(_tile_sources(value))
        if not sources:
            return []
        pending += reversed(sources)
    return found


def _tile_sources(tile: SSAValue) -> Iterator[SSAValue]:
    """The tiles that a tile may be a moved copy of."""
    if isinstance(tile, BlockArgument):
        op = tile.block.parent_op()
        if isinstance(op, scf.ForOp):
            yield op.iter_args[tile.index - 1]
            yield _last(tile.block).operands[tile.index - 1]
        elif isinstance(op, scf.WhileOp) and tile.block is op.before_region.block:
            yield op.arguments[tile.index]
            yield _last(op.after_region.block).operands[tile.index]
        elif isinstance(op, scf.WhileOp):
            yield _last(op.before_region.block).operands[tile.index + 1]
        return
    assert isinstance(tile, OpResult)
    match tile.op:
        case xetile.UpdateTileOffsetOp() as op:
            yield op.tile
        case arith.SelectOp() as op:
            yield from (op.lhs, op.rhs)
        case scf.ForOp() as op:
            yield op.body.block.args[tile.index + 1]
        case scf.WhileOp() as op:
            yield _last(op.before_region.block).operands[tile.index + 1]
        case scf.IfOp() as op:
            for region in (op.true_region, op.false_region):
                yield _last(region.block).operands[tile.index]
        case _:
            return


def _last(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op


def _is_conditional(op: Operation) -> bool:
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, gpu.FuncOp):
        if isinstance(parent, scf.IfOp):
            return True
        parent = parent.parent_op()
    return False


_READERS = (
    "vector.load",
    "vector.transfer_read",
    "vector.gather",
    "vector.maskedload",
    "xetile.init_tile",
)
_WRITERS = (
    "memref.store",
    "memref.copy",
    "memref.atomic_rmw",
    "vector.store",
    "vector.transfer_write",
    "vector.scatter",
    "vector.maskedstore",
    "vector.compressstore",
)


def _may_write(op: Operation) -> bool:
    """Whether an op that is no tile access may write memory that it names, or any at all."""
    if op.name in _WRITERS or op.name in ("func.call", "gpu.launch_func"):
        return True
    harmless = op.name in _READERS or op.name.startswith(("memref.", "scf.", "cf.", "gpu."))
    return not harmless and any(_is_memref(v) for v in op.operands)


def _is_memref(value: SSAValue) -> bool:
    return isinstance(value.type, MemRefType)


def _space(root: SSAValue) -> int | None:
    """Memory space of a memref; None for a raw address."""
    if not isinstance(root.type, MemRefType):
        return 0
    space = root.type.memory_space
    return space.value.data if isinstance(space, IntegerAttr) else 0


def _integers(attribute: Attribute) -> Iterator[int]:
    entries = (
        attribute.data
        if isinstance(attribute, ArrayAttr)
        else getattr(attribute, "get_values", tuple)()
    )
    for entry in entries:
        yield entry.value.data if isinstance(entry, IntegerAttr) else int(entry)
