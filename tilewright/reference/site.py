"""What a meaning sees of the place where its op runs: who runs it, memory, the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.dominance import reachable
from tilewright.passes.memory_objects import is_pure
from tilewright.reference.batch import Batch
from tilewright.reference.numerics import shape_of
from tilewright.reference.registry import MEANINGS
from tilewright.reference.report import finding_at
from tilewright.reference.shadow import Kind
from tilewright.reference.values import Array, Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Group


class Site:
    """What a meaning sees of the place where it runs: who runs it, memory, the report."""

    op: Operation

    def __init__(self, group: Group):
        self.group = group
        self.machine = group.machine
        self.memory = group.machine.memory
        self.checking = group.machine.checking

    # Who runs the op; arrays have one entry per instance of the group.
    @property
    def batch(self) -> Batch:
        return self.machine.batch

    @property
    def instances(self) -> Index:
        """Positions in the batch."""
        return self.group.index

    @property
    def count(self) -> int:
        return self.group.index.shape[0]

    @property
    def workgroup(self) -> Index:
        return self.batch.workgroup[self.instances]

    @property
    def subgroup(self) -> Index:
        return self.batch.subgroup[self.instances]

    @property
    def rng(self) -> np.random.Generator:
        """The run's random numbers (run(seed=...))."""
        return self.machine.context.rng

    def block_id(self, axis: int) -> Index:
        return self.batch.block_id(axis)[self.instances]

    def allocate_shared(self, size: int, granule: int, name: str) -> Index:
        """The address of a buffer that each workgroup has once, for every instance.

        An op that runs again gives the same buffer.
        """
        key = (self.op, name)
        if key not in self.machine.shared:
            slots = int(self.batch.slots.max(initial=-1)) + 1
            self.machine.shared[key] = self.memory.allocate(
                slots, size, granule, shared=True, name=name
            )
        return self.machine.shared[key][self.batch.slots[self.instances]]

    def taken(self, result: SSAValue) -> Array | None:
        """Which elements of a result of this op are used: those that the selections which are its users take, where
        their conditions are known. None where all may be, or nobody asks (the mode does not check)."""
        found: Array | None = None
        for use in result.uses if self.checking else ():
            choice = use.operation
            if not isinstance(choice, arith.SelectOp) or use.index != 1:
                return None
            if choice.parent is not self.op.parent or not self._known(choice.cond):
                return None
            wanted = self.group.get(choice.cond)
            rank = len(shape_of(result.type)) + 1  # one condition may be for a whole tile
            wanted = wanted.reshape(wanted.shape + (1,) * (rank - wanted.ndim))
            found = wanted if found is None else found | wanted
        return found

    def _known(self, value: SSAValue) -> bool:
        """Whether an operand of a later op of the same block has its rows: what is pure may be computed ahead."""
        here, block = self.op, self.op.parent
        assert block is not None
        later = set[Operation]()
        op: Operation | None = here
        while op is not None:
            later.add(op)
            op = op.next_op

        def missing(values: Iterable[SSAValue]) -> list[Operation]:
            made = (v.owner for v in values)
            return [
                op
                for op in made
                if isinstance(op, Operation) and block.find_ancestor_op_in_block(op) in later
            ]

        ahead: list[Operation] = []
        for last in missing([value]):
            ahead = reachable(last, lambda op: missing(op.operands))[::-1]
        if not all(op.parent is block and not op.regions and is_pure(op) for op in ahead):
            return False
        for op in ahead:
            self.group.execute(op, MEANINGS[op.name])
        self.op = here
        return True

    # What goes wrong.
    def report(self, severity: Any, kind: str, message: str) -> None:
        """A finding at this op; an error ends the run unless checking goes on collecting."""
        self.machine.found(finding_at(self.op, severity, kind, message))

    def accessible(self, wanted: Array, low: Index, high: Index, *, writes: bool) -> Array:
        """Of the wanted accesses to bytes `low` .. `high`, those that hit memory; reports others."""
        numbers = self.memory.locate(low, high)
        allowed = wanted & (numbers >= 0)
        if (missing := wanted & ~allowed).any():
            address = int(low[missing].flat[0])
            verb = "writes" if writes else "reads"
            self.report(
                "error",
                "wild access",
                f"{self.op.name} {verb} address {address:#x}, which belongs to no array or buffer",
            )
        if writes and allowed.any():
            writable = self.memory.writable(numbers)
            if (refused := allowed & ~writable).any():
                name = self.memory.allocations[int(numbers[refused].flat[0])].name
                self.report("error", "read-only", f"{self.op.name} writes to read-only {name}")
                allowed = allowed & writable
        return allowed

    def outside(self, rows: int, where: Array, *, undefined: bool = False) -> None:
        """Some boxes of this op reach outside their matrix: a warning, or an error if undefined."""
        who = self.workgroup if rows == self.count else self.workgroup[:1]
        number = int(who[np.flatnonzero(where)[0]]) if rows == self.count else int(who[0])
        self.report(
            "error" if undefined else "warning",
            "out of bounds",
            f"{self.op.name} reaches outside its matrix (first in workgroup "
            f"{self.machine.name_of_workgroup(number)})",
        )

    def note_elements(self, address: Index, wanted: Array, itemsize: int, kind: Kind) -> None:
        """Checking mode: elements at addresses, `(rows, ...)`, are about to be accessed."""
        parties = self.batch.parties[self.instances]
        if address.shape[0] == 1:
            parties = np.unique(parties)  # what is shared by all, each party accesses once
        shape = (parties.shape[0], *address.shape[1:])
        wanted = np.broadcast_to(wanted, shape)
        if wanted.any():
            who = np.broadcast_to(parties.reshape(-1, *[1] * (len(shape) - 1)), shape)[wanted]
            chosen = np.broadcast_to(address, shape)[wanted]
            self.machine.shadow.note(self, chosen, who, itemsize, kind)

    def note_writes(self, address: Index, wanted: Array, value: Array) -> None:
        """Checking mode: elements, `(rows, ...)`, are about to be written.

        Threads may hold copies, and store them in one place: what is there already is no write.
        """
        if not self.batch.threads:
            self.note_elements(address, wanted, value.itemsize, "write")
            self.check_lanes_agree(address, wanted, value)
            return
        shape = (self.count, *address.shape[1:])
        address, wanted, value = (np.broadcast_to(x, shape) for x in (address, wanted, value))
        held = self.machine.memory.read(address[wanted], value.dtype)
        bits = np.dtype(f"u{value.itemsize}")
        new = np.ascontiguousarray(value[wanted])
        writes = np.array(wanted)
        writes[wanted] = held.view(bits) != new.view(bits)
        self.machine.shadow.written(address[wanted & ~writes], value.itemsize)
        writes[writes] = first_of_equal(address[writes], value[writes])
        self.note_elements(address, writes, value.itemsize, "write")

    def check_lanes_agree(self, address: Index, wanted: Array, value: Array) -> None:
        """Checking mode: lanes of a subgroup that write one element at once write the same value.

        They may hold copies (of a reduced row, of padding), and storing a copy changes nothing; which of
        two different values stays is not said. All three are `(rows, ...)`, a row per instance.
        """
        lanes = self.batch.lanes
        if lanes == 1 or address.shape[0] != self.count or not wanted.any():
            return
        places = np.nonzero(wanted)
        chosen = address[places]
        order = np.argsort(chosen, kind="stable")
        who = self.instances[places[0]][order]
        bits = np.ascontiguousarray(value[places][order])
        bits = bits.view(np.uint8).reshape(bits.shape[0], -1)
        chosen, parties = chosen[order], self.batch.parties[who]
        twice = (chosen[1:] == chosen[:-1]) & (parties[1:] == parties[:-1])
        twice &= (who[1:] != who[:-1]) & (bits[1:] != bits[:-1]).any(axis=1)
        if twice.any():
            at = int(np.flatnonzero(twice)[0])
            first, second = (int(self.batch.subgroup[i]) % lanes for i in who[at : at + 2])
            self.report(
                "error",
                "race",
                f"race: lanes {first} and {second} of {self.machine.name_of_party(int(parties[at]))} "
                f"write different values to address {int(chosen[at]):#x} at once, and it is undefined "
                "which of them stays",
            )


def first_of_equal(address: Index, value: Array) -> Array:
    """Of elements that are written at once, which to count: of several with one value in one place the first."""
    _, first, inverse = np.unique(address, return_index=True, return_inverse=True)
    bits = np.ascontiguousarray(value).view(f"u{value.itemsize}")
    counts = bits != bits[first[inverse.reshape(-1)]]
    counts[first] = True
    return counts
