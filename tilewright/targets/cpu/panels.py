"""Packing: elements of a value, in any order of memory, into panels that a micro-kernel reads from end to end.

A panel holds `lanes` consecutive x; within it groups of `group` consecutive k follow one another, so that element
(x, k) lies at `(k / group * lanes + x % lanes) * group + k % group` elements from the panel's start. FMA wants
group 1; instructions that multiply pairs or quads want 2 or 4; AMX reads its A operand from groups of 64 bytes.

Vectors run along whichever of x and k is contiguous in memory: along x they are stored as they are (with group > 1,
interleaved), along k a block of rows is transposed in registers by a network of interleaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IntegerType, VectorType, f32, i32
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import element_of, itemsize
from tilewright.dialects.upstream.arith import cast_to, with_element
from tilewright.frozen import frozen
from tilewright.targets.cpu.evaluate import Position

UNIT = 16
"""Bytes within which elements of registers change places in one step."""
ROWS_AT_ONCE = 4
"""Rows that lie in a panel as they come are copied by so many: all of them would be more code, and no faster. At the
edge of an array one by one: little lies there, and what asks of each row where it ends is most of the code."""


@frozen
class PanelFormat:
    """How the elements of one operand are packed."""

    lanes: int
    group: int
    element: Attribute
    unsigned: bool = False
    """Integers widen with zeros."""
    biased: bool = False
    """Integers are stored with their top bit flipped: a signed x as the unsigned x + 2^(n-1), or the other way."""
    parts: int = 1
    """2: floats are stored as sums of two bf16, of each group of k the larger ones first (see `halves`)."""
    pitch: int = 0
    """In packed arrays: x at whose multiples panels begin anew, though `lanes` do not divide it; 0: at none."""

    @property
    def bytes(self) -> int:
        """Of an element, all its parts."""
        return itemsize(self.element) * self.parts

    @property
    def part_bytes(self) -> int:
        """From a part of a group of k to the next."""
        return self.lanes * self.group * itemsize(self.element)

    def panels_before(self, b: Builder, x: Idx) -> Idx:
        """Whole and begun panels of [0, x)."""
        if not self.pitch:
            return b.ceildiv(x, self.lanes)
        whole = b.times(b.div(x, self.pitch), -(-self.pitch // self.lanes))
        return b.plus(whole, b.ceildiv(b.rem(x, self.pitch), self.lanes))

    def start_of(self, b: Builder, panel: Idx) -> Idx:
        """The first x of a panel."""
        if not self.pitch:
            return b.times(panel, self.lanes)
        each = -(-self.pitch // self.lanes)
        inner = b.times(b.rem(panel, each), self.lanes)
        return b.plus(b.times(b.div(panel, each), self.pitch), inner)


def widen(b: Builder, x: SSAValue, element: Attribute, unsigned: bool = False) -> SSAValue:
    """`x` converted to a type that holds all its values."""
    if element_of(x.type) == element:
        return x
    return b.value(cast_to(x, with_element(x.type, element), unsigned=unsigned))


def interleave(b: Builder, x: SSAValue, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """x0 y0 x1 y1 ..., in two registers of the size of x."""
    n = x.type.get_shape()[0]  # pyright: ignore
    half = n // 2
    low = [k for i in range(half) for k in (i, n + i)]
    high = [k for i in range(half, n) for k in (i, n + i)]
    return b.shuffle(x, y, low), b.shuffle(x, y, high)


def transpose(b: Builder, rows: Sequence[SSAValue]) -> list[SSAValue]:
    """Registers that hold the columns of `rows` one after the other: element [r][t] goes to t * len(rows) + r.

    Each of the log2(rows) steps interleaves the first half of the list with the second; the number of rows is a
    power of two.
    """
    current = list(rows)
    half = len(current) // 2
    steps = len(current).bit_length() - 1
    for _ in range(steps):
        following: list[SSAValue] = []
        for x, y in zip(current[:half], current[half:], strict=True):
            following += interleave(b, x, y)
        current = following
    return current


def columns(b: Builder, rows: Sequence[SSAValue]) -> list[SSAValue]:
    """A register for each column of `rows`: of n registers of c <= n elements, c registers of n elements.

    Both are powers of two, and c elements are whole units of 16 bytes, within which machines exchange elements in one
    step. Registers of n elements are made of several rows, a unit's elements apart; then elements change places within
    units, and units between registers.
    """
    wide, count = len(rows), rows[0].type.get_shape()[0]  # pyright: ignore
    per = UNIT // itemsize(element_of(rows[0].type))
    half, beside = per // 2, wide // count * per
    starts = [unit + i for unit in range(0, wide, per) for i in range(half)]
    low = [k for start in starts for k in (start, wide + start)]
    even = [unit + i for unit in range(0, 2 * wide, 2 * per) for i in range(per)]
    within, between = (low, [k + half for k in low]), (even, [k + per for k in even])
    groups: list[list[SSAValue]] = []
    for first in range(0, wide, beside):
        units = [joined(b, rows[first + row : first + beside : per]) for row in range(per)]
        for _ in range(per.bit_length() - 1):
            pairs = list(zip(units[:half], units[half:], strict=True))
            units = [b.shuffle(x, y, order) for x, y in pairs for order in within]
        groups.append(units)
    made: list[list[SSAValue]] = []
    for parts in zip(*groups, strict=True):
        units = list(parts)
        for _ in range(len(groups).bit_length() - 1):
            pairs = list(zip(units[::2], units[1::2], strict=True))
            units = [b.shuffle(x, y, order) for order in between for x, y in pairs]
        made.append(units)
    return [units[k] for k in range(len(groups)) for units in made]


def joined(b: Builder, parts: Sequence[SSAValue]) -> SSAValue:
    """Vectors of one type, a power of two of them, one after the other."""
    while len(parts) > 1:
        parts = [b.join(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def flip(b: Builder, x: SSAValue) -> SSAValue:
    """`x` with the top bit of every (integer) element flipped."""
    element = x.type.element_type if isinstance(x.type, VectorType) else x.type
    assert isinstance(element, IntegerType)
    return b.value(arith.XOrIOp(x, b.constant(x.type, -(1 << (element.width.data - 1)))))


def halves(b: Builder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Two bf16, as i16, that add up to each f16 of a vector: its first 8 bits and the other 3, of its sign.

    Where these are zero, or x is infinite or NaN, each is half of x: so the second is zero only where x is, and
    infinity times it is infinite or NaN as infinity times x is.
    """
    lanes = x.type.get_shape()[0]  # pyright: ignore
    floats, words = VectorType(f32, [lanes]), VectorType(i32, [lanes])
    wide = b.value(arith.ExtFOp(x, floats))
    cut = b.value(arith.AndIOp(_bitcast(b, wide, words), b.constant(words, -(1 << 16))))
    top = _bitcast(b, cut, floats)
    rest = b.value(arith.SubfOp(wide, top))
    half = b.value(arith.MulfOp(wide, b.constant(floats, 0.5)))
    nothing = b.value(arith.CmpfOp(rest, b.constant(floats, 0.0), "ueq"))
    high, low = (
        _bitcast(b, b.value(arith.SelectOp(nothing, half, part)), words) for part in (top, rest)
    )
    pairs = VectorType(IntegerType(16), [2 * lanes])
    first, second = (
        b.shuffle(v, v, range(1, 2 * lanes, 2))
        for v in (_bitcast(b, w, pairs) for w in (high, low))
    )
    return first, second


Source = Callable[[Position], SSAValue]
"""The register of the packed value at a place (row, col of the operand as the product sees it)."""


def pack_block(
    b: Builder,
    format: PanelFormat,
    source: Source,
    destination: SSAValue,
    x: Idx,
    k: Idx,
    depth: int,
    *,
    x_axis: int,
    along_k: bool,
    vector_bytes: int,
    inside: bool | SSAValue,
    limit: Idx | None = None,
) -> None:
    """Pack `lanes` x from `x` on and `depth` k from `k` on (a multiple of the group) to `destination`.

    `destination` is the address of (x, k). `inside`: does the block lie in its array? Where that is known at run time
    only, what is fetched in one of two ways is put in place once. With `limit`, k from there on counts as zero. Depth
    is such that whole vectors are made: `block_depth` gives it.
    """
    k_axis = 1 - x_axis
    size = itemsize(format.element)

    def either(make: Callable[[bool], Sequence[SSAValue]]) -> Sequence[SSAValue]:
        if isinstance(inside, bool):
            return make(inside)
        return b.choose(inside, lambda: make(True), lambda: make(False))

    def place(dx: Idx, dk: int, axis: int, lanes: int, inside: bool) -> Position:
        px, pk = b.plus(x, dx), b.plus(k, dk)
        row, col = (px, pk) if x_axis == 0 else (pk, px)
        return Position(row, col, axis, lanes, inside)

    def fetch(dx: Idx, dk: int, axis: int, lanes: int, inside: bool) -> SSAValue:
        found = source(place(dx, dk, axis, lanes, inside))
        register = kept(widen(b, found, format.element, format.unsigned), dk, axis, lanes)
        return flip(b, register) if format.biased else register

    def kept(register: SSAValue, dk: int, axis: int, lanes: int) -> SSAValue:
        if limit is None:
            return register
        if axis == k_axis:
            keep = b.mask_first(b.minus(limit, b.plus(k, dk)), lanes)
        else:
            keep = b.splat(b.cmp("slt", b.plus(k, dk), limit), lanes)
        if keep is None:
            return register
        zero = b.constant(register.type, 0)
        return b.value(arith.SelectOp(keep, register, zero))

    def parts(register: SSAValue) -> Sequence[SSAValue]:
        return halves(b, register) if format.parts == 2 else (register,)

    def copy_rows(inside: bool) -> Sequence[SSAValue]:
        at_once = min(format.lanes, ROWS_AT_ONCE if inside else 1)
        with b.loop(0, format.lanes, at_once, nonempty=True) as row:
            rows = (fetch(b.plus(row.iv, r), 0, k_axis, depth, inside) for r in range(at_once))
            fetched = [parts(register) for register in rows]
            first = b.ptr(destination, b.times(row.iv, depth * size))
            for r, registers in enumerate(fetched):
                target = b.ptr(first, r * depth * size)
                for part, register in enumerate(registers):
                    b.store(register, b.ptr(target, part * format.part_bytes))
        return ()

    if along_k and depth == format.group:  # rows lie in a panel as they come
        either(copy_rows)
        return
    if along_k:
        numbers = range(format.lanes)
        rows = either(lambda inside: [fetch(r, 0, k_axis, depth, inside) for r in numbers])
        for part, registers in enumerate(zip(*map(parts, rows), strict=True)):
            to = b.ptr(destination, part * format.part_bytes)
            _store_rows(b, format, list(registers), to, depth)
        return
    lanes, groups = gcd(format.lanes, max(1, vector_bytes // size)), range(format.group)
    starts = range(0, format.lanes, lanes)
    found = either(
        lambda inside: [fetch(dx, g, x_axis, lanes, inside) for dx in starts for g in groups]
    )
    for n, dx in enumerate(starts):
        group = [parts(x) for x in found[n * format.group : (n + 1) * format.group]]
        for part in range(format.parts):
            base = dx * format.group * size + part * format.part_bytes
            registers = _zip_groups(b, [x[part] for x in group])
            for i, register in enumerate(registers):
                b.store(register, b.ptr(destination, base + i * lanes * size))


def _store_rows(
    b: Builder, format: PanelFormat, rows: list[SSAValue], destination: SSAValue, depth: int
) -> None:
    """Rows of `depth` k as a panel has them."""
    size = itemsize(format.element)
    if format.group > 1:
        wide = IntegerType(8 * size * format.group)
        units = VectorType(wide, [depth // format.group])
        rows = [_bitcast(b, r, units) for r in rows]
    # As many rows at a time as a register has groups: more registers than one block of them would be spilled.
    groups = depth // format.group
    at_once = min(format.lanes, groups)
    for first in range(0, format.lanes, at_once):
        for i, register in enumerate(transpose(b, rows[first : first + at_once])):
            # It holds whole columns of the block, or (part of) one.
            offset = i * groups * format.group * size
            if groups <= format.lanes:
                offset = (
                    i * format.lanes * format.group * format.bytes + first * format.group * size
                )
            b.store(register, b.ptr(destination, offset))


def block_depth(format: PanelFormat, along_k: bool, vector_bytes: int) -> int:
    """k per call of `pack_block`: one vector of k, or one group."""
    if not along_k:
        return format.group
    return max(vector_bytes // itemsize(format.element), format.group)


def _zip_groups(b: Builder, parts: list[SSAValue]) -> list[SSAValue]:
    """Vectors of x for consecutive k -> registers in which the elements of one x stand together."""
    if len(parts) == 1:
        return parts
    return transpose(b, parts) if isinstance(parts[0].type, VectorType) else parts


def _bitcast(b: Builder, x: SSAValue, type: VectorType) -> SSAValue:
    return b.value(vector.BitcastOp(x, type))
