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

Where all that a program does is a loop whose iterations have nothing to do with one another, and programs are few, each
is shared: it becomes several that follow one another along axis 0, each with every so many-th iteration.

    %x = (raster of %t)                                      %x, %part = (raster of %t) / %share
    scf.for %m = %lo to %hi step %s { (a tile) }     ->      scf.for %m = %lo + %part * %s to %hi step %s * %share {

So no workgroup waits for the one with the longest loop, and those that run at the same time read what is common to the
iterations of one program.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import stage, xetile
from tilewright.dialects.nesting import move, terminator
from tilewright.passes.access import Access, AccessAnalysis, AccessKind
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.emit import Before
from tilewright.passes.induction import Loop
from tilewright.passes.memory_objects import may_alias
from tilewright.targets.cuda.passes.multi_buffering import PROGRAMS
from tilewright.targets.cuda.passes.raster import GROUP, At, falling, grouped, index, sections
from tilewright.targets.cuda.passes.wgmma_legality import shares_memory


def make_persistent(function: gpu.FuncOp, remarks: list[str]) -> bool:
    """Runs one workgroup per multiprocessor, which takes programs in an order that reuses L2, the longest first
    where their loops differ in length, and iterations of them where they are few. Returns whether it does so."""
    if shares_memory(function):
        remarks.append("one program per workgroup: the kernel shares memory between its subgroups")
        return False
    uneven = uneven_along(function)
    shared = independent_loop(function) if uneven is None else None
    top = function.body.block
    last = terminator(top)
    body = Block(arg_types=[index])
    mine = (op for op in top.ops if op is not last and not _common(op))
    move(mine, InsertPoint.at_end(body))
    body.add_op(scf.YieldOp())
    at, worker = Before(last), stage.WorkerOp()
    programs = [at.add(stage.ProgramsOp(axis)) for axis in range(3)]
    fast, plane, total = _counted(at, programs[0], programs)
    at.insert(worker)
    share = None
    if shared is not None:
        share = _share(At(last), total, worker)
        fast, plane, total = _counted(at, at.add(arith.MuliOp(fast, share)), programs)
    if uneven is not None:
        ids = _uneven(top, body, programs, worker, *uneven)
    else:
        loop = scf.ForOp(worker.number, total, worker.count, [], Region(body))
        loop.attributes[PROGRAMS] = UnitAttr()
        at.insert(loop)
        first = body.first_op
        ids = grouped(body, fast, programs[1], plane, GROUP)
        if shared is not None and share is not None and first is not None:
            ids[0], part = map(At(first).number, At(first).quotient_and_rest(ids[0], share))
            _take(shared, part, share)
            function.attributes[SHARED] = IntegerAttr(SHARES, i64)
    for op in list(function.walk()):
        if isinstance(op, gpu.BlockIdOp | gpu.GridDimOp):
            axis = "xyz".index(op.dimension.data)
            values = ids if isinstance(op, gpu.BlockIdOp) else programs
            Rewriter.replace_op(op, [], [values[axis]])
    return True


SHARED = "tilewright.shares"
"""Attribute of a kernel whose programs are shared: by how many at most."""
SHARES = 8
"""Programs for each workgroup, up to which a program is shared by as many at most, a power of two of them."""


def _counted(
    at: Before, fast: SSAValue, programs: list[SSAValue]
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The programs along axis 0, along that and axis 1, and all."""
    plane = at.add(arith.MuliOp(fast, programs[1]))
    return fast, plane, at.add(arith.MuliOp(plane, programs[2]))


def _share(at: At, total: SSAValue, worker: stage.WorkerOp) -> SSAValue:
    """How many take the iterations of one of `total` programs."""
    wanted, _ = at.quotient_and_rest(at.times(worker.count, SHARES), at.most(total, 1))
    share = at.word(1)
    for size in (1 << n for n in range(1, SHARES.bit_length())):
        enough = at.add(arith.CmpiOp(wanted, at.word(size), "uge"))
        share = at.select(enough, size, share)
    return at.number(share)


def _take(loop: scf.ForOp, part: SSAValue, share: SSAValue) -> None:
    """Of the iterations every `share`-th, from number `part` on."""
    at = Before(loop)
    first = at.add(arith.MuliOp(part, loop.step))
    loop.operands[0] = at.add(arith.AddiOp(loop.lb, first))
    loop.operands[2] = at.add(arith.MuliOp(loop.step, share))


def independent_loop(function: gpu.FuncOp) -> scf.ForOp | None:
    """The loop that is all a program does, around loops of products, any iteration of which may come first."""
    top = function.body.block
    loops = [op for op in top.ops if op.regions]
    if len(loops) != 1 or not isinstance(loop := loops[0], scf.ForOp) or loop.iter_args:
        return None
    inner = [op for op in loop.body.block.ops if isinstance(op, scf.ForOp)]
    if loop.lb.type != index or not any(
        isinstance(op, xetile.TileMmaOp) for i in inner for op in i.walk()
    ):
        return None
    analysis = AccessAnalysis(function)
    if analysis.hidden():
        return None
    written = [each for each in analysis.accesses if each.writes]
    read = [each for each in analysis.accesses if not each.writes]
    apart = all(
        loop.is_ancestor(a.op)
        and _moves_on(a, analysis.loop(loop))
        and not any(may_alias(a.root, b.root) for b in written[:i])
        for i, a in enumerate(written)
    )
    return loop if apart and all(analysis.read_only(each.root) for each in read) else None


def _moves_on(access: Access, loop: Loop) -> bool:
    """Is a store of each iteration, along some dimension, behind that of the one before?"""
    if access.kind is AccessKind.ATOMIC or access.scattered:
        return False
    inside = [
        each for each in access.loops if loop.op.is_ancestor(each.op) and each.op is not loop.op
    ]
    return any(
        step is not None
        and (by := step.constant) is not None
        and by >= size
        and not any(each.counter in offset.atoms for each in inside)
        for step, size, offset in zip(
            access.step(loop), access.box_shape, access.offsets, strict=True
        )
    )


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
