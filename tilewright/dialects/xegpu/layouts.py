"""Ownership attributes of XeGPU: `layout`, `slice` and the RFC's older `sg_map`.

These are surface syntax. Which element belongs to which subgroup and lane is decided by
`tilewright.layout` alone; here stand the fields, their spelling and the rules of the attribute itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias

from xdsl.dialects.builtin import ArrayAttr, IntAttr, NoneAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import (
    FieldsAttr,
    checked,
    int_array,
    ints,
    parse_int_array,
)
from tilewright.dialects.directives import say

FIELDS = ("sg_layout", "sg_data", "inst_data", "lane_layout", "lane_data", "order")
"""The fields of `layout`, in the order in which they print."""


def _verify_packed(name: str, data: tuple[int, ...]) -> None:
    """What a lane has side by side lies in a row (RFC: "contiguous and come from a single dimension")."""
    if sum(n > 1 for n in data) > 1:
        raise VerifyException(f"{name} {[*data]}: packed elements come from a single dimension")


@irdl_attr_definition
class LayoutAttr(FieldsAttr):
    """`#xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], inst_data = [8, 16], lane_layout = [1, 16],
    lane_data = [1, 1], order = [1, 0]>`: who owns which element, from workgroup down to lane.

    `sg_layout` / `lane_layout` are grids of subgroups / lanes, `sg_data` / `lane_data` the block that
    each owns in one round, `inst_data` the block that one instruction handles; `order` linearises
    subgroup and lane ids, fastest dimension first. Fields that are absent are decided later
    (RFC, "xegpu.layout").
    """

    name = "xegpu.layout"

    sg_layout: ArrayAttr[IntAttr] | NoneAttr
    sg_data: ArrayAttr[IntAttr] | NoneAttr
    inst_data: ArrayAttr[IntAttr] | NoneAttr
    lane_layout: ArrayAttr[IntAttr] | NoneAttr
    lane_data: ArrayAttr[IntAttr] | NoneAttr
    order: ArrayAttr[IntAttr] | NoneAttr

    READERS: ClassVar = dict.fromkeys(FIELDS, parse_int_array)
    ALIASES: ClassVar = {"wi_layout": "lane_layout", "wi_data": "lane_data"}

    def __init__(
        self,
        sg_layout: Iterable[int] | None = None,
        sg_data: Iterable[int] | None = None,
        inst_data: Iterable[int] | None = None,
        lane_layout: Iterable[int] | None = None,
        lane_data: Iterable[int] | None = None,
        order: Iterable[int] | None = None,
    ):
        fields = (sg_layout, sg_data, inst_data, lane_layout, lane_data, order)
        super().__init__(*(int_array(field) for field in fields))

    def field(self, name: str) -> tuple[int, ...] | None:
        """One of FIELDS as Python integers, None where it is absent."""
        value = getattr(self, name)
        return ints(value) if isinstance(value, ArrayAttr) else None

    @property
    def rank(self) -> int:
        for name in ("sg_layout", "inst_data", "lane_layout"):
            value = self.field(name)
            if value is not None:
                return len(value)
        raise AssertionError("verify() demands one of the three")

    def replace(self, **changes: Iterable[int] | None) -> LayoutAttr:
        """The same layout with some fields set, or dropped by None."""
        fields: dict[str, Iterable[int] | None] = {name: self.field(name) for name in FIELDS}
        return LayoutAttr(**(fields | changes))

    def is_workgroup(self) -> bool:
        """Does it say which subgroup owns what?"""
        return self.field("sg_layout") is not None

    def verify(self) -> None:
        f = {name: self.field(name) for name in FIELDS}
        if f["sg_layout"] is None and f["inst_data"] is None and f["lane_layout"] is None:
            raise VerifyException("expected at least one of sg_layout, inst_data or lane_layout")
        pairs = (
            ("sg_layout", "inst_data"),
            ("sg_layout", "lane_layout"),
            ("inst_data", "lane_layout"),
            ("sg_data", "sg_layout"),
            ("lane_data", "lane_layout"),
        )
        for a, b in pairs:
            first, second = f[a], f[b]
            if first is not None and second is not None and len(first) != len(second):
                raise VerifyException(f"expected {a} and {b} to have the same rank")
        if f["sg_data"] is not None and f["sg_layout"] is None:
            raise VerifyException(
                "sg_layout and sg_data must be used together: expected sg_layout being used with sg_data"
            )
        if f["lane_data"] is not None and f["lane_layout"] is None:
            raise VerifyException(
                "lane_layout and lane_data must be used together: "
                "expected lane_layout being used with lane_data"
            )
        self._verify_order(f["order"], f["sg_layout"], f["lane_layout"])
        for name in FIELDS[:-1]:
            value = f[name]
            if value is not None and (not value or min(value) < 1):
                raise VerifyException(f"expected positive integers for {name}, got {[*value]}")
        _verify_packed("lane_data", f["lane_data"] or ())

    def _verify_order(
        self,
        order: tuple[int, ...] | None,
        sg_layout: tuple[int, ...] | None,
        lane_layout: tuple[int, ...] | None,
    ) -> None:
        if order is None:
            return
        if sg_layout is None and lane_layout is None:
            raise VerifyException("expected sg_layout/lane_layout being used with order")
        for name, grid in (("sg_layout", sg_layout), ("lane_layout", lane_layout)):
            if grid is not None and len(grid) != len(order):
                raise VerifyException(f"expected order and {name} to have the same rank")
        if sorted(order) != list(range(len(order))):
            raise VerifyException(f"expected order to be a permutation, got {[*order]}")


@irdl_attr_definition
class SliceAttr(ParametrizedAttribute):
    """`#xegpu.slice<#xegpu.layout<..>, dims = [1]>`: the parent's ownership with some dimensions gone.

    Owners that differ only in the dropped dimensions own the same elements. The parent may itself be a
    slice; `dims` count the parent's remaining dimensions.
    """

    name = "xegpu.slice"

    parent: Attribute
    dims: ArrayAttr[IntAttr]

    def __init__(self, parent: LayoutAttr | SliceAttr, dims: Iterable[int]):
        super().__init__(parent, int_array(dims))

    def get_dims(self) -> tuple[int, ...]:
        return ints(self.dims)

    @property
    def rank(self) -> int:
        assert isinstance(self.parent, (LayoutAttr, SliceAttr))
        return self.parent.rank - len(self.dims)

    def flatten(self) -> tuple[LayoutAttr, tuple[int, ...]]:
        """The layout underneath and all of its dimensions that are dropped, ascending."""
        if isinstance(self.parent, LayoutAttr):
            return self.parent, tuple(sorted(self.get_dims()))
        assert isinstance(self.parent, SliceAttr)
        root, dropped = self.parent.flatten()
        left = [d for d in range(root.rank) if d not in dropped]
        return root, tuple(sorted((*dropped, *(left[d] for d in self.get_dims()))))

    def is_workgroup(self) -> bool:
        return self.flatten()[0].is_workgroup()

    def verify(self) -> None:
        if not isinstance(self.parent, (LayoutAttr, SliceAttr)):
            raise VerifyException(f"expected a layout or a slice under slice, got {self.parent}")
        seen: set[int] = set()
        for dim in self.get_dims():
            if dim in seen:
                raise VerifyException(f"repeated dim ({dim}) in slice attribute")
            if not 0 <= dim < self.parent.rank:
                raise VerifyException(f"invalid dim ({dim}) in slice attribute")
            seen.add(dim)
        if not seen:
            raise VerifyException("expected at least one dim in slice attribute")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            start = parser.pos
            parent = parser.parse_attribute()
            if not isinstance(parent, (LayoutAttr, SliceAttr)):
                parser.raise_error("expected a layout or a slice under slice", start, parser.pos)
            parser.parse_punctuation(",")
            if parser.parse_optional_keyword("dims") is not None:
                parser.parse_punctuation("=")
                dims = parse_int_array(parser)
            else:  # the RFC writes a single number
                dims = ArrayAttr([IntAttr(parser.parse_integer(allow_boolean=False))])
            return checked(parser, cls, [parent, dims], start)

    def print_parameters(self, printer: Printer) -> None:
        say(printer, "<", self.parent, f", dims = {[*self.get_dims()]}>")


@irdl_attr_definition
class SgMapAttr(FieldsAttr):
    """`#xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>`: the RFC's map of lanes ("to be deprecated").

    `wi_data` elements are packed into one unit; a lane's fragment is `[units, wi_data_size]`.
    """

    name = "xegpu.sg_map"

    wi_layout: ArrayAttr[IntAttr]
    wi_data: ArrayAttr[IntAttr]

    READERS: ClassVar = {"wi_layout": parse_int_array, "wi_data": parse_int_array}
    ALIASES: ClassVar = {"lane_layout": "wi_layout", "lane_data": "wi_data"}
    NEEDED: ClassVar = ("wi_layout", "wi_data")

    def __init__(self, wi_layout: Iterable[int], wi_data: Iterable[int]):
        super().__init__(int_array(wi_layout), int_array(wi_data))

    @property
    def rank(self) -> int:
        return len(self.wi_layout)

    def is_workgroup(self) -> bool:
        return False

    def to_layout(self) -> LayoutAttr:
        """Today's spelling of the same ownership (the packing of fragments differs)."""
        return LayoutAttr(lane_layout=ints(self.wi_layout), lane_data=ints(self.wi_data))

    def verify(self) -> None:
        for name, value in (("wi_layout", self.wi_layout), ("wi_data", self.wi_data)):
            if len(value) != 2:
                raise VerifyException(f"expect integer array of size 2 for {name}")
            if min(ints(value)) < 1:
                raise VerifyException(
                    f"expected positive integers for {name}, got {[*ints(value)]}"
                )
        _verify_packed("wi_data", ints(self.wi_data))


Ownership: TypeAlias = LayoutAttr | SliceAttr | SgMapAttr


def is_ownership(attribute: Attribute | None) -> bool:
    return isinstance(attribute, (LayoutAttr, SliceAttr, SgMapAttr))
