"""What 2D block messages of an Xe machine can do: forms, sizes, and the surfaces that they accept.

A *form* is how a block message distributes a block to the lanes: `load` row by row, `transform` with rows packed to
32 bits (VNNI, for the B operand of dpas), `transpose` with one row of memory per lane. Each form's ownership is a
`Layout`; the one that equals what a value's users want is taken. Numbers stand in `tilewright.uarch`.
"""

from __future__ import annotations

from typing import Protocol

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    IntegerAttr,
    MemRefType,
    StridedLayoutAttr,
)
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright import layout as ly
from tilewright.diagnostics import TilewrightError
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import constant, element_bits
from tilewright.dialects.upstream.memref import TransposeOp as MemRefTransposeOp
from tilewright.dialects.upstream.strided import Metadata, static_strides
from tilewright.dialects.xegpu.attrs import MemorySpace
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import frozen
from tilewright.layout.blocks import lane_distribution
from tilewright.passes.emit import Before
from tilewright.passes.integers import bounds, divisor
from tilewright.passes.memory_objects import may_alias, may_write, memory_root, promised
from tilewright.uarch.xe import XeMachine

Shape = tuple[int, ...]

SCATTERED = "tilewright.scattered"
"""On a block op that the machine has no 2D block message for: why (see xegpu-blockop-fallback)."""
ROW = "tilewright.row"
"""On a lane's load_nd or store_nd: one 1-D block message; the row is inside of its base and aligned for it."""


@frozen
class BlockShape:
    """One message: `count` blocks of `height` x `width` elements side by side."""

    height: int
    width: int
    count: int = 1

    @property
    def shape(self) -> Shape:
        """Of what it loads: blocks, rows, columns."""
        one = (self.height, self.width)
        return (self.count, *one) if self.count > 1 else one


def fits(xe: XeMachine, form: str, bits: int, block: BlockShape) -> bool:
    """Has the machine such a message?"""
    if form == "transpose":
        # 8- and 16-bit elements are transposed in units of 32 bits (transpose_bit_width).
        unit = max(1, 32 // bits)
        if block.width % unit:
            return False
        block, bits = BlockShape(block.height, block.width // unit, block.count), max(bits, 32)
    size = block.height * block.width * block.count * bits // 8
    if form != "prefetch" and size > (512 if form == "store" else 2048):
        return False
    return any(
        b.fault(block.width, block.height, block.count) is None
        for b in xe.blocks
        if (b.form, b.bits) == (form, bits)
    )


def form_layout(form: str, shape: Shape, bits: int, lanes: int) -> ly.Layout | None:
    """How a message of this form distributes blocks [count,] rows, columns; None where it cannot."""
    if form == "transpose":
        if len(shape) != 2 or shape[0] != lanes:
            return None
        digits = ly.number(ly.Axis.LANE, [(lanes, 0, 1)])
        return ly.Layout.of(shape, digits + ly.number(ly.Axis.REGISTER, [(shape[1], 1, 1)]))
    packed = max(1, 32 // bits) if form == "transform" else 1
    if form == "transform" and (packed == 1 or shape[-2] % packed or shape[-1] % lanes):
        return None
    try:
        return lane_distribution(shape, bits, lanes, packed=packed)
    except (ly.LayoutError, IndexError):
        return None


def stays_in_lanes(source: ly.Layout, target: ly.Layout) -> bool:
    """Does a conversion leave every element in its lane and register order free to pick?"""
    if source == target:
        return True
    plan = ly.plan.convert(source, target)
    return plan.kind <= ly.Move.REGISTERS and plan.permutation is not None


def best_block(
    xe: XeMachine, form: str, bits: int, tile: tuple[int, int], fragment: tuple[int, int]
) -> BlockShape | None:
    """The largest message that tiles `tile` with whole fragments; None where not even one fragment fits."""
    best: BlockShape | None = None
    rows, columns = tile[0] // fragment[0], tile[1] // fragment[1]
    heights = [fragment[0] * n for n in _divisors(rows)]
    if form == "transpose":
        heights = [fragment[0]]
    for height in heights:
        for count in (n for n in (1, 2, 4) if columns % n == 0):
            block = BlockShape(height, fragment[1], count)
            if not fits(xe, form, bits, block):
                continue
            # As many bytes at once as possible; of equal ones the taller, which reads fewer blocks.
            if best is None or (height * count, height) > (best.height * best.count, best.height):
                best = block
    return best


def _divisors(number: int) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16, 32) if number % n == 0]


# --- Surfaces ----------------------------------------------------------------------------------------


class Refuses(Protocol):
    """What builds ops for one op, and says why it has no form."""

    def refuse(self, why: str, hint: str | None = None) -> TilewrightError: ...


def created(op: xegpu.BlockAccess) -> xegpu.CreateNdDescOp | None:
    """The op that made the descriptor of an access; None where it is carried by a loop or an if."""
    owner = op.operands[op.tdesc_operand].owner
    return owner if isinstance(owner, xegpu.CreateNdDescOp) else None


def base_of(at: Refuses, op: xegpu.BlockAccess) -> xegpu.CreateNdDescOp:
    """The same; refused where it is carried."""
    if (made := created(op)) is None:
        raise at.refuse(
            "the descriptor is carried by a loop or an if, so that its base is not known",
            "run xegpu-upgrade first",
        )
    return made


def base_matrix(at: Before, made: xegpu.CreateNdDescOp) -> tuple[list[Index], list[Index]]:
    """Extents and strides of a base as far as they are stated, in elements: numbers, or values that are made."""
    sizes, strides = made.mixed_shape, made.mixed_strides
    if isinstance(made.source.type, MemRefType):
        found = Metadata(made.source, at.insert)
        return sizes or found.sizes, strides or found.strides
    return sizes, strides


def memory_of(op: Operation) -> SSAValue | None:
    """The argument that is the array of an access; None for no access, and where it is not known."""
    if isinstance(op, xegpu.BlockAccess):
        made = created(op)
        source = None if made is None else made.source
    elif isinstance(op, xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp):
        source = op.source_operand
    elif isinstance(op, xegpu.LoadMatrixOp | xegpu.StoreMatrixOp):
        described = op.mem_desc.owner
        source = described.source if isinstance(described, xegpu.CreateMemDescOp) else None
    else:
        source = next((v for v in op.operands if isinstance(v.type, MemRefType)), None)
    if source is None:
        return None
    root = memory_root(source)
    return root if isinstance(root, BlockArgument) or isinstance(root.type, MemRefType) else None


def never_written(kernel: gpu.FuncOp) -> set[SSAValue]:
    """Arguments that nothing in the kernel writes, by whatever name."""
    roots: set[SSAValue] = set()
    for op in kernel.walk():
        if op.regions or op.next_op is None or not may_write(op) or isinstance(op, xegpu.FenceOp):
            continue
        root = memory_of(op)
        if root is None:
            return set()
        roots.add(root)
    args = kernel.body.block.args
    return {a for a in args if not any(may_alias(root, a) for root in roots)}


def surface(op: xegpu.CreateNdDescOp) -> tuple[list[Index | None], list[Index | None]]:
    """(sizes, strides) of the base in elements; None for a number that is known only at run time."""
    source = op.source.type
    sizes: list[Index | None] = [*op.mixed_shape]
    strides: list[Index | None] = [*op.mixed_strides]
    if isinstance(source, MemRefType):
        extents = source.get_shape()
        if not sizes:
            sizes = [None if n == DYNAMIC_INDEX else n for n in extents]
        if not strides:
            strides = [*static_strides(source)]
    return sizes, strides


def surface_fault(xe: XeMachine, op: xegpu.CreateNdDescOp) -> str | None:
    """Why 2D block messages cannot reach this base, as far as the text tells; None if they can."""
    tdesc = op.tdesc
    if not xe.blocks:
        return f"{xe.name} has no 2D block messages"
    if tdesc.space is MemorySpace.SLM:
        return "2D block messages do not reach shared local memory"
    sizes, strides = surface(op)
    known = [constant(s) for s in strides]
    extents = [constant(s) for s in sizes]
    itemsize = max(1, element_bits(tdesc.element_type) // 8)
    if known and known[-1] != 1:
        return f"columns are {known[-1] or 'a number of'} elements apart, not 1"
    for name, numbers in (("pitch", known[-2:-1]), ("width", extents[-1:])):
        entry = xe.limits[f"block_surface_{name}"]
        for bytes in (n * itemsize for n in numbers if n is not None):
            if (end := entry.fault(bytes)) is not None:
                return f"{entry.what} of {bytes} bytes is not possible: {end}"
    if extents and (fault := _cut_fault(sizes[-1], itemsize)) is not None:
        return fault
    if (fault := _promised_fault(op, known, extents, itemsize)) is not None:
        return fault
    source = op.source.type
    if isinstance(source, MemRefType) and isinstance(source.layout, StridedLayoutAttr):
        offset = getattr(source.layout.offset, "data", None)
        if offset and offset * itemsize % 64:
            return f"the base begins {offset * itemsize} bytes into its array, no multiple of 64"
    return None


def argument(source: SSAValue) -> SSAValue:
    """The array of which a base is the transpose (a column-major array is one), or itself."""
    while isinstance(source, OpResult) and isinstance(source.op, MemRefTransposeOp):
        source = source.op.in_
    return source


def _cut_fault(width: Index | None, itemsize: int) -> str | None:
    """The same of a width that is computed: of the smaller of two numbers, both must do."""
    if not isinstance(width, OpResult):
        return None
    if isinstance(width.op, (arith.MinSIOp, arith.MaxSIOp)):
        faults = (_cut_fault(each, itemsize) for each in width.op.operands)
        return next((fault for fault in faults if fault), None)
    if not isinstance(width.op, arith.AddiOp):
        return None
    low, _ = bounds(width)
    if divisor(width) * itemsize % 4 or low is None or low * itemsize < 64:
        return (
            f"its width is only known to be a multiple of {divisor(width) * itemsize} bytes, and "
            f"{'no' if low is None else max(0, low) * itemsize} at least; 4 and 64 are needed"
        )
    return None


def _promised_fault(
    op: xegpu.CreateNdDescOp, strides: list[int | None], extents: list[int | None], itemsize: int
) -> str | None:
    """What specialisation promises of an array argument whose type leaves strides and extents open.

    Kernels that are compiled for their arguments have `tilewright.args`; other text is taken at its word.
    """
    entry = promised(op.source)
    if entry is None:
        return None
    align, div, row = (entry.data.get(name) for name in ("align", "div", "row"))
    if len(strides) > 1 and strides[-2] is None:
        known = align.value.data if isinstance(align, IntegerAttr) else 1
        if known % 16:
            return f"its pitch is only known to be a multiple of {known} bytes, 16 are needed"
    if extents and extents[-1] is None and isinstance(div, ArrayAttr):
        last = div.data[-1]
        known = (last.value.data if isinstance(last, IntegerAttr) else 1) * itemsize
        if known < 64 and row is None:
            return (
                f"its width is only known to be a multiple of {known} bytes, at least 64 are needed"
            )
    return None
