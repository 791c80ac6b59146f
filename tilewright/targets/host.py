"""What targets share whose programs run in this process: artifacts, threads, and for all: scalars as words."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cache
from math import copysign, inf
from typing import TYPE_CHECKING, Any

from tilewright import forks
from tilewright.codegen.elf import objects
from tilewright.dtypes import from_name
from tilewright.targets.stages import Texts

if TYPE_CHECKING:
    from tilewright.codegen.target import LLVMTarget
    from tilewright.targets.stages import StageTexts


class HostExecutable:
    """A kernel in this process's memory: `data`, an object or several (`elf.objects`), and `meta`, what a launch must
    know, of JSON's types."""

    def __init__(
        self,
        data: bytes,
        meta: Mapping[str, Any],
        ir: StageTexts,
        target: LLVMTarget,
        llvm: str = "",
    ):
        """`llvm` is the text of the code, where it is at hand."""
        self.ir = ir
        self.remarks: list[str] = list(meta.get("remarks", ()))
        self._data, self._meta, self._target = data, dict(meta), target
        text = cache(lambda: llvm or _emitted(ir, target))
        self.asm: Mapping[str, str] = Texts(
            {"llvm": text, "asm": lambda: _assembly(text(), target)}
        )
        """`llvm` and `asm`."""
        self._guard = forks.lock()

    def linkable(self) -> bytes:
        """One object with all of the code, for a linker."""
        from tilewright.codegen.jit import compile_object

        single = next(objects(self._data)) == self._data
        return self._data if single else compile_object(self.asm["llvm"], self._target)

    def artifacts(self) -> Mapping[str, bytes]:
        # The text of the code is five times as long as all else, and who asks for it has the source lowered again.
        texts = {"source": self.ir.source, "meta": json.dumps(self._meta)}
        return {"object": self._data, **{name: text.encode() for name, text in texts.items()}}


def loaded(artifacts: Mapping[str, bytes]) -> tuple[bytes, dict[str, Any], str]:
    """Of an executable's artifacts: its object code, what a launch must know, the text of its source."""
    return artifacts["object"], json.loads(artifacts["meta"]), artifacts["source"].decode()


def _emitted(ir: StageTexts, target: LLVMTarget) -> str:
    from tilewright.codegen import emit_module

    return emit_module(ir.lowered().module, target)


def _assembly(llvm: str, target: LLVMTarget) -> str:
    from tilewright.codegen.jit import compile_assembly

    return compile_assembly(llvm, target)


def scalar_word(kind: str, value: Any) -> int:
    """A scalar argument as its 8 bytes; `kind`: see `host_arguments.scalar_format`.

    On every target, as numpy converts: an integer lies modulo its bits, a float is rounded to the nearest even, and
    beyond the largest it is infinite, or NaN where the type has no infinity.
    """
    if kind == "q":
        number = int(value) & ((1 << 64) - 1)
        return number - (1 << 64) if number >> 63 else number
    if kind == "?":
        return int(bool(value))
    if len(kind) > 1:
        data = from_name(kind).numpy.type(value).tobytes()
    else:
        try:
            data = struct.pack("<" + kind, float(value))
        except OverflowError:
            data = struct.pack("<" + kind, copysign(inf, value))
    return int.from_bytes(data + bytes(8 - len(data)), "little", signed=True)
