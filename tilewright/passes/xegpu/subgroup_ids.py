"""Where a subgroup's fragments start, as index arithmetic on gpu.subgroup_id at the head of a kernel.

Coordinates of a subgroup in a layout's grid: its linear id in the layout's `order`, fastest dimension
first. Everything is computed once, in front of all loops, and shared between layouts.
"""

from __future__ import annotations

from itertools import product

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout import Distribution, Layout
from tilewright.passes.xegpu import layout_text as own


class SubgroupIds:
    """Emits index arithmetic at the head of one block; `first` is the subgroup that counts as number 0."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.block: Block | None = None
        self.last: Operation | None = None
        self.known: dict[object, SSAValue] = {}

    def start(self, block: Block) -> None:
        self.block, self.last = block, None
        self.known = {}

    def _emit(self, key: object, make: type[Operation], *operands: SSAValue) -> SSAValue:
        if key not in self.known:
            self.known[key] = self._insert(make(*operands))
        return self.known[key]

    def _insert(self, op: Operation) -> SSAValue:
        assert self.block is not None
        if self.last is None:
            first = self.block.first_op
            if first is None:
                self.block.add_op(op)
            else:
                self.block.insert_op_before(op, first)
        else:
            self.block.insert_op_after(op, self.last)
        self.last = op
        return op.results[0]

    def constant(self, value: int) -> SSAValue:
        key = ("constant", value)
        if key not in self.known:
            new = self._insert(arith.ConstantOp(IntegerAttr(value, IndexType())))
            new.name_hint = f"c{value}" if value >= 0 else f"cm{-value}"
            self.known[key] = new
        return self.known[key]

    def linear(self) -> SSAValue:
        """gpu.subgroup_id, counted from the first."""
        if "id" not in self.known:
            self.known["id"] = self._insert(gpu.SubgroupIdOp())
            self.known["id"].name_hint = "sg"
            if self.first:
                number = self._insert(arith.SubiOp(self.known["id"], self.constant(self.first)))
                self.known["id"] = number
        return self.known["id"]

    def digit(self, weight: int, size: int, subgroups: int) -> SSAValue:
        """(id // weight) % size."""
        value = self.linear()
        if weight > 1:
            value = self._emit(("div", weight), arith.DivUIOp, self.linear(), self.constant(weight))
        if weight * size < subgroups:
            value = self._emit(("rem", weight, size), arith.RemUIOp, value, self.constant(size))
        return value

    def starts(self, d: Distribution, shape: tuple[int, ...]) -> list[tuple[Index, ...]]:
        """The start of every fragment of `shape`, row-major over rounds; numbers where they are the same
        for all subgroups."""
        d = own.subgroup_part(d)
        if d.sg_layout is None:
            return [tuple(0 for _ in shape)]
        part = d.part_shape(shape)
        kept = [i for i in range(d.field_rank) if i not in d.sliced]
        along: list[list[Index]] = []
        for dim, extent in enumerate(shape):
            field, size = kept[dim], part[dim]
            groups = d.sg_layout[field]
            owners = min(groups, extent // size)
            rounds = max(1, extent // (groups * size))
            first = self._first(d, field, owners, size)
            step = groups * size
            along.append([self._plus(first, r * step) for r in range(rounds)])
        return list(product(*along))

    def _first(self, d: Distribution, field: int, owners: int, size: int) -> Index:
        """(coordinate % owners) * size."""
        if owners == 1:
            return 0
        assert d.sg_layout is not None
        weight = 1
        for dim in d.order or tuple(reversed(range(d.field_rank))):
            if dim == field:
                break
            weight *= d.sg_layout[dim]
        digit = self.digit(weight, owners, d.subgroups)
        if size == 1:
            return digit
        return self._emit(
            ("times", weight, owners, d.subgroups, size),
            arith.MuliOp,
            digit,
            self.constant(size),
        )

    def _plus(self, value: Index, number: int) -> Index:
        if isinstance(value, int):
            return value + number
        if number == 0:
            return value
        return self._emit(("plus", value, number), arith.AddiOp, value, self.constant(number))

    def first_replica(self, layout: Layout, subgroups: int) -> SSAValue | None:
        """Whether this subgroup is the first of those that own the same; None where it always is."""
        condition: SSAValue | None = None
        for digit in layout.on(ly.Axis.SUBGROUP):
            if digit.dim is not None:
                continue
            value = self.digit(digit.weight, digit.size, subgroups)
            key = ("first", digit.weight, digit.size)
            if key not in self.known:
                zero = self.constant(0)
                self.known[key] = self._insert(arith.CmpiOp(value, zero, "eq"))
            here = self.known[key]
            condition = (
                here
                if condition is None
                else self._emit(("and", condition, here), arith.AndIOp, condition, here)
            )
        return condition
