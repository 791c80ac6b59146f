"""Which cases of a test function run: as many as take half a second, one at least, drawn by the seed.

`durations.json` says what a case of a function takes, in seconds on the machine of the `make durations` that ran it
last; of functions that it does not know, all cases run. `--quick` runs what takes a tenth of a second, and leaves out
functions of which not one case does. TILEWRIGHT_EVERY_CASE=1, a test's own id on the command line and the mark `whole`
(its cases are no samples: the pages of the docs, say) run all.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.draws import drawn

TABLE = Path(__file__).with_name("durations.json")
SECONDS = 0.5
QUICK = 0.1
SHORT = 0.01
"""Seconds of a case below which the table does not say them."""


def function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def left_out(items: Sequence[pytest.Item], quick: bool) -> set[pytest.Item]:
    """The tests that do not run."""
    if os.environ.get("TILEWRIGHT_EVERY_CASE") == "1":
        return set()
    seconds: dict[str, float] = json.loads(TABLE.read_text())
    functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[function_of(item.nodeid)].append(item)
    left: set[pytest.Item] = set()
    for name, cases in functions.items():
        each = seconds.get(name, SHORT)
        if quick:
            count = int(QUICK / each)
        elif cases[0].get_closest_marker("whole") is None:
            count = max(1, int(SECONDS / each))
        else:
            continue
        if len(cases) > count:
            # The values of parameters have names in the ids, in one order for all cases.
            named = [
                (c.nodeid, c.callspec._idlist if hasattr(c, "callspec") else []) for c in cases
            ]  # pyright: ignore
            kept = drawn(named, count)
            left |= {case for case in cases if case.nodeid not in kept}
    return left


class Recorder:
    """Brings the table up to date at the end of a run: the mean of each function's cases, of those that were run."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, defaultdict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self.spent[function_of(report.nodeid)][report.nodeid] += report.duration
        else:
            self.spent.pop(function_of(report.nodeid), None)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        means = {name: sum(cases.values()) / len(cases) for name, cases in self.spent.items()}
        table = json.loads(TABLE.read_text()) | {
            name: round(mean, 3) for name, mean in means.items()
        }
        kept = {name: table[name] for name in sorted(table) if table[name] > SHORT}
        TABLE.write_text(json.dumps(kept, indent=0) + "\n")
