"""The passes of the cpu target, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xdsl.dialects import arith, func, gpu
from xdsl.dialects.builtin import AnyFloat, IntegerType, MemRefType, ModuleOp, VectorType
from xdsl.ir import Attribute, OpResult, SSAValue

from tilewright.codegen.registers import strided_form
from tilewright.codegen.tiles import element_of
from tilewright.dialects.fused import ContractOp
from tilewright.dialects.nesting import terminator
from tilewright.frozen import record
from tilewright.observer import Observer, ignore
from tilewright.passes.alike_loops import share_alike_loops
from tilewright.passes.contraction import Contraction
from tilewright.passes.emit import Before, Behind
from tilewright.passes.kernel import merged_of, programs_of
from tilewright.passes.merge_programs import merge_programs
from tilewright.passes.packing import PackingRewriter, Panels, PanelsOf
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline, Unit, run
from tilewright.passes.precision import lower_precision
from tilewright.passes.row_fusion import fuse_rows
from tilewright.passes.scaled_differences import scale_differences
from tilewright.passes.split_functions import split_functions
from tilewright.passes.vector_reductions import reductions_of_tiles
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu.fetch_ahead import fetch_ahead
from tilewright.targets.cpu.lower import LoweredLaunch, lower_kernel
from tilewright.targets.cpu.machine import BY_ROWS, CpuMachine, machine
from tilewright.targets.cpu.raster import raster
from tilewright.targets.cpu.roles import roles_of
from tilewright.targets.cpu.sizes import check_sizes
from tilewright.targets.workgroup import BEGIN, begin


def panels_for(m: CpuMachine) -> PanelsOf:
    """How the machine's micro-kernels want their operands packed."""

    def panels(a: SSAValue, b: SSAValue, c: Attribute) -> tuple[Panels | None, Panels | None]:
        assert isinstance(a.type, VectorType) and isinstance(b.type, VectorType)
        roles = roles_of(m, a, b, c)
        family, first, second = roles.family, a.type, b.type
        if roles.swapped:
            first, second = second, first
        thin = roles.thin
        if thin is not None:
            family = thin.family
        left, right = family.a, family.b
        # An instruction that multiplies bytes of either sign must go on knowing which.
        bytes_ = left.element == IntegerType(8)
        types = (first.element_type, second.element_type)
        signs = types if bytes_ else (left.element, right.element)
        unit = family.group
        in_rows = Panels(left.lanes, left.group, signs[0], family.depth, unit, left.biased)
        in_groups = Panels(right.lanes, right.group, signs[1], 0, unit, right.biased)
        if family.single:
            # Beside rows of A a block of columns stays in the second cache: it lies together.
            in_rows = replace(in_rows, aligned=True, lies=family.by_rows)
            in_groups = replace(in_groups, depth=BY_ROWS * m.kc, aligned=True)
        if thin is None:
            return (in_groups, in_rows) if roles.swapped else (in_rows, in_groups)
        # Few rows are packed by whoever reads them: the launch need not wait for that.
        return None, in_groups if thin.side == 0 else None

    return panels


def widen_operands(kernel: gpu.FuncOp, m: CpuMachine) -> None:
    """Converts computed operands to the type that the micro-kernel reads."""
    for op in list(kernel.walk()):
        if not isinstance(op, ContractOp):
            continue
        last = terminator(op.body.block)
        for i, (a, b) in enumerate(op.pairs):
            c = element_of(op.inits[i].type)
            roles = roles_of(m, a, b, c)
            family = roles.family if roles.thin is None else roles.thin.family
            for side, (value, format) in enumerate(((a, family.a), (b, family.b))):
                inside = isinstance(value, OpResult) and value.op.parent is op.body.block
                element = value.type.element_type  # pyright: ignore
                if (
                    inside
                    or format.group != 1
                    or element == format.element
                    or not isinstance(element, AnyFloat)
                ):
                    continue
                wide = arith.ExtFOp(value, VectorType(format.element, value.type.get_shape()))  # pyright: ignore
                made = isinstance(value, OpResult) and value.op.parent is not None
                at = Behind(value.op) if made else Before(op)  # pyright: ignore
                last.operands[2 * i + side] = at.add(wide)


def note_strides(kernel: gpu.FuncOp, remarks: list[str]) -> None:
    """Arrays in which no dimension is contiguous are read and written element by element."""
    for arg in kernel.body.block.args:
        if isinstance(arg.type, MemRefType) and arg.first_use is not None:
            strides, _ = strided_form(arg.type)
            if strides and 1 not in strides:
                name = arg.name_hint or f"argument {arg.index}"
                remarks.append(f"{name} has no unit stride: its tiles are gathered and scattered")


@record
class CpuUnit(Unit[CpuMachine]):
    """A kernel on its way to code for a CPU."""

    lowered: LoweredLaunch | None = None
    """The last stage, and what a launch must know of it."""
    early: Callable[[Sequence[func.FuncOp]], object] = lambda _: None
    """Is given parts of the last stage that are done, while others are being made."""

    def runs(self, name: str) -> bool:
        _, _, feature = name.partition("cpu-")
        return name == "cpu" or (bool(feature) and self.machine.has(feature))


def _contract(unit: CpuUnit) -> None:
    """Turns products, and loops that sum products, into `stage.contract` over one range of k."""
    Contraction(unit.kernel, unit.remarks, loops=unit.on("contraction")).run()


def _pack(kernel: gpu.FuncOp, m: CpuMachine, remarks: list[str]) -> None:
    """Packs operands once per launch instead of once per workgroup."""
    PackingRewriter(kernel, panels_for(m), remarks).run()


def _fuse(unit: CpuUnit) -> None:
    """Fuses all other ops that can run in one pass over rows into one `stage.fused`."""
    fuse_rows(unit.kernel, fuse=unit.on("fusion"))


def _lower(unit: CpuUnit) -> None:
    """Assigns buffers, and lowers to loops and micro-kernels."""
    unit.lowered = lower_kernel(
        unit.kernel,
        unit.machine,
        share=unit.on("buffer-reuse"),
        prefetch=unit.on("prefetch"),
        overlap=unit.on("row-overlap"),
        divide=unit.on("k-division"),
        add_up=unit.on("atomic-aggregation"),
        subgroups=programs_of(unit.kernel),
        early=unit.early,
    )
    x, y, z = map(int, merged_of(unit.kernel))
    unit.lowered.merged = x, y, z
    unit.module = unit.lowered.module


W = ("workgroup",)

PASSES: Sequence[Pass[CpuUnit]] = (
    *BEGIN,
    Pass("merge-programs", merge_programs, W, optional=True),
    Pass("vector-reductions", reductions_of_tiles, W),
    Pass(
        "contraction",
        _contract,
        W,
        "unit",
        choices={"contraction": "sums a loop's products over one range of k"},
    ),
    Pass("raster", raster, W, optional=True),
    CLEANUP,
    Pass("packing", _pack, W, "kernel machine remarks", optional=True),
    Pass("widen-operands", widen_operands, W, "kernel machine"),
    CLEANUP,
    Pass("precision", lower_precision, W, optional=True),
    Pass("scaled-differences", scale_differences, W, optional=True),
    Pass("fetch-ahead", fetch_ahead, W, optional=True),
    Pass(
        "row-fusion",
        _fuse,
        W,
        "unit",
        choices={"fusion": "fuses several ops into one pass over rows"},
        stage="stage",
    ),
    Pass(
        "cpu-to-mach",
        _lower,
        given="unit",
        choices={
            "atomic-aggregation": "adds up in memory of each thread what programs add to a small array by atomics",
            "buffer-reuse": "lets values share memory: a loop's accumulators, sums and the array they are stored to",
            "k-division": "sums a long product of few tiles over parts of k, which several threads may compute",
            "prefetch": "prefetches the data of the next rows",
            "row-overlap": "runs levels of successive rows together where the result bypasses the caches",
        },
        stage="mach",
        machine=True,
        whole=True,
    ),
    Pass("alike-loops", share_alike_loops, given="module", optional=True, stage="mach"),
    Pass("split-functions", split_functions, given="module", optional=True, stage="mach"),
)
PIPELINE = Pipeline[CpuUnit]("cpu", PASSES, lambda module, m: CpuUnit(module, machine(m)), "native")


def run_pipeline(
    module: ModuleOp,
    m: CpuMachine,
    options: CompileOptions,
    remarks: list[str],
    stage: Observer = ignore,
    observe: Observer = ignore,
    early: Callable[[Sequence[func.FuncOp]], object] = lambda _: None,
) -> LoweredLaunch:
    """From XeTile at workgroup level to the last stage.

    `stage` sees the module at every stage, `observe` after every pass, by its name, `early` parts of the last stage.
    """
    PIPELINE.check(options.disable, options.target)
    check_sizes(module, m.architecture.machine)
    unit = CpuUnit(module, m, options.disable, remarks, early=early)
    begin(unit, options, stage, observe, owners="a workgroup is one thread on the cpu")
    note_strides(unit.kernel, remarks)
    run(PASSES[len(BEGIN) :], unit, observe, stage)
    assert unit.lowered is not None
    return unit.lowered
