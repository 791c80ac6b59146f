"""vector-to-xetile: reads and writes of vectors become tiles, contractions what `vector-contractions` says.

    %s = memref.subview %b[%k, %j] [32, 64] [1, 1] : ..      %t = xetile.init_tile %b[%k, %j] : .. -> !xetile.tile<..>
    %v = vector.transfer_read %s[%c0, %c0], %pad : ..   ->   %v = xetile.load_tile %t : ..
    %d = vector.contract {..} %u, %v, %c : ..                %d = xetile.tile_mma %u, %v, %c : ..
    vector.transfer_write %d, %m[%i, %j] : ..                xetile.store_tile %d, ..

The tile has the layout of its memref: row-major, or column-major (`order = [0, 1]`) by its strides or its affine map.
What of a subview lies inside of it and fills it is a tile of what it is a part of; of another, the part is the matrix.
What is no such block becomes a scattered tile, with an offset and a mask for each element (`vector_elements`): gathers
and scatters, writes under a mask, vectors along other dimensions than the two innermost, memory without a unit stride.
Requires: upstream dialects, expand-ops. Guarantees: the same results; no read or write of a vector
and no contraction is left. Raises UnsupportedError, and changes nothing, for tensors and for
sums narrower than their factors.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, func, gpu, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    VectorType,
)
from xdsl.dialects.ub import PoisonOp
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import TilewrightError, unsupported
from tilewright.dialects import xetile
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.strided import strided_form
from tilewright.dialects.upstream.subview import static_parts
from tilewright.dialects.upstream.vector import ContractionOp
from tilewright.dialects.upstream.vector.access import LOADS, STORES, VectorAccess, access_of
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import record
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before
from tilewright.passes.kernel import LEVEL
from tilewright.passes.vector_contractions import check, contract
from tilewright.passes.vector_elements import flattened, indexed, matrix_of, read, write


def vector_to_xetile(function: gpu.FuncOp | func.FuncOp) -> None:
    """Rewrites one function or kernel, in place."""
    found = [op for op in function.walk() if op.name in (*LOADS, *STORES)]
    products = [op for op in function.walk() if isinstance(op, ContractionOp)]
    # Nothing is changed before all is known to have a form.
    for op in found:
        _access(op)
    for op in products:
        check(op)
    for op in found:
        access, at = _access(op), Before(op)
        if (places := access.said.offsets) is not None:
            base, offsets = indexed(at, access.base, access.indices, places)
            _scattered(at, access, base, offsets, access.mask)
        elif (order := access.order) is None:
            _by_element(at, access)
        else:
            _block(at, access, order)
    for op in products:
        contract(op)
    for block in function.body.blocks:
        eliminate_dead(block)
    # A vector of any size is a workgroup's.
    function.attributes.setdefault(LEVEL, StringAttr("workgroup"))


def only_tiles(function: func.FuncOp) -> bool:
    """Whether a function of the host does nothing that a kernel cannot: it calls nothing and gives nothing back."""
    away = ("func.call", "memref.alloc", "memref.dealloc", "gpu.launch_func")
    plain = len(function.body.blocks) == 1 and not function.function_type.outputs.data
    return plain and not any(op.name in away for op in function.walk())


# What an op reaches. -------------------------------------------------------------------------------------------


@record
class _Access:
    """A read, or a write of `value`, of a vector of type `kind`."""

    said: VectorAccess
    kind: VectorType
    axes: list[int]
    """By dimension of the memref that of the vector which walks along it; -1: none does."""
    value: SSAValue | None
    other: SSAValue | None
    """What is read where the mask is false, and outside of the memref: a number or a vector; None: anything."""

    def __post_init__(self) -> None:
        self.base, self.indices, self.mask = self.said.array, self.said.indices, self.said.mask
        self.within = all(self.said.inside)

    @property
    def order(self) -> tuple[int, int] | None:
        """That of the tile that the access is: (1, 0) of rows, (0, 1) of columns that are contiguous; None of none."""
        repeated = set(range(len(self.kind.get_shape()))) - set(self.axes)
        other = None if self.other is None else self.other.owner
        known = other is None or isinstance(other, PoisonOp | arith.ConstantOp)
        if any(axis >= 0 for axis in self.axes[:-2]) or (
            self.value is not None and (self.mask is not None or repeated)
        ):
            return None
        strides = strided_form(self.base.type)[0]  # pyright: ignore[reportArgumentType]
        if not (known or self.within):
            return None
        if not strides or strides[-1] == 1:
            return (1, 0)
        return (0, 1) if len(strides) > 1 and strides[-2] == 1 else None


def _access(op: Operation) -> _Access:
    said = access_of(op)
    base, kind = said.array.type, said.value.type
    assert isinstance(kind, VectorType)
    if not isinstance(base, MemRefType):
        raise _refuse(op, "is of a tensor", "mlir-opt --one-shot-bufferize makes memrefs")
    try:
        strided_form(base)
    except TypeError as error:
        raise _refuse(op, f"is of {base}: {error}", "give the memref strides") from None
    if any(dim is not None and dim < 0 for dim in said.dims):
        raise _refuse(op, f"is of {kind} in {base}", "vectors lie along the memref's dimensions")
    axes = [-1] * base.get_num_dims()
    for axis, dim in enumerate(said.dims):
        if dim is not None:
            axes[dim] = axis
    value, other = (None, said.held) if op.results else (said.held, None)
    return _Access(said, kind, axes, value, other)


def _refuse(op: Operation, what: str, hint: str) -> TilewrightError:
    rule = "reads and writes of vectors become tiles, which are of memrefs (RFC, appendix 1)"
    return unsupported(op, f"{op.name} {what}", rule=rule, hint=hint)


# What ops become. ------------------------------------------------------------------------------------------------


def _tile(
    before: Before, access: _Access, shape: Sequence[int], order: tuple[int, int]
) -> SSAValue:
    source, offsets = _whole(before, access, shape)
    kind = memref_type(source)
    stated = DYNAMIC_INDEX not in (*kind.get_shape(), *strided_form(kind)[0])
    sizes, strides = ((), ()) if stated else matrix_of(before, source)
    attributes = xetile.TileAttr(order=order) if order != (1, 0) else None
    tile = xetile.TileType(shape, kind.element_type, attributes)
    return before.add(xetile.InitTileOp(source, tile, offsets, sizes=sizes, strides=strides))


def _whole(at: Before, access: _Access, shape: Sequence[int] = ()) -> tuple[SSAValue, list[Index]]:
    """What the memref is a part of, and the place there; as long as the part bounds nothing, where a shape is given."""
    source, offsets = access.base, [folded(i) for i in access.indices]
    while isinstance(view := source.owner, memref.SubviewOp):
        free = not shape or access.within or _filled(view, offsets, shape)
        moved = _moved(at, view, offsets) if free else None
        if moved is None:
            break
        source, offsets = view.source, moved
    return source, offsets


def _filled(view: memref.SubviewOp, offsets: Sequence[Index], shape: Sequence[int]) -> bool:
    """Whether a tile that begins where a part does is as large as that, so that neither reaches outside."""
    sizes = view.result.type.get_shape()  # pyright: ignore
    lead = len(sizes) - len(shape)
    return all(o == 0 for o in offsets[lead:]) and list(sizes[lead:]) == list(shape)[-len(sizes) :]


def _moved(before: Before, view: memref.SubviewOp, offsets: Sequence[Index]) -> list[Index] | None:
    """Offsets in what a subview is a part of; None where they are not sums."""
    at, sizes, steps = static_parts(view)
    if any(step != 1 for step in steps):
        return None
    dynamic = iter(view.offsets)
    starts: list[Index] = [folded(next(dynamic)) if n == DYNAMIC_INDEX else n for n in at]
    dropped = len(sizes) - len(offsets)
    if dropped and (sizes[:dropped] != [1] * dropped):
        return None
    own = [*[0] * dropped, *offsets]
    return [before.plus(a, b) for a, b in zip(starts, own, strict=True)]


def _block(at: Before, access: _Access, order: tuple[int, int]) -> None:
    axes = [-1, *access.axes][-2:]
    shape = access.kind.get_shape()
    box = [shape[axis] if axis >= 0 else 1 for axis in axes]
    turned = min(axes) >= 0 and axes[0] > axes[1]
    tile = _tile(at, access, box, order)
    if (value := access.value) is not None:
        value = at.add(xetile.TransposeOp(value)) if turned else value
        at.insert(xetile.StoreTileOp(at.cast(value, box), tile))
        at.replace()
        return
    other = None if access.within or access.other is None else access.other.owner
    stated = other.value if isinstance(other, arith.ConstantOp) else None
    value = at.add(xetile.LoadTileOp(tile, _unless_zero(stated)))
    value = at.add(xetile.TransposeOp(value)) if turned else value
    value = at.cast(value, [n if axis in axes else 1 for axis, n in enumerate(shape)])
    value = at.broadcast(value, shape)
    if (mask := access.mask) is not None and access.other is not None:
        value = at.add(arith.SelectOp(mask, value, at.broadcast(access.other, shape)))
    at.replace(value)


def _unless_zero(stated: Attribute | None) -> Attribute | None:
    zero = isinstance(stated, (IntegerAttr, FloatAttr)) and stated.value.data == 0
    return None if zero else stated


def _by_element(at: Before, access: _Access) -> None:
    shape, mask = access.kind.get_shape(), access.mask
    source, indices = _whole(at, access)
    matrix = matrix_of(at, source)
    axes = [*[-1] * (len(indices) - len(access.axes)), *access.axes]
    offsets = at.linear(indices, matrix[1], shape, axes)
    walked = [n for n, axis in enumerate(access.axes) if axis >= 0]
    if walked and not access.within:
        extents = matrix_of(at, access.base)[0]
        starts = [folded(access.indices[n]) for n in walked]
        along = [access.axes[n] for n in walked]
        mask = at.inside(starts, [extents[n] for n in walked], shape, along, mask)
    _scattered(at, access, flattened(at, source, matrix), offsets, mask)


def _scattered(
    at: Before, access: _Access, base: SSAValue, offsets: SSAValue, mask: SSAValue | None
) -> None:
    if access.value is None:
        at.replace(read(at, base, offsets, mask, access.kind, access.other))
        return
    write(at, access.value, base, offsets, mask)
    at.replace()
