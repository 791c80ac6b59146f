"""arith: conversions, comparisons and select on vectors, as MLIR has them.

Stock xDSL's verifiers take scalars only for cmpi, cmpf, select's condition and the integer
conversions, although the same ops are elementwise on vectors. New ops: remf, index_castui.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FloatTF32Type,
    IndexType,
    IntegerAttr,
    IntegerType,
    TensorType,
    UnitAttr,
    VectorType,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import AnyAttr, IntSetConstraint, IRDLOperation, base, irdl_op_definition, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoMemoryEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import numbered_word, parse_names, say, spelled
from tilewright.dialects.fields import Op, Operand, Result, follows, op_definition, variable
from tilewright.dialects.numerals import dense
from tilewright.dialects.upstream.complete import (
    add_effect,
    add_ops,
    add_optional_property,
    add_verifier,
    set_constructor,
    set_custom,
    set_format,
    set_operand,
    set_result,
    set_verifier,
)

NO_FLAGS = FastMathFlagsAttr("none")
NO_OVERFLOW = arith.IntegerOverflowAttr("none")

Shaped = (VectorType, TensorType)

PREDICATES = tuple(arith.CMPI_COMPARISON_OPERATIONS)
"""The words of arith.cmpi (eq, .., slt, .., ult, ..), by their numbers."""

SWAPPED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle"}
"""Of a signed predicate: the one for the operands the other way round."""

WHOLE: Mapping[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: operator.add,
    arith.SubiOp: operator.sub,
    arith.MuliOp: operator.mul,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
}
"""What ops give of two integers where nothing wraps."""


def holds(predicate: int, a: int, b: int) -> bool:
    """Does arith.cmpi of this number hold of two indices?"""
    word = PREDICATES[predicate]
    if word[0] == "u":
        a, b = a % (1 << 64), b % (1 << 64)
    return getattr(operator, word[-2:])(a, b)


def constants(value: SSAValue) -> list[int] | None:
    """The integers that a constant is: one of a scalar or a vector that repeats it; None for anything else."""
    op = value.owner
    if not isinstance(op, Operation) or op.name not in ("arith.constant", "index.constant"):
        return None
    held = op.properties.get("value")
    if isinstance(held, IntegerAttr):
        return [held.value.data]
    if isinstance(held, DenseIntOrFPElementsAttr) and isinstance(
        element(held.type), IntegerType | IndexType
    ):
        numbers = [held.get_values()[0]] if held.is_splat() else held.get_values()
        return [int(n) for n in numbers]
    return None


def is_splat(op: Operation | Block) -> bool:
    """Is an op a constant vector of one number?"""
    held = op.value if isinstance(op, arith.ConstantOp) else None
    return isinstance(held, DenseIntOrFPElementsAttr) and held.is_splat()


def resized(op: arith.ConstantOp, kind: VectorType) -> DenseIntOrFPElementsAttr:
    """The number of a constant vector in all elements of another."""
    assert isinstance(op.value, DenseIntOrFPElementsAttr)
    return dense(kind, op.value.get_values()[:1])  # pyright: ignore[reportArgumentType]


def constant(value: SSAValue | int | None) -> int | None:
    """The integer that a scalar is, where a constant defines it."""
    if not isinstance(value, SSAValue):
        return value
    found = None if isinstance(value.type, Shaped) else constants(value)
    return None if found is None else found[0]


def folded(value: SSAValue | int) -> SSAValue | int:
    """A scalar, as a number where it is one."""
    found = constant(value)
    return value if found is None else found


def element(kind: Attribute) -> Attribute:
    """The type of an element, or the type itself of a scalar."""
    return kind.element_type if isinstance(kind, Shaped) else kind


def with_element(kind: Attribute, new: Attribute) -> Attribute:
    """The same shape with another element type."""
    if isinstance(kind, VectorType):
        return VectorType(new, kind.get_shape(), kind.scalable_dims)
    if isinstance(kind, TensorType):
        return TensorType(new, kind.get_shape(), kind.encoding)
    return new


def element_bits(element: Attribute) -> int:
    """Bits of one element in memory: tf32 takes 32, i1 and index 8 and 64."""
    match element:
        case IntegerType():
            return 8 if element.width.data == 1 else element.width.data
        case IndexType():
            return 64
        case FloatTF32Type():
            return 32
        case _ if isinstance(element, AnyFloat):
            return element.bitwidth
        case _:
            raise VerifyException(f"{element} has no size in memory")


def element_bytes(element: Attribute) -> int:
    """Bytes of one element in memory, whole ones."""
    return -(-element_bits(element) // 8)


def signless(element: Attribute) -> Attribute:
    """An element's type without its sign: what registers hold."""
    return IntegerType(element.width.data) if isinstance(element, IntegerType) else element


def cast_to(value: SSAValue, kind: Attribute, *, unsigned: bool = False) -> Operation:
    """The op that makes numbers those of another type, or vectors of it: exactly in a wider one, else rounded or
    wrapped. Integers are signed, unless said otherwise."""
    old: Any = element(value.type)
    new: Any = element(kind)
    if isinstance(old, AnyFloat) and isinstance(new, AnyFloat):
        make: Any = arith.ExtFOp if new.bitwidth > old.bitwidth else arith.TruncFOp
    elif isinstance(new, AnyFloat):
        make = arith.UIToFPOp if unsigned else arith.SIToFPOp
    elif isinstance(old, AnyFloat):
        make = arith.FPToUIOp if unsigned else arith.FPToSIOp
    elif new.bitwidth > old.bitwidth:
        make = arith.ExtUIOp if unsigned else arith.ExtSIOp
    else:
        make = arith.TruncIOp
    return make(value, kind)


# --- Conversions ------------------------------------------------------------------------------------


def _check(value: Attribute, classes: Any, what: str, words: str) -> None:
    if not isinstance(element(value), classes):
        raise VerifyException(f"{what} must be {words} or a vector of it, got {value}")


def _conversion(
    op: type[IRDLOperation], source: str, target: str, grows: bool | None = None
) -> None:
    """Let a conversion work elementwise, from one family of types to another.

    `grows` tells which way the width must go, where the op demands one.
    """
    families: dict[str, tuple[Any, str]] = {
        "integer": (IntegerType, "an integer"),
        "float": (AnyFloat, "a float"),
        "index": ((IndexType, IntegerType), "an integer or index"),
    }

    def verify(self: Any) -> None:
        given, made = self.input.type, self.result.type
        _check(given, *_named(families[source], "operand"))
        _check(made, *_named(families[target], "result"))
        if with_element(given, element(made)) != made:
            raise VerifyException(
                f"operand and result must have the same shape, got {given} and {made}"
            )
        if "index" in (source, target):
            kinds = [element(given), element(made)]
            if sum(isinstance(kind, IndexType) for kind in kinds) != 1:
                raise VerifyException(
                    f"'{self.name}' op operand type '{given}' and result "
                    f"type '{made}' are cast incompatible"
                )
        if grows is not None:
            _check_width(element(given), element(made), grows)

    set_operand(op, "input", AnyAttr())
    set_result(op, "result", AnyAttr())
    set_verifier(op, verify)


def _named(family: tuple[Any, str], what: str) -> tuple[Any, str, str]:
    classes, words = family
    return classes, what, words


def _check_width(given: Attribute, made: Attribute, grows: bool) -> None:
    before = given.bitwidth  # pyright: ignore[reportAttributeAccessIssue]
    after = made.bitwidth  # pyright: ignore[reportAttributeAccessIssue]
    if grows and after <= before:
        raise VerifyException("Destination bit-width must be larger than the input bit-width")
    if not grows and after >= before:
        raise VerifyException("Destination bit-width must be smaller than the input bit-width")


@op_definition
class IndexCastUIOp(Op):
    """`arith.index_castui %a : index to i64`: as index_cast, zero-extended."""

    name = "arith.index_castui"
    input: Operand = Operand()
    result: Result[Attribute] = Result()
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"


@irdl_op_definition
class RemfOp(arith.FloatingPointLikeBinaryOperation):
    """`arith.remf %a, %b : f32`: the remainder of a division that truncates, as C's fmod."""

    name = "arith.remf"

    traits = traits_def(Pure())


# --- Comparisons and select ---------------------------------------------------------------------------

_CMPF = tuple(arith.CMPF_COMPARISON_OPERATIONS)


@cache
def _predicate(names: tuple[str, ...], given: int | str) -> IntegerAttr:
    if isinstance(given, int):
        return IntegerAttr(given, i64)
    if given not in names:
        raise VerifyException(f"Unknown comparison mnemonic: {given}")
    return IntegerAttr(names.index(given), i64)


def _compare(
    self: arith.CmpiOp | arith.CmpfOp,
    operand1: Operation | SSAValue,
    operand2: Operation | SSAValue,
    arg: int | str,
    fastmath: FastMathFlagsAttr = NO_FLAGS,
) -> None:
    lhs, rhs = SSAValue.get(operand1), SSAValue.get(operand2)
    if lhs.type != rhs.type:
        raise TypeError(
            f"Comparison operands must have same type, but provided {lhs.type} and {rhs.type}"
        )
    whole = isinstance(self, arith.CmpiOp)
    predicate = {"predicate": _predicate(PREDICATES if whole else _CMPF, arg)}
    IRDLOperation.__init__(
        self,
        operands=[lhs, rhs],
        result_types=[with_element(lhs.type, i1)],
        properties=predicate if whole else predicate | {"fastmath": fastmath},
    )


def _verify_compare(op: Any) -> None:
    names = _CMPF if isinstance(op, arith.CmpfOp) else PREDICATES
    if not 0 <= op.predicate.value.data < len(names):
        raise VerifyException(f"unknown predicate {op.predicate.value.data}")


def _parse_select(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`arith.select %c, %a, %b : T`, `... : vector<..xi1>, vector<..xT>`."""
    operands = parse_names(parser)
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    condition: Attribute = i1
    kind = parser.parse_type()
    if parser.parse_optional_punctuation(",") is not None:
        condition, kind = kind, parser.parse_type()
    return cls.create(
        operands=parser.resolve_operands(operands, [condition, kind, kind], parser.pos),
        attributes=attributes,
        result_types=[kind],
    )


def _print_select(op: arith.SelectOp, printer: Printer) -> None:
    say(printer, " ", op.operands)
    printer.print_op_attributes(op.attributes)
    types = [op.result.type] if op.cond.type == i1 else [op.cond.type, op.result.type]
    say(printer, " : ", types)


def _verify_select(op: arith.SelectOp) -> None:
    if op.cond.type != i1 and op.cond.type != with_element(op.result.type, i1):
        raise VerifyException(
            f"condition must be i1 or {with_element(op.result.type, i1)}, got {op.cond.type}"
        )


def _negf_init(
    self: arith.NegfOp, operand: Operation | SSAValue, fastmath: FastMathFlagsAttr | None = None
) -> None:
    value = SSAValue.get(operand)
    IRDLOperation.__init__(
        self,
        operands=[value],
        properties={"fastmath": fastmath or FastMathFlagsAttr("none")},
        result_types=[value.type],
    )


# --- Flags of conversions and divisions ---------------------------------------------------------------------

ROUNDING_MODES = ("to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away")


_ROUNDING = spelled(
    "Rounding",
    lambda parser: (
        IntegerAttr(ROUNDING_MODES.index(word), i32)
        if (word := parser.parse_optional_keyword_in(ROUNDING_MODES))
        else None
    ),
    lambda held: ROUNDING_MODES[held.value.data],
)
_MODE = IntegerAttr.constr(i32, value=IntSetConstraint(frozenset(range(len(ROUNDING_MODES)))))
_FLAGS = "(`fastmath` `` $fastmath^)? attr-dict `:`"


def _complete_float_conversions() -> None:
    for op in (arith.ExtFOp, arith.TruncFOp):
        add_optional_property(op, "roundingmode", _MODE)
        add_optional_property(op, "fastmath", base(FastMathFlagsAttr), NO_FLAGS)
        set_format(
            f"$input (custom<Rounding>($roundingmode)^)? {_FLAGS} type($input) `to` type($result)",
            op,
            using=(_ROUNDING,),
        )


def _complete_integer_flags() -> None:
    """Promises of MLIR 22 that change no result: that a truncation loses nothing, that a division leaves nothing."""
    add_optional_property(
        arith.TruncIOp, "overflowFlags", base(arith.IntegerOverflowAttr), NO_OVERFLOW
    )
    set_format(
        "$input (`overflow` `` $overflowFlags^)? attr-dict `:` type($input) `to` type($result)",
        arith.TruncIOp,
    )
    exact = (arith.DivSIOp, arith.DivUIOp, arith.ShRSIOp, arith.ShRUIOp)
    for op in exact:
        add_optional_property(op, "isExact", base(UnitAttr))
    set_format("$lhs `,` $rhs (`exact` $isExact^)? attr-dict `:` type($result)", *exact)


def _complete_comparisons() -> None:
    for op, words, flags in (
        (arith.CmpiOp, PREDICATES, "attr-dict `:`"),
        (arith.CmpfOp, _CMPF, _FLAGS),
    ):
        for side in ("lhs", "rhs"):
            set_operand(op, side, variable("lhs"))
        set_result(op, "result", follows("lhs", rule=lambda kind: with_element(kind, i1)))
        set_format(
            f"custom<Predicate>($predicate) `,` $lhs `,` $rhs {flags} type($lhs)",
            op,
            using=(numbered_word("Predicate", words, "comparison"),),
        )
        set_verifier(op, _verify_compare)


def _verify_bitcast(op: arith.BitcastOp) -> None:
    for value in (op.input, op.result):
        if isinstance(element(value.type), IndexType):
            raise VerifyException(f"expected integers or floats, got {value.type}")


def complete() -> None:
    _complete_float_conversions()
    _complete_integer_flags()
    add_verifier(arith.BitcastOp, _verify_bitcast)
    _conversion(arith.IndexCastOp, "index", "index")
    _conversion(IndexCastUIOp, "index", "index")
    _conversion(arith.ExtSIOp, "integer", "integer", grows=True)
    _conversion(arith.ExtUIOp, "integer", "integer", grows=True)
    _conversion(arith.TruncIOp, "integer", "integer", grows=False)
    _conversion(arith.SIToFPOp, "integer", "float")
    _conversion(arith.UIToFPOp, "integer", "float")
    _conversion(arith.FPToSIOp, "float", "integer")
    _conversion(arith.FPToUIOp, "float", "integer")
    _conversion(arith.ExtFOp, "float", "float", grows=True)
    _conversion(arith.TruncFOp, "float", "float", grows=False)
    _complete_comparisons()
    set_constructor(arith.CmpiOp, _compare)
    set_constructor(arith.CmpfOp, _compare)
    set_operand(arith.SelectOp, "cond", AnyAttr())
    set_custom(arith.SelectOp, _parse_select, _print_select)
    set_verifier(arith.SelectOp, _verify_select)
    # The stock constructor puts the flags among the attributes, where nothing looks for them.
    set_constructor(arith.NegfOp, _negf_init)
    add_effect(Pure(), arith.ExtSIOp)
    add_effect(NoMemoryEffect(), arith.RemUIOp)
    add_ops(arith.Arith, (IndexCastUIOp, RemfOp))
