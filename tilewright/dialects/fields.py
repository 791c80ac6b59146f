"""Ops are their fields: operands, results, regions and properties, from which the constructor follows.

    @op_definition
    class LoadOp(Op):
        name = "mach.load"
        pointer: Operand[LLVMPointerType] = Operand(LLVMPointerType)
        result: Result[Attribute] = Result()
        alignment: OptInt = OptInt()

    LoadOp(pointer, vector_type, alignment=64)

As in a dataclass, the annotated fields in their order are the parameters, those of a base class first. The annotation
tells type checkers and readers what a field is given as (an operand as a value or the op that makes it, a result as
its type) and what it reads as: `op.alignment` is an `int | None`, though the op holds an attribute. A field without
annotation is no parameter: the type of an `Inferred` result follows from the others; that of one that `Follows` cannot
be another, so that a text need not state it either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform

from xdsl.dialects.builtin import (
    DenseArrayBase,
    FlatSymbolRefAttrConstr,
    IntegerAttr,
    LocationAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, OpResult, Region, SSAValue, SSAValues
from xdsl.irdl import (
    AnyAttr,
    AttrConstraint,
    InferenceContext,
    IRDLAttrConstraint,
    IRDLOperation,
    MessageConstraint,
    ParsePropInAttrDict,
    VarConstraint,
    VerificationContext,
    irdl_op_definition,
    irdl_to_attr_constraint,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from xdsl.utils.exceptions import VerifyException

Value = SSAValue | Operation
"""What an operand is given as; an op stands for its only result."""
AttributeT = TypeVar("AttributeT", bound=Attribute)
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    TypeT = DefaultTypeVar("TypeT", bound=Attribute, default=Attribute)
else:
    TypeT = TypeVar("TypeT")
"""The type of an operand; any where it is not said."""
Get = TypeVar("Get", covariant=True)
Set = TypeVar("Set", contravariant=True)
OpT = TypeVar("OpT", bound="Op")
Given = Mapping[str, Any]
"""What is given to a constructor, by name."""
_REQUIRED: Any = object()
_INT: Any = (
    IntegerAttr,
    lru_cache(None, typed=True)(lambda value: IntegerAttr(value, i64)),
    lambda held: held.value.data,
)
_STR: Any = (StringAttr, StringAttr, attrgetter("data"))
_INTS: Any = (
    DenseArrayBase.constr(i64),
    lambda values: DenseArrayBase.from_list(i64, list(values)),
    lambda held: held.get_values(),
)
"""Of a property: its constraint, what makes it of a Python value, and what makes that of it."""


class Field(Generic[Get, Set]):
    """A field that reads as a `Get` and is given as a `Set`.

    xDSL gets `DEFINE(constraint)`; `into` makes what the op holds of what is given, `out` what is read of that.
    """

    DEFINE: ClassVar[Callable[..., Any]]
    into: Callable[[Any], Any] | None = None
    out: Callable[[Any], Any] | None = None

    def __init__(
        self, constraint: Any = Attribute, *, default: Any = _REQUIRED, kw_only: bool = False
    ):
        self.constraint, self.default, self.kw_only = constraint, default, kw_only

    def declared(self, name: str) -> dict[str, Any]:
        """The definitions that xDSL gets, by name."""
        return {name: self.DEFINE(self.constraint)}

    def given(self, name: str, value: Any) -> dict[str, Any]:
        """What the op holds of a value, by the same names."""
        return {name: value if self.into is None or value is None else self.into(value)}

    if TYPE_CHECKING:

        def __get__(self, op: object, owner: Any = None) -> Get: ...
        def __set__(self, op: object, value: Set) -> None: ...


class Operand(Field[SSAValue[TypeT], Value]):
    DEFINE = staticmethod(operand_def)


class OptOperand(Field[SSAValue[TypeT] | None, Value | None]):
    DEFINE = staticmethod(opt_operand_def)


class Operands(Field[SSAValues[SSAValue[TypeT]], Sequence[Value]]):
    DEFINE = staticmethod(var_operand_def)


class Result(Field[OpResult[AttributeT], AttributeT]):
    DEFINE = staticmethod(result_def)


class OptResult(Field[OpResult | None, Attribute | None]):
    DEFINE = staticmethod(opt_result_def)


class Results(Field[SSAValues[OpResult[AttributeT]], Sequence[AttributeT]]):
    DEFINE = staticmethod(var_result_def)


class Inferred(Field[OpResult[AttributeT], AttributeT]):
    """A result whose type follows: that of the operand `rule`, what `rule` makes of the values given, or the only one
    that the constraint allows.
    """

    DEFINE = staticmethod(result_def)

    def __init__(
        self,
        constraint: IRDLAttrConstraint[AttributeT],
        rule: str | Callable[[Given], AttributeT] | None = None,
    ):
        super().__init__(constraint)
        self.rule = rule

    def type(self, given: Given) -> Attribute:
        if isinstance(self.rule, str):
            return SSAValue.get(given[self.rule]).type
        if self.rule is not None:
            return self.rule(given)
        return self.constraint() if isinstance(self.constraint, type) else self.constraint


@dataclass(frozen=True)
class _Follows(AttrConstraint):
    """The type that a rule makes of types of operands, which are variables of the names of those."""

    operands: tuple[str, ...]
    rule: Callable[..., Attribute]

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if self.can_infer(constraint_context.attr_variables):
            expected = self.infer(constraint_context)
            if attr != expected:
                raise VerifyException(f"expected {expected}, got {attr}")

    def can_infer(self, var_constraint_names: AbstractSet[str]) -> bool:
        return var_constraint_names >= set(self.operands)

    def infer(self, context: InferenceContext) -> Attribute:
        return self.rule(*map(context.get_variable, self.operands))

    def mapping_type_vars(self, type_var_mapping: Any) -> _Follows:
        return self


def follows(*operands: str, rule: Callable[..., Attribute]) -> AttrConstraint:
    """The type that `rule` makes of those of operands, whose constraints are `variable`."""
    return _Follows(operands, rule)


def variable(name: str, constraint: Any = Attribute) -> AttrConstraint:
    """A type that others follow, by the operand's name."""
    held = irdl_to_attr_constraint(constraint)
    return held if isinstance(held, VarConstraint) else VarConstraint(name, held)


class Follows(Inferred[AttributeT]):
    """A result whose type is that of an operand, or what `rule` makes of the types of operands: the constructor infers
    it, a text need not state it, and an op with another is refused, for which `message` is why.
    """

    def __init__(
        self,
        *operands: str,
        rule: Callable[..., AttributeT] | None = None,
        message: str | None = None,
    ):
        self.operands = operands
        constraint: Any = VarConstraint(operands[0], AnyAttr())
        if rule is not None:
            constraint = _Follows(operands, rule)
        make = rule or (lambda type: type)
        super().__init__(
            MessageConstraint(constraint, message) if message else constraint,
            lambda given: make(*(SSAValue.get(given[name]).type for name in operands)),
        )


class Body(Field[Region, Region]):
    """A region of one block."""

    DEFINE = staticmethod(lambda _: region_def("single_block"))


class Property(Field[Get, Set]):
    """A property; `KIND` is what a field does not say itself of constraint, `into` and `out`."""

    KIND: ClassVar[Any] = (Attribute, None, None)
    MISSING: ClassVar[Any] = _REQUIRED
    """What an optional property reads as where the op has none."""

    def __init__(
        self,
        constraint: Any = None,
        into: Any = None,
        out: Any = None,
        *,
        name: str | None = None,
        default: Any = _REQUIRED,
        implicit: bool = False,
    ):
        """`implicit`: the default is what an op has whose text does not state the property, and is not printed."""
        usual = self.KIND
        super().__init__(constraint or usual[0], default=default)
        self.into, self.out, self.held = into or usual[1], out or usual[2], name
        self.implicit = self.given("", default)[""] if implicit else None
        if self.MISSING is not _REQUIRED:
            self.default = self.MISSING

    def declared(self, name: str) -> dict[str, Any]:
        define: Any = prop_def if self.MISSING is _REQUIRED else opt_prop_def
        return {name: define(self.constraint, prop_name=self.held, default_value=self.implicit)}


class Prop(Property[AttributeT, AttributeT]):
    """Given and read as an attribute."""


class OptProp(Property[AttributeT | None, AttributeT | None]):
    MISSING = None


class Int(Property[int, int]):
    KIND = _INT


class OptInt(Property[int | None, int | None]):
    KIND, MISSING = _INT, None


class Str(Property[str, str]):
    KIND = _STR


class OptStr(Property[str | None, str | None]):
    KIND, MISSING = _STR, None


class Symbol(Property[str, str]):
    KIND = (FlatSymbolRefAttrConstr, SymbolRefAttr, lambda held: held.string_value())


class Ints(Property[tuple[int, ...], Iterable[int]]):
    """`array<i64: ..>`."""

    KIND = _INTS


class OptInts(Property[tuple[int, ...] | None, Iterable[int] | None]):
    KIND, MISSING = _INTS, None


class Flag(Property[bool, bool]):
    """A unit attribute, or none."""

    KIND, MISSING = (UnitAttr, lambda value: UnitAttr() if value else None, bool), False


@dataclass_transform(
    eq_default=False,
    field_specifiers=(
        Operand,
        OptOperand,
        Operands,
        Result,
        OptResult,
        Results,
        Body,
        Prop,
        Property,
        Int,
        Str,
        Symbol,
        Ints,
    ),
)
@dataclass(init=False, repr=False, eq=False)
class Op(IRDLOperation):
    """An op that is built of its fields, by position or name."""

    if TYPE_CHECKING:  # what any operation holds is no parameter of a constructor
        irdl_options: ClassVar[Any]
        _operands: SSAValues = field(init=False)
        _operand_uses: Any = field(init=False)
        results: SSAValues[OpResult] = field(init=False)
        _successors: tuple[Block, ...] = field(init=False)
        _successor_uses: Any = field(init=False)
        properties: dict[str, Attribute] = field(init=False)
        attributes: dict[str, Attribute] = field(init=False)
        location: LocationAttr = field(init=False)
        regions: tuple[Region, ...] = field(init=False)
        parent: Block | None = field(init=False)
        _next_op: Operation | None = field(init=False)
        _prev_op: Operation | None = field(init=False)

    CHECK: ClassVar[Callable[[Any], None] | None] = None
    """Checks what its fields do not say, where `verify_` does not."""
    __fields__ = dict[str, Field[Any, Any]]()
    __order__ = tuple[str, ...]()
    """The fields that can be given by position."""
    __defaults__ = dict[str, Any]()

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        own = {name: each for name, each in vars(cls).items() if isinstance(each, Field)}
        followed = {n for each in own.values() if isinstance(each, Follows) for n in each.operands}
        known = {**cls.__fields__, **own}
        for name in followed:
            known[name].constraint = variable(name, known[name].constraint)
        for name, each in {**own, **{name: known[name] for name in followed}}.items():
            setattr(cls, name, property(each.out))
            for part, declared in each.declared(name).items():
                setattr(cls, part, declared)
        cls.__fields__ = {**cls.__fields__, **own}
        cls.__defaults__ = {
            n: f.default for n, f in cls.__fields__.items() if f.default is not _REQUIRED
        }
        if not kw_only:
            order = (n for n, f in own.items() if n in cls.__annotations__ and not f.kw_only)
            cls.__order__ = (*cls.__order__, *order)

    def verify_(self) -> None:
        if (check := type(self).CHECK) is not None:
            check(self)

    def __init__(self, *args: Any, **kwargs: Any):
        given = dict(zip(self.__order__, args, strict=False))
        if kwargs:
            given |= kwargs
        if len(args) > len(self.__order__) or not given.keys() <= self.__fields__.keys():
            raise TypeError(f"{self.name} is made of {', '.join(self.__fields__)}, not of {given}")
        values: dict[str, Any] = {}
        plan, operands, results, regions, properties = _plan(type(self))
        for name, each, plain, into, unsaid in plan:
            if name in given:
                value = given[name]
                if not plain:
                    values.update(each.given(name, value))
                else:
                    values[name] = value if into is None or value is None else into(value)
            elif unsaid is not None:
                values.update(unsaid)
            elif isinstance(each, Inferred):
                values[name] = each.type({**self.__defaults__, **given})
            else:
                raise TypeError(f"{self.name} needs {name}")
        super().__init__(
            operands=[values[name] for name in operands],
            result_types=[values[name] for name in results],
            properties={properties[n]: held for n, held in values.items() if n in properties}
            if properties
            else None,
            regions=[values[name] for name in regions] if regions else None,
        )


@cache
def _plan(kind: type[Op]) -> tuple[Any, ...]:
    """The fields of a class, each with whether and by what it makes one thing of what is given, and what an op holds
    where it is not given, None where it must be; then the names of its operands, results and regions, and what an op
    calls its properties."""
    held = kind.get_irdl_definition()
    fields = [
        (
            name,
            each,
            type(each).given is Field.given,
            each.into,
            None
            if each.default is _REQUIRED or isinstance(each, Inferred)
            else each.given(name, each.default),
        )
        for name, each in kind.__fields__.items()
    ]
    groups = ([name for name, _ in group] for group in (held.operands, held.results, held.regions))
    return fields, *groups, {name: at for name, (at, _) in held.accessor_names.items()}


def dialect(name: str, contents: Mapping[str, Any], *more: type[Operation]) -> Dialect:
    """The dialect of all ops, attributes and types whose names begin with its name, of the contents of a module."""
    known = [each for each in contents.values() if isinstance(each, type)]
    own = [*(k for k in known if getattr(k, "name", "").startswith(f"{name}.")), *more]

    def based_on(
        base: type[Any],
    ) -> list[Any]:  # `issubclass` asks all that is derived from an abstract class
        return [each for each in own if base in each.__mro__]

    return Dialect(name, based_on(Operation), based_on(Attribute))


def op_definition(cls: type[OpT]) -> type[OpT]:
    """What xDSL's decorator of this name does, and properties that read as Python values.

    Properties that the format of an op does not name stand among its attributes.
    """
    if cls.assembly_format is not None and not hasattr(cls, "irdl_options"):
        cls.irdl_options = (ParsePropInAttrDict(),)
    cls = irdl_op_definition(cls)
    names = cls.get_irdl_definition().accessor_names
    for name, each in cls.__fields__.items():
        if isinstance(each, Property) and each.out is not None:
            setattr(cls, name, property(_reader(names[name][0], each.out, each.MISSING)))
    return cls


def _reader(name: str, out: Callable[[Any], Any], missing: Any) -> Callable[[Op], Any]:
    if missing is _REQUIRED:
        return lambda op: out(op.properties[name])
    return lambda op: missing if (held := op.properties.get(name)) is None else out(held)
