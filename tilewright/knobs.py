"""Every setting that a user can make from outside, in one typed place.

A knob is read once from its environment variable ``TILEWRIGHT_<NAME>`` and can be replaced for a
while, in the current context only (thread, task):

    with knobs.override(num_threads=2, cache=False):
        kernel[grid](a, b, c)

Settings that belong to one kernel (target, stages, strict maps) are options of the kernel:
``kernel.options(...)``; where both exist, the kernel's option wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from tilewright.diagnostics import TilewrightError
from tilewright.frozen import guarded


@guarded
class Knobs:
    """One consistent set of settings. :func:`current` gives the one that is in force."""

    target: str | None = field(
        default=None,
        metadata={
            "help": "target of kernels that name none: reference, cpu, emu, cuda, xe (on a machine"
            " without an Intel GPU emulated)"
        },
    )
    num_threads: int | None = field(
        default=None,
        metadata={"help": "threads of the CPU target; default: the cores this process may use"},
    )
    cache: bool = field(default=True, metadata={"help": "keep compiled kernels on disk (0 or 1)"})
    cache_dir: Path | None = field(
        default=None, metadata={"help": "where they are kept; default: ~/.cache/tilewright"}
    )
    cache_size: int = field(
        default=1 << 30,
        metadata={"help": "bytes kept at most, the least recently used go (suffix K, M, G)"},
    )
    time_limit: int = field(
        default=600,
        metadata={"help": "seconds that a command gives a program in MLIR before it stops it"},
    )
    traceback: bool = field(
        default=False, metadata={"help": "show Python's traceback of internal errors (0 or 1)"}
    )
    cpu: str | None = field(
        default=None,
        metadata={
            "help": "tier of instructions that the CPU target uses: amx, avx512, avx2 or generic, of Arm sve2,"
            " neon or generic; default: all that the machine has"
        },
    )
    print_lines: int = field(
        default=1000,
        metadata={"help": "lines that one launch prints at most; on a GPU: programs that print"},
    )

    @property
    def cache_path(self) -> Path:
        """The directory of the kernel cache, whether or not it exists."""
        if self.cache_dir is not None:
            return self.cache_dir
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "tilewright"


def _boolean(text: str) -> bool:
    known = {"0": False, "false": False, "off": False, "1": True, "true": True, "on": True}
    return known[text.strip().lower()]


def _count(text: str, least: int = 0) -> int:
    value = int(text)
    if value < least:
        raise ValueError(text)
    return value


def _positive(text: str) -> int:
    return _count(text, 1)


def _bytes(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    value = int(text[:-1] if scale > 1 else text) * scale
    if value < 0:
        raise ValueError(text)
    return value


CPU_TIERS = ("amx", "avx512", "avx2", "sve2", "neon", "generic")
"""Those of all tables of CPUs (`uarch.cpu.Architecture.tiers`)."""


def _tier(text: str) -> str:
    if text not in CPU_TIERS:
        raise ValueError(text)
    return text


_READERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "target": (str, "the name of a target"),
    "num_threads": (_positive, "a positive number"),
    "cache": (_boolean, "0 or 1"),
    "cache_dir": (Path, "a directory"),
    "cache_size": (_bytes, "a number of bytes, like 512M"),
    "time_limit": (_positive, "a positive number"),
    "print_lines": (_count, "a number of lines"),
    "cpu": (_tier, f"{', '.join(CPU_TIERS[:-1])} or {CPU_TIERS[-1]}"),
    "traceback": (_boolean, "0 or 1"),
}


def variable(name: str) -> str:
    """The environment variable of the knob ``name``."""
    return f"TILEWRIGHT_{name.upper()}"


def from_environment(environment: Mapping[str, str] = os.environ) -> Knobs:
    """The knobs that ``environment`` sets; TilewrightError names the variable that is no value."""
    found: dict[str, Any] = {}
    for name, (read, meaning) in _READERS.items():
        text = environment.get(variable(name), "")
        if not text:
            continue
        try:
            found[name] = read(text)
        except (KeyError, ValueError):
            raise TilewrightError(f"{variable(name)}={text!r} is not {meaning}") from None
    return Knobs(**found)


_initial: Knobs | None = None
OVERRIDE: ContextVar[Knobs | None] = ContextVar("tilewright_knobs", default=None)
"""What :func:`override` has put in place of the environment's knobs; None where nothing has."""


def current() -> Knobs:
    """The knobs in force here: the innermost :func:`override`, else the environment's."""
    global _initial
    found = OVERRIDE.get() or _initial
    if found is None:
        found = _initial = from_environment()
    return found


def thread_count() -> int:
    """Threads that work for this process: TILEWRIGHT_NUM_THREADS, or the cores that it may use."""
    return current().num_threads or len(os.sched_getaffinity(0))


@contextmanager
def override(**changes: Any) -> Generator[Knobs, None, None]:
    """Replaces some knobs inside a ``with`` block: ``override(num_threads=1)``.

    Values are those of the variables, as text or not; None stands for a knob that is not set. TilewrightError
    for a knob or a value that there is not.
    """
    unknown = changes.keys() - {f.name for f in fields(Knobs)}
    if unknown:
        names = ", ".join(f.name for f in fields(Knobs))
        raise TilewrightError(f"no knob is called {min(unknown)!r}; there are {names}")
    knobs = replace(current(), **{name: _value(name, value) for name, value in changes.items()})
    token = OVERRIDE.set(knobs)
    try:
        yield knobs
    finally:
        OVERRIDE.reset(token)


def _value(name: str, value: Any) -> Any:
    if value is None and getattr(Knobs(), name) is None:
        return None
    read, meaning = _READERS[name]
    try:
        return read(str(value))
    except (KeyError, ValueError):
        raise TilewrightError(f"{name}={value!r} is not {meaning}") from None


def _written(name: str, value: Any) -> str:
    """A value as one would set it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(int(value))
    if name == "cache_size":
        for unit, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if value and value % scale == 0:
                return f"{value // scale}{unit}"
    return str(value)


def describe() -> list[tuple[str, str, str]]:
    """Variable, value in force and meaning of every knob, for ``tilewright info``."""
    now = current()
    return [
        (variable(f.name), _written(f.name, getattr(now, f.name)), f.metadata.get("help", ""))
        for f in fields(Knobs)
    ]
