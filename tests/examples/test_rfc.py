"""The RFCs' programs give what they compute: as written, in today's text, bridged, and compiled."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.draws import fresh_seed

RFC = Path(__file__).parents[2] / "examples/rfc"
SIZE = 512


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rfc_run", RFC / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUN = runner()
XEGPU = [name for name in RUN.PROGRAMS if name.startswith("xegpu")]
XETILE = [name for name in RUN.PROGRAMS if name.startswith("xetile")]


def check(name: str, *through: str, target: str = "reference") -> None:
    assert RUN.error_of(name, SIZE, fresh_seed(), through, target) < 1e-5


def test_every_program_of_the_folder_is_run():
    names = {p.stem for p in RFC.glob("*.mlir") if not p.stem.endswith("_fragments")}
    assert names == set(RUN.PROGRAMS)


@pytest.mark.parametrize("name", RUN.PROGRAMS)
def test_as_written(name: str):
    check(name)


@pytest.mark.parametrize("name", XEGPU)
def test_in_todays_text(name: str):
    check(name, "xegpu-upgrade")


@pytest.mark.parametrize("name", XETILE)
def test_xetile_as_xegpu_and_back(name: str):
    check(name, "xetile-to-xegpu", "xegpu-to-xetile")


@pytest.mark.parametrize("name", XEGPU)
def test_compiled_for_the_cpu(name: str):
    check(name, target="cpu")
