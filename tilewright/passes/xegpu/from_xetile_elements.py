"""What `xetile-to-xegpu` accesses element by element: scattered tiles, blocks with a mask, and blocks of shared
memory that may reach outside of it.

An element is accessed where it is asked for and lies in its array: XeTile has the others padded or dropped, XeGPU
leaves undefined what is read or written outside.

    %t = xetile.init_tile %a, %at : memref<?xf32>, ..     %n = memref.dim %a, %c0
    %v = xetile.load %t                             ->    %inside = arith.cmpi ult, %at, broadcast(%n)
                                                          %r = xegpu.load %a[%at], %inside
                                                          %v = arith.select %inside, %r, 0.0
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, AnyFloat, MemRefType, VectorType
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu, xetile
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.movement import shape_of, vector_type
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.xetile import TileType
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before
from tilewright.passes.positions import Placed
from tilewright.passes.vector_elements import flattened


@dataclass
class Base:
    """What a tile's root is: the tile's type and its matrix."""

    tile: TileType
    rank: int
    extents: list[Index] = field(default_factory=list[Index])
    strides: list[Index] = field(default_factory=list[Index])
    source: SSAValue | None = None


def fit(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The tile's shape in the matrix' rank: a tile of a 1-D array is one row."""
    return shape[len(shape) - rank :] if rank < len(shape) else shape


def _wanted(at: Before, mask: SSAValue | None, placed: Placed) -> SSAValue | None:
    """Of scattered elements those that are asked for and lie in their array (a pointer's has no end); None: all."""
    array = placed.root.type
    if not isinstance(array, MemRefType):
        return mask
    extent = next(iter(array.get_shape()), 1)
    if extent == DYNAMIC_INDEX:
        length = at.add(memref.DimOp(placed.root, at.index(0)))
    else:
        length = at.index(extent)
    offsets = _offsets(placed)
    # As in `Before.inside`, one unsigned comparison holds both bounds.
    inside = at.add(arith.CmpiOp(offsets, at.broadcast(length, shape_of(offsets)), "ult"))
    return at.also(mask, inside)


def _mask(at: Before, mask: SSAValue | None, shape: tuple[int, ...]) -> SSAValue:
    return at.all_true(shape) if mask is None else mask


def _offsets(placed: Placed) -> SSAValue:
    offsets = placed.parts[0]
    assert isinstance(offsets, SSAValue)
    return offsets


def gather(op: xetile.LoadGatherOp, placed: Placed) -> None:
    at = Before(op)
    result = op.result.type
    wanted = _wanted(at, op.mask, placed)
    at.replace(load_elements(at, op, placed.root, wanted, _offsets(placed), result))


def load_elements(
    at: Before,
    op: xetile.LoadTileOp | xetile.LoadGatherOp,
    root: SSAValue,
    mask: SSAValue | None,
    offsets: SSAValue,
    kind: VectorType[Attribute],
) -> SSAValue:
    """The elements that `mask` asks for (None: all), and the padding elsewhere."""
    wanted = _mask(at, mask, kind.get_shape())
    value = at.add(xegpu.LoadGatherOp(root, wanted, kind, offsets=offsets, hints=hints_of(op)))
    if mask is not None:
        # Masked-off lanes of xegpu.load are unspecified, those of XeTile's gather are the padding.
        value = at.add(arith.SelectOp(mask, value, at.constant(kind, op.padding_value)))
    return value


def scatter(op: xetile.StoreScatterOp, placed: Placed) -> None:
    at = Before(op)
    mask = _mask(at, _wanted(at, op.mask, placed), shape_of(op.value))
    store_elements(at, op, placed.root, mask, _offsets(placed))


def store_elements(
    at: Before,
    op: xetile.StoreTileOp | xetile.StoreScatterOp,
    root: SSAValue,
    mask: SSAValue,
    offsets: SSAValue,
) -> None:
    at.insert(xegpu.StoreScatterOp(op.value, root, mask, offsets=offsets, hints=hints_of(op)))
    at.replace()


def atomic(op: xetile.AtomicRmwOp, placed: Placed, base: Base | None) -> None:
    at = Before(op)
    shape = shape_of(op.value)
    mask = op.mask
    if base is None:
        root, offsets = placed.root, _offsets(placed)
        mask = _wanted(at, mask, placed)
    else:
        root, offsets, inside = addresses(at, placed, base, shape)
        mask = at.also(mask, inside)
    mask = _mask(at, mask, shape)
    old = at.add(xegpu.AtomicRMWOp(op.kind, root, mask, op.value, offsets=offsets))
    zero: float | int = 0.0 if isinstance(element_of(op.value.type), AnyFloat) else 0
    kind = vector_type(old)
    at.replace(at.add(arith.SelectOp(mask, old, at.constant(kind, zero))))


def addresses(
    at: Before, placed: Placed, base: Base, shape: tuple[int, ...]
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """A block as scattered elements: 1-D base, offsets, and which elements are in the matrix."""
    box = fit(shape, base.rank)
    offsets = at.cast(at.linear(placed.parts, base.strides, box), shape)
    inside = at.cast(at.inside(placed.parts, base.extents, box), shape)
    source = base.source
    assert source is not None
    if isinstance(source.type, MemRefType) and len(source.type.get_shape()) > 1:
        source = flattened(at, source, (base.extents, base.strides))
    return source, offsets, inside
