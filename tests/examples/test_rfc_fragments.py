"""Each fragment of the RFCs' texts, run on every target against numpy; what docs/rfc.md says of each."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.examples import lanes
from tests.examples.documents import DOCUMENTS, lines
from tests.examples.fragments import (
    FILES,
    ONE,
    RFC,
    TARGETS,
    alone,
    case,
    comment,
    compare,
    names,
    state,
)
from tilewright import reference
from tilewright.dialects.text import print_module
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.passes.xegpu.upgrade import upgrade

PAGE = Path(__file__).parents[2] / "docs" / "rfc.md"
FRAGMENTS = [(file, name) for file in FILES for name in names(file)]


@pytest.mark.parametrize(("file", "name"), FRAGMENTS)
def test_in_todays_xegpu(file: str, name: str):
    module = alone(file, name)
    if file.startswith("xetile"):
        xetile_to_xegpu(module)
        assert "xetile." not in print_module(module)
    upgrade(module)
    args, pairs = case(file, name)
    reference.run(module, ONE, args, kernel=name)
    compare(pairs, "as today's XeGPU")


def test_every_file_is_run():
    assert {path.name for path in RFC.glob("*_fragments.mlir")} == set(FILES)


@cache
def _rows(document: str) -> dict[tuple[str, str], list[str]]:
    """The cells of a document's table, by file and fragment."""
    section = PAGE.read_text().partition(f"<!-- {document} -->")[2].partition("<!-- end")[0]
    found = re.findall(r"^\| (.*?) \| `(.*?)` \| `(.*?)` \| (.*) \|$", section, flags=re.M)
    return {
        (f"{file}_fragments.mlir", name): [
            numbers,
            *(cell.strip() for cell in rest.split(" | ")[-len(TARGETS) :]),
        ]
        for numbers, name, file, rest in found
    }


def _check(file: str, name: str, target: str) -> None:
    """The page's tables, made by docs/make_rfc.py, have a cell for each; refusals are told below them."""
    said = state(file, name, target).partition(": ")[0]
    places, _ = comment(file, name)
    for document in DOCUMENTS:
        if numbers := lines(places, document):
            where, *cells = _rows(document)[file, name]
            assert (where, cells[TARGETS.index(target)]) == (numbers, said)


DG2 = TARGETS[-1]
LONG = [(file, name) for file, name in FRAGMENTS if FILES[file] is not lanes]
"""For a machine with registers of half the size tiles of 64 KiB are cut: some take ten seconds."""
ALL = [(file, name, target) for file, name in FRAGMENTS for target in TARGETS]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("file", "name", "target"), [e for e in ALL if e[2] != DG2 or e[:2] not in LONG]
)
def test_every_target(file: str, name: str, target: str):
    _check(file, name, target)


@pytest.mark.parametrize(("file", "name"), LONG)
def test_dg2(file: str, name: str):
    _check(file, name, DG2)
