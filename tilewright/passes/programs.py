"""Passes that take whole programs in upstream dialects, before there are kernels: `opt` knows them for every target."""

from __future__ import annotations

from functools import partial
from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from tilewright.passes.pipeline import Pass, Unit
from tilewright.passes.planner import choose
from tilewright.uarch.base import GENERIC


def _bufferize(module: ModuleOp) -> None:
    """Turns tensors into memrefs, each written once."""
    from tilewright.passes.linalg.bufferize import bufferize

    bufferize(module)


def _linalg(module: ModuleOp, machine: Any) -> None:
    """Turns structured ops into kernels over tiles, and launches of them."""
    from tilewright.passes.linalg.to_xetile import linalg_to_xetile

    rates = getattr(machine, "rates", GENERIC)
    linalg_to_xetile(module, partial(choose, rates=rates))


def _to_xetile(kernel: gpu.FuncOp) -> None:
    """Turns vector transfers into tiles, and matrix products into tile_mma."""
    from tilewright.passes.strided_memrefs import strided_memrefs
    from tilewright.passes.vector_to_xetile import vector_to_xetile

    strided_memrefs(kernel)
    vector_to_xetile(kernel)


def _to_vector(kernel: gpu.FuncOp) -> None:
    """Turns tiles into vector transfers, and tile_mma into vector.contract."""
    from tilewright.passes.xetile_to_vector import xetile_to_vector

    xetile_to_vector(kernel)


PROGRAMS: tuple[Pass[Unit[Any]], ...] = (
    Pass("bufferize", _bufferize, given="module"),
    Pass("linalg-to-xetile", _linalg, given="module machine"),
    Pass("vector-to-xetile", _to_xetile),
    Pass("xetile-to-vector", _to_vector),
)
