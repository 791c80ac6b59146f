"""tune: what is explained, calibrated, and carried as a file."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tilewright import knobs
from tilewright.runtime import search
from tilewright.runtime.contest import Candidate
from tilewright.targets.base import CompileOptions, get_target
from tilewright.tools import calibrate, tune

ARGS = ["--args", "f32[40,64]", "f32[40,64]", "2.0"]


@pytest.fixture
def opened(kernels, monkeypatch):
    """A file whose kernel leaves its tile to the planner; searches are short."""
    text = kernels.read_text().replace("BM: tw.constexpr = 16", "BM: tw.constexpr = tw.auto")
    kernels.write_text(text.replace("BN: tw.constexpr = 32", "BN: tw.constexpr = tw.auto"))
    monkeypatch.setattr(search, "ROUNDS", search.LEAST_ROUNDS)
    monkeypatch.setattr(search, "MOST", 5)
    return f"{kernels}:scaled"


def test_what_is_left_open_is_searched_beside_the_planners_choice(tilewright, opened):
    done = tilewright("tune", opened, *ARGS, "--budget", "20")
    assert done.code == 0 and "the planner's choice" in done.out and "kept in" in done.out, done.err
    before = tilewright("tune", opened, *ARGS, "--explain")
    assert before.code == 0 and "us measured" in before.out and "launches take BM" in before.out
    assert "rates: assumed" in before.out


def test_many_candidates_are_not_all_listed(tilewright, opened, monkeypatch, capfdbinary):
    monkeypatch.setattr(tune, "LISTED", 2)
    done = tilewright("tune", opened, *ARGS, "--budget", "20")
    assert done.code == 0 and "3 more were measured" in done.out, done.out
    assert done.out.count("BM=") == 2
    left = [Candidate({"BM": n}, out="too large") for n in (16, 32, 64)]
    tune.show([Candidate({"BM": 8}, out="", seconds=[1.0]), *left, Candidate({"BM": 1}, out="odd")])
    told = capfdbinary.readouterr().out.decode()
    assert "BM=16, BM=32, 1 more: too large" in told and "BM=1: odd" in told


def test_the_choice_is_explained_and_drawn(tilewright, opened, tmp_path):
    picture = tmp_path / "roofline.svg"
    done = tilewright("tune", opened, *ARGS, "--roofline", picture)
    assert done.code == 0 and "estimated:" in done.out and "measured" not in done.out, done.err
    texts = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")]
    assert "estimated" in texts and "measured" not in texts and "memory" in texts
    tilewright("tune", opened, *ARGS, "--budget", "20")
    assert tilewright("tune", opened, *ARGS, "--roofline", picture).code == 0
    assert ">measured<" in picture.read_text()


def test_a_kernel_for_a_gpu_is_drawn_without_one(tilewright, opened, tmp_path):
    picture = tmp_path / "roofline.svg"
    done = tilewright("tune", opened, *ARGS, "--target", "sm_90a", "--roofline", picture)
    assert done.code == 0 and "PTX for sm_90a" in done.out, done.err
    assert "operations per byte" in picture.read_text()


def test_a_copy_has_no_roofline(tilewright, opened, kernels, tmp_path):
    kernels.write_text(kernels.read_text().replace("x * s", "x"))
    done = tilewright("tune", opened, *ARGS, "--roofline", tmp_path / "roofline.svg")
    assert done.code == 1 and "computes nothing" in done.err


def test_what_cannot_run_here_cannot_be_searched(tilewright, opened):
    if get_target("cuda").missing() is None:
        pytest.skip("there is a GPU")
    done = tilewright("tune", opened, *ARGS, "--target", "cuda")
    assert done.code == 3 and "cannot run here" in done.err and "--explain" in done.err


def test_a_machine_is_calibrated(tilewright, monkeypatch):
    for name, size in (("COPIED", 1 << 16), ("NEAR", 1 << 14), ("MOST", 4)):
        monkeypatch.setattr(calibrate, name, size)
    monkeypatch.setattr(search, "ROUNDS", search.LEAST_ROUNDS)
    with knobs.override(num_threads=1):
        options = CompileOptions(num_threads=1)
        table = get_target("cpu").rates(options)
        done = tilewright("tune", "--calibrate", "--budget", "5")
        assert done.code == 0 and "memory_bytes" in done.out, done.err
        found = get_target("cpu").rates(options)
        monkeypatch.setattr(calibrate, "measured", lambda *_: {})
        done = tilewright("tune", "--calibrate", "--budget", "0.000001")
        assert done.code == 0 and "longer than the 1e-06 s of --budget" in done.err
    assert found.origin == "measured here" != table.origin and found.cores == table.cores
    sizes = [found.flops(size) for size in (1, 2, 4)]
    rates = [found.memory_bytes, found.shared_bytes, found.elementwise_bytes, found.op_seconds]
    assert all(rate > 0 for rate in (*sizes, *rates, found.launch_seconds))


def test_results_travel_as_a_file(tilewright, opened, tmp_path):
    tilewright("tune", opened, *ARGS, "--budget", "20")
    file = tmp_path / "shared"
    done = tilewright("tune", "--export", file)
    assert done.code == 0 and "1 records are in" in done.out
    with knobs.override(cache_dir=tmp_path / "other"):
        assert "measured" not in tilewright("tune", opened, *ARGS, "--explain").out
        done = tilewright("tune", "--import", file)
        assert done.code == 0 and "1 records" in done.out and not done.err, done.err
        assert "us measured" in tilewright("tune", opened, *ARGS, "--explain").out
        file.write_bytes(file.read_bytes()[:-1])
        done = tilewright("tune", "--import", file)
        assert done.code == 1 and "damaged" in done.err


def test_tune_needs_something_to_do(tilewright, tmp_path):
    done = tilewright("tune")
    assert done.code == 2 and "--calibrate" in done.err
    assert tilewright("tune", "--import", tmp_path / "missing").code == 1
