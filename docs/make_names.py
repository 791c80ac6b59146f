"""Writes the table of names in docs/from-triton.md, from the one that error messages use.

python docs/make_names.py          writes the table
python docs/make_names.py --check  exits with 1 when it is not up to date
"""

from __future__ import annotations

import sys

from generated import DOCS, filled, main

from tilewright.lang.elsewhere import TABLES

PAGE = DOCS / "from-triton.md"
START, END = "from tilewright/lang/elsewhere.py -->\n", "<!-- end of names -->"


def tables() -> str:
    """A table for each chapter."""
    parts: list[str] = []
    for title, names in TABLES.items():
        parts += [f"### {title}\n", "| Triton, numpy, PyTorch | Tilewright |", "|---|---|"]
        for others, answer in names.items():
            code, _, note = answer.partition(";")
            told = [f"`{code}`".replace("|", "\\|") if code else "", note.strip()]
            left = ", ".join(f"`{name}`" for name in others.split())
            parts.append(f"| {left} | {'; '.join(filter(None, told)) or 'not available'} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main({PAGE: filled(PAGE.read_text(), START, f"\n{tables()}\n", END)}))
