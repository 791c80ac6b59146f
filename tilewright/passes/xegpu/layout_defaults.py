"""Layouts that nothing in a program asks for: how many subgroups, and who owns what.

Chosen from shapes and the machine table: a product's accumulator fills half of a subgroup's registers at
the most; other values are distributed so that a subgroup holds a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, inf, prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, VectorType
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.movement import vector_type
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.layout import Distribution
from tilewright.passes.axes import smallest_factor
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.xegpu import layout_text as own
from tilewright.uarch.base import MatrixInstruction
from tilewright.uarch.xe import XeMachine

ACCUMULATOR = 128
"""Registers that the accumulator of one subgroup may fill, of the 256 in large mode; half as many where operands come
row by row (no 2D blocks) and are packed in registers: then both forms of them live there too."""
VALUE = 32
"""Registers that another value of one subgroup may fill."""
ROW_REGISTERS = "tilewright.row_registers"
"""Of a kernel: another number than VALUE for what is reduced, whose rows are cut only as far as it says."""
LARGE_GRF_SUBGROUPS = 32


def bytes_of(shape: Sequence[int], element: VectorType) -> int:
    kind = element.element_type
    bits = 64 if kind.name == "index" else element_bits(kind)
    return max(1, prod(shape) * bits // 8)


def choose_subgroups(kernel: Operation, machine: XeMachine) -> int:
    """The number of subgroups of a kernel that does not say: a power of two."""
    crowd = machine.limits.get("subgroups_large_grf", machine.limits["subgroups"])
    most = LARGE_GRF_SUBGROUPS if crowd.most is None else int(crowd.most)
    room = (ACCUMULATOR if machine.blocks else ACCUMULATOR // 2) * machine.grf_bytes
    products = [op for op in kernel.walk() if isinstance(op, xegpu.DpasOp)]
    if products:
        wanted = ceil(_accumulators(kernel, products) / room)
        for op in products:
            m, n = own.shape_of(op.result)
            # Eight subgroups keep one core busy, as long as each has a few instructions of rows.
            lanes = machine.subgroup_sizes[0]
            useful = max(1, m // 16) * max(1, n // (2 * lanes))
            wanted = max(wanted, min(8, useful))
    else:
        largest = 1
        for op in kernel.walk():
            for result in op.results:
                if isinstance(result.type, VectorType):
                    largest = max(largest, bytes_of(own.shape_of(result), result.type))
        wanted = ceil(largest / (VALUE * machine.grf_bytes))
    return min(1 << max(0, wanted - 1).bit_length(), most)


def most_of_a_row(value: SSAValue, kernel: Operation, machine: XeMachine) -> int:
    """Elements of a value that is reduced from which on a row is cut for the subgroups that are left over."""
    stated = kernel.attributes.get(ROW_REGISTERS)
    registers = stated.value.data if isinstance(stated, IntegerAttr) else VALUE
    kind = vector_type(value)
    return registers * machine.grf_bytes // bytes_of((1,), kind)


def _accumulators(kernel: Operation, products: Sequence[xegpu.DpasOp]) -> int:
    """Bytes that products keep in registers at once: what a loop carries, and products made in it besides."""
    most = max(_size(op.result) for op in products)
    for loop in kernel.walk():
        if not isinstance(loop, scf.ForOp):
            continue
        ends = terminator(loop.body.block)
        inside = [op.result for op in products if op.parent_op() is loop]
        carried = list(ends.operands)
        besides = [v for v in inside if not any(v is c for c in carried)]
        most = max(most, sum(_size(v) for v in (*carried, *besides)))
    return most


def _size(value: SSAValue) -> int:
    return bytes_of(own.shape_of(value), value.type) if isinstance(value.type, VectorType) else 0


def product_layout(
    shape: Sequence[int],
    subgroups: int,
    instruction: MatrixInstruction | None,
    whole: Collection[int] = (),
) -> Distribution:
    """The grid of an accumulator [m, n] that needs the fewest elements of A and B per subgroup.

    Along the dimensions `whole` a cut would have subgroups exchange data every time.
    """
    m, n = shape
    rows = instruction.m[-1] if instruction is not None else 8
    columns = instruction.n[-1] if instruction is not None else 16
    best: tuple[tuple[int, int, int, int], Distribution] | None = None
    for down in _divisors(subgroups):
        across = subgroups // down
        pm, pn = _part(m, down), _part(n, across)
        if pm is None or pn is None:
            continue
        ragged = int(pm % rows != 0) + int(pn % columns != 0)
        shared = int(pm * down != m) + int(pn * across != n)
        found = Distribution((down, across), (pm, pn))
        cut = int(0 in whole and down > 1 and pm < m) + int(1 in whole and across > 1 and pn < n)
        cost = (cut, shared + ragged, pm + pn, -pn)
        if best is None or cost < best[0]:
            best = cost, found
    return best[1] if best is not None else distributed(shape, subgroups)


def wanted_whole(product: xegpu.DpasOp) -> set[int]:
    """Dimensions of a product that what follows in the same loop reduces, or multiplies again; and those along which
    an operand repeats that another product of the loop made: subgroups side by side would each make it again."""
    found: set[int] = set()
    block = product.parent_block()
    for n, operand in enumerate((product.lhs, product.rhs)):
        if _made_by_product(operand, block):
            found.add(1 - n)

    def goes_on(value: SSAValue) -> list[SSAValue]:
        users = (use.operation for use in value.uses if use.operation.parent is block)
        return [user.results[0] for user in users if is_elementwise(user)]

    for use in (use for value in reached([product.result], goes_on) for use in value.uses):
        op = use.operation
        if op.parent is not block:
            continue
        if isinstance(op, MultiReductionOp) and use.index == 0:
            found |= set(reduced_dims(op))
        elif isinstance(op, xegpu.DpasOp) and use.index < 2:
            found.add(1 - use.index)
    return found


def _made_by_product(value: SSAValue, block: Block | None) -> bool:
    """Does a value come out of a product of a block, through arithmetic?"""

    def computed(value: SSAValue) -> Sequence[SSAValue]:
        op = value.owner
        return operands_of(value, block) if isinstance(op, Operation) and is_elementwise(op) else ()

    owners = (each.owner for each in reached([value], computed))
    return any(isinstance(op, xegpu.DpasOp) and op.parent is block for op in owners)


def _part(extent: int, groups: int) -> int | None:
    """The block of each of some subgroups along an extent; a short extent is shared."""
    if extent % groups == 0:
        return extent // groups
    return 1 if groups % extent == 0 else None


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def distributed(
    shape: Sequence[int], subgroups: int, whole: Collection[int] = (), most: float = inf
) -> Distribution:
    """A value distributed along its outermost dimensions first, but for those in `whole`, which are cut last and only
    while a part has more than `most` elements.

    Where subgroups are left over they share.
    """
    grid, part, left = [1] * len(shape), list(shape), subgroups
    for dim in sorted(range(len(shape)), key=lambda dim: dim in whole):
        while left > 1 and (dim not in whole or prod(part) > most):
            factor = smallest_factor(left)
            if part[dim] % factor:
                break
            grid[dim] *= factor
            part[dim] //= factor
            left //= factor
    grid[0] *= left
    return Distribution(tuple(grid), tuple(part))


def reduced_dims(op: Operation) -> list[int]:
    return list(op.dims) if isinstance(op, MultiReductionOp) else []
