"""outer-loops-to-grid: which loops become axes, and what stays a loop."""

from __future__ import annotations

import pytest
from xdsl.dialects import func, gpu, scf

from tests.texts import parse_module
from tilewright.passes.kernel import level_of
from tilewright.passes.outer_loops_to_grid import outer_loops_to_grid

BODY = """
      %x = xetile.init_tile %a[{load}] : memref<512x512xf32> -> !xetile.tile<64x64xf32>
      %y = xetile.init_tile %{out}[{store}] : memref<512x512xf32> -> !xetile.tile<64x64xf32>
      %v = xetile.load_tile %x : !xetile.tile<64x64xf32> -> vector<64x64xf32>
      xetile.store_tile %v, %y : vector<64x64xf32>, !xetile.tile<64x64xf32>
"""


def outlined(
    load: str = "%i, %j",
    store: str = "%i, %j",
    out: str = "c",
    step: str = "%c64",
    rows: str = "%n",
):
    body = BODY.format(load=load, store=store, out=out)
    module = parse_module(
        f"""
func.func @f(%a: memref<512x512xf32>, %c: memref<512x512xf32>, %n: index) {{
  scf.for %i = %c0 to {rows} step %c64 {{
    scf.for %j = %c32 to %n step {step} {{
{body}
    }}
  }}
  return
}}
""",
        "f.mlir",
    )
    outer_loops_to_grid(module)
    module.verify()
    kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    host = next(op for op in module.walk() if isinstance(op, func.FuncOp))
    return kernel, host


def axes(kernel: gpu.FuncOp) -> int:
    return sum(isinstance(op, gpu.BlockIdOp) for op in kernel.walk())


def loops(kernel: gpu.FuncOp) -> int:
    return sum(isinstance(op, scf.ForOp) for op in kernel.walk())


def test_both_loops_become_axes():
    kernel, host = outlined()
    assert (axes(kernel), loops(kernel)) == (2, 0)
    assert kernel.attributes["tilewright.level"].data == "subgroup"
    assert [op.name for op in host.body.block.ops][-2:] == ["gpu.launch_func", "func.return"]
    assert not any(isinstance(op, scf.ForOp) for op in host.walk())


@pytest.mark.parametrize(
    "case, expected",
    [
        ({"step": "%c32"}, (1, 1)),  # neighbours overlap along j
        ({"store": "%i, %c0"}, (1, 1)),  # every j writes the same tile
        ({"store": "%c0, %j"}, (0, 2)),  # every i does
        ({"rows": "%c64"}, (2, 0)),  # there is one i
        ({"out": "a"}, (2, 0)),  # each reads what it alone writes
        ({"out": "a", "load": "%j, %i"}, (0, 2)),  # reads what others write
    ],
    ids=str,
)
def test_loops_that_share_elements_stay(case, expected):
    kernel, _ = outlined(**case)
    assert (axes(kernel), loops(kernel)) == expected


def test_level_is_inferred_from_the_maps():
    text = """
gpu.module @m {{ gpu.func @k(%a: memref<64x64xf16>) kernel {{
  %t = xetile.init_tile %a[0, 0] : memref<64x64xf16> -> !xetile.tile<64x64xf16{attributes}>
  gpu.return
}} }}"""
    wg_map = ", #xetile.tile_attr<wg_map = <sg_layout = [2, 2], sg_data = [32, 32]>>"
    for attributes, level in (("", "subgroup"), (wg_map, "workgroup")):
        module = parse_module(text.format(attributes=attributes), "k.mlir")
        kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
        assert level_of(kernel) == level


@pytest.mark.parametrize(
    "kind, used, expected", [("addf", False, 1), ("assign", False, 0), ("addf", True, 0)]
)
def test_atomics_may_meet_where_nobody_asks_for_the_old_values(
    kind: str, used: bool, expected: int
):
    out = "xetile.store_tile %old, %d : vector<8x16xf32>, !xetile.tile<8x16xf32>" if used else ""
    text = f"""
func.func @f(%a: memref<64x16xf32>, %s: memref<8x16xf32>, %u: memref<8x16xf32>) {{
  scf.for %i = %c0 to %c64 step %c8 {{
    %x = xetile.init_tile %a[%i, 0] : memref<64x16xf32> -> !xetile.tile<8x16xf32>
    %t = xetile.init_tile %s[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
    %d = xetile.init_tile %u[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
    %v = xetile.load_tile %x : !xetile.tile<8x16xf32> -> vector<8x16xf32>
    %old = xetile.atomic_rmw {kind} %v, %t : vector<8x16xf32>, !xetile.tile<8x16xf32> -> vector<8x16xf32>
    {out}
  }}
  return
}}
"""
    module = parse_module(text, "f.mlir")
    outer_loops_to_grid(module)
    kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    assert axes(kernel) == expected


AROUND = """
func.func @f(%a: memref<512x512xf32>, %c: memref<512x512xf32>, %n: index) {{
  %x = xetile.init_tile %a[0, 0] : memref<512x512xf32> -> !tile
  scf.for %i = %c0 to %n step %c64 {{
    %y = xetile.init_tile %c[%i, 0] : memref<512x512xf32> -> !tile{}
  }}
  return
}}"""
A_LOOP_CARRIES_IT = """
    %r = scf.for %j = %c0 to %n step %c64 iter_args(%t = %x) -> (!tile) {
      %v = xetile.load_tile %t : !tile -> vector<64x64xf32>
      xetile.store_tile %v, %y : vector<64x64xf32>, !tile
      scf.yield %t : !tile
    }"""
A_SWITCH_GIVES_IT = """
    %t = scf.index_switch %i -> !tile
    case 0 { scf.yield %x : !tile }
    default {
      %next = xetile.update_tile_offset %x, [64, 0] : !tile
      scf.yield %next : !tile
    }
    %v = xetile.load_tile %t : !tile -> vector<64x64xf32>
    xetile.store_tile %v, %y : vector<64x64xf32>, !tile"""


@pytest.mark.parametrize(
    "body, expected", [(A_LOOP_CARRIES_IT, (1, 1)), (A_SWITCH_GIVES_IT, (0, 1))]
)
def test_tiles_that_control_flow_gives(body: str, expected: tuple[int, int]):
    """Of the kernel: axes of its grid, and loops that are left."""
    module = parse_module(AROUND.format(body).replace("!tile", "!xetile.tile<64x64xf32>"))
    outer_loops_to_grid(module)
    module.verify()
    kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    assert (axes(kernel), loops(kernel)) == expected
