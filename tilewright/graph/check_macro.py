"""Does a macro kernel do what it means? Its body and its implementations, run on random tiles beside numpy."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from tilewright import dtypes
from tilewright.diagnostics import CheckError, Location, location_of
from tilewright.dialects.implementations import implementations
from tilewright.graph.macro import BODIES
from tilewright.graph.operations import OPERATIONS
from tilewright.graph.trace import ArrayType
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import kernel_of
from tilewright.runtime.arrays import describe
from tilewright.runtime.source import define, text_of
from tilewright.targets.base import CompileOptions, get_target

BITS = 4
"""A float may differ by so many bits in its last places, in the norm."""


def check_macro_kernel(
    body: FunctionType, *types: ArrayType, seed: int = 0, tolerance: float | None = None
) -> None:
    """Runs the body of a macro kernel, and all implementations that it has, in the reference executor.

    `types` are those of its tiles (``G.array([16, 64], tw.f16)``), which are filled at random from `seed`. Floats may
    differ from what the meaning in numpy gives by `tolerance`, relative to its norm; None: by what the type's
    precision explains. Integers are equal. Raises CheckError at the body or the implementation that differs, with the
    element.
    """
    name = body.__name__
    rng = np.random.default_rng(seed)
    tiles = [_drawn(each, rng) for each in types]
    meant = np.ascontiguousarray(OPERATIONS[name].meaning(*tiles))
    if tolerance is None:
        kind = dtypes.from_numpy(meant.dtype)
        tolerance = 2.0 ** (BITS - kind.mantissa_bits) if kind.is_float else 0.0
    module = _kernel(name, tiles, meant).executable.module
    text = text_of(body).node
    place = Location(body.__code__.co_filename, text.lineno, text.col_offset + 1)
    _compare(f"the body of {name}", place, module, "", tiles, meant, tolerance)
    functions = {f.sym_name.data: f for f in module.walk() if isinstance(f, func.FuncOp)}
    known = implementations(functions[name]) if name in functions else {}
    for target, symbol in known.items():
        at = location_of(functions[symbol])
        what = f"the implementation of {name} for {target}"
        _compare(what, at, module, target, tiles, meant, tolerance)


def _drawn(spec: ArrayType, rng: np.random.Generator) -> Any:
    """A random tile: floats around 0, integers of a few bits."""
    shape = tuple(int(str(extent)) for extent in spec.shape)
    if spec.dtype.is_float:
        return rng.standard_normal(shape).astype(spec.dtype.numpy)
    return rng.integers(0 if spec.dtype.is_unsigned else -8, 8, shape).astype(spec.dtype.numpy)


def _kernel(name: str, tiles: list[Any], meant: Any) -> Any:
    """The macro kernel around loads of its operands and a store of its result, compiled for the reference executor."""
    places = [f"a{i}" for i in range(len(tiles))]
    pairs = zip(places, tiles, strict=True)
    loads = [f"tw.load_tile(tw.init_tile({a}, [0, 0], {t.shape}))" for a, t in pairs]
    text = (
        f"@tw.kernel\ndef check_{name}({', '.join([*places, 'out'])}):\n"
        f"    made = {name}({', '.join(loads)})\n"
        "    tw.store_tile(made.to(out.dtype), tw.init_tile(out, [0, 0], made.shape))\n"
    )
    import tilewright as tw

    # Text of our own making: the name is that of a Python function.
    scope: dict[str, Any] = {"tw": tw, "__name__": "tilewright_graph", **BODIES}
    kernel = define(f"check_{name}", text, f"<tilewright check of {name}>", scope)
    return kernel.compile(*tiles, meant, target="reference")


def _compare(
    what: str, place: Location | None, module: ModuleOp, target: str, tiles: list[Any], meant: Any, tolerance: float
) -> None:  # fmt: skip
    copy = module.clone()
    inline_calls(kernel_of(copy), lambda name: name == target)
    out = np.zeros_like(meant)
    arrays = [describe(each, what) for each in (*tiles, out)]
    options = CompileOptions(target="reference")
    get_target("reference").build(copy, options).launch((1, 1, 1), arrays)
    right, given = meant.astype(np.float64), out.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where((right == given) | (np.isnan(right) & np.isnan(given)), 0, right - given)
    norm = float(np.linalg.norm(np.where(np.isfinite(right), right, 0)))
    if float(np.linalg.norm(error)) <= tolerance * norm:
        return
    worst = int(np.argmax(np.nan_to_num(np.abs(error), nan=np.inf)))
    at = tuple(int(i) for i in np.unravel_index(worst, error.shape))
    raise CheckError(
        f"{what} gives {given[at]:g} at {list(at)}, where its meaning in numpy is {right[at]:g}",
        location=place,
        rule="body and implementations of a macro kernel do what its meaning does",
    )
