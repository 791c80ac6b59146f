"""From MLIR text to IR and back: every error is a diagnostic that points into the text.

`parse_module` gives each op its place in the text as location, so that verifiers, passes and
code generators can point at it later.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Attribute, AttributeInvT, Block, Operation, SSAValue
from xdsl.parser import UnresolvedOperand
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from tilewright.diagnostics import (
    CompileError,
    Location,
    Note,
    TilewrightError,
    VerifyError,
    location_of,
)
from tilewright.dialects import make_context
from tilewright.dialects.attribute_text import AttributesParser
from tilewright.dialects.dominance import Dominance
from tilewright.dialects.hints import (
    hint_for,
    in_plain_words,
    rule_in_plain_words,
)
from tilewright.dialects.printing import MLIR_ALIASES, READABLE_ALIASES, MlirPrinter
from tilewright.dialects.stated_layouts import verify_stated_layouts
from tilewright.dialects.strict import strictness
from tilewright.dialects.unknown import hint_for_attribute

# The stock pattern takes exponential time on a quote that is never closed; this one never goes back.
MLIRLexer._unescaped_characters_regex = re.compile(  # pyright: ignore[reportPrivateUsage]
    r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"'
)

_RESULTS = re.compile(r"%[^=\n]*=\s*")
_BEGIN = re.compile(r"(?:\s+|//[^\n]*)*+")
"""What is before the first op of a text."""
_OP_NAME = re.compile(r"[A-Za-z_][\w.$]*")

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


class LocatingParser(AttributesParser):
    """The parser that also notes where in the text each op stands.

    Reads the RFCs' op names without their dialect, too.
    """

    def __init__(self, context: Context, source: SourceText):
        super().__init__(context, source.text, source.filename)
        self._source = source
        self._filename = StringAttr(source.filename)
        self._first_uses: dict[str, Span] = {}

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            module = super().parse_module(allow_implicit_module)
            if isinstance(module.location, UnknownLoc):
                begin = _BEGIN.match(self._source.text)
                module.location = self._place(begin.end() if begin else 0)
            return module
        except ParseError:
            if self._current_token.kind == MLIRTokenKind.EOF and self._only_aliases:
                return ModuleOp([])  # as in MLIR, a text without ops is an empty module
            # The stock parser finds undefined values at the end of the text; show their use.
            for name in self.forward_ssa_references:
                if self._current_token.kind == MLIRTokenKind.EOF and name in self._first_uses:
                    self.raise_error(
                        f"value %{name} is used but not defined", self._first_uses[name]
                    )
            raise

    def _parse_block(self) -> Block:
        """One that a branch named first is defined once, too."""
        name = self._current_token.text[1:]
        if (
            self.blocks.get(name, (None, ()))[1] is None
            and name not in self.forward_block_references
        ):
            self.raise_error(f"re-declaration of block '{name}'")
        return super()._parse_block()

    def resolve_operand(
        self, operand: UnresolvedOperand, type: AttributeInvT
    ) -> SSAValue[AttributeInvT]:
        if operand.operand_name not in self.ssa_values:
            self._first_uses.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

    def resolve_operands(
        self, args: Sequence[UnresolvedOperand], input_types: Sequence[Attribute], error_pos: int
    ) -> Sequence[SSAValue]:
        """A wrong number of types is told at the operands, where there are some."""
        if len(args) != len(input_types):
            at = args[0].span.start if args else error_pos
            self.raise_error(f"expected {len(args)} operand types but had {len(input_types)}", at)
        return super().resolve_operands(args, input_types, error_pos)

    @property
    def _only_aliases(self) -> bool:
        """Whether nothing but definitions of aliases has been read."""
        rest = re.sub(r"^\s*[#!].*$|//.*$|\s+", "", self._source.text, flags=re.MULTILINE)
        return not rest

    def parse_operation(self) -> Operation:
        start = self.pos
        # As in MLIR, an op stands where its name stands, after its results.
        results = _RESULTS.match(self._source.text, start)
        start = results.end() if results else start
        try:
            operation = super().parse_operation()
        except VerifyException as error:
            # A rule of the op that its parser checks when the text of the op is behind it.
            name = _OP_NAME.match(self._source.text, start)
            where = self._source.location(start, name.end() if name else None)
            subject = f"'{name[0]}' op " if name else ""
            rule = f"{subject}{rule_in_plain_words(_sentence(_reason(error)))}"
            raise CompileError(rule, location=where, hint=hint_for(rule)) from error
        if isinstance(operation.location, UnknownLoc):
            operation.location = self._place(start)
        return operation

    def _place(self, offset: int) -> FileLineColLoc:
        line, column = self._source.position(offset)
        return FileLineColLoc(self._filename, IntAttr(line), IntAttr(column))

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
        yield f"xegpu.{name}"


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
        raise _parse_error(source, error, parser) from None
    except RecursionError:
        said = "the text is nested too deeply to be read"
        raise CompileError(said, location=here(), hint=hint_for(said)) from None
    except Exception as error:
        # A verifier, a constructor or the parser of an attribute: whatever it is, it is about
        # the text at this place. The cause stays attached for whoever debugs the dialect.
        reason = _reason(error)
        raise CompileError(_sentence(reason), location=here(), hint=hint_for(reason)) from error


def _parse_error(
    source: SourceText, error: ParseError, parser: LocatingParser | None = None
) -> CompileError:
    notes = [
        Note(message or "here", source.location(span.start, span.end))
        for span, message in getattr(error, "refs", ())
    ]
    message, start, end = in_plain_words(error.msg, source.text, error.span.start, error.span.end)
    known = () if parser is None else [op.name for op in parser.ctx.loaded_ops]
    hint = hint_for(message, known, source.text[end : end + 80])
    if hint is None and parser is not None:
        signs = {kind.name: "!" for kind in parser.ctx.loaded_types}
        signs |= {kind.name: "#" for kind in parser.ctx.loaded_attrs if kind.name not in signs}
        hint = hint_for_attribute(message, source.text[start - 1 : start], signs)
    location = source.location(start, end)
    return CompileError(_sentence(message), location=location, hint=hint, notes=notes)


def _reason(error: BaseException) -> str:
    said = " ".join(map(str, error.args))
    said = f"unknown word {said!r}" if isinstance(error, KeyError) else said
    lines = [line.strip() for line in said.strip().split("\n")]
    if lines[0].endswith(("does not verify:", "does not verify")) and len(lines) > 1:
        return f"{lines[0].rstrip(':')}: {rule_in_plain_words(_sentence(lines[1]))}"
    return rule_in_plain_words(lines[0]) or "this cannot be read here"


def _sentence(message: str) -> str:
    """The parser's messages start in lower case after `error:` and end without a full stop."""
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
    strict: bool = False,
    warnings: list[str] | None = None,
    errors: list[TilewrightError] | None = None,
) -> ModuleOp:
    """Reads a module and verifies it.

    Raises `CompileError` where the text is malformed and `VerifyError` at an op that breaks a rule.
    The context defaults to one with every dialect. What only the public implementation refuses is a
    warning, added to `warnings` in the form of a diagnostic, and an error if `strict`. The first
    error is raised; `errors` receives all that could be told apart.
    """
    source = SourceText(text, filename)
    parser = None
    with parse_errors(source):
        parser = LocatingParser(context or make_context(), source)
    assert parser is not None
    module = None
    try:
        with parse_errors(source, parser):
            module = parser.parse_module()
    except TilewrightError as error:
        found = [error]
    else:
        found: list[TilewrightError] = []
    found = [_parse_error(source, error, parser) for error in parser.alias_errors] + found
    if errors is not None:
        errors.extend(found)
    if found or module is None:
        raise found[0]
    if verify:
        verify_module(module, source, strict=strict, warnings=warnings)
    return module


def verify_module(
    module: Operation,
    source: SourceText | None = None,
    *,
    strict: bool = False,
    warnings: list[str] | None = None,
) -> None:
    """Verifies a module and everything in it; raises `VerifyError` at the first offending op."""
    with strictness(strict) as narrow:
        try:
            module.verify()
        except Exception as error:
            raise _locate(module, error, source) from None
        verify_dominance(module, source)
        for operation in module.walk():
            try:
                verify_stated_layouts(operation)
            except VerifyException as error:
                raise _verify_error(operation, error, source) from None
    if warnings is not None:
        for warning in narrow:
            shown = _verify_error(warning.op, VerifyException(warning.message), source)
            warnings.append(str(shown).replace("error: ", "warning: ", 1))


def verify_dominance(module: Operation, source: SourceText | None = None) -> None:
    """Every use lies behind its definition; raises `VerifyError` at the first op where one does not."""
    rule = Dominance(module)
    for operation in module.walk():
        if (broken := rule.broken(operation)) is not None:
            raise _not_dominated(operation, *broken, source)


def _not_dominated(
    operation: Operation, operand: SSAValue, why: str, source: SourceText | None
) -> VerifyError:
    error = _verify_error(operation, VerifyException(why), source)
    if isinstance(operand, ForwardDeclaredValue):
        return error
    place = location_of(operand)
    if place is not None and source is not None and place.file == source.filename:
        place = replace(place, text=source.line(place.line))
    error.notes = (*error.notes, Note("operand is defined here", place))
    return error


def _locate(module: Operation, error: Exception, source: SourceText | None) -> VerifyError:
    """The op behind a failed verification. An op's own rule counts before its place in a block.

    Values come first: stock xDSL tells of one from around a function at the function, not at the use.
    """
    try:
        verify_dominance(module, source)
    except VerifyError as broken:
        return broken
    operations = list(module.walk())
    checks = [
        *((each, each.verify_) for each in operations),
        *((each, partial(each.verify, verify_nested_ops=False)) for each in operations),
        *((each, each.verify) for each in reversed(operations)),  # those inside before those around
    ]
    for operation, check in checks:
        try:
            check()
        except Exception as found:
            return _verify_error(operation, found, source)
    return _verify_error(module, error, source)


def _verify_error(operation: Operation, error: Exception, source: SourceText | None) -> VerifyError:
    if twice := re.fullmatch(r'Redefinition of symbol "(.*)"', _reason(error)):
        operation = _defining(operation, twice[1])[-1]
    location, name = location_of(operation), operation.name
    if location is not None and source is not None and location.file == source.filename:
        content = source.line(location.line)
        written = _OP_NAME.match(content, location.col - 1)
        if written is not None and "." in written[0]:  # a named op is read as another
            name = written[0]
        start = location.col - 1
        end = start + len(name) if content.startswith(name, start) else start + 1
        location = Location(location.file, location.line, location.col, end + 1, content)
    reason = re.sub(rf'^(?:op|"?{re.escape(name)}"?) ', "", _reason(error))  # said twice
    message = f"'{name}' op {reason}"
    return VerifyError(message, location=location, hint=hint_for(message))


def _defining(table: Operation, symbol: str) -> list[Operation]:
    """The ops of a symbol table that define a symbol; the table itself where none does."""
    inside = [op for region in table.regions for block in region.blocks for op in block.ops]
    return [op for op in inside if op.get_attr_or_prop("sym_name") == StringAttr(symbol)] or [table]


def print_module(
    module: Operation,
    *,
    generic: bool = False,
    renumber: bool = False,
    locations: bool = False,
    readable: bool = False,
) -> str:
    """The canonical text of a module, as mlir-opt would print it, with a newline at its end.

    `renumber` gives values MLIR's names (`%0`, `%c8`, `%arg0`) instead of their own; `locations`
    prints where each op came from; `readable` prints maps that occur more than once as aliases
    above the module.
    """
    printer = MlirPrinter(
        print_generic_format=generic,
        print_debuginfo=locations,
        renumber=renumber,
        wanted=READABLE_ALIASES if readable else MLIR_ALIASES,
    )
    return printer.top(module, minimum=2 if readable else 1) + "\n"
