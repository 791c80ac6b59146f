"""known-arguments: an array argument has the extents and strides that every call of its function knows.

    func.func @f(                                                        func.func @f(
        %a: memref<6x5xf32, strided<[?, ?], offset: ?>>) {                   %a: memref<6x5xf32>) {
      linalg.fill ins(%z) outs(%a : ..)                            ->      linalg.fill ins(%z) outs(%a : ..)
    }                                                                    }
    %y = memref.cast %x : memref<6x5xf32> to ..
    func.call @f(%y) : (..) -> ()                                        func.call @f(%x) : (memref<6x5xf32>) -> ()

Requires: functions of the host, no tensors. Guarantees: same results. mlir-opt's one-shot-bufferize leaves open how
every array that a function takes is laid out, and whole rows of tiles need strides that are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import FunctionType, MemRefType, ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.passes.emit import Before
from tilewright.passes.linalg.bufferize import slice_of

_ACCESSES = (
    "linalg.",
    "vector.transfer_",
    "vector.load",
    "vector.store",
    "memref.load",
    "memref.store",
    "memref.copy",
)
"""Ops that take an array of any extents and strides, and say nothing of them in a result."""


def known_arguments(module: ModuleOp) -> None:
    """Rewrites the functions of a module and their calls, in place."""
    calls: dict[str, list[func.CallOp]] = {}
    for op in module.walk():
        if isinstance(op, func.CallOp):
            calls.setdefault(op.callee.string_value(), []).append(op)
    # A function's arguments are known before those of functions that it calls, as texts mostly have it.
    for function in reversed([op for op in module.body.block.ops if isinstance(op, func.FuncOp)]):
        callers = calls.get(function.sym_name.data)
        if callers and not function.is_declaration:
            for place in range(len(function.args)):
                _know(function, callers, place)


def _know(function: func.FuncOp, callers: Sequence[func.CallOp], place: int) -> None:
    argument = function.args[place]
    given = [_before_cast(call.arguments[place]) for call in callers]
    kinds = {value.type for value in given}
    if not isinstance(argument.type, MemRefType) or len(kinds) != 1 or kinds == {argument.type}:
        return
    (kind,) = kinds
    before = argument.type
    argument = Rewriter.replace_value_with_new_type(argument, kind)
    if (first := function.body.blocks[0].first_op) is not None:
        cast = memref.CastOp.get(argument, before)
        cast.location = function.location
        argument.replace_all_uses_with(cast.dest)
        cast.operands[0] = argument
        Rewriter.insert_op(cast, InsertPoint.before(first))
        _see_through(cast)
    inputs: list[Attribute] = list(function.function_type.inputs)
    inputs[place] = kind
    function.function_type = FunctionType.from_lists(inputs, list(function.function_type.outputs))
    for call, value in zip(callers, given, strict=True):
        call.operands[place] = value


def _before_cast(value: SSAValue) -> SSAValue:
    """The array of a known rank that a value is a cast of."""
    while (
        isinstance(cast := value.owner, memref.CastOp)
        and isinstance(cast.source.type, MemRefType)
        and isinstance(cast.dest.type, MemRefType)
    ):
        value = cast.source
    return value


def _see_through(cast: memref.CastOp) -> None:
    """What uses a cast takes what it is of; parts of it are parts of that."""
    source = cast.source
    for use in list(cast.dest.uses):
        op = use.operation
        if op.name.startswith(_ACCESSES):
            op.operands[use.index] = source
        elif isinstance(op, memref.CastOp):
            op.operands[0] = source
            _see_through(op)
        elif isinstance(op, memref.SubviewOp):
            before, kind = Before(op), op.result.type
            part = slice_of(before, op, source, kind.get_shape())
            known = memref.CastOp.get(part, kind)
            before.insert(known)
            before.replace(known.dest)
            _see_through(known)
    if not cast.dest.uses:
        Rewriter.erase_op(cast)
