"""Programs among others: ids, barriers, subgroups; assertions, printing, breakpoints."""

import ast
import importlib
import io
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lang.reference import ir, refused, run
from tilewright import lang


@tw.kernel
def ids(Y):
    i, j, k = tw.program_id(0), tw.program_id(1), tw.program_id(2)
    n = (i * tw.num_programs(1) + j) * tw.num_programs(2) + k
    tw.store_tile(n, tw.init_tile(Y, [i, j, k], (1, 1)))


def test_program_ids():
    y = poison(2, 3, 4, dtype=np.int32)
    run(ids, (2, 3, 4), y)
    np.testing.assert_array_equal(y, np.arange(24).reshape(2, 3, 4))


@tw.kernel(level="subgroup", subgroups=4)
def ring(X, Y):
    me, n = tw.subgroup_id(), tw.num_subgroups()
    slm = tw.alloc_slm((4, 8), tw.f32)
    x = tw.load_tile(tw.init_tile(X, [me, 0], (1, 8)))
    tw.store_tile(x, tw.init_tile(slm, [me, 0], (1, 8)))
    tw.barrier()
    other = tw.load_tile(tw.init_tile(slm, [(me + 1) % n, 0], (1, 8)))
    tw.store_tile(other, tw.init_tile(Y, [me, 0], (1, 8)))


def test_subgroups_share_memory():
    x = fresh_rng().standard_normal((4, 8)).astype(np.float32)
    y = poison(4, 8)
    run(ring, 1, x, y)
    np.testing.assert_array_equal(y, np.roll(x, -1, 0))
    text = ir(ring, x, y)
    assert 'tilewright.level = "subgroup"' in text and "tilewright.subgroups = 4 : i64" in text


@tw.kernel(level="subgroup", subgroups=4)
def pairs(X, Y):
    me = tw.subgroup_id()
    slm = tw.alloc_slm((4, 8), tw.f32)
    meeting = tw.named_barrier(me // 2, 2)
    x = tw.load_tile(tw.init_tile(X, [me, 0], (1, 8)))
    tw.store_tile(x, tw.init_tile(slm, [me, 0], (1, 8)))
    meeting.arrive()
    meeting.wait()
    other = tw.load_tile(tw.init_tile(slm, [me ^ 1, 0], (1, 8)))
    tw.store_tile(other, tw.init_tile(Y, [me, 0], (1, 8)))


def test_named_barriers():
    x = fresh_rng().standard_normal((4, 8)).astype(np.float32)
    y = poison(4, 8)
    run(pairs, 1, x, y)
    np.testing.assert_array_equal(y, x[[1, 0, 3, 2]])
    assert "xe_nbar_wait_n_2" in pairs.compile(x, y, target="xe-pvc").ir["mach"]


@tw.kernel
def subgroups_at_workgroup_level(Y, CASE: tw.constexpr):
    if CASE == 0:
        tw.subgroup_id()
    elif CASE == 1:
        tw.num_subgroups()
    else:
        tw.named_barrier(0, 1)


@pytest.mark.parametrize("case", [0, 1, 2])
def test_subgroups_belong_to_their_level(case):
    text, _ = refused(subgroups_at_workgroup_level, np.zeros(1), CASE=case)
    assert "in a kernel at workgroup level" in text and 'level="subgroup"' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": "warp"}, "level is 'workgroup' or 'subgroup'"),
        ({"level": "subgroup"}, "subgroups=n requires"),
        ({"subgroups": 4}, "subgroups=n requires"),
        ({"level": "subgroup", "subgroups": 0}, "positive integer"),
    ],
)
def test_levels_that_do_not_exist(arguments, message):
    with pytest.raises(tw.CompileError, match=message):
        tw.kernel(**arguments)


@tw.kernel
def checked(X, n, MESSAGE: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    assert n > 0, MESSAGE
    tw.device_assert(x > -1, "all are positive")


def test_assertions_at_run_time():
    run(checked, 1, np.ones((2, 4), np.float32), 1, MESSAGE="m")
    with pytest.raises(tw.TilewrightError, match="n must be positive") as caught:
        run(checked, 1, np.ones((2, 4), np.float32), 0, MESSAGE="n must be positive")
    assert "assert n > 0, MESSAGE" in str(caught.value)
    x = np.ones((2, 4), np.float32)
    x[1, 2] = -3
    with pytest.raises(tw.TilewrightError, match="all are positive"):
        run(checked, 1, x, 1, MESSAGE="m")


@tw.kernel
def in_short(X, n):
    assert n > 3
    tw.store_tile(0, tw.init_tile(X, [0, 0], (1, 1)))


def test_an_assertion_without_a_message_says_what_was_wrong():
    with pytest.raises(tw.TilewrightError, match=r"assertion failed in workgroup .*: n > 3\n"):
        run(in_short, 1, np.ones((2, 4), np.float32), 3)


@tw.kernel
def checked_early(X, N: tw.constexpr, USE: tw.constexpr = False):
    if USE:
        tw.static_assert(N % 2 == 0, f"N is {N}, which is odd")
    assert N < 100, "N is too large"
    tw.store_tile(0, tw.init_tile(X, [0, 0], (1, 1)))


def test_assertions_at_compile_time():
    x = np.ones((2, 4), np.float32)
    run(checked_early, 1, x, N=4, USE=True)
    text, _ = refused(checked_early, x, N=3, USE=True)
    assert "static assertion failed: N is 3, which is odd" in text
    text, under = refused(checked_early, x, N=300)
    assert "assertion failed: N is too large" in text and under == "N < 100"


@tw.kernel
def prints(X, n):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 2)))
    print("n is", n, f"and x is {x} of {X.dtype} {{braces}}")


def test_printing(capsys):
    run(prints, 1, np.array([[1.5, 2]], np.float32), 7)
    line = "[workgroup (0, 0, 0)] n is 7 and x is [[1.5 2]] of f32 {braces}"
    assert capsys.readouterr().out == line + "\n"


@tw.kernel
def stops(X, n):
    total = n + 1
    x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 2)))
    breakpoint()
    tw.store_tile(x * total, tw.init_tile(X, [0, 0], (1, 2)))


def test_a_breakpoint_sees_the_variables(monkeypatch, capsys):
    x = np.array([[1.5, 2]], np.float32)
    assert 'tw.breakpoint ["n", "total", "x"]' in ir(stops, x, 3)
    monkeypatch.setattr("sys.stdin", io.StringIO("p 'sum', float(x.sum()) + total\nc\n"))
    run(stops, 1, x, 3)
    out = capsys.readouterr().out
    assert "test_program.py" in out and "('sum', 7.5)" in out
    np.testing.assert_array_equal(x, [[6, 8]])


def test_the_language_outside_of_kernels():
    assert tw.cdiv(10, 3) == 4
    assert list(tw.static_range(1, 7, 3)) == [1, 4]
    for call in (
        lambda: tw.program_id(0),
        lambda: tw.zeros((2, 2), tw.f32),
        lambda: tw.barrier(),
    ):
        with pytest.raises(tw.CompileError, match="inside a kernel only"):
            call()
    with pytest.raises(tw.CompileError, match="cdiv takes integers"):
        tw.cdiv(1.5, 2)


def test_assertions_on_the_cpu():
    """The process lives on, and the error is at the assertion."""
    kernel = checked.options(target="cpu")
    x = np.ones((2, 4), np.float32)
    with pytest.raises(tw.CheckError, match="n must be positive") as caught:
        kernel[3](x, 0, "n must be positive")
    assert "assert n > 0, MESSAGE" in str(caught.value)
    kernel[3](x, 1, "n must be positive")


def made_by(module: Any) -> set[type[Operation]]:
    """The classes of ops that a module's source names."""
    found: list[Any] = []
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Name):
            found.append(vars(module).get(node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.append(getattr(vars(module).get(node.value.id), node.attr, None))
    classes = {each for each in found if isinstance(each, type) and issubclass(each, Operation)}
    return classes - {Operation}


def test_expand_ops_is_asked_for_all_that_it_has_rules_for():
    """Kernels of the language wait for that pass where they have one of these ops, which are told by hand."""
    from tilewright.lang.build import EXPANDED
    from tilewright.passes.expand_ops import EXPANSIONS

    names = [info.name for info in pkgutil.iter_modules(lang.__path__)]
    made = set[type[Operation]]().union(
        *(made_by(importlib.import_module(f"{lang.__name__}.{name}")) for name in names)
    )
    assert len(made) > 50
    assert {op.name for op in made} & {*EXPANSIONS} == EXPANDED
