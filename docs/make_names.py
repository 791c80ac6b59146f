"""Writes the table of names in docs/from-triton.md, from the one that error messages use.

python docs/make_names.py          writes the table
python docs/make_names.py --check  exits with 1 when it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.lang.elsewhere import TABLES

PAGE = Path(__file__).parent / "from-triton.md"
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


def main() -> int:
    page = PAGE.read_text()
    head, _, rest = page.partition(START)
    text = f"{head}{START}\n{tables()}\n{END}{rest.partition(END)[2]}"
    if "--check" in sys.argv[1:]:
        if page != text:
            print(f"{PAGE.name} is not up to date: run python docs/make_names.py", file=sys.stderr)
        return int(page != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
