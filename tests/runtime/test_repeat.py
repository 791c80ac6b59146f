"""Launches seen before, in native code: what they look up, and what they leave to Python."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import pyfunction
from tilewright.codegen.pyfunction import FAST, Functions, available, compiled
from tilewright.runtime.guards import key_of, seen, words_of
from tilewright.runtime.repeat import repeater

pytestmark = pytest.mark.skipif(not available(), reason="not CPython on x86-64 Linux")


class Tensor:
    def __init__(self, address: int):
        self.address = address

    def data_ptr(self) -> int:
        if self.address < 0:
            raise RuntimeError("no address")
        return self.address


class Setting:
    """A launch on two tensors at 10 and 20, and a count of what was asked."""

    def __init__(self) -> None:
        self.knobs: ContextVar[object] = ContextVar("knobs", default=None)
        self.alike: Any = True
        self.log: list[Any] = []
        self.bound: list[object] = ["knobs", None, "epoch"]
        launch = seen(self.check, self.run, self.bound[2], (10, 20))
        self.guarded: dict[Any, Any] = {((2, 3), key_of((10, 20))): launch}
        self.same: Any = lambda: True
        watch = [lambda: self.same()]
        tensors: list[frozenset[Any]] = [frozenset({Tensor})]
        made = repeater(
            self.otherwise, self.guarded, self.knobs, self.bound, (2, 3), watch, tensors
        )
        assert made is not None
        self.launch = made

    def check(self, *tensors: Tensor) -> Any:
        if isinstance(self.alike, Exception):
            raise self.alike
        return self.alike

    def run(self) -> None:
        self.log.append("again")

    def otherwise(self, *args: Any, **kwargs: Any) -> None:
        self.log.append((*args, *kwargs))


A, B, LOST = Tensor(10), Tensor(20), Tensor(-1)


def test_what_was_seen_is_run_again() -> None:
    s = Setting()
    s.launch(A, B)
    s.launch(A, B)
    assert s.log == ["again"] * 2


def test_what_is_kept_serves_the_knobs_under_which_it_was_bound() -> None:
    s = Setting()
    s.launch(A, B)
    s.guarded.clear()
    s.launch(A, B)
    assert s.log == ["again"] * 2, "kept apart from the dictionary"
    s.bound[:] = "other knobs", None, "next epoch"
    s.launch(A, B)
    assert s.log == ["again", "again", (A, B)]


def test_more_launches_than_slots() -> None:
    s = Setting()
    s.guarded.clear()
    for i in range(1, 2000):
        run = lambda i=i: s.log.append(i)  # noqa: E731
        s.guarded[(2, 3), key_of((i, 16 * i))] = seen(s.check, run, "epoch", (i, 16 * i))
    for i in (*range(1, 2000), *range(1999, 0, -1)):
        s.launch(Tensor(i), Tensor(16 * i))
    assert s.log == [*range(1, 2000), *range(1999, 0, -1)]


@pytest.mark.parametrize("change, args, kwargs", [
    ({}, (B, A), {}),
    ({}, (A, 3), {}),
    ({}, (A, LOST), {}),
    ({}, (), {}),
    ({}, (A,), {"y": B}),
    ({"override": "others"}, (A, B), {}),
    ({}, (A, B) * 9, {}),
    ({}, (A, Tensor(0)), {}),
    ({"alike": False}, (A, B), {}),
    ({"same": lambda: False}, (A, B), {}),
    ({"same": lambda: 1 / 0}, (A, B), {}),
    ({"alike": ValueError("no")}, (A, B), {}),
])  # fmt: skip
def test_everything_else_is_left_to_python(
    change: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    s = Setting()
    s.launch(A, B)
    s.log.clear()
    vars(s).update(change)
    s.knobs.set(change.get("override"))
    s.launch(*args, **kwargs)
    assert s.log == [(*args, *kwargs)]


def _array() -> np.ndarray[Any, Any]:
    return np.zeros((4, 6), np.float32)


def _again(s: Setting, *args: Any) -> list[Any]:
    """What becomes of a launch on arguments after one on them was bound."""
    told = words_of(args, frozenset({Tensor}))
    assert told is not None
    check = s.check if any(isinstance(x, Tensor) for x in args) else None
    s.guarded[(2, 3), key_of(told[0])] = seen(check, s.run, "epoch", *told)
    s.launch(*args)
    s.launch(*args)
    found, s.log = s.log, []
    return found


def test_arrays_and_what_cannot_change() -> None:
    s, x, y = Setting(), _array(), _array()[:, ::2]
    for args in (
        (x, y),
        (x, None, y.T, True),
        (x, A, y),
        (np.zeros(()), np.zeros((0, 3))),
        (x, A, None),
    ):
        assert _again(s, *args) == ["again"] * 2
    s.alike = False
    s.launch(x, A, None)
    assert s.log == [(x, A, None)]


@pytest.mark.parametrize("change", [
    lambda x: x[:3], lambda x: x[:, 1:], lambda x: x[::-1], lambda x: x.T.reshape(4, 6), lambda x: x.reshape(6, 4),
    lambda x: x.view(np.int32), lambda x: x.astype(np.float64), lambda x: x.copy(), lambda x: x[None],
    lambda x: x.view(x.dtype.newbyteorder()), lambda x: np.lib.stride_tricks.as_strided(x, (4, 6), (24, 0)),
    lambda x: x.view(np.matrix), lambda x: x.tolist(), lambda x: None,
])  # fmt: skip
def test_other_arrays_are_left_to_python(change: Any) -> None:
    s, x, y = Setting(), _array(), _array()
    assert _again(s, x, y, 1) == ["again"] * 2
    other = change(x)
    s.launch(other, y, 1)
    s.launch(x, y, other)
    assert len(s.log) == 2 and "again" not in s.log


def test_an_array_that_was_changed_is_another() -> None:
    s, x = Setting(), _array()
    assert _again(s, x) == ["again"] * 2
    x.flags.writeable = False
    s.launch(x)
    x.flags.writeable = True
    x.resize((3, 8), refcheck=False)
    s.launch(x)
    x.resize((4, 6), refcheck=False)
    s.launch(x)
    assert [each == "again" for each in s.log] == [False, False, True]


def test_more_words_than_are_read_are_left_to_python() -> None:
    s = Setting()
    many = tuple(np.zeros((1,) * 20) for _ in range(4))
    assert _again(s, *many[:2]) == ["again"] * 2
    assert _again(s, *many) == [many] * 2


def test_errors_of_a_launch_are_raised() -> None:
    s = Setting()

    def fail() -> None:
        raise KeyError("launch")

    s.guarded[(2, 3), key_of((10, 20))] = seen(s.check, fail, "epoch", (10, 20))
    with pytest.raises(KeyError, match="launch"):
        s.launch(A, B)


def test_references_are_given_back() -> None:
    s = Setting()
    a, b, lost, x = Tensor(10), Tensor(20), Tensor(-1), _array()
    assert _again(s, x, a) == ["again"] * 2
    held = (
        a,
        b,
        lost,
        x,
        x.dtype,
        s.guarded,
        s.guarded[(2, 3), key_of((10, 20))],
        s.knobs,
        s.bound,
    )
    s.launch(a, b)  # its slot holds it from here on
    gc.collect()
    before = [sys.getrefcount(x) for x in held]
    for _ in range(2000):
        s.launch(a, b)
        s.launch(b, lost)
        s.launch(b, a)
        s.launch(x, a)
        s.launch(x, b)
    s.log.clear()
    gc.collect()
    assert [sys.getrefcount(x) for x in held] == before


@tw.kernel
def doubled(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    tw.store_tile(x + x, tw.init_tile(Y, [0, 0], (4, 8)))


def test_threads_that_launch_while_native_code_is_made():
    """The native function of a held launch was made by each thread, and freed under another that was in it."""
    kernel = doubled.options(target="cpu", num_threads=1)
    x, wrong = np.arange(32, dtype=np.float32).reshape(4, 8), list[int]()

    def launches(held: Any) -> None:
        for _ in range(60):
            y = np.full_like(x, np.nan)
            held(x, y)
            wrong.extend(np.flatnonzero(y != 2 * x))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            kernel.__dict__.pop("launcher", None)
            kernel._repeaters.clear()  # pyright: ignore[reportPrivateUsage]
            held = kernel[1]
            threads = [threading.Thread(target=launches, args=(held,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@tw.kernel
def filled(X, Y, scale, BM: tw.constexpr = 2):
    i = tw.program_id(0) * BM
    tw.store_tile(tw.load_tile(tw.init_tile(X, [i], (BM,))) * scale, tw.init_tile(Y, [i], (BM,)))


@pytest.mark.parametrize("at_once", [True, False], ids=["one launch", "a grid each time"])
def test_constexprs_by_name_and_grids_that_are_computed_are_known_again(at_once: bool) -> None:
    """What the grid's function reads may change, constexprs that compare equal are not the same, and arrays
    may be named: every launch must be the one that was asked for."""
    x, y = np.arange(1, 9, dtype=np.float32), np.empty(8, np.float32)
    rows = [8]

    def grid(BM: int) -> int:
        return rows[0] // BM

    kernel = filled.options(target="cpu", num_threads=1)
    held = kernel[grid]
    before = kernel.launcher._hits
    for turn in range(40):
        rows[0] = 8 if turn % 3 else 4
        scale = float(turn % 3)
        launch = held if at_once else kernel[lambda BM: rows[0] // BM]
        y[:] = -1
        match turn % 4:
            case 0:
                launch(x, y, scale)
            case 1:
                launch(x, y, scale, BM=4)
            case 2:
                launch(x, scale=scale, Y=y)
            case _:
                kernel[rows[0] // 2](x, y, scale, BM=2)
        n = rows[0]
        np.testing.assert_array_equal(y[:n], x[:n] * np.float32(scale))
        assert (y[n:] == -1).all()
    for _ in range(3):
        held(x, y, 2.0, BM=4)
    assert kernel.launcher._hits > before


def test_threads_that_compile_at_once_get_one_code(monkeypatch):
    """The other's would be freed while functions of it run."""
    both = threading.Barrier(2)

    class Late(Functions):
        def __init__(self, text: str):
            both.wait()
            super().__init__(text)

    monkeypatch.setattr(pyfunction, "Functions", Late)
    text = "define ptr @late(ptr %self, ptr %arguments, i64 %n) { ret ptr %self }"
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(compiled, [text] * 2)
    assert first is second is compiled(text)


def test_threads_that_make_a_function_at_once_share_what_python_reads_of_it(monkeypatch):
    both, made = threading.Barrier(2), pyfunction._MethodDef

    def late(*fields: Any) -> Any:
        both.wait()
        return made(*fields)

    monkeypatch.setattr(pyfunction, "_MethodDef", late)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: pyfunction._method("late", 1, FAST), range(2))
    assert first is second
