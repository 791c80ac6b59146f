"""Rebuilding a kernel op by op, where one value may become several: the frame of blocking and distribution.

A subclass says what a value becomes (`bind`, `parts`, `part_types`) and converts ops (`convert`); this class
walks the old body in order, fills the new one, and rebuilds scf.for, scf.if and scf.while around both. Ops
are built directly and verified once at the end by whoever runs the pass: time is linear in the new ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.new_body import NewBody


class Rebuild(NewBody):
    """The new body under construction."""

    def __init__(self) -> None:
        super().__init__()
        self.env: dict[SSAValue, SSAValue] = {}
        """Values that stay one value of the same meaning: scalars, memrefs, descriptors."""
        self.entry = self.out
        self._memos: list[dict[object, SSAValue]] = [{}]

    def bind_argument(self, old: SSAValue, new: SSAValue) -> None:
        self.env[old] = new

    def begin(self) -> None:
        self.entry = self.out

    def block(self, old: Block) -> None:
        for op in old.ops:
            self.op = op
            self.step(op)

    def step(self, op: Operation) -> None:
        match op:
            case scf.ForOp():
                self._for(op)
            case scf.IfOp():
                self._if(op)
            case scf.WhileOp():
                self._while(op)
            case scf.YieldOp() | scf.ConditionOp():
                raise AssertionError("terminators are built with their op")
            case _:
                self.convert(op)

    # --- What a subclass says --------------------------------------------------------------------

    def convert(self, op: Operation) -> None:
        raise NotImplementedError

    def is_split(self, value: SSAValue) -> bool:
        """Is the value anything but the same value in the new text?"""
        return isinstance(value.type, VectorType)

    def part_types(self, like: SSAValue) -> list[Attribute]:
        raise NotImplementedError

    def parts(self, value: SSAValue, like: SSAValue) -> list[SSAValue]:
        """The new values of an old one, cut as `like` is."""
        raise NotImplementedError

    def bind(self, value: SSAValue, parts: Sequence[SSAValue]) -> None:
        raise NotImplementedError

    # --- Building --------------------------------------------------------------------------------

    def once(self, key: object, make: Operation) -> SSAValue:
        """The result of an op that is made once per block (and seen by the blocks inside)."""
        found = self.known(key)
        return self.remember(key, self.add(make)) if found is None else found

    def known(self, key: object) -> SSAValue | None:
        for memo in reversed(self._memos):
            if key in memo:
                return memo[key]
        return None

    def remember(self, key: object, value: SSAValue) -> SSAValue:
        self._memos[-1][key] = value
        return value

    def constant(self, attribute: IntegerAttr | FloatAttr | DenseIntOrFPElementsAttr) -> SSAValue:
        found = self.known(attribute)
        if found is None:
            op = arith.ConstantOp.create(
                properties={"value": attribute}, result_types=[attribute.get_type()]
            )
            found = self.remember(attribute, self.add(op))
        return found

    def index(self, value: Index) -> SSAValue:
        if isinstance(value, SSAValue):
            return value
        return self.constant(IntegerAttr(value, IndexType()))

    def binary(self, kind: type[Operation], a: SSAValue, b: SSAValue) -> SSAValue:
        """An arithmetic op on two operands of one type, once per block."""
        key = (kind, a, b)
        found = self.known(key)
        if found is None:
            op = kind.create(operands=[a, b], result_types=[a.type], properties=_defaults(kind))
            found = self.remember(key, self.add(op))
        return found

    def plus(self, a: Index, b: Index) -> Index:
        """A sum of indices, folded where both are numbers or one is 0."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(b, int) and b == 0:
            return a
        if isinstance(a, int) and a == 0:
            return b
        return self.binary(arith.AddiOp, self.index(a), self.index(b))

    def times(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return y if x else 0
        return self.binary(arith.MuliOp, self.index(a), self.index(b))

    def compare(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        number = IntegerAttr(_PREDICATES.index(predicate), IntegerType(64))
        kind = a.type
        result = VectorType(i1, kind.get_shape()) if isinstance(kind, VectorType) else i1
        key = (predicate, a, b)
        found = self.known(key)
        if found is None:
            op = arith.CmpiOp.create(
                operands=[a, b], result_types=[result], properties={"predicate": number}
            )
            found = self.remember(key, self.add(op))
        return found

    def same(self, value: SSAValue) -> SSAValue:
        """A value that is one value of the same meaning in the new text."""
        found = self.env.get(value)
        if found is None:
            raise self.refuse(
                f"a descriptor is carried by it or chosen: {value.type} has no single form here",
                "use descriptors where they are created; loads and stores take offsets",
            )
        return found

    def keep(self, op: Operation) -> None:
        """The same op on the new operands."""
        if op.regions:
            raise self.refuse("its regions have no form at this level")
        new = op.clone({v: self.same(v) for v in op.operands})
        self.put(new)
        for before, after in zip(op.results, new.results, strict=True):
            after.name_hint = before.name_hint
            self.env[before] = after

    # --- Structured control flow -----------------------------------------------------------------

    def _types(self, like: SSAValue) -> list[Attribute]:
        return self.part_types(like) if self.is_split(like) else [like.type]

    def _values(self, value: SSAValue, like: SSAValue) -> list[SSAValue]:
        return self.parts(value, like) if self.is_split(like) else [self.same(value)]

    def _bind(self, value: SSAValue, given: Sequence[SSAValue]) -> None:
        if self.is_split(value):
            self.bind(value, given)
        else:
            given[0].name_hint = value.name_hint
            self.env[value] = given[0]

    def _bind_all(self, values: Sequence[SSAValue], given: Sequence[SSAValue]) -> None:
        at = 0
        for value in values:
            count = len(self._types(value))
            self._bind(value, given[at : at + count])
            at += count

    def _all(self, values: Sequence[SSAValue], likes: Sequence[SSAValue]) -> list[SSAValue]:
        pairs = zip(values, likes, strict=True)
        return [new for value, like in pairs for new in self._values(value, like)]

    def _inside(self, old: Block, new: Block) -> Operation:
        """Fills a nested block up to its terminator, which is returned."""
        self.out = new
        self._memos.append({})
        end = old.last_op
        assert end is not None
        for op in old.ops:
            if op is not end:
                self.op = op
                self.step(op)
        self.op = end
        return end

    def _leave(self, outer: Block) -> None:
        self._memos.pop()
        self.out = outer

    def _for(self, op: scf.ForOp) -> None:
        old = op.body.block
        carried = old.args[1:]
        inits = self._all(op.iter_args, carried)
        types = [t for like in carried for t in self._types(like)]
        new = Block(arg_types=[old.args[0].type, *types])
        new.args[0].name_hint = old.args[0].name_hint
        self.env[old.args[0]] = new.args[0]
        self._bind_all(carried, new.args[1:])
        outer = self.out
        end = self._inside(old, new)
        yields = self._all(end.operands, carried)
        self.put(scf.YieldOp(*yields))
        self._leave(outer)
        self.op = op
        lb, ub, step = (self.env[v] for v in (op.lb, op.ub, op.step))
        made = scf.ForOp(lb, ub, step, inits, Region(new))
        made.attributes |= _plain(op)
        self.put(made)
        self._bind_all(op.results, made.results)

    def _if(self, op: scf.IfOp) -> None:
        types = [t for like in op.results for t in self._types(like)]
        regions: list[Region] = []
        outer = self.out
        for region in op.regions:
            if not region.blocks:
                regions.append(Region())
                continue
            new = Block()
            end = self._inside(region.block, new)
            self.put(scf.YieldOp(*self._all(end.operands, op.results)))
            self._leave(outer)
            regions.append(Region(new))
        self.op = op
        made = scf.IfOp(self.env[op.cond], types, regions[0], regions[1])
        made.attributes |= _plain(op)
        self.put(made)
        self._bind_all(op.results, made.results)

    def _while(self, op: scf.WhileOp) -> None:
        before, after = op.before_region.block, op.after_region.block
        outer = self.out
        inits = self._all(op.arguments, before.args)
        new_before = Block(arg_types=[t for a in before.args for t in self._types(a)])
        self._bind_all(before.args, new_before.args)
        end = self._inside(before, new_before)
        assert isinstance(end, scf.ConditionOp)
        passed = self._all(end.args, after.args)
        self.put(scf.ConditionOp(self.env[end.condition], *passed))
        self._leave(outer)
        new_after = Block(arg_types=[t for a in after.args for t in self._types(a)])
        self._bind_all(after.args, new_after.args)
        end = self._inside(after, new_after)
        self.put(scf.YieldOp(*self._all(end.operands, before.args)))
        self._leave(outer)
        self.op = op
        types = [t for like in op.results for t in self._types(like)]
        made = scf.WhileOp(inits, types, Region(new_before), Region(new_after))
        made.attributes |= _plain(op)
        self.put(made)
        self._bind_all(op.results, made.results)


def _plain(op: Operation) -> dict[str, Attribute]:
    """Discardable attributes but for layouts, which the new values no longer have."""
    return {k: v for k, v in op.attributes.items() if not k.startswith("layout_")}


_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def _defaults(kind: type[Operation]) -> dict[str, Attribute]:
    flags = {
        "overflowFlags": arith.IntegerOverflowAttr("none"),
        "fastmath": arith.FastMathFlagsAttr("none"),
    }
    known = kind.get_irdl_definition().properties if hasattr(kind, "get_irdl_definition") else {}  # pyright: ignore
    return {name: flag for name, flag in flags.items() if name in known}


def floats_or_ints(element: Attribute) -> str:
    return "i" if isinstance(element, (IntegerType, IndexType)) else "f"
