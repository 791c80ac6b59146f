"""Writes the table of ops that rearrange elements in xetile.md: each row a small kernel, compiled for every machine.

python docs/make_movement.py          writes the table
python docs/make_movement.py --check  exits with 1 when it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.movement import CASES, kernel  # noqa: E402
from tilewright.diagnostics import UnsupportedError  # noqa: E402
from tilewright.targets.base import CompileOptions, get_target  # noqa: E402

PAGE = Path(__file__).parent / "xetile.md"
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


def main() -> int:
    text = PAGE.read_text()
    head, start, rest = text.partition(START)
    assert start, f"{PAGE.name} has no place for the table"
    new = f"{head}{START}\n{table()}\n\n{END}{rest.partition(END)[2]}"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new)
    elif new != text:
        print(f"{PAGE.name} is not up to date: run python docs/make_movement.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
