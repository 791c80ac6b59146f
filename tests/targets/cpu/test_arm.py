"""Code for Arm, made here: text, instructions and object files; what this machine cannot execute it refuses to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.targets.cpu.qemu import POOL
from tilewright import knobs
from tilewright.codegen.elf import defined_symbols, objects, undefined_symbols
from tilewright.codegen.native import host_architecture
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu.machine import machine
from tilewright.targets.entry import build_text
from tilewright.tools.cli import main
from tilewright.uarch.arm import AARCH64

BF16 = np.dtype(ml_dtypes.bfloat16)
foreign = pytest.mark.skipif(host_architecture() is AARCH64, reason="this machine executes it")


def mnemonics(asm: str) -> list[str]:
    return re.findall(r"^\t([a-z]\w+)\t", asm, re.M)


@pytest.mark.parametrize(
    ("level", "a", "b", "instruction"),
    [
        ("armv8", np.float32, np.float32, "fmla"),
        ("armv8", np.int8, np.int8, "mla"),
        ("neon", np.int8, np.int8, "sdot"),
        ("neon", np.uint8, np.uint8, "udot"),
        ("neon", np.uint8, np.int8, "sdot"),  # A with its top bit flipped
        ("sve2", np.uint8, np.int8, "usdot"),
        ("sve2", BF16, BF16, "bfdot"),
        ("sve2", np.float16, np.float16, "fmla"),
    ],
    ids=str,
)
def test_products_use_what_the_table_has(level: str, a: Any, b: Any, instruction: str) -> None:
    """So many as the block of the micro-kernel has vectors, for each group of k of a trip, and for what is left."""
    acc = tw.i32 if np.dtype(a).kind in "iu" else tw.f32
    x, y, c = np.zeros((256, 256), a), np.zeros((256, 256), b), np.zeros((256, 256), acc.numpy)
    made = product.options(machine=level).compile(
        x, y, c, BM=64, BN=64, BK=32, ACC=acc, target="cpu"
    )
    found = mnemonics(made.asm["asm"])
    vectors = AARCH64.levels[level].vectors
    assert found.count(instruction) % (vectors.mr * vectors.nv) in (0, vectors.nv)
    assert found.count(instruction)
    others = {"fmla", "mla", "sdot", "udot", "usdot", "bfdot"} - {instruction}
    assert not others & set(found)
    parts = [*objects(made.executable.artifacts()["object"])]
    given = {name for part in parts for name in defined_symbols(part)}
    assert {name for part in parts for name in undefined_symbols(part)} <= POOL | given


@foreign
def test_a_launch_is_refused_where_the_machine_executes_other_instructions() -> None:
    x = np.zeros((64, 64), np.float32)
    with knobs.override(cpu="neon"), pytest.raises(tw.UnsupportedError, match="code for aarch64"):
        kernels.column_stats[1](x, x[0].copy(), x[0].copy())
    with pytest.raises(tw.UnsupportedError, match=r"code for aarch64 \(SVE2"):
        kernels.column_stats.options(machine="sve2")[1](x, x[0].copy(), x[0].copy())
    with pytest.raises(tw.UnsupportedError, match="no CPU is called 'neno'"):
        kernels.column_stats.options(machine="neno")[1](x, x[0].copy(), x[0].copy())


LANES = """
gpu.module @m {
  gpu.func @k(%a: memref<32xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %i = gpu.thread_id x
    %x = memref.load %a[%i] : memref<32xf32>
    memref.store %x, %a[%i] : memref<32xf32>
    gpu.return
  }
}
"""


@foreign
def test_programs_of_lanes_run_on_the_machine_at_hand_only() -> None:
    options = CompileOptions("cpu", machine="neon")
    with pytest.raises(tw.UnsupportedError, match="code for aarch64"):
        build_text(parse_module(LANES, "lanes.mlir"), options, launched=False)


@foreign
def test_the_command_writes_objects_of_a_tier(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "kernel.o"
    source = f"{kernels.__file__}:column_stats"
    with knobs.override(cpu="neon"):
        args = ["compile", source, "--args", "f32[64,64]", "f32[64]", "f32[64]", "--target", "cpu"]
        assert main([*args, "--emit", "object", "-o", str(out)]) == 0
    data = out.read_bytes()
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == 183  # EM_AARCH64


def test_machines_say_what_they_are() -> None:
    assert str(machine("armv8")) == "NEON"
    assert str(machine("neon")) == "NEON with dot products of bytes"
    assert (
        str(machine("sve2")) == "SVE2 of 256 bits with dot products of bytes and bf16 dot products"
    )
    assert machine("neon").target.triple.startswith("aarch64")
