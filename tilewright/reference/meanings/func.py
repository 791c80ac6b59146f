"""Functions: calls are laid out in place, returns jump to the end of the call.

A function that is only declared is looked for in the runner's library (`reference.mlir_runner`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Operation

from tilewright.arguments import array_at
from tilewright.reference.mlir_runner import ELEMENT, called_function
from tilewright.reference.program import SegmentBuilder, find_symbol, is_declaration
from tilewright.reference.registry import control
from tilewright.reference.site import Site
from tilewright.reference.values import MemRefValue


@control("func.call")
def call(builder: SegmentBuilder, op: func.CallOp) -> None:
    symbol: SymbolRefAttr = op.callee
    function = find_symbol(op, symbol)
    if not isinstance(function, func.FuncOp) or is_declaration(function):
        builder.step(lambda group: group.execute(op, library_call))
        return
    builder.move(op.arguments, function.body.blocks[0].args)
    builder.function(function, op.results)


def library_call(site: Site, op: func.CallOp, *operands: Any) -> Any:
    """A function of the runner's library, on the caller's arrays."""
    function = called_function(op, site.machine.context.library)
    arguments = [
        _array(site, value, ELEMENT[kind]) if kind in ELEMENT else np.asarray(value).flat[0].item()
        for kind, value in zip(function.arguments, operands, strict=True)
    ]
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    before = [a.copy() for a in arrays] if site.checking else []
    result = function.call(*arguments)
    for array, old in zip(arrays, before, strict=False):
        # What a function fills is written; an array that it only reads stays as it is.
        if function.name.startswith("fill") or array.tobytes() != old.tobytes():
            _note_written(site, array)
    kinds = {"f64": np.float64, "i1": np.bool_, "i64": np.int64}
    return np.array([result], kinds[function.result]) if function.result else None


def _note_written(site: Site, array: np.ndarray[Any, Any]) -> None:
    """Checking mode: all elements of an array have a value now."""
    places = np.full(1, array.ctypes.data, np.int64)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        places = (places[:, None] + stride * np.arange(extent)).ravel()
    if places.size:
        site.note_elements(places[None], np.ones((1, places.size), bool), array.itemsize, "write")


def _array(site: Site, value: MemRefValue, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The numpy view of a memref of host code, which has one instance; all of it must be allocated."""
    base = int(value.base[0]) + int(value.offset[0]) * dtype.itemsize
    shape = tuple(max(int(n[0]), 0) for n in value.sizes)
    strides = tuple(int(s[0]) * dtype.itemsize for s in value.strides)
    if 0 in shape:
        return np.empty(shape, dtype)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = base + sum(min(r, 0) for r in reach)
    high = base + sum(max(r, 0) for r in reach) + dtype.itemsize
    known = -(2**63) <= low <= high < 2**63
    memory = site.machine.context.memory
    if not known or memory.locate(np.array([low]), np.array([high]))[0] < 0:
        site.report(
            "error", "out of bounds", f"{site.op.name} passes a memref that reaches outside"
        )
        return np.zeros(shape if prod(shape) < 1 << 20 else (0,) * len(shape), dtype)
    return array_at(int(value.base[0]), shape, strides, dtype, int(value.offset[0]))


@control("func.return", "gpu.return")
def return_(builder: SegmentBuilder, op: Operation) -> None:
    frame = builder.frame
    builder.move(op.operands, frame.results)
    builder.jump(frame.exit)
