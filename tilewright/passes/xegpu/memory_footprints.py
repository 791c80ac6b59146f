"""What each op of a workgroup's XeGPU touches of memory: the boxes whose order xegpu-insert-barriers keeps.

Part of :mod:`tilewright.passes.xegpu.insert_barriers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.frozen import frozen
from tilewright.layout import Distribution
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.affine import Expr
from tilewright.passes.memory_objects import may_read, may_write, memory_root, memory_space
from tilewright.passes.xegpu import layout_text as own


@frozen
class Footprint:
    """One access. `offsets` and `shape` are those of its box; None where the place is not known."""

    op: Operation
    root: SSAValue | None
    base: object
    """What offsets count in: equal where two accesses count alike."""
    writes: bool
    atomic: bool
    offsets: tuple[Expr, ...] | None
    shape: tuple[int, ...]
    layout: Distribution | None

    @property
    def space(self) -> int:
        return (memory_space(self.root) or 0) if self.root is not None else 0


class Footprints:
    """The accesses of a kernel, each looked at once."""

    def __init__(self, analysis: AccessAnalysis):
        self.analysis = analysis
        self.known: dict[Operation, Footprint | None] = {}

    def of(self, op: Operation) -> Footprint | None:
        """What an op touches; None where it needs no order."""
        if op not in self.known:
            self.known[op] = self._footprint(op)
        return self.known[op]

    def _footprint(self, op: Operation) -> Footprint | None:
        match op:
            case xegpu.LoadNdOp() | xegpu.StoreNdOp():
                made = op.operands[op.tdesc_operand].owner
                counts = made.mixed_strides if isinstance(made, xegpu.CreateNdDescOp) else ()
                return self._block(op, made, op.tdesc.get_shape(), op.ownership, counts)
            case xegpu.LoadMatrixOp() | xegpu.StoreMatrixOp():
                made, shape = op.mem_desc.owner, own.shape_of(op.value)
                return self._block(op, made, shape, op.ownership, [op.mem_desc.type])
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
                memory = op.operands[1] if isinstance(op, xegpu.StoreScatterOp) else op.operands[0]
                return Footprint(
                    op,
                    _root(memory),
                    None,
                    not isinstance(op, xegpu.LoadGatherOp),
                    isinstance(op, xegpu.AtomicRMWOp),
                    None,
                    (),
                    None,
                )
            case (
                xegpu.FenceOp()
                | xegpu.AllocNbarrierOp()
                | xegpu.InitNbarrierOp()
                | xegpu.CompileHintOp()
            ):
                return None
            case xegpu.NbarrierArriveOp() | xegpu.NbarrierWaitOp():
                return None
            case _:
                if op.regions and not isinstance(op, GenericAtomicRMWOp):
                    return None
                if not (may_write(op) or may_read(op)) or op.name.startswith("gpu."):
                    return None
                named = [v for v in op.operands if isinstance(v.type, MemRefType)]
                root = memory_root(named[0]) if len(named) == 1 else None
                return Footprint(op, root, None, may_write(op), False, None, (), None)

    def _block(
        self,
        op: xegpu.BlockAccess | xegpu.MatrixAccess,
        made: object,
        shape: Sequence[int],
        layout: object,
        counts: Sequence[object],
    ) -> Footprint:
        """`made`: what makes its descriptor; `counts`: what offsets count in besides the array."""
        known = isinstance(made, xegpu.CreateNdDescOp | xegpu.CreateMemDescOp)
        source, offsets = made.source if known else None, op.mixed_offsets
        root = None if source is None else _root(source)
        writes = isinstance(op, (xegpu.StoreNdOp, xegpu.StoreMatrixOp))
        d = own.from_attribute(layout)  # pyright: ignore[reportArgumentType]
        if d is None and op.results:
            d = own.layout_of(op.results[0])
        if offsets is None or source is None:
            return Footprint(op, root, None, writes, False, None, (), d)
        exprs = tuple(self.analysis.expr(o) for o in offsets)
        whole = (*[1] * (len(offsets) - len(shape)), *shape)
        base = (_view(source), *counts)
        return Footprint(op, root, base, writes, False, exprs, whole, d)


def _root(memory: SSAValue) -> SSAValue | None:
    return memory_root(memory) if isinstance(memory.type, MemRefType) else None


def _view(source: SSAValue) -> SSAValue:
    """The value whose coordinates offsets count in."""
    while isinstance(source, OpResult) and source.op.name == "memref.cast":
        source = source.op.operands[0]
    return source


def value_shape(op: Operation) -> tuple[int, ...]:
    value = next(iter((*op.results, *op.operands)), None)
    return own.shape_of(value) if value is not None and isinstance(value.type, VectorType) else ()
