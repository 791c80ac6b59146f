"""Asynchronous work: copies into multi-buffers and queued products of the stage dialect, copies of threads, under a
schedule.

The copy engine and the queue of products run beside the program. A schedule says when they do their work:

- late: only when nobody could go on without it. A result that is used before it was waited for is NaN.
- early: at once, so that a slot which is filled too soon is overwritten under its readers.
- random: at times drawn from the run's random numbers.

A slot that is released is poisoned at once, whatever the schedule; a correct program has the same results under all
three. Instances that wait do so as all others (`waits.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import stage
from tilewright.frozen import field, record
from tilewright.reference import numerics
from tilewright.reference.numerics import shape_of
from tilewright.reference.report import finding_at
from tilewright.reference.values import Array, Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Executor, Group

Schedule = Literal["late", "early", "random"]

FREE, FILLING, FULL = "free", "filling", "full"


@record
class Slot:
    """One slot of one workgroup's multi-buffer: its state, which fill it holds, who was given its tiles."""

    state: str = FREE
    fill: int = -1
    number: int = 0
    """Which of all fills of the instance this one is, from 1 on."""
    values: list[SSAValue] = field(default_factory=list[SSAValue])


class MultiBuffers:
    """A multi-buffer, for every instance of the batch."""

    def __init__(self, machine: Executor, op: stage.MultiBufferOp):
        type = op.result.type
        self.op = op
        self.slots = [[Slot() for _ in range(type.slots.data)] for _ in range(machine.batch.count)]
        self.data = [
            poison(
                (machine.batch.count, type.slots.data, *part.get_shape()),
                numerics.numpy_type(part.vector),
            )
            for part in type.parts
        ]

    def slot(self, instance: int, fill: int) -> tuple[int, Slot]:
        number = fill % len(self.slots[instance])
        return number, self.slots[instance][number]

    def state(self, instance: int) -> str:
        """Every slot's state, for messages."""
        return ", ".join(
            f"slot {i} {s.state}" + (f" (fill {s.fill})" if s.state != FREE else "")
            for i, s in enumerate(self.slots[instance])
        )


@record
class Copy:
    """Copies into one slot that are under way."""

    buffers: MultiBuffers
    instance: int
    fill: int
    load: Callable[[], list[Array]]


@record
class IssuedProduct:
    """A product of one instance that was issued; `result` once it is done."""

    instance: int
    operands: Callable[[], tuple[Array, Array]]
    before: int | None
    """The number of the product that it adds to, or None."""
    add: Callable[[Array, Array, Array | None], Array]
    result: Array | None = None
    initial: Array | None = None


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """NaN, or for integers a number that no test uses."""
    return np.full(shape, 0x55 if dtype.kind in "biu" else float("nan")).astype(dtype)


class Engine:
    """All asynchronous work of one run of a program."""

    def __init__(self, machine: Executor, schedule: Schedule):
        self.machine = machine
        self.schedule: Schedule = schedule
        self.copies: list[Callable[[], None]] = []
        """What the copy engine has yet to do."""
        self.products: list[IssuedProduct] = []
        self.holds: dict[tuple[SSAValue, int], int] = {}
        """The fill whose tile a value of an instance is."""
        self.fills: dict[int, int] = {}
        """How many fills an instance has issued, of all multi-buffers."""
        self.queues: dict[int, list[int]] = {}
        """Numbers of the products of an instance that are not done, oldest first."""
        self.meetings: dict[tuple[Operation, int], dict[int, tuple[int, Array]]] = {}
        """By op and cluster: the instances, by rank, that wait for the others of their cluster, and what they bring."""

    # When.
    def now(self) -> bool:
        """Whether work that could be done now is done."""
        if self.schedule == "random":
            return bool(self.machine.context.rng.random() < 0.5)
        return self.schedule == "early"

    def advance(self) -> bool:
        """Nobody can go on: does a piece of work that is under way. False when there is none."""
        if not self.copies:
            return False
        pick = int(self.machine.context.rng.integers(len(self.copies)))
        self.copies.pop(pick if self.schedule == "random" else 0)()
        return True

    def stir(self) -> None:
        """A moment passes."""
        while self.copies and self.schedule == "random" and self.now():
            self.copies.pop(int(self.machine.context.rng.integers(len(self.copies))))()

    def begin(self, work: Callable[[], None]) -> None:
        """Something for the copy engine, done when the schedule says."""
        if self.now():
            work()
        else:
            self.copies.append(work)

    # Copies.
    def issue(self, copy: Copy) -> None:
        number, slot = copy.buffers.slot(copy.instance, copy.fill)
        slot.state, slot.fill = FILLING, copy.fill
        for data in copy.buffers.data:
            data[copy.instance, number] = poison((), data.dtype)
        self.begin(lambda: self.complete(copy))

    def complete(self, copy: Copy) -> None:
        number, slot = copy.buffers.slot(copy.instance, copy.fill)
        for data, tile in zip(copy.buffers.data, copy.load(), strict=True):
            data[copy.instance, number] = tile
        slot.state = FULL

    def release(self, group: Group, buffers: MultiBuffers, instance: int, fill: int) -> None:
        number, slot = buffers.slot(instance, fill)
        if slot.state != FULL or slot.fill != fill:
            self.machine.found(
                finding_at(
                    group.site.op,
                    "error",
                    "multi-buffer misuse",
                    f"slot {number} is released for fill {fill}, and holds: {buffers.state(instance)}",
                )
            )
            return
        index = np.array([instance], np.int64)
        for data in buffers.data:
            data[instance, number] = poison((), data.dtype)
        for value in slot.values:
            if self.holds.get((value, instance)) != fill:
                continue  # a later wait has given the value again
            self.one(index).set(
                value, poison((1, *shape_of(value.type)), numerics.numpy_type(value.type))
            )
        slot.state, slot.values = FREE, []

    def one(self, index: Index) -> Group:
        from tilewright.reference.machine import Group

        return Group(self.machine, index)

    # Products.
    def enqueue(self, product: IssuedProduct) -> int:
        self.products.append(product)
        number = len(self.products) - 1
        self.queues.setdefault(product.instance, []).append(number)
        if self.now():
            self.finish_products(product.instance, 0)
        return number

    def value(self, number: int) -> Array | None:
        """A product's result; None while it is under way."""
        found = self.products[number]
        return found.initial if found.initial is not None else found.result

    def finish_products(self, instance: int, pending: int) -> None:
        """Does all products of an instance but the last `pending`."""
        queue = self.queues.get(instance, [])
        while len(queue) > pending:
            product = self.products[queue.pop(0)]
            c = None if product.before is None else self.value(product.before)
            product.result = product.add(*product.operands(), c)
            product.operands = _used  # the arrays are not needed any more

    # The end.
    def finish(self) -> None:
        """Reports who still waits for others of a cluster."""
        for (op, cluster), here in self.meetings.items():
            text = f"deadlock: ranks {sorted(here)} of cluster {cluster} wait here for the others"
            self.machine.found(finding_at(op, "error", "deadlock", text))


def _used() -> tuple[Array, Array]:
    raise AssertionError("a product is computed once")
