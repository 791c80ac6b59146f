"""Compile a kernel and print one of its stages: IR of any level, LLVM IR, assembly, or an object.

A Python kernel is compiled for arguments that are given as text: f32[2048,2048] is a contiguous
array, bf16[64,128;1,64] one with strides in elements, f32 or index a scalar, 3 or 0.5 its value.
No device is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections import ChainMap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.targets.base import Advising, CompileOptions, Executable
from tilewright.targets.host import HostExecutable
from tilewright.targets.stages import Texts
from tilewright.tools.console import err
from tilewright.tools.exits import DONE, UsageError, add_options
from tilewright.tools.sources import (
    CommandSource,
    find_kernel,
    kernel_alone,
    parse_argument,
    parse_constexprs,
    parse_source,
)

EPILOG = """\
examples:
  tilewright compile examples/01_gemm.py:gemm --args 'bf16[2048,2048]' 'bf16[2048,2048]' \\
      'bf16[2048,2048]' --emit xetile
  tilewright compile FILE.py:KERNEL --args 'f32[64,64]' 'f32[64,64]' --set BM=32 --emit asm
  tilewright compile kernel.mlir --target cpu --emit llvm -o kernel.ll
  tilewright compile program.mlir:KERNEL --target xe-pvc --emit spirv     one of several
  tilewright compile kernel.mlir --target xe-pvc --emit report   what the machine code contains
  tilewright compile FILE.py:KERNEL --target sm_90a --args ... --emit sass    or ptx, resources
  tilewright compile kernel.mlir --list            the stages that the target has
"""
FILE = "FILE.mlir, FILE.mlir:KERNEL, FILE.py:KERNEL, or - for MLIR on standard input"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help=FILE)
    add_kernel_arguments(parser)
    parser.add_argument(
        "--target", default="cpu", help="cpu (default), reference, cuda, xe-pvc, ..."
    )
    rows = {
        "--emit STAGE": "xetile, llvm, asm, ...: one of --list (default: its first)",
        "--list": "list the stages instead",
        "-o --output OUT": "write there, not to the terminal",
        "--strict": "warnings about the text are errors",
    }
    add_options(parser, rows)
    add_code_arguments(parser)


def add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """``--args`` and ``--set``: what a Python kernel is compiled for."""
    for name, called, what in (
        ("--args", "ARG", "its run-time arguments: 'f32[64,128]' 3"),
        ("--set", "NAME=VALUE", "its constexprs: BM=128 T=bf16"),
    ):
        parser.add_argument(name, nargs="+", action="extend", default=[], metavar=called, help=what)


def add_code_arguments(parser: argparse.ArgumentParser) -> None:
    """``--disable`` and ``--no-fastmath``: see `changes_of`."""
    parser.add_argument(
        "--disable", default="", metavar="LIST", help="optimisation passes to leave out: a,b"
    )
    parser.add_argument("--no-fastmath", action="store_true", help="strict arithmetic")


def changes_of(args: argparse.Namespace) -> dict[str, Any]:
    """The options that code is made with, as a command line says them."""
    disable = [name for name in args.disable.split(",") if name]
    return {"target": args.target, "fastmath": not args.no_fastmath, "disable": disable}


def execute(args: argparse.Namespace) -> int:
    source = parse_source(args.file, of_modules=True)
    if source.is_python:
        return compile_and_print(source, args)
    from tilewright.tools.limited import limited

    return limited(lambda: compile_and_print(source, args))


def compile_and_print(source: CommandSource, args: argparse.Namespace) -> int:
    """Compiles what a file holds and prints the stage that was asked for."""
    compiled = compile_source(source, args.args, args.set, changes_of(args), args.strict)
    stages = stages_of(compiled)
    if args.list:
        for name in stages:
            print(name)
        return DONE
    emit = args.emit or next(iter(stages))
    if emit not in stages:
        raise UnsupportedError(
            f"target {args.target!r} has no stage {emit!r} of this kernel",
            hint=f"its stages are {', '.join(stages)}",
        )
    write(stages[emit], args.output)
    executable = getattr(compiled, "executable", compiled)
    if isinstance(executable, Advising):
        executable.advise()
    for remark in compiled.remarks:
        err().print(f"remark: {remark}")
    return DONE


def compile_source(
    source: CommandSource,
    arguments: list[str],
    settings: list[str],
    changes: Mapping[str, Any],
    strict: bool = False,
) -> Executable | Any:
    """The compiled kernel of a Python file or of an MLIR module; `strict`: what is a warning else is an error."""
    if source.is_python:
        kernel = find_kernel(source)
        given = [parse_argument(text) for text in arguments]
        return kernel.compile(*given, **parse_constexprs(settings, kernel), **changes)
    if arguments or settings:
        raise UsageError("--args and --set are for Python kernels: MLIR text has its types")
    from tilewright.dialects.text import parse_module
    from tilewright.runtime.recursion import deeply
    from tilewright.targets.base import with_options
    from tilewright.targets.entry import build_text

    warnings: list[str] = []
    module = parse_module(source.read(), source.name, strict=strict, warnings=warnings)
    _check_launchable(module, strict, warnings)
    for warning in warnings:
        err().print(warning)
    options = with_options(CompileOptions(), changes)
    if source.kernel is not None:
        module = kernel_alone(source, module, options.target)
    return deeply(lambda: build_text(module.clone(), options, launched=False))


def _check_launchable(module: ModuleOp, strict: bool, warnings: list[str]) -> None:
    """Only a `kernel` can be launched. Text without the word is compiled all the same, with a warning."""
    for op in module.walk():
        if isinstance(op, gpu.FuncOp) and op.kernel is None:
            error = error_at(
                op,
                f"gpu.func @{op.sym_name.data} is no kernel: no launch can name it",
                rule="what gpu.launch_func names is a gpu.func with the attribute kernel",
                hint=f"gpu.func @{op.sym_name.data}(..) kernel {{ .. }}",
            )
            if strict:
                raise error
            warnings.append(str(error).replace("error: ", "warning: ", 1))


def stages_of(compiled: Executable) -> Mapping[str, str | bytes]:
    """Everything that ``--emit`` can name, made when it is asked for; the object code where the target keeps one."""
    executable: object = getattr(compiled, "executable", compiled)
    kept: Mapping[str, bytes] = {}
    if isinstance(executable, HostExecutable):
        kept = Texts({"object": partial(HostExecutable.linkable, executable)})
    # The last stages first: their names are known without lowering once more.
    return ChainMap[str, Any](kept, compiled.asm, compiled.ir)  # pyright: ignore


def write(content: str | bytes, output: str | None) -> None:
    """To a file, or to standard output."""
    data = content if isinstance(content, bytes) else content.encode()
    if output and output != "-":
        Path(output).write_bytes(data)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    if isinstance(content, str) and not content.endswith("\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
