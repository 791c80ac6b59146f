"""gpu: `gpu.launch_func` and `gpu.launch`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    IndexType,
    SymbolRefAttr,
    i32,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from tilewright.dialects.upstream.complete import set_custom
from tilewright.dialects.upstream.scf import print_pair

TOKEN = gpu.AsyncTokenType()


def parse_async(parser: Parser) -> tuple[list[Attribute], list[SSAValue]]:
    """The type of the token, if one is made, and the tokens waited for."""
    results: list[Attribute] = [TOKEN] if parser.parse_optional_keyword("async") else []
    dependencies = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_operand(TOKEN)
    )
    return results, list(dependencies or ())


def print_async(op: gpu.LaunchFuncOp | gpu.LaunchOp, printer: Printer) -> None:
    if op.asyncToken is not None:
        printer.print_string(" async")
    if op.asyncDependencies:
        printer.print_string(" [")
        printer.print_list(op.asyncDependencies, printer.print_operand)
        printer.print_string("]")


def _parse_triple(parser: Parser) -> list[UnresolvedOperand]:
    """`(%x, %y, %z)`."""
    pos = parser.pos
    values = parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, parser.parse_unresolved_operand
    )
    if len(values) != 3:
        parser.raise_error("expected sizes for x, y and z", pos, parser.pos)
    return values


def _parse_launch_func(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = parse_async(parser)
    pos = parser.pos
    kernel = parser.parse_attribute()
    if not isinstance(kernel, SymbolRefAttr):
        parser.raise_error("expected a kernel such as @module::@kernel", pos, parser.pos)
    clusters: list[UnresolvedOperand] = []
    if parser.parse_optional_keyword("clusters") is not None:
        parser.parse_keyword("in")
        clusters = _parse_triple(parser)
    parser.parse_keyword("blocks")
    parser.parse_keyword("in")
    blocks = _parse_triple(parser)
    parser.parse_keyword("threads")
    parser.parse_keyword("in")
    threads = _parse_triple(parser)
    size_type: Attribute = IndexType()
    if parser.parse_optional_punctuation(":") is not None:
        size_type = parser.parse_type()

    def sizes(operands: Sequence[UnresolvedOperand]) -> list[SSAValue]:
        return [parser.resolve_operand(operand, size_type) for operand in operands]

    shared: list[SSAValue] = []
    if parser.parse_optional_keyword("dynamic_shared_memory_size") is not None:
        shared = [parser.parse_operand(i32)]
    arguments: list[SSAValue] = []
    if parser.parse_optional_keyword("args") is not None:
        arguments = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_typed_operand(parser)
        )
    stream: list[SSAValue] = []
    if parser.parse_optional_punctuation("<") is not None:
        stream = [_parse_typed_operand(parser)]
        parser.parse_punctuation(">")
    attributes = parser.parse_optional_attr_dict()
    return cls.build(
        operands=[
            dependencies,
            *sizes(blocks),
            *sizes(threads),
            *(([value] for value in sizes(clusters)) if clusters else ([], [], [])),
            shared,
            arguments,
            stream,
        ],
        properties={"kernel": kernel},
        attributes=attributes,
        result_types=[token],
    )


def _parse_typed_operand(parser: Parser) -> SSAValue:
    operand = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    return parser.resolve_operand(operand, parser.parse_type())


def _print_typed_operand(printer: Printer, value: SSAValue) -> None:
    printer.print_operand(value)
    printer.print_string(" : ")
    printer.print_attribute(value.type)


def _print_triple(printer: Printer, word: str, values: Sequence[SSAValue]) -> None:
    printer.print_string(f" {word} in (")
    printer.print_list(values, printer.print_operand)
    printer.print_string(")")


def _print_launch_func(op: gpu.LaunchFuncOp, printer: Printer) -> None:
    print_async(op, printer)
    printer.print_string(" ")
    printer.print_attribute(op.kernel)
    if op.clusterSizeX is not None:
        clusters = (op.clusterSizeX, op.clusterSizeY, op.clusterSizeZ)
        _print_triple(printer, "clusters", [value for value in clusters if value is not None])
    _print_triple(printer, "blocks", (op.gridSizeX, op.gridSizeY, op.gridSizeZ))
    _print_triple(printer, "threads", (op.blockSizeX, op.blockSizeY, op.blockSizeZ))
    if not isinstance(op.gridSizeX.type, IndexType):
        printer.print_string(" : ")
        printer.print_attribute(op.gridSizeX.type)
    if op.dynamicSharedMemorySize is not None:
        printer.print_string(" dynamic_shared_memory_size ")
        printer.print_operand(op.dynamicSharedMemorySize)
    if op.kernelOperands:
        printer.print_string(" args(")
        printer.print_list(op.kernelOperands, lambda value: _print_typed_operand(printer, value))
        printer.print_string(")")
    if op.asyncObject is not None:
        printer.print_string(" <")
        _print_typed_operand(printer, op.asyncObject)
        printer.print_string(">")
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
        found = parser.parse_comma_separated_list(parser.Delimiter.PAREN, argument)
        parser.parse_keyword("in")
        before = len(sizes)
        parser.parse_comma_separated_list(parser.Delimiter.PAREN, size)
        if len(found) != 3 or len(sizes) - before != 3:
            parser.raise_error(f"expected x, y and z of {word}", pos, parser.pos)
        ids.extend(found)

    for word in _LAUNCH_WORDS:
        parser.parse_keyword(word)
        triple(word)
    shared: list[SSAValue] = []
    if parser.parse_optional_keyword("dynamic_shared_memory_size") is not None:
        shared = [parser.parse_operand(i32)]
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
    for position, word in enumerate(_LAUNCH_WORDS):
        printer.print_string(f" {word}(")
        start = 3 * position
        printer.print_list(arguments[start : start + 3], printer.print_ssa_value)
        printer.print_string(") in (")
        pairs = zip(arguments[6 + start : 9 + start], sizes[position], strict=True)
        printer.print_list(pairs, lambda pair: print_pair(printer, *pair))
        printer.print_string(")")
    if op.dynamicSharedMemorySize is not None:
        printer.print_string(" dynamic_shared_memory_size ")
        printer.print_operand(op.dynamicSharedMemorySize)
    printer.print_string(" ")
    printer.print_region(op.body, print_entry_block_args=False)
    printer.print_op_attributes(op.attributes)


def complete() -> None:
    set_custom(gpu.LaunchFuncOp, _parse_launch_func, _print_launch_func)
    set_custom(gpu.LaunchOp, _parse_launch, _print_launch)
