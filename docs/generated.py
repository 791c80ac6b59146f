"""What the scripts that write pages share: parts of a page, between two marks, and the choice to write or to check."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent


def filled(page: str, start: str, body: str, end: str) -> str:
    """The text of a page with `body` between the marks `start` and `end`, both of which it must have."""
    head, mark, rest = page.partition(start)
    _, close, tail = rest.partition(end)
    assert mark and close, f"the page has no place between {start!r} and {end!r}"
    return f"{head}{start}{body}{end}{tail}"


def main(pages: Mapping[Path, str]) -> int:
    """Writes the files; with `--check` names those that are old instead. The exit code."""
    old = [
        path
        for path, text in pages.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in old:
            print(
                f"{path.name} is not up to date: run docs/{Path(sys.argv[0]).name}", file=sys.stderr
            )
        return int(bool(old))
    for path in old:
        path.write_text(pages[path], encoding="utf-8")
    return 0
