"""Looking at machine code without a GPU: ptxas and nvdisasm from pip's nvidia-cuda-nvcc and
nvidia-cuda-nvdisasm, from triton, or from a CUDA toolkit.

What breaks performance without being an error is found here (`notes/hopper.md` 0 and 2.4): messages
C75xx (setmaxnreg ignored, wgmma serialised, waits injected), local memory, and memory barriers of
device scope inside loops.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.diagnostics import CompileError, UnsupportedError

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


def _tool(name: str) -> str:
    found = find_tool(name)
    if found is None:
        raise UnsupportedError(
            f"there is no {name} on this machine", hint=f"pip install {PACKAGES[name]}"
        )
    return found


@dataclass(frozen=True)
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


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_LABEL = re.compile(r"^(\.L_x?_?\d+):")


def instructions(sass: str) -> list[tuple[str, str]]:
    """(name with modifiers, operands) of every instruction in order; labels as ("label", name)."""
    out: list[tuple[str, str]] = []
    for line in sass.splitlines():
        if (label := _LABEL.match(line.strip())) is not None:
            out.append(("label", label[1]))
        elif (found := _INSTRUCTION.search(line)) is not None:
            out.append((found[1], found[2].strip()))
    return out


def loops(sass: str) -> list[tuple[int, int]]:
    """(first, last) positions in `instructions` of every loop: a branch back to a label."""
    code = instructions(sass)
    at = {operand: i for i, (name, operand) in enumerate(code) if name == "label"}
    out: list[tuple[int, int]] = []
    for i, (name, operand) in enumerate(code):
        if name.startswith("BRA"):
            goal = re.search(r"\.L_x?_?\d+", operand)
            if goal is not None and at.get(goal[0], i) < i:
                out.append((at[goal[0]], i))
    return out


def breakers(ptx: str, machine: str) -> list[str]:
    """What costs performance silently in this kernel, one sentence each; empty when all is well."""
    assembly = assemble(ptx, machine)
    found = [line.strip() for line in assembly.log.splitlines() if re.search(r"\(C75\d\d\)", line)]
    if assembly.spill_store_bytes or assembly.spill_load_bytes:
        found.append(f"registers are spilled: {assembly.summary()}")
    sass = disassemble(assembly.cubin)
    code = instructions(sass)
    local = [name for name, _ in code if name.startswith(("STL", "LDL"))]
    if local:
        found.append(f"{len(local)} accesses of local memory")
    inside = {i for first, last in loops(sass) for i in range(first, last)}
    barriers = [
        name
        for i, (name, _) in enumerate(code)
        if i in inside and name.startswith("MEMBAR") and ".GPU" in name
    ]
    if barriers:
        found.append(f"{len(barriers)} memory barriers of device scope ({barriers[0]}) in a loop")
    return found
