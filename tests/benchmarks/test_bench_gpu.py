"""The GPU suites' bookkeeping, which needs no GPU: what is timed, what is told as failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.suites import Settings, gpu_passes
from benchmarks.suites.gpu_passes import Subject, without_each
from tilewright.diagnostics import UnsupportedError
from tilewright.tools.measure import Case, MeasuredRow

TORCH = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))


class Kernel:
    """Stands for a compiled kernel: `bad` passes cannot be left out, `wrong` ones change the result."""

    def __init__(self, bad: str = "", wrong: str = ""):
        self.bad, self.wrong = bad, wrong
        self.last: dict[str, Any] = {}

    def run(self, options: dict[str, Any]) -> None:
        self.last = options
        if self.bad in options.get("disable", ()):
            raise UnsupportedError(f"no shared memory without {self.bad}")

    def error(self) -> float:
        return 1.0 if self.wrong in self.last.get("disable", ()) else 1e-3


@pytest.fixture
def timed(monkeypatch) -> list[Case]:
    cases: list[Case] = []

    def record(case: Case, rounds: int) -> MeasuredRow:
        cases.append(case)
        return MeasuredRow(case, [])

    monkeypatch.setattr(gpu_passes, "measure_gpu", record)
    return cases


def test_a_contender_for_every_pass(timed):
    kernel = Kernel()
    subject = Subject(
        "product",
        kernel.run,
        kernel.error,
        1.0,
        ("multi-buffering", "warp-specialization"),
        "sm_80",
    )
    assert len(list(without_each(TORCH, subject, Settings()))) == 1
    (case,) = timed
    assert [c.name for c in case.contenders] == [
        "tilewright",
        "without multi-buffering",
        "without warp-specialization",
    ]
    seen = []
    for contender in case.contenders:
        contender.run()
        seen.append(kernel.last)
    assert seen == [
        {"target": "sm_80"},
        {"target": "sm_80", "disable": ("multi-buffering",)},
        {"target": "sm_80", "disable": ("warp-specialization",)},
    ]


def test_what_is_refused_or_wrong_is_told_and_not_timed(timed):
    kernel = Kernel(bad="multi-buffering", wrong="warp-specialization")
    subject = Subject(
        "product",
        kernel.run,
        kernel.error,
        1.0,
        ("multi-buffering", "warp-specialization", "k-coarsening"),
    )
    *told, _ = without_each(TORCH, subject, Settings())
    assert [row.case.name for row in told] == [
        "product without multi-buffering: no shared memory without multi-buffering",
        "product without warp-specialization: wrong by 1.00e+00",
    ]
    assert [c.name for c in timed[0].contenders] == ["tilewright", "without k-coarsening"]


def test_nothing_is_timed_beside_a_wrong_result(timed):
    kernel = Kernel()
    subject = Subject("product", kernel.run, lambda: 1.0, 1.0, ("multi-buffering",))
    assert len(list(without_each(TORCH, subject, Settings()))) == 2 and not timed
