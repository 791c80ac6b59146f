"""widen-accumulators: products whose sums are f16 or bf16 are summed in f32 and rounded at the end.

    scf.for iter_args(%c = %zero : f16)                    scf.for iter_args(%c = %wide : f32)
      %d = tile_mma %a, %b, %c : .. -> f16          ->       %d = tile_mma %a, %b, %c : .. -> f32
      yield %d                                               yield %d
                                                           %r = arith.truncf : f32 to f16

Requires: nothing. Guarantees: no tile_mma accumulates in a float narrower than f32; a sum that a loop
carries is rounded once, after the loop, when the loop does nothing else with it, and in every
iteration otherwise. For machines whose instructions have no narrow sums: the result is never less
exact than what the kernel asks for.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, VectorType, f32
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.passes.emit import Before, Behind


def widen_accumulators(function: gpu.FuncOp) -> None:
    """Keeps loop-carried sums of f16 and bf16 products in f32."""
    products = [op for op in function.walk() if isinstance(op, xetile.TileMmaOp)]
    narrow = [op for op in products if _is_narrow(op.result.type)]
    for op in narrow:
        _widen(op)
    if narrow:
        loops = [op for op in function.walk() if isinstance(op, scf.ForOp)]
        for loop in reversed(loops):  # inner loops first: they free the outer ones
            _carry_wide(loop)


def _is_narrow(type: Attribute) -> bool:
    return isinstance(type, VectorType) and isinstance(
        type.element_type, (Float16Type, BFloat16Type)
    )


def _wide(type: Attribute) -> VectorType:
    return VectorType(f32, cast(VectorType, type).get_shape())


def _widen(op: xetile.TileMmaOp) -> None:
    """The product in f32, between conversions of its own."""
    at = Before(op)
    extended = None
    if op.c is not None:
        extended = arith.ExtFOp(op.c, _wide(op.c.type))
        at.insert(extended)
    product = xetile.TileMmaOp(op.a, op.b, extended, result_type=_wide(op.result.type))
    for name, value in op.properties.items():
        product.properties.setdefault(name, value)
    product.attributes.update(op.attributes)
    at.insert(product)
    at.replace(at.add(arith.TruncFOp(product.result, op.result.type)))


def _carry_wide(loop: scf.ForOp) -> None:
    """Carries in f32 every value that the body only widens at its start and rounds at its end."""
    body = loop.body.block
    last = terminator(body)
    for i, argument in enumerate(list(body.args[1:])):
        end = last.operands[i]
        if not (_is_narrow(argument.type) and _is_rounding(end)):
            continue
        readers = [use.operation for use in argument.uses]
        if not readers or not all(_is_widening(reader) for reader in readers):
            continue
        wide = _wide(argument.type)
        narrow = argument.type
        loop.operands[3 + i] = Before(loop).add(arith.ExtFOp(loop.iter_args[i], wide))
        inside = Rewriter.replace_value_with_new_type(argument, wide)
        for reader in readers:
            Rewriter.replace_op(reader, [], [inside])
        rounding = cast(OpResult, end).op
        last.operands[i] = rounding.operands[0]
        if not rounding.results[0].uses:
            Rewriter.erase_op(rounding)
        result = Rewriter.replace_value_with_new_type(loop.results[i], wide)
        Behind(loop).instead(result, arith.TruncFOp(result, narrow))


def _is_rounding(value: SSAValue) -> bool:
    return (
        isinstance(value, OpResult)
        and isinstance(value.op, arith.TruncFOp)
        and element_of(value.op.input.type) == Float32Type()
    )


def _is_widening(op: Operation) -> bool:
    return isinstance(op, arith.ExtFOp) and element_of(op.result.type) == Float32Type()
