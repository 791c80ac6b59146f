"""xegpu-exchange-through-slm: what subgroups hand to each other goes through shared memory, in plain ops.

    %b = xegpu.convert_layout %a <{input_layout = #l, target_layout = #m}> : vector<64x64xf32>
    ->
    %m = xegpu.create_mem_desc %slm : memref<16384xi8, 3> -> !xegpu.mem_desc<64x64xf32>
    xegpu.store_matrix %a, %m[0, 0] <{layout = #l}> : ..
    %b = xegpu.load_matrix %m[0, 0] <{layout = #m}> : ..          (the barrier comes with xegpu-insert-barriers)

    %r = vector.multi_reduction <add>, %x, %c [1] : vector<64x64xf32> to vector<64xf32>   (4 subgroups a row)
    ->
    %y = vector.shape_cast %x : vector<64x64xf32> to vector<64x4x16xf32>
    %p = vector.multi_reduction <add>, %y, %0 [2] : vector<64x4x16xf32> to vector<64x4xf32>   within a subgroup
    xegpu.store_matrix %p, %m[0, 0]      %q = xegpu.load_matrix %m[0, 0]   whole rows of four for everyone who needs one
    %r = vector.multi_reduction <add>, %q, %c [1] : vector<64x4xf32> to vector<64xf32>

What comes back is loaded where it is used (`load_late`). A shape_cast between two conversions is a second matrix on the
same memory. A load that is only exchanged, and that several subgroups would do alike, is shared by all: each brings,
and stores, its part.

Requires: workgroup-level XeGPU with a layout on every value. Guarantees: the same results at workgroup level;
convert_layout and reductions that are left stay within subgroups. A conversion between layouts that give
every subgroup the same elements stays (it costs registers at most). Refuses an exchange that does not fit
the machine's shared memory, with the numbers (`ExchangesTooMuch`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    VectorType,
    i8,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright import layout as ly
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.combining import neutral
from tilewright.dialects.upstream.vector import (
    ExtractStridedSliceOp,
    InsertStridedSliceOp,
    MultiReductionOp,
    ShapeCastOp,
)
from tilewright.dialects.xegpu import MemDescType
from tilewright.layout import BoundMap, Distribution
from tilewright.layout.bound import kept_fields, on_field
from tilewright.passes.emit import Before, Behind, with_shape
from tilewright.passes.own_memory import shared_bytes
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.cooperative import cooperative
from tilewright.passes.xegpu.layout_defaults import bytes_of
from tilewright.passes.xegpu.load_late import load_late
from tilewright.uarch.xe import XeMachine

Shape = tuple[int, ...]


class ExchangesTooMuch(UnsupportedError):
    """A kernel whose subgroups hand to each other more than shared memory holds."""


def exchange_through_slm(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Exchanges data between subgroups through shared memory."""
    _Exchange(kernel, machine.memories["slm"].size).run()


def shared_load(value: SSAValue, have: Distribution) -> Distribution:
    """The layout of a value that goes to shared memory: a load that nobody else uses is shared, too, so that every
    subgroup brings a part of what several would bring alike."""
    if not isinstance(value.owner, xegpu.LoadNdOp) or not value.has_one_use():
        return have
    shape, kind = own.shape_of(value), value.type
    assert isinstance(kind, VectorType)
    layout = own.bound(have, shape)
    if layout.replicas(ly.Axis.SUBGROUP) == 1:
        return have
    found = cooperative(shape, kind.element_type, layout.subgroups)
    if own.replicas(found, shape) >= layout.replicas(ly.Axis.SUBGROUP):
        return have
    own.set_layout(value, found)
    return found


class _Exchange:
    def __init__(self, kernel: gpu.FuncOp, limit: int):
        self.kernel = kernel
        self.limit = limit
        self.buffers: dict[int, list[SSAValue]] = {}
        self.turn: dict[int, int] = {}
        self.used = sum(map(shared_bytes, kernel.walk()))

    def run(self) -> None:
        for op in list(self.kernel.walk()):
            if isinstance(op, MultiReductionOp):
                self.reduction(op)
        for op in list(self.kernel.walk()):
            if isinstance(op, xegpu.ConvertLayoutOp) and op.parent is not None:
                self.conversion(op)
            elif isinstance(op, xegpu.AtomicRMWOp):
                self.old_values(op)
        load_late(self.kernel)

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
        have = shared_load(op.source, have)
        at = Before(op)
        behind = self._reshaped(op)
        if behind is not None and (last := own.layout_of(behind.result)) is not None:
            # Memory has no shape: what is stored in one is loaded in the other.
            form = own.shape_of(behind.result)
            behind.result.replace_all_uses_with(self.exchange(at, op.source, have, last, form))
            cast = behind.source.owner
            assert isinstance(cast, Operation)
            for dead in (behind, cast, op):
                Rewriter.erase_op(dead)
            return
        at.replace(self.exchange(at, op.source, have, want))

    def _reshaped(self, op: xegpu.ConvertLayoutOp) -> xegpu.ConvertLayoutOp | None:
        """The conversion behind a shape_cast that alone uses this one, where both would go through memory."""
        kind = op.source.type
        uses = list(op.result.uses)
        cast = uses[0].operation if len(uses) == 1 else None
        if not isinstance(cast, ShapeCastOp) or not isinstance(kind, VectorType):
            return None
        uses = list(cast.result.uses)
        behind = uses[0].operation if len(uses) == 1 else None
        if not isinstance(behind, xegpu.ConvertLayoutOp) or behind.parent is not op.parent:
            return None
        size = bytes_of(own.shape_of(op.source), kind)
        if self.used + size > self.limit and not self._reusable(size):
            return None
        have, want = own.layout_of(behind.source), own.layout_of(behind.result)
        if have is None or want is None:
            return None
        return None if own.same_owners(have, want, own.shape_of(behind.result)) else behind

    def exchange(
        self,
        at: Before,
        value: SSAValue,
        have: Distribution,
        want: Distribution,
        form: Shape | None = None,
    ) -> SSAValue:
        """The value under another layout (and in another shape, `form`), through shared memory."""
        shape = own.shape_of(value)
        kind = vector_type(value)
        if self.used + bytes_of(shape, kind) > self.limit and not self._reusable(
            bytes_of(shape, kind)
        ):
            found = self.in_chunks(at, value, have, want)
            if found is not None:
                return found
        stored, back = self.to_memory(at, value, have)
        element = stored.type.element_type  # pyright: ignore
        buffer = self.buffer(at.op, shape, element)

        def view(shape: Shape) -> tuple[SSAValue, list[int]]:
            """The buffer as a matrix, and where it begins."""
            matrix = shape if len(shape) > 1 else (1, *shape)
            desc = xegpu.CreateMemDescOp(buffer, MemDescType(matrix, element))
            return at.add(desc), [0] * len(matrix)

        matrix = view(shape)
        at.insert(xegpu.StoreMatrixOp(stored, *matrix, layout=own.attribute(have)))
        if form is not None:
            shape, kind, matrix = form, with_shape(kind, form), view(form)
        loaded = at.add(
            xegpu.LoadMatrixOp(
                matrix[0], with_shape(element, shape), matrix[1], layout=own.attribute(want)
            )
        )
        if back is None:
            return loaded
        new: Operation = back(loaded, kind)
        own.set_layout(new.results[0], want)
        return at.add(new)

    def in_chunks(
        self, at: Before, value: SSAValue, have: Distribution, want: Distribution
    ) -> SSAValue | None:
        """The exchange in slices of every owner's part, which fit one after the other; None where no
        dimension can be cut so."""
        shape, kind = own.shape_of(value), value.type
        assert isinstance(kind, VectorType)
        for dim in reversed(range(len(shape))):
            try:
                sizes, mine = split_at(have, shape, dim)
                split = (*shape[:dim], *sizes, *shape[dim + 1 :])
                theirs = BoundMap(want, shape).reshaped(split).map
            except ly.LayoutError:
                continue
            cut = dim + len(sizes) - 1
            room = max((self.limit - self.used) // 4, *self.buffers, 0)
            count = 1
            while bytes_of(split, kind) // count > room and split[cut] % (2 * count) == 0:
                count *= 2
            whole = all(BoundMap(d, split).is_whole(cut) for d in (mine, theirs))
            if not whole or bytes_of(split, kind) // count > room:
                continue
            return self.slices(at, value, (mine, theirs, want), split, cut, count)
        return None

    def slices(
        self,
        at: Before,
        value: SSAValue,
        layouts: tuple[Distribution, Distribution, Distribution],
        split: Shape,
        cut: int,
        count: int,
    ) -> SSAValue:
        mine, theirs, want = layouts
        kind = vector_type(value)

        def with_layout(op: Operation, d: Distribution) -> SSAValue:
            own.set_layout(op.results[0], d)
            return at.add(op)

        width = split[cut] // count
        small = (*split[:cut], width, *split[cut + 1 :])
        parts = with_layout(ShapeCastOp(value, with_shape(kind, split)), mine)
        whole = at.constant(with_shape(kind, split), 0)
        own.set_layout(whole, theirs)
        # What instructions and lanes take of the whole may be more than a slice holds.
        from_part, to_part = (_narrowed(own.subgroup_part(d), cut, width) for d in (mine, theirs))
        for n in range(count):
            start = [n * width if i == cut else 0 for i in range(len(split))]
            fragment = with_layout(ExtractStridedSliceOp(parts, start, small), from_part)
            moved = self.exchange(at, fragment, from_part, to_part)
            whole = with_layout(InsertStridedSliceOp(moved, whole, start), theirs)
        return with_layout(ShapeCastOp(whole, kind), want)

    def to_memory(
        self, at: Before, value: SSAValue, d: Distribution
    ) -> tuple[SSAValue, Callable[..., Operation] | None]:
        """The value in a type that memory has, and how it comes back; None where it is such a type."""
        kind = vector_type(value)
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
                kind=ExchangesTooMuch,
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

    def _reusable(self, size: int) -> bool:
        """Whether memory of another exchange is large enough."""
        return any(n >= size for n in self.buffers)

    def part_of(self, whole: SSAValue, size: int) -> SSAValue:
        """The first bytes of another exchange's memory: barriers keep the two apart in time."""
        source = whole.type
        assert isinstance(source, MemRefType) and isinstance(whole.owner, Operation)
        view = memref.SubviewOp.from_static_parameters(whole, source, [0], [size], [1])
        return Behind(whole.owner).add(view)

    # --- Reductions ---------------------------------------------------------------------------------

    def reduction(self, op: MultiReductionOp) -> None:
        d = own.layout_of(op.source)
        if d is None:
            return
        shape = own.shape_of(op.source)
        dims = sorted(op.dims)
        layout = own.bound(d, shape)
        crossing = sorted(
            {x.dim for x in layout.on(ly.Axis.SUBGROUP) if x.dim is not None and x.dim in dims}
        )
        if crossing:
            _deliver(op)
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
        new = MultiReductionOp(op.kind, op.source, acc, op.dims)
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
        # Every crossing dimension becomes ([rounds,] owners, part).
        new_shape: list[int] = []
        split = d
        within: list[int] = []
        owners: list[int] = []
        for dim, extent in enumerate(shape):
            at_dim = len(new_shape)
            if dim not in crossing:
                within += [at_dim] if dim in dims else []
                new_shape.append(extent)
                continue
            sizes, split = split_at(split, (*new_shape, *shape[dim:]), at_dim)
            new_shape += sizes
            owners.append(at_dim + len(sizes) - 2)
            within += [at_dim + i for i in range(len(sizes)) if i != len(sizes) - 2]
        partial_layout = ly.slice_(split, within)
        partial_shape = [n for i, n in enumerate(new_shape) if i not in within]
        if all(new_shape[w] == 1 for w in within):
            # A subgroup has one element of a sum: there is nothing to reduce before the exchange.
            partial = at.cast(op.source, partial_shape)
            if partial is op.source:
                partial_layout = d
            else:
                own.set_layout(partial, partial_layout)
        else:
            cast = ShapeCastOp(op.source, with_shape(kind, new_shape))
            own.set_layout(cast.result, split)
            value = at.add(cast)
            start = at.constant(
                with_shape(kind, partial_shape), neutral(op.kind, kind.element_type)
            )
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
            bound = BoundMap(want, own.shape_of(op.dest))
            for place, owner in zip(places, owners, strict=True):
                bound = bound.held_whole(place, new_shape[owner])
            whole = bound.map
        gathered = self.exchange(at, partial, partial_layout, whole)
        last = MultiReductionOp(op.kind, gathered, op.acc, places)
        if want is not None:
            own.set_layout(last.dest, want)
        at.replace(at.add(last))


def _deliver(op: MultiReductionOp) -> None:
    """A conversion that alone uses the result goes: sums that pass through memory are read by any owner."""
    uses, acc = list(op.dest.uses), op.acc
    behind = uses[0].operation if len(uses) == 1 else None
    start = acc.owner
    if not isinstance(behind, xegpu.ConvertLayoutOp) or not isinstance(start, arith.ConstantOp):
        return
    want, value = own.layout_of(behind.result), start.value
    if want is None or not isinstance(value, DenseIntOrFPElementsAttr) or not value.is_splat():
        return
    new = start.clone()
    own.set_layout(new.result, want)
    op.operands[1] = Before(op).add(new)
    own.set_layout(op.dest, want)
    Rewriter.replace_op(behind, [], [op.dest])


def _narrowed(d: Distribution, dim: int, width: int) -> Distribution:
    return on_field(d, kept_fields(d)[dim], width)


def split_at(d: Distribution, shape: Shape, dim: int) -> tuple[list[int], Distribution]:
    """A dimension as (rounds, owners, part), or (owners, part) where there is one round."""
    fields = [i for i in range(d.field_rank) if i not in d.sliced]
    at = fields[dim]
    assert d.sg_layout is not None
    part = own.subgroup_part(d).part_shape(shape)[dim]
    groups = d.sg_layout[at]
    count = min(groups, shape[dim] // part)
    rounds = shape[dim] // (count * part)
    lead = [rounds] if rounds > 1 else []
    ones = [1] * len(lead)
    grow = len(lead) + 1

    def put(field: Shape | None, owners: int, inner: int) -> Shape | None:
        return None if field is None else (*field[:at], *ones, owners, inner, *field[at + 1 :])

    order = d.id_order
    moved: list[int] = []
    for o in order:
        moved += [*reversed(range(at, at + grow + 1))] if o == at else [o + grow if o > at else o]
    inst, lanes, data = d.inst_data, d.lane_layout, d.lane_data
    split = replace(
        d,
        sg_layout=put(d.sg_layout, groups, 1),
        sg_data=put(d.sg_data or d.sg_layout, 1, part),
        inst_data=put(inst, 1, inst[at] if inst is not None else 1),
        lane_layout=put(lanes, 1, lanes[at] if lanes is not None else 1),
        lane_data=put(data, 1, data[at] if data is not None else 1),
        order=tuple(moved),
        sliced=tuple(s + grow if s > at else s for s in d.sliced),
    )
    return [*lead, count, part], split
