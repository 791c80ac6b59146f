"""The passes that users of IMEX know by name: each alone, and all in their order there, change no result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tests.draws import fresh_rng
from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import programs, run, wrong
from tests.lowering.test_random import lowering
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.kernel import kernel_of, level_of
from tilewright.tools.pipelines import available_passes, make_pipeline

ORDER = (
    "xetile-init-duplicate",
    "xetile-canonicalization",
    "xetile-wg-to-sg",
    "xetile-blockop-fallback",
    "xetile-blocking",
    "convert-xetile-to-xegpu",
)
DISTRIBUTES = "xetile-wg-to-sg"
BELOW = {"xetile-blockop-fallback", "xetile-blocking"}
"""Those of a subgroup's program."""


def opt(module: ModuleOp, passes: str) -> ModuleOp:
    """What `tilewright opt -p` leaves of a module."""
    after = module.clone()
    make_pipeline(passes).apply(make_context(), after)
    verify_module(after)
    return after


@lowering
@given(
    program=programs(),
    seed=st.integers(0, 2**32 - 1),
    names=st.lists(st.sampled_from(ORDER), min_size=1, unique=True).filter(
        lambda names: DISTRIBUTES in names or not BELOW & {*names}
    ),
)
def test_in_their_order(program: Program, seed: int, names: list[str]):
    """Each alone, or some of them in their order, the others left out: a workgroup's program keeps its results."""
    case = Case(program, seed)
    note(f"{case.describe()}\n{names}")
    assume(case.expected().finite)
    grid, args = (*program.grid, 1), [*case.inputs, *case.outputs]
    try:
        after = opt(case.module, ",".join(sorted(names, key=ORDER.index)))
    except UnsupportedError as error:
        assert "shared memory" in str(error), error
        return
    assert wrong(run(case.module, grid, args), run(after, grid, args)) is None
    assert ("xetile." in print_module(after)) == (names == [ORDER[0]])
    assert level_of(kernel_of(after)) == ("subgroup" if DISTRIBUTES in names else "workgroup")


SUBGROUP = """
#tile = #xetile.tile_attr<order = [0, 1]>
gpu.module @m { gpu.func @k(%a: memref<48x64xf16>, %b: memref<64x64xf16, strided<[1, 64]>>, %c: memref<48x64xf32>)
    kernel {
  %ta = xetile.init_tile %a[0, 0] : memref<48x64xf16> -> !xetile.tile<32x32xf16>
  %tb = xetile.init_tile %b[0, 0] : memref<64x64xf16, strided<[1, 64]>> -> !xetile.tile<32x32xf16, #tile>
  %tc = xetile.init_tile %c[32, 32] : memref<48x64xf32> -> !xetile.tile<32x32xf32>
  %va = xetile.load_tile %ta : !xetile.tile<32x32xf16> -> vector<32x32xf16>
  %vb = xetile.load_tile %tb : !xetile.tile<32x32xf16, #tile> -> vector<32x32xf16>
  %d = xetile.tile_mma %va, %vb : vector<32x32xf16>, vector<32x32xf16> -> vector<32x32xf32>
  xetile.store_tile %d, %tc : vector<32x32xf32>, !xetile.tile<32x32xf32>
  gpu.return } }
"""


@pytest.mark.parametrize("name", [name for name in ORDER if name != DISTRIBUTES])
@pytest.mark.parametrize("machine", ["pvc", "dg2"])
def test_alone_on_a_subgroups_program(name: str, machine: str):
    """Rows and columns of C lie outside of its matrix."""
    module, rng = parse_module(SUBGROUP), fresh_rng()
    a, bt = (rng.random(shape).astype(np.float16) for shape in ((48, 64), (64, 64)))
    args = [a, bt.T, np.full((48, 64), np.nan, np.float32)]
    after = opt(module, f"{name}{{target={machine}}}")
    found = run(after, (1, 1, 1), args)
    assert wrong(run(module, (1, 1, 1), args), found) is None
    expected = a[:16, :32].astype(np.float64) @ bt.T[:32, :32].astype(np.float64)
    assert np.allclose(found[2][32:, 32:], expected[:16], rtol=1e-5)
    text = print_module(after)
    assert ("xetile." in text) == (name == "xetile-init-duplicate")
    assert ("dpas" in text and "32x32xf32" not in text) == (name == "xetile-blocking")


def test_they_are_listed():
    known = available_passes()
    assert set(ORDER) <= set(known)
    assert all(known[name]().__doc__ for name in ORDER)
