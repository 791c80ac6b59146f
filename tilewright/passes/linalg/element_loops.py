"""Structured ops that are no function of tiles become loops over elements.

    linalg.generic {indexing_maps = [ij, ij, i],               scf.for %i = .. {
        iterator_types = ["parallel", "reduction"]}              scf.for %j = .. {
        ins(%x) outs(%sums, %sum) {                                %a = memref.load %x[%i, %j]
    ^bb0(%a: f32, %b: f32, %c: f32):                     ->        %c = memref.load %sum[%i]
      %d = arith.addf %a, %c : f32                                 %d = arith.addf %a, %c : f32
      linalg.yield %d, %d : f32, f32                               memref.store %d, %sums[%i, %j]
    }                                                              memref.store %d, %sum[%i]

These are ops whose body branches, loops, stores or asserts something of elements or indices; whose results have a
place for each round of a reduction (a sum so far) or keep what the last round gives; and whose results are written at
places that are not linear in the loops, but each at its own.

Requires: structured ops on memrefs, with plain bodies. Guarantees: same results, with the loops in the order in which
the op has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from xdsl.dialects import affine, arith, cf, memref
from xdsl.dialects.builtin import AffineMapAttr, MemRefType
from xdsl.dialects.linalg.ops import GenericOp, IndexOp, YieldOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineDimExpr, AffineMap
from xdsl.rewriter import Rewriter

from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.linalg_bodies import reduced
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.emit import Before

_OF_TILES = (arith.ConstantOp, IndexOp, YieldOp, memref.LoadOp, cf.AssertOp)
"""What bodies of tiles have besides functions of elements. What is asserted of places (in front of a load) is taken to
hold: what lies outside of an array reads 0."""
_TRIED = 1 << 20
"""Rounds whose places are held against one another."""
_LINEAR = (AffineBinaryOpKind.Add, AffineBinaryOpKind.Mul)


def element_loops(module: Operation) -> None:
    """Rewrites every such op of a module, in place."""
    for op in [op for op in module.walk() if isinstance(op, GenericOp)]:
        extents = _extents(op)
        if extents is not None and not _is_of_tiles(op, extents):
            _loops(op, extents)


def _is_of_tiles(op: GenericOp, extents: Sequence[tuple[SSAValue, int]]) -> bool:
    """Also of what is refused: parallel rounds that may write to one place."""
    if not all(isinstance(each, _OF_TILES) or is_elementwise(each) for each in op.body.block.ops):
        return False
    asserted = [each.arg for each in op.body.block.ops if isinstance(each, cf.AssertOp)]
    loads = [each for each in op.body.block.ops if isinstance(each, memref.LoadOp)]
    if not _sources(asserted, op) <= _sources([i for load in loads for i in load.indices], op):
        return False
    reductions = reduced(op)
    for map_, before in zip(_maps(op)[len(op.inputs) :], _before(op), strict=True):
        if reductions and (map_.used_dims() & reductions or before.first_use is None):
            return False
        if not _is_linear(map_) and _apart(map_, extents):
            return False
    return True


def _sources(values: Iterable[SSAValue], op: GenericOp) -> set[SSAValue]:
    """The elements and indices that values of a body are made of."""
    block = op.body.block
    found = reached(values, lambda v: operands_of(v, block))
    return {v for v in found if v in block.args or isinstance(v.owner, memref.LoadOp | IndexOp)}


def _is_linear(map_: AffineMap) -> bool:
    parts = [part for result in map_.results for part in result.dfs()]
    return all(not isinstance(p, AffineBinaryOpExpr) or p.kind in _LINEAR for p in parts)


def _apart(map_: AffineMap, extents: Sequence[tuple[SSAValue, int]]) -> bool:
    """Whether each round has a place of its own, by trying all; no is the answer where there are too many."""
    sizes = [memref_type(value).get_shape()[d] for value, d in extents]
    if min(sizes) < 0 or math.prod(sizes) > _TRIED:
        return False
    rounds = np.indices(sizes).reshape(len(sizes), -1)
    places = np.stack([np.broadcast_to(r.eval(rounds, []), rounds[0].shape) for r in map_.results])  # pyright: ignore
    return np.unique(places, axis=1).shape[1] == rounds.shape[1]


def _maps(op: GenericOp) -> Sequence[AffineMap]:
    return [each.data for each in op.indexing_maps]


def _before(op: GenericOp) -> Sequence[SSAValue]:
    return op.body.block.args[len(op.inputs) :]


def _extents(op: GenericOp) -> list[tuple[SSAValue, int]] | None:
    """By loop, an operand and the dimension of it that the loop goes through; None where one has none."""
    found: dict[int, tuple[SSAValue, int]] = {}
    for value, map_ in zip(op.operands, _maps(op), strict=True):
        for d, expr in enumerate(map_.results):
            if isinstance(expr, AffineDimExpr):
                known = found.get(expr.position)
                if known is None or memref_type(known[0]).get_shape()[known[1]] < 0:
                    found[expr.position] = value, d
    loops = range(_maps(op)[0].num_dims)
    return [found[d] for d in loops] if all(d in found for d in loops) else None


def _loops(op: GenericOp, extents: Sequence[tuple[SSAValue, int]]) -> None:
    at = Before(op)
    bounds: list[tuple[int, SSAValue | int, int]] = []
    for value, d in extents:
        size = memref_type(value).get_shape()[d]
        end = size if size >= 0 else at.add(memref.DimOp(value, at.index(d)))
        bounds.append((0, end, 1))
    block = op.body.block

    def body(counters: Sequence[SSAValue], _: Sequence[SSAValue]) -> None:
        def place(map_: AffineMap) -> list[SSAValue]:
            return [
                counters[expr.position]
                if isinstance(expr, AffineDimExpr)
                else at.add(
                    affine.ApplyOp(
                        list(counters), AffineMapAttr(AffineMap(map_.num_dims, 0, (expr,)))
                    )
                )
                for expr in map_.results
            ]

        known: dict[SSAValue, SSAValue] = {}
        for value, argument, map_ in zip(op.operands, block.args, _maps(op), strict=True):
            if not isinstance(value.type, MemRefType):
                known[argument] = value
            elif argument.first_use is not None:
                known[argument] = at.add(memref.LoadOp.get(value, place(map_)))
        for each in block.ops:
            if isinstance(each, IndexOp):
                known[each.result] = counters[each.dim.value.data]
            elif not isinstance(each, YieldOp):
                at.insert(each.clone(known))
        results = [known.get(v, v) for v in block.last_op.operands]  # pyright: ignore
        for value, memory, map_ in zip(
            results, op.outputs, _maps(op)[len(op.inputs) :], strict=True
        ):
            at.insert(memref.StoreOp.get(value, memory, place(map_)))

    at.nest(bounds, body)
    Rewriter.erase_op(op)
