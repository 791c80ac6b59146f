"""`!xetile.tile`: a 2-D region of a base matrix (or a set of scattered elements) as a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BFloat16Type,
    Float32Type,
    IndexType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
)
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from tilewright import dtypes
from tilewright.dialects.attribute_fields import Shaped, checked, int_array, ints, parse_shape
from tilewright.dialects.xetile.attrs import SgMapAttr, TileAttr, WgMapAttr, XeMapAttr
from tilewright.dialects.xetile.distribution import verify_map

_FLOATS = frozenset(dtype.mlir for dtype in (*dtypes.ALL, dtypes.f8e8m0) if dtype.is_float)
RFC_ELEMENTS: dict[str, Attribute] = {"float": Float32Type(), "b16": BFloat16Type()}
"""The RFC's names of element types, beside MLIR's; `b16` is a slip."""


def is_tile_element_type(attribute: Attribute) -> bool:
    """i1 .. i64 of any signedness, f8, f16, bf16, tf32, f32, f64 and index."""
    if isinstance(attribute, IntegerType):
        return 1 <= attribute.width.data <= 64
    return isinstance(attribute, IndexType) or attribute in _FLOATS


@irdl_attr_definition
class TileType(Shaped):
    """`!xetile.tile<32x64xf16, #xetile.tile_attr<...>>`: base matrix, position and shape.

    A tile's shape is static: two dimensions, or one or two for a scattered tile. The shape of a
    loaded vector always equals the tile's shape, whatever the `order` of its memory.
    """

    name = "xetile.tile"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    encoding: TileAttr | NoneAttr

    def __init__(
        self, shape: Iterable[int], element_type: Attribute, attributes: TileAttr | None = None
    ):
        super().__init__(int_array(shape), element_type, attributes or NoneAttr())

    # What the encoding says, with its defaults.
    @property
    def tile_attr(self) -> TileAttr | None:
        return self.encoding if isinstance(self.encoding, TileAttr) else None

    @property
    def order(self) -> tuple[int, int]:
        """(1, 0) row-major, (0, 1) column-major."""
        attr = self.tile_attr
        if attr is None or isinstance(attr.order, NoneAttr):
            return TileAttr.ROW_MAJOR
        slow, fast = ints(attr.order)
        return slow, fast

    @property
    def memory_space(self) -> int:
        """0 global memory, 3 shared local memory."""
        return self._integer("memory_space", 0)

    @property
    def array_length(self) -> int:
        return self._integer("array_length", 1)

    @property
    def scattered(self) -> bool:
        attr = self.tile_attr
        if attr is None or isinstance(attr.scattered, NoneAttr):
            return False
        return bool(attr.scattered.value.data)

    @property
    def wg_map(self) -> WgMapAttr | None:
        attr = self.tile_attr
        return attr.wg_map if attr and isinstance(attr.wg_map, WgMapAttr) else None

    @property
    def sg_map(self) -> SgMapAttr | None:
        attr = self.tile_attr
        return attr.sg_map if attr and isinstance(attr.sg_map, SgMapAttr) else None

    def _integer(self, name: str, default: int) -> int:
        value = getattr(self.tile_attr, name, None)
        return value.value.data if isinstance(value, IntegerAttr) else default

    def verify(self) -> None:
        shape = self.get_shape()
        ranks = (1, 2) if self.scattered else (2,)
        if len(shape) not in ranks:
            raise VerifyException(
                f"expected a {' or '.join(f'{r}-D' for r in ranks)} "
                f"{'scattered ' if self.scattered else ''}tile, got {len(shape)} dimensions"
            )
        for dim in shape:
            if dim < 1:
                text = "dynamic" if dim == DYNAMIC_INDEX else str(dim)
                raise VerifyException(f"dimensions of a tile are static and positive, got {text}")
        if not is_tile_element_type(self.element_type):
            raise VerifyException(f"unsupported element type of a tile: {self.element_type}")
        verify_map(shape, self.wg_map, self.sg_map, "the tile's map")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        beginning = parser.pos
        with parser.in_angle_brackets():
            shape, element = parse_shape(parser, RFC_ELEMENTS)
            encoding: Attribute = NoneAttr()
            # The RFC's examples leave the comma out here and there.
            comma = parser.parse_optional_punctuation(",") is not None
            start = parser.pos
            attribute = parser.parse_optional_attribute()
            if attribute is not None:
                encoding = tile_encoding(attribute)
                if isinstance(encoding, NoneAttr):
                    parser.raise_error("expect xetile::XeTileAttr for encoding", start, parser.pos)
            elif comma:
                parser.raise_error("expected a #xetile.tile_attr after ','")
        return checked(parser, cls, [shape, element, encoding], beginning)


def tile_encoding(attribute: Attribute) -> TileAttr | NoneAttr:
    """The tile_attr that an attribute stands for: itself, or a map on its own as the RFCs write."""
    match attribute:
        case TileAttr():
            return attribute
        case WgMapAttr():
            return TileAttr(wg_map=attribute)
        case SgMapAttr():
            return TileAttr(sg_map=attribute)
        case XeMapAttr():
            wg = attribute.wg if isinstance(attribute.wg, WgMapAttr) else None
            sg = attribute.sg if isinstance(attribute.sg, SgMapAttr) else None
            return TileAttr(sg_map=sg, wg_map=wg)
        case _:
            return NoneAttr()
