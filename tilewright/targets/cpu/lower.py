"""The last stage from the stage level: one function per phase of a launch.

A launch is one range of tasks that the thread pool shares out: those that pack each array, then the workgroups, the
first of which wait until everything is packed. Every task function is `void (ptr block, i64 task, i64 thread)`; the
block holds the kernel's arguments, the grid and the launch's memory (see `ArgumentBlock`). `tw_run(block)` launches the
tasks; `tw_plan(block)` computes how much memory the packed arrays take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial

from xdsl.dialects import arith, func, gpu, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    MemRefType,
    ModuleOp,
    UnrankedMemRefType,
    UnrealizedConversionCastOp,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue

from tilewright.arguments import Grid
from tilewright.codegen.builder import Builder, Idx, function, index
from tilewright.codegen.tiles import (
    Matrix,
    ScatteredTile,
    Tile,
    element_of,
    itemsize,
    matrix_of_memref,
    rows_cols,
)
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, FusedOp, PackOp, YieldOp
from tilewright.dialects.movement import numbered
from tilewright.dialects.tw import PrintOp
from tilewright.frozen import record
from tilewright.passes.carried import reached
from tilewright.passes.memory_objects import may_write
from tilewright.targets import kernel_ops
from tilewright.targets.cpu import inserts as _inserts  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers its rules)
from tilewright.targets.cpu import moves
from tilewright.targets.cpu import positions as _positions  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers its rules)
from tilewright.targets.cpu import rules as _rules  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers its rules)
from tilewright.targets.cpu.arguments import ArgumentBlock, argument_block, program_of, split
from tilewright.targets.cpu.contract import ContractEmitter
from tilewright.targets.cpu.control import ControlFlow
from tilewright.targets.cpu.division import Division
from tilewright.targets.cpu.evaluate import Evaluator, Position, Values
from tilewright.targets.cpu.fetch_ahead import tiles_beside
from tilewright.targets.cpu.fused import FusedEmitter
from tilewright.targets.cpu.fused_plan import FusedPlan, Root
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.memrefs import Scratch, generic_atomic
from tilewright.targets.cpu.packed_array import PackedArray
from tilewright.targets.cpu.packing import (
    emit_pack_function,
    emit_pack_task,
    emit_task,
    pack_key,
    packed_array,
    plan_packs,
    task_function,
    tasks_of_packs,
)
from tilewright.targets.cpu.parts import (
    Divided,
    contract_scalars,
    divided,
    lower_contract,
    lower_program,
    programs,
)
from tilewright.targets.cpu.private_sums import (
    begin_sums,
    end_sums,
    inits_of,
    own_sums,
    plan_sums,
    sums_functions,
    sums_of,
)
from tilewright.targets.cpu.raster import raster_of
from tilewright.targets.cpu.scalars import ScalarOps
from tilewright.targets.cpu.sizes import check_memory
from tilewright.targets.cpu.storage import Storage, is_tile
from tilewright.targets.kernel_ops import KernelValues

OWN_DIALECTS = frozenset(
    ("arith", "cf", "func", "gpu", "index", "math", "memref", "scf", "stage", "tw", "vector", "xetile")
)  # fmt: skip
"""What has rules here, or is made again as it is."""


@record
class LoweredLaunch:
    """A kernel at the last stage, with what a launch must know."""

    module: ModuleOp
    block: ArgumentBlock
    scratch_bytes: int
    types: list[Attribute]
    packs: list[tuple[int, str]]
    """Of each packed array: the number of its argument, and what of it is packed."""
    sums: int = 0
    """Arrays that threads add to in memory of their own (see `private_sums`)."""
    subgroups: int = 1
    """Workgroups that run for each of the launch's, along x."""
    merged: Grid = (1, 1, 1)
    """Programs of the launch that a workgroup stands for, along each axis."""
    prints: bool = False
    """Does a program print lines, which a launch counts?"""
    division: Division | None = None
    """Of the product that is divided along k, if one is."""


def lower_kernel(
    kernel: gpu.FuncOp,
    m: CpuMachine,
    *,
    share: bool = True,
    prefetch: bool = True,
    overlap: bool = True,
    divide: bool = True,
    add_up: bool = True,
    subgroups: int = 1,
    early: Callable[[Sequence[func.FuncOp]], object] = lambda _: None,
) -> LoweredLaunch:
    """The module of the last stage for a kernel at the stage level.

    `share`: let values that replace one another share a buffer. `prefetch`: fetch ahead. `overlap`: levels of rows in
    succession run together. `divide`: sum long products over parts of k. `add_up`: what atomics add, in threads' memory
    first. `subgroups`: a launch runs so many workgroups for each that it is told (see `workgroup_form`). `early`: is
    given the parts that other kernels have in common with it, before the rest is made.
    """
    body = kernel.body.block
    types, packs = [a.type for a in body.args], [op for op in body.ops if isinstance(op, PackOp)]
    sums = sums_of(kernel) if add_up else []
    block = argument_block(types, len(packs), len(sums))
    functions: list[func.FuncOp] = []
    build = partial(FunctionContext, kernel, block, m)
    plan = build(function("tw_plan", [mach.ptr], once=True), [*packs, *inits_of(sums)])
    context = build(function("tw_run", [mach.ptr], once=True), [])
    extents = plan_packs(plan, packs)
    if sums:
        plan_sums(plan, sums)
        functions += sums_functions(build, sums, m.vector_bytes)
    plan.b.op(func.ReturnOp())
    for i, (op, x) in enumerate(zip(packs, extents, strict=True)):
        functions += [emit_pack_function(i, build, op), emit_pack_task(i, build, op, x)]
        early(functions[-2:])
    main = build(task_function("tw_workgroup"), body.ops).begun()
    main.b.prefetches = prefetch
    main.overlap = overlap
    main.subgroups = subgroups
    main.divided = divided(kernel, m) if divide and subgroups == 1 else None
    for i, (op, x) in enumerate(zip(packs, extents, strict=True)):
        main.packed[op.result] = packed_array(main, op, i, x)
    main.values.sums = own_sums(main, sums)
    main.lower_workgroup(share)
    check_memory(kernel, m.architecture.machine, main.scratch.used)
    functions.append(main.op)

    run = context.b
    pool = run.load(run.ptr(context.argument, block.pool), mach.ptr)
    end = tasks_of_packs(run, context.argument, block, len(packs))
    gx, gy, gz = (context.grid(i) for i in range(3))
    tasks = run.times(run.times(gx, gy), gz)
    if main.divided is not None:
        each = run.load(run.ptr(context.argument, block.of_parts("tasks")), index)
        tasks = run.times(tasks, each)
    tasks = run.idx(run.plus(end, tasks))
    if packs:
        functions.append(emit_task("tw_task", len(packs), block))
    address = run.value(mach.AddressOfOp("tw_task" if packs else "tw_workgroup"))
    if sums:
        begin_sums(context)
    run.call("tw_pool_launch", [pool, address, context.argument, tasks])
    if sums:
        end_sums(context, len(sums))
    run.op(func.ReturnOp())
    module = ModuleOp([*functions, plan.op, context.op])
    return LoweredLaunch(
        module,
        block,
        -(-main.scratch.used // 4096) * 4096,
        types,
        [(op.source.index, pack_key(op)) for op in packs],  # pyright: ignore
        len(sums),
        subgroups,
        prints=any(isinstance(op, PrintOp) for op in kernel.walk()),
        division=main.division,
    )


def read_by(ops: Iterable[Operation]) -> set[SSAValue]:
    """All values that ops, and those that their operands come from, read."""

    def read(op: Operation) -> list[SSAValue]:
        return [value for inner in op.walk() for value in inner.operands]

    start = (value for op in ops for value in read(op))
    return {*reached(start, lambda v: read(v.op) if isinstance(v, OpResult) else ())}


class FunctionContext(ControlFlow, ScalarOps, KernelValues):
    """One function being built from (parts of) a kernel."""

    overlap = True
    """Do levels of successive rows run together?"""
    divided: Divided | None = None
    division: Division | None = None
    """What a launch must know of it."""
    whole: SSAValue | None = None
    """Does this task have all of the divided product, and do what comes behind it?"""

    def __init__(
        self,
        kernel: gpu.FuncOp,
        block: ArgumentBlock,
        m: CpuMachine,
        made: tuple[func.FuncOp, Builder],
        parts: Iterable[Operation],
    ):
        """In an empty function `(ptr block, ..)`, for these ops of the kernel."""
        self.op, b = made
        KernelValues.__init__(self, b)
        b.hoists = True
        self.m = m
        self.kernel = kernel
        self.layout = block
        self.argument: SSAValue = b.entry.args[0]
        self.values = Values()
        self.e = Evaluator(b, self.values)
        self.held, self.held_groups = {}, {}
        self.matrices: dict[SSAValue, Matrix] = {}
        self.packed: dict[SSAValue, PackedArray] = {}
        self.ids: dict[str, SSAValue] = {}
        """Of the grid, and of the program where the function is one: x, y, z."""
        self.ahead = False
        read = read_by(parts)
        for arg, at in zip(kernel.body.block.args, block.arguments, strict=True):
            if arg in read:
                self._load_argument(arg, at)

    def begun(self) -> FunctionContext:
        """Itself, of a `task_function`, with scratch memory."""
        b = self.b
        self.task, self.thread = b.entry.args[1:]
        b.nonnegative |= {self.task, self.thread}
        base = b.load(b.ptr(self.argument, self.layout.scratch), mach.ptr)
        stride = b.load(b.ptr(self.argument, self.layout.scratch + 8), index)
        self.scratch = Scratch(b.ptr(base, b.times(self.thread, stride)), b)
        self.values.spare = self.scratch.base
        return self

    def _load_argument(self, arg: BlockArgument, at: int) -> None:
        b = self.b
        type = arg.type
        if not isinstance(type, MemRefType):
            self.values.scalars[arg] = b.load(b.ptr(self.argument, at), type)
            return
        rank = len(type.get_shape())
        pointer = b.load(b.ptr(self.argument, at), mach.ptr)
        sizes: list[Idx] = []
        strides: list[Idx] = []
        for i in range(rank):
            n = b.load(b.ptr(self.argument, at + 8 * (1 + i)), index)
            b.nonnegative.add(n)
            sizes.append(n)
        for i in range(rank):
            strides.append(b.load(b.ptr(self.argument, at + 8 * (1 + rank + i)), index))
        self.matrices[arg] = matrix_of_memref(b, pointer, type, sizes, strides)

    def grid(self, axis: int) -> SSAValue:
        key = f"grid{axis}"
        if key not in self.ids:
            value = self.b.load(self.b.ptr(self.argument, self.layout.grid + 8 * axis), index)
            self.b.nonnegative.add(value)
            self.ids[key] = value
        return self.ids[key]

    @cached_property
    def contract_rows(self) -> set[int]:
        """Rows of the values that micro-kernels, which write whole blocks of rows, write."""
        contracts = (op for op in self.kernel.walk() if isinstance(op, ContractOp))
        return {rows_cols(v.type)[0] for op in contracts for v in op.values}

    def buffer(self, type: Attribute) -> Buffer:
        """Scratch memory for a value; rows and columns are padded so that whole vectors and micro-tiles fit."""
        rows, cols = rows_cols(type)
        element = element_of(type)
        size = itemsize(element)
        lanes = self.m.vector_bytes // min(size, 4)
        ld = cols
        padded = rows
        if cols > 1:
            step = 2 * self.m.vector_bytes // 4 if rows > 1 else lanes
            ld = -(-cols // step) * step
            unit = self.m.row_unit
            if self.contract_rows and (rows > 1 or 1 in self.contract_rows):
                padded = -(-rows // unit) * unit
            if rows > 1 and ld * size % 512 == 0:
                ld += 64 // size  # rows a power of two apart would share a few sets of the cache
        count = padded * ld + (lanes if cols == 1 else 0)
        # A sweep reads one row and writes another: loads wait for stores to the same bytes of other pages.
        pages = 4096 if rows == 1 and count * size >= 4096 else 64
        pointer = self.scratch.bytes(count * size + 64, pages)
        return Buffer(pointer, element, (rows, cols), ld, padded)

    # The workgroup --------------------------------------------------------------------------------------------

    def lower_workgroup(self, share: bool) -> None:
        b = self.b
        self.program: SSAValue = self.task
        if self.divided is not None:  # tasks with the same turn follow one another
            self.turn, self.program = split(b, self.task, programs(self))
        self.ids |= program_of(b, self.program, self.grid, raster_of(self.kernel))
        body = self.kernel.body.block
        self.storage, self.share = Storage(body, share=share), share
        self.stored: dict[Operation | None, SSAValue] = {}
        """Groups whose only store is done before where a condition holds."""
        self.buffers: dict[int, Buffer] = {}
        self.values.following = tiles_beside(self.kernel)
        scalars = partial(contract_scalars, self)
        self.contracts = ContractEmitter(self.e, self.m, self.packed, self.scratch.bytes, scalars)
        lower_program(self, body)
        b.op(func.ReturnOp())

    def lower_scalars_of(self, op: Operation) -> None:
        """Lower the scalar ops that the operands of `op` come from, which the program may never come to."""
        self.ahead = True
        for operand in op.operands:
            self.need(operand)
        self.ahead = False

    def need(self, value: SSAValue) -> None:
        if (
            value in self.values.scalars
            or value in self.matrices
            or not isinstance(value, OpResult)
        ):
            return
        if isinstance(value.op, PackOp) or isinstance(value.type, VectorType):
            return
        for operand in value.op.operands:
            self.need(operand)
        self.lower_op(value.op)

    def memory_of(self, value: SSAValue) -> Buffer:
        """The buffer of a memory value, made on first use."""
        shared = self.storage.classes[value]
        found = self.buffers.get(id(shared))
        if found is None:
            found = self.buffers[id(shared)] = self.buffer(value.type)
        return found

    def lower_block(self, block: Block) -> None:
        for op in list(block.ops):
            self.lower_op(op)

    def lower_op(self, op: Operation) -> None:
        if op.results and all(r in self.values.scalars for r in op.results):
            self.check_division(op)
            return
        method = getattr(self, "lower_" + op.name.replace(".", "_"), None)
        if method is not None:
            method(op)
            return
        if (alike := kernel_ops.rule.of(op.name)) is not None:
            for operand in op.operands:
                self.need(operand)
            alike(self, op)
            return
        if op.name.partition(".")[0] not in OWN_DIALECTS:
            raise unsupported(op, f"{op.name} is not supported by the cpu target")
        tiles = any(is_tile(v) for v in (*op.results, *op.operands))
        if tiles:
            # What writes does so whether anybody asks for what it gives or not.
            if not op.results or may_write(op):
                raise unsupported(op, f"{op.name} is not supported by the cpu target")
            return  # evaluated on demand
        kinds = (MemRefType, UnrankedMemRefType)
        memories = any(isinstance(v.type, kinds) for v in (*op.results, *op.operands))
        if op.regions or memories:
            raise unsupported(op, f"{op.name} is not supported by the cpu target")
        self.clone_scalar(op)

    # Ids, arrays, tiles ---------------------------------------------------------------------------------------

    def grid_number(self, name: str, axis: str) -> SSAValue:
        return self.ids[axis] if name == "gpu.block_id" else self.grid("xyz".index(axis))

    def set_scalar(self, value: SSAValue, new: SSAValue) -> None:
        self.values.scalars[value] = new

    def matrix(self, value: SSAValue) -> Matrix | None:
        return self.matrices.get(value)

    def set_matrix(self, value: SSAValue, matrix: Matrix) -> None:
        self.matrices[value] = matrix

    def set_tile(self, value: SSAValue, tile: Tile | ScatteredTile) -> None:
        self.values.tiles[value] = tile
        self.values.follow(value)

    def pointer(self, address: SSAValue) -> SSAValue:
        return self.b.value(mach.PtrFromIntOp(address))

    def allocate(self, op: Operation, size: int) -> SSAValue:
        return self.scratch.bytes(size)

    def lower_gpu_barrier(self, op: Operation) -> None:
        """Ops of a workgroup run in program order on one thread."""

    def _nothing(self, op: Operation) -> None:
        """What others read where they use it."""

    lower_memref_generic_atomic_rmw = generic_atomic
    lower_stage_contract = lower_contract
    lower_stage_yield = lower_stage_pack = lower_stage_panel = _nothing

    def lower_xetile_prefetch_tile(self, op: xt.PrefetchTileOp) -> None:
        """Reads of the tile beside it fetch it. Caches fetch others by themselves; what is packed is copied once."""
        for tile in self.values.following:
            self.values.follow(tile)

    def lower_vector_extract(self, op: vector.ExtractOp) -> None:
        if is_tile(op.result):
            return
        row, col = divmod(int(numbered(op)[0]), rows_cols(op.vector.type)[1])
        down, along = moves.moved_at_run_time(self.e, op)
        with self.e.scope():
            place = Position(self.b.plus(row, down), self.b.plus(col, along))
            self.values.scalars[op.result] = self.e.at(op.vector, place)

    def lower_builtin_unrealized_conversion_cast(self, op: UnrealizedConversionCastOp) -> None:
        for source, result in zip(op.operands, op.results, strict=True):
            if not is_tile(result):
                self.values.scalars[result] = self.e.scalar(source)

    def lower_arith_constant(self, op: arith.ConstantOp) -> None:
        value = op.value
        if not is_tile(op.result):
            self.clone_scalar(op)
        elif isinstance(value, DenseIntOrFPElementsAttr) and not value.is_splat():
            buffer = self.buffer(op.result.type)
            rows, cols = rows_cols(op.result.type)
            values = list(value.get_values())
            for r in range(rows):
                row = values[r * cols : (r + 1) * cols]
                register = self.b.dense(VectorType(buffer.element, [cols]), row)  # pyright: ignore
                if cols == 1:
                    register = self.b.extract(register, 0)
                self.b.store(register, buffer.address(self.b, r, 0))
            self.values.buffers[op.result] = buffer

    # Stage ops ------------------------------------------------------------------------------------------------

    def fused_emitter(self, op: FusedOp, destinations: Sequence[Buffer | None]) -> FusedEmitter:
        read: Idx = 0
        for array in self.packed.values():
            read = self.b.plus(read, array.bytes(self.b))
        sizes = self.m.vector_bytes, self.m.word
        return FusedEmitter(self.e, op, destinations, self.buffer, *sizes, self.overlap, read)

    def lower_stage_fused(self, op: FusedOp) -> None:
        for inner in op.body.block.ops:
            if not any(is_tile(v) for v in (*inner.results, *inner.operands)) or isinstance(
                inner, xt.InitTileOp
            ):
                self.lower_op(inner)
        if op in self.held_groups:
            return self.in_registers(op)
        destinations = [self.memory_of(r) for r in op.results]
        with self.b.when(self.b.negated(self.stored.get(op, self.b.constant(i1, 0)))):
            self.fused_emitter(op, destinations).emit()
        for result, buffer in zip(op.results, destinations, strict=True):
            self.values.buffers[result] = buffer
        self.e.forget()

    def copy(self, value: SSAValue, buffer: Buffer) -> None:
        """Write a value to a buffer, unless it is there."""
        if self.values.buffers.get(self.values.real(value)) is buffer:
            return
        fused = FusedOp(Region(Block([YieldOp([value])])), [value.type])
        plan = FusedPlan(rows_cols(value.type)[0])
        plan.roots.append(Root(None, value, 0, buffer, "keep"))
        with self.e.scope():
            self.fused_emitter(fused, [buffer]).run(plan)
        fused.detach() if fused.parent else None
        fused.erase()
