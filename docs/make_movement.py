"""Writes the table of ops that rearrange elements in xetile.md: each row a small kernel, compiled for every machine.

python docs/make_movement.py          writes the table
python docs/make_movement.py --check  exits with 1 when it is not up to date
"""

from __future__ import annotations

import sys

from generated import DOCS, filled, main

sys.path.insert(0, str(DOCS.parent))

from tests.movement import CASES, kernel
from tilewright.diagnostics import UnsupportedError
from tilewright.targets.base import CompileOptions, get_target

PAGE = DOCS / "xetile.md"
START = "<!-- movement, from tests/movement.py -->\n"
END = "<!-- end of movement -->"
MACHINES = {
    "cpu": ("cpu", None),
    "sm_80": ("cuda", "sm_80"),
    "sm_90a": ("cuda", "sm_90a"),
    "xe-pvc": ("xe", "pvc"),
    "xe-dg2": ("xe", "dg2"),
}


def compiles(case: str, machine: str) -> str:
    """`yes`, or why not."""
    target, chip = MACHINES[machine]
    try:
        get_target(target).build(kernel(case), CompileOptions(target=target, machine=chip))
    except UnsupportedError as error:
        return error.message
    return "yes"


def table() -> str:
    rows = [f"| op | {' | '.join(MACHINES)} |", f"|---|{'---|' * len(MACHINES)}"]
    for case in CASES:
        name, _, more = case.partition(",")
        cells = " | ".join(compiles(case, machine) for machine in MACHINES)
        rows.append(f"| `{name}`{',' if more else ''}{more} | {cells} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main({PAGE: filled(PAGE.read_text(), START, f"\n{table()}\n\n", END)}))
