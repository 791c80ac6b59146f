"""Names of Triton and numpy: each leads to what the language has, and what it is told to write is right."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lang.reference import refused, written
from tilewright.lang.elsewhere import INSTEAD, KEYWORDS, METHODS


def test_an_f_string_is_no_string():
    kernel = written("A", 'f"{A.shape[0]}" + "!"')
    text, _ = refused(kernel, np.zeros((8, 8), np.float32))
    assert "+ does not combine an f-string of run-time values and the constant '!'" in text


def test_outside_of_a_kernel():
    for name, words in {
        "dot": "use tw.tile_mma",
        "relu": "use tw.maximum(x, 0)",
        "load_tle": "did you mean load_tile",
    }.items():
        with pytest.raises(AttributeError, match=re.escape(words)):
            getattr(tw, name)
    with pytest.raises(AttributeError) as caught:
        tw.frobnicate  # noqa: B018
    assert ";" not in str(caught.value), "a guess that is far off misleads"


def test_answers_name_what_there_is():
    for name, answer in (INSTEAD | METHODS | KEYWORDS).items():
        for word in re.findall(r"\btw\.(\w+)", answer):
            assert word in tw.__all__, f"{name} leads to tw.{word}"
    there = sorted(set(INSTEAD) & set(tw.__all__))
    assert not there, f"the language has {there}: the table says it has not"


RECIPES = {
    "clamp": lambda x, y: np.clip(x, -0.5, 0.5),
    "relu": lambda x, y: np.maximum(x, 0),
    "silu": lambda x, y: x / (1 + np.exp(-x)),
    "pow": lambda x, y: x**2,
    "exp10": lambda x, y: 10**x,
    "rint": lambda x, y: np.rint(x),
    "sign": lambda x, y: np.sign(x),
    "mod": lambda x, y: np.mod(x, y),
    "fmod": lambda x, y: np.fmod(x, y),
    "isnan": lambda x, y: np.isnan(x),
    "isinf": lambda x, y: np.isinf(x),
    "isfinite": lambda x, y: np.isfinite(x),
    "mean": lambda x, y: x.mean(1, keepdims=True),
    "count_nonzero": lambda x, y: np.count_nonzero(x > 1, 1, keepdims=True),
    "var": lambda x, y: x.var(1, keepdims=True),
    "std": lambda x, y: x.std(1, keepdims=True),
    "cummax": lambda x, y: np.maximum.accumulate(x, 1),
    "cummin": lambda x, y: np.minimum.accumulate(x, 1),
    "softmax": lambda x, y: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "ones_like": lambda x, y: np.ones_like(x),
    "trans": lambda x, y: x.T,
    "dot": lambda x, y: x @ y + 1,
}  # fmt: skip
GIVEN = {
    "clamp": {"low": "-0.5", "high": "0.5"},
    "pow": {"y": "2"},
    "var": {"m": "(tw.sum(x, 1) / 8)"},
    "std": {"m": "(tw.sum(x, 1) / 8)"},
    "count_nonzero": {"x": "(x > 1).to(tw.f32)"},
    "dot": {"a": "x", "b": "y", "acc": "tw.full((8, 8), 1, tw.f32)"},
}
LOAD = "tw.load_tile(tw.init_tile(A, [0, 0], (8, 8)))"


def test_recipes_compute_what_their_names_say():
    """One kernel has them all: a tile of the result for each."""
    body = [f"x, y = {LOAD}, {LOAD.replace('(A', '(B')}"]
    for i, name in enumerate(RECIPES):
        code = INSTEAD[name].partition(";")[0]
        for word, given in GIVEN.get(name, {}).items():
            code = re.sub(rf"(?<![\w.]){word}\b", given, code)
        body.append(f"tw.store_tile(({code}).to(tw.f32) + tw.zeros((8, 8), tw.f32), ")
        body[-1] += f"tw.init_tile(C, [{8 * i}, 0], (8, 8)))"
    kernel = written("A, B, C", "\n".join(body))
    rng = fresh_rng()
    x, y = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    result = poison(8 * len(RECIPES), 8)
    kernel.options(target="reference")[1](x, y, result)
    for i, (name, expected) in enumerate(RECIPES.items()):
        wide = np.broadcast_to(expected(x.astype(np.float64), y.astype(np.float64)), (8, 8))
        np.testing.assert_allclose(
            result[8 * i : 8 * i + 8], wide, rtol=2e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("keywords, words", [
    ({"BMM": 16}, "no argument 'BMM'\nhint: did you mean BM?"),
    ({"bm": 16}, "no argument 'bm'\nhint: did you mean BM?"),
    ({"BM": 8, "num_warps": 4}, "the planner chooses how many threads"),
    ({"BM": 8, "num_stages": 3}, "kernel.options(num_stages=...)[grid](...)"),
    ({"BM": np.ones(3)}, "constexpr 'BM' was given an array (ndarray)"),
    ({"BM": [np.ones(3)]}, "constexpr 'BM' must be hashable"),
])  # fmt: skip
def test_keywords_of_a_launch(keywords, words):
    body = "tw.store_tile(1, tw.init_tile(A, [0, 0], (BM, 8)))"
    kernel = written("A, BM: tw.constexpr", body)
    with pytest.raises(tw.LaunchError) as caught:
        kernel[1](np.ones((8, 8), np.float32), **keywords)
    assert words in str(caught.value)


def test_a_grid_asks_for_what_the_kernel_has():
    body = "tw.store_tile(1, tw.init_tile(A, [0, 0], (BM, 8)))"
    kernel, a = written("A, BM: tw.constexpr = 8", body), np.ones((8, 8), np.float32)
    for grid in (lambda meta: (meta["BK"],), lambda c: c.BK):
        with pytest.raises(tw.LaunchError, match=r"asks for 'BK'.*\nhint: the constexprs are BM"):
            kernel[grid](a)


def test_a_kernel_says_what_wraps_it_and_that_it_has_no_self():
    def wrapped(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    @tw.kernel
    @wrapped
    def inner(A):
        tw.store_tile(1, tw.init_tile(A, [0], (1, 1)))

    with pytest.raises(tw.CompileError, match=r"inner is wrapped by wrapper .*\n.*\nhint: put @tw"):
        inner[1](np.ones(3, np.float32))

    class Model:
        @tw.kernel
        def forward(self, A):
            tw.store_tile(1, tw.init_tile(A, [0], (1, 1)))

    with pytest.raises(tw.LaunchError, match="write @staticmethod above"):
        Model().forward[1](np.ones(3, np.float32))


def test_a_grid_is_computed_without_the_compiler():
    code = (
        "import sys, tilewright as tw; import numpy as np\n"
        "assert tw.cdiv(7, 2) == 4 and tw.cdiv(np.int64(7), 7) == 1\n"
        "assert not any(name in sys.modules for name in ('xdsl', 'llvmlite'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for a, b in ((1.5, 2), (1, 0), ("x", 1)):
        with pytest.raises(tw.CompileError):
            tw.cdiv(a, b)


def test_the_namespace_holds_the_language_alone():
    assert dir(tw) == sorted([*tw.__all__, "graph", "ops"])
    assert all(hasattr(tw, name) for name in dir(tw))


def test_a_float_of_python_says_why_it_is_no_integer():
    body = "tw.store_tile(n, tw.init_tile(A, [0, 0], (8, 8)))"
    kernel = written("A, n", body)
    text, _ = refused(kernel, np.zeros((8, 8), np.int32), 2.5)
    assert "takes the tile's dtype, but a float never becomes an integer" in text
