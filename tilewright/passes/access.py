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

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import gcd

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xetile
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.induction import Loop, Scalars, same_view
from tilewright.passes.memory_objects import (
    ArgFacts,
    arg_facts,
    is_array_argument,
    may_alias,
    may_read,
    may_write,
    memory_root,
    memory_space,
    named_roots,
)
from tilewright.passes.regions import difference, separated


class AccessKind(StrEnum):
    LOAD = "load"
    STORE = "store"
    PREFETCH = "prefetch"
    ATOMIC = "atomic"


@dataclass(frozen=True, eq=False)
class Access:
    """One memory op on a tile.

    ``offsets``, ``extents`` and ``strides`` have one entry per dimension of the base matrix, at least
    two (a 1-D array is a row of extent 1); the last two are the tile's rows and columns, whose
    ``shape`` (array_length included) they address. A scattered access has no offsets: ``scattered``
    is set and only :meth:`depends_on` is known. ``loops`` stand around the op, outermost first.
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
    scattered: bool
    atoms: frozenset[Symbol]

    @property
    def base(self) -> SSAValue:
        """The memref (or address) that `init_tile` names; ``root`` is what that is a view of."""
        return self.origin.source

    @property
    def tile(self) -> SSAValue:
        """What the op is given of it."""
        return next(v for v in self.op.operands if isinstance(v.type, xetile.TileType))

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

    def step(self, loop: Loop) -> tuple[Expr | None, ...]:
        """Change of each offset per iteration; None where it is not always the same."""
        return tuple(offset.step(loop.counter) for offset in self.offsets)

    def __str__(self) -> str:
        where = "scattered" if self.scattered else ", ".join(map(str, self.offsets))
        name = self.root.name_hint or "?"
        return f"{self.kind} {self.shape[0]}x{self.shape[1]} of %{name}[{where}]"


class AccessAnalysis(Scalars):
    """All accesses of a gpu.func and the questions that passes ask about them, its scalars among these."""

    def __init__(self, func: gpu.FuncOp):
        super().__init__()
        self.func = func
        self.accesses: tuple[Access, ...] = ()
        self._divisors: dict[Symbol, int] = {}
        self._by_op: dict[Operation, Access] = {}
        self._other_writes: list[Operation] = []
        self._other_reads: list[Operation] = []
        for op in func.walk():
            access = self._access(op)
            if access is not None:
                self._by_op[op] = access
            elif op is not func and may_write(op):
                self._other_writes.append(op)
            elif op is not func and may_read(op):
                self._other_reads.append(op)
        self.accesses = tuple(self._by_op.values())

    # Symbols and expressions.
    def program_id(self, axis: int) -> Symbol:
        return self.program_ids[axis]

    def of(self, op: Operation) -> Access:
        """The access of a memory op. KeyError where :meth:`find` gives None."""
        return self._by_op[op]

    def find(self, op: Operation) -> Access | None:
        """The access of an op; None for no memory op, or a tile of unknown origin."""
        return self._by_op.get(op)

    @cached_property
    def used_axes(self) -> frozenset[int]:
        """Grid axes whose program id occurs in the kernel."""
        ids = (op for op in self.func.walk() if isinstance(op, gpu.BlockIdOp))
        return frozenset("xyz".index(op.dimension.data) for op in ids)

    def facts(self, root: SSAValue) -> ArgFacts:
        """Promises about the array argument that ``root`` is; none for anything else."""
        return arg_facts(root) if is_array_argument(root) else ArgFacts()

    def divisor(self, expr: Expr) -> int:
        """A number that always divides an expression, from coefficients and the `div` facts; 0 for 0."""
        known = 0
        for monomial, factor in expr.terms.items():
            for symbol in monomial:
                factor *= self._symbol_divisor(symbol)
            known = gcd(known, factor)
        return known

    def _symbol_divisor(self, symbol: Symbol) -> int:
        found = self._divisors.get(symbol)
        if found is None:
            found = self._divisors[symbol] = self._find_divisor(symbol)
        return found

    def _find_divisor(self, symbol: Symbol) -> int:
        if symbol.kind is Kind.APPLY and symbol.name.startswith(("mod(", "min(", "max(")):
            return gcd(*map(self.divisor, symbol.args))
        if symbol.kind is not Kind.EXTENT or not isinstance(symbol.key, tuple):
            return 1
        base, dim = symbol.key
        div = self.facts(base).div
        return div[dim] if dim < len(div) else 1

    # Aliasing and order.
    def read_only(self, root: SSAValue) -> bool:
        """Whether nothing in the whole launch may write the memory of ``root``."""
        if any(a.writes and may_alias(a.root, root) for a in self.accesses):
            return False
        for op in self._other_writes:
            written = named_roots(op)
            if written is None or any(may_alias(w, root) for w in written):
                return False
        return True

    def hidden(self) -> tuple[Operation, ...]:
        """Ops that separation and overlap know nothing of, and that may conflict with another op.

        They write memory, or read what the kernel writes, at a place that is not known: memref.store,
        a call, a tile of unknown origin. Shared local memory does not count.
        """

        def conflicts(op: Operation, writes: bool) -> bool:
            roots = named_roots(op)
            if roots is None:
                return writes or any(a.writes for a in self.accesses)
            shared = [r for r in roots if memory_space(r) != 3]
            return bool(shared) if writes else not all(map(self.read_only, shared))

        found = [op for op in self._other_writes if conflicts(op, True)]
        return (*found, *(op for op in self._other_reads if conflicts(op, False)))

    def may_overlap(self, a: Access, b: Access, *, common: Collection[Symbol] = ()) -> bool:
        """Whether two accesses may touch one element.

        Symbols in ``common`` (program ids, counters) have the same value for both; all other program
        ids and counters vary independently. ``common=analysis.program_ids`` asks within a workgroup.
        """
        if not may_alias(a.root, b.root):
            return False
        if not same_matrix(a, b):
            return True
        for x, y, size_x, size_y in zip(
            a.offsets, b.offsets, a.box_shape, b.box_shape, strict=True
        ):
            low, high = difference(x, y, common)
            if (low is not None and low >= size_y) or (high is not None and high <= -size_x):
                return False
        # What lies behind the end of its matrix is not accessed: tiles of parts of one array have ends of their own.
        for x, y, end_x, end_y in zip(a.offsets, b.offsets, a.extents, b.extents, strict=True):
            for begin, end in ((x, end_y), (y, end_x)) if end_x != end_y else ():
                low, _ = difference(begin, end, common)
                if low is not None and low >= 0:
                    return False
        return True

    def separated_by(self, a: Access, b: Access | None = None) -> frozenset[Symbol]:
        """Program ids and counters of which different values mean disjoint regions.

        Two instances of ``a`` (or one of ``a`` and one of ``b``) that differ in such a symbol touch no
        common element, whatever the other symbols are. A store of which every grid axis in use
        separates needs no order between workgroups.
        """
        b = a if b is None else b
        if not same_matrix(a, b):
            return frozenset()
        boxes = [_box_of_both(a, b, dim) for dim in range(len(a.offsets))]
        found = separated([box for box in boxes if box is not None])
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
        origin = op.tile.owner
        if not isinstance(origin, xetile.InitTileOp):
            return None
        tile = origin.tile_type
        scattered = tile.scattered
        shape = tile.get_shape()
        rows, columns = (1, *shape)[-2:]
        given = [self.expr(o) for o in origin.mixed_offsets]
        rank = max(2, len(given))
        if origin.offset_vector is not None:
            offsets, atoms = (), self.atoms(origin.offset_vector)
        else:
            # A 1-D array counts as one row.
            offsets = (*[Expr.of(0)] * (rank - len(given)), *given)
            atoms = frozenset[Symbol]().union(*(e.atoms for e in offsets))
        return Access(
            op,
            kind,
            origin,
            memory_root(origin.source),
            offsets,
            () if scattered else self._sizes(origin, rank),
            () if scattered else self._strides(origin, rank),
            (rows, columns * tile.array_length),
            self.enclosing(op),
            scattered,
            atoms,
        )

    def _sizes(self, origin: xetile.InitTileOp, rank: int) -> tuple[Expr, ...]:
        return self._numbers(origin, origin.mixed_sizes, self.extent, 1, rank)

    def _strides(self, origin: xetile.InitTileOp, rank: int) -> tuple[Expr, ...]:
        return self._numbers(origin, origin.mixed_strides, self.stride, 0, rank)

    def _numbers(
        self,
        origin: xetile.InitTileOp,
        given: Sequence[SSAValue | int],
        of_array: Callable[[SSAValue, int], Expr],
        outer: int,
        rank: int,
    ) -> tuple[Expr, ...]:
        """A number for each of `rank` dimensions: those given, else the array's; `outer` in front of them."""
        found = [self.expr(v) for v in given]
        if not found:
            assert isinstance(origin.source.type, MemRefType)
            dims = range(origin.source.type.get_num_dims())
            found = [of_array(origin.source, d) for d in dims]
        return (Expr.of(outer),) * (rank - len(found)) + tuple(found)


def _box_of_both(a: Access, b: Access, dim: int) -> tuple[Expr, int] | None:
    """What the offsets of two accesses have in common, and how many elements both cover, counted from there.

    Elements outside of a matrix do not count. None where nothing bounds what else is in one of the offsets: a counter
    of a loop around it alone, say.
    """
    x, y = a.offsets[dim], b.offsets[dim]
    common = Expr({m: factor for m, factor in x.terms.items() if m and y.terms.get(m) == factor})
    low, high = _ends(a, dim, common)
    lower, higher = _ends(b, dim, common)
    if low is None or high is None or lower is None or higher is None:
        return None
    return common, max(high, higher) - min(low, lower)


def _ends(access: Access, dim: int, start: Expr) -> tuple[int | None, int | None]:
    """Bounds of the first element of an access, and of what is behind its last one, from `start`."""
    low, high = (access.offsets[dim] - start).range()
    _, end = (access.extents[dim] - start).range()
    ends = [end, None if high is None else high + access.box_shape[dim]]
    return low, min((n for n in ends if n is not None), default=None)


def same_matrix(a: Access, b: Access) -> bool:
    """Whether offsets of both count in one coordinate system."""
    if a.scattered or b.scattered or len(a.offsets) != len(b.offsets):
        return False
    if a.tile_type.element_type != b.tile_type.element_type:
        return False
    return same_view(a.base) is same_view(b.base) and a.strides == b.strides


def same_tile(a: Access, b: Access) -> bool:
    """Whether two block accesses address the same tile, element by element, while all symbols stay."""
    return same_matrix(a, b) and a.base is b.base and (a.offsets, a.shape) == (b.offsets, b.shape)


def add_up(a: Access, b: Access) -> bool:
    """Whether two accesses are atomics that may come in any order: of one commutative kind, and nobody
    asks for the old values."""
    x, y = a.op, b.op
    return (
        isinstance(x, xetile.AtomicRmwOp)
        and isinstance(y, xetile.AtomicRmwOp)
        and x.kind == y.kind
        and x.kind != "assign"
        and x.result.first_use is None
        and y.result.first_use is None
    )
