"""From a kernel of any level to a lowered lane program: the stages whose texts `--emit` prints.

`xetile` -> `xegpu` -> `xegpu-sg` -> `xegpu-inst` -> `xegpu-lane` -> `mach`; a text enters at its own level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.ir import Attribute

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import make_context
from tilewright.passes.budget import Budget, OutOfTime
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import LEVEL, SUBGROUPS, kernel_of
from tilewright.passes.level import infer_level
from tilewright.passes.xegpu import pipeline as passes
from tilewright.passes.xegpu.blocking_memory import APART, APART_REGISTERS
from tilewright.passes.xegpu.blocks import ROW
from tilewright.passes.xegpu.layout_defaults import ROW_REGISTERS, VALUE
from tilewright.targets.base import Observer, ignore
from tilewright.targets.xe.advice import fitting_tile, holders, out_of_time
from tilewright.targets.xe.assembled import cut_assembled
from tilewright.targets.xe.fold import fold
from tilewright.targets.xe.forms import RISK
from tilewright.targets.xe.lower import Lowered, integer, lower
from tilewright.targets.xe.own_sums import own_sums
from tilewright.targets.xe.registers import (
    Pressure,
    TooManyRegisters,
    choose_mode,
    lanes_of,
    refuse_whole,
    risk,
)
from tilewright.targets.xe.registers import pressure as pressure_of
from tilewright.targets.xe.reload import reload_in_loops
from tilewright.targets.xe.run_once import run_once
from tilewright.targets.xe.schedule import order_by_demand
from tilewright.targets.xe.split_loads import split_loads
from tilewright.targets.xe.whole_stores import whole_stores
from tilewright.targets.xe.words import branches_give_words
from tilewright.targets.xe.wraps import hide_wraps
from tilewright.uarch.xe import XeMachine

MANY_ADDRESSES = 32
"""Scattered loads of a kernel from which on it is ordered by demand: an address is one or two registers."""
PARTS = (16, 8)
"""Registers that one load fills where registers are short: the first that suffices."""
GROWS = 2
"""Times the operations of the attempt before: an attempt with more has no chance. Its subgroups have less to do each,
but parts that no instruction has the size of."""
BUDGET = 20.0
"""Seconds of processor time that a compilation may take, with all its attempts."""
LANE: Sequence[tuple[str, Callable[[gpu.FuncOp], bool]]] = (
    ("xe-fold", fold),
    ("xe-words", branches_give_words),
    ("xe-cut-assembled", cut_assembled),
    ("xe-own-sums", own_sums),
)
"""What always runs on a lane's program; each tells whether there was something."""


class _NoSmaller(Exception):
    """An attempt whose subgroups would have more to do than those of the one before."""


def _entries(level: str) -> Sequence[passes.Entry]:
    """The passes that a program of a level still has before it."""
    if level == "workgroup":
        return (*passes.WORKGROUP, *passes.SUBGROUP)
    if level == "subgroup":
        same = ("xetile", "xegpu")
        early = (
            "fold-views",
            "xetile-to-xegpu",
            "xegpu-modernize",
            "xegpu-bytes-of-booleans",
            "xegpu-one-induction",
        )
        shared = [e for e in passes.WORKGROUP if e.stage in same and e.make("pvc").name in early]
        return (*shared, *passes.SUBGROUP)
    return ()


def _fits(kernel: gpu.FuncOp, machine: XeMachine) -> bool:
    try:
        choose_mode(kernel, machine)
    except UnsupportedError:
        return False
    return True


def _make_fit(kernel: gpu.FuncOp, machine: XeMachine) -> list[str]:
    """Where registers do not suffice in the order of the program: another order, smaller loads, loads in every step.

    The names of the passes that ran. Addresses of scattered loads take many registers: they come in order, too.
    """
    scattered = sum(op.name in ("xegpu.load", "xegpu.load_matrix") for op in kernel.walk())
    if scattered < MANY_ADDRESSES and _fits(kernel, machine):
        return []
    lanes, ran = lanes_of(kernel, machine), ["xe-order-by-demand"]
    order_by_demand(kernel, lanes)
    for registers in PARTS:
        if _fits(kernel, machine):
            break
        if split_loads(kernel, machine, lanes, registers * machine.grf_bytes):
            order_by_demand(kernel, lanes)
            ran += ["xe-split-loads", "xe-order-by-demand"]
    if not _fits(kernel, machine) and reload_in_loops(kernel):
        order_by_demand(kernel, lanes)
        ran += ["xe-reload", "xe-order-by-demand"]
    return ran


def run(
    module: ModuleOp, machine: XeMachine, stage: Observer = ignore, observe: Observer = ignore
) -> tuple[Lowered, int, Pressure]:
    """The lowered kernel, the registers per thread that it is compiled with, and its pressure.

    `stage` sees the module at every stage, `observe` after every pass, by its name. Where registers do not suffice, a
    kernel that leaves the number of subgroups open gets more of them, then blocks that no 2D message moves come in
    smaller parts. UnsupportedError where all that takes more than BUDGET seconds.
    """
    kernel = kernel_of(module)
    _refuse_parts_of_bytes(kernel)
    _refuse_prints(kernel)
    given, whole, dealt = module.clone(), infer_level(kernel) == "workgroup", _says_who_owns(kernel)
    first: TooManyRegisters | None = None
    sizes: list[int] = []
    with Budget(BUDGET) as budget:
        while True:
            try:
                return _lowered(module, machine, stage, observe, budget, sizes)
            except OutOfTime:
                if first is None:
                    raise out_of_time(budget, kernel_of(module), kernel_of(given)) from None
                change = None
            except TooManyRegisters as error:
                first = first or error
                change = None if dealt else _more_subgroups(kernel_of(module), machine)
                change = change or _smaller_parts(kernel_of(module)) if whole else None
            except _NoSmaller:
                change = None
            if change is None:
                assert first is not None
                raise _advised(first, kernel_of(given), kernel_of(module), machine, dealt) from None
            module = given.clone()
            kernel_of(module).attributes.update(change)


def _advised(
    error: TooManyRegisters, given: gpu.FuncOp, last: gpu.FuncOp, machine: XeMachine, dealt: bool
) -> TooManyRegisters:
    """The refusal with what fills the registers, what was tried, and what would fit."""
    tried = integer(last, SUBGROUPS, 1)
    said = [error.hint, holders(given, error.held, lanes_of(last, machine), machine)]
    if not dealt and tried > 1:
        said[0] = (
            f"give the workgroup a smaller tile: up to {tried} subgroups were tried for this one"
        )
    if infer_level(given) == "workgroup":
        said.append(fitting_tile(given, machine, tried))
    error.hint = "; ".join(each for each in said if each)
    return error


def _refuse_prints(kernel: gpu.FuncOp) -> None:
    for op in kernel.walk():
        if op.name in ("tw.print", "tw.breakpoint"):
            raise error_at(
                op,
                f"{op.name}: programs on Intel GPUs do not print",
                hint="run the kernel where they do: kernel.options(target='cpu'), or target='reference'",
                kind=UnsupportedError,
            )


def _refuse_instructions(kernel: gpu.FuncOp) -> None:
    for op in kernel.walk():
        if op.name == "mach.each":
            raise error_at(
                op,
                "mach.each: no instruction of Intel GPUs is named element by element",
                hint="an implementation for them consists of arith, math, vector and xetile ops",
                kind=UnsupportedError,
            )


def _refuse_parts_of_bytes(kernel: gpu.FuncOp) -> None:
    """Arrays of 4-bit numbers have no addresses of elements."""
    for argument in kernel.body.block.args:
        kind = argument.type
        element = kind.element_type if isinstance(kind, MemRefType) else None
        if isinstance(element, IntegerType) and 1 < element.width.data < 8:
            raise error_at(
                kernel,
                f"argument {argument.index} is a {kind}: arrays of elements smaller than a byte are not addressed",
                hint="pass bytes, and vector.bitcast what was loaded",
                kind=UnsupportedError,
            )


def _more_subgroups(kernel: gpu.FuncOp, machine: XeMachine) -> dict[str, Attribute] | None:
    """Twice as many, which may cut what is reduced finer; None where the machine has not so many."""
    more, row = 2 * integer(kernel, SUBGROUPS, 1), integer(kernel, ROW_REGISTERS, VALUE)
    limits = (machine.limits.get(name) for name in ("subgroups", "subgroups_large_grf"))
    if any(each is not None and each.fault(more) is not None for each in limits):
        return None
    return {SUBGROUPS: IntegerAttr(more, i64), ROW_REGISTERS: IntegerAttr(max(1, row // 2), i64)}


def _smaller_parts(kernel: gpu.FuncOp) -> dict[str, Attribute] | None:
    """Half of the registers for a block without 2D block messages, and subgroups and rows as they were; None where
    there is no such block, or its parts are small already."""
    apart = any(ROW in op.attributes or op.name == "xegpu.load" for op in kernel.walk())
    if not apart or APART in kernel.attributes:
        return None
    kept = (SUBGROUPS, ROW_REGISTERS)
    said = {name: kernel.attributes[name] for name in kept if name in kernel.attributes}
    return {APART: IntegerAttr(APART_REGISTERS // 2, i64), **said}


def _says_who_owns(kernel: gpu.FuncOp) -> bool:
    """Does the text state the number of subgroups, or a map of one of its values?"""
    if SUBGROUPS in kernel.attributes:
        return True
    for op in kernel.walk():
        said = [*op.attributes.values(), *op.properties.values(), *(r.type for r in op.results)]
        if any("sg_layout" in str(each) for each in said):
            return True
    return False


def _lowered(
    module: ModuleOp,
    machine: XeMachine,
    stage: Observer,
    observe: Observer,
    budget: Budget,
    sizes: list[int],
) -> tuple[Lowered, int, Pressure]:
    """One attempt. `sizes`: operations in the size of an instruction of those before, and then of this one."""
    chip = machine.name.removeprefix("xe-")
    context = make_context()
    kernel = kernel_of(module)
    level = infer_level(kernel)
    kernel.attributes.setdefault(LEVEL, StringAttr(level))
    if level == "workgroup":
        uses_tiles = any(op.name.startswith("xetile.") for op in kernel.walk())
        stage("xetile" if uses_tiles else "xegpu", module)
    if inline_calls(kernel, lambda name: name in ("xe", machine.name)):
        observe("inline-calls", module)
    _refuse_instructions(kernel)
    entries = _entries(level)
    for n, entry in enumerate(entries):
        each = entry.make(chip)
        with budget.on(each.name):
            each.apply(context, module)
        observe(each.name, module)
        if infer_level(kernel_of(module)) == "subgroup":
            refuse_whole(kernel_of(module), machine)
        if each.name == "xegpu-blocking":
            sizes.append(sum(1 for _ in kernel_of(module).walk()))
            if len(sizes) > 1 and sizes[-1] > GROWS * sizes[-2]:
                raise _NoSmaller
        if n + 1 == len(entries) or entries[n + 1].stage != entry.stage:
            stage(entry.stage, module)
    kernel = kernel_of(module)
    reached = infer_level(kernel)
    if reached != "lane":
        raise UnsupportedError(
            f"the kernel stands at {reached} level: passes to lanes are not part of this installation"
        )

    def run_on_lanes(name: str, change: Callable[[gpu.FuncOp], bool]) -> None:
        with budget.on(name):
            changed = change(kernel)
        if changed:
            observe(name, module)

    for name, change in LANE:
        run_on_lanes(name, change)
    with budget.on("xe-order-by-demand"):
        natural = pressure_of(kernel, machine)
        ran = _make_fit(kernel, machine)
    if ran:
        observe(ran[-1], module)
    stage("xegpu-lane", module)
    registers, pressure = choose_mode(kernel, machine, natural.registers + natural.reserve)
    with budget.on("xe-run-once"):
        run_once(kernel)
    observe("xe-run-once", module)
    run_on_lanes("xe-whole-stores", whole_stores)
    with budget.on("xe-lane-to-mach"):
        lowered = lower(kernel, machine)
    if why := risk(pressure, registers, natural.registers + natural.reserve):
        lowered.remarks.append(f"{RISK}: {why}")
    observe("xe-lane-to-mach", lowered.module)
    if hide_wraps(lowered.module):
        observe("xe-wraps", lowered.module)
    stage("mach", lowered.module)
    return lowered, registers, pressure
