"""Dialects: ours (xetile, ...) and what stock xDSL lacks of the upstream ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import import_module

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.ir import Dialect

from tilewright.dialects import upstream

# Our dialects: name -> module and variable that holds the `Dialect`. One line adds one.
OWN_DIALECTS: dict[str, tuple[str, str]] = {
    "index": ("tilewright.dialects.upstream.index", "Index"),
    "spirv": ("tilewright.dialects.upstream.spirv", "Spirv"),
    "xetile": ("tilewright.dialects.xetile", "XeTile"),
    "xegpu": ("tilewright.dialects.xegpu", "XeGPU"),
    "stage": ("tilewright.dialects.stage", "Stage"),
    "tw": ("tilewright.dialects.tw", "Tw"),
    "mach": ("tilewright.dialects.mach", "Mach"),
}


upstream.complete()


def _loader(module: str, variable: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        return getattr(import_module(module), variable)

    return load


def own_dialects() -> dict[str, Callable[[], Dialect]]:
    """Factories of the dialects that Tilewright defines, by name."""
    return {
        name: _loader(module, variable)
        for name, (module, variable) in OWN_DIALECTS.items()
        if importlib.util.find_spec(module) is not None
    }


def make_context(allow_unregistered: bool = False) -> Context:
    """A context with every dialect registered; each is imported when text first names it."""
    context = Context(allow_unregistered=allow_unregistered)
    for name, factory in {**get_all_dialects(), "llvm": _llvm, **own_dialects()}.items():
        context.register_dialect(name, factory)
    return context


def _llvm() -> Dialect:
    """llvm is large and seldom used: it is completed when it is first named."""
    from xdsl.dialects.llvm import LLVM

    from tilewright.dialects.upstream import llvm

    llvm.complete()
    return LLVM


__all__ = ["OWN_DIALECTS", "make_context", "own_dialects"]
