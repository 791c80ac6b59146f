"""The entry of a program: which function runs, and what it is called with.

    func.func @main(%a: memref<4x8xf16>) {..}   ->   func.func @tw_entry() {
                                                       %a = memref.alloc() : memref<4x8xf16>
                                                       (every element of %a a random number)
                                                       func.call @main(%a) : (memref<4x8xf16>) -> ()
                                                     }

Programs are written to run from a function without arguments.  One that a compiler wrote down for the kernels in
it alone has only a function that takes the arrays: it gets arrays of random numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects import mach
from tilewright.dtypes import from_mlir

ENTRY = "tw_entry"
RANDOM = "tw_random_"
"""Prefix of the runtime's functions (address, elements) that fill memory with random numbers of a dtype."""


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


def call_entry(module: ModuleOp, entry: func.FuncOp, say: Callable[[str], object]) -> str:
    """The name of a function without arguments that runs `entry`, added to `module` where there is none."""
    type_ = entry.function_type
    if list(type_.outputs):
        raise error_at(entry, f"the entry @{entry.sym_name.data} gives no results, but is {type_}")
    if not list(type_.inputs):
        return entry.sym_name.data
    ops: list[Operation] = []
    arguments: list[SSAValue] = []
    for i, argument in enumerate(type_.inputs):
        _check(entry, i, argument)
        assert isinstance(argument, MemRefType)
        alloc = memref.AllocOp.get(argument.element_type, shape=argument.get_shape())
        pointer = memref.ExtractAlignedPointerAsIndexOp.get(alloc.memref)
        count = arith.ConstantOp(IntegerAttr(_elements(argument), IndexType()))
        fill = mach.CallOp(
            RANDOM + from_mlir(argument.element_type).name, [pointer.aligned_pointer, count.result]
        )
        ops += [alloc, pointer, count, fill]
        value = alloc.memref
        if value.type != argument:
            ops.append(memref.MemorySpaceCastOp(value, argument))
            value = ops[-1].results[0]
        arguments.append(value)
    ops += [func.CallOp(entry.sym_name.data, arguments, []), func.ReturnOp()]
    for op in ops:
        op.location = entry.location
    wrapper = func.FuncOp(ENTRY, FunctionType.from_lists([], []), Region(Block(ops)))
    module.body.block.add_op(wrapper)
    say(f"@{entry.sym_name.data} takes arrays: they are made of random numbers")
    return ENTRY


def _check(entry: func.FuncOp, i: int, argument: Attribute) -> None:
    """An argument for which an array can be made up: a whole memref of known extents."""
    plain = (
        isinstance(argument, MemRefType)
        and DYNAMIC_INDEX not in argument.get_shape()
        and (isinstance(argument.layout, NoneAttr) or _row_major(argument))
        and not isinstance(argument.element_type, IndexType)
        and argument.element_type != IntegerType(1)
    )
    if not plain:
        raise unsupported(
            entry,
            f"the entry @{entry.sym_name.data} takes no arguments, or arrays of known extents, but "
            f"its argument {i} is {argument}",
            hint="call it from a function without arguments, and name that one with --entry",
        )


def _row_major(type_: MemRefType) -> bool:
    return isinstance(type_.layout, StridedLayoutAttr) and list(type_.get_strides() or ()) == [
        _elements_from(type_, d + 1) for d in range(type_.get_num_dims())
    ]


def _elements_from(type_: MemRefType, first: int) -> int:
    n = 1
    for extent in type_.get_shape()[first:]:
        n *= extent
    return n


def _elements(type_: MemRefType) -> int:
    return _elements_from(type_, 0)
