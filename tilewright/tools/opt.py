"""Apply passes to MLIR text and print the module, as mlir-opt and xdsl-opt do.

Every pass of Tilewright and of stock xDSL is known by name; `tilewright opt --list` shows them. Each goes
through the whole module, whatever ops MLIR's spelling of a pipeline writes around it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Any

from tilewright.diagnostics import Location, TilewrightError, error_at
from tilewright.frozen import frozen
from tilewright.tools.console import err, render_error
from tilewright.tools.exits import DONE, INPUT_ERROR, add_options
from tilewright.tools.pipelines import available_passes, make_pipeline, module_pipeline
from tilewright.tools.sources import CommandSource, parse_source, split_input

EPILOG = """\
examples:
  tilewright opt kernel.mlir                               parse, verify, print in canonical form
  tilewright opt kernel.mlir -p "canonicalize,cse"         two passes
  tilewright opt - --pass-pipeline "builtin.module(gpu.module(cse))"    MLIR's spelling, from standard input
  tilewright opt bad.mlir --split-input-file --verify-diagnostics
      each part between `// -----` lines must give exactly the errors that its comments expect:
      // expected-error {{text}}, @+1 for the next line, @-1 for the one before
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="-", help="MLIR text; - reads standard input")
    pipeline = parser.add_mutually_exclusive_group()
    pipeline.add_argument("-p", "--passes", default="", metavar="LIST", help='"a,b{option=value}"')
    pipeline.add_argument("--pass-pipeline", metavar="TEXT", help='"builtin.module(a,b{...})"')
    rows = {
        "-o --output FILE": "write there, not to the terminal",
        "--split-input-file": "parts between `// -----` lines on their own",
        "--verify-diagnostics": "compare errors with expected-error comments",
        "--print-ir-after-all": "print the module after every pass (stderr)",
        "--print-op-generic": "the generic form of ops",
        "--renumber": "name values as mlir-opt does: %%0, %%c8, %%arg0",
        "--allow-unregistered-dialect": "keep ops of unknown dialects",
        "--strict": "the implementation's narrower rules",
        "--list": "list the passes and exit",
    }
    add_options(parser, rows)


def execute(args: argparse.Namespace) -> int:
    if args.list:
        for name, factory in sorted(available_passes().items()):
            print(f"{name:40} {about(factory())}")
        return DONE
    source = parse_source(args.file)
    text = source.read()
    nested = args.pass_pipeline
    spec = module_pipeline(nested) if nested is not None else args.passes
    make_pipeline(spec)
    parts = list(split_input(text)) if args.split_input_file else [(0, text)]
    code = DONE
    outputs: list[str] = []
    for lines_before, part in parts:
        if args.verify_diagnostics:
            problems = unexpected(part, source, lines_before, spec, args)
            for problem in problems:
                render_error(problem)
            code = max(code, INPUT_ERROR if problems else DONE)
            continue
        try:
            outputs.append(transform(part, source, lines_before, spec, args))
        except TilewrightError as error:
            render_error(str(error))
            code = INPUT_ERROR
    result = "// -----\n".join(outputs)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(result)
    else:
        sys.stdout.write(result)
    return code


def about(kind: type[Any]) -> str:
    """One line on a pass."""
    if kind.__module__.startswith("tilewright."):
        return kind.__doc__ or ""
    own = (kind.__doc__ or "").strip().split("\n")[0]
    known = own and not own.startswith(f"{kind.__name__}(")
    return own if known else f"of stock xDSL ({kind.__module__})"


def transform(
    text: str,
    source: CommandSource,
    lines_before: int,
    spec: str,
    args: argparse.Namespace,
    errors: list[TilewrightError] | None = None,
) -> str:
    """One module through the pipeline, as text; ``errors`` receives every error of the parser."""
    from tilewright.dialects import make_context
    from tilewright.dialects.text import parse_module, verify_module

    context = make_context(allow_unregistered=args.allow_unregistered_dialect)
    warnings: list[str] = []
    # Empty lines before a part keep the line numbers of its diagnostics those of the file.
    whole = "\n" * lines_before + text
    module = parse_module(
        whole, source.name, context=context, strict=args.strict, warnings=warnings, errors=errors
    )
    for warning in warnings:
        err().print(warning)

    def after_pass(previous: Any, current: Any, following: Any) -> None:
        if previous is None:
            return
        if args.print_ir_after_all:
            err().print(f"// -----// IR after {previous.name} //----- //")
            err().print(_print(current, args), end="")
        try:
            verify_module(current)
        except TilewrightError as error:
            error.rule = f"pass {previous.name} must leave a module that verifies"
            raise

    run_passes(make_pipeline(spec, after_pass), context, module)
    return _print(module, args)


def _print(module: Any, args: argparse.Namespace) -> str:
    from tilewright.dialects.text import print_module

    return print_module(module, generic=args.print_op_generic, renumber=args.renumber)


def run_passes(pipeline: Any, context: Any, module: Any) -> None:
    """Applies a pipeline; what a stock pass raises becomes a diagnostic that names the pass."""
    from xdsl.utils.exceptions import DiagnosticException, PassFailedException

    passes = [*pipeline.passes, None]
    for n, each in enumerate(passes):
        if pipeline.callback is not None:
            pipeline.callback(passes[n - 1] if n else None, module, each)
        if each is None:
            return
        try:
            each.apply(context, module)
        except (DiagnosticException, PassFailedException) as error:
            message = str(error).strip().split("\n")[-1] or type(error).__name__
            raise error_at(module, f"pass {each.name} failed: {message}") from error
        except Exception as error:
            if isinstance(error, TilewrightError) or type(each).__module__.startswith(
                "tilewright."
            ):
                raise
            raise error_at(
                module,
                f"pass {each.name} of xDSL failed: {type(error).__name__}: {error}",
                rule="it is a pass of stock xDSL: what it takes, and its faults, are not Tilewright's",
            ) from error


@frozen
class Expectation:
    """A comment ``// expected-error {{text}}``: the line that it speaks of, and the text."""

    line: int
    text: str


_EXPECTED = re.compile(r"//\s*expected-error\s*(?:@([+-]\d+|above|below))?\s*\{\{(.*?)\}\}")


def expectations(text: str, lines_before: int) -> Iterator[Expectation]:
    """The errors that the comments of ``text`` expect."""
    for number, line in enumerate(text.split("\n"), start=lines_before + 1):
        for match in _EXPECTED.finditer(line):
            shift = {"above": -1, "below": 1, None: 0}.get(match[1])
            yield Expectation(number + (int(match[1]) if shift is None else shift), match[2])


def unexpected(
    text: str, source: CommandSource, lines_before: int, spec: str, args: argparse.Namespace
) -> list[str]:
    """How the errors of one part differ from those that its comments expect; empty when alike."""
    expected = list(expectations(text, lines_before))
    errors: list[TilewrightError] = []
    try:
        transform(text, source, lines_before, spec, args, errors)
    except TilewrightError as error:
        if error not in errors:
            errors.append(error)
    problems: list[str] = []
    for raised in errors:
        line = raised.location.line if raised.location is not None else 0
        met = next((e for e in expected if e.line == line and e.text in raised.message), None)
        if met is None:
            problems.append(f"{raised}\nnote: no comment expects this error")
        else:
            expected.remove(met)
    for missing in expected:
        place = Location(source.name, missing.line, 1)
        problems.append(f"{place}: error: expected error {missing.text!r} was not produced")
    return problems
