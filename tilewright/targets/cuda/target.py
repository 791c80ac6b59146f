"""The cuda target: kernels through the pipeline to PTX, checked against the machine's resources."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import FixedBitwidthType, MemRefType, ModuleOp

from tilewright import cache, knobs, uarch
from tilewright.arguments import DEVICE_ALIGNMENT, ArrayArg
from tilewright.codegen import emit_module, nvptx
from tilewright.codegen.instructions.table import find
from tilewright.codegen.jit import toolchain_version
from tilewright.codegen.remote import generate_ptx, start_helper
from tilewright.codegen.target import LLVMTarget
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import mach
from tilewright.dtypes import DType
from tilewright.observer import Observer, ignore
from tilewright.passes.memory_objects import arg_facts
from tilewright.targets.base import CompileOptions, Target, split_name
from tilewright.targets.cuda import driver, inspect, streams
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.cuda.lowered import LoweredThread, TensorMapOf, plan_of
from tilewright.targets.cuda.mirror import device_with, fetched, mirrored, put
from tilewright.targets.cuda.work_split import UNSPLIT, WorkSplit
from tilewright.targets.stages import StageTexts, source_of
from tilewright.uarch import Rates
from tilewright.uarch.calibration import with_calibration
from tilewright.uarch.nvidia import REGISTER_FILE
from tilewright.uarch.sm90 import product_rates

if TYPE_CHECKING:
    import numpy as np

    from tilewright.passes.launch_cost import Choice
    from tilewright.passes.planner import Request


def machine_name(options: CompileOptions) -> str:
    """The machine to compile for: the one asked for, else the device at hand, else sm_90a."""
    _, named = split_name(options.target)
    name = options.machine or named
    if name is not None:
        if name not in ("sm_80", "sm_90a"):
            raise UnsupportedError(
                f"target cuda has no machine {name!r}", hint="its machines are sm_80 and sm_90a"
            )
        return name
    if not driver.available():
        return "sm_90a"
    capability = driver.device(0).capability
    if capability < (8, 0):
        raise UnsupportedError(
            f"{driver.device(0).name} has compute capability {capability[0]}.{capability[1]}",
            rule="target cuda needs 8.0 or later",
        )
    return "sm_90a" if capability == (9, 0) else "sm_80"


def check_resources(lowered: LoweredThread, machine: uarch.Machine) -> None:
    """The ledger of one workgroup against the machine; UnsupportedError names number and limit."""

    def refuse(what: str, number: int, limit: int, unit: str, hint: str) -> None:
        if number > limit:
            raise UnsupportedError(
                f"the kernel needs {number} {unit} {what}, and {machine.name} has {limit} for a"
                " workgroup",
                hint=hint,
            )

    refuse("of shared memory", lowered.shared_bytes, machine.memories["smem"].size, "bytes",
           "smaller tiles or fewer stages need less")  # fmt: skip
    threads = machine.limits["threads"].most or 0
    refuse(
        "in a workgroup", lowered.threads, threads, "threads", "fewer subgroups: a smaller wg_map"
    )
    refuse("for roles", lowered.barriers, 16, "named barriers", "fewer roles")
    total = sum(lowered.registers.values())
    refuse("of all roles", total, REGISTER_FILE, "registers", "smaller tiles need fewer")


def check_alignment(kernel: gpu.FuncOp) -> None:
    """Refuses arrays that do not lie on multiples of their elements' size: the machine faults there."""
    for i, argument in enumerate(kernel.body.block.args):
        if not isinstance(argument.type, MemRefType):
            continue
        element = argument.type.element_type
        size = element.size if isinstance(element, FixedBitwidthType) else 1
        known = arg_facts(argument, size).align
        if known < size:
            name = argument.name_hint or f"argument {i}"
            raise UnsupportedError(
                f"{name} is at an address that is no multiple of its {size}-byte elements",
                rule="CUDA loads and stores whole elements at multiples of their size",
                hint="copy the array",
            )


PTX = 80
"""Version of PTX, times ten, that every driver from 525 on reads."""


def llvm_target(machine: str, module: ModuleOp) -> LLVMTarget:
    """With the least version of PTX that has a module's instructions."""
    named = {op.instruction for op in module.walk() if isinstance(op, mach.InstrOp)}
    needed = {feature for name in named if (it := find(name)) for feature in it.requires}
    later = [int(n.removeprefix("ptx")) for n in needed if n.startswith("ptx")]
    return nvptx(machine, max([PTX, *later]))


class CudaTarget(Target):
    """See `tilewright.targets.base.Target`."""

    name = "cuda"
    on_host = False
    alignment = DEVICE_ALIGNMENT
    aligned = True

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> CudaExecutable:
        return self.build_split(module, options, UNSPLIT, observe)

    def build_split(
        self,
        module: ModuleOp,
        options: CompileOptions,
        split: WorkSplit,
        observe: Observer = ignore,
    ) -> CudaExecutable:
        """The kernel with so many workgroups that compute one of its programs."""
        from tilewright.passes.kernel import kernel_of
        from tilewright.targets.cuda.pipeline import run_pipeline

        name = machine_name(options)
        check_alignment(kernel_of(module))
        machine = uarch.machine(name)
        start_helper()  # it starts while the passes run
        source = source_of(module)
        remarks: list[str] = []
        lowered = run_pipeline(module, machine, options, remarks, observe=observe, split=split)
        check_resources(lowered, machine)
        target = llvm_target(name, lowered.module)
        llvm = emit_module(lowered.module, target)
        ptx = generate_ptx(llvm, target)
        ir = stages(source, options, split)
        return CudaExecutable(ptx.encode(), plan_of(lowered), name, remarks, ir, llvm)

    def machine(self, options: CompileOptions) -> uarch.Machine:
        """The table of the machine asked for, else of the device at hand, else of sm_90a."""
        return uarch.machine(machine_name(options))

    def rates(self, options: CompileOptions) -> Rates:
        """What launches are costed by: the machine's table, with the cores of the device at hand."""
        found = self.machine(options).rates
        if options.machine or split_name(options.target)[1] or not driver.available():
            return found
        found = replace(found, cores=driver.device(0).multiprocessors)
        return with_calibration(found, self.identity(options))

    def choices(
        self, request: Request, options: CompileOptions, every: bool = False
    ) -> Sequence[Choice]:
        """By the loop of products where there is one, else by what warpgroups can do of the kernel."""
        from tilewright.targets.cuda import tile_sizes

        rates = self.rates(options)
        machine = self.machine(options)
        return (
            tile_sizes.choices(request, options, machine, rates.cores, every)
            or tile_sizes.of_kernel(request, machine, rates, every)
            or tile_sizes.of_values(request, machine, rates, every)
        )

    def tiles_products(self, a: DType, b: DType, options: CompileOptions) -> bool:
        """Where warpgroups multiply them: what loops of their products take is measured."""
        found = self.machine(options).matrix
        return any(i.subgroups > 1 and i.types[:2] == (a.name, b.name) for i in found)

    def samples(self, request: Request, options: CompileOptions) -> Sequence[Mapping[str, int]]:
        """Tilings of a loop of products, good and less good ones."""
        from tilewright.targets.cuda import tile_sizes

        cores = self.rates(options).cores
        return [
            each.values
            for each in tile_sizes.samples(request, options, self.machine(options), cores)
        ]

    def fitted(
        self, timed: Sequence[tuple[Request, Mapping[str, int], float]], options: CompileOptions
    ) -> Mapping[str, float]:
        """The rates of `work_split.clocks`."""
        from tilewright.targets.cuda import fitting, tile_sizes

        machine, cores = self.machine(options), self.rates(options).cores
        launches: list[fitting.Timed] = []
        for _, same in groupby(timed, lambda each: id(each[0])):
            of_product = list(same)
            costed = tile_sizes.of_form(of_product[0][0], options, machine, cores)
            launches += [
                fitting.Timed(c.work, c.split, c.programs, c.trips, c.sides, seconds)
                for _, values, seconds in of_product
                for c in costed
                if c.values == values
            ]
        return fitting.fitted(launches, product_rates(self.identity(options)), cores)

    def missing(self) -> str | None:
        """Why kernels cannot run here; None where they can."""
        return driver.missing()

    def mirrored(self, arrays: Sequence[ArrayArg]) -> AbstractContextManager[list[ArrayArg]]:
        """Inside: arrays of the host as they are on the first device; after it what was written is back."""
        return mirrored(arrays)

    def place(self, pointer: int, stream: int | None) -> str:
        """See `tilewright.targets.base.Device`."""
        ordinal = streams.device_of(pointer)
        streams.wait_for(stream, ordinal)
        return f"{self.name}:{ordinal}"

    @contextmanager
    def exporting(self, ordinal: int) -> Generator[int]:
        """See `tilewright.targets.base.Device`."""
        # 1 is the legacy default stream: the exporter makes it wait for its own work. torch refuses
        # to export from a device that is not current.
        with driver.device(ordinal).current():
            yield streams.current(ordinal) or 1

    def tools(self) -> Mapping[str, str]:
        """NVIDIA devices, the driver, and the tools that show machine code."""
        return inspect.tools()

    def fingerprint(self, options: CompileOptions) -> str:
        # What a machine's name stands for is in the compiler's own sources, which are in the key too.
        # How many programs print is in their code.
        return f"{machine_name(options)}|{knobs.current().print_lines}"

    def of_chosen(self, options: CompileOptions) -> CompileOptions:
        """Programs are those of the launch: what a search found is not what the planner would."""
        return replace(options, disable=options.disable | {"merge-programs"})

    def identity(self, options: CompileOptions) -> str:
        """The device at hand, where it is compiled for."""
        return driver.named(machine_name(options))

    def seconds(self, run: Callable[[], None], calls: int, arrays: Sequence[ArrayArg]) -> float:
        """See `tilewright.targets.base.Target`; the device is done before the clock starts, and before it is read."""
        with device_with(arrays):
            driver.call("cuCtxSynchronize")
            start = time.perf_counter()
            for _ in range(calls):
                run()
            driver.call("cuCtxSynchronize")
            return (time.perf_counter() - start) / calls

    def fetched(self, array: ArrayArg) -> np.ndarray[Any, Any]:
        """See `tilewright.targets.base.Target`."""
        with device_with([array]):
            return fetched(array)[1]

    def put(self, array: ArrayArg, content: np.ndarray[Any, Any]) -> None:
        """See `tilewright.targets.base.Target`; bytes between the elements stay what they are."""
        with device_with([array]):
            put(array, content)

    def describe(self, options: CompileOptions) -> str:
        """What it compiles for, for people."""
        return f"PTX for {machine_name(options)}; {toolchain_version()}"

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> CudaExecutable:
        return load_split(artifacts, options, UNSPLIT)


def load_split(
    artifacts: Mapping[str, bytes], options: CompileOptions, split: WorkSplit
) -> CudaExecutable:
    """What `CudaTarget.build_split` made; ValueError or KeyError for anything else."""
    texts = json.loads(artifacts["texts"])
    ir = stages(texts["source"], options, split)
    return CudaExecutable.from_artifacts(artifacts, ir, texts["llvm"])


def build_split(source: str, machine: str, split: WorkSplit) -> CudaExecutable | None:
    """What `TARGET.build_split` makes of the kernel that was made from the text `source`.

    None where that is no cluster of asynchronous workgroups (their sums have no room, say): it would be slower.
    """
    from tilewright.dialects.text import parse_module

    options = CompileOptions("cuda", machine)

    def make() -> Mapping[str, bytes]:
        made = TARGET.build_split(parse_module(source), options, split)
        tensors = any(isinstance(slot, TensorMapOf) for slot in made.plan.slots)
        if not split.ahead and (made.plan.cluster[0] != split.parts or not tensors):
            raise UnsupportedError("no cluster of asynchronous workgroups")
        return made.artifacts()

    try:
        stored = cache.kept((TARGET.fingerprint(options), repr(split), source), make)
    except UnsupportedError:
        return None
    return load_split(stored, options, split)


def stages(source: str, options: CompileOptions, split: WorkSplit = UNSPLIT) -> StageTexts:
    """The stages of the kernel whose text before its build is `source`."""

    def lower(module: ModuleOp, stage: Observer) -> None:
        from tilewright.targets.cuda.pipeline import run_pipeline

        machine = uarch.machine(machine_name(options))
        lowered = run_pipeline(module, machine, options, [], stage, split=split)
        stage("mach", lowered.module)

    return StageTexts(source, lower)


TARGET = CudaTarget()
