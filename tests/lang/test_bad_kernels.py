"""Kernels that make no sense: each gives one located report, never a traceback or wrong code."""

# ruff: noqa: B007, B015, B018, F821, F823, F841, RUF059, RUF100, SIM115

import numpy as np
import pytest

import tilewright as tw
from tests.lang.reference import ir, refused
from tilewright import knobs


@tw.kernel
async def async_def(A):
    tw.store_tile(1, tw.init_tile(A, [0, 0], (1, 1)))


def test_an_async_def_is_refused():
    text, under = refused(async_def, np.zeros((8, 8), np.float32))
    assert "async_def is an async def, which cannot be compiled" in text and under == "async"


@tw.kernel
def counts(A, step):
    for i in range(0, 4, step):
        tw.store_tile(i, tw.init_tile(A, [0, 0], (1, 1)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_step_of_zero_when_it_runs_fails_alike(target):
    with pytest.raises(tw.TilewrightError, match="the step of a range is 0"):
        counts.options(target=target)[1](np.zeros((1, 1)), 0)


def odd_but_legal_kernel():
    @tw.kernel
    def legal(A):
        "A docstring."
        x = None
        y: int = 3
        x = tw.program_id(0) is None
        if x is not False or (y := 4) == 5:
            tw.store_tile(0, tw.init_tile(A, [0, 0], (1, 1)))
        (a, [b, c]) = 1, (2, 3)
        a, b = b, a
        z = w = a + c
        for A in ():
            undefined_name()
        tw.static_assert((y, z, w, b) == (4, 5, 5, 1))
        return None

    return legal


@pytest.mark.filterwarnings("ignore:kernel legal stores nothing")
def test_odd_but_legal():
    text = ir(odd_but_legal_kernel(), np.zeros((8, 8), np.float32))
    assert "store_tile" not in text


def test_mistakes_of_the_compiler_are_reported_as_such(monkeypatch):
    from tilewright.lang import arithmetic

    def broken(*args):
        raise KeyError("oops")

    @tw.kernel
    def fine(A):
        tw.program_id(0) * 2

    monkeypatch.setattr(arithmetic, "meet", broken)
    text, under = refused(fine, np.zeros(3))
    assert "the compiler failed here: KeyError" in text and "please report it" in text
    assert under == "tw.program_id(0) * 2"
    with knobs.override(traceback=True), pytest.raises(tw.CompileError) as caught:
        fine.compile(np.zeros(3), target="reference")
    assert isinstance(caught.value.__cause__, KeyError)
