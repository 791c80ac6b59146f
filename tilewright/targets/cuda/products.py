"""How a product of tiles is computed: by which instruction, dealt to which grid of warps.

The choice depends on element types and extents alone, and is made once, before ownership: the layout
of C anchors that of every value around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from xdsl.dialects.builtin import IntegerType, VectorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dtypes import DType, from_mlir
from tilewright.layout import Layout
from tilewright.targets.cuda import blocked as bl


@dataclass(frozen=True)
class Product:
    """One choice. `instruction` is None for products by multiply-add of single elements.

    `element` is the type that both operands are brought to first, `pack` how many of them fill a
    32-bit register, `k` the depth of one instruction.
    """

    instruction: str | None
    element: str
    pack: int
    k: int
    rows: int
    grid: tuple[int, int]
    c: Layout
    a: Layout | None
    b: Layout | None


def shape_of(value: SSAValue) -> tuple[int, ...]:
    assert isinstance(value.type, VectorType)
    return value.type.get_shape()


def dtype_of(type: Attribute) -> DType:
    return from_mlir(type.element_type if isinstance(type, VectorType) else type)


_PTX = {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "i8": "s8", "u8": "u8", "f64": "f64"}


def _instruction(a: DType, b: DType, c: DType) -> tuple[str, str, str, int, int, int] | None:
    """(D type, A type, B type, pack, k, rows) of mma.sync for these elements."""
    x, y = _PTX.get(a.name), _PTX.get(b.name)
    if a.name.startswith("f8") and b.name.startswith("f8"):
        x = y = "f16"  # exact: f8 is a subset of f16
    if x is None or y is None:
        return None
    if x in ("s8", "u8"):
        if y in ("s8", "u8") and c.bits == 32 and not c.is_float:
            return "s32", x, y, 4, 32, 16
        return None
    if x != y or not c.is_float:
        return None
    if x == "f64":
        return ("f64", x, y, 1, 4, 8) if c.name == "f64" else None
    if c.name != "f32":
        return None
    return ("f32", x, y, 1, 8, 16) if x == "tf32" else ("f32", x, y, 2, 16, 16)


def feeds_product(op: xt.TileMmaOp) -> bool:
    """Is the result, computed on, an operand of another product?"""
    seen: set[Operation] = set()
    work = [op.result]
    while work:
        value = work.pop()
        for use in value.uses:
            user = use.operation
            if isinstance(user, xt.TileMmaOp):
                if user.c is not value:
                    return True
                continue
            plain = user.name.startswith(("arith.", "math.", "builtin."))
            if plain and user not in seen:
                seen.add(user)
                work += [r for r in user.results if isinstance(r.type, VectorType)]
    return False


def fed_by_product(op: xt.TileMmaOp) -> bool:
    """Is the left operand computed from the result of another product?"""
    seen: set[SSAValue] = set()
    work = [op.a]
    while work:
        value = work.pop()
        if value in seen or not isinstance(value, OpResult):
            continue
        seen.add(value)
        made = value.op
        if isinstance(made, xt.TileMmaOp):
            return True
        if made.name.startswith(("arith.", "math.", "builtin.")):
            work += [v for v in made.operands if isinstance(v.type, VectorType)]
    return False


def grid_of(m: int, n: int, rows: int, warps: int, *, tall: bool) -> tuple[int, int]:
    """Warps along m and n: all along m where `tall`, else so that operands are read least."""
    most_m = bl.power_of_two_in(m // rows)
    most_n = bl.power_of_two_in(n // 8)
    choices = [
        (wm, wn)
        for wm in (1, 2, 4, 8, 16, 32)
        for wn in (1, 2, 4, 8, 16, 32)
        if wm <= most_m and wn <= most_n and warps % (wm * wn) == 0
    ]
    if warps & (warps - 1):
        choices += uneven_grids(m // rows, n // 8, warps)
    if tall:
        return max(choices, key=lambda g: (g[0] * g[1] if g[1] == 1 else g[0], g[0] * g[1]))
    return max(choices, key=lambda g: (g[0] * g[1], -(m // g[0] + n // g[1]), -(n // g[1] % 16)))


def uneven_grids(rows: int, columns: int, warps: int) -> list[tuple[int, int]]:
    """Grids of exactly so many warps over instructions' rows and columns, the columns' share a power of two."""
    most = bl.power_of_two_in(columns)
    return [
        (warps // wn, wn)
        for wn in (1, 2, 4, 8)
        if wn <= most and warps % wn == 0 and rows % (warps // wn) == 0
    ]


def source_element(value: SSAValue) -> DType:
    """Element type that a value has with its signedness, which loads know."""
    found = dtype_of(value.type)
    if isinstance(value, OpResult) and value.op.name == "builtin.unrealized_conversion_cast":
        return dtype_of(value.op.operands[0].type)
    return found


def plan_product(op: xt.TileMmaOp, warps: int, *, use_mma: bool = True) -> Product:
    """The choice for one product."""
    (m, k), (_, n) = shape_of(op.a), shape_of(op.b)
    a, b, c = source_element(op.a), source_element(op.b), dtype_of(op.result.type)
    found = _instruction(a, b, c) if use_mma else None
    if found is not None:
        d, x, y, pack, kin, rows = found
        # Every instruction on 16 rows has one of half its depth beside it.
        kin = kin // 2 if rows == 16 and k % kin else kin
        if m % rows == 0 and n % 8 == 0 and k % kin == 0:
            grid = grid_of(m, n, rows, warps, tall=feeds_product(op) or fed_by_product(op))
            name = f"nvptx.mma.m{rows}n8k{kin}.{d}.{x}.{y}.{d}"
            element = {"s8": "i8"}.get(x, x)
            layout = bl.product_c if rows == 16 else bl.product_c8
            return Product(
                name,
                element,
                pack,
                kin,
                rows,
                grid,
                layout(m, n, grid, warps),
                bl.product_a(m, k, pack, grid, warps, rows, kin),
                bl.product_b(k, n, pack, kin, grid, warps),
            )
    vector = gcd(4, n)
    c_layout = bl.blocked((m, n), 1, vector, warps, 8)
    element = c.name if not (isinstance(op.result.type, IntegerType)) else "i32"
    return Product(None, element, 1, 1, 1, (1, 1), c_layout, None, None)
