"""fetch-ahead: a loop that looks up where its tiles are fetches those of its next iteration.

    for %i = %lo to %hi step %c1 {                         for %i = %lo to %hi step %c1 {
      %p = .. load_tile of table[%i]                         %p = .. load_tile of table[%i]
      %k = load_tile (init_tile %K[%p, 0, 0])        ->      %q = .. load_tile of table[%i + 1]     // [%i] in the last
                                                             prefetch_tile (init_tile %K[%q, 0, 0])
                                                             %k = load_tile (init_tile %K[%p, 0, 0])

Caches fetch by themselves what follows what was read. Where numbers in memory say where a tile is, as in a table of
pages, each tile begins with the latency of memory. Reads of the tile that is loaded fetch the other, line by line (see
`lower_xetile_prefetch_tile`).

Requires: workgroup level, numbers in memory as tiles, products as `stage.contract`. Guarantees: values stay what they
are; arrays that the loop prefetches from itself are left to it.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import is_side_effect_free

from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, FusedOp
from tilewright.frozen import field, record
from tilewright.passes.memory_objects import is_array_argument, memory_root


def fetch_ahead(kernel: gpu.FuncOp) -> None:
    """Fetches tiles of the next iteration, where numbers in memory say where they are."""
    for loop in [op for op in kernel.walk() if isinstance(op, scf.ForOp)]:
        body = loop.body.block
        own = {_source(op) for op in body.walk() if isinstance(op, xt.PrefetchTileOp)}
        later = Later(loop)
        # Of a branch it is not known whether the next iteration takes it: only loads of the body itself.
        for op in list(body.walk()):
            if isinstance(op, xt.LoadTileOp) and _block_of(op) is body:
                source = _source(op)
                if source is not None and is_array_argument(source) and source not in own:
                    later.fetch(op.tile.owner)  # pyright: ignore[reportArgumentType]


def _source(op: xt.LoadTileOp | xt.PrefetchTileOp) -> SSAValue | None:
    """The array of a block that is loaded or prefetched, where it says so itself."""
    tile = op.tile.owner
    if isinstance(tile, xt.InitTileOp) and tile.offset_vector is None:
        return memory_root(tile.source)
    return None


def tiles_beside(kernel: gpu.FuncOp) -> dict[SSAValue, SSAValue]:
    """For tiles that are loaded in one block alone the one that is prefetched beside each: in that block from the same
    array, of the same type, first to first."""
    found: dict[SSAValue, SSAValue] = {}
    fetched: dict[tuple[object, ...], list[SSAValue]] = {}
    for kind in (xt.PrefetchTileOp, xt.LoadTileOp):
        for op in kernel.walk():
            if not isinstance(op, kind) or (source := _source(op)) is None or op.tile in found:
                continue
            block = _block_of(op)
            there = fetched.setdefault((block, source, op.tile.type), [])
            if isinstance(op, xt.PrefetchTileOp):
                there.append(op.tile)
            elif there and all(_block_of(use.operation) is block for use in op.tile.uses):
                found[op.tile] = there.pop(0)
    return found


def _block_of(op: Operation) -> Block | None:
    """The block in whose order it runs, that of a loop, a branch or the kernel."""
    parent = op.parent_op()
    return parent.parent if isinstance(parent, ContractOp | FusedOp) else op.parent


@record
class Later:
    """Values of a loop's next iteration; of the last one, once more those of that."""

    loop: scf.ForOp
    found: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def fetch(self, tile: xt.InitTileOp) -> None:
        """Prefetches the tile that comes after this one, if its place is looked up and can be foreseen."""
        body = self.loop.body.block
        needed = self.needed(tile)
        if (
            tile.result in self.found
            or needed is None
            or not any(isinstance(op, xt.LoadTileOp) for op in needed)
        ):
            return
        anchor = body.find_ancestor_op_in_block(tile)
        assert anchor is not None
        if isinstance(anchor, ContractOp):
            self.found[anchor.body.block.args[0]] = anchor.lo
        for op in [*needed, tile]:
            if op is not tile and all(r in self.found for r in op.results):
                continue
            self.step(anchor)
            ahead = op.clone({**self.found})
            Rewriter.insert_op(ahead, InsertPoint.before(anchor))
            self.found.update(zip(op.results, ahead.results, strict=True))
        fetch = xt.PrefetchTileOp.build(operands=[self.found[tile.result]])
        Rewriter.insert_op(fetch, InsertPoint.before(anchor))

    def step(self, before: Operation) -> None:
        """The counter of the next iteration."""
        counter = self.loop.body.block.args[0]
        if counter in self.found:
            return
        after = arith.AddiOp(counter, self.loop.step)
        goes_on = arith.CmpiOp(after, self.loop.ub, "slt")
        chosen = arith.SelectOp(goes_on, after, counter)
        Rewriter.insert_op([after, goes_on, chosen], InsertPoint.before(before))
        self.found[counter] = chosen.result

    def needed(self, tile: Operation) -> list[Operation] | None:
        """The ops of the loop that a tile's place comes from, in order; None where some of it cannot be foreseen."""
        ops: dict[Operation, None] = {}

        def visit(op: Operation) -> bool:
            for value in op.operands:
                if isinstance(value, BlockArgument):
                    if not self.foreseen(value):
                        return False
                elif (
                    isinstance(value, OpResult)
                    and self.loop.is_ancestor(value.op)
                    and value.op not in ops
                ):
                    known = isinstance(value.op, xt.LoadTileOp) or is_side_effect_free(value.op)
                    if not known or value.op.regions or not visit(value.op):
                        return False
                    ops[value.op] = None
            return True

        return list(ops) if visit(tile) else None

    def foreseen(self, value: BlockArgument) -> bool:
        """Is it the loop's counter, the first k of a product, or from outside?"""
        block = value.block
        if block is self.loop.body.block or isinstance(block.parent_op(), ContractOp):
            return value.index == 0
        return True
