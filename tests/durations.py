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
        if quick:
            count = int(QUICK / seconds.get(name, SHORT))
        elif name in seconds and cases[0].get_closest_marker("whole") is None:
            count = max(1, int(SECONDS / seconds[name]))
        else:
            continue
        if len(cases) > count:
            # The values of parameters have names in the ids, in one order for all cases.
            named = [
                (c.nodeid, c.callspec._idlist if hasattr(c, "callspec") else []) for c in cases
            ]
            kept = drawn(named, count)
            left |= {case for case in cases if case.nodeid not in kept}
    return left


class Recorder:
    """Brings the table up to date at the end of a run: the mean of each function's cases, of those that were run."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.ran: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.spent[report.nodeid] += report.duration
        if report.when == "call" and report.passed:
            self.ran[function_of(report.nodeid)].append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        table: dict[str, float] = json.loads(TABLE.read_text())
        for name, cases in self.ran.items():
            table[name] = round(sum(self.spent[case] for case in cases) / len(cases), 3)
        kept = {name: table[name] for name in sorted(table) if table[name] > SHORT}
        TABLE.write_text(json.dumps(kept, indent=0) + "\n")
