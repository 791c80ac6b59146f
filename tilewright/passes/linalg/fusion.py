"""Which structured ops one kernel computes: an op whose result only others read is computed where they read it.

    linalg.matmul ins(%a, %b) outs(%t)                 one kernel: a tile of %t, its sum with %bias, stored to %c;
    linalg.add ins(%t, %bias) outs(%c)          ->     %t has no memory

An op without reductions is computed again for whoever reads it. A product is computed where each of its elements is
read once. Any other reduction (the maximum of a row) is computed where its rows are those of the reader. Everything
else writes its result to memory, and so does what is read after a part of its own input was overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import memref
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from tilewright.dialects.upstream.linalg_bodies import reduced
from tilewright.frozen import frozen
from tilewright.passes.linalg.accesses import Linear, linear
from tilewright.passes.linalg.bodies import Body
from tilewright.passes.linalg.overlap import MEMREF, overlap
from tilewright.passes.memory_objects import is_allocation, memory_root


@frozen
class OperandSource:
    """What an operand reads: memory, or a result of another op that need not be in memory."""

    memory: SSAValue
    """A memref, or a scalar."""
    producer: Node | None = None
    result: int = 0


@dataclass(eq=False)
class Node:
    """A structured op, and where its operands come from."""

    op: GenericOp
    body: Body
    sources: list[OperandSource] = field(default_factory=list[OperandSource])
    """Of the inputs, then of the outputs: what was there before."""
    readers: list[Node] = field(default_factory=list["Node"])
    place: int = 0
    """Its number among the ops of its block."""
    kept: bool = False
    """Whether its results are in memory."""

    @property
    def maps(self) -> Sequence[AffineMap]:
        return [m.data for m in self.op.indexing_maps]

    @property
    def inputs(self) -> int:
        return len(self.op.inputs)

    @property
    def outputs(self) -> Sequence[SSAValue]:
        return self.op.outputs

    @property
    def reductions(self) -> list[int]:
        return sorted(reduced(self.op))

    def inlined(self) -> list[Node]:
        """The ops that are computed where this one reads them."""
        used = self.sources if self.body.reads_results else self.sources[: self.inputs]
        found = [s.producer for s in used if s.producer is not None and not s.producer.kept]
        return list(dict.fromkeys(found))

    def around(self) -> list[Node]:
        """All that this op's kernel computes, what is read before what reads it."""
        found: dict[Node, None] = {}
        for node in self.inlined():
            found.update(dict.fromkeys(node.around()))
        return [*found, self]


def nodes_of(block: Block) -> list[Node]:
    """The structured ops of a block, in order, each either kept or inlined."""
    nodes: list[Node] = []
    latest: dict[SSAValue, tuple[Node, int]] = {}
    writes: list[tuple[int, SSAValue]] = []
    for place, op in enumerate(block.ops):
        if isinstance(op, GenericOp):
            node = Node(op, Body(op), place=place)
            _read(node, latest)
            _write(node, latest)
            nodes.append(node)
            writes += [(place, value) for value in node.outputs]
        elif not isinstance(op, _LOOKS):
            writes += [(place, value) for value in _touch(op, latest)]
    for memory, (node, _) in latest.items():
        if not _is_private(memory, block):
            node.kept = True
    _settle(nodes, writes)
    return nodes


_LOOKS = (
    memref.CastOp,
    memref.DeallocOp,
    memref.DimOp,
    memref.ExtractStridedMetaDataOp,
    memref.SubviewOp,
)
"""Ops that neither read nor write the memory that they are given."""


def _read(node: Node, latest: dict[SSAValue, tuple[Node, int]]) -> None:
    for n, value in enumerate(node.op.operands):
        source = OperandSource(value, *latest[value]) if value in latest else OperandSource(value)
        node.sources.append(source)
        if n >= node.inputs and not node.body.reads_results:
            continue
        if source.producer is not None:
            source.producer.readers.append(node)
        for other, (writer, _) in latest.items():
            if other is not value and overlap(other, value):
                writer.kept = True
    for value in node.body.loaded:
        for other, (writer, _) in latest.items():
            if overlap(other, value):
                writer.kept = True


def _write(node: Node, latest: dict[SSAValue, tuple[Node, int]]) -> None:
    """From here on, its results are in its outputs."""
    for n, value in enumerate(node.outputs):
        for memory, (writer, _) in list(latest.items()):
            if memory is not value and overlap(memory, value):
                writer.kept = True
                del latest[memory]
        previous = latest.get(value)
        if previous is not None and not _covers(node, n):
            previous[0].kept = True
        latest[value] = node, n


def _memory(node: Node) -> Iterable[SSAValue]:
    """The memory that computing an op's results reads, but for what is computed for it."""
    used = node.sources if node.body.reads_results else node.sources[: node.inputs]
    for source in used:
        if source.producer is None or source.producer.kept:
            yield source.memory
    yield from node.body.loaded


def _covers(node: Node, output: int) -> bool:
    """Whether a result takes the place of all that was in its output."""
    results = node.maps[node.inputs + output].results
    plain = {r.position for r in results if isinstance(r, AffineDimExpr)}
    return len(plain) == len(results)


def _touch(op: Operation, latest: dict[SSAValue, tuple[Node, int]]) -> Sequence[SSAValue]:
    """Another op reads and writes what it, or an op in it, is given."""
    given = [v for each in op.walk() for v in each.operands if isinstance(v.type, MEMREF)]
    for memory, (node, _) in list(latest.items()):
        if any(overlap(memory, value) for value in given):
            node.kept = True
            del latest[memory]
    return given


def _is_private(memory: SSAValue, block: Block) -> bool:
    """Whether nobody reads a memref behind the last op of a block."""
    root = memory_root(memory)
    own = is_allocation(root) and isinstance(root, OpResult) and root.op.parent is block
    alone = block.prev_block is None and block.next_block is None
    return own and (alone or _is_used_within(root, block))


def _is_used_within(memory: SSAValue, block: Block) -> bool:
    """Whether a memref, and what is seen of it, are for ops of one of several blocks alone."""
    for use in memory.uses:
        if block.find_ancestor_op_in_block(use.operation) is None:
            return False
        views = (result for result in use.operation.results if isinstance(result.type, MEMREF))
        if not all(_is_used_within(view, block) for view in views):
            return False
    return True


# What is inlined. ------------------------------------------------------------------------------------------------


def _settle(nodes: Sequence[Node], writes: Sequence[tuple[int, SSAValue]]) -> None:
    """Keeps what cannot be computed where it is read, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for node in nodes:
            if not node.kept and not all(_fits(node, reader) for reader in node.readers):
                node.kept = changed = True
        roots = [node for node in nodes if node.kept]
        for node in nodes:
            if node.kept:
                continue
            where = [root for root in roots if node in root.around()]
            if (_is_heavy(node) and len(where) != 1) or _is_overwritten(node, where, writes):
                node.kept = changed = True


def _is_overwritten(
    node: Node, roots: Sequence[Node], writes: Sequence[tuple[int, SSAValue]]
) -> bool:
    """Whether memory that an op reads is written before, or by, what it is computed for."""
    last = max((root.place for root in roots), default=node.place)
    later = [value for place, value in writes if node.place < place <= last]
    return any(overlap(read, value) for read in _memory(node) for value in later)


def _is_heavy(node: Node) -> bool:
    """Whether it is too much work to be done again for each reader."""
    return any(each.reductions for each in node.around())


def _has_product(node: Node) -> bool:
    return any(each.body.factors is not None and each.reductions for each in node.around())


def _row_loops(node: Node) -> set[int]:
    """The loops of an op that what is reduced for it depends on."""
    loops = set(range(node.maps[0].num_dims)) - set(node.reductions)
    if node.reductions:
        return loops
    found: set[int] = set()
    for n, source in enumerate(node.sources):
        if source.producer in node.inlined():
            found |= _read_for(source, node.maps[n])
    return found


def _read_for(source: OperandSource, map_: AffineMap) -> set[int]:
    """The loops of a reader that choose what was reduced for an operand."""
    node = source.producer
    assert node is not None
    wanted, written = _row_loops(node), node.maps[node.inputs + source.result].results
    pairs = zip(written, map_.results, strict=True)
    return {d for w, r in pairs if w.used_dims() & wanted for d in r.used_dims()}


def _fits(node: Node, reader: Node) -> bool:
    """Whether a reader can compute an op where it reads it."""
    loops = set(range(node.maps[0].num_dims)) - set(node.reductions)
    for n, source in enumerate(reader.sources):
        if source.producer is not node or (n >= reader.inputs and not reader.body.reads_results):
            continue
        written, read = node.maps[node.inputs + source.result].results, reader.maps[n].results
        plain = [r.position for r in written if isinstance(r, AffineDimExpr)]
        if len(plain) != len(written) or set(plain) != loops:
            return False
        if any(linear(r, [Linear(())] * reader.maps[n].num_dims) is None for r in read):
            return False
        if not _is_heavy(node):
            continue
        if reader.body.factors is not None and reader.reductions:
            return False
        at = [r.position if isinstance(r, AffineDimExpr) else -1 for r in read]
        rows = _read_for(source, reader.maps[n])
        if any(w in _row_loops(node) and r < 0 for w, r in zip(plain, at, strict=True)):
            return False
        if rows & set(reader.reductions) or len(set(at)) != len(at):
            return False
        if _has_product(node) and (len(at) != reader.maps[n].num_dims or len(node.readers) != 1):
            return False
    return True
