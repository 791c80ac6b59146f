"""From a kernel of any level to a lowered lane program: the stages whose texts `--emit` prints.

`xetile` -> `xegpu` -> `xegpu-sg` -> `xegpu-inst` -> `xegpu-lane` -> `mach`; a text enters at its own level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, prod

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
from tilewright.dialects.movement import shape_of
from tilewright.dialects.xegpu.descriptors import CreateDescOp
from tilewright.passes.budget import Budget, OutOfTime
from tilewright.passes.inline_calls import INLINE_CALLS
from tilewright.passes.kernel import IN_PASSES, LEVEL, SUBGROUPS, integer, kernel_of, level_of
from tilewright.passes.memory_objects import arg_facts, is_array_argument
from tilewright.passes.observer import Observer, ignore
from tilewright.passes.pipeline import Pass, Pipeline, Unit
from tilewright.passes.pipeline import run as run_passes
from tilewright.passes.xegpu import pipeline as xegpu
from tilewright.passes.xegpu.blocking_memory import APART, APART_REGISTERS
from tilewright.passes.xegpu.blocks import ROW
from tilewright.passes.xegpu.layout_defaults import ROW_REGISTERS, VALUE
from tilewright.targets.xe.advice import fitting_tile, holders, out_of_time
from tilewright.targets.xe.assembled import cut_assembled
from tilewright.targets.xe.fold import fold
from tilewright.targets.xe.forms import RISK
from tilewright.targets.xe.lower import Lowered, lower
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
from tilewright.uarch.xe import XeMachine, xe_machine

MANY_ADDRESSES = 32
"""Scattered loads of a kernel from which on it is ordered by demand: an address is one or two registers."""
PARTS = (16, 8)
"""Registers that one load fills where registers are short: the first that suffices."""
GROWS = 2
"""Times the operations of the attempt before: an attempt with more has no chance. Its subgroups have less to do each,
but parts that no instruction has the size of."""
HELPS = 0.8
"""Of the times that registers were too few before: more passes are tried while they bring it below."""
BUDGET = 20.0
"""Seconds of processor time that a compilation may take, with all its attempts."""


class _NoSmaller(Exception):
    """An attempt whose subgroups would have more to do than those of the one before."""


@dataclass
class XeUnit(Unit[XeMachine]):
    """A kernel on its way to SPIR-V."""

    natural: Pressure | None = None
    """The registers that the lane's program takes in the order in which it is written."""
    fit: bool | None = None
    """Whether registers suffice for the lane's program as it is; None where that is not known."""
    registers: int = 0
    """Of a thread, with which the kernel is compiled."""
    pressure: Pressure | None = None
    lowered: Lowered | None = None
    """The last stage, and what a launch must know of it."""

    def runs(self, name: str) -> bool:
        return name in ("xe", self.machine.name)

    def fits(self) -> bool:
        """Whether registers suffice for the lane's program as it is."""
        if self.fit is None:
            try:
                choose_mode(self.kernel, self.machine)
                self.fit = True
            except UnsupportedError:
                self.fit = False
        return self.fit


L = ("lane",)


def _order(unit: XeUnit) -> None:
    order_by_demand(unit.kernel, lanes_of(unit.kernel, unit.machine))
    unit.fit = None


def _measure(unit: XeUnit) -> None:
    unit.natural = pressure_of(unit.kernel, unit.machine)


def _many_or_too_large(unit: XeUnit) -> bool:
    # Addresses of scattered loads take many registers: they come in order, too.
    scattered = sum(op.name in ("xegpu.load", "xegpu.load_matrix") for op in unit.kernel.walk())
    return scattered >= MANY_ADDRESSES or not unit.fits()


def too_large(unit: XeUnit) -> bool:
    """Whether registers do not suffice yet."""
    return not unit.fits()


def split(registers: int = PARTS[0]) -> Pass[XeUnit]:
    """Loads of so many registers at most."""

    def apply(unit: XeUnit) -> None:
        kernel, machine = unit.kernel, unit.machine
        if split_loads(kernel, machine, lanes_of(kernel, machine), registers * machine.grf_bytes):
            _order(unit)

    return Pass(
        "xe-split-loads",
        f"where registers do not suffice: loads of {registers} registers at most, in order",
        apply,
        requires=L,
        optional=True,
        when=too_large,
        machine=True,
        make=split,
    )


def _reload(unit: XeUnit) -> None:
    if reload_in_loops(unit.kernel):
        _order(unit)


def _choose(unit: XeUnit) -> None:
    natural = unit.natural or pressure_of(unit.kernel, unit.machine)
    before = natural.registers + natural.reserve
    unit.registers, unit.pressure = choose_mode(unit.kernel, unit.machine, before)
    why = risk(unit.pressure, unit.registers, before)
    unit.remarks += [f"{RISK}: {why}"] if why else []


def _lower(unit: XeUnit) -> None:
    kernel, machine = unit.kernel, unit.machine
    lowered = lower(kernel, machine)
    unit.lowered, unit.module = lowered, lowered.module


ORDER: Sequence[Pass[XeUnit]] = (
    Pass("xe-fold", "what is known of values is folded", lambda u: fold(u.kernel), requires=L),
    Pass(
        "xe-words",
        "branches give words of 32 bits",
        lambda u: branches_give_words(u.kernel),
        requires=L,
    ),
    Pass(
        "xe-cut-assembled",
        "vectors that are put together of parts and read in parts are not put together",
        lambda u: cut_assembled(u.kernel),
        requires=L,
        optional=True,
    ),
    Pass(
        "xe-own-sums",
        "sums that a loop carries have registers of their own",
        lambda u: own_sums(u.kernel),
        requires=L,
        optional=True,
    ),
    Pass("xe-pressure", "its registers are counted", _measure, requires=L, machine=True),
    Pass(
        "xe-order-by-demand",
        "where registers do not suffice, or many addresses are held: an op comes where its result is wanted",
        _order,
        requires=L,
        optional=True,
        when=_many_or_too_large,
        machine=True,
    ),
    *(split(registers) for registers in PARTS),
    Pass(
        "xe-reload",
        "where registers still do not suffice: what a loop holds is loaded in every step",
        _reload,
        requires=L,
        optional=True,
        when=too_large,
        machine=True,
    ),
)
LANE: Sequence[Pass[XeUnit]] = (
    *(each.to("xegpu-lane") for each in ORDER),
    Pass(
        "xe-registers",
        "128 or 256 registers per thread are chosen; a program that needs more is refused",
        _choose,
        requires=L,
        machine=True,
    ),
    Pass(
        "xe-run-once",
        "a loop that might not run at all runs at least once",
        lambda u: run_once(u.kernel),
        requires=L,
        optional=True,
    ),
    Pass(
        "xe-whole-stores",
        "masked stores that follow each other ask once whether all masks are set",
        lambda u: whole_stores(u.kernel),
        requires=L,
        optional=True,
    ),
    Pass(
        "xe-lane-to-mach",
        "addresses, and calls of the machine's messages and products (`@xe_*`)",
        _lower,
        stage="mach",
        machine=True,
        whole=True,
    ),
    Pass(
        "xe-wraps",
        "whether a sum has wrapped is asked of a summand: an offline compiler knows no other form",
        lambda u: hide_wraps(u.module),
        optional=True,
        stage="mach",
        whole=True,
    ),
)
"""From a lane's program to that of the emitter."""
PASSES: Sequence[Pass[XeUnit]] = (INLINE_CALLS, *xegpu.WORKGROUP, *xegpu.SUBGROUP, *LANE)
PIPELINE = Pipeline[XeUnit](
    "xe", PASSES, lambda module, chip: XeUnit(module, xe_machine(chip)), "pvc", xegpu.PIPELINE.more
)


def run(
    module: ModuleOp,
    machine: XeMachine,
    stage: Observer = ignore,
    observe: Observer = ignore,
    off: frozenset[str] = frozenset(),
) -> tuple[Lowered, int, Pressure]:
    """The lowered kernel, the registers per thread that it is compiled with, and its pressure.

    `stage` sees the module at every stage, `observe` after every pass, by its name. Where registers do not suffice, a
    kernel that leaves the number of subgroups open gets more of them, then blocks that no 2D message moves come in
    smaller parts, and then the tiles are computed in passes. UnsupportedError where all that takes more than BUDGET
    seconds.
    """
    PIPELINE.check(off, machine.name)
    kernel = kernel_of(module)
    _refuse_parts_of_bytes(kernel)
    _refuse_prints(kernel)
    given, level, dealt = module.clone(), level_of(kernel), _says_who_owns(kernel)
    if level == "lane":
        _refuse_other_lanes(kernel, machine)
    splits = level != "lane" and "retile" not in off
    first: TooManyRegisters | None = None
    sizes: list[int] = []
    passes, over = 1, 0.0
    with Budget(BUDGET) as budget:
        while True:
            change: dict[str, Attribute] | None = None
            unit = XeUnit(module, machine, off)
            try:
                return _lowered(unit, stage, observe, budget, sizes)
            except OutOfTime:
                if first is None:
                    raise out_of_time(budget, kernel_of(module), kernel_of(given)) from None
            except TooManyRegisters as error:
                first, tried = first or error, kernel_of(module)
                if passes == 1 and level == "workgroup":
                    change = None if dealt else _more_subgroups(tried, machine)
                    change = change or _smaller_parts(tried)
                if change is None and splits and (passes == 1 or error.over < HELPS * over):
                    # As many parts more as the registers are times too few.
                    passes *= max(2, 1 << (ceil(error.over) - 1).bit_length())
                    change, sizes = _in_passes(tried, passes), []
                    over = inf if error.at_least else error.over
            except _NoSmaller:
                pass
            except UnsupportedError:
                if first is None:
                    raise
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
    if level_of(given) == "workgroup":
        said.append(fitting_tile(given, machine, tried))
    arrays = (a for a in given.body.block.args if is_array_argument(a))
    if level_of(given) != "lane" and not all(arg_facts(a).noalias for a in arrays):
        said.append(
            "of arrays that do not overlap, and say so ({llvm.noalias}), a tile may be computed in passes"
        )
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


def _refuse_other_lanes(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """A lane's program in older text has descriptors of the offsets of all lanes."""
    lanes = lanes_of(kernel, machine)
    for op in kernel.walk():
        count = prod(shape_of(op.offsets)) if isinstance(op, CreateDescOp) else lanes
        if count != lanes:
            raise error_at(
                op,
                f"{op.name}: {count} offsets, one for each lane; a subgroup of {machine.name} has {lanes} here",
                hint="one offset for each lane",
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
    return {APART: IntegerAttr(APART_REGISTERS // 2, i64), **_as_before(kernel)}


def _in_passes(kernel: gpu.FuncOp, passes: int) -> dict[str, Attribute]:
    """The tiles in so many parts, and subgroups and rows as they were."""
    return {IN_PASSES: IntegerAttr(passes, i64), **_as_before(kernel)}


def _as_before(kernel: gpu.FuncOp) -> dict[str, Attribute]:
    """The number of subgroups, and of what is reduced, that an attempt had."""
    kept = (SUBGROUPS, ROW_REGISTERS)
    return {name: kernel.attributes[name] for name in kept if name in kernel.attributes}


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
    unit: XeUnit, stage: Observer, observe: Observer, budget: Budget, sizes: list[int]
) -> tuple[Lowered, int, Pressure]:
    """One attempt. `sizes`: operations in the size of an instruction of those before, and then of this one."""
    kernel, machine = unit.kernel, unit.machine
    level = level_of(kernel)
    kernel.attributes.setdefault(LEVEL, StringAttr(level))
    if level == "workgroup":
        uses_tiles = any(op.name.startswith("xetile.") for op in kernel.walk())
        stage("xetile" if uses_tiles else "xegpu", unit.module)

    run_passes((INLINE_CALLS,), unit, observe)
    _refuse_instructions(kernel)

    def checked(name: str, module: ModuleOp) -> None:
        observe(name, module)
        if level_of(kernel) == "subgroup" and IN_PASSES not in kernel.attributes:
            refuse_whole(kernel, machine)
        if name == "xegpu-blocking":
            sizes.append(sum(1 for _ in kernel.walk()))
            if len(sizes) > 1 and sizes[-1] > GROWS * sizes[-2]:
                raise _NoSmaller

    run_passes((*xegpu.entries(level), *LANE), unit, checked, stage, budget.on)
    assert unit.lowered is not None and unit.pressure is not None
    unit.lowered.remarks += unit.remarks
    return unit.lowered, unit.registers, unit.pressure
