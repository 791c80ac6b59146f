"""A driver that assembles nothing and runs nothing, and writes down what it was asked to launch.

With it all of a launch on the host runs without a GPU, native code included: `host_launches` lets kernels of the
cuda target take arrays of the host, as if they were the device's.
"""

from __future__ import annotations

import ctypes as C
from dataclasses import dataclass
from typing import Any

import pytest

from tilewright.targets.cuda import driver, streams
from tilewright.targets.cuda.target import CudaTarget

CONTEXT = 77
ATTRIBUTES = {16: 132, 75: 9, 76: 0, 97: 232448}
"""Of an H200, by CUdevice_attribute: multiprocessors, compute capability, shared memory."""


@dataclass(frozen=True)
class Launch:
    """What cuLaunchKernelEx was given."""

    code: bytes
    """The image that the function came from."""
    grid: tuple[int, int, int]
    shared: int
    stream: int | None
    parameters: tuple[int, ...]
    """The first eight bytes of each."""


class Driver:
    """The functions of libcuda that launches call; `launches` is what they asked for."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.stream = 5
        self.codes: dict[int, bytes] = {}
        self.counts: dict[int, int] = {}
        self.kept: list[Any] = []

        @C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p)
        def enqueue(config: int, function: int, parameters: int, extra: int) -> int:
            c = driver.LaunchConfig.from_address(config)
            count = self.counts[function]
            places = (C.c_void_p * count).from_address(parameters)
            values = tuple(C.c_uint64.from_address(p or 0).value for p in places)
            grid = (c.grid_x, c.grid_y, c.grid_z)
            found = Launch(self.codes[function], grid, c.shared_bytes, c.stream, values)
            self.launches.append(found)
            return 0

        self.cuLaunchKernelEx = enqueue

    def __getattr__(self, name: str) -> Any:
        return lambda *args: 0  # pyright: ignore[reportUnknownLambdaType]

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:
        value._obj.value = ATTRIBUTES[which]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = CONTEXT
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = CONTEXT
        return 0

    def cuModuleLoadDataEx(self, module: Any, image: bytes, *options: Any) -> int:
        number = 1000 + len(self.codes)
        module._obj.value, self.codes[number] = number, image
        entry = image.decode().split(".entry", 1)[1]
        self.counts[number] = entry[: entry.index("{")].count(".param")
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = module.value
        return 0


@pytest.fixture
def host_launches(monkeypatch: pytest.MonkeyPatch) -> Driver:
    fake = Driver()
    monkeypatch.setattr(driver, "_library", lambda: fake)
    monkeypatch.setattr(driver, "launcher", lambda: fake.cuLaunchKernelEx)
    monkeypatch.setattr(driver, "device", driver.device.__wrapped__)
    monkeypatch.setattr(streams, "finder", lambda: lambda ordinal: fake.stream)  # pyright: ignore
    monkeypatch.setattr(CudaTarget, "on_host", True)
    return fake
