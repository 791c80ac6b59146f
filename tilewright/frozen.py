"""Dataclasses whose fields stay as they are made: `@frozen` is `@dataclass(frozen=True)` at a quarter of its price.

The standard library writes, and compiles, six functions for such a class when it is imported: half of the time in which
this package was. Here it writes one, `__init__`; what compares, hashes and shows fields is shared by all classes. That
nobody sets a field is the type checker's to say: an object is made in a third of the time, too. (Tables and kernels
that users hold say it themselves, as the standard library's.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
_with_init = dataclass(eq=False, repr=False)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """The class as a dataclass: with `__init__`, equal to another of its fields' values, with their hash, and shown
    with them. Methods that it has stay, and fields may leave comparisons or what is shown as in any dataclass."""
    _with_init(cls)
    own, members = vars(cls), fields(cls)  # pyright: ignore[reportArgumentType]
    compared = [f.name for f in members if f.compare]
    values: Any = attrgetter(*compared) if compared else lambda _: ()  # pyright: ignore[reportUnknownLambdaType]

    def __eq__(self: T, other: object) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: T) -> int:
        return hash(values(self))

    @recursive_repr()
    def __repr__(self: T) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in members if f.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    for method in (__eq__, __hash__, __repr__):
        if own.get(method.__name__) is None:
            setattr(cls, method.__name__, method)
    return cls
