"""How many registers a subgroup needs: liveness of a lane program, in general registers (GRF).

A register holds 64 bytes (32 on DG2); a fragment of n components of b bits takes n * b * lanes / 8 bytes. Slices
of a fragment are the same registers; a product writes over its accumulator; a value that all lanes agree on takes
its own bytes only, index arithmetic of a lane nothing (it is done again where it is needed). What the compiler adds
(addresses of messages, headers) is a reserve.

    appendix 1.1, 32x64 of C per subgroup, k 32: C 128 + A 32 + B 64 = 224 of 256
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects import arith, gpu, scf, vector
from xdsl.dialects.builtin import AnyFloat, IntegerType, UnknownLoc, VectorType, i1
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import ELEMENTS, numbered, shape_of
from tilewright.dialects.nesting import ops_around
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.frozen import frozen
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.kernel import SPILLS, integer, subgroups_of
from tilewright.passes.memory_objects import may_alias, memory_root
from tilewright.targets.xe.building import bits_of, element_of
from tilewright.targets.xe.forms import LARGE, SMALL
from tilewright.targets.xe.liveness import Liveness
from tilewright.uarch.base import Limit
from tilewright.uarch.xe import XeMachine

RESERVE = 16
"""Registers that the compiler needs for itself: thread header, addresses of messages on their way, temporaries. Found
by compiling: 238 registers of data fit into 256, 241 did not."""
APART = 8
"""One register in so many is lost where arithmetic holds components one by one: the holes between them are too short
for products. Found by compiling: 200 registers, 152 of them apart, fit into 256; 224 with 176 did not."""

SMALLER = (
    "give a subgroup a smaller tile: smaller sg_data, more subgroups, or a smaller workgroup tile"
)

SEEN = 160
"""Registers of 256 from which on kernels whose order is not the program's, or whose lanes load single elements, were
seen to spill though the count fits; and so many exchanged by shuffles, with half of the registers in use. Kernels of
block loads and products in the order of the program were not."""


class TooManyRegisters(UnsupportedError):
    """A kernel whose subgroups hold more than the registers of a thread."""

    over: float = 2.0
    """How many times the registers are too few."""
    missing: int = 0
    """Registers that a thread would need besides."""
    at_least: bool = False
    """Whether that counts what is held whole only."""
    held: Sequence[tuple[Attribute, int]] = ()
    """Places of the program, and bytes of a subgroup that what is made there takes at the fullest point; most first."""


@frozen
class Pressure:
    """The fullest point of a kernel: registers, where it is, and the largest values that live there."""

    registers: int
    op: Operation | None
    largest: tuple[tuple[str, int], ...]
    """(type, registers of all live values of it), most first."""
    apart: int = 0
    """Registers of them whose values arithmetic holds component by component."""
    addresses: int = 0
    """Registers that addresses of a loop's scattered loads may take besides, with which the mode is chosen."""
    kept: int = 0
    """Those of them that compilers keep over the loop: not of ragged blocks."""
    held: tuple[tuple[Attribute, int], ...] = ()
    """Of `TooManyRegisters`."""
    exchanged: int = 0
    """Registers that lanes read of one another, everywhere in the kernel: compilers need more of them for that."""
    lives: Liveness | None = None
    """Of which that was read, as long as the order is changed only."""

    @property
    def reserve(self) -> int:
        """Registers that the compiler needs besides."""
        return RESERVE + self.apart // APART


def lanes_of(kernel: gpu.FuncOp, machine: XeMachine) -> int:
    """Lanes of a subgroup of a kernel."""
    return integer(kernel, LANES, machine.lanes)


def liveness_of(kernel: gpu.FuncOp, lanes: int) -> Liveness:
    """What lives in a lane program."""
    found = Liveness(kernel.body.blocks[0], lanes)
    found.count()
    return found


def pressure(kernel: gpu.FuncOp, machine: XeMachine, counted: Liveness | None = None) -> Pressure:
    """The fullest point of a lane program; `counted`: what lives in it, where that is known."""
    lanes = lanes_of(kernel, machine)
    liveness = counted or liveness_of(kernel, lanes)
    groups: Counter[str] = Counter()
    places: Counter[Attribute] = Counter()
    for value in liveness.live:
        groups[str(value.type)] += liveness.size(value)
        places[_place(value)] += liveness.size(value)
    largest = groups.most_common(3)
    size = machine.grf_bytes
    addresses, kept = _addresses(kernel)
    return Pressure(
        -(-liveness.best // size),
        liveness.where,
        tuple((name, -(-bytes // size)) for name, bytes in largest),
        sum(liveness.size(v) for v in liveness.live if liveness.is_apart(v)) // size,
        addresses * lanes * 4 // size,
        kept * lanes * 4 // size,
        tuple(places.most_common(3)),
        sum(liveness.size(op.results[0]) for op in kernel.walk() if op.name == "gpu.shuffle")
        // size,
        liveness,
    )


def _place(value: SSAValue) -> Attribute:
    """Where the program makes a value; of what a loop carries, where its first value is made."""
    while isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        if not isinstance(loop, scf.ForOp) or value.index == 0:
            return loop.location if loop is not None else UnknownLoc()
        value = loop.iter_args[value.index - 1]
    assert isinstance(value.owner, Operation)
    return value.owner.location


def _addresses(kernel: gpu.FuncOp) -> tuple[int, int]:
    """Scattered loads of global memory in the loop that has most; and without those of ragged blocks, whose addresses
    stay in their branch."""
    found: dict[Operation, list[int]] = {}
    for load in [op for op in kernel.walk() if op.name == "xegpu.load"]:
        kept = 1
        for parent in ops_around(load):
            kept &= parent.name != "scf.if"
            if parent.name == "scf.for":
                counts = found.setdefault(parent, [0, 0])
                counts[0] += 1
                counts[1] += kept
    return max([c[0] for c in found.values()], default=0), max(
        [c[1] for c in found.values()], default=0
    )


def risk(found: Pressure, mode: int, natural: int, size: int) -> str | None:
    """Why a kernel spills, or may spill though it fits by the count, and what to change; None where none was seen to.

    `natural`: registers that it would need in the order of the program; `size`: bytes of one.
    """
    need = found.registers + found.reserve
    if need > mode:
        return (
            f"a subgroup would need {need} and has {mode}: about {(need - mode) * size} bytes per thread spill to "
            f"memory; {SMALLER}, and --emit report asks the offline compiler"
        )
    single = found.registers + found.kept > mode
    if exchanges(found, mode):
        return (
            f"{found.registers} registers of data in {mode}, and {found.exchanged} that lanes exchange by shuffles: "
            "such kernels were seen to spill; layouts that leave elements with their lanes avoid it, and --emit "
            "report asks the offline compiler"
        )
    if found.registers * LARGE < SEEN * mode or not (single or natural > mode):
        return None
    what = f" and about {found.kept} of addresses of single elements" if single else ""
    rows = ", or rows of a multiple of 16 bytes, which block messages can load," if single else ""
    return (
        f"{found.registers} registers of data{what} in {mode}: such kernels were seen to spill from "
        f"{SEEN * mode // LARGE} on; smaller subgroup tiles{rows} avoid it, and --emit report asks the offline compiler"
    )


def exchanges(found: Pressure, mode: int = LARGE) -> bool:
    """Do lanes exchange so much, beside what lives, that compilers were seen to spill?"""
    return found.exchanged >= SEEN and found.registers >= mode // 2


def refuse_whole(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Refuses a subgroup's program that must hold more than a thread has registers for, whatever its order and however
    small its fragments, before it is split: what a loop carries, and what is read again behind the reduction of all of
    it, besides the RESERVE. Where it may spill, and of copies, more than registers and scratch memory hold."""
    most_in_thread = most_registers(kernel, machine)
    scratch = machine.limits["scratch"].most or 0
    for op in kernel.walk():
        most = most_in_thread
        if SPILLS in kernel.attributes or isinstance(op, xegpu.StoreNdOp):
            most += scratch // machine.grf_bytes
        if isinstance(op, scf.ForOp):
            held, what = (
                [(v, _bytes(v)) for v in op.iter_args],
                "carry {} registers through this loop",
            )
        elif isinstance(op, MultiReductionOp):
            held, what = (
                _read_again(op),
                "hold {} registers of values that are reduced here and read again afterwards",
            )
        elif isinstance(op, xegpu.StoreNdOp):
            held, what = (
                _loaded_before(kernel, op),
                "hold {} registers of what is loaded before any of it is stored, for the arrays may overlap",
            )
        else:
            continue
        need = sum(size for _, size in held) // machine.grf_bytes
        if need + RESERVE <= most:
            continue
        value, large = max(held, key=lambda each: each[1])
        error = error_at(
            op,
            f"a subgroup would {what.format(need)}, {large // machine.grf_bytes} of them in one {value.type}; "
            f"{machine.name} has {most_in_thread}, {RESERVE} of them for addresses and moves",
            hint=SMALLER,
            rule=machine.fault(
                "the kernel", "scratch", (need + RESERVE - most_in_thread) * machine.grf_bytes
            ),
            kind=TooManyRegisters,
        )
        assert isinstance(error, TooManyRegisters)
        error.over, error.at_least = (need + RESERVE) / most_in_thread, True
        error.missing = need + RESERVE - most_in_thread
        error.held = Counter({_place(v): size for v, size in held}).most_common(3)
        raise error


def _bytes(value: SSAValue) -> int:
    """Of a subgroup; numbers, masks and indices, which may be made again, are nothing."""
    kind = value.type
    if not isinstance(kind, VectorType) or not isinstance(
        kind.element_type, AnyFloat | IntegerType
    ):
        return 0
    return 0 if kind.element_type == i1 else kind.element_count() * bits_of(kind.element_type) // 8


def _read_again(op: MultiReductionOp) -> list[tuple[SSAValue, int]]:
    """What a reduction of rows waits for and what waits for the reduction reads: values of the same block and shape,
    and the bytes of one row. What is widened from another value counts as that one, repeated numbers not at all."""
    source = op.source.type
    after = reached(op.results, lambda v: [r for use in v.uses for r in use.operation.results])
    before = reached([op.source], lambda v: operands_of(v, op.parent_block()))
    rows = prod(n for dim, n in enumerate(source.get_shape()) if dim not in op.dims)
    held: list[tuple[SSAValue, int]] = []
    for value in before:
        owner, kind = value.owner, value.type
        if not isinstance(kind, VectorType) or kind.get_shape() != source.get_shape():
            continue
        if isinstance(owner, vector.BroadcastOp | arith.ConstantOp):
            continue
        again = (use.operation for use in value.uses)  # behind the reduction, if they read of it
        if any(each in after for user in again for each in user.operands):
            narrow = owner.operands[0] if isinstance(owner, arith.ExtFOp) else value
            held.append((value, min(_bytes(value), _bytes(narrow)) // rows))
    return held


def _loaded_before(kernel: gpu.FuncOp, op: xegpu.StoreNdOp) -> list[tuple[SSAValue, int]]:
    """What must have been loaded before the first part is stored: blocks of an array that may overlap the one stored
    to, each element of which makes one stored; and the fewest bytes that these have on their way. What arithmetic
    makes of several is held apart."""
    there = _array(op)
    loads: set[Operation] = set()
    for load in kernel.walk() if there is not None else ():
        here = _array(load) if isinstance(load, xegpu.LoadNdOp) else None
        if here is not None and here is not there and may_alias(here, there):
            loads.add(load)
    found: dict[SSAValue, dict[SSAValue, int]] = {}
    """Of a value: the blocks, and their bytes."""

    def held(value: SSAValue, made_of: Sequence[SSAValue]) -> dict[SSAValue, int]:
        owner = value.owner
        if isinstance(owner, xegpu.LoadNdOp):
            return {value: _bytes(value)} if owner in loads else {}
        parts = [found[v] for v in made_of]
        blocks: dict[SSAValue, int] = {}
        for part in sorted(parts, key=lambda part: -sum(part.values())):
            if blocks.keys().isdisjoint(part):  # others may be made of what these are made of
                blocks |= part
        most = _bytes(value)
        if most and isinstance(owner, Operation) and is_elementwise_on_vectors(owner):
            # Shorter ones may be packed into words, which lie side by side.
            most += most // APART if bits_of(element_of(value.type)) >= 32 else 0
        return _within(blocks, most)

    work = [(op.value, _made_of(op.value))] if loads else []
    while work:
        value, made_of = work[-1]
        if missing := [v for v in made_of if v not in found]:
            work += [(v, _made_of(v)) for v in missing]
        else:
            found[value] = held(*work.pop())
    return list(found.get(op.value, {}).items())


def _made_of(value: SSAValue) -> list[SSAValue]:
    """Values each element of which makes one of this value."""
    owner, shape = value.owner, shape_of(value)
    if not isinstance(owner, Operation) or not shape:
        return []
    if is_elementwise_on_vectors(owner):
        return [v for v in owner.operands if shape_of(v) == shape]
    if owner.name not in ELEMENTS or sum(map(_count, owner.operands)) != _count(value):
        return []
    return list(owner.operands) if np.bincount(numbered(owner)[0].ravel()).max() == 1 else []


def _count(value: SSAValue) -> int:
    return prod(shape_of(value) or ())


def _within(blocks: dict[SSAValue, int], most: int) -> dict[SSAValue, int]:
    """Blocks of which no more than so many bytes are held."""
    all_bytes = sum(blocks.values())
    return {v: n * most // all_bytes for v, n in blocks.items()} if all_bytes > most else blocks


def _array(op: xegpu.LoadNdOp | xegpu.StoreNdOp) -> SSAValue | None:
    """What a block is of; None where that is not said next to it."""
    made = op.operands[op.tdesc_operand].owner
    return memory_root(made.source) if isinstance(made, xegpu.CreateNdDescOp) else None


def _more(need: int, asked: int, crowd: Limit | None) -> str:
    """What to change for a mode with more registers, where that has enough."""
    if need <= LARGE and crowd is not None:
        return f"workgroups of at most {crowd.most} subgroups may have {LARGE} registers a thread; or {SMALLER}"
    if need <= LARGE and asked == SMALL:
        return f"without tilewright.grf = {SMALL} a thread has {LARGE}; or {SMALLER}"
    return SMALLER


def _crowded(kernel: gpu.FuncOp, machine: XeMachine) -> tuple[Limit | None, int]:
    """The limit of a workgroup's subgroups beyond which a thread has no more than 128 registers, where the kernel is
    beyond it; and the registers that a thread may have."""
    limit = machine.limits.get("subgroups_large_grf")
    if limit is None or limit.fault(subgroups_of(kernel)) is None:
        return None, LARGE
    return limit, SMALL


def most_registers(kernel: gpu.FuncOp, machine: XeMachine) -> int:
    """The registers that a thread may have."""
    return _crowded(kernel, machine)[1]


def given_back(found: Pressure, registers: int, machine: XeMachine) -> int:
    """Registers that block loads hold at the fullest point beyond so many each."""
    assert found.lives is not None
    sizes = (
        found.lives.size(value) // machine.grf_bytes
        for value in found.lives.live
        if isinstance(value.owner, xegpu.LoadNdOp)
    )
    return sum(max(0, size - registers) for size in sizes)


def choose_mode(
    kernel: gpu.FuncOp, machine: XeMachine, found: Pressure, before: int = 0, spills: bool = False
) -> int:
    """Registers per thread that the kernel is compiled with, 128 or 256.

    `found`: its pressure. `before`: what it would have needed in the order of the program. Compilers undo part of a
    new order, by moving arithmetic to its user: a kernel that fits 128 in the new order only gets 256 where it may, and
    so does one that would not fit them if what arithmetic holds apart counted twice.
    `tilewright.grf` on the kernel asks for one. Raises TooManyRegisters for a kernel that fits neither, with the
    numbers and what to change; with `spills` only where scratch memory does not hold the rest.
    """
    need = found.registers + found.reserve
    subgroups = subgroups_of(kernel)
    crowd, most = _crowded(kernel, machine)
    asked = integer(kernel, "tilewright.grf", 0)
    if asked not in (0, SMALL, LARGE):
        raise unsupported(kernel, f"a thread has 128 or 256 registers, not {asked}")
    if asked == LARGE and crowd is not None:
        machine.require("the kernel", "subgroups_large_grf", subgroups)
    mode = asked or (SMALL if max(need, before) + found.apart + found.addresses <= SMALL else most)
    rest = machine.fault("the kernel", "scratch", (need - mode) * machine.grf_bytes)
    if need <= mode or (spills and rest is None):
        return mode
    parts = ", ".join(f"{n} of {name}" for name, n in found.largest)
    why = (
        f" with {subgroups} subgroups in a workgroup" if crowd is not None and mode == SMALL else ""
    )
    product = next((op for op in kernel.walk() if op.name == "xegpu.dpas"), found.op)
    error = error_at(
        product or kernel,
        f"a subgroup would need {need} registers here ({parts}, {found.reserve} for addresses and moves), "
        f"{machine.name} has {mode}{why}: it would spill",
        hint=_more(need, asked, crowd),
        rule=rest,
        kind=TooManyRegisters,
    )
    assert isinstance(error, TooManyRegisters)
    error.over, error.missing = need / mode, need - mode
    error.held = found.held
    raise error
