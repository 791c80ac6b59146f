"""xegpu-lane-memory: what a lane reads and writes by its own address, in MLIR's own dialects.

    %v = xegpu.load %m[%o], %on {chunk_size = 4} : memref<?xf32>, .. -> vector<4xf32>
    ->
    %v = vector.maskedload %m[%o], (%on, %on, %on, %on), 0 : memref<?xf32>, .. into vector<4xf32>

| op | becomes |
|---|---|
| load, store | vector.maskedload, vector.maskedstore; from an integer address mach.masked_load, mach.masked_store |
| atomic_rmw | memref.atomic_rmw or mach.atomic_rmw of each component, where the mask is on |
| load_matrix, store_matrix | memref.load, memref.store of each component |
| fence | mach.fence |
| prefetch, compile_hint, convert_layout to the same layout | nothing |

Requires: today's XeGPU at lane level without blocks and products (xegpu-lane-elements). Guarantees: the same results; a
lane that is masked off loads zeros. Raises UnsupportedError for any other op of XeGPU: named barriers, above all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects import arith, gpu, memref, vector
from xdsl.dialects.builtin import IntAttr, IntegerAttr, IntegerType, MemRefType, VectorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import mach, xegpu
from tilewright.dialects.movement import memref_type, shape_of
from tilewright.dialects.upstream.arith import element_bits, folded
from tilewright.dialects.upstream.combining import ATOMIC_KINDS
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.dialects.xegpu import elements
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import element_of
from tilewright.passes.vector_elements import flattened, matrix_of
from tilewright.passes.xegpu.lane_elements import LaneNumbers, lane_of

GLOBAL = LLVMPointerType(IntAttr(1))


def lane_memory(
    kernel: gpu.FuncOp, lanes: int, wanted: Callable[[Operation], bool] = lambda op: True
) -> None:
    """Rewrites those XeGPU ops of a lane, of subgroups of so many, that are `wanted`, in place."""
    found = [op for op in kernel.walk() if op.name.startswith("xegpu.")]
    if not any(map(wanted, found)):
        return
    memory = _LaneMemory(lane_of(kernel), lanes)
    for op in found:
        if isinstance(op, _DESCRIPTORS) or wanted(op):
            memory.rewrite(op)
    for op in reversed(found):
        if isinstance(op, _DESCRIPTORS) and op.results[0].first_use is None:
            Rewriter.erase_op(op)


_DESCRIPTORS = (xegpu.CreateNdDescOp, xegpu.CreateMemDescOp, xegpu.MemDescSubviewOp)


class _LaneMemory:
    def __init__(self, lane: SSAValue, lanes: int):
        self.lane, self.lanes = lane, lanes
        self.matrices: dict[SSAValue, tuple[SSAValue, Index]] = {}
        """The row of elements that each shared matrix lies in, and where in it."""

    def rewrite(self, op: Operation) -> None:
        at = LaneNumbers(op, self.lane, self.lanes)
        match op:
            case xegpu.LoadGatherOp():
                _load(at, op)
            case xegpu.StoreScatterOp():
                _store(at, op)
            case xegpu.AtomicRMWOp():
                _atomic(at, op)
            case xegpu.CreateMemDescOp():
                self.matrices[op.mem_desc] = _elements_of(at, op), 0
            case xegpu.MemDescSubviewOp():
                base, start = self.matrices[op.mem_desc]
                inner = elements.matrix_address(at, op.desc, op.mixed_offsets)
                self.matrices[op.part] = base, at.plus(start, inner)
            case xegpu.LoadMatrixOp():
                places = self.places(at, op, shape_of(op.value))
                found = [at.add(memref.LoadOp.get(*place)) for place in places]
                at.replace(_whole(at, found, op.value.type))
            case xegpu.StoreMatrixOp():
                for n, place in enumerate(self.places(at, op, shape_of(op.value))):
                    at.insert(memref.StoreOp.get(_parts(at, op.value)[n], *place))
                at.replace()
            case xegpu.FenceOp():
                scope = {"workgroup": "workgroup", "system": None}.get(
                    op.fence_scope.data.value, "device"
                )
                at.insert(mach.FenceOp("seq_cst", scope))
                at.replace()
            case xegpu.PrefetchOp() | xegpu.CompileHintOp():
                at.replace()
            case xegpu.ConvertLayoutOp() if op.input_layout == op.target_layout:
                at.replace(op.source)
            case xegpu.CreateNdDescOp():
                pass
            case _:
                raise at.refuse(
                    "has no form for a thread: what lanes do together is a workgroup's gpu.barrier, shuffles, and "
                    "blocks and products of their fragments"
                )

    def places(
        self, at: LaneNumbers, op: xegpu.MatrixAccess, given: tuple[int, ...]
    ) -> list[tuple[SSAValue, list[SSAValue]]]:
        """Of each component its memref and index."""
        base, start = self.matrices[op.operands[op.tdesc_operand]]
        tables = [t.reshape(-1, self.lanes) for t in elements.matrix_places(op, given, self.lanes)]
        return [
            (base, [at.index(at.plus(start, elements.matrix_address(at, op.desc, place)))])
            for place in at.places(tables, op.mixed_offsets)
        ]


def _elements_of(at: LaneNumbers, op: xegpu.CreateMemDescOp) -> SSAValue:
    """The memory of a shared matrix as a row of its elements."""
    source, element = op.source, op.desc.element_type
    kind = memref_type(source)
    flat = flattened(at, source, matrix_of(at, source))
    if kind.element_type == element:
        return flat
    if element_bits(kind.element_type) != 8:
        raise at.refuse(f"elements of {element} in memory of {kind.element_type}")
    view = MemRefType(element, [prod(op.desc.get_shape())], memory_space=kind.memory_space)
    return at.add(memref.ViewOp.create(operands=[flat, at.index(0)], result_types=[view]))


# Addresses ------------------------------------------------------------------------------------------------------------


def _parts(at: LaneNumbers, value: SSAValue) -> list[SSAValue]:
    if not isinstance(value.type, VectorType):
        return [value]
    count = prod(shape_of(value))
    flat = at.cast(value, [count])
    return [at.component(flat, n) for n in range(count)]


def _whole(at: LaneNumbers, parts: Sequence[SSAValue], kind: Attribute) -> SSAValue:
    if not isinstance(kind, VectorType):
        return parts[0]
    return at.cast(at.gathered(parts), kind.get_shape())


def _place(at: LaneNumbers, op: xegpu.ScatterAccess) -> tuple[SSAValue, Index]:
    """The base, a row of elements or an address, and which element of it is the lane's first."""
    if op.offsets_operand is None:
        why = "a scattered descriptor has no form for a thread"
        raise at.refuse(why, "give base and offsets on the op itself")
    number, base = at.of_one_lane(op.offsets_operand), op.source_operand
    if isinstance(number.type, IntegerType):
        number = at.add(arith.IndexCastOp(number, at.lane.type))  # pyright: ignore
    if isinstance(base.type, MemRefType) and base.type.get_num_dims() == 0:
        base = flattened(at, base, ([], []))
    return base, folded(number)


def _pointer(at: LaneNumbers, base: SSAValue, number: Index, element: Attribute) -> SSAValue:
    """The address of an element so many behind an integer address."""
    pointer = at.add(mach.PtrFromIntOp(base, GLOBAL))
    offset = at.times(number, max(1, element_bits(element) // 8))
    return at.add(mach.PtrAddOp(pointer, at.index(offset)))


def _on(
    at: LaneNumbers, mask: SSAValue, base: SSAValue, number: Index, count: int
) -> list[SSAValue]:
    """Of each of some elements from a number on whether it is meant: by the mask, and inside of its array."""
    on = at.of_one_lane(mask)
    if not isinstance(base.type, MemRefType):
        return [on] * count
    size = at.index(matrix_of(at, base)[0][0])
    places = [at.index(at.plus(number, n)) for n in range(count)]
    return [at.also(on, at.compare("ult", place, size)) for place in places]


def _load(at: LaneNumbers, op: xegpu.LoadGatherOp) -> None:
    shape, element = shape_of(op.value), element_of(op.value.type)
    kind = VectorType(element, [prod(shape)])
    base, number = _place(at, op)
    on = at.gathered(_on(at, op.mask, base, number, prod(shape)))
    nothing = at.constant(kind, 0)
    if isinstance(base.type, MemRefType):
        found = at.add(vector.MaskedLoadOp(base, [at.index(number)], on, nothing))
    else:
        found = at.add(mach.MaskedLoadOp(_pointer(at, base, number, element), on, nothing))
    whole = isinstance(op.value.type, VectorType)
    at.replace(at.cast(found, shape) if whole else at.component(found, 0))


def _store(at: LaneNumbers, op: xegpu.StoreScatterOp) -> None:
    value = op.value if isinstance(op.value.type, VectorType) else at.gathered([op.value])
    count = prod(shape_of(value))
    value, (base, number) = at.cast(value, [count]), _place(at, op)
    on = at.gathered(_on(at, op.mask, base, number, count))
    if isinstance(base.type, MemRefType):
        at.insert(vector.MaskedStoreOp(base, [at.index(number)], on, value))
    else:
        pointer = _pointer(at, base, number, element_of(value.type))
        at.insert(mach.MaskedStoreOp(value, pointer, on))
    at.replace()


def _atomic(at: LaneNumbers, op: xegpu.AtomicRMWOp) -> None:
    element, (base, number), values = (
        element_of(op.value.type),
        _place(at, op),
        _parts(at, op.value),
    )
    nothing = at.constant(element, 0)
    found: list[SSAValue] = []
    for n, on in enumerate(_on(at, op.mask, base, number, len(values))):
        place = at.plus(number, n)
        if isinstance(base.type, MemRefType):
            code = IntegerAttr(ATOMIC_KINDS.index(op.kind), i64)
            done = memref.AtomicRMWOp.create(
                operands=[values[n], base, at.index(place)],
                properties={"kind": code},
                result_types=[element],
            )
        else:
            pointer = _pointer(at, base, place, element)
            how = {"ordering": "monotonic", "scope": "device"}
            done = mach.AtomicRmwOp(op.kind, values[n], pointer, **how)
        found += at.choose(on, [element], lambda done=done: [at.add(done)], lambda: [nothing])
    at.replace(_whole(at, found, op.value.type))
