"""The parent's side of `worker`: one helper process, started on first use."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path

from tilewright import forks
from tilewright.codegen.target import LLVMTarget
from tilewright.diagnostics import CompileError

_lock = forks.lock()
_HELPERS: dict[int, subprocess.Popen[bytes]] = {}
"""By process id: a fork of this process must not share its parent's pipes."""


@atexit.register
def _stop() -> None:
    """End this process's helper; a fork of this process may still hold its input open."""
    helper = _HELPERS.pop(os.getpid(), None)
    if helper is not None and helper.stdin is not None and helper.stdout is not None:
        helper.stdin.close()
        helper.stdout.close()
        helper.terminate()
        helper.wait()


def _helper() -> subprocess.Popen[bytes]:
    helper = _HELPERS.get(os.getpid())
    if helper is None or helper.poll() is not None:
        script = Path(__file__).with_name("worker.py")
        helper = _HELPERS[os.getpid()] = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    return helper


def start_helper() -> None:
    """Start this process's helper if it does not run yet: it loads LLVM while the caller works on."""
    with _lock:
        _helper()


def _ask(text: str, target: LLVMTarget, kind: str, options: tuple[str, ...], limit: float) -> bytes:
    data = text.encode()
    request = {
        "triple": target.triple,
        "cpu": target.cpu,
        "features": target.feature_string(),
        "options": list(options),
        "kind": kind,
        "size": len(data),
        "seconds": limit,
    }
    with _lock:
        helper = _helper()
        assert helper.stdin is not None and helper.stdout is not None
        try:
            helper.stdin.write(json.dumps(request).encode() + b"\n" + data)
            helper.stdin.flush()
            line = helper.stdout.readline()
            answer = json.loads(line)
            output = helper.stdout.read(answer["size"])
        except (OSError, ValueError) as error:
            helper.kill()
            raise CompileError("the code generation helper process died") from error
    if answer["error"]:
        lines: list[str] = answer["error"].splitlines()
        first = next((line for line in lines if "ERROR" in line), lines[0])
        raise CompileError(f"LLVM cannot generate code for {target.name}: {first}")
    return output


def generate_ptx(text: str, target: LLVMTarget, *, limit: float = 120.0) -> str:
    """PTX of LLVM IR text; `limit` in seconds. CompileError if LLVM fails or aborts.

    Pointers to shared memory are 32 bits wide: its addresses are then 32-bit arithmetic.
    """
    return _ask(text, target, "assembly", ("--nvptx-short-ptr",), limit).decode()


def generate_spirv(
    text: str, target: LLVMTarget, extensions: tuple[str, ...] = (), *, limit: float = 120.0
) -> bytes:
    """SPIR-V words of LLVM IR text; `extensions` are the SPV_* names that it may use."""
    options: tuple[str, ...] = ()
    if extensions:
        options = ("--spirv-ext=" + ",".join(f"+{e}" for e in extensions),)
    return _ask(text, target, "object", options, limit)
