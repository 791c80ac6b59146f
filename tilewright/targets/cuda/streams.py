"""Streams: which one a launch goes to, and order with streams of others.

The current stream is torch's or cupy's, where one of them is loaded, else the legacy default
stream, which waits for all others that do not ask for the contrary.
"""

from __future__ import annotations

import ctypes as C
import sys
from collections.abc import Callable

from tilewright.targets.cuda import driver

_LEGACY = (0, 1)
"""Names of the legacy default stream: CUDA's null stream, and its handle CU_STREAM_LEGACY."""
_POINTER_DEVICE = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def finder() -> Callable[[int], int]:
    """The function that gives the current stream of a device, as cheap as it can be."""
    torch = sys.modules.get("torch")
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return lambda ordinal: int(cupy.cuda.get_current_stream().ptr)
    return lambda ordinal: 0


def current(ordinal: int) -> int:
    """The current stream of a device; 0 for the legacy default stream."""
    return finder()(ordinal)


def device_of(pointer: int) -> int:
    """The device on which an address lies; 0 where there is no address, or no driver to ask.

    DriverError for memory that is not CUDA's.
    """
    if not pointer or not driver.available():
        return 0
    ordinal = C.c_int()
    driver.device(0).make_current_if_none()
    driver.call("cuPointerGetAttribute", C.byref(ordinal), _POINTER_DEVICE, C.c_uint64(pointer))
    return ordinal.value


def wait_for(stream: int | None, ordinal: int) -> None:
    """Work enqueued on the device's current stream from here on waits for what `stream` holds now.

    None: the producer asks for no order. Nor is there one without a device, whose streams torch would look for.
    """
    if stream is None or not driver.available():
        return
    here = current(ordinal)
    if stream == here or (stream in _LEGACY and here in _LEGACY):
        return
    event = C.c_void_p()
    with driver.device(ordinal).current():
        driver.call("cuEventCreate", C.byref(event), 2)  # CU_EVENT_DISABLE_TIMING
        try:
            driver.call("cuEventRecord", event, C.c_void_p(stream))
            driver.call("cuStreamWaitEvent", C.c_void_p(here), event, 0)
        finally:
            driver.call("cuEventDestroy_v2", event)
