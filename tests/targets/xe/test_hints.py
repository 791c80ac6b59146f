"""Cache hints: each pair of a load, a store and a prefetch is a pair of policies that messages have, or is refused."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tilewright.diagnostics import UnsupportedError
from tilewright.targets.xe.spirv_reader import read

WORDS = {
    "uc": "uncached",
    "ca": "cached",
    "st": "streaming",
    "wb": "write_back",
    "wt": "write_through",
    "ri": "read_invalidate",
}
STORES = """
    .uc wt_uc  .ca wb_wb  .wb wb_wb  uc. uc_wb  uc.uc uc_uc  uc.ca uc_wb  uc.wb uc_wb  ca. wb_wb  ca.ca wb_wb
    ca.wb wb_wb  st. st_wb  st.uc st_uc  st.ca st_wb  st.wb st_wb  wb. wb_wb  wb.ca wb_wb  wb.wb wb_wb
    wt. wt_wb  wt.uc wt_uc  wt.ca wt_wb  wt.wb wt_wb"""
LOADS = """
    .uc ca_uc  .ca ca_ca  uc. uc_ca  uc.uc uc_uc  uc.ca uc_ca  ca. ca_ca  ca.uc ca_uc  ca.ca ca_ca
    st. st_ca  st.uc st_uc  st.ca st_ca  ri. ri_ca  ri.ca ri_ca"""


def table(text: str) -> dict[tuple[str, str], str]:
    """(hint of L1, hint of L3) -> what the message says."""
    words = text.split()
    return {tuple(k.split(".")): v for k, v in zip(words[::2], words[1::2], strict=True)}  # pyright: ignore


def hints(pair: tuple[str, str]) -> str:
    said = [
        f"{level}_hint = #xegpu.cache_hint<{WORDS[each]}>"
        for level, each in zip(("l1", "l3"), pair, strict=True)
        if each
    ]
    return f"<{{{', '.join(said)}}}>"


BLOCK = "!xegpu.tensor_desc<8x16xf32>"
OPS = {
    "store": f"xegpu.store_nd %v, %t[0, 0] HINTS : vector<8xf32>, {BLOCK}",
    "scatter": "xegpu.store %one, %b[%lane], %true HINTS : vector<1xf32>, memref<1024xf32>, index, i1",
    "load": f"%n = xegpu.load_nd %t[0, 0] HINTS : {BLOCK} -> vector<8xf32>\n"
    f"xegpu.store_nd %n, %t[0, 0] : vector<8xf32>, {BLOCK}",
    "prefetch": f"xegpu.prefetch_nd %t[0, 0] HINTS : {BLOCK}",
}


def text(op: str, pairs: list[tuple[str, str]]) -> str:
    body = [OPS[op].replace("HINTS", hints(p)).replace("%n", f"%n{i}") for i, p in enumerate(pairs)]
    return (
        kernels.head("%a: memref<32x32xf32>, %b: memref<1024xf32>")
        + f"""
    %v = arith.constant dense<2.0> : vector<8xf32>
    %one = arith.constant dense<3.0> : vector<1xf32>
    %t = xegpu.create_nd_tdesc %a : memref<32x32xf32> -> {BLOCK}
    """
        + "\n".join(body)
        + kernels.FOOT
    )


@pytest.mark.parametrize("op", OPS)
def test_every_pair_of_hints(op: str) -> None:
    """36 pairs of a store and 25 of a load: in one kernel those that messages have, one by one the others."""
    stores = op in ("store", "scatter")
    want = table(STORES if stores else LOADS)
    legal = ("uc", "ca", "st", "wb", "wt") if stores else ("uc", "ca", "st", "ri")
    pairs = [pair for pair in product(("", *legal), repeat=2) if any(pair)]
    if op == "prefetch":
        want = {pair: said for pair, said in want.items() if "ri" not in pair}
        pairs = [pair for pair in pairs if "ri" not in pair]
    found = build(text(op, list(want)))
    said = re.findall(
        r"call .*@xe_(?:store2d|lsc_store|load2d|prefetch2d)_\w*?x\d+_(\w\w_\w\w)\(",
        found.asm["llvm"],
    )
    assert said == list(want.values())
    assert read(found.spirv("intel")) and found.spirv("emu")
    for pair in pairs:
        if pair not in want:
            with pytest.raises(UnsupportedError, match="not possible on xe-pvc") as caught:
                build(text(op, [pair]))
            assert caught.value.location is not None
            assert ("write_back" in str(caught.value.hint)) == stores
