"""load, store, prefetch and atomic_rmw of a lane: its own address, its own mask.

    %v = xegpu.load %a[%i], %m <{chunk_size = 4}> : memref<1024xf32>, index, i1 -> vector<4xf32>
    ->
    %p = mach.ptr_add %base, %bytes ; %q = arith.select %m, %p, %base
    %v = mach.load %q {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xf32>

A lane that is masked off loads from the base instead and its value is unspecified, as XeGPU has it; a store or
atomic of such a lane is skipped by a branch. Cache hints make the access a callee `@xe_lsc_*`, whose name says
the pair of policies.
"""

from __future__ import annotations

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.made_constants import index
from tilewright.dialects import mach, xegpu
from tilewright.dialects.upstream.strided import Metadata
from tilewright.passes.kernel import integer
from tilewright.passes.xegpu.lane_addresses import ALIGN, CLAMPED
from tilewright.targets.xe.building import (
    GLOBAL,
    LANES_MOST,
    Index,
    LaneBuilder,
    bits_of,
    count_of,
    element_of,
    is_true,
    words,
)
from tilewright.targets.xe.context import Context, hints_of


def _address(s: Context, op: xegpu.ScatterAccess, element: Attribute) -> tuple[SSAValue, SSAValue]:
    """(base, address) of a lane's first element."""
    b = s.b
    offsets = op.offsets_operand
    if offsets is None:
        raise b.refuse(
            "a scattered descriptor has no lane form", "give base and offsets on the op itself"
        )
    source = op.source_operand
    stride: Index = 1
    start: Index = 0
    if isinstance(source.type, MemRefType):
        found = Metadata(source, b.insert)
        start, stride = found.offset, next(reversed(found.strides), 1)
    number = b.of_one_lane(offsets)
    if isinstance(number.type, IntegerType):
        number = b.add(arith.IndexCastOp(number, index))
    size = bits_of(element) // 8
    at = b.times(b.plus(b.times(number, stride), start), size)
    base = b.base(source)
    return base, b.address(base, at)


def _guarded(s: Context, mask: SSAValue, base: SSAValue, address: SSAValue) -> SSAValue:
    """An address that can be read whatever the mask says."""
    mask = _mask(s.b, mask)
    return address if is_true(mask) else s.b.add(arith.SelectOp(mask, address, base))


def _mask(b: LaneBuilder, mask: SSAValue) -> SSAValue:
    return mask if is_true(mask) else b.of_one_lane(mask)


def _vector(type: Attribute) -> Attribute:
    """Memory holds a lane's elements in a row, whatever the rank of the value."""
    return VectorType(element_of(type), [count_of(type)]) if isinstance(type, VectorType) else type


def _words(op: Operation, kind: Attribute) -> tuple[int, int, int]:
    """What divides the address of a lane's elements, in bytes; bits and number of the words of its one message:
    elements that come together as aligned words are moved as such."""
    bits, count = bits_of(element_of(kind)), count_of(kind)
    known = max(bits // 8, integer(op, ALIGN, 1))
    word = 32 if bits < 32 and known % 4 == 0 and count * bits % 32 == 0 else bits
    return known, word, count * bits // word


def load(s: Context, op: xegpu.LoadGatherOp) -> SSAValue:
    b, kind = s.b, op.value.type
    base, address = _address(s, op, element_of(kind))
    if CLAMPED not in op.attributes:
        address = _guarded(s, op.mask, base, address)
    hints = hints_of(s, op)
    known, word, many = _words(op, kind)
    if hints and base.type == GLOBAL:
        name = f"xe_lsc_load_{word}b_x{many}{hints.suffix}"
        put = b.call(name, [address], [words(many, word)])
        return _from_words(b, put, kind, word)
    if word == bits_of(element_of(kind)):
        return b.add(mach.LoadOp(address, _vector(kind), alignment=known))
    put = b.insert(mach.LoadOp(address, words(many, word), alignment=known))
    return _from_words(b, put, kind, word)


def store(s: Context, op: xegpu.StoreScatterOp) -> None:
    b, kind = s.b, op.value.type
    base, address = _address(s, op, element_of(kind))
    hints = hints_of(s, op)
    known, word, many = _words(op, kind)

    def write() -> None:
        if hints and base.type == GLOBAL:
            value = _to_words(b, op.value, many, word)
            b.call(f"xe_lsc_store_{word}b_x{many}{hints.suffix}", [address, value])
        elif word != bits_of(element_of(kind)):
            value = _to_words(b, op.value, many, word)
            b.insert(mach.StoreOp(value, address, alignment=known))
        else:
            b.insert(mach.StoreOp(op.value, address, alignment=known))

    mask = _mask(b, op.mask)
    if is_true(mask):
        write()
    else:
        b.choose(mask, [], write)


def _from_words(b: LaneBuilder, put: Operation, kind: Attribute, word: int) -> SSAValue:
    """A fragment of the words that an op loaded."""
    value = put.results[0]
    if not isinstance(kind, VectorType):
        scalar = b.component(value, 0)
        if isinstance(kind, IntegerType):
            return scalar
        if isinstance(kind, IndexType):
            return b.add(arith.IndexCastOp(scalar, kind))
        return b.add(arith.BitcastOp(scalar, kind))
    if kind == value.type:
        return value
    if kind.element_count() <= LANES_MOST:
        return b.add(vector.BitcastOp(value, kind))
    return b.in_memory(value, word, kind)


def _to_words(b: LaneBuilder, value: SSAValue, count: int, bits: int) -> SSAValue:
    if not isinstance(value.type, VectorType):
        value = b.gathered([value], VectorType(value.type, [1]))  # pyright: ignore
    return b.as_words(value, count, bits)


def prefetch(s: Context, op: xegpu.PrefetchOp) -> None:
    """One line of the lane's address. From an integer address offsets count `offset_align_byte` bytes."""
    b = s.b
    if op.offsets is None or isinstance(op.source.type, MemRefType):
        source = op.source.type
        element: Attribute = (
            source.element_type if isinstance(source, MemRefType) else IntegerType(8)
        )
        _, address = _address(s, op, element)
    else:
        unit = op.offset_align_byte if op.offset_align_byte is not None else 1
        number = b.of_one_lane(op.offsets)
        address = b.address(b.base(op.source), b.times(number, unit))
    hints = hints_of(s, op)
    suffix = hints.suffix or "_ca_ca"
    b.call(f"xe_lsc_prefetch{suffix}", [address])


def atomic_rmw(s: Context, op: xegpu.AtomicRMWOp) -> SSAValue:
    """Component by component; a lane that is masked off gets 0."""
    b, kind = s.b, op.value.type
    element = element_of(kind)
    base, address = _address(s, op, element)
    size = bits_of(element) // 8
    scope = "device" if base.type == GLOBAL else "workgroup"

    def rmw() -> SSAValue:
        old = [
            b.add(
                mach.AtomicRmwOp(
                    op.kind,
                    b.component(op.value, i),
                    b.address(address, i * size),
                    ordering="monotonic",
                    scope=scope,
                )
            )
            for i in range(count_of(kind))
        ]
        return b.gathered(old, kind)

    mask = _mask(b, op.mask)
    if is_true(mask):
        return rmw()
    return b.choose(mask, [kind], lambda: [rmw()], lambda: [b.zero(kind)])[0]
