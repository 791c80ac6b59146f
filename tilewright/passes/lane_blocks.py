"""Blocks of a subgroup out of the fragments of its lanes, and back: the loads, stores and products of lane programs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    VectorType,
)
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.xegpu.compute import packing_factor
from tilewright.dialects.xegpu.types import element_bits
from tilewright.layout.blocks import lane_map
from tilewright.layout.digits import LayoutError
from tilewright.passes.new_body import NewBody

index = IndexType()


@dataclass(frozen=True)
class Ramp:
    """Lane i has `base + steps[i]`; `base` is a multiple of `unit`."""

    base: SSAValue
    unit: int
    steps: NDArray[np.int64]


class Blocks(NewBody):
    """What each value of the lanes is for the subgroup, and the ops on blocks. `env` has what all lanes agree on."""

    def __init__(self, lanes: int):
        super().__init__()
        self.lanes = lanes
        self.held: dict[SSAValue, SSAValue | Ramp] = {}
        """What differs between lanes: a vector with the lanes as its last dimension, or a ramp."""

    def widened(self, type: Attribute) -> VectorType:
        if isinstance(type, VectorType):
            return VectorType(type.element_type, [*type.get_shape(), self.lanes])
        return VectorType(type, [self.lanes])  # pyright: ignore

    def uniform(self, value: SSAValue, what: str = "an operand") -> SSAValue:
        if value in self.env:
            return self.env[value]
        raise self.refuse(f"{what} differs between lanes")

    def wide(self, value: SSAValue) -> SSAValue:
        """The value of all lanes, with the lanes last."""
        found = self.held.get(value)
        if found is None:
            kind = self.widened(value.type)
            plain = self.env[value]
            if isinstance(plain.type, VectorType):
                column = VectorType(kind.element_type, [*plain.type.get_shape(), 1])
                plain = self.add(more.ShapeCastOp(plain, column))
            return self.add(vector.BroadcastOp(plain, kind))
        if isinstance(found, Ramp):
            kind = VectorType(index, [self.lanes])
            steps = DenseIntOrFPElementsAttr.from_list(kind, [int(s) for s in found.steps])
            base = self.add(vector.BroadcastOp(found.base, kind))
            return self.add(arith.AddiOp(base, self.add(arith.ConstantOp(steps))))
        return found

    # Blocks ---------------------------------------------------------------------------------------------------

    def fragment(
        self, value: SSAValue, shape: tuple[int, ...], dealt: tuple[list[int], list[int]]
    ) -> SSAValue:
        """[registers, lanes] of a block."""
        split, order, _ = _deal(shape, *dealt)
        element = value.type.element_type  # pyright: ignore
        value = self.reorder(value, split, order)
        return self.cast(value, [prod(shape) // self.lanes, self.lanes], element)

    def whole(
        self, value: SSAValue, shape: tuple[int, ...], dealt: tuple[list[int], list[int]]
    ) -> SSAValue:
        """The block of [.., lanes] fragments."""
        _, order, parts = _deal(shape, *dealt)
        value = self.reorder(value, parts, [order.index(i) for i in range(len(order))])
        return self.cast(value, list(shape))

    def cast(self, value: SSAValue, shape: list[int], element: Attribute | None = None) -> SSAValue:
        kind = value.type
        assert isinstance(kind, VectorType)
        if list(kind.get_shape()) == list(shape):
            return value
        return self.add(more.ShapeCastOp(value, VectorType(kind.element_type, shape)))

    def reorder(self, value: SSAValue, shape: list[int], order: list[int]) -> SSAValue:
        """The value in a shape, its dimensions reordered; itself where only dimensions of one element move."""
        moved = [d for d in order if shape[d] != 1]
        if moved == sorted(moved):
            return value
        return self.add(more.TransposeOp(self.cast(value, shape), order))

    def dealt(
        self, shape: tuple[int, ...], bits: int, unit: int = 0, packed: int = 1
    ) -> tuple[list[int], list[int]]:
        try:
            return lane_map(shape, bits, self.lanes, unit, packed)
        except LayoutError as error:
            raise self.refuse(str(error)) from None

    def block_operands(self, op: Any) -> dict[SSAValue, SSAValue]:
        """A block access has one place for the subgroup."""
        skip = op.value if isinstance(op, xegpu.StoreNdOp) else None
        return {v: self.uniform(v, "its place") for v in op.operands if v is not skip}

    def load_nd(self, op: xegpu.LoadNdOp) -> None:
        if op.ownership is not None:
            raise self.refuse("fragments by sg_map at lane level")
        tdesc = op.tdesc
        bits = element_bits(tdesc.element_type)
        shape, count = tdesc.get_shape(), tdesc.array_length
        given = op.value.type.get_shape()  # pyright: ignore
        if prod(shape) * count != prod(given) * self.lanes:
            raise self.refuse("its value is no fragment of its block")
        # Plain: the whole block as it lies in memory, array_length blocks one after the other.
        lead = (count,) if count > 1 else ()
        plain = VectorType(tdesc.element_type, [*lead, *shape])
        new = op.clone(self.block_operands(op))
        for name in ("packed", "transpose", "transpose_bit_width"):
            new.properties.pop(name, None)
        load = type(op).create(
            operands=new.operands,
            result_types=[plain],
            properties=new.properties,
            attributes=new.attributes,
        )
        new.erase()
        block = self.add(load)
        blocks = (*lead, *shape)
        unit, packed = 0, 1
        if op.packed is not None:
            packed = packing_factor(tdesc.element_type)
        elif op.transposes and op.permutation is not None:
            unit = op.together
            base = len(lead)
            outer = list(range(base))
            if unit == 1:
                block = self.add(
                    more.TransposeOp(block, [*outer, *(base + d for d in op.permutation)])
                )
                blocks = (*lead, *(shape[d] for d in op.permutation))
            else:
                block = self.cast(block, [*lead, shape[0], shape[1] // unit, unit])
                block = self.add(more.TransposeOp(block, [*outer, base + 1, base, base + 2]))
                blocks = (*lead, shape[1] // unit, shape[0] * unit)
                block = self.cast(block, list(blocks))
        value = self.fragment(block, blocks, self.dealt(blocks, bits, unit, packed))
        self.held[op.value] = self.cast(value, [*given, self.lanes])

    def store_nd(self, op: xegpu.StoreNdOp) -> None:
        if op.ownership is not None:
            raise self.refuse("fragments by sg_map at lane level")
        tdesc = op.tdesc
        shape = tdesc.get_shape()
        value = self.wide(op.value)
        if prod(shape) != prod(value.type.get_shape()):  # pyright: ignore
            raise self.refuse("its value is no fragment of its block")
        bits = element_bits(tdesc.element_type)
        block = self.whole(value, shape, self.dealt(shape, bits))
        self.put(op.clone({**self.block_operands(op), op.value: block}))

    def dpas(self, op: xegpu.DpasOp) -> None:
        if any(layout is not None for layout in op.layouts):
            raise self.refuse("fragments by sg_map at lane level")
        a, b = self.wide(op.lhs), self.wide(op.rhs)
        count = [prod(v.type.get_shape()) for v in (a, b)]  # pyright: ignore
        n, k, m = self.lanes, count[1] // self.lanes, prod(op.result.type.get_shape())  # pyright: ignore
        if m * k != count[0]:
            raise self.refuse("its fragments fit no product of a subgroup")
        bits = element_bits(op.lhs.type.element_type)  # pyright: ignore
        c_map = self.dealt((m, n), 32)
        a = self.whole(a, (m, k), self.dealt((m, k), bits))
        b = self.whole(b, (k, n), self.dealt((k, n), bits, packed=max(1, 32 // bits)))
        c = None if op.acc is None else self.whole(self.wide(op.acc), (m, n), c_map)
        result = op.result.type
        assert isinstance(result, VectorType)
        product = self.add(xegpu.DpasOp(a, b, c, VectorType(result.element_type, [m, n])))
        value = self.fragment(product, (m, n), c_map)
        self.held[op.result] = self.cast(value, [*result.get_shape(), n])


def _deal(
    shape: tuple[int, ...], lane_layout: list[int], lane_data: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """(the block split into units, lanes and data per dimension; the order units, data, lanes; the shape then)."""
    split: list[int] = []
    for extent, lanes, data in zip(shape, lane_layout, lane_data, strict=True):
        split += [extent // (lanes * data), lanes, data]
    rank = len(shape)
    order = [*(3 * d for d in range(rank)), *(3 * d + 2 for d in range(rank))]
    order += [3 * d + 1 for d in range(rank)]
    return split, order, [split[i] for i in order]
