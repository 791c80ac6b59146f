"""Derived maps: who must own an op's operands, given who owns its result.

These are the rules of the two RFCs on the surface syntax, where a verifier compares them with what the
text says and where a pass writes them. On the normal form the same rules are methods of
:class:`~tilewright.layout.digits.Layout`: ``permuted``, ``contracted``, ``sliced``, ``reshaped``, ``expanded``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.layout.digits import LayoutError, Shape
from tilewright.layout.surface import Distribution

_Change = Callable[[int], int]
_FieldChange = Callable[[Shape], Shape]


@dataclass(frozen=True)
class MmaShapes:
    """One machine instruction's shapes, for the fields below the subgroup: A is m x k, B k x n.

    ``pack_a`` elements along k of A and ``pack_b`` of B make one unit of a lane.
    """

    m: int
    n: int
    k: int
    pack_a: int = 1
    pack_b: int = 1


def mma_operands(
    c: Distribution, k: int, instruction: MmaShapes | None = None
) -> tuple[Distribution, Distribution]:
    """Maps of A [m, k] and B [k, n] for a product whose result (and C) has map ``c``.

    sg_layout is c's, sg_data c's along m and n and the operand's whole extent along k. With an
    instruction, inst_data and lane_data follow from its shapes; without one they are dropped.
    """
    if c.rank != 2 or c.sliced:
        raise LayoutError(f"the map of a matrix product has rank 2, not {c.rank}")
    bare = replace(c, inst_data=None, lane_data=None, lane_layout=None)
    a = replace(bare, sg_data=_with(c.sg_data, 1, k))
    b = replace(bare, sg_data=_with(c.sg_data, 0, k))
    if instruction is not None:
        i = instruction
        a = replace(a, inst_data=(i.m, i.k), lane_layout=c.lane_layout)
        b = replace(b, inst_data=(i.k, i.n), lane_layout=c.lane_layout)
        if c.lane_layout is not None:
            a = replace(a, lane_data=(1, i.pack_a))
            b = replace(b, lane_data=(i.pack_b, 1))
    return a, b


def reduction_input(
    result: Distribution, dim: int, extent: int, size: int | None = None
) -> Distribution:
    """Map of a reduction's input [.., extent, ..], given its result's, whose rank is the same.

    Full reduction: a subgroup owns the whole dimension. With ``size`` (`reduction_size`) runs of that
    many elements are reduced: sg_data is the result's times ``size``.
    """
    _check_dim(result, dim)
    if size is None:
        return _on_dim(result, dim, lambda _: extent)
    if extent % size:
        raise LayoutError(f"reduction_size {size} does not divide {extent} in dimension {dim}")
    return _on_dim(result, dim, lambda data: data * size)


def broadcast_input(result: Distribution, dim: int, size: int | None = None) -> Distribution:
    """Map of a broadcast's input, given its result's, whose rank is the same.

    sg_data becomes 1 along ``dim``; with ``size`` (`broadcast_size`) the result's divided by it.
    """
    _check_dim(result, dim)
    if size is None:
        return _on_dim(result, dim, lambda _: 1)

    def divided(data: int) -> int:
        if data % size:
            raise LayoutError(f"broadcast_size {size} does not divide {data} in dimension {dim}")
        return data // size

    return _on_dim(result, dim, divided)


def transpose_input(result: Distribution, permutation: Sequence[int] = (1, 0)) -> Distribution:
    """XeTile's rule: sg_layout and sg_data are permuted, ids stay row-major.

    So the id of an owner changes, and data moves between subgroups unless the grid has one column.
    """
    inverse = _inverse(permutation, result.field_rank)
    return map_fields(result, lambda f: tuple(f[i] for i in inverse))


def permuted_input(result: Distribution, permutation: Sequence[int] = (1, 0)) -> Distribution:
    """XeGPU's rule: every field and `order` are permuted, so that nothing moves."""
    rank = result.field_rank
    order = result.order or tuple(reversed(range(rank)))
    swapped = transpose_input(result, permutation)
    return replace(swapped, order=tuple(permutation[d] for d in order))


def bitcast_input(result: Distribution, factor: int, dim: int = -1) -> Distribution:
    """Map of a bitcast's input whose elements are ``factor`` times as wide as the result's."""
    dim %= result.field_rank

    def narrowed(field: Shape | None, what: str) -> Shape | None:
        if field is None:
            return None
        if field[dim] % factor:
            raise LayoutError(
                f"{what} {field[dim]} in dimension {dim} splits an element of {factor} parts"
            )
        return _with(field, dim, field[dim] // factor)

    return replace(
        result,
        sg_data=narrowed(result.sg_data, "sg_data"),
        inst_data=narrowed(result.inst_data, "inst_data"),
        lane_data=narrowed(result.lane_data, "lane_data"),
    )


def reshape_input(
    result: Distribution, result_shape: Sequence[int], shape: Sequence[int]
) -> Distribution:
    """Map of `vector.shape_cast`'s input [shape], given its result's on [result_shape].

    Grids and blocks of dimensions that become one are multiplied; dimensions of extent 1 vanish or
    appear. Raises LayoutError where the result's ownership is not that of any map of ``shape``: the
    candidate is compared with the result in normal form.
    """
    groups = _groups(tuple(shape), tuple(result_shape))
    order = result.order or tuple(reversed(range(result.field_rank)))

    # A dimension that appears with extent 1 is linearised next to the one that follows it.
    place = [-1] * (len(groups) + 1)
    for g in reversed(range(len(groups))):
        place[g] = min((order.index(d) for d in groups[g]), default=place[g + 1])
    merged = map_fields(result, lambda f: tuple(prod(f[d] for d in group) for group in groups))
    candidate = replace(
        merged,
        order=tuple(sorted(range(len(groups)), key=lambda g: (place[g], -g))),
        sliced=(),
    )
    if candidate.over(shape) != result.over(result_shape).reshaped(shape):
        raise LayoutError(
            f"the ownership of {[*result_shape]} cannot be written as a map of {[*shape]}"
        )
    return candidate


def _groups(shape: Shape, result_shape: Shape) -> list[list[int]]:
    """For each dimension of ``shape`` the dimensions of ``result_shape`` that it consists of."""
    groups: list[list[int]] = []
    dim = 0
    for at, extent in enumerate(shape):
        group: list[int] = []
        reach = 1
        # A dimension of extent 1 belongs to the one before it, unless it is the next one itself.
        alone = at + 1 < len(shape) and shape[at + 1] == 1
        while dim < len(result_shape) and (
            reach < extent or (result_shape[dim] == 1 and not (group and alone))
        ):
            group.append(dim)
            reach *= result_shape[dim]
            dim += 1
        if reach != extent:
            raise LayoutError(
                f"a map cannot be split over {[*result_shape]} -> {[*shape]}: dimension of {extent} "
                f"is not made of whole dimensions"
            )
        groups.append(group)
    return groups


def _check_dim(d: Distribution, dim: int) -> None:
    if not 0 <= dim < d.field_rank:
        raise LayoutError(f"dimension {dim} of a map of rank {d.field_rank}")


def _on_dim(d: Distribution, dim: int, change: _Change) -> Distribution:
    """sg_data and inst_data changed along one dimension."""
    data, inst = d.sg_data, d.inst_data
    return replace(
        d,
        sg_data=None if data is None else _with(data, dim, change(data[dim])),
        inst_data=None if inst is None else _with(inst, dim, change(inst[dim])),
    )


def inserted_field(d: Distribution, at: int, extent: int) -> Distribution:
    """The map with one more dimension of the fields, in front of ``at``, of which every owner has the whole."""
    order = d.order or tuple(reversed(range(d.field_rank)))
    more = map_fields(d, lambda f: (*f[:at], 1, *f[at:]))
    return replace(
        more,
        sg_data=_with(more.sg_data, at, extent),
        order=(*(o + (o >= at) for o in order), at),
        sliced=tuple(s + (s >= at) for s in d.sliced),
    )


def map_fields(d: Distribution, change: _FieldChange) -> Distribution:
    """The map with every field that it has changed alike."""

    def each(field: Shape | None) -> Shape | None:
        return None if field is None else change(field)

    return replace(
        d,
        sg_layout=each(d.sg_layout),
        sg_data=each(d.sg_data),
        inst_data=each(d.inst_data),
        lane_layout=each(d.lane_layout),
        lane_data=each(d.lane_data),
    )


def _with(values: Shape | None, dim: int, value: int) -> Shape | None:
    return None if values is None else (*values[:dim], value, *values[dim + 1 :])


def _inverse(permutation: Sequence[int], rank: int) -> list[int]:
    if sorted(permutation) != list(range(rank)):
        raise LayoutError(f"{[*permutation]} is no permutation of {rank} dimensions")
    return [permutation.index(i) for i in range(rank)]
