"""Dataclasses at a tenth of their price: the fields of `@frozen` ones stay as they are made, a `@record`'s may be set.

The standard library writes, and compiles, up to six functions for such a class when it is imported: half of the time in
which this package was. Here what compares, hashes and shows fields is shared by all classes, and so is what sets them,
until a class turns out to have more than a few objects: then `__init__` is written. That nobody sets a field of a
frozen one is the type checker's to say: an object is made in a third of the time, too. (Tables and kernels that users
hold say it themselves, as the standard library's.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """The class as a dataclass: with `__init__`, equal to another of its fields' values, with their hash, and shown
    with them. Methods that it has stay, and fields may leave comparisons or what is shown as in any dataclass."""
    return _made(cls, hashed=True)


@dataclass_transform(field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """The same of a class whose fields may be set: it has no hash."""
    return _made(cls)


@contextmanager
def shared_functions() -> Generator[None]:
    """xDSL's dataclasses are made so too, of modules imported here: 170, a seventh of a process's first compilation."""
    dataclasses.dataclass = _lean
    try:
        yield
    finally:
        dataclasses.dataclass = dataclass


_OPTIONS = {"init", "repr", "eq", "frozen", "kw_only"}


def _lean(cls: Any = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass` for xDSL: fields of a frozen class cannot be set."""
    if cls is None:
        return partial(_lean, **options)
    whose = cls.__module__.partition(".")[0]
    if whose not in ("xdsl", "tilewright") or not options.keys() <= _OPTIONS:
        return dataclass(cls, **options)
    return _made(cls, hashed=options.get("frozen", False), **options)


def _made(
    cls: type[T],
    hashed: bool = False,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    **others: bool,
) -> type[T]:
    # Where there is none, the library would print a signature.
    cls.__doc__ = cls.__doc__ or cls.__name__
    dataclass(init=False, eq=False, repr=False, **others)(cls)
    kind: Any = cls
    own, members = vars(cls), fields(kind)
    values = _values_of([f.name for f in members if f.compare])
    counted = _values_of([f.name for f in members if (f.compare if f.hash is None else f.hash)])
    few = iter(range(_FEW))

    def __init__(self: T, *args: Any, **kwargs: Any) -> None:
        if next(few, None) is None or not _is_filled(self, cls, args, kwargs):
            kind.__init__ = _init(cls)
            kind.__init__(self, *args, **kwargs)

    def __eq__(self: T, other: object) -> bool:
        if self is other:
            return True
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: T) -> int:
        return hash(counted(self))

    @recursive_repr()
    def __repr__(self: T) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in members if f.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    if eq and not hashed and "__hash__" not in own:
        kind.__hash__ = None
    if init and "__init__" not in own:
        _shared.add(__init__.__code__)
        kind.__signature__ = _SIGNATURE
    for wanted, method in (
        (init, __init__),
        (eq, __eq__),
        (eq and hashed, __hash__),
        (repr, __repr__),
    ):
        if wanted and own.get(method.__name__) is None:
            setattr(cls, method.__name__, method)
    return cls


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


class _Signature:
    """Has `__init__` written for who asks for its parameters: `inspect` looks for this first."""

    def __get__(self, instance: object, cls: Any) -> None:
        for kind in cls.__mro__:
            if getattr(vars(kind).get("__init__"), "__code__", None) in _shared:
                kind.__init__ = _init(kind)


_SIGNATURE = _Signature()
_shared = set[CodeType]()
"""What `__init__` of classes runs that have few objects: one code, once there is such a class."""
_FEW = 16
"""Objects of a class that are made by what all classes share: it takes ten times as long as what is written for one."""


def _is_filled(self: Any, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Sets fields to what is given, or to their defaults; False where that does not fit, for `__init__` to say why."""
    members = fields(cls)
    given = dict(zip((f.name for f in members if f.init and not f.kw_only), args, strict=False))
    given.update(kwargs)
    fits = len(given) == len(args) + len(kwargs)
    for f in members:
        if f.init and f.name in given:
            value = given.pop(f.name)
        elif f.default_factory is not MISSING:
            value = f.default_factory()
        elif f.default is not MISSING:
            value = f.default
        else:
            return False
        object.__setattr__(self, f.name, value)
    if not fits or given:
        return False
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return True


def _init(cls: Any) -> Callable[..., None]:
    """The function that sets the fields of a class to what is given, or to their defaults."""
    scope: dict[str, Any] = {"_MISSING": MISSING, "_set": object.__setattr__}
    given: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    put = " _set(self, {!r}, {})" if cls.__dataclass_params__.frozen else " self.{} = {}"
    for f in fields(cls):
        default, value = "", f.name
        if f.default_factory is not MISSING:
            scope[f"_new_{f.name}"], default = f.default_factory, "=_MISSING"
            value = f"_new_{f.name}()"
            value += f" if {f.name} is _MISSING else {f.name}" if f.init else ""
        elif f.default is not MISSING:
            scope[f"_old_{f.name}"], default = f.default, f"=_old_{f.name}"
        if f.init:
            (by_name if f.kw_only else given).append(f.name + default)
        if f.init or f.default_factory is not MISSING:
            body.append(put.format(f.name, value))
    body += [" self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    parameters = ", ".join([*given, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n" + "\n".join(body or [" pass"]), scope)
    made = scope["__init__"]
    made.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
