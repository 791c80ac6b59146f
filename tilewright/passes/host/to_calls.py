"""host-to-calls: what host code asks of a device becomes plain memory and calls of the runtime.

    %a = gpu.alloc() : memref<4x8xf16>                    %a = memref.alloc() : memref<4x8xf16>
                                                          mach.call @tw_poison(address of %a, bytes)
    gpu.memcpy %a, %b : ...                        ->     memref.copy %b, %a : ...
    gpu.launch_func @m::@k blocks in (..)                 mach.call @tw_launch_0(grid, block, %a as memref<*xf16>)
        threads in (..) args(%a : ...)
    call @printMemrefF32(%u) : ...                        mach.call @tw_host_printMemrefF32(%u)

Requires: host functions of a module (func.func); kernels live in gpu.module ops and are not touched.
Guarantees: no gpu op and no call of an undefined function is left in them; device memory starts poisoned, as it
has no defined contents; every launch is one entry of the returned list, in the order of `tw_launch_N`.
Asynchronous tokens order ops that are in program order anyway, and vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from xdsl.dialects import arith, func, gpu, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    FixedBitwidthType,
    IntegerType,
    MemRefType,
    ModuleOp,
    UnrankedMemRefType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects import mach
from tilewright.dialects.movement import memref_type
from tilewright.frozen import frozen
from tilewright.passes.emit import Before
from tilewright.passes.host.unread_launches import UNREAD

POISON = "tw_poison"
LAUNCH = "tw_launch_"
HOST = "tw_host_"


@frozen
class Launch:
    """One launch of the host code: its kernel (gpu.module, gpu.func) and the types of the kernel's operands."""

    symbol: str
    kernel: tuple[str, str]
    operands: tuple[Attribute, ...]
    location: Attribute
    unread: bool = False
    """Whether nothing reads what the launch computes, so that a repetition of it may be left out."""


Library = Callable[[func.CallOp], object]
"""Raises where the runtime has no function for a call of one that is not defined, or one of other types."""


def host_to_calls(module: ModuleOp, library: Library) -> list[Launch]:
    """Rewrite every host function in place; `library` refuses calls that the runtime cannot answer."""
    launches: list[Launch] = []
    for function in [f for f in module.body.block.ops if isinstance(f, func.FuncOp)]:
        if function.is_declaration:
            Rewriter.erase_op(function, safe_erase=False)
            continue
        # Users of tokens come after their makers: backwards, so that tokens have no uses left.
        for op in reversed(list(function.walk())):
            _rewrite(op, library, launches, module)
    return launches


def _rewrite(op: Operation, library: Library, launches: list[Launch], module: ModuleOp) -> None:
    match op:
        case gpu.AllocOp():
            _alloc(op)
        case gpu.DeallocOp():
            _replace(op, [memref.DeallocOp.get(op.buffer)])
        case gpu.MemcpyOp():
            _replace(op, [memref.CopyOp(op.src, op.dst)])
        case (
            gpu.WaitOp() | gpu.HostRegisterOp() | gpu.HostUnregisterOp() | gpu.SetDefaultDeviceOp()
        ):
            _replace(op, [])
        case gpu.LaunchFuncOp():
            _launch(op, launches)
        case func.CallOp() if _function(module, op.callee.string_value()) is None:
            _library_call(op, library)
        case _:
            if op.name.startswith("gpu."):
                raise unsupported(op, f"{op.name} in host code is not supported")


def _replace(op: Operation, new: Sequence[Operation], results: Sequence[SSAValue] = ()) -> None:
    for one in new:
        one.location = op.location
    Rewriter.replace_op(op, new, [*results, *([None] * (len(op.results) - len(results)))])


def _alloc(op: gpu.AllocOp) -> None:
    type_ = op.result.type
    at = Before(op)
    made = at.add(memref.AllocOp(list(op.dynamicSizes), list(op.symbolOperands), type_))
    made.name_hint = op.result.name_hint
    pointer = at.add(memref.ExtractAlignedPointerAsIndexOp.get(made))
    size = reduce(at.times, op.dynamicSizes, _static_bytes(type_))
    at.insert(mach.CallOp(POISON, [pointer, at.index(size)]))
    _replace(op, [], [made])


def _static_bytes(type_: MemRefType) -> int:
    """Bytes of an element times every static extent."""
    element = type_.element_type
    bits = element.bitwidth if isinstance(element, FixedBitwidthType) else 64
    return prod(n for n in type_.get_shape() if n != DYNAMIC_INDEX) * max(1, bits // 8)


def _unranked(value: SSAValue) -> memref.CastOp:
    type_ = memref_type(value)
    target = UnrankedMemRefType.from_type(type_.element_type, type_.memory_space)
    return memref.CastOp.get(value, target)


def _launch(op: gpu.LaunchFuncOp, launches: list[Launch]) -> None:
    outer = op.kernel.root_reference.data
    inner = [name.data for name in op.kernel.nested_references.data]
    if len(inner) != 1:
        raise error_at(op, f"a launch names a gpu.module and a gpu.func in it, not {op.kernel}")
    symbol = f"{LAUNCH}{len(launches)}"
    casts = {v: _unranked(v) for v in op.kernelOperands if isinstance(v.type, MemRefType)}
    sizes = [
        op.gridSizeX, op.gridSizeY, op.gridSizeZ, op.blockSizeX, op.blockSizeY, op.blockSizeZ,
    ]  # fmt: skip
    # C has no name for floats of 16 bits and less: their bits are passed.
    bits = {
        v: arith.BitcastOp(v, IntegerType(v.type.bitwidth))
        for v in op.kernelOperands
        if isinstance(v.type, AnyFloat) and v.type.bitwidth < 32
    }
    operands = [
        casts[v].dest if v in casts else bits[v].result if v in bits else v
        for v in op.kernelOperands
    ]
    types = tuple(op.kernelOperands.types)
    launches.append(Launch(symbol, (outer, inner[0]), types, op.location, UNREAD in op.attributes))
    _replace(op, [*casts.values(), *bits.values(), mach.CallOp(symbol, [*sizes, *operands])])


def _library_call(op: func.CallOp, library: Library) -> None:
    library(op)
    casts = {v: _unranked(v) for v in op.arguments if isinstance(v.type, MemRefType)}
    operands = [casts[v].dest if v in casts else v for v in op.arguments]
    call = mach.CallOp(HOST + op.callee.string_value(), operands, [r.type for r in op.results])
    _replace(op, [*casts.values(), call], list(call.results))


def _function(module: ModuleOp, name: str) -> func.FuncOp | None:
    for op in module.body.block.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == name and not op.is_declaration:
            return op
    return None
