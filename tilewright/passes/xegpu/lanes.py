"""A lane's program under construction: what the rules of xegpu-subgroup-distribute know and share.

A rule takes fragments in the ownership that `OwnershipAnalysis` decided for the class of its values; operands that are
owned otherwise are converted (`taken`), results too (`give`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright import layout as ly
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.passes.xegpu.lane_fragments import LaneFragments
from tilewright.passes.xegpu.lazy_registers import Free, Held, LaneFragment
from tilewright.passes.xegpu.ownership import OwnershipAnalysis
from tilewright.rules import Rules
from tilewright.uarch.xe import XeMachine

_RULES = ("values", "access")
rule: Rules[Callable[[LaneProgram, Any], None]] = Rules(
    *(f"tilewright.passes.xegpu.lane_{name}" for name in _RULES)
)
"""How ops are distributed."""


class LaneProgram(LaneFragments):
    """`held` has what a lane holds of each vector of the subgroup, `env` what all lanes agree on."""

    rules = rule

    def __init__(self, kernel: gpu.FuncOp, xe: XeMachine, hardware: bool):
        super().__init__()
        self.lanes = xe.lanes
        self.owners = OwnershipAnalysis(kernel, xe, whole=True)
        self.held: dict[SSAValue, Held] = {}
        self.hardware_reductions = hardware
        self.remarks: list[str] = []

    def parts(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        if not isinstance(value.type, VectorType):
            return super().parts(value, place)
        return [self.taken(value, self.owners.layout(place))]

    def hold(self, place: SSAValue, parts: Sequence[SSAValue]) -> None:
        super().hold(place, parts)
        if isinstance(place.type, VectorType):
            self.held[place] = self.fragment(self.owners.layout(place), parts[0])

    def owned(self, value: SSAValue, layout: ly.Layout) -> LaneFragment:
        """A value as a fragment of the given ownership."""
        held = self.held[value]
        if isinstance(held, Free):
            made = held.splat(self, [1])
            return LaneFragment(layout, held.element, ((made, 0),) * layout.registers)
        return self.converted(held, layout)

    def taken(self, value: SSAValue, layout: ly.Layout) -> SSAValue:
        """A value as one vector of the lane program."""
        return self.vector(self.held[value], layout)

    def give(self, value: SSAValue, held: Held) -> None:
        """The value is this, in the ownership of its class."""
        if isinstance(held, LaneFragment):
            held = self.converted(held, self.owners.layout(value))
        self.held[value] = held

    def give_vector(self, value: SSAValue, made: SSAValue, layout: ly.Layout) -> None:
        made.name_hint = value.name_hint
        self.give(value, self.fragment(layout, made))

    def owned_as_is(self, value: SSAValue) -> LaneFragment:
        held = self.held[value]
        return (
            held if isinstance(held, LaneFragment) else self.owned(value, self.owners.layout(value))
        )

    def typed(self, value: SSAValue, layout: ly.Layout) -> VectorType:
        """The vector of one lane's registers of a value."""
        return VectorType(element_of(value.type), [layout.registers])  # pyright: ignore[reportArgumentType]
