"""Parts of k: a program's product is the sum of products over parts of k, which several tasks may compute.

    for part of k, of those that are this task's:      as even as can be: `division.parts_of`, from the shapes alone
      sums of the part = A B over it                   of a task alone: the first where the result is, the others beside
    if the program has several tasks:
      count this one; whoever is not the last ends here
      result = sums of the first part + of the second + ...
    what is left of the program

How many tasks a launch has for each program depends on its threads; which parts there are, and the order in which they
are added up, does not: so no bit of a result depends on the threads.

Divided are kernels with one contraction, in their outermost block, before which they do nothing but read, for scalars
and for what the sums start with: each of the tasks does that again. What comes behind is done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import AnyFloat, MemRefType, VectorType, i1
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.traits import MemoryEffectKind

from tilewright import dtypes
from tilewright.codegen.builder import Idx, index
from tilewright.codegen.divisions import may_fail
from tilewright.codegen.tiles import element_of, itemsize, rows_cols
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.effects import PEOPLE, Acts, memory_effects
from tilewright.dialects.fused import ContractOp, FusedOp, PackOp, PanelOp, YieldOp
from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import frozen
from tilewright.passes.fold_identities import splat
from tilewright.passes.memory_objects import is_pure, orders
from tilewright.targets.cpu.arguments import split
from tilewright.targets.cpu.division import Division
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.memory import Buffer, clear
from tilewright.targets.cpu.product_cost import shortest_part
from tilewright.targets.cpu.storage import is_tile
from tilewright.targets.cpu.sums_in_place import in_array, plain_store

if TYPE_CHECKING:
    from tilewright.targets.cpu.lower import FunctionContext

ALL = (1 << 62) - 1
"""k of a part that ends where the loop does."""


@frozen
class Lies:
    """An operand in its array: the number of the argument, the dimensions of x and of k."""

    argument: int
    x: int
    k: int


@frozen
class Divided:
    """The contraction of a kernel whose parts several tasks may compute."""

    op: ContractOp
    least: int
    block: int
    a: Lies
    b: Lies


def divided(kernel: gpu.FuncOp, m: CpuMachine) -> Divided | None:
    """What of a kernel at the stage level can be divided, if anything."""
    contracts = [op for op in kernel.walk() if isinstance(op, ContractOp)]
    if len(contracts) != 1 or contracts[0].parent is not kernel.body.block:
        return None
    (op,) = contracts
    before = op.prev_op
    while before is not None:
        begins = isinstance(before, FusedOp) and set(before.results) <= set(op.inits)
        if not (
            isinstance(before, PackOp)
            or all(map(_only_reads, before.walk() if begins else (before,)))
        ):
            return None
        before = before.prev_op
    lo, hi = constant(op.lo), constant(op.hi)
    found = [_lies(v, op.body.block, 1 - i) for i, v in enumerate(op.pairs[0])]
    if found[0] is None or found[1] is None:
        return None
    a, b, c = (dtypes.from_mlir(element_of(v.type)).name for v in (*op.pairs[0], op.inits[0]))
    least, block = shortest_part(m, (a, b, c))
    if lo is not None and hi is not None and hi - lo <= least:
        return None
    return Divided(op, least, block, found[0], found[1])


def _only_reads(op: Operation) -> bool:
    effects = memory_effects(op)
    told = any(each.on is PEOPLE for each in op.get_traits_of_type(Acts))
    quiet = effects is not None and set(effects) <= {MemoryEffectKind.READ}
    return quiet and not (told or orders(op) or (op.regions and not isinstance(op, FusedOp)))


def _lies(value: SSAValue, block: Block, k: int) -> Lies | None:
    """Where an operand, dimension `k` of which is summed, is loaded from: the first array that has all of it."""
    shape, waiting = rows_cols(value.type), [(value, False)]
    seen = set[tuple[SSAValue, bool]]()
    while waiting:
        value, flipped = waiting.pop()
        op = value.owner
        if not isinstance(op, Operation) or op.parent is not block or (value, flipped) in seen:
            continue
        seen.add((value, flipped))
        if isinstance(op, xt.LoadTileOp | PanelOp):
            whole = rows_cols(value.type) == (shape[::-1] if flipped else shape)
            found = _array(op, k ^ flipped) if whole else None
            if found is not None:
                return found
            continue
        turned = flipped ^ (isinstance(op, xt.TransposeOp) and op.permutation == (1, 0))
        waiting += [(v, turned) for v in reversed(op.operands) if is_tile(v)]
    return None


def _array(op: xt.LoadTileOp | PanelOp, k: int) -> Lies | None:
    source: SSAValue | None = None
    if isinstance(op, PanelOp):
        pack = op.panels.owner
        assert isinstance(pack, PackOp)
        source, k = pack.source, pack.result.type.k.data
    elif isinstance(op.tile.owner, xt.InitTileOp):
        source = op.tile.owner.source
    if not isinstance(source, BlockArgument) or not isinstance(source.type, MemRefType):
        return None
    rank = len(source.type.get_shape())
    if rank < 2:
        return None
    return Lies(source.index, rank - 1 - k, rank - 2 + k)


def programs(c: FunctionContext) -> Idx:
    """Of the grid."""
    return c.b.times(c.b.times(c.grid(0), c.grid(1)), c.grid(2))


def lower_program(c: FunctionContext, body: Block) -> None:
    """All ops of the kernel; those behind a divided contraction only where its result is there. What packs alone read,
    `tw_plan` has computed."""
    planned: set[Operation] = set()
    for op in reversed(body.ops):
        users = {use.operation for result in op.results for use in result.uses}
        told = not is_pure(op) or (len(op.operands) == 2 and may_fail(op, op.operands[1]))
        if users and not told and all(isinstance(u, PackOp) or u in planned for u in users):
            planned.add(op)
    ops = [op for op in body.ops if op not in planned]
    behind = len(ops) if c.divided is None else ops.index(c.divided.op) + 1
    for op in ops[:behind]:
        c.lower_op(op)
    if c.whole is not None:
        with c.b.when(c.whole):
            for op in ops[behind:]:
                c.lower_op(op)


def contract_scalars(c: FunctionContext, op: ContractOp) -> None:
    for inner in op.body.block.ops:
        if not isinstance(inner, YieldOp) and not any(is_tile(r) for r in inner.results):
            c.lower_op(inner)


def lower_contract(c: FunctionContext, op: ContractOp) -> None:
    """A contraction, part by part where it is the one that is divided."""
    accumulators: list[Buffer] = []
    zero: list[bool] = []
    for i, (init, result) in enumerate(zip(op.inits, op.values, strict=True)):
        buffer = c.memory_of(result)
        c.values.buffers[result] = buffer
        zero.append(splat(c.values.real(init)) == 0)
        if not zero[-1]:
            c.copy(init, buffer)
        elif c.share and (store := plain_store(c.m, op, i)) is not None:
            c.need(store.op.tile)
            one = c.b.constant(i1, 1)
            if c.divided is not None and c.divided.op is op:
                one = c.b.cmp("sle", c.word(c.layout.of_parts("parts")), 1)
            found = in_array(c.e, op, store, buffer, one, c.scratch.bytes)
            c.stored[store.op.parent_op()], buffer = found
        accumulators.append(buffer)
    with c.e.scope():
        if c.divided is not None and c.divided.op is op:
            _emit_parts(c, c.divided, accumulators, zero)
        else:
            c.contracts.emit(op, accumulators, zero)
    c.e.forget()


def _emit_parts(
    c: FunctionContext, divided: Divided, results: Sequence[Buffer], zero: Sequence[bool]
) -> None:
    """A contraction part by part."""
    b = c.b

    parts, tasks, blocks = (c.word(c.layout.of_parts(n)) for n in ("parts", "tasks", "blocks"))
    alone, one = b.cmp("sle", tasks, 1), b.cmp("sle", parts, 1)
    mine, _ = split(b, b.idx(b.plus(parts, b.minus(tasks, 1))), tasks)
    begin = b.times(c.turn, mine)
    beside = [c.buffer(v.type) for v in divided.op.values]
    slabs, size = [], 0
    for each in beside:
        slabs.append(size)
        size += slab_bytes(each)
    c.division = Division(
        divided.a.argument, divided.a.x, divided.a.k, divided.least, divided.block, divided.b.argument,
        divided.b.x, size,
    )  # fmt: skip
    sums = b.load(b.ptr(c.argument, c.layout.of_parts("sums")), mach.ptr)
    counter = b.ptr(sums, b.times(c.program, 8))
    first = b.ptr(sums, b.round_up(b.times(programs(c), 8), 64))
    first = b.ptr(first, b.times(b.times(c.program, parts), size))

    shortest, longer = split(b, blocks, parts)

    def start_of(part: Idx) -> Idx:
        return b.times(b.plus(b.times(part, shortest), b.min(part, longer)), divided.block)

    def slab(i: int, part: Idx) -> SSAValue:
        return b.ptr(first, b.plus(b.times(part, size), slabs[i]))

    end = b.min(b.plus(begin, mine), parts)
    none = b.constant(i1, 0)
    with b.loop(begin, end, carry=[none], nonempty=True) as loop, c.e.scope():
        part = loop.iv
        there: list[SSAValue] = []
        targets: list[Buffer] = []
        for i, (result, own) in enumerate(zip(results, beside, strict=True)):
            here = b.value(arith.AndIOp(alone, b.cmp("eq", part, 0) if zero[i] else one))
            pointer = b.value(arith.SelectOp(alone, own.pointer, slab(i, part)))
            pointer = b.value(arith.SelectOp(here, result.pointer, pointer))
            ld = b.select(here, result.ld, own.ld)
            target = replace(result, pointer=pointer, ld=ld)
            there.append(here)
            targets.append(target)
            if not zero[i]:
                with b.when(b.negated(here)):
                    clear(b, c.m.vector_bytes, target)
        after = b.plus(part, 1)
        # A loop may go on behind the array whose extent says how long parts are.
        k = start_of(part)
        length = b.select(b.cmp("slt", after, parts), b.minus(start_of(after), k), ALL)
        c.contracts.emit(divided.op, targets, zero, (k, length))

        def count() -> list[SSAValue]:
            one = b.constant(index, 1)
            before = b.value(mach.AtomicRmwOp("addi", one, counter, ordering="acq_rel"))
            return [b.cmp("eq", b.plus(before, 1), tasks)]

        mine_done = b.value(arith.AndIOp(b.negated(alone), b.cmp("eq", after, end)))
        (last,) = b.choose(mine_done, count, lambda: [none])
        for i, (result, own) in enumerate(zip(results, beside, strict=True)):
            # Of a task alone, the part beside; of the last one, all; of others none.
            start = b.select(alone, part, 0)
            added = b.value(arith.AndIOp(alone, b.negated(there[i])))
            stop = b.select(last, parts, b.select(added, after, start))
            with b.loop(start, stop) as each:
                pointer = b.value(arith.SelectOp(alone, own.pointer, slab(i, each.iv)))
                begins = b.cmp("eq", each.iv, 0) if zero[i] else None
                _add(c, result, replace(own, pointer=pointer), begins)
        loop.out = [last]
    c.whole = b.either(alone, loop.results[0])


def _add(c: FunctionContext, result: Buffer, more: Buffer, begins: SSAValue | None) -> None:
    """Result += more; result = more where it `begins`."""
    b = c.b
    lanes = c.m.vector_bytes // itemsize(result.element)
    type = VectorType(result.element, [lanes])  # pyright: ignore
    kind = arith.AddfOp if isinstance(result.element, AnyFloat) else arith.AddiOp
    column = result.shape[1] == 1
    rows, cols = result.shape[::-1] if column else result.shape
    with b.loop(0, rows) as r, b.loop(0, cols, lanes) as x:
        at = (x.iv, r.iv) if column else (r.iv, x.iv)
        target, value = result.address(b, *at), b.load(more.address(b, *at), type)
        total = b.value(kind(b.load(target, type), value))
        if begins is not None:
            total = b.value(arith.SelectOp(begins, value, total))
        b.store(total, target)


def slab_bytes(buffer: Buffer) -> int:
    """Of the sums of one part in a launch's memory."""
    rows = max(buffer.shape[0], buffer.padded_rows)
    assert isinstance(buffer.ld, int)
    return -(-(rows * buffer.ld * itemsize(buffer.element) + 128) // 64) * 64
