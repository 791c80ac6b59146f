"""tma-stores: a tile that products gave is stored by the copy engine, beside the next program.

    xetile.store_tile %v, %t       ->    stage.copy.store %v, %t through %panels
    xetile.store_tile T(%v), %t    ->    stage.copy.store %v, %t through %panels {transpose}

Requires: products issued. Guarantees: the same memory when the kernel ends.

Takes part: a store of a value with the rows of a product (whole blocks of 64 for every warpgroup) to an array that the
copy engine can address and that nothing else in the kernel touches. The panels are two per warpgroup, 64 rows of 128
bytes (of 64 or 32 where the tile's rows are no multiple of that): one is written while the engine takes the other. A
product that was computed transposed (`swap-operands`) leaves so too: a warpgroup's 64 rows are 128 bytes of a line.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright import dtypes
from tilewright.dialects import stage, xetile
from tilewright.dialects.movement import shape_of
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.memory_objects import may_alias, memory_root
from tilewright.targets.cuda.passes.multi_buffering import unaddressable
from tilewright.targets.cuda.passes.wgmma_legality import BUFFERS, panel_of, untransposed
from tilewright.uarch.nvidia import LINE, WGMMA_ROWS


def form_tma_stores(function: gpu.FuncOp, groups: int, remarks: list[str]) -> int:
    """Stores results through shared memory by TMA. Returns how many stores changed; `groups` warpgroups share the
    products."""
    analysis = AccessAnalysis(function)
    changed = 0
    for op in list(function.walk()):
        if isinstance(op, xetile.StoreTileOp):
            reason = _obstacle(op, analysis, groups)
            if reason is not None:
                remarks.append(f"a store is done by threads: {reason}")
                continue
            _rewrite(function, op, groups)
            changed += 1
    return changed


def panels_of(op: xetile.StoreTileOp, groups: int) -> stage.MultiBufferType | None:
    """The panels through which `groups` warpgroups would store; None where they do not divide the tile."""
    value, transpose = untransposed(op.value)
    (rows, columns), element = shape_of(value), op.tile_type.element_type
    panel = panel_of(columns, dtypes.from_mlir(element).itemsize, transpose)
    if panel is None or rows % (WGMMA_ROWS * groups):
        return None
    lines, line = panel
    boxes = max(1, line // LINE)
    line //= boxes
    elements = line // dtypes.from_mlir(element).itemsize
    part = stage.PartAttr((lines, elements), element, (1, 0), line)
    return stage.MultiBufferType(BUFFERS * groups * boxes, [part])


def room_of_panels(function: gpu.FuncOp, groups: int) -> int:
    """Bytes of shared memory that panels will take, at most."""
    stores = [op for op in function.walk() if isinstance(op, xetile.StoreTileOp)]
    kinds = {kind for op in stores if (kind := panels_of(op, groups)) is not None}
    return sum(kind.slots.data * kind.slot_bytes for kind in kinds)


def _obstacle(op: xetile.StoreTileOp, analysis: AccessAnalysis, groups: int) -> str | None:
    if panels_of(op, groups) is None:
        rows, columns = shape_of(op.value)
        return f"{rows}x{columns} is not cut into panels of {WGMMA_ROWS} rows of whole swizzles"
    if op.mask is not None:
        return "it is masked"
    if not _from_product(op):
        return "its value is not a product's result"
    access = analysis.find(op)
    if access is None or not isinstance(op.tile.owner, xetile.InitTileOp):
        return "its position is unknown"
    if access.tile_type.order != (1, 0):
        return "its rows are not contiguous"
    if (reason := unaddressable(access, analysis)) is not None:
        return reason
    roots = [a.root for a in analysis.accesses if a is not access]
    for other in analysis.func.walk():
        if isinstance(other, stage.CopyIssueOp):
            roots += [memory_root(t.owner.source) for t in other.tiles]  # pyright: ignore
        elif isinstance(other, stage.GatherIssueOp):
            roots.append(memory_root(other.tile.owner.source))  # pyright: ignore
    # Stage ops touch multi-buffers, and the arrays of the copies seen above.
    hidden = [o for o in analysis.hidden() if not o.name.startswith("stage.")]
    if hidden or any(may_alias(root, access.root) for root in roots):
        return "the kernel reads or writes its array elsewhere"
    return None


def _from_product(op: xetile.StoreTileOp) -> bool:
    """Is the value computed from a product of its own shape?"""
    value, _ = untransposed(op.value)
    shape = shape_of(value)

    def behind(value: SSAValue) -> list[SSAValue]:
        plain = isinstance(value.owner, Operation) and not value.owner.regions
        part = isinstance(value.owner, stage.ClusterSumOp)
        return [v for v in operands_of(value) if plain and (part or shape_of(v) == shape)]

    made = {each.owner for each in reached([value], behind)}
    inside = (i for op in made if isinstance(op, Operation) and op.regions for i in op.walk())
    products = stage.ProductWaitOp | stage.ProductIssueOp
    return any(isinstance(op, products) for op in (*made, *inside))


def _rewrite(function: gpu.FuncOp, op: xetile.StoreTileOp, groups: int) -> None:
    kind = panels_of(op, groups)
    assert kind is not None and op.parent is not None
    buffer = next(
        (
            o
            for o in function.body.block.ops
            if isinstance(o, stage.MultiBufferOp) and o.result.type == kind and _stores_only(o)
        ),
        None,
    )
    if buffer is None:
        buffer = stage.MultiBufferOp(kind)
        buffer.result.name_hint = "panels"
        first = function.body.block.first_op
        assert first is not None
        function.body.block.insert_op_before(buffer, first)
    value, transpose = untransposed(op.value)
    Rewriter.replace_op(op, stage.CopyStoreOp(value, op.tile, buffer.result, transpose))


def _stores_only(buffer: stage.MultiBufferOp) -> bool:
    uses = [use.operation for use in buffer.result.uses]
    return bool(uses) and all(isinstance(u, stage.CopyStoreOp) for u in uses)
