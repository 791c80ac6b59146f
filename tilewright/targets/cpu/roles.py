"""Which operand of a product of tiles is read in rows, and how deep.

A micro-kernel of tiles takes rows along k of one operand as they lie (role A), and the other in groups of k (role B). A
product of few columns so leaves A in its array; one of so few rows that they are one panel does the same for B where
that lies along k, computed transposed:

    C^T = B^T A^T        C^T in a buffer of the workgroup, turned round when k is done

Not so where a loop multiplies along a short k again and again and needs C in every turn: turning it takes longer then.

Each of these rows is best read once, beside all columns, up to four tiles wide (`amx`), or, where no loop repeats the
product, once more from the second cache: blocks of k are deep, for caches fetch long runs ahead. Where B's rows run
along n, few rows of A take blocks of it that are wide and less deep, for the same reason.

A micro-kernel on vectors of one k needs no panels of A's rows at all. Many rows are read once, too, where each few of
them are multiplied by all of B before the next: B then comes from the second cache for each, in deeper blocks of k, for
sums are read and written once per block.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import scf
from xdsl.dialects.builtin import AnyFloat, UnrealizedConversionCastOp, VectorType
from xdsl.ir import Attribute, OpResult, SSAValue

from tilewright.codegen.registers import strided_form
from tilewright.codegen.tiles import plain, rows_cols
from tilewright.dialects.fused import ContractOp, PackOp, PanelOp
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import frozen
from tilewright.passes.packing import Chain, chain_of
from tilewright.targets.cpu.amx import AMX_ROWS, TILE_ROWS
from tilewright.targets.cpu.family import Family
from tilewright.targets.cpu.machine import (
    BY_ROWS,
    DEEP,
    DEEPER,
    FEW_USES,
    WIDE_COLUMNS,
    CpuMachine,
    columns_at_once,
    shallower,
    turns_often,
)
from tilewright.targets.cpu.micro import family_of
from tilewright.targets.cpu.packing import is_verbatim
from tilewright.targets.cpu.thin import Thin, contiguous, lying_there, thin_form


@frozen
class Roles:
    """The family of a product, whether its operands change places, and how it runs where one side of it is thin."""

    family: Family
    swapped: bool = False
    thin: Thin | None = None


def roles_of(m: CpuMachine, a: SSAValue, b: SSAValue, c: Attribute) -> Roles:
    """The roles of tiles A and B in a product with elements of type `c`."""
    assert isinstance(a.type, VectorType) and isinstance(b.type, VectorType)
    family = family_of(m, a.type, b.type, c)
    rows, cols = rows_cols(a.type)[0], rows_cols(b.type)[1]
    form, thin = _form(m, family, a, b)
    if thin is not None:
        return Roles(family, thin=thin)
    if form == DEEPER:
        family = replace(family, depth=BY_ROWS * family.depth, by_rows=True)
    if not family.tiles:
        return Roles(family)
    swapped = rows <= WIDE_COLUMNS and cols > rows and _in_rows(b, family, 0)
    swapped = swapped and (_chain(a) is not None or _pack(a) is not None)
    swapped = swapped and not turns_often(rows, _length_in_loop(b))
    if swapped:
        family = family_of(m, b.type, a.type, c, swapped=True)
    wide, axis, columns = (b, 0, rows) if swapped else (a, 1, cols)
    most = FEW_USES * AMX_ROWS if _length_in_loop(wide) is None else WIDE_COLUMNS
    if columns <= most and _in_rows(wide, family, axis):
        if columns > AMX_ROWS:
            mr, nr = TILE_ROWS, columns_at_once(columns, TILE_ROWS)
            left, right = replace(family.a, lanes=mr), replace(family.b, lanes=nr)
            family = replace(family, mr=mr, nr=nr, a=left, b=right, by_rows=True)
        family = replace(family, depth=DEEP * family.depth)
    else:
        depth = shallower(rows, cols * family.b.bytes, family.depth)
        family = replace(family, depth=depth)
    return Roles(family, swapped)


def _form(
    m: CpuMachine, family: Family, a: SSAValue, b: SSAValue
) -> tuple[int | None, Thin | None]:
    """What is multiplied where it lies (see `CpuMachine.form`), and how, where one side is thin."""
    if not isinstance(family.accumulator, AnyFloat):
        return None, None
    there = [lying_there(m, family, x, side) for side, x in enumerate((a, b))]
    form = m.form(
        (rows_cols(a.type)[0], rows_cols(b.type)[1]),
        (there[0][1], there[1][1]),
        tiles=family.tiles,
        halves=family.a.parts > 1,
        single=family.single and _in_rows(a, family, 1),
        turns=_in_loop(a) is not None or _in_loop(b) is not None,
    )
    chain = there[form][0] if form in (0, 1) else None
    return form, None if chain is None else thin_form(m, family, a, b, form, chain)  # pyright: ignore


def _in_loop(value: SSAValue) -> ContractOp | None:
    """The contraction that `value` is an operand of, where a loop repeats it."""
    contract = value.op.parent_op() if isinstance(value, OpResult) else None
    inside = isinstance(contract, ContractOp) and isinstance(contract.parent_op(), scf.ForOp)
    return contract if inside else None  # pyright: ignore


def _length_in_loop(value: SSAValue) -> int | None:
    """k of the contraction that `value` is an operand of, where that is known and a loop repeats it."""
    contract = _in_loop(value)
    if contract is None:
        return None
    lo, hi = constant(contract.lo), constant(contract.hi)
    return None if lo is None or hi is None else hi - lo


def _in_rows(value: SSAValue, family: Family, axis: int) -> bool:
    """Do the rows of role A lie in the operand's array as they are, along its dimension `axis`?"""
    pack = _pack(value)
    if pack is not None:
        source = memref_type(pack.source)
        strides = strided_form(source)[0]
        along = len(strides) > 1 and strides[-2 + pack.result.type.k.data] == 1
        return along and is_verbatim(pack, source.element_type, family.a)
    chain = _chain(value)
    if chain is None or contiguous(chain) != axis or chain.load.padding_value != 0:
        return False
    same = plain(chain.load.values[0].type.element_type) == family.a.element  # pyright: ignore
    casts = all(isinstance(op, UnrealizedConversionCastOp) for op in chain.ops)
    return same and casts and family.a.parts == 1


def _pack(value: SSAValue) -> PackOp | None:
    """The pack that an operand is read from."""
    panel = value.op if isinstance(value, OpResult) else None
    pack = panel.panels.owner if isinstance(panel, PanelOp) else None
    return pack if isinstance(pack, PackOp) else None


def _chain(value: SSAValue) -> Chain | None:
    block = value.op.parent if isinstance(value, OpResult) else None
    inside = block is not None and isinstance(block.parent_op(), ContractOp)
    return chain_of(value, block) if inside else None  # pyright: ignore
