"""winograd: convolutions by the algorithm of Winograd and Toom-Cook are products with small matrices.

    linalg.winograd_input_transform fmr(F_2_3) ins(%x : tensor<2x6x6x3xf32>) ..
        ->   t[h, s, n, q, c] = sum over i of B[h, i] x[n, 2 s + i, q, c]
             y[h, w, s, u, n, c] = sum over j of B[w, j] t[h, s, n, 2 u + j, c]

A filter of r elements and m results are polynomials. Their product is evaluated at m + r - 2 points and at infinity,
and found again from its values: G has the powers of the points, divided by the products of a point's distances to the
others; B the coefficients of the products of x - p over the other points; A the powers once more. MLIR scales the rows
of G and B, by `_SCALES`; those of A are scaled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any

from xdsl.dialects import tensor
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    TensorType,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import SSAValue

from tilewright.dialects.upstream.linalg_bodies import named_body
from tilewright.dialects.upstream.linalg_composed import Winograd
from tilewright.dialects.upstream.linalg_names import NamedOp, Term, elementwise, named
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before

Matrix = list[list[Fraction]]
_HALF = Fraction(1, 2)
_POINTS = ((0, -1, 1), (0, -1, 1, -2, 2), (0, -1, 1, -_HALF, 2))
_SCALES = (
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((4, 2, 2, 2, 2, 1), (16, 16, 16, 8, 8, 16)),
    ((1, _HALF, _HALF, _HALF / 2, _HALF / 2, 1), (8, 8, 8, 8, 4, 8)),
)
"""Of F_2_3, F_4_3 and F_2_5: what the rows of G are multiplied by, and those of B divided by."""


def _matrix(op: Winograd, d: int) -> Matrix:
    """What an op multiplies by along a dimension: a row for each element of a transformed tile."""
    if op.digits[d] == 1:
        return [[Fraction(1)]]
    points, (m, r) = [Fraction(p) for p in _POINTS[op.fmr]], op.tile
    up, down = ([Fraction(n) for n in each] for each in _SCALES[op.fmr])
    count = m if op.what == "output" else r
    rows: Matrix = []
    for n, p in enumerate([*points, None]):
        others = [q for q in points if q != p]
        if op.what == "input":
            row = [Fraction(1)]
            for q in others:  # times x - q
                row = [
                    a - q * b for a, b in zip([Fraction(0), *row], [*row, Fraction(0)], strict=True)
                ]
            scale = 1 / down[n]
            row += [Fraction(0)] * (m + r - 1 - len(row))
        else:
            row = [Fraction(k == count - 1) if p is None else p**k for k in range(count)]
            scale = up[n] / prod(p - q for q in others) if p is not None else up[n]
            if op.what == "output":
                scale = down[n] / up[n]
        rows.append([scale * x for x in row])
    return rows


class _Writer:
    """Writes products of tensors before an op."""

    def __init__(self, op: Winograd) -> None:
        self.at, self.op = Before(op), op
        self.element = op.res.type.element_type

    def extents(self, value: SSAValue) -> list[Index]:
        kind = value.type
        assert isinstance(kind, TensorType)
        return [
            n if n != DYNAMIC_INDEX else self.at.add(tensor.DimOp(value, self.at.index(d)))
            for d, n in enumerate(kind.get_shape())
        ]

    def matrix(self, d: int) -> tuple[SSAValue, int, int]:
        """The matrix of a dimension, and its extents."""
        rows = _matrix(self.op, d)
        kind: Any = TensorType(self.element, [len(rows), len(rows[0])])
        data = [float(x) for row in rows for x in row]
        values = DenseIntOrFPElementsAttr.from_list(kind, data)
        return self.at.add(ConstantOp(values)), len(rows), len(rows[0])

    def generic(self, op: NamedOp, inputs: Sequence[SSAValue], out: SSAValue) -> SSAValue:
        kinds = (
            IteratorType.REDUCTION if d in op.reductions else IteratorType.PARALLEL
            for d in range(op.maps[-1].num_dims)
        )
        body = named_body([self.element] * (len(inputs) + 1), op, False)
        return self.at.add(
            GenericOp(
                inputs, [out], body, ArrayAttr(map(AffineMapAttr, op.maps)), ArrayAttr(map(IteratorTypeAttr, kinds)),
                [out.type],
            )
        )  # fmt: skip

    def product(
        self,
        accesses: Sequence[Sequence[Term]],
        inputs: Sequence[SSAValue],
        sizes: Sequence[Index],
        step: int,
    ) -> SSAValue:
        """The sums of products of two tensors, in one of such extents."""
        kind = TensorType(self.element, [n if isinstance(n, int) else DYNAMIC_INDEX for n in sizes])
        zero, open_ = (
            self.at.constant(self.element, 0),
            [n for n in sizes if isinstance(n, SSAValue)],
        )
        zeros = self.at.add(tensor.SplatOp(zero, open_, kind))
        return self.generic(named(accesses, strides=[step], dilations=[1]), inputs, zeros)


def expand_winograd(op: Any) -> None:
    """An op on tensors becomes structured ops on tensors."""
    assert isinstance(op, Winograd)
    w, source = _Writer(op), op.source
    (first, h, i), (second, v, j) = w.matrix(0), w.matrix(1)
    a, _, c, d, *rest = w.extents(source)
    if op.what == "filter":
        rows = w.product(["hi", "fiqc", "fhqc"], [first, source], [a, h, c, d], 1)
        made = w.product(["vj", "fhjc", "hvcf"], [second, rows], [h, v, d, a], 1)
    elif op.what == "input":
        s, u = w.extents(op.dest)[2:4]
        step = [1 if x == 1 else op.tile[0] for x in (h, v)]
        rows = w.product(
            ["hi", ["n", ("s", "i", 0), "q", "c"], "hsnqc"],
            [first, source],
            [h, s, a, c, d],
            step[0],
        )
        made = w.product(
            ["vj", ["h", "s", "n", ("u", "j", 0), "c"], "hvsunc"],
            [second, rows],
            [h, v, s, u, a, d],
            step[1],
        )
    else:
        n, f = rest
        rows = w.product(["hi", "hvsunf", "isvunf"], [first, source], [i, c, v, d, n, f], 1)
        tiles = w.product(["vj", "isvunf", "nsiujf"], [second, rows], [n, c, i, d, j, f], 1)
        groups = ArrayAttr(
            ArrayAttr(IntegerAttr(x, 64) for x in g) for g in ([0], [1, 2], [3, 4], [5])
        )
        shape = [x if isinstance(x, int) else DYNAMIC_INDEX for x in (n, c, d, f)]
        whole = [
            shape[0],
            *(x if x < 0 else x * k for x, k in zip(shape[1:3], (i, j), strict=True)),
            shape[3],
        ]
        flat = tensor.CollapseShapeOp.create(
            operands=[tiles],
            result_types=[TensorType(w.element, whole)],
            properties={"reassociation": groups},
        )
        made = w.generic(elementwise("add", 4), [w.at.add(flat), op.dest], op.dest)
    w.at.replace(made)
