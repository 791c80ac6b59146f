"""gpu: modules, functions and their terminators."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, IntegerAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_listed, parse_result_types, results, say
from tilewright.dialects.upstream.complete import set_custom, set_format, set_verifier


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


_ATTRIBUTIONS = {"workgroup": "workgroup_attributions", "private": "private_attributions"}


def _parse_func(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`gpu.func @f(%a: T) -> R workgroup(%s: M) private(%p: M) kernel attributes {...} { ... }`."""
    name = parser.parse_symbol_name()
    arguments: list[Parser.Argument] = []
    argument_attributes: list[dict[str, Attribute]] = []

    def attributed() -> dict[str, Attribute]:
        arguments.append(parser.parse_argument())
        attributes = parser.parse_optional_dictionary_attr_dict()
        arguments[-1].location = parser.parse_optional_location()
        return attributes

    def argument() -> None:
        argument_attributes.append(attributed())

    parse_listed(parser, argument)
    inputs = [each.type for each in arguments]
    outputs = parse_result_types(parser)
    attributes: dict[str, Attribute] = {"sym_name": name}
    for word, count in _ATTRIBUTIONS.items():
        if parser.parse_optional_keyword(word) is not None:
            before = len(arguments)
            parse_listed(parser, attributed)
            attributes[count] = IntegerAttr(len(arguments) - before, 64)
    properties: dict[str, Attribute] = {"function_type": FunctionType.from_lists(inputs, outputs)}
    if any(argument_attributes):
        attributes["arg_attrs"] = ArrayAttr(DictionaryAttr(each) for each in argument_attributes)
    if parser.parse_optional_keyword("kernel") is not None:
        properties["kernel"] = UnitAttr()
    extra = parser.parse_optional_attr_dict_with_keyword(("sym_name", "function_type", "kernel"))
    if extra is not None:
        attributes.update(extra.data)
    region = parser.parse_region(arguments)
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
    start = len(inputs)
    for word, count in _ATTRIBUTIONS.items():
        number = op.attributes.get(count)
        if isinstance(number, IntegerAttr) and number.value.data:
            attributed = block_arguments[start : start + number.value.data]
            start += number.value.data
            say(printer, f" {word}(")
            printer.print_list(attributed, printer.print_block_argument)
            say(printer, ")")
    say(printer, " kernel" if op.kernel is not None else "")
    printer.print_op_attributes(
        op.attributes,
        reserved_attr_names=("sym_name", "arg_attrs", *_ATTRIBUTIONS.values()),
        print_keyword=True,
    )
    say(printer, " ")
    printer.print_region(op.body, print_entry_block_args=False, print_empty_block=False)


def _verify_func(op: gpu.FuncOp) -> None:
    if not op.body.blocks:
        raise VerifyException("expected a body")
    expected = op.function_type.inputs.data
    arguments = op.body.blocks[0].arg_types
    attributed = 0
    for name in _ATTRIBUTIONS.values():
        count = op.attributes.get(name)
        attributed += count.value.data if isinstance(count, IntegerAttr) else 0
    if len(arguments) != len(expected) + attributed:
        raise VerifyException(
            f"expected {len(expected) + attributed} arguments to body region, got {len(arguments)}"
        )
    if tuple(arguments[: len(expected)]) != tuple(expected):
        raise VerifyException(
            "Expected first entry block arguments to have the same types as the "
            "function input types"
        )
    if op.kernel is not None and op.function_type.outputs.data:
        raise VerifyException("Expected void return type for kernel function")


def complete() -> None:
    set_custom(gpu.ModuleOp, _parse_module, _print_module)
    set_custom(gpu.FuncOp, _parse_func, _print_func)
    set_verifier(gpu.FuncOp, _verify_func)
    set_format("attr-dict ($args^ `:` type($args))?", gpu.ReturnOp)
    set_format("attr-dict ($values^ `:` type($values))?", gpu.YieldOp)
    set_format("attr-dict", gpu.TerminatorOp)
