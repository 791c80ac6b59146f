"""gpu: `gpu.launch_func` and `gpu.launch`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, SymbolRefAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, base
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import Part, assigned, parse_listed, say
from tilewright.dialects.upstream.complete import add_optional_property, set_custom, set_verifier
from tilewright.dialects.upstream.gpu.functions import WORKGROUP, parse_memory, print_memory

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


_LAUNCH_WORDS = ("blocks", "threads", "clusters")
_SYMBOLS = ("module", "function")
"""Properties of a gpu.launch: how the kernel is to be called."""


def ids_of(op: gpu.LaunchOp) -> int:
    """How many numbers a launch's region is given: of workgroups and threads and, where it has them, of clusters."""
    return 12 if op.clusterSizeX is None else 18


def _parse_launch(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`gpu.launch blocks(%i, %j, %k) in (%gx = %c1, ...) threads(...) in (...) { ... }`."""
    token, dependencies = parse_async(parser)
    ids: dict[str, list[Parser.Argument]] = {}
    sizes: dict[str, list[Parser.Argument]] = {}
    operands: dict[str, list[SSAValue]] = {word: [] for word in _LAUNCH_WORDS}

    def argument() -> Parser.Argument:
        return parser.parse_argument(expect_type=False).resolve(IndexType())

    def triple(word: str) -> None:
        def size() -> Parser.Argument:
            found = argument()
            parser.parse_punctuation("=")
            operands[word].append(parser.parse_operand(IndexType()))
            return found

        pos = parser.pos
        ids[word] = parse_listed(parser, argument)
        parser.parse_keyword("in")
        sizes[word] = parse_listed(parser, size)
        if len(ids[word]) != 3 or len(sizes[word]) != 3:
            parser.raise_error(f"expected x, y and z of {word}", pos, parser.pos)

    if parser.parse_optional_keyword("clusters") is not None:
        triple("clusters")
    for word in _LAUNCH_WORDS[:2]:
        parser.parse_keyword(word)
        triple(word)
    shared = _parse_shared(parser)
    properties: dict[str, Attribute] = {}
    for name in _SYMBOLS:
        if parser.parse_optional_keyword(name) is not None:
            with parser.in_parens():
                properties[name] = SymbolRefAttr(parser.parse_symbol_name())
    given = [*ids["blocks"], *ids["threads"], *sizes["blocks"], *sizes["threads"]]
    given += ids.get("clusters", []) + sizes.get("clusters", [])
    memory, count = parse_memory(parser, parser.parse_argument)
    region = parser.parse_region([*given, *memory])
    attributes = parser.parse_optional_attr_dict()
    if memory:
        attributes[WORKGROUP] = IntegerAttr(count, 64)
    blocks, threads, clusters = operands.values()
    return cls.build(
        operands=[
            dependencies, *blocks, *threads, *([[v] for v in clusters] or ([], [], [])), shared
        ],
        regions=[region],
        attributes=attributes,
        properties=properties,
        result_types=[token],
    )  # fmt: skip


def _print_launch(op: gpu.LaunchOp, printer: Printer) -> None:
    print_async(op, printer)
    arguments = op.body.blocks[0].args
    listed = (
        ("clusters", 12, 15, (op.clusterSizeX, op.clusterSizeY, op.clusterSizeZ)),
        ("blocks", 0, 6, (op.gridSizeX, op.gridSizeY, op.gridSizeZ)),
        ("threads", 3, 9, (op.blockSizeX, op.blockSizeY, op.blockSizeZ)),
    )
    for word, ids, sizes, operands in listed:
        if given := [value for value in operands if value is not None]:
            pairs = assigned(arguments[sizes : sizes + 3], given)
            say(printer, f" {word}(", arguments[ids : ids + 3], ") in (", pairs, ")")
    say(printer, *_shared(op))
    for name in _SYMBOLS:
        if (symbol := op.properties.get(name)) is not None:
            say(printer, f" {name}(", symbol, ")")
    print_memory(op, printer, ids_of(op))
    say(printer, " ")
    printer.print_region(op.body, print_entry_block_args=False)
    printer.print_op_attributes(op.attributes, reserved_attr_names=(WORKGROUP,))


def _verify_launch(op: gpu.LaunchOp) -> None:
    if not any(block.ops for block in op.body.blocks):
        raise VerifyException("gpu.launch requires a non-empty body.")
    count, kinds = ids_of(op), op.body.blocks[0].arg_types
    if any(not isinstance(kind, IndexType) for kind in kinds[:count]) or len(kinds) < count:
        raise VerifyException(
            f"expected {count} indices as the first arguments of the body: numbers and sizes of blocks and threads"
        )
    if not all(isinstance(kind, MemRefType) for kind in kinds[count:]):
        raise VerifyException("expected memrefs as arguments of the body behind those")


def complete() -> None:
    set_custom(gpu.LaunchFuncOp, _parse_launch_func, _print_launch_func)
    set_custom(gpu.LaunchOp, _parse_launch, _print_launch)
    set_verifier(gpu.LaunchOp, _verify_launch)
    for name in _SYMBOLS:
        add_optional_property(gpu.LaunchOp, name, base(SymbolRefAttr))
