"""Types and attributes: any that can be built prints as text that reads as itself."""

from __future__ import annotations

from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import IndexType, IntegerType, Signedness, bf16, f16, f32, f64, tf32
from xdsl.ir import Attribute
from xdsl.parser import Parser

from tilewright.dialects import make_context
from tilewright.dialects.xetile import (
    CacheHint,
    CacheHintAttr,
    SgMapAttr,
    TileAttr,
    TileType,
    WgMapAttr,
    XeMapAttr,
)

CONTEXT = make_context()

sizes = st.integers(1, 4096)
pairs = st.tuples(sizes, sizes)
sg_maps = st.builds(SgMapAttr, pairs, pairs)
wg_maps = st.builds(WgMapAttr, pairs, pairs, st.none() | pairs, st.none() | st.integers(1, 256))
elements = st.sampled_from(
    [
        *(IntegerType(width, sign) for width in (1, 4, 8, 16, 32, 64) for sign in Signedness),
        *(f16, bf16, tf32, f32, f64, IndexType()),
    ]
)
block_attrs = st.builds(
    TileAttr,
    st.none() | sg_maps,
    st.none() | wg_maps,
    st.sampled_from([None, (1, 0), (0, 1)]),
    st.none() | st.integers(1, 4),
    st.sampled_from([None, 0, 3]),
    st.sampled_from([None, False]),
)
scattered_attrs = st.builds(TileAttr, wg_map=st.none() | wg_maps, scattered=st.just(True))


@st.composite
def mapped_shapes(draw: st.DrawFn) -> tuple[list[int], SgMapAttr | None, WgMapAttr | None]:
    """The shape of a tile, and maps that distribute it: each part is whole parts of the one below."""
    small = st.integers(1, 8)

    def times(*parts: list[int]) -> list[int]:
        return [draw(small) * prod(each) for each in zip(*parts, strict=True)]

    lanes, data, groups = (draw(st.lists(small, min_size=2, max_size=2)) for _ in range(3))
    inst = times(lanes, data)
    part = times(inst)
    sg = SgMapAttr(lanes, data) if draw(st.booleans()) else None
    wg = WgMapAttr(groups, part, inst, draw(st.none() | st.integers(1, 256)))
    return times(groups, part), sg, draw(st.sampled_from([None, wg]))


@st.composite
def mapped_tiles(draw: st.DrawFn) -> TileType:
    shape, sg, wg = draw(mapped_shapes())
    order = draw(st.sampled_from([None, (1, 0), (0, 1)]))
    lengths, spaces = st.none() | st.integers(1, 4), st.sampled_from([None, 0, 3])
    attr = TileAttr(
        sg, wg, order, draw(lengths), draw(spaces), draw(st.sampled_from([None, False]))
    )
    scattered = TileAttr(wg_map=wg, scattered=True)
    return TileType(shape, draw(elements), draw(st.sampled_from([attr, scattered])))


tiles = (
    mapped_tiles()
    | st.builds(TileType, pairs, elements)
    | st.builds(
        TileType,
        st.lists(sizes, min_size=1, max_size=1),
        elements,
        st.just(TileAttr(scattered=True)),
    )
)
hints = st.builds(CacheHintAttr, st.sampled_from(list(CacheHint)))
xe_maps = st.builds(XeMapAttr, st.none() | wg_maps, st.none() | sg_maps)


def read(text: str) -> Attribute:
    return Parser(CONTEXT, text).parse_attribute()


@settings(max_examples=300, deadline=None)
@given(sg_maps | wg_maps | block_attrs | scattered_attrs | tiles | hints | xe_maps)
def test_text_reads_as_the_attribute(attribute: Attribute) -> None:
    assert read(str(attribute)) == attribute


@given(tiles)
def test_accessors_agree_with_the_encoding(tile: TileType) -> None:
    attr = tile.tile_attr or TileAttr()
    assert tile.scattered == (tile.get_num_dims() == 1 or "scattered = true" in str(attr))
    assert tile.order == ((0, 1) if "order = [0, 1]" in str(attr) else (1, 0))
    assert (tile.wg_map is None) == ("wg_map" not in str(attr))
    assert (tile.sg_map is None) == ("sg_map" not in str(attr))
    assert tile.memory_space == (3 if "memory_space = 3" in str(attr) else 0)
    assert 1 <= tile.array_length <= 4


def test_default_order_is_absence() -> None:
    assert TileAttr(order=(1, 0)) == TileAttr()
    assert read("#xetile.tile_attr<order = [1, 0]>") == TileAttr()
    assert str(TileAttr(order=(1, 0))) == "#xetile.tile_attr<>"


def test_maps_as_encodings() -> None:
    wg, sg = WgMapAttr((2, 2), (16, 16)), SgMapAttr((1, 16), (1, 1))
    assert read(f"!xetile.tile<32x32xf16, {wg}>") == TileType((32, 32), f16, TileAttr(wg_map=wg))
    assert read(f"!xetile.tile<32x32xf16, {XeMapAttr(wg, sg)}>") == TileType(
        (32, 32), f16, TileAttr(sg_map=sg, wg_map=wg)
    )


def test_lists_of_other_spellings() -> None:
    expected = WgMapAttr((2, 2), (16, 8))
    assert read("#xetile.wg_map<sg_layout = array<i32: 2, 2>, sg_data = [16 : i64, 8]>") == expected
