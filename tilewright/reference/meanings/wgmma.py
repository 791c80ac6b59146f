"""Meaning of products that run beside a warpgroup's threads (wgmma).

Until a wait names them the registers that they fill are in flight (`flight.py`). A product reads shared memory when it
is done, which the run's schedule says: late is at the wait. In checking mode it is a party of its own (`agents.py`),
which sees what threads wrote only behind their fence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation

from tilewright.arguments import array_at
from tilewright.dialects.mach import InstrOp
from tilewright.reference.batch import WARPGROUP
from tilewright.reference.flight import PendingProduct
from tilewright.reference.lanes import Collective
from tilewright.reference.machine import Group
from tilewright.reference.meanings.instructions import entry_of
from tilewright.reference.pointers import SHARED_BYTES, START, windows
from tilewright.reference.program import acts
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array


def _leaders(site: Site) -> tuple[Collective, list[int]]:
    """The warpgroups that an instruction is done by, and the first instance of each."""
    together = Collective(site, WARPGROUP)
    return together, site.instances[::WARPGROUP].tolist()


def _poison(like: Array) -> Array:
    return np.frombuffer(b"\xff" * like.nbytes, like.dtype).reshape(like.shape)


@acts("nvptx.wgmma")
def wgmma(group: Group, op: InstrOp) -> None:
    site, machine, entry = group.site, group.machine, entry_of(op)
    together, leaders = _leaders(site)
    products = machine.products
    if any(group.flight(value) is not None for value in op.operands[:-1]):
        products.told(site)
    given = [together.split(group.get(value)) for value in op.operands]
    if not products.fenced.issuperset(leaders):
        site.report("error", "unfenced", "no wgmma.fence orders this product behind its registers")
    before = group.flight(op.operands[-1])
    flight, bases = np.zeros(site.count, np.int64), windows(site)
    size = machine.program.function.attributes[SHARED_BYTES]
    assert isinstance(size, IntegerAttr)
    for w, leader in enumerate(leaders):
        args = [rows[w] for rows in given]
        number = -1 if before is None else int(before[w * WARPGROUP])
        earlier = products.all[number] if number >= 0 else None

        def compute(
            leader: int = leader, args: list[Array] = args, earlier: PendingProduct | None = earlier
        ) -> Array:
            here = args if earlier is None else [*args[:-1], earlier.rows()]
            base = int(bases[machine.batch.slots[leader]])
            held = array_at(base + START, (size.value.data,), (1,), np.dtype(np.uint8))
            shared = np.concatenate([np.zeros(START, np.uint8), held])
            with np.errstate(all="ignore"):
                return entry.meaning(*here, **op.immediates(), shared=shared)[0]

        product = PendingProduct(products.committed[leader], compute)
        if site.checking:
            _note(site, op, entry, leader, args, product.group)
        flight[w * WARPGROUP : (w + 1) * WARPGROUP] = products.add(leader, product)
        if machine.engine.schedule != "late":
            machine.engine.begin(product.finish)
    group.set(op.results[0], _poison(together.join(given[-1])), flight)


def _note(site: Site, op: InstrOp, entry: Any, leader: int, args: list[Array], group: int) -> None:
    machine = site.machine
    base = int(windows(site)[machine.batch.slots[leader]])
    party = machine.agents.start(leader, ("products", leader), "a product")
    for read in entry.shared(*args, **op.immediates()):
        words = np.unique(base + read.ravel() // 4 * 4)
        if site.accessible(np.ones(words.shape, bool), words, words + 4, writes=False).all():
            machine.shadow.note(site, words, np.full(words.shape, party), 4, "read", True)
    machine.agents.publish(party, ("products", leader, group))


@meaning("nvptx.wgmma.fence")
def fence(site: Site, op: Operation) -> None:
    """Registers that threads have had are the products' from here, until a wait names them."""
    site.machine.products.fenced |= set(_leaders(site)[1])


@meaning("nvptx.wgmma.commit")
def commit(site: Site, op: Operation) -> None:
    for leader in _leaders(site)[1]:
        site.machine.products.committed[leader] += 1


@acts("nvptx.wgmma.wait")
def wait(group: Group, op: InstrOp) -> None:
    """All but the last groups are done; of the registers that are named those are filled which they fill."""
    pending = int(op.immediates().get("n", 0))
    site, products = group.site, group.machine.products
    _, leaders = _leaders(site)
    for w, leader in enumerate(leaders):
        until = products.committed[leader] - pending
        for product in products.queues[leader]:
            if product.group < until:
                product.finish()
        products.queues[leader] = [p for p in products.queues[leader] if p.group >= until]
        for number in range(products.waited[leader], until) if site.checking else ():
            parties = site.batch.parties[site.instances[w * WARPGROUP : (w + 1) * WARPGROUP]]
            group.machine.shadow.clocks.acquire(parties, ("products", leader, number))
        products.waited[leader] = max(products.waited[leader], until)
    if op.results:
        products.fenced -= set(leaders)
    for value, result in zip(op.operands, op.results, strict=True):
        rows, flight = group.get(value), group.flight(value)
        if flight is None:
            group.set(result, rows)
            continue
        rows = np.array(np.broadcast_to(rows, (site.count, *rows.shape[1:])))
        for w, leader in enumerate(leaders):
            mine = slice(w * WARPGROUP, (w + 1) * WARPGROUP)
            number = int(flight[mine][0])
            if number >= 0 and products.all[number].group < products.waited[leader]:
                rows[mine], flight[mine] = products.all[number].rows(), -1
        group.set(result, rows, flight)
