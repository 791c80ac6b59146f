"""The primitive operations: numpy meaning, text in the tile language, what a result is made of. One entry each.

Elementwise operations broadcast. The others work on tiles of two dimensions: ``mma`` multiplies matrices,
``reduce_*`` combine along the attribute ``axis`` (which stays with extent 1), ``transpose`` swaps. ``mask``
replaces what lies past ``extent`` by ``fill``; ``iota`` counts. Users add macro kernels (`macro.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.frozen import frozen

Array = NDArray[Any]
Kind = Literal["elementwise", "mma", "reduce", "transpose", "reshape", "mask", "iota", "macro"]


@frozen
class OpDef:
    """One operation. ``text`` is formatted with the operands' texts; ``flops`` counts per element of the result."""

    name: str
    kind: Kind
    arity: int
    meaning: Callable[..., Any]
    text: str
    flops: int = 1
    boolean: bool = False
    """Gives a mask."""


def _erf(x: Array) -> Array:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _power(x: Array, n: Array) -> Array:
    """Of integers: below 0 what divides 1, else wrapping around."""
    units = np.where(np.abs(x) == 1, np.where(n & 1, x, 1), 0)
    return np.where(n < 0, units, np.power(x, np.maximum(n, 0)))


def _elementwise() -> dict[str, OpDef]:
    table: dict[str, OpDef] = {}

    def add(name: str, arity: int, meaning: Any, text: str, flops: int = 1, boolean: bool = False):
        table[name] = OpDef(name, "elementwise", arity, meaning, text, flops, boolean)

    signs = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
                 "mod": np.mod}  # fmt: skip
    for name, sign in signs.items():
        add(name, 2, functions[name], f"{{0}} {sign} {{1}}")
    comparisons = {"lt": ("<", np.less), "le": ("<=", np.less_equal), "gt": (">", np.greater),
                   "ge": (">=", np.greater_equal), "eq": ("==", np.equal),
                   "ne": ("!=", np.not_equal)}  # fmt: skip
    for name, (sign, function) in comparisons.items():
        add(name, 2, function, f"{{0}} {sign} {{1}}", boolean=True)
    bits = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<",
            "right_shift": ">>", "floor_divide": "//"}  # fmt: skip
    for name, sign in bits.items():
        add(name, 2, getattr(np, name), f"{{0}} {sign} {{1}}")
    add("power", 2, _power, "({0}) ** {1}", 64)
    add("invert", 1, np.invert, "~{0}")
    add("neg", 1, np.negative, "-{0}")
    add("max", 2, np.maximum, "tw.maximum({0}, {1})")
    add("min", 2, np.minimum, "tw.minimum({0}, {1})")
    add("where", 3, np.where, "tw.where({0}, {1}, {2})")
    add("copy", 1, np.copy, "{0}", 0)
    for name in ("sin", "cos", "floor", "ceil", "sqrt", "tanh", "log", "log2", "exp", "exp2"):
        add(name, 1, getattr(np, name), f"tw.{name}({{0}})", 8 if name[0] in "elst" else 1)
    add("atan", 1, np.arctan, "tw.atan({0})", 20)
    add("rint", 1, np.rint, "tw.round({0})")
    add("abs", 1, np.abs, "tw.abs({0})")
    add("rsqrt", 1, lambda x: 1 / np.sqrt(x), "tw.rsqrt({0})", 2)
    add("sigmoid", 1, _sigmoid, "tw.sigmoid({0})", 10)
    add("erf", 1, _erf, "tw.erf({0})", 10)
    return table


def _mma(a: Array, b: Array) -> Array:
    return np.matmul(a, b, dtype=np.result_type(a, b)) if a.ndim else np.multiply(a, b)


def _mask(x: Array, *, start: int, extent: int, axis: int, fill: float) -> Array:
    at = start + np.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return np.where(at < extent, x, np.asarray(fill, x.dtype))


REDUCTIONS: Final[Mapping[str, Any]] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
_REDUCTION_TEXT = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}

OPERATIONS: Final[dict[str, OpDef]] = {
    **_elementwise(),
    "cast": OpDef("cast", "elementwise", 1, np.copy, "{0}.to(tw.{dtype})", 0),
    "mma": OpDef("mma", "mma", 2, _mma, "tw.tile_mma({0}, {1})", 2),
    "transpose": OpDef("transpose", "transpose", 1, np.transpose, "tw.transpose({0})", 0),
    "column": OpDef("column", "reshape", 1, lambda x: np.reshape(x, (-1, 1)), "{0}", 0),
    "squeeze": OpDef("squeeze", "reshape", 1, np.squeeze, "{0}", 0),
    "mask": OpDef("mask", "mask", 1, _mask, "tw.where({inside}, {0}, {fill})", 0),
    "iota": OpDef("iota", "iota", 1, np.copy, "", 0),
    **{
        f"reduce_{kind}": OpDef(
            f"reduce_{kind}", "reduce", 1,
            lambda x, axis, f=function: f.reduce(x, axis=axis, keepdims=True),
            f"tw.{_REDUCTION_TEXT[kind]}({{0}}, {{axis}})",
        )
        for kind, function in REDUCTIONS.items()
    },
}  # fmt: skip
"""Every operation by name."""


def operation(name: str) -> OpDef | None:
    """The entry of an operation; None where there is none of this name."""
    return OPERATIONS.get(name)


def neutral(combine: str, dtype: DType) -> float:
    """What does not change a value that it is combined with."""
    if combine in ("add", "mul"):
        return float(combine == "mul")
    if dtype.is_float:
        return float("-inf") if combine == "max" else float("inf")
    if dtype.is_bool:
        return float(combine == "min")
    info = np.iinfo(dtype.numpy)
    return int(info.min if combine == "max" else info.max)


def computing(dtype: DType) -> DType:
    """The type in which a value of a type is held in registers: narrow floats as f32, which loses nothing."""
    return dtypes.f32 if dtype.is_float and dtype.itemsize < 4 else dtype
