"""Runs a kernel of a test where its meaning is defined, and finds carets in error reports."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping
from textwrap import indent
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.diagnostics import TilewrightError


def run(kernel: tw.Kernel, grid: Any, *args: Any, **constexprs: Any) -> None:
    """Launches on the reference executor, after the kernel's IR has been verified."""
    compiled = kernel.compile(*args, target="reference", **constexprs)
    compiled.executable.module.verify()  # pyright: ignore
    kernel.options(target="reference")[grid](*args, **constexprs)


def ir(kernel: tw.Kernel, *args: Any, **constexprs: Any) -> str:
    """The text of a kernel's IR, verified."""
    compiled = kernel.compile(*args, target="reference", **constexprs)
    compiled.executable.module.verify()  # pyright: ignore
    return compiled.ir["xetile"]


def written(parameters: str, body: str, scope: Mapping[str, Any] | None = None) -> Any:
    """The kernel of such parameters whose body is this text; `scope`: its globals besides tw, np and math."""
    text = f"@tw.kernel\ndef kernel({parameters}):\n{indent(body.strip(), '    ')}\n"
    file = f"<written {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {**(scope or {}), "tw": tw, "np": np, "math": math}
    exec(compile(text, file, "exec"), names)
    return names["kernel"]


def refused(
    kernel: Callable[..., Any] | tw.Kernel, *args: Any, **constexprs: Any
) -> tuple[str, str]:
    """The report of a kernel that must not compile, and the source text under its caret."""
    with pytest.raises(TilewrightError) as caught:
        kernel.compile(*args, target="reference", **constexprs)  # pyright: ignore
    error = caught.value
    place = error.location
    assert place is not None, str(error)
    assert place.end_col is not None, str(error)
    return str(error), place.source_line[place.col - 1 : place.end_col - 1]
