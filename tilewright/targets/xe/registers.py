"""How many registers a subgroup needs: liveness of a lane program, in general registers (GRF).

A register holds 64 bytes (32 on DG2); a fragment of n components of b bits takes n * b * lanes / 8 bytes. Slices
of a fragment are the same registers; a product writes over its accumulator; a value that all lanes agree on takes
its own bytes only, index arithmetic of a lane nothing (it is done again where it is needed). What the compiler adds
(addresses of messages, headers) is a reserve.

    appendix 1.1, 32x64 of C per subgroup, k 32: C 128 + A 32 + B 64 = 224 of 256
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.targets.xe.building import bits_of, count_of, element_of
from tilewright.targets.xe.forms import LARGE, SMALL
from tilewright.targets.xe.lower import integer
from tilewright.uarch.xe import XeMachine

RESERVE = 16
"""Registers that the compiler needs for itself: thread header, addresses of messages on their way, temporaries. Found
by compiling: 238 registers of data fit into 256, 241 did not."""

_VIEWS = (
    "vector.extract_strided_slice",
    "vector.extract",
    "vector.shape_cast",
    "vector.bitcast",
    "xegpu.convert_layout",
    "builtin.unrealized_conversion_cast",
)
_VARYING = (
    "gpu.lane_id",
    "gpu.thread_id",
    "gpu.global_id",
    "xegpu.load",
    "xegpu.load_matrix",
    "xegpu.load_nd",
    "xegpu.atomic_rmw",
    "xegpu.dpas",
    "gpu.shuffle",
)


@dataclass(frozen=True)
class Pressure:
    """The fullest point of a kernel: registers, where it is, and the largest values that live there."""

    registers: int
    op: Operation | None
    largest: tuple[tuple[str, int], ...]
    """(type, registers of all live values of it), most first."""
    addresses: int = 0
    """Registers that addresses of a loop's scattered loads may take besides: compilers keep them over the loop."""


class _Liveness:
    def __init__(self, lanes: int, grf_bytes: int):
        self.lanes, self.grf_bytes = lanes, grf_bytes
        self.varies: set[SSAValue] = set()
        self.roots: dict[SSAValue, SSAValue] = {}
        self.best = 0
        self.where: Operation | None = None
        self.live: frozenset[SSAValue] = frozenset()
        self.bytes: dict[SSAValue, int] = {}

    def root(self, value: SSAValue) -> SSAValue:
        """The value whose registers hold this one."""
        return self.roots.get(value, value)

    def prepare(self, block: Block) -> None:
        for op in block.ops:
            if op.name in _VIEWS and op.operands and isinstance(op.operands[0].type, VectorType):
                self.roots[op.results[0]] = self.root(op.operands[0])
            varying = op.name in _VARYING or any(v in self.varies for v in op.operands)
            for region in op.regions:
                for inner in region.blocks:
                    if varying:
                        self.varies.update(inner.args)
                    self.prepare(inner)
            if varying:
                self.varies.update(op.results)

    def size(self, value: SSAValue) -> int:
        """Bytes of registers of a subgroup."""
        found = self.bytes.get(value)
        if found is None:
            found = self.bytes[value] = self._size(value)
        return found

    def _size(self, value: SSAValue) -> int:
        type: Attribute = value.type
        owner = value.owner
        if isinstance(owner, arith.ConstantOp) or isinstance(type, MemRefType):
            return 0
        if type.name.startswith("xegpu.") or type.name == "none":
            return 0
        try:
            bits = bits_of(element_of(type))
        except AssertionError:
            return 8
        if not isinstance(type, VectorType) and value not in self.varies:
            return bits // 8
        if not isinstance(type, VectorType) and _again(value):
            return 0
        return count_of(type) * bits * self.lanes // 8

    def note(self, op: Operation, live: set[SSAValue]) -> None:
        total = sum(self.size(v) for v in live)
        if total >= self.best:  # the first of several such points: blocks are walked backwards
            self.best, self.where, self.live = total, op, frozenset(live)

    def scan(self, block: Block, after: set[SSAValue]) -> set[SSAValue]:
        """What is live before a block, given what is live behind it."""
        live = set(after)
        for op in reversed(list(block.ops)):
            self.note(op, live | {self.root(r) for r in op.results})
            for result in op.results:
                if result not in self.roots:
                    live.discard(result)
            for region in op.regions:
                for inner in region.blocks:
                    live |= self._inside(inner, live)
            live.update(self.root(v) for v in op.operands)
            self.note(op, live)
        live.difference_update(block.args)
        return live

    def _inside(self, block: Block, after: set[SSAValue]) -> set[SSAValue]:
        """A loop's body or a branch: what it uses of outside lives as long as it does."""
        free = {
            self.root(v)
            for op in block.walk()
            for v in op.operands
            if not _within(self.root(v), block)
        }
        self.scan(block, after | free)
        return free


def _again(value: SSAValue) -> bool:
    """Is a lane's scalar arithmetic on numbers, which costs less to do again than to keep?"""
    owner = value.owner
    return isinstance(owner, Operation) and owner.name.partition(".")[0] in (
        "arith",
        "gpu",
        "index",
    )


def _within(value: SSAValue, block: Block) -> bool:
    owner: Block | None = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while owner is not None:
        if owner is block:
            return True
        parent = owner.parent_op()
        owner = None if parent is None else parent.parent
    return False


def pressure(kernel: gpu.FuncOp, machine: XeMachine) -> Pressure:
    """The fullest point of a lane program."""
    lanes = integer(kernel, "tilewright.lanes", machine.matrix[0].n[0])
    liveness = _Liveness(lanes, machine.grf_bytes)
    block = kernel.body.blocks[0]
    liveness.prepare(block)
    liveness.scan(block, set())
    groups: dict[str, int] = {}
    for value in liveness.live:
        groups[str(value.type)] = groups.get(str(value.type), 0) + liveness.size(value)
    largest = sorted(groups.items(), key=lambda item: -item[1])[:3]
    size = machine.grf_bytes
    return Pressure(
        -(-liveness.best // size),
        liveness.where,
        tuple((name, -(-bytes // size)) for name, bytes in largest),
        _addresses(kernel) * lanes * 4 // size,
    )


def _addresses(kernel: gpu.FuncOp) -> int:
    """Scattered loads of global memory in the loop that has most."""
    most = 0
    for op in kernel.walk():
        if op.name == "scf.for":
            most = max(most, sum(inner.name == "xegpu.load" for inner in op.walk()))
    return most


def choose_mode(kernel: gpu.FuncOp, machine: XeMachine) -> tuple[int, Pressure]:
    """Registers per thread that the kernel is compiled with, 128 or 256.

    `tilewright.grf` on the kernel asks for one. Raises UnsupportedError for a kernel that fits neither, with the
    numbers and what to change.
    """
    found = pressure(kernel, machine)
    need = found.registers + RESERVE
    subgroups = integer(kernel, "tilewright.subgroups", 1)
    most = LARGE
    large = machine.limits.get("subgroups_large_grf")
    crowded = large is not None and large.fault(subgroups) is not None
    if crowded:
        most = SMALL
    asked = integer(kernel, "tilewright.grf", 0)
    if asked not in (0, SMALL, LARGE):
        raise error_at(
            kernel, f"a thread has 128 or 256 registers, not {asked}", kind=UnsupportedError
        )
    if asked == LARGE and crowded:
        machine.require("the kernel", "subgroups_large_grf", subgroups)
    mode = asked or (SMALL if need + found.addresses <= SMALL else most)
    if need <= mode:
        return mode, found
    parts = ", ".join(f"{n} of {name}" for name, n in found.largest)
    why = f" with {subgroups} subgroups in a workgroup" if crowded and mode == SMALL else ""
    product = next((op for op in kernel.walk() if op.name == "xegpu.dpas"), found.op)
    raise error_at(
        product or kernel,
        f"a subgroup would need {need} registers here ({parts}, {RESERVE} for addresses), {machine.name} has "
        f"{mode}{why}: it would spill",
        hint="give a subgroup a smaller tile: smaller sg_data, more subgroups, or a smaller workgroup tile",
        kind=UnsupportedError,
    )
