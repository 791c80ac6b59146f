"""gpu: modules, functions and their terminators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region
from xdsl.irdl import IRDLOperation, base
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_listed, parse_result_types, results, say
from tilewright.dialects.upstream.complete import (
    add_optional_property,
    definition,
    set_constructor,
    set_custom,
    set_format,
    set_verifier,
)


def _parse_module(cls: type[IRDLOperation], parser: Parser) -> Operation:
    name = parser.parse_symbol_name()
    properties: dict[str, Attribute] = {"sym_name": name}
    attributes: dict[str, Attribute] = {}
    # `gpu.module @m <#handler> [#targets] attributes {...}`
    if parser.parse_optional_punctuation("<") is not None:
        attributes["offloadingHandler"] = parser.parse_attribute()
        parser.parse_punctuation(">")
    targets = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, parser.parse_attribute
    )
    if targets is not None:
        attributes["targets"] = ArrayAttr(targets)
    extra = parser.parse_optional_attr_dict_with_keyword(("sym_name",))
    if extra is not None:
        attributes.update(extra.data)
    region = parser.parse_region()
    if not region.blocks:
        region.add_block(Block())
    return cls.create(properties=properties, attributes=attributes, regions=[region])


def _print_module(op: gpu.ModuleOp, printer: Printer) -> None:
    say(printer, " ")
    printer.print_symbol_name(op.sym_name.data)
    targets = op.attributes.get("targets")
    if isinstance(targets, ArrayAttr):
        say(printer, " ", targets)
    printer.print_op_attributes(op.attributes, reserved_attr_names=("targets",), print_keyword=True)
    say(printer, " ")
    printer.print_region(op.body, print_empty_block=False)


KERNEL = "gpu.kernel"
"""Attribute of a function that is a kernel."""
KNOWN = ("known_block_size", "known_grid_size", "known_cluster_size")
"""Properties of a kernel: sizes that all of its launches have."""
WORKGROUP = "workgroup_attributions"
"""Attribute of a kernel or a launch: how many of its region's last arguments are memory that its workgroups share; the
arguments behind them are memory of each lane."""


def memory_of(op: gpu.FuncOp | gpu.LaunchOp, given: int) -> tuple[Sequence[BlockArgument], ...]:
    """What a region has of memory behind the arguments that it is given: a workgroup's, and each lane's."""
    count = op.attributes.get(WORKGROUP)
    shared = given + (count.value.data if isinstance(count, IntegerAttr) else 0)
    arguments = op.body.blocks[0].args
    return arguments[given:shared], arguments[shared:]


def parse_memory(
    parser: Parser, parse: Callable[[], Parser.Argument]
) -> tuple[list[Parser.Argument], int]:
    """`workgroup(%s : memref<..>) private(%p : memref<..>)`: all of it, and how much of it a workgroup shares."""
    found, shared = list[Parser.Argument](), 0
    for word in ("workgroup", "private"):
        if parser.parse_optional_keyword(word) is not None:
            found += parse_listed(parser, parse)
            shared = shared if word == "private" else len(found)
    return found, shared


def print_memory(op: gpu.FuncOp | gpu.LaunchOp, printer: Printer, given: int) -> None:
    for word, listed in zip(("workgroup", "private"), memory_of(op, given), strict=True):
        if listed:
            say(printer, f" {word}(")
            printer.print_list(listed, lambda each: say(printer, each, " : ", each.type))
            say(printer, ")")


def _parse_func(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`gpu.func @f(%a: T) -> R workgroup(%s: M) private(%p: M) kernel attributes {...} { ... }`."""
    name = parser.parse_symbol_name()
    argument_attributes: list[dict[str, Attribute]] = []

    def typed() -> Parser.Argument:
        found = parser.parse_argument()
        argument_attributes.append(parser.parse_optional_dictionary_attr_dict())
        found.location = parser.parse_optional_location()
        return found

    arguments = parse_listed(parser, typed)
    inputs = [each.type for each in arguments]
    outputs = parse_result_types(parser)
    attributes: dict[str, Attribute] = {"sym_name": name}
    memory, shared = parse_memory(parser, typed)
    if memory:
        attributes[WORKGROUP] = IntegerAttr(shared, 64)
    properties: dict[str, Attribute] = {"function_type": FunctionType.from_lists(inputs, outputs)}
    if any(argument_attributes[: len(arguments)]):
        attributes["arg_attrs"] = ArrayAttr(
            DictionaryAttr(each) for each in argument_attributes[: len(arguments)]
        )
    if parser.parse_optional_keyword("kernel") is not None:
        attributes[KERNEL] = UnitAttr()
    extra = parser.parse_optional_attr_dict_with_keyword(("sym_name", "function_type", "kernel"))
    if extra is not None:
        attributes.update(extra.data)
    region = parser.parse_region([*arguments, *memory])
    return cls.create(properties=properties, attributes=attributes, regions=[region])


def _print_func(op: gpu.FuncOp, printer: Printer) -> None:
    say(printer, " ")
    printer.print_symbol_name(op.sym_name.data)
    inputs = op.function_type.inputs.data
    block_arguments = op.body.blocks[0].args
    dictionaries: list[Attribute] = []
    arg_attrs = op.attributes.get("arg_attrs")
    if isinstance(arg_attrs, ArrayAttr):
        dictionaries = list(arg_attrs.data)

    def one(index: int) -> None:
        argument = block_arguments[index]
        say(printer, argument, ": ", argument.type)
        dictionary = dictionaries[index] if index < len(dictionaries) else None
        if isinstance(dictionary, DictionaryAttr):
            printer.print_op_attributes(dictionary.data)
        if printer.print_debuginfo:
            say(printer, " ", argument.location)

    say(printer, "(")
    printer.print_list(range(len(inputs)), one)
    say(printer, ")", *results(op.function_type.outputs.data))
    print_memory(op, printer, len(inputs))
    say(printer, " kernel" if op.kernel is not None else "")
    known = {name: held for name in KNOWN if (held := op.properties.get(name)) is not None}
    printer.print_op_attributes(
        known | op.attributes,
        reserved_attr_names=("sym_name", "arg_attrs", KERNEL, WORKGROUP),
        print_keyword=True,
    )
    say(printer, " ")
    printer.print_region(op.body, print_entry_block_args=False, print_empty_block=False)


def _verify_func(op: gpu.FuncOp) -> None:
    if not op.body.blocks:
        raise VerifyException("expected a body")
    expected = op.function_type.inputs.data
    arguments = op.body.blocks[0].arg_types
    count = op.attributes.get(WORKGROUP)
    least = len(expected) + (count.value.data if isinstance(count, IntegerAttr) else 0)
    memory = arguments[len(expected) :]
    if len(arguments) < least or not all(isinstance(kind, MemRefType) for kind in memory):
        raise VerifyException(f"expected {least} arguments to body region, got {len(arguments)}")
    if tuple(arguments[: len(expected)]) != tuple(expected):
        raise VerifyException(
            "Expected first entry block arguments to have the same types as the "
            "function input types"
        )
    if op.kernel is not None and op.function_type.outputs.data:
        raise VerifyException("Expected void return type for kernel function")


def _init_func(
    self: gpu.FuncOp,
    name: str,
    function_type: tuple[Sequence[Attribute], Sequence[Attribute]],
    region: Region,
    kernel: bool = False,
) -> None:
    """As in MLIR, what makes it a kernel is an attribute."""
    _STOCK_FUNC(self, name, function_type, region)
    if kernel:
        self.attributes[KERNEL] = UnitAttr()


_STOCK_FUNC = gpu.FuncOp.__init__


def complete() -> None:
    set_custom(gpu.ModuleOp, _parse_module, _print_module)
    set_custom(gpu.FuncOp, _parse_func, _print_func)
    set_verifier(gpu.FuncOp, _verify_func)
    set_constructor(gpu.FuncOp, _init_func)
    for name in KNOWN:
        add_optional_property(gpu.FuncOp, name, base(DenseArrayBase))
    stock = definition(gpu.FuncOp).properties
    del stock["kernel"]
    gpu.FuncOp.kernel = property(lambda op: op.attributes.get(KERNEL))  # pyright: ignore
    set_format("attr-dict ($args^ `:` type($args))?", gpu.ReturnOp)
    set_format("attr-dict ($values^ `:` type($values))?", gpu.YieldOp)
    set_format("attr-dict", gpu.TerminatorOp)
