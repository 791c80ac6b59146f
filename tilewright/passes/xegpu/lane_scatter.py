"""Subgroup to lane: gathers, scatters and atomics, one access per register; and what one lane does for all.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    VectorType,
)
from xdsl.ir import Block as IrBlock
from xdsl.ir import Operation, Region, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.passes.xegpu.fragments import Fragment, Register, element_of
from tilewright.passes.xegpu.lane_blocks import LaneBlocks
from tilewright.passes.xegpu.lane_layouts import with_chunk


class LaneScatter(LaneBlocks):
    """Handlers of scattered ops."""

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

    # --- What one lane does for all --------------------------------------------------------------------------

    def alone(self, op: Operation) -> None:
        """An op with an effect that must happen once: the first lane does it."""
        if any(r.first_use is not None for r in op.results):
            raise self.refuse("its result is used by all lanes, but only one may do it")
        first = self.compare("eq", self.lane(), self.number(0))
        body = IrBlock()
        outer, self.out = self.out, body
        self.put(op.clone({v: self.env[v] for v in op.operands}))
        self.put(scf.YieldOp())
        self.out = outer
        self.put(scf.IfOp(first, [], Region(body)))
