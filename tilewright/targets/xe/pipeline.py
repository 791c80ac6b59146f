"""From a kernel of any level to a lowered lane program: the stages whose texts `--emit` prints.

`xetile` -> `xegpu` -> `xegpu-sg` -> `xegpu-inst` -> `xegpu-lane` -> `mach`; a text enters at its own level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, inf

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute

from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import field, record
from tilewright.observer import Observer, ignore
from tilewright.passes.budget import OutOfTime, TimeBudget
from tilewright.passes.inline_calls import INLINE_CALLS
from tilewright.passes.kernel import (
    IN_PASSES,
    LEVEL,
    SPILLS,
    SUBGROUPS,
    integer,
    kernel_of,
    level_of,
)
from tilewright.passes.pipeline import Pass, Pipeline, Unit
from tilewright.passes.pipeline import run as run_passes
from tilewright.passes.xegpu import pipeline as xegpu
from tilewright.passes.xegpu.block_messages import ROW
from tilewright.passes.xegpu.blocking_memory import APART, APART_REGISTERS
from tilewright.passes.xegpu.exchange_slm import ExchangesTooMuch
from tilewright.passes.xegpu.layout_defaults import ROW_REGISTERS, VALUE
from tilewright.targets.xe.advice import advised, declared_apart, out_of_time
from tilewright.targets.xe.assertions import mark_divisions
from tilewright.targets.xe.fold import fold
from tilewright.targets.xe.forms import RISK
from tilewright.targets.xe.guard_loops import guard_loops
from tilewright.targets.xe.lower import LoweredLane, lower
from tilewright.targets.xe.overflow_checks import rewrite_overflow_checks
from tilewright.targets.xe.refusals import (
    refuse_instructions,
    refuse_other_lanes,
    refuse_own_memory,
    refuse_prints,
)
from tilewright.targets.xe.registers import (
    Pressure,
    TooManyRegisters,
    choose_mode,
    exchanges,
    given_back,
    lanes_of,
    most_registers,
    refuse_whole,
    risk,
)
from tilewright.targets.xe.registers import pressure as pressure_of
from tilewright.targets.xe.rematerialize_loads import rematerialize_loads
from tilewright.targets.xe.schedule import schedule_for_pressure
from tilewright.targets.xe.split_accumulators import split_accumulators
from tilewright.targets.xe.split_assembled import split_assembled
from tilewright.targets.xe.split_loads import split_loads
from tilewright.targets.xe.together import assert_together
from tilewright.targets.xe.version_stores import version_stores
from tilewright.targets.xe.widen_branch_results import widen_branch_results
from tilewright.uarch.xe import XeMachine, xe_machine

SPILL = "xe-spill"
MANY_ADDRESSES = 32
"""Scattered loads of a kernel from which on it is ordered by demand: an address is one or two registers."""
PARTS = (16, 8)
"""Registers that one load fills where registers are short: the first that suffices."""
HOPELESS = 2
"""Times the registers of a thread beyond which smaller loads are not tried."""
GROWS = 2
"""Times the operations of the attempt before: an attempt with more has no chance. Its subgroups have less to do each,
but parts that no instruction has the size of."""
BLOCKS = ("xetile.load_tile", "xetile.store_tile", "xegpu.load_nd", "xegpu.store_nd")
"""Ops that may come in parts."""
HELPS = 0.8
"""Of the times that registers were too few before: more passes are tried while they bring it below."""
BUDGET = 20.0
"""Seconds of processor time that a compilation may take, with all its attempts."""
ATTEMPTS = 16.0
"""Of them, those that may have passed where another attempt is given up for one whose registers were counted."""


class _NoSmaller(Exception):
    """An attempt whose subgroups would have more to do than those of the one before, or the same."""


@record
class XeUnit(Unit[XeMachine]):
    """A kernel on its way to SPIR-V."""

    natural: Pressure | None = None
    """The registers that the lane's program takes in the order in which it is written."""
    registers: int = 0
    """Of a thread, with which the kernel is compiled."""
    pressure: Pressure | None = None
    """Of the lane's program as it is; None where it was not counted."""
    spills: bool = False
    """Whether what registers do not hold may lie in memory."""
    lowered: LoweredLane | None = None
    """The last stage, and what a launch must know of it."""
    change: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    """What this attempt says on the kernel besides what was given."""
    stages: list[tuple[str, ModuleOp]] = field(default_factory=list[tuple[str, ModuleOp]])
    """The program at every stage that it reached, where somebody wants to see it."""

    def runs(self, name: str) -> bool:
        return name in ("xe", self.machine.name)

    def counted(self) -> Pressure:
        """The pressure of the lane's program as it is."""
        if self.pressure is None:
            self.pressure = pressure_of(self.kernel, self.machine)
        return self.pressure

    def fits(self) -> bool:
        """Whether registers suffice for the lane's program as it is."""
        try:
            choose_mode(self.kernel, self.machine, self.counted())
            return True
        except UnsupportedError:
            return False


L = ("lane",)


def _schedule(unit: XeUnit) -> None:
    """Schedules ops next to their uses, if registers do not suffice, many addresses are live or lanes exchange much."""
    lives = unit.counted().lives
    assert lives is not None
    schedule_for_pressure(unit.kernel, lives)
    unit.pressure = pressure_of(unit.kernel, unit.machine, lives)


def _measure(unit: XeUnit) -> None:
    """Estimates register pressure."""
    unit.natural = unit.counted()


def _crowded(unit: XeUnit) -> bool:
    # Addresses of scattered loads take many registers: they come in order, too.
    scattered = sum(op.name in ("xegpu.load", "xegpu.load_matrix") for op in unit.kernel.walk())
    return scattered >= MANY_ADDRESSES or not unit.fits() or exchanges(unit.counted())


def too_large(unit: XeUnit) -> bool:
    """Whether registers do not suffice yet."""
    return not unit.fits()


def split(registers: int = PARTS[0]) -> Pass[XeUnit]:
    """Loads of so many registers at most, where what such loads give back at the fullest point may suffice: smaller
    ones may set more free between them, up to HOPELESS times the registers; what is left to spill is always cut."""

    def may_help(unit: XeUnit) -> bool:
        if not too_large(unit) or SPILLS in unit.kernel.attributes:
            return too_large(unit)
        found, most = unit.counted(), most_registers(unit.kernel, unit.machine)
        rest = found.registers + found.reserve - given_back(found, registers, unit.machine)
        return rest <= most * (HOPELESS if registers == PARTS[-1] else 1)

    def apply(unit: XeUnit) -> None:
        kernel, machine = unit.kernel, unit.machine
        if split_loads(kernel, machine, lanes_of(kernel, machine), registers * machine.grf_bytes):
            unit.pressure = None
            _schedule(unit)

    return Pass(
        "xe-split-loads",
        apply,
        L,
        "unit",
        optional=True,
        when=may_help,
        machine=True,
        make=split,
        told=f"splits loads to at most {registers} registers each, if registers do not suffice",
    )


def _reload(unit: XeUnit) -> None:
    """Reloads loop-invariant data in every iteration, if registers still do not suffice."""
    if rematerialize_loads(unit.kernel):
        unit.pressure = None
        _schedule(unit)


def _choose(unit: XeUnit) -> None:
    """Chooses 128 or 256 registers per thread; refuses a program that needs more."""
    found = unit.counted()
    natural = unit.natural or found
    before = natural.registers + natural.reserve
    unit.registers = choose_mode(unit.kernel, unit.machine, found, before, unit.spills)
    why = risk(found, unit.registers, before, unit.machine.grf_bytes)
    unit.remarks += [f"{RISK}: {why}"] if why else []


def _spill(unit: XeUnit) -> None:
    """Leaves to the offline compiler what registers do not hold, and tells how much, if nothing else helped."""
    unit.spills = True
    unit.kernel.attributes.pop(SPILLS, None)


def _lower(unit: XeUnit) -> None:
    """Lowers to addresses and calls of messages and products (`@xe_*`)."""
    kernel, machine = unit.kernel, unit.machine
    lowered = lower(kernel, machine)
    unit.lowered, unit.module = lowered, lowered.module


SMALLER = [split(registers) for registers in PARTS]
ORDER: Sequence[Pass[XeUnit]] = (
    Pass("xe-fold", fold, L),
    Pass("xe-widen-branch-results", widen_branch_results, L),
    Pass("xe-split-assembled", split_assembled, L, optional=True),
    Pass("xe-split-accumulators", split_accumulators, L, optional=True),
    Pass("xe-register-pressure", _measure, L, "unit", machine=True),
    Pass(
        "xe-schedule-for-pressure", _schedule, L, "unit", optional=True, when=_crowded, machine=True
    ),
    *SMALLER,
    Pass("xe-rematerialize-loads", _reload, L, "unit", optional=True, when=too_large, machine=True),
)
ORDERED = tuple(each.to("xegpu-lane") for each in ORDER)
"""From a lane's program to the one whose registers are counted."""
CHOSEN: Sequence[Pass[XeUnit]] = (
    Pass(SPILL, _spill, L, "unit", optional=True, when=lambda u: SPILLS in u.kernel.attributes),
    Pass("xe-register-mode", _choose, L, "unit", machine=True),
    Pass("xe-guard-loops", guard_loops, L, optional=True),
    Pass("xe-version-stores", version_stores, L, optional=True),
    Pass("xe-lane-to-mach", _lower, given="unit", stage="mach", machine=True, whole=True),
    Pass(
        "xe-overflow-checks", rewrite_overflow_checks, given="module", optional=True, stage="mach"
    ),
)
"""From there to the program of the emitter."""
PASSES: Sequence[Pass[XeUnit]] = (
    *(INLINE_CALLS, *xegpu.WORKGROUP, *xegpu.SUBGROUP),
    *(*ORDERED, *CHOSEN),
)
PIPELINE = Pipeline[XeUnit](
    "xe", PASSES, lambda module, chip: XeUnit(module, xe_machine(chip)), "pvc", xegpu.PIPELINE.more
)


def run(
    module: ModuleOp,
    machine: XeMachine,
    stage: Observer = ignore,
    observe: Observer = ignore,
    off: frozenset[str] = frozenset(),
) -> tuple[LoweredLane, int, Pressure]:
    """The lowered kernel, the registers per thread that it is compiled with, and its pressure.

    `stage` sees the module at every stage, `observe` after every pass, by its name. Where registers do not suffice, a
    kernel that leaves the number of subgroups open gets more of them, then blocks that no 2D message moves come in
    smaller parts, and then the tiles are computed in passes; so they are where subgroups exchange more than shared
    memory holds. Of what was tried, the offline compiler gets what misses
    fewest registers. UnsupportedError where scratch memory does not hold the rest either, or where all that takes more
    than BUDGET seconds; ATTEMPTS of them are for looking for a better one.
    """
    PIPELINE.check(off, machine.name)
    kernel = kernel_of(module)
    refuse_prints(kernel)
    given, level, has_layouts = module.clone(), level_of(kernel), _says_who_owns(kernel)
    if level == "lane":
        refuse_other_lanes(kernel, machine)
    splits, spills = level != "lane" and "retile" not in off, SPILL not in off
    first: TooManyRegisters | None = None
    last: TooManyRegisters | None = None
    exchange: ExchangesTooMuch | None = None
    tried = kernel
    sizes: list[int] = []
    passes, over, most = 1, inf, 1
    unit = XeUnit(module, machine, off)
    nearest, least = unit, inf

    def changed(change: dict[str, Attribute] | None) -> XeUnit | None:
        """The program as it was given, with something said on its kernel."""
        if change is None:
            return None
        copy = given.clone()
        kernel_of(copy).attributes.update(change)
        return XeUnit(copy, machine, off, change=change)

    def more_passes() -> XeUnit | None:
        """As many parts more as the registers are times too few."""
        nonlocal passes, over, sizes
        assert last is not None
        if not splits or (passes > 1 and last.over >= HELPS * over):
            return None
        passes *= max(2, 1 << (ceil(last.over) - 1).bit_length())
        over, sizes = inf if last.at_least else last.over, []
        return changed(_in_passes(tried, passes))

    def spilling() -> XeUnit | None:
        """What was nearest to its registers, from where it was refused; nothing comes after that."""
        sizes.clear()
        ways.clear()
        unit = changed(nearest.change) if nearest.natural is None else nearest
        if unit is not None:
            unit.kernel.attributes[SPILLS] = UnitAttr()
            budget.seconds = BUDGET
        return unit

    ways: list[Callable[[], XeUnit | None]] = [more_passes]
    if spills:
        ways.append(spilling)
    if level != "lane":
        blocks = sum(op.name in BLOCKS for op in kernel.walk())
        ways.insert(0, lambda: changed(_smaller_parts(tried, blocks, last.missing if last else 0)))
    if level == "workgroup" and not has_layouts:
        ways.insert(0, lambda: changed(_more_subgroups(tried, machine)))
    with TimeBudget(BUDGET) as budget:
        while True:
            try:
                return _lowered(unit, stage, observe, budget, sizes)
            except OutOfTime:
                if first is None:
                    raise out_of_time(budget, unit.kernel, kernel_of(given)) from None
                ways = [spilling] if ways and spills and nearest.natural is not None else []
                budget.seconds = BUDGET
            except TooManyRegisters as error:
                first, last, tried = first or error, error, unit.kernel
                passes = max(passes, unit.passes)
                if last.over < least:
                    nearest, least = unit, last.over
                if spills and nearest.natural is not None:
                    budget.seconds = ATTEMPTS
            except (_NoSmaller, UnsupportedError) as error:
                if first is None and splits and isinstance(error, ExchangesTooMuch):
                    exchange, passes = exchange or error, 2 * max(passes, unit.passes)
                    unit = changed(_in_passes(unit.kernel, passes)) or unit
                    continue
                if first is None and exchange is not None:
                    parts = (exchange.hint, declared_apart(kernel_of(given)))
                    exchange.hint = "; ".join(each for each in parts if each)
                    raise exchange from None
                if first is None:
                    raise
                del ways[:1]
            most = max(most, integer(unit.kernel, SUBGROUPS, 1))
            found = None
            while ways and (found := ways[0]()) is None:
                del ways[0]
            if found is None:
                assert first is not None
                raise advised(
                    first, kernel_of(given), unit.kernel, machine, has_layouts, most
                ) from None
            unit = found


def _more_subgroups(kernel: gpu.FuncOp, machine: XeMachine) -> dict[str, Attribute] | None:
    """Twice as many, which may cut what is reduced finer; None where the machine has not so many."""
    more, row = 2 * integer(kernel, SUBGROUPS, 1), integer(kernel, ROW_REGISTERS, VALUE)
    limits = (machine.limits.get(name) for name in ("subgroups", "subgroups_large_grf"))
    if any(each is not None and each.fault(more) is not None for each in limits):
        return None
    return {SUBGROUPS: IntegerAttr(more, i64), ROW_REGISTERS: IntegerAttr(max(1, row // 2), i64)}


def _smaller_parts(kernel: gpu.FuncOp, most: int, missing: int) -> dict[str, Attribute] | None:
    """Half of the registers for a block without 2D block messages, of which there are `most`, and subgroups and rows as
    they were; None where there is no such block, its parts are small already, or that many more registers are
    missing."""
    apart = any(ROW in op.attributes or op.name == "xegpu.load" for op in kernel.walk())
    less = APART_REGISTERS // 2
    if not apart or APART in kernel.attributes or missing > most * less:
        return None
    return {APART: IntegerAttr(less, i64), **_as_before(kernel)}


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
        parts = [*op.attributes.values(), *op.properties.values(), *(r.type for r in op.results)]
        if any("sg_layout" in str(each) for each in parts):
            return True
    return False


def _lowered(
    unit: XeUnit, stage: Observer, observe: Observer, budget: TimeBudget, sizes: list[int]
) -> tuple[LoweredLane, int, Pressure]:
    """One attempt, or the end of one whose registers were counted. `sizes`: operations in the size of an instruction of
    those before, and then of this one."""

    def keep(name: str, module: ModuleOp) -> None:
        if stage is not ignore:
            unit.stages.append((name, module.clone()))

    if unit.natural is None:
        _to_lanes(unit, keep, observe, budget, sizes)
    elif SPILLS in unit.kernel.attributes:
        run_passes(SMALLER, unit, observe, within=budget.on)
    run_passes(CHOSEN, unit, observe, keep, budget.on)
    assert unit.lowered is not None and unit.pressure is not None
    for each in unit.stages:
        stage(*each)
    unit.lowered.remarks += unit.remarks
    return unit.lowered, unit.registers, unit.pressure


def _to_lanes(
    unit: XeUnit, stage: Observer, observe: Observer, budget: TimeBudget, sizes: list[int]
) -> None:
    """An attempt up to the lane's program whose registers are counted."""
    kernel, machine = unit.kernel, unit.machine
    level = level_of(kernel)
    kernel.attributes.setdefault(LEVEL, StringAttr(level))
    if level == "workgroup":
        uses_tiles = any(op.name.startswith("xetile.") for op in kernel.walk())
        stage("xetile" if uses_tiles else "xegpu", unit.module)

    run_passes((INLINE_CALLS,), unit, observe)
    refuse_instructions(kernel)
    mark_divisions(kernel)
    if level == "lane":
        assert_together(kernel, lanes_of(kernel, machine))

    cut = level == "workgroup" and "retile" not in unit.off
    whole = IN_PASSES not in kernel.attributes

    def checked(name: str, module: ModuleOp) -> None:
        nonlocal whole
        observe(name, module)
        if name == ("retile" if cut else "own-memory"):
            refuse_own_memory(kernel, machine)
        whole = whole and name != "xegpu-blocking"
        if whole and level_of(kernel) == "subgroup":
            refuse_whole(kernel, machine)
        if name == "xegpu-blocking":
            sizes.append(sum(1 for _ in kernel.walk()))
            if len(sizes) > 1 and (sizes[-1] == sizes[-2] or sizes[-1] > GROWS * sizes[-2]):
                raise _NoSmaller

    run_passes((*xegpu.entries(level), *ORDERED), unit, checked, stage, budget.on)
