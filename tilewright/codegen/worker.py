"""LLVM code generation in a child process: for the GPU targets, whose backends can end the process
they run in.

Run as a script, it serves requests on its standard input, each in a fork of itself. A fork costs
about 10 ms, contains every LLVM abort, and gives the SPIR-V backend the fresh state that it needs:
only its first emission of a process can be trusted (`notes/xe.md` 1.2). This file imports nothing
of Tilewright, so that the child starts fast.

    request   {triple, cpu, features, options, kind, seconds} + LLVM IR text
    answer    {error} + object code or assembly

Both are one JSON line, in which `sizes` says how many bytes follow.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from typing import Any, BinaryIO


def generate(request: dict[str, Any], text: str) -> bytes:
    """Object code, or assembly text, of LLVM IR text. May end the process."""
    import llvmlite.binding as llvm

    if request["options"]:
        llvm.set_option("tilewright", *request["options"])
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = request["triple"]
    machine = llvm.Target.from_triple(request["triple"]).create_target_machine(
        cpu=request["cpu"], features=request["features"], opt=2
    )
    if request["kind"] == "assembly":
        return machine.emit_assembly(module).encode()
    return machine.emit_object(module)


def in_fork(request: dict[str, Any], text: str) -> tuple[bytes, str]:
    """(output, error): one of them is empty."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as messages:
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                os.close(read)
                os.dup2(messages.fileno(), 2)
                try:
                    output = generate(request, text)
                    with os.fdopen(write, "wb") as pipe:
                        pipe.write(output)
                    code = 0
                except BaseException as error:
                    os.write(2, str(error).encode())
            os._exit(code)
        os.close(write)
        output, late = _read_all(read, time.monotonic() + request["seconds"])
        if late:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        messages.seek(0)
        messages_text = messages.read().decode(errors="replace").strip()
    if late:
        return b"", f"code generation took longer than {request['seconds']} s"
    if status:
        return b"", messages_text or f"the code generator ended with status {status}"
    return output, "" if output else "the code generator gave nothing"


def _read_all(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Everything up to the end of a pipe; True when the deadline came first."""
    chunks: list[bytes] = []
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return b"", True
            chunk = pipe.read(1 << 20)
            if not chunk:
                return b"".join(chunks), False
            chunks.append(chunk)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the input ends."""
    importlib.import_module("llvmlite.binding")  # loaded once, before the forks

    while line := requests.readline():
        request = json.loads(line)
        (size,) = request["sizes"]
        output, error = in_fork(request, requests.read(size).decode())
        header = json.dumps({"sizes": [len(output)], "error": error})
        answers.write(header.encode() + b"\n" + output)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
