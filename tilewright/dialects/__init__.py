"""Dialects: ours (xetile, ...) and what stock xDSL lacks of the upstream ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import import_module

from tilewright.frozen import shared_functions

with shared_functions():
    from xdsl.context import Context
    from xdsl.dialects import get_all_dialects
    from xdsl.ir import Dialect

    # The one before the other, which loads dialects.
    from tilewright.dialects import formats, upstream

# Our dialects and the modules that define them. One line adds one.
OWN_DIALECTS: dict[str, str] = {
    "index": "tilewright.dialects.upstream.index",
    "spirv": "tilewright.dialects.upstream.spirv",
    "xevm": "tilewright.dialects.upstream.spirv",
    "xetile": "tilewright.dialects.xetile",
    "xegpu": "tilewright.dialects.xegpu",
    "stage": "tilewright.dialects.stage",
    "tgraph": "tilewright.dialects.tgraph",
    "tw": "tilewright.dialects.tw",
    "mach": "tilewright.dialects.mach",
}

upstream.complete()


def _loader(name: str, module: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        contents = vars(import_module(module)).values()
        return next(each for each in contents if isinstance(each, Dialect) and each.name == name)

    return load


def own_dialects() -> dict[str, Callable[[], Dialect]]:
    """Factories of the dialects that Tilewright defines, by name; each imports when called."""
    return {
        name: _loader(name, module)
        for name, module in OWN_DIALECTS.items()
        if importlib.util.find_spec(module) is not None
    }


def make_context(allow_unregistered: bool = False) -> Context:
    """A context with every dialect registered; each is imported when text first names it."""
    context = Context(allow_unregistered=allow_unregistered)
    for name, factory in {**get_all_dialects(), **COMPLETED, **own_dialects()}.items():
        context.register_dialect(name, factory)
    return context


def complete_linalg() -> Dialect:
    from tilewright.dialects.upstream import linalg

    return linalg.complete()


def complete_tensor() -> Dialect:
    from tilewright.dialects.upstream import linalg

    return linalg.complete_tensor()


def complete_bufferization() -> Dialect:
    from tilewright.dialects.upstream import bufferization

    return bufferization.complete()


def complete_llvm() -> Dialect:
    from xdsl.dialects.llvm import LLVM

    from tilewright.dialects.upstream import llvm

    llvm.complete()
    return LLVM


COMPLETED: dict[str, Callable[[], Dialect]] = {
    "bufferization": complete_bufferization,
    "linalg": complete_linalg,
    "llvm": complete_llvm,
    "tensor": complete_tensor,
}
"""Stock dialects that are large and seldom used: completed when they are first named."""

__all__ = ["COMPLETED", "OWN_DIALECTS", "formats", "make_context", "own_dialects"]
