"""The functions of the tile language: one decorator makes a function part of it.

A function of the language is ordinary Python whose body writes IR through the current emitter. The
front end calls it with the run-time values of its arguments; the reference in the docs lists it
from its signature and docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every function of the language by its name in ``tw``, in the order of definition."""

_signatures: dict[Callable[..., Any], inspect.Signature] = {}


def language(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function part of the tile language."""
    FUNCTIONS[function.__name__] = function
    _signatures[function] = inspect.signature(function)
    return function


def is_language(function: object) -> bool:
    """Whether a function is part of the tile language."""
    return callable(function) and function in _signatures


def is_method(name: str) -> bool:
    """Whether values have a function of the language as a method: those whose first parameter is ``x``."""
    return name in FUNCTIONS and next(iter(_signatures[FUNCTIONS[name]].parameters), "") == "x"


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return _signatures[function]


def describe_signature(function: Callable[..., Any]) -> str:
    """``tw.load_tile(tile, *, padding=0, ...)``: parameters without their types."""
    parts: list[str] = []
    starred = False
    for parameter in _signatures[function].parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}")
            starred = True
        elif parameter.default is parameter.empty:
            parts.append(parameter.name)
        else:
            parts.append(f"{parameter.name}={parameter.default!r}")
    return f"tw.{function.__name__}({', '.join(parts)})"
