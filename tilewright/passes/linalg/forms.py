"""Ops on tensors written out on memory: structured ops, copies of parts, stores; what is several structured ops, too.

    %r = tensor.pad %x low[1] high[2] {.. %c}   ->   linalg.fill ins(%c) outs(%r); linalg.copy ins(%x) outs(part of %r)
    %r = arith.addf %x, %y : tensor<8xf32>      ->   linalg.generic {..} ins(%x, %y) outs(%r) { arith.addf }

Each form is given its op once the op's operands and results are memrefs (`bufferize`). Sizes are numbers, or values of
the host where a type leaves them open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import memref_type
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.memref import ReshapeOp
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before
from tilewright.passes.expand_ops import EXPANSIONS
from tilewright.passes.linalg.accesses import subview_type

Made = Callable[..., Sequence[SSAValue]]


def extents_of(before: Before, value: SSAValue) -> list[Index]:
    """The extents of a memref, values where its type leaves them open."""
    return [
        n if n != DYNAMIC_INDEX else before.add(memref.DimOp(value, before.index(d)))
        for d, n in enumerate(memref_type(value).get_shape())
    ]


def allocated(before: Before, element: Attribute, extents: Sequence[Index]) -> SSAValue:
    shape = [n if isinstance(n, int) else DYNAMIC_INDEX for n in extents]
    sizes = [n for n in extents if isinstance(n, SSAValue)]
    return before.add(memref.AllocOp.get(element, None, shape, dynamic_sizes=sizes))


def new_like(before: Before, like: SSAValue) -> SSAValue:
    """Memory of its own for a value of a shape that a memref has."""
    return allocated(before, memref_type(like).element_type, extents_of(before, like))


def structured(
    before: Before,
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    body: Made,
    maps: Sequence[Sequence[AffineExpr] | None] = (),
    loops: int | None = None,
    reductions: Sequence[int] = (),
) -> None:
    """A structured op: `body` makes the values of the results of (block, elements); loops that `maps` do not name for
    an operand are its dimensions."""
    operands = [*inputs, *outputs]
    loops = memref_type(outputs[0]).get_num_dims() if loops is None else loops
    elements = [v.type.element_type if isinstance(v.type, MemRefType) else v.type for v in operands]
    block = Block(arg_types=elements)
    block.add_op(YieldOp(*body(block, *block.args)))
    given = [*maps, *[None] * (len(operands) - len(maps))]
    same = AffineMap.identity(loops)
    found = [same if m is None else AffineMap(loops, 0, tuple(m)) for m in given]
    kinds = (
        IteratorType.REDUCTION if d in reductions else IteratorType.PARALLEL for d in range(loops)
    )
    before.insert(
        GenericOp(
            inputs, outputs, Region(block), ArrayAttr(map(AffineMapAttr, found)),
            ArrayAttr(map(IteratorTypeAttr, kinds)),
        )
    )  # fmt: skip


def _put(block: Block, *ops: Operation) -> Sequence[SSAValue]:
    for op in ops:
        block.add_op(op)
    return ops[-1].results


def copy(before: Before, source: SSAValue, target: SSAValue, source_map: Any = None) -> None:
    """A memref's elements to another of its shape, or from where a map says."""
    structured(before, [source], [target], lambda _, a, b: [a], [source_map])


def copied(before: Before, source: SSAValue) -> SSAValue:
    """Memory of its own for the elements of a memref."""
    memory = new_like(before, source)
    copy(before, source, memory)
    return memory


def fill(before: Before, value: SSAValue, target: SSAValue) -> None:
    structured(before, [value], [target], lambda _, a, b: [a], [()])


def part(
    before: Before, source: SSAValue, offsets: Sequence[Index], sizes: Sequence[Index]
) -> SSAValue:
    """Part of a memref, of its rank."""
    ones = [1] * len(sizes)
    shape = [n if isinstance(n, int) else DYNAMIC_INDEX for n in sizes]
    kind = subview_type(memref_type(source), offsets, ones, shape, range(len(shape)))
    return before.add(memref.SubviewOp.get(source, offsets, sizes, ones, kind))


def mixed(static: Any, dynamic: Sequence[SSAValue]) -> list[Index]:
    values = iter(dynamic)
    return [next(values) if int(n) == DYNAMIC_INDEX else int(n) for n in static.get_values()]


# Elements by elements. -------------------------------------------------------------------------------------------


def elementwise(before: Before, op: Operation) -> None:
    """A function of elements on memrefs: a structured op; constants that are the same everywhere are its own."""
    arrays = [v for v in op.operands if isinstance(v.type, MemRefType)]
    kinds = [memref_type(result).element_type for result in op.results]
    memory = [allocated(before, kind, extents_of(before, arrays[0])) for kind in kinds]

    def body(block: Block, *elements: SSAValue) -> Sequence[SSAValue]:
        known = dict(zip(arrays, elements, strict=False))
        operands = [known.get(v, v) for v in op.operands]
        return _put(block, retyped(op, operands, kinds))

    structured(before, arrays, memory, body)
    before.replace(*memory)


def _of_indices(before: Before, target: SSAValue, region: Region) -> None:
    """Each element of a memref is what a region makes of its indices."""
    inside = region.block

    def body(block: Block, *_: SSAValue) -> Sequence[SSAValue]:
        indices = [_put(block, IndexOp(d))[0] for d in range(len(inside.args))]
        Rewriter.inline_block(inside, InsertPoint.at_end(block), indices)
        last = terminator(block)
        values = list(last.operands)
        Rewriter.erase_op(last)
        return values

    structured(before, [], [target], body)


def generate(before: Before, op: Any) -> None:
    kind, values = op.result.type, iter(op.extents)
    extents = [next(values) if n == DYNAMIC_INDEX else n for n in kind.get_shape()]
    memory = allocated(before, kind.element_type, extents)
    _of_indices(before, memory, op.body)
    before.replace(memory)


def splat(before: Before, op: Any) -> None:
    value, *sizes = op.operands
    kind, values = op.results[0].type, iter(sizes)
    extents = [next(values) if n == DYNAMIC_INDEX else n for n in kind.get_shape()]
    memory = allocated(before, kind.element_type, extents)
    fill(before, value, memory)
    before.replace(memory)


def pad(before: Before, op: Any) -> None:
    low, high = mixed(op.static_low, op.low), mixed(op.static_high, op.high)
    inner = extents_of(before, op.source)
    kind = op.result.type
    known = kind.get_shape()
    extents = [
        n if n != DYNAMIC_INDEX else _sum(before, a, m, b)
        for n, a, m, b in zip(known, low, inner, high, strict=True)
    ]
    memory = allocated(before, kind.element_type, extents)
    last = op.region.block.last_op
    value = last.operands[0]
    if value.owner is op.region.block or getattr(value.owner, "parent", None) is op.region.block:
        if isinstance(value.owner, arith.ConstantOp):
            fill(before, before.add(value.owner.clone()), memory)
        else:
            _of_indices(before, memory, op.region)
    else:
        fill(before, value, memory)
    copy(before, op.source, part(before, memory, low, inner))
    before.replace(memory)


def _sum(before: Before, *values: Index) -> Index:
    if all(isinstance(v, int) for v in values):
        return sum(v for v in values if isinstance(v, int))
    total = before.index(values[0])
    for value in values[1:]:
        total = before.add_index(total, before.index(value))
    return total


def concat(before: Before, op: Any) -> None:
    dim, kind = op.dim.value.data, op.results[0].type
    parts = [extents_of(before, v) for v in op.operands]
    extents = [*parts[0]]
    extents[dim] = _sum(before, *(p[dim] for p in parts))
    memory = allocated(before, kind.element_type, extents)
    at: Index = 0
    for value, sizes in zip(op.operands, parts, strict=True):
        offsets: list[Index] = [0] * len(sizes)
        offsets[dim] = at
        copy(before, value, part(before, memory, offsets, sizes))
        at = _sum(before, at, sizes[dim])
    before.replace(memory)


def from_elements(before: Before, op: Any) -> None:
    kind = op.results[0].type
    memory = allocated(before, kind.element_type, kind.get_shape())
    for n, value in enumerate(op.operands):
        at: list[SSAValue] = []
        for extent in reversed(kind.get_shape()):
            at.insert(0, before.index(n % extent))
            n //= extent
        before.insert(memref.StoreOp.get(value, memory, at))
    before.replace(memory)


def insert(before: Before, op: Any) -> None:
    value, target, *indices = op.operands
    before.insert(memref.StoreOp.get(value, target, indices))
    before.replace(target)


def gather(before: Before, op: Any) -> None:
    """Each element of the result is loaded from where the indices say."""
    kind, dims = op.result.type, op.gather_dims
    batch = memref_type(op.indices).get_num_dims() - 1
    rank, inner = kind.get_num_dims(), memref_type(op.source).get_num_dims()
    extents = [*extents_of(before, op.indices)[:-1]]
    free = [d for d in range(inner) if d not in dims]
    sizes = extents_of(before, op.source)
    if rank == batch + inner:
        extents += [1 if d in dims else n for d, n in enumerate(sizes)]
        at = {d: batch + d for d in free}
    else:
        extents += [sizes[d] for d in free]
        at = {d: batch + n for n, d in enumerate(free)}
    memory = allocated(before, kind.element_type, extents)
    outer = [AffineDimExpr(d) for d in range(batch)]

    def body(block: Block, *given: SSAValue) -> Sequence[SSAValue]:
        places = dict(zip(dims, (_as_index(block, v) for v in given), strict=False))
        for d, loop in at.items():
            (places[d],) = _put(block, IndexOp(loop))
        return _put(block, memref.LoadOp.get(op.source, [places[d] for d in range(inner)]))

    structured(
        before, [op.indices] * len(dims), [memory], body,
        [[*outer, AffineConstantExpr(n)] for n in range(len(dims))],
    )  # fmt: skip
    before.replace(memory)


def _as_index(block: Block, value: SSAValue) -> SSAValue:
    if isinstance(value.type, IndexType):
        return value
    return _put(block, arith.IndexCastOp(value, IndexType()))[0]


def scatter(before: Before, op: Any) -> None:
    """Each element of the slices is stored to where the indices say, one beside the other."""
    dims, slices = op.scatter_dims, memref_type(op.source)
    batch = memref_type(op.indices).get_num_dims() - 1
    inner = memref_type(op.dest).get_num_dims()
    free = [d for d in range(inner) if d not in dims]
    whole = slices.get_num_dims() == batch + inner
    loops = [before.index(n) for n in extents_of(before, op.source)]
    block = Block(arg_types=[IndexType()] * len(loops))
    places: dict[int, SSAValue] = {
        d: block.args[batch + (d if whole else n)] for n, d in enumerate(free)
    }
    for n, d in enumerate(dims):
        (number,) = _put(block, arith.ConstantOp(IntegerAttr(n, IndexType())))
        (place,) = _put(block, memref.LoadOp.get(op.indices, [*block.args[:batch], number]))
        places[d] = _as_index(block, place)
    (value,) = _put(block, memref.LoadOp.get(op.source, list(block.args)))
    block.add_ops(
        [memref.StoreOp.get(value, op.dest, [places[d] for d in range(inner)]), scf.ReduceOp()]
    )
    zeros, ones = ([before.index(n)] * len(loops) for n in (0, 1))
    before.insert(scf.ParallelOp(zeros, loops, ones, Region(block)))
    before.replace(op.dest)


def reshape(before: Before, op: Any) -> None:
    kind = op.results[0].type
    made = ReshapeOp(op.source, op.shape, MemRefType(kind.element_type, kind.get_shape()))
    before.insert(made)
    before.replace(made.result)
    EXPANSIONS[made.name](made, Before(made))


def bitcast(before: Before, op: Any) -> None:
    (result,) = op.results
    element = memref_type(result).element_type
    memory = allocated(before, element, extents_of(before, op.source))
    structured(before, [op.source], [memory], lambda b, x, _: _put(b, arith.BitcastOp(x, element)))
    before.replace(memory)


# Ops that are several. -------------------------------------------------------------------------------------------


def exponentials(before: Before, op: Any) -> None:
    """The maximum of a row, the exponentials, their sum, the quotients."""
    source, dim = op.input, op.dimension
    kind = memref_type(source)
    element = cast(Any, kind.element_type)
    extents = extents_of(before, source)
    rank = len(extents)
    kept = [AffineDimExpr(d) for d in range(rank) if d != dim]
    top, total = (
        allocated(before, element, [n for d, n in enumerate(extents) if d != dim]) for _ in range(2)
    )
    powers = new_like(before, source)
    result = op.output if not op.res else new_like(before, op.output)
    for memory, start, inputs, combine in (
        (top, float("-inf"), source, arith.MaximumfOp), (total, 0.0, powers, arith.AddfOp),
    ):  # fmt: skip
        fill(before, before.constant(element, start), memory)
        if memory is total:
            structured(
                before, [source, top], [powers],
                lambda b, x, m, _: _put(b, d := arith.SubfOp(x, m), math.ExpOp(d)),
                [None, kept],
            )  # fmt: skip
        structured(
            before, [inputs], [memory],
            lambda b, x, y, combine=combine: _put(b, combine(x, y)),
            [None, kept], rank, [dim],
        )  # fmt: skip
    structured(
        before,
        [powers, total],
        [result],
        lambda b, x, y, _: _put(b, arith.DivfOp(x, y)),
        [None, kept],
    )
    before.replace(*([result] if op.res else []))


def _tiles(op: Any) -> dict[int, int]:
    tiles = op.tiles()
    if DYNAMIC_INDEX in tiles.values():
        raise unsupported(
            op, f"{op.name} with tile sizes that are known only at run time",
            hint="write the sizes of inner_tiles as numbers",
        )  # fmt: skip
    return tiles


def _times(before: Before, a: Index, b: int) -> Index:
    if isinstance(a, int):
        return a * b
    return before.add(arith.MuliOp(a, before.index(b)))


def pack(before: Before, op: Any) -> None:
    """Tiles are read where linear functions of their loops say; a ragged edge from a padded copy."""
    source, tiles = op.source, _tiles(op)
    inner = extents_of(before, source)
    rank, element = len(inner), memref_type(source).element_type
    outer = op.outer(rank)
    counts = extents_of(before, op.dest)
    number = {d: counts[place] for place, d in enumerate(outer)}
    whole = [_times(before, number[d], tiles.get(d, 1)) for d in range(rank)]
    if op.padding_value is not None and whole != inner:
        memory = allocated(before, element, whole)
        fill(before, op.padding_value, memory)
        copy(before, source, part(before, memory, [0] * rank, inner))
        source = memory
    at: list[AffineExpr] = [AffineDimExpr(outer.index(d)) for d in range(rank)]
    for place, (d, size) in enumerate(tiles.items()):
        at[d] = at[d] * size + AffineDimExpr(rank + place)
    result = op.dest if not op.res else new_like(before, op.dest)
    copy(before, source, result, at)
    before.replace(*([result] if op.res else []))


def unpack(before: Before, op: Any) -> None:
    """Tiles side by side, each beside its own loop; of a ragged edge, what the matrix has."""
    source, tiles = op.source, _tiles(op)
    sizes = extents_of(before, op.dest)
    rank, element = len(sizes), memref_type(source).element_type
    outer, order = op.outer(rank), list(tiles)
    counts = extents_of(before, source)
    number = {d: counts[place] for place, d in enumerate(outer)}
    apart: list[Index] = []
    groups: list[list[int]] = []
    at: list[AffineExpr] = [AffineDimExpr(0)] * len(counts)
    for d in range(rank):
        groups.append([len(apart)])
        at[outer.index(d)] = AffineDimExpr(len(apart))
        apart.append(number[d])
        if d in tiles:
            groups[-1].append(len(apart))
            at[rank + order.index(d)] = AffineDimExpr(len(apart))
            apart.append(tiles[d])
    memory = allocated(before, element, apart)
    copy(before, source, memory, at)
    whole = [_times(before, number[d], tiles.get(d, 1)) for d in range(rank)]
    shape = [n if isinstance(n, int) else DYNAMIC_INDEX for n in whole]
    reassociation = ArrayAttr(ArrayAttr(IntegerAttr(n, 64) for n in g) for g in groups)
    joined = before.add(
        memref.CollapseShapeOp.create(
            operands=[memory],
            result_types=[MemRefType(element, shape)],
            properties={"reassociation": reassociation},
        )
    )
    if op.res and whole == sizes:
        return before.replace(joined)
    result = op.dest if not op.res else new_like(before, op.dest)
    if whole != sizes:
        joined = part(before, joined, [0] * rank, sizes)
    copy(before, joined, result)
    return before.replace(*([result] if op.res else []))


COMPOSED: dict[str, Callable[[Before, Any], None]] = {
    "linalg.softmax": exponentials,
    "linalg.pack": pack,
    "linalg.unpack": unpack,
    "tensor.pack": pack,
    "tensor.unpack": unpack,
}
"""Also on memrefs."""
FORMS: dict[str, Callable[[Before, Any], None]] = {
    **COMPOSED,
    "bufferization.clone": lambda before, op: before.replace(copied(before, op.input)),
    "tensor.bitcast": bitcast,
    "tensor.concat": concat,
    "tensor.from_elements": from_elements,
    "tensor.gather": gather,
    "tensor.generate": generate,
    "tensor.insert": insert,
    "tensor.pad": pad,
    "tensor.rank": lambda before, op: before.replace(
        before.add(
            arith.ConstantOp(IntegerAttr(len(memref_type(op.tensor).get_shape()), IndexType()))
        )
    ),
    "tensor.reshape": reshape,
    "tensor.scatter": scatter,
    "tensor.splat": splat,
}
