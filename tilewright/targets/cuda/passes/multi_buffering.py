"""multi-buffering: loads that feed products come through multi-buffers in shared memory, filled by the copy engine
(TMA).

    %a = xetile.load_tile %ta                       stage.copy.issue %r[%c], %ta, %tb
    %b = xetile.load_tile %tb                 ->    %a, %b = stage.copy.wait %r[%c]
    %d = xetile.tile_mma %a, %b, %acc               %d = xetile.tile_mma %a, %b, %acc
                                                    stage.copy.release %r[%c]
                                                    %n = stage.advance %c     (carried by every loop around)

Requires: XeTile at workgroup level, one block per region, tiles placed where they are loaded (`rematerialize-tiles`).
Guarantees: the same results; each multi-buffer is filled, read and released in one order, by one place of the program.

A load takes part when a tile_mma uses it, as it is or transposed, or when A is computed from it element by element;
when the copy engine can address its array (facts of the cache key: base and pitch multiples of 16 bytes, unit stride),
or threads can copy its lines (`stage.gather.issue`: 16 bits an element, aligned to 4 bytes at least); when nothing in
the kernel writes the array; and when padding is zero. Loads of one block that meet in a product share a multi-buffer,
and so one barrier; loops that follow one another take turns with a multi-buffer. A multi-buffer in a loop has as many
slots as shared memory allows, up to `stages`; one outside of loops one, or two where there is room. What
takes no part stays a load, with a remark that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright import dtypes
from tilewright.codegen.registers import strided_form
from tilewright.dialects import stage, xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.nesting import move, ops_around
from tilewright.dialects.xetile.memory import padding_number
from tilewright.frozen import record
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.carried import earlier, later, operands_of, reached
from tilewright.passes.emit import Before
from tilewright.passes.integers import dimension_of, is_natural
from tilewright.passes.loops import Update, carry
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.tile_origin import is_read_only, tile_divisors
from tilewright.targets.cuda.ownership import COPIES, copied_bytes
from tilewright.targets.cuda.passes.local_stores import (
    can_store,
    hand_back,
    is_stored,
    must_store,
    new_buffer,
    reachable,
)
from tilewright.targets.cuda.passes.stored_bounds import bounds_of
from tilewright.targets.cuda.passes.tf32_rounding import loaded, rounding_of
from tilewright.targets.cuda.passes.wgmma_legality import (
    sources,
    through_transposes,
    unsuited,
    users,
    warpgroups,
)
from tilewright.targets.cuda.runs import vector_of
from tilewright.uarch.base import Machine

MAX_STAGES = 8
MOST_DIMENSIONS = 5
"""Of a tensor map."""


@record
class BufferBudget:
    """Shared memory that multi-buffers may take, in bytes, and the wanted number of slots."""

    bytes: int
    stages: int | None = None


Load = xetile.LoadTileOp | xetile.LoadGatherOp


@dataclass(eq=False)
class _Group:
    """Loads of one block that share a multi-buffer: of tiles, or one of lines that threads copy."""

    block: Block
    loads: list[Load] = field(default_factory=list[Load])
    by_threads: bool = False
    stored: list[int] = field(default_factory=list[int])
    """See `stage.copy.issue`."""


def multi_buffer_loads(
    function: gpu.FuncOp, machine: Machine, budget: BufferBudget, remarks: list[str]
) -> int:
    """Rewrites one kernel; bytes of shared memory that its multi-buffers take."""
    analysis = AccessAnalysis(function)
    groups = _groups(function, machine, analysis, remarks)
    for group in groups:
        group.stored = _stored(group)
    families = _families(groups)
    slots = _slots(families, budget)
    taken = 0
    for family, count in zip(families, slots, strict=True):
        if count == 0:
            remarks.append("loads of a product do not fit shared memory: they are not staged")
            continue
        _build(function, family, count)
        taken += count * stage.MultiBufferType(count, _parts(family[0])).slot_bytes
    return taken


def _stored(group: _Group) -> list[int]:
    """What no store lets be seen of the tiles of a group."""
    found: list[int] = []
    for number, load in enumerate(group.loads):
        bounds = bounds_of(load) if isinstance(load, xetile.LoadTileOp) else ()
        for at in range(0, len(bounds), 3):
            found += (number, *bounds[at : at + 3])
    return found


def _families(groups: list[_Group]) -> list[list[_Group]]:
    """Groups that can take turns with one multi-buffer: equal tiles, in blocks of which none stands in or is
    another.
    """
    families: list[list[_Group]] = []
    for group in groups:
        assigned = next((f for f in families if all(_apart(group, other) for other in f)), None)
        if assigned is not None:
            assigned.append(group)
        else:
            families.append([group])
    return families


def _apart(a: _Group, b: _Group) -> bool:
    if a.by_threads or b.by_threads:
        return False
    if a.block is b.block or in_loop(a.block) != in_loop(b.block) or _parts(a) != _parts(b):
        return False
    return not (a.block.is_ancestor(b.block) or b.block.is_ancestor(a.block))


def buffered_loads(function: gpu.FuncOp, machine: Machine) -> list[Load]:
    """The loads that `multi_buffer_loads` would put into multi-buffers."""
    groups = _groups(function, machine, AccessAnalysis(function), [])
    return [load for group in groups for load in group.loads]


def will_form(analysis: AccessAnalysis, machine: Machine, remarks: list[str]) -> bool:
    """Whether warpgroups would do any product: of what multi-buffers bring, or threads load; if not, `remarks` say
    why.
    """
    reasons: list[str] = []
    function = analysis.func
    if _groups(function, machine, analysis, reasons):
        return True
    if any(isinstance(op, xetile.TileMmaOp) and is_stored(op, machine) for op in function.walk()):
        return True
    remarks += reasons
    return False


def _groups(
    function: gpu.FuncOp, machine: Machine, analysis: AccessAnalysis, remarks: list[str]
) -> list[_Group]:
    """Connected loads: those that meet in a product, in the order of the program."""
    found: list[_Group] = []
    member: dict[Operation, _Group] = {}
    together = warpgroups(function)
    for op in function.walk():
        if not isinstance(op, xetile.TileMmaOp):
            continue
        reason = unsuited(op, machine, together)
        if reason is not None:
            remarks.append(f"tile_mma is not done by warpgroups: {reason}")
            continue
        gathered = [_gathered(op.a, (1, 2), analysis), _gathered(op.b, (2,), analysis)]
        put = must_store(op) and gathered[1] is None
        left = _copied(loads_of(op.a, computed=True), analysis, remarks)
        right = _copied(loads_of(op.b, computed=put), analysis, remarks)
        # The instruction reads B from shared memory only: what is not copied there, threads write there
        # (`local-stores`).
        found_right = right or gathered[1] is not None
        if (put or not found_right) and (not can_store(op) or not (left or right)):
            continue
        for load in gathered:
            if load is not None and load not in member:
                assert load.parent is not None
                member[load] = _Group(load.parent, [load], by_threads=True)
                found.append(member[load])
        loads = [*left, *right]
        for load in loads:
            _join(load, loads, found, member)
    return found


def _gathered(operand: SSAValue, sizes: Sequence[int], analysis: AccessAnalysis) -> Load | None:
    """The load that an operand is, of lines that threads can copy (cp.async) and the copy engine cannot, of elements of
    so many bytes; None where it is none."""
    load = through_transposes(operand).owner
    if not isinstance(load, Load) or load.padding_value != 0 or len(load.results) != 1:
        return None
    init, kind = load.tile.owner, load.tile_type
    size = dtypes.from_mlir(kind.element_type).itemsize
    if not isinstance(init, xetile.InitTileOp) or size not in sizes:
        return None
    if kind.memory_space != 0 or not is_read_only(load.tile):
        return None
    if isinstance(load, xetile.LoadTileOp):
        access = analysis.find(load)
        if access is None or unaddressable(access, analysis) is None:
            return None
        bytes_ = copied_bytes(load.tile)
    else:
        bytes_ = vector_of(load.tile, load.mask) * size
    if bytes_ not in COPIES:
        return None
    placed = reachable(load) and part_of(kind) is not None and _last_use(load) is not None
    return load if placed else None


def _copied(
    loads: list[xetile.LoadTileOp], analysis: AccessAnalysis, remarks: list[str]
) -> list[xetile.LoadTileOp]:
    """Those that the copy engine can do."""
    found: list[xetile.LoadTileOp] = []
    for load in loads:
        reason = _obstacle(load, analysis)
        if reason is None:
            found.insert(0, load)
        elif reason not in remarks:
            remarks.append(reason)
    return found


def loads_of(operand: SSAValue, computed: bool) -> list[xetile.LoadTileOp]:
    """The load that an operand is; with `computed`, else the loads that it is computed from, one by one, transposed or
    in turn (`vector.interleave`).

    What is computed from a staged tile is read by threads, who then hold the operand.
    """
    source = loaded(through_transposes(operand))
    if source is not None:
        return [source]
    return [
        op for op in sources(operand, moved=True) if computed and isinstance(op, xetile.LoadTileOp)
    ]


def _join(
    load: xetile.LoadTileOp,
    together: list[xetile.LoadTileOp],
    found: list[_Group],
    member: dict[Operation, _Group],
) -> None:
    """Puts a load into the group of those that it meets in its block, or into one of its own."""
    assert load.parent is not None
    mine = member.get(load)
    other = next((member[o] for o in together if o in member and o.parent is load.parent), None)
    if mine is None:
        joins = other is not None and _movable(load, other.loads)
        mine = other if other is not None and joins else _Group(load.parent)
        if mine not in found:
            found.append(mine)
        mine.loads.append(load)
        member[load] = mine
    elif other is not None and other is not mine and _movable(load, [*mine.loads, *other.loads]):
        mine.loads += other.loads
        member.update(dict.fromkeys(other.loads, mine))
        found.remove(other)


def place_ops(load: Load, also: Callable[[Operation], bool] = is_pure) -> list[Operation] | None:
    """The ops of a load's block that make its tile, in order; None where one of them is not pure, nor `also` asked
    for."""
    block = load.parent
    assert block is not None
    values = reached([load.tile], lambda value: operands_of(value, block))
    owners = {value.owner for value in values}
    found = [op for op in block.ops if op in owners]
    allowed = all((is_pure(op) or also(op)) and not op.regions for op in found)
    return found if allowed else None


def _movable(load: Load, others: Sequence[Load]) -> bool:
    """Can loads stand side by side, where the first of them stands?"""
    return all(place_ops(each) is not None for each in (load, *others))


def _obstacle(load: xetile.LoadTileOp, analysis: AccessAnalysis) -> str | None:
    """Why a load does not go through the copy engine; None if it does."""
    access = analysis.find(load)
    what = f"the {'x'.join(map(str, load.tile_type.get_shape()))} load of a product"
    if access is None or access.scattered or len(load.values) != 1:
        return f"{what} is not of one tile of one array: it is loaded by threads"
    name = access.root.name_hint or "its array"
    if not isinstance(load.tile.owner, xetile.InitTileOp):
        return f"{what} of {name} has an unknown position: it is loaded by threads"
    if not reachable(load):
        return f"{what} of {name} is in a loop without a counter: it is loaded by threads"
    if access.memory_space != 0 or padding_number(load.padding) != 0:
        return f"{what} is padded or in local memory: it is loaded by threads"
    if not analysis.read_only(access.root):
        return f"{what}: the kernel writes {name}: it is loaded by threads"
    if (reason := unaddressable(access, analysis)) is not None:
        return f"{what} of {name}: {reason}: it is loaded by threads"
    if part_for(load) is None:
        return f"{what} is not cut into lines of 32, 64 or 128 bytes: it is loaded by threads"
    last = _last_use(load)
    if last is None:
        return f"{what} is used beyond its block: it is loaded by threads"
    return None


LINE_UNIT = 16
"""Bytes that divide an array's base, its pitch, and where on a line a box of the copy engine begins."""


def unaddressable(access: Access, analysis: AccessAnalysis) -> str | None:
    """What keeps the copy engine from the array of an access."""
    type = access.base.type
    if access.base is not access.root or not isinstance(type, MemRefType):
        return "it is no whole array argument"
    rank = type.get_num_dims()
    ended = ended_dimensions(access.origin)
    for d, extent in enumerate(access.extents[-rank:]):
        if extent != analysis.extent(access.base, d) and d not in ended:
            return "its bounds are those of a part of the array"
    if not 1 <= rank <= MOST_DIMENSIONS:
        return f"rank {rank} is not 1 to {MOST_DIMENSIONS}"
    strides, offset = strided_form(type)
    fast = rank - 1 if access.tile_type.order == (1, 0) else rank - 2
    if offset != 0 or strides[fast] != 1:
        return "the tile's lines are not contiguous"
    if analysis.facts(access.root).align < LINE_UNIT:
        return "base or pitch is no multiple of 16 bytes"
    # Not in the manuals: a box that begins elsewhere is an illegal instruction.
    offsets, _ = tile_divisors(access.op.tile)  # pyright: ignore[reportAttributeAccessIssue]
    along = offsets[1] if access.tile_type.order == (1, 0) else offsets[0]
    if along * dtypes.from_mlir(type.element_type).itemsize % LINE_UNIT:
        return "its offset along the lines is not known to be a multiple of 16 bytes"
    return None


def ended_dimensions(op: xetile.InitTileOp) -> list[int]:
    """The dimensions in which a tile ends elsewhere than its array, and the copy engine can make it end there: that
    from line to line, with two more in a tensor map (`TensorMapOf`), and those of which a tile has one element.

    No tile of them may begin before the array. Of an array's own extents that have another form, nothing is lost.
    """
    type = op.source.type
    if not isinstance(type, MemRefType) or not op.mixed_sizes:
        return []
    rank, shape = type.get_num_dims(), type.get_shape()
    along = rank - 1 if op.tile_type.order == (1, 0) else rank - 2
    found: list[int] = []
    for d, (extent, offset) in enumerate(zip(op.mixed_sizes, op.mixed_offsets, strict=True)):
        own = isinstance(extent, SSAValue) and dimension_of(extent) == (op.source, d)
        if own or extent == shape[d] or d == along or not is_natural(offset):
            continue
        if d < rank - 2 or rank + 2 <= MOST_DIMENSIONS:
            found.append(d)
    return found


def part_of(tile: xetile.TileType) -> stage.PartAttr | None:
    """How a tile lies in a slot: the widest swizzle that divides its lines; None if none does."""
    rows, columns = tile.get_shape()
    itemsize = dtypes.from_mlir(tile.element_type).itemsize
    lines, line = (rows, columns) if tile.order == (1, 0) else (columns, rows)
    for width in (128, 64, 32):
        if line * itemsize % width == 0 and lines % 8 == 0:
            return stage.PartAttr((rows, columns), tile.element_type, tile.order, width)
    return None


def part_for(load: Load) -> stage.PartAttr | None:
    """How a load's tile lies in a slot, rounded if that is its only use; None where it cannot."""
    if isinstance(load, xetile.LoadGatherOp):
        return part_of(load.tile_type)
    part, rounding = part_of(load.tile_type), rounding_of(load)
    if part is None or rounding is None:
        return part
    kind = vector_type(rounding.result)
    return part.replaced(kind.element_type)


def _last_use(load: Load) -> Operation | None:
    """The last op of the load's block that uses its value, also transposed; None where it leaves the block."""
    block = load.parent
    assert block is not None
    last: Operation = load
    rounding = rounding_of(load) if isinstance(load, xetile.LoadTileOp) else None
    for user in users(load.results[0], also=rounding):
        here = block.find_ancestor_op_in_block(user)
        if here is None or user.name in ("scf.yield", "gpu.return"):
            return None
        last = later(last, here)
    return last


def _slots(families: list[list[_Group]], budget: BufferBudget) -> list[int]:
    """Slots per multi-buffer: those in loops get equally many, as many as fit; the others one, or two if room is
    left.
    """

    def slot_bytes(family: list[_Group]) -> int:
        return stage.MultiBufferType(1, _parts(family[0])).slot_bytes

    def fixed(family: list[_Group]) -> bool:
        return not in_loop(family[0].block)

    cyclic = sum(slot_bytes(f) for f in families if not fixed(f))
    single = sum(slot_bytes(f) for f in families if fixed(f))
    left = budget.bytes - single
    depth = max(0, min(budget.stages or MAX_STAGES, left // cyclic if cyclic else 1, MAX_STAGES))
    twice = depth >= 2 and left - depth * cyclic >= single
    return [(2 if twice else 1) * int(left >= 0) if fixed(f) else depth for f in families]


def in_loop(block: Block) -> bool:
    """Does a loop of the program stand around a block?"""
    around = (op for op in ops_around(block) if isinstance(op, scf.ForOp))
    return any(PROGRAMS not in op.attributes for op in around)


PROGRAMS = "stage.programs"
"""Marks the loop over the programs that one workgroup runs."""


def _parts(group: _Group) -> list[stage.PartAttr]:
    parts = [part_for(load) for load in group.loads]
    return [p for p in parts if p is not None]


def _build(function: gpu.FuncOp, family: list[_Group], slots: int) -> None:
    top = function.body.block
    buffer, state = new_buffer(top, slots, _parts(family[0]), "buffer")
    places: dict[Operation, Update] = {}
    for group in family:
        anchor = reduce(earlier, group.loads)
        _gather(group, anchor)
        places[anchor] = partial(_stage, buffer, group, anchor)
    carry(state, places, top)


def _gather(group: _Group, anchor: Operation) -> None:
    """Makes all tiles of a group before its first load."""
    for load in group.loads if len(group.loads) > 1 else ():
        assert isinstance(load, xetile.LoadTileOp)
        for op in place_ops(load) or ():
            if anchor.is_before_in_block(op):
                move([op], InsertPoint.before(anchor))


def _stage(
    buffer: stage.MultiBufferOp, group: _Group, anchor: Operation, here: SSAValue
) -> SSAValue:
    """Replaces the loads of a group by a fill of the multi-buffer at pipeline state `here`; the pipeline state after
    it.
    """
    uses = [u for load in group.loads if (u := _last_use(load)) is not None]
    last = reduce(later, [*group.loads, *uses])
    tiles = [load.tile for load in group.loads]
    issue: Operation = stage.CopyIssueOp(buffer.result, here, tiles, group.stored)
    if group.by_threads:
        mask = anchor.mask if isinstance(anchor, xetile.LoadGatherOp) else None
        issue = stage.GatherIssueOp(buffer.result, here, tiles[0], mask)
    wait = stage.CopyWaitOp(buffer.result, here)
    at = Before(anchor)
    at.insert(issue)
    at.insert(wait)
    following = hand_back(buffer, here, last)
    for load, value in zip(group.loads, wait.values, strict=True):
        value.name_hint = load.results[0].name_hint
        rounding = rounding_of(load) if isinstance(load, xetile.LoadTileOp) else None
        held = load.results[0] if rounding is None else rounding.result
        held.replace_all_uses_with(value)
        if rounding is not None:
            Rewriter.erase_op(rounding)
        Rewriter.erase_op(load)
    return following
