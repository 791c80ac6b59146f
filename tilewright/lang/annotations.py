"""What stands in a kernel's signature: constexpr, auto. Imports nothing, so that a decorator is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    constexpr: TypeAlias = Any
    """A parameter of compile time: every value of it is compiled on its own."""
    auto: Any
else:

    class constexpr:
        """Annotates a kernel parameter of compile time: ``BM: tw.constexpr = 256``.

        Its value may be a number, a string, a dtype, a function, None, or a tuple of these; every
        value is compiled on its own. It is given by position or keyword like any argument.
        """

        def __class_getitem__(cls, item: object) -> type:
            return cls

    class _Auto:
        """A constexpr that is left to the planner."""

        def __repr__(self) -> str:
            return "tw.auto"

        def __reduce__(self) -> str:
            return "auto"

    auto: Final = _Auto()


def said(annotation: object, scope: dict[str, Any]) -> object:
    """What a parameter's annotation, perhaps as text, names: constexpr, a dtype, or what says nothing here."""
    if isinstance(annotation, str):
        text = annotation.split("[")[0].strip()
        if not text.replace(".", "").isidentifier():
            return None
        try:
            return eval(text, scope)  # the user's own annotation, in its own module
        except Exception:
            return constexpr if text.rpartition(".")[2] == "constexpr" else None
    return annotation
