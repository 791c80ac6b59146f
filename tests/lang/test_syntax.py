"""What of Python the language lacks: each construct has its own message, caret and hint."""

import numpy as np
import pytest

import tilewright as tw
from tests.lang.reference import refused, written
from tilewright.lang.syntax import REFUSED

X = np.zeros((8, 8), np.float32)


CONSTRUCTS = [
    # statement, what it is, words of the hint, where the underlined text begins
    ("{i for i in (1, 2)}", "set comprehension", "list", "{i for"),
    ("{i: i for i in (1, 2)}", "dict comprehension", "outside", "{i: i"),
    ("f = lambda x: x", "lambda", "def outside", "lambda x: x"),
    ('d = {"a": 1}', "dict literal", "NamedTuple", '{"a": 1}'),
    ("{1, 2}", "set literal", "tuple", "{1, 2}"),
    ("try: pass\nexcept ValueError: pass", "no try", "tw.device_assert", "try:"),
    ("raise ValueError", "no raise", "tw.static_assert", "raise ValueError"),
    ("with open('f'): pass", "no with", "closing", "with open"),
    ("yield 1", "no yield", "tuple", "yield 1"),
    ("class C: pass", "no class", "NamedTuple", "class C:"),
    ("def f(): return 1", "no function inside", "module level", "def f():"),
    ("global X", "no global", "arguments", "global X"),
    ("a = 1\ndel a", "no del", "values live", "del a"),
    ("import math", "no import", "module level", "import math"),
    ("match 3:\n    case 3: pass", "no match", "elif", "match 3:"),
    ("tw.init_tile(**A)", "starred expression (**kwargs)", "one by one", "tw.init_tile(**A)"),
    ("xs = [1, 2]\nxs[0] = 3", "assignment to an element", "tw.store_tile", "xs[0]"),
    ("x = tw.zeros((4, 4), tw.f32)\nx[0, 0] += 3", "assignment to an element", "tw.store_tile", "x[0, 0]"),
    ("A.name = 3", "assignment to an attribute", "name", "A.name"),
]  # fmt: skip


@pytest.mark.parametrize("statement, what, hint, caret", CONSTRUCTS, ids=[c[0] for c in CONSTRUCTS])
def test_refused(statement, what, hint, caret):
    text, under = refused(written("A", statement), X)
    first = text.splitlines()[0]
    assert what.removeprefix("no ") in first and first.endswith("is not supported in a kernel")
    assert hint in text.split("hint:")[1]
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
