"""Who owns what: a layout for every tile-shaped value of a kernel at workgroup level.

Values that elementwise ops, loops and branches tie together are one class and get one layout. Classes
are anchored, in this order: by products (the layout of C that the instruction has), by other ops that
demand one (`anchor`), by neighbours across reductions, broadcasts, transposes and reshapes, and last
by the memory that they are loaded from or stored to (vectors of 16 bytes, lanes along the contiguous
dimension). Where two classes meet, the rule of the op converts.

A value needs no assigned layout if it is cheaper to make it where it is used (`free`): constants, splats, index
vectors, broadcasts, elementwise ops on these, and small loads of arrays that the kernel does not
write.

Requires: a kernel at workgroup level. Guarantees: every layout has all lanes and all warps of the team
(those that have nothing of their own hold replicas), and extents are powers of two per lane and warp
digit (but the slowest one of warps), so that places are linear in the bits of the thread's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from math import gcd, prod
from typing import Any

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from tilewright.codegen.registers import strided_form
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import stage
from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import BROADCASTS, LAYOUTS, is_vector, operand_layout, shape_of
from tilewright.dialects.nesting import blocks_in
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.strided import static_strides
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp, InsertStridedSliceOp
from tilewright.frozen import record
from tilewright.layout import Axis, Layout, LayoutError
from tilewright.passes.ownership import Planner, Relation, attempt, rearranged, reduced
from tilewright.passes.tile_origin import (
    is_read_only,
    root_of,
    tile_alignment,
    tile_divisors,
    tile_origin,
)
from tilewright.rules import Rules
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda.products import ProductPlan, plan_product
from tilewright.targets.cuda.runs import vector_of
from tilewright.uarch import Machine
from tilewright.uarch.nvidia import LANES, REGISTER_FILE

CONSTANT, REMATERIALIZED, ASSIGNED = "constant", "rematerialized", "assigned"

MOST_ACROSS = 8
"""Lines of vectors that a thread holds of what is read along one dimension and written along the other."""
LANES_ALONG = 8
"""Lanes along the first of these dimensions; along the other there are four."""

SECTOR = 32
"""Bytes that memory moves at least."""

PARTS = ExtractStridedSliceOp, InsertStridedSliceOp
"""Ops that cut values in parts, or put them together of these."""

COPIES = (16, 8, 4)
"""Bytes that a thread copies at a time (cp.async)."""
Anchor = Callable[[Any, int], Mapping[SSAValue, Layout]]
"""(op, warps) -> layouts that the op demands of values."""

anchor: Rules[Anchor] = Rules()
"""Which layouts ops demand."""


@record
class Ownership:
    """The result: `assigned_layouts` of values, the plans of products, and the number of warps."""

    warps: int
    assigned_layouts: dict[SSAValue, Layout] = field(default_factory=dict[SSAValue, Layout])
    products: dict[Operation, ProductPlan] = field(default_factory=dict[Operation, ProductPlan])
    resident: int = 1
    """Workgroups that a multiprocessor should hold at a time: registers and memory are shared so."""

    def default(self, type: Attribute) -> Layout:
        """The layout of a tile about which nothing is known."""
        assert isinstance(type, VectorType)
        return default_layout(type.get_shape(), len(type.get_shape()) - 1, 4, self.warps)


def default_layout(
    shape: tuple[int, ...],
    fast: int,
    size: int,
    warps: int,
    most: int = 16,
    both: bool = False,
    warps_fast: bool = False,
    parts: int = 1,
) -> Layout:
    """Vectors of 16 bytes along `fast` (of `most` elements at most), shorter where threads would have
    nothing otherwise. `both`: square blocks of them, so that they are vectors along the other dimension, too; `parts`:
    as many along `fast` that each thread has alike of, as far as they have elements enough."""
    vector = min(most, 16 // max(1, size), MOST_ACROSS if both else most)
    threads = LANES * warps
    across = vector if both else 1
    while vector > 1 and prod(shape) < vector * across * threads:
        if vector == across:
            across //= 2
        else:
            vector //= 2
    while prod(shape) < vector * across * parts * threads and parts > 1:
        parts //= 2
    lanes = LANES_ALONG if both else LANES
    return bl.blocked(shape, fast, vector, warps, lanes, across, warps_fast, parts)


def contiguous_dimension(tile: SSAValue) -> int:
    """Dimension of a tile along which its memory is contiguous (1 if that is not known)."""
    kind = tile.type
    assert isinstance(kind, xt.TileType)
    if kind.order == (0, 1):
        return 0
    origin = tile_origin(tile)
    if origin is None:
        return len(kind.get_shape()) - 1
    strides: list[object] = list(origin.mixed_strides)
    if not strides and isinstance(origin.source.type, MemRefType):
        strides = list(strided_form(origin.source.type)[0])
    known = list(strides[-2:])
    if len(known) == 2 and known[0] == 1 and known[1] != 1:
        return 0
    return len(kind.get_shape()) - 1


def widest_vector(tile: SSAValue, fast: int) -> int:
    """Elements along `fast` that one aligned access of a tile's memory moves at most (1 to 16).

    Where it is 1, neighbouring lanes should have neighbouring elements: a vector of them per lane would
    be moved one by one, each access spread over many lines.
    """
    kind = tile.type
    assert isinstance(kind, xt.TileType)
    root = root_of(tile)
    if kind.memory_space != 0 or root is None:
        return 16
    size = itemsize(kind.element_type)
    alignment = tile_alignment(tile, size)
    offsets, _ = tile_divisors(tile)
    width = max(1, 16 // size)
    while width > 1 and (alignment % (width * size) or offsets[fast] % width):
        width //= 2
    return width


def copied_bytes(tile: SSAValue) -> int:
    """Of a tile's lines that one thread may copy at a time; 0 where they are not contiguous."""
    assert isinstance(tile.type, xt.TileType)
    fast, strides = contiguous_dimension(tile), _strides(tile)
    width = gcd(widest_vector(tile, fast), strides[1 - fast] or 0)
    return width * itemsize(tile.type.element_type) if strides[fast] == 1 else 0


def _strides(tile: SSAValue) -> list[int | None]:
    """Elements from one row and one column to the next; None for what is known at run time."""
    init = tile.owner
    assert isinstance(init, xt.InitTileOp)
    strides: list[int | None] = [constant(n) for n in init.mixed_strides]
    if not strides and isinstance(init.source.type, MemRefType):
        strides = static_strides(init.source.type)
    return [0, *strides][-2:]


class _Ownership:
    """Which values have assigned layouts, what ties them, and where memory asks for a layout."""

    def __init__(self, body: Block, warps: int, machine: Machine | None):
        self.body = body
        self.out = Ownership(warps)
        self.machine = machine
        self.kind: dict[SSAValue, str] = {}
        self.written: dict[Operation, set[SSAValue | None]] = {}
        self.anchored: dict[SSAValue, Layout] = {}
        self.memory: list[tuple[SSAValue, int, int, int]] = []
        """(value, contiguous dimension, element size, widest vector) of accesses."""

    def run(self) -> Ownership:
        self.block(self.body)
        used = (v for op in self.body.walk() for v in op.operands)
        self.plan = Planner[Layout]((*self.kind, *used), owned=self.is_assigned)
        for op in self.body.walk():
            self.link(op)
        self.resolve()
        return self.out

    # Kinds and classes --------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for op in block.walk():
            for arg in (arg for inner in blocks_in(op) for arg in inner.args if is_vector(arg)):
                self.kind[arg] = ASSIGNED
            self.classify(op)

    def classify(self, op: Operation) -> None:
        tiles = [v for v in op.operands if is_vector(v)]
        kinds = {self.kind.get(v, ASSIGNED) for v in tiles}
        if isinstance(op, arith.ConstantOp) or op.name == "vector.step":
            kind = CONSTANT
        elif op.name in BROADCASTS:
            kind = CONSTANT if not kinds or kinds == {CONSTANT} else REMATERIALIZED
        elif (op.name in LAYOUTS and LAYOUTS[op.name][1]) or is_elementwise_on_vectors(op):
            kind = CONSTANT if kinds <= {CONSTANT} else ASSIGNED
        elif self.is_small_load(op):
            kind = REMATERIALIZED
        else:
            kind = ASSIGNED
        for result in op.results:
            if is_vector(result):
                self.kind[result] = kind

    def is_small_load(self, op: Operation) -> bool:
        """A row or column of an array that nothing writes, used next to where it is loaded, and in no loop there."""
        if not isinstance(op, xt.LoadTileOp) or len(op.values) != 1:
            return False
        shape = shape_of(op.result)
        if 1 not in shape or prod(shape) > 4096:
            return False
        if not _used_nearby(op.result, op):
            return False
        return is_read_only(op.tile, self.written)

    def is_assigned(self, v: SSAValue) -> bool:
        return is_vector(v) and self.kind.get(v, ASSIGNED) == ASSIGNED

    # Constraints --------------------------------------------------------------------------------

    def link(self, op: Operation) -> None:
        self.plan.tie_alike(op)
        self.relate(*rearranged(op), *reduced(op))
        if is_elementwise_on_vectors(op):
            for operand in op.operands:
                self.through_broadcast(operand, op.results[0])
        elif isinstance(op, xt.TileMmaOp):
            plan = plan_product(op, self.out.warps, self.machine)
            self.out.products[op] = plan
            self.anchored.setdefault(op.result, plan.c)
        elif isinstance(op, xt.LoadTileOp):
            for value in op.values:
                fast = contiguous_dimension(op.tile)
                most = widest_vector(op.tile, fast)
                self.memory.append((value, fast, itemsize(op.tile_type.element_type), most))
        elif isinstance(op, stage.ReadOp | stage.LocalStoreOp):
            value = op.result if isinstance(op, stage.ReadOp) else op.value
            if (part := _part_of(op)) is not None:
                self.memory.append((value, 1 if part.row_major else 0, part.itemsize, 16))
        elif isinstance(op, xt.StoreTileOp):
            self.plan.tie((op.value, *([op.mask] if op.mask is not None else [])))
            fast = contiguous_dimension(op.tile)
            size = itemsize(op.tile_type.element_type)
            self.memory.append((op.value, fast, size, widest_vector(op.tile, fast)))
        elif isinstance(op, xt.AtomicRmwOp | xt.StoreScatterOp | xt.LoadGatherOp):
            value = op.result if isinstance(op, xt.LoadGatherOp) else op.value
            self.plan.tie([*([op.mask] if op.mask is not None else []), value, *op.results])
            size, last = itemsize(op.tile_type.element_type), len(shape_of(value)) - 1
            most = 1 if isinstance(op, xt.AtomicRmwOp) else vector_of(op.tile, op.mask)
            known = (value, last, size, most) if most > 1 else (value, last, max(4, size), 16)
            self.memory.append(known)
        elif isinstance(op, xt.ReductionOp):
            run, dims = op.reduction_size, op.dims
            self.relate(Relation(op, op.source, op.result, lambda y: _contracted(y, dims, run)))
        elif isinstance(op, InsertStridedSliceOp):
            self.plan.tie((op.dest, op.result))
            self.relate(Relation(op, op.result, op.source, lambda y: part_layout(op, y)))
        elif isinstance(op, stage.ClusterSumOp):
            shape = shape_of(op.result)
            origin = (0,) * len(shape)
            self.relate(Relation(op, op.value, op.result, lambda x: x.boxed(origin, shape)))
        if (demands := anchor.of(op.name)) is not None:
            for value, layout in demands(op, self.out.warps).items():
                self.anchored.setdefault(value, layout)

    def relate(self, *relations: Relation[Layout]) -> None:
        """Of what is derived only the layouts that threads can have."""
        for each in relations:
            forth, back = (each.forth and even(each.forth)), (each.back and even(each.back))
            self.plan.relate(replace(each, forth=forth, back=back))

    def through_broadcast(self, operand: SSAValue, result: SSAValue) -> None:
        """`result` uses a broadcast: its source is best held as the contraction of the result."""
        if self.kind.get(operand) != REMATERIALIZED or not isinstance(operand, OpResult):
            return
        op = operand.op
        if op.name not in BROADCASTS or not op.operands or not self.is_assigned(op.operands[0]):
            return
        self.relate(Relation(op, result, op.operands[0], lambda y: operand_layout(op, y)))

    # Layouts ------------------------------------------------------------------------------------

    def resolve(self) -> None:
        plan = self.plan
        for value, layout in self.anchored.items():
            plan.assign(value, layout)
        members = [v for v, k in self.kind.items() if k == ASSIGNED]
        # Loads and stores of the widest elements decide about vectors.
        memory: dict[SSAValue, tuple[int, int, int]] = {}
        for value, fast, size, most in self.memory:
            if not self.is_assigned(value):
                continue
            root = plan.find(value)
            known = memory.get(root, (fast, 0, 16))
            wider = (fast, size) if size > known[1] else known[:2]
            memory[root] = (*wider, min(most, known[2]))
        plan.follow()
        # Of equals, the first in the program.
        roots = dict.fromkeys(plan.find(v) for v in members)
        for root in sorted(roots, key=lambda r: (-prod(shape_of(r)), r not in memory)):
            shape = shape_of(root)
            fast, size, most = memory.get(root, (len(shape) - 1, 4, 16))
            parts = self.parts(root, fast, size)
            layout = default_layout(shape, fast, size, self.out.warps, most, parts=parts)
            if self.is_turned(root, layout, memory):
                layout = default_layout(shape, fast, size, self.out.warps, most, both=True)
            elif fast == len(shape) - 1:
                # Sums of rows of a wide tile: warps side by side have columns of their own; in front of one
                # another each holds all of them, here more than half of its registers.
                wide = default_layout(
                    shape, fast, size, self.out.warps, most, warps_fast=True, parts=parts
                )
                room = min(256, REGISTER_FILE // (LANES * self.out.warps))
                held = self.held_beside(root, layout)
                if 2 * held > room and 2 * self.held_beside(root, wide) < held:
                    layout = wide
            if plan.assign(root, layout):
                plan.follow()
        self.out.assigned_layouts = {v: plan.layouts[plan.find(v)] for v in members}

    def parts(self, root: SSAValue, fast: int, size: int) -> int:
        """Into how many along `fast` ops cut a class, of one extent, a sector of memory at least: what stands in them
        at one place meets without an exchange where a thread has all of it."""
        shape, found = shape_of(root), 1
        for relation in self.plan.of(root):
            op = relation.op
            if not isinstance(op, PARTS) or self.plan.find(relation.a) is not root:
                continue
            extents = shape_of(relation.b)
            if len(extents) != len(shape):
                continue
            # An op that takes parts may give offsets of the first dimensions only.
            offset = op.offsets[fast] if fast < len(op.offsets) else 0
            count, rest = divmod(shape[fast], extents[fast])
            alike = rest == 0 and offset % extents[fast] == 0 and not count & (count - 1)
            if alike and prod(extents) * count == prod(shape) and extents[fast] * size >= SECTOR:
                found = max(found, count)
        return found

    def is_turned(
        self, root: SSAValue, layout: Layout, memory: Mapping[SSAValue, tuple[int, int, int]]
    ) -> bool:
        """Does memory move what is as large as a class, in vectors, along a dimension across those of its layout?"""
        if root not in memory or bl.run_along(layout)[1] == 1:
            return False
        for other, found in self.derived(root, layout):
            if found.size == layout.size and other in memory:
                fast, _, most = memory[other]
                if most > 1 and bl.run_along(found)[0] != fast:
                    return True
        return False

    def held_beside(self, root: SSAValue, layout: Layout) -> int:
        """Registers of what a class is reduced to, or broadcast from."""
        found = dict(self.derived(root, layout))
        return sum(each.registers for each in found.values() if each.size < layout.size)

    def derived(self, root: SSAValue, layout: Layout) -> Iterator[tuple[SSAValue, Layout]]:
        """The classes beside one, and their layouts if that has `layout`."""
        for relation in self.plan.of(root):
            forth = self.plan.find(relation.a) is root
            other = self.plan.find(relation.b if forth else relation.a)
            found = attempt(relation.forth if forth else relation.back, layout)
            if found is not None:
                yield other, found


def _part_of(op: stage.ReadOp | stage.LocalStoreOp) -> stage.PartAttr | None:
    """How the tile that an op reads or writes lies in its slot."""
    if isinstance(op, stage.LocalStoreOp):
        return buffer_type(op.buffer).parts.data[0]
    wait = op.tile.owner
    if not isinstance(wait, stage.CopyWaitOp):
        return None
    return buffer_type(wait.buffer).parts.data[list[SSAValue](wait.values).index(op.tile)]


def _used_nearby(value: SSAValue, op: Operation) -> bool:
    """Is a value, also once broadcast, used in the block of `op` only, and not carried by a loop?"""
    return all(
        use.operation.parent is op.parent
        and not isinstance(use.operation, scf.ForOp | scf.YieldOp)
        and (
            use.operation.name not in BROADCASTS
            or all(_used_nearby(r, op) for r in use.operation.results)
        )
        for use in value.uses
    )


def is_even(layout: Layout) -> bool:
    """Are places linear in the bits of a thread's number? Then all digits but the last are powers of two."""
    for axis in (Axis.LANE, Axis.SUBGROUP):
        digits = layout.on(axis)
        last = max((d.weight for d in digits), default=0)
        for d in digits:
            if d.weight & (d.weight - 1) or (d.size & (d.size - 1) and d.weight != last):
                return False
    return True


def even(derive: Callable[[Layout], Layout | None]) -> Callable[[Layout], Layout | None]:
    """What is derived, where threads can have it."""

    def checked(layout: Layout) -> Layout | None:
        made = derive(layout)
        return made if made is not None and is_even(made) else None

    return checked


def part_layout(op: InsertStridedSliceOp, layout: Layout) -> Layout:
    """Of a part that is put into a value of `layout`, so that no element changes its owner; LayoutError where those
    that have the part tell it from others."""
    shape = shape_of(op.source)
    if len(shape) != layout.rank:
        raise LayoutError("the part has fewer dimensions")
    return layout.boxed(op.offsets, shape)


def _contracted(layout: Layout, dims: Iterable[int], run: int | None) -> Layout:
    for dim in dims:
        layout = layout.contracted(dim, run)
    return layout


def plan_ownership(body: Block, warps: int, machine: Machine | None) -> Ownership:
    """Layouts of all values of a kernel's body, or of one role's, over `warps` warps. Without a machine, no matrix
    instructions are used."""
    return _Ownership(body, warps, machine).run()
