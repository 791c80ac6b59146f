"""Registers of a thread put together."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue
from xdsl.irdl import traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import Op, Operands, Result, Value, op_definition


@op_definition
class JoinOp(Op):
    """`%v = mach.join %a, %b : (vector<4xf32>, vector<2xf32>) -> vector<6xf32>`: one after the other."""

    name = "mach.join"
    parts: Operands[VectorType] = Operands(VectorType)
    result: Result[VectorType] = Result(VectorType)
    traits = traits_def(Pure())
    assembly_format = "$parts attr-dict `:` functional-type($parts, $result)"

    def __init__(self, parts: Sequence[Value]):
        types = [SSAValue.get(p).type for p in parts]
        first = types[0]
        assert isinstance(first, VectorType)
        count = sum(t.get_shape()[0] for t in types if isinstance(t, VectorType))
        super().__init__(parts, VectorType(first.element_type, [count]))

    def verify_(self) -> None:
        total = 0
        element = self.result.type.element_type
        for part in self.parts:
            type = part.type
            if len(type.get_shape()) != 1 or type.element_type != element:
                raise VerifyException(f"mach.join: takes 1-D vectors of {element}, got {type}")
            total += type.get_shape()[0]
        if self.result.type.get_shape() != (total,):
            raise VerifyException(f"mach.join: {total} components do not make {self.result.type}")
