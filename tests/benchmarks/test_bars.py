"""The bars: which one a case has, for how many threads, and what the geometric mean is taken over."""

from __future__ import annotations

from benchmarks.bars import BARS, judged, main, markdown, means, of
from benchmarks.suites import SUITES
from benchmarks.suites.layers import drawn
from tilewright.tools.measure import Case, Contender, Measured, MeasuredRow


def row(name: str, threads: int, ratio: float) -> MeasuredRow:
    def nothing() -> None: ...

    case = Case(name, [Contender("tilewright", nothing)], 1.0, "GFLOP/s", threads)
    ours = Measured("tilewright", 1e-3, 1e-3, 1e-3, 1e3, 1.0)
    return MeasuredRow(
        case, [ours, Measured("torch", 1e-3 * ratio, 1e-3, 1e-3, 1e3 / ratio, ratio)]
    )


def test_every_bar_is_of_a_suite_and_has_a_bound_for_each_number_of_threads():
    for bar in BARS:
        assert bar.suite in SUITES and len(bar.bounds) == 3


def test_bounds_are_those_of_the_next_lower_number_of_threads():
    assert [of((1.0, 2.0, 3.0), n) for n in (1, 2, 8, 16, 64)] == [1.0, 2.0, 2.0, 3.0, 3.0]


def test_the_mean_is_taken_per_suite_and_threads():
    rows = [
        row("gemm f32 1x4096x4096 nn", n, ratio) for n, ratio in ((1, 0.5), (1, 2.0), (16, 4.0))
    ]
    found = []
    for each in rows:
        verdict = judged(each, "cpu-ragged")
        assert verdict is not None
        found.append((verdict[0], each, verdict[1]))
    assert judged(rows[0], "cpu-gemm") is None
    mean = means(found)
    assert abs(mean["cpu-ragged gemm, 1 threads"][0] - 1.0) < 1e-12
    assert "NOT met" in mean["cpu-ragged gemm, 1 threads"][1]
    assert "NOT met" not in mean["cpu-ragged gemm, 16 threads"][1]
    assert markdown(found).count("**not met**") == 1


def test_it_measures_and_prints(capsys):
    main(
        [
            "--only",
            "cpu-gemm",
            "cpu-shapes",
            "pool",
            "--threads",
            "1",
            "--rounds",
            "1",
            "--sizes",
            "64",
            "--against",
            "numpy",
        ]
    )
    text = capsys.readouterr().out
    assert text.count("gemm bf16 64x64x64 nn") == 2 and "launch on the pool, asleep" in text


def test_drawn_shapes_are_the_same_for_a_seed_and_within_what_is_asked():
    shapes = list(drawn(20, 7, ("bf16", "i8"), most=2.0**36))
    assert shapes == list(drawn(20, 7, ("bf16", "i8"), most=2.0**36)) != list(drawn(20, 8))
    assert len(shapes) == 20 and max(s.flops for s in shapes) <= 2.0**36
    assert {s.layout for s in shapes if s.dtype == "i8"} == {"NT"}
