"""The rule for stores by the copy engine: panels in shared memory, written by warps, taken by TMA.

A warpgroup stores its rows panel by panel: one thread waits until the engine has read the panel's last contents, the
warps write it (stmatrix for 16-bit elements), make that visible to the engine, and meet; one thread starts the copy.
Two panels take turns, so that writing one overlaps the engine's reading of the other. Of a value that is stored
transposed, a panel's lines are columns, and stmatrix transposes, or threads that hold neighbouring rows write both; 64
rows of 32 bits are two panels side by side.
"""

from __future__ import annotations

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import VectorType, i32
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach, stage, xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.coordinates import coordinates
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.lower_async_mma import accumulator
from tilewright.targets.cuda.lower_multi_buffers import tensor_map
from tilewright.targets.cuda.narrow import Narrow
from tilewright.uarch.nvidia import LANES, LINE, WARPGROUP, WGMMA_ROWS

FIRST_BARRIER = 8
"""Named barriers from here on belong to the warpgroups that store."""


@rule("stage.copy.store")
def store(d: Distributor, op: stage.CopyStoreOp) -> None:
    b = d.b
    type = vector_type(op.value)
    m, n = type.get_shape()
    pairs = accumulator((m, n), d.team.warps, paired=True)
    paired = op.transpose and d.assigned(op.value) == pairs
    value = d.fragment_of(op.value, pairs if paired else accumulator((m, n), d.team.warps)).value
    place = st.place_of(d, op.buffer)
    part = place.type.parts.data[0]
    groups = d.team.warps // WARPGROUP
    transpose = op.transpose
    columns = part.lines[0 if transpose else 1]
    init = op.tile.owner
    assert isinstance(init, xetile.InitTileOp)
    map, dims = tensor_map(d, init, part, part.lines[0])
    group = st.warpgroup(d)
    word = Narrow(b)
    mine = word.index(group)
    first = b.cmp("eq", b.rem(d.thread, LANES * WARPGROUP), 0)
    barrier = word.value(word.plus(group, FIRST_BARRIER))
    threads = b.constant(i32, LANES * WARPGROUP)
    facts = st.facts(d)
    facts.barriers = max(facts.barriers, FIRST_BARRIER + groups)
    facts.stores = True
    boxes = WGMMA_ROWS * part.itemsize // LINE if transpose else 1
    step = boxes * part.bytes
    buffers = place.count // groups // boxes
    base = b.plus(b.times(mine, buffers * step), place.slots)
    # After an odd number of panels, the last one is the next store's first: then it must have been read.
    even = all(_panels(use.operation, groups) % buffers == 0 for use in op.buffer.uses)
    number = 0
    for block in range(m // (WGMMA_ROWS * groups)):
        for column in range(0, n, columns):
            panel = b.plus(base, number % buffers * step)
            pending = buffers - 1 if even or number else 0
            number += 1
            with b.when(first):
                st.instr(d, "bulk.wait_group.read", n=pending)
            st.instr(d, "bar.sync", barrier, threads)
            at = (block * n + column) // 2
            held = d.pick(value, range(at, at + columns // 2))
            if paired:
                _transpose(d, held, panel, columns, 2)
            elif transpose and part.itemsize == 2:
                _transpose_halves(d, held, panel, columns)
            elif transpose:
                _transpose(d, held, panel, columns, 1)
            else:
                _write(d, held, panel, columns)
            st.instr(d, "fence.proxy.async")
            st.instr(d, "bar.sync", barrier, threads)
            with b.when(first):
                row = word.plus(word.times(group, WGMMA_ROWS), block * WGMMA_ROWS * groups)
                for box in range(boxes):
                    along = word.plus(row, box * WGMMA_ROWS // boxes)
                    at = (column, along) if transpose else (along, column)
                    source = d.shared_pointer(b.plus(panel, box * part.bytes))
                    where = coordinates(d, init, dims, *at)
                    st.instr(d, f"tma.store.{len(dims)}d", source, map, *where)
                st.instr(d, "bulk.commit_group")


def _panels(op: Operation, groups: int) -> int:
    """Panels that one warpgroup writes for a store."""
    assert isinstance(op, stage.CopyStoreOp) and isinstance(op.value.type, VectorType)
    m, n = op.value.type.get_shape()
    part = buffer_type(op.buffer).parts.data[0]
    return m // (WGMMA_ROWS * groups) * (n // part.lines[0 if op.transpose else 1])


def _chunk(d: Distributor, panel: Idx, line: Idx, chunk: Idx) -> Idx:
    """The address of 16 bytes of a line of a panel, which the swizzle has moved within the line."""
    b = d.b
    swizzled = b.times(b.value(arith.XOrIOp(b.idx(chunk), b.idx(b.rem(line, 8)))), 16)
    return b.plus(b.plus(b.times(line, LINE), swizzled), panel)


def _write(d: Distributor, value: SSAValue, panel: Idx, columns: int) -> None:
    """A warpgroup writes 64 rows of its accumulator's order to a swizzled panel."""
    b = d.b
    assert isinstance(value.type, VectorType)
    size = itemsize(value.type.element_type)
    line = columns * size
    lane, warp = d.lane, b.rem(d.warp, WARPGROUP)

    def chunk_at(row: Idx, chunk: Idx) -> Idx:
        """The address of 16 bytes of one of the warp's 16 rows: they are mixed over 128 bytes, whatever a line has."""
        start = b.plus(b.times(b.plus(b.times(warp, 16), row), line), panel)
        key = b.div(b.rem(row, 8), LINE // line)
        return b.plus(start, b.times(b.value(arith.XOrIOp(b.idx(chunk), b.idx(key))), 16))

    if size == 2:
        words = b.value(vector.BitcastOp(value, VectorType(i32, [columns // 4])))
        row = b.rem(lane, 16)
        for block in range(columns // 16):
            where = d.shared_pointer(chunk_at(row, b.plus(b.div(lane, 16), 2 * block)))
            four = d.pick(words, range(4 * block, 4 * block + 4))
            b.op(mach.InstrOp("nvptx.stmatrix.x4", [four, where]))
        return
    # 32 bits: two columns of a row at a time; a chunk of 16 bytes holds four.
    for group in range(columns // 8):
        for half in range(2):
            row = b.plus(b.div(lane, 4), 8 * half)
            at = chunk_at(row, b.plus(b.div(b.rem(lane, 4), 2), 2 * group))
            two = d.pick(value, range(4 * group + 2 * half, 4 * group + 2 * half + 2))
            b.store(two, d.shared_pointer(b.plus(at, b.times(b.rem(lane, 2), 8))), align=8)


def _transpose(d: Distributor, value: SSAValue, panel: Idx, columns: int, together: int) -> None:
    """A warpgroup writes columns of its sums as lines of its panels: as many elements of a line at a time as a thread
    holds neighbouring rows `together`, of 4 lines by a warp, which the swizzle keeps in banks of their own."""
    b = d.b
    assert isinstance(value.type, VectorType)
    size = itemsize(value.type.element_type)
    lane, warp = d.lane, b.rem(d.warp, WARPGROUP)
    for half in range(2 // together):
        row = b.plus(b.times(b.div(lane, 4), together), 8 * half)
        at = b.plus(b.times(warp, 16 * size), b.times(row, size))
        home = b.plus(panel, b.times(b.div(at, LINE), columns * LINE))
        chunk, within = b.div(b.rem(at, LINE), 16), b.rem(at, 16)
        for odd in range(2):
            line = b.plus(b.times(b.rem(lane, 4), 2), odd)
            start = b.plus(_chunk(d, home, line, chunk), within)
            for block in range(columns // 8):
                held = d.pick(value, range(4 * block + 2 * half + odd, 4 * block + 4, 2)[:together])
                to = d.shared_pointer(b.plus(start, 8 * block * LINE))
                b.store(held, to, align=together * size)


def _transpose_halves(d: Distributor, value: SSAValue, panel: Idx, columns: int) -> None:
    """A warpgroup writes columns of its accumulator's order, 64 elements of 16 bits each, as lines of a swizzled panel.

    A matrix of stmatrix has 8 columns of a warp's rows 0 to 7 or 8 to 15, which are 16 bytes of 8 lines.
    """
    b = d.b
    words = b.value(vector.BitcastOp(value, VectorType(i32, [columns // 4])))
    lane, warp = d.lane, b.rem(d.warp, WARPGROUP)
    chunk = b.plus(b.times(warp, 2), b.rem(b.div(lane, 8), 2))
    for first in range(0, columns, 16):
        count = 4 if first + 16 <= columns else 2  # columns come in eights
        line = b.plus(b.plus(b.times(b.div(lane, 16), 8), b.rem(lane, 8)), first)
        if (
            count == 2
        ):  # lanes from 16 on, whose addresses are not used, would point behind the panel
            line = b.plus(b.rem(lane, 8), first)
        at = d.shared_pointer(_chunk(d, panel, line, chunk))
        held = d.pick(words, range(first // 4, first // 4 + count))
        b.op(mach.InstrOp(f"nvptx.stmatrix.x{count}.trans", [held, at]))


def finish_stores(d: Distributor) -> None:
    """Before a team ends: what it handed to the copy engine has been read from shared memory and written."""
    if st.facts(d).stores:
        with d.b.when(d.b.cmp("eq", d.b.rem(d.thread, LANES * WARPGROUP), 0)):
            st.instr(d, "bulk.wait_group", n=0)
    st.facts(d).stores = False
