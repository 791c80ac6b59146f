"""Knobs: from the environment, overridden for a while, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tilewright import TilewrightError, knobs


def test_from_environment():
    found = knobs.from_environment({
        "TILEWRIGHT_TARGET": "reference", "TILEWRIGHT_NUM_THREADS": "3", "TILEWRIGHT_CACHE": "0",
        "TILEWRIGHT_CACHE_DIR": "/x", "TILEWRIGHT_CACHE_SIZE": "5M", "TILEWRIGHT_TIME_LIMIT": "7",
        "TILEWRIGHT_TRACEBACK": "1", "TILEWRIGHT_PRINT_LINES": "0", "UNRELATED": "?",
        "TILEWRIGHT_CPU": "avx2",
    })  # fmt: skip
    assert found == knobs.Knobs("reference", 3, False, Path("/x"), 5 << 20, 7, True, "avx2", 0)
    assert knobs.from_environment({"TILEWRIGHT_NUM_THREADS": ""}) == knobs.Knobs()


@pytest.mark.parametrize("name, value", [
    ("NUM_THREADS", "0"), ("NUM_THREADS", "many"), ("CACHE", "perhaps"), ("CACHE_SIZE", "1X"),
    ("CACHE_SIZE", "-1"), ("CACHE_SIZE", "M"), ("CPU", "mmx"),
])  # fmt: skip
def test_values_that_are_none(name, value):
    with pytest.raises(TilewrightError, match=f"TILEWRIGHT_{name}={value!r}"):
        knobs.from_environment({f"TILEWRIGHT_{name}": value})


def test_override_nests_and_ends():
    before = knobs.current()
    with knobs.override(num_threads=2):
        with knobs.override(cache=False) as inner:
            assert knobs.current() is inner
            assert (inner.num_threads, inner.cache) == (2, False)
        assert knobs.current().cache == before.cache
        with pytest.raises(ZeroDivisionError), knobs.override(num_threads=7):
            raise ZeroDivisionError
        assert knobs.current().num_threads == 2
    assert knobs.current() == before


def test_override_is_of_this_thread():
    seen = []
    with knobs.override(num_threads=77):
        worker = threading.Thread(target=lambda: seen.append(knobs.current().num_threads))
        worker.start()
        worker.join()
    assert seen != [77]


def test_knobs_that_do_not_exist():
    with pytest.raises(TilewrightError, match="speed"), knobs.override(speed="high"):
        pass


@pytest.mark.parametrize("name, value", [
    ("num_threads", 0), ("num_threads", 2.5), ("cpu", "avx9"), ("cache", None), ("cache", 7), ("cache_size", -1),
])  # fmt: skip
def test_overrides_that_are_none(name, value):
    with (
        pytest.raises(TilewrightError, match=f"{name}={value!r} is not"),
        knobs.override(**{name: value}),
    ):
        pass


def test_overrides_are_written_as_variables_are():
    with knobs.override(cache_size="5M", cache_dir="/x", num_threads=None, cache=0) as found:
        assert (
            found.cache_size == 5 << 20 and found.cache_dir == Path("/x") and found.cache is False
        )


def test_every_knob_is_described():
    assert all(meaning for _, _, meaning in knobs.describe())
    assert knobs.Knobs(cache_dir=Path("/y")).cache_path == Path("/y")
