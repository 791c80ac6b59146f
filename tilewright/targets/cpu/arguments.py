"""What a launch hands to every task: a block of memory with the kernel's arguments, the grid, and where its memory is;
and a number, which says what program of the grid the task is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields

from xdsl.dialects import arith
from xdsl.ir import Attribute, SSAValue

from tilewright.arguments import Grid
from tilewright.codegen.builder import Builder, Idx
from tilewright.frozen import record
from tilewright.targets.host_arguments import argument_places

PACK_WORDS = ("bytes", "kept", "filled", "at", "end", "x", "panels")
"""Of an array that is packed. `bytes`, written by `tw_plan`: of its panels. `kept`: the address of panels that outlive
the launch (`tilewright.prepacked`), or 0, which makes `tw_plan` count them as workspace; `filled`: do these hold it
already? `at`, written by `tw_plan`: where in the workspace they are otherwise; from `tw_run` on their address. `end`:
how many tasks make them, from `tw_plan`; from `tw_run` on that of the first task that is neither of this array nor of
those before. From `tw_plan`: `x`, how much of the array's extent is used; `panels`, how many are in memory."""

PARTS_WORDS = ("parts", "blocks", "tasks", "sums")
"""Of a kernel whose product is divided along k (see `parts`): how many parts, the blocks of k that these share, tasks
for each program; where these are several, the address of a counter of 8 bytes for each program, 0 at first, behind
which the sums of all parts go."""

SUMS_WORDS = ("count", "at")
"""Of an array to whose elements threads add in memory of their own (see `private_sums`), written by `tw_plan`: how many
elements a thread has, 0 where they add to the array itself; at which byte of its sums they are."""


@record
class ArgumentBlock:
    """Byte offsets in the block that a launch hands to every task."""

    arguments: list[int] = field(default_factory=list[int])
    """Of each kernel argument: an array is address, extents, strides (in elements); a scalar one slot of 8 bytes."""
    grid: int = 0
    scratch: int = 0
    """Address of the threads' scratch memory, then its bytes per thread."""
    workspace: int = 0
    """Address of the launch's memory for packed arrays."""
    pool: int = 0
    needed: int = 0
    """Out: bytes of workspace, written by `tw_plan`."""
    few_reads: int = 0
    """What a launch reads no more often is packed by those who read it (`machine.few_reads`)."""
    threads: int = 0
    own: int = 0
    """Out: bytes of the sums that each thread has, which lie behind its scratch memory; written by `tw_plan`."""
    sums_of: int = 0
    """`SUMS_WORDS` of each such array."""
    parts: int = 0
    """`PARTS_WORDS`."""
    packs: int = 0
    """`PACK_WORDS` of each packed array."""
    packed: int = 0
    """How many tasks that pack are done; on a cache line of its own."""
    size: int = 0

    def of_parts(self, word: str) -> int:
        """Where one of `PARTS_WORDS` is."""
        return self.parts + 8 * PARTS_WORDS.index(word)

    def of_sums(self, i: int, word: str) -> int:
        """Where a word of an array that is added to is."""
        return self.sums_of + 8 * (len(SUMS_WORDS) * i + SUMS_WORDS.index(word))

    @property
    def words(self) -> dict[str, int]:
        """What a launch reads and writes by name, `PARTS_WORDS` too: which word of 8 bytes; `size`: how many in all."""
        places = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "arguments"}
        return {
            n: at // 8 for n, at in {**places, **{w: self.of_parts(w) for w in PARTS_WORDS}}.items()
        }

    def of_pack(self, i: int, word: str) -> int:
        """Where a word of a packed array is."""
        return self.packs + 8 * (len(PACK_WORDS) * i + PACK_WORDS.index(word))


def argument_block(types: Sequence[Attribute], packs: int, sums: int) -> ArgumentBlock:
    """The block of a kernel with arguments of these types, which packs so many arrays, and adds to so many in memory of
    its threads."""
    places, at = argument_places(types)
    block = ArgumentBlock(places)
    block.grid, at = at, at + 24
    block.scratch, at = at, at + 16
    block.workspace, at = at, at + 8
    block.pool, at = at, at + 8
    block.needed, at = at, at + 8
    block.few_reads, at = at, at + 8
    block.threads, at = at, at + 8
    block.own, at = at, at + 8
    block.sums_of, at = at, at + 8 * len(SUMS_WORDS) * sums
    block.parts, at = at, at + 8 * len(PARTS_WORDS)
    block.packs, at = at, at + 8 * len(PACK_WORDS) * packs
    if packs:
        block.packed, at = at + 64, at + 2 * 64
    block.size = at
    return block


def split(b: Builder, value: SSAValue, by: Idx) -> tuple[SSAValue, SSAValue]:
    """The quotient and the rest of numbers that are not negative."""
    quotient = b.value(arith.DivSIOp(value, b.idx(by)))
    rest = b.value(arith.RemSIOp(value, b.idx(by)))
    b.nonnegative |= {quotient, rest}
    return quotient, rest


def program_of(
    b: Builder, task: SSAValue, grid: Callable[[int], SSAValue], raster: Grid
) -> dict[str, SSAValue]:
    """x, y and z of the program that a task is, of as many as `grid` says of an axis."""
    first, second, third = ("xyz"[axis] for axis in raster)
    rest, near = split(b, task, grid(raster[0]))
    far, middle = split(b, rest, grid(raster[1]))
    return {first: near, second: middle, third: far}
