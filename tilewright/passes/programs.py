"""Passes that take whole programs in upstream dialects, before there are kernels: `opt` knows them for every target."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.passes.pipeline import Pass, Unit
from tilewright.passes.planner import choose
from tilewright.uarch.base import GENERIC


def _bufferize(unit: Unit[Any]) -> None:
    from tilewright.passes.linalg.bufferize import bufferize

    bufferize(unit.module)


def _linalg(unit: Unit[Any]) -> None:
    from tilewright.passes.linalg.to_xetile import linalg_to_xetile

    rates = getattr(unit.machine, "rates", GENERIC)
    linalg_to_xetile(unit.module, partial(choose, rates=rates))


def _to_xetile(unit: Unit[Any]) -> None:
    from tilewright.passes.strided_memrefs import strided_memrefs
    from tilewright.passes.vector_to_xetile import vector_to_xetile

    strided_memrefs(unit.kernel)
    vector_to_xetile(unit.kernel)


def _to_vector(unit: Unit[Any]) -> None:
    from tilewright.passes.xetile_to_vector import xetile_to_vector

    xetile_to_vector(unit.kernel)


PROGRAMS: tuple[Pass[Unit[Any]], ...] = (
    Pass("bufferize", "turns tensors into memrefs, each written once", _bufferize, whole=True),
    Pass(
        "linalg-to-xetile",
        "turns structured ops into kernels over tiles, and launches of them",
        _linalg,
        whole=True,
        machine=True,
    ),
    Pass(
        "vector-to-xetile",
        "turns vector transfers into tiles, and matrix products into tile_mma",
        _to_xetile,
    ),
    Pass(
        "xetile-to-vector",
        "turns tiles into vector transfers, and tile_mma into vector.contract",
        _to_vector,
    ),
)
