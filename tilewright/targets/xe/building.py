"""What the lowering of lane code builds with: numbers that fold, pointers, and private memory.

An offset, extent or pitch is an `Index`: a Python integer where it is known, else an SSA value of type index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from xdsl.dialects import arith, memref, vector
from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    UnrealizedConversionCastOp,
    VectorType,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.codegen.made_constants import Constants
from tilewright.codegen.registers import LANES
from tilewright.dialects import mach
from tilewright.dialects.folding import Idx as Index
from tilewright.dialects.folding import Kind
from tilewright.dialects.movement import vector_type
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import constants, element_bytes, folded
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.gpu import memory_space_number
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.frozen import record
from tilewright.passes.carried import behind
from tilewright.passes.emit import Inserter, place
from tilewright.passes.integers import EXTENT, lies_in, span, with_term_in

LANES_MOST = 16
"""Components of the longest register (codegen.registers)."""

REACH = 2 * EXTENT
"""How far outside of a matrix a message may begin: bytes of any element fit 32 bits there, and sums with what lies
in a matrix."""

GLOBAL = LLVMPointerType(IntAttr(1))
SHARED = LLVMPointerType(IntAttr(3))
POINTERS = {0: GLOBAL, 1: GLOBAL, 3: SHARED}
"""Of arrays in these memory spaces."""


def bits_of(element: Attribute) -> int:
    """Bits of one element in memory and in a register."""
    return 8 * element_bytes(element)


def count_of(type: Attribute) -> int:
    """Components of a fragment; 1 for a scalar."""
    return type.element_count() if isinstance(type, VectorType) else 1


def words(count: int, bits: int) -> VectorType:
    """`vector<8xi16>`: a fragment as integers."""
    return VectorType(IntegerType(bits), [count])


@record
class Private:
    """A fragment that lies in private memory: where, and the op behind which it is complete."""

    pointer: SSAValue
    offset: int
    """In bytes."""
    word: int
    """Bits of the words in which a message put it there: it is read in the same ones."""
    after: Operation


class LaneBuilder(Inserter, Constants):
    """Inserts ops before the op that is being lowered; constants stand at the head of the function."""

    def __init__(self, entry: Block):
        super().__init__(entry)
        self.private: dict[SSAValue, Private] = {}
        self._places: dict[SSAValue, SSAValue] = {}
        self._read: dict[tuple[SSAValue, int, Attribute], SSAValue] = {}

    # Numbers --------------------------------------------------------------------------------------------

    def combined(self, kind: Kind, x: Index, y: Index) -> Index:
        return self.add(kind(self.idx(x), self.idx(y)))

    def plus(self, x: Index, y: Index) -> Index:
        return super().plus(folded(x), folded(y))

    def times(self, x: Index, y: Index) -> Index:
        return super().times(folded(x), folded(y))

    def divided(self, x: Index, y: int) -> Index:
        return super().divided(folded(x), y)

    def rest(self, x: Index, y: int) -> Index:
        return super().rest(folded(x), y)

    def word(self, number: Index) -> SSAValue:
        """As i32."""
        number = folded(number)
        if isinstance(number, int):
            return self.constant(i32, number)
        return self.add(arith.IndexCastOp(number, i32))

    def place(self, number: Index) -> Index:
        """A place in a matrix that fits a message: what lies outside of every matrix stays outside, within `REACH`.

        Clamped is behind what makes the number, so once for a loop that does not change it, and only where it is not
        known to lie nearby; of a sum with what does, the other part.
        """
        number = folded(number)
        if isinstance(number, int):
            return max(-REACH, min(number, REACH))
        if number in self._places:
            return self._places[number]
        found = span(number)
        if lies_in(found, (-EXTENT, EXTENT)):
            return number
        new: list[Operation] = []
        if terms := with_term_in(number, (-EXTENT, EXTENT)):
            new = [arith.AddiOp(self.idx(self.place(terms[0])), terms[1])]
        else:
            last = number
            if found is None or found[1] > REACH:
                new.append(arith.MinSIOp(last, self.idx(REACH)))
                last = new[-1].results[0]
            if found is None or found[0] < -REACH:
                new.append(arith.MaxSIOp(last, self.idx(-REACH)))
        for op in new:
            assert self.op is not None
            op.location = self.op.location
        Rewriter.insert_op(new, behind(number, constants=True))
        made = self._places[number] = new[-1].results[0] if new else number
        return made

    # Pointers -------------------------------------------------------------------------------------------

    def base(self, source: SSAValue) -> SSAValue:
        """Pointer to the first element of a memref's buffer, or to an integer address."""
        kind = source.type
        if not isinstance(kind, MemRefType):
            return self.add(mach.PtrFromIntOp(source, GLOBAL))
        if (space := memory_space_number(kind)) not in POINTERS:
            raise self.refuse(
                "takes memory that a lane has for itself; loads and stores of memref do"
            )
        if any(n < 0 for n in kind.get_shape()) or not _plain(kind):
            source = self.insert(memref.ExtractStridedMetaDataOp(source)).results[0]
        return self.add(UnrealizedConversionCastOp.get([source], [POINTERS[space]]))

    def address(self, pointer: SSAValue, offset: Index) -> SSAValue:
        """`offset` bytes further on."""
        offset = folded(offset)
        if offset == 0:
            return pointer
        return self.add(mach.PtrAddOp(pointer, self.idx(offset)))

    # Fragments ------------------------------------------------------------------------------------------

    def scratch(self, bytes: int) -> SSAValue:
        return self.add(mach.AllocaOp(bytes, alignment=64))

    def call(
        self, callee: str, arguments: Sequence[SSAValue], results: Sequence[Attribute] = ()
    ) -> Operation:
        return self.insert(mach.CallOp(callee, arguments, results))

    def read_private(self, held: Private, type: Attribute) -> SSAValue:
        """A part of private memory in a register, read where it is complete."""
        size = count_of(type) * bits_of(element_of(type))
        if isinstance(type, VectorType) and bits_of(type.element_type) != held.word:
            longest = min(held.word, bits_of(type.element_type)) * LANES_MOST // 8
            if size // 8 > longest:
                return self._read_registers(held, type, longest)
        stored = words(size // held.word, held.word) if isinstance(type, VectorType) else type
        key = (held.pointer, held.offset, stored)
        loaded = self._read.get(key)
        block = held.after.parent
        assert block is not None
        if loaded is None:
            ops: list[Operation] = []
            pointer = held.pointer
            if held.offset:
                step = mach.PtrAddOp(pointer, self.idx(held.offset))
                ops.append(step)
                pointer = step.result
            load = mach.LoadOp(pointer, stored, alignment=_alignment(held.offset))
            ops.append(load)
            for op in ops:
                op.location = held.after.location
            block.insert_ops_after(ops, held.after)
            loaded = self._read[key] = load.result
        if stored == type:
            return loaded
        assert isinstance(type, VectorType) and isinstance(loaded.owner, Operation)
        flat = VectorType(type.element_type, [type.element_count()])
        cast: list[Operation] = [vector.BitcastOp(loaded, flat)]
        if flat != type:
            cast.append(more.ShapeCastOp(cast[0].results[0], type))
        block.insert_ops_after(cast, loaded.owner)
        return cast[-1].results[0]

    def in_memory(self, value: SSAValue, word: int, kind: VectorType) -> SSAValue:
        """Words of `word` bits as a fragment of more components than a register has: through private memory."""
        pointer = self.scratch(kind.element_count() * bits_of(kind.element_type) // 8)
        held = Private(pointer, 0, word, self.insert(mach.StoreOp(value, pointer, alignment=64)))
        fragment = self.read_private(held, kind)
        self.private[fragment] = held
        return fragment

    def _read_registers(self, held: Private, type: VectorType, longest: int) -> SSAValue:
        """A fragment of several registers, whose words are not its components: read register by register."""
        size = bits_of(type.element_type) // 8
        value = self.zero(VectorType(type.element_type, [type.element_count()]))
        total = type.element_count() * size
        for at in range(0, total, longest):
            part = VectorType(type.element_type, [min(longest, total - at) // size])
            fragment = self.read_private(replace(held, offset=held.offset + at), part)
            value = self.add(more.InsertStridedSliceOp(fragment, value, [at // size], [1]))
        return self.add(more.ShapeCastOp(value, type)) if value.type != type else value

    def settle_reads(self) -> None:
        """Read private memory in equal parts, and say on every message how long they are: `xe.granule`, in bytes.

        Equal parts are registers to every compiler. One that cannot hold a fragment in one register array splits
        the message at them.
        """
        reads: dict[SSAValue, list[tuple[int, mach.LoadOp]]] = {}
        for (pointer, offset, _), value in self._read.items():
            if value.first_use is not None and isinstance(value.owner, mach.LoadOp):
                reads.setdefault(pointer, []).append((offset, value.owner))
        for pointer, loads in reads.items():
            granule = 0
            for offset, load in loads:
                granule = gcd(granule, offset, *_register_bytes(load.result.type))
            for use in pointer.uses:
                if use.operation.name == "mach.call":
                    use.operation.attributes["xe.granule"] = IntegerAttr(granule, 64)
            for offset, load in loads:
                if any(n != granule for n in _register_bytes(load.result.type)):
                    self._read_in_parts(pointer, offset, load, granule)

    def _read_in_parts(
        self, pointer: SSAValue, offset: int, load: mach.LoadOp, granule: int
    ) -> None:
        kind = vector_type(load.result)
        size = bits_of(kind.element_type) // 8
        flat = VectorType(kind.element_type, [kind.element_count()])
        fragment = VectorType(kind.element_type, [granule // size])
        self.op = load
        value = self.zero(flat)
        for at in range(0, kind.element_count() * size, granule):
            place = self.address(pointer, offset + at)
            part = self.add(mach.LoadOp(place, fragment, alignment=_alignment(offset + at)))
            value = self.add(more.InsertStridedSliceOp(part, value, [at // size], [1]))
        if kind != flat:
            value = self.add(more.ShapeCastOp(value, kind))
        load.result.replace_all_uses_with(value)

    def as_words(self, value: SSAValue, count: int, bits: int) -> SSAValue:
        """A fragment as `count` integers of `bits` bits, its components packed from the low bits."""
        type = words(count, bits)
        if (held := self.private.get(value)) is not None:
            return self.read_private(held, type)
        if value.type == type:
            return value
        kind = vector_type(value)
        parts = _register_bytes(kind)
        if len(parts) == 1:
            return self.add(vector.BitcastOp(value, type))
        # Register by register: a cast cannot put two together.
        size = bits_of(kind.element_type) // 8
        whole = self.zero(type)
        at = 0
        for bytes in parts:
            fragment = self.add(more.ExtractStridedSliceOp(value, [at // size], [bytes // size]))
            word = self.add(vector.BitcastOp(fragment, words(bytes * 8 // bits, bits)))
            whole = self.add(more.InsertStridedSliceOp(word, whole, [at * 8 // bits], [1]))
            at += bytes
        return whole

    def shuffled(self, value: SSAValue, order: Sequence[int], kind: VectorType) -> SSAValue:
        mask = DenseArrayBase.from_list(i64, list(order))
        return self.add(vector.ShuffleOp(value, value, mask, result_type=kind))

    def gathered(self, scalars: Sequence[SSAValue], kind: Attribute) -> SSAValue:
        """A fragment of scalars; a scalar for itself."""
        if not isinstance(kind, VectorType):
            return scalars[0]
        value = self.zero(kind)
        for i, scalar in enumerate(scalars):
            value = self.add(vector.InsertOp(scalar, value, place(kind, i)))
        return value

    def zero(self, kind: Attribute) -> SSAValue:
        """0 in every component."""
        return self.add(arith.ConstantOp(number_attr(kind, 0)))


def _register_bytes(type: Attribute) -> list[int]:
    """Bytes of the registers that hold a value."""
    size = bits_of(element_of(type)) // 8
    shape = type.get_shape() if isinstance(type, VectorType) else (1,)
    return [n * size for n in LANES.cut(shape)]


def _alignment(offset: int) -> int:
    """Of an address so many bytes into private memory."""
    return min(64, offset & -offset) if offset else 64


def _plain(type: MemRefType) -> bool:
    """Is the memref's buffer all that its registers say?"""
    return isinstance(type.layout, NoneAttr)


def is_true(mask: SSAValue) -> bool:
    """Is a mask a constant whose bits are all set?"""
    return all(constants(mask) or [0])
