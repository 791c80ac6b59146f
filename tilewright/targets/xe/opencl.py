"""Launching through OpenCL: on an Intel GPU the product, on a CPU's runtime the kernel of the `emu` table.

The runtime lives in a process of its own (`opencl_worker`): a driver that crashes takes no user's process with it.
Arrays are copied to buffers of the device and back. Needs pyopencl and a runtime: an Intel GPU's driver, or
`pip install 'tilewright[xe]'` for Intel's CPU runtime. Written against the OpenCL specification; no Intel GPU has
run it yet.
"""

from __future__ import annotations

import ctypes
import importlib.util
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tilewright import forks
from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.codegen.remote import Helper, HelperEnded, helper
from tilewright.diagnostics import LaunchError, ToolMissing, UnsupportedError
from tilewright.passes.integers import EXTENT
from tilewright.targets.xe.assertions import HELD, failed

if TYPE_CHECKING:
    from tilewright.targets.xe.target import XeExecutable

HINT = "pip install 'tilewright[xe]' (pyopencl and Intel's OpenCL runtime for CPUs), or the driver of an Intel GPU"
_DIED = {
    "build": "the runtime's own compiler failed, nothing of the kernel ran: --emit spirv-emu is the module to report; "
    "--target cpu and --target reference do without",
    "run": "an access outside of an array does that, which nothing bounds on a device: `tilewright check` names the "
    "op; if it names none, --emit spirv-emu is the module to report",
}
"""What to do when the runtime's process ends, by what it was asked for."""
LIMIT = 600
"""Seconds that building or running one kernel may take."""

_SCRIPT = Path(__file__).with_name("opencl_worker.py")
_lock = forks.lock()


class OpenCLWorker(Helper):
    """One process that holds an OpenCL context."""

    def __init__(self, script: Path) -> None:
        super().__init__(script, subprocess.DEVNULL)
        self.built: set[str] = set()
        self.device: dict[str, Any] = self.done("device", {})[0]

    def done(
        self, what: str, request: Mapping[str, Any], *blobs: bytes
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The answer and its bytes. LaunchError where the process ended or says what went wrong."""
        try:
            answer, back = self.ask({"what": what, **request}, *blobs, limit=LIMIT)
        except TimeoutError:
            raise LaunchError(f"OpenCL took longer than {LIMIT} s to {what} the kernel") from None
        except HelperEnded as ended:
            raise LaunchError(
                f"the OpenCL runtime died {_of_what(ended.status)} when it was to {what} {request.get('name', '')}",
                hint=_DIED.get(what),
            ) from None
        if answer.get("error"):
            raise LaunchError(f"OpenCL: {answer['error']}", hint=answer.get("hint"))
        return answer, back


def _of_what(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"(status {status})"
    try:
        return f"({signal.Signals(-status).name})"
    except ValueError:
        return f"(signal {-status})"


def worker() -> OpenCLWorker:
    """This process's worker, started when first asked for. ToolMissing without a runtime."""
    if importlib.util.find_spec("pyopencl") is None:
        raise ToolMissing("pyopencl is not installed: there is nothing to launch on", hint=HINT)
    try:
        found = helper(_SCRIPT, OpenCLWorker)
    except LaunchError as error:
        raise ToolMissing(error.message, hint=HINT) from None
    assert isinstance(found, OpenCLWorker)
    return found


def state() -> str:
    """What launches go to, or why there are none, in a few words."""
    if (absent := missing()) is not None:
        return absent
    found = worker().device
    table = "the product" if found["kind"] == "gpu" else "the `emu` table's kernels"
    return f"{found['name']}, {found['version']}: runs {table}"


def missing() -> str | None:
    """Why launches go nowhere, as a sentence; None where they go somewhere."""
    try:
        with _lock:
            worker()
    except ToolMissing as error:
        return f"{error.message} ({error.hint})"
    return None


def device() -> dict[str, Any] | None:
    """Name, kind (`gpu` or `cpu`) and limits of the device that launches go to; None where there is none."""
    return worker().device if missing() is None else None


def _bytes_of(arg: ArrayArg) -> tuple[int, int]:
    """First address and length of what an array's elements cover."""
    low, high = arg.byte_range()
    return low, high - low


def launch(executable: XeExecutable, grid: Grid, args: Sequence[Argument]) -> None:
    """Run the kernel and wait for it. LaunchError where arguments break what block messages need."""
    with _lock:
        here = worker()
        on_gpu = here.device["kind"] == "gpu"
        table = "intel" if on_gpu else "emu"
        meta = executable.meta
        spirv = executable.spirv(table)
        key = f"{meta['name']}-{hash(spirv):x}"
        if key not in here.built:
            options = executable.build_options if on_gpu else ""
            here.done("build", {"key": key, "name": meta["name"], "options": options}, spirv)
            here.built.add(key)
        given: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        arrays: list[ArrayArg] = []
        for plan, arg in zip(meta["arguments"], args, strict=True):
            if plan["kind"] == "scalar":
                given.append({"kind": "scalar", "type": plan["type"], "value": _number(arg, plan)})
                continue
            assert isinstance(arg, ArrayArg)
            if plan["shared"]:
                raise UnsupportedError(
                    f"argument {len(given)} is memory of the workgroup, and a launch passes arrays",
                    hint="memref.alloc in the kernel is such memory",
                )
            low, size = _bytes_of(arg)
            if on_gpu:
                _check_surface(arg)
            elif meta["blocks"] and max(arg.shape[-2:], default=0) > EXTENT:
                raise LaunchError(
                    f"a matrix of {' x '.join(map(str, arg.shape[-2:]))} elements is beyond what block messages reach",
                    rule=f"up to {EXTENT} rows and columns",
                )
            place = arg.pointer, low, size
            same = (n for n, a in enumerate(arrays) if (a.pointer, *_bytes_of(a)) == place)
            given.append(
                {
                    "kind": "array",
                    "same": next(same, len(arrays)),
                    "start": arg.pointer - low,
                    "numbers": [_of_array(arg, what) for what in plan["numbers"]],
                }
            )
            arrays.append(arg)
            blobs.append(ctypes.string_at(low, size) if size else b"")
        assertions = meta["assertions"]
        if assertions:
            held = {"same": len(arrays), "start": 0, "numbers": []}
            given.append({"kind": "array", **held})
            blobs.append(HELD.to_bytes(4, "little") * len(assertions))
        lanes = meta["subgroups"] * meta["lanes"]
        request = {"key": key, "grid": list(grid), "lanes": lanes, "args": given}
        _, back = here.done("run", {**request, "name": meta["name"]}, *blobs)
    told = back.pop() if assertions else b""
    _write_back(arrays, blobs, back)
    if assertions:
        words = np.frombuffer(told, np.uint32).tolist()
        error = failed(assertions, words, grid, meta["subgroups"], meta["whole"])
        if error is not None:
            raise error


def _write_back(arrays: Sequence[ArrayArg], given: Sequence[bytes], back: Sequence[bytes]) -> None:
    """Writes what has changed: between the elements of one array may lie those of another. LaunchError where one wrote
    an element of another, of which the kernel had a copy of its own."""
    changes = [np.frombuffer(a, np.uint8) for a in back]
    for n, (arg, old, new) in enumerate(zip(arrays, given, changes, strict=False)):
        low, size = _bytes_of(arg)
        at = np.flatnonzero(np.frombuffer(old, np.uint8) != new[:size])
        if not at.size:
            continue
        for m, other in enumerate(arrays):
            first, length = _bytes_of(other)
            if (first, length, other.pointer) == (low, size, arg.pointer):
                continue
            inside = at[(at + low >= first) & (at + low < first + length)] + low - first
            if inside.size and _elements(other)[inside].any():
                raise LaunchError(
                    f"argument {n} is written where it overlaps argument {m}, of which the device has a copy",
                    hint="pass arrays that do not overlap, or one array and offsets into it",
                )
        merged = np.frombuffer(ctypes.string_at(low, size), np.uint8).copy()
        merged[at] = new[at]
        ctypes.memmove(low, merged.tobytes(), size)


def _elements(arg: ArrayArg) -> np.ndarray[Any, Any]:
    """Of the bytes that an array covers, which are of its elements."""
    low, size = _bytes_of(arg)
    found, width = np.zeros(size, np.bool_), arg.dtype.itemsize
    steps = [*(stride * width for stride in arg.strides), 1]
    np.ndarray((*arg.shape, width), np.bool_, found, arg.pointer - low, steps)[...] = True
    return found


def _number(value: Any, plan: dict[str, Any]) -> str:
    """A scalar's bytes, in hexadecimal."""
    dtype = np.dtype(getattr(ml_dtypes, plan["type"], None) or plan["type"])
    return np.array(value, dtype).tobytes().hex()


def _of_array(arg: ArrayArg, what: str) -> int:
    """A number that an array's type leaves open."""
    name, _, index = what.partition(" ")
    if name == "offset":
        return 0
    return arg.shape[int(index)] if name == "size" else arg.strides[int(index)]


def _check_surface(arg: ArrayArg) -> None:
    """What a 2D block message asks of a matrix (SPV_INTEL_2d_block_io)."""
    if arg.rank < 2:
        return
    size = arg.dtype.itemsize
    width, pitch = arg.shape[-1] * size, arg.strides[-2] * size
    limit = 1 << 24
    for what, number, legal in (
        ("width", width, 64 <= width <= limit and width % 4 == 0),
        ("pitch", pitch, 64 <= pitch <= limit and pitch % 16 == 0),
        ("height", arg.shape[-2], 1 <= arg.shape[-2] <= limit),
    ):
        if not legal:
            raise LaunchError(
                f"a matrix with {what} {number} is beyond what block messages reach",
                rule="width 64 to 2^24 bytes in steps of 4, pitch 64 to 2^24 bytes in steps of 16, up to 2^24 rows",
                hint="pad the array's rows",
            )
