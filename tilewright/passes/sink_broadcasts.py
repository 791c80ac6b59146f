"""sink-broadcasts: arithmetic on broadcast values is done before they are broadcast.

    %k = vector.broadcast %step : vector<1x128xindex> to vector<64x128xindex>
    %n = vector.broadcast %c : index to vector<64x128xindex>
    %m = arith.cmpi slt, %k, %n : vector<64x128xindex>
    ->
    %n = vector.broadcast %c : index to vector<1x128xindex>
    %s = arith.cmpi slt, %step, %n : vector<1x128xindex>
    %m = vector.broadcast %s : vector<1x128xi1> to vector<64x128xi1>

So masks and indices of a tile are rows and columns until they meet the tile, and what a loop does not change
takes few registers outside of it. Requires nothing; guarantees the same results.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects.elementwise import is_elementwise, retyped
from tilewright.dialects.movement import shape_of, vector_type
from tilewright.dialects.upstream.arith import is_splat
from tilewright.passes.emit import Before, with_shape
from tilewright.passes.new_body import without_layouts

Shape = tuple[int, ...]


def sink_broadcasts(kernel: gpu.FuncOp) -> None:
    """Sinks broadcasts: masks stay rows and columns as long as possible."""
    for inner in list(kernel.walk()):
        _delay(inner)


def _delay(op: Operation) -> None:
    # vector.fma has no form on scalars.
    if not is_elementwise(op) or len(op.results) != 1 or isinstance(op, vector.FMAOp):
        return
    shape = shape_of(op.results[0])
    if not shape or any(shape_of(v) != shape for v in op.operands):
        return
    narrow: list[Shape] = []
    for operand in op.operands:
        found = _source_shape(operand, shape)
        if found is None:
            return
        narrow.append(found)
    joint = tuple(max(extents) for extents in zip(*narrow, strict=True))
    if joint == shape:
        return
    at = Before(op)
    scalars = all(n == 1 for n in joint)
    operands = [_at(at, v, () if scalars and _is_number(v) else joint) for v in op.operands]
    if scalars and any(shape_of(v) for v in operands):
        operands = [_at(at, v, joint) for v in op.operands]
        scalars = False
    result = vector_type(op.results[0])
    kind: Attribute = result.element_type if scalars else with_shape(result, joint)
    value = at.add(retyped(op, operands, [kind], without_layouts(op)))
    wide = vector.BroadcastOp(value, result)
    for name, attribute in op.attributes.items():
        if name.startswith("layout_"):
            wide.attributes[name] = attribute
    at.replace(at.add(wide))


def _source_shape(value: SSAValue, shape: Shape) -> Shape | None:
    """The shape that a broadcast value has before, in the rank of `shape`; None for another value."""
    owner = value.owner
    if isinstance(owner, vector.BroadcastOp):
        source = shape_of(owner.operands[0])
        return (*[1] * (len(shape) - len(source)), *source)
    return (1,) * len(shape) if is_splat(owner) else None


def _is_number(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, vector.BroadcastOp) and not shape_of(owner.operands[0])


def _at(at: Before, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    """A broadcast value at a smaller shape; () is the scalar itself."""
    owner = value.owner
    kind = vector_type(value)
    if isinstance(owner, arith.ConstantOp):
        data = owner.value
        assert isinstance(data, DenseIntOrFPElementsAttr)
        small = DenseIntOrFPElementsAttr(with_shape(kind, shape), data.data)  # pyright: ignore[reportArgumentType]
        return at.add(arith.ConstantOp(small))
    assert isinstance(owner, vector.BroadcastOp)
    return owner.operands[0] if not shape else at.broadcast(owner.operands[0], shape)
