"""Arrays of the host on a GPU for the time of a launch: the bytes that they cover, overlaps, strides and all.

Bytes between the elements go along and come back, so that a stray store is seen.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.arguments import ArrayArg
from tilewright.targets.cuda import driver


class _Span:
    """Bytes [low, high) of the host and their copy on the device."""

    def __init__(self, low: int, high: int):
        self.low, self.high = low, high
        self.device = C.c_uint64()

    @property
    def size(self) -> int:
        return self.high - self.low

    def address(self, pointer: int) -> int:
        return self.device.value + self.skew + pointer - self.low

    @property
    def skew(self) -> int:
        """The copy keeps the address modulo 256: code that is chosen by alignment stays the same."""
        return self.low % 256

    def upload(self) -> None:
        # No more than the last 16 bytes begun, so that a checker of memory sees what reaches beyond the
        # end. (It takes cp.async of 16 bytes that wants fewer for one of 16.)
        size = -(-(self.size + self.skew) // 16) * 16
        driver.call("cuMemAlloc_v2", C.byref(self.device), size)
        driver.call(
            "cuMemcpyHtoD_v2",
            C.c_uint64(self.address(self.low)),
            C.c_void_p(self.low),
            C.c_size_t(self.size),
        )

    def download(self, write: bool) -> None:
        if write:
            driver.call(
                "cuMemcpyDtoH_v2",
                C.c_void_p(self.low),
                C.c_uint64(self.address(self.low)),
                C.c_size_t(self.size),
            )
        driver.call("cuMemFree_v2", self.device)


def _spans(arrays: Sequence[ArrayArg]) -> list[_Span]:
    merged: list[_Span] = []
    for low, high in sorted(a.byte_range() for a in arrays):
        if low == high:
            continue
        if merged and low < merged[-1].high:
            merged[-1].high = max(merged[-1].high, high)
        else:
            merged.append(_Span(low, high))
    return merged


@contextmanager
def mirrored(arrays: Sequence[ArrayArg]) -> Generator[list[ArrayArg], None, None]:
    """Inside: the arrays as they are on the first device; after it what was written is on the host.

    DriverError for a device without memory for them, and for a fault of what was launched on them.
    """
    driver.device(0).make_current()
    spans = _spans(arrays)
    for span in spans:
        span.upload()

    def moved(arg: ArrayArg) -> ArrayArg:
        low, _ = arg.byte_range()
        assigned = next((s for s in spans if s.low <= low < s.high), None)
        address = assigned.address(arg.pointer) if assigned is not None else 0
        return replace(arg, pointer=address, device="cuda:0")

    try:
        yield [moved(a) for a in arrays]
        driver.call("cuCtxSynchronize")
    finally:
        for span in spans:
            span.download(not all(a.readonly for a in arrays))


def device_with(arrays: Sequence[ArrayArg]) -> AbstractContextManager[None]:
    """Inside: the device on which these arrays lie is current; the first where there are none."""
    place = next((a.device for a in arrays if a.on_device), "cuda:0")
    return driver.device(int(place.partition(":")[2])).current()


def fetched(array: ArrayArg) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The bytes that an array of the current device covers, copied to the host, and the array in them."""
    low, high = array.byte_range()
    raw = np.empty(high - low, np.uint8)
    driver.call("cuCtxSynchronize")
    if raw.size:
        driver.call("cuMemcpyDtoH_v2", _host(raw), C.c_uint64(low), C.c_size_t(raw.size))
    steps = [stride * array.dtype.itemsize for stride in array.strides]
    return raw, np.ndarray(array.shape, array.dtype.numpy, raw, array.pointer - low, steps)


def put(array: ArrayArg, content: np.ndarray[Any, Any]) -> None:
    """Writes the elements of an array of the current device."""
    raw, view = fetched(array)
    if raw.size:
        view[...] = content
        low, _ = array.byte_range()
        driver.call("cuMemcpyHtoD_v2", C.c_uint64(low), _host(raw), C.c_size_t(raw.size))


def _host(raw: np.ndarray[Any, Any]) -> C.c_void_p:
    return C.c_void_p(raw.ctypes.data)
