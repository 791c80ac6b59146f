"""docs/tile-to-instruction.md shows what the compiler prints, and its counts are the compiler's."""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from xdsl.dialects import scf

from tilewright import uarch
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.xegpu.pipeline import lower
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tile-to-instruction.md").read_text()
GEMM = ROOT / "examples/rfc/xegpu_1_1_gemm_prefetch.mlir"


@cache
def stages() -> tuple[dict[str, str], Any]:
    """The text behind every pass, and the lanes' module."""
    module = parse_module(GEMM.read_text(), GEMM.name)
    xegpu_to_xetile(module)
    texts: dict[str, str] = {}
    lower(module, observe=lambda name, m: texts.update({name: print_module(m)}))
    return texts, module


def plain(text: str) -> str:
    """Without the names of values, which a change elsewhere may renumber."""
    return re.sub(r"%[\w#]+", "%", text)


def test_lines_are_those_of_the_compiler():
    everything = plain("\n".join(stages()[0].values()))
    for block in re.findall(r"^```mlir\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            for part in plain(line).split(" .. "):
                assert part.removesuffix("..").strip() in everything, line


def test_counts_per_k_step():
    loop = next(op for op in stages()[1].walk() if isinstance(op, scf.ForOp))
    found = Counter(op.name for op in loop.walk())
    assert found["xegpu.dpas"] == 32
    assert found["xegpu.load_nd"] == 3
    assert found["xegpu.prefetch_nd"] == 2
    assert not found["gpu.shuffle"] and not found["gpu.barrier"]


def test_every_pass_of_the_page_exists():
    from tilewright.tools.pipelines import available_passes

    known = available_passes()
    table = PAGE.split("## The passes")[1].split("##")[0]
    for name in re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)", table):
        assert name in known or name == "xe-lane-to-mach" or name.startswith("xegpu-"), name


def test_a_table_is_a_machine(monkeypatch):
    """The table of the page, under the name that it gets there, makes the products that the page says."""
    source = re.search(
        r"^```python\n(from dataclasses.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL
    )
    assert source is not None
    toy = ModuleType("tilewright.uarch.toy")
    exec(source[1], vars(toy))
    monkeypatch.setitem(sys.modules, toy.__name__, toy)
    monkeypatch.setitem(uarch._MODULES, "xe-toy", ("toy", "TOY"))
    module = parse_module(GEMM.read_text(), GEMM.name)
    xegpu_to_xetile(module)
    lower(module, chip="toy")
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    products = [str(op.result.type) for op in loop.walk() if op.name == "xegpu.dpas"]
    assert products == ["vector<4xf32>"] * 64
