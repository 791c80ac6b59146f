"""Blocks without 2D block messages: what moves them, counted from lane programs, and that they are right."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from tests.draws import fresh_rng
from tests.lowering.programs import run, wrong
from tests.passes.xegpu.subgroup_gemm import Gemm
from tests.passes.xegpu.test_blocking import check, lower
from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.text import parse_module, verify_module
from tilewright.layout.blocks import lane_map
from tilewright.passes.xegpu import row_access
from tilewright.passes.xegpu.block_messages import ROW
from tilewright.passes.xegpu.pipeline import PIPELINE, distribute_to_lanes
from tilewright.passes.xegpu.row_access import Question
from tilewright.uarch.xe import xe_machine


def sends(loop: Operation) -> Counter[str]:
    """Accesses of the way that a block inside of its base takes: rows by width, vectors by their elements."""
    found: Counter[str] = Counter()

    def visit(op: Operation) -> None:
        if isinstance(op, scf.IfOp):
            for inner in op.true_region.block.ops:
                visit(inner)
            return
        if isinstance(op, (xegpu.LoadNdOp, xegpu.StoreNdOp)):
            shape = "x".join(map(str, op.tdesc.get_shape()))
            found[f"row {shape}" if ROW in op.attributes else f"block {shape}"] += 1
        elif isinstance(op, xegpu.LoadGatherOp):
            found[f"lane x{op.chunk}"] += 1
        elif isinstance(op, (xegpu.DpasOp, xegpu.PrefetchOp)):
            found[op.name.removeprefix("xegpu.")] += 1
        elif op.name == "gpu.shuffle":
            found["shuffle"] += 1
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    visit(inner)

    visit(loop)
    return found


# Of a 16x32 tile of C and a step of 32 along k (i8: 64), 8 lanes. A: 16 rows of pairs; B: a row of k each; B^T: a
# lane's row of 32 bytes per fragment.
STEPS = [
    ("f16", False, {"row 1x32": 16, "row 32": 32, "dpas": 16}),
    ("bf16", False, {"row 1x32": 16, "row 32": 32, "dpas": 16}),
    ("i8", False, {"row 1x64": 16, "row 32": 64, "dpas": 16}),
    ("f16", True, {"row 1x32": 16, "lane x16": 8, "dpas": 16}),
    ("bf16", True, {"row 1x32": 16, "lane x16": 8, "dpas": 16}),
    ("i8", True, {"row 1x64": 16, "lane x32": 8, "dpas": 16}),
]


@pytest.mark.parametrize(("element", "transposed", "wanted"), STEPS)
def test_a_step_on_dg2(element: str, transposed: bool, wanted: dict[str, int]):
    depth = 64 if element == "i8" else 32
    accumulator = "i32" if element == "i8" else "f32"
    gemm = Gemm("dg2", element, accumulator, 16, 32, depth, transposed=transposed, steps=2)
    stages = lower(gemm)
    check(gemm, stages)
    loop = next(op for op in stages[-1][1].walk() if isinstance(op, scf.ForOp))
    found = sends(loop)
    assert found.pop("prefetch", 0) > 0
    assert found == Counter(wanted)


def question(shape: tuple[int, int], bits: int, align: int, **more: object) -> Question:
    layout = ly.layout(lane_layout=[1, 8], lane_data=lane_map(shape, bits, 8)[1]).over(shape)
    return Question(xe_machine("dg2"), layout, bits, align, **more)  # pyright: ignore[reportArgumentType]


def test_alignment_decides():
    """Rows of 4 bytes are read at once, of 2 element by element; stores ask for 16 bytes."""
    assert [r.count for r in row_access.best(question((2, 64), 16, 4)).runs] == [4, 4]
    odd = row_access.best(question((2, 64), 16, 2))
    assert odd.kind == "lane" and len(odd.runs) == 16
    stored = question((4, 8), 32, 4, form="store")
    assert row_access.rows(stored) is None and len(row_access.best(stored).runs) == 4
    assert row_access.best(question((4, 8), 32, 16, form="store")).kind == "row"
    assert row_access.rows(question((2, 64), 16, 8, shared=True)) is None


def test_every_register_is_moved_once():
    layouts = [
        ly.layout(lane_layout=[1, 8], lane_data=[1, 2]).over((8, 48)),
        ly.layout(lane_layout=[8, 1], lane_data=[1, 1]).over((16, 48)),
        ly.layout(lane_layout=[1, 8], lane_data=[2, 1]).over((16, 24)),
        ly.layout(lane_layout=[4, 2], lane_data=[1, 4]).over((8, 16)),
    ]
    for layout in layouts:
        for align in (1, 2, 4, 16):
            for whole in (None, 1, 2, 8):
                q = Question(xe_machine("dg2"), layout, 16, align, whole=whole)
                for plan in filter(None, (row_access.rows(q), row_access.vectors(q))):
                    moved = sorted(n for run in plan.runs for n in run.registers)
                    assert moved == list(range(layout.registers))


WORDS = """
gpu.module @m {{ gpu.func @f(%a: memref<{base}xf16>, %c: memref<{base}xf16>) kernel {{
  %t = xegpu.create_nd_tdesc %a : memref<{base}xf16> -> !xegpu.tensor_desc<{tile}xf16>
  %u = xegpu.create_nd_tdesc %c : memref<{base}xf16> -> !xegpu.tensor_desc<{tile}xf16>
  %x = xegpu.load_nd %t[{at}] <{{layout = #xegpu.layout<lane_layout = [{lanes}], lane_data = [{data}]>}}>
    : !xegpu.tensor_desc<{tile}xf16> -> vector<{tile}xf16>
  %y = arith.addf %x, %x : vector<{tile}xf16>
  xegpu.store_nd %y, %u[{at}] : vector<{tile}xf16>, !xegpu.tensor_desc<{tile}xf16>
  gpu.return }} }}
"""


@pytest.mark.parametrize(
    ("base", "tile", "data"), [("4x32", "4x32", 4), ("4x32", "4x32", 2), ("64", "64", 2)]
)
def test_words_of_a_row_are_those_that_its_text_has(base: str, tile: str, data: int):
    """Eight lanes own words of 32 bits in a row of a matrix, single elements in one of a vector; others go by lanes."""
    plain = tile.count("x") == 0
    text = WORDS.format(
        base=base,
        tile=tile,
        at="0" if plain else "0, 0",
        lanes="8" if plain else "1, 8",
        data=f"{data}" if plain else f"1, {data}",
    )
    module = parse_module(text)
    args = [fresh_rng().standard_normal([int(n) for n in base.split("x")]).astype(np.float16)]
    args.append(np.zeros_like(args[0]))
    expected = run(module, (1, 1, 1), args)
    PIPELINE.alone(distribute_to_lanes(), module, "dg2")
    verify_module(module)
    assert wrong(expected, run(module, (1, 1, 1), args, check=True)) is None
