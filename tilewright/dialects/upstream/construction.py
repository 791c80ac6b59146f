"""The constructor of all ops: as xDSL's, in a third of its time where no field holds a list.

xDSL's sorts lists from single values for every field of every op, and notes their sizes. Where each field has one
value, the values are what the op holds, in order, and are put there. All else is left to it, and so is every error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, Region, SSAValues, Use
from xdsl.irdl import IRDLOperation, ParsePropInAttrDict

_stock: Any = IRDLOperation.__init__
_post_init = Operation.__post_init__
_VALUES = (OpResult, BlockArgument)
_NO_SIZES = ([], [ParsePropInAttrDict()])
"""Options of ops that note no sizes of lists."""


@cache
def _fields(kind: type[IRDLOperation]) -> tuple[int, int, int, bool] | None:
    """How many operands, results and regions an op of one value a field has, and whether properties or attributes
    have defaults; None where a field may hold a list."""
    held = kind.get_irdl_definition()
    if held.options not in _NO_SIZES or held.successors:
        return None
    named = (*held.properties.values(), *held.attributes.values())
    own = kind.__post_init__ is not IRDLOperation.__post_init__
    filled = own or any(each.default_value is not None for each in named)
    return len(held.operands), len(held.results), len(held.regions), filled


def _init(
    self: Any,
    *,
    operands: Sequence[Any] | None = None,
    result_types: Sequence[Any] | None = None,
    properties: Mapping[str, Attribute | None] | None = None,
    regions: Sequence[Any] | None = None,
    **more: Any,
) -> None:
    given, types, bodies = operands or (), result_types or (), regions or ()
    values: list[Any] = [v if type(v) in _VALUES else _only_result(v) for v in given]
    fields = _fields(type(self))
    if (
        more
        or fields is None
        or (len(values), len(types), len(bodies)) != fields[:3]
        or None in values
        or not all(map(_is_attribute, map(type, types)))
        or not all(isinstance(each, Region) for each in bodies)
    ):
        _stock(
            self,
            operands=given,
            result_types=types,
            properties=properties,
            regions=bodies,
            **more,
        )
        return
    uses = [Use(self, n) for n in range(len(values))]
    for value, use in zip(values, uses, strict=True):
        value.add_use(use)
    self._operands, self._operand_uses = SSAValues(values), tuple(uses)
    self._successors = self._successor_uses = ()
    self.results = SSAValues([OpResult(each, self, n) for n, each in enumerate(types)])
    self.properties = (
        {name: value for name, value in properties.items() if value is not None}
        if properties
        else {}
    )
    self.attributes, self.location, self.regions = {}, UNKNOWN_LOC, ()
    for each in bodies:
        self.add_region(each)
    if (
        fields[3] or Operation.__post_init__ is not _post_init
    ):  # under an ImplicitBuilder it inserts the op
        self.__post_init__()


@cache
def _is_attribute(kind: type) -> bool:
    """Of the class, which is asked once: xDSL's are abstract, and tell of their instances slowly."""
    return issubclass(kind, Attribute)


def _only_result(value: Any) -> OpResult | None:
    """The result that an op stands for, where it has no other."""
    return value.results[0] if isinstance(value, Operation) and len(value.results) == 1 else None


def complete() -> None:
    IRDLOperation.__init__ = _init
