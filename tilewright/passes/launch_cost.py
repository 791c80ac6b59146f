"""What a launch takes, estimated: what one program computes and moves, in as many rounds as the programs need.

Loops are counted by their bounds for the shapes at hand. So waste at ragged edges, too few programs, too little reuse
and too many small ops are all seen as what they are, time; no kind of kernel is known here.

    BM = 16:  64 programs,  4 B loaded per 8 flop   ->  3.1 ms
    BM = 64:   4 programs,  4 B loaded per 32 flop  ->  0.9 ms     chosen
    BM = 256:  1 program on 2 cores                 ->  1.6 ms
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, prod
from typing import Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.arguments import ArrayArg, Grid
from tilewright.dialects import xetile
from tilewright.dialects.upstream.arith import element, element_bytes
from tilewright.frozen import frozen, record
from tilewright.passes.memory_objects import memory_root
from tilewright.passes.structure import Alike, Place, Product, Structure, computes
from tilewright.passes.tile_products import Factor
from tilewright.passes.work import Work, causes, seconds, together
from tilewright.uarch.base import GENERIC, Rates
from tilewright.uarch.products import Order, PlacedProduct, ProductModel, Side

PLACES = (0.11, 0.37, 0.63, 0.89)
"""Where along the grid programs are looked at whose loops run longer in some than in others: evenly so, it is taken.
Not where halves of arrays end: blocks end there too, and elsewhere the last one is used in part."""

BEYOND = 1 / 8
"""Of what values beyond the end of what is stored would take: they are not computed, but tiles that end there are cut
for shorter rows."""

_UNKNOWN_TRIPS = 8
"""Iterations of a loop whose bounds no shape gives."""


@frozen
class Choice:
    """Values for what a launch leaves to the planner, and what it would take with them."""

    values: dict[str, int]
    seconds: float
    programs: int
    parts: int = 1
    """Workgroups that compute a program together."""
    causes: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds that the launch would take for one cause alone, where the model tells them apart."""
    order: Order = Order()
    """In which its products' sums are added up."""
    alone: float = 0.0
    """Seconds on one thread, where a model tells what products take there."""

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        together = f", {self.parts} workgroups for each" if self.parts > 1 else ""
        costs = sorted(self.causes.items(), key=lambda item: -item[1])[:3]
        why = "; ".join(f"{cause} {1e6 * seconds:.1f}" for cause, seconds in costs)
        line = f"{1e6 * self.seconds:9.1f} us  {sizes}: {self.programs} programs{together}"
        return f"{line} ({why})" if why else line


def launch_seconds(module: ModuleOp, arguments: Sequence[Any], rates: Rates) -> float:
    """Estimated time of a launch that covers the arrays which the kernel stores to."""
    return costed({}, Program.of(module, rates), arguments).seconds


class Program:
    """A kernel's work at some sizes."""

    def __init__(
        self,
        structure: Structure,
        rates: Rates,
        model: ProductModel | None = None,
        sizes: tuple[int, ...] = (),
    ):
        """`sizes`: of the structure's, where it has any."""
        self.structure, self.model = structure, model
        self.rates = rates if structure.multiplies else rates.plain or rates
        self.shapes = [each.extents(sizes) for each in structure.types]
        """Of the structure's types."""
        self.largest = max(map(prod, self.shapes), default=0)
        """Elements of the largest of them."""
        bytes = [
            prod(shape) * each.itemsize
            for shape, each in zip(self.shapes, structure.types, strict=True)
        ]
        self.works: dict[Block, Work] = {}
        """Of a block's ops but for those with regions."""
        combines = (xetile.ReductionOp, xetile.TileMmaOp)
        self.ends = bool(self.rates.row_seconds) and not any(
            isinstance(each.op, combines)
            for parts in structure.blocks.values()
            for each in parts.values
        )
        """Values are computed row by row for what is stored of them alone, and so no further than to its end."""
        self.moved: dict[Block, list[tuple[xetile.InitTileOp, int, bool]]] = {}
        """Tiles that a block loads and stores, with their bytes; is it a load?"""
        for block, parts in structure.blocks.items():
            self.moved[block] = [
                (origin, sum([bytes[i] for i in types]), loads)
                for origin, types, loads in parts.moved
            ]
            known = [self.shapes[i] for each in parts.values for i in each.types]
            loads = [size for _, size, loads in self.moved[block] if loads]
            work = self.works[block] = Work(
                memory_bytes=sum(size for size in loads if size > self.rates.cache_bytes),
                ops=len(parts.moved),
                rows=max([prod(shape[:-1]) for shape in known], default=0),
                waits=float(parts.waits),
            )
            for each in parts.values:
                self._add(each, [bytes[i] for i in each.types], work)
        self.carried = {
            loop: sum([bytes[i] for i in each.carried]) for loop, each in structure.loops.items()
        }
        """Bytes that a loop carries."""
        self.tiles = {op: self.shapes[i] for op, i in structure.tiles.items()}
        self.numbers = structure.numbers | {value: n(sizes)[0] for value, n in structure.sized}
        self.products = [self._shape(product) for product in structure.products]
        """Rows, columns and k of their tiles."""

    def _shape(self, product: Product) -> tuple[int, int, int]:
        (rows, k), (_, columns) = (self.shapes[i] for i in product.types)
        return rows, columns, k

    def _add(self, each: Alike, bytes: Sequence[int], work: Work) -> None:
        """Adds what ops do whose values have so many bytes."""
        op, times, rates = each.op, each.times, self.rates
        results = sum(bytes[: each.results])
        if isinstance(op, xetile.TileMmaOp):
            (m, k), (_, n) = (self.shapes[i] for i in each.types[1:3])
            size = self.structure.types[each.types[1]].itemsize
            work.product(m, n, k, size, rates, times)
        elif isinstance(op, (xetile.StoreTileOp, xetile.StoreScatterOp)):
            work.memory_bytes += times * bytes[0]
            work.ops += times
        elif isinstance(op, (xetile.LoadTileOp, xetile.LoadGatherOp, xetile.AtomicRmwOp)):
            work.memory_bytes += times * results
            work.ops += times
        elif results:
            if rates.row_seconds and isinstance(op, xetile.ReductionOp):
                results = max(bytes)  # of what is gone through, row by row
            if computes(op):
                work.flops += times * sum(prod(self.shapes[i]) for i in each.types[: each.results])
            if results <= rates.cache_bytes:
                work.near_bytes += times * results
            else:
                work.memory_bytes += times * results
            work.ops += times

    @classmethod
    def of(cls, module: ModuleOp, rates: Rates, model: ProductModel | None = None) -> Program:
        """That of a kernel whose sizes stay as they are."""
        return cls(Structure(module, model is not None), rates, model)

    def is_like(self, other: Program) -> bool:
        """Does the other one the same work, in blocks and loops of the same sizes?"""
        mine, others = (
            (
                *(program.rates, list(program.works.values())),
                *(list(program.carried.values()), list(program.tiles.values())),
                program.products,
                set(program.numbers.values()),  # constants of one value may be one or several
            )
            for program in (self, other)
        )
        return mine == others

    def placed(self, arguments: Sequence[Any]) -> list[PlacedProduct]:
        """Its products for arrays of these shapes."""
        estimate = _Estimate.of(self, arguments)
        return estimate.all_placed(estimate.all_programs())

    def programs(self, arguments: Sequence[Any]) -> int:
        """Of a launch that covers the arrays which the kernel stores to."""
        return _Estimate.of(self, arguments).all_programs()

    def grid(self, arguments: Sequence[Any]) -> Grid:
        """Of such a launch."""
        estimate = _Estimate.of(self, arguments)
        estimate.all_programs()
        x, y, z = (estimate.counts.get(axis, 1) for axis in "xyz")
        return x, y, z


def costed(values: dict[str, int], program: Program, arguments: Sequence[Any]) -> Choice:
    """What a launch would take with the values of constexprs that `program` was built with."""
    estimate, rates, model = _Estimate.of(program, arguments), program.rates, program.model
    programs = estimate.all_programs()
    longest = 1.0
    if loops := program.structure.uneven:
        places = [estimate.at(place) for place in PLACES]
        ends = [places[i].whole(programs) for i in (0, -1)]
        less, more = sorted(seconds(work, 1, rates) - rates.launch_seconds for work in ends)
        beyond = (1 / 2) / (PLACES[-1] - PLACES[0])
        longest = 1 + beyond * (more - less) / ((more + less) / 2 or 1.0)
        means = {loop: sum([p.trips(loop) for p in places]) / len(places) for loop in loops}
        estimate = replace(estimate.at(1 / 2), means=means)
    each = estimate.whole(programs)
    shared, resident = program.structure.shared, rates.resident(program.largest)
    placed = estimate.all_placed(programs) if model is not None and program.products else []

    def taken(rates: Rates, model: ProductModel | None) -> tuple[dict[str, float], float]:
        found = causes(each, programs, rates, shared=shared, longest=longest, resident=resident)
        if model is not None and placed:
            for cause, more in model.causes(placed, programs).items():
                found[cause] = found.get(cause, 0.0) + more
        return found, together(found, rates, alone=resident == 1)

    found, total = taken(rates, model)
    why = {cause: seconds for cause, seconds in found.items() if seconds}
    if model is None or not placed:
        return Choice(values, total, programs, causes=why)
    one = model.alone()
    alone = total if one is model else taken(replace(rates, cores=1), one)[1]
    order = model.order(placed, programs)
    return Choice(values, total, programs, causes=why, order=order, alone=alone)


def launch_traffic(module: ModuleOp, arguments: Sequence[Any]) -> tuple[float, int, int]:
    """Operations on numbers of a launch that covers the arrays which the kernel stores to, bytes of the arrays at its
    tiles, each once, and bytes of an element of its products (of its arrays, where it has none)."""
    program = Program.of(module, GENERIC)
    estimate = _Estimate.of(program, arguments)
    programs = estimate.all_programs()
    flops = estimate.whole(programs).flops * programs
    arrays = [a for a in arguments if isinstance(a, ArrayArg)]
    moved = sum(prod(a.shape) * a.dtype.itemsize for a in arrays)
    products = [
        element_bytes(element(o.a.type)) for o in module.walk() if isinstance(o, xetile.TileMmaOp)
    ]
    return flops, moved, max(products or [a.dtype.itemsize for a in arrays], default=4)


@record
class _Estimate:
    """A program's work for the shapes of a launch."""

    program: Program
    shapes: Mapping[SSAValue | None, tuple[int, ...]]
    arrays: Mapping[SSAValue | None, Any]
    """Array arguments (`ArrayArg` and the like)."""
    known: dict[SSAValue, int | None] = field(default_factory=dict[SSAValue, "int | None"])
    place: float = 0.0
    """Of the program that is looked at along every axis of the grid: 0 is the first, 1 is behind the last."""
    ids: Mapping[str, int] | None = None
    """Of the program that is looked at, where it is one of these numbers."""
    means: Mapping[Operation, float] = field(default_factory=dict[Operation, float])
    """Turns of loops, where these are looked at in several programs."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Programs along the axes of the grid, as far as `programs` found them."""

    @classmethod
    def of(cls, program: Program, arguments: Sequence[Any]) -> _Estimate:
        given = zip(program.structure.kernel.body.block.args, arguments, strict=True)
        arrays: dict[SSAValue | None, Any] = {v: a for v, a in given if hasattr(a, "shape")}
        return cls(program, {v: tuple(a.shape) for v, a in arrays.items()}, arrays)

    def at(self, place: float) -> _Estimate:
        """The same for another program."""
        return replace(self, known={}, place=place)

    # Work of one program.

    def whole(self, programs: int) -> Work:
        """Of a launch of so many."""
        work, program, rates = Work(), self.program, self.program.rates
        turns = list(self.turns(program.structure.kernel.body.block))
        for block, times in turns:
            work.add(program.works[block], times)
            stored = [self.inside(tile) for tile, _, loads in program.moved[block] if not loads]
            if stored and program.ends:
                left = (1 - BEYOND) * (1 - max(stored)) * program.works[block].near_bytes
                work.near_bytes -= times * left
            for tile, size, _ in program.moved[block]:
                work.memory_bytes += times * self.moved(tile, size)
                work.rows += times * self.rows(tile)
            if isinstance(loop := block.parent_op(), scf.ForOp):
                beyond = max(0, program.carried[loop] - rates.cache_bytes)
                work.memory_bytes += times * 2 * beyond
        if rates.kept_bytes:
            again = self.again(programs, turns)
            work.memory_bytes -= again
            work.shared_bytes += again
        return work

    def again(self, programs: int, turns: Sequence[tuple[Block, float]]) -> float:
        """Bytes that the cache of all cores answers of what a program loads in these turns: what all programs load, and
        of what it loaded before as much as those that run at the same time leave there."""
        program, rates = self.program, self.program.rates
        alike, common, stored = dict[Any, list[float]](), 0.0, 0.0
        for block, times in turns:
            for tile, size, loads in program.moved[block]:
                moved = times * self.moved(tile, size)
                if not loads:
                    stored += moved
                elif program.structure.is_common(tile):
                    common += moved
                else:
                    at = [o if isinstance(o, int) else self.value(o) for o in tile.mixed_offsets]
                    here = (
                        o if n is None else n for o, n in zip(tile.mixed_offsets, at, strict=True)
                    )
                    alike.setdefault((tile.source, program.tiles[tile], *here), []).append(moved)
        first = sum(max(each) for each in alike.values())
        running = min(programs, rates.cores * rates.resident(program.largest))
        kept = min(1.0, rates.kept_bytes / max(1.0, running * (first + stored)))
        common = common * (1 - 1 / programs) if common <= rates.kept_bytes else 0
        return common + kept * (sum(map(sum, alike.values())) - first)

    def turns(self, block: Block, times: float = 1) -> Iterator[tuple[Block, float]]:
        """A block and those in it, and how often each is run."""
        yield block, times
        for op in self.program.structure.blocks[block].inner:
            trips: float = _UNKNOWN_TRIPS if isinstance(op, scf.WhileOp) else 1
            trips = self.trips(op) if isinstance(op, scf.ForOp) else trips
            for region in op.regions:
                for each in region.blocks:
                    yield from self.turns(each, times * trips)

    def inside(self, tile: xetile.InitTileOp) -> float:
        """The part of a tile that its array has at most."""
        sizes, shape = self.program.tiles[tile], self.shapes.get(tile.source, ())
        pairs = zip(reversed(sizes), reversed(shape), strict=False)
        return prod(min(1.0, extent / size) for size, extent in pairs)

    def moved(self, tile: xetile.InitTileOp, size: int) -> float:
        """Bytes that memory moves for a tile of so many: parts of rows are as long as an access at least."""
        whole, array = size * self.inside(tile), self.arrays.get(tile.source)
        if array is None or not array.strides:
            return whole
        least, dims = self.program.rates.access_bytes, self.dims(tile)
        runs = [
            n * array.dtype.itemsize for n, extent, stride in dims if stride == 1 and n < extent
        ]
        streams = self.program.rates.streams if runs else 0
        late = max(0.0, 1 - streams / max(1.0, self.rows(tile))) if streams else 0.0
        return whole * (late + max(1.0, least / min(runs, default=least or 1)))

    def rows(self, tile: xetile.InitTileOp) -> float:
        """Of a tile, as they lie in memory, those that its array has at most."""
        dims = self.dims(tile)
        return float(prod(min(n, extent) for n, extent, stride in dims if stride != 1))

    def dims(self, tile: xetile.InitTileOp) -> list[tuple[int, int, int]]:
        """A tile's sizes, and the extents and strides of its array, innermost first, as far as the array has them."""
        array = self.arrays.get(tile.source)
        sizes, shape = self.program.tiles[tile], self.shapes.get(tile.source, ())
        strides: Sequence[Any] = getattr(array, "strides", None) or (1,)
        return list(zip(reversed(sizes), reversed(shape), reversed(strides), strict=False))

    def trips(self, loop: scf.ForOp) -> float:
        if loop in self.means:
            return self.means[loop]
        low, high, step = map(self.value, self.program.structure.loops[loop].bounds)
        if low is None or high is None or not step or step < 0:
            return _UNKNOWN_TRIPS
        return max(0, -(-(high - low) // step))

    # Programs of the launch.

    def all_programs(self) -> int:
        """Programs that write all arrays, and along other axes of the grid as many as go through what they read."""
        writing = max(map(self.programs, self.program.structure.written), default=1)
        others = self.program.structure.axes - set(self.counts)
        self.counts |= {axis: self.reading(axis) for axis in sorted(others)}
        return writing * prod(self.counts[axis] for axis in others)

    def reading(self, axis: str) -> int:
        """Programs along an axis whose tiles go through the arrays that they lie in: parts of k, blocks of an index."""
        first, second = (replace(self, known={}, ids={axis: i}) for i in range(2))
        found: list[int] = []
        for tile in self.program.structure.tiles:
            shape, offsets = self.shapes.get(memory_root(tile.source), ()), tile.mixed_offsets
            for offset, extent in zip(offsets, shape, strict=False):
                if isinstance(offset, SSAValue) and len(offsets) == len(shape):
                    low, high = first.value(offset), second.value(offset)
                    if low is not None and high is not None and high > low:
                        found.append(-(-extent // (high - low)))
        return max(1, min(found, default=1))

    def programs(self, place: Place) -> int:
        """Programs that write every part of an array once: a tile's steps along the program ids."""
        shape = self.shapes.get(place.array, ())
        if len(shape) != len(place.axes):
            return 1
        extents = (*(1 for _ in shape[:-2]), *self.program.tiles[place.init])[-len(shape) :]
        count, counts = 1, dict[str, int]()
        for axes, extent, step in zip(place.axes, shape, extents, strict=False):
            if axes:
                along = max(1, -(-extent // step))
                for axis in axes:  # one that goes through several dimensions
                    before = counts.get(axis, 1) if len(axes) == 1 else 1
                    counts[axis] = before * along
                count *= along
        self.counts |= counts
        return count

    # Products.

    def all_placed(self, programs: int) -> list[PlacedProduct]:
        """The products, for these arrays and so many programs."""
        products = zip(self.program.structure.products, self.program.products, strict=True)
        alone = [self.placed(*each, programs) for each in products]
        of = [[factor.array for factor in p.of.sides] for p in self.program.structure.products]
        read = dict[SSAValue | None, list[int]]()
        for arrays, placed in zip(of, alone, strict=True):
            for array, side in zip(arrays, (placed.a, placed.b), strict=True):
                if placed.times:
                    read.setdefault(array, []).append(side.read)

        def together(array: SSAValue | None, side: Side) -> Side:
            """With the others that read it, in whose loops it may be packed by then."""
            each = read.get(array, ())
            if len(each) < 2 or not side.read:
                return side
            return replace(side, read=sum(each), elements=-(-side.elements // len(each)))

        return [
            replace(placed, a=together(a, placed.a), b=together(b, placed.b))
            for (a, b), placed in zip(of, alone, strict=True)
        ]

    def placed(self, product: Product, shape: tuple[int, int, int], programs: int) -> PlacedProduct:
        """A product, whose tiles have this shape."""
        (rows, columns, k), of = shape, product.of
        times, turns = 1.0, float(programs)
        for op in product.around:
            trips = self.trips(op) if isinstance(op, scf.ForOp) else 1
            turns *= trips
            if op is product.around[0] and of.is_summed:
                deep = ceil(k * trips)
                k = min(deep, *(self.along(f, -3 - f.axis, deep) for f in of.sides))
            else:
                times *= trips
        a, b = (
            self.side(f, {f.axis: tile, -3 - f.axis: shape[2]}, turns)
            for f, tile in zip(of.sides, (rows, columns), strict=True)
        )
        around = product.around[int(of.is_summed) :]
        in_loop = bool(around) and isinstance(around[0], scf.ForOp)
        return PlacedProduct(product.names, a, b, k, times, in_loop)

    def along(self, factor: Factor, axis: int, otherwise: int) -> int:
        """The extent of a factor's array."""
        return self.shapes[factor.array][axis] if factor.array in self.shapes else otherwise

    def side(self, factor: Factor, tile: Mapping[int, int], turns: float) -> Side:
        """Of a product that the launch does so often. `tile`: extents by dimensions of the array, from its end."""
        extent = self.along(factor, factor.axis, tile[factor.axis])
        array, shape = self.arrays.get(factor.array), self.shapes.get(factor.array, ())
        strides = getattr(array, "strides", None)
        along_k = bool(strides[-3 - factor.axis] == 1 if strides else factor.axis == -2)
        loaded, elements = factor.array is not None, prod(shape) if shape else 0
        tiles = prod(-(-n // tile.get(i, 1)) for i, n in enumerate(shape, -len(shape)))
        read = ceil(turns / tiles) if elements else 0
        return Side(tile[factor.axis], extent, loaded, along_k, read, elements)

    # Index arithmetic on shapes.

    def extent(self, array: SSAValue, axis: int) -> int | None:
        shape = self.shapes.get(array)
        return None if shape is None else shape[axis]

    def value(self, ssa: SSAValue) -> int | None:
        """An index value for these shapes, in the first program; None when they do not tell."""
        if ssa not in self.known:
            self.known[ssa] = None  # a cycle through a loop has no value
            self.known[ssa] = self._value(ssa)
        return self.known[ssa]

    def _value(self, ssa: SSAValue) -> int | None:
        if (number := self.program.numbers.get(ssa)) is not None:
            return number
        index, found = self.program.structure.index(ssa), list[int]()
        for operand in index.operands:
            if (number := self.value(operand)) is None:
                return None
            found.append(number)
        try:
            return None if index.made is None else index.made(self, found)
        except ZeroDivisionError:
            return None

    def id(self, axis: str) -> int:
        """Of the program that is looked at."""
        if self.ids is not None:
            return self.ids.get(axis, 0)
        return int(self.place * self.counts.get(axis, 1))
