"""memref: arrays, shared and private memory, views, elements and atomics.

A memref is the indices that it consists of (`values.MemRef`), so a view is arithmetic.  Shared memory has its place in
the workgroup's block, by the op that allocates it; other allocations of a kernel are each lane's own, one after the
other in memory of the subgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from xdsl.dialects import memref
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder as Scalars
from tilewright.codegen.registers import DYNAMIC, strided_form
from tilewright.dialects import mach
from tilewright.dialects.movement import memref_type
from tilewright.dialects.nesting import ops_around, used_from_above
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.dialects.upstream.views import VIEWS, View, viewed
from tilewright.dialects.xetile.kinds import ATOMIC_KINDS
from tilewright.frozen import frozen
from tilewright.targets.emu import values as v
from tilewright.targets.emu.addresses import read, write
from tilewright.targets.emu.builder import EmuBuilder, Idx, element_bytes, signless, vec
from tilewright.targets.emu.divergence import vec_mask
from tilewright.targets.emu.lowering import Lowering, lowers

# Arguments ------------------------------------------------------------------------------------------------------------


def array_argument(low: Lowering, type: MemRefType[Any], place: int) -> v.MemRef:
    """The array whose address, extents and strides lie at `place` of the context."""
    whole_bytes(low, type.element_type)
    shape = type.get_shape()
    strides, _ = strided_form(type)
    rank = len(shape)
    sizes = [low.field(place + 8 * (1 + d)) if n < 0 else n for d, n in enumerate(shape)]
    steps = [
        low.field(place + 8 * (1 + rank + d))
        if s == DYNAMIC or (shape[d] < 0 and d < rank - 1)
        else s
        for d, s in enumerate(strides)
    ]
    return _whole(low, type, v.Address(low, low.field(place)), sizes, steps)


def _whole(
    low: Lowering,
    type: MemRefType[Any],
    base: v.Address,
    sizes: Sequence[Idx] | None = None,
    strides: Sequence[Idx] | None = None,
) -> v.MemRef:
    """All of an array, whose sizes and strides are its type's where nothing else is said."""
    sizes = type.get_shape() if sizes is None else sizes
    strides = _strides(low, type) if strides is None else strides
    return v.MemRef(base, v.Address(low), tuple(sizes), tuple(strides), signless(type.element_type))


def whole_bytes(low: Lowering, element: Attribute) -> None:
    """Arrays have no halves of bytes here."""
    if not isinstance(element, IndexType) and element_bits(element) < 8:
        raise low.refuse(f"an array of {element}")


def scalar_argument(low: Lowering, type: Attribute, place: int) -> SSAValue:
    address = low.b.plus(low.base, place)
    if isinstance(type, IndexType):
        return low.field(place)
    if isinstance(type, IntegerType) and type.width.data not in (1, 8, 16, 32, 64):
        raise low.refuse(f"an argument of type {type}")
    return low.b.read(signless(type), address)


# Allocation -----------------------------------------------------------------------------------------------------------


@lowers("memref.alloc", "memref.alloca", "gpu.alloc")
def alloc(low: Lowering, op: Operation) -> None:
    allocate(low, op, op.results[0], [low.index(x, "a size") for x in op.operands])


def allocate(low: Lowering, key: Any, result: SSAValue, dynamic: Sequence[Idx]) -> None:
    """Memory for the memref `result`, shared or of each lane."""
    type = memref_type(result)
    if dynamic or any(n < 0 for n in type.get_shape()):
        raise low.refuse("an allocation whose size is not constant")
    whole_bytes(low, type.element_type)
    shape = type.get_shape()
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, _strides(low, type), strict=True))
    size = max(1, reach if prod(shape) else 0) * element_bytes(signless(type.element_type))
    if is_shared(type):
        base = v.Address(low, low.shared_address(key, size))
    else:
        step = -(-size // 8) * 8
        low.private_bytes += step * low.lanes
        steps = tuple(step * i for i in range(low.lanes)) if low.lanes > 1 else None
        base = v.Address(low, low.b.scratch(step * low.lanes), steps)
    low.env[result] = _whole(low, type, base)


def _strides(low: Lowering, type: MemRefType[Any]) -> tuple[int, ...]:
    strides, _ = strided_form(type)
    if any(s == DYNAMIC for s in strides):
        raise low.refuse("strides that are not constant")
    return strides


@lowers("memref.get_global")
def get_global(low: Lowering, op: memref.GetGlobalOp) -> None:
    type = op.memref.type
    name = op.name_.root_reference.data
    if is_shared(type):
        allocate(low, name, op.memref, ())
        return
    for scope in ops_around(low.kernel):
        known = (op for op in scope.walk() if isinstance(op, memref.GlobalOp))
        if (found := next((op for op in known if op.sym_name.data == name), None)) is not None:
            _define(low, found)
            base = low.b.value(mach.IntFromPtrOp(low.b.value(mach.AddressOfOp(name))))
            low.env[op.memref] = _whole(low, type, v.Address(low, base))
            return
    raise low.refuse(f"there is no global @{name}")


def _define(low: Lowering, definition: memref.GlobalOp) -> None:
    if definition.constant is None or isinstance(definition.initial_value, UnitAttr):
        raise low.refuse("a global that is no constant")
    name = definition.sym_name
    known = [op for op in low.module.body.block.ops if isinstance(op, memref.GlobalOp)]
    if all(op.sym_name != name for op in known):
        low.module.body.block.add_op(definition.clone())


# Views ----------------------------------------------------------------------------------------------------------------


def memory(low: Lowering, value: SSAValue) -> v.MemRef:
    found = low.env[value]
    assert isinstance(found, v.MemRef)
    return found


def shared_start(low: Lowering, source: SSAValue) -> Idx:
    """The byte address of the first element of an array that all lanes share."""
    start = memory(low, source).start
    if not start.shared:
        raise low.refuse("the position of its array differs between lanes")
    return start.base


@frozen
class _Numbers:
    """Offsets, sizes and strides; offsets may differ between lanes."""

    low: Lowering

    def literal(self, n: int, /) -> v.Address:
        return v.Address(self.low, n)

    def plus(self, x: v.Address, y: v.Address) -> v.Address:
        return x.plus(y)

    def times(self, x: v.Address, y: v.Address) -> v.Address:
        x, y = (x, y) if y.shared else (y, x)
        assert y.shared
        return v.Address(self.low).plus(x, y.base)


@lowers(*VIEWS)
def view(low: Lowering, op: Operation) -> None:
    m, type = memory(low, op.operands[0]), op.results[0].type
    moving = {*getattr(op, "offsets", ()), getattr(op, "byte_shift", None)}
    given = [
        v.Address.of(low, low.plain(x) if x in moving else low.index(x, "a size or stride"))
        for x in op.operands[1:]
    ]
    sizes, strides = ([v.Address(low, n) for n in part] for part in (m.sizes, m.strides))
    new = viewed(op, View(m.offset, sizes, strides), given, _Numbers(low))
    base = m.base if new.bytes is None else m.base.plus(new.bytes)
    sizes, strides = (tuple(n.base for n in part) for part in (new.sizes, new.strides))
    assert isinstance(type, MemRefType)
    low.env[op.results[0]] = v.MemRef(base, new.offset, sizes, strides, signless(type.element_type))


@lowers("memref.dim")
def dim(low: Lowering, op: memref.DimOp) -> None:
    m = memory(low, op.source)
    which = low.index(op.index, "the dimension")
    if not isinstance(which, int) or which >= len(m.sizes):
        raise low.refuse("of a dimension that is not constant")
    low.set(op.result, low.b.idx(m.sizes[which]))


@lowers("memref.rank")
def rank(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.b.idx(len(memory(low, op.operands[0]).sizes)))


@lowers("memref.extract_strided_metadata")
def extract_strided_metadata(low: Lowering, op: Operation) -> None:
    m = memory(low, op.operands[0])
    low.env[op.results[0]] = v.MemRef(m.base, v.Address(low), (), (), m.element)
    low.env[op.results[1]] = m.offset.plain()
    for result, number in zip(op.results[2:], (*m.sizes, *m.strides), strict=True):
        low.set(result, low.b.idx(number))


@lowers("memref.extract_aligned_pointer_as_index")
def extract_pointer(low: Lowering, op: Operation) -> None:
    low.env[op.results[0]] = memory(low, op.operands[0]).base.plain()


# Elements -------------------------------------------------------------------------------------------------------------


def place_of(low: Lowering, m: v.MemRef, indices: Sequence[SSAValue | v.Number]) -> v.Address:
    """The byte address of an element."""
    total = m.offset
    for place, stride in zip(indices, m.strides, strict=True):
        total = total.plus(low.plain(place) if place in low.env else place, stride)  # pyright: ignore
    return m.base.plus(total, element_bytes(m.element))


@lowers("memref.load")
def load(low: Lowering, op: memref.LoadOp) -> None:
    m = memory(low, op.memref)
    place = place_of(low, m, op.indices)
    give(low, op.res, read(low, place, m.element), place)


def give(low: Lowering, result: SSAValue, value: SSAValue, place: v.Address) -> None:
    """What was read at a place is the result."""
    low.env[result] = v.Uniform(value) if place.shared else v.Varying(value)


@lowers("memref.store")
def store(low: Lowering, op: memref.StoreOp) -> None:
    m = memory(low, op.memref)
    place = place_of(low, m, op.indices)
    write(low, place, low.plain(op.value))


@lowers("memref.atomic_rmw")
def atomic_rmw(low: Lowering, op: memref.AtomicRMWOp) -> None:
    m = memory(low, op.memref)
    place = place_of(low, m, op.indices)
    kind = ATOMIC_KINDS[op.kind.value.data]
    data = low.b.shape(low.uniform(op.value), 1) if low.lanes == 1 else low.wide(op.value)
    _in_order(low, place, op.result, lambda places, mask: atomic(low, kind, places, data, mask))


@lowers("memref.generic_atomic_rmw")
def generic_atomic_rmw(low: Lowering, op: GenericAtomicRMWOp) -> None:
    m = memory(low, op.memref)
    place = place_of(low, m, op.indices)
    _in_order(low, place, op.result, lambda addresses, mask: by_body(low, op, addresses, mask))


def _in_order(
    low: Lowering, place: v.Address, result: SSAValue, old: Callable[[SSAValue, SSAValue], SSAValue]
) -> None:
    """`result` is what `old` gives for the addresses of the lanes that are here."""
    b = low.b
    if low.lanes == 1:
        addresses = b.shape(b.idx(place.base), 1)
        mask = b.constant(b.shape(b.constant(IntegerType(1), 1), 1).type, 1)
        low.set(result, b.extract(old(addresses, mask), 0))
        return
    mask = vec_mask(low) if low.mask is None else low.mask
    low.env[result] = v.Varying(old(low.wide_of(place.plain()), mask))


def atomic(
    low: Lowering, kind: str, addresses: SSAValue, values: SSAValue, mask: SSAValue
) -> SSAValue:
    """Old values at `addresses` (a vector of byte addresses), 0 where `mask` is off; vectors of one shape all.

    One after the other, in a function of the module per kind and type.
    """

    def make(b: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
        places, data, flags = arguments

        def old(address: SSAValue, value: SSAValue) -> SSAValue:
            return b.value(mach.AtomicRmwOp(kind, value, b.pointer(address), ordering="seq_cst"))

        return [b.in_turn(0, places, flags, b.zeros(data.type), [data], old)]

    return low.b.shared(("atomic", kind), [addresses, values, mask], make)[0]


def by_body(low: Lowering, op: GenericAtomicRMWOp, addresses: SSAValue, mask: SSAValue) -> SSAValue:
    """Old values at `addresses`, of an atomic that says itself what becomes of them."""
    b, taken = low.b, used_from_above(op.atomic_body)
    wide = [low.wide(v) if low.lanes > 1 else b.shape(low.uniform(v), 1) for v in taken]

    def old(address: SSAValue, *outside: SSAValue) -> SSAValue:
        return exchange(
            Scalars(b.block), op, b.pointer(address), dict(zip(taken, outside, strict=True))
        )

    return b.in_turn(0, addresses, mask, b.zeros(vec(op.result.type, low.lanes)), wide, old)
