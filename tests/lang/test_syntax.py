"""What of Python the language lacks: each construct has its own message, caret and hint."""

# ruff: noqa: B018, C416, SIM105, F841

import numpy as np
import pytest

import tilewright as tw
from tests.lang.reference import refused
from tilewright.lang.syntax import REFUSED

X = np.zeros((8, 8), np.float32)


@tw.kernel
def set_comprehension(A):
    {i for i in (1, 2)}


@tw.kernel
def dict_comprehension(A):
    {i: i for i in (1, 2)}


@tw.kernel
def lambda_(A):
    f = lambda x: x  # noqa: E731
    tw.store_tile(f(0), tw.init_tile(A, [0, 0], (1, 1)))


@tw.kernel
def dict_literal(A):
    d = {"a": 1}
    tw.store_tile(d["a"], tw.init_tile(A, [0, 0], (1, 1)))


@tw.kernel
def set_literal(A):
    {1, 2}


@tw.kernel
def try_(A):
    try:
        tw.store_tile(0, tw.init_tile(A, [0, 0], (1, 1)))
    except ValueError:
        pass


@tw.kernel
def raise_(A):
    raise ValueError


@tw.kernel
def with_(A):
    with open("f"):
        pass


@tw.kernel
def yield_(A):
    yield 1


@tw.kernel
def class_(A):
    class C:
        pass


@tw.kernel
def nested(A):
    def f():
        return 1

    tw.store_tile(f(), tw.init_tile(A, [0, 0], (1, 1)))


@tw.kernel
def global_(A):
    global X


@tw.kernel
def del_(A):
    a = 1
    del a


@tw.kernel
def import_(A):
    import math  # noqa: F401


@tw.kernel
def match_(A):
    match 3:
        case 3:
            pass


@tw.kernel
def starred_call(A):
    tw.init_tile(*(A, [0, 0], (1, 1)))


@tw.kernel
def keywords_call(A, O: tw.constexpr = None):
    tw.init_tile(**O)


@tw.kernel
def item_assignment(A):
    xs = [1, 2]
    xs[0] = 3


@tw.kernel
def value_assignment(A):
    x = tw.load_tile(tw.init_tile(A, [0, 0], (4, 4)))
    x[0, 0] += 3


@tw.kernel
def attribute_assignment(A):
    A.name = 3


@tw.kernel
def starred_target(A):
    a, *b = (1, 2, 3)


@pytest.mark.parametrize(
    ("kernel", "what", "hint", "caret"),
    [
        (set_comprehension, "set comprehension", "list", "{i for"),
        (dict_comprehension, "dict comprehension", "outside", "{i: i"),
        (lambda_, "lambda", "def outside", "lambda x: x"),
        (dict_literal, "dict literal", "NamedTuple", '{"a": 1}'),
        (set_literal, "set literal", "tuple", "{1, 2}"),
        (try_, "no try", "tw.device_assert", "try:"),
        (raise_, "no raise", "tw.static_assert", "raise ValueError"),
        (with_, "no with", "closing", "with open"),
        (yield_, "no yield", "tuple", "yield 1"),
        (class_, "no class", "NamedTuple", "class C:"),
        (nested, "no function inside", "module level", "def f():"),
        (global_, "no global", "arguments", "global X"),
        (del_, "no del", "values live", "del a"),
        (import_, "no import", "module level", "import math"),
        (match_, "no match", "elif", "match 3:"),
        (starred_call, "starred expression", "one by one", "*(A, [0, 0], (1, 1))"),
        (keywords_call, "starred expression (**kwargs)", "one by one", "tw.init_tile(**O)"),
        (item_assignment, "assignment to an element", "tw.store_tile", "xs[0]"),
        (value_assignment, "assignment to an element", "tw.store_tile", "x[0, 0]"),
        (attribute_assignment, "assignment to an attribute", "name", "A.name"),
        (starred_target, "starred expression", "one by one", "*b"),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_refused(kernel, what, hint, caret):
    text, under = refused(kernel, X)
    first = text.splitlines()[0]
    assert what.removeprefix("no ") in first and first.endswith("is not supported in a kernel")
    assert f"hint: {''}" in text and hint in text.split("hint:")[1]
    assert under.startswith(caret)
    assert "docs/language.md" in text


def test_every_refusal_has_a_hint():
    for what, hint in REFUSED.values():
        assert what and hint and not hint.endswith(".")


def test_parameters_are_named():
    with pytest.raises(tw.CompileError, match=r"has the parameter \*rest"):

        @tw.kernel
        def bad(A, *rest):
            pass


@pytest.mark.parametrize("kept", [[], ["import sys\n"]])
def test_a_kernel_needs_its_source(kept, monkeypatch):
    """Since Python 3.13 the text of `python -c` is kept under the name that exec() has, too."""
    import linecache

    monkeypatch.setitem(linecache.cache, "<string>", (len(kept), None, kept, "<string>"))
    scope = {"tw": tw}
    exec("@tw.kernel\ndef hidden(A):\n    pass\n", scope)
    with pytest.raises(tw.CompileError, match="source of hidden cannot be read") as caught:
        scope["hidden"].compile(X, target="reference")
    assert "not with exec" in str(caught.value)


def test_a_kernel_whose_file_changed(tmp_path, monkeypatch):
    file = tmp_path / "changing.py"
    file.write_text("import tilewright as tw\n@tw.kernel\ndef k(A):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    module = importlib.import_module("changing")
    file.write_text("\n\n\nimport tilewright as tw\n@tw.kernel\ndef k(A):\n    pass\n")
    import linecache

    linecache.checkcache()
    with pytest.raises(tw.CompileError, match="changed after it was imported"):
        module.k.compile(X, target="reference")
    file.write_text("def broken(:\n")
    linecache.checkcache()
    with pytest.raises(tw.CompileError, match="does not parse"):
        module.k.compile(X, target="reference")


@tw.kernel
def says_it_in_greek(A):
    α = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    β = α + tw.zeros((3, 3), tw.f32)
    tw.store_tile(β, tw.init_tile(A, [0, 0], (4, 8)))


def test_columns_count_characters_not_bytes():
    text, under = refused(says_it_in_greek, X)
    assert under == "α + tw.zeros((3, 3), tw.f32)"
    line, carets = text.splitlines()[1:3]
    assert carets.index("^") == line.index("α + tw")
