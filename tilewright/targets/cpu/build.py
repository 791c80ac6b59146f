"""From a kernel's module to object code and all that a launch must know of it."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
    ModuleOp,
)
from xdsl.ir import Attribute

from tilewright.codegen import emit_module
from tilewright.codegen.jit import compile_object
from tilewright.passes.observer import Observer
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu.arguments import argument_block
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.pipeline import run_pipeline


def scalar_format(type: Attribute) -> str:
    """How a scalar argument lies in its slot of 8 bytes: a struct format, or a name of ml_dtypes."""
    if isinstance(type, IndexType):
        return "q"
    if isinstance(type, IntegerType):
        return "?" if type.width.data == 1 else "q"
    if isinstance(type, Float64Type):
        return "d"
    if isinstance(type, Float16Type):
        return "e"
    if isinstance(type, BFloat16Type):
        return "bfloat16"
    assert isinstance(type, AnyFloat)
    return "f"


def build(
    module: ModuleOp, m: Machine, options: CompileOptions, observe: Observer
) -> tuple[bytes, dict[str, Any], str]:
    """Object code, facts for launching it (of JSON's types), the LLVM IR text."""
    remarks: list[str] = []
    lowered = run_pipeline(module, m, options, remarks, observe=observe)
    text = emit_module(lowered.module, m.target)
    data = compile_object(text, m.target)
    block = argument_block(lowered.types)
    arguments = [
        ("array", len(t.get_shape())) if isinstance(t, MemRefType) else (scalar_format(t), 0)
        for t in lowered.types
    ]
    meta = {
        "arguments": arguments,
        "block_bytes": block.size,
        "grid": block.grid,
        "scratch_bytes": lowered.scratch_bytes,
        "packs": lowered.packs,
        "subgroups": lowered.subgroups,
        "prints": lowered.prints,
        "remarks": remarks,
        "machine": options.machine,
    }
    return data, meta, text
