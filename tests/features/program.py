"""A program about one feature: its arrays, its text, and what numpy says it does.

    Program("a: f32 32x40, b: f32 16x32", "load %v = %a[4, 2] 16x32\\nstore %v, %b[0, 0] 16x32", copy)

Arrays are `name: element shape`, then how the type says them: `as ?x?` with other extents, `| strided<[44, 1]>` with a
layout; numbers are `name: type = value`. Lines that begin with `load` and `store` (`load_nd`, `store_nd`) stand for a
tile (a descriptor) of the shape behind the offsets, and its access; the tile's attribute stands behind a bar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.texts import with_constants

NUMPY: dict[str, Any] = {
    **{name: getattr(np, f"float{name[1:]}") for name in ("f64", "f32", "f16")},
    **{name: getattr(np, f"int{name[1:]}") for name in ("i64", "i32", "i16", "i8")},
    "ui8": np.uint8,
    "i1": np.bool_,
    "index": np.int64,
    "bf16": ml_dtypes.bfloat16,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
}
ARGUMENT = re.compile(
    r"(\w+): (\w+)(?: ([\dx]+))?(?: as ([\dx?]+))?(?: \| (strided<[^>]*>))?(?: = (\S+))?"
)
ACCESS = re.compile(
    r"\s*(load|store)(_nd)? %([\w#]+)(?: =|,) %(\w+)\[([^]]*)\](.*?) ([\dx]+)"
    r"(?: (<?\{.*\}>?))?(?: \| (.*?))?(?: -> (\S+))?"
)


@dataclass(frozen=True)
class Program:
    arguments: str
    body: str
    does: Callable[..., Any]
    """Is given the arguments, floats as f64, and writes what the program writes."""
    grid: tuple[int, int, int] = (1, 1, 1)
    subgroup: bool = False
    """Of one subgroup, in XeGPU; else of a workgroup."""
    workgroup: bool = False
    """Of a workgroup, and says so."""
    lanes: int = 0
    """Of a lane of a subgroup of so many; its values are a lane's share of them."""
    error: float = 0.0
    """Of floats, relative in the norm; 0: what rounding to the array's type makes."""

    def _arguments(self) -> list[tuple[str, ...]]:
        found = [ARGUMENT.fullmatch(text.strip()) for text in split(self.arguments)]
        assert all(found), self.arguments
        return [match.groups() for match in found if match is not None]

    @property
    def text(self) -> str:
        types: dict[str, tuple[str, str]] = {}
        for name, element, shape, said, layout, _ in self._arguments():
            extra = f", {layout}" if layout else ""
            full = f"memref<{said or shape}x{element}{extra}>" if shape else element
            types[name] = full, element
        lines = [_expanded(line, n, types) for n, line in enumerate(self.body.splitlines())]
        named = "lane" if self.lanes else "workgroup" if self.workgroup else "subgroup"
        width = f", tilewright.lanes = {self.lanes} : i64" if self.lanes else ""
        count = "" if self.workgroup else ", tilewright.subgroups = 1 : i64"
        level = f'attributes {{tilewright.level = "{named}"{count}{width}}} '
        said = level if self.workgroup or self.subgroup or self.lanes else ""
        arguments = ", ".join(f"%{name}: {full}" for name, (full, _) in types.items())
        return with_constants(
            f"gpu.module @m {{ gpu.func @k({arguments}) kernel {said}{{\n"
            + "\n".join(lines)
            + "\ngpu.return\n} }\n"
        )

    def values(self, rng: np.random.Generator) -> list[Any]:
        """Random numbers: whole ones in arrays of integers, of which products stay small; floats of both signs, but
        of a mean: what is left of a sum that cancels is no measure of its rounding."""
        made: list[Any] = []
        for _, element, shape, _, layout, value in self._arguments():
            kind = np.dtype(NUMPY[element])
            if not shape:
                made.append(int(value) if element == "index" else kind.type(float(value)))
                continue
            extents = tuple(int(n) for n in shape.split("x"))
            low, high = {"b": (0, 2), "u": (0, 9)}.get(kind.kind, (-4, 5))
            numbers = (
                rng.integers(low, high, extents)
                if kind.kind in "biu"
                else rng.standard_normal(extents) + 0.5
            )
            made.append(_placed(numbers.astype(kind), layout))
        return made


def split(arguments: str) -> list[str]:
    """At commas, but not at those in brackets."""
    return re.split(r",\s*(?=\w+: \w)", arguments)


def _expanded(line: str, number: int, types: dict[str, tuple[str, str]]) -> str:
    match = ACCESS.fullmatch(line)
    if match is None:
        return line
    verb, nd, value, array, at, more, shape, said, attribute, vector = match.groups()
    full, element = types[array]
    inner = f"{shape}x{element}{', ' + attribute if attribute else ''}"
    vector, said = vector or f"vector<{shape}x{element}>", said or ""
    tile = f"%t{number}_"
    if nd:
        kind, where = f"!xegpu.tensor_desc<{inner}>", f"{tile}[{at}] {said}"
        first = f"{tile} = xegpu.create_nd_tdesc %{array} : {full} -> {kind}\n"
        load, store = "xegpu.load_nd", "xegpu.store_nd"
    else:
        kind, where = f"!xetile.tile<{inner}>", f"{tile} {said}"
        first = f"{tile} = xetile.init_tile %{array}[{at}]{more} : {full} -> {kind}\n"
        load, store = "xetile.load_tile", "xetile.store_tile"
    if verb == "load":
        return f"{first}%{value} = {load} {where} : {kind} -> {vector}"
    return f"{first}{store} %{value}, {where} : {vector}, {kind}"


def _placed(numbers: np.ndarray[Any, Any], layout: str | None) -> np.ndarray[Any, Any]:
    """The array with the strides that its type says; a `?` is 5 more than there is in a row."""
    if layout is None:
        return numbers
    said = layout[len("strided<[") :].partition("]")[0].split(", ")
    strides = [numbers.shape[1] + 5 if n == "?" else int(n) for n in said]
    reach = 1 + sum((n - 1) * s for n, s in zip(numbers.shape, strides, strict=True))
    room = np.zeros(reach, numbers.dtype)
    steps = tuple(s * numbers.itemsize for s in strides)
    placed = np.ndarray(numbers.shape, numbers.dtype, room, strides=steps)
    placed[...] = numbers
    return placed
