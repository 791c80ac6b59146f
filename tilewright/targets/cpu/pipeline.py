"""The passes of the cpu target, in the order in which they run."""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import (
    AnyFloat,
    IntegerType,
    MemRefType,
    ModuleOp,
    VectorType,
)
from xdsl.ir import Attribute, OpResult

from tilewright.codegen.registers import strided_form
from tilewright.dialects.stage import ContractOp
from tilewright.passes.contraction import Contraction
from tilewright.passes.packing import Packing, Panels, PanelsOf
from tilewright.passes.strips import form_strips
from tilewright.targets.base import CompileOptions, Observer, ignore
from tilewright.targets.cpu.lower import Lowered, lower_kernel
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.memory import element_of
from tilewright.targets.cpu.micro import family_of
from tilewright.targets.cpu.sizes import check_sizes
from tilewright.targets.workgroup import begin


def panels_for(m: Machine) -> PanelsOf:
    """How the machine's micro-kernels want their operands packed."""

    def panels(a: VectorType, b: VectorType, c: Attribute) -> tuple[Panels, Panels]:
        family = family_of(m, a, b, c)
        left, right = family.a, family.b
        # An instruction that multiplies bytes of either sign must go on knowing which.
        bytes_ = left.element == IntegerType(8)
        signs = (a.element_type, b.element_type) if bytes_ else (left.element, right.element)
        unit = family.group
        return (
            Panels(left.lanes, left.group, signs[0], m.depth(unit), unit, left.biased),
            Panels(right.lanes, right.group, signs[1], 0, unit, right.biased),
        )

    return panels


def widen_operands(kernel: gpu.FuncOp, m: Machine) -> None:
    """Operands of contractions that are computed in the kernel are computed in the type that the micro-kernel reads."""
    for op in list(kernel.walk()):
        if not isinstance(op, ContractOp):
            continue
        last = op.body.block.last_op
        assert last is not None
        for i, (a, b) in enumerate(op.pairs):
            c = element_of(op.inits[i].type)
            family = family_of(m, a.type, b.type, c)  # pyright: ignore
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
                if isinstance(value, OpResult) and value.op.parent is not None:
                    value.op.parent.insert_op_after(wide, value.op)
                else:
                    assert op.parent is not None
                    op.parent.insert_op_before(wide, op)
                last.operands[2 * i + side] = wide.result


ABLATIONS = ("reciprocal", "contraction", "packing", "fusion", "sharing", "prefetch")
"""Optimisations that `options.disable` can switch off; results stay right.

contraction: loops of products become one range of k. packing: once per launch instead of once per workgroup.
fusion: ops share one pass over rows. sharing: values that replace one another share a buffer."""


def note_strides(kernel: gpu.FuncOp, remarks: list[str]) -> None:
    """Arrays in which no dimension is contiguous are read and written element by element."""
    for arg in kernel.body.block.args:
        if isinstance(arg.type, MemRefType) and arg.first_use is not None:
            strides, _ = strided_form(arg.type)
            if strides and 1 not in strides:
                name = arg.name_hint or f"argument {arg.index}"
                remarks.append(f"{name} has no unit stride: its tiles are gathered and scattered")


def run_pipeline(
    module: ModuleOp,
    m: Machine,
    options: CompileOptions,
    remarks: list[str],
    stage: Observer = ignore,
    observe: Observer = ignore,
) -> Lowered:
    """From XeTile at workgroup level to the last stage.

    `stage` sees the module at every stage, `observe` after every pass, by its name.
    """
    check_sizes(module)
    owners = "a workgroup is one thread on the cpu"

    def runs(name: str) -> bool:
        _, _, feature = name.partition("cpu-")
        return name == "cpu" or (bool(feature) and m.has(feature))

    begun = begin(module, options, ABLATIONS, remarks, stage, observe, owners=owners, runs=runs)
    kernel, run, off = begun.kernel, begun.run, options.disable
    note_strides(kernel, remarks)
    run("contraction", Contraction(kernel, remarks, loops="contraction" not in off).run)
    begun.cleanup()
    if "packing" not in off:
        run("packing", Packing(kernel, panels_for(m), remarks).run)
    run("widen-operands", lambda: widen_operands(kernel, m))
    begun.cleanup()
    run("strips", lambda: form_strips(kernel, fuse="fusion" not in off))
    stage("stage", module)
    lowered = lower_kernel(
        kernel,
        m,
        share="sharing" not in off,
        prefetch="prefetch" not in off,
        subgroups=begun.subgroups,
    )
    stage("mach", lowered.module)
    return lowered
