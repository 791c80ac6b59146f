"""The fragments of the RFCs' texts: where each stands in which document, and what becomes of it on every target."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import ModuleOp

from tests.examples import lanes, xegpu, xetile, xetile_early
from tests.examples.arrays import Case, wide
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, Interpretable
from tilewright.targets.entry import build_text

RFC = Path(__file__).parents[2] / "examples/rfc"
TARGETS = ("reference", "cpu", "sm_90a", "xe-pvc", "xe-bmg", "xe-dg2")
FILES: dict[str, ModuleType] = {
    "xetile_early_fragments.mlir": xetile_early,
    "xetile_fragments.mlir": xetile,
    "xetile_map_fragments.mlir": xetile,
    "xegpu_fragments.mlir": xegpu,
    "xegpu_lane_fragments.mlir": lanes,
}
"""The files, and the arrays of their fragments: a function of a fragment's name gives its case."""
LAST = "xe-version-stores"
"""The pass that leaves the lanes' program of an Intel GPU as it is compiled."""
ONE = (1, 1, 1)


@cache
def text_of(file: str) -> str:
    return (RFC / file).read_text()


@cache
def _parsed(file: str) -> ModuleOp:
    return parse_module(text_of(file), file)


def functions(module: ModuleOp) -> dict[str, func.FuncOp | gpu.FuncOp]:
    """The fragments of a file by name, in its order."""
    found = [op for op in module.walk() if isinstance(op, (func.FuncOp, gpu.FuncOp))]
    return {op.sym_name.data: op for op in found}


@cache
def names(file: str) -> list[str]:
    return list(functions(_parsed(file)))


def case(file: str, name: str) -> Case:
    """Fresh arguments of a fragment, and pairs of what it writes and what it must write there."""
    return getattr(FILES[file], name)()


@cache
def comment(file: str, name: str) -> tuple[str, str]:
    """Where the documents have a fragment, as `early 33-36; later 58-61`, and what it shows: the comment above it."""
    above = text_of(file).partition(f"func @{name}(")[0]
    lines = [line.strip() for line in above.splitlines()]
    last = max(n for n, line in enumerate(lines) if line.startswith("// "))
    first = max(n for n, line in enumerate(lines[: last + 1]) if line.startswith("// ["))
    words = " ".join(line.removeprefix("// ") for line in lines[first : last + 1])
    found = re.fullmatch(r"\[(.*?)\] (.*)", words)
    assert found is not None, f"{file}: {name} does not say where it stands"
    return found[1], found[2]


def alone(file: str, name: str) -> ModuleOp:
    """A module of one fragment."""
    module = _parsed(file).clone()
    for other, op in functions(module).items():
        if other != name:
            op.detach()
            op.erase()
    for op in list(module.walk()):
        if isinstance(op, gpu.ModuleOp) and not list(op.body.block.ops):
            op.detach()
            op.erase()
    return module


def state(file: str, name: str, target: str) -> str:
    """What becomes of a fragment: `runs` and writes what it must, in how many passes, or why not.

    Of a GPU the last program before code is run, by the reference executor: a thread's on NVIDIA, a lane's on Intel.
    """
    try:
        run, passes = _runner(file, name, target)
    except UnsupportedError as error:
        return f"no: {error.message}"
    args, pairs = case(file, name)
    run(args)
    compare(pairs, f"{name} on {target}")
    return f"runs{passes}"


def _runner(file: str, name: str, target: str) -> tuple[Callable[[list[Any]], Any], str]:
    module = alone(file, name)
    if target == "reference":
        return lambda args: reference.run(module, ONE, args, kernel=name), ""
    last = module

    def observe(stage: str, program: ModuleOp) -> None:
        nonlocal last
        if stage == LAST:
            last = program.clone()
        elif not target.startswith("xe"):
            last = program

    built = build_text(module, CompileOptions(target=target), observe)
    found = (re.search(r"in (\d+) passes", remark) for remark in getattr(built, "remarks", ()))
    passes = next((f", in {each[1]} passes" for each in found if each is not None), "")
    if target == "cpu":
        return lambda args: built.launch(ONE, _described(args)), passes
    if isinstance(built, Interpretable):
        return (
            lambda args: built.interpret(last, ONE, _described(args), "late", 0).raise_on_error(),
            passes,
        )
    assert last is not module
    return lambda args: reference.run(last, ONE, args), passes


def _described(args: list[Any]) -> list[Any]:
    return [describe(a) if isinstance(a, np.ndarray) else a for a in args]


def compare(pairs: list[tuple[Any, Any]], what: str) -> None:
    for found, expected in pairs:
        right = wide(np.asarray(expected))
        error, scale = np.linalg.norm(wide(found) - right), np.linalg.norm(right)
        limit = 1e-2 if found.dtype.itemsize == 2 and found.dtype.kind not in "iu" else 1e-6
        assert found.shape == right.shape, f"{what}: {found.shape} and {right.shape}"
        assert scale > 0 and error / scale < limit, f"{what}: {error / scale}"
