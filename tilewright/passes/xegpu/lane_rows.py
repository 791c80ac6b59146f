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
from dataclasses import replace
from math import gcd
from typing import Literal

from xdsl.dialects import vector
from xdsl.dialects.builtin import FixedBitwidthType, IntegerType, StringAttr, UnitAttr, VectorType
from xdsl.ir import SSAValue

from tilewright import layout as ly
from tilewright.diagnostics import remark_at
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.upstream.arith import constant, element_bits
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.xegpu.attrs import BlockTensorDescAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import frozen
from tilewright.passes.integers import bounds, divisor, is_natural
from tilewright.passes.xegpu import row_access
from tilewright.passes.xegpu.block_messages import (
    ROW,
    SCATTERED,
    base_of,
    created,
    surface,
    surface_fault,
)
from tilewright.passes.xegpu.facts import MOST, inside
from tilewright.passes.xegpu.lane_addresses import (
    RowSurface,
    block_offsets,
    element_places,
    lane_load,
    lane_store,
    once_per_element,
    surface_of,
)
from tilewright.passes.xegpu.lanes import LaneProgram
from tilewright.passes.xegpu.lazy_registers import LaneFragment, Register
from tilewright.passes.xegpu.row_access import RowAccess, RowPlan

FEW_ADDRESSES = 4
"""So many addresses of a ragged block may be kept in registers over a loop that it stands in."""


@frozen
class _Access:
    """One block op: its base, its ownership over rows and columns, and the two ways to move it."""

    op: xegpu.BlockAccess
    surface: RowSurface
    layout: ly.Layout
    plan: RowPlan
    """Of a block that is inside."""
    guarded: RowPlan
    """Of one that may be ragged: vectors that are inside or outside as a whole."""
    align: int


def scattered_load(d: LaneProgram, op: xegpu.LoadNdOp) -> None:
    layout, element = d.owners.layout(op.value), element_of(op.value.type)
    access = _access(d, op, _over_blocks(op, layout))
    full = _full(d, access)
    if full is True:
        roots = _load_runs(d, access, access.plan, masked=False)
        d.give(op.value, LaneFragment(layout, element, _registers(access.plan, roots)))
        return
    if full is None:
        roots = _load_runs(d, access, access.guarded, masked=True)
        registers = _registers(access.guarded, roots)
        if all(isinstance(root.type, VectorType) for root in roots):
            d.give(op.value, LaneFragment(layout, element, registers))
            return
        # One vector at once: the single elements need not live until it is used.
        d.give(op.value, d.fragment(layout, d.pick(registers)))
        return

    def ragged() -> list[SSAValue]:
        return _as_words(d, access.plan, _ragged_runs(d, access))

    def whole() -> list[SSAValue]:
        found = _load_runs(d, access, access.plan, masked=False)
        return _as_words(d, access.plan, found)

    found = _choose(d, full, whole, ragged, len(access.guarded.runs))
    roots = [d.seen_as(value, element) for value in found]
    d.give(op.value, LaneFragment(layout, element, _registers(access.plan, roots)))


def scattered_store(d: LaneProgram, op: xegpu.StoreNdOp) -> None:
    value = d.owned(op.value, d.owners.layout(op.value))
    access = _access(d, op, value.layout)
    full = _full(d, access)
    if full is True or full is None:
        masked = full is None
        plan = access.guarded if masked else access.plan
        _store_runs(d, access, plan, value, masked=masked)
        return
    # Both ways take the same vectors: they are put together in front of the branch.
    for run in access.plan.runs:
        d.together([value.registers[r] for r in run.registers])

    def store(plan: RowPlan, masked: bool) -> list[SSAValue]:
        _store_runs(d, access, plan, value, masked=masked)
        return []

    _choose(
        d,
        full,
        lambda: store(access.plan, False),
        lambda: store(access.guarded, True),
        len(access.guarded.runs),
    )


# --- Choosing ----------------------------------------------------------------------------------------


def _access(d: LaneProgram, op: xegpu.BlockAccess, layout: ly.Layout) -> _Access:
    base, found = base_of(d, op), surface_of(d, op)
    question = row_access.asked(d.owners.xe, op, base, layout)
    sizes, _ = surface(base)
    whole = gcd(MOST, divisor(sizes[-1])) if sizes and sizes[-1] is not None else 1
    for given in row_access.offset_parts(op, base):
        whole = gcd(whole, divisor(given[-1]))
    plan = row_access.best(question)
    _say(d, op, plan)
    guarded = row_access.vectors(replace(question, whole=whole))
    return _Access(op, found, layout, plan, guarded, question.align)


def _full(d: LaneProgram, access: _Access) -> SSAValue | Literal[True] | None:
    """Is the block inside of its base? True where that is known, None where nobody asks: the guarded way is
    as good."""
    op = access.op
    if not op.tdesc.boundary_check:
        return True
    base = base_of(d, op)
    sizes, _ = surface(base)
    rank = len(access.surface.sizes)
    shape = access.layout.shape
    extents = (*[1] * (rank - len(shape)), *shape)
    parts = row_access.offset_parts(op, base)
    now = block_offsets(d, op, rank)
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
        end = d.index(d.plus(now[n], extents[n]))
        hits = [d.compare("sle", end, d.index(access.surface.sizes[n]))]
        if not all(is_natural(v) for v in given):
            hits.append(d.compare("sge", d.index(now[n]), d.index(0)))
        for hit in hits:
            result = d.also(result, hit)
    return result


def _choose(
    d: LaneProgram,
    full: SSAValue,
    inside: Callable[[], list[SSAValue]],
    ragged: Callable[[], list[SSAValue]],
    addresses: int,
) -> list[SSAValue]:
    """A branch that all lanes take alike; its results. The ragged way computes so many addresses."""

    def apart() -> list[SSAValue]:
        # A lane number that nobody sees through: what is computed of it stays in the branch, where compilers
        # would move addresses of single elements in front of the loop and keep them in registers.
        with d.afresh({"lane": d.shuffle(d.lane(), "idx", d.lane())}):
            return ragged()

    return list(d.choose(full, inside, apart if addresses > FEW_ADDRESSES else ragged))


# --- Moving --------------------------------------------------------------------------------------------


def _registers(plan: RowPlan, roots: Sequence[SSAValue]) -> tuple[Register, ...]:
    """Where each register of the value is."""
    found: dict[int, Register] = {}
    for run, root in zip(plan.runs, roots, strict=True):
        for n, register in enumerate(run.registers):
            found[register] = (root, n)
    return tuple(found[n] for n in range(len(found)))


def _as_words(d: LaneProgram, plan: RowPlan, roots: Sequence[SSAValue]) -> list[SSAValue]:
    """Vectors as the words that a row's message gives: compilers then join them without copies of halves."""
    if plan.kind != "row":
        return list(roots)
    return [
        d.seen_as(root, IntegerType(run.bits)) if _joins(root, run) else root
        for run, root in zip(plan.runs, roots, strict=True)
    ]


def _ragged_runs(d: LaneProgram, access: _Access) -> list[SSAValue]:
    """The vectors of the plan's runs from guarded accesses: each is put together before the next is loaded, so
    that single elements, which fill a register each, do not live long."""
    owner = {r: run for run in access.guarded.runs for r in run.registers}
    parts: dict[int, Register] = {}
    found: list[SSAValue] = []
    for run in access.plan.runs:
        todo = dict.fromkeys(owner[r] for r in run.registers if r not in parts)
        plan = replace(access.guarded, runs=tuple(todo))
        for each, root in zip(plan.runs, _load_runs(d, access, plan, masked=True), strict=True):
            parts.update((r, (root, n)) for n, r in enumerate(each.registers))
        found.append(d.together([parts[r] for r in run.registers]))
    return found


def _load_runs(d: LaneProgram, access: _Access, plan: RowPlan, *, masked: bool) -> list[SSAValue]:
    op = access.op
    element = op.tdesc.element_type
    hints = hints_of(op)
    if plan.kind == "row":
        roots: list[SSAValue] = []
        for run in plan.runs:
            kind = VectorType(element, [len(run.registers)])
            new = xegpu.LoadNdOp(_row(d, access, run), kind, _place(d, access, run), hints=hints)
            new.attributes[ROW] = UnitAttr()
            made = d.add(new)
            roots.append(made if len(run.registers) > 1 else d.scalar_of((made, 0)))
        return roots
    firsts = [run.registers[0] for run in plan.runs]
    # Of vectors only the first element would be at the edge.
    clamped = masked and all(len(run.registers) == 1 for run in plan.runs)
    distances, masks = element_places(
        d, op, access.layout, access.surface, firsts, bounded=masked, clamped=clamped
    )
    return [
        lane_load(
            d,
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


def _store_runs(
    d: LaneProgram, access: _Access, plan: RowPlan, value: LaneFragment, *, masked: bool
) -> None:
    op = access.op
    hints = hints_of(op)
    if plan.kind == "row":
        for run in plan.runs:
            part = d.pick([value.registers[r] for r in run.registers])
            if not isinstance(part.type, VectorType):
                one = VectorType(value.element, [1])  # pyright: ignore
                part = d.once(("one", part), vector.BroadcastOp(part, one))
            new = xegpu.StoreNdOp(part, _row(d, access, run), _place(d, access, run), hints=hints)
            new.attributes[ROW] = UnitAttr()
            d.put(new)
        return
    firsts = [run.registers[0] for run in plan.runs]
    distances, masks = element_places(d, op, access.layout, access.surface, firsts, bounded=masked)
    for run, distance, mask in zip(plan.runs, distances, masks, strict=True):
        lane_store(
            d,
            access.surface.base,
            distance,
            once_per_element(d, access.layout, mask),
            [value.registers[r] for r in run.registers],
            hints,
            align=_known(run, access.align),
        )


def _row(d: LaneProgram, access: _Access, run: RowAccess) -> SSAValue:
    """The descriptor of one row."""
    op = access.op
    base = base_of(d, op)
    width = len(run.registers) * d.lanes
    shape = (width,) if run.word == 1 else (1, width)
    space = "slm" if op.tdesc.space.number else None
    encoding = BlockTensorDescAttr(memory_space=space, boundary_check=False)
    kind = TensorDescType(shape, op.tdesc.element_type, encoding)
    operands = [d.env[v] for v in base.operands]
    return d.once(("row", base, shape), lambda: d.add(retyped(base, operands, [kind], {})))


def _place(d: LaneProgram, access: _Access, run: RowAccess) -> list[Index]:
    """Where a row is."""
    given = d.numbers(access.op.mixed_offsets or [])
    outer = [0] * (len(access.surface.sizes) - len(given))
    return d.shifted([*outer, *given], run.start)


def _over_blocks(op: xegpu.BlockAccess, layout: ly.Layout) -> ly.Layout:
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
    if isinstance(op, xegpu.LoadNdOp) and op.packed and layout.rank > len(blocks):
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


def _say(d: LaneProgram, op: xegpu.BlockAccess, plan: RowPlan) -> None:
    """A remark where a machine that has block messages cannot use them, or single elements are moved."""
    reason = op.attributes.get(SCATTERED)
    base = created(op)
    why = reason.data if isinstance(reason, StringAttr) else None
    if why is None and base is not None and len(op.tdesc.get_shape()) > 1:
        why = surface_fault(d.owners.xe, base)
    run = plan.runs[0]
    size = len(run.registers) * element_bits(op.tdesc.element_type)
    if why is None or (not d.owners.xe.blocks and (plan.kind == "row" or size >= 32)):
        return
    if plan.kind == "row":
        how = f"by rows of the subgroup, {run.count} words of {run.bits} bits per lane"
    elif size >= 32:
        how = f"lane by lane, {size // 8} bytes at once"
    else:
        how = "element by element"
    text = remark_at(op, f"{op.name} goes {how}: {why}")
    if text not in d.remarks:
        d.remarks.append(text)


def _joins(root: SSAValue, run: RowAccess) -> bool:
    element = element_of(root.type)
    return isinstance(element, FixedBitwidthType) and (
        isinstance(root.type, VectorType) or run.word == 1
    )


def _known(run: RowAccess, align: int) -> int:
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
