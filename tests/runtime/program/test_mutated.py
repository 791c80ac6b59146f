"""Programs with a mistake in them run, or are refused with a diagnostic: no crash of ours, no hang, no traceback.

Each mutation changes one to three things of a program that works: a number, an operand, an op, a type, a line. What
still parses is run in a worker process with limits. TILEWRIGHT_TEST_MUTATIONS asks for more of them (thousands by
hand, a few by default); the seed and the text are printed where one fails.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.draws import SEED
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import Limits, in_worker, run_program
from tilewright.runtime.program.worker import WorkerError

ROOT = Path(__file__).parents[3]
PROGRAMS = [
    ROOT / "examples" / "06_mlir_text.mlir",
    ROOT / "tests" / "runtime" / "program" / "gemm_subgroup.mlir",
    ROOT / "tests" / "runtime" / "program" / "programs" / "rows_in_threads.mlir",
    ROOT / "tests" / "runtime" / "program" / "programs" / "xetile_bf16_ragged.mlir",
    ROOT / "tests" / "targets" / "emu" / "programs" / "pairs_of_subgroups.mlir",
    ROOT / "tests" / "targets" / "emu" / "programs" / "row_softmax_lanes.mlir",
]
COUNT = int(os.environ.get("TILEWRIGHT_TEST_MUTATIONS", "24")) // len(PROGRAMS)
NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "8",
    "16",
    "33",
    "64",
    "1024",
    "4294967296",
    "99999999999999999999",
)
TYPES = ("f32", "f16", "bf16", "i8", "i32", "i64", "i1", "index", "f64")
OPS = {
    "arith.addf": ("arith.mulf", "arith.divf", "arith.maximumf", "arith.remf", "arith.addi"),
    "arith.addi": ("arith.subi", "arith.muli", "arith.divsi", "arith.remui", "arith.shli"),
    "arith.muli": ("arith.addi", "arith.divui", "arith.remsi", "arith.xori"),
    "arith.constant": ("arith.negf", "index.constant"),
    "gpu.thread_id": ("gpu.block_id", "gpu.lane_id", "gpu.block_dim"),
    "memref.alloc": ("memref.alloca", "gpu.alloc"),
    "memref.load": ("memref.store", "memref.dim"),
    "xegpu.load_nd": ("xegpu.prefetch_nd", "xegpu.store_nd"),
    "xegpu.load": ("xegpu.store", "xegpu.load_nd"),
    "xetile.load_tile": ("xetile.prefetch_tile", "xetile.store_tile"),
    "gpu.barrier": ("gpu.return", "gpu.wait"),
}  # fmt: skip
LIMITS = Limits(memory=2 << 30, seconds=20)


def change_number(line: str, rng: random.Random) -> str:
    found = list(re.finditer(r"(?<![\w%#@.])\d+(?![\w.])|(?<=[<x\[])\d+(?=[x\],])", line))
    if not found:
        return line
    at = rng.choice(found)
    return line[: at.start()] + rng.choice(NUMBERS) + line[at.end() :]


def change_operand(line: str, others: list[str], rng: random.Random) -> str:
    found = list(re.finditer(r"%\w+", line.partition("=")[2] or line))
    if not found:
        return line
    at, start = rng.choice(found), len(line) - len(line.partition("=")[2] or line)
    return line[: start + at.start()] + rng.choice(others) + line[start + at.end() :]


def change_op(line: str, rng: random.Random) -> str:
    for op, instead in OPS.items():
        if re.search(rf"{re.escape(op)}\b(?!_)", line):
            return line.replace(op, rng.choice(instead), 1)
    return line


def change_type(line: str, rng: random.Random) -> str:
    found = list(re.finditer(r"(?<![a-z])(f32|f16|bf16|i8|i32|i64|i1|index|f64)\b", line))
    if not found:
        return line
    old = rng.choice(found)[1]
    # Everywhere in the line, or once: the first leaves types that agree, the second such that do not.
    return line.replace(old, rng.choice(TYPES), rng.choice((-1, -1, 1)))


def mutated(text: str, rng: random.Random) -> str:
    """The text with one to three changes."""
    lines = text.splitlines()
    values = re.findall(r"%\w+", text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        while not lines[at].strip() or lines[at].strip().startswith("//"):
            at = rng.randrange(len(lines))
        match rng.choice(
            ("number", "number", "operand", "op", "type", "type", "drop", "double", "swap")
        ):
            case "number":
                lines[at] = change_number(lines[at], rng)
            case "operand":
                lines[at] = change_operand(lines[at], values, rng)
            case "op":
                lines[at] = change_op(lines[at], rng)
            case "type":
                lines[at] = change_type(lines[at], rng)
            case "drop":
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case _:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines) + "\n"


def outcome(text: str, said: Path) -> str:
    """What became of a program: "parsed", "ran", "refused", "stopped" by a limit or a signal; AssertionError else."""
    try:
        module = parse_module(text, "mutated.mlir")
    except TilewrightError:
        return "not parsed"

    def say(words: str) -> None:
        with said.open("a") as file:
            print(words, file=file)

    said.write_text("")
    try:
        in_worker(lambda fail: run_program(module, fail=fail, say=say), LIMITS)
        found = "ran"
    except WorkerError as error:
        found = "stopped" if error.diagnostic is None else "refused"
        assert "internal error" not in str(error), str(error)
        assert "SIGABRT" not in str(error), str(error)
    assert "internal error" not in said.read_text(), said.read_text()
    return found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_mutated_program_ends_well(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    count, done = 0, 0
    ends: dict[str, int] = {}
    # Text that is not read has tests of its own: it costs little, and does not count here.
    while done < COUNT and count < 20 * COUNT:
        rng = random.Random(SEED + count)
        count += 1
        program = mutated(text, rng)
        try:
            end = outcome(program, tmp_path / "said")
        except BaseException:
            print(f"TILEWRIGHT_TEST_SEED={SEED + count - 1}")
            print(program)
            raise
        ends[end] = ends.get(end, 0) + 1
        done += end != "not parsed"
    print(ends)
