"""linalg-to-xetile: structured ops become kernels over tiles, and launches of them.

    func.func @f(%a: .., %b: .., %c: ..) {             func.func @f(%a: .., %b: .., %c: ..) {
      linalg.matmul ins(%a, %b) outs(%c)         ->      gpu.launch_func @f_matmul::@f_matmul
    }                                                      blocks in (%c4, %c2, %c1) .. args(%a, %b, %c)
                                                       }
                                                       gpu.module @f_linalg { gpu.func @f_linalg(..) kernel {
                                                         .. xetile.load_tile, xetile.tile_mma, xetile.store_tile ..

An op inside of a kernel is computed by the program there: what would be a launch is a loop over the grid.

Requires: a verified module. Guarantees: same results; of linalg nothing is left. Tensors become memrefs first
(`bufferize`); what is computed together, `fusion` says; how, `tiles`. Sizes of tiles are the planner's, which is asked
for each kernel: `choose`. A sum of products in f16 or bf16 is added up in f32, and rounded once.
Raises UnsupportedError, at the op, for what is no function of elements and linear accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.arguments import NOWHERE, ArrayArg
from tilewright.diagnostics import unsupported
from tilewright.dtypes import from_mlir
from tilewright.frozen import field, frozen, record
from tilewright.passes.assume_alignment import BASE, assume_alignment
from tilewright.passes.cleanup import cleanup
from tilewright.passes.emit import Before
from tilewright.passes.kernel import LEVEL, level_of
from tilewright.passes.kernel_outlining import add_kernel
from tilewright.passes.linalg.accesses import Host, Linear, ProgramLoop, Size, StridedView
from tilewright.passes.linalg.blocks import store
from tilewright.passes.linalg.bodies import plain_bodies
from tilewright.passes.linalg.bufferize import bufferize
from tilewright.passes.linalg.element_loops import element_loops
from tilewright.passes.linalg.fusion import Node, nodes_of
from tilewright.passes.linalg.known_arguments import known_arguments
from tilewright.passes.linalg.nests import launch_nests
from tilewright.passes.linalg.overlap import overlap
from tilewright.passes.linalg.plan import LoopPlan, plan, row_sizes
from tilewright.passes.linalg.tiles import Bound, TileWriter
from tilewright.passes.loops import carry_what_changes
from tilewright.passes.memory_objects import ARGS, memory_root
from tilewright.passes.planner import Request
from tilewright.passes.planner import choose as generic_choice

Choose = Callable[[Request], Mapping[str, int]]
STEP = 32
"""Elements of k of a product's step, where the planner has none to choose."""
TRIAL = "trial"
"""What a kernel is called whose sizes of tiles are not chosen yet."""
OPEN = 2048
"""What a planner assumes of an extent that no type gives: machines are chosen for work that fills them."""


def linalg_to_xetile(module: ModuleOp, choose: Choose = generic_choice) -> None:
    """Rewrites every structured op of a module, in place; `choose` gives the sizes of tiles (`Request`)."""
    bufferize(module)
    plain_bodies(module)
    element_loops(module)
    _same_in_every_round(module)
    known_arguments(module)
    sizes = _Sizes(choose)
    launch_nests(module, lambda function: _lower(function, sizes, partial(_done_here, function)))
    for function in [f for f in module.walk() if isinstance(f, func.FuncOp | gpu.FuncOp)]:
        put = _done_here if isinstance(function, gpu.FuncOp) else partial(_launch, module)
        _lower(function, sizes, partial(put, function))
    _forget(module)


def _lower(
    function: func.FuncOp | gpu.FuncOp, sizes: _Sizes, put: Callable[[StructuredKernel, Node], None]
) -> None:
    """Every structured op of a function by what `put` makes of its kernel."""
    numbers = count()
    for block in list(function.walk_blocks()):
        if isinstance(block.parent_op(), GenericOp):
            continue
        nodes = nodes_of(block)
        for node in nodes:
            if node.kept:
                name = f"{function.sym_name.data}_linalg_{next(numbers)}"
                _check_in_place(node)
                found = plan(node)
                put(_built(name, found, sizes.of(found)), node)
        for node in reversed(nodes):
            Rewriter.erase_op(node.op)


def _same_in_every_round(module: ModuleOp) -> None:
    """Memory that a loop hands on as it is has the name that it has outside, and no copy to where it lies is left:
    one-shot-bufferize leaves such loops and copies."""
    for op in reversed([op for op in module.walk() if isinstance(op, scf.ForOp)]):
        carry_what_changes(op)
    for op in [op for op in module.walk() if isinstance(op, memref.CopyOp)]:
        if op.source is op.destination:
            Rewriter.erase_op(op)


def _forget(module: ModuleOp) -> None:
    """Memory that nothing but its release uses goes."""
    for op in [op for op in module.walk() if isinstance(op, memref.AllocOp)]:
        uses = [use.operation for use in op.memref.uses]
        if all(isinstance(use, memref.DeallocOp) for use in uses):
            for use in uses:
                Rewriter.erase_op(use)
            Rewriter.erase_op(op)


@record
class StructuredKernel:
    """A kernel, and what a launch gives it."""

    function: gpu.FuncOp
    given: Sequence[StridedView | Size | SSAValue]
    grid: Sequence[Axis]


Axis = tuple[Sequence[Size], int]
"""An axis of a grid: the extents that it goes through, one within the other, and the tile of each."""


def _built(name: str, found: LoopPlan, values: Mapping[str, int]) -> StructuredKernel:
    node = found.node
    end = gpu.ReturnOp([])
    end.location = node.op.location
    block = Block([end])
    function = gpu.FuncOp(name, ([], ()), Region(block), kernel=True)
    function.location = node.op.location
    function.attributes[LEVEL] = StringAttr("workgroup")
    sizes = [values["BM"], values["BN"]]
    tiles = TileWriter(end, sizes, values.get("BK", STEP))
    tiles.axes, tiles.extents = (found.rows, found.columns), (sizes[0], sizes[1])
    grid = _grid(tiles, found, sizes)
    inner = [
        (loop, size) for loop, size in zip(tiles.axes, sizes, strict=True) if loop in found.inner
    ]

    def body(_: Sequence[SSAValue]) -> Sequence[SSAValue]:
        results = tiles.results(node, found.bound)
        for n, (memory, result) in enumerate(zip(node.outputs, results, strict=True)):
            store(tiles, memory, tiles.indices(node, node.inputs + n, found.bound), result)
        return []

    def nest(loops: Sequence[tuple[ProgramLoop, int]]) -> Sequence[SSAValue]:
        if not loops:
            return body([])
        return tiles.loop(loops[0][0], loops[0][1], [], lambda _: nest(loops[1:]))

    for each in found.stats():
        _ahead(tiles, found, each)
    nest(inner)
    tiles.settle()
    function.properties["function_type"] = gpu.FunctionType.from_lists(list(block.arg_types), [])  # pyright: ignore
    outputs = set(node.outputs)
    facts = [
        {"noalias": UnitAttr()} if isinstance(g, StridedView) and g.memref in outputs else {}
        for g in tiles.given
    ]
    function.attributes[ARGS] = ArrayAttr(map(DictionaryAttr, facts))
    return StructuredKernel(function, list(tiles.given), [axis for _, axis in grid])


def _ahead(tiles: TileWriter, found: LoopPlan, node: Node) -> None:
    """Computes what is reduced for a row in front of the loop over its columns."""
    for bound in _bounds(found.node, found.bound, node):
        used = {loop for index in bound if index is not None for loop, _ in index.terms}
        if not used & found.inner:
            tiles.results(node, bound)


def _bounds(reader: Node, bound: Bound, node: Node) -> Iterator[Bound]:
    """The loops of an inlined op wherever `reader`, or what it computes, reads it."""
    for n, source in enumerate(reader.sources):
        producer = source.producer
        if (
            producer is None
            or producer.kept
            or (n >= reader.inputs and not reader.body.reads_results)
        ):
            continue
        own: list[Linear | None] = [None] * producer.maps[0].num_dims
        written = producer.maps[producer.inputs + source.result].results
        for w, r in zip(written, reader.maps[n].results, strict=True):
            position = getattr(r, "position", None)
            own[w.position] = None if position is None else bound[position]  # pyright: ignore
        if producer is node and all(
            own[d] is not None for d in range(len(own)) if d not in node.reductions
        ):
            yield tuple(own)
        yield from _bounds(producer, tuple(own), node)


def _grid(
    tiles: TileWriter, found: LoopPlan, sizes: Sequence[int]
) -> list[tuple[ProgramLoop | None, Axis]]:
    """Gives each loop of the grid its place: tiles of rows along x, of columns along y, all else along z."""
    at = tiles.at
    grid: list[tuple[ProgramLoop | None, Axis]] = []
    for axis, (loop, size) in enumerate(zip(tiles.axes, sizes, strict=True)):
        if loop is None or loop in found.inner:
            grid.append((None, ((), 1)))
            continue
        number = at.add(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum("xyz"[axis]))))
        tiles.offsets[loop] = at.add(arith.MuliOp(number, at.index(size)))
        grid.append((loop, ([loop.extent], size)))
    single = [loop for loop in found.single if loop.extent != 1]
    for loop in found.single:
        tiles.offsets[loop] = 0
    if single:
        rest = at.add(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum("z"))))
        for loop in reversed(single[1:]):
            extent = at.index(tiles.size(loop.extent))
            tiles.offsets[loop] = at.add(arith.RemUIOp(rest, extent))
            rest = at.add(arith.DivUIOp(rest, extent))
        tiles.offsets[single[0]] = rest
    grid.append((None, ([loop.extent for loop in single], 1)))
    return grid


@frozen
class _Asked:
    """A kernel's sizes, as a planner is asked for them."""

    names: tuple[str, ...]
    arguments: tuple[Any, ...]
    build: Callable[[Mapping[str, Any]], ModuleOp]
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    memory: dict[str, Any] = field(default_factory=dict[str, Any])

    def spare(self, values: Mapping[str, Any], module: ModuleOp) -> None:
        """What is chosen is built anew: these are functions of the program, not kernels that are compiled alone."""


@record
class _Sizes:
    """Sizes of tiles. The planner is asked once for kernels that are the same: layers of a network, or the ops of a
    nest that is no launch, which are lowered once more apart."""

    choose: Choose
    known: dict[str, Mapping[str, int]] = field(default_factory=dict[str, Any])

    def of(self, found: LoopPlan) -> Mapping[str, int]:
        if (sizes := row_sizes(found)) is not None:
            return sizes
        trial = _built(TRIAL, found, dict.fromkeys(found.names, 64))
        # What has no rows has one.
        fixed = {n: 1 for n, loop in (("BM", found.rows), ("BN", found.columns)) if loop is None}

        def build(values: Mapping[str, Any]) -> ModuleOp:
            module = _module(_built(TRIAL, found, {**fixed, **values}).function)
            assume_alignment(module, pitch=BASE)  # fresh arrays: a launch says what it has
            return module

        asked = _Asked(
            tuple(n for n in found.names if n not in fixed),
            tuple(map(_argument, trial.given)),
            build,
        )
        key = f"{asked.names} {asked.arguments} {trial.function}"
        if key not in self.known:
            self.known[key] = {**fixed, **self.choose(asked)}
        return self.known[key]


def _argument(given: StridedView | Size | SSAValue) -> Any:
    if not isinstance(given, StridedView):
        return 0
    shape, steps = (
        tuple(n if isinstance(n, int) else OPEN for n in each)
        for each in (given.sizes, given.strides)
    )
    dtype = from_mlir(given.type.element_type)
    return ArrayArg(0, shape, steps, dtype, NOWHERE, False, None)


def _module(function: gpu.FuncOp) -> ModuleOp:
    cleanup(function)
    table = gpu.ModuleOp(function.sym_name, Region(Block([function])))  # pyright: ignore
    return ModuleOp([table])


# The launch. -----------------------------------------------------------------------------------------------------


def _launch(module: ModuleOp, function: func.FuncOp, kernel: StructuredKernel, node: Node) -> None:
    """The kernel of an op beside its function, and its launch in place of the op."""
    cleanup(kernel.function)
    name = kernel.function.sym_name.data
    add_kernel(module, kernel.function, name, function)
    before = Before(node.op)
    operands, grid = _arguments(before, kernel)
    one = before.index(1)
    before.insert(
        gpu.LaunchFuncOp(SymbolRefAttr(name, [name]), grid, [one] * 3, kernelOperands=operands)
    )


def _arguments(
    before: Before, kernel: StructuredKernel
) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    """What the kernel of an op is given, and its grid, in front of the op."""
    host = Host(before)
    operands = [
        g
        if isinstance(g, SSAValue)
        else host.view(g)
        if isinstance(g, StridedView)
        else host.size(g)
        for g in kernel.given
    ]
    return operands, [host.programs(*axis) for axis in kernel.grid]


def _done_here(function: func.FuncOp | gpu.FuncOp, kernel: StructuredKernel, node: Node) -> None:
    """The programs of an op's kernel one after the other, in place of the op, in a kernel of tiles."""
    if level_of(function) == "lane":
        raise unsupported(
            node.op,
            "a structured op in a program of lanes",
            hint='a kernel of tiles ({tilewright.level = "workgroup"}) computes it once for all its lanes',
        )
    _say_apart(function, node)
    before = Before(node.op)
    operands, grid = _arguments(before, kernel)
    copies: dict[SSAValue, SSAValue] = {}
    copies.update(zip(kernel.function.body.block.args, operands, strict=True))

    def program(numbers: Sequence[SSAValue], _: Sequence[SSAValue]) -> None:
        for op in list(kernel.function.body.block.ops)[:-1]:
            if isinstance(op, gpu.BlockIdOp):
                copies[op.result] = numbers["xyz".index(op.dimension.data)]
            else:
                before.insert(op.clone(copies))

    before.nest(((0, end, 1) for end in grid), program)


def _say_apart(function: func.FuncOp | gpu.FuncOp, node: Node) -> None:
    """A kernel says of the arguments that an op writes that they overlap no others, as launches check."""
    said = function.attributes.get(ARGS)
    arguments = function.body.block.args
    facts = [*said.data] if isinstance(said, ArrayAttr) else [DictionaryAttr({})] * len(arguments)
    for root in map(memory_root, node.outputs):
        if root in arguments and isinstance(each := facts[root.index], DictionaryAttr):  # pyright: ignore
            facts[root.index] = DictionaryAttr({**each.data, "noalias": UnitAttr()})  # pyright: ignore
    function.attributes[ARGS] = ArrayAttr(facts)


def _check_in_place(node: Node) -> None:
    """What is read of memory that the op writes is read where it is written."""
    for out, written in zip(node.outputs, node.maps[node.inputs :], strict=True):
        if any(overlap(value, out) for value in node.body.loaded):
            raise unsupported(
                node.op,
                "the body loads from memory that the op writes",
                rule="iterations of a structured op run in any order",
                hint="write to a separate buffer",
            )
        for n, value in enumerate(node.op.operands[: node.inputs]):
            source = node.sources[n]
            inlined = source.producer is not None and not source.producer.kept
            if inlined or not overlap(value, out):
                continue
            if value is not out or node.maps[n] != written:
                raise unsupported(
                    node.op,
                    f"operand {n} may overlap what the op writes, at other positions",
                    rule="iterations of a structured op run in any order",
                    hint="write to a separate buffer",
                )
