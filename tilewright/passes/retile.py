"""retile: a workgroup's tiles are halved until they suit the machine (see `split_workgroups`).

A target says how far: cuda by the accumulators of its threads (`targets/cuda/retile.py`), its parts are more
programs; xe by the registers that a compilation missed and by the shared memory that a program makes, its workgroups
compute the parts in passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile as xt
from tilewright.passes.axes import shape_of, smallest_factor
from tilewright.passes.kernel import level_of
from tilewright.passes.own_memory import shared_bytes
from tilewright.passes.split_workgroups import (
    SplitChoice,
    choices,
    in_passes,
    is_distributed,
    split,
)

Split = Callable[[gpu.FuncOp, SplitChoice, int], None]


def tile_size(value: SSAValue) -> int:
    """Elements of a value."""
    return prod(shape_of(value) or (1,))


def computed(kernel: gpu.FuncOp) -> list[SSAValue]:
    """The vectors of a kernel that are no constants."""
    return [
        r
        for op in kernel.walk()
        if not isinstance(op, arith.ConstantOp)
        for r in op.results
        if isinstance(r.type, VectorType)
    ]


def halve(
    kernel: gpu.FuncOp,
    values: Sequence[SSAValue],
    least: int,
    into: Split = split,
    rows: int = 1,
) -> int:
    """Splits the largest of some values, and all that goes with it, along its longest axis; into how many parts, 1
    where none can be.

    `least`: elements along an axis that is not split further; with 1 the outermost axis is taken, however long. `rows`:
    that stay together if they are whole now, so that there may be an odd number of parts.
    """
    largest = max(values, key=tile_size)
    best: tuple[tuple[int, int], SplitChoice, int] | None = None
    shares = into is in_passes and level_of(kernel) == "workgroup"
    for choice in choices(kernel, shares):
        dims = [d for v, d in choice.members if v is largest]
        if not dims or choice.extent % 2 or choice.extent // 2 < least:
            continue
        if into is in_passes and not is_distributed(choice, 2):
            continue
        extent = (shape_of(largest) or ())[dims[0]]
        rank = (extent if least > 1 else -dims[0], -dims[0])
        if best is None or rank > best[0]:
            whole, odd = divmod(choice.extent, rows)
            alone = dims[0] == 0 and not odd and whole % 2 and whole > 1
            best = rank, choice, smallest_factor(whole) if alone else 2
    if best is None:
        return 1
    into(kernel, *best[1:])
    return best[2]


def shared_memory(kernel: gpu.FuncOp) -> dict[SSAValue, int]:
    """The arrays of shared memory that a kernel makes, with their bytes."""
    made = [(op, shared_bytes(op)) for op in kernel.walk()]
    return {op.results[0]: size for op, size in made if size and op.results[0].first_use}


def compute_in_passes(kernel: gpu.FuncOp, passes: int = 1, room: int | None = None) -> int:
    """Has the workgroups of a kernel compute their tiles in so many passes, a power of two, one after the other; in
    more where the shared memory that it makes exceeds `room`, if its arrays can be cut. Returns their number.

    UnsupportedError where its tiles cannot be halved so often.
    """
    done = 1
    while room is not None and sum((arrays := shared_memory(kernel)).values()) > room:
        largest_first = sorted(arrays, key=lambda array: -arrays[array])
        if not any(halve(kernel, [array], 2, in_passes) > 1 for array in largest_first):
            break
        done *= 2
    while done < passes:
        products = [op.result for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
        values = products or computed(kernel)
        if not values or halve(kernel, values, 2, in_passes) == 1:
            raise unsupported(
                kernel,
                f"its tiles cannot be computed in {passes} passes, only in {done}",
                rule="parts of tiles must be independent: nothing is reduced or moved across them, in registers or "
                "in shared memory, no part loads or stores what another stores, so far as the arrays are known not to "
                "overlap",
            )
        done *= 2
    return done
