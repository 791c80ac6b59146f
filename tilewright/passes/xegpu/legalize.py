"""Forms of subgroup-level XeGPU that no instruction has, written in ops that have one.

- A block of more than two dimensions is a matrix per leading index, each with its own message; with leading
  extents of 1 that is one message and a shape_cast.
- A product of narrower floats than the machine multiplies is one of f16, to which they widen exactly; a sum in
  f16 or bf16 that the machine has not is one in f32, rounded at its end.
- A block that is loaded transposed or packed, where no message does so with its elements or with blocks of its size,
  is loaded as it lies and transposed: what it is used for chooses its messages.
- vector.interleave and vector.deinterleave across lanes are arithmetic on words of twice the width: a lane that
  owns an element of each operand owns two neighbours of the result.

    %v = load_nd %t[%b, %m, 0] : tensor_desc<1x32x16xf16> -> vector<1x32x16xf16>
    %w = interleave %x, %y : vector<8x16xi16> -> vector<8x32xi16>
    ->
    %l = load_nd %u[%b, %m, 0] : tensor_desc<32x16xf16> -> vector<32x16xf16>
    %v = shape_cast %l : vector<32x16xf16> to vector<1x32x16xf16>
    %a = extui %x, %c = extui %y : .. to vector<8x16xi32>     %d = shli %c, %16     %e = ori %a, %d
    %w = bitcast %e : vector<8x16xi32> to vector<8x32xi16>

Requires: today's XeGPU at subgroup level. Guarantees: the same results, the layouts of the text on what takes
the place of an op.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    Float16Type,
    Float32Type,
    IndexType,
    IntegerType,
    NoneAttr,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import dtypes
from tilewright import layout as ly
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.vector import DeinterleaveOp, InterleaveOp
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout import Distribution
from tilewright.layout.bound import without_single
from tilewright.passes.emit import Before, element_of, with_shape
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.block_messages import created, surface_fault
from tilewright.uarch.xe import XeMachine

MATRICES = 64
"""The most matrices that one block of more dimensions becomes; a subgroup's registers hold no more."""


def legalize(kernel: Operation, machine: XeMachine) -> None:
    """Rewrites a kernel in place."""
    for op in list(kernel.walk()):
        match op:
            case xegpu.DpasOp():
                _product(op, machine)
            case xegpu.BlockAccess() if len(op.tdesc.get_shape()) > 2:
                as_matrices(op)
            case xegpu.LoadNdOp() if (op.transposes and not _transposes(op, machine)) or (
                op.packed and not _packs(op, machine)
            ):
                _load_as_it_lies(op)
            case InterleaveOp():
                _interleave(op)
            case DeinterleaveOp():
                _deinterleave(op)
            case _:
                pass


# --- Products -----------------------------------------------------------------------------------------


def _product(op: xegpu.DpasOp, machine: XeMachine) -> None:
    kinds = [v.type for v in (op.lhs, op.rhs, op.result)]
    if not all(isinstance(k, VectorType) and isinstance(k.element_type, AnyFloat) for k in kinds):
        return
    a, b, c = (k.element_type for k in kinds if isinstance(k, VectorType))
    if _multiplies(machine, a, b, c):
        return
    half, single = Float16Type(), Float32Type()
    narrow = all(element_bits(e) == 8 for e in (a, b))
    factors = (half, half) if narrow else (a, b)
    total = c if _multiplies(machine, *factors, c) else single
    if not _multiplies(machine, *factors, total):
        return
    at = Before(op)

    def seen_as(value: SSAValue, element: Attribute, layout: Attribute | None) -> SSAValue:
        kind = VectorType(element, list(own.shape_of(value)))
        if kind == value.type:
            return value
        wider = element_bits(element) > element_bits(element_of(value.type))
        made = at.add((arith.ExtFOp if wider else arith.TruncFOp)(value, kind))
        if (d := own.from_attribute(layout)) is not None:
            own.set_layout(made, d)
        return made

    lhs = seen_as(op.lhs, factors[0], op.layout_a)
    rhs = seen_as(op.rhs, factors[1], op.layout_b)
    acc = None if op.acc is None else seen_as(op.acc, total, op.layout_cd)
    kind = VectorType(total, list(own.shape_of(op.result)))
    new = xegpu.DpasOp(lhs, rhs, acc, kind, *op.layouts)
    new.attributes |= op.attributes
    at.replace(seen_as(at.add(new), c, op.layout_cd))


def _multiplies(machine: XeMachine, *types: Attribute) -> bool:
    try:
        machine.instruction(*(dtypes.from_mlir(t).name for t in types))
    except (UnsupportedError, TypeError):
        return False
    return True


# --- Transposed blocks ----------------------------------------------------------------------------------


def _transposes(op: xegpu.LoadNdOp, machine: XeMachine) -> bool:
    """Is it what a message does, or what lanes do without one?"""
    source = created(op)
    if op.transpose_bit_width is not None or op.tdesc.array_length > 1:
        return True
    if source is None or surface_fault(machine, source) is not None:
        return True
    height, width = op.tdesc.get_shape()
    bits = element_bits(op.tdesc.element_type)
    forms = (b for b in machine.blocks if (b.form, b.bits) == ("transpose", bits))
    return any(form.fault(width, height, 1) is None for form in forms)


def _packs(op: xegpu.LoadNdOp, machine: XeMachine) -> bool:
    """Is there a column for each lane? Of narrower blocks a message puts several rows side by side."""
    shape = own.shape_of(op.value)
    return len(shape) != 3 or op.tdesc.array_length > 1 or shape[1] % machine.lanes == 0


def _load_as_it_lies(op: xegpu.LoadNdOp) -> None:
    at, layout = Before(op), own.from_attribute(op.layout)
    plain = retyped(op, op.operands, [with_shape(op.value.type, op.tdesc.get_shape())], {})
    for name in ("transpose", "packed", "layout"):
        plain.properties.pop(name, None)
    value = at.add(plain)
    if op.packed:
        groups, columns, rows = own.shape_of(op.value)
        value = at.cast(value, (groups, rows, columns))
    turned = at.transpose(value, (0, 2, 1) if op.packed else (1, 0))
    if layout is not None:
        own.set_layout(turned, layout)
    at.replace(turned)


# --- Blocks of more than two dimensions --------------------------------------------------------------


def as_matrices(op: xegpu.BlockAccess) -> None:
    """Rewrites a block of more than two dimensions, unless it would become more than MATRICES."""
    shape, offsets = op.tdesc.get_shape(), op.mixed_offsets
    source = created(op)
    lead = len(shape) - 2
    if source is None or source.has_offsets or offsets is None or prod(shape[:lead]) > MATRICES:
        return
    if op.tdesc.array_length > 1:
        return
    if isinstance(op, xegpu.StoreNdOp) and own.shape_of(op.value) != shape:  # a lane's
        return
    at = Before(op)
    desc = _matrix_desc(at, source, op.tdesc, lead)
    layout = _inner(own.from_attribute(op.layout), lead)
    text = None if layout is None else own.attribute(layout)
    hints = hints_of(op)
    indices = list(product(*map(range, shape[:lead])))

    def place(index: Sequence[int]) -> list[Index]:
        return at.shifted(offsets, (*index, 0, 0))

    match op:
        case xegpu.LoadNdOp():
            kind = VectorType(op.tdesc.element_type, shape[lead:])
            tiles = [
                at.add(xegpu.LoadNdOp(desc, kind, each, hints=hints, layout=text))
                for each in [place(index) for index in indices]
            ]
            _put_together(at, op, tiles, indices)
        case xegpu.StoreNdOp():
            for index in indices:
                fragment = (
                    at.cast(op.value, shape[lead:])
                    if len(indices) == 1
                    else at.add(vector.ExtractOp(op.value, list(index), _matrix(op.value)))
                )
                if layout is not None:
                    own.set_layout(fragment, layout)
                at.insert(xegpu.StoreNdOp(fragment, desc, place(index), hints=hints, layout=text))
            at.replace()
        case xegpu.PrefetchNdOp():
            for index in indices:
                at.insert(
                    xegpu.PrefetchNdOp(desc, place(index), op.locality, hints=hints, layout=text)
                )
            at.replace()
        case _:
            pass


def _put_together(
    at: Before, op: xegpu.LoadNdOp, tiles: Sequence[SSAValue], indices: Sequence[Sequence[int]]
) -> None:
    """A load's value of its matrices, transposed at last."""
    turned = op.transpose if op.transposes else None
    d = None if turned else own.layout_of(op.value)
    whole = VectorType(op.tdesc.element_type, op.tdesc.get_shape())
    if len(tiles) == 1:
        value = at.cast(tiles[0], whole.get_shape())
    else:
        value = at.constant(whole, 0)
        for tile, index in zip(tiles, indices, strict=True):
            value = at.add(vector.InsertOp(tile, value, list(index)))
            if d is not None:
                own.set_layout(value, d)
    if d is not None:
        own.set_layout(value, d)
    at.replace(value if turned is None else at.transpose(value, turned))


def _matrix(value: SSAValue) -> VectorType:
    """The type of a value's innermost matrix."""
    kind = vector_type(value)
    return VectorType(kind.element_type, list(kind.get_shape()[-2:]))


def _matrix_desc(
    at: Before, source: xegpu.CreateNdDescOp, tdesc: TensorDescType, lead: int
) -> SSAValue:
    """The descriptor of one matrix, on the same base."""
    layout = _inner(own.from_attribute(tdesc.ownership), lead)
    encoding = None if isinstance(tdesc.encoding, NoneAttr) else tdesc.encoding
    kind = TensorDescType(
        tdesc.get_shape()[lead:],
        tdesc.element_type,
        encoding,
        None if layout is None else own.attribute(layout),
    )
    return at.add(retyped(source, source.operands, [kind], {}))


def _inner(d: Distribution | None, lead: int) -> Distribution | None:
    """What a layout says of the innermost matrices; None where it distributes the leading dimensions too."""
    if d is None:
        return None
    inner = without_single(ly.slice_(d, list(range(lead))))
    return None if inner.sliced else inner


# --- Interleaving -------------------------------------------------------------------------------------


def _interleave(op: InterleaveOp) -> None:
    """The first operand in the low half of a word, the second in the high one."""
    words = _words(op.lhs)
    if words is None:
        return
    narrow, wide, bits = words
    at = Before(op)
    low, high = (
        at.add(arith.ExtUIOp(_as(at, value, narrow), wide))  # pyright: ignore
        for value in (op.lhs, op.rhs)
    )
    shift = at.constant(wide, bits)
    word = at.add(arith.OrIOp(low, at.add(arith.ShLIOp(high, shift))))
    both = with_shape(narrow, own.shape_of(op.result))
    at.replace(_as(at, at.add(vector.BitcastOp(word, both)), op.result.type))


def _deinterleave(op: DeinterleaveOp) -> None:
    words = _words(op.res1)
    if words is None:
        return
    narrow, wide, bits = words
    at = Before(op)
    whole = _as(at, op.source, with_shape(narrow, own.shape_of(op.source)))
    word = at.add(vector.BitcastOp(whole, wide))
    upper = at.add(arith.ShRUIOp(word, at.constant(wide, bits)))
    halves = [at.add(arith.TruncIOp(half, narrow)) for half in (word, upper)]  # pyright: ignore
    at.replace(*(_as(at, half, op.res1.type) for half in halves))


def _words(value: SSAValue) -> tuple[VectorType, VectorType, int] | None:
    """(integers of the element's width, words of twice that, the width); None where no word is as wide."""
    kind = vector_type(value)
    if isinstance(kind.element_type, IndexType):
        return None
    bits = element_bits(kind.element_type)
    if bits not in (8, 16, 32):
        return None
    shape = list(kind.get_shape())
    return VectorType(IntegerType(bits), shape), VectorType(IntegerType(2 * bits), shape), bits


def _as(at: Before, value: SSAValue, kind: object) -> SSAValue:
    """The bits as another type; a boolean is a byte."""
    given = value.type
    assert isinstance(kind, VectorType) and isinstance(given, VectorType)
    if given == kind:
        return value
    if given.element_type == i1:
        return at.add(arith.ExtUIOp(value, kind))  # pyright: ignore
    if kind.element_type == i1:
        return at.add(arith.TruncIOp(value, kind))  # pyright: ignore
    return at.add(vector.BitcastOp(value, kind))
