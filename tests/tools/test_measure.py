"""Timing waits until the threads of the contender before are at rest."""

from __future__ import annotations

import threading

import pytest

from tilewright.tools.measure import Case, Contender, measure, settle


@pytest.fixture
def spinning():
    """A thread that spins, as those of BLAS libraries do after a product, until the event is set."""
    enough = threading.Event()

    def spin() -> None:
        while not enough.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    yield enough
    enough.set()
    thread.join()


def test_settle_waits_for_spinning_threads(spinning):
    assert not settle(limit=0.05)
    spinning.set()
    assert settle(limit=30)


def test_each_contender_is_timed_in_every_round():
    calls = {"ours": 0, "theirs": 0}

    def run(name: str) -> None:
        calls[name] += 1

    contenders = [Contender(name, lambda name=name: run(name)) for name in calls]
    ticks = iter(range(10**6))
    case = Case("nothing", contenders, 1.0, "us")
    row = measure(case, rounds=3, sample=1e-4, clock=lambda: float(next(ticks)))
    assert [r.seconds for r in row.results] == [1.0, 1.0]
    assert [m.name for m in row.results] == ["ours", "theirs"]
    assert row.results[0].ratio == 1
    assert all(count >= 5 for count in calls.values())
