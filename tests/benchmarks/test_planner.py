"""The fastest of many tilings is found in heats; what is reported is measured afterwards."""

from __future__ import annotations

from benchmarks.suites import heats
from tilewright.tools.measure import Case, Contender, Measured, MeasuredRow


def test_those_near_the_fastest_meet_again_and_the_last_heat_decides():
    times_of = iter(
        (
            {"chosen": 1.0, "lucky": 1.0, "steady": 1.1, "far": 1.5},
            {"chosen": 1.0, "lucky": 1.2, "steady": 1.1},
        )
    )
    rounds: list[int] = []

    def measured(case: Case, asked: int) -> MeasuredRow:
        times = next(times_of)
        assert [c.name for c in case.contenders] == list(times)
        rounds.append(asked)
        return MeasuredRow(case, [Measured(n, t, t, t, 1 / t, t) for n, t in times.items()])

    contenders = [Contender(name, lambda: None) for name in ("chosen", "lucky", "steady", "far")]
    best, times = heats.fastest(Case("", contenders, 1.0, "us"), measured, 7)
    assert best is contenders[2]
    assert times == {"chosen": 1.0, "lucky": 1.2, "steady": 1.1, "far": 1.5}
    assert rounds == [heats.FIRST_ROUNDS, 7]
