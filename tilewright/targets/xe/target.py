"""The xe target: kernels compiled for Intel Xe, ahead of time, and launched where an OpenCL device is.

No device is needed to compile: `spirv` is the product, `asm` what an offline compiler makes of its sibling. A
launch runs the product on an Intel GPU, the `emu` table's kernel on a CPU's OpenCL runtime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, ModuleOp
from xdsl.ir import Attribute

from tilewright.arguments import BLOCK_ROW, Argument, Grid
from tilewright.codegen.jit import toolchain_version
from tilewright.codegen.registers import DYNAMIC, LANES
from tilewright.diagnostics import CompileError, UnsupportedError
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.dtypes import from_mlir
from tilewright.observer import Observer, ignore
from tilewright.targets.base import CompileOptions, Target, split_name
from tilewright.targets.stages import StageTexts, Texts, source_of
from tilewright.targets.xe import offline, opencl, spirv_reader
from tilewright.targets.xe.forms import LARGE, RISK
from tilewright.targets.xe.offline import LARGE_GRF, compile_offline, missing
from tilewright.targets.xe.report import isa_table
from tilewright.uarch.xe import XeMachine, xe_machine


def machine_of(options: CompileOptions) -> XeMachine:
    """The machine's table: xe-pvc unless the target's name or the options say another."""
    return xe_machine(options.machine or split_name(options.target)[1] or "pvc")


def argument_plan(types: Sequence[Attribute]) -> list[dict[str, Any]]:
    """How each argument reaches the kernel: an array is its address and every number that its type leaves open."""
    plan: list[dict[str, Any]] = []
    for type in types:
        if isinstance(type, MemRefType):
            layout = LANES.memref(type)
            numbers = [
                *(["offset"] if layout.offset == DYNAMIC else []),
                *(f"size {i}" for i, n in enumerate(layout.sizes) if n == DYNAMIC),
                *(f"stride {i}" for i, s in enumerate(layout.strides) if s == DYNAMIC),
            ]
            fixed = {
                "sizes": [None if n == DYNAMIC else n for n in layout.sizes],
                "strides": [None if s == DYNAMIC else s for s in layout.strides],
            }
            shared = is_shared(type)
            plan.append({"kind": "array", "numbers": numbers, "shared": shared, **fixed})
        else:
            plan.append({"kind": "scalar", "type": _scalar(type)})
    return plan


def _scalar(type: Attribute) -> str:
    """numpy's name of a scalar parameter."""
    if isinstance(type, IndexType):
        return "int64"
    if isinstance(type, IntegerType):
        return f"int{max(8, type.width.data)}"
    return from_mlir(type).numpy.name


class XeExecutable:
    """A compiled kernel: LLVM text and SPIR-V per callee table, and what a launch must know.

    `llvm`: the texts that were made; `lowered` makes the module of which those of other tables are.
    """

    def __init__(
        self,
        ir: StageTexts,
        llvm: Mapping[str, str],
        meta: Mapping[str, Any],
        lowered: Callable[[], ModuleOp],
    ):
        self.ir = ir
        self.meta = dict(meta)
        self.remarks: list[str] = list(meta["remarks"])
        self._llvm = dict(llvm)
        self._lowered = lowered
        self._spirv: dict[str, bytes] = {}
        self.asm: Mapping[str, Any] = Texts(
            {
                "llvm": lambda: self.llvm("neutral"),
                "llvm-intel": lambda: self.llvm("intel"),
                "llvm-igc": lambda: self.llvm("igc"),
                "llvm-emu": lambda: self.llvm("emu"),
                "spirv": lambda: self.spirv("intel"),
                "spirv-igc": lambda: self.spirv("igc"),
                "spirv-emu": lambda: self.spirv("emu"),
                "asm": lambda: self.isa().asm,
                "report": lambda: isa_table(self.isa(), self.spirv("intel"), self.meta),
            }
        )

    def llvm(self, table: str) -> str:
        """LLVM text through a callee table."""
        if table not in self._llvm:
            from tilewright.targets.xe.tables import emit

            try:
                self._llvm[table] = emit(self._lowered(), table)
            except UnsupportedError as error:
                raise UnsupportedError(
                    f"the kernel has no form for the table '{table}': {error.message}"
                ) from error
        return self._llvm[table]

    def spirv(self, table: str = "intel") -> bytes:
        """SPIR-V through a callee table; the product is checked."""
        found = self._spirv.get(table)
        if found is None:
            from tilewright.targets.xe.tables import emit_spirv

            found = emit_spirv(self.llvm(table), table)
            wrong = spirv_reader.faults(spirv_reader.read(found))
            if wrong:
                raise CompileError(
                    f"the SPIR-V module of {self.meta['name']} is not valid: {wrong[0]}"
                )
            self._spirv[table] = found
        return found

    def isa(self, limit: float = 120.0) -> Any:
        """What the offline compiler makes of the kernel; a remark says where it spills, in place of one that it might.
        `limit` in seconds. ToolMissing where there is no compiler."""
        found = compile_offline(
            self.spirv("igc"),
            self.meta["name"],
            self.meta["machine"],
            large_grf=self.meta["registers"] == LARGE,
            limit=limit,
        )
        self.remarks = [text for text in self.remarks if not text.startswith(f"{RISK}: ")]
        if found.spilled or found.scratch:
            text = (
                f"{self.meta['name']}: the offline compiler keeps {found.scratch} bytes per thread in scratch memory "
                f"(it spilled {found.spilled}) besides {self.meta['registers']} registers, {self.meta['pressure']} "
                "of data were counted: give a subgroup a smaller tile, or rows of a multiple of 16 bytes"
            )
            if text not in self.remarks:
                self.remarks.append(text)
        return found

    def advise(self) -> None:
        """Asks the offline compiler, where it is installed, about a kernel that may spill though registers hold its
        data. What they do not hold by far takes it minutes, and its spills are told already."""
        unsure = any(text.startswith(f"{RISK}: ") for text in self.remarks)
        if unsure and self.meta["pressure"] <= self.meta["registers"] and not missing():
            try:
                self.isa(limit=10.0)
            except (CompileError, UnsupportedError) as error:
                self.remarks.append(f"the offline compiler does not report this: {error.message}")

    @property
    def build_options(self) -> str:
        """What a driver gets besides the module."""
        return LARGE_GRF if self.meta["registers"] == LARGE else ""

    def artifacts(self) -> Mapping[str, bytes]:
        texts = {"source": self.ir.source, "llvm": self._llvm, "meta": self.meta}
        return {"texts": json.dumps(texts).encode()}

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        from tilewright.targets.xe.opencl import launch

        launch(self, grid, args)


class XeTarget(Target):
    """See `tilewright.targets.base.Target`."""

    name = "xe"
    row = BLOCK_ROW
    emulator = "emu"

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> XeExecutable:
        # Imported here: what only asks about the target has no use for the passes.
        from tilewright.passes.kernel import kernel_of, level_of
        from tilewright.targets.xe.pipeline import run
        from tilewright.targets.xe.tables import emit

        machine = machine_of(options)
        source = source_of(module)
        whole = level_of(kernel_of(module)) == "workgroup"
        lowered, registers, pressure = run(module, machine, observe=observe, off=options.disable)
        llvm = {"intel": emit(lowered.module, "intel")}
        meta = {
            "name": lowered.name,
            "machine": machine.name,
            "lanes": lowered.lanes,
            "subgroups": lowered.subgroups,
            "registers": registers,
            "pressure": pressure.registers,
            "largest": [list(entry) for entry in pressure.largest],
            "slm": lowered.slm_bytes,
            "named_barriers": lowered.named_barriers,
            "arguments": argument_plan(lowered.arguments),
            "assertions": lowered.assertions,
            "whole": whole,
            "blocks": any("2d_" in name for name in _callees(lowered.module)),
            "remarks": lowered.remarks,
        }
        stages = _stages(source, machine, options.disable)
        return XeExecutable(stages, llvm, meta, lambda: lowered.module)

    def machine(self, options: CompileOptions) -> XeMachine:
        """The machine's table."""
        return machine_of(options)

    def missing(self) -> str | None:
        """Why kernels cannot run here, not even by the `emu` table; None where they can."""
        return opencl.missing()

    def use(self) -> str:
        """Whether kernels run here on an Intel GPU, or on a CPU by the `emu` table, or not at all."""
        found = opencl.device()
        return "compiles" if found is None else "runs" if found["kind"] == "gpu" else "emulates"

    def tools(self) -> Mapping[str, str]:
        """What looks at and runs Intel kernels here."""
        return {"offline compiler": offline.state(), "OpenCL": opencl.state()}

    def fingerprint(self, options: CompileOptions) -> str:
        return f"{machine_of(options).name}|spirv"

    def describe(self, options: CompileOptions) -> str:
        """What it compiles for, for people."""
        return f"SPIR-V for {machine_of(options).name}; {toolchain_version()}"

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> XeExecutable:
        texts, machine = json.loads(artifacts["texts"]), machine_of(options)
        ir = _stages(texts["source"], machine, options.disable)
        return XeExecutable(ir, texts["llvm"], texts["meta"], lambda: ir.lowered().module)


def _callees(module: ModuleOp) -> Iterator[str]:
    """The names of the messages and products that a lowered module calls."""
    return (str(op.properties["callee"]) for op in module.walk() if op.name == "mach.call")


def _stages(source: str, machine: XeMachine, off: frozenset[str]) -> StageTexts:
    def lower(module: ModuleOp, stage: Observer) -> Any:
        from tilewright.targets.xe.pipeline import run

        return run(module, machine, stage, off=off)[0]

    return StageTexts(source, lower)


TARGET = XeTarget()
