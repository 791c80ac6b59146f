"""What a launch takes, estimated: what one program computes and moves, in as many rounds as the programs need.

Loops are counted by their bounds for the shapes at hand. So waste at ragged edges, too few programs, too little reuse
and too many small ops are all seen as what they are, time; no kind of kernel is known here.

    BM = 16:  64 programs,  4 B loaded per 8 flop   ->  3.1 ms
    BM = 64:   4 programs,  4 B loaded per 32 flop  ->  0.9 ms     chosen
    BM = 256:  1 program on 2 cores                 ->  1.6 ms
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import ModuleOp, VectorType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright import dtypes
from tilewright.arguments import ArrayArg, Grid
from tilewright.dialects import xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import WHOLE, constant
from tilewright.passes.kernel import program_ids
from tilewright.passes.memory_objects import memory_root
from tilewright.passes.tile_origin import tile_accesses, tile_origin
from tilewright.passes.tile_products import Factor, TileProduct, products_of
from tilewright.passes.work import Work, causes, seconds, together
from tilewright.uarch.base import GENERIC, Rates
from tilewright.uarch.products import PlacedProduct, ProductModel, Side

QUARTERS = (1 / 4, 3 / 4)
"""Where along the grid programs are looked at whose loops run longer in some than in others: evenly so, it is taken."""

_UNKNOWN_TRIPS = 8
"""Iterations of a loop whose bounds no shape gives."""


@dataclass(frozen=True)
class Choice:
    """Values for what a launch leaves to the planner, and what it would take with them."""

    values: dict[str, int]
    seconds: float
    programs: int
    parts: int = 1
    """Workgroups that compute a program together."""
    causes: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds that the launch would take for one cause alone, where the model tells them apart."""

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


@dataclass(frozen=True)
class _Parts:
    """The ops of a block, by what is asked of them."""

    values: list[Operation]
    """Those that compute, load or store values of tiles."""
    moved: list[tuple[xetile.InitTileOp, Operation]]
    """Loads and stores of tiles that are made once, with these."""
    inner: list[Operation]
    """Those with regions."""


class Structure:
    """What of a kernel is the same at all sizes, read from its IR once."""

    def __init__(self, module: ModuleOp, products: bool):
        """`products`: a model accounts for them, and for the ops that make their operands alone."""
        self.kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
        self.products = list(products_of(self.kernel)) if products else []
        self.written = [tile for tile, writes in tile_accesses(self.kernel) if writes]
        ops = list(self.kernel.walk())
        loops = [op for op in ops if isinstance(op, (scf.ForOp, scf.WhileOp))]
        self.shared = len(loops) == 1 and any(
            isinstance(op, xetile.TileMmaOp) for op in loops[0].walk()
        )
        self.loops = [loop for loop in loops if isinstance(loop, scf.ForOp)]
        self.uneven = any(program_ids(loop.ub) for loop in self.loops)
        self.tiles = [op for op in ops if isinstance(op, xetile.InitTileOp)]
        ids = [op for op in ops if isinstance(op, gpu.BlockIdOp)]
        self.axes = {str(op.dimension.data) for op in ids}
        results: list[SSAValue] = [op.results[0] for op in ops if len(op.results) == 1]
        self.numbers = [value for value in results if constant(value) is not None]
        elsewhere = {op for p in self.products for op in (p.op, *p.a.made_by, *p.b.made_by)}
        blocks = [block for op in ops for region in op.regions for block in region.blocks]
        self.blocks = {block: self._parts(block, elsewhere) for block in blocks}

    @staticmethod
    def _parts(block: Block, elsewhere: Set[Operation]) -> _Parts:
        parts = _Parts([], [], [])
        for op in block.ops:
            origin = None
            if op.regions:
                parts.inner.append(op)
            elif op in elsewhere:
                continue
            elif isinstance(op, _MOVES) and (origin := tile_origin(op.tile)) is not None:
                parts.moved.append((origin, op))
            elif any(isinstance(v.type, VectorType) for v in (*op.results, *op.operands)):
                parts.values.append(op)
        return parts


class Program:
    """A kernel's work at the sizes that its IR has now: what is asked of it later, when these are others, is kept."""

    def __init__(self, structure: Structure, rates: Rates, model: ProductModel | None = None):
        self.structure, self.rates, self.model = structure, rates, model
        self.works: dict[Block, Work] = {}
        """Of a block's ops but for those with regions."""
        self.moved: dict[Block, list[tuple[xetile.InitTileOp, int]]] = {}
        """Tiles that a block loads and stores, with their bytes."""
        for block, parts in structure.blocks.items():
            self.moved[block] = [
                (origin, sum(map(_bytes, (*op.results, *op.operands))))
                for origin, op in parts.moved
            ]
            work = self.works[block] = Work(ops=len(parts.moved))
            for op in parts.values:
                _add(op, work, rates)
        self.carried = {loop: sum(map(_bytes, loop.results)) for loop in structure.loops}
        """Bytes that a loop carries."""
        self.tiles = {op: op.tile_type.get_shape() for op in structure.tiles}
        self.numbers = {v: n for v in structure.numbers if (n := constant(v)) is not None}
        self.products = [(product, product.shape) for product in structure.products]

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
                [shape for _, shape in program.products],
                set(program.numbers.values()),  # constants of one value may be one or several
            )
            for program in (self, other)
        )
        return mine == others

    def placed(self, arguments: Sequence[Any]) -> list[PlacedProduct]:
        """Its products for arrays of these shapes."""
        estimate = _Estimate.of(self, arguments)
        return [estimate.placed(*each) for each in self.products]

    def programs(self, arguments: Sequence[Any]) -> int:
        """Of a launch that covers the arrays which the kernel stores to."""
        return _Estimate.of(self, arguments).all_programs()

    def grid(self, arguments: Sequence[Any]) -> Grid:
        """Of such a launch."""
        estimate = _Estimate.of(self, arguments)
        estimate.all_programs()
        x, y, z = (estimate.counts.get(axis, 1) for axis in "xyz")
        return x, y, z


def _add(op: Operation, work: Work, rates: Rates) -> None:
    """Adds what an op does."""
    if isinstance(op, xetile.TileMmaOp):
        (m, k), n = vector_type(op.a).get_shape(), vector_type(op.b).get_shape()[1]
        work.product(m, n, k, _element_bytes(op.a), rates)
    elif isinstance(op, (xetile.StoreTileOp, xetile.StoreScatterOp)):
        work.memory_bytes += _bytes(op.value)
        work.ops += 1
    elif isinstance(op, (xetile.LoadTileOp, xetile.LoadGatherOp, xetile.AtomicRmwOp)):
        work.memory_bytes += sum(_bytes(value) for value in op.results)
        work.ops += 1
    elif results := sum(_bytes(value) for value in op.results):
        if op.name.startswith(("arith.", "math.")):
            work.flops += sum(_elements(value) for value in op.results)
        if results <= rates.cache_bytes:
            work.near_bytes += results
        else:
            work.memory_bytes += results
        work.ops += 1


def costed(values: dict[str, int], program: Program, arguments: Sequence[Any]) -> Choice:
    """What a launch would take with the values of constexprs that `program` was built with."""
    estimate, rates = _Estimate.of(program, arguments), program.rates
    programs = estimate.all_programs()
    each, longest = Work(), 1.0
    if program.structure.uneven:
        quarters = [estimate.at(place).whole() for place in QUARTERS]
        for work in quarters:
            each.add(work, 1 / len(quarters))
        less, more = sorted(
            seconds(work, 1, replace(rates, launch_seconds=0.0)) for work in quarters
        )
        longest = (1.5 * more - 0.5 * less) / (0.5 * more + 0.5 * less or 1.0)
    else:
        each = estimate.whole()
    found = causes(each, programs, rates, shared=program.structure.shared, longest=longest)
    if program.model is not None and program.products:
        placed = [estimate.placed(*each) for each in program.products]
        for cause, more in program.model.causes(placed, programs).items():
            found[cause] = found.get(cause, 0.0) + more
    why = {cause: seconds for cause, seconds in found.items() if seconds}
    return Choice(values, together(found, rates), programs, causes=why)


def launch_traffic(module: ModuleOp, arguments: Sequence[Any]) -> tuple[float, int, int]:
    """Operations on numbers of a launch that covers the arrays which the kernel stores to, bytes of the arrays at its
    tiles, each once, and bytes of an element of its products (of its arrays, where it has none)."""
    program = Program.of(module, GENERIC)
    estimate = _Estimate.of(program, arguments)
    flops = estimate.whole().flops * estimate.all_programs()
    arrays = [a for a in arguments if isinstance(a, ArrayArg)]
    moved = sum(prod(a.shape) * a.dtype.itemsize for a in arrays)
    products = [_element_bytes(o.a) for o in module.walk() if isinstance(o, xetile.TileMmaOp)]
    return flops, moved, max(products or [a.dtype.itemsize for a in arrays], default=4)


@dataclass
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

    def whole(self) -> Work:
        return self.block(self.program.structure.kernel.body.block)

    def block(self, block: Block) -> Work:
        work = replace(self.program.works[block])
        for origin, size in self.program.moved[block]:
            work.memory_bytes += size * self.inside(origin)
        for op in self.program.structure.blocks[block].inner:
            trips = _UNKNOWN_TRIPS if isinstance(op, scf.WhileOp) else 1
            if isinstance(op, scf.ForOp):
                trips = self.trips(op)
                beyond = max(0, self.program.carried[op] - self.program.rates.cache_bytes)
                work.memory_bytes += trips * 2 * beyond
            for region in op.regions:
                for each in region.blocks:
                    work.add(self.block(each), trips)
        return work

    def inside(self, tile: xetile.InitTileOp) -> float:
        """The part of a tile that its array has at most."""
        sizes, shape = self.program.tiles[tile], self.shapes.get(tile.source, ())
        pairs = zip(reversed(sizes), reversed(shape), strict=False)
        return prod(min(1.0, extent / size) for size, extent in pairs)

    def trips(self, loop: scf.ForOp) -> int:
        low, high, step = (self.value(v) for v in (loop.lb, loop.ub, loop.step))
        if low is None or high is None or not step or step < 0:
            return _UNKNOWN_TRIPS
        return max(0, -(-(high - low) // step))

    # Programs of the launch.

    def all_programs(self) -> int:
        """Programs that write all arrays, and along other axes of the grid as many as go through what they read."""
        writing = max((self.programs(tile) for tile in self.program.structure.written), default=1)
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

    def programs(self, tile: SSAValue) -> int:
        """Programs that write every part of an array once: a tile's steps along the program ids."""
        init = tile.owner
        while isinstance(init, xetile.UpdateTileOffsetOp):
            init = init.tile.owner
        if not isinstance(init, xetile.InitTileOp):
            return 1
        shape = self.shapes.get(memory_root(init.source), ())
        if len(shape) != len(init.mixed_offsets):
            return 1
        extents = (*(1 for _ in shape[:-2]), *self.program.tiles[init])[-len(shape) :]
        count, counts = 1, dict[str, int]()
        for offset, extent, step in zip(init.mixed_offsets, shape, extents, strict=False):
            ids = program_ids(offset) if isinstance(offset, SSAValue) else []
            axes = {str(id.dimension.data) for id in ids}
            if axes:
                along = max(1, -(-extent // step))
                for axis in axes:  # one that goes through several dimensions
                    before = counts.get(axis, 1) if len(axes) == 1 else 1
                    counts[axis] = before * along
                count *= along
        self.counts |= counts
        return count

    # Products.

    def placed(self, product: TileProduct, shape: tuple[int, int, int]) -> PlacedProduct:
        """A product, whose tiles have this shape, for these arrays."""
        rows, columns, k = shape
        times, op = 1, product.op.parent_op()
        while op is not None and op is not self.program.structure.kernel:
            trips = self.trips(op) if isinstance(op, scf.ForOp) else 1
            if op is product.op.parent_op() and product.is_summed:
                k = min(k * trips, *(self.along(f, -3 - f.axis, k * trips) for f in product.sides))
            else:
                times *= trips
            op = op.parent_op()
        a, b = (self.side(f, tile) for f, tile in zip(product.sides, (rows, columns), strict=True))
        mma = product.op
        first, second, result = (_name(vector_type(v)) for v in (mma.a, mma.b, mma.result))
        return PlacedProduct((first, second, result), a, b, k, times)

    def along(self, factor: Factor, axis: int, otherwise: int) -> int:
        """The extent of a factor's array."""
        return self.shapes[factor.array][axis] if factor.array in self.shapes else otherwise

    def side(self, factor: Factor, tile: int) -> Side:
        extent = self.along(factor, factor.axis, tile)
        strides = getattr(self.arrays.get(factor.array), "strides", None)
        along_k = bool(strides[-3 - factor.axis] == 1 if strides else factor.axis == -2)
        return Side(tile, extent, factor.array is not None, along_k)

    # Index arithmetic on shapes.

    def value(self, ssa: SSAValue) -> int | None:
        """An index value for these shapes, in the first program; None when they do not tell."""
        if ssa not in self.known:
            self.known[ssa] = None  # a cycle through a loop has no value
            self.known[ssa] = self._value(ssa)
        return self.known[ssa]

    def _value(self, ssa: SSAValue) -> int | None:
        op = ssa.owner
        if (number := self.program.numbers.get(ssa)) is not None:
            return number
        if isinstance(op, memref.DimOp):
            shape, axis = self.shapes.get(op.source), self.value(op.index)
            return shape[axis] if shape is not None and axis is not None else None
        if isinstance(op, gpu.BlockIdOp):
            if self.ids is not None:
                return self.ids.get(str(op.dimension.data), 0)
            return int(self.place * self.counts.get(str(op.dimension.data), 1))
        if isinstance(ssa, BlockArgument) and isinstance(loop := ssa.owner.parent_op(), scf.ForOp):
            return self.value(loop.lb) if ssa.index == 0 else None
        fold = _FOLDS.get(type(op)) if isinstance(op, Operation) else None
        if fold is None or not isinstance(op, Operation):
            return None
        operands = [self.value(operand) for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        try:
            return fold(*operands)
        except ZeroDivisionError:
            return None


_FOLDS: Mapping[type[Operation], Callable[..., int]] = {
    **WHOLE,
    arith.FloorDivSIOp: lambda a, b: a // b,
    arith.CeilDivSIOp: lambda a, b: -(-a // b),
}


_MOVES = xetile.LoadTileOp | xetile.StoreTileOp


def _name(type: VectorType) -> str:
    """Of the elements."""
    return dtypes.from_mlir(type.element_type).name


def _element_bytes(value: SSAValue) -> int:
    return dtypes.from_mlir(vector_type(value).element_type).itemsize


def _elements(value: SSAValue) -> int:
    """Elements of a tile's value; 0 for scalars and tiles."""
    return prod(value.type.get_shape()) if isinstance(value.type, VectorType) else 0


def _bytes(value: SSAValue) -> int:
    """Bytes of a tile's value; 0 for scalars and tiles."""
    elements = _elements(value)
    return elements * _element_bytes(value) if elements else 0
