"""Writes the tables of passes in the pages of the targets, from the lists that run.

python docs/make_passes.py          writes the tables
python docs/make_passes.py --check  exits with 1 when one is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from generated import DOCS, filled, main

from tilewright.passes.pipeline import CLEANUP, Pipeline
from tilewright.passes.xegpu.pipeline import IMEX
from tilewright.targets.base import pipelines

START, END = "<!-- passes, from the target's list -->\n", "<!-- end of passes -->"
BY_NAME, NAMED = DOCS / "xetile.md", "<!-- passes by their names in IMEX -->\n"
PAGES = {
    "cpu": "cpu-target.md",
    "cuda": "cuda-target.md",
    "emu": "emu-target.md",
    "xe": "tile-to-instruction.md",
}


def table(pipeline: Pipeline[Any]) -> str:
    """A row for every pass in order, and for what can be left out of one."""
    rows = ["| pass | what it does | stage behind it | left out by |", "|---|---|---|---|"]
    for n, each in enumerate(pipeline.passes):
        if each in pipeline.passes[:n] and each is CLEANUP:
            continue  # one row says it for all
        following = pipeline.passes[n + 1].stage if n + 1 < len(pipeline.passes) else ""
        own = next(iter(each.switches)) if each.optional else ""
        rows.append(row(each.name, each.story, each.stage if each.stage != following else "", own))
        rows += [row("", story, "", name) for name, story in each.choices.items()]
    return "\n".join(rows)


def row(name: str, story: str, stage: str, switch: str) -> str:
    """One row; names are code."""
    name, stage, switch = (f"`{text}`" if text else "" for text in (name, stage, switch))
    return f"| {name} | {story} | {stage} | {switch} |"


def pages() -> dict[Path, str]:
    """The text of the page of each target."""
    found: dict[Path, str] = {}
    for pipeline in pipelines():
        page = DOCS / PAGES[pipeline.target]
        found[page] = filled(page.read_text(), START, f"\n{table(pipeline)}\n\n", END)
    rows = ["| pass | what it does | takes |", "|---|---|---|"]
    rows += [f"| `{e.name}` | {e.story} | {' or '.join(e.requires)} level |" for e in IMEX]
    text = "\n".join(rows)
    found[BY_NAME] = filled(BY_NAME.read_text(), NAMED, f"\n{text}\n\n", END)
    return found


if __name__ == "__main__":
    sys.exit(main(pages()))
