"""How a product of tiles is computed: by which instruction, distributed to which grid of warps.

The choice depends on element types and extents alone, and is made once, before ownership: the layout
of C anchors that of every value around it.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from xdsl.dialects.builtin import IntegerType, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import shape_of
from tilewright.dtypes import DType, from_mlir
from tilewright.frozen import frozen
from tilewright.layout import Layout
from tilewright.passes.carried import operands_of, reached
from tilewright.targets.cuda import blocked as bl
from tilewright.uarch import Machine, MatrixInstruction
from tilewright.uarch.nvidia import ptx_type


@frozen
class ProductPlan:
    """One choice. `instruction` is None for products by multiply-add of single elements.

    `element` is the type that both operands are brought to first, `pack` how many of them fill a
    32-bit register, `k` the depth of one instruction, `rows` and `columns` what one computes of C.
    """

    instruction: str | None
    element: str
    pack: int
    k: int
    rows: int
    columns: int
    grid: tuple[int, int]
    c: Layout
    a: Layout | None
    b: Layout | None

    @property
    def accumulators(self) -> int:
        """Registers of a thread that C takes."""
        return self.c.registers * (2 if self.element == "f64" else 1)

    @property
    def operands(self) -> int:
        """Registers of a thread that one step of k takes."""
        if self.a is None or self.b is None:
            return 0
        steps = self.a.shape[1] // self.k
        held = (self.a.registers + self.b.registers) // (steps * self.pack)
        return held * (2 if self.element == "f64" else 1)


def dtype_of(type: Attribute) -> DType:
    return from_mlir(type.element_type if isinstance(type, VectorType) else type)


def _instructions(machine: Machine, a: DType, b: DType, c: DType) -> list[MatrixInstruction]:
    """A machine's mma.sync for these elements, of every size that it has."""
    narrow = a.name.startswith("f8") and b.name.startswith("f8")
    x, y = ("f16", "f16") if narrow else (a.name, b.name)  # exact: f8 is a subset of f16
    sums = c.name if c.is_float else f"i{c.bits}"
    alone = (each for each in machine.matrix if each.subgroups == 1)
    return [each for each in alone if each.types == (x, y, sums) and c.bits >= 32]


def _computed_by(each: MatrixInstruction, m: int, n: int) -> tuple[int, int] | None:
    """The rows and columns of C [m, n] that one instruction computes, as many as divide it; None where none do, or so
    few that it would take very many instructions."""
    rows, columns = (
        next((size for size in reversed(sizes) if extent % size == 0), 0)
        for extent, sizes in ((m, each.m), (n, each.n))
    )
    found = all(size >= 8 or 0 < extent <= 8 * size for extent, size in ((m, rows), (n, columns)))
    return (rows, columns) if found else None


@lru_cache(maxsize=1024)
def layouts(
    each: MatrixInstruction, m: int, n: int, k: int, grid: tuple[int, int], warps: int
) -> tuple[Layout, Layout, Layout]:
    """A [m, k], B [k, n] and C [m, n] as a grid of warps holds them for an instruction."""
    wm, wn = grid
    a, b, c = each.fragments(*_computed_by(each, m, n) or ())
    assert a is not None and b is not None
    return (
        bl.tiled(a, (m, k), 1, ((wn, None), (wm, 0)), warps),
        bl.tiled(b, (k, n), 0, ((wn, 1), (wm, None)), warps),
        bl.tiled(c, (m, n), 1, ((wn, 1), (wm, 0)), warps),
    )


PLAIN = ("arith.", "math.", "builtin.")
"""How the names of ops begin that compute on tiles element by element."""


def feeds_product(op: xt.TileMmaOp) -> bool:
    """Is the result, computed on, an operand of another product?"""
    uses = [
        (value, use.operation) for value in reached([op.result], _computed) for use in value.uses
    ]
    return any(isinstance(user, xt.TileMmaOp) and user.c is not value for value, user in uses)


def _computed(value: SSAValue) -> list[SSAValue]:
    """The tiles that are computed from one."""
    users = (use.operation for use in value.uses if use.operation.name.startswith(PLAIN))
    return [r for user in users for r in user.results if isinstance(r.type, VectorType)]


def fed_by_product(op: xt.TileMmaOp) -> bool:
    """Is the left operand computed from the result of another product?"""
    return any(isinstance(value.owner, xt.TileMmaOp) for value in reached([op.a], _computed_from))


def _computed_from(value: SSAValue) -> list[SSAValue]:
    """The tiles that one is computed from."""
    plain = isinstance(value.owner, Operation) and value.owner.name.startswith(PLAIN)
    return [v for v in operands_of(value) if plain and isinstance(v.type, VectorType)]


def grid_of(m: int, n: int, part: tuple[int, int], warps: int, *, tall: bool) -> tuple[int, int]:
    """Warps along m and n, of which one has a multiple of `part`: all along m where `tall`, else so that operands are
    read least."""
    rows, columns = part
    most_m = bl.power_of_two_in(m // rows)
    most_n = bl.power_of_two_in(n // columns)
    choices = [
        (wm, wn)
        for wm in (1, 2, 4, 8, 16, 32)
        for wn in (1, 2, 4, 8, 16, 32)
        if wm <= most_m and wn <= most_n and warps % (wm * wn) == 0
    ]
    if warps & (warps - 1):
        choices += uneven_grids(m // rows, n // columns, warps)
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


def plan_product(op: xt.TileMmaOp, warps: int, machine: Machine | None) -> ProductPlan:
    """The choice for one product; without a machine, no instruction of one is used."""
    (m, k), (_, n) = shape_of(op.a), shape_of(op.b)
    a, b, c = (dtype_of(v.type) for v in (op.a, op.b, op.result))
    for each in _instructions(machine, a, b, c) if machine is not None else ():
        part = _computed_by(each, m, n)
        if k % each.k or part is None:
            continue
        grid = grid_of(m, n, part, warps, tall=feeds_product(op) or fed_by_product(op))
        x, y, d = map(ptx_type, each.types)
        name = f"nvptx.mma.m{max(8, part[0])}n8k{each.k}.{d}.{x}.{y}.{d}"
        la, lb, lc = layouts(each, m, n, k, grid, warps)
        return ProductPlan(name, each.types[0], each.pack_a, each.k, *part, grid, lc, la, lb)
    vector = gcd(4, n)
    c_layout = bl.blocked((m, n), 1, vector, warps, 8)
    element = c.name if not (isinstance(op.result.type, IntegerType)) else "i32"
    return ProductPlan(None, element, 1, 1, 1, 1, (1, 1), c_layout, None, None)
