"""Tile sizes that a kernel with one loop of products leaves to the planner (`tw.auto`), where warpgroups multiply.

How the loop depends on each constexpr is not recognised but measured: the kernel is built with the first of them 128
and the others 64, and with the second one 128. Its `LoopWork` says what was halved, rows, columns or the step of k, and
what doubled; a third constexpr is what did not change, and what is chosen is built and compared with what it was costed
as. So any kernel of that form will do, whatever its constexprs are called and however its grid is laid out. Every
tiling that the machine's instructions and registers can do is then costed for the launch at hand (`work_split.clocks`),
with few rows or columns those of the transposed product (`passes/swap_operands.py`), and with several workgroups for a
program.

    8 x 4096 x 4096:  BM = 128, BN = 256, BK = 64    16 programs    24 us
                      BM = 8, BN = 64, BK = 128      64 programs     7 us    chosen
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from xdsl.dialects import arith, scf, vector
from xdsl.dialects.builtin import AnyFloat, ModuleOp, VectorType

from tilewright.arguments import ArrayArg
from tilewright.codegen.tiles import itemsize
from tilewright.diagnostics import TilewrightError, UnsupportedError, location_of
from tilewright.dialects import xetile
from tilewright.dialects.movement import is_vector, shape_of
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import element
from tilewright.frozen import frozen
from tilewright.passes import planner
from tilewright.passes.carried import reached
from tilewright.passes.launch_cost import Choice, Program
from tilewright.passes.planner import Request
from tilewright.passes.resizing import NotAffineError
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.fitting import measured
from tilewright.targets.cuda.passes.mma_pipelining import OTHERS
from tilewright.targets.cuda.passes.tf32_rounding import loaded
from tilewright.targets.cuda.passes.warp_specialization import compute_registers
from tilewright.targets.cuda.passes.wgmma_legality import MOST_ACCUMULATORS as REGISTERS
from tilewright.targets.cuda.passes.wgmma_legality import (
    elementwise_operands,
    through_transposes,
    unsuited,
    warpgroups_of,
)
from tilewright.targets.cuda.pipeline import product_work
from tilewright.targets.cuda.retile import MOST_ACCUMULATORS
from tilewright.targets.cuda.warps import LEAST_STAGES, accumulators
from tilewright.targets.cuda.work_split import (
    UNSPLIT,
    LoopWork,
    Sides,
    WorkSplit,
    causes,
    clocks,
    pays,
    work_splits,
)
from tilewright.uarch.base import GENERIC, Machine, Rates
from tilewright.uarch.nvidia import LANES, LINE, REGISTER_FILE, WARPGROUP, WGMMA_ROWS
from tilewright.uarch.sm90 import BY_WARPGROUPS, KERNEL_RATES, SMEM

PROBE = 64
"""What constexprs are, one of them twice that, when the kernel is first built: legal rows, columns and steps of every
instruction."""
SIZES = ("rows", "columns", "step")
"""Of a loop's work, what constexprs say."""
SIDES = (*range(8, 64, 8), *range(64, 257, 16))
KERNEL_SIDES = (32, 64, 80, 96, 112, 128, 160, 192)
"""Values that are tried for each constexpr of a kernel that is no loop of products."""
ACCESS = 64
"""Bytes that HBM moves at least."""
ROW_SIDES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Those of a kernel without products: few rows at a time, so that the cache keeps them, or long parts of one row."""
FEW = (1, 2, 4, 8)
"""Values that are tried where those of products are too many."""
REPEATED = (arith.ConstantOp, vector.BroadcastOp, xetile.BroadcastOp)
"""What takes fewer registers than its elements."""
MOST_HELD = 3 * REGISTER_FILE
"""Bytes of one value, three quarters of all registers'."""
ALIKE = 0.03
"""What part of the time is not known of such a kernel: with 0.02 to 0.05 tilings are chosen whose times are the nearest
to the best ones' (23 shapes of two products with a loop's maximum between them, H200, 2026-11-30)."""
LINES = (LINE, 2 * LINE, 4 * LINE)
"""Bytes of k that one step takes."""
MOST_LISTED = 8
"""Choices that are shown to a reader."""
SAMPLED = 2.0
"""What a sample is estimated to take at most, in times of the best tiling."""
TRIED = 5
"""Choices that are built, best first, until one is what it was costed as."""


@frozen
class Form:
    """How a kernel's loop depends on its constexprs."""

    work: LoopWork
    """With all of them `PROBE`, the first one twice that."""
    roles: Mapping[str, str]
    """Which of `SIZES` each constexpr is."""
    program: Program
    """The kernel, so built."""

    def batch(self, request: Request) -> int | None:
        """Products of a launch; None where programs are no rows and columns of tiles."""
        rows, columns = self.work.sides(_shapes(request))
        if rows is None or columns is None:
            return None
        programs = self.program.programs(request.arguments)
        count, rest = divmod(
            programs, -(-rows // self.work.rows) * -(-columns // self.work.columns)
        )
        return None if rest else count


@frozen
class TilingCandidate:
    """A tiling of a launch, with the share of a program that is best for it."""

    values: Mapping[str, int]
    work: LoopWork
    programs: int
    trips: int
    split: WorkSplit
    sides: Sides
    clocks: float

    def choice(self, multiprocessors: int) -> Choice:
        """What a reader sees of it."""
        hertz = self.work.rates["hertz"]
        each = self.programs, self.trips, self.sides, multiprocessors
        found = causes(self.work, self.split, *each)
        return Choice(
            dict(self.values),
            self.clocks / hertz,
            self.programs,
            self.split.parts,
            {cause: clocks / hertz for cause, clocks in found.items() if clocks},
        )


def choices(
    request: Request,
    options: CompileOptions,
    machine: Machine,
    multiprocessors: int,
    every: bool = False,
) -> Sequence[Choice]:
    """Tilings, the cheapest first, which is sure to be as it was costed; none where the kernel has another form than a
    loop of products. `every`: all of them, and not only the first few."""
    found = of_form(request, options, machine, multiprocessors)
    for first, each in enumerate(found[:TRIED]):
        made = _work(request, each.values, options, machine)
        if made == each.work:
            listed = found[first:] if every else found[first:][:MOST_LISTED]
            return [c.choice(multiprocessors) for c in listed]
    return []


def of_kernel(
    request: Request, machine: Machine, rates: Rates, every: bool = False
) -> Sequence[Choice]:
    """Tilings of a kernel of any form all of whose products warpgroups can do, and whose sums registers hold; none
    where there are none. The planner of all machines costs them."""

    def rated(module: ModuleOp) -> Rates:
        products = [op for op in module.walk() if isinstance(op, xetile.TileMmaOp)]
        request.memory["multiplies"] = bool(products)
        groups = warpgroups_of([shape_of(op.result)[0] for op in products])
        reasons = [r for op in products if (r := unsuited(op, machine, groups)) is not None]
        if not products or reasons or not _hold(products):
            raise UnsupportedError((*reasons, "registers hold no such products")[0])
        times = BY_WARPGROUPS[groups]
        return replace(
            own,
            product_flops=own.product_flops / times,
            elementwise_bytes=own.elementwise_bytes / times,
            op_seconds=own.op_seconds * times,
        )

    def suits() -> bool:
        lock, resizable = planner.resizable(request)
        with suppress(TilewrightError, NotAffineError), lock:
            sizes = dict.fromkeys(request.names, PROBE)
            rated(resizable.at(tuple(sizes.values())) if resizable else request.build(sizes))
            return True
        return False

    own = replace(rates, parts=1, **KERNEL_RATES)
    # Asked once per kernel, not per shape. Launches of many threads share this: only what is known is written.
    if "legal for warpgroups" not in request.memory:
        request.memory["legal for warpgroups"] = suits()
    if not request.memory["legal for warpgroups"]:
        return []
    try:
        return planner.choices(request, own, KERNEL_SIDES, rated, every=every, alike=ALIKE)
    except TilewrightError:
        return []


def of_values(
    request: Request, machine: Machine, rates: Rates, every: bool = False
) -> Sequence[Choice]:
    """Tilings of a kernel of any other form. Raises UnsupportedError where there are none."""
    rates = replace(rates, kept_bytes=machine.memories["l2"].size, access_bytes=ACCESS)

    def held(module: ModuleOp) -> Rates:
        for op in module.walk():
            for value in () if isinstance(op, REPEATED) else op.results:
                if not isinstance(value.type, VectorType) or not isinstance(
                    element(value.type), AnyFloat
                ):
                    continue
                size = prod(shape_of(value)) * itemsize(element(value.type))
                if size > MOST_HELD:
                    raise UnsupportedError(
                        f"a value takes {size} bytes of {4 * REGISTER_FILE} of registers",
                        location=location_of(op),
                        hint="a smaller tile, or a loop over parts of it, needs less",
                    )
        return rates

    def copied(module: ModuleOp) -> Rates:
        for op in module.walk():
            if isinstance(op, xetile.TileMmaOp):
                size = sum(prod(shape_of(v)) * itemsize(element(v.type)) for v in (op.a, op.b))
                if LEAST_STAGES * size > SMEM:
                    raise UnsupportedError(
                        f"shared memory has no room for {LEAST_STAGES} times {size} bytes of operands",
                        location=location_of(op),
                        hint="a shorter step needs less",
                    )
        return held(module)

    sizes = planner.CANDIDATES if request.memory.get("multiplies", True) else ROW_SIDES
    tried = (sizes, copied), (sizes, held)
    for sizes, rated in tried:
        try:
            return planner.choices(request, rates, sizes, rated, every=every, pairs=0)
        except UnsupportedError:
            continue
    # Rows are too long for as many as products have.
    return planner.choices(request, rates, FEW, held, every=every, pairs=0)


def _hold(products: Sequence[xetile.TileMmaOp]) -> bool:
    """Do a thread's registers hold the sums of the products of one block, left operands that are computed, and what a
    loop around carries beside these sums, when the loop's last products run beside its next iteration?"""
    if accumulators(products) > MOST_ACCUMULATORS:
        return False
    groups = warpgroups_of([shape_of(op.result)[0] for op in products])
    blocks: dict[Any, int] = {}
    for op in products:
        a = () if loaded(through_transposes(op.a)) is not None else shape_of(op.a)
        held = 4 * prod(shape_of(op.result)) + (prod(a) * itemsize(element(op.a.type)) if a else 0)
        blocks[op.parent] = blocks.get(op.parent, 0) + held // (4 * groups * WARPGROUP * LANES)
    for block in blocks:
        sums = [op.c for op in products if op.parent is block and op.c is not None]
        added = reached(sums, elementwise_operands)
        for value in block.args:
            if is_vector(value) and min(shape_of(value)) > 1 and value not in added:
                held = prod(shape_of(value)) * itemsize(element(value.type))
                blocks[block] += held // (4 * groups * WARPGROUP * LANES)
    return max(blocks.values()) <= compute_registers(groups) - OTHERS


def of_form(
    request: Request, options: CompileOptions, machine: Machine, multiprocessors: int
) -> list[TilingCandidate]:
    """Every tiling that is costed, the cheapest first; none where the kernel has another form."""
    memory = request.memory
    if "form" not in memory:
        memory["form"] = _form(request, options, machine)
    form: Form | None = memory["form"]
    if form is None:
        return []
    return sorted(candidates(request, form, multiprocessors), key=lambda c: c.clocks)


def samples(
    request: Request, options: CompileOptions, machine: Machine, multiprocessors: int
) -> Sequence[TilingCandidate]:
    """Tilings whose times tell the machine's rates: of those that could be chosen, evenly from the cheapest on."""
    found = of_form(request, options, machine, multiprocessors)
    near = [c for c in found if c.clocks <= SAMPLED * found[0].clocks]
    return near[:: max(1, len(near) // MOST_LISTED)][:MOST_LISTED]


def candidates(request: Request, form: Form, multiprocessors: int) -> Iterator[TilingCandidate]:
    """Every tiling for the arguments at hand, with the best of all clusters; those that do not gain enough are not
    asked for at the launch either."""
    work, shapes = form.work, _shapes(request)
    sides, trips, batch = work.sides(shapes), _end(work, request), form.batch(request)
    if trips is None or batch is None:
        return
    sizes = {
        "rows": sides_of(sides[0]),
        "columns": sides_of(sides[1]),
        "step": tuple(line // work.itemsize for line in LINES),
    }
    given = {"rows": work.rows, "columns": work.columns, "step": work.step}
    names = list(form.roles)
    for values in product(*(sizes[form.roles[name]] for name in names)):
        sized = given | {form.roles[name]: value for name, value in zip(names, values, strict=True)}
        other = tiled(work, sized["rows"], sized["columns"], sized["step"], sides)
        if other is not None:
            chosen = dict(zip(names, values, strict=True))
            yield costed(chosen, other, batch, trips, shapes, multiprocessors)


def sides_of(extent: int | None) -> Sequence[int]:
    """Those of `SIDES` that no shorter one covers an extent with as few of; of multiples of 64, which alone rows of a
    product can be, no shorter such one."""
    if extent is None:
        return SIDES
    found: list[int] = []
    for shorter, side in zip((0, *SIDES), SIDES, strict=False):
        less = [shorter] if side % WGMMA_ROWS else [shorter, side - WGMMA_ROWS]
        if any(n == 0 or -(-extent // side) < -(-extent // n) for n in less):
            found.append(side)
    return found


def _form(request: Request, options: CompileOptions, machine: Machine) -> Form | None:
    """What tilings differ in, told by two of them. They need not be built: the one that is chosen is."""
    names = request.names
    base = dict.fromkeys(names, PROBE)
    first, second = base | {names[0]: 2 * PROBE}, base | dict.fromkeys(names[1:2], 2 * PROBE)
    lock, resizable = planner.resizable(request)

    def made(values: Mapping[str, int]) -> ModuleOp:
        return resizable.at((*values.values(),)) if resizable else request.build(values)

    try:
        with lock:
            if resizable is not None and not _may_be_sums(resizable.module):
                return None
            kernel = made(first).clone()
            work = _loop_of(kernel, options, machine)
            other = None if work is None else _loop_of(made(second), options, machine)
    except (TilewrightError, NotAffineError):
        return None
    if work is None or other is None or len(names) > len(SIZES):
        return None
    times = {size: getattr(other, size) / getattr(work, size) for size in SIZES}
    if other != _resized(work, **times):
        return None
    roles: dict[str, str] = {}
    for name, changed in zip(names, (0.5, 2, 1), strict=False):
        found = [size for size in SIZES if times[size] == changed]
        if len(found) != 1:
            return None
        roles[name] = found[0]
    return Form(work, roles, Program.of(kernel, GENERIC))


def _may_be_sums(kernel: ModuleOp) -> bool:
    """Is there one loop of products, which carries no floats but what is added to? No pass makes other kernels one."""
    products = [op for op in kernel.walk() if isinstance(op, xetile.TileMmaOp)]
    loops = {op.parent_op() for op in products}
    loop = loops.pop() if len(loops) == 1 else None
    return isinstance(loop, scf.ForOp) and all(
        isinstance(value.owner, xetile.TileMmaOp | arith.AddfOp)
        for value in terminator(loop.body.block).operands
        if isinstance(value.type, VectorType) and isinstance(element(value.type), AnyFloat)
    )


def _work(
    request: Request, values: Mapping[str, int], options: CompileOptions, machine: Machine
) -> LoopWork | None:
    """The loop of the kernel, built with these constexprs; None where warpgroups cannot run it."""
    known: dict[tuple[int, ...], LoopWork | None] = request.memory.setdefault("work", {})
    key = tuple(values[name] for name in request.names)
    if key not in known:
        try:
            built = request.build(values)
            known[key] = _loop_of(built, options, machine)
            request.spare(values, built)
        except TilewrightError:
            known[key] = None
    return known[key]


def _loop_of(kernel: ModuleOp, options: CompileOptions, machine: Machine) -> LoopWork | None:
    work = product_work(kernel.clone(), machine, options)  # which changes it
    return None if work is None else measured(work, machine.name)


def _resized(work: LoopWork, rows: float = 1, columns: float = 1, step: float = 1) -> LoopWork:
    """The loop with so many times as many rows, columns and elements of k."""
    return replace(
        work,
        rows=int(work.rows * rows),
        columns=int(work.columns * columns),
        step=int(work.step * step),
        row_bytes=int(work.row_bytes * rows * step),
        column_bytes=int(work.column_bytes * columns * step),
        product_clocks=work.product_clocks * rows * columns * step,
        computed=int(work.computed * rows * step),
    )


def tiled(work: LoopWork, rows: int, columns: int, step: int, sides: Sides) -> LoopWork | None:
    """The loop with tiles of this size, transposed where warpgroups can do only that; None where they cannot do it, or
    most of a tile would lie outside of the array."""
    for side, own in zip(sides, (rows, columns), strict=True):
        if side is not None and own > max(WGMMA_ROWS, 2 * side):
            return None
    turned = rows % WGMMA_ROWS != 0
    if turned and (work.transposed or work.computed):
        return None  # threads would have to store what they compute
    high, wide = (columns, rows) if turned else (rows, columns)
    if high % WGMMA_ROWS or wide not in work.widths or rows * columns > MOST_ACCUMULATORS:
        return None
    groups, held = warpgroups_of([high]), rows * columns * work.sums
    if held > MOST_ACCUMULATORS or held > REGISTERS[groups] * groups * WARPGROUP * LANES:
        return None
    found = _resized(work, rows / work.rows, columns / work.columns, step / work.step)
    if 2 * (found.row_bytes + found.column_bytes) > SMEM:
        return None
    if not turned:
        return found
    return replace(
        found,
        rows=columns,
        columns=rows,
        row_bytes=found.column_bytes,
        column_bytes=found.row_bytes,
        row_lines=found.column_lines,
        column_lines=found.row_lines,
        put=found.put and found.row_lines,
        computed=0,
        row_extent=found.column_extent,
        column_extent=found.row_extent,
        row_axis=found.column_axis,
        column_axis=found.row_axis,
        rows_clipped=found.columns_clipped,
        columns_clipped=found.rows_clipped,
        transposed=True,
    )


def costed(
    values: Mapping[str, int],
    work: LoopWork,
    batch: int,
    trips: int,
    shapes: Sequence[Sequence[int]],
    multiprocessors: int,
) -> TilingCandidate:
    """A tiling with the best of all clusters; those that do not gain enough are not asked for at the launch either."""
    sides = work.sides(shapes)
    assert sides[0] is not None and sides[1] is not None
    programs = batch * -(-sides[0] // work.rows) * -(-sides[1] // work.columns)
    count = -(-trips // work.step)
    best, least = UNSPLIT, clocks(work, UNSPLIT, programs, count, sides, multiprocessors)
    alone = least
    for split in work_splits(work, programs, count, multiprocessors, tiles=False):
        cost = clocks(work, split, programs, count, sides, multiprocessors)
        if cost < least and pays(cost, alone):
            best, least = split, cost
    return TilingCandidate(values, work, programs, count, best, sides, least)


def _shapes(request: Request) -> list[tuple[int, ...]]:
    return [a.shape if isinstance(a, ArrayArg) else () for a in request.arguments]


def _end(work: LoopWork, request: Request) -> int | None:
    """Elements of k; None where a number says how many."""
    argument: Any = request.arguments[work.argument]
    if work.dimension < 0 or not isinstance(argument, ArrayArg):
        return None
    return argument.shape[work.dimension] - work.start
