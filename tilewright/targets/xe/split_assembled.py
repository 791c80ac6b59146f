"""xe-split-assembled: a slice or shuffle of a fragment that was put together from scalars is put together by itself.

    %v = vector.insert %x0, %zero [0] ; .. ; %w = vector.insert %x63, %v62 [63] : .. into vector<64xi16>
    %s = vector.extract_strided_slice %w {offsets = [8], sizes = [8], ..}
    ->
    %s = vector.insert %x8, %zero [0] ; .. ; vector.insert %x15, .. [7] : .. into vector<8xi16>

A product that waits for eight components would wait for sixty-four of them else, which fill as many registers.

Requires: a lane program. Guarantees: the same results; the long fragment is gone where nothing else uses it.
"""

from __future__ import annotations

from xdsl.dialects import gpu, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.dialects.movement import numbered, shape_of
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.passes.emit import Before
from tilewright.targets.xe.building import bits_of

Chain = list[SSAValue | None]
"""The scalar of every component; None for one of the constant that the chain begins with."""


def split_assembled(kernel: gpu.FuncOp) -> bool:
    """Removes vectors that are assembled from parts only to be read in parts. Returns whether there was one."""
    chains: dict[SSAValue, Chain | None] = {}
    changed = False
    for op in list(kernel.walk()):
        if isinstance(op, ExtractStridedSliceOp | vector.ShuffleOp):
            changed |= _cut(op, chains)
    return changed


def _cut(op: Operation, chains: dict[SSAValue, Chain | None]) -> bool:
    kind = op.results[0].type
    if not isinstance(kind, VectorType) or len(kind.get_shape()) != 1:
        return False
    places = [(value, i) for value in op.operands for i in range(shape_of(value)[0])]
    picked = [places[n] for n in numbered(op)[0]]
    scalars: Chain = []
    inner: VectorType | None = None
    for value, i in picked:
        source = _uncast(value)
        if source not in chains:
            chains[source] = _chain(source)
        chain = chains[source]
        if chain is None or len(picked) >= len(chain):
            return False
        assert isinstance(source.type, VectorType)
        if inner is not None and inner.element_type != source.type.element_type:
            return False
        inner = source.type
        scalars.append(chain[i])
    if inner is None:
        return False
    short = VectorType(inner.element_type, [len(scalars)])
    at = Before(op)
    value = at.constant(short, 0)
    for i, scalar in enumerate(scalars):
        if scalar is not None:
            value = at.add(vector.InsertOp(scalar, value, (i,)))
    at.replace(value if short == kind else at.add(vector.BitcastOp(value, kind)))
    return True


def _uncast(value: SSAValue) -> SSAValue:
    """The fragment of which a value is a cast, component by component."""
    while isinstance(value, OpResult) and value.op.name == "vector.bitcast":
        before, after = value.op.operands[0].type, value.type
        if not isinstance(before, VectorType) or not isinstance(after, VectorType):
            break
        if bits_of(before.element_type) != bits_of(after.element_type):
            break
        value = value.op.operands[0]
    return value


def _chain(value: SSAValue) -> Chain | None:
    """The scalars of a 1-D fragment that inserts fill from a constant of zeros."""
    kind = value.type
    if not isinstance(kind, VectorType) or len(kind.get_shape()) != 1:
        return None
    found: Chain = [None] * kind.get_shape()[0]
    filled = 0
    while isinstance(value, OpResult) and isinstance(value.op, vector.InsertOp):
        op = value.op
        positions = [int(p) for p in op.static_position.get_values()]
        if len(positions) != 1 or positions[0] < 0 or isinstance(op.source.type, VectorType):
            return None
        if found[positions[0]] is None:
            found[positions[0]] = op.source
            filled += 1
        value = op.dest
    return found if filled == len(found) else None
