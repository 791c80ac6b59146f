"""``tilewright COMMAND``: finds the command, runs it, and turns what goes wrong into a diagnostic.

A command is a module of this package with two functions: ``configure(parser)`` declares its
arguments, ``execute(args)`` does the work and returns an exit code. It is imported only when it is
named. Exit codes: 0 done, 1 a diagnosed error in the input, 2 wrong usage, 3 a tool or a device is
missing (4 is an error of Tilewright itself).
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tilewright.tools.console import render_error
from tilewright.tools.exits import (
    DONE,
    INPUT_ERROR,
    INTERNAL,
    MISSING,
    USAGE,
    MissingTool,
    UsageError,
)

COMMANDS: dict[str, str] = {
    "run": "run a Python kernel file, one kernel of it, or an MLIR module",
    "opt": "apply passes to a module and print it",
    "compile": "compile a kernel and print any stage: IR, LLVM, assembly, object",
    "check": "compare every stage of a kernel with the reference executor",
    "show": "draw who owns what, and the stages side by side",
    "bench": "time Tilewright and its peers alternately",
    "tune": "search the constexprs of a kernel and store the best on disk",
    "info": "show targets, devices, versions and settings, and how to install what is missing",
}

EPILOG = """\
examples:
  tilewright info                                     what this machine can do
  tilewright run examples/01_gemm.py                  a kernel file, on the CPU
  tilewright compile examples/01_gemm.py:gemm --args 'f32[2048,2048]' 'f32[2048,2048]' \\
      'f32[2048,2048]' --emit xetile                  what the front end makes of a kernel
  tilewright opt kernel.mlir -p canonicalize,cse      passes, one after another
  tilewright bench gemm --against torch               alternately with a peer, medians

`tilewright COMMAND --help` explains each command. `-` stands for standard input.
exit codes: 0 done, 1 an error in the input, 2 wrong usage, 3 a tool or device is missing
"""


class Parser(argparse.ArgumentParser):
    """Help with examples, laid out as written."""

    def __init__(self, *args: object, **kwargs: object):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        hint = self._meant(message)
        self.exit(USAGE, f"{self.prog}: error: {message}\n" + (f"hint: {hint}\n" if hint else ""))

    def _meant(self, message: str) -> str | None:
        """What was meant where a choice or an option is not known; None without a guess."""
        import re

        from tilewright.diagnostics import did_you_mean

        if choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            word, known = choice[1], [*re.findall(r"'([^']*)'", choice[2]), "help"]
        elif option := re.search(r"unrecognized arguments: (--[^ =]+)", message):
            word, known = option[1], re.findall(r"--[\w-]+", self.format_usage())
        else:
            return f"{self.prog} --help explains it" if " are required: " in message else None
        if near := did_you_mean(word, known, 2):
            return near
        return f"a pass is named with -p: -p {word[2:]}" if self.prog.endswith(" opt") else None


def make_parser(commands: Sequence[str] = ()) -> Parser:
    """The parser of the whole command line; only ``commands`` know their own arguments."""
    parser = Parser(
        prog="tilewright",
        description="A tile compiler in Python: run, look at, check and measure kernels.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, summary in COMMANDS.items():
        if name in commands:
            module = importlib.import_module(f"tilewright.tools.{name}")
            sub = subparsers.add_parser(
                name, help=summary, description=module.__doc__, epilog=getattr(module, "EPILOG", "")
            )
            module.configure(sub)
            sub.set_defaults(execute=module.execute, parser=sub)
        else:
            subparsers.add_parser(name, help=summary, add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Never raises, but for the exits of argparse."""
    # Start-up makes a hundred thousand objects that all stay: searching them for cycles takes a tenth of its time.
    gc.set_threshold(200_000, 20, 20)
    arguments = list(sys.argv[1:] if argv is None else argv)
    while arguments[:1] == ["help"]:  # `tilewright help run`
        arguments = [*arguments[1:], "--help"]
    named = [a for a in arguments if not a.startswith("-")][:1]
    try:
        parser = make_parser([name for name in named if name in COMMANDS])
        args, unknown = parser.parse_known_args(arguments)
        if unknown:
            getattr(args, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
        if args.version:
            from tilewright.tools.info import version

            print(f"tilewright {version()}")
            return DONE
        if args.command is None:
            parser.print_help()
            return USAGE
        return int(args.execute(args) or DONE)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong with the input.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return report(error)


def command() -> NoReturn:
    """The script `tilewright`: `main`, and an end that does not take every object apart (a tenth of a second)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed: `tilewright .. >&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else USAGE if stop.code else DONE
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError, ValueError):
            try:
                stream.flush()
            except OSError as error:
                if error.errno not in _OUTPUT:
                    raise
                code = report(error)
    os._exit(code)


_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to an open file may end in."""


def report(error: Exception) -> int:
    """Prints ``error`` as a diagnostic on standard error; gives the exit code that it means."""
    from tilewright import knobs
    from tilewright.diagnostics import TilewrightError, ToolMissing

    if isinstance(error, TilewrightError):
        place = error.location
        is_other = place and Path(place.file).suffix not in ("", ".mlir", ".py")
        as_what = "\nnote: this file is read as MLIR text; the name of a Python file ends in .py"
        render_error(str(error) + (as_what if is_other else ""))
        codes = {UsageError: USAGE, ToolMissing: MISSING}
        return next((code for kind, code in codes.items() if isinstance(error, kind)), INPUT_ERROR)
    if isinstance(error, MissingTool):
        render_error(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        return MISSING
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _OUTPUT):
        render_error(f"error: {error.filename or 'the output'}: {error.strerror}")
        return INPUT_ERROR
    if isinstance(error, MemoryError):
        render_error(f"error: there is not enough memory: {error}\nhint: give smaller arrays")
        return INPUT_ERROR
    if knobs.current().traceback:
        raise error
    render_error(
        f"internal error: {type(error).__name__}: {error}\n"
        "rule: this is a bug in Tilewright, whatever the input is\n"
        f"hint: {knobs.variable('traceback')}=1 shows where; please report it with the input"
    )
    return INTERNAL


if __name__ == "__main__":
    command()
