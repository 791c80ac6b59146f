"""From a kernel's module to object code and all that a launch must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from tilewright.codegen.jit import compile_object
from tilewright.codegen.loading import Ahead, prompt
from tilewright.codegen.printer import Printer, emit_early, emit_parts
from tilewright.observer import Observer
from tilewright.passes.kernel import kernel_of, level_of
from tilewright.passes.program_numbers import ProgramNumbers
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.merging import largest_tile
from tilewright.targets.cpu.pipeline import run_pipeline
from tilewright.targets.host_arguments import argument_kinds


def build(
    module: ModuleOp, m: CpuMachine, options: CompileOptions, observe: Observer
) -> tuple[bytes, dict[str, Any], str]:
    """Object code, of one object or several, facts for launching it (of JSON's types), the LLVM IR text."""
    remarks: list[str] = []
    tile, kernel = largest_tile(module), kernel_of(module)
    numbers = ProgramNumbers(kernel) if level_of(kernel) == "workgroup" else None
    numbered = numbers.arguments if numbers is not None and numbers.cuts else None
    printer, ahead = Printer(m.target), Ahead(m.target)

    def early(part: Sequence[func.FuncOp]) -> None:
        ahead.begin(emit_early(part, printer))

    with prompt():
        lowered = run_pipeline(module, m, options, remarks, observe=observe, early=early)
        for function in lowered.module.body.block.ops:
            assert isinstance(function, func.FuncOp)
            if (
                "mach.common" in function.attributes
                and function.sym_name.data not in printer.defined
            ):
                early([function])
        text, (*common, own) = emit_parts(lowered.module, m.target, printer)
    # LLVM's linker takes one object after the other: what the kernel calls comes before it.
    made = compile_object(own, m.target)
    made = b"".join([*ahead.get(common), made])
    block = lowered.block
    kinds = argument_kinds(lowered.types)
    meta = {
        "arguments": kinds,
        "words": block.words,
        "scratch_bytes": lowered.scratch_bytes,
        "packs": [
            (block.of_pack(i, "bytes") // 8, block.arguments[number] // 8, kinds[number][1], key)
            for i, (number, key) in enumerate(lowered.packs)
        ],
        "sums": lowered.sums,
        "subgroups": lowered.subgroups,
        "merged": lowered.merged,
        "tile": tile,
        "numbered": numbered,
        "division": asdict(lowered.division) if lowered.division is not None else None,
        "prints": lowered.prints,
        "remarks": remarks,
        "machine": options.machine,
    }
    return made, meta, text
