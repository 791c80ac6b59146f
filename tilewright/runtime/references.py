"""What a kernel's code depends on outside of its function, found without compiling anything.

The front end compiles a function's text together with the values that its names had: constants, helpers and what they
refer to, closures, attributes of modules, classes and plain objects. :class:`References` gives that combination a
fingerprint, so that a fresh process finds a kernel in the disk cache without building IR, and a check that takes a
fraction of a microsecond, so that every launch can ask whether something has changed since.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import is_
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tilewright.cache import digest
from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.runtime.key import stable_text
from tilewright.runtime.source import Kept, text_of

_KEPT = "__tilewright_references__"
ALSO = "__tilewright_also__"
"""Attribute of a function: other functions, by name, that are called where it is compiled."""


def references(function: Callable[..., Any]) -> References:
    """What ``function``, or the function inside of a kernel, refers to now."""
    plain = _unwrap(function)
    found = plain.__dict__.get(_KEPT)
    if not isinstance(found, References) or found.function is not plain or not found.unchanged():
        found = plain.__dict__[_KEPT] = References(plain)
    return found


class References(Kept):
    """Everything that is compiled when ``function`` is, as it is at this moment.

    Functions of the ``tilewright`` package itself count by name only: the compiler's own
    fingerprint covers their text.
    """

    def __init__(self, function: FunctionType):
        self.function = function
        self._watch = _Watch()
        self.content: str | None
        """The fingerprint without the places in files where functions stand: equal in copies of the program."""
        self.unchanged: Callable[[], bool]
        """Whether everything is what it was. It may say no where something equal was put in the place of a function."""
        parts: list[str | None] = []
        self._placeless: dict[str, str] = {}
        seen: set[int] = set()
        work: list[FunctionType] = [function]
        while work:
            at = work.pop()
            if id(at) in seen:
                continue
            seen.add(id(at))
            parts += self._function(at, root=at is function)
            if ALSO in at.__dict__:
                also = self._watch.item(at.__dict__, ALSO, at.__dict__[ALSO])
                parts += also
                work += also.values()
            for path, value in self._outside_values(at):
                plain = _unwrap(value)
                if isinstance(value, _Word):
                    parts.append(f"{path}=tilewright.{value.name}")
                elif isinstance(plain, FunctionType):
                    place = f"{path}=function {plain.__module__}.{plain.__qualname__}"
                    self._placeless[place] = f"{path}=function {plain.__qualname__}"
                    parts.append(place)
                    if not (plain.__module__ or "").startswith("tilewright."):
                        work.append(plain)
                elif isinstance(value, (type, ModuleType)) or inspect.isbuiltin(value):
                    name = getattr(value, "__qualname__", value.__name__)
                    parts.append(f"{path}={getattr(value, '__module__', '')}.{name}")
                    if isinstance(value, type) and _is_users(value.__module__):
                        work += self._methods(value)
                        parts += _constants(value)
                else:
                    text = _text(value)
                    parts.append(None if text is None else f"{path}={text}")
        texts = [part for part in parts if part is not None]
        self.fingerprint = digest(*texts) if len(texts) == len(parts) else None
        """None where a part has no text that is the same in every process."""
        contents = [self._placeless.get(text, text) for text in texts]
        self.content = digest(*contents) if len(texts) == len(parts) else None
        self.unchanged = self._watch.check()

    def _function(self, function: FunctionType, *, root: bool) -> list[str | None]:
        """The function's own text and defaults; those of a kernel's parameters come with its arguments."""
        self._watch.attribute(function, "__code__")
        try:
            text = text_of(function)
        except CompileError:
            return [None]
        code = function.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        self._placeless[place] = ""
        parts: list[str | None] = [place, text.text]
        if not root:
            for name in ("__defaults__", "__kwdefaults__"):
                self._watch.attribute(function, name)
            named = function.__kwdefaults__ or {}
            for default in (*(function.__defaults__ or ()), *named, *named.values()):
                plain = _unwrap(default)
                callable_ = isinstance(plain, FunctionType | type)
                parts.append(
                    f"{plain.__module__}.{plain.__qualname__}" if callable_ else _text(default)
                )
        return parts

    def _methods(self, kind: type) -> Iterator[FunctionType]:
        for name, member in vars(kind).items():
            plain = _unwrap(getattr(member, "fget", member))
            if isinstance(plain, FunctionType) and _is_users(plain.__module__):
                self._watch.item(vars(kind), name, member)
                yield plain

    def _outside_values(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        """Dotted path and value of everything that ``function`` reads from outside, in a fixed order.

        A chain ``module.a.b`` is followed through modules, classes and the attributes that an object holds; those
        that it computes are covered by the object's own text.
        """
        for path in self._paths(function):
            place = self._root(function, path[0])
            if place is None:
                continue
            value, used = place[0], 1
            while used < len(path) and not isinstance(value, _Word):
                step = self._attribute(value, path[used])
                if step is None:
                    break
                value, used = step[0], used + 1
            yield ".".join(path[:used]), value

    def _paths(self, function: FunctionType) -> list[tuple[str, ...]]:
        try:
            body = text_of(function).node.body
        except (
            CompileError
        ):  # a lambda, or code without a text: its names, without what follows them
            return [
                (name,) for name in (*function.__code__.co_names, *function.__code__.co_freevars)
            ]
        paths: set[tuple[str, ...]] = set()
        left: list[Any] = list(body)
        while left:  # not ast.walk: half of what this function takes went into its generators
            node = left.pop()
            if isinstance(node, (ast.Name, ast.Attribute)):
                chain: list[str] = []
                while isinstance(node, ast.Attribute):
                    chain.append(node.attr)
                    node = node.value
                if isinstance(node, ast.Name):
                    paths.add((node.id, *reversed(chain)))
                else:
                    left.append(node)
            elif isinstance(node, ast.AST):
                for field in node._fields:
                    child = getattr(node, field, None)
                    left += child if isinstance(child, list) else (child,)  # pyright: ignore[reportUnknownArgumentType]
        return sorted(paths)

    def _root(self, function: FunctionType, name: str) -> tuple[Any] | None:
        """The value of a name that is not the function's own, in a tuple."""
        code, scope = function.__code__, function.__globals__
        if name in code.co_freevars:
            cell = (function.__closure__ or ())[code.co_freevars.index(name)]
            try:
                return (self._watch.cell(cell),)
            except ValueError:  # a name of the enclosing function that is not bound yet
                return None
        if name in code.co_varnames or name in code.co_cellvars:
            return None
        if name in scope:
            return (self._watch.item(scope, name, scope[name]),)
        if name in vars(builtins):
            self._watch.absence(scope, name)
            return (vars(builtins)[name],)
        return None

    def _attribute(self, value: Any, name: str) -> tuple[Any] | None:
        """``value.name`` where it is what somebody has put there, in a tuple."""
        if isinstance(value, ModuleType):
            word = _of_the_language(value, name)
            if word is not None:
                return (word,)
            if name not in vars(value):  # a module may make its names when they are asked for
                return (getattr(value, name),) if hasattr(value, name) else None
            return (self._watch.item(vars(value), name, vars(value)[name]),)
        if isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
            return None
        if not _is_users(type(value).__module__) and not isinstance(value, type):
            return None
        kinds = value.__mro__ if isinstance(value, type) else ()
        for holder in (
            (vars(kind) for kind in kinds) if kinds else (getattr(value, "__dict__", {}),)
        ):
            if name in holder and not hasattr(holder[name], "__get__"):
                return (self._watch.item(holder, name, holder[name]),)
        return None


class _Watch:
    """Builds one function of a few comparisons: what a loop in Python does would take several times as long."""

    def __init__(self) -> None:
        self._terms: dict[str, None] = {}
        self._names: dict[str, Any] = {"_text": _text, "_holds": _holds, "_lists": _lists}
        self._numbers: dict[int, str] = {}
        self._places: list[tuple[str, Callable[[], Any], str | None]] = []

    def item(self, holder: Mapping[str, Any], name: str, value: Any) -> Any:
        """The value of a name in a mapping."""
        place = f"{self._name(holder)}[{name!r}]"
        return self._value(place, lambda: holder[name], value)

    def cell(self, cell: CellType) -> Any:
        return self._value(
            f"{self._name(cell)}.cell_contents", lambda: cell.cell_contents, cell.cell_contents
        )

    def attribute(self, thing: Any, name: str) -> None:
        self._value(
            f"{self._name(thing)}.{name}", lambda: getattr(thing, name), getattr(thing, name)
        )

    def absence(self, holder: Mapping[str, Any], name: str) -> None:
        self._terms[f"{name!r} not in {self._name(holder)}"] = None

    def _value(self, place: str, get: Callable[[], Any], value: Any) -> Any:
        term = f"{place} is {self._name(value)}"
        if term in self._terms:
            return value
        self._terms[term] = None
        text = _text(value) if not isinstance(value, FunctionType | ModuleType | type) else None
        self._places.append((self._name(value), get, text))
        if _is_fixed(value):
            return value
        holder = vars(value) if text is None and _is_users_object(value) else value
        if isinstance(holder, list) and all(map(_is_fixed, holder)):
            self._terms[f"_lists({self._name(holder)}, {self._name(tuple(holder))})"] = None
        elif isinstance(holder, dict):
            self._terms[f"_holds({self._name(holder)}, {self._name(dict(holder))})"] = None
        elif text is not None:
            self._terms[f"_text({self._name(value)}) == {text!r}"] = None
        return value

    def _name(self, value: Any) -> str:
        """A name for an object in the function, which keeps it alive: no other can come to have its identity."""
        name = self._numbers.setdefault(id(value), f"x{len(self._numbers)}")
        self._names[name] = value
        return name

    def check(self) -> Callable[[], bool]:
        lines = ["def same():", " try:", f"  return {' and '.join(self._terms) or True}"]
        lines += [" except (KeyError, ValueError, AttributeError):", "  return False"]
        exec("\n".join(lines), self._names)
        same, places, names = self._names.pop("same"), self._places, self._names

        def unchanged() -> bool:
            if same():
                return True
            # Perhaps a constant was computed again and came out equal.
            try:
                now = [get() for _, get, _ in places]
            except (KeyError, ValueError, AttributeError):
                return False
            for (name, _, text), value in zip(places, now, strict=True):
                if value is not names[name] and (text is None or _text(value) != text):
                    return False
            names.update({name: value for (name, _, _), value in zip(places, now, strict=True)})
            return same()

        return unchanged


_UNCHANGING = (bool, int, float, str, type(None), DType, np.generic)


def _is_fixed(value: Any) -> bool:
    """Whether an object is a constant for good, all through."""
    if isinstance(value, tuple | frozenset):
        return all(map(_is_fixed, value))
    return isinstance(value, _UNCHANGING) or type(value).__module__.startswith("tilewright.")


def _lists(now: list[Any], then: tuple[Any, ...]) -> bool:
    """Whether a list holds these very objects."""
    return len(now) == len(then) and all(map(is_, now, then))


def _holds(now: dict[Any, Any], then: dict[Any, Any]) -> bool:
    """Whether a dictionary, or the attributes of an object, are these very objects."""
    same = len(now) == len(then) and all(map(is_, now.values(), then.values()))
    return same and now.keys() == then.keys()


def _constants(kind: type) -> list[str]:
    """The constants of a class of the user's, an Enum's members among them."""
    members = {name: value for name, value in vars(kind).items() if name[:2] != "__"}
    if issubclass(kind, Enum):
        members = {member.name: member.value for member in kind}
    return [f"{name}={text}" for name, value in members.items() if (text := _text(value))]


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        parts = [_text(part) for pair in value.items() for part in pair]
        return None if None in parts else f"{type(value).__name__}:{{{','.join(map(str, parts))}}}"
    return stable_text(value) or _own_text(value)


def _unwrap(value: Any) -> Any:
    """The Python function inside a kernel or another wrapper; ``value`` itself otherwise."""
    while not isinstance(value, FunctionType):
        inner = getattr(value, "__wrapped__", None) or getattr(value, "__func__", None)
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


def _is_users_object(value: Any) -> bool:
    return _is_users(type(value).__module__) and hasattr(value, "__dict__")


def _is_users(module: str | None) -> bool:
    """Is a module neither Python's own nor an installed library's?"""
    top = (module or "builtins").partition(".")[0]
    if top in sys.stdlib_module_names or top == "tilewright":
        return top == "__main__"
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


@dataclass(eq=False, repr=False)
class _Word:
    """A name of the tile language that stands for itself."""

    name: str


def _of_the_language(module: ModuleType, name: str) -> _Word | None:
    """The word that ``tw.<name>`` is, without importing the language for it; None for anything else.

    A kernel whose code lies on disk is then launched without the front end and the IR behind it.
    """
    lazy: Mapping[str, str] = vars(module).get("_LAZY", {})
    module_name = lazy.get(name, "")
    if module.__name__ != "tilewright" or not module_name.startswith("tilewright.lang."):
        return None
    # Whoever has put something else there is not speaking of the language.
    there = vars(module).get(name)
    return _Word(name) if getattr(there, "__module__", module_name) == module_name else None
