"""Children that do pieces of work until a search ends."""

from __future__ import annotations

import os
import time

import pytest

from tests.draws import fresh_rng
from tilewright import knobs
from tilewright.runtime.compilers import FEWEST, Compilers

LATER = 60.0


@pytest.fixture(autouse=True)
def two_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with knobs.override(cache_dir=tmp_path / "cache"):
        yield


@pytest.fixture
def made(tmp_path):
    """What does a piece leaves a file; number 1 fails, and 2 ends its process."""

    def work(i: int) -> None:
        if i == 1:
            raise ValueError("this one")
        if i == 2:
            os._exit(3)
        (tmp_path / f"{i}.{os.getpid()}").touch()

    compilers = Compilers(work)
    yield compilers, lambda: sorted(int(f.stem) for f in tmp_path.glob("*.*"))
    compilers.stop()


def do(compilers: Compilers, pieces: list[int], seconds: float = LATER) -> int:
    said: list[None] = []
    compilers.do(pieces, time.perf_counter() + seconds, lambda: said.append(None))
    return len(said)


def test_all_is_done_by_the_same_children(made, tmp_path):
    compilers, found = made
    rng = fresh_rng()
    first, second = ([int(i) for i in rng.permutation(range(a, a + 9))] for a in (10, 30))
    assert do(compilers, first) >= 9 and found() == sorted(first)
    do(compilers, second)
    assert found() == sorted(first + second)
    processes = {f.suffix for f in tmp_path.glob("*.*")}
    assert len(processes) <= 2 and f".{os.getpid()}" not in processes


def test_what_fails_or_dies_does_not_keep_the_others_waiting(made):
    compilers, found = made
    do(compilers, [1, 11, 2, 12, 13, 14])
    assert found() == [11, 12, 13, 14]
    do(compilers, [2, 15, 16])
    do(compilers, [17, 18, 19])  # nobody is left
    assert set(found()) <= {11, 12, 13, 14, 15, 16}


def test_nothing_is_started_for_little_work_or_too_late(made):
    compilers, found = made
    do(compilers, list(range(10, 9 + FEWEST)))
    do(compilers, [10, 11, 12, 13], seconds=-1.0)
    with knobs.override(cache=False):
        do(compilers, [10, 11, 12, 13])
    assert found() == []
