"""The entry of a program: which function runs, what it is called with, and what becomes of what it gives.

    func.func @main(%a: memref<4x8xf16>)    ->   func.func @tw_entry() {
        -> memref<8xf32> {..}                      %a = memref.alloc() : memref<4x8xf16>
                                                   (every element of %a a random number)
                                                   %r = func.call @main(%a)
                                                   (prints %a if @main wrote to it, and %r)
                                                 }

Programs are written to run from a function without arguments.  One that a compiler wrote down for the kernels in
it alone has only a function that takes the arrays: it gets arrays of random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, func, memref, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    UnrankedMemRefType,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.utils.exceptions import VerifyException

from tilewright.arguments import ArraySpec, contiguous_strides
from tilewright.diagnostics import LaunchError, UnsupportedError, error_at, unsupported
from tilewright.dialects.numerals import number_attr
from tilewright.dtypes import from_mlir
from tilewright.reference.mlir_runner import OWN, suffix_of

ENTRY = "tw_entry"


def choose_entry(module: ModuleOp, name: str | None) -> func.FuncOp:
    """The function `name`; without one `main`, or the only function that no other calls."""
    defined = {
        op.sym_name.data: op
        for op in module.body.block.ops
        if isinstance(op, func.FuncOp) and not op.is_declaration
    }
    if not defined:
        raise error_at(
            module,
            "the program has no function to run: nothing but declarations and kernels",
            hint="a program starts in a function of the host, func.func @main() { .. }, which launches kernels",
        )
    names = f"name one with --entry: {', '.join(defined)}"
    if name is not None:
        if name not in defined:
            raise error_at(module, f"the program has no function @{name}", hint=names)
        return defined[name]
    if "main" in defined:
        return defined["main"]
    called = {op.callee.string_value() for op in module.walk() if isinstance(op, func.CallOp)}
    free = [function for name, function in defined.items() if name not in called]
    if len(free) != 1:
        raise error_at(module, "the program has no function @main", hint=names)
    return free[0]


def is_of_host(module: ModuleOp, name: str | None) -> bool:
    """Whether `choose_entry` has functions to choose from, `name` among them."""
    names = [
        op.sym_name.data
        for op in module.body.block.ops
        if isinstance(op, func.FuncOp) and not op.is_declaration
    ]
    return name in names if name is not None else bool(names)


def call_entry(
    module: ModuleOp,
    entry: func.FuncOp,
    given: Sequence[Any] = (),
    say: Callable[[str], object] = lambda text: None,
) -> str:
    """The name of a function without arguments that runs `entry`, added to `module` where there is none.

    `given`: an `ArraySpec` or a number for each argument, or nothing: then all must be arrays of known extents.
    Arrays hold random numbers. What the entry returns is printed by the runner, and arrays that it wrote to.
    Raises LaunchError where what is given does not fit, UnsupportedError for an argument or result of no such type.
    """
    type_ = entry.function_type
    if not (list(type_.inputs) or list(type_.outputs) or given):
        return entry.sym_name.data
    if given and len(given) != len(type_.inputs):
        words = f"the entry @{entry.sym_name.data} takes {len(type_.inputs)} arguments, {len(given)} given"
        raise error_at(entry, words, hint=_hint(entry), kind=LaunchError)
    new = _Calls()
    arguments: list[SSAValue] = []
    for i, argument in enumerate(type_.inputs):
        made = new.argument(i, argument, given[i] if given else None)
        if made is None:
            name = entry.sym_name.data
            words = f"the entry @{name} gets arrays of known extents, and its argument {i} is {argument}"
            if given:
                words = f"argument {i} of the entry @{name} is {argument}, not {_spelled(given[i])}"
            raise error_at(
                entry, words, hint=_hint(entry), kind=LaunchError if given else UnsupportedError
            )
        arguments.append(made)
    call = new.add(func.CallOp(entry.sym_name.data, arguments, list(type_.outputs)))
    for i, argument in enumerate(arguments):
        if isinstance(argument.type, MemRefType):
            new.runner("argument", i, argument)
    for i, result in enumerate(call.results):
        memory = new.in_memory(result)
        if memory is None:
            what = f"the entry @{entry.sym_name.data} returns arrays, vectors and numbers, but its result {i} is"
            hint = "convert it in the program to a type of whole bytes, or print it there"
            raise unsupported(entry, f"{what} {result.type}", hint=hint)
        new.runner("result", i, memory)
    new.add(func.ReturnOp())
    for op in new.ops:
        op.location = entry.location
    wrapper = func.FuncOp(ENTRY, FunctionType.from_lists([], []), Region(Block(new.ops)))
    module.body.block.add_ops([*new.declared.values(), wrapper])
    if not given and arguments:
        say(f"@{entry.sym_name.data} takes arrays: they are made of random numbers")
    return ENTRY


class _Calls:
    """The ops of the function that calls the entry."""

    def __init__(self) -> None:
        self.ops: list[Operation] = []
        self.declared: dict[str, Operation] = {}

    def add(self, op: Operation) -> Any:
        self.ops.append(op)
        return op

    def runner(self, what: str, number: int, array: SSAValue) -> None:
        """Call a function of the runner's with the number of an argument or result, and its memory."""
        if not isinstance(array.type, UnrankedMemRefType):
            assert isinstance(array.type, MemRefType)
            if not isinstance(array.type.memory_space, NoneAttr):
                plain = MemRefType(
                    array.type.element_type, array.type.get_shape(), array.type.layout
                )
                array = self.add(memref.MemorySpaceCastOp(array, plain)).results[0]
            unranked = UnrankedMemRefType.from_type(array.type.element_type)  # pyright: ignore
            array = self.add(memref.CastOp.get(array, unranked)).dest
        name = f"{OWN}{what}_{suffix_of(array.type.element_type)}"  # pyright: ignore
        index = self.add(arith.ConstantOp(IntegerAttr(number, i64))).result
        self.add(func.CallOp(name, [index, array], []))
        self.declared[name] = func.FuncOp.external(name, [i64, array.type], [])

    def argument(self, i: int, type_: Attribute, given: Any) -> SSAValue | None:
        """The value of argument `i` for an `ArraySpec`, a number or None; None where these make no such value."""
        if not isinstance(type_, MemRefType):
            number = _number(type_, given)
            return None if number is None else self.add(arith.ConstantOp(number)).result
        shape = given.shape if isinstance(given, ArraySpec) else type_.get_shape()
        layout = _layout(type_, shape)
        if layout is None or not _fits(given, type_) or DYNAMIC_INDEX in shape:
            return None
        strides, offset = layout
        whole = strides == [*contiguous_strides(shape)] and not offset
        reach = 1 + offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        alloc = memref.AllocOp.get(type_.element_type, shape=shape if whole else [reach])
        value = self.add(alloc).memref
        if not whole:
            layout = StridedLayoutAttr(strides, offset)
            value = self.add(
                memref.ReinterpretCastOp(
                    value, [], [], [], [offset], shape, strides,
                    MemRefType(type_.element_type, shape, layout),
                )
            ).results[0]  # fmt: skip
        self.runner("fill", i, value)
        if not isinstance(type_.memory_space, NoneAttr):
            there = MemRefType(type_.element_type, shape, value.type.layout, type_.memory_space)
            value = self.add(memref.MemorySpaceCastOp(value, there)).results[0]
        return value if value.type == type_ else self.add(memref.CastOp.get(value, type_)).dest

    def in_memory(self, value: SSAValue) -> SSAValue | None:
        """The memref that is `value`, or holds it; None where its type has no elements of whole bytes."""
        type_ = value.type
        shaped = isinstance(type_, MemRefType | UnrankedMemRefType | VectorType)
        if suffix_of(type_.element_type if shaped else type_) is None:
            return None
        if not isinstance(type_, VectorType):
            if shaped:
                return value
            place = self.add(memref.AllocOp.get(type_, shape=[])).memref
            self.add(memref.StoreOp.get(value, place, []))
            return place
        place = self.add(memref.AllocOp.get(type_.element_type, shape=type_.get_shape())).memref
        zero = self.add(arith.ConstantOp(IntegerAttr(0, IndexType()))).result
        rank = type_.get_num_dims()
        inside = ArrayAttr([BoolAttr.from_bool(True)] * rank)
        map_ = AffineMapAttr(AffineMap.identity(rank))
        self.add(vector.TransferWriteOp(value, place, [zero] * rank, inside, None, map_))
        return place


def _fits(given: Any, type_: MemRefType) -> bool:
    """Whether an array like the one given, or any if None, is one of a type."""
    if suffix_of(type_.element_type) is None or given is None:
        return given is None and suffix_of(type_.element_type) is not None
    return (
        isinstance(given, ArraySpec)
        and given.strides is None
        and given.dtype is from_mlir(type_.element_type)
        and len(given.shape) == type_.get_num_dims()
        and all(
            m in (n, DYNAMIC_INDEX) for n, m in zip(given.shape, type_.get_shape(), strict=True)
        )
    )


def _layout(type_: MemRefType, shape: Sequence[int]) -> tuple[list[int], int] | None:
    """Strides and offset of an array of that shape; what the type leaves open is as in a dense array."""
    dense = [*contiguous_strides(shape)]
    if isinstance(type_.layout, NoneAttr):
        return dense, 0
    if not isinstance(type_.layout, StridedLayoutAttr):
        return None
    stated = [None if isinstance(s, NoneAttr) else s.data for s in type_.layout.strides]
    strides = [d if s is None else s for s, d in zip(stated, dense, strict=True)]
    return (strides, type_.layout.get_offset() or 0) if min(strides, default=0) >= 0 else None


def _number(type_: Attribute, given: Any) -> IntegerAttr | FloatAttr | None:
    """The constant of a type that is the number given."""
    try:
        whole = isinstance(type_, IntegerType | IndexType) and int(given) == given
        if whole or isinstance(type_, AnyFloat):
            return number_attr(type_, given)
    except (TypeError, ValueError, VerifyException):
        pass
    return None


def _spelled(given: Any) -> str:
    if not isinstance(given, ArraySpec):
        return str(given)
    return f"{given.dtype.name}[{','.join(map(str, given.shape))}]"


def _hint(entry: func.FuncOp) -> str:
    """How to call it, with 8 for what the types leave open."""
    listed: list[str] = []
    for type_ in entry.function_type.inputs:
        if isinstance(type_, MemRefType) and suffix_of(type_.element_type) is not None:
            shape = tuple(8 if n == DYNAMIC_INDEX else n for n in type_.get_shape())
            listed.append(f"'{_spelled(ArraySpec(shape, from_mlir(type_.element_type)))}'")
        elif isinstance(type_, AnyFloat | IntegerType | IndexType):
            listed.append("1")
        else:
            return "call it from a function without arguments, and name that one with --entry"
    return (
        f"say what it is called with, for example --args {' '.join(listed)}"
        if listed
        else "leave out --args"
    )
