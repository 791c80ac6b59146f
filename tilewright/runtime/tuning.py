"""The best constexprs of a kernel for arguments like these: what a search found, or what the planner chose before.

Both lie on disk. A search's result is a record (`records.py`), keyed by the kernel's source, the signature, the machine
and the class of the extents; a kernel whose constexprs are left open (``BM: tw.constexpr = tw.auto``) takes them from
there before it asks the target's planner. A planner's choice is an entry of the kernel cache, keyed by the compiler and
the very extents too: nobody misses it when it is evicted.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import cache, dtypes, records
from tilewright.arguments import ArrayArg
from tilewright.cache import compiler_fingerprint, digest
from tilewright.frozen import frozen
from tilewright.runtime.key import ScalarType, constexpr_key, signature_of
from tilewright.targets.base import CompileOptions, get_target

if TYPE_CHECKING:
    from tilewright.passes.planner import Request

_CHOICE = "choice.json"


@frozen
class Tuned:
    """The winner of a search, and what it was measured beside."""

    constexprs: Mapping[str, Any]
    seconds: float
    """Median time of a launch when it was found."""
    planned: float | None
    """That of the planner's first choice, in turn with it; None where it has none."""
    measured: Sequence[tuple[Mapping[str, Any], float]]
    """All candidates that were measured, the fastest first."""

    def seconds_of(self, constexprs: Mapping[str, Any]) -> float | None:
        """Of a candidate, where it was measured."""
        return next((s for each, s in self.measured if dict(each) == dict(constexprs)), None)


def tuning_key(
    source: str,
    given: Mapping[str, Any],
    args: Sequence[ArrayArg | ScalarType],
    options: CompileOptions,
    also: Sequence[Any] | None = None,
) -> str | None:
    """The name of a result: kernel source, other constexprs, signature, machine, and extents to a power of two, or
    exactly what `also` says in their place. None where a constexpr has no text that every process agrees on."""
    facts = "; ".join(map(str, signature_of(args)))
    sizes = [[n.bit_length() for n in arg.shape] for arg in args if isinstance(arg, ArrayArg)]
    values = constexpr_key(given)
    if values is None:
        return None
    exact = repr(sizes if also is None else list(also))
    machine = get_target(options.target).identity(options)
    return digest("tuning", source, values, facts, exact, options.code_key, machine)


def save(key: str, tuned: Tuned, about: str, options: CompileOptions) -> bool:
    """Keeps a result; it replaces an older one. False where the cache is switched off."""
    measured = [[_to_json(constexprs), seconds] for constexprs, seconds in tuned.measured]
    content = {
        "constexprs": _to_json(tuned.constexprs),
        "seconds": tuned.seconds,
        "planned": tuned.planned,
        "measured": measured,
    }
    machine = get_target(options.target).identity(options)
    return records.keep(key, records.Record("tuning", machine, about, content))


def find(key: str) -> Tuned | None:
    """The result under ``key``; None when there is none that can be read."""
    record = records.find(key)
    if record is None:
        return None
    content: Any = record.content
    try:
        measured = [(_from_json(values), float(seconds)) for values, seconds in content["measured"]]
        planned = None if content["planned"] is None else float(content["planned"])
        return Tuned(
            _from_json(content["constexprs"]), float(content["seconds"]), planned, measured
        )
    except (KeyError, TypeError, ValueError):
        about = f"what was measured of {record.about} is damaged and not used"
        warnings.warn(about, RuntimeWarning, stacklevel=2)
        return None


def planned(source: str | None, request: Request, options: CompileOptions) -> Mapping[str, Any]:
    """What the target's planner chooses, from disk where it was asked before for the very same.

    Raises UnsupportedError where nothing makes a legal kernel.
    """
    target, store = get_target(options.target), cache.current()
    values = constexpr_key(request.given)
    if store is None or source is None or values is None:
        return target.resolve_auto(request, options)
    arguments = [
        (a.dtype.name, a.shape, a.strides) if isinstance(a, ArrayArg) else str(a)
        for a in request.arguments
    ]
    facts = "; ".join(map(str, signature_of(request.arguments)))
    costs = repr(target.rates(options))
    key = digest(
        "choice", compiler_fingerprint(), source, values, facts, repr(arguments), options.code_key,
        target.identity(options), costs,
    )  # fmt: skip
    found = store.get(key)
    if found is not None:
        try:
            chosen: Mapping[str, Any] = json.loads(found[_CHOICE])
            return {name: int(chosen[name]) for name in request.names}
        except (KeyError, TypeError, ValueError):
            store.discard(key)
    made = dict(target.resolve_auto(request, options))
    store.put(key, {_CHOICE: json.dumps(made).encode()})
    return made


def _to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"dtype": value.name} if isinstance(value, dtypes.DType) else value
        for name, value in values.items()
    }


def _from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return dtypes.from_name(value["dtype"])
    return tuple(map(_value, value)) if isinstance(value, list) else value
