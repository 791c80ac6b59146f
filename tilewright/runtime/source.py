"""What a kernel's code depends on, read from its Python source without compiling anything.

The front end compiles a function's text together with the values that its names had. This module
gives that combination a fingerprint, so that a fresh process finds a kernel in the disk cache without
building IR: the text of the function and of every plain function it can reach, with the values of
all globals and closure variables that they name.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tilewright.runtime.key import digest, stable_text

_MISSING = object()


def source_fingerprint(function: Callable[..., Any]) -> str | None:
    """Digest of all that ``function`` is compiled from; None when part of it has no stable text.

    Functions of the ``tilewright`` package itself count by name only: the compiler's own
    fingerprint covers their text.
    """
    parts: list[str] = []
    seen: set[int] = set()
    work: list[FunctionType] = [_unwrap(function)]
    while work:
        at = work.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        try:
            lines, first = inspect.getsourcelines(at)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError, TypeError):
            return None
        parts += [f"{at.__code__.co_filename}:{first}", "".join(lines)]
        for path, value in _outside_values(at, tree):
            plain = _unwrap(value)
            if isinstance(value, _Word):
                parts.append(f"{path}=tilewright.{value.name}")
            elif isinstance(plain, FunctionType):
                parts.append(f"{path}=function {plain.__module__}.{plain.__qualname__}")
                if not (plain.__module__ or "").startswith("tilewright."):
                    work.append(plain)
            elif isinstance(value, (type, ModuleType)) or inspect.isbuiltin(value):
                name = getattr(value, "__qualname__", value.__name__)
                parts.append(f"{path}={getattr(value, '__module__', '')}.{name}")
            elif (text := stable_text(value) or _own_text(value)) is not None:
                parts.append(f"{path}={text}")
            else:
                return None
    return digest(*parts)


def _unwrap(value: Any) -> Any:
    """The Python function inside a kernel or another wrapper; ``value`` itself otherwise."""
    while not isinstance(value, FunctionType):
        inner = getattr(value, "__wrapped__", None)
        if inner is None:
            return value
        value = inner
    return value


def _own_text(value: Any) -> str | None:
    """Text of an object of the tile language (a map, tw.auto), which its repr describes wholly."""
    if not type(value).__module__.startswith("tilewright."):
        return None
    text = repr(value)
    return None if " at 0x" in text else f"{type(value).__name__}:{text}"


@dataclass(frozen=True)
class _Word:
    """A name of the tile language that stands for itself."""

    name: str


def _of_the_language(module: ModuleType, name: str) -> _Word | None:
    """The word that ``tw.<name>`` is, without importing the language for it; None for anything else.

    A kernel whose code lies on disk is then launched without the front end and the IR behind it.
    """
    homes: Mapping[str, str] = vars(module).get("_LAZY", {})
    home = homes.get(name, "")
    if module.__name__ != "tilewright" or not home.startswith("tilewright.lang."):
        return None
    # Whoever has put something else there is not speaking of the language.
    there = vars(module).get(name)
    return _Word(name) if getattr(there, "__module__", home) == home else None


def _outside_values(function: FunctionType, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """Dotted path and value of everything that ``function`` reads from outside, in a fixed order.

    A chain ``module.a.b`` is followed while the value is a module; the attributes of other objects
    are covered by the object's own text.
    """
    free = _free_values(function)
    paths: set[tuple[str, ...]] = set()
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if node in inner or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        chain: list[str] = []
        at: ast.AST = node
        while isinstance(at, ast.Attribute):
            chain.append(at.attr)
            at = at.value
            inner.add(at)
        if isinstance(at, ast.Name):
            paths.add((at.id, *reversed(chain)))
    for path in sorted(paths):
        value = free.get(path[0], _MISSING)
        if value is _MISSING:
            continue
        used = 1
        while used < len(path) and isinstance(value, ModuleType):
            value = _of_the_language(value, path[used]) or getattr(value, path[used], _MISSING)
            used += 1
        if value is not _MISSING:
            yield ".".join(path[:used]), value


def _free_values(function: FunctionType) -> Mapping[str, Any]:
    """Values of the globals and closure variables of ``function``, without its own parameters."""
    values = dict(vars(builtins))
    values.update(function.__globals__)
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            values.pop(name, None)
    for local in code.co_varnames:
        values.pop(local, None)
    return values
