"""Measure Tilewright in turn with its peers: one process, random data, medians, same threads.

The suites are part of the source tree, `benchmarks/`, and of no installed package.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tilewright.tools.exits import MissingTool

ROOT = Path(__file__).parents[2]
"""Of the source tree that this file is part of, where it is."""


def command() -> ModuleType:
    """The command, from the source tree. MissingTool where this is none."""
    if not (ROOT / "benchmarks" / "bench.py").is_file():
        raise MissingTool(
            "the benchmarks are not part of an installed Tilewright",
            "they are in its source tree: pip install -e . there, and run tilewright bench",
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module("benchmarks.bench")


def configure(parser: argparse.ArgumentParser) -> None:
    found = command()
    parser.description, parser.epilog = found.__doc__, found.EPILOG
    found.configure(parser)


def execute(args: argparse.Namespace) -> int:
    return command().execute(args)
