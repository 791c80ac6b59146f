"""Subgroup to lane: blocks that no 2D block message reaches, as rows of the subgroup or vectors of its lanes.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. `row_access` chooses; a block that is not known to be
inside of its base is asked at run time, by all lanes alike, and only a ragged one takes the guarded elements:

    %v = load_nd %t[%m, %k] {tilewright.scattered = "..."} : tensor_desc<16x32xf16> -> vector<16x32xf16>
    ->
    %full = arith.cmpi sle, (%m + 16), %rows
    %r:16 = scf.if %full {
      %0 = load_nd %row[%m, %k] {tilewright.row} : tensor_desc<1x32xf16, boundary_check = false> -> vector<4xf16>
      ..                                                        (one 1-D block message each)
    } else {
      .. loads of single elements under masks, 0 where outside
    }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from xdsl.dialects import arith, scf, vector
from xdsl.dialects.builtin import (
    ArrayAttr,
    FixedBitwidthType,
    IntegerType,
    StringAttr,
    UnitAttr,
    VectorType,
)
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.ir import Block as IrBlock

from tilewright import layout as ly
from tilewright.diagnostics import location_of
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.xegpu.attrs import BlockTensorDescAttr
from tilewright.dialects.xegpu.types import TensorDescType, element_bits
from tilewright.dialects.xetile.assembly import Index, split_indices
from tilewright.passes.integers import bounds, divisor, is_natural
from tilewright.passes.xegpu import row_access
from tilewright.passes.xegpu.blocks import ROW, SCATTERED, created, surface, surface_fault
from tilewright.passes.xegpu.facts import MOST, inside
from tilewright.passes.xegpu.fragments import Fragment, Register, element_of
from tilewright.passes.xegpu.lane_addresses import LaneAddresses, Surface
from tilewright.passes.xegpu.row_access import Plan, Run

REMARKS = "tilewright.remarks"
"""What a kernel's author should know of its lowering: an array of strings on the kernel."""
FEW_ADDRESSES = 4
"""So many addresses of a ragged block may be kept in registers over a loop that it stands in."""


@dataclass(frozen=True)
class _Access:
    """One block op: its base, its ownership over rows and columns, and the two ways to move it."""

    op: xegpu.BlockAccess
    surface: Surface
    layout: ly.Layout
    plan: Plan
    """Of a block that is inside."""
    guarded: Plan
    """Of one that may be ragged: vectors that are inside or outside as a whole."""
    align: int


class LaneRows(LaneAddresses):
    """Loads and stores of blocks without 2D block messages."""

    remarks: list[str]

    def scattered_load(self, op: xegpu.LoadNdOp) -> None:
        layout, element = self.owners.layout(op.value), element_of(op.value)
        access = self._access(op, self._over_blocks(op, layout))
        full = self._full(access)
        if full is True:
            roots = self._load_runs(access, access.plan, masked=False)
            self.give(op.value, Fragment(layout, element, self._registers(access.plan, roots)))
            return
        if full is None:
            roots = self._load_runs(access, access.guarded, masked=True)
            registers = self._registers(access.guarded, roots)
            if all(isinstance(root.type, VectorType) for root in roots):
                self.give(op.value, Fragment(layout, element, registers))
                return
            # One vector at once: the single elements need not live until it is used.
            self.give(op.value, self.fragment(layout, self.pick(registers)))
            return

        def ragged() -> list[SSAValue]:
            return self._as_words(access.plan, self._ragged_runs(access))

        def whole() -> list[SSAValue]:
            found = self._load_runs(access, access.plan, masked=False)
            return self._as_words(access.plan, found)

        found = self._choose(full, whole, ragged, len(access.guarded.runs))
        roots = [self.seen_as(value, element) for value in found]
        self.give(op.value, Fragment(layout, element, self._registers(access.plan, roots)))

    def scattered_store(self, op: xegpu.StoreNdOp) -> None:
        value = self.owned(op.value, self.owners.layout(op.value))
        access = self._access(op, value.layout)
        full = self._full(access)
        if full is True or full is None:
            masked = full is None
            plan = access.guarded if masked else access.plan
            self._store_runs(access, plan, value, masked=masked)
            return
        # Both ways take the same vectors: they are put together in front of the branch.
        for run in access.plan.runs:
            self._root([value.registers[r] for r in run.registers])

        def store(plan: Plan, masked: bool) -> list[SSAValue]:
            self._store_runs(access, plan, value, masked=masked)
            return []

        self._choose(
            full,
            lambda: store(access.plan, False),
            lambda: store(access.guarded, True),
            len(access.guarded.runs),
        )

    # --- Choosing ----------------------------------------------------------------------------------------

    def _access(self, op: xegpu.BlockAccess, layout: ly.Layout) -> _Access:
        base = created(op.operands[op.tdesc_operand])
        found = self.surface_of(op)
        assert base is not None
        question = row_access.asked(self.owners.xe, op, base, layout)
        sizes, _ = surface(base)
        whole = gcd(MOST, divisor(sizes[-1])) if sizes and sizes[-1] is not None else 1
        for given in row_access.offset_parts(op, base):
            whole = gcd(whole, divisor(given[-1]))
        plan = row_access.best(question)
        self._say(op, plan)
        guarded = row_access.vectors(replace(question, whole=whole))
        return _Access(op, found, layout, plan, guarded, question.align)

    def _full(self, access: _Access) -> SSAValue | Literal[True] | None:
        """Is the block inside of its base? True where that is known, None where nobody asks: the guarded way is
        as good."""
        op = access.op
        if not op.tdesc.boundary_check or not access.surface.bounded:
            return True
        base = created(op.operands[op.tdesc_operand])
        assert base is not None
        sizes, _ = surface(base)
        rank = len(access.surface.sizes)
        shape = access.layout.shape
        extents = (*[1] * (rank - len(shape)), *shape)
        parts = row_access.offset_parts(op, base)
        now = self.block_offsets(op, rank)
        open_dims: list[int] = []
        for n in range(rank):
            given = [p[n - rank] for p in parts if len(p) >= rank - n]
            if not _surely_inside(given, extents[n], sizes[n] if sizes else None):
                open_dims.append(n)
        if not open_dims:
            return True
        if access.plan.kind == "lane" and len(access.plan.runs) == len(access.guarded.runs):
            return None
        result: SSAValue | None = None
        for n in open_dims:
            given = [p[n - rank] for p in parts if len(p) >= rank - n]
            end = self.index(self.plus(now[n], extents[n]))
            hits = [self.compare("sle", end, self.index(access.surface.sizes[n]))]
            if not all(is_natural(v) for v in given):
                hits.append(self.compare("sge", self.index(now[n]), self.index(0)))
            for hit in hits:
                result = hit if result is None else self.binary(arith.AndIOp, result, hit)
        return result

    def _choose(
        self,
        full: SSAValue,
        inside: Callable[[], list[SSAValue]],
        ragged: Callable[[], list[SSAValue]],
        addresses: int,
    ) -> list[SSAValue]:
        """A branch that all lanes take alike; its results. The ragged way computes so many addresses."""
        regions: list[Region] = []
        types: list[Attribute] = []
        outer = self.out
        for make in (inside, ragged):
            self.out = IrBlock()
            self._memos.append({})
            known = self._memos
            if make is ragged and addresses > FEW_ADDRESSES:
                # A lane number that nobody sees through: what is computed of it stays in the branch, where compilers
                # would move addresses of single elements in front of the loop and keep them in registers.
                self._memos = [{"lane": self.shuffle(self.lane(), "idx", self.lane())}]
            values = make()
            self._memos = known
            types = [v.type for v in values]
            self.put(scf.YieldOp(*values))
            self._memos.pop()
            regions.append(Region(self.out))
        self.out = outer
        return list(self.put(scf.IfOp(full, types, regions[0], regions[1])).results)

    # --- Moving --------------------------------------------------------------------------------------------

    def _registers(self, plan: Plan, roots: Sequence[SSAValue]) -> tuple[Register, ...]:
        """Where each register of the value is."""
        found: dict[int, Register] = {}
        for run, root in zip(plan.runs, roots, strict=True):
            for n, register in enumerate(run.registers):
                found[register] = (root, n)
        return tuple(found[n] for n in range(len(found)))

    def _as_words(self, plan: Plan, roots: Sequence[SSAValue]) -> list[SSAValue]:
        """Vectors as the words that a row's message gives: compilers then join them without copies of halves."""
        if plan.kind != "row":
            return list(roots)
        return [
            self.seen_as(root, IntegerType(run.bits)) if _joins(root, run) else root
            for run, root in zip(plan.runs, roots, strict=True)
        ]

    def _ragged_runs(self, access: _Access) -> list[SSAValue]:
        """The vectors of the plan's runs from guarded accesses: each is put together before the next is loaded, so
        that single elements, which fill a register each, do not live long."""
        owner = {r: run for run in access.guarded.runs for r in run.registers}
        parts: dict[int, Register] = {}
        found: list[SSAValue] = []
        for run in access.plan.runs:
            todo = dict.fromkeys(owner[r] for r in run.registers if r not in parts)
            plan = replace(access.guarded, runs=tuple(todo))
            for each, root in zip(
                plan.runs, self._load_runs(access, plan, masked=True), strict=True
            ):
                parts.update((r, (root, n)) for n, r in enumerate(each.registers))
            found.append(self._root([parts[r] for r in run.registers]))
        return found

    def _root(self, registers: Sequence[Register]) -> SSAValue:
        return self.pick(registers) if len(registers) > 1 else self.scalar_of(registers[0])

    def _load_runs(self, access: _Access, plan: Plan, *, masked: bool) -> list[SSAValue]:
        op = access.op
        element = op.tdesc.element_type
        hints = self._hints(op)
        if plan.kind == "row":
            roots: list[SSAValue] = []
            for run in plan.runs:
                kind = VectorType(element, [len(run.registers)])
                tdesc, operands, properties = self._row(access, run)
                new = xegpu.LoadNdOp.create(
                    operands=[tdesc, *operands],
                    properties=properties | hints,
                    attributes={ROW: UnitAttr()},
                    result_types=[kind],
                )
                made = self.add(new)
                roots.append(made if len(run.registers) > 1 else self.scalar_of((made, 0)))
            return roots
        firsts = [run.registers[0] for run in plan.runs]
        # Of vectors only the first element would be at the edge.
        clamped = masked and all(len(run.registers) == 1 for run in plan.runs)
        distances, masks = self.places(
            op, access.layout, access.surface, firsts, bounded=masked, clamped=clamped
        )
        return [
            self.lane_load(
                access.surface.base,
                distance,
                mask,
                element,
                len(run.registers),
                hints,
                zero=True,
                align=_known(run, access.align),
                clamped=clamped,
            )[0][0]
            for run, distance, mask in zip(plan.runs, distances, masks, strict=True)
        ]

    def _store_runs(self, access: _Access, plan: Plan, value: Fragment, *, masked: bool) -> None:
        op = access.op
        hints = self._hints(op)
        if plan.kind == "row":
            for run in plan.runs:
                part = self.pick([value.registers[r] for r in run.registers])
                if not isinstance(part.type, VectorType):
                    one = VectorType(value.element, [1])  # pyright: ignore
                    part = self.once(("one", part), vector.BroadcastOp(part, one))
                tdesc, operands, properties = self._row(access, run)
                self.put(
                    xegpu.StoreNdOp.create(
                        operands=[part, tdesc, *operands],
                        properties=properties | hints,
                        attributes={ROW: UnitAttr()},
                    )
                )
            return
        firsts = [run.registers[0] for run in plan.runs]
        distances, masks = self.places(op, access.layout, access.surface, firsts, bounded=masked)
        for run, distance, mask in zip(plan.runs, distances, masks, strict=True):
            self.lane_store(
                access.surface.base,
                distance,
                self.once_per_element(access.layout, mask),
                [value.registers[r] for r in run.registers],
                hints,
                align=_known(run, access.align),
            )

    def _row(
        self, access: _Access, run: Run
    ) -> tuple[SSAValue, list[SSAValue], dict[str, Attribute]]:
        """Descriptor of one row, the operands and properties that say where it is."""
        op = access.op
        base = created(op.operands[op.tdesc_operand])
        assert base is not None
        width = len(run.registers) * self.lanes
        shape = (width,) if run.word == 1 else (1, width)
        space = "slm" if op.tdesc.space.number else None
        encoding = BlockTensorDescAttr(memory_space=space, boundary_check=False)
        kind = TensorDescType(shape, op.tdesc.element_type, encoding)
        desc = self.once(
            ("row", base, kind),
            xegpu.CreateNdDescOp.create(
                operands=[self.env[v] for v in base.operands],
                properties=dict(base.properties),
                result_types=[kind],
            ),
        )
        rank = len(access.surface.sizes)
        given: list[Index] = [
            self.env[v] if isinstance(v, SSAValue) else v for v in op.mixed_offsets or []
        ]
        given = [*[0] * (rank - len(given)), *given]
        lead = rank - len(run.start)
        places = [v if n < lead else self.plus(v, run.start[n - lead]) for n, v in enumerate(given)]
        static, dynamic = split_indices(places)
        return desc, list(dynamic), {"const_offsets": static}

    def _over_blocks(self, op: xegpu.BlockAccess, layout: ly.Layout) -> ly.Layout:
        """The ownership of a value over rows and columns as they lie in memory."""
        tdesc = op.tdesc
        shape, count = tdesc.get_shape(), tdesc.array_length
        blocks = (count, *shape) if count > 1 else shape
        if isinstance(op, xegpu.LoadNdOp) and op.transposes:
            if op.transpose_bit_width is not None:
                unit = op.together
                layout = layout.reshaped((shape[1] // unit, shape[0], unit)).permuted((1, 0, 2))
                return layout.reshaped(shape)
            return layout.permuted((1, 0))
        if isinstance(op, xegpu.LoadNdOp) and op.packed is not None and layout.rank > len(blocks):
            rank = layout.rank
            layout = layout.permuted((*range(rank - 2), rank - 1, rank - 2))
        if layout.shape != blocks:
            layout = layout.reshaped(blocks)
        if count == 1:
            return layout
        *lead, width = shape
        inner = (*range(1, len(shape)), 0, len(shape))
        return layout.permuted(inner).reshaped((*lead, count * width))

    # --- Saying -----------------------------------------------------------------------------------------------

    def _say(self, op: xegpu.BlockAccess, plan: Plan) -> None:
        """A remark where a machine that has block messages cannot use them, or single elements are moved."""
        said = op.attributes.get(SCATTERED)
        base = created(op.operands[op.tdesc_operand])
        why = said.data if isinstance(said, StringAttr) else None
        if why is None and base is not None and len(op.tdesc.get_shape()) > 1:
            why = surface_fault(self.owners.xe, base)
        run = plan.runs[0]
        size = len(run.registers) * element_bits(op.tdesc.element_type)
        if why is None or (not self.owners.xe.blocks and (plan.kind == "row" or size >= 32)):
            return
        if plan.kind == "row":
            how = f"by rows of the subgroup, {run.count} words of {run.bits} bits per lane"
        elif size >= 32:
            how = f"lane by lane, {size // 8} bytes at once"
        else:
            how = "element by element"
        text = f"{op.name} goes {how}: {why}"
        where = location_of(op)
        text = text if where is None else f"{where}: {text}"
        if text not in self.remarks:
            self.remarks.append(text)


def _joins(root: SSAValue, run: Run) -> bool:
    element = element_of(root)
    return isinstance(element, FixedBitwidthType) and (
        isinstance(root.type, VectorType) or run.word == 1
    )


def _known(run: Run, align: int) -> int:
    """Bytes that divide the addresses of a lane's vector: its words'."""
    return min(align, run.bits // 8) if len(run.registers) > 1 else 0


def _surely_inside(given: Sequence[Index], extent: int, size: Index | None) -> bool:
    parts = [v for v in given if v != 0]
    if size is None:
        return False
    if len(parts) <= 1:
        return inside(parts[0] if parts else 0, extent, size)
    ranges = [bounds(v) for v in parts]
    number = size if isinstance(size, int) else constant(size)
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    if number is None or any(low is None or low < 0 for low in lows):
        return False
    return all(h is not None for h in highs) and sum(h or 0 for h in highs) + extent <= number


def add_remarks(attributes: dict[str, Attribute], remarks: Sequence[str]) -> None:
    """Puts remarks onto a kernel, behind those that it has."""
    if remarks:
        known = attributes.get(REMARKS)
        old = list(known.data) if isinstance(known, ArrayAttr) else []
        attributes[REMARKS] = ArrayAttr([*old, *map(StringAttr, remarks)])
