"""What of a kernel is the same at all sizes of its tiles, read from its IR once: who asks what it costs at many sizes
(`launch_cost`) reads no IR for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import ModuleOp, VectorType
from xdsl.ir import Block, Operation, SSAValue

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import WHOLE, constant, element_bytes
from tilewright.frozen import frozen
from tilewright.passes.carried import LOOPS
from tilewright.passes.kernel import program_ids
from tilewright.passes.memory_objects import memory_root
from tilewright.passes.resizing import Resizable, Sized
from tilewright.passes.tile_origin import tile_accesses, tile_origin
from tilewright.passes.tile_products import TileProduct, made_for_products, products_of


class Launch(Protocol):
    """What the index arithmetic of a kernel begins with."""

    def extent(self, array: SSAValue, axis: int) -> int | None:
        """Of an array; None where it is not known."""
        ...

    def id(self, axis: str) -> int:
        """The number of the program that is looked at, along an axis of the grid."""
        ...


@frozen
class Alike:
    """Ops of a block that compute, load or store values of tiles of the same types."""

    op: Operation
    """One of them."""
    types: tuple[int, ...]
    """Of its results and operands, those of values of tiles, as `Structure.types` lists them."""
    results: int
    """How many of these are results'."""
    times: int


@frozen
class Parts:
    """The ops of a block, by what is asked of them."""

    values: list[Alike]
    moved: list[tuple[xetile.InitTileOp, list[int], bool]]
    """Loads and stores of tiles that are made once, with these: the types of their values, and whether it is a load."""
    inner: list[Operation]
    """Those with regions."""
    waits: bool
    """Is something loaded here, and nothing multiplied, so that it comes only when it is asked for?"""


@frozen
class Type:
    """Of values, or of tiles."""

    extents: Sized
    itemsize: int
    """0 of a tile, whose elements are loaded to values."""


@frozen
class Loop:
    """A loop whose turns its bounds tell."""

    bounds: tuple[SSAValue, SSAValue, SSAValue]
    """The first, the one behind the last, and the step."""
    carried: list[int]
    """The types of what it carries."""


@frozen
class Product:
    """A product, and what of it is the same at all sizes."""

    of: TileProduct
    names: tuple[str, str, str]
    """Of the element types of A, B and C."""
    types: tuple[int, int]
    """Of the tiles of A and B."""
    around: list[Operation]
    """Ops with regions that it is in, the innermost first."""


@frozen
class Place:
    """Where a tile lies."""

    init: xetile.InitTileOp
    array: SSAValue
    axes: list[Set[str]]
    """Of the grid, by the array's dimensions: those whose numbers of a program go into a tile's offset there."""


@frozen
class Index:
    """How an index comes about."""

    operands: tuple[SSAValue, ...] = ()
    """Other indices."""
    made: Callable[[Launch, Sequence[int]], int | None] | None = None
    """What makes it of theirs; None where nothing tells it. Raises ZeroDivisionError."""


class Structure:
    """What of a kernel is the same at all sizes, read from its IR once."""

    def __init__(self, module: ModuleOp, products: bool, sizes: Resizable | None = None):
        """`products`: a model accounts for them, and for the ops that make their operands alone. `sizes`: what makes
        other numbers of the module's; None where these are all that is asked for."""
        self.sizes = sizes
        self.types = list[Type]()
        """All that differ at some sizes."""
        self._known = dict[Any, int]()
        self._indices = dict[SSAValue, Index]()
        self._common = dict[xetile.InitTileOp, bool]()
        self.kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
        found = list(products_of(self.kernel)) if products else []
        self.products = [self._product(p) for p in found]
        self.written = [
            place
            for _, tile, writes in tile_accesses(self.kernel)
            if writes and (place := self._place(tile)) is not None
        ]
        ops = list(self.kernel.walk())
        loops = [op for op in ops if isinstance(op, LOOPS)]
        self.shared = len(loops) == 1 and any(
            isinstance(op, xetile.TileMmaOp) for op in loops[0].walk()
        )
        self.loops = {
            loop: Loop((loop.lb, loop.ub, loop.step), self._types_of(loop.results))
            for loop in loops
            if isinstance(loop, scf.ForOp)
        }
        self.multiplies = any(isinstance(op, xetile.TileMmaOp) for op in ops)
        self.uneven = [loop for loop in self.loops if _axes(loop.lb) or _axes(loop.ub)]
        """Loops that some programs turn in more often than others."""
        self.tiles = {
            op: self.type_of(op.result) for op in ops if isinstance(op, xetile.InitTileOp)
        }
        ids = [op for op in ops if isinstance(op, gpu.BlockIdOp)]
        self.axes = {str(op.dimension.data) for op in ids}
        results: list[SSAValue] = [op.results[0] for op in ops if len(op.results) == 1]
        self.numbers = {value: n for value in results if (n := constant(value)) is not None}
        """Constants, as they are now."""
        self.sized = [(v, n) for v in self.numbers if sizes and (n := sizes.constant(v))]
        """Of these, those that depend on the sizes."""
        elsewhere = made_for_products(found) | (_by_the_way(ops) if products else set())
        blocks = [block for op in ops for region in op.regions for block in region.blocks]
        self.blocks = {block: self._parts(block, elsewhere) for block in blocks}

    def _product(self, product: TileProduct) -> Product:
        mma, around, op = product.op, list[Operation](), product.op.parent_op()
        while op is not None and op is not self.kernel:
            around.append(op)
            op = op.parent_op()
        first, second, result = (_name(vector_type(v)) for v in (mma.a, mma.b, mma.result))
        tiles = self.type_of(mma.a), self.type_of(mma.b)
        return Product(product, (first, second, result), tiles, around)

    @staticmethod
    def _place(tile: SSAValue) -> Place | None:
        if (init := tile_origin(tile)) is None:
            return None
        offsets = init.mixed_offsets
        return Place(init, memory_root(init.source), [_axes(offset) for offset in offsets])

    def is_common(self, tile: xetile.InitTileOp) -> bool:
        """Is it at one place for all programs?"""
        if tile not in self._common:
            self._common[tile] = (
                not any(map(_axes, tile.mixed_offsets)) and memory_root(tile.source) is tile.source
            )
        return self._common[tile]

    def index(self, ssa: SSAValue) -> Index:
        """How an index comes about."""
        if ssa not in self._indices:
            self._indices[ssa] = self._index(ssa)
        return self._indices[ssa]

    @staticmethod
    def _index(ssa: SSAValue) -> Index:
        op = ssa.owner
        if isinstance(op, memref.DimOp):
            source = op.source
            return Index((op.index,), lambda launch, axis: launch.extent(source, axis[0]))
        if isinstance(op, gpu.BlockIdOp):
            axis = str(op.dimension.data)
            return Index((), lambda launch, _: launch.id(axis))
        if isinstance(op, Block):
            loop = op.parent_op()
            if isinstance(loop, scf.ForOp) and ssa == op.args[0]:
                return Index((loop.lb,), lambda _, first: first[0])
            return Index()
        fold = _FOLDS.get(type(op))
        return Index() if fold is None else Index(tuple(op.operands), lambda _, of: fold(*of))

    def type_of(self, value: SSAValue) -> int:
        """Where the type of a tile, or of a value of one, is listed."""
        kind, sized = value.type, self.sizes and self.sizes.extents(value)
        key = sized or kind
        if key not in self._known:
            self._known[key] = len(self.types)
            assert isinstance(kind, VectorType | xetile.TileType)
            shape = kind.get_shape()
            size = element_bytes(kind.element_type) if isinstance(kind, VectorType) else 0
            self.types.append(Type(sized or (lambda sizes: shape), size))
        return self._known[key]

    def _types_of(self, values: Sequence[SSAValue]) -> list[int]:
        """Those of values of tiles."""
        return [self.type_of(value) for value in values if isinstance(value.type, VectorType)]

    def _parts(self, block: Block, elsewhere: Set[Operation]) -> Parts:
        inner, moved = list[Operation](), list[tuple[xetile.InitTileOp, list[int], bool]]()
        alike = dict[Any, list[Operation]]()
        for op in block.ops:
            origin = None
            if op.regions:
                inner.append(op)
            elif op in elsewhere:
                continue
            elif isinstance(op, _MOVES) and (origin := tile_origin(op.tile)) is not None:
                types = self._types_of((*op.results, *op.operands))
                moved.append((origin, types, isinstance(op, xetile.LoadTileOp)))
            elif types := self._types_of((*op.results, *op.operands)):
                key = computes(op) or type(op), len(self._types_of(op.results)), tuple(types)
                alike.setdefault(key, []).append(op)
        values = [
            Alike(ops[0], types, results, len(ops)) for (_, results, types), ops in alike.items()
        ]
        kinds = {type(op) for op in block.ops}
        waits = bool(kinds & _LOADS) and xetile.TileMmaOp not in kinds
        return Parts(values, moved, inner, waits)


_FOLDS: Mapping[type[Operation], Callable[..., int]] = {
    **WHOLE,
    arith.FloorDivSIOp: lambda a, b: a // b,
    arith.CeilDivSIOp: lambda a, b: -(-a // b),
}


def _by_the_way(ops: Sequence[Operation]) -> Set[Operation]:
    """What rows of values are computed with, element by element, without being there themselves: masks and other
    functions of indices and scalars, and what repeats along a row."""
    found = set[Operation]()
    for op in ops:
        if op.regions or not op.name.startswith(("arith.", "vector.", "xetile.broadcast")):
            continue
        tiles = [value for value in op.operands if isinstance(value.type, VectorType)]
        if op.name.endswith("broadcast") or all(value.owner in found for value in tiles):
            found.add(op)
    return found


_MOVES = xetile.LoadTileOp | xetile.StoreTileOp
_LOADS = {xetile.LoadTileOp, xetile.LoadGatherOp}


def _axes(offset: SSAValue | int) -> Set[str]:
    """The axes of the grid along which an index differs."""
    ids = program_ids(offset) if isinstance(offset, SSAValue) else []
    return {str(id.dimension.data) for id in ids}


def computes(op: Operation) -> bool:
    return op.name.startswith(("arith.", "math."))


def _name(type: VectorType) -> str:
    """Of the elements."""
    return dtypes.from_mlir(type.element_type).name
