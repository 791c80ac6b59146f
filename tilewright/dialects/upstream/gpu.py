"""gpu: custom formats of all its ops, and the ops that stock xDSL lacks.

Stock xDSL defines the gpu ops without any custom format. They get MLIR's here: ids and sizes,
device memory, launches, functions. New ops: shuffle, subgroup_reduce, printf, memset,
dynamic_shared_memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i1,
    i32,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.upstream.complete import (
    add_attributes,
    add_ops,
    add_optional_property,
    set_custom,
    set_format,
    set_verifier,
)

TOKEN = gpu.AsyncTokenType()


# --- Ids and sizes: `gpu.block_id x`, `gpu.subgroup_id : index` -----------------------------------


def _parse_upper_bound(parser: Parser) -> dict[str, Attribute]:
    if parser.parse_optional_keyword("upper_bound") is None:
        return {}
    value = parser.parse_integer(allow_boolean=False)
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return {"upper_bound": IntegerAttr(value, IndexType())}


def _print_upper_bound(op: IRDLOperation, printer: Printer) -> None:
    bound = op.properties.get("upper_bound")
    if isinstance(bound, IntegerAttr):
        printer.print_string(f" upper_bound {bound.value.data}")


def _parse_dimension_op(cls: type[IRDLOperation], parser: Parser) -> Operation:
    dimension = gpu.DimensionAttr(parser.parse_str_enum(gpu.DimensionEnum))
    properties: dict[str, Attribute] = {"dimension": dimension, **_parse_upper_bound(parser)}
    attributes = parser.parse_optional_attr_dict()
    return cls.create(result_types=[IndexType()], properties=properties, attributes=attributes)


def _print_dimension_op(op: Any, printer: Printer) -> None:
    printer.print_string(f" {op.dimension.data}")
    _print_upper_bound(op, printer)
    printer.print_op_attributes(op.attributes)


def _parse_id_op(cls: type[IRDLOperation], parser: Parser) -> Operation:
    properties = _parse_upper_bound(parser)
    attributes = parser.parse_optional_attr_dict()
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return cls.create(result_types=[IndexType()], properties=properties, attributes=attributes)


def _print_id_op(op: Any, printer: Printer) -> None:
    _print_upper_bound(op, printer)
    printer.print_op_attributes(op.attributes)
    # MLIR prints the type of every op of this family but lane_id.
    if not isinstance(op, gpu.LaneIdOp):
        printer.print_string(" : ")
        printer.print_attribute(op.result.type)


def _complete_ids() -> None:
    for op in (
        gpu.BlockIdOp,
        gpu.BlockDimOp,
        gpu.GridDimOp,
        gpu.ThreadIdOp,
        gpu.GlobalIdOp,
    ):
        add_optional_property(op, "upper_bound", base(IntegerAttr))
        set_custom(op, _parse_dimension_op, _print_dimension_op)
    for op in (gpu.LaneIdOp, gpu.SubgroupIdOp, gpu.NumSubgroupsOp, gpu.SubgroupSizeOp):
        add_optional_property(op, "upper_bound", base(IntegerAttr))
        set_custom(op, _parse_id_op, _print_id_op)


# --- Asynchronous ops: `async [%dependencies]` ------------------------------------------------------


def _parse_async(parser: Parser) -> tuple[list[Attribute], list[SSAValue]]:
    """The type of the token, if one is made, and the tokens waited for."""
    results: list[Attribute] = [TOKEN] if parser.parse_optional_keyword("async") else []
    dependencies = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_operand(TOKEN)
    )
    return results, dependencies or []


def _print_async(op: Any, printer: Printer) -> None:
    if op.asyncToken is not None:
        printer.print_string(" async")
    if op.asyncDependencies:
        printer.print_string(" [")
        printer.print_list(op.asyncDependencies, printer.print_operand)
        printer.print_string("]")


def _parse_alloc(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = _parse_async(parser)
    properties: dict[str, Attribute] = {}
    if parser.parse_optional_keyword("host_shared") is not None:
        properties["hostShared"] = UnitAttr()

    def index() -> SSAValue:
        return parser.parse_operand(IndexType())

    sizes = parser.parse_comma_separated_list(parser.Delimiter.PAREN, index)
    symbols = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, index)
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    result = parser.parse_type()
    return cls.build(
        operands=[dependencies, sizes, symbols or []],
        properties=properties,
        attributes=attributes,
        result_types=[result, token],
    )


def _print_alloc(op: Any, printer: Printer) -> None:
    _print_async(op, printer)
    if op.hostShared is not None:
        printer.print_string(" host_shared")
    printer.print_string(" (")
    printer.print_list(op.dynamicSizes, printer.print_operand)
    printer.print_string(")")
    if op.symbolOperands:
        printer.print_string("[")
        printer.print_list(op.symbolOperands, printer.print_operand)
        printer.print_string("]")
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.result.type)


def _parse_dealloc(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = _parse_async(parser)
    buffer = parser.parse_unresolved_operand()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    operand = parser.resolve_operand(buffer, parser.parse_type())
    return cls.build(operands=[dependencies, operand], attributes=attributes, result_types=[token])


def _print_dealloc(op: Any, printer: Printer) -> None:
    _print_async(op, printer)
    printer.print_string(" ")
    printer.print_operand(op.buffer)
    _print_attributes_without_segments(op, printer)
    printer.print_string(" : ")
    printer.print_attribute(op.buffer.type)


def _print_attributes_without_segments(op: Any, printer: Printer) -> None:
    printer.print_op_attributes(
        op.attributes, reserved_attr_names=("operandSegmentSizes", "resultSegmentSizes")
    )


def _parse_copy(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """memcpy and memset: `async [%d] %to, %from : type, type`."""
    token, dependencies = _parse_async(parser)
    pos = parser.pos
    operands = parser.parse_comma_separated_list(
        parser.Delimiter.NONE, parser.parse_unresolved_operand
    )
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    if len(operands) != 2:
        parser.raise_error("expected two operands", pos)
    values = parser.resolve_operands(operands, types, pos)
    return cls.build(operands=[dependencies, *values], attributes=attributes, result_types=[token])


def _print_copy(op: Any, printer: Printer) -> None:
    _print_async(op, printer)
    printer.print_string(" ")
    operands = list(op.operands)[len(op.asyncDependencies) :]
    printer.print_list(operands, printer.print_operand)
    _print_attributes_without_segments(op, printer)
    printer.print_string(" : ")
    printer.print_list([operand.type for operand in operands], printer.print_attribute)


def _verify_memcpy(op: gpu.MemcpyOp) -> None:
    """As in MLIR, memory spaces and layouts may differ."""
    source, target = op.src.type, op.dst.type
    assert isinstance(source, memref.MemRefType) and isinstance(target, memref.MemRefType)
    if source.element_type != target.element_type:
        raise VerifyException("arguments have incompatible element type")
    pairs = zip(source.get_shape(), target.get_shape(), strict=False)
    different = any(a != b and a >= 0 and b >= 0 for a, b in pairs)
    if different or len(source.get_shape()) != len(target.get_shape()):
        raise VerifyException("arguments have incompatible shape")


def _parse_wait(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = _parse_async(parser)
    attributes = parser.parse_optional_attr_dict()
    return cls.build(operands=[dependencies], attributes=attributes, result_types=[token])


def _print_wait(op: Any, printer: Printer) -> None:
    _print_async(op, printer)
    printer.print_op_attributes(op.attributes)


@irdl_op_definition
class MemsetOp(IRDLOperation):
    """`gpu.memset async [%t] %buffer, %value : memref<8xf32>, f32`."""

    name = "gpu.memset"

    asyncDependencies = var_operand_def(gpu.AsyncTokenType)
    dst = operand_def(memref.MemRefType)
    value = operand_def()
    asyncToken = opt_result_def(gpu.AsyncTokenType)

    traits = traits_def(MemoryWriteEffect())


set_custom(MemsetOp, _parse_copy, _print_copy)


def _complete_memory() -> None:
    set_custom(gpu.AllocOp, _parse_alloc, _print_alloc)
    set_custom(gpu.DeallocOp, _parse_dealloc, _print_dealloc)
    set_custom(gpu.MemcpyOp, _parse_copy, _print_copy)
    set_verifier(gpu.MemcpyOp, _verify_memcpy)
    set_custom(gpu.WaitOp, _parse_wait, _print_wait)


# --- Launches ---------------------------------------------------------------------------------------


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
    token, dependencies = _parse_async(parser)
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
    _print_async(op, printer)
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
    token, dependencies = _parse_async(parser)
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
    _print_async(op, printer)
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
        printer.print_list(pairs, lambda pair: _print_assignment(printer, *pair))
        printer.print_string(")")
    if op.dynamicSharedMemorySize is not None:
        printer.print_string(" dynamic_shared_memory_size ")
        printer.print_operand(op.dynamicSharedMemorySize)
    printer.print_string(" ")
    printer.print_region(op.body, print_entry_block_args=False)
    printer.print_op_attributes(op.attributes)


def _print_assignment(printer: Printer, argument: SSAValue, value: SSAValue) -> None:
    printer.print_ssa_value(argument)
    printer.print_string(" = ")
    printer.print_operand(value)


def _complete_launches() -> None:
    set_custom(gpu.LaunchFuncOp, _parse_launch_func, _print_launch_func)
    set_custom(gpu.LaunchOp, _parse_launch, _print_launch)


# --- Modules and functions ----------------------------------------------------------------------------


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
    printer.print_string(" ")
    assert isinstance(op.sym_name, StringAttr)
    printer.print_symbol_name(op.sym_name.data)
    targets = op.attributes.get("targets")
    if isinstance(targets, ArrayAttr):
        printer.print_string(" ")
        printer.print_attribute(targets)
    printer.print_op_attributes(op.attributes, reserved_attr_names=("targets",), print_keyword=True)
    printer.print_string(" ")
    printer.print_region(op.body, print_empty_block=False)


_ATTRIBUTIONS = {"workgroup": "workgroup_attributions", "private": "private_attributions"}


def _parse_func(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`gpu.func @f(%a: T) -> R workgroup(%s: M) private(%p: M) kernel attributes {...} { ... }`."""
    name = parser.parse_symbol_name()
    arguments: list[Parser.Argument] = []
    argument_attributes: list[dict[str, Attribute]] = []

    def argument() -> None:
        arguments.append(parser.parse_argument())
        argument_attributes.append(parser.parse_optional_dictionary_attr_dict())
        location = parser.parse_optional_location()
        if location is not None:
            arguments[-1].location = location

    parser.parse_comma_separated_list(parser.Delimiter.PAREN, argument)
    inputs = [each.type for each in arguments]
    outputs: list[Attribute] = []
    if parser.parse_optional_punctuation("->") is not None:
        listed = parser.parse_optional_comma_separated_list(
            parser.Delimiter.PAREN, parser.parse_type
        )
        outputs = [parser.parse_type()] if listed is None else list(listed)
    attributes: dict[str, Attribute] = {"sym_name": name}
    for word, count in _ATTRIBUTIONS.items():
        if parser.parse_optional_keyword(word) is not None:
            before = len(arguments)
            parser.parse_comma_separated_list(
                parser.Delimiter.PAREN, lambda: arguments.append(parser.parse_argument())
            )
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
    printer.print_string(" ")
    printer.print_symbol_name(op.sym_name.data)
    inputs = op.function_type.inputs.data
    block_arguments = op.body.blocks[0].args
    dictionaries: list[Attribute] = []
    arg_attrs = op.attributes.get("arg_attrs")
    if isinstance(arg_attrs, ArrayAttr):
        dictionaries = list(arg_attrs.data)

    def one(index: int) -> None:
        printer.print_block_argument(block_arguments[index])
        dictionary = dictionaries[index] if index < len(dictionaries) else None
        if isinstance(dictionary, DictionaryAttr):
            printer.print_op_attributes(dictionary.data)

    printer.print_string("(")
    printer.print_list(range(len(inputs)), one)
    printer.print_string(")")
    outputs = op.function_type.outputs.data
    if outputs:
        printer.print_string(" -> ")
        parens = len(outputs) > 1
        printer.print_string("(" if parens else "")
        printer.print_list(outputs, printer.print_attribute)
        printer.print_string(")" if parens else "")
    start = len(inputs)
    for word, count in _ATTRIBUTIONS.items():
        number = op.attributes.get(count)
        if isinstance(number, IntegerAttr) and number.value.data:
            attributed = block_arguments[start : start + number.value.data]
            start += number.value.data
            printer.print_string(f" {word}(")
            printer.print_list(attributed, printer.print_block_argument)
            printer.print_string(")")
    if op.kernel is not None:
        printer.print_string(" kernel")
    printer.print_op_attributes(
        op.attributes,
        reserved_attr_names=("sym_name", "arg_attrs", *_ATTRIBUTIONS.values()),
        print_keyword=True,
    )
    printer.print_string(" ")
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


def _complete_functions() -> None:
    set_custom(gpu.ModuleOp, _parse_module, _print_module)
    set_custom(gpu.FuncOp, _parse_func, _print_func)
    set_verifier(gpu.FuncOp, _verify_func)
    set_format("attr-dict ($args^ `:` type($args))?", gpu.ReturnOp)
    set_format("attr-dict ($values^ `:` type($values))?", gpu.YieldOp)
    set_format("attr-dict", gpu.TerminatorOp)


# --- Address spaces -----------------------------------------------------------------------------------


class AddressSpace(StrEnum):
    """Memory spaces of MLIR's gpu dialect."""

    GLOBAL = "global"
    WORKGROUP = "workgroup"
    PRIVATE = "private"
    CONSTANT = "constant"


SHARED_MEMORY = 3
"""The number by which XeTile and XeGPU programs name memory that a workgroup shares."""


@irdl_attr_definition
class AddressSpaceAttr(EnumAttribute[AddressSpace]):
    """`#gpu.address_space<workgroup>`."""

    name = "gpu.address_space"

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.value)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> AddressSpace:
        with parser.in_angle_brackets():
            return parser.parse_str_enum(AddressSpace)


def memory_space_number(kind: memref.MemRefType) -> int:
    """0 for global memory, 3 for memory that a workgroup shares, other numbers as written."""
    space = kind.memory_space
    if isinstance(space, IntegerAttr):
        return space.value.data
    return SHARED_MEMORY if space == AddressSpaceAttr(AddressSpace.WORKGROUP) else 0


# --- Barriers, communication, the rest ----------------------------------------------------------------

SHUFFLE_MODES = ("xor", "up", "down", "idx", "rotate")
REDUCE_KINDS = (
    *("add", "mul", "minui", "minsi", "minnumf", "maxui", "maxsi", "maxnumf"),
    *("and", "or", "xor", "minimumf", "maximumf"),
)


@irdl_op_definition
class ShuffleOp(IRDLOperation):
    """`%v, %valid = gpu.shuffle xor %x, %offset, %width : f32`: another lane's value."""

    name = "gpu.shuffle"

    value = operand_def()
    offset = operand_def(IntegerType(32))
    width = operand_def(IntegerType(32))
    mode_attr = prop_def(StringAttr, prop_name="mode")
    shuffleResult = result_def()
    valid = result_def(i1)

    traits = traits_def(Pure())

    def __init__(
        self, value: SSAValue | Operation, offset: SSAValue, width: SSAValue, mode: str = "xor"
    ):
        value = SSAValue.get(value)
        super().__init__(
            operands=[value, offset, width],
            properties={"mode": StringAttr(mode)},
            result_types=[value.type, i1],
        )

    @property
    def mode(self) -> str:
        return self.mode_attr.data

    def verify_(self) -> None:
        if self.mode not in SHUFFLE_MODES:
            raise VerifyException(f"unknown mode '{self.mode}'")
        if self.value.type != self.shuffleResult.type:
            raise VerifyException("requires the same type for value operand and result")

    @classmethod
    def parse(cls, parser: Parser) -> ShuffleOp:
        mode = parser.parse_keyword_in(SHUFFLE_MODES)
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        pos = parser.pos
        kind = parser.parse_type()
        values = parser.resolve_operands(operands, [kind, i32, i32], pos)
        op = cls(values[0], values[1], values[2], mode)
        op.attributes.update(attributes)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.mode} ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


def _parse_reduce(cls: Any, parser: Parser) -> Operation:
    """all_reduce and subgroup_reduce: `add %x uniform ... : (f32) -> f32`."""
    properties: dict[str, Attribute] = {}
    kind = parser.parse_optional_keyword_in((*REDUCE_KINDS, "min", "max"))
    if kind is not None:
        stock = cls is gpu.AllReduceOp and kind in list(gpu.AllReduceOpEnum)
        properties["op"] = (
            gpu.AllReduceOpAttr(gpu.AllReduceOpEnum(kind)) if stock else StringAttr(kind)
        )
    operand = parser.parse_unresolved_operand()
    if parser.parse_optional_keyword("uniform") is not None:
        properties["uniform"] = UnitAttr()
    if cls is SubgroupReduceOp and parser.parse_optional_keyword("cluster") is not None:
        for name, value in _parse_cluster(parser).items():
            properties[name] = value
    regions = [parser.parse_optional_region() or Region()] if cls is gpu.AllReduceOp else []
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    kind_type = parser.parse_function_type()
    if len(kind_type.inputs) != 1:
        parser.raise_error("expected one operand type")
    return cls.create(
        operands=[parser.resolve_operand(operand, kind_type.inputs.data[0])],
        properties=properties,
        attributes=attributes,
        regions=regions,
        result_types=kind_type.outputs.data,
    )


def _parse_cluster(parser: Parser) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}

    def entry() -> None:
        word = parser.parse_keyword_in(("size", "stride"))
        parser.parse_punctuation("=")
        found[f"cluster_{word}"] = IntegerAttr(parser.parse_integer(), i32)

    parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
    return found


def _print_reduce(op: Any, printer: Printer) -> None:
    if op.op is not None:
        printer.print_string(f" {op.op.data}")
    printer.print_string(" ")
    printer.print_operand(op.operand)
    if op.uniform is not None:
        printer.print_string(" uniform")
    if isinstance(op, SubgroupReduceOp) and op.cluster_size is not None:
        stride = "" if op.cluster_stride is None else f", stride = {op.cluster_stride.value.data}"
        printer.print_string(f" cluster(size = {op.cluster_size.value.data}{stride})")
    if op.regions:
        printer.print_string(" ")
        printer.print_region(op.regions[0], print_empty_block=False)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_operation_type(op)


@irdl_op_definition
class SubgroupReduceOp(IRDLOperation):
    """`gpu.subgroup_reduce add %x : (f32) -> f32`: every lane gets the reduction over all lanes."""

    name = "gpu.subgroup_reduce"

    operand = operand_def()
    op = prop_def(StringAttr)
    uniform = opt_prop_def(UnitAttr)
    cluster_size = opt_prop_def(IntegerAttr)
    cluster_stride = opt_prop_def(IntegerAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, kind: str, operand: SSAValue | Operation):
        operand = SSAValue.get(operand)
        super().__init__(
            operands=[operand],
            properties={"op": StringAttr(kind)},
            result_types=[operand.type],
        )

    def verify_(self) -> None:
        if self.op.data not in REDUCE_KINDS:
            raise VerifyException(f"unknown kind of reduction '{self.op.data}'")
        if self.operand.type != self.result.type:
            raise VerifyException("requires the same type for operand and result")


set_custom(SubgroupReduceOp, _parse_reduce, _print_reduce)


@irdl_op_definition
class PrintfOp(IRDLOperation):
    """`gpu.printf "%d\\n", %x : i32`."""

    name = "gpu.printf"

    format = prop_def(StringAttr)
    args = var_operand_def()

    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$format attr-dict (`,` $args^ `:` type($args))?"


@irdl_op_definition
class DynamicSharedMemoryOp(IRDLOperation):
    """`gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>`."""

    name = "gpu.dynamic_shared_memory"

    resultMemref = result_def(memref.MemRefType)

    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($resultMemref)"


def _complete_rest() -> None:
    set_format("attr-dict", gpu.BarrierOp)
    set_format("attr-dict $devIndex", gpu.SetDefaultDeviceOp)
    set_format("$value attr-dict `:` type($value)", gpu.HostRegisterOp, gpu.HostUnregisterOp)
    # MLIR's names of the kinds besides the ones that the stock enumeration has.
    definition = gpu.AllReduceOp.get_irdl_definition()
    definition.properties["op"].constr = base(gpu.AllReduceOpAttr) | base(StringAttr)
    set_custom(gpu.AllReduceOp, _parse_reduce, _print_reduce)
    add_ops(gpu.GPU, (ShuffleOp, SubgroupReduceOp, PrintfOp, MemsetOp, DynamicSharedMemoryOp))
    add_attributes(gpu.GPU, (AddressSpaceAttr,))


def complete() -> None:
    _complete_ids()
    _complete_memory()
    _complete_launches()
    _complete_functions()
    _complete_rest()
