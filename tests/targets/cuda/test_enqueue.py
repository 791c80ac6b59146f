"""One launch in native code, with a driver that only writes down what it was asked for."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.codegen.pyfunction import available
from tilewright.targets.cuda import driver
from tilewright.targets.cuda.enqueue import native_launch

pytestmark = pytest.mark.skipif(not available(), reason="not CPython on x86-64 Linux")
DEVICE = driver.CudaDevice(3, "a device", (9, 0), 132, 1 << 17, context=77)


class Driver:
    """cuLaunchKernelEx and cuCtxGetCurrent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, devices: int):
        self.code, self.current = 0, DEVICE.context
        self.calls: list[tuple[Any, ...]] = []

        @C.CFUNCTYPE(C.c_int, *[C.c_void_p] * 4)
        def launch(config: int, function: int, parameters: int, extra: int) -> int:
            c = driver.LaunchConfig.from_address(config)
            grid, block = (c.grid_x, c.grid_y, c.grid_z), (c.block_x, c.block_y, c.block_z)
            self.calls.append((grid, block, c.shared_bytes, c.stream, function, parameters, extra))
            return self.code

        @C.CFUNCTYPE(C.c_int, C.POINTER(C.c_void_p))
        def getter(where: Any) -> int:
            where[0] = self.current
            return 0

        self.kept = launch, getter
        monkeypatch.setattr(driver, "launcher", lambda: launch)
        monkeypatch.setattr(driver, "context_getter", lambda: getter)
        monkeypatch.setattr(driver, "device_count", lambda: devices)

    def made(self, otherwise: Callable[[], None]) -> Callable[[], None]:
        config = driver.LaunchConfig(4, 5, 6, 128, 1, 1, 1000, 0, None, 0)
        found = native_launch(lambda ordinal: 50 + ordinal, DEVICE, 11, 22, config, otherwise)
        assert found is not None
        return found


CALL = ((4, 5, 6), (128, 1, 1), 1000, 53, 11, 22, None)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_launch_goes_to_the_current_stream(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Driver(monkeypatch, devices)
    run = cuda.made(lambda: pytest.fail("nothing went wrong"))
    assert run() is None and run() is None
    assert cuda.calls == [CALL, CALL]


def test_what_the_driver_refuses_is_done_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, log = Driver(monkeypatch, 1), []
    run = cuda.made(lambda: log.append("python"))
    cuda.code = 201
    run()
    assert cuda.calls == [CALL] and log == ["python"]


def test_another_current_device_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, log = Driver(monkeypatch, 2), []
    run = cuda.made(lambda: log.append("python"))
    cuda.current = 78
    run()
    assert not cuda.calls and log == ["python"]


def test_errors_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Driver(monkeypatch, 1)

    def refuse() -> None:
        raise driver.DriverError("cuLaunchKernelEx", 700, "a fault")

    cuda.code = 700
    with pytest.raises(driver.DriverError, match="a fault"):
        cuda.made(refuse)()
