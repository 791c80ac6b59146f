"""The offline compiler of Intel's graphics driver: SPIR-V -> machine code of PVC or DG2 -> text.

Needs `ocloc` and `iga64` (Debian: intel-opencl-icd, libigc-tools). Release 22.43 knows pvc and dg2, not bmg; it
wants the modules of the `igc` table. It may fail, abort or loop: it runs with a limit of time in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from tilewright.diagnostics import CompileError, ToolMissing
from tilewright.frozen import frozen

DEVICES = {
    "xe-pvc": ("pvc", "pvc", "xehpc"),
    "xe-bmg": ("pvc", "pvc", "xehpc"),
    "xe-dg2": ("dg2", "acm-g10", "xehpg"),
}
"""Machine -> (the machine that it compiles for, ocloc's device, iga64's platform).

BMG has the matrix and block instructions of PVC. What ocloc calls dg2 is revision 0 of the chip, for whose faults the
compiler of release 22.43 does something that ends in a segmentation fault on large kernels of 256 registers; its
acm-g10 is a later revision of the same chip."""

LARGE_GRF = "-cl-intel-256-GRF-per-thread"
HINT = "apt-get install intel-opencl-icd libigc-tools"


@frozen
class Binary:
    """Machine code of one kernel."""

    device: str
    asm: str
    """iga64's text."""
    info: str
    """.ze_info, YAML."""
    spilled: int
    """Bytes per thread that did not fit into registers; 0 for none."""
    scratch: int
    """Bytes of scratch per thread."""
    elf: bytes

    def number(self, key: str) -> int:
        """An entry of .ze_info; 0 where it is absent."""
        found = re.search(rf"\b{key}:\s*(\d+)", self.info)
        return int(found.group(1)) if found else 0


def missing() -> list[str]:
    """Tools that are not installed."""
    return [tool for tool in ("ocloc", "iga64") if shutil.which(tool) is None]


def state() -> str:
    """Versions of the tools, or what is missing, in a few words."""
    if absent := missing():
        return f"{' and '.join(absent)} not installed ({HINT})"
    with tempfile.TemporaryDirectory() as folder:  # it writes its answer to a file
        subprocess.run(
            ["ocloc", "query", "OCL_DRIVER_VERSION"],
            capture_output=True,
            timeout=20,
            check=False,
            cwd=folder,
        )
        answer = Path(folder, "OCL_DRIVER_VERSION")
        version = answer.read_text(errors="replace").strip("\0 \n") if answer.exists() else ""
    return f"ocloc {version}, iga64"


def _sections(elf: bytes) -> dict[str, bytes]:
    (offset,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    table = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + i * size) for i in range(count)]
    start = table[names][4]

    def name(at: int) -> str:
        return elf[start + at : elf.index(b"\0", start + at)].decode()

    return {name(row[0]): elf[row[4] : row[4] + row[5]] for row in table}


def compile_offline(
    spirv: bytes, kernel: str, machine: str, *, large_grf: bool = False, limit: float = 120.0
) -> Binary:
    """Machine code of a module of the `igc` table. `limit` in seconds.

    Raises ToolMissing, or CompileError with the compiler's words.
    """
    if absent := missing():
        raise ToolMissing(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed: there is no offline ISA",
            hint=HINT,
        )
    if machine not in DEVICES:
        raise ToolMissing(
            f"no offline compiler here knows {machine}: there is no offline ISA",
            hint=f"it knows {', '.join(DEVICES)}; every stage up to SPIR-V is there",
        )
    name, device, platform = DEVICES[machine]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.spv")
        source.write_bytes(spirv)
        command = ["ocloc", "compile", "-file", str(source), "-spirv_input", "-device", device]
        command += ["-output", "kernel", "-out_dir", folder]
        command += ["-internal_options", "-cl-allow-zebin"]
        if large_grf:
            command += ["-options", LARGE_GRF]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=limit,
                cwd=folder,
                check=False,
                # The listing that the compiler dumps says how much was spilled; the binary does not.
                env={**os.environ, "IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": folder},
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"ocloc took longer than {limit:.0f} s for {device}") from None
        output = (done.stdout + done.stderr).strip()
        if done.returncode:
            messages = [
                x for x in output.splitlines() if x.strip() and "skipping loading of FCL" not in x
            ]
            why = "\n".join(messages)[:2000] or "it gives no reason"
            raise CompileError(
                f"ocloc failed for {device} (status {done.returncode}): {why}",
                hint=None
                if messages
                else "the module is valid SPIR-V: --emit spirv is the product, and --emit spirv-emu runs on a CPU",
            )
        elf = next(Path(folder).glob("*.bin")).read_bytes()
        found = _sections(elf)
        code = found.get(f".text.{kernel}")
        if code is None:
            raise CompileError(f"ocloc made no code for {kernel}")
        binary = Path(folder, "text.krn")
        binary.write_bytes(code)
        text = subprocess.run(
            ["iga64", "-d", f"-p={platform}", str(binary)],
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        ).stdout
        info = found.get(".ze_info", b"").decode(errors="replace")
        # It may compile twice and keep the second, when the first spilled.
        listings = sorted(Path(folder).glob("*.asm"), key=lambda f: f.stat().st_mtime_ns)
        listing = listings[-1].read_text(errors="replace") if listings else ""
        spilled = re.search(r"^//\.spill size (\d+)", listing, re.M)
    scratch = re.search(r"type:\s*scratch\s*\n\s*usage:.*\n\s*size:\s*(\d+)", info)
    return Binary(
        name,
        text,
        info,
        int(spilled.group(1)) if spilled else 0,
        int(scratch.group(1)) if scratch else 0,
        elf,
    )
