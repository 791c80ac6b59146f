"""What is chosen, what a search found and the best fixed tiling meet in one measurement; times are given here."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks import sampling
from tilewright.tools.measure import Case, Measured, MeasuredRow

TIMES = {"ops": 4.0, "auto": 4.0, "library": 2.0, "one": 5.0, "two": 3.0, "tuned": 2.5}


class Problem:
    name, flops, limit = "product", 1.0, 1e-3

    def prepared(self, tiled: bool) -> sampling.Prepared:
        runs = {name: lambda: None for name in TIMES}
        tuned = SimpleNamespace(constexprs={"BM": 8}, measured=[({"BM": 8}, 1.0), ({"BM": 4}, 2.0)])
        explained = SimpleNamespace(choices=[SimpleNamespace(values={"BM": 4})], tuned=tuned)
        return sampling.Prepared(
            {name: (runs[name], lambda: 0.0) for name in ("ops", "auto")},
            {"library": runs["library"]},
            {name: runs[name] for name in ("one", "two")} if tiled else {},
            lambda seconds: (runs["tuned"], lambda: explained),
        )


def test_the_last_ones_are_measured_in_one_turn(monkeypatch):
    asked: list[list[str]] = []

    def measure(case: Case, rounds: int) -> MeasuredRow:
        names = [c.name for c in case.contenders]
        asked.append(names)
        times = [TIMES.get(name, TIMES["auto"]) for name in names]
        rows = [
            Measured(n, t, t, t, 1 / t, t / times[0]) for n, t in zip(names, times, strict=True)
        ]
        return MeasuredRow(case, rows)

    monkeypatch.setattr(sampling, "gpu_torch", lambda: None)
    monkeypatch.setattr(sampling, "captured", lambda torch, run: run)
    monkeypatch.setattr(sampling, "measure_gpu", measure)
    row = sampling.measured(Problem(), 5, True, 1.0)
    assert asked[-1] == ["two", "planner", "tuned"]
    assert row["ratios"] == {"ops": 0.5, "auto": 0.5, "planner": 3 / 4, "tuned": 3 / 2.5}
    assert row["best"] == "two" and "2 candidates" in row["search"] and "BM=8" in row["search"]
    assert "tuned" not in sampling.measured(Problem(), 5, True, 0.0)["ratios"]
