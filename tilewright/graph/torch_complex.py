"""Complex numbers of a program of torch: two traced arrays, the real part and the imaginary one.

No graph has elements of complex types. Weights are given as torch.view_as_real makes them, and what a module makes and
uses up again (rotations of pairs by polar numbers) never leaves the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.graph import arrange, composed
from tilewright.graph.traced import Traced, broadcast


class Complex(NamedTuple):
    """What stands for an array of complex numbers: arrays, or numbers, of one shape or that broadcast."""

    real: Any
    imag: Any

    @staticmethod
    def of(value: Any) -> Complex:
        """An array or a number as one without an imaginary part."""
        if isinstance(value, Complex):
            return value
        if isinstance(value, complex):
            return Complex(value.real, value.imag)
        return Complex(value, 0.0)

    @staticmethod
    def seen(pairs: Traced) -> Complex:
        """Pairs along the last dimension."""
        return Complex(pairs[..., 0], pairs[..., 1])


def settled(x: Complex, dtype: DType) -> Complex:
    """Both parts as arrays of one shape and a type: what an op does to each is what it does to both."""
    arrays = [part for part in x if isinstance(part, Traced)]
    extents = broadcast("complex numbers", [part.extents for part in arrays])
    return Complex(
        *(
            arrange.broadcast_to(part.astype(dtype), extents)
            if isinstance(part, Traced)
            else arrange.full_like(arrays[0], part, extents, dtype)
            for part in x
        )
    )


def holds(value: Any) -> bool:
    """Are there complex numbers among arguments?"""
    if isinstance(value, (list, tuple)) and not isinstance(value, Complex):
        return any(map(holds, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return isinstance(value, (Complex, complex))


def applied(name: str, op: Callable[..., Any], args: Any, keywords: Any) -> Any:
    """An op whose arguments hold complex numbers, or that only they have: `op` is what it does to real arrays."""
    if name in _PRODUCTS:
        return _multiplied(op, args, keywords)
    if name in _BINARY:
        return _BINARY[name](*map(Complex.of, args), **keywords)
    if name in OPS:
        return OPS[name](*args, **keywords)
    if name not in _OF_PARTS:
        raise CompileError(
            "an op of complex numbers",
            rule=f"complex numbers are taken by {', '.join(sorted({*OPS, *_OF_PARTS}))}",
            hint="torch.view_as_real, and products of the parts",
        )

    def part(which: int, value: Any) -> Any:
        if isinstance(value, Complex):
            return value[which]
        if which and isinstance(value, Traced) and name in _OF_ARRAYS:
            return arrange.full_like(value, 0)
        return [part(which, v) for v in value] if isinstance(value, list) else value  # pyright: ignore

    real, imag = (op(*(part(n, a) for a in args), **keywords) for n in (0, 1))
    return list(map(Complex, real, imag)) if isinstance(real, list) else Complex(real, imag)


def _product(x: Complex, y: Complex) -> Complex:
    if isinstance(y.imag, float) and y.imag == 0.0:
        return Complex(x.real * y.real, x.imag * y.real)
    if isinstance(x.imag, float) and x.imag == 0.0:
        return _product(y, x)
    return Complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _multiplied(op: Callable[..., Any], args: Any, keywords: Any) -> Complex:
    """A product of two arrays by what `op` does to two real ones."""
    at = [i for i, a in enumerate(args) if isinstance(a, (Traced, Complex, list))]
    x, y = args[at[0]] if isinstance(args[at[0]], list) and len(at) == 1 else (args[i] for i in at)

    def product(a: Any, b: Any) -> Any:
        given = [a, b] if len(at) == 2 else [*args[: at[0]], [a, b]]
        return op(*given, **keywords)

    if not isinstance(y, Complex):
        return Complex(*(product(part, y) for part in x))
    if not isinstance(x, Complex):
        return Complex(*(product(x, part) for part in y))
    real = product(x.real, y.real) - product(x.imag, y.imag)
    return Complex(real, product(x.real, y.imag) + product(x.imag, y.real))


_PRODUCTS: Final = frozenset(("matmul", "mm", "bmm", "einsum"))


def _quotient(x: Complex, y: Complex) -> Complex:
    if isinstance(y.imag, float) and y.imag == 0.0:
        return Complex(x.real / y.real, x.imag / y.real)
    size = y.real * y.real + y.imag * y.imag
    return Complex(*(part / size for part in _product(x, Complex(y.real, -y.imag))))


def _sum(sign: int) -> Callable[..., Complex]:
    def apply(x: Complex, y: Complex, *, alpha: float = 1) -> Complex:
        return Complex(*(a + b * (sign * alpha) for a, b in zip(x, y, strict=True)))

    return apply


_BINARY: Final[Mapping[str, Callable[..., Complex]]] = {
    "mul": _product, "div": _quotient, "add": _sum(1), "sub": _sum(-1),
    "rsub": lambda x, y, **more: _sum(-1)(y, x, **more), "reciprocal": lambda x: _quotient(Complex(1.0, 0.0), x),
}  # fmt: skip

OPS: Final[Mapping[str, Callable[..., Any]]] = {
    **_BINARY, "view_as_complex": Complex.seen, "complex": Complex, "real": lambda x: x.real, "imag": lambda x: x.imag,
    "view_as_real": lambda x: arrange.stack(list(x), -1), "abs": lambda x: composed.hypot(*x),
    "polar": lambda size, angle: Complex(size * np.cos(angle), size * np.sin(angle)),
    **dict.fromkeys(("conj", "_conj", "conj_physical"), lambda x: Complex(x.real, -x.imag)),
    **dict.fromkeys(("resolve_conj", "resolve_neg", "detach", "to", "_to_copy", "type_as"), lambda x, *_, **__: x),
    "getitem": operator.getitem, "_assert_tensor_metadata": lambda *_, **__: None,
}  # fmt: skip
"""What such an op does, by its name without the overload."""

_OF_ARRAYS: Final = frozenset(("cat", "stack", "slice_scatter", "select_scatter", "copy"))
"""Ops of several arrays, of which some may be real."""

_OF_PARTS: Final = frozenset((
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t",
    "numpy_T", "mT", "expand", "slice", "select", "split", "chunk", "cat", "stack", "index", "index_select", "narrow",
    "neg", "sum", "mean", "clone", "contiguous", "alias", "movedim", "roll", "flip", "repeat", "expand_as", "cumsum",
    "constant_pad_nd", "pad", "slice_scatter", "select_scatter", "copy",
))  # fmt: skip
"""Ops that do the same to both parts."""
