"""Runs one thread's last-stage IR, written as text, on the GPU: arrays are copied there and back."""

from __future__ import annotations

import ctypes as C
from typing import Any

import numpy as np
import pytest

from tests.codegen.harness import module
from tilewright.codegen import emit_module, nvptx
from tilewright.codegen.remote import generate_ptx
from tilewright.targets.cuda import driver

needs_gpu = pytest.mark.skipif(not driver.available(), reason="this machine has no NVIDIA GPU")


def architecture() -> str:
    """What code for the device at hand may use."""
    capability = driver.device(0).capability
    return "sm_90a" if capability == (9, 0) else "sm_89" if capability >= (8, 9) else "sm_80"


class Buffer:
    """Device memory with the content of a numpy array."""

    def __init__(self, array: np.ndarray[Any, Any]):
        self.array = array
        self.address = C.c_uint64()
        driver.call("cuMemAlloc_v2", C.byref(self.address), max(16, array.nbytes))
        driver.call("cuMemcpyHtoD_v2", self.address, array.ctypes.data_as(C.c_void_p), array.nbytes)

    def back(self) -> None:
        """Copy to the numpy array and free."""
        array = self.array
        driver.call("cuMemcpyDtoH_v2", array.ctypes.data_as(C.c_void_p), self.address, array.nbytes)
        driver.call("cuMemFree_v2", self.address)


class Kernel:
    """A kernel `k`; called with arrays (pointers, updated in place), numpy scalars and tensor maps."""

    def __init__(self, text: str, *, shared: int = 0, cpu: str | None = None, ptx: int = 80):
        self.shared = shared
        target = nvptx(cpu or architecture(), ptx)
        self.llvm = emit_module(module(text), target)
        self.ptx = generate_ptx(self.llvm, target)
        driver.device(0).make_current()
        self.function = driver.load_function(self.ptx.encode(), "k", shared)

    def __call__(
        self, *args: Any, threads: int = 32, grid: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        buffers: list[Buffer] = []
        values: list[Any] = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                buffers.append(Buffer(arg))
                values.append(buffers[-1].address)
            elif isinstance(arg, np.generic):
                values.append((C.c_uint8 * 8).from_buffer_copy(arg.tobytes().ljust(8, b"\0")))
            else:
                values.append(arg)
        driver.launch(self.function, grid, (threads, 1, 1), self.shared, 0, values)
        driver.call("cuCtxSynchronize")
        for buffer in buffers:
            buffer.back()
