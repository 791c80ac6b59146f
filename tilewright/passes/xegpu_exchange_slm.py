"""xegpu-exchange-through-slm: what subgroups hand to each other goes through shared memory, in plain ops.

    %b = xegpu.convert_layout %a <{input_layout = #l, target_layout = #m}> : vector<64x64xf32>
    ->
    %m = xegpu.create_mem_desc %slm : memref<16384xi8, 3> -> !xegpu.mem_desc<64x64xf32>
    xegpu.store_matrix %a, %m[0, 0] <{layout = #l}> : ..
    %b = xegpu.load_matrix %m[0, 0] <{layout = #m}> : ..          (the barrier comes with xegpu-place-barriers)

    %r = vector.multi_reduction <add>, %x, %c [1] : vector<64x64xf32> to vector<64xf32>   (4 subgroups a row)
    ->
    %y = vector.shape_cast %x : vector<64x64xf32> to vector<64x4x16xf32>
    %p = vector.multi_reduction <add>, %y, %0 [2] : vector<64x4x16xf32> to vector<64x4xf32>   within a subgroup
    xegpu.store_matrix %p, %m[0, 0]      %q = xegpu.load_matrix %m[0, 0]   whole rows of four for everyone who needs one
    %r = vector.multi_reduction <add>, %q, %c [1] : vector<64x4xf32> to vector<64xf32>

Requires: workgroup-level XeGPU with a layout on every value. Guarantees: the same results at workgroup level;
convert_layout and reductions that are left stay within subgroups. A conversion between layouts that give
every subgroup the same elements stays (it costs registers at most). Refuses an exchange that does not fit
the machine's shared memory, with the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from xdsl.context import Context
from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    VectorType,
    i8,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from tilewright import layout as ly
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import MultiReductionOp, ShapeCastOp
from tilewright.dialects.xegpu import MemDescType
from tilewright.dialects.xegpu.types import element_bits
from tilewright.layout import Distribution
from tilewright.passes import xegpu_layout_text as own
from tilewright.passes.xegpu_emit import Before, neutral, with_shape
from tilewright.passes.xegpu_layout_relations import inserted_dim
from tilewright.passes.xegpu_wg_to_sg import workgroup_kernels
from tilewright.uarch import machine


@dataclass(frozen=True)
class XeGPUExchangeThroughSlm(ModulePass):
    """See the module's docstring."""

    name = "xegpu-exchange-through-slm"

    chip: str = "pvc"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        limit = machine(f"xe-{self.chip}").memories["slm"].size
        for kernel in workgroup_kernels(op):
            _Exchange(kernel, limit).run()


class _Exchange:
    def __init__(self, kernel: gpu.FuncOp, limit: int):
        self.kernel = kernel
        self.limit = limit
        self.buffers: dict[int, list[SSAValue]] = {}
        self.turn: dict[int, int] = {}
        self.used = _allocated(kernel)

    def run(self) -> None:
        for op in list(self.kernel.walk()):
            if isinstance(op, MultiReductionOp):
                self.reduction(op)
        for op in list(self.kernel.walk()):
            if isinstance(op, xegpu.ConvertLayoutOp):
                self.conversion(op)
            elif isinstance(op, xegpu.AtomicRMWOp):
                self.old_values(op)

    def old_values(self, op: xegpu.AtomicRMWOp) -> None:
        """One of several owners does the atomic, and hands what it got to the others."""
        d = own.layout_of(op.result)
        uses = list(op.result.uses)
        if d is None or not uses or own.replicas(d, own.shape_of(op.result)) == 1:
            return
        behind = op.next_op
        assert behind is not None
        at = Before(behind)
        value = self.exchange(at, op.result, d, d)
        for use in uses:
            use.operation.operands[use.index] = value

    # --- Conversions ------------------------------------------------------------------------------

    def conversion(self, op: xegpu.ConvertLayoutOp) -> None:
        have, want = own.layout_of(op.source), own.layout_of(op.result)
        shape = own.shape_of(op.source)
        if have is None or want is None or own.same_owners(have, want, shape):
            return
        at = Before(op)
        at.replace(self.exchange(at, op.source, have, want))

    def exchange(
        self, at: Before, value: SSAValue, have: Distribution, want: Distribution
    ) -> SSAValue:
        """The value under another layout, through shared memory."""
        shape = own.shape_of(value)
        kind = value.type
        assert isinstance(kind, VectorType)
        stored, back = self.to_memory(at, value, have)
        element = stored.type.element_type  # pyright: ignore
        matrix = shape if len(shape) > 1 else (1, *shape)
        desc = MemDescType(matrix, element)
        view = at.add(xegpu.CreateMemDescOp(self.buffer(at.op, matrix, element), desc))
        zero = [0] * len(matrix)
        at.insert(xegpu.StoreMatrixOp(stored, view, zero, own.attribute(have)))
        loaded = at.add(
            xegpu.LoadMatrixOp(view, zero, VectorType(element, list(shape)), own.attribute(want))
        )
        if back is None:
            return loaded
        new: Operation = back(loaded, kind)
        own.set_layout(new.results[0], want)
        return at.add(new)

    def to_memory(
        self, at: Before, value: SSAValue, d: Distribution
    ) -> tuple[SSAValue, Callable[..., Operation] | None]:
        """The value in a type that memory has, and how it comes back; None where it is such a type."""
        kind = value.type
        assert isinstance(kind, VectorType)
        shape = kind.get_shape()
        if isinstance(kind.element_type, IndexType):
            wide = arith.IndexCastOp(value, VectorType(i64, shape))  # pyright: ignore
            back = arith.IndexCastOp
        elif isinstance(kind.element_type, IntegerType) and kind.element_type.width.data < 8:
            wide = arith.ExtUIOp(value, VectorType(i8, shape))  # pyright: ignore
            back = arith.TruncIOp
        else:
            return value, None
        own.set_layout(wide.results[0], d)
        return at.add(wide), back

    def buffer(self, op: Operation, shape: tuple[int, ...], element: Attribute) -> SSAValue:
        """Shared memory for one exchange: two of a size take turns, so that one barrier per exchange
        is enough."""
        size = prod(shape) * element_bits(element) // 8
        known = self.buffers.setdefault(size, [])
        turn = self.turn.get(size, 0)
        self.turn[size] = 1 - turn
        if len(known) > turn:
            return known[turn]
        if self.used + size > self.limit:
            if known:
                return known[0]
            larger = [n for n in self.buffers if n > size and self.buffers[n]]
            if larger:
                return self.part_of(self.buffers[min(larger)][0], size)
            raise error_at(
                op,
                f"{op.name} exchanges {size} bytes between subgroups through shared memory; with the "
                f"{self.used} bytes in use that is more than the machine's {self.limit}",
                hint="a layout that keeps the value within its subgroups, or a smaller tile",
                kind=UnsupportedError,
            )
        self.used += size
        alloc = memref.AllocOp([], [], MemRefType(i8, [size], memory_space=IntegerAttr(3, i64)))
        block = self.kernel.body.block
        first = block.first_op
        assert first is not None
        block.insert_op_before(alloc, first)
        alloc.memref.name_hint = "exchange"
        known.append(alloc.memref)
        return alloc.memref

    def part_of(self, whole: SSAValue, size: int) -> SSAValue:
        """The first bytes of another exchange's memory: barriers keep the two apart in time."""
        source = whole.type
        assert isinstance(source, MemRefType) and isinstance(whole.owner, Operation)
        view = memref.SubviewOp.from_static_parameters(whole, source, [0], [size], [1])
        block = whole.owner.parent_block()
        assert block is not None
        block.insert_op_after(view, whole.owner)
        return view.result

    # --- Reductions ---------------------------------------------------------------------------------

    def reduction(self, op: MultiReductionOp) -> None:
        d = own.layout_of(op.source)
        if d is None:
            return
        shape = own.shape_of(op.source)
        dims = sorted(int(x) for x in op.dims_attr.get_values())
        layout = own.bound(d, shape)
        crossing = sorted(
            {x.dim for x in layout.on(ly.Axis.SUBGROUP) if x.dim is not None and x.dim in dims}
        )
        if crossing:
            self.in_two_steps(op, d, shape, dims, crossing)
        elif isinstance(op.dest.type, VectorType):
            self.then_convert(op, ly.slice_(d, dims))

    def then_convert(self, op: MultiReductionOp, native: Distribution) -> None:
        """The result is where the reduction leaves it, and is converted."""
        want = own.layout_of(op.dest)
        shape = own.shape_of(op.dest)
        if want is None or own.same_owners(native, want, shape):
            return
        at = Before(op)
        acc = op.acc
        have = own.layout_of(acc)
        if have is not None and not own.same_owners(native, have, shape):
            acc = at.add(xegpu.ConvertLayoutOp(acc, own.attribute(native), own.attribute(have)))
        new = MultiReductionOp(op.kind, op.source, acc, [int(x) for x in op.dims_attr.get_values()])
        own.set_layout(new.dest, native)
        value = at.add(new)
        at.replace(at.add(xegpu.ConvertLayoutOp(value, own.attribute(want), own.attribute(native))))

    def in_two_steps(
        self,
        op: MultiReductionOp,
        d: Distribution,
        shape: tuple[int, ...],
        dims: list[int],
        crossing: list[int],
    ) -> None:
        at = Before(op)
        kind = op.source.type
        assert isinstance(kind, VectorType)
        # Every crossing dimension becomes (rounds, owners, part).
        new_shape: list[int] = []
        split = d
        within: list[int] = []
        owners: list[int] = []
        kept_before_owner: list[int] = []
        part = own.subgroup_part(d).part_shape(shape)
        for dim, extent in enumerate(shape):
            if dim not in crossing:
                if dim in dims:
                    within.append(len(new_shape))
                new_shape.append(extent)
                continue
            fields = [i for i in range(split.field_rank) if i not in split.sliced]
            at_field = fields[len(new_shape)]
            assert split.sg_layout is not None
            groups = split.sg_layout[at_field]
            count = min(groups, extent // part[dim])
            rounds = extent // (count * part[dim])
            kept_before_owner.append(len(new_shape) + 1)
            within += [len(new_shape), len(new_shape) + 2]
            owners.append(len(new_shape) + 1)
            split = split_dim(split, at_field, groups, part[dim])
            new_shape += [rounds, count, part[dim]]
        cast = ShapeCastOp(op.source, with_shape(kind, new_shape))
        own.set_layout(cast.result, split)
        value = at.add(cast)
        partial_layout = ly.slice_(split, within)
        partial_shape = [n for i, n in enumerate(new_shape) if i not in within]
        start = at.splat(neutral(op.kind, kind.element_type), with_shape(kind, partial_shape))
        own.set_layout(start, partial_layout)
        first = MultiReductionOp(op.kind, value, start, within)
        own.set_layout(first.dest, partial_layout)
        partial = at.add(first)
        places = [o - sum(1 for w in within if w < o) for o in owners]
        want = own.layout_of(op.dest)
        if want is None:
            subgroups = d.subgroups
            whole = own.replicated(subgroups, len(partial_shape), partial_shape)
        else:
            whole = want
            for place, owner in zip(places, owners, strict=True):
                whole = inserted_dim(whole, place, new_shape[owner])
        gathered = self.exchange(at, partial, partial_layout, whole)
        last = MultiReductionOp(op.kind, gathered, op.acc, places)
        if want is not None:
            own.set_layout(last.dest, want)
        at.replace(at.add(last))


def split_dim(d: Distribution, at: int, groups: int, part: int) -> Distribution:
    """A field dimension as three: rounds, owners, part."""

    def put(field: tuple[int, ...] | None, values: tuple[int, int, int]) -> tuple[int, ...] | None:
        return None if field is None else (*field[:at], *values, *field[at + 1 :])

    order = d.order or tuple(reversed(range(d.field_rank)))
    moved: list[int] = []
    for o in order:
        moved += [at + 2, at + 1, at] if o == at else [o + 2 if o > at else o]
    inst = d.inst_data
    lanes, data = d.lane_layout, d.lane_data
    return replace(
        d,
        sg_layout=put(d.sg_layout, (1, groups, 1)),
        sg_data=put(d.sg_data, (1, 1, part)),
        inst_data=put(inst, (1, 1, inst[at] if inst is not None else 1)),
        lane_layout=put(lanes, (1, 1, lanes[at] if lanes is not None else 1)),
        lane_data=put(data, (1, 1, data[at] if data is not None else 1)),
        order=tuple(moved),
        sliced=tuple(s + 2 if s > at else s for s in d.sliced),
    )


def _allocated(kernel: gpu.FuncOp) -> int:
    """Bytes of shared memory that the program has already."""
    total = 0
    for op in kernel.walk():
        if isinstance(op, memref.AllocOp | memref.AllocaOp):
            type = op.memref.type
            assert isinstance(type, MemRefType)
            if "3" in str(type.memory_space) or "workgroup" in str(type.memory_space):
                kind = type.element_type
                bits = element_bits(kind) if isinstance(kind, (AnyFloat, IntegerType)) else 64
                total += prod(type.get_shape()) * bits // 8
    return total
