"""Runs the last stage of the cuda target in numpy: all threads of a workgroup in step, with races found.

Memory is one array of bytes. Between two barriers no byte may be written by one thread and touched by
another: the shadow remembers who wrote and read each byte in which interval. Small kernels only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from tests.targets.cuda.threads_memory import GLOBAL_BASE, SHARED_BASE, Memory
from tests.targets.cuda.threads_step import Threads
from tilewright import uarch
from tilewright.arguments import ArrayArg
from tilewright.passes.observer import ignore
from tilewright.reference import numerics
from tilewright.targets.base import Target
from tilewright.targets.cuda.lowered import Extent, Lowered, Pointer, Programs, Scalar, Stride
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.stages import printed_into

Array = Any


def run_threads(lowered: Lowered, args: Sequence[Any], grid: tuple[int, int, int]) -> None:
    """Launch on arrays of the host (`ArrayArg`) and scalars, in place; every workgroup in turn."""
    grid = (grid[0] * lowered.split, grid[1], grid[2])
    entry = entry_of(lowered)
    with on_device(args, GLOBAL_BASE) as (memory, addresses):
        for z, y, x in np.ndindex(grid[::-1]):
            t = Threads(lowered, memory, grid, (x, y, z))
            for arg, slot in zip(entry.args, lowered.slots, strict=True):
                t.values[arg] = parameter(slot, args, addresses, grid, arg.type)
            memory.valid[SHARED_BASE:GLOBAL_BASE] = False
            memory.epoch += 1
            t.run()


def entry_of(lowered: Lowered) -> Any:
    """The first block of the code that threads run."""
    return next(op for op in lowered.module.walk() if op.name == "func.func").regions[0].blocks[0]


@contextmanager
def on_device(args: Sequence[Any], base: int) -> Iterator[tuple[Memory, dict[int, int]]]:
    """Memory with the arrays of a launch from `base` on, and their addresses by argument; copied back in the end."""
    arrays = {i: a for i, a in enumerate(args) if isinstance(a, ArrayArg)}
    ranges = [(a.byte_range(), i) for i, a in arrays.items()]
    memory = Memory(base + sum(high - low + 8192 for (low, high), _ in ranges))
    memory.top = base
    spans: list[tuple[int, int, list[int]]] = []
    """Bytes [low, high) of the host, and the arguments in them: those that overlap stay so."""
    for (low, high), i in sorted(ranges):
        if spans and (low < spans[-1][1] or (low, high) == spans[-1][:2]):
            start, end, inside = spans.pop()
            spans.append((start, max(end, high), [*inside, i]))
        else:
            spans.append((low, high, [i]))
    addresses: dict[int, int] = {}
    placed: list[tuple[int, int, int]] = []
    for low, high, inside in spans:
        data = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        at = memory.place(data)
        placed.append((low, high, at))
        addresses |= {i: at + arrays[i].pointer - low for i in inside}
    yield memory, addresses
    for low, high, at in placed:
        ctypes.memmove(low, memory.bytes[at:].ctypes.data, high - low)


def parameter(
    slot: Any, args: Sequence[Any], addresses: dict[int, int], grid: Any, type: Attribute
) -> Array:
    """What a kernel's argument holds."""
    match slot:
        case Pointer(argument=i):
            return np.array([addresses[i]], np.int64)
        case Extent(argument=i, dimension=d):
            return np.array([args[i].shape[d]], np.int64)
        case Stride(argument=i, dimension=d):
            return np.array([args[i].strides[d]], np.int64)
        case Scalar(argument=i):
            return np.array([args[i]]).astype(numerics.numpy_type(type))
        case Programs(axis=axis):
            return np.array([grid[axis]], np.int64)
        case _:
            raise AssertionError(f"no value for {slot}")


class ThreadsExecutable:
    """What `ThreadsTarget` builds."""

    def __init__(self, lowered: Lowered, ir: dict[str, str], remarks: list[str]):
        self.lowered = lowered
        self.ir = ir
        self.asm: dict[str, str] = {}
        self.remarks = remarks

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        run_threads(self.lowered, args, grid)


class ThreadsTarget(Target):
    """The cuda target's passes, run in numpy instead of on a device."""

    name = "cuda"
    executable = ThreadsExecutable

    aligned = True

    def __init__(self, machine: str = "sm_80"):
        self.table = uarch.machine(machine)
        self.last: ThreadsExecutable | None = None

    def build(self, module: Any, options: Any, observe: Any = ignore) -> ThreadsExecutable:
        ir: dict[str, str] = {}
        remarks: list[str] = []
        lowered = run_pipeline(module, self.table, options, remarks, printed_into(ir), observe)
        lowered.module.verify()
        ir["mach"] = str(lowered.module)
        self.last = self.executable(lowered, ir, remarks)
        return self.last

    def fingerprint(self, options: Any) -> str:
        return f"threads of {self.table.name}"
