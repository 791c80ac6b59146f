"""Subgroup to lane, memory: block, scattered and matrix accesses on what one lane holds.

Part of :mod:`tilewright.passes.xegpu_subgroup_distribute`. A 2D block op becomes the message whose form deals the
block as the value's users want it. Where the machine has none (`tilewright.scattered`, or no form fits) every
lane computes the addresses of its own registers: neighbours in memory go together in one access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    UnitAttr,
    VectorType,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.xegpu.rules_block import full_load_shape
from tilewright.dialects.xegpu.types import element_bits
from tilewright.dialects.xetile.assembly import Index, split_indices
from tilewright.layout.blocks import lane_map
from tilewright.passes.xegpu_blocks import (
    SCATTERED,
    Block,
    created,
    fits,
    form_layout,
    stays_in_lanes,
    surface,
    surface_fault,
)
from tilewright.passes.xegpu_fragments import Fragment, Register, element_of
from tilewright.passes.xegpu_lane_values import LaneValues
from tilewright.passes.xegpu_ownership import natural, shape_of

_HINTS = ("l1_hint", "l2_hint", "l3_hint")


@dataclass(frozen=True)
class Surface:
    """A base as a row of elements: address or 1-D memref, and its matrix' sizes and strides."""

    base: SSAValue
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    bounded: bool


class LaneMemory(LaneValues):
    """Handlers of memory ops."""

    # --- Descriptors -----------------------------------------------------------------------------

    def create_nd_tdesc(self, op: xegpu.CreateNdDescOp) -> None:
        new = type(op).create(
            operands=[self.env[v] for v in op.operands],
            properties=dict(op.properties),
            result_types=[op.tdesc.without_layout()],
        )
        made = self.add(new)
        made.name_hint = op.result.name_hint
        self.env[op.result] = made

    def access_properties(self, op: Operation) -> dict[str, Attribute]:
        dropped = ("layout", "packed", "transpose", "transpose_bit_width")
        return {k: v for k, v in op.properties.items() if k not in dropped}

    def is_scattered(self, op: xegpu.BlockAccess) -> bool:
        if SCATTERED in op.attributes:
            return True
        if len(op.tdesc.get_shape()) < 2 and self.owners.xe.blocks:
            return False
        source = created(op.operands[op.tdesc_operand])
        return source is not None and surface_fault(self.owners.xe, source) is not None

    # --- Blocks ------------------------------------------------------------------------------------

    def load_nd(self, op: xegpu.LoadNdOp) -> None:
        if self.is_scattered(op):
            self.scattered_load(op)
            return
        layout, extra = self.load_form(op)
        if layout is None:
            self.scattered_load(op)
            return
        new = type(op).create(
            operands=[self.env[v] for v in op.operands],
            properties=self.access_properties(op) | extra,
            result_types=[self.fragment_type(op.value, layout)],
        )
        self.give_vector(op.value, self.add(new), layout)

    def fragment_type(self, value: SSAValue, layout: ly.Layout) -> VectorType[Any]:
        return VectorType(element_of(value), [layout.registers])  # pyright: ignore

    def load_form(self, op: xegpu.LoadNdOp) -> tuple[ly.Layout | None, dict[str, Attribute]]:
        """The form of a block load: what it deals to the lanes, and its properties."""
        tdesc, value = op.tdesc, op.value
        shape, count = tdesc.get_shape(), tdesc.array_length
        bits = element_bits(tdesc.element_type)
        given = shape_of(value)
        if op.packed is not None or op.transposes:
            return self.written_form(op), {
                k: v
                for k, v in op.properties.items()
                if k in ("packed", "transpose", "transpose_bit_width")
            }
        if len(shape) < 2:
            return natural(shape, bits, self.lanes), {}
        block = Block(*shape, count)
        wanted = self.owners.layout(value)
        right = feeds_right_operand(value)
        forms = ("transform", "load", "transpose") if right else ("load", "transpose")
        fallback: tuple[ly.Layout | None, dict[str, Attribute]] = (None, {})
        for form in forms:
            if not fits(self.owners.xe, form, bits, block):
                continue
            layout = form_layout(form, block.shape, bits, self.lanes)
            if layout is None:
                continue
            layout = layout if layout.shape == given else layout.reshaped(given)
            extra: dict[str, Attribute] = {}
            if form == "transform":
                extra["packed"] = UnitAttr()
            elif form == "transpose":
                extra["transpose"] = DenseArrayBase.from_list(i64, [1, 0])
                if bits < 32:
                    extra["transpose_bit_width"] = IntegerAttr(32, i32)
            if stays_in_lanes(layout, wanted):
                return layout, extra
            if form != "transpose" and fallback[0] is None:
                fallback = layout, extra
        return fallback

    def written_form(self, op: xegpu.LoadNdOp) -> ly.Layout:
        """Ownership of what a load gives that is packed or transposed in the text already."""
        tdesc = op.tdesc
        shape, count = tdesc.get_shape(), tdesc.array_length
        bits = element_bits(tdesc.element_type)
        packed = max(1, 32 // bits)
        one = shape if op.packed is not None else full_load_shape(op)
        unit = 0
        if op.transposes:
            width = op.transpose_bit_width
            unit = 1 if width is None else width.value.data // bits
        blocks = (count, *one) if count > 1 else one
        try:
            lane_layout, lane_data = lane_map(
                blocks, bits, self.lanes, unit, packed if op.packed is not None else 1
            )
            layout = ly.layout(lane_layout=lane_layout, lane_data=lane_data).over(blocks)
        except ly.LayoutError as error:
            raise self.refuse(str(error)) from None
        if op.packed is not None and len(shape_of(op.value)) > len(blocks):
            *lead, k, n = blocks
            layout = layout.reshaped((*lead, k // packed, packed, n))
            rank = layout.rank
            layout = layout.permuted((*range(rank - 2), rank - 1, rank - 2))
        given = shape_of(op.value)
        return layout if layout.shape == given else layout.reshaped(given)

    def store_nd(self, op: xegpu.StoreNdOp) -> None:
        tdesc = op.tdesc
        shape, bits = tdesc.get_shape(), element_bits(tdesc.element_type)
        fit = len(shape) < 2 or fits(self.owners.xe, "store", bits, Block(*shape))
        layout = form_layout("load", shape, bits, self.lanes) if fit else None
        if self.is_scattered(op) or layout is None:
            self.scattered_store(op)
            return
        value, *rest = op.operands
        new = type(op).create(
            operands=[self.taken(value, layout), *(self.env[v] for v in rest)],
            properties=self.access_properties(op),
        )
        self.put(new)

    def prefetch_nd(self, op: xegpu.PrefetchNdOp) -> None:
        if self.is_scattered(op):
            self.scattered_prefetch(op)
            return
        self.put(
            type(op).create(
                operands=[self.env[v] for v in op.operands], properties=self.access_properties(op)
            )
        )

    # --- Blocks without block messages ---------------------------------------------------------------

    def surface_of(self, op: xegpu.BlockAccess) -> Surface:
        source = created(op.operands[op.tdesc_operand])
        if source is None:
            raise self.refuse(
                "the descriptor is carried by a loop or an if, so that its base is not known",
                "run xegpu-modernize first",
            )
        sizes, strides = surface(source)
        value = source.source
        if not isinstance(value.type, MemRefType):
            found = [self.env[s] if isinstance(s, SSAValue) else s for s in (*sizes, *strides)]
            rank = len(sizes)
            numbers = [self.constant_or(v) for v in found]
            return Surface(self.env[value], tuple(numbers[:rank]), tuple(numbers[rank:]), True)
        rank = len(value.type.get_shape())
        base = self.env[value]
        metadata: Operation | None = None

        def run_time() -> Operation:
            nonlocal metadata
            if metadata is None:
                key = ("metadata", base)
                found = self.known(key)
                if found is None:
                    metadata = self.put(memref.ExtractStridedMetaDataOp(base))
                    self.remember(key, metadata.results[0])
                else:
                    metadata = found.owner  # pyright: ignore
            assert isinstance(metadata, Operation)
            return metadata

        def resolved(given: Index | None, result: int) -> Index:
            if isinstance(given, SSAValue):
                return self.env[given]
            return run_time().results[result] if given is None else given

        full_sizes = tuple(resolved(s, 2 + n) for n, s in enumerate(sizes))
        full_strides = tuple(resolved(s, 2 + rank + n) for n, s in enumerate(strides))
        return Surface(
            self.flattened(base, full_sizes, full_strides), full_sizes, full_strides, True
        )

    def constant_or(self, value: Index | None) -> Index:
        assert value is not None
        return value

    def flattened(
        self, base: SSAValue, sizes: Sequence[Index], strides: Sequence[Index]
    ) -> SSAValue:
        """A memref as a row of elements that begins where it begins."""
        kind = base.type
        assert isinstance(kind, MemRefType)
        if kind.get_shape() and len(kind.get_shape()) == 1 and isinstance(kind.layout, NoneAttr):
            return base
        key = ("flat", base)
        if (found := self.known(key)) is not None:
            return found
        extent: Index = 1
        for size, stride in zip(sizes, strides, strict=True):
            extent = self.plus(extent, self.times(self.plus(size, -1), stride))
        offset: Index | None = 0
        if isinstance(kind.layout, StridedLayoutAttr):
            offset = getattr(kind.layout.offset, "data", None)
        elif not isinstance(kind.layout, NoneAttr):
            offset = None
        if offset is None:
            metadata = self.put(memref.ExtractStridedMetaDataOp(base))
            offset = metadata.results[1]
        static = extent if isinstance(extent, int) else DYNAMIC_INDEX
        plain = offset == 0
        layout = (
            NoneAttr()
            if plain
            else StridedLayoutAttr([1], offset if isinstance(offset, int) else None)
        )
        result = MemRefType(kind.element_type, [static], layout, kind.memory_space)
        op = memref.ReinterpretCastOp.from_dynamic(base, [offset], [extent], [1], result)
        return self.remember(key, self.add(op))

    def block_offsets(self, op: xegpu.BlockAccess, rank: int) -> list[Index]:
        """Where the block begins, one number per dimension of the base."""
        source = created(op.operands[op.tdesc_operand])
        assert source is not None
        total: list[Index] = [0] * rank
        for given in (source.mixed_offsets, op.mixed_offsets or []):
            moved: list[Index] = [self.env[v] if isinstance(v, SSAValue) else v for v in given]
            lead = rank - len(moved)
            for n, v in enumerate(moved):
                total[lead + n] = self.plus(total[lead + n], v)
        return total

    def places(
        self, op: xegpu.BlockAccess, layout: ly.Layout, surface: Surface, width: int = 0
    ) -> tuple[list[Index], list[SSAValue | None]]:
        """Of each register: its element's distance from the base, and whether it is inside (None: is).

        `layout` is over [blocks,] rows, columns (or elements of a row); blocks of `width` columns lie side
        by side.
        """
        rank, block_rank = len(surface.sizes), len(op.tdesc.get_shape())
        offsets = self.block_offsets(op, rank)
        lane = [x.astype(int) for x in layout.at(lane=np.arange(self.lanes))]
        register = [x.astype(int) for x in layout.at(register=np.arange(layout.registers))]
        if layout.rank > block_rank:
            for table in (lane, register):
                blocks = table.pop(0)
                table[-1] = table[-1] + blocks * width
        lead = rank - block_rank
        start: Index = 0
        inside: SSAValue | None = None
        bounded = op.tdesc.boundary_check and surface.bounded
        firsts: list[Index] = []
        for n in range(rank):
            place = offsets[n]
            if n >= lead:
                place = self.plus(place, self.index_table([int(x) for x in lane[n - lead]]))
            elif bounded and not _below(place, surface.sizes[n]):
                hit = self.compare("ult", self.index(place), self.index(surface.sizes[n]))
                inside = hit if inside is None else self.binary(arith.AndIOp, inside, hit)
            firsts.append(place)
            start = self.plus(start, self.times(place, surface.strides[n]))
        distances: list[Index] = []
        masks: list[SSAValue | None] = []
        for r in range(layout.registers):
            distance, mask = start, inside
            for n in range(block_rank):
                step = int(register[n][r])
                distance = self.plus(distance, self.times(step, surface.strides[lead + n]))
                extent = surface.sizes[lead + n]
                if bounded:
                    place = self.plus(firsts[lead + n], step)
                    if not _below(place, extent):
                        hit = self.compare("ult", self.index(place), self.index(extent))
                        mask = hit if mask is None else self.binary(arith.AndIOp, mask, hit)
            distances.append(distance)
            masks.append(mask)
        return distances, masks

    def runs(self, op: xegpu.BlockAccess, layout: ly.Layout, surface: Surface) -> int:
        """Registers that lie side by side in memory, aligned, inside or outside together: one access."""
        bits = element_bits(op.tdesc.element_type)
        if surface.strides[-1] != 1:
            return 1
        rank = len(surface.sizes)
        column = layout.at(register=np.arange(layout.registers))[-1]
        lane_column = layout.at(lane=np.arange(self.lanes))[-1]
        others = layout.at(register=np.arange(layout.registers))[:-1]
        source = created(op.operands[op.tdesc_operand])
        assert source is not None
        last = [g[-1] for g in (source.mixed_offsets, op.mixed_offsets or []) if g]
        numbers: list[Index] = [surface.sizes[-1], *surface.strides[: rank - 1]]
        best = 1
        for size in (2, 4, 8, 16):
            if size * bits > 128 or layout.registers % size:
                break
            groups = column.reshape(-1, size)
            apart = any((o.reshape(-1, size) != o.reshape(-1, size)[:, :1]).any() for o in others)
            if apart or (groups != groups[:, :1] + np.arange(size)).any():
                break
            if (groups[:, 0] % size).any() or (lane_column % size).any():
                break
            if not all(isinstance(n, int) and n % size == 0 for n in numbers):
                break
            if not all(is_multiple(v, size) for v in last):
                break
            if size * bits % 32 == 0:
                best = size
        return best

    def scattered_load(self, op: xegpu.LoadNdOp) -> None:
        surface, layout = self.surface_of(op), self.owners.layout(op.value)
        width = op.tdesc.get_shape()[-1]
        over = self._over_blocks(op, layout)
        distances, masks = self.places(op, over, surface, width)
        size = self.runs(op, over, surface)
        element = element_of(op.value)
        registers: list[Register] = []
        for first in range(0, layout.registers, size):
            registers += self.lane_load(
                surface.base,
                distances[first],
                masks[first],
                element,
                size,
                self._hints(op),
                zero=True,
            )
        self.give(op.value, Fragment(layout, element, tuple(registers)))

    def _over_blocks(self, op: xegpu.BlockAccess, layout: ly.Layout) -> ly.Layout:
        """The ownership of a value over the blocks as they lie in memory."""
        tdesc = op.tdesc
        shape = tdesc.get_shape()
        blocks = (tdesc.array_length, *shape) if tdesc.array_length > 1 else shape
        if isinstance(op, xegpu.LoadNdOp) and op.transposes:
            if op.transpose_bit_width is not None:
                unit = op.transpose_bit_width.value.data // element_bits(tdesc.element_type)
                layout = layout.reshaped((shape[1] // unit, shape[0], unit)).permuted((1, 0, 2))
                return layout.reshaped(shape)
            return layout.permuted((1, 0))
        if isinstance(op, xegpu.LoadNdOp) and op.packed is not None and layout.rank > len(blocks):
            rank = layout.rank
            layout = layout.permuted((*range(rank - 2), rank - 1, rank - 2))
        return layout if layout.shape == blocks else layout.reshaped(blocks)

    def _hints(self, op: Operation) -> dict[str, Attribute]:
        return {k: v for k, v in op.properties.items() if k in _HINTS}

    def lane_load(
        self,
        base: SSAValue,
        offset: Index,
        mask: SSAValue | None,
        element: Attribute,
        size: int,
        hints: dict[str, Attribute],
        *,
        zero: bool,
    ) -> list[Register]:
        """One lane's access of `size` elements in a row; masked-off elements are 0 where `zero` asks for it."""
        kind = VectorType(element, [size]) if size > 1 else element  # pyright: ignore
        properties = dict(hints)
        if size > 1:
            properties["chunk_size"] = IntegerAttr(size, i64)
        on = self.true() if mask is None else mask
        made = self.add(
            xegpu.LoadGatherOp.create(
                operands=[base, self.index(offset), on],
                properties=properties,
                result_types=[kind],
            )
        )
        if zero and mask is not None:
            nothing = self.constant(zero_of(kind))
            made = self.add(arith.SelectOp(mask, made, nothing))
        return [(made, n) for n in range(size)]

    def true(self) -> SSAValue:
        return self.constant(BoolAttr.from_bool(True))  # pyright: ignore

    def scattered_store(self, op: xegpu.StoreNdOp) -> None:
        surface = self.surface_of(op)
        value = self.owned(op.value, self.owners.layout(op.value))
        layout = value.layout
        distances, masks = self.places(op, layout, surface)
        size = self.runs(op, layout, surface)
        for first in range(0, layout.registers, size):
            mask = self.once_per_element(layout, masks[first])
            self.lane_store(
                surface.base,
                distances[first],
                mask,
                value.registers[first : first + size],
                self._hints(op),
            )

    def lane_store(
        self,
        base: SSAValue,
        offset: Index,
        mask: SSAValue | None,
        registers: Sequence[Register],
        hints: dict[str, Attribute],
    ) -> None:
        size = len(registers)
        properties = dict(hints)
        if size > 1:
            properties["chunk_size"] = IntegerAttr(size, i64)
        value = self.pick(registers) if size > 1 else self.scalar_of(registers[0])
        on = self.true() if mask is None else mask
        self.put(
            xegpu.StoreScatterOp.create(
                operands=[value, base, self.index(offset), on], properties=properties
            )
        )

    def once_per_element(self, layout: ly.Layout, mask: SSAValue | None) -> SSAValue | None:
        """The mask of lanes that write: of lanes that hold the same element the first."""
        lanes = np.arange(self.lanes)
        copies = layout.replica_part(ly.Axis.LANE, lanes)
        if not copies.any():
            return mask
        first = self.chosen(copies == 0)
        return first if mask is None else self.binary(arith.AndIOp, mask, first)

    def scattered_prefetch(self, op: xegpu.PrefetchNdOp) -> None:
        """Each lane fetches the lines of some rows; a row outside becomes the first element."""
        surface = self.surface_of(op)
        tdesc = op.tdesc
        *lead, width = tdesc.get_shape()
        itemsize = max(1, element_bits(tdesc.element_type) // 8)
        per_line = max(1, 64 // itemsize)
        rows = prod(lead)
        properties: dict[str, Attribute] = self._hints(op)
        if not isinstance(surface.base.type, MemRefType):
            properties["offset_align_byte"] = IntegerAttr(itemsize, i64)
        for column in range(0, width * tdesc.array_length, per_line):
            for row in range(0, rows, self.lanes):
                places = [
                    [min(row + lane, rows - 1) for lane in range(self.lanes)],
                    [column] * self.lanes,
                ][2 - len(tdesc.get_shape()) :]
                offset, mask = self.place_of(op, surface, places)
                if mask is not None:
                    offset = self.add(arith.SelectOp(mask, self.index(offset), self.index(0)))
                self.put(
                    xegpu.PrefetchOp.create(
                        operands=[surface.base, self.index(offset)], properties=properties
                    )
                )

    def place_of(
        self, op: xegpu.BlockAccess, surface: Surface, places: Sequence[Sequence[int]]
    ) -> tuple[Index, SSAValue | None]:
        """Distance and mask of one element per lane of a block."""
        offsets = self.block_offsets(op, len(surface.sizes))
        lead = len(offsets) - len(places)
        total: Index = 0
        mask: SSAValue | None = None
        for n, (offset, stride) in enumerate(zip(offsets, surface.strides, strict=True)):
            place = offset
            if n >= lead:
                place = self.plus(place, self.index_table(places[n - lead]))
            total = self.plus(total, self.times(place, stride))
            if not _below(place, surface.sizes[n]):
                hit = self.compare("ult", self.index(place), self.index(surface.sizes[n]))
                mask = hit if mask is None else self.binary(arith.AndIOp, mask, hit)
        return total, mask

    # --- Scattered accesses ----------------------------------------------------------------------------

    def _lane_source(self, op: xegpu.ScatterAccess) -> tuple[SSAValue, SSAValue]:
        if op.tdesc is not None or op.offsets_operand is None:
            raise self.refuse(
                "a scattered descriptor of the older text", "run xegpu-modernize first"
            )
        return self.env[op.source_operand], op.offsets_operand

    def _per_lane(self, value: SSAValue, layout: ly.Layout) -> list[SSAValue]:
        """A value's registers as scalars; a scalar operand is its own."""
        if not isinstance(value.type, VectorType):
            return [self.env[value]] * layout.registers
        return [self.scalar_of(r) for r in self.owned(value, layout).registers]

    def load_gather(self, op: xegpu.LoadGatherOp) -> None:
        base, offsets = self._lane_source(op)
        if not isinstance(offsets.type, VectorType):
            self.keep(op)
            return
        chunk = op.chunk
        if op.transpose is not None and chunk > 1:
            raise self.refuse("transpose on a gather", "run xegpu-modernize first")
        layout = self.owners.layout(offsets)
        element = element_of(op.value)
        registers: list[Register] = []
        pairs = zip(self._per_lane(offsets, layout), self._per_lane(op.mask, layout), strict=True)
        for offset, mask in pairs:
            registers += self.lane_load(
                base, offset, mask, element, chunk, self._hints(op), zero=False
            )
        self.give(op.value, Fragment(self._with_chunk(layout, chunk), element, tuple(registers)))

    def _with_chunk(self, layout: ly.Layout, chunk: int) -> ly.Layout:
        from tilewright.passes.xegpu_ownership import with_chunk

        return with_chunk(layout, chunk) if chunk > 1 else layout

    def store_scatter(self, op: xegpu.StoreScatterOp) -> None:
        base, offsets = self._lane_source(op)
        if not isinstance(offsets.type, VectorType):
            self.alone(op)
            return
        chunk = op.chunk
        layout = self.owners.layout(offsets)
        value = self.owned(op.value, self._with_chunk(layout, chunk))
        masks = self._per_lane(op.mask, layout)
        for n, offset in enumerate(self._per_lane(offsets, layout)):
            mask = self.once_per_element(layout, masks[n])
            registers = value.registers[n * chunk : (n + 1) * chunk]
            self.lane_store(base, offset, mask, registers, self._hints(op))

    def atomic_rmw(self, op: xegpu.AtomicRMWOp) -> None:
        base, offsets = self._lane_source(op)
        if not isinstance(offsets.type, VectorType):
            self.alone(op)
            return
        if op.chunk > 1:
            raise self.refuse("an atomic of several elements per lane")
        layout = self.owners.layout(offsets)
        values = self._per_lane(op.value, layout)
        masks = self._per_lane(op.mask, layout)
        element = element_of(op.value)
        properties = {k: v for k, v in op.properties.items() if k not in ("layout", "chunk_size")}
        registers: list[Register] = []
        for n, offset in enumerate(self._per_lane(offsets, layout)):
            mask = self.once_per_element(layout, masks[n])
            assert mask is not None
            old = self.add(
                xegpu.AtomicRMWOp.create(
                    operands=[base, offset, mask, values[n]],
                    properties=properties,
                    result_types=[element],
                )
            )
            registers.append((self._from_first(layout, old), 0))
        self.give(op.result, Fragment(layout, element, tuple(registers)))

    def _from_first(self, layout: ly.Layout, value: SSAValue) -> SSAValue:
        """What the first of the lanes that share an element has."""
        lanes = np.arange(self.lanes)
        copies = layout.replica_part(ly.Axis.LANE, lanes)
        return self.shuffled(value, [int(x) for x in lanes - copies])

    def prefetch(self, op: xegpu.PrefetchOp) -> None:
        base, offsets = self._lane_source(op)
        if not isinstance(offsets.type, VectorType):
            self.keep(op)
            return
        layout = self.owners.layout(offsets)
        for offset in self._per_lane(offsets, layout):
            self.put(
                xegpu.PrefetchOp.create(
                    operands=[base, offset], properties=self.access_properties(op)
                )
            )

    # --- Shared matrices ---------------------------------------------------------------------------------

    def matrix_places(
        self, op: xegpu.MatrixAccess, layout: ly.Layout
    ) -> tuple[list[list[Index]], int]:
        """Offsets of each register's element in its matrix, and how many registers are one access."""
        desc = op.desc
        given = op.mixed_offsets
        offsets: list[Index] = [self.env[v] if isinstance(v, SSAValue) else v for v in given]
        lead = len(offsets) - layout.rank
        lane = layout.at(lane=np.arange(self.lanes))
        register = layout.at(register=np.arange(layout.registers))
        firsts: list[Index] = [
            offset
            if n < lead
            else self.plus(offset, self.index_table([int(x) for x in lane[n - lead]]))
            for n, offset in enumerate(offsets)
        ]
        places = [
            [
                first if n < lead else self.plus(first, int(register[n - lead][r]))
                for n, first in enumerate(firsts)
            ]
            for r in range(layout.registers)
        ]
        bits = element_bits(desc.element_type)
        block = desc.block
        size = 1
        while (
            desc.stride[-1] == 1 and 2 * size * bits <= 128 and layout.registers % (2 * size) == 0
        ):
            wide = 2 * size
            columns = register[-1].reshape(-1, wide)
            others = [x.reshape(-1, wide) for x in register[:-1]]
            together = (columns == columns[:, :1] + np.arange(wide)).all() and all(
                (x == x[:, :1]).all() for x in others
            )
            aligned = not (columns[:, 0] % wide).any() and not (lane[-1] % wide).any()
            aligned = aligned and is_multiple(given[-1], wide)
            rows = all(s % wide == 0 for s in desc.stride[:-1])
            if not together or not aligned or not rows or (block and block[-1] % wide):
                break
            size = wide
        return places, size

    def load_matrix(self, op: xegpu.LoadMatrixOp) -> None:
        if not isinstance(op.value.type, VectorType):
            self.keep(op)
            return
        layout, element = self.owners.layout(op.value), element_of(op.value)
        places, size = self.matrix_places(op, layout)
        matrix = self.env[op.mem_desc]
        kind = VectorType(element, [size]) if size > 1 else element  # pyright: ignore
        registers: list[Register] = []
        for first in range(0, layout.registers, size):
            made = self.add(xegpu.LoadMatrixOp(matrix, places[first], kind))
            registers += [(made, n) for n in range(size)]
        self.give(op.value, Fragment(layout, element, tuple(registers)))

    def store_matrix(self, op: xegpu.StoreMatrixOp) -> None:
        if not isinstance(op.value.type, VectorType):
            self.alone(op)
            return
        value = self.owned(op.value, self.owners.layout(op.value))
        layout = value.layout
        places, size = self.matrix_places(op, layout)
        matrix = self.env[op.mem_desc]
        # Lanes that hold the same element write the same number to the same place.
        for first in range(0, layout.registers, size):
            registers = value.registers[first : first + size]
            part = self.pick(registers) if size > 1 else self.scalar_of(registers[0])
            self.put(xegpu.StoreMatrixOp(part, matrix, places[first]))

    # --- What one lane does for all --------------------------------------------------------------------------

    def alone(self, op: Operation) -> None:
        """An op with an effect that must happen once: the first lane does it."""
        if any(r.first_use is not None for r in op.results):
            raise self.refuse("its result is used by all lanes, but only one may do it")
        from xdsl.dialects.builtin import IntegerType
        from xdsl.ir import Block as IrBlock
        from xdsl.ir import Region

        first = self.compare("eq", self.lane(), self.number(0))
        assert isinstance(first.type, IntegerType)
        body = IrBlock()
        outer, self.out = self.out, body
        self.put(op.clone({v: self.env[v] for v in op.operands}))
        self.put(scf.YieldOp())
        self.out = outer
        self.put(scf.IfOp(first, [], Region(body)))


def _below(place: Index, extent: Index) -> bool:
    """Is it known that 0 <= place < extent?"""
    return isinstance(place, int) and isinstance(extent, int) and 0 <= place < extent


def is_multiple(value: Index, number: int, depth: int = 8) -> bool:
    """Is an index known to be a multiple of a number?"""
    if isinstance(value, int):
        return value % number == 0
    if depth == 0:
        return False
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        if isinstance(loop, scf.ForOp):
            bounds = (loop.lb, loop.step)
            if value.index == 0:
                return all(is_multiple(v, number, depth - 1) for v in bounds)
            yielded = loop.body.block.last_op
            assert yielded is not None
            step = yielded.operands[value.index - 1]
            start = loop.iter_args[value.index - 1]
            if isinstance(step, OpResult) and isinstance(step.op, arith.AddiOp):
                rest = [v for v in step.op.operands if v is not value]
                return (
                    len(rest) == 1
                    and is_multiple(start, number, depth - 1)
                    and is_multiple(rest[0], number, depth - 1)
                )
        return False
    op = value.owner
    match op:
        case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
            return op.value.value.data % number == 0
        case arith.MuliOp():
            return any(is_multiple(v, number, depth - 1) for v in op.operands)
        case arith.AddiOp() | arith.SubiOp():
            return all(is_multiple(v, number, depth - 1) for v in op.operands)
        case arith.IndexCastOp():
            return is_multiple(op.input, number, depth - 1)
        case _:
            return False


def feeds_right_operand(value: SSAValue) -> bool:
    """Does a dpas take it, or slices of it, as B?"""
    seen = 0
    queue = [value]
    while queue and seen < 256:
        here = queue.pop()
        for use in here.uses:
            seen += 1
            op = use.operation
            if isinstance(op, xegpu.DpasOp) and use.index == 1:
                return True
            if op.name in (
                "vector.extract",
                "vector.extract_strided_slice",
                "vector.shape_cast",
                "xegpu.convert_layout",
            ):
                queue.append(op.results[0])
    return False


def zero_of(kind: Attribute) -> Any:
    from xdsl.dialects.builtin import AnyFloat, FloatAttr

    from tilewright.passes.xegpu_fragments import dense

    if isinstance(kind, VectorType):
        return dense(kind, [0])
    if isinstance(kind, AnyFloat):
        return FloatAttr(0.0, kind)
    return IntegerAttr(0, kind)  # pyright: ignore


__all__ = ["DYNAMIC_INDEX", "IndexType", "LaneMemory", "i1", "split_indices", "vector"]
