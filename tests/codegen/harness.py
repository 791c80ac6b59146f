"""Runs last-stage IR written as text: on this CPU, at every feature level that it has."""

from __future__ import annotations

import ctypes
import re
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tests.texts import parse_module
from tilewright.codegen import LLVMTarget, emit_module, x86
from tilewright.codegen.loading import LoadedObject, load
from tilewright.uarch.x86 import X86_64


@cache
def host_features() -> frozenset[str]:
    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)


def amx_is_allowed() -> bool:
    """Does the kernel let this process use tile registers? (arch_prctl ARCH_REQ_XCOMP_PERM)"""
    return (
        "amx-tile" in host_features()
        and ctypes.CDLL(None, use_errno=True).syscall(158, 0x1023, 18) == 0
    )


LEVELS = [level for level in X86_64.levels if x86(level).features <= host_features()]
"""Feature levels that this CPU executes."""


def module(text: str) -> ModuleOp:
    return parse_module(text, "test.mlir")


class Function:
    """A compiled function, called with numpy arrays (as pointers), ints (index) and floats (f32 scalars)."""

    def __init__(self, text: str, name: str = "k", target: LLVMTarget | None = None):
        self.target = target or x86(LEVELS[-1])
        self.module = module(text)
        self.llvm = emit_module(self.module, self.target)
        self.object: LoadedObject = load(self.llvm, self.target)
        self.address = self.object.address(name)

    def __call__(self, *args: object, result: type | None = None) -> object:
        values: list[object] = []
        types: list[type] = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                values.append(arg.ctypes.data)
                types.append(ctypes.c_void_p)
            elif isinstance(arg, float):
                values.append(arg)
                types.append(ctypes.c_float)
            else:
                values.append(arg)
                types.append(ctypes.c_int64)
        return ctypes.CFUNCTYPE(result, *types)(self.address)(*values)


def map_vectors(
    body: str,
    inputs: list[np.ndarray],
    types: list[str],
    result: str,
    dtype: object,
    target: LLVMTarget | None = None,
    count: int | None = None,
    parts: int = 1,
) -> np.ndarray:
    """Runs `body`, which makes %r of type `result` from %x0, %x1, ..., on whole arrays: once, or on `parts` equal
    parts of them, one after the other (long vectors are slow to compile)."""
    out_shape = [int(n) for n in re.findall(r"(\d+)x", result)] or [1]
    if parts > 1:
        out_shape[0] *= parts
    size = count or int(np.prod(out_shape))
    out = np.zeros(size, dtype=dtype)
    out.view(np.uint8)[:] = 0xA5
    params = ", ".join([f"%p{i} : !llvm.ptr" for i in range(len(inputs))] + ["%q : !llvm.ptr"])
    loads = "\n".join(f"%x{i} = mach.load %p{i} : !llvm.ptr -> {t}" for i, t in enumerate(types))
    text = f"""
    func.func @k({params}) {{
      {loads}
      {body}
      mach.store %r, %q : {result}, !llvm.ptr
      func.return
    }}"""
    function = Function(text, target=target)
    for each in zip(
        *(np.split(np.ascontiguousarray(a), parts) for a in [*inputs, out]), strict=True
    ):
        function(*each)
    return out.reshape(out_shape) if count is None else out
