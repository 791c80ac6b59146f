"""Products with a thin side: the other operand is multiplied where it lies.

A product of few rows uses every element of B so few times that a copy in panels would cost more than the product, which
memory alone should limit. B is read along whichever of its dimensions is contiguous, and converted in registers:

    outer   B's rows run along x     C[r, x..] += A[r, k] B[k, x..]         a vector of x times one element of A
    inner   B's rows run along k     C[r, x] += sum of A[r, k..] B[k.., x]  vectors of k, added up across at the end

A product of few columns is the same with the sides exchanged, where A's rows run along k. The thin side is packed as
the micro-kernel reads it, element by element (outer) or vector by vector (inner) of k, with zeros beyond its end.
Where the machine has a dot product of such floats (`dots`), it multiplies groups of k instead of elements; nothing is
converted then, and rows of B are interleaved in registers (outer).

    for block of k:              find the thin side, or pack it
      for run of k:              a few rows of B are read side by side, so that each is read in a long run (outer)
        for block of x:          its accumulators in registers, C in a buffer of the workgroup

Loads of a block that leaves the array are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import OpResult, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.registers import strided_form
from tilewright.codegen.tiles import Tile, itemsize, rows_cols
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp
from tilewright.frozen import frozen
from tilewright.passes.packing import Chain, chain_of
from tilewright.targets.cpu.dots import add_dot, dot_family_of, spread_group
from tilewright.targets.cpu.evaluate import NEAR_BYTES, Evaluator, Position
from tilewright.targets.cpu.family import Family, PanelOperand
from tilewright.targets.cpu.machine import (
    THIN_AHEAD,
    THIN_FEW,
    THIN_RUN,
    CpuMachine,
    power_of_two_in,
    thin_depth,
)
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.operands import Finder, Side
from tilewright.targets.cpu.panels import PanelFormat, joined, widen
from tilewright.targets.cpu.reductions import across, power_of_two
from tilewright.targets.cpu.thin_whole import sizes_fit, whole


@frozen
class Thin:
    """How a product with a thin side runs."""

    family: Family
    """`inner` or `outer`, with the block of C that its accumulators hold."""
    side: int
    """The operand that is read where it lies: 0 is A, 1 is B."""
    chain: Chain
    """It: a load, seen through casts and transposes."""
    per: int
    """k that are added to a sum at once: a group of a dot product, or one."""


def lying_there(
    m: CpuMachine, family: Family, value: SSAValue, side: int
) -> tuple[Chain | None, bool | None]:
    """Operand `side` of a product that `family` would compute otherwise, as a load of rows that lie together and make
    whole vectors, and whether these run along k; None: it is something else."""
    block = value.op.parent if isinstance(value, OpResult) else None
    inside = block is not None and isinstance(block.parent_op(), ContractOp)
    chain = chain_of(value, block) if inside else None  # pyright: ignore
    along = contiguous(chain) if chain is not None else None
    if chain is None or along is None or chain.load.padding_value != 0:
        return None, None
    inner, width = along == 1 - side, rows_cols(value.type)[1 - side]
    if inner and width % (m.vector_bytes // itemsize(family.accumulator)):
        return None, None
    return chain, inner


def thin_form(
    m: CpuMachine, family: Family, a: SSAValue, bb: SSAValue, side: int, chain: Chain
) -> Thin:
    """How operand `side`, a load that lies there, is multiplied (see `CpuMachine.form`)."""
    rows, width = rows_cols(a.type)
    cols = rows_cols(bb.type)[1]
    dot = dot_family_of(m, a.type, bb.type, family.accumulator)  # pyright: ignore
    element = family.accumulator
    along = contiguous(chain)
    lanes = m.vector_bytes // itemsize(element)
    inner, short = along == 1 - side, rows if side == 1 else cols
    group, kind, instruction = 1, element, ""
    fast = short > THIN_FEW or not inner
    if dot is not None and fast and width % (dot.group * (lanes if inner else 1)) == 0:
        group, kind, instruction = dot.group, dot.a.element, dot.instruction
    if inner:
        few = rows if side == 1 else min(4, lanes, power_of_two(cols))
        many = power_of_two_in(8, m.accumulators // few, lanes if side == 1 else 8)
        mr, nr = (few, many) if side == 1 else (many, few)
        left, right = (PanelFormat(power_of_two(n), lanes * group, kind) for n in (mr, nr))
        size = itemsize(chain.load.values[0].type.element_type)  # pyright: ignore
        again = many * size if side == 0 and cols > few else 0
        depth = thin_depth(power_of_two(few), instruction != "", again)
        family = Family("inner", element, mr, nr, left, right, depth, instruction=instruction)
        return Thin(family, side, chain, group)
    left, right = (PanelFormat(n, group, kind) for n in (power_of_two(rows), lanes))
    columns = m.thin_vectors(m.together(rows), cols, lanes, m.unrolls(rows, group)) * lanes
    family = Family("outer", element, rows, columns, left, right, m.kc, instruction=instruction)
    return Thin(family, side, chain, group)


def contiguous(chain: Chain) -> int | None:
    """The dimension of the operand along which its array is contiguous, where the array's type says so."""
    tile = chain.load.tile.owner
    if not isinstance(tile, xt.InitTileOp) or not isinstance(tile.source.type, MemRefType):
        return None
    strides = strided_form(tile.source.type)[0]
    if len(strides) < 2 or 1 not in strides[-2:]:
        return None
    return (1 if strides[-1] == 1 else 0) ^ int(chain.transposed)


class ThinProduct:
    """Emits one such product. `value`: the operand that is read where it lies."""

    def __init__(self, e: Evaluator, m: CpuMachine, form: Thin, value: SSAValue, c: Buffer):
        self.e = e
        self.b: Builder = e.b
        self.m = m
        self.form = form
        self.family = form.family
        self.value = value
        self.c = c
        tile = e.values.tile(form.chain.load.tile)
        assert isinstance(tile, Tile)
        self.tile = tile
        x_axis = form.side ^ int(form.chain.transposed)
        self.x_count, self.k_count = (tile.limit(self.b, axis) for axis in (x_axis, 1 - x_axis))
        """x and k that its array has from the tile's start on."""
        rows = x_axis if form.family.name == "inner" else 1 - x_axis
        self.pitch: Idx = self.b.times(tile.strides[rows], itemsize(tile.element))
        """Bytes from one of its rows to the next."""
        self.type = VectorType(
            form.family.accumulator,  # pyright: ignore
            [m.vector_bytes // itemsize(form.family.accumulator)],
        )
        self.lanes: int = self.type.get_shape()[0]
        self.per = form.per
        self.factors = VectorType(form.family.a.element, [self.lanes * self.per])  # pyright: ignore
        """What is multiplied at once: `per` k of each sum."""
        self.run = THIN_RUN if self.per == 1 or form.family.mr > THIN_FEW else self.per
        self.line = max(1, 64 // (self.lanes * itemsize(tile.element)))
        """Vectors of a line of the operand."""

    def emit(
        self, thin: Side, length: Idx, clear: Callable[[], None] | None, first: SSAValue | None
    ) -> None:
        """C += A B over `length` k. `thin`: the thin side; `clear` writes zeros to a C that holds nothing yet; `first`:
        are the thin side's panels still to be packed? They are not where they stay from turn to turn of a loop."""
        b = self.b
        known = length if isinstance(length, int) else 0
        single = self.form.side == 1 and 0 < known <= self.family.depth
        find: Finder | None = None
        if single:
            with b.when(first) if first is not None else nullcontext(), self.e.scope():
                find = thin.locate(0, known)

        def parts() -> None:
            if clear is not None:
                clear()
            self.parts(thin, length, find)

        if find is None or not sizes_fit(self, known):
            parts()
            return
        inside = b.both(self.after(), b.cmp("sge", self.k_count, known))
        inside = b.both(inside, b.cmp("sge", self.x_count, self.c.shape[1]))
        assert inside is not None
        with self.e.scope():
            b.choose(inside, lambda: whole(self, find(0), known, clear is not None), parts)

    def parts(self, thin: Side, length: Idx, found: Finder | None) -> None:
        """Any sizes, block by block of k. `found`: the panels of all k, where they are one block."""
        b, family, c = self.b, self.family, self.c
        length = b.max(b.min(length, b.min(self.k_count, thin.k_count)), 0)
        count = b.max(b.min(c.shape[self.form.side], self.x_count), 0)
        after = self.after()
        inside = count if after is None else b.select(after, count, 0)
        depth = family.depth
        with b.loop(0, length, depth) as block, self.e.scope():
            ks = block.iv, b.min(b.plus(block.iv, depth), length)
            find = thin.locate(*ks) if found is None else found
            if family.name == "outer":
                self.runs(find(0), ks, count, inside)
            else:
                self.blocks(find, thin, ks, count, inside)

    def after(self) -> SSAValue | None:
        """Does the tile start in its array, not before it? None: it is known to."""
        b = self.b
        after: SSAValue | None = None
        for offset in self.tile.offsets:
            if not b.is_nonnegative(offset):
                after = b.both(after, b.cmp("sge", offset, 0))
        return after

    def place(self, x: Idx, k: Idx, along_k: bool, inside: bool) -> Position:
        """A vector of the operand."""
        row, col = (x, k) if self.form.side == 0 else (k, x)
        axis = int(along_k) if self.form.side == 0 else 1 - int(along_k)
        return Position(row, col, axis, self.lanes * (self.per if along_k else 1), inside)

    def read(self, place: Position, again: bool) -> SSAValue:
        """The operand there. That all is `inside` is known of the load itself: a transpose would ask it for masks.
        `again`: what is fetched beside it has been."""
        load, asked = self.form.chain.load, place
        if self.form.chain.transposed:
            asked = replace(place, row=place.col, col=place.row, axis=1 - place.axis, inside=False)
        if self.form.chain.transposed or again:
            tile = replace(self.tile, next=None) if again else self.tile
            register = self.e.load(tile, replace(asked, inside=place.inside), 0)
            self.e.remember(load.values[0], asked, register)
        return widen(self.b, self.e.at(self.value, place), self.factors.element_type)

    def add(self, sums: SSAValue | None, x: SSAValue, y: SSAValue) -> SSAValue:
        """sums + x y, of A and B in any order; None: nothing yet."""
        b = self.b
        if self.per > 1:
            return add_dot(b, self.family, b.constant(self.type, 0) if sums is None else sums, x, y)
        return b.value(arith.MulfOp(x, y) if sums is None else math.FmaOp(x, y, sums))

    def vectors(
        self, x: Idx, k: Idx, count: int, inside: bool, again: bool = False
    ) -> tuple[list[SSAValue], list[Position]]:
        """So many vectors of sums' factors from x on, of a group of rows from k on; and where lines begin there.
        `again`: they have been read."""
        b, lanes, order = self.b, self.lanes, range(self.per)
        found: list[SSAValue] = []
        lines: list[Position] = []
        for v in range(count):
            places = [self.place(b.plus(x, v * lanes), b.plus(k, g), False, inside) for g in order]
            rows = joined(b, [self.read(place, again or v % self.line > 0) for place in places])
            beside = [g * lanes + i for i in range(lanes) for g in order]
            found.append(rows if self.per == 1 else b.shuffle(rows, rows, beside))
            lines += places if v % self.line == 0 else ()
        return found, lines

    def fetch(self, place: Position, ahead: Idx, bytes: int) -> None:
        """Fetch what is needed later, `ahead` bytes further on; `bytes`: of the operand, read till then."""
        b = self.b
        if self.tile.next is not None:  # which its reads fetch
            return
        if self.form.chain.transposed:
            place = replace(place, row=place.col, col=place.row, axis=1 - place.axis)
        locality = 3 if bytes <= NEAR_BYTES else 2
        b.prefetch(b.ptr(self.e.address(self.tile, place), ahead), locality=locality)

    def ahead(self, x: Idx, end: Idx) -> Idx:
        """Bytes from the columns `x` of a run, which ends with `end`, to those that are fetched meanwhile: in the same
        rows, and behind their ends in those of the next run."""
        b, size = self.b, itemsize(self.tile.element)
        step = min(THIN_AHEAD // self.run, self.c.shape[1] * size)
        on = b.cmp("slt", b.plus(x, step // size), end)
        below = b.minus(b.plus(b.times(self.pitch, self.run), step), b.times(end, size))
        return b.select(on, step, below)

    # Outer ----------------------------------------------------------------------------------------------------

    def runs(self, a: PanelOperand, ks: tuple[Idx, Idx], count: Idx, inside: Idx) -> None:
        """All of C over a block of k: `count` columns, of which masks are not needed for the first `inside`."""
        b, family = self.b, self.family
        main = b.times(b.div(inside, family.nr), family.nr)
        each = self.m.together(family.mr)
        shares = [range(r, min(r + each, family.mr)) for r in range(0, family.mr, each)]
        whole = ks[0]
        if self.m.unrolls(family.mr, self.per):
            whole = b.minus(ks[1], b.rem(b.minus(ks[1], ks[0]), self.run))
        for begin, end in ((ks[0], whole), (whole, ks[1])):
            if begin is end:
                continue
            with b.loop(begin, end, self.run) as run:
                last = b.min(b.plus(run.iv, self.run), ks[1])
                groups = b.div(b.minus(run.iv, ks[0]), self.per)
                at = b.ptr(a.pointer, b.times(groups, a.k_bytes))
                start = PanelOperand(at, a.x_bytes, a.k_bytes)
                with b.loop(0, main, family.nr) as x:
                    mine = run.iv, None if end is whole else last
                    vectors, ahead = family.nr // self.lanes, self.ahead(x.iv, main)
                    for rows in shares:
                        self.outer(start, x.iv, mine, rows, vectors, ahead)
                with b.loop(main, count, self.lanes) as x:
                    for rows in shares:
                        self.outer(start, x.iv, (run.iv, last), rows, 1, None)

    def places(self, rows: range, x: Idx, vectors: int) -> list[SSAValue]:
        """Of vectors of C: in these rows, so many from x on."""
        b, c, size = self.b, self.c, itemsize(self.c.element)
        target = c.address(b, 0, x)
        return [
            b.ptr(target, b.times(b.plus(b.times(c.ld, r), v * self.lanes), size))
            for r in rows
            for v in range(vectors)
        ]

    def added(
        self, sums: Sequence[SSAValue], at: SSAValue, row: Idx, rows: range, found: list[SSAValue]
    ) -> list[SSAValue]:
        """Sums of these rows with products of a group of k, which A has from `at` on, `row` bytes apart."""
        out = list(sums)
        for i, r in enumerate(rows):
            place = self.b.ptr(at, self.b.times(r, row))
            factor = spread_group(self.b, place, self.factors, self.per)
            for n, vector in enumerate(found, i * len(found)):
                out[n] = self.add(sums[n], factor, vector)
        return out

    def outer(
        self,
        a: PanelOperand,
        x: Idx,
        ks: tuple[Idx, Idx | None],
        rows: range,
        vectors: int,
        ahead: Idx | None,
    ) -> None:
        """C[rows, x..] over a run of k, the first of which `a` has. One that has no end is whole: each row is
        loaded by an instruction of its own, by which cores tell what to fetch. For the first rows it is fetched, so
        many bytes `ahead`; None: at the array's edge."""
        b, again, inside = self.b, rows.start > 0, ahead is not None
        places = self.places(rows, x, vectors)
        sums: Sequence[SSAValue] = [b.load(place, self.type) for place in places]

        def added(k: Idx, sums: Sequence[SSAValue], there: bool) -> list[SSAValue]:
            at = b.ptr(a.pointer, b.times(b.div(b.minus(k, ks[0]), self.per), a.k_bytes))
            found, lines = self.vectors(x, k, vectors, there, again)
            if ahead is not None and there and not again:
                for place in lines:
                    self.fetch(place, ahead, THIN_AHEAD)
            return self.added(sums, at, a.x_bytes, rows, found)

        if ks[1] is None:
            for k in range(0, self.run, self.per):
                with self.e.scope():
                    sums = added(b.plus(ks[0], k), sums, inside)
        else:
            whole = b.minus(ks[1], b.rem(b.minus(ks[1], ks[0]), self.per))
            left_over = [] if self.per == 1 else [(whole, ks[1], False)]
            for start, end, there in ((ks[0], whole, inside), *left_over):
                with b.loop(start, end, self.per, sums) as loop, self.e.scope():
                    loop.out = added(loop.iv, loop.carried, there)
                sums = loop.results
        for place, value in zip(places, sums, strict=True):
            b.store(value, place)

    # Inner ----------------------------------------------------------------------------------------------------

    def blocks(
        self, find: Finder, thin: Side, ks: tuple[Idx, Idx], count: Idx, inside: Idx
    ) -> None:
        """All of C over a block of k: `count` x of the operand, of which the first `inside` are in the array."""
        b, family, side = self.b, self.family, self.form.side
        step = (family.mr, family.nr)[side]
        vectors = b.minus(ks[1], b.rem(b.minus(ks[1], ks[0]), self.per * self.lanes))
        with b.loop(0, count, step) as x:
            main = b.select(b.cmp("sle", b.plus(x.iv, step), inside), vectors, ks[0])
            if side == 1:
                self.inner(find(0), 0, x.iv, ks, main)
            else:
                cols = b.max(b.min(self.c.shape[1], thin.x_count), 0)
                with b.loop(0, b.ceildiv(cols, family.nr)) as j:
                    self.inner(find(j.iv), b.times(j.iv, family.nr), x.iv, ks, main)

    def inner(self, thin: PanelOperand, at: Idx, x: Idx, ks: tuple[Idx, Idx], main: Idx) -> None:
        """C[block of the thin side from `at` on, x..], or with rows and columns exchanged, over a block of k, of which
        vectors up to `main` need no masks."""
        b, c, family, side = self.b, self.c, self.family, self.form.side
        few, many = (family.nr, family.mr) if side == 0 else (family.mr, family.nr)
        zero, nothing, long = (
            b.constant(self.type, 0),
            b.constant(self.factors, 0),
            self.per * self.lanes,
        )
        sums: Sequence[SSAValue] = [zero] * (few * many)
        for start, end, inside in ((ks[0], main, True), (main, ks[1], False)):
            with b.loop(start, end, long, sums) as loop, self.e.scope():
                turn = b.div(b.minus(loop.iv, ks[0]), long)
                group = b.ptr(thin.pointer, b.times(turn, thin.k_bytes))
                fixed = [
                    b.load(b.ptr(group, b.times(i, thin.x_bytes)), self.factors) for i in range(few)
                ]
                out = list(loop.carried)
                for i in range(many):
                    place = self.place(b.plus(x, i), loop.iv, True, inside)
                    row = self.read(place, False)
                    if inside:
                        meanwhile = many * family.depth * itemsize(self.tile.element)
                        self.fetch(place, b.times(self.pitch, many), meanwhile)
                    else:
                        keep = b.mask_first(b.minus(ks[1], loop.iv), long)
                        assert keep is not None
                        row = b.value(arith.SelectOp(keep, row, nothing))
                    for j, other in enumerate(fixed):
                        out[i * few + j] = self.add(out[i * few + j], other, row)
                loop.out = out
            sums = loop.results
        row, col = (x, at) if side == 0 else (at, x)
        for r in range(family.mr):
            mine = [sums[r * few + j] if side == 0 else sums[j * few + r] for j in range(family.nr)]
            total = across(b, mine)
            target = c.address(b, b.plus(row, r), col)
            b.store(b.value(arith.AddfOp(b.load(target, total.type), total)), target)
