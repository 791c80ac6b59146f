"""Arithmetic on 32-bit integers that folds: addresses in shared memory, pipeline states, descriptors.

Shared memory is addressed by 32 bits. Values that are the same for a whole warp stay in the machine's uniform
registers only if all arithmetic on them has a uniform form, and 64-bit comparisons have none.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntAttr, i32
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Builder
from tilewright.dialects import mach
from tilewright.dialects.folding import Folding, Kind
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.frozen import frozen

Word = int | SSAValue
"""A number known now, or a value of type i32."""


@frozen
class Narrow(Folding):
    """Appends 32-bit arithmetic to a builder's block."""

    b: Builder

    def value(self, x: Word) -> SSAValue:
        return self.b.constant(i32, x) if isinstance(x, int) else x

    def of(self, x: int | SSAValue) -> Word:
        """An index as a word."""
        if isinstance(x, int) or x.type == i32:
            return x
        return self.b.value(arith.IndexCastOp(x, i32))

    def index(self, x: Word) -> int | SSAValue:
        """A word, which is not negative, as an index."""
        if isinstance(x, int):
            return x
        made = self.b.value(arith.IndexCastOp(x, IndexType()))
        self.b.nonnegative.add(made)
        return made

    def combined(self, kind: Kind, x: Word, y: Word) -> Word:
        return self.b.value(kind(self.value(x), self.value(y)))

    def low(self, x: Word, bits: int) -> Word:
        """The lowest bits."""
        mask = (1 << bits) - 1
        if isinstance(x, int):
            return x & mask
        return self.b.value(arith.AndIOp(x, self.value(mask)))

    def rem(self, x: Word, y: int) -> Word:
        """What is left of a word, which is not negative, divided by y."""
        if isinstance(x, int):
            return x % y
        if y & (y - 1) == 0:
            return self.low(x, y.bit_length() - 1)
        return self.b.value(arith.RemUIOp(x, self.value(y)))

    def high(self, x: Word, bits: int) -> Word:
        """All but the lowest bits, moved down."""
        if isinstance(x, int):
            return x >> bits
        return self.b.value(arith.ShRUIOp(x, self.value(bits)))

    def xor(self, x: Word, y: int) -> Word:
        if isinstance(x, int):
            return x ^ y
        return self.b.value(arith.XOrIOp(x, self.value(y)))

    def compare(self, x: Word, predicate: str, y: Word) -> SSAValue:
        """`predicate`: of arith.cmpi."""
        return self.b.value(arith.CmpiOp(self.value(x), self.value(y), predicate))

    def pointer(self, x: Word) -> SSAValue:
        """The address `x` of shared memory as a pointer."""
        return self.b.value(mach.PtrFromIntOp(self.value(x), LLVMPointerType(IntAttr(3))))
