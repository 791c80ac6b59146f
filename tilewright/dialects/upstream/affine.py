"""affine: a map divides by positive numbers alone, as MLIR demands of `floordiv`, `ceildiv` and `mod`."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import affine
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.complete import add_verifier

_DIVISIONS = (AffineBinaryOpKind.FloorDiv, AffineBinaryOpKind.CeilDiv, AffineBinaryOpKind.Mod)


def _verify_map(op: Any) -> None:
    found = op.properties.get("map")
    for result in found.data.results if isinstance(found, AffineMapAttr) else ():
        for expr in result.dfs():
            if isinstance(expr, AffineBinaryOpExpr) and expr.kind in _DIVISIONS:
                by = expr.rhs
                if isinstance(by, AffineConstantExpr) and by.value < 1:
                    raise VerifyException(f"divides by {by.value} in {expr}: a divisor is positive")


def complete() -> None:
    for op in (affine.ApplyOp, affine.MinOp, affine.LoadOp, affine.StoreOp):
        add_verifier(op, _verify_map)
