"""Ownership maps and cache hints as the language writes them, and what ops accept of them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects import xetile
from tilewright.dialects.cache_hints import LEVELS, CacheHint
from tilewright.dialects.hints import hint_for
from tilewright.dialects.xetile.distribution import verify_map
from tilewright.frozen import frozen
from tilewright.lang.context import ArgumentError
from tilewright.lang.registry import language
from tilewright.lang.values import Value, describe_type

Pair = Sequence[int]


@frozen
class WgMap:
    """How a workgroup's subgroups share a tile. Made by :func:`wg_map`."""

    sg_layout: tuple[int, int]
    sg_data: tuple[int, int]
    inst_data: tuple[int, int] | None = None


@frozen
class SgMap:
    """How a subgroup's work items share a block. Made by :func:`sg_map`."""

    wi_layout: tuple[int, int]
    wi_data: tuple[int, int]


@language
def wg_map(sg_layout: Pair, sg_data: Pair, inst_data: Pair | None = None) -> WgMap:
    """Says which subgroup of a workgroup owns which part of a tile.

    ``sg_layout`` is the grid of subgroups, ``sg_data`` the block that one subgroup takes per round;
    a tile larger than one round is distributed round-robin, a smaller one is shared (XeTile RFC, wg_map).
    ``inst_data`` may fix the block of one instruction. Maps never change values.

    >>> tw.wg_map([8, 4], [32, 64])
    WgMap(sg_layout=(8, 4), sg_data=(32, 64), inst_data=None)
    """
    inst = None if inst_data is None else _pair(inst_data, "inst_data")
    return WgMap(_pair(sg_layout, "sg_layout"), _pair(sg_data, "sg_data"), inst)


@language
def sg_map(wi_layout: Pair, wi_data: Pair) -> SgMap:
    """Says which work item of a subgroup owns which elements of a block (XeTile RFC, sg_map).

    >>> tw.sg_map([1, 16], [1, 1])
    SgMap(wi_layout=(1, 16), wi_data=(1, 1))
    """
    return SgMap(_pair(wi_layout, "wi_layout"), _pair(wi_data, "wi_data"))


def _pair(values: object, name: str) -> tuple[int, int]:
    if (
        isinstance(values, (tuple, list))
        and len(values) == 2
        and all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values)
    ):
        return values[0], values[1]
    raise ArgumentError(name, f"{name} must be two positive integers, not {values!r}")


def wg_attr(given: WgMap | None, name: str = "wg_map") -> xetile.WgMapAttr | None:
    """The attribute of an optional map."""
    if given is None:
        return None
    if not isinstance(given, WgMap):
        raise ArgumentError(
            name, f"{name} must be a tw.wg_map(sg_layout, sg_data), not {describe_type(given)}"
        )
    return xetile.WgMapAttr(given.sg_layout, given.sg_data, inst_data=given.inst_data)


def sg_attr(given: SgMap | None) -> xetile.SgMapAttr | None:
    """The attribute of an optional map."""
    if given is None:
        return None
    if not isinstance(given, SgMap):
        raise ArgumentError(
            "sg_map", f"sg_map must be a tw.sg_map(wi_layout, wi_data), not {describe_type(given)}"
        )
    return xetile.SgMapAttr(given.wi_layout, given.wi_data)


def cache_hints(*given: str | None) -> tuple[str | None, ...]:
    """Optional hints by their names, for each level of the caches."""
    known = [hint.value for hint in CacheHint]
    for hint, level in zip(given, LEVELS, strict=True):
        if hint is not None and hint not in known:
            one = ", ".join(map(repr, known))
            raise ArgumentError(level, f"{hint!r} is no cache hint", hint=f"one of {one}")
    return given


def mapped(value: Value, given: WgMap | None) -> Value:
    """States on the op that made a value who owns it; None states nothing."""
    attr = wg_attr(given)
    owner = value.ssa.owner
    if attr is None or not isinstance(owner, Operation):
        return value
    try:
        verify_map(value.shape, attr)
    except VerifyException as error:
        raise ArgumentError("wg_map", str(error), hint=hint_for(str(error))) from None
    if isinstance(owner, (xetile.BroadcastOp, xetile.ReductionOp, xetile.TransposeOp)):
        owner.properties["wg_map"] = attr
    else:
        owner.attributes["map"] = attr
    return value
