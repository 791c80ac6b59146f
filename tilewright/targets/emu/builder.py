"""Appends last-stage ops: constants that stand once, index arithmetic that folds, regions, functions shared by calls.

An index is a Python int (known now) or an SSA value of type index.  What a kernel does many times in the same way (a
block load, a product) becomes a private function of the module, made once: the kernel's own code stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

from xdsl.dialects import arith, func, scf, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    Float4E2M1FNType,
    IndexType,
    IntegerType,
    ModuleOp,
    StringAttr,
    VectorType,
    i1,
    i64,
)
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.builder import Constants, index
from tilewright.dialects import mach
from tilewright.dialects.folding import Idx, Kind
from tilewright.dialects.upstream import vector as more

ptr = LLVMPointerType()


@cache
def vec(element: Attribute, *shape: int) -> VectorType[Any]:
    """The vector type; made once, as xDSL verifies every type that it makes."""
    return VectorType(element, list(shape))


def shape_of(type: Attribute) -> tuple[int, ...]:
    """The shape of a vector type, () of a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def element_of(type: Attribute) -> Attribute:
    return type.element_type if isinstance(type, VectorType) else type


def signless(type: Attribute) -> Attribute:
    """The type as registers have it: integers that do not say their sign, 4-bit floats as bytes of their own."""
    if isinstance(type, VectorType):
        return vec(signless(type.element_type), *type.get_shape())
    if isinstance(type, Float4E2M1FNType):
        return IntegerType(8)  # bits: no arithmetic is done in these
    return IntegerType(type.width.data) if isinstance(type, IntegerType) else type


def with_element(type: Attribute, element: Attribute) -> Attribute:
    """The type of the same shape with another element type."""
    return vec(element, *type.get_shape()) if isinstance(type, VectorType) else element


class Builder(Constants):
    """Appends ops to `block`; `entry` is the first block of the function being built."""

    def __init__(self, module: ModuleOp, entry: Block):
        super().__init__(entry)
        self.module = module
        self.block = entry
        self.location: Any = None
        self._functions: dict[Any, str] = {}
        self._results: dict[str, list[Attribute]] = {}

    def put(self, op: Operation) -> Operation:
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op

    def add(self, op: Operation) -> SSAValue:
        """Append `op`; its first result."""
        self.put(op)
        return op.results[0]

    def zeros(self, type: Attribute) -> SSAValue:
        return self.constant(type, 0)

    def ones(self, type: Attribute) -> SSAValue:
        """All bits set: NaN in every float type, -1 in every integer type."""
        element = element_of(type)
        if not isinstance(element, AnyFloat):
            return self.constant(type, -1)
        bits = with_element(type, IntegerType(storage_bits(element)))
        return self.bitcast(self.constant(bits, -1), element)

    # Index arithmetic -----------------------------------------------------------------------------------------

    def combined(self, kind: Kind, x: Idx, y: Idx) -> Idx:
        return self.add(kind(self.idx(x), self.idx(y)))

    def test(self, predicate: str, x: Idx, y: Idx) -> bool | SSAValue:
        """i1: a comparison of indices, known now where both are."""
        if isinstance(x, int) and isinstance(y, int):
            return {"slt": x < y, "sle": x <= y, "sge": x >= y, "eq": x == y}[predicate]
        return self.add(arith.CmpiOp(self.idx(x), self.idx(y), predicate))

    def both(self, x: bool | SSAValue, y: bool | SSAValue) -> bool | SSAValue:
        """i1: `and` of two tests."""
        if isinstance(x, bool):
            return y if x else False
        if isinstance(y, bool):
            return x if y else False
        return self.add(arith.AndIOp(x, y))

    def flag(self, test: bool | SSAValue) -> SSAValue:
        return self.constant(i1, int(test)) if isinstance(test, bool) else test

    # Vectors --------------------------------------------------------------------------------------------------

    def broadcast(self, value: SSAValue, type: VectorType[Any]) -> SSAValue:
        return value if value.type == type else self.add(vector.BroadcastOp(value, type))

    def shape(self, value: SSAValue, *shape: int) -> SSAValue:
        """The same components in another shape; a scalar as a vector of one."""
        if not isinstance(value.type, VectorType):
            return self.add(vector.BroadcastOp(value, vec(value.type, *shape)))
        if value.type.get_shape() == shape:
            return value
        return self.add(more.ShapeCastOp(value, vec(value.type.element_type, *shape)))

    def shuffle(self, a: SSAValue, b: SSAValue, mask: Sequence[int]) -> SSAValue:
        """Rows (first dimension) of `a` and then `b`, by number."""
        kind = a.type
        assert isinstance(kind, VectorType)
        shape = kind.get_shape()
        if list(mask) == list(range(shape[0])):
            return a
        result = vec(kind.element_type, len(mask), *shape[1:])
        op = vector.ShuffleOp.create(
            operands=[a, b],
            result_types=[result],
            properties={"mask": DenseArrayBase.from_list(i64, [int(m) for m in mask])},
        )
        return self.add(op)

    def stack(self, rows: Sequence[SSAValue]) -> SSAValue:
        """Vectors of one shape, one after the other along a new first dimension."""
        parts = [self.shape(row, 1, *shape_of(row.type)) for row in rows]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            joined = [self.join(a, b) for a, b in pairs]
            parts = joined if len(parts) % 2 == 0 else [*joined, parts[-1]]
        return parts[0]

    def join(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The rows of `a` and then those of `b`."""
        count = shape_of(a.type)[0] + shape_of(b.type)[0]
        kind = a.type
        assert isinstance(kind, VectorType)
        result = vec(kind.element_type, count, *kind.get_shape()[1:])
        mask = DenseArrayBase.from_list(i64, list(range(count)))
        op = vector.ShuffleOp.create(
            operands=[a, b], result_types=[result], properties={"mask": mask}
        )
        return self.add(op)

    def extract(self, value: SSAValue, *at: int) -> SSAValue:
        kind = value.type
        assert isinstance(kind, VectorType)
        shape = kind.get_shape()[len(at) :]
        result = vec(kind.element_type, *shape) if shape else kind.element_type
        return self.add(vector.ExtractOp(value, list(at), result))

    def bitcast(self, value: SSAValue, element: Attribute) -> SSAValue:
        """Elements of the same width as another type."""
        if element_of(value.type) == element:
            return value
        if isinstance(value.type, VectorType):
            return self.add(vector.BitcastOp(value, with_element(value.type, element)))
        return self.add(arith.BitcastOp(value, element))

    def select(self, mask: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a` where `mask`, else `b`; a mask of lanes serves all rows of `a`."""
        shape = shape_of(a.type)
        if isinstance(mask.type, VectorType) and mask.type.get_shape() != shape:
            mask = self.broadcast(mask, vec(i1, *shape))
        return self.add(arith.SelectOp(mask, a, b))

    # Memory ---------------------------------------------------------------------------------------------------

    def pointer(self, address: Idx) -> SSAValue:
        return self.add(mach.PtrFromIntOp(self.idx(address), ptr))

    def load(self, type: Attribute, address: Idx, alignment: int | None = None) -> SSAValue:
        return self.add(mach.LoadOp(self.pointer(address), type, alignment=alignment))

    def store(self, value: SSAValue, address: Idx, alignment: int | None = None) -> None:
        self.put(mach.StoreOp(value, self.pointer(address), alignment=alignment))

    def gather(self, base: Idx, offsets: SSAValue, mask: SSAValue, otherwise: SSAValue) -> SSAValue:
        """Elements at `base` plus byte offsets where `mask` is on; vectors of one shape."""
        if self._indexed(otherwise.type):
            return self.add(mach.GatherOp(self.pointer(base), offsets, mask, otherwise))
        operands = [self.idx(base), offsets, mask, otherwise]

        def make(b: Builder, arguments: list[SSAValue]) -> list[SSAValue]:
            start, places, flags, old = arguments
            element, size = element_of(old.type), size_of(element_of(old.type))
            room = b.scratch(size * prod(shape_of(old.type)))
            b.store(old, room)

            def move(address: SSAValue, i: SSAValue) -> None:
                b.store(b.load(element, address), b.plus(room, b.times(i, size)))

            b._each(start, places, flags, move)
            return [b.load(old.type, room)]

        return self.shared(("gather", otherwise.type), operands, make)[0]

    def scatter(self, value: SSAValue, base: Idx, offsets: SSAValue, mask: SSAValue) -> None:
        """Write elements at `base` plus byte offsets where `mask` is on, in their order."""
        if self._indexed(value.type):
            self.put(mach.ScatterOp(value, self.pointer(base), offsets, mask))
            return
        operands = [self.idx(base), offsets, mask, value]

        def make(b: Builder, arguments: list[SSAValue]) -> list[SSAValue]:
            start, places, flags, data = arguments
            element, size = element_of(data.type), size_of(element_of(data.type))
            room = b.scratch(size * prod(shape_of(data.type)))
            b.store(data, room)

            def move(address: SSAValue, i: SSAValue) -> None:
                b.store(b.load(element, b.plus(room, b.times(i, size))), address)

            b._each(start, places, flags, move)
            return []

        self.shared(("scatter", value.type), operands, make)

    def _indexed(self, type: Attribute) -> bool:
        """Has the machine instructions for indexed access to such elements? Others go one by one."""
        return storage_bits(element_of(type)) >= 32

    def _each(
        self,
        base: SSAValue,
        offsets: SSAValue,
        mask: SSAValue,
        move: Callable[[SSAValue, SSAValue], None],
    ) -> None:
        """`move(address, number)` for every component that the mask has."""
        count = prod(shape_of(offsets.type))
        places, flags = self.scratch(8 * count), self.scratch(count)
        self.store(offsets, places)
        self.store(mask, flags)

        def one(i: SSAValue, _: list[SSAValue]) -> list[SSAValue]:
            def act() -> list[SSAValue]:
                offset = self.load(index, self.plus(places, self.times(i, 8)))
                move(self.add(arith.AddiOp(base, offset)), i)
                return []

            self.when(self.load(i1, self.plus(flags, i)), act)
            return []

        self.loop(0, count, 1, [], one)

    def divided(self, value: SSAValue, divisor: int) -> SSAValue:
        """The quotient of numbers that are not negative."""
        if divisor & (divisor - 1) == 0:
            shift = self.constant(value.type, divisor.bit_length() - 1)
            return self.add(arith.ShRUIOp(value, shift))
        return self.add(arith.DivUIOp(value, self.constant(value.type, divisor)))

    def remainder(self, value: SSAValue, divisor: int) -> SSAValue:
        """The rest of numbers that are not negative."""
        if divisor & (divisor - 1) == 0:
            return self.add(arith.AndIOp(value, self.constant(value.type, divisor - 1)))
        return self.add(arith.RemUIOp(value, self.constant(value.type, divisor)))

    def scratch(self, size: int) -> SSAValue:
        """The address (index) of memory of this call, the same each time that the op runs."""
        pointer = self.add(mach.AllocaOp(max(64, size), alignment=64))
        return self.add(mach.IntFromPtrOp(pointer))

    # Regions --------------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, block: Block) -> Generator[Block]:
        """Append to `block` for a while."""
        outer, self.block = self.block, block
        yield block
        self.block = outer

    def when(
        self,
        condition: bool | SSAValue,
        then: Callable[[], Sequence[SSAValue]],
        other: Callable[[], Sequence[SSAValue]] | None = None,
    ) -> list[SSAValue]:
        """scf.if; both sides give values of the same types."""
        if isinstance(condition, bool):
            if condition:
                return list(then())
            return list(other()) if other is not None else []
        regions: list[Block] = []
        types: list[Attribute] = []
        for make in (then, other):
            if make is None:
                continue
            with self.inside(Block()) as block:
                values = list(make())
                types = [v.type for v in values]
                self.put(scf.YieldOp(*values))
            regions.append(block)
        op = scf.IfOp(
            condition, types, Region(regions[0]), Region(regions[1:]) if other else Region()
        )
        self.put(op)
        return list(op.results)

    def loop(
        self,
        lower: Idx,
        upper: Idx,
        step: Idx,
        carried: Sequence[SSAValue],
        body: Callable[[SSAValue, list[SSAValue]], Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """scf.for; `body(counter, carried)` gives what is carried on."""
        block = Block(arg_types=[index, *(v.type for v in carried)])
        with self.inside(block):
            values = body(block.args[0], list(block.args[1:]))
            self.put(scf.YieldOp(*values))
        op = scf.ForOp(self.idx(lower), self.idx(upper), self.idx(step), list(carried), block)
        self.put(op)
        return list(op.results)

    # Functions ------------------------------------------------------------------------------------------------

    def shared(
        self,
        key: Any,
        operands: Sequence[SSAValue],
        make: Callable[[Builder, list[SSAValue]], Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """Call the function of the module that `key` names; `make(builder, arguments)` builds it the first time."""
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = f"tw_part{len(self._functions)}"
            block = Block(arg_types=[v.type for v in operands])
            inner = Builder(self.module, block)
            inner._functions, inner._results = self._functions, self._results
            results = list(make(inner, list(block.args)))
            inner.put(func.ReturnOp(*results))
            types = ([v.type for v in operands], [v.type for v in results])
            function = func.FuncOp(name, types, Region(block), StringAttr("private"))
            self.module.body.block.add_op(function)
            self._results[name] = types[1]
        results = self._results[name]
        op = func.CallOp(name, list(operands), results)
        self.put(op)
        return list(op.results)


def storage_bits(element: Attribute) -> int:
    """Bits of an element in its register and in memory; i1 takes a byte there."""
    if isinstance(element, IndexType):
        return 64
    if isinstance(element, IntegerType):
        return max(8, element.width.data)
    from tilewright.dialects.xegpu.types import element_bits

    return element_bits(element)


def size_of(element: Attribute) -> int:
    """Bytes of an element in memory."""
    return storage_bits(element) // 8
