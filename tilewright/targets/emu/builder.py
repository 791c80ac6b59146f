"""Appends last-stage ops: constants that stand once, index arithmetic that folds, regions, functions shared by calls.

An index is a Python int (known now) or an SSA value of type index.  What a kernel does many times in the same way (a
block load, a product) becomes a private function of the module, made once: the kernel's own code stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, func, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    Float4E2M1FNType,
    IntegerType,
    ModuleOp,
    StringAttr,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.codegen.builder import Builder as Base
from tilewright.codegen.builder import index, vec
from tilewright.dialects import mach
from tilewright.dialects.folding import Idx, Kind
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.arith import element_bytes
from tilewright.dialects.upstream.arith import signless as signless_
from tilewright.dialects.upstream.arith import with_element as with_element_
from tilewright.dialects.upstream.pointer import LLVMPointerType

ptr = LLVMPointerType()


with_element = cache(with_element_)


def signless(type: Attribute) -> Attribute:
    """The type as registers have it: integers that do not say their sign, 4-bit floats as bytes of their own."""
    if isinstance(type, VectorType):
        return vec(signless(type.element_type), *type.get_shape())
    if isinstance(type, Float4E2M1FNType):
        return IntegerType(8)  # bits: no arithmetic is done in these
    return signless_(type)


class EmuBuilder(Base):
    """Appends ops to `block`, and functions to `module`; addresses are indices."""

    def __init__(self, module: ModuleOp, entry: Block):
        super().__init__(entry)
        self.module = module
        self._functions: dict[Any, tuple[str, list[Attribute]]] = {}

    def zeros(self, type: Attribute) -> SSAValue:
        return self.constant(type, 0)

    def ones(self, type: Attribute) -> SSAValue:
        """All bits set: NaN in every float type, -1 in every integer type."""
        element = element_of(type)
        if not isinstance(element, AnyFloat):
            return self.constant(type, -1)
        bits = with_element(type, IntegerType(8 * element_bytes(element)))
        return self.bitcast(self.constant(bits, -1), element)

    def all_of(self, tests: Sequence[SSAValue]) -> SSAValue:
        """i1: the conjunction."""
        return reduce(self.both, tests, None) or self.constant(i1, 1)

    # Numbers and vectors of numbers ---------------------------------------------------------------------------

    def alike(self, *numbers: Idx) -> Sequence[Idx]:
        """All in the shape of all together, as numpy has it."""
        types = [x.type for x in numbers if isinstance(x, SSAValue)]
        shapes = {shape_of_type(type) for type in types}
        if not any(shapes) or (len(shapes) == 1 and len(types) == len(numbers)):
            return numbers
        whole = vec(element_of(types[0]), *np.broadcast_shapes(*shapes))
        return [self.broadcast(x, whole) for x in numbers]

    def combined(self, kind: Kind, x: Idx, y: Idx) -> Idx:
        return super().combined(kind, *self.alike(x, y))

    def cmp(self, predicate: str, x: Idx, y: Idx) -> SSAValue:
        return super().cmp(predicate, *self.alike(x, y))

    def both(self, x: SSAValue | None, y: SSAValue | None) -> SSAValue | None:
        if x is None or y is None:
            return y if x is None else x
        return super().both(*self.alike(x, y))  # pyright: ignore

    def either(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return super().either(*self.alike(x, y))  # pyright: ignore

    def within(self, x: Idx, size: Idx) -> SSAValue:
        """Not negative and below `size`?"""
        return self.all_of([self.cmp("sge", x, 0), self.cmp("slt", x, size)])

    def cast(self, value: SSAValue, element: Attribute) -> SSAValue:
        """Integers as such of another type, one of the two index."""
        if element_of(value.type) == element:
            return value
        return self.value(arith.IndexCastOp(value, with_element(value.type, element)))

    # Vectors --------------------------------------------------------------------------------------------------

    def broadcast(self, value: Idx, type: VectorType[Any]) -> SSAValue:
        if isinstance(value, int):
            return self.constant(type, value)
        return value if value.type == type else self.value(vector.BroadcastOp(value, type))

    def bitcast(self, value: SSAValue, element: Attribute) -> SSAValue:
        """Elements of the same width as another type."""
        if element_of(value.type) == element:
            return value
        if isinstance(value.type, VectorType):
            return self.value(vector.BitcastOp(value, with_element(value.type, element)))
        return self.value(arith.BitcastOp(value, element))

    def blend(self, mask: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a` where `mask`, else `b`; a mask of lanes serves all rows of `a`."""
        shape = shape_of_type(a.type)
        if isinstance(mask.type, VectorType) and mask.type.get_shape() != shape:
            mask = self.broadcast(mask, vec(i1, *shape))
        return self.value(arith.SelectOp(mask, a, b))

    # Memory ---------------------------------------------------------------------------------------------------

    def pointer(self, address: Idx) -> SSAValue:
        return self.value(mach.PtrFromIntOp(self.idx(address), ptr))

    def read(
        self,
        type: Attribute,
        address: Idx,
        alignment: int | None = None,
        mask: SSAValue | None = None,
        otherwise: SSAValue | None = None,
    ) -> SSAValue:
        """What lies at an address; where a mask is off, a component of `otherwise`, by default 0."""
        if mask is None:
            return self.load(self.pointer(address), type, alignment)
        otherwise = self.zeros(type) if otherwise is None else otherwise
        return self.value(mach.MaskedLoadOp(self.pointer(address), mask, otherwise))

    def write(
        self,
        value: SSAValue,
        address: Idx,
        alignment: int | None = None,
        mask: SSAValue | None = None,
    ) -> None:
        if mask is None:
            self.store(value, self.pointer(address), alignment)
        else:
            self.op(mach.MaskedStoreOp(value, self.pointer(address), mask))

    def gather(self, base: Idx, offsets: SSAValue, mask: SSAValue, otherwise: SSAValue) -> SSAValue:
        """Elements at `base` plus byte offsets where `mask` is on; vectors of one shape."""
        if _indexed(otherwise.type):
            return self.value(mach.GatherOp(self.pointer(base), offsets, mask, otherwise))
        return self._one_by_one(True, base, offsets, mask, otherwise)

    def scatter(self, value: SSAValue, base: Idx, offsets: SSAValue, mask: SSAValue) -> None:
        """Write elements at `base` plus byte offsets where `mask` is on, in their order."""
        if _indexed(value.type):
            self.op(mach.ScatterOp(value, self.pointer(base), offsets, mask))
        else:
            self._one_by_one(False, base, offsets, mask, value)

    def _one_by_one(
        self, reads: bool, base: Idx, offsets: SSAValue, mask: SSAValue, value: SSAValue
    ) -> SSAValue:
        """A gather, of which `value` are the others, or a scatter of it."""
        element = element_of(value.type)

        def make(b: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
            start, places, flags, data = arguments

            def move(address: SSAValue, own: SSAValue) -> SSAValue:
                if reads:
                    return b.read(element, address)
                b.write(own, address)
                return own

            return [b.in_turn(start, places, flags, data, [data], move)]

        return self.shared((reads,), [self.idx(base), offsets, mask, value], make)[0]

    def in_turn(
        self,
        base: Idx,
        offsets: SSAValue,
        mask: SSAValue,
        start: SSAValue,
        values: Sequence[SSAValue],
        act: Callable[..., SSAValue],
    ) -> SSAValue:
        """`start` with what `act(address, components of values ..)` gives where `mask` is on, one after the other."""
        held = [offsets, mask, start, *values]
        sizes = [element_bytes(element_of(x.type)) for x in held]
        count = prod(shape_of_type(start.type))
        rooms = [self.scratch(count * size) for size in sizes]
        for value, room in zip(held, rooms, strict=True):
            self.write(value, room)
        with self.loop(0, count) as i:
            at = [
                self.plus(room, self.times(i.iv, n)) for room, n in zip(rooms, sizes, strict=True)
            ]
            with self.when(self.read(i1, at[1])):
                address = self.plus(base, self.read(index, at[0]))
                kinds = zip(values, at[3:], strict=True)
                own = [self.read(element_of(x.type), place) for x, place in kinds]
                self.write(act(self.idx(address), *own), at[2])
        return self.read(start.type, rooms[2])

    def scratch(self, size: int) -> SSAValue:
        """The address (index) of memory of this call, the same each time that the op runs."""
        pointer = self.value(mach.AllocaOp(max(64, size), alignment=64))
        return self.value(mach.IntFromPtrOp(pointer))

    # Functions ------------------------------------------------------------------------------------------------

    def shared(
        self,
        key: tuple[Any, ...],
        operands: Sequence[Idx],
        make: Callable[[EmuBuilder, list[Any]], Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """Call the function of the module that `key`, the operands' types and those that are known now name.

        `make(builder, operands)` builds it the first time."""
        kinds = [x if isinstance(x, int) else x.type for x in operands]
        tables = [(k.shape, k.tobytes()) if isinstance(k, np.ndarray) else k for k in key]
        values, name = [x for x in operands if isinstance(x, SSAValue)], (*tables, *kinds)
        if name not in self._functions:
            block = Block(arg_types=[x.type for x in values])
            inner, given = EmuBuilder(self.module, block), iter(block.args)
            symbol = f"tw_part{len(self._functions)}"
            self._functions[name], inner._functions = (symbol, []), self._functions
            made = list(make(inner, [x if isinstance(x, int) else next(given) for x in operands]))
            inner.op(func.ReturnOp(*made))
            types = [v.type for v in values], [v.type for v in made]
            function = func.FuncOp(symbol, types, Region(block), StringAttr("private"))
            self.module.body.block.add_op(function)
            self._functions[name] = symbol, types[1]
        symbol, results = self._functions[name]
        return list(self.op(func.CallOp(symbol, values, results)).results)


def _indexed(type: Attribute) -> bool:
    """Has the machine instructions for indexed access to such elements? Others go one by one."""
    return element_bytes(element_of(type)) >= 4
