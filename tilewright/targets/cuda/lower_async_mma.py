"""Rules for asynchronous products: wgmma on operands in shared memory, A also from registers.

A warpgroup of the team owns 64 rows out of every 64 * groups; inside them the instruction says which warp and lane
owns what. The accumulator of a product is one fragment in that order, block of rows after block of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import VectorType, i1, i32, i64
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import mach, stage
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.dialects.stage.products import is_paired, vector_of
from tilewright.frozen import frozen
from tilewright.layout import Layout
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.narrow import Narrow, Word
from tilewright.targets.cuda.ownership import anchor
from tilewright.targets.cuda.products import dtype_of
from tilewright.uarch.nvidia import WARPGROUP, WGMMA_ROWS, ptx_type

MOST_COLUMNS = 256
SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}


def accumulator(shape: Sequence[int], warps: int, paired: bool = False) -> Layout:
    """C over the warpgroups of a team: as it would be A of 16-bit elements."""
    m, n = shape
    return left_operand(m, n, 2, warps, paired)


@lru_cache(maxsize=256)
def left_operand(m: int, k: int, pack: int, warps: int, paired: bool = False) -> Layout:
    """A [m, k] in registers: for each block of rows, for each step of k, the instruction's words. `paired`: the two
    rows of a thread are neighbours."""
    groups = warps // WARPGROUP
    return bl.of(
        (m, k),
        [
            (pack, 1, 1),
            (2, 0, 1 if paired else 8),
            (k // (4 * pack), 1, 4 * pack),
            (m // (WGMMA_ROWS * groups), 0, WGMMA_ROWS * groups),
        ],
        [(4, 1, pack), (8, 0, 2 if paired else 1)],
        [(WARPGROUP, 0, 16), (groups, 0, WGMMA_ROWS)],
    )


def left_of(op: stage.ProductIssueOp, warps: int) -> Layout:
    """A of a product in registers: its elements of k come in the order in which B's stand in their slot."""
    m, _, k = op.sizes
    pack = 4 // dtype_of(op.a.type).itemsize
    found = left_operand(m, k, pack, warps, is_paired(op.result.type))
    wait = op.b.owner
    assert isinstance(wait, stage.CopyWaitOp)
    part = buffer_type(wait.buffer).parts.data[list[SSAValue](wait.values).index(op.b)]
    return bl.deinterleaved(found, 1) if part.deinterleaved else found


def is_staged(value: SSAValue) -> bool:
    return isinstance(value.owner, stage.CopyWaitOp)


@anchor("stage.mma.issue")
def anchor_issue(op: stage.ProductIssueOp, warps: int) -> Mapping[SSAValue, Layout]:
    m, n, _ = op.sizes
    found: dict[SSAValue, Layout] = {}
    if op.c is not None and isinstance(op.c.type, VectorType):
        found[op.c] = accumulator((m, n), warps, is_paired(op.result.type))
    if not is_staged(op.a):
        found[op.a] = left_of(op, warps)
    return found


@anchor("stage.mma.wait")
def anchor_wait(op: stage.ProductWaitOp, warps: int) -> Mapping[SSAValue, Layout]:
    return {
        v: accumulator(vector_of(v.type).get_shape(), warps, is_paired(p.type))
        for p, v in zip(op.products, op.values, strict=True)
    }


@anchor("stage.mma.start")
def anchor_start(op: stage.ProductStartOp, warps: int) -> Mapping[SSAValue, Layout]:
    return {op.value: accumulator(vector_of(op.value.type).get_shape(), warps)}


@rule("stage.mma.start")
def start(d: Distributor, op: stage.ProductStartOp) -> None:
    m, n = vector_of(op.value.type).get_shape()
    value = d.fragment_of(op.value, accumulator((m, n), d.team.warps)).value
    d.set_scalar(op.result, value)


ADDRESS_BITS = 18
"""Bits of an address in a workgroup's shared memory, of which a descriptor has all but the lowest four."""


@frozen
class _Descriptor:
    """A matrix in shared memory as wgmma names it: the word that moves, and the constant one."""

    low: Word
    """Address in units of 16 bytes, with the leading offset above."""
    high: int

    def at(self, d: Distributor, offset: int) -> SSAValue:
        """The descriptor of the matrix so many bytes further, as i64."""
        n = Narrow(d.b)
        low = d.b.value(arith.ExtUIOp(n.value(n.plus(self.low, offset >> 4)), i64))
        return d.b.value(arith.OrIOp(low, d.b.constant(i64, self.high << 32)))


def _descriptor(d: Distributor, place: st.StagedTile, k_major: bool, offset: Word) -> _Descriptor:
    """Descriptor of the operand that begins `offset` bytes into a staged tile."""
    n = Narrow(d.b)
    part = place.attr
    width = part.swizzle.data
    leading = 1 if k_major else part.lines[0] * width >> 4
    base = st.shared_address(d)
    if st.facts(d).cluster > 1:
        # There an address names its workgroup in high bits, which would be the leading offset's here.
        base = n.low(base, ADDRESS_BITS)
    at = n.plus(n.plus(place.offset(d), offset), base)
    low = n.plus(n.high(at, 4), leading << 16)
    return _Descriptor(low, SWIZZLE_CODE[width] << 30 | 8 * width >> 4)


def _k_offset(part: stage.PartAttr, k_major: bool, k: int) -> int:
    """Byte offset of element k of the summed dimension in a staged tile."""
    lines, width = part.lines[0], part.swizzle.data
    if not k_major:
        return k * width
    panel, inside = divmod(k * part.itemsize, width)
    return panel * lines * width + inside


def _other_offset(part: stage.PartAttr, k_major: bool, at: int) -> int:
    """Byte offset of row or column `at` (a multiple of 8 and of a panel) in a staged tile."""
    lines, width = part.lines[0], part.swizzle.data
    if k_major:
        return at * width
    return at * part.itemsize // width * lines * width


@rule("stage.mma.issue")
def issue(d: Distributor, op: stage.ProductIssueOp) -> None:
    b = d.b
    m, n, k = op.sizes
    type = vector_of(op.result.type)
    layout = accumulator((m, n), d.team.warps, is_paired(op.result.type))
    groups = d.team.warps // WARPGROUP
    a, c = dtype_of(op.a.type), dtype_of(type)
    right = st.facts(d).staged[op.b]
    b_fast = 1 if right.attr.row_major else 0
    b_k_major = (b_fast == 0) != op.transpose_b
    depth = 32 // a.itemsize
    element: Attribute = i32 if c.name == "i32" else type.element_type
    if op.c is None:
        total = b.constant(VectorType(element, [layout.registers]), 0)  # pyright: ignore
    elif isinstance(op.c.type, VectorType):
        total = d.fragment_of(op.c, layout).value
    else:
        total = d.scalar(op.c)
    blocks = m // (WGMMA_ROWS * groups)
    columns = min(n, MOST_COLUMNS)
    right_base = _descriptor(d, right, b_k_major, 0)
    lefts = _left(d, op, groups, k // depth)
    trans = {} if a.itemsize != 2 else {"trans_b": int(not b_k_major)}
    if isinstance(lefts, _Shared) and a.itemsize == 2:
        trans["trans_a"] = int(not lefts.k_major)
    st.instr(d, "wgmma.fence")
    parts: list[SSAValue] = []
    per = columns // 2
    for block in range(blocks):
        for column in range(0, n, columns):
            at = (block * n + column) // 2
            acc = d.pick(total, range(at, at + per))
            for step in range(k // depth):
                offset = _other_offset(right.attr, b_k_major, column)
                offset += _k_offset(right.attr, b_k_major, op.rows.start + step * depth)
                x = lefts.operand(d, block, step)
                kind = "ss" if isinstance(lefts, _Shared) else "rs"
                name = (
                    f"nvptx.wgmma.m64n{columns}k{depth}.{ptx_type(c.name)}.{ptx_type(a.name)}."
                    f"{ptx_type(dtype_of(op.b.type).name)}.{kind}"
                )
                scale = b.constant(i1, 1) if op.c is not None or step else b.constant(i1, 0)
                operands = [x, right_base.at(d, offset), scale, acc]
                acc = b.value(mach.InstrOp(name, operands, [acc.type], trans))
            parts.append(acc)
    st.instr(d, "wgmma.commit")
    d.set_scalar(op.result, d.concatenate(parts))


class _Shared:
    """A in shared memory."""

    def __init__(self, d: Distributor, op: stage.ProductIssueOp, groups: int, depth: int):
        self.place = st.facts(d).staged[op.a]
        fast = 1 if self.place.attr.row_major else 0
        self.k_major = (fast == 1) != op.transpose_a
        self.groups, self.depth = groups, depth
        step = _other_offset(self.place.attr, self.k_major, WGMMA_ROWS)
        mine = Narrow(d.b).times(st.warpgroup(d), step)
        self.base = _descriptor(d, self.place, self.k_major, mine)

    def operand(self, d: Distributor, block: int, step: int) -> SSAValue:
        offset = _other_offset(self.place.attr, self.k_major, block * WGMMA_ROWS * self.groups)
        return self.base.at(d, offset + _k_offset(self.place.attr, self.k_major, step * self.depth))


class _Registers:
    """A in registers, as words of 32 bits."""

    def __init__(self, words: SSAValue, steps: int):
        self.words, self.steps = words, steps

    def operand(self, d: Distributor, block: int, step: int) -> SSAValue:
        at = 4 * (block * self.steps + step)
        return d.pick(self.words, range(at, at + 4))


def _left(
    d: Distributor, op: stage.ProductIssueOp, groups: int, steps: int
) -> _Shared | _Registers:
    itemsize = dtype_of(op.a.type).itemsize
    if is_staged(op.a):
        return _Shared(d, op, groups, 32 // itemsize)
    value = d.fragment_of(op.a, left_of(op, d.team.warps)).value
    assert isinstance(value.type, VectorType)
    words = VectorType(i32, [value.type.get_shape()[0] * itemsize // 4])
    return _Registers(d.b.value(vector.BitcastOp(value, words)), steps)


@rule("stage.mma.wait")
def wait(d: Distributor, op: stage.ProductWaitOp) -> None:
    pending = op.pending
    if not op.products:
        st.instr(d, "wgmma.wait", n=pending)
        return
    values = [d.scalar(p) for p in op.products]
    kinds: list[str] = []
    for value in values:
        assert isinstance(value.type, VectorType)
        kinds.append(f"{ptx_type(dtype_of(value.type).name)}x{value.type.get_shape()[0]}")
    name = f"nvptx.wgmma.wait.{'.'.join(kinds)}"
    made = mach.InstrOp(name, values, [v.type for v in values], {"n": pending})
    d.b.op(made)
    for value, result, layout in zip(
        op.values, made.results, anchor_wait(op, d.team.warps).values(), strict=True
    ):
        d.set_fragment(value, result, layout)
