"""loop-unrolling: a thread asks for what several iterations read before it uses any of it.

    scf.for %i = %lo to %hi step %s iter_args(%x = %z) {      %q, %n = scf.for %i = %lo to %hi - 7 %s step 8 %s
      %v = mach.load %p                                             iter_args(%x = %z, %at = %lo) {
      %y = arith.addf %x, %v                            ->      (the body, for %i, %i + %s, .. %i + 7 %s)
      scf.yield %y }                                            scf.yield %y7, %i + 8 %s }
                                                              scf.for %i = %n to %hi step %s iter_args(%x = %q) {
                                                                (as it was) }

Requires: the program of a thread. Guarantees: the same iterations in the same order; where a loop stores, too, what it
reads of arrays that nothing writes is read in front of the stores of all iterations that run side by side, and of those
before them (`loop_pipeliner`). Where rows are compared with the ends of arrays, the iterations in which all are inside
run so, without comparing.

Takes part, in code for launches of few programs, or for a workgroup that has a multiprocessor to itself: a loop that
does nothing but read memory, compute, and store to other arrays, and reads so little in an iteration that memory waits
for the next one. (The assembler unrolls short loops too, at most four times, and takes no load past a store.) Where
programs are many, others read meanwhile, and the registers that this takes would keep some of them away.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from math import prod

from xdsl.dialects import arith, func, gpu, scf, vector
from xdsl.dialects.builtin import ModuleOp, VectorType, i32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.codegen.tiles import element_of, itemsize
from tilewright.dialects import mach
from tilewright.dialects.movement import shape_of, shape_of_type
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import PREDICATES
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.passes.cleanup import hoist_invariants
from tilewright.passes.emit import Before
from tilewright.passes.loop_pipeliner import PipelineSchedule, expand
from tilewright.passes.loops import with_start
from tilewright.passes.memory_objects import is_pure
from tilewright.targets.cuda.distribute import GLOBAL

IN_FLIGHT = 96 << 10
"""Bytes that a workgroup should have asked for: few of them keep memory busy with as much."""
MOST_BYTES, MOST = 256, 32
"""Of a thread, in how many iterations: they are held in registers."""
HELD_TWICE = 256
"""Threads of a workgroup up to which each has registers for what two lots of iterations read."""
WORD = 4
"""Bytes of a register: what is held from one lot to the next is, not halves of them."""
FEWER = 4
"""So many times fewer iterations of what is left over run side by side."""
MOST_FUNCTIONS = 64
"""Values of functions that a thread computes in so many iterations: they take longer than what is read, and each is
many instructions (an exponential of each of 4096 x 32768 by 16 x 256 on an H200: 264 us, 313 by bytes alone)."""


def unroll_loops(module: ModuleOp, threads: int, apart: bool = False) -> int:
    """Puts iterations of loops that read little side by side, so that their loads are on the way together. Returns in
    how many loops. `threads`: of a workgroup; `apart`: the arrays of the launch do not overlap."""
    found = short_loops(module, threads, apart)
    for loop, times in found:
        rest, stores = _unroll(loop, times, threads <= HELD_TWICE)
        if stores and times > FEWER:
            # Each iteration that is left over waits for its loads, which take as long as those of many.
            _unroll(rest, times // FEWER)
    return len(found)


def short_loops(module: ModuleOp, threads: int, apart: bool = False) -> list[tuple[scf.ForOp, int]]:
    """The loops that read little, and how many iterations should run side by side."""
    wanted = min(MOST_BYTES, IN_FLIGHT // threads)
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    written = _written(module) if apart and loops else None
    found: list[tuple[scf.ForOp, int]] = []
    for op in loops:
        with _assumed(op) as assumed:
            times = _times(assumed, wanted, written)
        if times > 1:
            found.append((op, times))
    return found


@contextmanager
def _assumed(loop: scf.ForOp) -> Generator[scf.ForOp]:
    """A copy of a loop in which the conditions hold that no iteration changes, for as long as it is looked at; the loop
    itself where there are none."""
    branches = _unchanging(loop)
    if not branches:
        yield loop
        return
    copy = loop.clone()
    for op, branch in zip(loop.body.block.ops, [*copy.body.block.ops], strict=True):
        if op in branches and isinstance(branch, scf.IfOp):
            taken = branch.true_region.block
            given = terminator(taken)
            for result, value in zip(branch.results, given.operands, strict=True):
                result.replace_all_uses_with(value)
            Rewriter.erase_op(given)
            Rewriter.inline_block(taken, InsertPoint.before(branch))
            Rewriter.erase_op(branch)
    yield copy
    copy.erase()


def _unchanging(loop: scf.ForOp) -> list[scf.IfOp]:
    """The branches of an iteration whose condition is of the loop's outside."""
    block, inside = loop.body.block, set[SSAValue](loop.body.block.args)
    for op in block.ops:
        if op.regions or not is_pure(op) or any(v in inside for v in op.operands):
            inside |= set(op.results)
    return [op for op in block.ops if isinstance(op, scf.IfOp) and op.cond not in inside]


def _times(loop: scf.ForOp, wanted: int, written: set[SSAValue] | None) -> int:
    """How many iterations should run side by side; 1 where the loop does more than read and compute, or store to arrays
    other than those that it reads (`written`: all that the kernel stores to, None where that is not known)."""
    read = functions = 0
    for op in loop.body.block.ops:
        if isinstance(op, LOADS) and _is_global(op.pointer):
            read += prod(shape_of(op.result)) * itemsize(element_of(op.result.type))
        elif op.name.startswith("math."):
            functions += prod(shape_of(op.results[0]))
        elif isinstance(op, STORES) and written is not None:
            pass
        elif op is not loop.body.block.last_op and (op.regions or not is_pure(op)):
            return 1
    if not read or "unsignedCmp" in loop.properties:
        return 1
    if _stores(loop) and not _reads_first(loop, written or set()):
        return 1
    times = min(MOST, wanted // read, MOST_FUNCTIONS // max(1, functions))
    return 1 << (max(1, times).bit_length() - 1)


def _is_global(pointer: SSAValue) -> bool:
    return isinstance(pointer.type, LLVMPointerType) and pointer.type.addr_space.data == GLOBAL  # pyright: ignore


LOADS = (mach.LoadOp, mach.MaskedLoadOp)
STORES = (mach.StoreOp, mach.MaskedStoreOp, gpu.BarrierOp)
"""And what orders them among threads."""


def _stores(loop: scf.ForOp) -> bool:
    return any(isinstance(op, STORES) for op in loop.body.block.ops)


def _array(pointer: SSAValue) -> SSAValue:
    """The array that an address is in: an argument, or what is not known."""
    while isinstance(pointer.owner, mach.PtrAddOp):
        pointer = pointer.owner.pointer
    return pointer


def _written(module: ModuleOp) -> set[SSAValue]:
    """All arrays that something may write, or hands on."""
    found = set[SSAValue]()
    for op in module.walk():
        if not isinstance(op, (*LOADS, mach.PtrAddOp)):
            found |= {_array(v) for v in op.operands if isinstance(v.type, LLVMPointerType)}
    return found


def _first(loop: scf.ForOp) -> set[Operation] | None:
    """The loads of an iteration and what their places are computed from; None where that is carried or loaded."""
    found, waiting = set[Operation](), list[Operation]()
    for op in loop.body.block.ops:
        if isinstance(op, LOADS):
            found.add(op)
            waiting.append(op)
    while waiting:
        for value in waiting.pop().operands:
            if value in loop.body.block.args[1:]:
                return None
            made = value.owner
            if isinstance(made, Operation) and made.parent is loop.body.block:
                if isinstance(made, LOADS):
                    return None
                if made not in found:
                    found.add(made)
                    waiting.append(made)
    return found


def _reads_first(loop: scf.ForOp, written: set[SSAValue]) -> bool:
    """May all loads of several iterations come first?"""
    arrays = {_array(op.pointer) for op in loop.body.block.ops if isinstance(op, LOADS)}
    owners = (v.block.parent_op() for v in arrays | written if isinstance(v, BlockArgument))
    known = sum(isinstance(op, func.FuncOp) for op in owners) == len(arrays | written)
    return known and not arrays & written and _first(loop) is not None


def _guards(block: Block) -> dict[arith.CmpiOp, list[SSAValue]]:
    """Comparisons of the counter, and of what is added to it from outside of the loop, that hold until it reaches a
    number (`end - counter > n`), or from then on (`counter >= n`)."""
    found: dict[arith.CmpiOp, list[SSAValue]] = {}
    for op in block.ops:
        if not isinstance(op, arith.CmpiOp) or block.is_ancestor(op.rhs.owner):
            continue
        predicate, left = PREDICATES[op.predicate.value.data], op.lhs
        if predicate == "sgt" and isinstance(take := left.owner, arith.SubiOp):
            left = None if block.is_ancestor(take.lhs.owner) else take.rhs
        elif predicate != "sge":
            continue
        if left is not None and (added := _added(left, block)) is not None:
            found[op] = added
    return found


def _added(value: SSAValue, block: Block) -> list[SSAValue] | None:
    """What values from outside of a loop are added to its counter; None for anything else."""
    if value is block.args[0]:
        return []
    if isinstance(op := value.owner, arith.AddiOp) and op.parent is block:
        for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            if not block.is_ancestor(other.owner) and (more := _added(one, block)) is not None:
                return [other, *more]
    return None


def _unroll(loop: scf.ForOp, times: int, ahead: bool = False) -> tuple[scf.ForOp, bool]:
    """Returns the loop of what is left over, and whether its iterations store. `ahead`: these find what they need read
    while those before them were computed."""
    at = Before(loop)
    assert loop.parent is not None
    hoist_invariants(loop.parent)
    end = loop.ub
    true = at.add(arith.ConstantOp.from_int_and_width(1, 1))
    with _assumed(loop) as assumed:
        guards, stores = _guards(assumed.body.block), _stores(assumed)
        body, reads = _side_by_side(assumed, times, {guard.results[0]: true for guard in guards})
        # Where a guard does not hold, what is left over begins.
        for guard, added in guards.items():
            if isinstance(take := guard.lhs.owner, arith.SubiOp):
                until = take.lhs
                for value in (*added, guard.rhs):
                    until = at.add(arith.SubiOp(until, value))
                end = at.add(arith.MinSIOp(end, until))
            else:
                first = loop.lb
                for value in added:
                    first = at.add(arith.AddiOp(first, value))
                holds = at.add(arith.CmpiOp(first, guard.rhs, guard.predicate.value.data))
                end = at.add(arith.SelectOp(holds, end, loop.lb))
    for branch in _unchanging(loop):
        end = at.add(arith.SelectOp(branch.cond, end, loop.lb))
    whole = at.add(arith.MuliOp(loop.step, at.index(times)))
    last = at.add(arith.SubiOp(end, at.add(arith.SubiOp(whole, loop.step))))
    main = scf.ForOp(loop.lb, last, whole, [*loop.iter_args, loop.lb], Region(body))
    at.insert(main)
    rest = with_start(loop, main.results[:-1])
    rest.operands[0] = main.results[-1]
    if ahead and stores:
        order = [*body.ops][:-1]
        expand([PipelineSchedule(main, dict.fromkeys(order[reads:], 1), order)])
    return rest, stores


def _side_by_side(
    loop: scf.ForOp, times: int, holds: Mapping[SSAValue, SSAValue]
) -> tuple[Block, int]:
    """So many iterations, in which comparisons hold; behind what is carried it gives the next counter. And how many ops
    stand in front: all that the others take of them is what they read, in words."""
    old = loop.body.block
    body = Block(arg_types=[*old.arg_types, loop.lb.type])
    first = (_first(loop) if _stores(loop) else None) or set()
    left = [op for op in old.ops if op is not old.last_op and not holds.keys() & {*op.results}]
    read = [op.result for op in left if op in first and isinstance(op, LOADS)]
    then = {op for op in left if op not in first}
    for op in reversed(left):
        used = any(use.operation in then for r in op.results for use in r.uses)
        if used and not {*op.results} & {*read}:
            then.add(op)
    turns = [dict(holds) for _ in range(times)]
    carried, reads = body.args[1:-1], 0
    numbers = list[SSAValue]()
    for part in filter(None, (first, then)):
        reads = len([*body.ops])
        numbers = [SSAValue.get(body.args[0])]
        for _ in turns[1:]:
            body.add_op(following := arith.AddiOp(numbers[-1], loop.step))
            numbers.append(following.result)
        for copies, number in zip(turns, numbers, strict=True):
            copies |= {old.args[0]: number, **dict(zip(old.args[1:], carried, strict=True))}
            if part is then:
                copies |= {v: _cast(body, copies[v], v.type) for v in read}
            body.add_ops([op.clone(copies) for op in left if op in part])
            if part is then:
                carried = [copies.get(v, v) for v in terminator(old).operands]
            else:
                copies |= {v: _cast(body, copies[v], _words(v.type)) for v in read}
    after = arith.AddiOp(numbers[-1], loop.step)
    body.add_ops([after, scf.YieldOp(*carried, after.result)])
    return body, reads


def _words(type: Attribute) -> Attribute:
    """The type of words that a vector fills; its own where it fills none."""
    size = prod(shape_of_type(type)) * itemsize(element_of(type))
    fills = isinstance(type, VectorType) and itemsize(element_of(type)) < WORD
    return VectorType(i32, [size // WORD]) if fills and not size % WORD else type


def _cast(block: Block, value: SSAValue, type: Attribute) -> SSAValue:
    if value.type == type:
        return value
    cast = vector.BitcastOp(value, type)
    block.add_op(cast)
    return cast.results[0]
