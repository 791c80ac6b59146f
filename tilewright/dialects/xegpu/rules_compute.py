"""Rules of dpas, dpas_mx, convert_layout, conversions of floats and lane_shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects.builtin import AnyFloat, BFloat16Type, Float32Type, IntegerType, VectorType
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.strict import narrower
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.layouts import LayoutAttr, SgMapAttr, SliceAttr

if TYPE_CHECKING:
    from tilewright.dialects.xegpu import compute

from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.xegpu.rules import check_ownership


def verify_dpas(op: compute.DpasOp) -> None:
    _verify_accumulator(op)
    a, b, d = (shape_of_type(v.type) for v in (op.lhs, op.rhs, op.result))
    for name in ("layout_a", "layout_b", "layout_cd"):
        check_ownership(op, name, getattr(op, name))
    _verify_dpas_elements(op)
    if len(a) == len(b) == len(d) == 1:
        if b[0] * element_bits(element_of(op.rhs.type)) % 32:
            raise VerifyException("Expecting B operand to be a multiple of 32 bits.")
        return  # lane fragments: their length tells nothing without the machine
    if any(isinstance(layout, SgMapAttr) for layout in op.layouts) and d[-1] == 1:
        return  # the RFC's [units, packed] fragments
    if _is_fragment_triple(a, b, d):
        return
    if len(a) == 3:
        narrower(op, "A operand must be a 2D vector.")
    _verify_ranks(a if len(a) != 3 else a[1:], b, d)
    _verify_matrix_dims(a, b, d)
    _verify_distribution(op, ("layout_a", a, "A"), ("layout_b", b, "B"), ("layout_cd", d, "Result"))


def _verify_accumulator(op: compute.DpasOp | compute.DpasMxOp) -> None:
    if op.acc is not None and op.acc.type != op.result.type:
        raise VerifyException(
            f"Accumulator type must match result type, got {op.acc.type} and {op.result.type}."
        )


def _verify_ranks(a: tuple[int, ...], b: tuple[int, ...], d: tuple[int, ...]) -> None:
    if len(a) != 2:
        raise VerifyException("A operand must be a 2D vector.")
    if len(b) not in (2, 3):
        raise VerifyException("B operand must be a 2D or 3D vector.")
    if len(d) != 2:
        raise VerifyException("Result must be a 2D vector.")


def _verify_distribution(
    op: compute.DpasOp | compute.DpasMxOp, *stated: tuple[str, tuple[int, ...], str]
) -> None:
    """Layouts of operands and result, given as (attribute, shape, what it is), distribute them out."""
    for name, shape, label in stated:
        layout = getattr(op, name)
        if isinstance(layout, (LayoutAttr, SliceAttr)) and len(shape) == 2:
            fault = distribution.fault(layout, shape)
            if fault is None:
                continue
            words = f"{label} shape is not distributable with the layout: {fault}"
            if not _within_one_part(layout, shape):
                raise VerifyException(words)
            narrower(op, words)


def _within_one_part(layout: LayoutAttr | SliceAttr, shape: tuple[int, ...]) -> bool:
    """Whether the two do not fit only because sg_data is larger than the tile, as in a layout that serves tiles of
    several widths: the subgroup then owns all that there is.
    """
    parts = distribution.subgroups(layout)
    if parts is None:
        return False
    return all(
        (data > extent and data % extent == 0)
        or (extent % data == 0 and (extent % (n * data) == 0 or (n * data) % extent == 0))
        for n, data, extent in zip(*parts, shape, strict=True)
    )


def _is_fragment_triple(a: tuple[int, ...], b: tuple[int, ...], d: tuple[int, ...]) -> bool:
    """The RFC's `[units, packed]` fragments, e.g. 8x1 by 8x2 to 8x1: C has one element per unit.

    A real product of this form would have N = 1 and B of one column, which a packed fragment has not.
    """
    if not len(a) == len(b) == len(d) == 2 or d[1] != 1:
        return False
    return not (a[1] == b[0] and b[1] == 1 and a[0] == d[0])


def _verify_matrix_dims(a: tuple[int, ...], b: tuple[int, ...], d: tuple[int, ...]) -> None:
    k_a = a[1] if len(a) == 2 else a[1] * a[2]
    k_b = b[0] if len(b) == 2 else b[0] * b[2]
    for dim, name_a, x, name_b, y in (
        ("K", "A", k_a, "B", k_b),
        ("M", "A", a[0], "Result", d[0]),
        ("N", "B", b[1], "Result", d[1]),
    ):
        if x != y:
            raise VerifyException(
                f"{dim}-dimension mismatch: {name_a} has {dim}={x} but {name_b} has {dim}={y}."
            )


def _verify_dpas_elements(op: compute.DpasOp) -> None:
    a, b, d = (element_of(v.type) for v in (op.lhs, op.rhs, op.result))
    if isinstance(a, IntegerType) != isinstance(b, IntegerType):
        raise VerifyException(f"A and B mix integer and float elements: {a} and {b}")
    if element_bits(a) != element_bits(b):
        raise VerifyException(f"A and B elements differ in width: {a} and {b}")
    if a != b:
        narrower(op, f"failed to verify that all of {{lhs, rhs}} have same element type: {a}, {b}")
    narrow = isinstance(d, AnyFloat) and element_bits(d) < 16
    if isinstance(a, IntegerType) != isinstance(d, IntegerType) or narrow:
        raise VerifyException(f"the result of {a} by {b} cannot be {d}")


def verify_dpas_mx(op: compute.DpasMxOp) -> None:
    _verify_accumulator(op)
    a, b, d = (shape_of_type(v.type) for v in (op.lhs, op.rhs, op.result))
    if not isinstance(element_of(op.result.type), (Float32Type, BFloat16Type)):
        raise VerifyException(f"Result must have elements of f32 or bf16, got {op.result.type}.")
    for name in ("layout_a", "layout_b", "layout_cd", "layout_a_scale", "layout_b_scale"):
        check_ownership(op, name, getattr(op, name))
    for value in (op.lhs, op.rhs):
        element = element_of(value.type)
        if not isinstance(element, AnyFloat) or element_bits(element) > 8:
            raise VerifyException(f"A and B hold 8- or 4-bit floats, got {value.type}")
    if len(a) == len(b) == len(d) == 1:
        return
    _verify_ranks(a, b, d)
    _verify_matrix_dims(a, b, d)
    _verify_scales(op, a, (b[0] * b[2], b[1]) if len(b) == 3 else b)
    _verify_distribution(op, ("layout_a", a, "A"), ("layout_b", b, "B"), ("layout_cd", d, "Result"))
    for side, scale in (("a", op.scale_a), ("b", op.scale_b)):
        if scale is not None:
            shape = shape_of_type(scale.type)
            _verify_distribution(op, (f"layout_{side}_scale", shape, f"Scale {side.upper()}"))


def _verify_scales(op: compute.DpasMxOp, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    counts: list[int] = []
    for side, value, given, at in (("A M", op.scale_a, a, 0), ("B N", op.scale_b, b, 1)):
        if value is None:
            continue
        element = element_of(value.type)
        if not isinstance(element, AnyFloat) or element_bits(element) != 8:
            raise VerifyException(f"scales are 8-bit floats, got {value.type}")
        if not isinstance(value.type, VectorType):
            continue
        scale, (name, dim) = value.type.get_shape(), side.split()
        if len(scale) != 2:
            raise VerifyException(f"Scale {name} must be a 2D vector when not a scalar.")
        if scale[at] != given[at]:
            raise VerifyException(
                f"Scale {name} {dim} dimension [{scale[at]}] must match {name} {dim} dimension [{given[at]}]."
            )
        counts.append(scale[1 - at])
    if len(set(counts)) > 1:
        raise VerifyException(
            f"Scale K dimension mismatch: scale A has {counts[0]}, scale B has {counts[1]}."
        )
    for count in counts:
        if a[1] % count:
            raise VerifyException(f"{count} scales do not divide K={a[1]}.")


def verify_convert_layout(op: compute.ConvertLayoutOp) -> None:
    source = check_ownership(op, "input_layout", op.input_layout)
    target = check_ownership(op, "target_layout", op.target_layout)
    if target is None:
        raise VerifyException("expected target_layout")
    if op.source.type != op.result.type:
        raise VerifyException("convert_layout does not change the type")
    if isinstance(source, SgMapAttr) or isinstance(target, SgMapAttr):
        raise VerifyException("convert_layout takes a layout or a slice")
    if source is not None and source.is_workgroup() != target.is_workgroup():
        raise VerifyException(
            "expected input layout and target layout be WgLayout or SgLayout at the same time."
        )
    if source == target:
        narrower(op, "expected different input layout and target layout.")
    shape = shape_of_type(op.result.type)
    for name, layout in (("input", source), ("target", target)):
        if layout is None:
            continue
        words = f"invalid {name} layout, data cannot be evenly distributed"
        if fault := distribution.fault(layout, shape):
            raise VerifyException(f"{words}: {fault}.")
        if distribution.is_shared(layout, shape):
            narrower(op, f"{words}: {list(shape)} using {layout}.")


def verify_float_conversion(op: compute.FloatConversion) -> None:
    name = op.name.partition(".")[2]
    given, made = op.source.type, op.result.type
    if shape_of_type(given) != shape_of_type(made):
        raise VerifyException(f"{name} keeps the shape, got {given} -> {made}")
    source, result = element_of(given), element_of(made)
    if not (isinstance(source, AnyFloat) and isinstance(result, AnyFloat)):
        raise VerifyException(f"{name} takes floats, got {given} -> {made}")
    if name == "truncf" and source.bitwidth <= result.bitwidth:
        raise VerifyException("input type must be wider than result type.")
    if name == "extf" and source.bitwidth >= result.bitwidth:
        raise VerifyException("input type must be narrower than result type.")


def verify_lane_shuffle(op: compute.LaneShuffleOp) -> None:
    kind = op.source.type
    bits = element_bits(kind.element_type)
    if len(kind.get_shape()) != 1 or bits % 8:
        raise VerifyException(f"lane_shuffle takes one row of whole bytes, got {kind}")
    if bits * kind.get_shape()[0] > 64:
        raise VerifyException(f"lane_shuffle takes up to 64 bits of a lane, got {kind}")
