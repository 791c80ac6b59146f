"""The loops of a structured op: how long they are, what depends on them, which is closest in memory."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    MemRefType,
)
from xdsl.ir import SSAValue

from tilewright.passes.linalg.accesses import Size, extents, strides
from tilewright.passes.linalg.fusion import Node

_PRODUCTS = (BFloat16Type, Float16Type, Float32Type, Float64Type)


def reduced(node: Node) -> dict[int, Size]:
    """The extents of an op's reductions."""
    every = loops_of(node)
    return {d: every[d] for d in node.reductions}


def loops_of(node: Node) -> list[Size]:
    """The extents of an op's loops: of the dimension of an operand that each is."""
    found: dict[int, Size] = {}
    for value, map_ in zip(node.op.operands, node.maps, strict=True):
        for d, expr in enumerate(map_.results):
            position = getattr(expr, "position", None)
            if position is not None and not isinstance(found.get(position), int):
                found[position] = extents(value)[d]
    return [found[d] for d in range(node.maps[0].num_dims)]


def dims_of(node: Node, value: SSAValue) -> set[int]:
    """The loops that a value of a body depends on."""
    maps = dict(zip(node.body.arguments, node.maps, strict=True))
    used = node.body.inputs_of(value, node.body.arguments)
    return {d for a in used for expr in maps[a].results for d in expr.used_dims()}


def fastest(node: Node, among: Sequence[int]) -> int:
    """Of some loops, the one whose elements are closest in memory, as most operands' last dimensions are."""

    def score(d: int) -> tuple[int, bool, int]:
        lasts = sum(
            bool(m.results) and d in m.results[-1].used_dims() for m in node.maps[: node.inputs]
        )
        extent = loops_of(node)[d]
        return lasts, not isinstance(extent, int), extent if isinstance(extent, int) else 0

    return max(among, key=score)


def is_multiplied(node: Node) -> bool:
    """Whether matrix units multiply a product's element types."""
    assert node.body.factors is not None
    kind, result = node.body.factors[0].type, node.body.before[0].type
    if isinstance(kind, IntegerType):
        return kind.width.data == 8 and result == IntegerType(32)
    wide = isinstance(kind, Float64Type) == isinstance(result, Float64Type)
    return isinstance(kind, _PRODUCTS) and isinstance(result, _PRODUCTS) and wide


def speeds(node: Node, rank: int) -> list[float]:
    """By loop, how much of what is read and written is contiguous along it; the result decides between equals."""
    found = [0.0] * rank
    for n, map_ in enumerate(node.maps):
        value = node.op.operands[n]
        if not isinstance(value.type, MemRefType) or not map_.results:
            continue
        own, _ = strides(value)
        last = [r for r, s in zip(map_.results, own, strict=True) if s == 1]
        weight = len({d for r in map_.results for d in r.used_dims()}) + (
            0.5 if n >= node.inputs else 0
        )
        for expr in last:
            for d in expr.used_dims():
                found[d] += weight
    for d in range(rank):
        found[d] += d / (16 * rank)  # inner loops, between equals
    return found
