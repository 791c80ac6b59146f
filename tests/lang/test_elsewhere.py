"""Names of Triton and numpy: each leads to what the language has, and what it is told to write is right."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.lang.reference import poisoned, refused
from tilewright.lang.elsewhere import INSTEAD, KEYWORDS, METHODS

BODIES = {
    # name: (statement, what is underlined, words of the hint)
    "dot": ("tw.dot(x, x)", "tw.dot", "use tw.tile_mma(a, b, acc)"),
    "load": ("tw.load(A)", "tw.load", "use tw.load_tile("),
    "clamp": ("tw.clamp(x, 0, 1)", "tw.clamp", "use tw.minimum(tw.maximum(x, low), high)"),
    "range": ("tw.range(0, 4, num_stages=3)", "tw.range", "use range(...)"),
    "rand": ("tw.rand(0, x)", "tw.rand", "pass an array of random numbers"),
    "a misspelt name": ("tw.load_tle(A)", "tw.load_tle", "did you mean load_tile?"),
    "astype": ("x.astype(tw.f16)", "x.astype", "use x.to(dtype)"),
    ".sum()": ("x.sum(1)", "x.sum", "use tw.sum(x, axis"),
    ".T": ("x.T", "x.T", "use tw.transpose(x)"),
    "stride": ("A.stride(0)", "A.stride", "use A.strides"),
    "a method nobody has": ("x.frobnicate()", "x.frobnicate", "it has dtype, shape"),
    "@": ("x @ x", "x @ x", "tw.tile_mma(a, b, acc)"),
    "np.clip": ("np.clip(x, 0, 1)", "np.clip(x, 0, 1)", "use tw.minimum"),
    "np.exp": ("np.exp(x)", "np.exp(x)", "use tw.exp(x)"),
    "sum": ("sum(x)", "sum(x)", "use tw.sum(x, axis"),
    "pow": ("pow(x, 2)", "pow(x, 2)", "use x**y"),
    "len of an array": ("len(A)", "len(A)", "its extents are x.shape"),
    "enumerate of a value": ("enumerate(x)", "enumerate(x)", "its extents are x.shape"),
    "append": ("xs = []; xs.append(x)", "xs.append(x)", "xs = xs + (x,)"),
    "np.random": ("np.random.rand(3)", "np.random.rand(3)", "before the launch"),
    "other": (
        "tw.load_tile(tw.init_tile(A, [0, 0], (1, 4)), other=0)",
        "tw.load_tile(tw.init_tile(A, [0, 0], (1, 4)), other=0)",
        "padding=...",
    ),
    "keep_dims": (
        "tw.sum(x, 1, keep_dims=True)",
        "tw.sum(x, 1, keep_dims=True)",
        "leave keep_dims out",
    ),
    "max of two": ("tw.max(x, x)", "x", "tw.maximum(a, b)"),
    ".float()": ("x.float()", "x.float", "use x.to(tw.f32)"),
    "element_ty": (
        "A.dtype.element_ty",
        "A.dtype.element_ty",
        "A.dtype is the dtype of the elements",
    ),
    "another case": ("X + 1", "X", "did you mean x?"),
    "a float offset": ("A[A.shape[0] / 2, 0]", "A[A.shape[0] / 2, 0]", "a // b rounds down"),
    "a matrix as a column": ("x[:, None]", "x[:, None]", "leave it out"),
    "a part of a value": ("x[::2, :]", "x[::2, :]", "x[:, None] is a vector as a column"),
    "a loop over a value": ("for i in x: pass", "x", "its parts are loaded as tiles"),
    "a choice of run time": (
        "[i for i in (1, 2) if A[0, 0] > 0]",
        "A[0, 0] > 0",
        "tw.where(mask, a, b)",
    ),
    "a comprehension of run time": (
        "[i for i in range(A.shape[0])]",
        "range(A.shape[0])",
        "write that loop, and count or sum in a variable",
    ),
    "a comprehension over a number": ("[i for i in 4]", "4", "range(n) counts to a number"),
    "a start by name": ("sum([x, x], start=x)", "sum([x, x], start=x)", "give start by position"),
    "an element and a column": ("x[A.shape[0], None]", "x[A.shape[0], None]", "load smaller tiles"),
    "a row as a column": (
        "tw.zeros((8, 4), tw.f32) + tw.arange(8)",
        "tw.zeros((8, 4), tw.f32) + tw.arange(8)",
        "the row of 8 as a column: x[:, None]",
    ),
    "a column as a row": (
        "tw.zeros((4, 8), tw.f32) * tw.arange(8, axis=0)",
        "tw.zeros((4, 8), tw.f32) * tw.arange(8, axis=0)",
        "the column of 8 as a row: x[None, :]",
    ),
    "a mask that lies the other way": (
        "tw.load_tile(tw.init_tile(A, [0, 0], (8, 4)), tw.arange(8) < 3)",
        "tw.arange(8) < 3",
        "x[:, None]",
    ),
    "a value of one as offset": (
        "A[tw.sum(x).to(tw.i32), 0]",
        "A[tw.sum(x).to(tw.i32), 0]",
        "x.item() is its number",
    ),
    "a dtype's name": ("x.to('bf16')", "x.to('bf16')", "use tw.bf16"),
    "a dtype compared with a name": ("A.dtype == 'float32'", "A.dtype == 'float32'", "use tw.f32"),
    "a dtype compared with numpy's": (
        "np.float16 != A.dtype",
        "np.float16 != A.dtype",
        "use tw.f16",
    ),
    "range of an array": ("range(A)", "A", "range(x.shape[0])"),
    "a loop to a number": ("for i in A.shape[0]: pass", "A.shape[0]", "range(n) counts"),
    "shape as a function": ("A.shape(0)", "A.shape(0)", "x[i]"),
    "a tile for an element": ("A[0, 0] = x", "A[0, 0] = x", "write it as a tile: tw.store_tile"),
    "a launch in a kernel": ("other[1](A)", "other[1]", "other(...)"),
    "float bound": ("range(A.shape[0] / 2)", "A.shape[0] / 2", "a // b divides integers"),
}


@pytest.mark.parametrize("name", BODIES)
def test_in_a_kernel(name, tmp_path):
    body, under, words = BODIES[name]
    kernel = _kernel(tmp_path, f"    x = {LOAD}\n    {body}\n", "A")
    text, underlined = refused(kernel, np.zeros((8, 8), np.float32))
    assert underlined == under
    assert words in text.partition("hint: ")[2], text


def test_an_f_string_is_no_string(tmp_path):
    kernel = _kernel(tmp_path, '    f"{A.shape[0]}" + "!"\n', "A")
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
    "log10": lambda x, y: np.log10(np.abs(x)),
    "expm1": lambda x, y: np.expm1(x),
    "log1p": lambda x, y: np.log1p(np.abs(x)),
    "tan": lambda x, y: np.tan(x),
    "sinh": lambda x, y: np.sinh(x),
    "cosh": lambda x, y: np.cosh(x),
    "rint": lambda x, y: np.rint(x),
    "trunc": lambda x, y: np.trunc(x),
    "sign": lambda x, y: np.sign(x),
    "mod": lambda x, y: np.mod(x, y),
    "fmod": lambda x, y: np.fmod(x, y),
    "isnan": lambda x, y: np.isnan(x),
    "isinf": lambda x, y: np.isinf(x),
    "isfinite": lambda x, y: np.isfinite(x),
    "mean": lambda x, y: x.mean(1, keepdims=True),
    "any": lambda x, y: (x > 1).any(1, keepdims=True),
    "all": lambda x, y: (x > 1).all(1, keepdims=True),
    "argmax": lambda x, y: np.argmax(x, 1, keepdims=True),
    "argmin": lambda x, y: np.argmin(x, 1, keepdims=True),
    "softmax": lambda x, y: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "ones_like": lambda x, y: np.ones_like(x),
    "trans": lambda x, y: x.T,
    "dot": lambda x, y: x @ y + 1,
}  # fmt: skip
GIVEN = {
    "clamp": {"low": "-0.5", "high": "0.5"},
    "pow": {"y": "2"},
    "log10": {"x": "tw.abs(x)"},
    "log1p": {"x": "tw.abs(x)"},
    "any": {"x": "(x > 1)"},
    "all": {"x": "(x > 1)"},
    "dot": {"a": "x", "b": "y", "acc": "tw.full((8, 8), 1, tw.f32)"},
}
LOAD = "tw.load_tile(tw.init_tile(A, [0, 0], (8, 8)))"


def test_recipes_compute_what_their_names_say(tmp_path):
    """One kernel has them all: a tile of the result for each."""
    body = [f"    x, y = {LOAD}, {LOAD.replace('(A', '(B')}"]
    for i, name in enumerate(RECIPES):
        code = INSTEAD[name].partition(";")[0]
        for word, given in GIVEN.get(name, {}).items():
            code = re.sub(rf"(?<![\w.]){word}\b", given, code)
        body.append(f"    tw.store_tile(({code}).to(tw.f32) + tw.zeros((8, 8), tw.f32), ")
        body[-1] += f"tw.init_tile(C, [{8 * i}, 0], (8, 8)))"
    kernel = _kernel(tmp_path, "\n".join(body) + "\n", "A, B, C")
    rng = fresh_rng()
    x, y = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    result = poisoned((8 * len(RECIPES), 8), np.float32)
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
def test_keywords_of_a_launch(keywords, words, tmp_path):
    body = "    tw.store_tile(1, tw.init_tile(A, [0, 0], (BM, 8)))\n"
    kernel = _kernel(tmp_path, body, "A, BM: tw.constexpr")
    with pytest.raises(tw.LaunchError) as caught:
        kernel[1](np.ones((8, 8), np.float32), **keywords)
    assert words in str(caught.value)


def test_a_grid_asks_for_what_the_kernel_has(tmp_path):
    body = "    tw.store_tile(1, tw.init_tile(A, [0, 0], (BM, 8)))\n"
    kernel, a = _kernel(tmp_path, body, "A, BM: tw.constexpr = 8"), np.ones((8, 8), np.float32)
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


def _kernel(tmp_path, body, parameters):
    path = tmp_path / "elsewhere_kernel.py"
    head = "import numpy as np\nimport tilewright as tw\n\n@tw.kernel\n"
    head += "def other(A): tw.store_tile(1, tw.init_tile(A, [0, 0], (1, 1)))\n\n@tw.kernel\n"
    path.write_text(f"{head}def kernel({parameters}):\n{body}")
    scope: dict[str, object] = {"__name__": "elsewhere_kernel"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["kernel"]


def test_a_float_of_python_says_why_it_is_no_integer(tmp_path):
    body = "    tw.store_tile(n, tw.init_tile(A, [0, 0], (8, 8)))\n"
    kernel = _kernel(tmp_path, body, "A, n")
    text, _ = refused(kernel, np.zeros((8, 8), np.int32), 2.5)
    assert "takes the tile's dtype, but a float never becomes an integer" in text
