"""Commands on MLIR text run in a worker process with limits, and take no internal ops from a file.

Text is a program (`SECURITY.md`): running one, checking one, compiling one may take any time and any memory, and end in
a signal. So the work is done in a fork (`runtime/program/worker`), which prints and reports as the command would.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import error_at
from tilewright.dialects.elementwise import is_elementwise
from tilewright.runtime.program.worker import Limits, in_worker
from tilewright.tools.exits import add_options

INTERNAL = ("mach.", "stage.")
"""Dialects of the compiler's last stages: calls of C functions, addresses, machine instructions."""


def add_trusted(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser, {"--trusted": "execute the compiler's own ops (mach, stage) of an MLIR file too"}
    )


def limited(work: Callable[[], int]) -> int:
    """The exit code of ``work``, a command on MLIR text, done in a worker process.

    Raises WorkerError where it crashed or ran into a limit.
    """

    def inside(_: Callable[[BaseException], object]) -> int:
        from tilewright.tools.cli import report

        try:
            return work()
        except Exception as error:
            return report(error)

    return in_worker(inside, Limits())


def refuse_internal(module: ModuleOp, trusted: bool) -> None:
    """Raises CompileError at an op of a compiler's own dialect, unless the user trusts the file (--trusted)."""
    for op in () if trusted else module.walk():
        if op.name.startswith(INTERNAL) and not is_elementwise(op):
            raise error_at(
                op,
                f"{op.name} is an op of the compiler's last stages: it is not executed from a file",
                rule="such ops reach any memory and any machine instruction",
                hint="--trusted executes them, if you know where the file comes from",
            )
