"""What a kernel that does not fit into registers could be: the workgroup tile whose accumulators do; and what makes a
program too large to be compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import UnknownLoc, VectorType
from xdsl.ir import Attribute

from tilewright.diagnostics import TilewrightError, location_of, unsupported
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.upstream.arith import element_bits
from tilewright.passes.budget import TimeBudget
from tilewright.passes.kernel import level_of
from tilewright.passes.memory_objects import is_array_argument, may_alias, stored_arguments
from tilewright.passes.xegpu.layout_defaults import ACCUMULATOR
from tilewright.targets.xe.registers import TooManyRegisters, lanes_of
from tilewright.uarch.xe import XeMachine


def advised(
    error: TooManyRegisters,
    given: gpu.FuncOp,
    last: gpu.FuncOp,
    machine: XeMachine,
    has_layouts: bool,
    tried: int,
) -> TooManyRegisters:
    """The refusal with what fills the registers, what was tried (so many subgroups at most), and what would fit."""
    parts = [error.hint, holders(given, error.held, lanes_of(last, machine), machine)]
    if not has_layouts and tried > 1:
        parts[0] = (
            f"give the workgroup a smaller tile: up to {tried} subgroups were tried for this one"
        )
    if level_of(given) == "workgroup":
        parts.append(fitting_tile(given, machine, tried))
    parts.append(declared_apart(given))
    error.hint = "; ".join(each for each in parts if each)
    return error


def declared_apart(given: gpu.FuncOp) -> str | None:
    """What lets tiles be computed in passes; None where nothing more has to be known for that."""
    arrays = [a for a in given.body.block.args if is_array_argument(a)]
    stored = [a for a in arrays if a.index in stored_arguments(given)]
    shared = any(may_alias(a, other) for a in stored for other in arrays if a is not other)
    if level_of(given) == "lane" or not shared:
        return None
    return "if the arrays do not overlap, declare it ({llvm.noalias}): then tiles can be computed in passes"


def fitting_tile(kernel: gpu.FuncOp, machine: XeMachine, subgroups: int) -> str | None:
    """The workgroup tile that a product of a workgroup's kernel should have, or the subgroups that should share it,
    with the numbers; None where its accumulator is small enough. `subgroups` share it now."""
    found = max(
        (
            (prod(kind.get_shape()) * element_bits(kind.element_type) // 8, kind)
            for op in kernel.walk()
            if isinstance(op, xegpu.DpasOp | xetile.TileMmaOp)
            and isinstance(kind := op.results[0].type, VectorType)
        ),
        key=lambda each: each[0],
        default=None,
    )
    limit = machine.limits.get("subgroups_large_grf", machine.limits["subgroups"]).most
    if found is None or limit is None:
        return None
    size, kind = found
    room = int(limit) * ACCUMULATOR * machine.grf_bytes
    rows, columns = shape = list(kind.get_shape())[-2:]
    if size <= room:
        if size <= subgroups * ACCUMULATOR * machine.grf_bytes:
            return None
        each = size // int(limit) // machine.grf_bytes
        return f"{rows}x{columns} of {kind.element_type} are {each} registers for each of {int(limit)} subgroups"
    while prod(shape) * element_bits(kind.element_type) // 8 > room and max(shape) > 1:
        longest = shape.index(max(shape))
        shape[longest] //= 2
    return (
        f"{rows}x{columns} of {kind.element_type} are {size // 1024} KiB in registers; {int(limit)} subgroups with "
        f"{ACCUMULATOR} of their registers of {machine.grf_bytes} bytes hold {room // 1024} KiB: "
        f"a workgroup tile of {shape[0]}x{shape[1]} fits"
    )


_NAMES = {"scf.for": "what the loop carries", "scf.if": "what the branch gives"}


def holders(
    given: gpu.FuncOp, held: Sequence[tuple[Attribute, int]], lanes: int, machine: XeMachine
) -> str | None:
    """What fills the registers: names and tiles of the program as it was written, registers, bytes of a lane.

    `held`: places of the program and bytes of a subgroup. None where the program shows none of them.
    """
    lines: list[str] = []
    for place, size in held:
        made = [r for op in given.walk() if op.location == place for r in op.results]
        tiles = [r for r in made if isinstance(r.type, VectorType)]
        if not tiles or size < machine.grf_bytes:
            continue
        tile = max(tiles, key=lambda r: prod(r.type.get_shape()))  # pyright: ignore
        where, made_by = location_of(place), tile.owner.name  # pyright: ignore
        name = tile.name_hint or _NAMES.get(made_by, made_by)
        line = f", line {where.line}" if where is not None else ""
        registers = size // machine.grf_bytes
        lane = registers * machine.grf_bytes // lanes
        lines.append(f"{name} ({tile.type}{line}) {registers}: {lane} bytes of a lane")
    return f"registers hold {', '.join(lines)}" if lines else None


UNROLLED = 4
"""Times that one expression of a program stands in its kernel, from which on it was written so by unrolling."""


def out_of_time(budget: TimeBudget, reached: gpu.FuncOp, given: gpu.FuncOp) -> TilewrightError:
    """The refusal of a program on which the passes have used up their time: where most of its operations come from,
    and the pass that took longest. `reached`: how far it was lowered; `given`: as it was written."""
    slowest, seconds = max(budget.spent.items(), key=lambda each: each[1])
    places = Counter(
        op.location for op in reached.walk() if not isinstance(op.location, UnknownLoc)
    )
    total = sum(1 for _ in reached.walk())
    place, count = next(iter(places.most_common(1)), (reached.location, total))
    written = [op for op in given.walk() if op.location == place]
    tiles = [r.type for op in written for r in op.results if isinstance(r.type, VectorType)]
    tile = max(tiles, key=lambda kind: prod(kind.get_shape()), default=None)
    times = max(Counter(op.name for op in written).values(), default=1)
    smaller = "a smaller tile has fewer"
    if tile is not None:
        smaller = (
            f"{smaller}: this one is {'x'.join(map(str, tile.get_shape()))} of {tile.element_type}"
        )
    loop = f"the line occurs {times} times in the kernel: a loop that is not unrolled (range in place of static_range)"
    return unsupported(
        next((op for op in reached.walk() if op.location == place), reached),
        f"compilation was stopped after {budget.seconds:.0f} s, {seconds:.0f} of them in {slowest}: {count} of {total} "
        "operations of a subgroup come from here",
        hint=f"{loop} has it once; {smaller}" if times >= UNROLLED else smaller,
    )
