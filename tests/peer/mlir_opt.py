"""MLIR's own `mlir-opt` and `mlir-runner`, version 22: Debian's mlir-22-tools. Tests skip where they are missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOOL, RUNNER = (shutil.which(f"{name}-22") for name in ("mlir-opt", "mlir-runner"))
SECONDS = 60

needs_mlir_opt = pytest.mark.skipif(
    TOOL is None, reason="mlir-opt-22 is not installed (Debian: mlir-22-tools)"
)

needs_mlir_runner = pytest.mark.skipif(
    TOOL is None or RUNNER is None, reason="mlir-runner-22 is not installed (Debian: mlir-22-tools)"
)

TO_LLVM = (
    "func.func(expand-realloc,convert-linalg-to-loops,scf-forall-to-for,lower-vector-mask,convert-vector-to-scf,test-vector-scan-lowering,affine-expand-index-ops,"
    "lower-vector-multi-reduction,lower-vector-to-from-elements-to-shuffle-tree),expand-strided-metadata,lower-affine,"
    "arith-expand{include-bf16},convert-scf-to-cf,convert-vector-to-llvm,expand-strided-metadata,lower-affine,"
    "convert-math-to-llvm,convert-math-to-libm,convert-arith-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,"
    "finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts"
)


class Refused(Exception):
    """What mlir-opt does not take: the first line of its diagnostic, or that it crashed."""


def mlir_opt(text: str, *passes: str, pipeline: str = "", generic: bool = False) -> str:
    """The text after passes of MLIR's on its GPU modules, or on all of it; Refused where it does not parse or lower.

    `generic`: in the generic form. Attributes of dialects that MLIR does not know (`tilewright.level`) are no obstacle.
    """
    assert TOOL is not None
    command = [TOOL, "--allow-unregistered-dialect"]
    if generic:
        command.append("--mlir-print-op-generic")
    if passes:
        pipeline = f"gpu.module({','.join(passes)})"
    if pipeline:
        command.append(f"--pass-pipeline=builtin.module({pipeline})")
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode == 0:
        return done.stdout
    found = re.search(r"error: (.*)", done.stderr)
    raise Refused(found[1] if found else f"mlir-opt ended with status {done.returncode}")


def mlir_runner(text: str) -> str:
    """What @main of a program in LLVM's dialect prints.

    Without AVX-512, with which LLVM 22 stores one element of a truncated vector too wide (`codegen/jit.py`). glibc
    fills what it allocates, so that a program that reads what it never wrote prints the same in every run.
    """
    assert RUNNER is not None
    features = ["--mattr=-avx512f"] if platform.machine() == "x86_64" else []
    libraries = [
        f"-shared-libs={path}"
        for path in (Path(RUNNER).resolve().parent.parent / "lib").glob("libmlir_*runner_utils.so*")
        if "arm" not in path.name
    ]
    done = subprocess.run(
        [RUNNER, "-e", "main", "-entry-point-result=void", *features, *libraries],
        input=text, capture_output=True, text=True, timeout=SECONDS, check=False,
        env=os.environ | {"MALLOC_PERTURB_": "90"},
    )  # fmt: skip
    if done.returncode != 0:
        raise Refused(f"mlir-runner: {done.stderr.strip()[:400] or done.returncode}")
    return done.stdout
