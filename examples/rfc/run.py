"""Runs the RFCs' programs and checks them against numpy in float64.

    python examples/rfc/run.py                         every program, at 512 instead of 4096
    python examples/rfc/run.py --size 4096 --target cpu    the size printed in the RFCs
    python examples/rfc/run.py --through xegpu-to-xetile   after a pass of Tilewright

The matrices' extent is the only number that is replaced. `--target cpu` compiles instead of
interpreting: seconds where the reference executor takes minutes.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
PRINTED = 4096
"""The extent of the RFCs' matrices."""

Arrays = list[Any]


def gemm(n: int, rng: np.random.Generator) -> tuple[Arrays, Callable[[Arrays], tuple[Any, Any]]]:
    """C = A B: arguments, and (found, expected) from the arguments after the run."""
    a, b = (rng.standard_normal((n, n)).astype(np.float16) for _ in range(2))
    c = np.full((n, n), np.nan, np.float32)
    return [a, b, c], lambda args: (args[2], product(args[0], args[1]))


def gemm_bt(n: int, rng: np.random.Generator) -> tuple[Arrays, Callable[[Arrays], tuple[Any, Any]]]:
    """C = A transpose(BT)."""
    args, _ = gemm(n, rng)
    return args, lambda args: (args[2], product(args[0], args[1].T))


def gemm_reduced(
    n: int, rng: np.random.Generator
) -> tuple[Arrays, Callable[[Arrays], tuple[Any, Any]]]:
    """Reduce = the row sums of A transpose(BT) + bcast."""
    a, bt = (rng.standard_normal((n, n)).astype(np.float16) for _ in range(2))
    bcast = rng.standard_normal(n).astype(np.float32)
    result = np.zeros(n, np.float32)

    def check(args: Arrays) -> tuple[Any, Any]:
        # The sum over columns of A BT^T is A times the column sums of BT^T.
        columns = args[1].astype(np.float64).sum(axis=0)
        return args[3], args[0].astype(np.float64) @ columns + args[2].astype(np.float64).sum()

    return [a, bt, bcast, result], check


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


PROGRAMS = {
    "xetile_2_1_gemm_prefetch": gemm,
    "xetile_2_2_transpose_broadcast_reduction": gemm_reduced,
    "xetile_2_3_transpose_optimization": gemm_bt,
    "xetile_2_4_cooperative_slm": gemm,
    "xetile_2_5_two_cache_levels": gemm,
    "xegpu_1_1_gemm_prefetch": gemm,
    "xegpu_1_2_transpose_broadcast_reduction": gemm_reduced,
    "xegpu_1_3_two_cache_levels": gemm,
}


def load(name: str, size: int) -> Any:
    """The program with matrices of `size`."""
    from tilewright.dialects.text import parse_module

    path = FOLDER / f"{name}.mlir"
    return parse_module(re.sub(rf"(?<!%c){PRINTED}", str(size), path.read_text()), str(path))


def error_of(
    name: str, size: int, seed: int, through: tuple[str, ...] = (), target: str = "reference"
) -> float:
    """The relative Frobenius error of a program, after the named passes, on a target."""
    from tilewright import reference

    module = load(name, size)
    for each in through:
        apply(each, module)
    args, check = PROGRAMS[name](size, np.random.default_rng(seed))
    if target == "reference":
        reference.run(module, (1, 1, 1), args)
    else:
        compile_and_launch(module, args, target)
    found, expected = check(args)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def apply(name_of_pass: str, module: Any) -> None:
    from tilewright.dialects import make_context
    from tilewright.tools.pipelines import available_passes

    available_passes()[name_of_pass]()().apply(make_context(), module)


def compile_and_launch(module: Any, args: Arrays, target: str) -> None:
    """XeGPU becomes XeTile, the outer loops become the grid, and the kernel is compiled."""
    from xdsl.dialects import gpu
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.runtime.arrays import describe
    from tilewright.targets.base import CompileOptions, get_target

    apply("xegpu-to-xetile", module)
    apply("outer-loops-to-grid", module)
    launch = next(op for op in module.walk() if isinstance(op, gpu.LaunchFuncOp))
    grid = tuple(number(v) for v in (launch.gridSizeX, launch.gridSizeY, launch.gridSizeZ))
    kernel = next(op for op in module.walk() if isinstance(op, gpu.ModuleOp))
    kernel.detach()
    built = get_target(target).build(ModuleOp([kernel]), CompileOptions(target=target))
    built.launch(grid, [describe(array) for array in args])


def number(value: Any) -> int:
    """The number that host code computes from constants."""
    from xdsl.dialects import arith

    op = value.owner
    if isinstance(op, arith.ConstantOp):
        return op.value.value.data
    a, b = (number(operand) for operand in op.operands)
    match op.name.removeprefix("arith."):
        case "addi":
            return a + b
        case "subi":
            return a - b
        case "muli":
            return a * b
        case "divui" | "divsi":
            return a // b
        case "ceildivui" | "ceildivsi":
            return -(-a // b)
        case "maxsi" | "maxui":
            return max(a, b)
        case name:
            raise NotImplementedError(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", help="beginnings of names; all without")
    parser.add_argument("--size", type=int, default=512, help="a multiple of 512")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--through", action="append", default=[], help="a pass to apply first")
    parser.add_argument("--target", choices=("reference", "cpu"), default="reference")
    options = parser.parse_args()
    if options.size % 512 or options.size < 512:
        parser.error("the size is a multiple of 512, the largest tile")
    chosen = [p for p in PROGRAMS if not options.programs or p.startswith(tuple(options.programs))]
    failed = False
    for name in chosen:
        start = time.perf_counter()
        error = error_of(name, options.size, options.seed, tuple(options.through), options.target)
        failed |= not error < 1e-5
        print(f"{name:44} error {error:.1e}   {time.perf_counter() - start:.1f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
