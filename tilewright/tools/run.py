"""Run a Python kernel file, one kernel of it, or an MLIR module.

A Python file is executed as `python FILE` would, with `--target` for every kernel that names none.
FILE.py:KERNEL launches that kernel on random arrays, with NaN in those that it only writes, and prints a
summary of each. An MLIR module is executed from its entry function, which gets random arrays where it takes
some and --args says no others; what it prints with the runner's functions, returns or writes to these arrays goes
to the terminal.
"""

from __future__ import annotations

import argparse
import runpy
import secrets
import sys
import tempfile
import warnings
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import knobs
from tilewright.diagnostics import CompileError, LaunchError, Location, TilewrightError
from tilewright.lang.kernel import definition
from tilewright.reference.mlir_runner import summary
from tilewright.runtime.program.worker import Limits, in_worker
from tilewright.targets.base import get_target, split_name
from tilewright.tools.compile import add_kernel_arguments
from tilewright.tools.console import err, out, show_warning
from tilewright.tools.directives import check_lines, directives, require_filecheck
from tilewright.tools.exits import DONE, INPUT_ERROR, UsageError, add_options, count
from tilewright.tools.limited import add_trusted, limited, refuse_internal
from tilewright.tools.sources import (
    CommandSource,
    check_python,
    find_kernel,
    parse_argument,
    parse_constexprs,
    parse_source,
    python_error,
)

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

EPILOG = """\
examples:
  tilewright run examples/01_gemm.py -- --size 512          arguments after -- are the file's own
  tilewright run examples/01_gemm.py:gemm --set BM=32 BN=32 \\
      --args 'f32[64,64]' 'f32[64,64]' 'f32[64,64]'          one launch on random arrays
  tilewright run test.mlir --filecheck                      compare the output with // CHECK: lines
  tilewright run test.mlir --entry main --seed 1            the seed of random arrays
  tilewright run test.mlir --args 'f32[64,128]' 3           what the entry is called with: random arrays, numbers
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="FILE.mlir, FILE.py, FILE.py:KERNEL, or - for MLIR text")
    parser.add_argument("rest", nargs="*", default=[], help="arguments of a Python file, after --")
    add_kernel_arguments(parser)
    rows = {
        "--grid X,Y,Z": "of FILE.py:KERNEL; default: what covers its arrays",
        "--target TARGET": "cpu, emu, reference, cuda, ... (default: as stated in the file)",
        "--entry ENTRY": "function to run of an MLIR module",
        "--check": "detect races and undefined behaviour",
        "--filecheck": "compare the output with the file's CHECK lines",
        "--strict": "the implementation's narrower rules",
        "--every-launch": "also run repeated launches whose results nothing reads",
    }
    add_options(parser, rows)
    parser.add_argument(
        "--level", default="auto", choices=["auto", "workgroup", "subgroup", "lane"],
        help="level of MLIR text that does not state it",
    )  # fmt: skip
    parser.add_argument(
        "--device-memory", choices=["zero", "poison"], default="zero",
        help="content of fresh gpu.alloc memory: zero, as from drivers that clear it, or bytes of 255 (NaN)",
    )  # fmt: skip
    parser.add_argument("--seed", type=count, help="of random data")
    add_trusted(parser)


def execute(args: argparse.Namespace) -> int:
    source = parse_source(args.file)
    if args.target:
        split_name(args.target)  # an unknown one is an error also where no kernel needs it
    changes = {"target": args.target} if args.target else {}
    with knobs.override(**changes):
        if source.kernel is not None or (source.is_python and args.args):
            return run_kernel(source, args)
        if source.is_python:
            return run_file(source, args.rest)
        return run_module(source, args)


def run_file(source: CommandSource, rest: list[str]) -> int:
    """Executes a Python file as the main program."""
    check_python(source.path)  # an error of its own, not of the program's
    warnings.showwarning = show_warning
    argv = sys.argv
    sys.argv = [source.path, *rest]
    try:
        runpy.run_path(source.path, run_name="__main__")
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or DONE
        err().print(str(leave.code))
        return INPUT_ERROR
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except SyntaxError as error:
        where = Location(error.filename or source.path, error.lineno or 1, error.offset or 1)
        raise CompileError(f"this is no Python: {error.msg}", location=where) from None
    except Exception as error:
        raise python_error(error, source.path) from error
    finally:
        sys.argv = argv
    return DONE


def run_kernel(source: CommandSource, args: argparse.Namespace) -> int:
    """Launches one kernel on random arrays, and prints what became of each array."""
    from tilewright.targets.base import CompileOptions
    from tilewright.tools.launches import ask, inputs_of, shortfall, text_of

    kernel = find_kernel(source)
    constexprs = parse_constexprs(args.set, kernel)
    seed = args.seed if args.seed is not None else secrets.randbelow(2**31)
    try:
        asked = ask(kernel, [parse_argument(a) for a in args.args], constexprs, CompileOptions())
    except LaunchError as error:
        raise error.at(definition(kernel.function)) from None
    inputs = inputs_of(asked, args.grid, seed)
    asked.launch(inputs.grid, inputs.args)
    print(f"seed {seed}, grid {text_of(inputs.grid)}")
    if (part := shortfall(asked, inputs.grid, inputs.args)) is not None:
        err().print(f"warning: {part}")
    for name, value in zip(asked.names, inputs.args, strict=True):
        if isinstance(value, np.ndarray):
            print(f"{name}: {summary(value)}")
    return DONE


def run_module(source: CommandSource, args: argparse.Namespace) -> int:
    """Executes an MLIR module from its entry."""
    if args.set:
        raise UsageError("--set is for Python kernels: an MLIR text has no constexprs")
    text = source.read()
    if not args.filecheck:
        return execute_module(text, source.name, args)
    found = directives(text)
    try:
        code = compare_module(text, source.name, args)
    except TilewrightError as error:
        if not found.may_fail:
            raise
        err().print(str(error))
        code = INPUT_ERROR
    if found.may_fail:
        how = "passes unexpectedly" if code == DONE else "fails as expected"
        print(f"{source.name}: marked XFAIL, {how}", file=sys.stderr)
        return DONE
    return code


def compare_module(text: str, name: str, args: argparse.Namespace) -> int:
    """Executes a module and compares what it prints with its CHECK lines."""
    require_filecheck()
    # A file, not a buffer: the worker process writes to it too.
    with tempfile.TemporaryFile("w+") as printed:
        with redirect_stdout(printed):
            code = execute_module(text, name, args)
        if code != DONE:
            return code
        printed.seek(0)
        output = printed.read()
        with redirect_stdout(sys.stderr):  # an expression of a CHECK line may search for ever
            same = in_worker(lambda _: check_lines(text, name, output), Limits())
    return DONE if same else INPUT_ERROR


def execute_module(text: str, name: str, args: argparse.Namespace) -> int:
    from tilewright.dialects.text import parse_module

    warnings: list[str] = []
    module = parse_module(text, name, strict=args.strict, warnings=warnings)
    for warning in warnings:
        err().print(warning)
    refuse_internal(module, args.trusted)
    if not args.check and (args.target is None or get_target(args.target).compiles):
        return run_compiled(module, text, args)
    return limited(lambda: run_reference(module, text, args))


def run_reference(module: ModuleOp, text: str, args: argparse.Namespace) -> int:
    """The whole program by the reference executor."""
    from tilewright import reference
    from tilewright.runtime.program.entry import is_of_host
    from tilewright.runtime.program.host import enter_program
    from tilewright.targets.entry import first_forms

    entry = args.entry or directives(text).entry
    if is_of_host(module, entry):
        entry = enter_program(module, entry, entry_arguments(args), say)
    else:
        first_forms(module)
    report = reference.run(module, kernel=entry, check=args.check, seed=args.seed)
    sys.stdout.flush()
    if report.findings:
        out().print(str(report))
    return DONE if report.ok else INPUT_ERROR


def entry_arguments(args: argparse.Namespace) -> list[Any]:
    """What the entry of a module is called with."""
    return [parse_argument(a) for a in args.args]


def say(text: str) -> None:
    print(text, file=sys.stderr)


def run_compiled(module: ModuleOp, text: str, args: argparse.Namespace) -> int:
    """Host code compiled, kernels by their target, in a worker process that a wild address may end."""
    from tilewright.runtime.program import run_program

    found = directives(text)
    level = args.level
    if level == "auto" and found.level is not None:
        level = found.level
        print(f"{level} level, as stated by the RUN line", file=sys.stderr)
    failures = in_worker(
        lambda fail: run_program(
            module,
            entry=args.entry or found.entry,
            args=entry_arguments(args),
            level=level,
            target=args.target or "cpu",
            seed=args.seed,
            strict=args.strict,
            zeroed=args.device_memory == "zero",
            every_launch=args.every_launch,
            fail=fail,
            say=say,
        ),
        Limits(),
    )
    if not args.strict:
        return DONE
    for failure in failures:
        err().print(f"error: a comparison of the program failed: {failure}")
    return INPUT_ERROR if failures else DONE
