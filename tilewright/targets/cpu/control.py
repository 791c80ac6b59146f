"""Loops and branches with tile-shaped values: scf ops of the kernel -> scf ops of the last stage.

A tile-shaped value that a loop carries or a branch gives lives in one buffer for all iterations and both sides (see
`storage`); only scalars, and what fits registers (see `carried_registers`), are carried as values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.codegen.tiles import rows_cols
from tilewright.dialects.fused import FusedOp
from tilewright.dialects.upstream.arith import folded
from tilewright.passes.control import Parts, convert_for, convert_if, convert_while
from tilewright.targets.cpu.carried_registers import (
    carried_in_registers,
    emit_in_registers,
    lanes_of,
)
from tilewright.targets.cpu.evaluate import Evaluator, Position, Values
from tilewright.targets.cpu.fused import FusedEmitter
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.memory import Buffer, Registers, register_starts
from tilewright.targets.cpu.storage import is_tile


class ControlFlow:
    """The part of a `FunctionContext` that lowers scf ops."""

    b: Builder
    e: Evaluator
    values: Values
    memory_of: Callable[[SSAValue], Buffer]
    buffer: Callable[[Attribute], Buffer]
    copy: Callable[[SSAValue, Buffer], None]
    lower_block: Callable[[Block], None]
    m: CpuMachine
    fused_emitter: Callable[[FusedOp, Sequence[Buffer | None]], FusedEmitter]
    held: dict[SSAValue, int]
    """What loops carry in registers, and of how many elements."""
    held_groups: dict[FusedOp, int]
    """The groups that carry it on, likewise."""
    define: Callable[[SSAValue, SSAValue], None]

    def flatten(self, values: Sequence[SSAValue], places: Sequence[SSAValue]) -> Parts:
        """The scalars that carry values: nothing for a tile-shaped one, which is copied to the place's buffer.

        All buffers are read before any is written, but for those that a loop begins with. What a loop carries in
        registers is these.
        """
        parts = [self._parts(v, p) for v, p in zip(values, places, strict=True)]
        moves = [
            (v, p) for v, p in zip(values, places, strict=True) if is_tile(p) and p not in self.held
        ]
        if moves and self._begins(moves[0][1]):
            for value, place in moves:
                self.copy(value, self.memory_of(place))
            moves = []
        self._move([(value, self.memory_of(place)) for value, place in moves])
        return parts

    def _parts(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        """A scalar itself, the registers of what a loop carries so, nothing of what is in memory."""
        if place not in self.held:
            return [] if is_tile(place) else [self.e.scalar(value)]
        lanes = self.held[place]
        starts = register_starts(rows_cols(place.type), lanes)
        return [self.e.at(value, Position(row, col, 1, lanes)) for row, col in starts]

    def _begins(self, place: SSAValue) -> bool:
        """Is it an argument of a loop that nothing has come to?"""
        if not isinstance(place, BlockArgument) or place in self.values.buffers:
            return False
        loop = place.block.parent_op()
        return loop is not None and place.block is loop.regions[0].block

    def _move(self, moves: Sequence[tuple[SSAValue, Buffer]]) -> None:
        written = {id(buffer) for _, buffer in moves}
        pending: list[tuple[SSAValue, Buffer]] = []
        outside = {value: self.values.buffers.get(value) for value, _ in moves}
        for value, buffer in moves:
            source = self.values.buffers.get(self.values.real(value))
            if source is buffer:
                continue
            if len(moves) > 1 and (source is None or id(source) in written):
                spare = self.buffer(value.type)
                self.copy(value, spare)
                self.values.buffers[value] = spare
            pending.append((value, buffer))
        for value, buffer in pending:
            self.copy(value, buffer)
        # A spare buffer is written on this way only: another branch has to write its own.
        for value, held in outside.items():
            if held is None:
                self.values.buffers.pop(value, None)
            else:
                self.values.buffers[value] = held

    def bind(self, place: SSAValue, parts: Sequence[SSAValue], sample: SSAValue) -> None:
        if place in self.held:
            shape, lanes = rows_cols(place.type), self.held[place]
            if isinstance(place, BlockArgument):
                self.values.registers[place] = Registers(shape[1], lanes, parts)
            elif place.first_use is not None:
                buffer = self.values.buffers[place] = self.memory_of(place)
                for (row, col), part in zip(register_starts(shape, lanes), parts, strict=True):
                    self.b.store(part, buffer.address(self.b, row, col))
        elif is_tile(place):
            self.values.buffers[place] = self.memory_of(place)
        else:
            self.define(place, parts[0])

    def scalar(self, value: SSAValue) -> SSAValue:
        found = self.e.scalar(value)
        return self.b.idx(folded(found)) if isinstance(found.type, IndexType) else found

    @contextmanager
    def region(self, new: Block) -> Generator[None]:
        with self.b.inside(new), self.e.scope():
            yield

    def inner(self, old: Block) -> None:
        self.lower_block(old)

    def build(self, new: Operation, old: Operation) -> None:
        self.b.op(new)

    def lower_scf_for(self, op: scf.ForOp) -> None:
        self.hold(op)
        convert_for(self, op)
        self.e.forget()

    def hold(self, op: scf.ForOp) -> None:
        """Settles what a loop carries in registers."""
        found = carried_in_registers(op, self.m.accumulators * self.m.vector_bytes)
        if found is None:
            return
        emitters = [self.fused_emitter(g, [None] * len(g.results)) for g in found.groups]
        lanes = lanes_of(emitters, found.shape)
        if lanes is not None:
            self.held |= {v: lanes for a in found.args for v in (a, op.results[a.index - 1])}
            self.held_groups |= dict.fromkeys(found.groups, lanes)

    def in_registers(self, op: FusedOp) -> None:
        """Lowers a group that carries on what a loop has in registers."""
        emitter = self.fused_emitter(op, [None] * len(op.results))
        made = emit_in_registers(emitter, self.held_groups[op])
        self.values.registers.update(zip(op.results, made, strict=True))
        self.e.forget()

    def lower_scf_while(self, op: scf.WhileOp) -> None:
        convert_while(self, op)
        self.e.forget()

    def lower_scf_if(self, op: scf.IfOp) -> None:
        convert_if(self, op)
        self.e.forget()
