"""What the named ops of linalg do with elements: the body of the generic op that each stands for.

linalg.matmul of i8 in i32   ->   { arith.extsi; arith.extsi; arith.muli; arith.addi }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import cast_to
from tilewright.dialects.upstream.linalg_names import NamedOp

Element = Callable[..., Operation]
_FLOAT: dict[str, Element] = {
    "abs": math.AbsFOp,
    "add": arith.AddfOp,
    "ceil": math.CeilOp,
    "div": arith.DivfOp,
    "erf": math.ErfOp,
    "exp": math.ExpOp,
    "floor": math.FloorOp,
    "log": math.LogOp,
    "max": arith.MaximumfOp,
    "min": arith.MinimumfOp,
    "mul": arith.MulfOp,
    "negf": arith.NegfOp,
    "powf": math.PowFOp,
    "round": math.RoundOp,
    "rsqrt": math.RsqrtOp,
    "select": arith.SelectOp,
    "sqrt": math.SqrtOp,
    "sub": arith.SubfOp,
    "tanh": math.TanhOp,
}
_INTEGER: dict[str, Element] = {
    "abs": math.AbsIOp,
    "add": arith.AddiOp,
    "div": arith.DivSIOp,
    "div_unsigned": arith.DivUIOp,
    "max": arith.MaxSIOp,
    "max_unsigned": arith.MaxUIOp,
    "min": arith.MinSIOp,
    "min_unsigned": arith.MinUIOp,
    "mul": arith.MuliOp,
    "select": arith.SelectOp,
    "sub": arith.SubiOp,
}
_TRUTH: dict[str, Element] = {
    "add": arith.OrIOp,
    "max": arith.OrIOp,
    "mul": arith.AndIOp,
    "select": arith.SelectOp,
}
"""What MLIR takes sums and products of truth values for."""


def named_body(elements: Sequence[Attribute], op: NamedOp, unsigned: bool) -> Region:
    """The body of a named op on such elements, the last of which is the result's: a function of the inputs in that
    type, combined with what was there."""
    block, type = Block(arg_types=elements), elements[-1]
    casts = op.function not in ("select", "first")
    values = [_cast(block, a, type, unsigned) if casts else a for a in block.args[:-1]]
    if op.function == "mul" and len(values) == 4:  # and the zero points of both
        pairs = (values[::2], values[1::2])
        values = [v for p in pairs if (v := _apply(block, "sub", p, type)) is not None]
    if (result := _apply(block, op.function, values, type)) is None:
        raise VerifyException(f"there is no {op.function} of {type}")
    result = _cast(block, result, type, unsigned)
    if op.reduction is not None:
        combined = _apply(block, op.reduction, [block.args[-1], result], type)
        if combined is None:
            raise VerifyException(f"there is no {op.reduction} of {type}")
        result = combined
    block.add_op(YieldOp(result))
    return Region(block)


def _apply(
    block: Block, function: str, values: Sequence[SSAValue], type: Attribute
) -> SSAValue | None:
    whole = isinstance(type, IntegerType)
    if function == "first":
        return values[0]
    if function == "square":
        function, values = "mul", [*values, *values]
    elif function == "reciprocal" and not whole:
        one = arith.ConstantOp(number_attr(type, 1))
        block.add_op(one)
        function, values = "div", [one.result, *values]
    table = _TRUTH if type == IntegerType(1) else _INTEGER if whole else _FLOAT
    if function not in table:
        return None
    made = table[function](*values)
    block.add_op(made)
    return made.results[0]


def _cast(block: Block, value: SSAValue, type: Attribute, unsigned: bool) -> SSAValue:
    """A value in another element type, as named ops cast their operands."""
    if value.type == type:
        return value
    made = cast_to(value, type, unsigned=unsigned)
    block.add_op(made)
    return made.results[0]


def reduced(op: GenericOp) -> set[int]:
    """Loops whose rounds give one element: reductions, and parallel ones that a result is not indexed by (the last of
    their rounds counts)."""
    kinds, maps = op.iterator_types, list(op.indexing_maps)[len(op.inputs) :]
    found = {d for d, kind in enumerate(kinds) if kind.data is IteratorType.REDUCTION}
    return found.union(*(set(range(len(kinds))) - each.data.used_dims() for each in maps))
