"""Launches seen before, in native code: what they look up, and what they leave to Python."""

from __future__ import annotations

import gc
import sys
from contextvars import ContextVar
from typing import Any

import pytest

from tilewright.codegen.pyfunction import available
from tilewright.runtime.guards import seen
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
        self.guarded: dict[Any, Any] = {((2, 3), 10, 20): launch}
        self.same: Any = lambda: True
        watch = [lambda: self.same()]
        made = repeater(self.otherwise, self.guarded, self.knobs, self.bound, (2, 3), watch)
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
        s.guarded[(2, 3), i, 16 * i] = seen(s.check, run, "epoch", (i, 16 * i))
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
    ({}, (A, B) * 5, {}),
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


def test_errors_of_a_launch_are_raised() -> None:
    s = Setting()

    def fail() -> None:
        raise KeyError("launch")

    s.guarded[(2, 3), 10, 20] = seen(s.check, fail, "epoch", (10, 20))
    with pytest.raises(KeyError, match="launch"):
        s.launch(A, B)


def test_references_are_given_back() -> None:
    s = Setting()
    a, b, lost = Tensor(10), Tensor(20), Tensor(-1)
    held = (a, b, lost, s.guarded, s.guarded[(2, 3), 10, 20], s.knobs, s.bound)
    s.launch(a, b)  # its slot holds it from here on
    gc.collect()
    before = [sys.getrefcount(x) for x in held]
    for _ in range(2000):
        s.launch(a, b)
        s.launch(b, lost)
        s.launch(b, a)
    s.log.clear()
    gc.collect()
    assert [sys.getrefcount(x) for x in held] == before
