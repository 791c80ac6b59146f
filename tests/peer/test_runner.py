"""Random programs of MLIR's own dialects, lowered by mlir-opt to LLVM and run by mlir-runner: ours have the same bits.

Each is run three times here: by the reference executor, as a host function compiled for the CPU, and as a kernel
compiled for the CPU. `TILEWRIGHT_PEER_EXAMPLES` says how many programs there are.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.draws import examples
from tests.passes.linalg.programs import Array, printed, program, run_on
from tests.peer.host_programs import BITS, Memory
from tests.peer.host_steps import Function, functions
from tests.peer.mlir_opt import TO_LLVM, Refused, mlir_opt, mlir_runner, needs_mlir_runner
from tests.peer.values import DTYPES

NUMPY = {**DTYPES, "i16": np.int16, "i64": np.int64}
EXAMPLES = int(os.environ.get("TILEWRIGHT_PEER_EXAMPLES", "16"))
FORMS = ("vector", "linalg", "kernel")
REFUSALS = (
    "failed to legalize operation",
    "not found for custom op",
    "op inferred mask type",  # it drops dimensions of 1 of an array, and not those of the mask
)
"""What mlir-opt 22.1.8 says of programs that its passes do not finish, and mlir-runner of what they leave."""


def bits(m: Memory) -> list[str]:
    """Code that writes the bits of an array's elements to NAME_bits, as i32: those of 64 bits as two."""
    size, name, kind = int(np.prod(m.shape)), m.name, m.dtype
    wide = BITS.get(kind) == 64
    of = {"f32": "i32", "f16": "i16", "bf16": "i16"}.get(kind, kind)
    x, i = f"{name}_x", f"{name}_i"
    lines = [
        f"{name}_flat = memref.collapse_shape {name} [{[*range(len(m.shape))]}] : {m.type} into memref<{size}x{kind}>",
        f"{name}_bits = memref.alloc() : memref<{size * (2 if wide else 1)}xi32>",
        f"{name}_n = arith.constant {size} : index",
        f"scf.for {i} = %c0 to {name}_n step %c1 {{",
        f"  {x} = memref.load {name}_flat[{i}] : memref<{size}x{kind}>",
    ]
    if of != kind:
        lines.append(f"  {x}c = arith.bitcast {x} : {kind} to {of}")
        x += "c"
    store = f"memref.store {{}}, {name}_bits[{{}}] : memref<{size * (2 if wide else 1)}xi32>"
    if wide:
        lines += [
            f"  {name}_s = arith.constant 32 : i64",
            f"  {name}_low = arith.trunci {x} : i64 to i32",
            f"  {name}_up = arith.shrui {x}, {name}_s : i64",
            f"  {name}_high = arith.trunci {name}_up : i64 to i32",
            f"  {name}_j = arith.addi {i}, {name}_n : index",
            "  " + store.format(f"{name}_low", i),
            "  " + store.format(f"{name}_high", f"{name}_j"),
        ]
    elif of == "i32":
        lines.append("  " + store.format(x, i))
    else:
        lines += [
            f"  {name}_w = arith.extsi {x} : {of} to i32",
            "  " + store.format(f"{name}_w", i),
        ]
    return [*lines, "}"]


def whole(function: Function, seed: int, kernel: bool) -> str:
    """A program that calls or launches the function on small whole numbers, and prints what its arrays hold then."""
    rng = np.random.default_rng(seed)
    inputs = {
        m.name[1:]: rng.integers(-4, 5, m.shape).astype(NUMPY[m.dtype]) for m in function.arguments
    }
    results = {
        f"{m.name[1:]}_bits": f"memref<{int(np.prod(m.shape)) * (2 if m.dtype == 'i64' else 1)}xi32>"
        for m in function.arguments
    }
    names = ", ".join(m.name for m in function.arguments)
    types = ", ".join(m.type for m in function.arguments)
    given = ", ".join(f"{m.name} : {m.type}" for m in function.arguments)
    head = ", ".join(f"{m.name}: {m.type}" for m in function.arguments)
    one = "(%c1, %c1, %c1)"
    call = (
        f"gpu.launch_func @m::@f blocks in {one} threads in {one} args({given})"
        if kernel
        else f"call @f({names}) : ({types}) -> ()"
    )
    body = [
        "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index",
        call,
        *(line for m in function.arguments for line in bits(m)),
    ]
    text = program("\n  ".join(body), inputs, results)
    lines = "\n".join(function.lines)
    if kernel:
        level = '{tilewright.level = "workgroup"}'
        code = f"gpu.module @m {{\ngpu.func @f({head}) kernel attributes {level} {{\n{lines}\n  gpu.return\n}}\n}}"
        return f"module attributes {{gpu.container_module}} {{\n{text}\n{code}\n}}"
    return f"{text}\nfunc.func @f({head}) {{\n{lines}\n  return\n}}"


def agree(found: list[Array], wanted: list[Array], who: str) -> None:
    assert len(found) == len(wanted)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        np.testing.assert_array_equal(one, other, f"{who}, array {number}")


@needs_mlir_runner
@pytest.mark.parametrize("form", FORMS)
def test_results_agree(form: str, capfd: pytest.CaptureFixture[str]):
    compiled: list[bool] = []

    @examples(EXAMPLES // len(FORMS))
    @given(function=functions(form), seed=st.integers(0, 2**32 - 1))
    def each(function: Function, seed: int) -> None:
        text = whole(function, seed, kernel=False)
        mine = whole(function, seed, kernel=True) if form == "kernel" else text
        note(mine)
        try:
            wanted = printed(mlir_runner(mlir_opt(text, pipeline=TO_LLVM)))
        except Refused as error:
            assert any(known in str(error) for known in REFUSALS), error
            compiled.append(False)
            return
        # MLIR's generic form says in numbers and lists of operands what the text says in words.
        agree(run_on(mlir_opt(mine, generic=True), "reference", capfd)[0], wanted, "reference")
        found, said = run_on(mine, "cpu", capfd)
        agree(found, wanted, f"cpu ({said})")
        compiled.append(not any("reference" in line for line in said))

    each()
    assert len(compiled) < 20 or sum(compiled) > len(compiled) // 2
