"""How a command ends: exit codes, and the errors that are about the command line itself."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

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


def seconds(text: str) -> float:
    """An option's time, 0 or more."""
    if not 0 <= float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} seconds are no time")
    return float(text)


def add_options(parser: argparse.ArgumentParser, rows: Mapping[str, str]) -> None:
    """Options and what each is for: `-o --output OUT` takes a text, called OUT; one that names none is a flag."""
    for said, what in rows.items():
        names = said.split()
        flag = names[-1].startswith("-")
        given = {"action": "store_true"} if flag else {"metavar": names.pop()}
        parser.add_argument(*names, help=what, **given)  # pyright: ignore[reportArgumentType]


class UsageError(TilewrightError):
    """Arguments of the command line that do not fit together."""
