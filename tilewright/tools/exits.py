"""How a command ends: exit codes, and the errors that are about the command line itself."""

from __future__ import annotations

import argparse

from tilewright.diagnostics import TilewrightError

DONE, INPUT_ERROR, USAGE, MISSING, INTERNAL = 0, 1, 2, 3, 4


class MissingTool(Exception):
    """A tool, a library or a device that a command needs is not here. ``hint``: how to get it."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.hint = hint


def count(text: str) -> int:
    """An option's number that is 0 or more."""
    if int(text) < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return int(text)


class UsageError(TilewrightError):
    """Arguments of the command line that do not fit together."""
