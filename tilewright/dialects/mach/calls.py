"""Calls of C functions, and machine instructions: single ones, and one for every element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    BoolAttr,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute
from xdsl.irdl import traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import (
    Op,
    Operand,
    Operands,
    OptProp,
    Result,
    Results,
    Str,
    Symbol,
    Value,
    op_definition,
)
from tilewright.dialects.mach.types import PtrConstraint

KERNEL = "mach.kernel"
"""Attribute of a function that a launch begins: one thread's, or one lane's, program."""


def _verify_results(op: CallOp | CallIndirectOp) -> None:
    count = len(op.results_)
    if count > 1:
        raise VerifyException(f"{op.name}: a C function gives at most one result, not {count}")


@op_definition
class CallOp(Op):
    """`%r = mach.call @tw_runtime_fn(%a, %b) : (index, !llvm.ptr) -> i32`: a C function of the
    runtime.

    Each operand passes as the registers of its type; at most one result. The symbol resolves when
    the object is loaded.
    """

    name = "mach.call"
    callee: Symbol = Symbol()
    arguments: Operands = Operands()
    results_: Results[Attribute] = Results(default=())
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$callee `(` $arguments `)` attr-dict `:` functional-type($arguments, $results_)"
    )

    CHECK = _verify_results


@op_definition
class CallIndirectOp(Op):
    """`%r = mach.call_indirect %f(%a) : !llvm.ptr, (index) -> i32`: the C function at address `f`."""

    name = "mach.call_indirect"
    callee: Operand = Operand(PtrConstraint)
    arguments: Operands = Operands()
    results_: Results[Attribute] = Results(default=())
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$callee `(` $arguments `)` attr-dict "
        "`:` type($callee) `,` functional-type($arguments, $results_)"
    )

    CHECK = _verify_results


@op_definition
class AssertOp(Op):
    """`mach.assert %c, "message", @tw_failed(%p, %x) : (!llvm.ptr, index)`: where `c` is false, a C function of the
    runtime is notified, and the function returns.

    The C function takes the message, zero-terminated, and the arguments.
    """

    name = "mach.assert"
    condition: Operand = Operand(IntegerType(1))
    message: Str = Str()
    callee: Symbol = Symbol()
    arguments: Operands = Operands()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$condition `,` $message `,` $callee `(` $arguments `)` attr-dict `:` `(` type($arguments) `)`"


@op_definition
class InstrOp(Op):
    """`%d = mach.instr "x86.amx.tdpbf16ps"(%c, %a, %b) : (!mach.amx, !mach.amx, !mach.amx) ->
    !mach.amx`.

    One entry of the instruction table (`tilewright.codegen.instructions`): its name fixes operands,
    results, meaning and emission. `params` are its immediates, by name. The table checks both when
    the module is emitted.
    """

    name = "mach.instr"
    instruction: Str = Str()
    arguments: Operands = Operands()
    results_: Results[Attribute] = Results(default=())
    params: OptProp[DictionaryAttr] = OptProp(DictionaryAttr)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$instruction `(` $arguments `)` attr-dict `:` functional-type($arguments, $results_)"
    )

    def __init__(
        self,
        instruction: str,
        arguments: Sequence[Value] = (),
        result_types: Sequence[Attribute] = (),
        params: Mapping[str, int | bool | str] | None = None,
    ):
        attrs: dict[str, Attribute] = {}
        for key, value in (params or {}).items():
            if isinstance(value, bool):
                attrs[key] = BoolAttr.from_bool(value)
            elif isinstance(value, int):
                attrs[key] = IntegerAttr(value, i64)
            else:
                attrs[key] = StringAttr(value)
        held = DictionaryAttr(attrs) if attrs else None
        super().__init__(instruction, arguments, result_types, params=held)

    def immediates(self) -> dict[str, int | str]:
        """The immediates by name, as Python values."""
        out: dict[str, int | str] = {}
        for key, attr in (self.params.data if self.params else {}).items():
            if isinstance(attr, IntegerAttr):
                out[key] = cast(IntegerAttr[IntegerType], attr).value.data
            elif isinstance(attr, StringAttr):
                out[key] = attr.data
        return out

    def verify_(self) -> None:
        for key, attr in (self.params.data if self.params else {}).items():
            if not isinstance(attr, IntegerAttr | StringAttr):
                raise VerifyException(
                    f"mach.instr: immediate '{key}' must be an integer or a string, got {attr}"
                )


@op_definition
class EachOp(Op):
    """`%y = mach.each "nvptx.tanh.approx.f32"(%x) : (vector<16x64xf32>) -> vector<16x64xf32>`: an instruction of one
    thread, done to every element of tiles of one shape.

    What implementations of macro kernels for a machine are made of. The entry of the table must be `elementwise`.
    """

    name = "mach.each"
    instruction: Str = Str()
    arguments: Operands = Operands()
    result: Result[Attribute] = Result()
    traits = traits_def(Pure())
    assembly_format = (
        "$instruction `(` $arguments `)` attr-dict `:` functional-type($arguments, $result)"
    )

    def verify_(self) -> None:
        types = [v.type for v in (*self.arguments, self.result)]
        shapes = {t.get_shape() if isinstance(t, VectorType) else () for t in types}
        if not self.arguments or len(shapes) > 1:
            raise VerifyException(
                f"mach.each: operands and result have one shape, not {', '.join(map(str, types))}"
            )
