"""Dataclasses at a tenth of their price: the fields of `@frozen` ones stay as they are made, a `@record`'s may be set.

The standard library writes, and compiles, up to six functions for such a class when it is imported: half of the time in
which this package was. Here they are closures over the names of fields, and `__init__` is written for a class that has
more than a few objects. That nobody sets a field of a `@frozen` one is the type checker's to say: an object is made in
a third of the time, too. Tables and kernels that users hold are `@guarded`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """The class as a dataclass: with `__init__`, equal to another of its fields' values, with their hash, and shown
    with them. Methods that it has stay, and fields may leave comparisons or what is shown as in any dataclass."""
    return _made(cls, hashed=True)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def guarded(cls: type[T]) -> type[T]:
    """The same of a class that users hold: whoever sets a field is told, as by the standard library's."""
    return _made(cls, hashed=True, guarded=True)


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
    ours = any(base.__module__.startswith(("xdsl.", "tilewright.")) for base in cls.__mro__)
    if not ours or not options.keys() <= _OPTIONS:
        return dataclass(cls, **options)
    guarded = options.pop("frozen", False)
    return _made(cls, hashed=guarded, guarded=guarded, **options)


def _made(
    cls: type[T],
    hashed: bool = False,
    guarded: bool = False,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    **others: bool,
) -> type[T]:
    # Where there is none, the library would print a signature.
    cls.__doc__ = cls.__doc__ or cls.__name__
    kind: Any = cls
    # What `frozen=True` says to the library has it write guards, and all bases must say the same.
    said = [p for b in kind.__mro__[1:] if (p := vars(b).get("__dataclass_params__")) and p.frozen]
    for each in said:
        each.frozen = False
    try:
        dataclass(init=False, eq=False, repr=False, **others)(cls)
    finally:
        for each in said:
            each.frozen = True
    kind.__dataclass_params__.frozen = guarded
    own, members = vars(cls), fields(kind)
    names = {f.name for f in members}
    values = _values_of([f.name for f in members if f.compare])
    counted = _values_of([f.name for f in members if (f.compare if f.hash is None else f.hash)])

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

    def __setattr__(self: T, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: T, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    if eq and not hashed and "__hash__" not in own:
        kind.__hash__ = None
    if init and "__init__" not in own:
        kind.__init__ = _Init(cls, members)
    for wanted, method in (
        (eq, __eq__),
        (eq and hashed, __hash__),
        (repr, __repr__),
        (guarded, __setattr__),
        (guarded, __delattr__),
    ):
        if wanted and own.get(method.__name__) is None:
            setattr(cls, method.__name__, method)
    return cls


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


class _Init:
    """`__init__` of a class. Its first objects are made by what all classes share: that takes ten times as long as what
    is written for one, and no time before."""

    def __init__(self, cls: Any, members: Sequence[Field[Any]]):
        self._class, self._members = cls, members
        self._few = iter(range(16))

    def __get__(self, instance: object, cls: Any) -> Callable[..., None]:
        # (Python 3.12 asks for a class's signature by the class in place of an instance.)
        if isinstance(instance, self._class) and next(self._few, None) is not None:
            return partial(self._fill, instance)
        return self._written(instance)

    def _written(self, instance: object) -> Callable[..., None]:
        made: Any = _init(self._class)
        self._class.__init__ = made
        return made if instance is None else made.__get__(instance)

    def _fill(self, instance: Any, *args: Any, **kwargs: Any) -> None:
        places = [f.name for f in self._members if f.init and not f.kw_only]
        given = dict(zip(places, args, strict=False))
        given.update(kwargs)
        fits = len(given) == len(args) + len(kwargs)
        for f in self._members:
            if f.init and f.name in given:
                value = given.pop(f.name)
            elif f.default_factory is not MISSING:
                value = f.default_factory()
            elif f.default is not MISSING:
                value = f.default
            else:
                fits = False
                break
            object.__setattr__(instance, f.name, value)
        if given or not fits:  # and what is written says why
            self._written(instance)(*args, **kwargs)
        elif hasattr(self._class, "__post_init__"):
            instance.__post_init__()


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
