"""xegpu-wg-to-sg-distribute, scattered ops: every subgroup gathers and scatters its own elements.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. Offsets, mask and value are dealt out alike; a chunk is
a last dimension that every subgroup holds whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.xegpu.block import HINTS
from tilewright.dialects.xegpu.layouts import Ownership
from tilewright.layout import Distribution
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.emit import zero_of
from tilewright.passes.xegpu.wg_to_sg import Distributor, rule


def lanes_layout(d: Distribution, value: Sequence[int], lanes: Sequence[int]) -> Distribution:
    """The layout of offsets and mask, given that of the value, which may have a chunk besides."""
    extra = len(value) - len(lanes)
    if extra == 0:
        return d
    if not own.is_whole(d, value, len(value) - 1):
        raise ly.LayoutError("a chunk belongs to one subgroup")
    return ly.slice_(d, [len(value) - 1])


def _operands(
    to: Distributor, op: xegpu.ScatterAccess, d: Distribution, shape: Sequence[int], *names: str
) -> list[list[SSAValue]]:
    offsets = op.offsets_operand
    if offsets is None:
        raise to.refuse("on a scattered descriptor: xegpu-modernize gives it base and offsets")
    narrow = lanes_layout(d, shape, own.shape_of(offsets))
    columns = [to.pieces(offsets, narrow, "the offset vector")]
    for name in names:
        value = getattr(op, name)
        want = narrow if name == "mask" else d
        columns.append(to.pieces(value, want, f"the {name}"))
    return columns


def _chunk(op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp) -> int | None:
    size = op.chunk_size
    return size.value.data if isinstance(size, IntegerAttr) else None


def _with_hints(new: Operation, op: Operation) -> Operation:
    """The op with the cache hints of the one that it is a part of."""
    for name in HINTS:
        if (hint := op.properties.get(name)) is not None:
            new.properties[name] = hint
    return new


def _text(d: Distribution) -> Ownership | None:
    left = own.remainder(d)
    return None if left is None else own.attribute(left)


@rule("xegpu.load")
def load(to: Distributor, op: Operation) -> None:
    assert isinstance(op, xegpu.LoadGatherOp)
    if not isinstance(op.value.type, VectorType):
        to.keep(op)
        return
    if op.transpose is not None:
        raise to.refuse("with transpose at workgroup level")
    d, shape = to.result_layout(op), own.shape_of(op.value)
    kind = to.piece_type(op.value.type, d)
    offsets, masks = _operands(to, op, d, shape, "mask")
    pieces = [
        to.add(
            _with_hints(
                xegpu.LoadGatherOp(to.same(op.source), mask, kind, at, _chunk(op), layout=_text(d)),
                op,
            )
        )
        for at, mask in zip(offsets, masks, strict=True)
    ]
    to.define(op.value, pieces)


@rule("xegpu.store")
def store(to: Distributor, op: Operation) -> None:
    assert isinstance(op, xegpu.StoreScatterOp)
    if op.transpose is not None:
        raise to.refuse("with transpose at workgroup level")
    shape = own.shape_of(op.value)
    d = own.from_attribute(op.layout) or to.layout(op.value)
    offsets, masks, values = _operands(to, op, d, shape, "mask", "value")
    with to.when(to.first_owner(d, shape)):
        for at, mask, value in zip(offsets, masks, values, strict=True):
            new = xegpu.StoreScatterOp(
                value, to.same(op.source), mask, at, _chunk(op), layout=_text(d)
            )
            to.put(_with_hints(new, op))


@rule("xegpu.atomic_rmw")
def atomic_rmw(to: Distributor, op: Operation) -> None:
    assert isinstance(op, xegpu.AtomicRMWOp)
    shape = own.shape_of(op.value)
    d = to.result_layout(op)
    offsets, masks, values = _operands(to, op, d, shape, "mask", "value")

    def update() -> list[SSAValue]:
        return [
            to.add(
                xegpu.AtomicRMWOp(
                    op.kind, value, to.same(op.source), mask, at, _text(d), _chunk(op)
                )
            )
            for at, mask, value in zip(offsets, masks, values, strict=True)
        ]

    def nothing() -> list[SSAValue]:
        kind = to.piece_type(op.result.type, d)
        return [to.add(arith.ConstantOp(zero_of(kind)))] * len(values)

    condition = to.first_owner(d, shape)
    if op.result.first_use is None:
        with to.when(condition):
            update()
        return
    # Old values are right in the subgroup that did it; it hands them on through shared memory.
    found = update() if condition is None else to.choose(condition, update, nothing)
    to.define(op.result, found)


@rule("xegpu.prefetch")
def prefetch(to: Distributor, op: Operation) -> None:
    assert isinstance(op, xegpu.PrefetchOp)
    offsets = op.offsets
    if offsets is None or not isinstance(offsets.type, VectorType):
        raise to.refuse("on a scattered descriptor: xegpu-modernize gives it base and offsets")
    d = own.from_attribute(op.layout) or to.layout(offsets)
    align = op.offset_align_byte
    for at in to.pieces(offsets, d, "the offset vector"):
        new = xegpu.PrefetchOp(
            to.same(op.source),
            at,
            None if align is None else align.value.data,
            layout=_text(d),
        )
        to.put(_with_hints(new, op))
