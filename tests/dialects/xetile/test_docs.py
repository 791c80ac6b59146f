"""docs/xetile.md: its program is legal, its error is what is printed, what it lists as unread is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dialects.xetile.test_roundtrip import program
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module
from tilewright.dialects.xetile import XeTile
from tilewright.dialects.xetile.aliases import ALIASES

PAGE = (Path(__file__).parents[3] / "docs" / "xetile.md").read_text()


def test_the_program_is_legal() -> None:
    blocks = re.findall(r"```mlir\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        text = print_module(parse_module(block, strict=True), readable=True)
        assert print_module(parse_module(text), readable=True) == text


def test_the_error_is_what_is_printed() -> None:
    (shown,) = re.findall(r"```\n(gemm.mlir.*?)```", PAGE, re.DOTALL)
    line = re.search(r"^   14 \|(.*)$", shown, re.MULTILINE)
    assert line is not None
    text = (
        "func.func @f(%a: vector<32x32xf16>, %b: vector<32x64xbf16>) {"
        + "\n" * 13
        + line[1].removeprefix(" ")
        + "\n  return\n}\n"
    )
    with pytest.raises(TilewrightError) as caught:
        parse_module(text, "gemm.mlir")
    assert str(caught.value) == shown.rstrip("\n")


def test_every_op_is_listed() -> None:
    for op in XeTile.operations:
        name = op.name if op not in ALIASES else op.name.removeprefix("xetile.")
        assert name in PAGE


UNREAD = [
    "%r = xetile.init_tile %m[0, 0] : memref<MxNxbf16> -> tile<8x8xbf16>",
    "%r = xetile.init_tile %m[0, 0] : memref<4096x4096xf16, slm> -> tile<8x8xf16>",
    "%r = xetile.reduction <add> %c [0] {$reduction_size = 8} : vector<32x64xf32> into "
    "vector<4x64xf32>",
    "%r = xetile.reduction %c [1] : vector<32x64xf32> into vector<32x1xf32>",
    "%r = xetile.load_tile %t : tile<32x32xf16> into vector<32x32xf16>\n"
    "    %r = xetile.load_tile %t : tile<32x32xf16> into vector<32x32xf16>",
    "%r = add %i, %j",
    "%r = init tile %m[0, 0] : memref<512x256xf16> -> tile<8x8xf16>",
    "%r = xetile.update_nd_offset %t, %i, %j : tile<32x32xf16>",
    "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> tile<8x8xf16]>",
]


@pytest.mark.parametrize("op", UNREAD)
def test_what_is_not_read_gives_a_diagnostic(op: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        parse_module(program(op), "unread.mlir")
    assert caught.value.location is not None
