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
        return BoundMap(on_field(self.map, self.fields[dim], 1), self._with(dim, 1))

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
            self._counted(at, lambda n: n // size), self._with(dim, self.shape[dim] // size)
        )

    def expanded(self, dim: int, size: int) -> BoundMap:
        """Every element becomes ``size`` consecutive ones of the same owner."""
        counted = self._counted(self.fields[dim], lambda n: n * size)
        return BoundMap(counted, self._with(dim, self.shape[dim] * size))

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

    def _with(self, dim: int, extent: int) -> Shape:
        return (*self.shape[:dim], extent, *self.shape[dim + 1 :])

    def _counted(self, at: int, change: Callable[[int], int]) -> Distribution:
        """The map whose blocks have another number of elements in a dimension of the fields."""
        d = self.map

        def each(field: Shape | None) -> Shape | None:
            return None if field is None else (*field[:at], change(field[at]), *field[at + 1 :])

        return replace(
            d, sg_data=each(d.sg_data), inst_data=each(d.inst_data), lane_data=each(d.lane_data)
        )


# --- On the fields --------------------------------------------------------------------------------


def kept_fields(d: Distribution) -> list[int]:
    """The dimensions of the fields that the value has."""
    return [i for i in range(d.field_rank) if i not in d.sliced]


def on_field(d: Distribution, dim: int, data: int) -> Distribution:
    """The map with another block along a dimension of the fields; what lies below the subgroup shrinks to the block."""

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
        d, sg_data=at(d.sg_data, data), inst_data=inst, lane_layout=lane_layout, lane_data=lane_data
    )


def map_fields(d: Distribution, change: Callable[[Shape], Shape]) -> Distribution:
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


def inserted_field(d: Distribution, at: int, extent: int) -> Distribution:
    """The map with one more dimension of the fields, in front of ``at``, of which every owner has the whole."""
    order = d.order or tuple(reversed(range(d.field_rank)))
    more = map_fields(d, lambda f: (*f[:at], 1, *f[at:]))
    return replace(
        more,
        sg_data=None
        if more.sg_data is None
        else tuple(extent if i == at else n for i, n in enumerate(more.sg_data)),
        order=(*(o + (o >= at) for o in order), at),
        sliced=tuple(s + (s >= at) for s in d.sliced),
    )


def permuted_fields(d: Distribution, permutation: Sequence[int]) -> Distribution:
    """Every field and `order` permuted: field i of the result is field ``permutation[i]``."""
    rank = d.field_rank
    if sorted(permutation) != list(range(rank)):
        raise LayoutError(f"{[*permutation]} is no permutation of {rank} dimensions")
    order = d.order or tuple(reversed(range(rank)))
    moved = map_fields(d, lambda f: tuple(f[i] for i in permutation))
    return replace(moved, order=tuple(permutation.index(dim) for dim in order))


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
    order = result.order or tuple(reversed(range(result.field_rank)))

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
    fields = {
        "sg_layout": [1] * len(other),
        "sg_data": [1] * len(other),
        "inst_data": [1] * len(other),
        "lane_layout": [1] * len(other),
        "lane_data": [1] * len(other),
    }
    groups = _groups(shape, other)
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
                _distribute(field[dim], group, other, fields[name], name)
        if d.sg_layout is not None:
            room = [other[i] // fields["sg_data"][i] for i in range(len(other))]
            _distribute(d.sg_layout[dim], group, room, fields["sg_layout"], "sg_layout")
    found = Distribution(
        **{  # pyright: ignore[reportArgumentType]
            name: tuple(values) if getattr(d, name) is not None else None
            for name, values in fields.items()
        },
        order=tuple(order),
    )
    if found.over(other).only(Axis.SUBGROUP, Axis.LANE) != d.over(shape).only(
        Axis.SUBGROUP, Axis.LANE
    ).reshaped(other):
        mine = found.over(other).on(Axis.SUBGROUP)
        if mine != d.over(shape).reshaped(other).on(Axis.SUBGROUP):
            raise LayoutError(
                f"the ownership of {[*shape]} cannot be written as a map of {[*other]}"
            )
    return found


def _distribute(
    total: int, group: list[int], room: Sequence[int], field: list[int], what: str
) -> None:
    for dim in reversed(group):
        here = min(total, room[dim])
        if total % here or room[dim] % here:
            raise LayoutError(f"{what} {total} does not split over {[room[i] for i in group]}")
        field[dim] = here
        total //= here
    if total > 1 and group:
        if what != "sg_layout":
            raise LayoutError(f"{what} is larger than the dimension that it is distributed to")
        field[group[0]] *= total
