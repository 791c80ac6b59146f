"""What a search has found out, on disk: the best constexprs of a kernel for arguments like these.

Results lie beside the kernel cache, one small JSON file per kernel source, signature and machine. A
kernel whose constexprs are left open (``BM: tw.constexpr = tw.auto``) takes them from here before it
asks the target's planner.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import dtypes, knobs, private
from tilewright.arguments import ArrayArg
from tilewright.cache import digest
from tilewright.runtime.key import ScalarType, signature_of
from tilewright.targets.base import CompileOptions, get_target

_DIRECTORY = "tuned"


@dataclass(frozen=True)
class Tuned:
    """The winner of a search."""

    constexprs: dict[str, Any]
    seconds: float
    """Median time of a launch when it was found."""
    tried: int
    """Number of candidates that were measured."""


def tuning_key(source: str, args: Sequence[ArrayArg | ScalarType], options: CompileOptions) -> str:
    """The name of a result: kernel source, signature, machine, and extents to a power of two."""
    facts = "; ".join(map(str, signature_of(args)))
    sizes = [[n.bit_length() for n in arg.shape] for arg in args if isinstance(arg, ArrayArg)]
    machine = get_target(options.target).fingerprint(options)
    return digest(source, facts, repr(sizes), options.code_key, machine)


def save(key: str, tuned: Tuned) -> Path:
    """Writes a result; it replaces an older one. OSError when the directory cannot be written."""
    path = _path(key)
    private.make_folders(path, knobs.current().cache_path)
    content = json.dumps(
        {
            "constexprs": {name: _to_json(value) for name, value in tuned.constexprs.items()},
            "seconds": tuned.seconds,
            "tried": tuned.tried,
        }
    )
    handle, name = tempfile.mkstemp(prefix="new-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(name, path)
    return path


def find(key: str) -> Tuned | None:
    """The result stored under ``key``; None when there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        content = json.loads(private.read(_path(key), knobs.current().cache_path))
        values = {str(n): _from_json(v) for n, v in content["constexprs"].items()}
        return Tuned(values, float(content["seconds"]), int(content["tried"]))
    return None


def known(
    source: str | None, args: Sequence[ArrayArg | ScalarType], options: CompileOptions
) -> Mapping[str, Any]:
    """The constexprs that a search found for such a launch; empty when there was none."""
    settings = knobs.current()
    if source is None or not settings.cache or not (settings.cache_path / _DIRECTORY).is_dir():
        return {}
    found = find(tuning_key(source, args, options))
    return found.constexprs if found is not None else {}


def _path(key: str) -> Path:
    return knobs.current().cache_path / _DIRECTORY / f"{key}.json"


def _to_json(value: Any) -> Any:
    return {"dtype": value.name} if isinstance(value, dtypes.DType) else value


def _from_json(value: Any) -> Any:
    return dtypes.from_name(value["dtype"]) if isinstance(value, dict) else value
