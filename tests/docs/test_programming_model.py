"""docs/programming-model.md: its examples run as printed; the pictures of the docs are what layout says today."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "programming-model.md"


def test_examples():
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.REPORT_NDIFF)
    assert result.attempted >= 15 and result.failed == 0


def test_pictures_are_there_and_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    module = importlib.import_module("make_pictures")
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    named = set(re.findall(r"\(img/(\w+)\.svg\)", pages))
    assert named == {path.stem for path in module.IMAGES.glob("*.svg")}
    assert set(module.PICTURES) <= named
    for name, picture in module.PICTURES.items():
        text = (module.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
        assert text == picture().svg(), f"run docs/make_pictures.py: {name}.svg is old"


@pytest.mark.parametrize("link", re.findall(r"\]\(([\w./-]+)\)", PAGE.read_text(encoding="utf-8")))
def test_links(link: str):
    assert (DOCS / link).exists()
