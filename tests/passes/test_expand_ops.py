# ruff: noqa: E501
"""expand-ops: each op that others say as well: its text, its rules, its meaning, and every target."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.expand_ops import EXPANSIONS
from tilewright.tools.cli import main

V, R = "vector<8x16xf32>", "vector<8xf32>"
TILES = """
gpu.module @m {{ gpu.func @k(%i: memref<8x16xf32>, %o: memref<8x16xf32>) kernel {{
  %t = xetile.init_tile %i[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
  %x = xetile.load_tile %t : !xetile.tile<8x16xf32> -> vector<8x16xf32>
  {body}
  %u = xetile.init_tile %o[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %r, %u : vector<8x16xf32>, !xetile.tile<8x16xf32>
  gpu.return
}} }}
"""
LANES = """
gpu.module @m {{ gpu.func @k(%i: memref<16xf32>, %o: memref<16xf32>) kernel
    attributes {{tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64}} {{
  %true = arith.constant true
  %lane = gpu.lane_id
  %zero = arith.constant 0.0 : f32
  %x = xegpu.load %i[%lane], %true : memref<16xf32>, index, i1 -> f32
  {body}
  xegpu.store %r, %o[%lane], %true : f32, memref<16xf32>, index, i1
  gpu.return
}} }}
"""
OF_CLASS = f"%c = math.{{}} %x : {V}\n  %z = arith.constant dense<0.0> : {V}\n  %r = arith.select %c, %x, %z : vector<8x16xi1>, {V}"
FIRST = f"%a = vector.extract_strided_slice %x {{offsets = [0, 0], sizes = [8, 1], strides = [1, 1]}} : {V} to vector<8x1xf32>\n  %f = vector.shape_cast %a : vector<8x1xf32> to {R}\n"
ROW = f"  %row = vector.extract %x[0] : vector<16xf32> from {V}\n"
LAST = f"  %back = vector.shape_cast %l : {R} to vector<8x1xf32>\n  %b = vector.broadcast %back : vector<8x1xf32> to {V}\n  %r = arith.addf %d, %b : {V}"


def where(test: Any) -> Any:
    return lambda x: np.where(test(x), x, 0)


def scanned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    total = np.cumsum(x.astype(np.float64), axis=1)
    return total + total[:, -1:]


def exclusive(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shifted = np.concatenate([x[:, :1], x[:, :-1]], axis=1).astype(np.float64)
    total = np.cumsum(shifted, axis=1)
    return total + total[:, -1:]


erfc = np.vectorize(math.erfc)
VECTORS: dict[str, tuple[str, Any]] = {
    "math.isnan": (
        OF_CLASS.format("isnan").replace("%x, %z", "%z, %x"),
        where(lambda x: ~np.isnan(x)),
    ),
    "math.isinf": (OF_CLASS.format("isinf"), where(np.isinf)),
    "math.isfinite": (OF_CLASS.format("isfinite"), where(np.isfinite)),
    "math.isnormal": (
        OF_CLASS.format("isnormal"),
        where(lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(np.float32).smallest_normal)),
    ),
    "math.sincos": (
        f"%s, %c = math.sincos %x : {V}\n  %r = arith.subf %s, %c : {V}",
        lambda x: np.sin(x) - np.cos(x),
    ),
    "math.clampf": (
        f"%l = arith.constant dense<-0.5> : {V}\n  %h = arith.constant dense<0.75> : {V}\n  %r = math.clampf %x to [%l, %h] : {V}",
        lambda x: np.clip(x, -0.5, 0.75),
    ),
    "math.erfc": (f"%r = math.erfc %x : {V}", erfc),
    "vector.outerproduct": (
        FIRST
        + ROW
        + f"  %r = vector.outerproduct %f, %row, %x {{kind = #vector.kind<maximumf>}} : {R}, vector<16xf32>",
        lambda x: np.maximum(x[:, :1] * x[:1], x),
    ),
    "vector.outerproduct, by a scalar": (
        FIRST
        + f"  %two = arith.constant 2.0 : f32\n  %p = vector.outerproduct %f, %two, %f : {R}, f32\n"
        f"  %back = vector.shape_cast %p : {R} to vector<8x1xf32>\n  %r = vector.broadcast %back : vector<8x1xf32> to {V}",
        lambda x: np.broadcast_to(3 * x[:, :1], x.shape),
    ),
    "vector.scan": (
        FIRST
        + f"  %d, %l = vector.scan <add>, %x, %f {{inclusive = true, reduction_dim = 1 : i64}} : {V}, {R}\n"
        + LAST,
        scanned,
    ),
    "vector.scan, exclusive": (
        FIRST
        + f"  %d, %l = vector.scan <add>, %x, %f {{inclusive = false, reduction_dim = 1 : i64}} : {V}, {R}\n"
        + LAST,
        exclusive,
    ),
}
BY_LANES: dict[str, tuple[str, Any]] = {
    "gpu.subgroup_broadcast": ("%r = gpu.subgroup_broadcast %x, first_active_lane : f32", lambda x: np.full_like(x, x[0])),
    "gpu.subgroup_broadcast, of a lane": (
        "%five = arith.constant 5 : i32\n  %r = gpu.subgroup_broadcast %x, specific_lane %five : f32",
        lambda x: np.full_like(x, x[5]),
    ),
    "gpu.rotate": (
        "%y, %valid = gpu.rotate %x, 3, 8 : f32\n  %r = arith.select %valid, %y, %zero : f32",
        lambda x: np.concatenate([np.roll(x[:8], -3), np.zeros(8)]),
    ),
}  # fmt: skip
CASES = {n: (TILES.format(body=b), m) for n, (b, m) in VECTORS.items()}
CASES |= {n: (LANES.format(body=b), m) for n, (b, m) in BY_LANES.items()}


def test_every_op_has_a_case() -> None:
    assert {op.name for op in EXPANSIONS} == {name.split(",")[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_a_fixed_point(name: str) -> None:
    text = print_module(parse_module(CASES[name][0]))
    assert print_module(parse_module(text)) == text
    assert print_module(parse_module(print_module(parse_module(text), generic=True))) == text


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_what_numpy_says(name: str) -> None:
    text, meaning = CASES[name]
    rng = fresh_rng()
    x = rng.standard_normal((16,) if name in BY_LANES else (8, 16)).astype(np.float32)
    if name.startswith("math.is"):
        x.flat[:5] = np.nan, np.inf, -np.inf, 1e-42, 0.0
    out = np.full_like(x, np.nan)
    reference.run(parse_module(text), args=[x, out])
    wanted = np.asarray(meaning(x))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(out[~finite], wanted[~finite])
    error = np.linalg.norm(out[finite] - wanted[finite])
    assert error <= 1e-6 * np.linalg.norm(wanted[finite])


@pytest.mark.parametrize("target", ["cpu", "emu", "sm_80", "xe-pvc", "xe-dg2"])
@pytest.mark.parametrize("name", CASES)
def test_targets_agree(name: str, target: str, tmp_path: Path, capsys) -> None:
    if name in BY_LANES and target == "sm_80":
        pytest.skip("programs of lanes are not compiled for NVIDIA GPUs")
    path = tmp_path / "op.mlir"
    text = CASES[name][0]
    if name in BY_LANES and target == "xe-dg2":  # its subgroups have 8 lanes
        text = text.replace("lanes = 16", "lanes = 8").replace("memref<16xf32>", "memref<8xf32>")
    path.write_text(text)
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out


def test_small_results_of_erfc_are_precise(tmp_path: Path, capfd) -> None:
    path = tmp_path / "erfc.mlir"
    path.write_text("""func.func @main() {
      %x = arith.constant 6.5 : f32
      %y = math.erfc %x : f32
      vector.print %y : f32
      return
    }""")
    assert main(["run", str(path)]) == 0
    assert float(capfd.readouterr().out) == pytest.approx(math.erfc(6.5), rel=2e-5)


INVALID = [
    ("%r = math.isnan %n : i32", "takes floats"),
    ("%r = math.clampf %n to [%n, %n] : i32", "takes floats"),
    ('%r = "math.isinf"(%s) : (f32) -> f32', "gives i1"),
    ("%r = vector.outerproduct %x, %x : vector<4x8xf32>, vector<4x8xf32>", "expected 1-d vector for operand #1"),
    ("%r = vector.outerproduct %v, %x : vector<8xf32>, vector<4x8xf32>", "expected 1-d vector for operand #2"),
    ("%r = vector.outerproduct %v, %v {kind = #vector.kind<and>} : vector<8xf32>, vector<8xf32>", "and"),
    ("%r:2 = vector.scan <add>, %x, %v {inclusive = true, reduction_dim = 2 : i64} : vector<4x8xf32>, vector<8xf32>", "has to be less than 2"),
    ("%r:2 = vector.scan <add>, %x, %v {inclusive = true, reduction_dim = 1 : i64} : vector<4x8xf32>, vector<8xf32>", "incompatible input/initial value shapes"),
    ("%r:2 = vector.scan <add>, %x, %v {inclusive = true} : vector<4x8xf32>, vector<8xf32>", "expected the attribute 'reduction_dim'"),
    ('%r = "gpu.subgroup_broadcast"(%s) <{broadcast_type = #gpu<broadcast specific_lane>}> : (f32) -> f32', "lane must be specified"),
    ("%r:2 = gpu.rotate %s, 4, 12 : f32", "width must be a power of two"),
    ("%r:2 = gpu.rotate %s, 16, 16 : f32", r"offset must be in the range \[0, 16\)"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "message"), INVALID, ids=lambda text: text[:40])
def test_what_breaks_a_rule_is_refused(op: str, message: str) -> None:
    text = f"func.func @f(%n: i32, %s: f32, %v: vector<8xf32>, %x: vector<4x8xf32>) {{\n{op}\nreturn\n}}"
    with pytest.raises(TilewrightError, match=message):
        parse_module(text)
