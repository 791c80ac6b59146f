"""Inputs on which a kernel is checked: small, ragged, and big enough that every pass has work.

Sizes come from the kernel's own tiles (DESIGN §6): two workgroups along every grid axis, five
iterations of every loop over tiles, and a last tile that is not full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Attribute, BlockArgument

from tilewright import dtypes
from tilewright.arguments import ArraySpec
from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.strided import strided_form
from tilewright.frozen import frozen
from tilewright.layout.digits import row_strides
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.carry_offsets import with_offsets
from tilewright.passes.memory_objects import stored_arguments
from tilewright.runtime.arrays import describe, unwritable
from tilewright.targets.entry import check_arguments
from tilewright.tools.exits import UsageError
from tilewright.tools.sources import random_array

WORKGROUPS = 2
ITERATIONS = 5
"""A multi-buffer of three slots, and two iterations more."""


@frozen
class Inputs:
    """A launch: the grid and one value per kernel argument."""

    grid: tuple[int, int, int]
    args: tuple[Any, ...]

    def copies(self) -> list[Any]:
        """The arguments with arrays of their own, laid out alike."""
        return [_like(a) if isinstance(a, np.ndarray) else a for a in self.args]

    def __str__(self) -> str:
        shapes = (
            f"{dtypes.from_numpy(a.dtype)}{list(a.shape)}" if isinstance(a, np.ndarray) else str(a)
            for a in self.args
        )
        return f"grid {self.grid}, {', '.join(shapes)}"


def _like(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy with the same strides, gaps between rows included."""
    copy = np.empty_like(array)  # keeps the order of strides
    if copy.strides != array.strides and array.size and min(array.strides) >= 0:
        reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
        buffer = np.zeros(reach + array.itemsize, np.uint8)
        copy = np.ndarray(array.shape, array.dtype, buffer=buffer, strides=array.strides)
    copy[...] = array
    return copy


def _analysed(kernel: gpu.FuncOp) -> tuple[gpu.FuncOp, AccessAnalysis]:
    """Where a kernel's accesses go, and what this was asked of: it, or a copy of it. Nothing is known of tiles that
    move where it is not known where they go."""
    placed = with_offsets(kernel) or kernel
    return placed, AccessAnalysis(placed)


def specs_of(kernel: gpu.FuncOp) -> list[ArraySpec | Attribute]:
    """What each argument of an MLIR kernel could be: arrays sized by the tiles, scalar types."""
    check_arguments(kernel)
    kernel, analysis = _analysed(kernel)
    specs: list[ArraySpec | Attribute] = []
    stored = stored_arguments(kernel)
    for argument in kernel.body.blocks[0].args:
        if not isinstance(argument.type, MemRefType):
            specs.append(argument.type)
            continue
        type = cast(MemRefType[Attribute], argument.type)
        mine = [a for a in analysis.accesses if a.root is argument and a.memory_space == 0]
        shape = tuple(
            extent if extent >= 0 else _extent(analysis, mine, dim, len(type.get_shape()))
            for dim, extent in enumerate(type.get_shape())
        )
        dtype = dtypes.from_mlir(type.element_type)
        specs.append(spec := ArraySpec(shape, dtype, _strides(type, shape)))
        if argument.index in stored and (why := unwritable(describe(spec))):
            raise unsupported(
                kernel,
                f"argument {argument.index} is written, and is {why}",
                hint="what is last there depends on an order that nothing says",
            )
    return specs


def _strides(type: MemRefType[Attribute], shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides that the type asks for: None for row-major, else the unit one wherever it stands."""
    given, _ = strided_form(type)
    if all(s >= 0 for s in given):
        stated = given
        return None if stated == row_strides(shape) else stated
    if len(shape) < 2 or given[-1] == 1 or 1 not in given:
        return None
    order = sorted(range(len(shape)), key=lambda dim: given[dim] != 1)
    strides = [1] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _extent(analysis: AccessAnalysis, accesses: Sequence[Access], dim: int, rank: int) -> int:
    """A ragged extent of one dimension, from the tiles that lie on it."""
    best = 0
    for access in accesses:
        if access.scattered:
            best = max(best, 64)
            continue
        at = dim + len(access.offsets) - rank
        offset, tile = access.offsets[at], access.box_shape[at]
        ragged = tile // 4
        reach = tile
        for axis in range(3):
            step = offset.step(analysis.program_id(axis))
            if step is not None and step.constant:
                reach = max(reach, (WORKGROUPS - 1) * abs(step.constant) + tile - ragged)
        for loop in access.loops:
            step = access.step(loop)[at]
            if step is not None and step.constant:
                reach = max(reach, (ITERATIONS - 1) * abs(step.constant) + tile - ragged)
        best = max(best, reach)
    return best or 64


def grid_of(kernel: gpu.FuncOp, args: Sequence[Any]) -> tuple[int, int, int]:
    """As many workgroups along each axis as it takes to walk over the arrays that it moves on."""
    grid, unknown = covering(kernel, args)
    x, y, z = ({**dict.fromkeys(unknown, WORKGROUPS), **grid}.get(axis, 1) for axis in range(3))
    return x, y, z


def covering(kernel: gpu.FuncOp, args: Sequence[Any]) -> tuple[dict[int, int], list[int]]:
    """By axis, the workgroups that it takes to walk over the arrays; and the axes that walk over none."""
    _, analysis = _analysed(kernel)
    grid: dict[int, int] = {}
    for access in analysis.accesses:
        root = access.root
        array = args[root.index] if isinstance(root, BlockArgument) else None
        if access.scattered or not isinstance(array, np.ndarray):
            continue
        shape = (1,) * (len(access.offsets) - array.ndim) + array.shape
        for axis in access.axes:
            for extent, offset in zip(shape, access.offsets, strict=True):
                step = offset.step(analysis.program_id(axis))
                if step is not None and step.constant:
                    needed = -(-extent // abs(step.constant))
                    grid[axis] = max(grid.get(axis, 1), needed)
    return grid, [axis for axis in analysis.used_axes if axis not in grid]


def poisoned(kernel: gpu.FuncOp, inputs: Inputs) -> Inputs:
    """The inputs with NaN (or all ones) in arrays that the kernel only writes."""
    kernel, analysis = _analysed(kernel)
    args = list(inputs.args)
    for position, argument in enumerate(kernel.body.blocks[0].args):
        mine = [a for a in analysis.accesses if a.root is argument]
        only_tiles = all(
            use.operation.name
            in ("xetile.init_tile", "memref.dim", "memref.extract_strided_metadata")
            for use in argument.uses
        )
        written = only_tiles and bool(mine) and all(a.kind == "store" for a in mine)
        if written and isinstance(array := args[position], np.ndarray):
            fresh = np.empty_like(array)  # strides as they are: columns may lie side by side
            fresh[...] = np.frombuffer(b"\xff" * array.itemsize, array.dtype)[0]
            args[position] = fresh
    return Inputs(inputs.grid, tuple(args))


def make_args(specs: Sequence[Any], seed: int) -> tuple[Any, ...]:
    """Random arrays and scalars."""
    rng = np.random.default_rng(seed)
    args: list[Any] = []
    for spec in specs:
        if isinstance(spec, ArraySpec):
            args.append(random_array(spec, rng))
        elif isinstance(spec, Attribute):
            args.append(_scalar(spec, rng))
        elif isinstance(spec, (int, float, bool, np.generic)):
            args.append(spec)
        else:
            raise UsageError(f"{spec!r} is neither an array nor a number")
    return tuple(args)


def _scalar(type: Attribute, rng: np.random.Generator) -> Any:
    if isinstance(type, IndexType):
        return int(rng.integers(1, 5))
    dtype = dtypes.from_mlir(type)
    if dtype.is_float:
        return dtype.numpy.type(rng.standard_normal())
    return dtype.numpy.type(rng.integers(0, 2 if dtype.is_bool else 100))
