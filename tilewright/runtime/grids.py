"""Grids that are functions of constexprs: ``k[lambda BM: tw.cdiv(M, BM)]``, ``k[lambda c: tw.cdiv(M, c.BM)]``.

They are called at every launch: what they read besides constexprs may have changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilewright.diagnostics import CompileError, LaunchError


class Constexprs(dict[str, Any]):
    """The constexprs of a launch, as a grid function sees them: ``c.BM`` or ``c["BM"]``."""

    described = "all constexprs of the kernel"

    def __missing__(self, name: str) -> Any:
        raise LaunchError(
            f"the grid asks for {name!r}, which is no constexpr of the kernel",
            hint=f"the constexprs are {', '.join(self) or 'none'}",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def extents(grid: Callable[..., Any], constexprs: Constexprs, kernel: str) -> Any:
    """What a grid function gives: called by constexpr names, or with all of them."""
    named, takes_all = _asks_for(grid)
    for name in named:
        if name not in constexprs:
            break
    else:
        return grid(**(constexprs if takes_all else {n: constexprs[n] for n in named}))
    if len(named) == 1:
        try:
            return grid(constexprs)
        except (TypeError, CompileError) as error:
            known = ", ".join(f"{name}.{c}" for c in constexprs) or "none"
            raise LaunchError(
                f"the grid of kernel {kernel} is given {name}, {constexprs.described}:"
                f" {getattr(error, 'message', error)}",
                hint=f"the constexprs are {known}; or call the parameter as one of them",
            ) from None
    raise LaunchError(
        f"the grid of kernel {kernel} asks for {name!r}, which is no constexpr",
        hint=f"the constexprs are {', '.join(constexprs) or 'none'}",
    )


def _asks_for(grid: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """The names of a grid function's parameters, and whether it takes any others besides."""
    if isinstance(grid, FunctionType):
        code = grid.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        return code.co_varnames[:count], bool(code.co_flags & inspect.CO_VARKEYWORDS)
    parameters = inspect.signature(grid).parameters.values()
    named = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
    return named, len(named) < len(parameters)
