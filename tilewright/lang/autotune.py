"""`@tw.autotune`: the constexprs of a kernel are searched when it is first launched with arguments of a new kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.diagnostics import CompileError
from tilewright.frozen import frozen
from tilewright.lang.annotations import auto
from tilewright.lang.kernel import Kernel

BUDGET = 10.0


@frozen
class Autotune:
    """How a kernel is searched."""

    names: tuple[str, ...]
    """The constexprs that are chosen."""
    configs: tuple[Mapping[str, Any], ...]
    """Their candidates; the planner's where there are none."""
    key: tuple[str, ...] | None
    """Parameters whose extents or numbers tell one search from another."""
    budget: float
    """Seconds."""


def autotune(
    configs: Iterable[Mapping[str, Any]] | None = None,
    key: Iterable[str] | None = None,
    *,
    budget: float = BUDGET,
) -> Callable[[Kernel], Kernel]:
    """Chooses constexprs by measuring, at the first launch with arguments of a new kind; stands above ``@tw.kernel``.

    ``configs``: candidates, one dict of constexprs each, all of the same names, which a launch then leaves out; None:
    those that the planner finds cheapest for the constexprs that are ``tw.auto``. ``key``: names of parameters whose
    extents (of arrays) or values (of numbers) must be equal for a result to be used again; None: element types,
    strides, and extents to a power of two. ``budget``: seconds of a search. The result is kept on disk, as that of
    `tilewright tune`; arrays hold after a search what a launch makes of them.
    CompileError for names that the kernel does not have, and for configs of different names.

        @tw.autotune(configs=[{"BM": 32}, {"BM": 128}], key=["X"])
        @tw.kernel
        def double(X, Y, BM: tw.constexpr): ...
    """

    choices, names_of_key = _all(configs, Mapping), _all(key, str)

    def decorate(kernel: Any) -> Kernel:
        if not isinstance(kernel, Kernel):
            raise CompileError(
                f"@tw.autotune decorates a kernel, not {kernel!r}",
                hint="put it directly above @tw.kernel",
            )
        if choices is None or names_of_key is None:
            raise CompileError(
                f"@tw.autotune: configs={configs!r}, key={key!r}",
                rule="configs is a list of dicts of constexprs, key one of parameters' names",
            )
        given = tuple(dict(config) for config in choices)
        names = _names(kernel, given)
        known = [p.name for p in kernel.parameters]
        for name in names_of_key:
            if name not in known:
                raise _unknown(kernel, "key", name, known)
        if not isinstance(budget, (int, float)) or not budget > 0:
            raise CompileError(f"the budget of a search is {budget!r} seconds, which is none")
        found = None if key is None else names_of_key
        return kernel.searched(Autotune(names, given, found, float(budget)))

    return decorate


def _all(given: Any, kind: type) -> tuple[Any, ...] | None:
    """What is given, once and for all, also by a generator; None where it is no list of such."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable | None):
        return None
    found = tuple(given or ())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return found if all(isinstance(one, kind) for one in found) else None  # pyright: ignore[reportUnknownVariableType]


def _names(kernel: Kernel, configs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The constexprs that are searched, in the order of the signature."""
    constexprs = [p.name for p in kernel.parameters if p.constexpr]
    if not configs:
        names = {p.name for p in kernel.parameters if p.default is auto}
        if not names:
            raise CompileError(
                f"@tw.autotune: no constexpr of kernel {kernel.name} is left open",
                hint="give it configs, or a constexpr the default tw.auto",
            )
    else:
        names = set(configs[0])
        for config in configs:
            for name in config:
                if name not in constexprs:
                    raise _unknown(kernel, "a config", name, constexprs)
            if set(config) != names or not config:
                raise CompileError(
                    f"@tw.autotune: the configs {dict(configs[0])} and {dict(config)} of kernel {kernel.name} do not"
                    " give the same constexprs values"
                )
    return tuple(name for name in constexprs if name in names)


def _unknown(kernel: Kernel, what: str, name: str, known: Sequence[str]) -> CompileError:
    return CompileError(
        f"@tw.autotune: {what} names {name!r}, which kernel {kernel.name} does not have",
        hint=f"there are {', '.join(known) or 'none'}",
    )
