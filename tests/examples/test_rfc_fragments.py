"""Each fragment of the RFCs' texts, run by the reference executor against numpy; what docs/rfc.md says of targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.fragments import (
    FILES,
    TARGETS,
    compare,
    functions,
    shows,
    state,
    text_of,
    xegpu,
    xetile,
)
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.passes.xegpu.upgrade import upgrade

PAGE = Path(__file__).parents[2] / "docs" / "rfc.md"


@pytest.mark.parametrize("name", xetile())
def test_fragments_of_the_xetile_rfc(name: str):
    file = "xetile_fragments.mlir"
    module = parse_module(text_of(file), file)
    args, check = xetile()[name]
    reference.run(module, (1, 1, 1), args, kernel=name)
    compare(check(args), "as written")
    args, check = xetile()[name]
    xetile_to_xegpu(module)
    assert "xetile." not in print_module(module)
    reference.run(module, (1, 1, 1), args, kernel=name)
    compare(check(args), "as XeGPU")


@pytest.mark.parametrize("name", xegpu())
def test_fragments_of_the_xegpu_rfc(name: str):
    file = "xegpu_fragments.mlir"
    module = parse_module(text_of(file), file)
    for what in ("as written", "in today's text"):
        args, check = xegpu()[name]
        reference.run(module, (1, 1, 1), args, kernel=name)
        compare(check(args), what)
        upgrade(module)


def test_every_fragment_has_its_case():
    for file, cases in FILES.items():
        assert set(functions(parse_module(text_of(file), file))) == set(cases())
        assert all(shows(file, name) for name in cases())


FRAGMENTS = [(file, name) for file, cases in FILES.items() for name in cases()]


def check(file: str, name: str, target: str) -> None:
    """The page's table, made by docs/make_rfc.py, has a cell for each; refusals are told below it."""
    section = PAGE.read_text().partition(f"<!-- {file} -->")[2].partition("<!-- end")[0]
    row = re.search(rf"^\| `{name}` \|(.*)\|$", section, flags=re.M)
    assert row is not None
    cells = [cell.strip() for cell in row[1].split("|")][1:]
    assert state(file, name, target).partition(": ")[0] == cells[TARGETS.index(target)]


@pytest.mark.whole
@pytest.mark.parametrize("target", TARGETS[:-1])
@pytest.mark.parametrize("file, name", FRAGMENTS)
def test_every_target(file: str, name: str, target: str):
    check(file, name, target)


@pytest.mark.parametrize("file, name", FRAGMENTS)
def test_dg2(file: str, name: str):
    """Tiles of 64 KiB are cut for registers of half the size: some take ten seconds."""
    check(file, name, TARGETS[-1])
