"""docs/xegpu.md: its program is legal, its message is what is printed, what it lists as unread is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.passes.xegpu.check_legal import check_legal
from tilewright.tools.pipelines import available_passes
from tilewright.uarch.xe import xe_machine

PAGE = (Path(__file__).parents[3] / "docs" / "xegpu.md").read_text()


def test_the_program_is_legal():
    (program,) = re.findall(r"```mlir\n(.*?)```", PAGE, flags=re.DOTALL)
    parse_module(program, "page.mlir", strict=True)


def test_the_message_is_what_is_printed():
    t = "!xegpu.tensor_desc<64x16xf16>"
    text = (
        f"func.func @f(%t: {t}) {{ %v = xegpu.load_nd %t[0, 0] : {t} -> vector<64x16xf16> return }}"
    )
    with pytest.raises(UnsupportedError) as caught:
        check_legal(parse_module(text, "page.mlir"), xe_machine("pvc"))
    assert caught.value.message in PAGE


def test_every_pass_named_is_there():
    names = re.findall(r"^\| `([a-z-]+)", PAGE.split("## Passes")[1].split("## Levels")[0], re.M)
    assert len(names) == 4
    assert set(names) <= set(available_passes())


UNREAD = [
    ("%t: !xegpu.tensor_desc<16xbf16, !xegpu.block_tdesc_attr<memory_space = slm>>", ""),
    ("%t: !xegpu.tensor_desc<16xf32, #xegpu.tdesc_attr<scattered = true>>", ""),
    ("%p: ui64", "%t = xegpu.create_tdesc %p[0, 8] : ui64 -> !xegpu.tensor_desc<2xf32, #xegpu.scatter_tdesc_attr<>>"),
    ("%v: vector<8x16xf32>", "%w = vector.transpose %v {#xegpu.sg_map<wi_layout = [1, 16], "
     "wi_data = [1, 1]>} : vector<8x16xf32>"),
    ("%t: index", "%1p = arith.addi %t, %t : index"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "op"), UNREAD, ids=lambda text: text[:30])
def test_what_is_listed_as_unread_is_refused(args: str, op: str):
    with pytest.raises(TilewrightError):
        parse_module(f"func.func @f({args}) {{\n{op}\nreturn\n}}", "unread.mlir")
