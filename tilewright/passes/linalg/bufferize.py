"""bufferize: tensors become memrefs, each of which is written once, but for what nothing reads afterwards.

    %e = tensor.empty() : tensor<8x8xf32>                         %e = memref.alloc() : memref<8x8xf32>
    %r = linalg.exp ins(%x) outs(%e) -> tensor<8x8xf32>     ->    linalg.exp ins(%x) outs(%e)

A result has memory of its own, so that no value changes once it is there, whoever holds it. Where a result adds to what
was there, that is copied first, by a structured op that `fusion` makes part of the one that adds; what is read no more
is changed where it lies (`in_place`), so that a loop over the parts of a tensor copies parts. Memory of values is not
released.
Requires: nothing. Guarantees: no tensor is left, and no scf.forall. Raises UnsupportedError for ops on tensors that it
has no form of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FunctionType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StringAttr,
    TensorType,
    UnrankedMemRefType,
    UnrankedTensorType,
)
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.dialects.vector import TransferReadOp, TransferWriteOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.unknown import instead_of
from tilewright.dialects.upstream.linalg_composed import Winograd
from tilewright.dialects.upstream.scf import ForallOp, InParallelOp
from tilewright.dialects.upstream.vector.masking import MaskOp
from tilewright.dialects.upstream.vector.memory import GatherOp
from tilewright.passes.affine_to_scf import forall_to_parallel
from tilewright.passes.emit import Before
from tilewright.passes.expand_ops import EXPANSIONS
from tilewright.passes.linalg import has_tensors, is_structured, is_tensor
from tilewright.passes.linalg.accesses import subview_type
from tilewright.passes.linalg.forms import FORMS, copied, copy, elementwise, mixed, new_like
from tilewright.passes.linalg.in_place import copy_before_changes
from tilewright.passes.linalg.winograd import expand_winograd


def bufferize(module: ModuleOp) -> None:
    """Rewrites a module in place."""
    if not is_structured(module):
        return
    for op in list(module.walk()):
        if isinstance(op, MaskOp) and op.masked is not None and has_tensors(op.masked):
            EXPANSIONS[op.name](op, Before(op))
        elif isinstance(op, Winograd):
            expand_winograd(op)
    there = copy_before_changes(module)
    globals_: dict[Any, str] = {}
    concerned = [
        (op, [place for place, value in enumerate(op.operands) if is_tensor(value)])
        for op in module.walk()
        if has_tensors(op) or op.name in FORMS
    ]
    for op in module.walk():
        for block in (b for r in op.regions for b in r.blocks):
            for argument in block.args:
                argument._type = of_memref(argument.type)  # pyright: ignore[reportPrivateUsage]
    for op, tensors in concerned:
        if op in there:
            Before(op).replace(op.operands[1])
        else:
            _rewrite(module, op, tensors, globals_)
    for op in list(module.walk()):
        if isinstance(op, ForallOp):
            forall_to_parallel(op)
    for op in module.walk():
        if isinstance(op, func.FuncOp):
            ins, outs = (
                [of_memref(t) for t in ts]
                for ts in (op.function_type.inputs, op.function_type.outputs)
            )
            op.function_type = FunctionType.from_lists(ins, outs)


def of_memref(type: Attribute) -> Attribute:
    if isinstance(type, UnrankedTensorType):
        return UnrankedMemRefType.from_type(type.element_type)
    if isinstance(type, TensorType):
        return MemRefType(type.element_type, type.get_shape())
    return type


def _rewrite(
    module: ModuleOp, op: Operation, tensors: Sequence[int], globals_: dict[Any, str]
) -> None:
    """`tensors`: which of its operands were such."""
    for result in op.results:
        result._type = of_memref(result.type)  # pyright: ignore[reportPrivateUsage]
    before = Before(op)
    if isinstance(op, GenericOp):
        _structured(before, op)
    elif isinstance(op, arith.ConstantOp):
        before.replace(before.add(_global(module, op, globals_)))
    elif op.name in _FORMS:
        if op.name in _WHOLE:
            _plain(before, op, tensors)
        _FORMS[op.name](before, op)
    elif is_elementwise(op) and not (
        isinstance(op, arith.SelectOp) and not isinstance(op.cond.type, MemRefType)
    ):
        elementwise(before, op)
    elif isinstance(op, ForallOp):
        _forall(before, op)
    elif isinstance(op, _PASSING):
        _plain(before, op, tensors)
    elif not isinstance(op, TransferReadOp):
        raise unsupported(
            op, f"{op.name} of tensors has no form on memory here",
            hint=instead_of(op.name) or "mlir-opt --one-shot-bufferize makes memrefs of any tensors",
        )  # fmt: skip


_PASSING = (
    scf.ForOp, scf.IfOp, scf.WhileOp, scf.YieldOp, scf.ConditionOp, func.CallOp, func.ReturnOp, arith.SelectOp,
    GatherOp,
)  # fmt: skip
"""Ops that hand tensors on as they are, or read them as memory without gaps."""
_WHOLE = ("tensor.cast", "tensor.collapse_shape", "tensor.expand_shape", "tensor.reshape")
"""Ops whose result has the type of a tensor without gaps."""


def _plain(before: Before, op: Operation, tensors: Sequence[int]) -> None:
    """What is part of another tensor is copied: whoever takes it expects rows one behind the other."""
    for place in tensors:
        value = op.operands[place]
        if isinstance(value.type, MemRefType) and not isinstance(value.type.layout, NoneAttr):
            op.operands[place] = copied(before, value)


def _structured(before: Before, op: GenericOp) -> None:
    """Each result in memory of its own, which holds what the op adds to, where it does."""
    if not op.res:
        return
    body, outs = op.body.block, list(op.outputs)
    fresh: list[SSAValue] = []
    for n, out in enumerate(outs):
        kept = body.args[len(op.inputs) + n].first_use is not None
        fresh.append((copied if kept else new_like)(before, out))
    made = GenericOp(
        op.inputs, fresh, op.detach_region(op.body), op.indexing_maps, op.iterator_types
    )
    before.insert(made)
    for result, memory in zip(op.res, fresh, strict=True):
        result.replace_all_uses_with(memory)
    Rewriter.erase_op(op)


def _global(module: ModuleOp, op: arith.ConstantOp, known: dict[Any, str]) -> Operation:
    """A constant tensor is a global."""
    kind = cast(MemRefType[Attribute], op.result.type)
    assert isinstance(op.value, DenseIntOrFPElementsAttr)
    if op.value not in known:
        known[op.value] = f"tensor_constant_{len(known)}"
        made = memref.GlobalOp.get(
            StringAttr(known[op.value]), kind, op.value, sym_visibility=StringAttr("private"), constant=None
        )  # fmt: skip
        made.location = op.location
        first = module.body.block.first_op
        assert first is not None
        Rewriter.insert_op(made, InsertPoint.before(first))
    return memref.GetGlobalOp(known[op.value], kind)


def slice_of(before: Before, op: Any, source: SSAValue, shape: Sequence[int]) -> SSAValue:
    """Part of a memref, whose type has the dimensions of a tensor's slice."""
    offsets = mixed(op.static_offsets, op.offsets)
    sizes = mixed(op.static_sizes, op.sizes)
    steps = mixed(op.static_strides, op.strides)
    left, kept = list(shape), list[int]()
    for d, size in enumerate(sizes):  # a dimension of one element that the shape lacks is dropped
        number = size if isinstance(size, int) else -1
        if len(sizes) - d > len(left) and number == 1 and left[:1] != [1]:
            continue
        kept.append(d)
        left = left[1:]
    kind = subview_type(cast(Any, source.type), offsets, steps, shape, kept)
    return before.add(memref.SubviewOp.get(source, offsets, sizes, steps, kind))


def _extract_slice(before: Before, op: Any) -> None:
    before.replace(slice_of(before, op, op.source, op.result.type.get_shape()))


def _insert_slice(before: Before, op: Any) -> None:
    copy(before, op.source, slice_of(before, op, op.dest, op.source.type.get_shape()))
    before.replace(op.dest)


def _transfer_write(before: Before, op: Any) -> None:
    written = TransferWriteOp(
        op.vector, op.source, op.indices, op.in_bounds, op.mask, op.permutation_map
    )
    before.insert(written)
    before.replace(op.source)


def _forall(before: Before, op: ForallOp) -> None:
    """What iterations share is memory that each writes its part of."""
    rank, body = len(op.static_upper), op.body.block
    outputs = list(op.outputs)
    for out in outputs:
        body.args[rank].replace_all_uses_with(out)
        body.erase_arg(body.args[rank])
    lower, upper, step = (op.mixed(which) for which in ("lower", "upper", "step"))
    before.insert(ForallOp(lower, upper, step, op.detach_region(op.body), (), op.mapping))
    before.replace(*outputs)


def _parallel_insert(before: Before, op: Any) -> None:
    end = op.parent_op()
    assert isinstance(end, InParallelOp)
    into = Before(end)
    copy(into, op.source, slice_of(into, op, op.dest, op.source.type.get_shape()))
    before.replace()


def _empty(before: Before, op: Any) -> None:
    kind = op.results[0].type
    before.replace(
        before.add(
            memref.AllocOp.get(
                kind.element_type, None, kind.get_shape(), dynamic_sizes=list(op.operands)
            )
        )
    )


def _same(before: Before, op: Any) -> None:
    """As MLIR has it, the memory of a value is not written while that is alive."""
    (result,) = op.results
    if isinstance(result.type, MemRefType) and isinstance(result.type.layout, NoneAttr):
        _plain(before, op, [0])
    source = op.operands[0]
    before.replace(
        source if source.type == result.type else before.add(memref.CastOp.get(source, result.type))
    )


def _alloc_tensor(before: Before, op: Any) -> None:
    if op.copy is None:
        _empty(before, op)
    else:
        before.replace(copied(before, op.copy))


def _materialize(before: Before, op: Any) -> None:
    if op.results:
        return before.replace(op.source)
    copy(before, op.source, op.dest)
    return before.replace()


def _reshape(made: Any) -> Any:
    def rewrite(before: Before, op: Any) -> None:
        before.replace(before.add(made(op)))

    return rewrite


_FORMS: dict[str, Any] = {
    **FORMS,
    "bufferization.alloc_tensor": _alloc_tensor,
    "bufferization.materialize_in_destination": _materialize,
    "bufferization.to_tensor": lambda before, op: before.replace(op.memref),
    "bufferization.to_buffer": _same,
    "tensor.empty": _empty,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.parallel_insert_slice": _parallel_insert,
    "vector.transfer_write": _transfer_write,
    "tensor.cast": _reshape(lambda op: memref.CastOp.get(op.operands[0], op.results[0].type)),
    "tensor.dim": _reshape(lambda op: memref.DimOp(*op.operands)),
    "tensor.extract": _reshape(lambda op: memref.LoadOp.get(op.operands[0], list(op.operands[1:]))),
    "tensor.collapse_shape": _reshape(
        lambda op: memref.CollapseShapeOp.create(
            operands=list(op.operands),
            result_types=list(op.result_types),
            properties={"reassociation": op.reassociation},
        )
    ),
    "tensor.expand_shape": _reshape(
        lambda op: memref.ExpandShapeOp.create(
            operands=list(op.operands),
            result_types=list(op.result_types),
            properties={
                "reassociation": op.reassociation,
                "static_output_shape": op.static_output_shape,
            },
        )
    ),
}
