"""How far two right runs of a program may be apart, and that no wrong one is nearer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import Stage, check_stages, load, stages_of_target
from tilewright.tools.check_inputs import Inputs, make_args
from tilewright.tools.check_results import difference
from tilewright.tools.cli import main
from tilewright.tools.rounding import Rounding, roundings_of
from tilewright.tools.sources import parse_source


def test_a_sum_that_cancels_is_judged_by_its_terms():
    """In another order it is as far off as its terms allow, whatever is left; without one of them it is wrong."""
    terms = np.array([3.5, -2.75, 1.0625, -1.8125, 0.0234375, 0.3, -0.3, 0.011])

    def added(order: list[int]) -> Stage:
        def run(_: Any, args: Any) -> None:
            args[1][0] = 0
            for n in order:
                args[1][0] += args[0][n]

        return Stage(str(order), run)

    inputs = Inputs(
        (1, 1, 1), (terms.astype(ml_dtypes.bfloat16), np.full(1, np.nan, ml_dtypes.bfloat16))
    )
    first, back = added([*range(8)]), added([*range(7, -1, -1)])
    results = [inputs.copies() for _ in range(2)]
    for stage, args in zip((first, back), results, strict=True):
        stage.run((1, 1, 1), args)
    assert difference(results[0][1], results[1][1]) is not None
    sums = [Rounding(2.0**-7)] * 2  # in bf16
    assert check_stages([first, back], inputs, roundings=sums) is None
    without = added([*range(7, 2, -1), 1, 0])
    assert check_stages([first, without], inputs, roundings=sums) is not None


def test_what_a_program_rounds_is_judged_by_its_terms():
    """Steps of f32 would move few of the operands, by 2^15 steps: any result would be right."""
    rng = fresh_rng()
    k = 1 << 14
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, k), (k, 4)))
    a[:, 0] = b[0] = 0.25
    rounding = Rounding(2.0**-24 * np.sqrt(k))

    def product(left_out: int) -> Stage:
        def run(_: Any, args: Any) -> None:
            x, y = (args[n].astype(ml_dtypes.bfloat16).astype(np.float32) for n in range(2))
            args[2][...] = x[:, left_out:] @ y[left_out:]

        return Stage(str(left_out), run)

    inputs = Inputs((1, 1, 1), (a, b, np.full((4, 4), np.nan, np.float32)))
    found = check_stages([product(0), product(1)], inputs, roundings=[rounding] * 3)
    assert found is not None


SUM = """
gpu.module @m {{ gpu.func @k(%a: memref<8x64xf16>, %b: memref<64x16xf16>, %o: memref<8x16xf32>) kernel {{
  %s = xetile.init_tile %a[0, 0] : memref<8x64xf16> -> !xetile.tile<8x64xf16>
  %t = xetile.init_tile %b[0, 0] : memref<64x16xf16> -> !xetile.tile<64x16xf16>
  %x = xetile.load_tile %s : !xetile.tile<8x64xf16> -> vector<8x64xf16>
  %y = xetile.load_tile %t : !xetile.tile<64x16xf16> -> vector<64x16xf16>
  {product}
  %u = xetile.init_tile %o[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %w, %u : vector<8x16xf32>, !xetile.tile<8x16xf32>
  gpu.return
}} }}
"""
IN_F16 = """%z = xetile.tile_mma %x, %y : vector<8x64xf16>, vector<64x16xf16> -> vector<8x16xf16>
  %w = arith.extf %z : vector<8x16xf16> to vector<8x16xf32>"""
IN_F32 = "%w = xetile.tile_mma %x, %y : vector<8x64xf16>, vector<64x16xf16> -> vector<8x16xf32>"


def test_what_is_summed_in_f16_is_compared_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever type it is stored in: a sum in another order is no fault of a pass."""
    path = tmp_path / "sum.mlir"
    path.write_text(SUM.format(product=IN_F16))
    assert main(["check", str(path), "--target", "xe-pvc"]) == 0
    assert "stages agree" in capsys.readouterr().out


def test_a_type_that_nothing_is_summed_in_allows_nothing():
    rounding = [
        roundings_of(parse_module(SUM.format(product=p)), iterations=8)[2] for p in (IN_F16, IN_F32)
    ]
    right = np.random.default_rng(5).standard_normal((8, 16)).astype(np.float32)
    near = right * np.float32(1 + 2**-10)
    assert difference(right, near, rounding=rounding[0]) is None
    assert difference(right, near, rounding=rounding[1]) is not None
    assert difference(right, right * np.float32(1.25), rounding=rounding[0]) is not None


TWICE = """%z = xetile.tile_mma %x, %y : vector<8x64xf16>, vector<64x16xf16> -> vector<8x16xf32>
  %r = arith.truncf %z : vector<8x16xf32> to vector<8x16xf16>
  %q = vector.extract_strided_slice %y {{offsets = [0, 0], sizes = [16, 16], strides = [1, 1]}}
    : vector<64x16xf16> to vector<16x16xf16>
  %w = xetile.tile_mma %{of}, %q : vector<8x16xf16>, vector<16x16xf16> -> vector<8x16xf32>"""
MADE_TWICE = TWICE.format(of="r")
EXACT_FIRST = TWICE.format(of="p").replace(
    "%w =",
    """%e = vector.extract_strided_slice %x {offsets = [0, 0], sizes = [8, 16], strides = [1, 1]}
    : vector<8x64xf16> to vector<8x16xf16>
  %f = arith.extf %e : vector<8x16xf16> to vector<8x16xf32>
  %p = arith.truncf %f : vector<8x16xf32> to vector<8x16xf16>
  %w =""",
)


def test_a_step_of_what_is_multiplied_again_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two orders of the first sum lie on two sides of a step of f16; what is rounded alike is not apart."""
    twice, exact, once = (
        roundings_of(parse_module(SUM.format(product=p)), 8)[2]
        for p in (MADE_TWICE, EXACT_FIRST, IN_F32)
    )
    assert twice.terms == 2**-11 and max(exact.terms, once.terms) < 2**-18
    path = tmp_path / "twice.py"
    path.write_text("""import tilewright as tw
@tw.kernel
def twice(A, B, C, D):
    a, b, c = (tw.load_tile(tw.init_tile(x, [0, 0], (64, 64))) for x in (A, B, C))
    p = tw.tile_mma(a, b).to(tw.f16)
    tw.store_tile(tw.tile_mma(p, c), tw.init_tile(D, [0, 0], (64, 64)))
""")
    args = ["--args", *["f16[64,64]"] * 3, "f32[64,64]", "--seed", "6"]
    assert main(["check", f"{path}:twice", "--target", "xe-pvc", *args]) == 0, (
        capsys.readouterr().err
    )


ROWS_OF = """
import tilewright as tw

@tw.kernel
def product(A, B, C):
    a, b = tw.load_tile(tw.init_tile(A, [0, 0], (32, 64))), tw.load_tile(tw.init_tile(B, [0, 0], (64, 32)))
    tw.store_tile(tw.tile_mma(a, b).to(C.dtype), tw.init_tile(C, [0, 0], (32, 32)))

@tw.kernel
def weighted(A, B, C):
    a, b = tw.load_tile(tw.init_tile(A, [0, 0], (32, 64))), tw.load_tile(tw.init_tile(B, [0, 0], (64, 32)))
    p = tw.exp(a.to(tw.f32) - tw.max(a, 1).to(tw.f32))
    c = tw.tile_mma(p.to(B.dtype), b) / tw.sum(p, 1)
    tw.store_tile(c.to(C.dtype), tw.init_tile(C, [0, 0], (32, 32)))

@tw.kernel
def rounded(A, B, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (32, 64))).to(tw.f32)
    scale = tw.max(tw.abs(a), 1) / 127
    tw.store_tile((a / scale).to(tw.i8), tw.init_tile(B, [0, 0], (32, 64)))
    tw.store_tile((tw.round(a / scale) * scale).to(C.dtype), tw.init_tile(C, [0, 0], (32, 64)))
"""
WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "an element 8 % too large": lambda c, at: c[at] * 1.08,
    "an element 8 % too small": lambda c, at: c[at] * 0.92,
    "a row that was dropped": lambda c, at: 0 * c[at[0]],
    "a row that is its neighbour": lambda c, at: c[at[0] - 1],
    "an edge off by one": lambda c, at: c[:, -2],
    "operands swapped": lambda c, at: c.T,
    "all 5 % too large": lambda c, at: c * 1.05,
}
"""What a wrong compiler may make of a result, or of a part of it."""


def made_of(name: str, a: Any, b: Any) -> Any:
    """How large the terms of each element's sum are together: of what is less than these, rounding hides 8 %."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    weights = np.exp(a - a.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return np.sqrt((a if name == "product" else weights) ** 2 @ b**2)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", ["product", "weighted"])
def test_one_wrong_element_of_ordinary_size_is_found(name: str, dtype: str, tmp_path: Path):
    """Also where the results are bf16, whose steps are 0.8 %: where they were rounded before does not matter."""
    path, rng = tmp_path / "rows.py", fresh_rng()
    path.write_text(ROWS_OF)
    options = CompileOptions(target="cpu")
    given = [f"{dtype}[32,64]", f"{dtype}[64,32]", f"{dtype}[32,32]"]
    module, specs = load(parse_source(f"{path}:{name}"), given, [], options)
    assert specs is not None
    inputs = Inputs((1, 1, 1), make_args(specs, int(rng.integers(1 << 30))))
    first, *others = stages_of_target(module, options)
    roundings = roundings_of(module, 8)
    assert check_stages([first, *others], inputs, roundings=roundings) is None
    for what, wrong in WRONG.items():

        def run(grid: Any, args: Any, what: str = what, wrong: Any = wrong) -> None:
            others[-1].run(grid, args)
            c = args[2].astype(np.float64)
            ordinary = np.maximum(np.sqrt((c**2).mean()), made_of(name, *args[:2]))
            large = np.argwhere(np.abs(c) >= ordinary)
            at = tuple(large[rng.integers(len(large))])
            part = at if "element" in what else at[0] if "row" in what else (...,)
            args[2][(..., -1) if "edge" in what else part] = wrong(c, at).astype(args[2].dtype)

        found = check_stages([first, Stage(what, run)], inputs, roundings=roundings)
        assert found is not None and found.argument == 2, what


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_numbers_rounded_to_the_other_whole_one_are_few(dtype: str, tmp_path: Path):
    """An element that lies beside the border of two is no fault: of two runs that divide otherwise, some are."""
    path, rng = tmp_path / "rows.py", fresh_rng()
    path.write_text(ROWS_OF)
    options = CompileOptions(target="cpu")
    given = [f"{dtype}[32,64]", "i8[32,64]", f"{dtype}[32,64]"]
    module, specs = load(parse_source(f"{path}:rounded"), given, [], options)
    assert specs is not None
    inputs = Inputs((1, 1, 1), make_args(specs, int(rng.integers(1 << 30))))
    first, *_ = stages_of_target(module, options)

    def moved(count: int, by: int) -> Stage:
        def run(grid: Any, args: Any) -> None:
            first.run(grid, args)
            args[1].reshape(-1)[:count] += np.int8(by)

        return Stage(f"{count} by {by}", run)

    roundings = roundings_of(module, 8)
    assert check_stages([first, moved(1, 1)], inputs, roundings=roundings) is None
    for count, by in ((1, 2), (40, 1)):
        assert check_stages([first, moved(count, by)], inputs, roundings=roundings) is not None


def test_zeros_that_a_rotation_makes_are_what_f32_leaves_of_them():
    """They follow no input, and what lies around them is as small."""
    rng = fresh_rng()
    right = np.triu(rng.standard_normal((40, 24)))
    found = [(right + rng.standard_normal((40, 24)) * 1e-7).astype(np.float32) for _ in range(2)]
    assert difference(found[0], found[1]) is None
    found[1][30, 5] = 1e-3
    assert "at [30, 5]" in str(difference(found[0], found[1]))
