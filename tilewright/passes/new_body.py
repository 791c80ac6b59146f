"""A kernel's body built anew beside the old one, op by op in order: what every pass that changes levels does.

Ops are appended directly and verified once, at the end, by whoever runs the pass: time is linear in the new ops,
and nothing of the old body changes before the new one is whole. Every new op stands where the op that it comes
from stood in the source text, so that a later error points there. Loops and branches carry what their values became
(`passes/control.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from xdsl.dialects import arith, func, gpu, scf
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

from tilewright.diagnostics import TilewrightError, unsupported
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.folding import Folding, Kind
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import used_from_above
from tilewright.dialects.upstream.arith import PREDICATES
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.budget import poll
from tilewright.passes.control import Parts, convert_for, convert_if, convert_while
from tilewright.rules import Rules


class NewBody:
    """The new body under construction. A subclass says what ops become (`rules`, or `convert`), and values that become
    several (`parts`, `hold`)."""

    rules: ClassVar[Rules[Any]] = Rules()
    """What ops become; the rule called `elementwise` is that of all elementwise ops on vectors."""

    def __init__(self) -> None:
        self.out: Block = Block()
        """Where ops are appended now."""
        self.entry = self.out
        """The new body's first block."""
        self.op: Operation | None = None
        """The op of the old body that is being converted."""
        self.env: dict[SSAValue, SSAValue] = {}
        """Values that stay one value of the same meaning: scalars, memrefs, descriptors."""
        self._memos: list[dict[object, SSAValue]] = [{}]

    # --- What a subclass says --------------------------------------------------------------------

    def begin(self) -> None:
        """Is called when `out` is the new body, still empty, and every argument is bound."""

    def convert(self, op: Operation) -> None:
        """Builds what an op of the old body becomes, unless it is a loop or a branch."""
        found = self.rules.of(op.name)
        if found is None and is_elementwise_on_vectors(op):
            found = self.rules.of("elementwise")
        if found is not None:
            found(self, op)
        elif any(isinstance(v.type, VectorType) for v in (*op.operands, *op.results)):
            self.unruled(op)
        else:
            self.keep(op)

    def unruled(self, op: Operation) -> None:
        """An op on vectors that no rule is for."""
        raise self.refuse("has no form at this level")

    def parts(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        """What a value becomes where it is carried as `place`, an argument or a result of a loop or branch."""
        return [self.same(value)]

    def hold(self, place: SSAValue, parts: Sequence[SSAValue]) -> None:
        """An argument or a result is these."""
        parts[0].name_hint = place.name_hint
        self.env[place] = parts[0]

    # --- The walk ----------------------------------------------------------------------------------

    def kernel(self, kernel: gpu.FuncOp | func.FuncOp) -> None:
        """Replaces the body of `kernel`. Raises UnsupportedError where it has several blocks."""
        if len(kernel.body.blocks) != 1:
            raise unsupported(kernel, "branches between blocks of a kernel")
        old = kernel.body.block
        new = Block(arg_types=[a.type for a in old.args])
        self.out = self.entry = new
        for before, after in zip(old.args, new.args, strict=True):
            after.name_hint = before.name_hint
            self.env[before] = after
        self.begin()
        for op in old.ops:
            self.step(op)
        kernel.body.detach_block(old)
        kernel.body.add_block(new)
        old.drop_all_references()

    def step(self, op: Operation) -> None:
        """Builds what any op of the old body becomes."""
        self.op = op
        match op:
            case scf.ForOp():
                convert_for(self, op)
            case scf.IfOp():
                convert_if(self, op)
            case scf.WhileOp():
                convert_while(self, op)
            case _:
                self.convert(op)

    # --- Loops and branches, for `passes.control` ----------------------------------------------------

    def flatten(self, values: Sequence[SSAValue], places: Sequence[SSAValue]) -> Parts:
        return [self.parts(v, place) for v, place in zip(values, places, strict=True)]

    def bind(self, place: SSAValue, parts: Sequence[SSAValue], sample: SSAValue) -> None:
        self.hold(place, parts)

    def scalar(self, value: SSAValue) -> SSAValue:
        return self.same(value)

    @contextmanager
    def region(self, new: Block) -> Generator[None]:
        """Ops are appended to `new`; what is made `once` there is not known behind it."""
        outer, self.out = self.out, new
        self._memos.append({})
        yield
        self._memos.pop()
        self.out = outer

    def inner(self, old: Block) -> None:
        for op in old.ops:
            if op is not old.last_op:
                self.step(op)
        self.op = old.last_op

    def build(self, new: Operation, old: Operation) -> None:
        self.op = old
        new.attributes |= without_layouts(old)
        self.put(new)

    # --- Building ------------------------------------------------------------------------------------

    def put(self, new: Operation) -> Operation:
        """Appends an op."""
        assert self.op is not None
        poll()
        new.location = self.op.location
        self.out.add_op(new)
        return new

    def add(self, new: Operation) -> SSAValue:
        """Appends an op with one result; gives the result."""
        return self.put(new).results[0]

    @contextmanager
    def when(self, condition: SSAValue | None) -> Generator[None]:
        """What is built inside is done where a condition holds; always for None."""
        if condition is None:
            yield
            return
        then = Block()
        with self.region(then):
            yield
            self.put(scf.YieldOp())
        self.put(scf.IfOp(condition, [], Region(then)))

    def choose(
        self,
        condition: SSAValue,
        then: Callable[[], Sequence[SSAValue]],
        otherwise: Callable[[], Sequence[SSAValue]],
    ) -> Sequence[SSAValue]:
        """The values of one way where a condition holds, of the other where not."""
        types: list[Attribute] = []
        regions: list[Region] = []
        for way in (then, otherwise):
            new = Block()
            with self.region(new):
                values = way()
                self.put(scf.YieldOp(*values))
            types = [v.type for v in values]
            regions.append(Region(new))
        return self.put(scf.IfOp(condition, types, regions[0], regions[1])).results

    def refuse(self, why: str, hint: str | None = None) -> TilewrightError:
        """An error at the op that is being converted: `<op>: <why>`."""
        assert self.op is not None
        return unsupported(self.op, f"{self.op.name}: {why}", hint=hint)

    def same(self, value: SSAValue) -> SSAValue:
        """A value that is one value of the same meaning in the new text."""
        found = self.env.get(value)
        if found is None:
            raise self.refuse(
                f"a descriptor is carried by it or chosen: {value.type} has no single form here",
                "use descriptors where they are created; loads and stores take offsets",
            )
        return found

    def numbers(self, given: Sequence[Index]) -> list[Index]:
        """Numbers of the old text as those of the new one."""
        return [self.same(v) if isinstance(v, SSAValue) else v for v in given]

    def keep(self, op: Operation) -> Operation:
        """The same op on the new operands."""
        if op.regions and not isinstance(op, GenericAtomicRMWOp):
            raise self.refuse("its regions have no form at this level")
        new = op.clone({v: self.same(v) for v in used_from_above(op)})
        self.put(new)
        for before, after in zip(op.results, new.results, strict=True):
            after.name_hint = before.name_hint
            self.env[before] = after
        return new

    def slice(self, value: SSAValue, start: Sequence[int], size: Sequence[int]) -> SSAValue:
        """A box of one vector; the vector itself where it is all of it."""
        if shape_of(value) == tuple(size):
            return value
        key = ("slice", value, tuple(start), tuple(size))
        return self.once(key, lambda: self.add(ExtractStridedSliceOp(value, start, size)))

    # --- Once per block, and what is made of constants -------------------------------------------------

    def once(self, key: object, make: Operation | Callable[[], SSAValue]) -> SSAValue:
        """The result of an op, or of several, made once per block (and seen by the blocks inside)."""
        found = self.known(key)
        if found is None:
            made = self.add(make) if isinstance(make, Operation) else make()
            found = self.remember(key, made)
        return found

    def known(self, key: object) -> SSAValue | None:
        for memo in reversed(self._memos):
            if (found := memo.get(key)) is not None:
                return found
        return None

    def remember(self, key: object, value: SSAValue) -> SSAValue:
        self._memos[-1][key] = value
        return value

    @contextmanager
    def afresh(self, known: dict[object, SSAValue]) -> Generator[None]:
        """What was made outside is made again inside, but for what is in `known`."""
        outside, self._memos = self._memos, [known]
        yield
        self._memos = outside

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

    def combined(self, kind: Kind, x: Index, y: Index) -> Index:
        return self.binary(kind, self.index(x), self.index(y))

    def also(self, mask: SSAValue | None, hit: SSAValue) -> SSAValue:
        """Where both hold; a mask that is None holds everywhere."""
        return hit if mask is None else self.binary(arith.AndIOp, mask, hit)

    plus, minus, times = Folding.plus, Folding.minus, Folding.times
    divided, shifted, literal = Folding.divided, Folding.shifted, Folding.literal

    def compare(self, predicate: str, x: Index, y: Index) -> SSAValue:
        x, y = self.index(x), self.index(y)
        number = IntegerAttr(PREDICATES.index(predicate), IntegerType(64))
        kind = x.type
        result = VectorType(i1, kind.get_shape()) if isinstance(kind, VectorType) else i1
        key = (predicate, x, y)
        found = self.known(key)
        if found is None:
            op = arith.CmpiOp.create(
                operands=[x, y], result_types=[result], properties={"predicate": number}
            )
            found = self.remember(key, self.add(op))
        return found


def refuse_vectors(kernel: gpu.FuncOp) -> None:
    """Refuses a kernel that takes vectors, of which nothing says who owns them."""
    if any(isinstance(a.type, VectorType) for a in kernel.body.blocks[0].args):
        raise unsupported(
            kernel,
            "a kernel whose values are distributed takes no vectors: no layout says who owns which element",
            hint="load them from memory, or from another op that has a layout",
        )


def without_layouts(op: Operation) -> dict[str, Attribute]:
    """Discardable attributes but for layouts, which are those of the old values."""
    return {k: v for k, v in op.attributes.items() if not k.startswith("layout_")}


def _defaults(kind: type[Operation]) -> dict[str, Attribute]:
    flags = {
        "overflowFlags": arith.IntegerOverflowAttr("none"),
        "fastmath": arith.FastMathFlagsAttr("none"),
    }
    known = kind.get_irdl_definition().properties if hasattr(kind, "get_irdl_definition") else {}  # pyright: ignore
    return {name: flag for name, flag in flags.items() if name in known}
