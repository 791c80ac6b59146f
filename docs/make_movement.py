"""Writes two tables of xetile.md, each row a small kernel, compiled for every machine: ops that rearrange elements, and
ops that are expanded.

python docs/make_movement.py          writes the table
python docs/make_movement.py --check  exits with 1 when it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial

from generated import DOCS, filled, main

sys.path.insert(0, str(DOCS.parent))

from xdsl.dialects.builtin import ModuleOp

from tests import movement
from tests.passes import test_expand_ops as expanded
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

PAGE = DOCS / "xetile.md"
START, END = "<!-- movement, from tests/movement.py -->\n", "<!-- end of movement -->"
SAID, END_SAID = (
    "<!-- from tests/passes/test_expand_ops.py -->\n",
    "<!-- end of expanded ops -->",
)
MACHINES = {
    "cpu": ("cpu", None),
    "sm_80": ("cuda", "sm_80"),
    "sm_90a": ("cuda", "sm_90a"),
    "xe-pvc": ("xe", "pvc"),
    "xe-dg2": ("xe", "dg2"),
}


def compiles(module: ModuleOp, machine: str) -> str:
    """`yes`, or why not."""
    target, chip = MACHINES[machine]
    try:
        build_text(module, CompileOptions(target=target, machine=chip))
    except UnsupportedError as error:
        return error.message
    return "yes"


def table(kernels: Mapping[str, Callable[[], ModuleOp]]) -> str:
    rows = [f"| op | {' | '.join(MACHINES)} |", f"|---|{'---|' * len(MACHINES)}"]
    for case, kernel in kernels.items():
        name, _, more = case.partition(",")
        cells = " | ".join(compiles(kernel(), machine) for machine in MACHINES)
        rows.append(f"| `{name}`{',' if more else ''}{more} | {cells} |")
    return "\n".join(rows)


if __name__ == "__main__":
    moves = table({case: partial(movement.kernel, case) for case in movement.CASES})
    page = filled(PAGE.read_text(), START, f"\n{moves}\n\n", END)
    said = table({case: partial(parse_module, text) for case, (text, _) in expanded.CASES.items()})
    sys.exit(main({PAGE: filled(page, SAID, f"\n{said}\n\n", END_SAID)}))
