"""Launches that fail, and tell of the first program: divisions by zero, exchanges that not all lanes come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.texts import parse_module
from tilewright.diagnostics import CheckError, UnsupportedError
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

pytestmark = pytest.mark.usefixtures("device")


@tw.kernel
def divided(X, Y, G, b):
    """By a number of the launch, by one in memory, and by one that is asked first."""
    i = tw.program_id(0)
    g = G[i]
    if b > 0:
        Y[i] = i // b
    Y[i + 6] = X[i] % g


@pytest.mark.parametrize("target", ["xe-pvc", "xe-dg2", "cpu"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
def test_scalar_divisions_by_zero_fail(rng: np.random.Generator, target: str, dtype: Any) -> None:
    x, g = rng.integers(0, 100, 6, dtype), rng.integers(1, 9, 6, dtype)
    kernel, y = divided.options(target=target), np.full(12, 99, dtype)
    kernel[6](x, y, g, 0)
    np.testing.assert_array_equal(y, [*[99] * 6, *x % g])
    kernel[6](x, y, g, 4)
    np.testing.assert_array_equal(y, [*np.arange(6) // 4, *x % g])
    g[3] = g[5] = 0
    with pytest.raises(CheckError, match=r"integer division by zero in workgroup \(3, 0, 0\)") as e:
        kernel[6](x, y, g, 4)
    assert e.value.location is not None
    assert "% g" in Path(__file__).read_text().splitlines()[e.value.location.line - 1]


def test_divisions_of_tiles_assert_nothing(rng: np.random.Generator) -> None:
    """Nor do those whose divisor is known, and elements of a lane that had one of a tile."""

    @tw.kernel
    def tiles(X, Y, n):
        x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 16)))
        q = x // tw.load_tile(tw.init_tile(Y, [0, 0], (1, 16)))
        q += tw.program_id(0) // 3 + 8 // (n % 4 + 1) + tw.program_id(0) // tw.num_programs(0)
        tw.store_tile(q, tw.init_tile(Y, [0, 0], (1, 16)))

    x, y = rng.integers(-9, 9, (1, 16), np.int32), rng.integers(1, 9, (1, 16), np.int32)
    kernel = tiles.options(target="xe-pvc")
    assert not kernel.compile(x, y, 4).executable.meta["assertions"]
    want = x // y + 8
    kernel[1](x, y, 4)
    np.testing.assert_array_equal(y, want)


EXCHANGED = """
module { gpu.module @m { gpu.func @k(%a: memref<16xf32>, %n: index) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
  %lane = gpu.lane_id
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i32
  %lanes = arith.constant 16 : i32
  %v = memref.load %a[%lane] : memref<16xf32>
  %on = arith.cmpi ult, %lane, %n : index
  BODY
  memref.store %r, %a[%lane] : memref<16xf32>
  gpu.return
} } }
"""
SHUFFLED = "%s, %p = gpu.shuffle xor %v, %one, %lanes : f32"
BRANCH = """%r = scf.if %on -> (f32) {
    THEN
  } else {
    ELSE
  }"""
PLACES = {
    "then": BRANCH.replace("THEN", f"{SHUFFLED} scf.yield %s : f32").replace(
        "ELSE", "scf.yield %v : f32"
    ),
    "nested": BRANCH.replace(
        "THEN",
        f"""%c = arith.cmpf oge, %v, %v : f32
    %i = scf.if %c -> (f32) {{ {SHUFFLED} scf.yield %s : f32 }} else {{ scf.yield %v : f32 }}
    scf.yield %i : f32""",
    ).replace("ELSE", "scf.yield %v : f32"),
    "loop": f"""%most = arith.select %on, %c1, %c0 : index
  %r = scf.for %k = %c0 to %most step %c1 iter_args(%x = %v) -> (f32) {{
    {SHUFFLED}
    scf.yield %s : f32
  }}""",
}
OTHERWISE = BRANCH.replace("THEN", "scf.yield %v : f32").replace(
    "ELSE", f"{SHUFFLED} scf.yield %s : f32"
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target", ["xe-pvc", "emu"])
def test_exchanges_of_some_lanes_fail(rng: np.random.Generator, place: str, target: str) -> None:
    """Not those in a branch or a round of a loop that all lanes happen to take."""
    text = EXCHANGED.replace("BODY", PLACES[place])
    built = build_text(parse_module(text), CompileOptions(target=target))
    a = rng.standard_normal(16).astype(np.float32)
    for n, right in ((16, a[np.arange(16) ^ 1]), (0, a)):
        got = a.copy()
        built.launch((1, 1, 1), [describe(got), n])
        np.testing.assert_array_equal(got, right)
    with pytest.raises(CheckError, match="by all lanes of a subgroup, but not all of th") as e:
        built.launch((1, 1, 1), [describe(a.copy()), 9])
    assert e.value.location is not None


def test_exchanges_elsewhere(rng: np.random.Generator) -> None:
    a = rng.standard_normal(16).astype(np.float32)
    built = build_text(
        parse_module(EXCHANGED.replace("BODY", OTHERWISE)), CompileOptions(target="xe-pvc")
    )
    built.launch((1, 1, 1), [describe(got := a.copy()), 0])
    np.testing.assert_array_equal(got, a[np.arange(16) ^ 1])
    with pytest.raises(CheckError, match="is done by all lanes"):
        built.launch((1, 1, 1), [describe(a.copy()), 1])
    loop = PLACES["loop"].replace("%c0 to %most step %c1", "%most to %c1 step %c1")
    with pytest.raises(UnsupportedError, match="in a loop that lanes may enter or leave apart"):
        build_text(parse_module(EXCHANGED.replace("BODY", loop)), CompileOptions(target="xe-pvc"))


def test_exchanges_of_all_lanes_assert_nothing() -> None:
    text = EXCHANGED.replace("BODY", PLACES["then"]).replace("ult, %lane, %n", "ult, %c1, %n")
    built: Any = build_text(parse_module(text), CompileOptions(target="xe-pvc"))
    assert not built.meta["assertions"]


QUEUE = """
module { gpu.module @m { gpu.func @k(%a: memref<8x16xf32>, %next: memref<1xi32>, %n: i32) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
  %lane = gpu.lane_id
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %lanes = arith.constant 16 : i32
  %first = arith.cmpi eq, %lane, %c0 : index
  scf.while : () -> () {
    %mine = scf.if %first -> (i32) {
      %old = memref.atomic_rmw addi %one, %next[%c0] : (i32, memref<1xi32>) -> i32
      scf.yield %old : i32
    } else { scf.yield %zero : i32 }
    %item, %p = gpu.shuffle idx %mine, %zero, %lanes : i32
    %go = arith.cmpi slt, %item, %n : i32
    scf.if %go {
      %row = arith.index_cast %item : i32 to index
      %v = memref.load %a[%row, %lane] : memref<8x16xf32>
      %s, %q = gpu.shuffle xor %v, %one, %lanes : f32
      memref.store %s, %a[%row, %lane] : memref<8x16xf32>
    }
    scf.condition(%go)
  } do { scf.yield }
  gpu.return
} } }
"""


@pytest.mark.parametrize("target", ["xe-pvc", "emu"])
def test_what_one_lane_hands_to_all_is_the_same_for_all(
    rng: np.random.Generator, target: str
) -> None:
    """Subgroups that draw their work from a queue exchange in the loop: they leave it together."""
    a, drawn = rng.standard_normal((8, 16)).astype(np.float32), np.zeros(1, np.int32)
    want = np.where(np.arange(8)[:, None] < 6, a[:, np.arange(16) ^ 1], a)
    built = build_text(parse_module(QUEUE), CompileOptions(target=target))
    built.launch((3, 1, 1), [describe(a), describe(drawn), 6])
    np.testing.assert_array_equal(a, want)
    if target == "xe-pvc":
        assert not built.meta["assertions"]  # pyright: ignore
