"""The constructor of all ops: as xDSL's, in a third of its time.

xDSL's sorts lists from single values for every field of every op, notes their sizes, and looks through all fields for
defaults. Where no sizes are noted, the values of the fields one after the other are what the op holds, and are put
there. All else is left to it, and so is every error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, Region, SSAValues, Use
from xdsl.irdl import IRDLOperation, OptionalDef, ParsePropInAttrDict, VariadicDef

_stock: Any = IRDLOperation.__init__
_post_init = Operation.__post_init__
_own_post_init = IRDLOperation.__post_init__
_VALUES = (OpResult, BlockArgument)
_NO_SIZES = ([], [ParsePropInAttrDict()])
"""Options of ops that note no sizes of lists."""


class _Fields(NamedTuple):
    """What an op of a class holds: of operands and of results how many, where each field has one value, else which
    fields are lists; how many regions; and what it has of properties and attributes where it is not told."""

    operands: int | list[bool]
    results: int | list[bool]
    regions: int
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]


@cache
def _fields(kind: type[IRDLOperation]) -> _Fields | None:
    """None where sizes of lists are noted, or values may be left out."""
    held = kind.get_irdl_definition()
    if (
        held.options not in _NO_SIZES
        or held.successors
        or kind.__post_init__ is not _own_post_init
        or any(isinstance(each, VariadicDef) for _, each in held.regions)
    ):
        return None
    counts: list[int | list[bool]] = []
    for group in (held.operands, held.results):
        lists = [isinstance(each, VariadicDef) for _, each in group]
        if any(isinstance(each, OptionalDef) for _, each in group):
            return None
        counts.append(lists if any(lists) else len(lists))
    operands, results = counts
    properties, attributes = _defaults(held.properties), _defaults(held.attributes)
    return _Fields(operands, results, len(held.regions), properties, attributes)


def _defaults(group: Mapping[str, Any]) -> dict[str, Attribute]:
    known = {
        n: each.default_value for n, each in group.items() if not isinstance(each, OptionalDef)
    }
    return {n: each for n, each in known.items() if each is not None}


def _init(
    self: Any,
    *,
    operands: Sequence[Any] | None = None,
    result_types: Sequence[Any] | None = None,
    properties: Mapping[str, Attribute | None] | None = None,
    attributes: Mapping[str, Attribute | None] | None = None,
    regions: Sequence[Any] | None = None,
    **more: Any,
) -> None:
    given, types, bodies = operands or (), result_types or (), regions or ()
    values: Any = None
    kinds: Any = None
    fields = None if more else _fields(type(self))
    if fields is not None and len(bodies) == fields.regions:
        values, kinds = _in_order(given, fields.operands), _in_order(types, fields.results)
    if values is not None:
        values = [v if type(v) in _VALUES else _only_result(v) for v in values]
    if (
        fields is None
        or values is None
        or kinds is None
        or None in values
        or not all(map(_is_attribute, map(type, kinds)))
        or (bodies and not all(isinstance(each, Region) for each in bodies))
    ):
        _stock(
            self,
            operands=given,
            result_types=types,
            properties=properties,
            attributes=attributes,
            regions=bodies,
            **more,
        )
        return
    uses: list[Use] = []
    for n, value in enumerate(values):
        other = value.first_use
        use = Use(self, n, None, other)
        if other is not None:
            other._prev_use = use
        value.first_use = use
        uses.append(use)
    self._operands, self._operand_uses = SSAValues(values), tuple(uses)
    self._successors = self._successor_uses = self.regions = ()
    self.results = SSAValues([OpResult(each, self, n) for n, each in enumerate(kinds)])
    self.properties = _held(properties, fields.properties)
    self.attributes = _held(attributes, fields.attributes)
    self.location = UNKNOWN_LOC
    for each in bodies:
        self.add_region(each)
    if Operation.__post_init__ is not _post_init:  # under an ImplicitBuilder it inserts the op
        self.__post_init__()


def _in_order(given: Sequence[Any], fields: int | list[bool]) -> Sequence[Any] | None:
    """The values of fields one after the other; None where these are not as many."""
    if type(fields) is int:
        return given if len(given) == fields else None
    assert isinstance(fields, list)
    if len(given) != len(fields):
        return None
    values: list[Any] = []
    for each, many in zip(given, fields, strict=True):
        if many and isinstance(each, list | tuple):
            values += each
        else:
            values.append(each)
    return values


def _held(
    given: Mapping[str, Attribute | None] | None, defaults: dict[str, Attribute]
) -> dict[str, Attribute]:
    """What is given, and then what is not, by default."""
    held = {n: each for n, each in given.items() if each is not None} if given else {}
    if not defaults:
        return held
    for name, each in defaults.items():
        held.setdefault(name, each)
    return held


@cache
def _is_attribute(kind: type) -> bool:
    """Of the class, which is asked once: xDSL's are abstract, and tell of their instances slowly."""
    return issubclass(kind, Attribute)


def _only_result(value: Any) -> OpResult | None:
    """The result that an op stands for, where it has no other."""
    return value.results[0] if isinstance(value, Operation) and len(value.results) == 1 else None


def complete() -> None:
    IRDLOperation.__init__ = _init
