"""The stage dialect's asynchronous part: text, and what its verifiers refuse."""

from __future__ import annotations

import pytest

from tests.reference.stage_programs import COPIED, PRODUCT
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("text", [PRODUCT, COPIED], ids=["product", "copied"])
def test_text_round_trip(text: str, readable: bool) -> None:
    first = print_module(parse_module(text), readable=readable)
    assert print_module(parse_module(first), readable=readable) == first


def test_other_ops_round_trip() -> None:
    text = """
    func.func @f(%v: vector<128x64xbf16>, %t: !xetile.tile<128x64xbf16>, %u: !xetile.tile<64x128xbf16>) {
      %i, %n = stage.worker
      %p = stage.programs {axis = 1 : i64}
      %r = stage.multi_buffer : !stage.multi_buffer<4, [#stage.part<64x64xbf16, order = [1, 0], swizzle = 128>]>
      stage.copy.store %v, %t through %r : vector<128x64xbf16>, !xetile.tile<128x64xbf16>,
        !stage.multi_buffer<4, [#stage.part<64x64xbf16, order = [1, 0], swizzle = 128>]>
      stage.copy.store %v, %u through %r {transpose} : vector<128x64xbf16>, !xetile.tile<64x128xbf16>,
        !stage.multi_buffer<4, [#stage.part<64x64xbf16, order = [1, 0], swizzle = 128>]>
      %w = stage.multi_buffer : !stage.multi_buffer<2, [#stage.part<128x64xbf16, order = [1, 0], swizzle = 128>]>
      %e = stage.multi_buffer : !stage.multi_buffer<2, [#stage.part<32x64xtf32, order = [0, 1], swizzle = 128,
      deinterleaved>]> %c = stage.pipeline_state : !stage.pipeline_state<2>
      stage.local_store %w[%c], %v : !stage.multi_buffer<2, [#stage.part<128x64xbf16, order = [1, 0], swizzle = 128>]>,
        !stage.pipeline_state<2>, vector<128x64xbf16>
      func.return
    }
    """
    first = print_module(parse_module(text))
    assert print_module(parse_module(first)) == first


PARTS = """
    func.func @f(%c: vector<128x256xf32>) {
      %k = stage.rank
      %r = stage.multi_buffer : !stage.multi_buffer<2, [#stage.part<128x64xi8, order = [1, 0], swizzle = 64>,
        #stage.part<64x256xf16, order = [0, 1], swizzle = 128>]>
      %i = stage.pipeline_state : !stage.pipeline_state<2>
      %a, %b = stage.copy.wait %r[%i] : !stage.multi_buffer<2, [#stage.part<128x64xi8, order = [1, 0], swizzle = 64>,
        #stage.part<64x256xf16, order = [0, 1], swizzle = 128>]>, !stage.pipeline_state<2>
        -> vector<128x64xi8>, vector<64x256xf16>
      %p = stage.read.part %a {offsets = array<i64: 0, 16>} : vector<128x64xi8> -> vector<128x16xi8>
      %x = arith.sitofp %p : vector<128x16xi8> to vector<128x16xf16>
      %d = stage.mma.issue %x, %b, %c {first = 16 : i64} : vector<128x16xf16>, vector<64x256xf16>,
        vector<128x256xf32> -> !stage.pending<vector<128x256xf32>>
      %e = stage.mma.wait %d : !stage.pending<vector<128x256xf32>> -> vector<128x256xf32> {pending = 0 : i64}
      %s = stage.cluster.sum %e : vector<128x256xf32> to vector<128x64xf32>
      func.return
    }
"""


def test_parts_of_tiles_and_of_products_round_trip() -> None:
    first = print_module(parse_module(PARTS))
    assert print_module(parse_module(first)) == first


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("array<i64: 0, 16>", "array<i64: 0, 49>", "is not a part of"),
        ("array<i64: 0, 16>", "array<i64: 16>", "is not a part of"),
        ("stage.read.part %a", "stage.read.part %w", "reads what a stage.copy.wait gave"),
        ("first = 16", "first = 49", "is not vector<128x256xf32>"),
    ],
)
def test_refusals_of_parts(old: str, new: str, message: str) -> None:
    assert PARTS.count(old) == 1
    text = PARTS.replace(old, new).replace("f(%c", "f(%w: vector<128x64xi8>, %c")
    with pytest.raises(TilewrightError, match=message):
        parse_module(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("!stage.pipeline_state<2>", "!stage.pipeline_state<3>", "a state of 3 slots in a buffer of 2 slots"),
        ("swizzle = 128>", "swizzle = 96>", "a swizzle spans 0, 32, 64 or 128 bytes"),
        ("#stage.part<128x64xbf16, order", "#stage.part<64x64xbf16, order", "is not the part"),
        ("warps = 4 : i64", "warps = 0 : i64", "a role has at least one warp"),
        ("%p0 = stage.mma.start %cst : vector<128x128xf32>", "%p0 = stage.mma.start %cst : index",
         "expected a vector type, got index"),
        ("stage.mma.wait {pending = 1 : i64}", "stage.mma.wait {pending = -1 : i64}",
         "cannot stay pending"),
    ],
)  # fmt: skip
def test_refusals(old: str, new: str, message: str) -> None:
    assert old in PRODUCT
    with pytest.raises(TilewrightError, match=message):
        parse_module(PRODUCT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" {by_threads}", "", "the copy engine takes no condition"),
        ("pending = 1", "pending = -1", "-1 fills cannot stay pending"),
    ],
)
def test_refusals_of_copies_by_threads(old: str, new: str, message: str) -> None:
    assert old in COPIED
    with pytest.raises(TilewrightError, match=message):
        parse_module(COPIED.replace(old, new))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("stage.dealloc %r : {buffer}", "its buffer is filled by the copy engine"),
        ("stage.copy.issue %r[%c], %a : {buffer}, !stage.pipeline_state<2>, !xetile.tile<8x8xf16>",
         "without panels"),
        ("%v = stage.copy.wait %r[%c] {{pending = 1 : i64}} : {buffer}, !stage.pipeline_state<2> -> vector<8x8xf16>",
         "1 fills cannot stay pending"),
    ],
)  # fmt: skip
def test_what_the_copy_engine_does_not(op: str, message: str) -> None:
    buffer = "!stage.multi_buffer<2, [#stage.part<8x8xf16, order = [1, 0], swizzle = 0>]>"
    text = f"""
    func.func @f(%a: !xetile.tile<8x8xf16>) {{
      %r = stage.multi_buffer : {buffer}
      %c = stage.pipeline_state : !stage.pipeline_state<2>
      {op.format(buffer=buffer)}
      func.return
    }}"""
    with pytest.raises(TilewrightError, match=message):
        parse_module(text)


STORED = PRODUCT.replace(
    "%a, %b\n            :", "%a, %b {stored = array<i64: 0, 0, 2, 0, 1, 1, 2, 1>}\n            :"
)


def test_what_is_stored_of_a_copy_round_trips() -> None:
    first = print_module(parse_module(STORED))
    assert (
        "array<i64: 0, 0, 2, 0, 1, 1, 2, 1>" in first and print_module(parse_module(first)) == first
    )


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ("0, 0, 2", "no four numbers"),
        *((bad, "no dimension of a tile and of an array") for bad in
          ("2, 0, 2, 0", "-1, 0, 2, 0", "0, 2, 2, 0", "0, 0, 3, 0", "0, 0, -1, 0", "0, 0, 2, 2")),
    ],
)  # fmt: skip
def test_refusals_of_what_is_stored(numbers: str, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        parse_module(STORED.replace("0, 0, 2, 0, 1, 1, 2, 1", numbers))


def test_lines_of_deinterleaved_parts() -> None:
    with pytest.raises(TilewrightError, match="lines of 12 elements are no multiple of the 8"):
        parse_module(
            "%r = stage.multi_buffer : !stage.multi_buffer<2, "
            "[#stage.part<12x64xf32, order = [0, 1], swizzle = 0, deinterleaved>]>"
        )
