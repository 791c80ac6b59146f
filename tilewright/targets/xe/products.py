"""dpas of a lane -> the callee that is one DPAS instruction.

    %d = xegpu.dpas %a, %b, %c : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
    ->
    %d = mach.call @xe_dpas_f16_f16_f32_8x16x16(%a', %b', %c)

A goes as words of 16 bits (32 with subgroups of 8, and for tf32), B as eight words of 32 bits: both are the
registers that the fragments lie in, so the casts move nothing.
"""

from __future__ import annotations

from xdsl.dialects import vector
from xdsl.dialects.builtin import BFloat16Type, FloatTF32Type, VectorType, f32
from xdsl.ir import SSAValue

from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import xegpu
from tilewright.passes.xegpu.sg_maps import element_name
from tilewright.targets.xe.building import bits_of, count_of, words
from tilewright.targets.xe.context import Context
from tilewright.targets.xe.forms import Dpas


def dpas(s: Context, op: xegpu.DpasOp) -> SSAValue:
    b = s.b
    lhs, rhs, result = op.lhs.type, op.rhs.type, op.result.type
    names = [element_name(t.element_type) for t in (lhs, rhs, result)]
    try:
        instruction = s.machine.instruction(*names)
    except UnsupportedError as error:
        raise b.refuse(error.message, error.hint) from None
    m = count_of(result)
    form = Dpas(names[0], names[1], names[2], m, instruction.k, s.lanes)
    b_bits = bits_of(rhs.element_type) * count_of(rhs)
    need = max(1, m * instruction.k // s.lanes)
    if m not in instruction.m or b_bits != 256 or count_of(lhs) != need:
        raise b.refuse(
            f"fragments {lhs}, {rhs} and {result} are no {' x '.join(names[:2])} product of "
            f"{s.machine.name}: M is {', '.join(map(str, instruction.m))}, K {instruction.k}, and a lane "
            f"has M*K/{s.lanes} elements of A, {instruction.k} of B, M of C"
        )
    count, bits = form.a_components
    left = b.as_words(op.lhs, count, bits)
    right = b.as_words(op.rhs, 8, 32)
    acc = b.zero(result) if op.acc is None else op.acc
    kind = result
    if isinstance(result.element_type, BFloat16Type | FloatTF32Type):
        kind = (
            words(m, 16) if isinstance(result.element_type, BFloat16Type) else VectorType(f32, [m])
        )
        acc = b.add(vector.BitcastOp(acc, kind))
    done = b.call(form.name, [left, right, acc], [kind]).results[0]
    return done if kind == result else b.add(vector.BitcastOp(done, result))
