"""Writes the tables of rfc.md: what becomes of each fragment of the RFCs' texts on every target.

python docs/make_rfc.py          writes the tables, in some minutes
python docs/make_rfc.py --check  exits with 1 when one is not up to date
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO

from generated import DOCS, filled, main

sys.path.insert(0, str(DOCS.parent))

from tests.examples.fragments import FILES, TARGETS, shows, state

PAGE = DOCS / "rfc.md"
END = "<!-- end of fragments -->"


def table(file: str) -> str:
    rows = [f"| fragment | shows | {' | '.join(TARGETS)} |", f"|---|---|{'---|' * len(TARGETS)}"]
    refusals: list[str] = []
    for name in FILES[file]():
        cells: list[str] = []
        for target in TARGETS:
            with redirect_stdout(StringIO()):  # the seeds of random numbers
                said, _, why = state(file, name, target).partition(": ")
            cells.append(said)
            refusals += [f"- `{name}`, {target}: {why}"] if why else []
        rows.append(f"| `{name}` | {shows(file, name)} | {' | '.join(cells)} |")
    return "\n".join([*rows, *(["", *refusals] if refusals else [])])


if __name__ == "__main__":
    page = PAGE.read_text()
    for each in FILES:
        page = filled(page, f"<!-- {each} -->\n", f"\n{table(each)}\n\n", END)
    sys.exit(main({PAGE: page}))
