"""Arrays that may be packed before the workgroups start, and tiles of them (see `stage.pack` and `operands`)."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import itemsize
from tilewright.dialects.fused import PanelOp
from tilewright.frozen import frozen
from tilewright.targets.cpu.panels import PanelFormat


def panel_of(value: SSAValue) -> PanelOp | None:
    """The op that an operand is made by, if it is a tile of such an array."""
    return value.owner if isinstance(value.owner, PanelOp) else None


@frozen
class PackedArray:
    """A packed array at run time (see `stage.pack`).

    Element (x, k) of batch entry `e` lies in panel x / lanes (see `PanelFormat.pitch`); with `depth` = d > 0, blocks of
    d k follow one another, each with all panels; with 0 each panel holds all k.
    """

    pointer: SSAValue
    format: PanelFormat
    x_extent: Idx
    k_extent: Idx
    panels: Idx
    """In memory: none where it is not packed ahead."""
    depth: int
    k_axis: int
    batch_sizes: tuple[Idx, ...]
    batch_strides: tuple[Idx, ...]
    rounded_k: Idx
    along_k: bool
    """Elements of its array stand together along k."""
    ahead: SSAValue
    """Is it packed before the workgroups start? (Nobody asks where no x is used.)"""
    function: str
    argument: SSAValue
    """What the function needs besides: the launch's argument block."""
    matrix: SSAValue
    """Address of its array."""
    x_stride: Idx
    """Elements of its array from one x to the next."""
    k_stride: Idx
    """The same for k."""
    verbatim: bool
    """Packing changes no element."""

    def bytes(self, b: Builder) -> Idx:
        """Of its array as far as it is packed, in the elements of panels."""
        count = b.times(self.x_extent, self.k_extent)
        for extent in self.batch_sizes:
            count = b.times(count, extent)
        return b.times(count, self.format.bytes)

    def plane(self, b: Builder) -> Idx:
        """Bytes of a batch entry."""
        return b.times(b.times(self.panels, self.rounded_k), self.format.lanes * self.format.bytes)

    def place(self, b: Builder, batch: Idx, panel: Idx, k: Idx) -> tuple[SSAValue, Idx]:
        """Address of a panel from k on, and bytes from there to the next panel."""
        unit = self.format.lanes * self.format.bytes
        base = b.ptr(self.pointer, b.times(batch, self.plane(b)))
        if not self.depth:
            panel_bytes = b.times(self.rounded_k, unit)
            return b.ptr(b.ptr(base, b.times(k, unit)), b.times(panel, panel_bytes)), panel_bytes
        block, inner = b.div(k, self.depth), b.rem(k, self.depth)
        start = b.ptr(base, b.times(b.times(block, self.panels), self.depth * unit))
        start = b.ptr(start, b.times(inner, unit))
        panel_bytes = self.depth * unit
        return b.ptr(start, b.times(panel, panel_bytes)), panel_bytes

    def fill(
        self,
        b: Builder,
        offset: Idx,
        first: Idx,
        last: Idx,
        k0: Idx,
        k1: Idx,
        to: SSAValue,
        panel_bytes: Idx,
    ) -> None:
        """Pack panels [first, last) of the batch entry at `offset` for k in [k0, k1)."""
        ranges = [b.idx(v) for v in (offset, first, last, k0, k1)]
        b.op(func.CallOp(self.function, [self.argument, *ranges, to, b.idx(panel_bytes)], []))


@frozen
class Placed:
    """A tile of such an array: where it starts (x, k, batch entry), and how much of the array is behind that."""

    array: PackedArray
    x: Idx
    k: Idx
    x_count: Idx
    k_count: Idx
    batch: Idx
    origin: Idx
    """Elements of the array in front of the batch entry."""

    def steps(self, b: Builder, size: int = 0) -> tuple[Idx, Idx]:
        """Bytes of its array from one x, and from one k, to the next. `size`: of an element, if panels have others."""
        size = size or itemsize(self.array.format.element)
        return b.times(self.array.x_stride, size), b.times(self.array.k_stride, size)

    def corner(self, b: Builder, size: int = 0) -> SSAValue:
        """The address of its first element."""
        x_bytes, k_bytes = self.steps(b, size)
        size = size or itemsize(self.array.format.element)
        start = b.ptr(self.array.matrix, b.times(self.origin, size))
        return b.ptr(b.ptr(start, b.times(self.x, x_bytes)), b.times(self.k, k_bytes))
