"""The CUDA driver API through ctypes: contexts, modules, functions, launches, tensor maps.

Nothing here needs the CUDA toolkit: `libcuda` comes with the driver.  Every call checks its result and
raises `DriverError` with the driver's own name and sentence.  Pointers and sizes are plain ints (bytes).
Contexts are the devices' primary contexts, so that memory of torch, cupy and others is valid in them.

Source: CUDA Driver API reference (cuModuleLoadDataEx, cuLaunchKernel, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import contextlib
import ctypes as C
import functools
import os
from collections.abc import Generator, Sequence
from typing import Any, Final

from tilewright.diagnostics import TilewrightError
from tilewright.frozen import frozen


class DriverError(TilewrightError):
    """A CUDA driver call failed; `code` is the CUresult."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} (CUresult {code})")
        self.code = code


# CUfunction_attribute and CUdevice_attribute values that we read or set.
_FUNC_SHARED_STATIC: Final = 1
_FUNC_LOCAL_BYTES: Final = 3
_FUNC_REGISTERS: Final = 4
_FUNC_MAX_DYNAMIC_SHARED: Final = 8
_DEV_MULTIPROCESSORS: Final = 16
_DEV_MAJOR: Final = 75
_DEV_MINOR: Final = 76
_DEV_SHARED_OPTIN: Final = 97

_JIT_INFO_LOG: Final = 3
_JIT_INFO_LOG_BYTES: Final = 4
_JIT_ERROR_LOG: Final = 5
_JIT_ERROR_LOG_BYTES: Final = 6
_JIT_LOG_VERBOSE: Final = 12

# CUtensorMapDataType, by the name of the MLIR element type.
TENSOR_MAP_TYPE: Final[dict[str, int]] = {
    "ui8": 0, "i8": 0, "f8E4M3FN": 0, "f8E5M2": 0,
    "ui16": 1, "i16": 1, "ui32": 2, "i32": 3, "ui64": 4, "i64": 5,
    "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11,
}  # fmt: skip
# CUtensorMapSwizzle, by the span in bytes.
TENSOR_MAP_SWIZZLE: Final[dict[int, int]] = {0: 0, 32: 1, 64: 2, 128: 3}


@functools.cache
def _library() -> C.CDLL:
    """libcuda, initialised once per process; raises DriverError where there is no driver."""
    try:
        library = C.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError(
            "libcuda.so.1", -1, f"no NVIDIA driver on this machine: {error}"
        ) from None
    if not _started:
        _started.append(os.getpid())
    elif _started[0] != os.getpid():  # starting it here would end the process
        raise DriverError("cuInit", _NOT_INITIALIZED, _FORKED)
    code = library.cuInit(0)
    if code:
        raise DriverError("cuInit", code, "the NVIDIA driver does not start")
    return library


_started: list[int] = []
"""The process that started the driver, or tried: its forks cannot (CUDA programming guide, initialization)."""
_FORKED: Final = "this process was forked from one that uses the GPU"
_NOT_INITIALIZED: Final = 3


def call(name: str, *args: Any) -> None:
    """Call the driver function `name`; raise DriverError unless it returns CUDA_SUCCESS."""
    library = _library()
    code = getattr(library, name)(*args)
    if code:
        raise error(name, code)


NO_CONTEXT: Final = (3, 201, 400)
"""CUresult of a thread that has no context, or another's: NOT_INITIALIZED, INVALID_CONTEXT, INVALID_HANDLE."""


def error(name: str, code: int) -> DriverError:
    """The exception for a driver call that returned `code`."""
    text, symbol = C.c_char_p(), C.c_char_p()
    library = _library()
    library.cuGetErrorString(code, C.byref(text))
    library.cuGetErrorName(code, C.byref(symbol))
    words = f"{(symbol.value or b'').decode()}: {(text.value or b'unknown error').decode()}"
    return DriverError(name, code, words)


@functools.cache
def launcher() -> Any:
    """`cuLaunchKernelEx` itself, for calls whose arguments are ctypes objects already."""
    return _library().cuLaunchKernelEx


def context_getter() -> Any:
    """`cuCtxGetCurrent` itself."""
    return _library().cuCtxGetCurrent


class LaunchConfig(C.Structure):
    """CUlaunchConfig: grid, block, bytes of dynamic shared memory, stream, attributes."""

    _fields_ = (
        ("grid_x", C.c_uint),
        ("grid_y", C.c_uint),
        ("grid_z", C.c_uint),
        ("block_x", C.c_uint),
        ("block_y", C.c_uint),
        ("block_z", C.c_uint),
        ("shared_bytes", C.c_uint),
        ("stream", C.c_void_p),
        ("attributes", C.c_void_p),
        ("attribute_count", C.c_uint),
    )


def missing() -> str | None:
    """What this process lacks to use a CUDA device, as a sentence; None where nothing is missing."""
    if _started and _started[0] != os.getpid():
        return _FORKED
    try:
        return None if device_count() > 0 else "the NVIDIA driver finds no GPU"
    except DriverError as error:
        return "there is no NVIDIA driver here (libcuda.so.1)" if error.code == -1 else str(error)


def available() -> bool:
    """Whether this process can use at least one CUDA device."""
    return missing() is None


def named(machine: str) -> str:
    """A machine of the tables as the device at hand is one; its name alone where there is none."""
    if available():
        found = device(0)
        _names[machine] = f"{machine}: {found.name}, {found.multiprocessors} multiprocessors"
    return _names.get(machine, machine)


_names: dict[str, str] = {}
"""What devices at hand are called: a fork, which cannot ask, calls them the same."""


def device_count() -> int:
    count = C.c_int()
    call("cuDeviceGetCount", C.byref(count))
    return count.value


def driver_version() -> int:
    """The CUDA version that the driver supports, as 1000 * major + 10 * minor."""
    value = C.c_int()
    call("cuDriverGetVersion", C.byref(value))
    return value.value


@frozen
class CudaDevice:
    """One GPU and its primary context (retained for the life of the process)."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_limit: int
    """Bytes of dynamic shared memory that a block may opt in to."""
    context: int

    def make_current(self) -> None:
        """Bind the primary context to this thread: driver calls below act on this device."""
        call("cuCtxSetCurrent", C.c_void_p(self.context))

    def make_current_if_none(self) -> None:
        """Bind the primary context to this thread if it has none."""
        before = C.c_void_p()
        call("cuCtxGetCurrent", C.byref(before))
        if not before.value:
            self.make_current()

    @contextlib.contextmanager
    def current(self) -> Generator[None]:
        """The primary context is this thread's inside; what was current before is again after it.

        A thread that had none keeps this one.
        """
        before = C.c_void_p()
        call("cuCtxGetCurrent", C.byref(before))
        if before.value == self.context:
            yield
            return
        self.make_current()
        try:
            yield
        finally:
            if before.value:
                call("cuCtxSetCurrent", before)


@functools.cache
def device(ordinal: int) -> CudaDevice:
    """Device `ordinal` with its primary context; DriverError when there is no such device."""
    handle, context = C.c_int(), C.c_void_p()
    call("cuDeviceGet", C.byref(handle), ordinal)
    name = C.create_string_buffer(256)
    call("cuDeviceGetName", name, 256, handle)

    def attribute(which: int) -> int:
        value = C.c_int()
        call("cuDeviceGetAttribute", C.byref(value), which, handle)
        return value.value

    call("cuDevicePrimaryCtxRetain", C.byref(context), handle)
    return CudaDevice(
        ordinal,
        name.value.decode(),
        (attribute(_DEV_MAJOR), attribute(_DEV_MINOR)),
        attribute(_DEV_MULTIPROCESSORS),
        attribute(_DEV_SHARED_OPTIN),
        context.value or 0,
    )


@frozen
class CudaFunction:
    """A kernel of a loaded module, with what the assembler says of it."""

    handle: int
    name: str
    registers: int
    local_bytes: int
    shared_bytes: int
    log: str
    """The assembler's messages: register counts, spills, C75xx performance warnings."""


@contextlib.contextmanager
def _relaxed_capture() -> Generator[None]:
    """Calls inside may allocate although another stream of this thread is captured for a graph."""
    mode = C.c_int(2)  # CU_STREAM_CAPTURE_MODE_RELAXED
    call("cuThreadExchangeStreamCaptureMode", C.byref(mode))
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", C.byref(mode))


def load_function(image: bytes, name: str, dynamic_shared: int = 0) -> CudaFunction:
    """Load PTX text or a cubin into the current context and look up the kernel `name`.

    `dynamic_shared`: bytes of dynamic shared memory that launches will ask for.
    Raises DriverError with the assembler's log when the image does not assemble.
    """
    info, errors = C.create_string_buffer(1 << 14), C.create_string_buffer(1 << 14)
    options: list[tuple[int, Any]] = [
        (_JIT_INFO_LOG, C.cast(info, C.c_void_p)),
        (_JIT_INFO_LOG_BYTES, C.c_void_p(len(info))),
        (_JIT_ERROR_LOG, C.cast(errors, C.c_void_p)),
        (_JIT_ERROR_LOG_BYTES, C.c_void_p(len(errors))),
        (_JIT_LOG_VERBOSE, C.c_void_p(1)),
    ]
    keys = (C.c_int * len(options))(*(key for key, _ in options))
    values = (C.c_void_p * len(options))(*(value for _, value in options))
    module, function = C.c_void_p(), C.c_void_p()
    try:
        with _relaxed_capture():
            call("cuModuleLoadDataEx", C.byref(module), image + b"\0", len(options), keys, values)
    except DriverError as failure:
        log = errors.value.decode(errors="replace").strip()
        raise DriverError("cuModuleLoadDataEx", failure.code, f"{failure}\n{log}") from None
    call("cuModuleGetFunction", C.byref(function), module, name.encode())

    def attribute(which: int) -> int:
        value = C.c_int()
        call("cuFuncGetAttribute", C.byref(value), which, function)
        return value.value

    if dynamic_shared:
        call("cuFuncSetAttribute", function, _FUNC_MAX_DYNAMIC_SHARED, dynamic_shared)
    return CudaFunction(
        function.value or 0,
        name,
        attribute(_FUNC_REGISTERS),
        attribute(_FUNC_LOCAL_BYTES),
        attribute(_FUNC_SHARED_STATIC),
        info.value.decode(errors="replace").strip(),
    )


def resident(function: CudaFunction, threads: int, shared: int) -> int:
    """Workgroups of `threads` threads and `shared` bytes of dynamic shared memory that a multiprocessor of the current
    device holds at a time."""
    count = C.c_int()
    call(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        *(C.byref(count), C.c_void_p(function.handle), threads, C.c_size_t(shared)),
    )
    return max(1, count.value)


class TensorMap:
    """A CUtensorMap: how the copy engine (TMA) sees one array of rank 1 to 5.

    `extents` and `box` count elements and `strides` bytes, all innermost dimension first; `strides` leaves out
    the innermost, which is contiguous.  Limits (checked by the driver, reported by `TensorMap` as DriverError):
    base 16-byte aligned, strides multiples of 16 bytes, box <= 256 per dimension, innermost box * size at most
    the swizzle span.  Reads outside give zero, writes outside are dropped.
    """

    def __init__(
        self,
        base: int,
        element: str,
        extents: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        swizzle: int = 128,
        l2_promotion: int = 2,
    ) -> None:
        rank = len(extents)
        self._storage = (C.c_uint8 * 256)()
        self.address: int = (C.addressof(self._storage) + 127) & ~127
        call(
            "cuTensorMapEncodeTiled",
            C.c_void_p(self.address),
            TENSOR_MAP_TYPE[element],
            rank,
            C.c_void_p(base),
            (C.c_uint64 * rank)(*extents),
            (C.c_uint64 * max(1, rank - 1))(*strides),
            (C.c_uint32 * rank)(*box),
            (C.c_uint32 * rank)(*([1] * rank)),
            0,
            TENSOR_MAP_SWIZZLE[swizzle],
            l2_promotion,
            0,
        )


@functools.lru_cache(maxsize=4096)
def tensor_map(
    base: int,
    element: str,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
) -> TensorMap:
    """A tensor map, encoded once for each array and box."""
    return TensorMap(base, element, extents, strides, box, swizzle)


def launch(
    function: CudaFunction,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    stream: int,
    arguments: Sequence[Any],
) -> None:
    """Enqueue a kernel on `stream` (0 is the default stream of the current context).

    `shared`: bytes of dynamic shared memory.  `arguments`: ctypes values, or TensorMaps, in the kernel's order; the
    driver copies them before it returns.
    """
    addresses = [a.address if isinstance(a, TensorMap) else C.addressof(a) for a in arguments]
    parameters = (C.c_void_p * max(1, len(addresses)))(*addresses)
    call(
        "cuLaunchKernel",
        C.c_void_p(function.handle),
        *grid,
        *block,
        shared,
        C.c_void_p(stream),
        parameters,
        None,
    )
