"""memref.subview, tensor.extract_slice and its inverses: parts are what they name and lie inside, as MLIR verifies.

    memref.subview %m[1, 0] [2, 4] [1, 2] : memref<4x8xf32> to memref<2x4xf32, strided<[8, 2], offset: 8>>

What the text states is checked here; numbers that are known at run time alone, by host code when it runs
(`passes/host/checks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import memref, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX as DYNAMIC
from xdsl.dialects.builtin import I64, DenseArrayBase, IndexType, MemRefType, TensorType, i64
from xdsl.irdl import AttrSizedOperandSegments
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import Op, Operand, Operands, Prop, op_definition
from tilewright.dialects.upstream.complete import add_verifier
from tilewright.dialects.upstream.strided import strided_form


@op_definition
class ParallelInsertSliceOp(Op):
    """What an iteration of scf.forall stores to a tensor that all share."""

    name = "tensor.parallel_insert_slice"
    source: Operand[TensorType] = Operand(TensorType)
    dest: Operand[TensorType] = Operand(TensorType)
    offsets: Operands[IndexType] = Operands(IndexType)
    sizes: Operands[IndexType] = Operands(IndexType)
    strides: Operands[IndexType] = Operands(IndexType)
    static_offsets: Prop[DenseArrayBase[I64]] = Prop(DenseArrayBase.constr(i64))
    static_sizes: Prop[DenseArrayBase[I64]] = Prop(DenseArrayBase.constr(i64))
    static_strides: Prop[DenseArrayBase[I64]] = Prop(DenseArrayBase.constr(i64))
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = tensor.InsertSliceOp.assembly_format
    custom_directives = tensor.InsertSliceOp.custom_directives


Slice = tensor.ExtractSliceOp | tensor.InsertSliceOp | ParallelInsertSliceOp


def kept_dimensions(op: memref.SubviewOp | Slice) -> list[int]:
    """The dimensions of its source that a subview's result has; a rank-reducing one drops some of extent 1.

    Which of several neighbours of extent 1 are dropped changes nothing but strides that nobody uses: the first stay.
    """
    inserts = isinstance(op, tensor.InsertSliceOp | ParallelInsertSliceOp)
    part = op.source if inserts else op.result
    assert isinstance(part.type, MemRefType | TensorType)
    wanted = part.type.get_shape()
    kept: list[int] = []
    for i, extent in enumerate(op.static_sizes.get_values()):
        if len(kept) < len(wanted):
            want = wanted[len(kept)]
            if want == extent or (want < 0 and extent < 0):
                kept.append(i)
    return kept


def static_parts(op: memref.SubviewOp | Slice) -> tuple[list[int], list[int], list[int]]:
    """Offsets, sizes and strides as written, `DYNAMIC_INDEX` where a value gives them."""
    offsets, sizes, strides = (
        [int(v) for v in part.get_values()]
        for part in (op.static_offsets, op.static_sizes, op.static_strides)
    )
    return offsets, sizes, strides


def _verify(op: memref.SubviewOp) -> None:
    source, result = op.source.type, op.result.type
    assert isinstance(source, MemRefType) and isinstance(result, MemRefType)
    kept = _verify_part(op, source, result)
    if source.memory_space != result.memory_space:
        raise VerifyException(f"expected the memory space of {source}, got {result}")
    _verify_layout(source, result, kept, static_parts(op))


def _verify_slice(op: Slice) -> None:
    whole, part = op.source.type, op.results[0].type if op.results else None
    if not isinstance(op, tensor.ExtractSliceOp):
        whole, part = op.dest.type, op.source.type
    assert isinstance(whole, TensorType) and isinstance(part, TensorType)
    _verify_part(op, whole, part)


def _verify_part(
    op: memref.SubviewOp | Slice, whole: MemRefType | TensorType, part: MemRefType | TensorType
) -> list[int]:
    """The dimensions that the part has."""
    shape = whole.get_shape()
    offsets, sizes, strides = static_parts(op)
    for name, numbers in (("offset", offsets), ("size", sizes), ("stride", strides)):
        if len(numbers) != len(shape):
            raise VerifyException(f"expected {len(shape)} {name} values, got {len(numbers)}")
    for axis, numbers in enumerate(zip(offsets, sizes, strides, shape, strict=True)):
        _verify_inside(axis, *numbers)
    if whole.element_type != part.element_type:
        raise VerifyException(f"expected the element type of {whole}, got {part}")
    kept = kept_dimensions(op)
    dropped = [sizes[axis] for axis in range(len(sizes)) if axis not in kept]
    if len(kept) != len(part.get_shape()) or any(size != 1 for size in dropped):
        raise VerifyException(
            f"expected a part of shape {_listed(sizes)}, or of that without extents of 1, got {part}"
        )
    return kept


def _verify_inside(axis: int, offset: int, size: int, stride: int, extent: int) -> None:
    if size != DYNAMIC and size < 0:
        raise VerifyException(
            f"expected a size of dimension {axis} that is not negative, got {size}"
        )
    if offset == DYNAMIC:
        return
    if offset < 0 or (extent != DYNAMIC and offset > extent - (size != 0)):
        raise VerifyException(f"offset {axis} is out-of-bounds: {offset} of {_listed([extent])}")
    if DYNAMIC in (size, stride, extent) or size == 0:
        return
    last = offset + (size - 1) * stride
    if not 0 <= last < extent:
        raise VerifyException(
            f"slice along dimension {axis} runs out-of-bounds: {last} of {extent}"
        )


def _verify_layout(
    source: MemRefType,
    result: MemRefType,
    kept: Sequence[int],
    parts: tuple[list[int], list[int], list[int]],
) -> None:
    """Strides and offset that the result states are those of the part; a stride of one element says nothing."""
    try:
        (steps, start), (stated, stated_start) = strided_form(source), strided_form(result)
    except TypeError:
        return  # a layout that is no strided form
    offsets, sizes, strides = parts
    made = [_times(step, stride) for step, stride in zip(steps, strides, strict=True)]
    for step, offset in zip(steps, offsets, strict=True):
        move = _times(step, offset)
        start = DYNAMIC if DYNAMIC in (start, move) else start + move
    fits = stated_start in (start, DYNAMIC) and all(
        given in (made[axis], DYNAMIC) or sizes[axis] == 1
        for axis, given in zip(kept, stated, strict=True)
    )
    if not fits:
        words = (
            f"strided<{_listed([made[axis] for axis in kept])}, offset: {_listed([start])[1:-1]}>"
        )
        raise VerifyException(f"expected a result of layout {words}, got {result}")


def _times(a: int, b: int) -> int:
    if 0 in (a, b):
        return 0
    return DYNAMIC if DYNAMIC in (a, b) else a * b


def _listed(numbers: Sequence[int]) -> str:
    return f"[{', '.join('?' if n == DYNAMIC else str(n) for n in numbers)}]"


def complete() -> None:
    add_verifier(memref.SubviewOp, _verify)
    add_verifier(tensor.ExtractSliceOp, _verify_slice)
    add_verifier(tensor.InsertSliceOp, _verify_slice)
    add_verifier(ParallelInsertSliceOp, _verify_slice)
