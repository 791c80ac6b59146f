"""Meaning of linalg on memrefs: the body for all iterations of the parallel loops at once, reductions one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.linalg.ops import GenericOp, IndexOp, YieldOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.linalg_bodies import reduced
from tilewright.reference import access, numerics
from tilewright.reference.registry import MEANINGS, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, MemRefValue


@meaning("linalg.generic")
def generic(site: Site, op: GenericOp, *operands: Any) -> None:
    if op.res:
        raise unsupported(op, f"{op.name} of tensors becomes one of memrefs first")
    maps = [m.data for m in op.indexing_maps]
    extents = _extents(op, maps, operands)
    away = reduced(op)
    parallel = [1 if d in away else n for d, n in enumerate(extents)]
    places = [np.asarray(each).reshape(1, -1) for each in np.indices(parallel)] if parallel else []
    if not places:
        places = [np.zeros((1, 1), np.int64)]
    for step in product(*(range(n) if d in away else (0,) for d, n in enumerate(extents))):
        loops = [place + at for place, at in zip(places, step, strict=False)]
        values: list[Any] = []
        for value, operand, map_, argument in zip(
            op.operands, operands, maps, op.body.block.args, strict=True
        ):
            is_read = argument.first_use is not None
            values.append(_elements(site, value, operand, map_, loops) if is_read else None)
        results = _body(site, op, values, loops)
        behind = slice(len(op.inputs), None)
        for value, operand, map_, result in zip(
            op.outputs, operands[behind], maps[behind], results, strict=True
        ):
            address = _address(operand, map_, loops, value)
            access.scatter(
                site, address, np.ones(address.shape, bool), np.broadcast_to(result, address.shape)
            )


def _column(of_instances: Any) -> Array:
    """A number of each instance, in front of the places of all loops."""
    return np.asarray(of_instances).reshape(-1, 1)


def _extents(op: GenericOp, maps: list[AffineMap], operands: tuple[Any, ...]) -> list[int]:
    """How often each loop runs: as the dimension of an operand says that it is."""
    found = [0] * maps[0].num_dims
    for map_, operand in zip(maps, operands, strict=True):
        for d, expr in enumerate(map_.results):
            if isinstance(expr, AffineDimExpr):
                sizes = np.unique(operand.sizes[d])
                if len(sizes) > 1:
                    raise unsupported(op, f"{op.name} has other extents in every program")
                found[expr.position] = int(sizes[0])
    return found


def _address(memory: MemRefValue, map_: AffineMap, loops: list[Index], value: SSAValue) -> Index:
    total = _column(memory.offset)
    for expr, stride in zip(map_.results, memory.strides, strict=True):
        total = total + np.asarray(expr.eval(loops, [])) * _column(stride)  # pyright: ignore[reportArgumentType]
    size = numerics.numpy_type(value.type).itemsize
    shape = np.broadcast_shapes(*(loop.shape for loop in loops), total.shape)
    return _column(memory.base) + size * np.broadcast_to(total, shape)


def _elements(
    site: Site, value: SSAValue, operand: Any, map_: AffineMap, loops: list[Index]
) -> Any:
    if not isinstance(value.type, MemRefType):
        return _column(operand)
    address = _address(operand, map_, loops, value)
    dtype = numerics.numpy_type(value.type)
    return access.gather(site, address, np.ones(address.shape, bool), dtype, np.zeros(1, dtype))


def _body(site: Site, op: GenericOp, values: list[Any], loops: list[Index]) -> list[Array]:
    known: dict[SSAValue, Any] = dict(zip(op.body.block.args, values, strict=True))

    def rows(value: SSAValue) -> Any:
        if value in known:
            return known[value]
        outside = site.group.get(value)  # an array stays one
        return outside if isinstance(value.type, MemRefType) else _column(outside)

    for inner in op.body.block.ops:
        if isinstance(inner, YieldOp):
            return [rows(value) for value in inner.operands]
        if isinstance(inner, IndexOp):
            known[inner.result] = loops[inner.dim.value.data]
            continue
        if inner.regions or inner.name not in MEANINGS or not inner.results:
            raise unsupported(
                inner,
                f"{inner.name} has no meaning in the body of {op.name}",
                hint="mlir-opt --convert-linalg-to-loops writes the loops out; --target cpu does it itself",
            )
        made = MEANINGS[inner.name](site, inner, *map(rows, inner.operands))
        known.update(zip(inner.results, made if len(inner.results) > 1 else [made], strict=True))
    raise AssertionError("a body ends in linalg.yield")
