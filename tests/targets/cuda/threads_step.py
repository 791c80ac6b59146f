"""All threads of a workgroup in step: every op of the last stage on one row of values per thread.

Values are rows as in the reference executor (one per thread, or one for all), so its meanings of arith,
math and vector are used; instructions have their own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tests.targets.cuda.threads_memory import GLOBAL_BASE, SHARED_BASE, Memory, Race, unsigned
from tilewright.codegen.instructions import table
from tilewright.printed import number
from tilewright.reference import numerics
from tilewright.reference.registry import MEANINGS, load_meanings
from tilewright.targets.cuda.lowered import Lowered

Array = Any


class Threads:
    def __init__(
        self,
        lowered: Lowered,
        memory: Memory,
        grid: tuple[int, int, int],
        program: tuple[int, int, int],
    ):
        load_meanings()
        self.lowered = lowered
        self.memory = memory
        self.n = lowered.threads
        self.grid = grid
        self.program = program
        self.values: dict[SSAValue, Array] = {}
        machine = SimpleNamespace(constants={})
        self.site = SimpleNamespace(machine=machine, count=self.n, checking=False)
        self.active = np.ones(self.n, bool)

    # Memory --------------------------------------------------------------------------------------

    def _span(self, address: Array, size: int, on: Array) -> Array:
        spots = address[:, None] + np.arange(size)
        low = spots[on]
        if low.size and (low.min() < SHARED_BASE or low.max() >= len(self.memory.bytes)):
            raise AssertionError(f"wild access at {low.min():#x}..{low.max():#x}")
        return spots

    def load(self, address: Array, size: int, on: Array) -> Array:
        m = self.memory
        spots = self._span(address, size, on)
        out = np.zeros((self.n, size), np.uint8)
        if not on.any():
            return out
        who = np.broadcast_to(np.arange(self.n)[:, None], spots.shape)[on]
        s = spots[on]
        if not m.valid[s].all():
            bad = s[~m.valid[s]].flat[0]
            raise AssertionError(f"reads {bad:#x}, which nothing wrote")
        raced = (m.wrote[s] == m.epoch) & (m.writer[s] != who)
        if raced.any():
            raise Race(f"thread {who[raced].flat[0]} reads what another wrote in the same interval")
        again = m.read[s] == m.epoch
        m.reader[s] = np.where(again & (m.reader[s] != who), -2, who)
        m.read[s] = m.epoch
        out[on] = m.bytes[s]
        return out

    def store(self, address: Array, data: Array, on: Array) -> None:
        m = self.memory
        size = data.shape[1]
        spots = self._span(address, size, on)
        if not on.any():
            return
        who = np.broadcast_to(np.arange(self.n)[:, None], spots.shape)[on]
        s, d = spots[on], data[on]
        raced = (m.read[s] == m.epoch) & (m.reader[s] != who)
        if raced.any():
            raise Race(f"thread {who[raced].flat[0]} writes what another read in the same interval")
        # Equal values may be written by several threads.
        other = (m.wrote[s] == m.epoch) & (m.writer[s] != who) & (m.bytes[s] != d)
        if other.any():
            raise Race("two threads write different values to one place in the same interval")
        m.bytes[s] = d
        m.valid[s] = True
        m.wrote[s] = m.epoch
        m.writer[s] = who
        if not np.array_equal(m.bytes[s], d):
            raise Race("two threads of one access write different values to one place")

    # Values --------------------------------------------------------------------------------------

    def get(self, v: SSAValue) -> Array:
        return self.values[v]

    def rows(self, v: SSAValue) -> Array:
        x = self.values[v]
        return np.broadcast_to(x, (self.n, *x.shape[1:]))

    def run(self) -> None:
        function = next(op for op in self.lowered.module.walk() if op.name == "func.func")
        self.block(function.regions[0].blocks[0])

    def block(self, block: Block) -> Operation:
        last = block.last_op
        assert last is not None
        for op in block.ops:
            if op is last:
                break
            self.op(op)
        return last

    def op(self, op: Operation) -> None:
        method = getattr(self, "op_" + op.name.replace(".", "_"), None)
        if method is not None:
            method(op)
            return
        operands = [self.get(v) for v in op.operands]
        count = max([x.shape[0] for x in operands], default=1)
        self.site.count = count
        with np.errstate(all="ignore"):
            out = MEANINGS[op.name](self.site, op, *operands)
        results = out if isinstance(out, tuple) else (out,)
        for r, x in zip(op.results, results, strict=True):
            self.values[r] = x

    def dtype(self, type: Attribute) -> np.dtype:
        return numerics.numpy_type(type.element_type if isinstance(type, VectorType) else type)

    # Ids -----------------------------------------------------------------------------------------

    def op_gpu_thread_id(self, op: Operation) -> None:
        self.values[op.results[0]] = np.arange(self.n, dtype=np.int64)

    def op_gpu_block_id(self, op: Any) -> None:
        axis = "xyz".index(str(op.dimension.data))
        self.values[op.results[0]] = np.array([self.program[axis]], np.int64)

    def op_gpu_grid_dim(self, op: Any) -> None:
        axis = "xyz".index(str(op.dimension.data))
        self.values[op.results[0]] = np.array([self.grid[axis]], np.int64)

    def op_gpu_barrier(self, op: Operation) -> None:
        assert self.active.all(), "a barrier that not all threads reach"
        self.memory.epoch += 1

    def op_gpu_shuffle(self, op: Any) -> None:
        x = self.rows(op.operands[0])
        mask = int(self.get(op.operands[1])[0])
        assert self.active.all()
        self.values[op.results[0]] = x[np.arange(self.n) ^ mask]

    # Pointers ------------------------------------------------------------------------------------

    def op_mach_shared_base(self, op: Operation) -> None:
        self.values[op.results[0]] = np.array([SHARED_BASE], np.int64)

    def op_mach_ptr_add(self, op: Operation) -> None:
        self.values[op.results[0]] = self.get(op.operands[0]) + self.get(op.operands[1])

    def op_mach_ptr_from_int(self, op: Operation) -> None:
        self.values[op.results[0]] = self.get(op.operands[0])

    op_mach_int_from_ptr = op_mach_ptr_from_int

    def _decode(self, data: Array, type: Attribute) -> Array:
        dtype = self.dtype(type)
        if dtype.kind == "b":
            value = data != 0
        else:
            value = np.ascontiguousarray(data).view(dtype)
        return value if isinstance(type, VectorType) else value[:, 0]

    def _encode(self, value: Array) -> Array:
        if value.ndim == 1:
            value = value[:, None]
        return np.ascontiguousarray(value).view(np.uint8).reshape(self.n, -1)

    def _size(self, type: Attribute) -> int:
        count = type.get_shape()[0] if isinstance(type, VectorType) else 1
        return count * self.dtype(type).itemsize

    def op_mach_load(self, op: Any) -> None:
        type = op.results[0].type
        address = self.rows(op.operands[0])
        if op.alignment is not None:
            assert not (address[self.active] % op.alignment.value.data).any(), "misaligned load"
        data = self.load(address, self._size(type), self.active)
        self.values[op.results[0]] = self._decode(data, type)

    def op_mach_store(self, op: Any) -> None:
        address = self.rows(op.operands[1])
        if op.alignment is not None:
            assert not (address[self.active] % op.alignment.value.data).any(), "misaligned store"
        self.store(address, self._encode(self.rows(op.operands[0])), self.active)

    def op_mach_masked_load(self, op: Any) -> None:
        pointer, mask, passthru = (self.rows(v) for v in op.operands)
        type = op.results[0].type
        size = self.dtype(type).itemsize
        out = np.array(passthru)
        for i in range(out.shape[1]):
            on = self.active & mask[:, i]
            data = self.load(pointer + i * size, size, on)
            value = self._decode(data, VectorType(type.element_type, [1]))[:, 0]
            out[:, i] = np.where(on, value, out[:, i])
        if op.alignment is not None:
            on = self.active & mask.any(axis=1)
            assert not (pointer[on] % op.alignment.value.data).any(), "misaligned masked load"
        self.values[op.results[0]] = out

    def op_mach_masked_store(self, op: Any) -> None:
        value, pointer, mask = (self.rows(v) for v in op.operands)
        size = value.dtype.itemsize
        for i in range(value.shape[1]):
            data = self._encode(np.ascontiguousarray(value[:, i]))
            self.store(pointer + i * size, data, self.active & mask[:, i])
        if op.alignment is not None:
            on = self.active & mask.any(axis=1)
            assert not (pointer[on] % op.alignment.value.data).any(), "misaligned masked store"

    def op_mach_gather(self, op: Any) -> None:
        pointer, offsets, mask, passthru = (self.rows(v) for v in op.operands)
        type = op.results[0].type
        size = self.dtype(type).itemsize
        out = np.array(passthru)
        for i in range(out.shape[1]):
            on = self.active & mask[:, i]
            data = self.load(pointer + np.where(on, offsets[:, i], 0), size, on)
            value = self._decode(data, VectorType(type.element_type, [1]))[:, 0]
            out[:, i] = np.where(on, value, out[:, i])
        self.values[op.results[0]] = out

    def op_mach_scatter(self, op: Any) -> None:
        value, pointer, offsets, mask = (self.rows(v) for v in op.operands)
        for i in range(value.shape[1]):
            on = self.active & mask[:, i]
            data = self._encode(np.ascontiguousarray(value[:, i]))
            self.store(pointer + np.where(on, offsets[:, i], 0), data, on)

    def op_mach_prefetch(self, op: Operation) -> None:
        pass

    def op_mach_atomic_rmw(self, op: Any) -> None:
        value, pointer = (self.rows(v) for v in op.operands)
        kind = op.kind.data
        size = value.dtype.itemsize
        old = np.zeros_like(value)
        for t in np.flatnonzero(self.active):
            at = int(pointer[t])
            cell = self.memory.bytes[at : at + size].view(value.dtype)
            old[t] = cell[0]
            combined = {
                "addf": np.add, "addi": np.add, "maxs": np.maximum, "mins": np.minimum,
                "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax,
                "minnumf": np.fmin, "ori": np.bitwise_or, "andi": np.bitwise_and,
                "xori": np.bitwise_xor,
                "maxu": unsigned(np.maximum),
                "minu": unsigned(np.minimum), "assign": lambda a, b: b,
            }[kind](cell[0], value[t])  # fmt: skip
            self.memory.bytes[at : at + size] = np.frombuffer(
                np.array([combined], value.dtype).tobytes(), np.uint8
            )
        self.values[op.results[0]] = old

    def op_mach_atomic_load(self, op: Any) -> None:
        address = self.rows(op.operands[0])
        size = self._size(op.results[0].type)
        out = np.zeros((self.n, size), np.uint8)
        for t in np.flatnonzero(self.active):
            out[t] = self.memory.bytes[address[t] : address[t] + size]
        self.values[op.results[0]] = self._decode(out, op.results[0].type)

    def op_mach_cmpxchg(self, op: Any) -> None:
        address, expected, desired = (self.rows(v) for v in op.operands)
        size = expected.dtype.itemsize
        old, won = np.array(expected), np.zeros(self.n, bool)
        for t in np.flatnonzero(self.active):
            cell = self.memory.bytes[address[t] : address[t] + size]
            old[t] = np.frombuffer(cell.tobytes(), expected.dtype)[0]
            won[t] = old[t] == expected[t]
            if won[t]:
                cell[:] = np.frombuffer(desired[t].tobytes(), np.uint8)
        self.values[op.results[0]], self.values[op.results[1]] = old, won

    def op_mach_join(self, op: Any) -> None:
        parts = [self.rows(v) for v in op.operands]
        self.values[op.results[0]] = np.concatenate(parts, axis=1)

    # Instructions --------------------------------------------------------------------------------

    def op_mach_instr(self, op: Any) -> None:
        name = op.instruction.data
        if name == "nvptx.trap":
            raise AssertionError("trap")
        if name == "nvptx.bar.sync":
            self.memory.epoch += 1
            return
        if name.startswith("nvptx.prefetch."):
            return
        entry = table.find(name)
        assert entry is not None, name
        if entry.timed and not entry.operands:
            return
        if name.startswith("nvptx.cp.async."):
            self._copy(int(name.rsplit(".", 1)[1]), *(self.rows(v) for v in op.operands))
            return
        if entry.scope == "thread":
            self._each_alone(op, entry)
            return
        assert entry.scope == "warp" and self.active.all(), name
        parts: list[list[Array]] = []
        for w in range(self.n // 32):
            lanes = slice(32 * w, 32 * w + 32)
            args: list[Any] = []
            for v in op.operands:
                x = self.rows(v)[lanes]
                if v.type.name == "llvm.ptr":
                    if "ldmatrix" in name:
                        on = np.zeros(self.n, bool)
                        used = 8 * int(name.split(".x")[1][0])
                        on[32 * w : 32 * w + used] = True
                        assert not (x[:used] % 16).any(), "misaligned row of ldmatrix"
                        data = self.load(self.rows(v), 16, on)
                        args.append(list(data[lanes]))
                    else:
                        raise AssertionError(name)
                else:
                    args.append(x)
            parts.append(list(entry.meaning(*args, **op.immediates())))
        for i, r in enumerate(op.results):
            self.values[r] = np.concatenate([np.asarray(p[i]) for p in parts])

    def _each_alone(self, op: Any, entry: Any) -> None:
        """An instruction of single threads."""
        args = [self.rows(v) for v in op.operands]
        found = [entry.meaning(*row, **op.immediates()) for row in zip(*args, strict=True)]
        for i, r in enumerate(op.results):
            bits = np.array([row[i] for row in found])
            kind = numerics.numpy_type(r.type)
            wraps = kind.kind == "i" and bits.dtype.kind in "iu"
            self.values[r] = (
                bits.astype(f"u{kind.itemsize}").view(kind) if wraps else bits.astype(kind)
            )

    def _copy(self, size: int, to: Array, source: Array, count: Array) -> None:
        """At once: what is read before it was waited for is not told apart."""
        data = np.zeros((self.n, size), np.uint8)
        for n in np.unique(count[self.active]):
            on = self.active & (count == n)
            if n > 0:
                assert not (source[on] % size).any(), "misaligned copy"
                data[on, :n] = self.load(np.where(on, source, GLOBAL_BASE), int(n), on)[on]
        assert not (to[self.active] % size).any(), "misaligned copy"
        self.store(to, data, self.active)

    # Control -------------------------------------------------------------------------------------

    def op_tw_print(self, op: Any) -> None:
        """As the driver's printf: every thread that comes by prints."""
        for thread in np.flatnonzero(self.active):
            values = (self.rows(v)[thread].item() for v in op.operands)
            print(op.format.data.format(*map(number, values)))

    def _uniform(self, v: SSAValue) -> int:
        x = self.rows(v)[self.active]
        assert (x == x.flat[0]).all(), "threads take different ways through a loop"
        return int(x.flat[0])

    def op_scf_for(self, op: Any) -> None:
        lo, hi, step = (self._uniform(v) for v in op.operands[:3])
        carried = [self.get(v) for v in op.operands[3:]]
        body = op.regions[0].block
        for i in range(lo, hi, step):
            self.values[body.args[0]] = np.array([i], np.int64)
            for a, x in zip(body.args[1:], carried, strict=True):
                self.values[a] = x
            last = self.block(body)
            carried = [self.get(v) for v in last.operands]
        for r, x in zip(op.results, carried, strict=True):
            self.values[r] = x

    def op_scf_while(self, op: Any) -> None:
        carried = [self.get(v) for v in op.operands]
        before, after = op.regions[0].block, op.regions[1].block
        outer = self.active
        out: list[Array] | None = None
        while True:
            for a, x in zip(before.args, carried, strict=True):
                self.values[a] = x
            last = self.block(before)
            test = self.rows(last.operands[0]) & self.active
            passed = [self.rows(v) for v in last.operands[1:]]
            leaving = self.active & ~test
            if out is None:
                out = [np.array(x) for x in passed]
            for o, x in zip(out, passed, strict=True):
                o[leaving] = x[leaving]
            self.active = test
            if not test.any():
                break
            for a, x in zip(after.args, passed, strict=True):
                self.values[a] = x
            last = self.block(after)
            carried = [self.get(v) for v in last.operands]
        self.active = outer
        for r, x in zip(op.results, out or [], strict=True):
            self.values[r] = x

    def op_scf_if(self, op: Any) -> None:
        test = self.rows(op.operands[0])
        outer = self.active
        sides: list[list[Array] | None] = []
        for region, on in zip(op.regions, (outer & test, outer & ~test), strict=True):
            found: list[Array] | None = None
            if on.any() and region.blocks:
                self.active = on
                last = self.block(region.block)
                found = [self.rows(v) for v in last.operands]
            sides.append(found)
        self.active = outer
        for i, r in enumerate(op.results):
            a, b = sides
            if a is None or b is None:
                self.values[r] = (a or b)[i]  # pyright: ignore
            else:
                cond = test.reshape(-1, *[1] * (a[i].ndim - 1))
                self.values[r] = np.where(cond, a[i], b[i])
