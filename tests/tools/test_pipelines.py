"""Pipelines as text: passes, options, MLIR's nesting; what is wrong is shown in the text."""

from __future__ import annotations

import pytest

from tilewright.tools.exits import UsageError
from tilewright.tools.pipelines import elements, make_pipeline, module_pipeline


@pytest.mark.parametrize(
    "text, passes",
    [
        ("", []),
        ("cse", ["cse"]),
        (" canonicalize , cse ", ["canonicalize", "cse"]),
        ("a{x=1 y=2,3},b", ["a{x=1 y=2,3}", "b"]),
        ('a{x="}"},b{}', ['a{x="}"}', "b{}"]),
        ("builtin.module()", []),
        ("builtin.module(cse)", ["cse"]),
        ("builtin.module(gpu.module(a{k=v},b),func.func(c),any(d),e)", ["a{k=v}", *"bcde"]),
        ("builtin.module(gpu.module(gpu.func(a)))\n", ["a"]),
    ],
)
def test_what_is_read(text, passes):
    found = elements(text)
    assert [e.text for e in found] == passes
    assert all(text.startswith(e.text, e.start) for e in found)


@pytest.mark.parametrize(
    "text, column, words",
    [
        ("cse,,cse", 5, "a pass is expected"),
        ("cse,", 5, "a pass is expected"),
        ("builtin.module(cse", 19, "')' is expected"),
        ("builtin.module(cse))", 20, "the end is expected"),
        ("cse{", 4, "never closed"),
        ("cse cse", 5, "the end is expected"),
        ("canonicalise", 1, "did you mean canonicalize?"),
        ("cse,xegpu-propagate-layout{knd=lane}", 28, "its options are kind=subgroup, target=pvc"),
        ("builtin.module(cse{speed=3})", 20, "cse has no options"),
        ("xegpu-propagate-layout{kind=1}", 1, "given (1,), expected"),
        ("xegpu-propagate-layout{=1}", 1, "cannot be read"),
    ],
)
def test_what_is_wrong_is_shown(text, column, words):
    with pytest.raises(UsageError) as caught:
        make_pipeline(text)
    where = caught.value.location
    assert where is not None and (where.col, where.text) == (column, text)
    assert words in str(caught.value)


def test_options_reach_the_pass():
    (made,) = make_pipeline("gpu.module(xegpu-propagate-layout{kind=inst target=bmg})").passes
    assert str(made) == 'xegpu-propagate-layout{kind="inst" target="bmg"}'


def test_a_pipeline_of_mlir_names_the_module():
    assert module_pipeline("builtin.module(cse)") == "builtin.module(cse)"
    with pytest.raises(UsageError, match="is not of the form"):
        module_pipeline("func.func(cse)")
