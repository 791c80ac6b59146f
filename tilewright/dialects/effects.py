"""Effects that xDSL has no name for: on caches and on what a person reads, not on memory."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.traits import (
    DefaultResource,
    EffectInstance,
    MemoryEffect,
    MemoryEffectKind,
    Resource,
    get_effects,
)


@dataclass(frozen=True)
class Elsewhere(Resource):
    """What no load reads: caches (they change times alone), output."""

    def name(self) -> str:
        return "<Elsewhere>"


class ActsElsewhere(MemoryEffect):
    """The op is not dead, though it has no results, and touches no memory: prefetches, prints."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        return _ELSEWHERE


_ELSEWHERE = frozenset((EffectInstance(MemoryEffectKind.WRITE, resource=Elsewhere()),))


def memory_effects(op: Operation) -> Set[MemoryEffectKind] | None:
    """The kinds of effects that an op says it has on memory; None where it says nothing."""
    effects = get_effects(op)
    if effects is None:
        return None
    return {e.kind for e in effects if isinstance(e.resource, DefaultResource)}
