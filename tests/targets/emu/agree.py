"""A kernel on the reference executor and on the emulator, from the same arrays: the results agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.texts import parse_module
from tilewright import reference
from tilewright.passes.affine_to_scf import affine_to_scf
from tilewright.passes.all_reduce import all_reduce
from tilewright.passes.expand_ops import expand_ops
from tilewright.passes.kernel import kernel_of
from tilewright.passes.loop_nests import loop_nests
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, Executable, get_target

Grid = tuple[int, int, int]


def lane_kernel(args: str, body: str, *, subgroups: int = 1, lanes: int = 16) -> Any:
    return kernel(
        args,
        body,
        f'tilewright.level = "lane", tilewright.subgroups = {subgroups} : i64, '
        f"tilewright.lanes = {lanes} : i64",
    )


def subgroup_kernel(args: str, body: str, *, subgroups: int = 1) -> Any:
    return kernel(
        args, body, f'tilewright.level = "subgroup", tilewright.subgroups = {subgroups} : i64'
    )


def kernel(args: str, body: str, attributes: str) -> Any:
    end = "" if "gpu.return" in body else "\ngpu.return"
    text = f"gpu.module @m {{ gpu.func @k({args}) kernel attributes {{{attributes}}} {{\n{body}{end}\n}} }}"
    return parse_module(text, "kernel.mlir")


def build(module: Any) -> Executable:
    module = module.clone()
    expand_ops(module)
    affine_to_scf(module)
    loop_nests(module)
    all_reduce(kernel_of(module))
    return get_target("emu").build(module, CompileOptions(target="emu"))


def emulate(module: Any, grid: Grid, args: Sequence[Any]) -> None:
    values = [describe(a) if isinstance(a, np.ndarray) else a for a in args]
    build(module).launch(grid, values)


def agree(
    module: Any, args: Sequence[Any], grid: Grid = (1, 1, 1), *, limit: float = 1e-6
) -> list[np.ndarray]:
    """The arrays as both leave them: integers and NaNs equal, floats within `limit` (Frobenius, relative)."""
    ours = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    reference.run(module, grid, theirs)
    emulate(module, grid, ours)
    changed = False
    for before, mine, meant in zip(args, ours, theirs, strict=True):
        if not isinstance(before, np.ndarray):
            continue
        changed |= before.tobytes() != meant.tobytes()
        same(mine, meant, limit)
    assert changed, "the kernel wrote nothing"
    return [a for a in ours if isinstance(a, np.ndarray)]


def same(mine: np.ndarray, meant: np.ndarray, limit: float) -> None:
    if meant.dtype.kind in "iub":
        np.testing.assert_array_equal(mine, meant)
        return
    x, y = mine.astype(np.float64), meant.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    np.testing.assert_array_equal(np.isinf(x), np.isinf(y))
    x, y = (np.where(np.isfinite(z), z, 0) for z in (x, y))
    scale = max(float(np.linalg.norm(y)), 1e-30)
    error = float(np.linalg.norm(x - y)) / scale
    assert error <= limit, error
