"""From a workgroup to its threads: one pass over the kernel that gives every op its thread-level code.

Requires a kernel at workgroup level (xetile, and the stage ops whose rules are registered) and its
`Ownership`: the layout of every tile-shaped value that has an assigned layout. Guarantees a function of one
thread in arith, math, vector, scf, gpu and mach ops, with the same effect:

    %s = arith.addf %x, %y : vector<64x128xf32>    ->   %s = arith.addf %x', %y' : vector<32xf32>

How to write a rule
-------------------
A rule lowers one kind of op. It is a function (distributor, op), registered by the op's name; the
module that holds it is imported in `pipeline.py`:

    @rule("gpu.barrier")
    def barrier(d: Distributor, op: Operation) -> None:
        d.barrier()

- `d.b` (`codegen.builder.Builder`) appends thread-level ops; `d.scalar(v)` is a scalar of the kernel
  in the new function, `d.tile(v)` an `xetile.tile` as base pointer, offsets, extents and strides
  (`codegen.tiles`), `d.matrix(v)` a memref.
- `d.fragment_of(v)` is what a thread holds of the tile-shaped value v: a `vector<RxT>` (R registers,
  T signless) and the `Layout` that says which elements they are. `d.fragment_of(v, layout)` gives it
  in that layout, converted if need be. `d.set_fragment(v, value, layout)` defines a result; a result
  with an assigned layout (`d.assigned(v)`) is converted to it.
- `d.convert(fragment, layout)` moves registers, shuffles lanes, or goes through shared memory.
- `d.thread`, `d.lane`, `d.warp` (index values); `d.coordinates(layout)` are the tile coordinates of a
  thread's register 0; register r adds the constants of `layout.register_steps`.
- `d.shared.allocate(bytes, align)` gives an offset in shared memory, `d.shared_pointer(offset)` its
  address; `d.shared.release` lets later ops have it again.
- Before an access to memory that other threads may touch, `d.hazards.read(d, what)` or `.write`
  puts the barrier that it needs (see `sync.py`). `d.barrier()` is a rendezvous of all threads
  that run this code (a named barrier when `d.team` says so: one role of several).

A value without an assigned layout is made where it is used, in the layout that the user wants, by a *producer*:
a function (distributor, op, layout) -> SSA value of the fragment. Constants, splats, index vectors
and broadcasts are made so, and elementwise ops on such operands only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IntAttr, IntegerAttr, VectorType, i1, i32
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import Matrix, ScatteredTile, Tile, plain
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import is_vector
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.upstream.gpu.lanes import ShuffleOp
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.frozen import frozen
from tilewright.layout import Layout
from tilewright.layout.bits import bit_runs
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.memory_objects import memory_space
from tilewright.rules import Rules
from tilewright.targets import kernel_ops
from tilewright.targets.cuda.blocked import replica_bits, thread_coordinates
from tilewright.targets.cuda.ownership import Ownership
from tilewright.targets.cuda.smem import SharedMemory
from tilewright.targets.cuda.sync import Hazards, MemoryRange
from tilewright.targets.kernel_ops import KernelValues
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import LANES

SHARED = 3
"""Address space of shared memory."""
GLOBAL = 1


@frozen
class Fragment:
    """What each thread holds of a tile: `value` is `vector<RxT>`, register r as `layout` says."""

    value: SSAValue
    layout: Layout

    @property
    def element(self) -> Attribute:
        assert isinstance(self.value.type, VectorType)
        return self.value.type.element_type


@frozen
class Team:
    """The threads that run the code being made: warps `first_warp` on, `warps` of them.

    `barrier` is None for a whole workgroup, else the number of the team's named barrier.
    """

    warps: int
    first_warp: int = 0
    barrier: int | None = None

    @property
    def threads(self) -> int:
        return LANES * self.warps


def pointer_in(space: int) -> LLVMPointerType:
    """The type of pointers into an address space."""
    return LLVMPointerType(IntAttr(space))


Rule = Callable[["Distributor", Any], None]
Producer = Callable[["Distributor", Any, Layout], SSAValue]

_RULES = [
    f"tilewright.targets.cuda.{name}"
    for name in (
        *("lower_async_mma", "lower_clusters", "lower_local_stores", "lower_multi_buffers"),
        *("lower_roles", "lower_tma_stores", "rules_bytes", "rules_control", "rules_index"),
        *("rules_memory", "rules_moves", "rules_product", "rules_reduce", "rules_scalar"),
        *("rules_scattered", "rules_values"),
    )
]
rule: Rules[Rule] = Rules(*_RULES, shared=kernel_ops.rule)
"""Rules of ops, by name; the one called `scalar` is that of arithmetic on scalars."""
producer: Rules[Producer] = Rules(*_RULES)
"""What makes the results of ops where they are used, by name; `elementwise` makes those of elementwise ops."""


def producer_of(op: Operation) -> Producer | None:
    """What makes the tile-shaped results of `op` in a layout that is asked for."""
    if (found := producer.of(op.name)) is not None:
        return found
    return producer.of("elementwise") if is_elementwise_on_vectors(op) else None


_Scope = dict[SSAValue, dict[Layout, SSAValue]]
"""The fragments made in a region: forgotten at its end, for they need not dominate what follows."""


class Distributor(KernelValues):
    """See the module's docstring."""

    def __init__(
        self, b: Builder, ownership: Ownership, machine: Machine, shared: SharedMemory, team: Team
    ):
        super().__init__(b)
        self.ownership = ownership
        self.machine = machine
        self.shared = shared
        self.team = team
        self.hazards = Hazards()
        self.result_number = 0
        """Which result of an op with several its producer is asked for, when it begins."""
        self.skipped: set[Operation] = set()
        """Ops whose work is done elsewhere (loads that are copied ahead)."""
        self.in_shared: dict[SSAValue, Any] = {}
        """Operands of products that lie in shared memory (`rules_product.Staged`)."""
        self._env: dict[SSAValue, Any] = {}
        """What scalars, tiles and memrefs of the kernel are."""
        self._scopes: list[_Scope] = [{}]
        self._analyses: dict[gpu.FuncOp, AccessAnalysis] = {}
        # Everything that depends on the thread's number alone stands before this op.
        self._marker: Operation = b.op(arith.ConstantOp.from_int_and_width(0, 1))
        with self.preamble():
            thread = b.value(gpu.ThreadIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
            b.nonnegative.add(thread)
            self.absolute_thread = thread
            first = b.minus(thread, LANES * team.first_warp)
            self.thread: SSAValue = b.idx(first)
            b.nonnegative.add(self.thread)
            self.lane: SSAValue = b.idx(b.rem(self.thread, LANES))
            self.warp: SSAValue = b.idx(b.div(self.thread, LANES))
            self._shared_base: SSAValue = b.value(mach.SharedBaseOp())
            self._programs: dict[tuple[str, str], SSAValue] = {}
        self._linear: dict[tuple[tuple[int, ...], str], Idx] = {}
        self._replicas: dict[tuple[int, int], SSAValue] = {}

    # Where ops go -------------------------------------------------------------------------------

    @contextmanager
    def preamble(self) -> Generator[None]:
        """Ops made inside stand at the start of the function, or of the role (they may use thread ids only)."""
        block = Block()
        with self.b.inside(block):
            yield
        Rewriter.inline_block(block, InsertPoint.before(self._marker))

    @contextmanager
    def scope(self) -> Generator[None]:
        """A region: what is made inside is forgotten at its end."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    def error(self, op: Operation, message: str, hint: str | None = None) -> Exception:
        """The refusal of an op, to be raised."""
        return unsupported(op, message, hint=hint)

    # The walk -----------------------------------------------------------------------------------

    def lower_block(self, block: Block) -> None:
        """All ops of a block but its terminator's own meaning, which the rule around it has."""
        for op in list(block.ops):
            self.lower(op)

    def lower(self, op: Operation) -> None:
        """One op: its rule, or nothing now if its results are made on demand."""
        if op in self.skipped:
            return
        results = [r for r in op.results if is_vector(r)]
        make = producer_of(op)
        if make is not None and results:
            for result in results:
                layout = self.assigned(result)
                if layout is not None:
                    self.result_number = result.index
                    self.set_fragment(result, make(self, op, layout), layout)
            return
        found = rule.of(op.name)
        if found is None and op.name.startswith(("arith.", "math.", "index.")):
            found = rule.of("scalar")
        if found is None:
            raise self.error(op, f"{op.name} is not supported by the cuda target")
        found(self, op)

    def grid_number(self, name: str, axis: str) -> SSAValue:
        if (name, axis) not in self._programs:
            make = gpu.BlockIdOp if name == "gpu.block_id" else gpu.GridDimOp
            with self.preamble():
                made = self.b.value(make(gpu.DimensionAttr(gpu.DimensionEnum(axis))))
            self.b.nonnegative.add(made)
            self._programs[name, axis] = made
        return self._programs[name, axis]

    def fail_unless(self, condition: SSAValue, op: Operation) -> None:
        """An assertion: the launch fails where it does not hold."""
        b = self.b
        failed = b.value(arith.XOrIOp(condition, b.constant(i1, 1)))
        with b.when(failed):
            b.op(mach.InstrOp("nvptx.trap"))

    def finish(self) -> None:
        """The last word: what is known only at the end goes to where it is needed."""
        owner = self._shared_base.owner
        assert isinstance(owner, mach.SharedBaseOp)
        if self._shared_base.first_use is None:
            Rewriter.erase_op(owner)
            return
        owner.properties["alignment"] = IntegerAttr(self.shared.alignment, 64)

    # Scalars, tiles, arrays ---------------------------------------------------------------------

    def scalar(self, value: SSAValue) -> SSAValue:
        return self._env[value]

    def set_scalar(self, value: SSAValue, new: SSAValue) -> None:
        self._env[value] = new

    def tile(self, value: SSAValue) -> Tile | ScatteredTile:
        return self._env[value]

    def set_tile(self, value: SSAValue, tile: Tile | ScatteredTile) -> None:
        self._env[value] = tile

    def matrix(self, value: SSAValue) -> Matrix | None:
        found = self._env.get(value)
        return found if isinstance(found, Matrix) else None

    def set_matrix(self, value: SSAValue, matrix: Matrix) -> None:
        self._env[value] = matrix

    def pointer(self, address: SSAValue) -> SSAValue:
        return self.b.value(mach.PtrFromIntOp(address, pointer_in(GLOBAL)))

    def allocate(self, op: Operation, size: int) -> SSAValue:
        if memory_space(op.results[0]) not in (0, 3, None):
            space = memory_space(op.results[0])
            raise self.error(op, f"there is no memory space {space} on {self.machine.name}")
        offset = self.shared.allocate(size, "an array of the workgroup", op=op)
        self.hazards.reuse(self, MemoryRange(offset, offset + size))
        return self.shared_pointer(offset)

    # Fragments ----------------------------------------------------------------------------------

    def assigned(self, value: SSAValue) -> Layout | None:
        """The layout in which a value is kept; None for one that is made on demand."""
        return self.ownership.assigned_layouts.get(value)

    def is_free(self, value: SSAValue) -> bool:
        return is_vector(value) and self.assigned(value) is None

    def fragment_of(self, value: SSAValue, layout: Layout | None = None) -> Fragment:
        """What a thread holds of `value`, in `layout` (its assigned layout by default)."""
        layout = layout or self.assigned(value)
        if layout is None:
            layout = self.ownership.default(value.type)
        known = self._known(value)
        if (found := known.get(layout)) is not None:
            return Fragment(found, layout)
        if self.is_free(value) and isinstance(value, OpResult):
            make = producer_of(value.op)
            if make is not None:
                self.result_number = value.index
                made = make(self, value.op, layout)
                self._scopes[-1].setdefault(value, {})[layout] = made
                return Fragment(made, layout)
        if not known:
            raise AssertionError(f"{value} has no fragment")
        assigned = self.assigned(value)
        source = assigned if assigned in known else next(iter(known))
        assert source is not None
        converted = self.convert(Fragment(known[source], source), layout)
        self._scopes[-1].setdefault(value, {})[layout] = converted.value
        return converted

    def is_at_hand(self, value: SSAValue, layout: Layout) -> bool:
        """Has a value been brought to a layout before?"""
        return layout in self._known(value)

    def _known(self, value: SSAValue) -> dict[Layout, SSAValue]:
        """The layouts in which a value is at hand."""
        found: dict[Layout, SSAValue] = {}
        for scope in self._scopes:
            found.update(scope.get(value, {}))
        return found

    def set_fragment(self, value: SSAValue, fragment: SSAValue, layout: Layout) -> None:
        """Define a tile-shaped result; it is brought to its assigned layout."""
        assigned = self.assigned(value)
        if assigned is not None and assigned != layout:
            fragment = self.convert(Fragment(fragment, layout), assigned).value
            layout = assigned
        self._scopes[-1][value] = {layout: fragment}

    def fragment_type(self, type: Attribute, layout: Layout) -> VectorType:
        """`vector<RxT>` of a tile type or element type in a layout."""
        element = type.element_type if isinstance(type, VectorType) else type
        return VectorType(plain(element), [layout.registers])  # pyright: ignore[reportArgumentType]

    def convert(self, fragment: Fragment, layout: Layout) -> Fragment:
        """The same tile in another layout."""
        from tilewright.targets.cuda.exchange import convert

        return convert(self, fragment, layout)

    # Registers ----------------------------------------------------------------------------------

    def pick(self, value: SSAValue, registers: Sequence[int]) -> SSAValue:
        """A fragment of some registers of another, in this order."""
        (size,) = value.type.get_shape()  # pyright: ignore
        picked = [int(r) for r in registers]
        if picked == list(range(size)):
            return value
        first = picked[0]
        if picked == list(range(first, first + len(picked))):
            return self.b.value(ExtractStridedSliceOp(value, [first], [len(picked)], [1]))
        return self.b.shuffle(value, value, picked)

    def concatenate(self, parts: Sequence[SSAValue]) -> SSAValue:
        """Fragments one after the other, as one."""
        return parts[0] if len(parts) == 1 else self.b.value(mach.JoinOp(parts))

    # Places -------------------------------------------------------------------------------------

    def from_thread(self, table: Sequence[int], op: str = "add") -> Idx:
        """`table[thread]` as arithmetic on the thread's number; `op` combines its bits (add, xor).

        `table` must be linear in the bits: table[a | b] = table[a] op table[b] for disjoint a, b.
        """
        key = (tuple(int(x) for x in table), op)
        if key in self._linear:
            return self._linear[key]
        runs = bit_runs(key[0])
        with self.preamble():
            b = self.b
            total: Idx = 0
            for low, count, step in runs:
                part: Idx = b.div(self.thread, 1 << low)
                if low + count < (len(key[0]) - 1).bit_length():
                    part = b.rem(part, 1 << count)
                part = b.times(part, step)
                if op == "add" or total == 0:
                    total = b.plus(total, part)
                else:
                    total = b.value(arith.XOrIOp(b.idx(total), b.idx(part)))
                    b.nonnegative.add(total)
        self._linear[key] = total
        return total

    def coordinates(self, layout: Layout) -> list[Idx]:
        """Tile coordinates of this thread's register 0, one per dimension (never negative)."""
        return [self.from_thread(t) for t in thread_coordinates(layout, self.team.warps)]

    def first_replica(self, layout: Layout) -> SSAValue | None:
        """i1: of all threads that hold the same elements this is the first; None if it is alone."""
        return self.replica(layout, 0)

    def replica(self, layout: Layout, number: int) -> SSAValue | None:
        """i1: of all threads that hold the same elements this has a number, modulo how many there are, in other warps
        first; None if it is alone."""
        weights = replica_bits(layout)[::-1]
        if not weights:
            return None
        mask, bits = sum(weights), sum(w for n, w in enumerate(weights) if number >> n & 1)
        if (mask, bits) not in self._replicas:
            with self.preamble():
                kept = self.b.value(arith.AndIOp(self.thread, self.b.idx(mask)))
                self._replicas[mask, bits] = self.b.cmp("eq", kept, bits)
        return self._replicas[mask, bits]

    # Shared memory and synchronisation ----------------------------------------------------------

    def shared_pointer(self, offset: Idx) -> SSAValue:
        """The address so many bytes into the workgroup's shared memory."""
        return self.b.ptr(self._shared_base, offset)

    def analysis_of(self, op: Operation) -> AccessAnalysis:
        """What is known of the accesses of the kernel that an op is in."""
        kernel = enclosing(op, gpu.FuncOp)
        assert kernel is not None
        if kernel not in self._analyses:
            self._analyses[kernel] = AccessAnalysis(kernel)
        return self._analyses[kernel]

    def barrier(self) -> None:
        """All threads of the team meet; what they wrote before is seen by all after."""
        b = self.b
        if self.team.barrier is None:
            b.op(gpu.BarrierOp())
        else:
            which = b.constant(i32, self.team.barrier)
            count = b.constant(i32, self.team.threads)
            b.op(mach.InstrOp("nvptx.bar.sync", [which, count]))
        self.hazards.met()

    def shuffle_xor(self, value: SSAValue, mask: int) -> SSAValue:
        """The fragment of lane `lane ^ mask`."""
        b = self.b
        op = ShuffleOp(value, b.constant(i32, mask), b.constant(i32, LANES), "xor")
        return b.value(op)
