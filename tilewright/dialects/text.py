"""From MLIR text to IR and back: every error is a diagnostic that points into the text.

`parse_module` gives each op its place in the text as location, so that verifiers, passes and
code generators can point at it later.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from tilewright.diagnostics import (
    CompileError,
    Location,
    Note,
    TilewrightError,
    VerifyError,
    location_of,
)
from tilewright.dialects import make_context
from tilewright.dialects.printing import MlirPrinter

_RESULTS = re.compile(r"%[^=\n]*=\s*")

# Ops that the RFCs write without their dialect, or with its name in capitals.
_RFC_PREFIXES = ("XeTile.", "XeGPU.")


class SourceText:
    """Lines and columns of a text. Both count from 1."""

    def __init__(self, text: str, filename: str):
        self.text = text
        self.filename = filename
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def location(self, start: int, end: int | None = None) -> Location:
        """A place for a diagnostic; a stretch over several lines is cut at the first."""
        start = min(start, len(self.text))
        # The end of the input is best shown after the last word that was read.
        if not self.text[start:].strip():
            start = len(self.text.rstrip())
            end = start
        line, column = self.position(start)
        content = self.line(line)
        if end is None or end <= start:
            end = start + 1
        end_column = max(column + 1, min(column + end - start, len(content) + 1))
        return Location(self.filename, line, column, end_column, content)


class LocatingParser(Parser):
    """The xDSL parser, which also notes where in the text each op stands.

    Reads the RFCs' op names without their dialect, too.
    """

    def __init__(self, context: Context, source: SourceText):
        super().__init__(context, source.text, source.filename)
        self._source = source
        self._filename = StringAttr(source.filename)

    def parse_operation(self) -> Operation:
        start = self.pos
        operation = super().parse_operation()
        if isinstance(operation.location, UnknownLoc):
            # As in MLIR, an op stands where its name stands, after its results.
            results = _RESULTS.match(self._source.text, start)
            line, column = self._source.position(results.end() if results else start)
            operation.location = FileLineColLoc(self._filename, IntAttr(line), IntAttr(column))
        return operation

    def _get_op_by_name(self, name: str) -> type[Operation]:
        for candidate in _candidates(name):
            known = self.ctx.get_optional_op(
                candidate, dialect_stack=self._parser_state.dialect_stack
            )
            if known is not None:
                return known
        return super()._get_op_by_name(name)


def _candidates(name: str) -> Iterator[str]:
    """Names under which an op may be registered: as written first, then as the RFCs shorten it."""
    yield name
    for prefix in _RFC_PREFIXES:
        if name.startswith(prefix):
            yield prefix.lower() + name.removeprefix(prefix)
    if "." not in name:
        yield f"xetile.{name}"


@contextmanager
def parse_errors(source: SourceText, parser: LocatingParser | None = None) -> Generator[None]:
    """Turns whatever the parser raises into a `CompileError` in the text."""

    def here() -> Location:
        return source.location(parser.pos if parser is not None else 0)

    try:
        yield
    except TilewrightError:
        raise
    except ParseError as error:
        notes = [
            Note(message or "here", source.location(span.start, span.end))
            for span, message in getattr(error, "refs", ())
        ]
        raise CompileError(
            _sentence(error.msg),
            location=source.location(error.span.start, error.span.end),
            notes=notes,
        ) from None
    except RecursionError:
        raise CompileError("the text is nested too deeply to be read", location=here()) from None
    except Exception as error:
        # A verifier, a constructor or the parser of an attribute: whatever it is, it is about
        # the text at this place. The cause stays attached for whoever debugs the dialect.
        raise CompileError(_sentence(_reason(error)), location=here()) from error


def _reason(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return text or "this cannot be read here"


def _sentence(message: str) -> str:
    """Messages start in lower case after `error:` and end without a full stop."""
    message = message.strip().rstrip("!.")
    if message[:1].isupper() and not message[1:2].isupper():
        message = message[0].lower() + message[1:]
    return message


def parse_module(
    text: str,
    filename: str = "<string>",
    *,
    context: Context | None = None,
    verify: bool = True,
) -> ModuleOp:
    """Reads a module and verifies it.

    Raises `CompileError` where the text is malformed and `VerifyError` at an op that breaks a rule.
    The context defaults to one with every dialect.
    """
    source = SourceText(text, filename)
    parser = None
    with parse_errors(source):
        parser = LocatingParser(context or make_context(), source)
    assert parser is not None
    with parse_errors(source, parser):
        module = parser.parse_module()
    if verify:
        verify_module(module, source)
    return module


def verify_module(module: Operation, source: SourceText | None = None) -> None:
    """Verifies a module and everything in it; raises `VerifyError` at the first offending op."""
    try:
        module.verify()
    except (DiagnosticException, ValueError, AssertionError) as error:
        raise _locate(module, error, source) from None


def _locate(module: Operation, error: Exception, source: SourceText | None) -> VerifyError:
    """The op behind a failed verification. An op's own rule counts before its place in a block."""
    operations = list(module.walk())
    for operation in operations:
        try:
            operation.verify_()
        except (VerifyException, AssertionError, ValueError) as own:
            return _verify_error(operation, own, source)
    for operation in operations:
        try:
            operation.verify(verify_nested_ops=False)
        except (DiagnosticException, AssertionError, ValueError) as structural:
            return _verify_error(operation, structural, source)
    return VerifyError(_sentence(_reason(error)))


def _verify_error(operation: Operation, error: Exception, source: SourceText | None) -> VerifyError:
    location = location_of(operation)
    if location is not None and source is not None and location.file == source.filename:
        content = source.line(location.line)
        name = operation.name
        start = location.col - 1
        end = start + len(name) if content.startswith(name, start) else start + 1
        location = Location(location.file, location.line, location.col, end + 1, content)
    message = _sentence(_reason(error))
    return VerifyError(f"'{operation.name}' op {message}", location=location)


def print_module(
    module: Operation, *, generic: bool = False, renumber: bool = False, locations: bool = False
) -> str:
    """The canonical text of a module, as mlir-opt would print it, with a newline at its end.

    `renumber` gives values MLIR's names (`%0`, `%c8`, `%arg0`) instead of their own; `locations`
    prints where each op came from.
    """
    stream = StringIO()
    printer = MlirPrinter(
        stream, print_generic_format=generic, print_debuginfo=locations, renumber=renumber
    )
    printer.print_top(module)
    return stream.getvalue() + "\n"
