"""Which element of a block each component of a value is: of whole values, and of the fragments of a subgroup's lanes.

Tables of element numbers, [*given] of a whole value and [*given, lanes] of a lane's fragments (`given`: the value's
shape). The elements of a block count row by row as they lie in memory, blocks of `array_length` side by side. Who owns
what is `tilewright.layout`'s: an sg_map where the text has one, else what block messages do (`layout.blocks`).

`lanes` is the kernel's subgroup size, 1 where instances are whole subgroups. UnsupportedError where a fragment is no
lane's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from tilewright import layout as ly
from tilewright.diagnostics import unsupported
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.block import LoadNdOp, StoreNdOp
from tilewright.dialects.xegpu.compute import DpasMxOp, DpasOp, packing_factor
from tilewright.dialects.xegpu.layouts import Ownership, SgMapAttr
from tilewright.dialects.xegpu.matrix import MatrixAccess
from tilewright.dialects.xegpu.rules_block import full_load_shape, whole_shapes
from tilewright.dialects.xegpu.types import MemDescType, TensorDescType
from tilewright.dialects.xetile.mma import matrix_dims
from tilewright.layout.blocks import lane_distribution

Numbers = NDArray[np.int64]
Table = NDArray[Any]


def inverse(numbers: Numbers, shape: Sequence[int]) -> Numbers:
    """[*shape]: the component of a value (row-major, lanes last) that each element of the block is."""
    flat = np.zeros(prod(shape), np.int64)
    flat[numbers.reshape(-1)] = np.arange(numbers.size)
    return flat.reshape(tuple(shape))


def _distributed(
    op: Operation,
    blocks: Numbers,
    ownership: Ownership | None,
    bits: int,
    lanes: int,
    unit: int = 0,
    packed: int = 1,
) -> Numbers:
    """[registers, lanes] of the numbers of a block."""
    shape = blocks.shape
    try:
        if isinstance(ownership, SgMapAttr):
            layout = distribution.distribution(ownership).over(shape)
        else:
            layout = lane_distribution(shape, bits, lanes, unit, packed)
    except ly.LayoutError as error:
        raise unsupported(op, f"{op.name}: {error}") from None
    table = [np.asarray(t).reshape(-1, layout.lanes, layout.registers)[0] for t in layout.table()]
    return blocks[tuple(table)].T


# Blocks ---------------------------------------------------------------------------------------------------------------


def wide_shape(tdesc: TensorDescType) -> tuple[int, ...]:
    """The block with its array_length neighbours side by side."""
    *lead, width = tdesc.get_shape()
    return (*lead, width * tdesc.array_length)


def _apart(tdesc: TensorDescType, wide: Table) -> Table:
    """[.., *wide_shape] with the blocks of array_length one after the other."""
    *lead, width = tdesc.get_shape()
    if tdesc.array_length == 1:
        return wide
    outer = wide.shape[: wide.ndim - 1 - len(lead)]
    apart = wide.reshape(*outer, *lead, tdesc.array_length, width)
    return np.moveaxis(apart, -2, len(outer))


def arranged(op: LoadNdOp, wide: Table) -> Table:
    """What load_nd gives of [.., *wide_shape]: blocks one after the other, packed, or transposed by its bit width."""
    shape, given = op.tdesc.get_shape(), shape_of(op.value)
    blocks, result = _apart(op.tdesc, wide), full_load_shape(op)
    early = is_whole(op) and given not in whole_shapes(op)  # packed without `packed`
    if early or (op.packed and len(result) == 3 and len(shape) == 2):
        *lead, k, n = blocks.shape
        factor = given[-1] if early else result[2]
        return blocks.reshape(*lead, k // factor, factor, n).swapaxes(-1, -2)
    if not op.transposes or op.transpose is None:
        return blocks
    base, unit = blocks.ndim - len(shape), op.together
    outer = range(base)
    if unit == 1:
        return blocks.transpose(*outer, *(base + d for d in op.transpose))
    split = blocks.reshape(*blocks.shape[:base], shape[0], shape[1] // unit, unit)
    turned = split.transpose(*outer, base + 1, base, base + 2)
    return turned.reshape(*blocks.shape[:base], *result)


def is_whole(op: LoadNdOp | StoreNdOp) -> bool:
    """Is the op's value the whole block, in every instance?"""
    return prod(shape_of(op.value)) == prod(wide_shape(op.tdesc))


def _fits(op: LoadNdOp | StoreNdOp, given: tuple[int, ...], lanes: int) -> int:
    """The number of lanes that share the block, by what one of them holds."""
    found = prod(wide_shape(op.tdesc)) // prod(given)
    if lanes not in (1, found):
        raise unsupported(
            op,
            f"{op.name}: a fragment of {prod(given)} elements of {op.tdesc} makes {found} lanes, the kernel's "
            f"subgroups have {lanes}",
        )
    return found


def loaded(op: LoadNdOp, lanes: int) -> Numbers:
    """The elements that load_nd gives."""
    given, wide = shape_of(op.value), wide_shape(op.tdesc)
    blocks = np.arange(prod(wide)).reshape(wide)
    if is_whole(op):
        return arranged(op, blocks).reshape(given)
    lanes = _fits(op, given, lanes)
    bits, unit, packed = element_bits(op.tdesc.element_type), 0, 1
    if op.packed or isinstance(op.ownership, SgMapAttr):  # a map is that of the block in memory
        blocks, packed = _apart(op.tdesc, blocks), packing_factor(op.tdesc.element_type)
    else:
        blocks, unit = arranged(op, blocks), op.together if op.transposes else 0
    return _distributed(op, blocks, op.ownership, bits, lanes, unit, packed).reshape(*given, lanes)


def stored(op: StoreNdOp, lanes: int) -> Numbers:
    """The elements that the components of store_nd's value are."""
    shape, given = op.tdesc.get_shape(), shape_of(op.value)
    blocks = np.arange(prod(shape)).reshape(shape)
    if is_whole(op):
        return blocks.reshape(given)
    lanes = _fits(op, given, lanes)
    bits = element_bits(op.tdesc.element_type)
    return _distributed(op, blocks, op.ownership, bits, lanes).reshape(*given, lanes)


# Products -------------------------------------------------------------------------------------------------------------


def multiplied(op: DpasOp | DpasMxOp, lanes: int) -> tuple[Numbers, Numbers, Numbers]:
    """[M, K], [K, N], [M, N]: which component of the operands, and of the result, each element of a product is.

    Of lanes' fragments N is the number of lanes, and components count with the lanes last.
    """
    left, right, result = (shape_of(x) for x in (op.lhs, op.rhs, op.result))
    dims = matrix_dims(op.lhs.type, op.rhs.type)
    if dims is not None and len(result) == 2:
        m, n, k = dims
        b = np.arange(k * n).reshape(right)
        b = b.swapaxes(-1, -2) if len(right) == 3 else b  # packed: [K/p, N, p]
        return np.arange(m * k).reshape(m, k), b.reshape(k, n), np.arange(m * n).reshape(m, n)
    m, k = prod(result), prod(right)
    found, rest = divmod(m * k, prod(left))
    if rest or found not in (8, 16, 32) or lanes not in (1, found):
        many = f" of {lanes} lanes" if lanes > 1 else ""
        raise unsupported(
            op,
            f"{op.name}: fragments of {prod(left)}, {k} and {m} elements fit no product of a subgroup{many}",
        )
    maps = (op.layout_a, op.layout_b, op.layout_cd)
    if not all(isinstance(map, SgMapAttr) for map in maps):
        maps = (None, None, None)
    element = op.lhs.type.element_type  # pyright: ignore
    bits, packed = element_bits(element), packing_factor(element)
    parts: list[Numbers] = []
    for shape, map, size, pack in zip(
        ((m, k), (k, found), (m, found)), maps, (bits, bits, 32), (1, packed, 1), strict=True
    ):
        blocks = np.arange(prod(shape)).reshape(shape)
        parts.append(inverse(_distributed(op, blocks, map, size, found, 0, pack), shape))  # pyright: ignore
    return parts[0], parts[1], parts[2]


# Shared matrices ------------------------------------------------------------------------------------------------------


def matrix_places(op: MatrixAccess, given: tuple[int, ...], lanes: int) -> list[Numbers]:
    """Coordinates in the accessed part of a shared matrix of each component, one table per dimension.

    A vector of the matrix' rank is a block. A shorter one is a lane's: with subgroup_block_io the lanes own one
    column each of the block's rows, otherwise its elements lie in a row from the lane's own offset.
    """
    rank, extra = len(op.desc.get_shape()), () if lanes == 1 else (lanes,)
    lane = np.arange(lanes).reshape(extra)
    if len(given) == rank:
        if extra and isinstance(op.ownership, SgMapAttr):
            raise unsupported(op, f"{op.name}: fragments of a matrix by sg_map")
        grids = np.meshgrid(*(np.arange(n) for n in given), indexing="ij")
        return [g.reshape(*given, *(1 for _ in extra)) + 0 * lane for g in grids]
    run = np.arange(prod(given)).reshape(*given, *(1 for _ in extra)) + 0 * lane
    if not op.subgroup_block_io:
        return [*([0 * run] * (rank - 1)), run]
    return [*([0 * run] * (rank - 2)), run, lane + 0 * run]


def matrix_address(b: Any, desc: MemDescType, place: Sequence[Any]) -> Any:
    """How many elements behind the first of a shared matrix the one at a place is, by a builder `b` of sums."""
    layout, total = distribution.memory(desc), 0
    for digit in layout.digits:
        if digit.axis is not ly.Axis.MEMORY or digit.size == 1 or digit.dim is None:
            continue
        part = b.divided(place[digit.dim], digit.stride)
        if digit.stride * digit.size < layout.shape[digit.dim]:
            part = b.rest(part, digit.size)
        total = b.plus(total, b.times(part, digit.weight))
    return total
