"""tune --scheduler: a search that two workers share."""

from __future__ import annotations

from statistics import median

import pytest

from tilewright.runtime.contest import Candidate
from tilewright.tools.shared_search import Task, _merged

TRIES = ["--try", "BM=8,16,32", "BN=32,64"]
ARGS = ["--args", "f32[40,64]", "f32[40,64]", "2.0"]


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes behind a scheduler."""
    distributed = pytest.importorskip("distributed", reason="tilewright[cluster] is not installed")
    local = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    with local:
        yield local.scheduler_address


def test_two_workers_share_a_search(tilewright, kernels, cluster):
    done = tilewright(
        "tune", f"{kernels}:scaled", *ARGS, *TRIES, "--budget", "8", "--scheduler", cluster
    )
    assert done.code == 0 and "kept in" in done.out, done.err
    assert all(f"BM={m} BN={n}" in done.out for m in (8, 16, 32) for n in (32, 64))


def test_what_a_worker_cannot_do_is_told(tilewright, kernels, cluster):
    text = kernels.read_text()
    kernels.write_text(f"import os\nassert os.environ.get('HERE')\n{text}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERE", "1")
        command = ["tune", f"{kernels}:scaled", *ARGS, *TRIES, "--budget", "2"]
        done = tilewright(*command, "--scheduler", cluster)
    assert done.code == 1 and "no worker measured anything" in done.err
    assert "AssertionError" in done.err and "Traceback" not in done.err


def test_nobody_answers(tilewright, kernels):
    pytest.importorskip("distributed", reason="tilewright[cluster] is not installed")
    address = "tcp://127.0.0.1:9"
    done = tilewright("tune", f"{kernels}:scaled", *ARGS, *TRIES, "--scheduler", address)
    assert done.code != 0 and f"no dask scheduler answers at {address}" in done.err


def test_another_version_measures_nothing():
    assert "0.0.1" in str(Task("a.py", "", "k", {}, version="0.0.1").measured([], 1.0))


def test_times_are_compared_beside_the_first():
    """The second worker is half as fast: its 6 are the first worker's 3."""
    first, fast, slow = ({"BM": n} for n in (1, 2, 3))
    here = [Candidate(first, seconds=[4.0, 4.0]), Candidate(fast, seconds=[2.0])]
    there = [Candidate(first, seconds=[8.0]), Candidate(slow, seconds=[12.0, 10.0, 14.0])]
    merged = _merged(here[0], [here, there])
    assert [c.constexprs for c in merged] == [fast, first, slow]
    assert [median(c.seconds) / median(merged[1].seconds) for c in merged] == [0.5, 1.0, 1.5]
