"""gpu: `gpu.launch_func` and `gpu.launch`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, SymbolRefAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from tilewright.dialects.directives import Part, assigned, parse_listed, say
from tilewright.dialects.upstream.complete import set_custom

TOKEN = gpu.AsyncTokenType()


def parse_async(parser: Parser) -> tuple[list[Attribute], list[SSAValue]]:
    """The type of the token, if one is made, and the tokens waited for."""
    results: list[Attribute] = [TOKEN] if parser.parse_optional_keyword("async") else []
    dependencies = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_operand(TOKEN)
    )
    return results, list(dependencies or ())


def print_async(op: gpu.LaunchFuncOp | gpu.LaunchOp, printer: Printer) -> None:
    say(printer, " async" if op.asyncToken is not None else "")
    if op.asyncDependencies:
        say(printer, " [", op.asyncDependencies, "]")


def _parse_triple(parser: Parser) -> list[UnresolvedOperand]:
    """`in (%x, %y, %z)`."""
    parser.parse_keyword("in")
    pos = parser.pos
    values = parse_listed(parser, parser.parse_unresolved_operand)
    if len(values) != 3:
        parser.raise_error("expected sizes for x, y and z", pos, parser.pos)
    return values


def _parse_shared(parser: Parser) -> list[SSAValue]:
    word = parser.parse_optional_keyword("dynamic_shared_memory_size")
    return [] if word is None else [parser.parse_operand(i32)]


def _parse_launch_func(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = parse_async(parser)
    pos = parser.pos
    kernel = parser.parse_attribute()
    if not isinstance(kernel, SymbolRefAttr):
        parser.raise_error("expected a kernel such as @module::@kernel", pos, parser.pos)
    clusters: list[UnresolvedOperand] = []
    if parser.parse_optional_keyword("clusters") is not None:
        clusters = _parse_triple(parser)
    parser.parse_keyword("blocks")
    blocks = _parse_triple(parser)
    parser.parse_keyword("threads")
    threads = _parse_triple(parser)
    size_type: Attribute = IndexType()
    if parser.parse_optional_punctuation(":") is not None:
        size_type = parser.parse_type()

    def sizes(operands: Sequence[UnresolvedOperand]) -> list[SSAValue]:
        return [parser.resolve_operand(operand, size_type) for operand in operands]

    given = [*sizes(blocks), *sizes(threads), *([[v] for v in sizes(clusters)] or ([], [], []))]
    shared = _parse_shared(parser)
    arguments: list[SSAValue] = []
    if parser.parse_optional_keyword("args") is not None:
        arguments = parse_listed(parser, lambda: _parse_typed_operand(parser))
    stream: list[SSAValue] = []
    if parser.parse_optional_punctuation("<") is not None:
        stream = [_parse_typed_operand(parser)]
        parser.parse_punctuation(">")
    attributes = parser.parse_optional_attr_dict()
    return cls.build(
        operands=[dependencies, *given, shared, arguments, stream],
        properties={"kernel": kernel},
        attributes=attributes,
        result_types=[token],
    )


def _parse_typed_operand(parser: Parser) -> SSAValue:
    operand = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    return parser.resolve_operand(operand, parser.parse_type())


def _shared(op: gpu.LaunchFuncOp | gpu.LaunchOp) -> tuple[Part, ...]:
    size = op.dynamicSharedMemorySize
    return () if size is None else (" dynamic_shared_memory_size ", size)


def _print_launch_func(op: gpu.LaunchFuncOp, printer: Printer) -> None:
    print_async(op, printer)
    say(printer, " ", op.kernel)
    clusters = (op.clusterSizeX, op.clusterSizeY, op.clusterSizeZ)
    if found := [value for value in clusters if value is not None]:
        say(printer, " clusters in (", found, ")")
    say(printer, " blocks in (", [op.gridSizeX, op.gridSizeY, op.gridSizeZ], ")")
    say(printer, " threads in (", [op.blockSizeX, op.blockSizeY, op.blockSizeZ], ")")
    if not isinstance(op.gridSizeX.type, IndexType):
        say(printer, " : ", op.gridSizeX.type)
    say(printer, *_shared(op))
    if op.kernelOperands:
        say(printer, " args(", [(v, " : ", v.type) for v in op.kernelOperands], ")")
    if op.asyncObject is not None:
        say(printer, " <", op.asyncObject, " : ", op.asyncObject.type, ">")
    printer.print_op_attributes(op.attributes)


_LAUNCH_WORDS = ("blocks", "threads")


def _parse_launch(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`gpu.launch blocks(%i, %j, %k) in (%gx = %c1, ...) threads(...) in (...) { ... }`."""
    token, dependencies = parse_async(parser)
    ids: list[Parser.Argument] = []
    sizes: list[Parser.Argument] = []
    operands: list[SSAValue] = []

    def argument() -> Parser.Argument:
        return parser.parse_argument(expect_type=False).resolve(IndexType())

    def size() -> None:
        sizes.append(argument())
        parser.parse_punctuation("=")
        operands.append(parser.parse_operand(IndexType()))

    def triple(word: str) -> None:
        pos = parser.pos
        found = parse_listed(parser, argument)
        parser.parse_keyword("in")
        before = len(sizes)
        parse_listed(parser, size)
        if len(found) != 3 or len(sizes) - before != 3:
            parser.raise_error(f"expected x, y and z of {word}", pos, parser.pos)
        ids.extend(found)

    for word in _LAUNCH_WORDS:
        parser.parse_keyword(word)
        triple(word)
    shared = _parse_shared(parser)
    region = parser.parse_region([*ids, *sizes])
    attributes = parser.parse_optional_attr_dict()
    return cls.build(
        operands=[dependencies, *operands, [], [], [], shared],
        regions=[region],
        attributes=attributes,
        result_types=[token],
    )


def _print_launch(op: gpu.LaunchOp, printer: Printer) -> None:
    if op.clusterSizeX is not None:
        # Clusters of a gpu.launch are rare enough to be left to the generic form of their operands.
        printer.print_op_with_default_format(op)
        return
    print_async(op, printer)
    arguments = op.body.blocks[0].args
    sizes = (
        (op.gridSizeX, op.gridSizeY, op.gridSizeZ),
        (op.blockSizeX, op.blockSizeY, op.blockSizeZ),
    )
    for start, word, given in zip((0, 3), _LAUNCH_WORDS, sizes, strict=True):
        pairs = assigned(arguments[6 + start : 9 + start], given)
        say(printer, f" {word}(", arguments[start : start + 3], ") in (", pairs, ")")
    say(printer, *_shared(op), " ")
    printer.print_region(op.body, print_entry_block_args=False)
    printer.print_op_attributes(op.attributes)


def complete() -> None:
    set_custom(gpu.LaunchFuncOp, _parse_launch_func, _print_launch_func)
    set_custom(gpu.LaunchOp, _parse_launch, _print_launch)
