"""persistent: a workgroup runs many programs of the grid, in an order that keeps what they share in the L2 cache.

    %x = gpu.block_id x                     %i, %n = stage.worker
    %y = gpu.block_id y              ->     scf.for %t = %i to %all step %n {
    ...                                       %x, %y, %z = (raster of %t)
                                              ...
                                            }

Requires: XeTile at workgroup level; no memory shared by the workgroup and no barriers (a program may not see what the
one before it left). Guarantees: every program of the grid runs once.

Programs are numbered in groups of `GROUP` along axis 0: inside a group axis 0 is fastest, then axis 1; axis 2 is
slowest. So the programs that run at the same time form a block of the grid that is nearly square, and tiles that
depend on one axis only are read by many of them.
Where loops run longer in programs of higher number along an axis (a bound that grows with the id), or of lower, those
come first, and each workgroup gets as many long ones as any other (`raster`).
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import stage
from tilewright.dialects.nesting import terminator
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.emit import Before
from tilewright.targets.cuda.passes.multi_buffering import PROGRAMS
from tilewright.targets.cuda.passes.raster import GROUP, At, falling, grouped, index, sections
from tilewright.targets.cuda.passes.wgmma_legality import shares_memory


def make_persistent(function: gpu.FuncOp, remarks: list[str]) -> bool:
    """Runs one workgroup per multiprocessor, which takes programs in an order that reuses L2; the longest first
    where their loops differ in length. Returns whether the kernel loops over programs now."""
    if shares_memory(function):
        remarks.append("one program per workgroup: the kernel shares memory between its subgroups")
        return False
    uneven = uneven_along(function)
    top = function.body.block
    last = terminator(top)
    body = Block(arg_types=[index])
    for op in list(top.ops):
        if op is not last and not _common(op):
            op.detach()
            body.add_op(op)
    body.add_op(scf.YieldOp())
    at, worker = Before(last), stage.WorkerOp()
    programs = [at.add(stage.ProgramsOp(axis)) for axis in range(3)]
    plane = at.add(arith.MuliOp(programs[0], programs[1]))
    total = at.add(arith.MuliOp(plane, programs[2]))
    at.insert(worker)
    if uneven is not None:
        ids = _uneven(top, body, programs, worker, *uneven)
    else:
        loop = scf.ForOp(worker.number, total, worker.count, [], Region(body))
        loop.attributes[PROGRAMS] = UnitAttr()
        at.insert(loop)
        ids = grouped(body, programs[0], programs[1], plane, GROUP)
    for op in list(function.walk()):
        if isinstance(op, gpu.BlockIdOp | gpu.GridDimOp):
            axis = "xyz".index(op.dimension.data)
            values = ids if isinstance(op, gpu.BlockIdOp) else programs
            op.result.replace_all_uses_with(values[axis])
            Rewriter.erase_op(op)
    return True


def _common(op: Operation) -> bool:
    """Scalars of the launch stay where they are."""
    return op.name in ("arith.constant", "memref.dim", "memref.extract_strided_metadata")


def _uneven(
    top: Block, body: Block, programs: list[SSAValue], worker: stage.WorkerOp, axis: int, way: int
) -> list[SSAValue]:
    """Two loops around `body`: over sections, and over the programs of each that this workgroup takes. The ids."""
    last = terminator(top)
    one, ids, inner = falling(body, programs, worker, axis, way)
    at = At(last)
    count = sections(at, programs, worker, axis)
    none, by = at.index(0), at.index(1)
    outer = scf.ForOp(none, at.number(count), by, [], Region(one))
    for loop in (outer, inner):
        loop.attributes[PROGRAMS] = UnitAttr()
    at.insert(outer)
    return ids


def uneven_along(function: gpu.FuncOp) -> tuple[int, int] | None:
    """(axis, 1 or -1) if loops run longer, or shorter, in programs of higher number along axis 0 or 1; else None."""
    analysis = AccessAnalysis(function)
    loops = [analysis.loop(op) for op in function.walk() if isinstance(op, scf.ForOp)]
    for axis in (0, 1):
        symbol = analysis.program_id(axis)
        trips = [l.trips for l in loops if l.trips is not None and symbol in l.trips.atoms]
        directions = {direction(t, symbol) for t in trips}
        for way in (1, -1):
            if way in directions and -way not in directions:
                return axis, way
    return None


def direction(expr: Expr, symbol: Symbol) -> int | None:
    """1 if an expression never falls as a symbol grows, -1 if it never rises, 0 if it stays, None if unknown."""
    found = 0
    for monomial, factor in expr.terms.items():
        for each in monomial:
            if not each.depends_on(symbol):
                continue
            if len(monomial) > 1:
                return None
            way = 1 if each is symbol else _applied(each, symbol)
            if way is None:
                return None
            way = way if factor > 0 else -way
            if found and way and way != found:
                return None
            found = found or way
    return found


def _applied(symbol: Symbol, by: Symbol) -> int | None:
    """The direction of min, max and division by a positive number: that of what they are applied to."""
    if symbol.kind is not Kind.APPLY or not isinstance(symbol.key, tuple):
        return None
    name = str(symbol.key[0])
    if name in ("floordiv", "ceildiv"):
        by_constant = symbol.args[1].constant
        if by_constant is None or by_constant <= 0:
            return None
        return direction(symbol.args[0], by)
    if name in ("min", "max"):
        directions = {direction(a, by) for a in symbol.args} - {0}
        return next(iter(directions)) if len(directions) == 1 else None
    return None
