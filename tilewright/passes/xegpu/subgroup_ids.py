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
from tilewright.dialects.folding import Folding, Kind
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout import Distribution, Layout
from tilewright.passes.xegpu import layout_text as own


class SubgroupIds(Folding):
    """Emits index arithmetic at the head of one block; `first` is the subgroup that counts as number 0."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.block: Block | None = None
        self.last: Operation | None = None
        self.known: dict[object, SSAValue] = {}

    def start(self, block: Block) -> None:
        self.block, self.last = block, None
        self.known = {}

    def combined(self, kind: Kind | type[arith.AndIOp], x: Index, y: Index) -> SSAValue:
        a, b = self.value(x), self.value(y)
        if (kind, a, b) not in self.known:
            self.known[kind, a, b] = self._insert(kind(a, b))
        return self.known[kind, a, b]

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

    def value(self, number: Index) -> SSAValue:
        return self.constant(number) if isinstance(number, int) else number

    def linear(self) -> SSAValue:
        """gpu.subgroup_id, counted from the first."""
        if "id" not in self.known:
            self.known["id"] = self._insert(gpu.SubgroupIdOp())
            self.known["id"].name_hint = "sg"
            if self.first:
                number = self._insert(arith.SubiOp(self.known["id"], self.constant(self.first)))
                self.known["id"] = number
        return self.known["id"]

    def digit(self, weight: int, size: int, subgroups: int) -> Index:
        """(id // weight) % size."""
        value = self.divided(self.linear(), weight)
        return self.rest(value, size) if weight * size < subgroups else value

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
            along.append([self.plus(first, r * step) for r in range(rounds)])
        return list(product(*along))

    def _first(self, d: Distribution, field: int, owners: int, size: int) -> Index:
        """(coordinate % owners) * size."""
        if owners == 1:
            return 0
        assert d.sg_layout is not None
        weight = 1
        for dim in d.id_order:
            if dim == field:
                break
            weight *= d.sg_layout[dim]
        return self.times(self.digit(weight, owners, d.subgroups), size)

    def first_replica(self, layout: Layout, subgroups: int) -> SSAValue | None:
        """Whether this subgroup is the first of those that own the same; None where it always is."""
        condition: SSAValue | None = None
        for digit in layout.on(ly.Axis.SUBGROUP):
            if digit.dim is not None:
                continue
            value = self.value(self.digit(digit.weight, digit.size, subgroups))
            key = ("first", digit.weight, digit.size)
            if key not in self.known:
                zero = self.constant(0)
                self.known[key] = self._insert(arith.CmpiOp(value, zero, "eq"))
            here = self.known[key]
            condition = here if condition is None else self.combined(arith.AndIOp, condition, here)
        return condition
