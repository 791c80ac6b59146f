"""Surface syntax of ownership: `wg_map`, `sg_map`, `layout`, `slice`, `mem_layout`.

A :class:`Distribution` holds the fields that XeTile's `wg_map` and `sg_map` and XeGPU's `layout` write,
not yet bound to a tile; :meth:`Distribution.over` binds them to a shape and gives the normal form.

The rule (XeTile RFC "Workgroup Level XeTile extension", XeGPU RFC "distribution rule"), per dimension
``i``: part ``r`` of subgroup ``s`` starts at ``((s[i] + r*sg_layout[i]) * sg_data[i]) mod shape[i]`` for
``r < max(1, shape[i] / (sg_layout[i]*sg_data[i]))``; instruction block ``j`` adds ``j*inst_data[i]``; lane
unit ``u`` adds ``(l[i] + u*lane_layout[i]) * lane_data[i]``. So a tile larger than one round is distributed
round-robin, a smaller one is shared by wrapping, an equal one is broadcast. A fragment packs lane_data
first, then units, instruction blocks and parts, each in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tilewright.frozen import frozen
from tilewright.layout.digits import Axis, Digit, Layout, LayoutError, Shape, number

Triple = tuple[int, int | None, int]


@frozen
class TilePart:
    """A rectangle of a tile, in elements."""

    offset: Shape
    shape: Shape


@frozen
class Distribution:
    """The fields of a map; None where the map does not say.

    ``order`` linearises subgroup and lane ids, fastest dimension first; None is row-major, which is all
    that `wg_map` and `sg_map` have. It is no memory order. ``packed`` marks `sg_map`, whose fragments
    are 2-D. ``sliced`` are the dimensions that `slice` removes, as dimensions of the fields.
    """

    sg_layout: Shape | None = None
    sg_data: Shape | None = None
    inst_data: Shape | None = None
    lane_layout: Shape | None = None
    lane_data: Shape | None = None
    order: Shape | None = None
    sliced: Shape = ()
    packed: bool = False

    @property
    def field_rank(self) -> int:
        """Rank of the fields; that of the tile is smaller by the sliced dimensions."""
        for field in (self.sg_layout, self.inst_data, self.lane_layout):
            if field is not None:
                return len(field)
        raise LayoutError("a map needs at least one of sg_layout, inst_data and lane_layout")

    @property
    def rank(self) -> int:
        """The number of dimensions that are left after `slice`."""
        return self.field_rank - len(self.sliced)

    @property
    def id_order(self) -> Shape:
        """The dimensions of the fields in which ids count, fastest first."""
        return self.order or tuple(reversed(range(self.field_rank)))

    def groups(self, dim: int) -> int:
        """How many subgroups there are along a dimension of the fields."""
        return 1 if self.sg_layout is None else self.sg_layout[dim]

    @property
    def subgroups(self) -> int:
        """Number of subgroups of the workgroup, replicas included."""
        return prod(self.sg_layout or (1,))

    def with_sg(self, sg_map: Distribution) -> Distribution:
        """This `wg_map` and an `sg_map` inside of it: the early RFC's `xe_map`."""
        return replace(
            self, lane_layout=sg_map.lane_layout, lane_data=sg_map.lane_data, packed=sg_map.packed
        )

    def subgroup_level(self) -> Distribution:
        """What remains after distribution to subgroups: without sg_layout and sg_data."""
        return replace(self, sg_layout=None, sg_data=None)

    def fault(self, shape: Sequence[int]) -> str | None:
        """Why the map cannot distribute ``shape`` evenly, naming dimension and numbers; None if it can.

        Per dimension: shape is a multiple of sg_data, and one of shape and sg_layout*sg_data divides
        the other; inst_data divides sg_data; lane_layout*lane_data divides inst_data. What is absent
        stands for the whole of the level above it.
        """
        try:
            self._bind(tuple(shape))
        except LayoutError as error:
            return str(error)
        return None

    def over(self, shape: Sequence[int]) -> Layout:
        """The normal form on a tile of ``shape``. Raises LayoutError as :meth:`fault` says."""
        shape, levels = self._bind(tuple(shape))
        rank = len(shape)
        order = self.order or tuple(reversed(range(rank)))
        grid = _Grid(shape, levels, order)
        digits = grid.digits(_SUBGROUP, Axis.SUBGROUP) + grid.digits(_LANE, Axis.LANE)
        layout = Layout.of(shape, digits + number(Axis.REGISTER, grid.registers()))
        return layout.sliced(*self.sliced) if self.sliced else layout

    def part_shape(self, shape: Sequence[int]) -> Shape:
        """Shape of one part of a subgroup: sg_data, or what it defaults to (sliced dims gone)."""
        full, levels = self._bind(tuple(shape))
        return tuple(levels[d].part for d in range(len(full)) if d not in self.sliced)

    def parts(self, shape: Sequence[int], subgroup: int) -> list[TilePart]:
        """The rectangles of a tile that a subgroup owns, in the order of its fragment."""
        full, levels = self._bind(tuple(shape))
        ids = self.delinearize(subgroup)
        starts: list[list[int]] = []
        for dim, extent in enumerate(full):
            level = levels[dim]
            first = ids[dim] * level.part
            step = level.subgroups * level.part
            starts.append([(first + r * step) % extent for r in range(level.rounds)])
        kept = [d for d in range(len(full)) if d not in self.sliced]
        size = tuple(levels[d].part for d in kept)
        return [TilePart(offset, size) for offset in product(*(starts[d] for d in kept))]

    def delinearize(self, subgroup: int) -> Shape:
        """Grid coordinates of a linear subgroup id, by ``order``."""
        layout = self.sg_layout or (1,) * self.field_rank
        return delinearize(subgroup, layout, self.order)

    def fragment_shape(self, shape: Sequence[int]) -> Shape:
        """Shape of what a lane holds: ``[units, wi_data_size]`` of an sg_map, else 1-D."""
        registers = self.over(shape).registers
        if self.packed:
            size = prod(self.lane_data or (1,))
            return registers // size, size
        return (registers,)

    def _bind(self, shape: Shape) -> tuple[Shape, list[_Level]]:
        """The tile's shape with sliced dimensions back in, and each dimension's numbers."""
        shape, fields = self._fit_rank(shape)
        return shape, [
            _Level.of(dim, extent, *(None if f is None else f[dim] for f in fields))
            for dim, extent in enumerate(shape)
        ]

    def _fit_rank(self, shape: Shape) -> tuple[Shape, list[Shape | None]]:
        fields = [self.sg_layout, self.sg_data, self.inst_data, self.lane_layout, self.lane_data]
        rank = self.field_rank
        if any(f is not None and len(f) != rank for f in fields):
            raise LayoutError(f"the fields of a map must have one rank, got {self}")
        if self.sliced:
            # A sliced dimension was reduced, so the map fixes its extent: one round of everything.
            inner = iter(shape)
            if len(shape) != self.rank:
                raise LayoutError(f"the map's rank is {self.rank}, the shape's is {len(shape)}")
            shape = tuple(
                self._whole_round(d) if d in self.sliced else next(inner) for d in range(rank)
            )
        if self.packed and len(shape) == 1 and rank == 2:
            lanes, data = self.lane_layout or (1, 1), self.lane_data or (1, 1)
            if lanes[0] != 1 or data[0] != 1:
                raise LayoutError("a 1-D shape needs wi_layout[0] = 1 and wi_data[0] = 1")
            return shape, [None if f is None else f[1:] for f in fields]
        if self.packed and len(shape) == rank + 1:
            # array_length blocks, one after the other.
            return shape, [None, None, None, *((1, *f) if f else None for f in fields[3:])]
        if len(shape) != rank:
            raise LayoutError(f"the map's rank is {self.rank}, the shape's is {len(shape)}")
        return shape, fields

    def _whole_round(self, dim: int) -> int:
        if self.sg_layout is not None and self.sg_data is not None:
            return self.sg_layout[dim] * self.sg_data[dim]
        sizes = [f[dim] for f in (self.inst_data,) if f is not None]
        lanes = (self.lane_layout or (1,) * (dim + 1))[dim]
        lanes *= (self.lane_data or (1,) * (dim + 1))[dim]
        return self.groups(dim) * max([lanes, *sizes])


def wg_map(
    sg_layout: Sequence[int], sg_data: Sequence[int], inst_data: Sequence[int] | None = None
) -> Distribution:
    """XeTile's `wg_map`: blocks of ``sg_data`` elements distributed to a grid ``sg_layout`` of subgroups, ids
    row-major; ``inst_data`` is the block of one instruction. Source: XeTile RFC, wg_map."""
    return Distribution(tuple(sg_layout), tuple(sg_data), _shape(inst_data))


def sg_map(wi_layout: Sequence[int], wi_data: Sequence[int]) -> Distribution:
    """`sg_map` of both RFCs: packed units of ``wi_data`` elements distributed to a grid ``wi_layout`` of lanes, ids
    row-major."""
    return Distribution(lane_layout=tuple(wi_layout), lane_data=tuple(wi_data), packed=True)


def layout(
    sg_layout: Sequence[int] | None = None,
    sg_data: Sequence[int] | None = None,
    inst_data: Sequence[int] | None = None,
    lane_layout: Sequence[int] | None = None,
    lane_data: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
) -> Distribution:
    """XeGPU's `layout`; every field may be absent, and has one number per dimension.

    A grid ``sg_layout`` of subgroups takes blocks of ``sg_data`` elements, cut into instructions of ``inst_data``,
    of which a grid ``lane_layout`` of lanes takes units of ``lane_data``; ``order`` lists the dimensions in which ids
    of subgroups and lanes count, fastest first. Source: XeGPU RFC, layout.
    """
    return Distribution(
        _shape(sg_layout),
        _shape(sg_data),
        _shape(inst_data),
        _shape(lane_layout),
        _shape(lane_data),
        _shape(order),
    )


def slice_(parent: Distribution, dims: Sequence[int]) -> Distribution:
    """XeGPU's `slice`: the parent's ownership without ``dims``, counted among its remaining ones."""
    if len(set(dims)) != len(dims) or any(not 0 <= d < parent.rank for d in dims):
        raise LayoutError(f"slice dims {[*dims]} must be distinct dimensions below {parent.rank}")
    left = [d for d in range(parent.field_rank) if d not in parent.sliced]
    return replace(parent, sliced=tuple(sorted((*parent.sliced, *(left[d] for d in dims)))))


def delinearize(linear: int, grid: Sequence[int], order: Sequence[int] | None = None) -> Shape:
    """Coordinates in ``grid`` of a linear id; ``order`` lists dimensions fastest first, None is row-major.

    order [1, 2, 0] over [dim_0, dim_1, dim_2]: the id ``y + dim_1*z + dim_1*dim_2*x`` is that of (x, y, z).
    """
    ids = [0] * len(grid)
    for dim in order or tuple(reversed(range(len(grid)))):
        linear, ids[dim] = divmod(linear, grid[dim])
    return tuple(ids)


def _shape(field: Sequence[int] | None) -> Shape | None:
    return None if field is None else tuple(field)


@frozen
class _Level:
    """One dimension's numbers: ``extent`` in parts, instruction blocks, lane units and lane data."""

    extent: int
    subgroups: int
    part: int
    block: int
    lanes: int
    unit: int

    @property
    def rounds(self) -> int:
        return max(1, self.extent // (self.subgroups * self.part))

    @classmethod
    def of(
        cls,
        dim: int,
        extent: int,
        subgroups: int | None,
        part: int | None,
        block: int | None,
        lanes: int | None,
        unit: int | None,
    ) -> _Level:
        where = f"in dimension {dim}"
        n = subgroups or 1
        if part is None and extent % n and n % extent:
            raise LayoutError(f"{extent} elements over {n} subgroups {where}")
        p = max(1, extent // n) if part is None else part
        one_round = n * p
        if extent % p or (extent % one_round and one_round % extent):
            raise LayoutError(f"{extent} elements over {n} subgroups of {p} each {where}")
        b = p if block is None else block
        if p % b:
            raise LayoutError(f"{p} elements in instructions of {b} {where}")
        count, size = lanes or 1, unit or 1
        if b % (count * size):
            raise LayoutError(f"{b} elements over {count} lanes of {size} each {where}")
        return cls(extent, n, p, b, count, size)


_SUBGROUP, _LANE = "subgroup", "lane"


@frozen
class _Grid:
    """The digits that a bound distribution consists of."""

    shape: Shape
    levels: list[_Level]
    order: Shape

    def digits(self, what: str, axis: Axis) -> list[Digit]:
        triples: list[Triple] = []
        for dim in self.order:
            level = self.levels[dim]
            if what == _LANE:
                triples.append((level.lanes, dim, level.unit))
                continue
            owners = min(level.subgroups, level.extent // level.part)
            triples.append((owners, dim, level.part))
            triples.append((level.subgroups // owners, None, 0))
        return number(axis, triples)

    def registers(self) -> list[Triple]:
        """Lane data first, then units, instruction blocks and rounds, each row-major."""
        triples: list[Triple] = []
        dims = list(reversed(range(len(self.shape))))
        triples += [(self.levels[d].unit, d, 1) for d in dims]
        for d in dims:
            level = self.levels[d]
            step = level.lanes * level.unit
            triples.append((level.block // step, d, step))
        triples += [
            (self.levels[d].part // self.levels[d].block, d, self.levels[d].block) for d in dims
        ]
        for d in dims:
            level = self.levels[d]
            triples.append((level.rounds, d, level.subgroups * level.part))
        return triples
