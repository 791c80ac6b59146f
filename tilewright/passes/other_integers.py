"""other-integers: integers of 4 bits, or of another width that no machine has, are those of the next that they have.

    %s = arith.addi %a, %b : i4         ->   %t = arith.addi %a, %b : i8
                                             %u = arith.shli %t, %c4 : i8        (four bits, with their sign)
                                             %s = arith.shrsi %u, %c4 : i8
    %w = arith.extui %s : i4 to i32     ->   %m = arith.andi %s, %c15 : i8
                                             %w = arith.extui %m : i8 to i32

Every value lies in its wider type with its sign; what reads it without one takes its bits alone. In an array each
element has a byte (or two, four, eight) of its own, as LLVM stores it.

Requires: nothing.  Guarantees: no integer of 2 to 63 bits has another width than 8, 16 and 32, or all is as it was:
where such are bits of something else (bitcast, XeGPU's operands of 4 bits, atomics).
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects.elementwise import UNSIGNED_DIVISIONS
from tilewright.dialects.upstream.arith import element
from tilewright.passes.emit import Before
from tilewright.passes.retype import changed, retype, types_of

_SAME = (
    *("arith.", "math.", "memref.", "scf.", "func.", "cf."),
    *("linalg.", "tensor.", "bufferization.", "affine."),
)
_MORE = (
    *("gpu.launch", "gpu.func", "gpu.return", "gpu.alloc", "gpu.dealloc", "gpu.memcpy"),
    *("vector.", "builtin.module", "ub."),
)
_BITS = (
    *("arith.bitcast", "arith.mulsi_extended", "arith.mului_extended", "arith.addui_extended"),
    *("memref.view", "memref.atomic_rmw", "tensor.bitcast"),
    *("vector.bitcast", "vector.print", "vector.type_cast"),
)
_EXACT = (
    *("arith.andi", "arith.ori", "arith.xori", "arith.select", "arith.constant"),
    *("arith.maxsi", "arith.minsi", "arith.extsi", "arith.extui"),
)
"""Their results have the sign of their operands, or more bits than these."""
_UNSIGNED = UNSIGNED_DIVISIONS | {
    *("arith.maxui", "arith.minui", "arith.shrui", "arith.extui"),
    *("arith.uitofp", "arith.index_castui", "math.ctpop", "math.ctlz"),
}
_SUMS = (
    *("vector.reduction", "vector.multi_reduction", "vector.contract"),
    *("vector.outerproduct", "vector.scan"),
)


def other_integers(module: ModuleOp, *, arguments: bool = False) -> None:
    """Rewrites `module` in place. `arguments`: those of kernels too, which a program of the module launches."""
    ops = list(module.walk())
    mine = [op for op in ops if any(map(_width, types_of(op)))]
    if not mine or not all(map(_is_plain, mine)):
        return
    kernels = (op for op in mine if isinstance(op, gpu.FuncOp))
    if not arguments and any(_width(kind) for op in kernels for kind in op.function_type.inputs):
        return
    computed = [op for op in mine if op.name.startswith(("arith.", "math.", *_SUMS))]
    widths = [
        ([_width(v.type) for v in op.operands], [_width(r.type) for r in op.results])
        for op in computed
    ]
    retype(ops, _wider)
    for op, (taken, given) in zip(computed, widths, strict=True):
        _compute(op, taken, given)


def _width(kind: Attribute) -> int:
    """The bits of an integer, or of the elements of a type, where no machine has such; else 0."""
    kind = getattr(kind, "element_type", kind)
    if not isinstance(kind, IntegerType) or kind.signedness.data != Signedness.SIGNLESS:
        return 0
    bits = kind.width.data
    return bits if 1 < bits < 64 and bits not in (8, 16, 32) else 0


def _is_plain(op: Operation) -> bool:
    """Whether an op means the same of wider integers, or is one that `_compute` knows."""
    if op.name in _BITS or not op.name.startswith((*_SAME, *_MORE)):
        return False
    kind = op.properties.get("kind")
    return not (op.name in _SUMS and kind is not None and "ui" in str(kind))


def _wider(attribute: Attribute) -> Attribute | None:
    """The wider of an integer's type, and a number or numbers of it."""
    match attribute:
        case IntegerType() if bits := _width(attribute):
            return IntegerType(next(n for n in (8, 16, 32, 64) if n > bits))
        case IntegerAttr() if bits := _width(attribute.type):
            return IntegerAttr(_signed(attribute.value.data, bits), changed(attribute.type, _wider))  # pyright: ignore
        case DenseIntOrFPElementsAttr() if bits := _width(attribute.type):
            values = [_signed(int(v), bits) for v in attribute.get_values()]  # pyright: ignore
            values = values[:1] if attribute.is_splat() else values
            return DenseIntOrFPElementsAttr.from_list(changed(attribute.type, _wider), values)  # pyright: ignore
        case _:
            return None


def _signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _compute(op: Operation, taken: list[int], given: list[int]) -> None:
    """The op on what is wider now: `taken` and `given` are the bits that its operands and results had, else 0."""
    unsigned = op.name in _UNSIGNED or (
        isinstance(op, arith.CmpiOp) and op.predicate.value.data >= 6
    )
    before = Before(op)
    for n, bits in enumerate(taken):
        value = op.operands[n]
        if bits and unsigned:
            op.operands[n] = before.add(
                arith.AndIOp(value, _constant(before, value.type, (1 << bits) - 1))
            )
        elif bits and op.name == "math.cttz":  # of 0 it is the width
            op.operands[n] = before.add(
                arith.OrIOp(value, _constant(before, value.type, 1 << bits))
            )
    result = op.results[0] if op.results else None
    if (
        isinstance(op, arith.ExtSIOp | arith.ExtUIOp | arith.TruncIOp)
        and op.input.type == op.result.type
    ):
        if given[0] and isinstance(op, arith.TruncIOp):
            before.replace(_with_sign(before, op.input, given[0]))
        else:
            before.replace(op.input)
    elif op.next_op is not None and result is not None and given[0] and op.name not in _EXACT:
        _let_wrap(op, given)


def _let_wrap(op: Operation, given: list[int]) -> None:
    """What reads the results gets as many of their bits as they had."""
    assert op.next_op is not None
    behind = Before(op.next_op)
    for result, bits in zip(op.results, given, strict=True):
        if not bits:
            continue
        uses = list(result.uses)
        value: SSAValue = result
        if op.name == "math.ctlz":
            more = element(result.type).width.data - bits  # pyright: ignore
            value = behind.add(arith.SubiOp(value, _constant(behind, result.type, more)))
        value = _with_sign(behind, value, bits)
        for use in uses:
            use.operation.operands[use.index] = value


def _constant(at: Before, kind: Attribute, value: int) -> SSAValue:
    if isinstance(kind, TensorType):
        return at.add(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(kind, [value])))  # pyright: ignore
    return at.constant(kind, value)


def _with_sign(at: Before, value: SSAValue, bits: int) -> SSAValue:
    kind = element(value.type)
    assert isinstance(kind, IntegerType)
    by = _constant(at, value.type, kind.width.data - bits)
    return at.add(arith.ShRSIOp(at.add(arith.ShLIOp(value, by)), by))
