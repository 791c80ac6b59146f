"""vector.reduction, vector.multi_reduction, vector.contract.

Sums come in any order (DESIGN section 3), so a register folds in halves: log2(n) shuffles and ops.
Narrow floats sum in f32 and round once at the end. NaN and the sign of zero follow the kind:
minimumf and maximumf give NaN, minnumf and maxnumf drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from xdsl.dialects.builtin import AffineMapAttr, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.arith import INTEGER_BINARY, INTEGER_MINMAX
from tilewright.codegen.casts import resize_integer
from tilewright.codegen.components import ComponentSource
from tilewright.codegen.convert import convert_float
from tilewright.codegen.elementwise import fast_flags
from tilewright.codegen.floats import FLOAT_BINARY, FLOAT_MINMAX, float_maximum, narrow_result
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.printer import Printer, Regs, prints, unsupported
from tilewright.codegen.registers import Element, RegisterLayout
from tilewright.dialects.movement import integers
from tilewright.dialects.upstream.combining import REDUCTIONS, kind_of
from tilewright.dialects.upstream.vector import ContractionOp

F32 = Element("f32", "float", "float", 32, 32)


def combiner(
    p: Printer, op: Operation, kind: str, e: Element, flags: str
) -> Callable[[int, str, str], str]:
    """combine(components, a, b) -> register, for registers of element `e` (f32 or f64 if a float)."""
    found = REDUCTIONS.get(kind)
    each = found and (found.of_floats if e.is_float else found.of_integers)
    if each is None:
        raise unsupported(op, f"kind '{kind}' does not apply to {e.name}")
    if (name := FLOAT_BINARY.get(each.name)) is not None:
        return lambda n, a, b: Lanes(p, n, flags).fop(name, Lanes(p, n).type(e.llvm), a, b)
    if (extreme := FLOAT_MINMAX.get(each.name)) is not None:
        return lambda n, a, b: float_maximum(Lanes(p, n, flags), e.llvm, a, b, extreme)
    if (own := INTEGER_BINARY.get(each.name)) is not None:
        return lambda n, a, b: Lanes(p, n).op(own, Lanes(p, n).type(e.llvm), a, b)
    return lambda n, a, b: Lanes(p, n).intrinsic(INTEGER_MINMAX[each.name], e.llvm, a, b)


def computing_layout(p: Printer, layout: RegisterLayout) -> RegisterLayout:
    """The layout in which a reduction computes: f32 for narrower floats."""
    e = layout.element
    if not e.is_float or e.name in ("f32", "f64"):
        return layout
    return p.rep.layout_of(F32, layout.shape)


def to_computing(
    p: Printer, layout: RegisterLayout, wide: RegisterLayout, regs: Sequence[str]
) -> Regs:
    if layout.element == wide.element:
        return tuple(regs)
    return tuple(
        convert_float(p, Lanes(p, n), r, layout.element, wide.element)
        for n, r in zip(layout.counts, regs, strict=True)
    )


def fold(
    p: Printer,
    e: Element,
    counts: Sequence[int],
    regs: Sequence[str],
    combine: Callable[[int, str, str], str],
) -> str:
    """All components of some registers combined into a scalar."""
    pending: dict[int, list[str]] = {}
    for n, r in zip(counts, regs, strict=True):
        pending.setdefault(n, []).append(r)
    scalars: list[str] = []
    while pending:
        n = max(pending)
        group = pending.pop(n)
        while len(group) > 1:
            pairs = [combine(n, a, b) for a, b in zip(group[0::2], group[1::2], strict=False)]
            group = pairs + ([group[-1]] if len(group) % 2 else [])
        if n == 1:
            scalars.append(group[0])
            continue
        source = ComponentSource(p, e.llvm)
        numbers = source.add(RegisterLayout(e, (n,), (n,), ()), (group[0],))
        half = n // 2
        parts = source.assemble(numbers, (half, half, *([1] * (n % 2))))
        pending.setdefault(half, []).extend(parts[:2])
        if n % 2:
            pending.setdefault(1, []).extend(parts[2:])
    return scalars[0]


@prints("vector.reduction")
def print_reduction(p: Printer, op: Operation) -> None:
    vector, *rest = op.operands
    layout = p.layout(vector.type)
    wide = computing_layout(p, layout)
    e = wide.element
    combine = combiner(p, op, kind_of(op), e, fast_flags(op))
    value = fold(p, e, wide.counts, to_computing(p, layout, wide, p.get(vector)), combine)
    if rest:
        scalar = p.layout(rest[0].type)
        (acc,) = to_computing(p, scalar, computing_layout(p, scalar), p.get(rest[0]))
        value = combine(1, value, acc)
    p.set(op.results[0], [narrow_result(p, Lanes(p, 1), value, e, layout.element)])


@prints("vector.multi_reduction")
def print_multi_reduction(p: Printer, op: Operation) -> None:
    """Reduced dimensions last: each row folds. Otherwise: slices combine register by register."""
    vector, acc = op.operands
    layout = p.layout(vector.type)
    wide = computing_layout(p, layout)
    e, shape = wide.element, layout.shape
    combine = combiner(p, op, kind_of(op), e, fast_flags(op))
    regs = to_computing(p, layout, wide, p.get(vector))
    dims = integers(op, "reduction_dims")
    kept = [d for d in range(len(shape)) if d not in dims]
    out = p.layout(op.results[0].type)
    source = ComponentSource(p, e.llvm)
    numbers = source.add(wide, regs)
    reduced = int(np.prod([shape[d] for d in dims], dtype=np.int64))
    if not isinstance(op.results[0].type, VectorType) or (
        all(d > k for d in dims for k in kept) and p.rep.cut((reduced,)) != (1,) * reduced
    ):
        rows = numbers.reshape(-1, reduced)
        counts = p.rep.cut((reduced,))
        scalars = [fold(p, e, counts, source.assemble(row, counts), combine) for row in rows]
        gathered = ComponentSource(p, e.llvm)
        positions = np.array(
            [int(gathered.add(RegisterLayout(e, (), (1,), ()), (s,))) for s in scalars]
        )
        values = gathered.assemble(positions, out.counts)
    else:
        slices = numbers.transpose([*dims, *kept]).reshape(reduced, -1)
        values = source.assemble(slices[0], out.counts)
        for row in slices[1:]:
            parts = source.assemble(row, out.counts)
            values = [combine(n, a, b) for n, a, b in zip(out.counts, values, parts, strict=True)]
    accs = to_computing(p, out, computing_layout(p, out), p.get(acc))
    values = [combine(n, a, b) for n, a, b in zip(out.counts, values, accs, strict=True)]
    _give(p, op, out, e, values)


def _give(
    p: Printer, op: Operation, out: RegisterLayout, e: Element, values: Sequence[str]
) -> None:
    """The result, computed as elements of `e`."""
    parts = zip(out.counts, values, strict=True)
    p.set(op.results[0], [narrow_result(p, Lanes(p, n), v, e, out.element) for n, v in parts])


# Contractions -------------------------------------------------------------------------------------


def _multiply_add(
    p: Printer, op: Operation, kind: str, e: Element, flags: str
) -> Callable[[int, str, str, str], str]:
    """mac(components, a, b, acc) -> combine(acc, a * b); one FMA where rounding once is allowed."""
    if kind == "add" and e.is_float:
        return lambda n, a, b, c: Lanes(p, n, flags).fmuladd(e.llvm, a, b, c)
    combine = combiner(p, op, kind, e, flags)
    multiply = combiner(p, op, "mul", e, flags)
    return lambda n, a, b, c: combine(n, c, multiply(n, a, b))


def _widen_operand(p: Printer, value: SSAValue, e: Element) -> tuple[RegisterLayout, Regs]:
    """An operand's registers in the accumulator's element type."""
    layout = p.layout(value.type)
    wide = (
        p.rep.layout_of(e, layout.shape) if layout.shape else RegisterLayout(e, (), (1,), (e.llvm,))
    )
    if layout.element == e:
        return wide, p.get(value)
    out: list[str] = []
    for n, r in zip(layout.counts, p.get(value), strict=True):
        o = Lanes(p, n)
        if e.is_float:
            out.append(convert_float(p, o, r, layout.element, e))
        else:
            out.append(resize_integer(o, r, layout.element, e, True))
    return wide, tuple(out)


@prints("vector.contract")
def print_contract(p: Printer, op: ContractionOp) -> None:
    """Sum of lhs * rhs over the reduced iterators, plus acc: one multiply-add per step."""
    lhs, rhs, acc = op.lhs, op.rhs, op.acc
    reduced = ["reduction" in str(k) for k in op.iterator_types]
    access = [_dimensions(op, m) for m in op.indexing_maps]
    sizes = [0] * len(reduced)
    for value, dims in zip((lhs, rhs), access, strict=False):
        for d, n in zip(dims, p.layout(value.type).shape, strict=True):
            sizes[d] = n
    out = p.layout(acc.type)
    wide = computing_layout(p, out)
    e = wide.element
    mac = _multiply_add(p, op, op.kind, e, fast_flags(op))
    values = list(to_computing(p, out, wide, p.get(acc)))
    grids = np.indices([1 if r else n for r, n in zip(reduced, sizes, strict=True)])
    kept = access[2]
    operands: list[tuple[ComponentSource, np.ndarray, list[int]]] = []
    for value, dims in zip((lhs, rhs), access, strict=False):
        layout, regs = _widen_operand(p, value, e)
        source = ComponentSource(p, e.llvm)
        operands.append((source, source.add(layout, regs), dims))
    order = [*kept, *(d for d in range(len(sizes)) if d not in kept)]
    for step in product(*(range(n) if r else (0,) for r, n in zip(reduced, sizes, strict=True))):
        parts: list[list[str]] = []
        for source, numbers, dims in operands:
            index = tuple(grids[d] + step[d] for d in dims)
            chosen = numbers[index] if dims else np.broadcast_to(numbers, grids.shape[1:])
            parts.append(source.assemble(chosen.transpose(order), wide.counts))
        values = [
            mac(n, a, b, c)
            for n, a, b, c in zip(wide.counts, parts[0], parts[1], values, strict=True)
        ]
    _give(p, op, out, e, values)


def _dimensions(op: Operation, attr: AffineMapAttr) -> list[int]:
    """Iterators that a projected permutation lists."""
    dims: list[int] = []
    for expr in attr.data.results:
        position = getattr(expr, "position", None)
        if position is None:
            raise unsupported(op, f"indexing map {attr} is not a projected permutation")
        dims.append(int(position))
    return dims
