"""The parent's side of helper processes: one per script, started on first use; `worker` generates code in one."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright import forks
from tilewright.codegen.target import LLVMTarget
from tilewright.diagnostics import CompileError

_lock = forks.lock()
_HELPERS: dict[tuple[int, Path], Helper] = {}
"""By process id and script: a fork of this process must not share its parent's pipes."""
_WORKER = Path(__file__).with_name("worker.py")


class HelperEnded(Exception):
    """The helper ended before its answer; `status` is how, below 0 the signal."""

    def __init__(self, status: int):
        super().__init__(f"status {status}")
        self.status = status


class Helper:
    """A process that runs a script; requests and answers are a JSON line, whose `sizes` count the bytes behind it."""

    def __init__(self, script: Path, stderr: int | None = None):
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def ask(
        self, request: Mapping[str, Any], *blobs: bytes, limit: float | None = None
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The answer and its bytes. HelperEnded where there is none, TimeoutError after `limit` seconds without one:
        the process is gone then."""
        to, answers = self.process.stdin, self.process.stdout
        assert to is not None and answers is not None
        try:
            line = json.dumps({**request, "sizes": [len(b) for b in blobs]})
            to.write(b"".join([line.encode(), b"\n", *blobs]))
            to.flush()
            late = not select.select([answers], [], [], limit)[0]
            answer = {} if late else json.loads(answers.readline())
            back = [] if late else [answers.read(n) for n in answer["sizes"]]
        except (OSError, ValueError):
            self.process.kill()
            raise HelperEnded(self.process.wait()) from None
        if late:
            self.process.kill()
            raise TimeoutError
        return answer, back


def helper(script: Path, kind: type[Helper] = Helper) -> Helper:
    """This process's helper for a script, started if none runs. The caller holds a lock of its own."""
    key = os.getpid(), script
    found = _HELPERS.get(key)
    if found is None or found.process.poll() is not None:
        found = _HELPERS[key] = kind(script)
    return found


@atexit.register
def _stop() -> None:
    """Ends this process's helpers; a fork of it may still hold their input open."""
    for process in [each.process for (owner, _), each in _HELPERS.items() if owner == os.getpid()]:
        process.terminate()
        process.communicate()


def start_helper() -> None:
    """Start this process's code generator if it does not run yet: it loads LLVM while the caller works on."""
    with _lock:
        helper(_WORKER)


def _ask(text: str, target: LLVMTarget, kind: str, options: tuple[str, ...], limit: float) -> bytes:
    request = {
        "triple": target.triple,
        "cpu": target.cpu,
        "features": target.feature_string(),
        "options": list(options),
        "kind": kind,
        "seconds": limit,
    }
    with _lock:
        try:
            answer, (output,) = helper(_WORKER).ask(request, text.encode())
        except HelperEnded as error:
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
