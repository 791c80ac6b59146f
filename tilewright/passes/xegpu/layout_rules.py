"""Layouts of an op's operands, given its result's, beyond what `layout.derive` has.

These rules need shapes that a pass knows; each gives the operand's layout with which the op is local to
every subgroup, or raises LayoutError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute

from tilewright import layout as ly
from tilewright.dialects.xegpu.types import element_bits
from tilewright.layout import Distribution, LayoutError, derive

Shape = Sequence[int]


def kept_fields(d: Distribution) -> list[int]:
    """The dimensions of the fields that the value has."""
    return [i for i in range(d.field_rank) if i not in d.sliced]


def on_field(d: Distribution, dim: int, data: int, grid: int | None = None) -> Distribution:
    """The map with another block (and number of subgroups) along a dimension of the fields; what lies
    below the subgroup shrinks to the block."""

    def at(field: tuple[int, ...] | None, value: int) -> tuple[int, ...] | None:
        return None if field is None else (*field[:dim], value, *field[dim + 1 :])

    inst = d.inst_data
    if inst is not None and data % inst[dim]:
        inst = at(inst, data)
    lane_layout, lane_data = d.lane_layout, d.lane_data
    if lane_layout is not None and lane_data is not None:
        limit = inst[dim] if inst is not None else data
        if limit % (lane_layout[dim] * lane_data[dim]):
            lane_data = at(lane_data, 1)
    return replace(
        d,
        sg_layout=d.sg_layout if grid is None else at(d.sg_layout, grid),
        sg_data=at(d.sg_data, data),
        inst_data=inst,
        lane_layout=lane_layout,
        lane_data=lane_data,
    )


def broadcast_operand(d: Distribution, shape: Shape, narrow: Shape) -> Distribution:
    """vector.broadcast's source [narrow] -> [shape]: leading dimensions sliced, stretched ones 1."""
    lead = len(shape) - len(narrow)
    fields = kept_fields(d)
    for dim, extent in enumerate(narrow):
        if extent == 1 and shape[lead + dim] != 1:
            d = on_field(d, fields[lead + dim], 1)
    return ly.slice_(d, list(range(lead))) if lead else d


def without_single(d: Distribution) -> Distribution:
    """A slice without the sliced dimensions along which there is one owner at every level: a plain layout
    where that is all of them."""
    fields = (d.sg_layout, d.inst_data, d.lane_layout, d.lane_data)
    single = [i for i in d.sliced if all(f is None or f[i] == 1 for f in fields)]
    left = [i for i in range(d.field_rank) if i not in single]
    if not single or not left:
        return d
    order = None if d.order is None else tuple(left.index(i) for i in d.order if i in left)
    return replace(
        derive.map_fields(d, lambda f: tuple(f[i] for i in left)),
        order=order,
        sliced=tuple(left.index(i) for i in d.sliced if i in left),
    )


def with_unit_dims(d: Distribution, shape: Shape) -> Distribution:
    """A slice as a map of the whole rank, on a value of extent 1 along the sliced dimensions."""
    whole = replace(d, sliced=())
    for dim in d.sliced:
        whole = on_field(whole, dim, 1)
    return whole


def reshape(d: Distribution, shape: Shape, other: Shape) -> Distribution:
    """The map of vector.shape_cast's other side [other], given that of one side [shape].

    Either way round: dimensions of extent 1 come and go, dimensions split or merge.
    """
    shape, other = tuple(shape), tuple(other)
    if shape == other:
        return d
    if d.sliced:
        full, place = _unsliced(d, shape)
        if full == other:
            return with_unit_dims(d, other)
        try:
            return reshape(place, full, other)
        except LayoutError:
            return _around_slices(d, shape, other)
    units = [i for i, n in enumerate(shape) if n == 1]
    if len(shape) > len(other) and tuple(n for n in shape if n != 1) == other:
        return without_single(ly.slice_(d, units))
    try:
        return derive.reshape_input(d, shape, other)
    except LayoutError:
        pass
    try:
        return _split(d, shape, other)
    except LayoutError:
        # What everyone has whole may become anything.
        if d.sg_layout is None or d.sg_data != shape:
            raise
        return Distribution((d.subgroups, *[1] * (len(other) - 1)), other)


def permuted(d: Distribution, permutation: Sequence[int]) -> Distribution:
    """vector.transpose's source, of a slice too: the dimensions that were sliced off stay in place."""
    kept = kept_fields(d)
    whole = list(range(d.field_rank))
    for dim, p in enumerate(permutation):
        whole[kept[dim]] = kept[p]
    return replace(derive.permuted_input(replace(d, sliced=()), whole), sliced=d.sliced)


def _unsliced(d: Distribution, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Distribution]:
    inner = iter(shape)
    full = tuple(1 if i in d.sliced else next(inner) for i in range(d.field_rank))
    return full, with_unit_dims(d, full)


def _around_slices(d: Distribution, shape: tuple[int, ...], other: tuple[int, ...]) -> Distribution:
    """The other side's map with the same dimensions sliced off, where they lie between its dimensions."""
    full, place = _unsliced(d, shape)
    wide: list[int] = []
    sliced: list[int] = []
    rest = list(other)
    reach = 1
    for dim in range(d.field_rank):
        if dim not in d.sliced:
            reach *= full[dim]
            continue
        while rest and prod(n for i, n in enumerate(wide) if i not in sliced) < reach:
            wide.append(rest.pop(0))
        if prod(n for i, n in enumerate(wide) if i not in sliced) != reach:
            raise LayoutError(f"{[*shape]} does not become {[*other]} around what is sliced off")
        sliced.append(len(wide))
        wide.append(1)
    return replace(reshape(place, full, (*wide, *rest)), sliced=tuple(sliced))


def _split(d: Distribution, shape: tuple[int, ...], other: tuple[int, ...]) -> Distribution:
    """One dimension becomes several: blocks and grid are dealt from the innermost outwards."""
    fields = {
        "sg_layout": [1] * len(other),
        "sg_data": [1] * len(other),
        "inst_data": [1] * len(other),
        "lane_layout": [1] * len(other),
        "lane_data": [1] * len(other),
    }
    groups = _pieces(shape, other)
    order: list[int] = []
    ranks = d.order or tuple(reversed(range(len(shape))))
    for dim in ranks:
        order += reversed(groups[dim])
    order += [i for i in reversed(range(len(other))) if i not in order]
    for dim, group in enumerate(groups):
        levels = (
            ("lane_data", d.lane_data),
            ("lane_layout", d.lane_layout),
            ("inst_data", d.inst_data),
            ("sg_data", d.sg_data),
        )
        for name, field in levels:
            if field is not None:
                _deal(field[dim], group, other, fields[name], name)
        if d.sg_layout is not None:
            room = [other[i] // fields["sg_data"][i] for i in range(len(other))]
            _deal(d.sg_layout[dim], group, room, fields["sg_layout"], "sg_layout")
    found = Distribution(
        **{  # pyright: ignore[reportArgumentType]
            name: tuple(values) if getattr(d, name) is not None else None
            for name, values in fields.items()
        },
        order=tuple(order),
    )
    if found.over(other).only(ly.Axis.SUBGROUP, ly.Axis.LANE) != d.over(shape).only(
        ly.Axis.SUBGROUP, ly.Axis.LANE
    ).reshaped(other):
        mine = found.over(other).on(ly.Axis.SUBGROUP)
        if mine != d.over(shape).reshaped(other).on(ly.Axis.SUBGROUP):
            raise LayoutError(
                f"the ownership of {[*shape]} cannot be written as a map of {[*other]}"
            )
    return found


def _pieces(shape: tuple[int, ...], other: tuple[int, ...]) -> list[list[int]]:
    """For each dimension of `shape` the dimensions of `other` that it becomes."""
    groups: list[list[int]] = []
    at = 0
    for extent in shape:
        group: list[int] = []
        reach = 1
        if extent == 1 and at < len(other) and other[at] == 1:
            groups.append([at])
            at += 1
            continue
        while at < len(other) and (reach < extent or (other[at] == 1 and extent != 1)):
            group.append(at)
            reach *= other[at]
            at += 1
        if reach != extent:
            raise LayoutError(f"{[*shape]} does not become {[*other]} dimension by dimension")
        groups.append(group)
    if groups:
        groups[-1] += list(range(at, len(other)))
    return groups


def _deal(total: int, group: list[int], room: Shape, field: list[int], what: str) -> None:
    for dim in reversed(group):
        here = min(total, room[dim])
        if total % here or room[dim] % here:
            raise LayoutError(f"{what} {total} does not split over {[room[i] for i in group]}")
        field[dim] = here
        total //= here
    if total > 1 and group:
        if what != "sg_layout":
            raise LayoutError(f"{what} is larger than the dimension that it is dealt to")
        field[group[0]] *= total


def bitcast_operand(d: Distribution, result: Attribute, source: Attribute) -> Distribution:
    """vector.bitcast's source: the last dimension counts elements of another width."""
    assert isinstance(result, VectorType) and isinstance(source, VectorType)
    wide, narrow = element_bits(source.element_type), element_bits(result.element_type)
    return counted(d, max(1, wide // narrow), max(1, narrow // wide))


def counted(d: Distribution, fewer: int, more: int) -> Distribution:
    """The map of a value whose last dimension has `more` elements for every `fewer` of the given one."""
    last = kept_fields(d)[-1]
    if fewer > 1:
        return derive.bitcast_input(d, fewer, last)

    def widened(field: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if field is None else (*field[:last], field[last] * more, *field[last + 1 :])

    return replace(
        d,
        sg_data=widened(d.sg_data),
        inst_data=widened(d.inst_data),
        lane_data=widened(d.lane_data),
    )


def slice_operand(d: Distribution, shape: Shape, source: Shape) -> Distribution:
    """extract_strided_slice's source: whole along the dimensions that are cut."""
    fields = kept_fields(d)
    for dim, (small, large) in enumerate(zip(shape, source, strict=True)):
        if small == large:
            continue
        if d.sg_data is not None and d.sg_data[fields[dim]] != small:
            raise LayoutError(f"dimension {dim} is cut, so that no subgroup may own a part of it")
        d = on_field(d, fields[dim], large)
    return d


def inserted_operand(d: Distribution, shape: Shape, small: Shape) -> Distribution:
    """What is inserted into [shape]: leading dimensions sliced, cut ones whole."""
    lead = len(shape) - len(small)
    fields = kept_fields(d)
    for dim in range(len(shape)):
        extent = small[dim - lead] if dim >= lead else None
        if extent == shape[dim]:
            continue
        if d.sg_data is not None and d.sg_data[fields[dim]] != shape[dim]:
            raise LayoutError(f"dimension {dim} is cut, so that no subgroup may own a part of it")
        if extent is not None:
            d = on_field(d, fields[dim], extent)
    return ly.slice_(d, list(range(lead))) if lead else d


def extract_operand(d: Distribution, shape: Shape, source: Shape) -> Distribution:
    """vector.extract's source: the dimensions in front are whole in every subgroup."""
    for extent in reversed(source[: len(source) - len(shape)]):
        d = derive.inserted_field(d, 0, extent)
    return d
