"""Writes the tables of rfc.md: where the RFCs' texts have each fragment, and what becomes of it on every target.

python docs/make_rfc.py          writes the tables, in some minutes
python docs/make_rfc.py --check  exits with 1 when one is not up to date
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import redirect_stdout
from functools import cache
from io import StringIO

from generated import DOCS, filled, main

sys.path.insert(0, str(DOCS.parent))

from tests.examples.documents import DOCUMENTS, OTHERS, first, lines
from tests.examples.fragments import FILES, TARGETS, comment, names, state

PAGE = DOCS / "rfc.md"
END = "<!-- end of fragments -->"


@cache
def told(file: str, name: str, target: str) -> str:
    with redirect_stdout(StringIO()):  # the seeds of random numbers
        return state(file, name, target)


def table(document: str) -> str:
    """A document's lines in their order: the fragment that has them, or what else stands for them."""
    columns = ("lines", "fragment", "of", "shows", *TARGETS)
    rows: list[tuple[int, str]] = []
    refused: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for name in names(file):
            places, shows = comment(file, name)
            if not (numbers := lines(places, document)):
                continue
            cells: list[str] = []
            for target in TARGETS:
                said, _, why = told(file, name, target).partition(": ")
                cells.append(said)
                if why:
                    refused[f"{target}: {why.replace(f'@{name}', 'it')}"].append(f"`{name}`")
            of = file.removesuffix("_fragments.mlir")
            row = " | ".join((numbers, f"`{name}`", f"`{of}`", shows, *cells))
            rows.append((first(numbers), f"| {row} |"))
    for numbers, what in OTHERS[document]:
        rows.append((first(numbers), f"| {numbers} | | | {what} |{' |' * len(TARGETS)}"))
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    notes = [f"- {why}: {', '.join(each)}" for why, each in sorted(refused.items())]
    lost = sum(map(len, refused.values()))
    if asked := len(TARGETS) * (len(rows) - len(OTHERS[document])):
        notes.insert(0, f"{asked - lost} of {asked} run.\n")
    ordered = [row for _, row in sorted(rows, key=lambda row: row[0])]
    return "\n".join([*head, *ordered, *(["", *notes] if notes else [])])


if __name__ == "__main__":
    page = PAGE.read_text()
    for each in DOCUMENTS:
        page = filled(page, f"<!-- {each} -->\n", f"\n{table(each)}\n\n", END)
    sys.exit(main({PAGE: page}))
