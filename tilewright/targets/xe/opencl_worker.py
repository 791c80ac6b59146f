"""The process that holds OpenCL: builds SPIR-V modules and runs their kernels for `opencl`.

Run as a script; imports nothing of Tilewright. A request is one JSON line and bytes, so is an answer.

    device                              -> {name, kind, version, subgroups}
    build {key, name, options} + SPIR-V -> {}
    run {key, grid, lanes, args} + one blob per array -> {} + the arrays that may have been written
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, BinaryIO

GUARD = 1 << 16
"""Bytes behind every array on a CPU, where nothing else keeps a kernel from the runtime's own memory."""
MARK = 0xA5

ARCHITECTURES = {"skx": "avx512vl", "core-avx2": "avx2"}
"""Processors that Intel's CPU runtime compiles for, by a flag that says that another maker's CPU can stand in."""
CPU_LIBRARIES = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libtbb.so.12")


def register_cpu_runtime() -> None:
    """Make Intel's CPU runtime of PyPI known to the loader: its package does not do it by itself."""
    library = Path(sys.prefix) / "lib"
    runtime = library / "libintelocl.so"
    if "OCL_ICD_VENDORS" in os.environ or not runtime.exists():
        return
    # What the runtime takes a CPU of another maker for is its guess: on Zen 5 it aborts compiling shuffles of bytes.
    cpu = Path("/proc/cpuinfo").read_text()
    fits = (name for name, flag in ARCHITECTURES.items() if f" {flag} " in cpu)
    if "GenuineIntel" not in cpu and (architecture := next(fits, None)):
        os.environ.setdefault("CL_CONFIG_CPU_TARGET_ARCH", architecture)
    for name in CPU_LIBRARIES:
        ctypes.CDLL(str(library / name), mode=ctypes.RTLD_GLOBAL)
    folder = tempfile.mkdtemp(prefix="tilewright-icd-")
    system = Path("/etc/OpenCL/vendors")
    for other in system.glob("*.icd") if system.is_dir() else ():
        Path(folder, other.name).write_text(other.read_text())
    Path(folder, "intel-cpu.icd").write_text(f"{runtime}\n")
    os.environ["OCL_ICD_VENDORS"] = folder


class Reported(Exception):
    """What went wrong in words of its own, and what to do."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint


class OpenCLDevice:
    """The first Intel GPU, else the first CPU with SPIR-V and subgroups."""

    def __init__(self) -> None:
        register_cpu_runtime()
        warnings.simplefilter("ignore")
        import pyopencl as cl  # pyright: ignore[reportMissingImports]  # an optional package

        self.cl: Any = cl
        found: list[tuple[int, Any]] = []
        try:
            platforms = cl.get_platforms()
        except cl.LogicError:
            platforms = []
        for platform in platforms:
            for device in platform.get_devices():
                gpu = bool(device.type & cl.device_type.GPU) and "Intel" in device.vendor
                cpu = bool(device.type & cl.device_type.CPU)
                if (gpu or cpu) and self._takes_spirv(device):
                    found.append((0 if gpu else 1, device))
        if not found:
            raise RuntimeError("no OpenCL device takes SPIR-V modules")
        rank, self.device = min(found, key=lambda pair: pair[0])
        self.kind = "gpu" if rank == 0 else "cpu"
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)
        self.kernels: dict[str, Any] = {}

    def _takes_spirv(self, device: Any) -> bool:
        try:
            return "SPIR-V" in device.il_version
        except self.cl.Error:
            return False

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.device.name.strip(),
            "kind": self.kind,
            "version": self.device.version.strip(),
            "driver": self.device.driver_version.strip(),
        }

    def build(self, request: dict[str, Any], spirv: bytes) -> None:
        program = self.cl.Program(self.context, spirv).build(options=request["options"])
        self.kernels[request["key"]] = getattr(program, request["name"])

    def run(self, request: dict[str, Any], blobs: list[bytes]) -> list[bytes]:
        import numpy as np

        cl = self.cl
        flags = cl.mem_flags
        kernel = self.kernels[request["key"]]
        values: list[Any] = []
        buffers: list[tuple[Any, Any, int]] = []
        guards: list[tuple[int, Any, int]] = []
        guard = np.full(GUARD if self.kind == "cpu" else 0, MARK, np.uint8)
        blob = iter(blobs)
        parts: list[Any] = []
        for position, arg in enumerate(request["args"]):
            if arg["kind"] == "scalar":
                values.append(np.frombuffer(bytes.fromhex(arg["value"]), np.uint8))
                continue
            data = np.frombuffer(next(blob) or bytes(64), np.uint8)
            if arg["same"] < len(parts):  # an array that is given twice
                parts.append(parts[arg["same"]])
                buffers.append(buffers[arg["same"]])
                values += [parts[-1], *(np.int64(n) for n in arg["numbers"])]
                continue
            # With negative strides the first element is not the lowest address: the kernel gets a part of the
            # buffer that begins there, and such parts begin at aligned offsets.
            align = self.device.mem_base_addr_align // 8
            pad = -arg["start"] % align
            held = np.concatenate([np.zeros(pad, np.uint8), data, guard])
            buffer = cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=held)
            start = pad + arg["start"]
            parts.append(buffer.get_sub_region(start, len(held) - start) if start else buffer)
            values.append(parts[-1])
            values += [np.int64(n) for n in arg["numbers"]]
            end = pad + len(data)
            guards.append((position, buffer, end))
            buffers.append((buffer, held[:end], pad))
        for i, value in enumerate(values):
            kernel.set_arg(i, value)
        lanes = request["lanes"]
        x, y, z = request["grid"]
        cl.enqueue_nd_range_kernel(self.queue, kernel, (x * lanes, y, z), (lanes, 1, 1))
        for buffer, held, _ in buffers:
            cl.enqueue_copy(self.queue, held, buffer)
        self.queue.finish()
        for position, buffer, end in guards if len(guard) else ():
            found = np.empty_like(guard)
            cl.enqueue_copy(self.queue, found, buffer, src_offset=end)
            if (found != MARK).any():
                first = int((found != MARK).argmax())
                raise Reported(
                    f"{request['name']} wrote outside of its argument {position}: {first} bytes behind its end",
                    "scattered accesses and atomics are not bounded on a device: give them a mask; checking mode "
                    "says which op reaches outside",
                )
        return [held[pad:].tobytes() for _, held, pad in buffers]


def answer(output: BinaryIO, head: dict[str, Any], blobs: list[bytes]) -> None:
    output.write(json.dumps({**head, "sizes": [len(b) for b in blobs]}).encode() + b"\n")
    for blob in blobs:
        output.write(blob)
    output.flush()


def serve(requests: BinaryIO, output: BinaryIO) -> None:
    """Answer requests until the input ends."""
    device: OpenCLDevice | None = None
    while line := requests.readline():
        request = json.loads(line)
        blobs = [requests.read(n) for n in request["sizes"]]
        try:
            device = device or OpenCLDevice()
            match request["what"]:
                case "device":
                    answer(output, device.describe(), [])
                case "build":
                    device.build(request, blobs[0])
                    answer(output, {}, [])
                case _:
                    answer(output, {}, device.run(request, blobs))
        except Reported as error:
            answer(output, {"error": str(error), "hint": error.hint}, [])
        except Exception as error:
            answer(output, {"error": f"{type(error).__name__}: {error}"[:2000]}, [])


if __name__ == "__main__":
    # Drivers write to standard output; answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
