"""What ops do besides giving results: the traits that say it, and the questions that are answered from them.

xDSL's `Pure`, `MemoryReadEffect` and `MemoryWriteEffect` say whether an op touches memory. Here are the traits that say
through which operand it writes, and that it does something that is no access of memory but keeps it from being dead.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import (
    DefaultResource,
    EffectInstance,
    MemoryEffect,
    MemoryEffectKind,
    RecursiveMemoryEffect,
    Resource,
    SymbolOpInterface,
)


@dataclass(frozen=True)
class Elsewhere(Resource):
    """Something that no load reads."""

    what: str

    def name(self) -> str:
        return f"<{self.what}>"


CACHES = Elsewhere("caches")
"""They change times alone."""
PEOPLE = Elsewhere("people")
"""Who read what is printed, and why a program ended."""
ORDER = Elsewhere("order")
"""Of what threads, queues and multi-buffers do: others wait for the op, or it for them."""


@dataclass(frozen=True)
class Acts(MemoryEffect):
    """The op is not dead, though it may have no results, and touches no memory: it acts on something else."""

    on: Elsewhere

    def get_effects(self, op: Operation) -> Set[EffectInstance]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return frozenset((EffectInstance(MemoryEffectKind.WRITE, resource=self.on),))


@dataclass(frozen=True)
class Writes(MemoryEffect):
    """The op writes memory through an operand."""

    through: str

    def get_effects(self, op: Operation) -> Set[EffectInstance]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return frozenset((EffectInstance(MemoryEffectKind.WRITE, getattr(op, self.through)),))


def own_effects(op: Operation) -> Set[EffectInstance] | None:
    """The effects of an op without those of its regions; None where it says nothing. A definition does nothing."""
    if op.has_trait(SymbolOpInterface) or isinstance(op, ModuleOp):
        return frozenset()
    traits = op.get_traits_of_type(MemoryEffect)
    if not traits:
        return None
    found: set[EffectInstance] = set()
    for trait in traits:
        if not isinstance(trait, RecursiveMemoryEffect):
            found |= trait.get_effects(op) or set()
    return found


def memory_effects(op: Operation) -> Set[MemoryEffectKind] | None:
    """The kinds of effects on memory that an op has, its regions not counted; None where it says nothing."""
    effects = own_effects(op)
    if effects is None:
        return None
    return {e.kind for e in effects if isinstance(e.resource, DefaultResource)}


def written(op: Operation) -> Sequence[SSAValue]:
    """The operands that an op says it writes through: all, where it writes and names none."""
    writes = [
        e
        for e in own_effects(op) or ()
        if e.kind is MemoryEffectKind.WRITE and isinstance(e.resource, DefaultResource)
    ]
    named = [e.value for e in writes if isinstance(e.value, SSAValue)]
    return named or (op.operands if writes else ())
