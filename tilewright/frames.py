"""Tracebacks of diagnosed errors hold the frames of the user's program, not those of the compiler.

An error of Tilewright says itself where it is: file, line, caret, rule. What follows the user's call in a
traceback would be dozens of frames of passes. ``TILEWRIGHT_TRACEBACK=1`` keeps them.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from types import FrameType, TracebackType

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def users(at: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package; None where there are no others."""
    from tilewright import knobs
    from tilewright.diagnostics import TilewrightError

    try:
        if knobs.current().traceback:
            return at
    except TilewrightError:
        pass  # a variable that is no value is the error on its way to the user
    links: list[TracebackType] = []
    step = at
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_OURS):
            links.append(step)
        step = step.tb_next
    found: TracebackType | None = None
    for link in reversed(links):
        found = TracebackType(found, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return found


def rendered(error: BaseException) -> list[str]:
    """The lines that a notebook shows of an error: frames of its cells and of the user's files."""
    at = users(error.__traceback__) or error.__traceback__
    shells = (f"{os.sep}IPython{os.sep}", f"{os.sep}ipykernel{os.sep}")
    while (
        at is not None and at.tb_next and any(s in at.tb_frame.f_code.co_filename for s in shells)
    ):
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at)).splitlines()


def watch(kind: type[BaseException]) -> None:
    """Lets the interpreter print errors of `kind` that nobody caught with the user's frames alone.

    A program that prints its errors in a way of its own is left in peace.
    """
    if sys.excepthook is not sys.__excepthook__:
        return

    def show(raised: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        if isinstance(error, kind):
            at = users(at) or at
            error.__traceback__ = at
        sys.__excepthook__(raised, error, at)

    sys.excepthook = show


def warn(message: str) -> None:
    """A UserWarning at the user's line: the innermost that is not of this package."""
    at: FrameType = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while at.f_back is not None and at.f_code.co_filename.startswith(_OURS):
        at = at.f_back
    seen = at.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, UserWarning, at.f_code.co_filename, at.f_lineno, registry=seen)
