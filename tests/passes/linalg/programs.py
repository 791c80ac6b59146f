"""Programs of linalg: their inputs are globals of random numbers, their results are printed, whoever runs them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tests.draws import fresh_seed
from tests.peer.mlir_opt import TOOL as OPT
from tests.peer.mlir_opt import mlir_runner
from tilewright import reference
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import run_program

Array = np.ndarray[Any, Any]
NAMES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
}
LOWER = (
    "builtin.module(convert-elementwise-to-linalg,one-shot-bufferize{bufferize-function-boundaries},"
    "convert-linalg-to-loops,expand-strided-metadata,lower-affine,convert-scf-to-cf,expand-strided-metadata,"
    "lower-affine,convert-math-to-llvm,convert-math-to-libm,arith-expand{include-bf16},convert-arith-to-llvm,"
    "finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
)
_PRINTED = re.compile(r"sizes = (\[[^]]*\]).*?data =\s*(.*?)(?=\nUnranked|\Z)", re.DOTALL)


def type_of(array: Array, kind: str = "memref") -> str:
    return f"{kind}<{''.join(f'{n}x' for n in array.shape)}{NAMES[array.dtype.name]}>"


def drawn(name: str, *shape: int) -> Array:
    """Random numbers, small and whole in types of whole numbers."""
    rng = np.random.default_rng(fresh_seed())
    if name.startswith("int"):
        return rng.integers(-4, 5, shape).astype(name)
    kind = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    return rng.standard_normal(shape).astype(kind)


def program(body: str, inputs: Mapping[str, Array], results: Mapping[str, str]) -> str:
    """A module whose @main has the inputs as memrefs (%name), does `body`, and prints the results, by name and type."""
    data = {name: a.astype(np.dtype(a.dtype)).tobytes().hex().upper() for name, a in inputs.items()}
    globals_ = [
        f'memref.global "private" @g_{name} : {type_of(a)} = dense<"0x{data[name]}">'
        for name, a in inputs.items()
    ]
    kinds = sorted({_printer(t) for t in results.values()})
    heads = [
        f"func.func private @{k}(memref<*x{k[-3:].lower()}>) attributes {{llvm.emit_c_interface}}"
        for k in kinds
    ]
    got = [f"%{name} = memref.get_global @g_{name} : {type_of(a)}" for name, a in inputs.items()]
    shown = [
        f"%{name}_u = memref.cast %{name} : {t} to memref<*x{_printer(t)[-3:].lower()}>\n"
        f"  call @{_printer(t)}(%{name}_u) : (memref<*x{_printer(t)[-3:].lower()}>) -> ()"
        for name, t in results.items()
    ]
    lines = "\n  ".join([*got, body, *shown, "return"])
    return "\n".join([*globals_, *heads, f"func.func @main() {{\n  {lines}\n}}"])


def _printer(type: str) -> str:
    return "printMemref" + {"f32>": "F32", "f64>": "F64", "i32>": "I32", "i64>": "I64"}[type[-4:]]


def printed(text: str) -> list[Array]:
    """The arrays of a program's output."""
    found: list[Array] = []
    for sizes, data in _PRINTED.findall(text):
        shape = [int(n) for n in re.findall(r"\d+", sizes)]
        numbers = re.findall(r"-?(?:inf|nan|\d[\d.e+-]*)", data)
        found.append(np.array([float(n) for n in numbers]).reshape(shape))
    return found


def run_on(
    program: str | ModuleOp, target: str | None, capfd: pytest.CaptureFixture[str]
) -> tuple[list[Array], list[str]]:
    """The arrays that a program prints, and what is said of its kernels. `target`: whose passes it takes; None: it is
    run as it is, by the meaning of each op.
    """
    module, said = parse_module(program) if isinstance(program, str) else program, list[str]()
    capfd.readouterr()
    if target is None:
        reference.run(module, kernel="main")
    else:
        assert run_program(module, target=target, say=said.append) is not None
    return printed(capfd.readouterr().out), said


def peer(text: str, passes: str = LOWER) -> list[Array]:
    """What mlir-opt and mlir-runner make of a program."""
    lowered = opt(text, "--pass-pipeline", passes)
    return printed(mlir_runner(lowered))


def opt(text: str, *arguments: str) -> str:
    assert OPT is not None
    done = subprocess.run(
        [OPT, *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shapes(text: str) -> Sequence[int]:
    return [int(n) for n in text.split("x")]
