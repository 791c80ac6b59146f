"""A map bound to the shape of a value: the operations of :class:`~tilewright.layout.digits.Layout` on surface syntax.

Text says who owns what by a map, and keeps it as it is written: propagation derives the maps of an op's values from one
another, so that what it prints has the fields and the order of what stood there. The operations have the names that the
normal form's have, and the movement table (`tilewright.dialects.movement`) applies them to either; on an op that they
make local to every subgroup, both agree. Each raises LayoutError where no map says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tilewright.frozen import frozen
from tilewright.layout.digits import Axis, LayoutError, Shape
from tilewright.layout.surface import Distribution, slice_

FIELDS = ("sg_layout", "sg_data", "inst_data", "lane_layout", "lane_data")


@frozen
class BoundMap:
    """A map, and the shape of the value that it distributes."""

    map: Distribution
    shape: Shape

    @property
    def rank(self) -> int:
        """The number of dimensions of the value."""
        return len(self.shape)

    @property
    def fields(self) -> list[int]:
        """The dimension of the map's fields that each dimension of the value is."""
        return kept_fields(self.map)

    def is_whole(self, dim: int) -> bool:
        """Whether every subgroup holds all of a dimension."""
        data = self.map.sg_data
        return data is None or data[self.fields[dim]] == self.shape[dim]

    def permuted(self, permutation: Sequence[int]) -> BoundMap:
        """Of the transposed value, nothing moved; dimensions that were sliced off stay in place."""
        whole = list(range(self.map.field_rank))
        for dim, p in enumerate(permutation):
            whole[self.fields[dim]] = self.fields[p]
        found = permuted_fields(replace(self.map, sliced=()), whole)
        shape = tuple(self.shape[p] for p in permutation)
        return BoundMap(replace(found, sliced=self.map.sliced), shape)

    def reshaped(self, shape: Sequence[int]) -> BoundMap:
        """Of the value in another shape, row-major order kept: dimensions of extent 1 come and go, others split or
        merge."""
        return BoundMap(_reshaped(self.map, self.shape, tuple(shape)), tuple(shape))

    def contracted(self, dim: int, size: int) -> BoundMap:
        """Runs of ``size`` elements become one, which every owner of a part has."""
        extent = self.shape[dim] // size
        if extent > 1:
            return self.joined(dim, size)
        return BoundMap(on_field(self.map, self.fields[dim], 1), with_extent(self.shape, dim, 1))

    def joined(self, dim: int, size: int) -> BoundMap:
        """Runs of ``size`` elements, which one owner has, become one."""
        at = self.fields[dim]
        for name, field in (
            ("sg_data", self.map.sg_data),
            ("inst_data", self.map.inst_data),
            ("lane_data", self.map.lane_data),
        ):
            if field is not None and field[at] % size:
                raise LayoutError(
                    f"{name} {field[at]} in dimension {at} splits an element of {size} parts"
                )
        return BoundMap(
            self._counted(at, lambda n: n // size),
            with_extent(self.shape, dim, self.shape[dim] // size),
        )

    def expanded(self, dim: int, size: int) -> BoundMap:
        """Every element becomes ``size`` consecutive ones of the same owner."""
        counted = self._counted(self.fields[dim], lambda n: n * size)
        return BoundMap(counted, with_extent(self.shape, dim, self.shape[dim] * size))

    def sliced(self, *dims: int) -> BoundMap:
        """Of a value without dimensions that it was reduced along."""
        kept = tuple(n for dim, n in enumerate(self.shape) if dim not in dims)
        return BoundMap(slice_(self.map, dims), kept) if dims else self

    def boxed(self, offsets: Sequence[int], sizes: Sequence[int]) -> BoundMap:
        """Of a box, along whose dimensions every owner has all that it is cut from."""
        return self._resized(sizes)

    def unboxed(self, shape: Sequence[int]) -> BoundMap:
        """Of a value of ``shape``, of which this is a box, so that nothing moves."""
        return self._resized(shape)

    def _resized(self, sizes: Sequence[int]) -> BoundMap:
        found = self.map
        for dim, (have, want) in enumerate(zip(self.shape, sizes, strict=True)):
            if have == want:
                continue
            if not self.is_whole(dim):
                raise LayoutError(
                    f"dimension {dim} is cut, so that no subgroup may own a part of it"
                )
            found = on_field(found, self.fields[dim], want)
        return BoundMap(found, tuple(sizes))

    def held_whole(self, dim: int, extent: int) -> BoundMap:
        """With one more dimension, of which every owner has the whole."""
        at = self.fields[dim] if dim < self.rank else self.map.field_rank
        found = inserted_field(self.map, at, extent)
        return BoundMap(found, (*self.shape[:dim], extent, *self.shape[dim:]))

    def _counted(self, at: int, change: Callable[[int], int]) -> Distribution:
        """The map whose blocks have another number of elements in a dimension of the fields."""
        return map_fields(
            self.map,
            lambda f: with_extent(f, at, change(f[at])),
            ("sg_data", "inst_data", "lane_data"),
        )


# --- On the fields --------------------------------------------------------------------------------


def kept_fields(d: Distribution) -> list[int]:
    """The dimensions of the fields that the value has."""
    return [i for i in range(d.field_rank) if i not in d.sliced]


def with_extent(values: Shape, dim: int, value: int) -> Shape:
    """The numbers with another one in a dimension."""
    return (*values[:dim], value, *values[dim + 1 :])


def map_fields(
    d: Distribution, change: Callable[[Shape], Shape], names: Sequence[str] = FIELDS
) -> Distribution:
    """The map with every field of these that it has changed alike."""
    return replace(d, **{n: change(f) for n in names if (f := getattr(d, n)) is not None})


def on_field(d: Distribution, dim: int, data: int) -> Distribution:
    """The map with another block along a dimension of the fields; what lies below the subgroup shrinks to the block."""
    shrinks = d.inst_data is not None and data % d.inst_data[dim] > 0
    names = ("sg_data", "inst_data") if shrinks else ("sg_data",)
    found = map_fields(d, lambda f: with_extent(f, dim, data), names)
    limit = data if found.inst_data is None else found.inst_data[dim]
    if d.lane_layout and d.lane_data and limit % (d.lane_layout[dim] * d.lane_data[dim]):
        found = map_fields(found, lambda f: with_extent(f, dim, 1), ("lane_data",))
    return found


def inserted_field(d: Distribution, at: int, extent: int) -> Distribution:
    """The map with one more dimension of the fields, in front of ``at``, of which every owner has the whole."""
    more = map_fields(d, lambda f: (*f[:at], 1, *f[at:]))
    more = map_fields(more, lambda f: with_extent(f, at, extent), ("sg_data",))
    return replace(
        more,
        order=(*(o + (o >= at) for o in d.id_order), at),
        sliced=tuple(s + (s >= at) for s in d.sliced),
    )


def permuted_fields(d: Distribution, permutation: Sequence[int]) -> Distribution:
    """Every field and `order` permuted: field i of the result is field ``permutation[i]``."""
    rank = d.field_rank
    if sorted(permutation) != list(range(rank)):
        raise LayoutError(f"{[*permutation]} is no permutation of {rank} dimensions")
    moved = map_fields(d, lambda f: tuple(f[i] for i in permutation))
    return replace(moved, order=tuple(permutation.index(dim) for dim in d.id_order))


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
        map_fields(d, lambda f: tuple(f[i] for i in left)),
        order=order,
        sliced=tuple(left.index(i) for i in d.sliced if i in left),
    )


def with_unit_dims(d: Distribution, shape: Shape) -> Distribution:
    """A slice as a map of the whole rank, on a value of extent 1 along the sliced dimensions."""
    whole = replace(d, sliced=())
    for dim in d.sliced:
        whole = on_field(whole, dim, 1)
    return whole


# --- Reshaping ------------------------------------------------------------------------------------


def _reshaped(d: Distribution, shape: Shape, other: Shape) -> Distribution:
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
            return _reshaped(place, full, other)
        except LayoutError:
            return _around_slices(d, shape, other)
    units = [i for i, n in enumerate(shape) if n == 1]
    if len(shape) > len(other) and tuple(n for n in shape if n != 1) == other:
        return without_single(slice_(d, units))
    try:
        return _merged(d, shape, other)
    except LayoutError:
        pass
    try:
        return _split(d, shape, other)
    except LayoutError:
        # What everyone has whole may become anything.
        if d.sg_layout is None or d.sg_data != shape:
            raise
        return Distribution((d.subgroups, *[1] * (len(other) - 1)), other)


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
    return replace(_reshaped(place, full, (*wide, *rest)), sliced=tuple(sliced))


def _merged(result: Distribution, result_shape: Shape, shape: Shape) -> Distribution:
    """Several dimensions become one, which is distributed by their grids and blocks together; dimensions of extent 1
    vanish or appear. LayoutError where the ownership is not that of any map of ``shape``: the candidate is compared
    with the given one in normal form."""
    groups = _groups(shape, result_shape)
    order = result.id_order

    # A dimension that appears with extent 1 is linearised next to the one that follows it.
    place = [-1] * (len(groups) + 1)
    for g in reversed(range(len(groups))):
        place[g] = min((order.index(d) for d in groups[g]), default=place[g + 1])
    merged = map_fields(result, lambda f: tuple(prod(f[d] for d in group) for group in groups))
    candidate = replace(
        merged, order=tuple(sorted(range(len(groups)), key=lambda g: (place[g], -g))), sliced=()
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


def _split(d: Distribution, shape: tuple[int, ...], other: tuple[int, ...]) -> Distribution:
    """One dimension becomes several: blocks and grid are distributed from the innermost outwards."""
    groups = _groups(shape, other)
    order = [i for dim in d.id_order for i in reversed(groups[dim])]
    order += [i for i in reversed(range(len(other))) if i not in order]
    fields: dict[str, Shape] = {}
    for name in ("lane_data", "lane_layout", "inst_data", "sg_data", "sg_layout"):
        room = other
        if name == "sg_layout" and "sg_data" in fields:
            room = tuple(n // part for n, part in zip(other, fields["sg_data"], strict=True))
        if (field := getattr(d, name)) is not None:
            fields[name] = _distribute(field, groups, room, name)
    found = replace(Distribution(order=tuple(order)), **fields)
    mine, wanted = (each.only(Axis.SUBGROUP) for each in (found.over(other), d.over(shape)))
    if mine != wanted.reshaped(other):
        raise LayoutError(f"the ownership of {[*shape]} cannot be written as a map of {[*other]}")
    return found


def _distribute(field: Shape, groups: list[list[int]], room: Shape, name: str) -> Shape:
    """A field's numbers over the dimensions that each of its dimensions becomes."""
    found = [1] * len(room)
    for total, group in zip(field, groups, strict=True):
        for dim in reversed(group):
            found[dim] = min(total, room[dim])
            if total % found[dim] or room[dim] % found[dim]:
                raise LayoutError(f"{name} {total} does not split over {[room[i] for i in group]}")
            total //= found[dim]
        if total > 1 and group:
            if name != "sg_layout":
                raise LayoutError(f"{name} is larger than the dimension that it is distributed to")
            found[group[0]] *= total
    return tuple(found)
