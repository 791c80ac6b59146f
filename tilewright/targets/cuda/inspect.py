"""Looking at machine code without a GPU: ptxas and nvdisasm from pip's nvidia-cuda-nvcc and
nvidia-cuda-nvdisasm, from triton, or from a CUDA toolkit.

What breaks performance without being an error is found here (`notes/hopper.md` 0 and 2.4): messages
C75xx (setmaxnreg ignored, wgmma serialised, waits injected), local memory, memory barriers of
device scope inside loops, and loops over a warp's lanes around instructions of the copy engine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.diagnostics import CompileError, ToolMissing
from tilewright.dialects.dominance import Dominators
from tilewright.frozen import frozen
from tilewright.targets.cuda import driver
from tilewright.targets.stages import Texts

PACKAGES = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}


def _places(name: str) -> Iterator[Path]:
    folder = os.environ.get("TILEWRIGHT_CUDA_TOOLS")
    if folder:
        yield Path(folder) / name
    for base in map(Path, sys.path):
        for package in ("nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "nvidia/cuda_nvdisasm/bin"):
            yield base / package / name
        yield base / "triton/backends/nvidia/bin" / name
    found = shutil.which(name)
    if found:
        yield Path(found)
    yield Path("/usr/local/cuda/bin") / name


def find_tool(name: str) -> str | None:
    """Path of `ptxas` or `nvdisasm`, or None."""
    for place in _places(name):
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    return None


def tools() -> dict[str, str]:
    """NVIDIA devices, the driver, and the tools that show machine code."""
    found: dict[str, str] = {}
    try:
        version = driver.driver_version()
        found["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
        for ordinal in range(driver.device_count()):
            device = driver.device(ordinal)
            major, minor = device.capability
            found[f"cuda:{ordinal}"] = (
                f"{device.name}, compute capability {major}.{minor}, "
                f"{device.multiprocessors} multiprocessors"
            )
    except driver.DriverError as error:
        missing = "missing: libcuda.so.1 is not here; it comes with NVIDIA's driver"
        found["driver"] = missing if error.code == -1 else error.message
    for tool, package in PACKAGES.items():
        found[tool] = find_tool(tool) or f"missing: pip install {package}"
    return found


def _tool(name: str) -> str:
    found = find_tool(name)
    if found is None:
        raise ToolMissing(
            f"there is no {name} on this machine", hint=f"pip install {PACKAGES[name]}"
        )
    return found


@frozen
class Assembly:
    """What the assembler made of one PTX module."""

    cubin: bytes
    log: str
    registers: int
    """Per thread, at entry."""
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int

    def summary(self) -> str:
        return (
            f"{self.registers} registers, {self.stack_bytes} bytes of stack, "
            f"{self.spill_store_bytes + self.spill_load_bytes} bytes of spills, "
            f"{self.barriers} barriers"
        )


def _number(pattern: str, log: str) -> int:
    return max((int(n) for n in re.findall(pattern, log)), default=0)


def assemble(ptx: str, machine: str) -> Assembly:
    """Machine code of PTX by ptxas. CompileError with its words when it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        source.write_text(ptx)
        done = subprocess.run(
            [_tool("ptxas"), f"-arch={machine}", "-v", str(source), "-o", str(target)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CompileError(f"ptxas refuses the code: {done.stderr.strip()}")
        log = done.stderr.strip()
        return Assembly(
            target.read_bytes(),
            log,
            _number(r"Used (\d+) registers", log),
            _number(r"(\d+) bytes stack frame", log),
            _number(r"(\d+) bytes spill stores", log),
            _number(r"(\d+) bytes spill loads", log),
            _number(r"used (\d+) barriers", log),
        )


def disassemble(cubin: bytes) -> str:
    """SASS text of a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [_tool("nvdisasm"), "-c", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise CompileError(f"nvdisasm refuses the code: {done.stderr.strip()}")
    return done.stdout


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_LABEL = re.compile(r"^(\.L_x?_?\d+):")
_GOAL = re.compile(r"\.L_x?_?\d+")


@frozen
class Sass:
    """One instruction: its name with modifiers, its operands, whether a predicate guards it."""

    name: str
    operands: str
    guarded: bool


def instructions(sass: str) -> tuple[list[Sass], dict[str, int]]:
    """Every instruction in order, and the position at which each label stands."""
    out: list[Sass] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if (label := _LABEL.match(line.strip())) is not None:
            labels[label[1]] = len(out)
        elif (found := _INSTRUCTION.search(line)) is not None:
            operands = found[3].strip()
            guarded = found[1] is not None or bool(re.match(r"!?U?P\d", operands))
            out.append(Sass(found[2], operands, guarded))
    return out, labels


def _successors(code: list[Sass], labels: dict[str, int], at: int) -> list[int]:
    op = code[at]
    following = [at + 1] if at + 1 < len(code) else []
    if op.name.startswith("BRA"):
        goal = _GOAL.search(op.operands)
        there = [labels[goal[0]]] if goal is not None and goal[0] in labels else []
        return there + (following if op.guarded else [])
    if op.name.startswith(("EXIT", "RET")) and not op.guarded:
        return []
    return following


def in_loops(code: list[Sass], labels: dict[str, int]) -> set[int]:
    """Positions of the instructions that stand in a natural loop.

    The assembler puts waits out of line and jumps back, so that a branch to an earlier place is not
    yet a loop: its goal must lie on every way to it (dominate it).
    """
    starts = sorted({0, *labels.values()} | {
        i + 1 for i, op in enumerate(code) if op.name.startswith(("BRA", "EXIT", "RET"))
    })  # fmt: skip
    starts = [s for s in starts if s < len(code)]
    ends = dict(zip(starts, [*starts[1:], len(code)], strict=True))

    def following(start: int) -> list[int]:
        return [goal for goal in _successors(code, labels, ends[start] - 1) if goal in ends]

    inside = set[int]().union(*Dominators(0, following).loops().values())
    return {at for start in inside for at in range(start, ends[start])}


TURN = 5
"""Instructions from the election of a lane to its copy, at most."""


def breakers(ptx: str, machine: str) -> list[str]:
    """What costs performance silently in this kernel, one sentence each; empty when all is well."""
    assembly = assemble(ptx, machine)
    found = [line.strip() for line in assembly.log.splitlines() if re.search(r"\(C75\d\d\)", line)]
    if assembly.spill_store_bytes or assembly.spill_load_bytes:
        found.append(f"registers are spilled: {assembly.summary()}")
    code, labels = instructions(disassemble(assembly.cubin))
    local = [op.name for op in code if op.name.startswith(("STL", "LDL"))]
    if local:
        found.append(f"{len(local)} accesses of local memory")
    inside = in_loops(code, labels)
    barriers = [
        op.name
        for i, op in enumerate(code)
        if i in inside and op.name.startswith("MEMBAR") and ".GPU" in op.name
    ]
    if barriers:
        found.append(f"{len(barriers)} memory barriers of device scope ({barriers[0]}) in a loop")
    # Where ptxas does not see that one thread issues a copy, each lane has its turn.
    turns = sum(
        op.name == "ELECT" and any(n.name.startswith("UTM") for n in code[i : i + TURN])
        for i, op in enumerate(code)
    )
    if turns:
        found.append(f"{turns} instructions of the copy engine in loops over lanes")
    return found


def texts(llvm: str, ptx: str, machine: str, threads: int, shared_bytes: int) -> Texts:
    """Target text by name: `llvm`, `ptx`, and, made by the tools, `sass` and `resources` (threads, registers, shared
    memory, spills, and what breaks the code's speed).
    """

    def resources() -> str:
        launch = f"{threads} threads, {shared_bytes} bytes of dynamic shared memory"
        return "\n".join([launch, assemble(ptx, machine).summary(), *breakers(ptx, machine)])

    return Texts(
        {
            "llvm": lambda: llvm,
            "ptx": lambda: ptx,
            "sass": lambda: disassemble(assemble(ptx, machine).cubin),
            "resources": resources,
        }
    )
