"""Loops and branches with tile-shaped values: scf ops of the kernel -> scf ops of the last stage.

A tile-shaped value that a loop carries or a branch gives lives in one buffer for all iterations and both sides (see
`storage`); only scalars, and the offsets of tiles, are carried as values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.arith import folded
from tilewright.targets.cpu.evaluate import Evaluator, Values
from tilewright.targets.cpu.memory import Buffer, ScatteredTile, Tile
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

    def flatten(self, value: SSAValue) -> list[SSAValue]:
        """The scalars that carry a value through a loop: itself, or what may change of a tile."""
        if isinstance(value.type, xt.TileType):
            tile = self.values.tiles[self.values.real(value)]
            if isinstance(tile, ScatteredTile):
                raise error_at(
                    value,
                    "a scattered tile cannot be carried by a loop here",
                    kind=UnsupportedError,
                    hint="carry its offsets and init the tile inside the loop",
                )
            return [tile.pointer, *(self.b.idx(x) for x in tile.state())]
        return [self.e.scalar(value)]

    def bind(self, value: SSAValue, like: SSAValue, carried: list[SSAValue]) -> None:
        """Let `value` (of the kind of `like`) be what its scalars say."""
        if isinstance(value.type, xt.TileType):
            tile = self.values.tiles[self.values.real(like)]
            assert isinstance(tile, Tile)
            state: list[Idx] = []
            for i, (old, new) in enumerate(zip(tile.state(), carried[1:7], strict=True)):
                unit_stride = i >= 4 and isinstance(old, int) and old == 1
                state.append(old if unit_stride else new)
            self.values.tiles[value] = tile.with_state(carried[0], state)
            del carried[:7]
        else:
            self.values.scalars[value] = carried.pop(0)

    def carry_in(self, inits: Sequence[SSAValue], args: Sequence[SSAValue]) -> list[SSAValue]:
        """Copy tile-shaped initial values to their buffers; the scalars of the others."""
        flat: list[SSAValue] = []
        for init, arg in zip(inits, args, strict=True):
            if is_tile(arg):
                buffer = self.memory_of(arg)
                self.copy(init, buffer)
                self.values.buffers[arg] = buffer
            else:
                flat += self.flatten(init)
        return flat

    def carry_out(self, values: Sequence[SSAValue], targets: Sequence[SSAValue]) -> list[SSAValue]:
        """The same for the values at the end of an iteration; all are read before any is written."""
        flat: list[SSAValue] = []
        moves: list[tuple[SSAValue, Buffer]] = []
        for value, target in zip(values, targets, strict=True):
            if is_tile(target):
                moves.append((value, self.memory_of(target)))
            else:
                flat += self.flatten(value)
        written = {id(buffer) for _, buffer in moves}
        pending: list[tuple[SSAValue, Buffer]] = []
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
        return flat

    def lower_scf_for(self, op: scf.ForOp) -> None:
        b = self.b
        body = op.body.block
        carry = self.carry_in(op.iter_args, body.args[1:])
        lo, hi, step = (folded(self.e.scalar(v)) for v in (op.lb, op.ub, op.step))
        last = body.last_op
        assert last is not None
        with b.loop(lo, hi, step, carry) as loop, self.e.scope():
            self.values.scalars[body.args[0]] = loop.iv
            carried = list(loop.carried)
            for init, arg in zip(op.iter_args, body.args[1:], strict=True):
                if not is_tile(arg):
                    self.bind(arg, init, carried)
            self.lower_block(body)
            loop.out = self.carry_out(last.operands, body.args[1:])
        results = list(loop.results)
        for init, result in zip(op.iter_args, op.results, strict=True):
            if is_tile(result):
                self.values.buffers[result] = self.memory_of(result)
            else:
                self.bind(result, init, results)
        self.e.forget()

    def lower_scf_while(self, op: scf.WhileOp) -> None:
        b = self.b
        before, after = op.before_region.block, op.after_region.block
        carry = self.carry_in(op.arguments, before.args)
        new_before = Block(arg_types=[v.type for v in carry])
        with b.inside(new_before), self.e.scope():
            carried: list[SSAValue] = list(new_before.args)
            for init, arg in zip(op.arguments, before.args, strict=True):
                if not is_tile(arg):
                    self.bind(arg, init, carried)
            self.lower_block(before)
            condition = before.last_op
            assert isinstance(condition, scf.ConditionOp)
            passed = self.carry_out(condition.operands[1:], after.args)
            b.op(scf.ConditionOp(self.e.scalar(condition.operands[0]), *passed))
        new_after = Block(arg_types=[v.type for v in passed])
        with b.inside(new_after), self.e.scope():
            carried: list[SSAValue] = list(new_after.args)
            for source, arg in zip(condition.operands[1:], after.args, strict=True):
                if is_tile(arg):
                    self.values.buffers[arg] = self.memory_of(arg)
                else:
                    self.bind(arg, source, carried)
            self.lower_block(after)
            last = after.last_op
            assert last is not None
            b.op(scf.YieldOp(*self.carry_out(last.operands, before.args)))
        new = scf.WhileOp(carry, [v.type for v in passed], Region(new_before), Region(new_after))
        b.op(new)
        results: list[SSAValue] = list(new.results)
        for source, result in zip(condition.operands[1:], op.results, strict=True):
            if is_tile(result):
                self.values.buffers[result] = self.memory_of(result)
            else:
                self.bind(result, source, results)
        self.e.forget()

    def lower_scf_if(self, op: scf.IfOp) -> None:
        b = self.b
        condition = self.e.scalar(op.cond)
        blocks: list[Block] = []
        types: list[Attribute] = []
        for region in op.regions:
            new = Block()
            flat: list[SSAValue] = []
            with b.inside(new), self.e.scope():
                if region.blocks:
                    self.lower_block(region.block)
                    last = region.block.last_op
                    assert last is not None
                    flat = self.carry_out(last.operands, op.results)
                    types = [v.type for v in flat] or types
                b.op(scf.YieldOp(*flat))
            blocks.append(new)
        results = list(b.if_else(condition, blocks[0], blocks[1], types))
        first = op.true_region.block.last_op
        assert first is not None
        for source, result in zip(first.operands, op.results, strict=True):
            if is_tile(result):
                self.values.buffers[result] = self.memory_of(result)
            else:
                self.bind(result, source, results)
        self.e.forget()
