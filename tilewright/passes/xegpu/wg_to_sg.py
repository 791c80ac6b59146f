"""xegpu-wg-to-sg-distribute: the program of a workgroup becomes that of each of its subgroups.

Requires: workgroup-level XeGPU in today's form (offsets on the memory ops), every value with a layout that
its op can keep (`xegpu-propagate-layout{kind=subgroup}` writes them), exchanges through shared memory and
barriers made explicit (`xegpu-exchange-through-slm`, `xegpu-insert-barriers`). Of text that comes here alone,
what is missing is filled in by them first (`complete`).
Guarantees: a value is one subgroup's fragments, one SSA value each; sg_layout and sg_data are gone, the
rest of the layouts stays; the kernel's level is "subgroup" and `tilewright.subgroups` counts them.

Part r of a subgroup with coordinates s starts at ((s + r*sg_layout) * sg_data) mod shape: a tile larger
than one round is distributed round-robin, a smaller one is shared by wrapping, an equal one is broadcast
(`tilewright.layout`). Coordinates come from gpu.subgroup_id in the layout's `order`.

    #c = #xegpu.layout<sg_layout = [2, 2], sg_data = [32, 64]>
    %t = xegpu.create_nd_tdesc %a : memref<..> -> !xegpu.tensor_desc<64x128xf32, #c>
    %v = xegpu.load_nd %t[%m, %n] : ..                    -> vector<64x128xf32>
    ->
    %t = xegpu.create_nd_tdesc %a : memref<..> -> !xegpu.tensor_desc<32x64xf32>
    %i = arith.divui %sg, %c2     %x = arith.muli %i, %c32     %r = arith.addi %m, %x  ..
    %v = xegpu.load_nd %t[%r, %c] : ..                    -> vector<32x64xf32>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import IntegerAttr, StringAttr, VectorType, i64
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright import layout as ly
from tilewright.diagnostics import TilewrightError, error_at, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.xegpu import RangeAttr, TensorDescType
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout import BoundMap, Distribution
from tilewright.passes.carried import LOOPS_AND_BRANCHES
from tilewright.passes.kernel import LEVEL, SUBGROUPS
from tilewright.passes.level import RANGE, range_of, region_of_run, run_around
from tilewright.passes.new_body import refuse_vectors
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu import split
from tilewright.passes.xegpu.layout_relations import operand_map
from tilewright.passes.xegpu.subgroup_ids import SubgroupIds
from tilewright.rules import Rules

_RULES = ("values", "memory")
rule: Rules[Callable[[SubgroupDistributor, Any], None]] = Rules(
    *(f"tilewright.passes.xegpu.wg_to_sg_{name}" for name in _RULES), shared=split.rule
)
"""How ops are distributed."""


def distribute(kernel: gpu.FuncOp) -> None:
    """Rewrites one kernel in place."""
    refuse_vectors(kernel)
    subgroups = subgroups_of(kernel)
    distributor = SubgroupDistributor(subgroups)
    distributor.kernel(kernel)
    kernel.attributes[LEVEL] = StringAttr("subgroup")
    kernel.attributes[SUBGROUPS] = IntegerAttr(subgroups, i64)


def subgroups_of(kernel: Operation) -> int:
    """How many subgroups the layouts of a kernel distribute to; 1 where there are none.

    Raises CompileError with the op where two layouts count differently.
    """
    found: tuple[int, Operation] | None = None
    most = 0
    for op in kernel.walk():
        run = run_around(op)
        most = max(most, run.bounds[1] if run is not None else 0)
        for result in op.results:
            d = own.layout_of(result)
            if d is None or d.sg_layout is None:
                continue
            if run is not None:
                _check_run(op, d, run)
                continue
            if found is None:
                found = d.subgroups, op
            elif found[0] != d.subgroups:
                raise error_at(
                    op,
                    f"the layout {own.attribute(d)} distributes to {d.subgroups} subgroups, that of "
                    f"{found[1].name} to {found[0]}: a workgroup has one number of subgroups",
                )
    stated = kernel.attributes.get(SUBGROUPS)
    if found is not None:
        return max(most, found[0])
    if isinstance(stated, IntegerAttr):
        return max(most, stated.value.data)
    return max([most or 1, *(d.subgroups for _, d in stated_layouts(kernel) if not most)])


def stated_layouts(kernel: Operation) -> list[tuple[Operation, Distribution]]:
    """Every layout over subgroups that the text has, descriptors' included, with the op that has it."""
    found: list[tuple[Operation, Distribution]] = []
    for op in kernel.walk():
        values = [*op.properties.values(), *op.attributes.values()]
        values += [v.type.ownership for v in op.results if isinstance(v.type, TensorDescType)]
        for value in values:
            d = own.from_attribute(value)
            if d is not None and d.sg_layout is not None:
                found.append((op, d))
    return found


def _check_run(op: Operation, d: Distribution, run: RangeAttr) -> None:
    first, end = run.bounds
    if d.subgroups != end - first:
        raise error_at(
            op,
            f"the layout {own.attribute(d)} distributes to {d.subgroups} subgroups, {end - first} do this "
            f"region ({RANGE} = [{first}, {end}])",
        )


class SubgroupDistributor(split.Split[Distribution]):
    """Builds the subgroup's program, op by op in order. `env` has what is not distributed, `held` a vector's
    fragments.
    """

    rules = rule

    def __init__(self, subgroups: int):
        super().__init__()
        self.subgroups = subgroups
        self.held: dict[SSAValue, list[SSAValue]] = {}
        self.whole = subgroups
        """The subgroups of the workgroup, where `subgroups` are a run of them."""
        self.descriptors: dict[tuple[SSAValue, TensorDescType], SSAValue] = {}
        """Descriptors of fragments, by the workgroup's and their type."""
        self.ids = SubgroupIds()

    def begin(self) -> None:
        self.ids.start(self.out)

    def step(self, op: Operation) -> None:
        try:
            if isinstance(op, scf.IfOp) and (run := range_of(op)) is not None:
                self.some(op, run)
            else:
                super().step(op)
        except ly.LayoutError as error:
            raise error_at(op, f"{op.name}: {error}") from error

    def unruled(self, op: Operation) -> None:
        """Where every subgroup has all of an op's values, each does all of it."""
        if op.regions or not self.is_whole(op):
            raise self.refuse("has no form for one subgroup of a workgroup")
        new = op.clone(
            {v: self.held[v][0] if v in self.held else self.same(v) for v in op.operands}
        )
        own.clear_layouts(new)
        self.put(new)
        for before, after in zip(op.results, new.results, strict=True):
            self.hold(before, [after])

    def is_whole(self, op: Operation) -> bool:
        """Whether every subgroup has all of an op's values, so that each may do all of it."""
        values = [v for v in (*op.operands, *op.results) if isinstance(v.type, VectorType)]
        return all(self.part(self.cut_of(v), own.shape_of(v)) == own.shape_of(v) for v in values)

    # --- Loops and branches ----------------------------------------------------------------------

    def build(self, new: Operation, old: Operation) -> None:
        """What is left of the layouts stands on every fragment's result, on every input of an scf.while."""
        super().build(new, old)
        if isinstance(old, LOOPS_AND_BRANCHES):
            self._say_layouts(new, old.results, own.RESULT)
        if isinstance(old, scf.WhileOp):
            self._say_layouts(new, old.before_region.block.args, own.OPERAND)

    def _say_layouts(self, new: Operation, values: Sequence[SSAValue], prefix: str) -> None:
        at = 0
        for value in values:
            d = self.cut_of(value) if isinstance(value.type, VectorType) else None
            left = None if d is None else own.remainder(d)
            count = 1 if d is None else self.count(d, own.shape_of(value))
            for i in range(at, at + count):
                if left is not None:
                    new.attributes[f"{prefix}{i}"] = own.attribute(left)
            at += count

    def some(self, op: scf.IfOp, run: RangeAttr) -> None:
        """A region that a run of subgroups does: they are counted from its first."""
        first, end = run.bounds
        outside = self.ids, self.subgroups
        inner = Block()
        self.ids, self.subgroups = SubgroupIds(first), end - first
        with self.region(inner):
            self.ids.start(inner)
            old = region_of_run(op).block
            self.inner(old)
            self.put(scf.YieldOp())
        self.ids, self.subgroups = outside
        self.build(scf.IfOp(self.same(op.cond), [], Region(inner), Region()), op)

    # --- Building ------------------------------------------------------------------------------

    def refuse(self, why: str, hint: str | None = None) -> TilewrightError:
        """An error at the op that is being converted: `<op> <why>`."""
        assert self.op is not None
        return unsupported(self.op, f"{self.op.name} {why}", hint=hint)

    def keep(self, op: Operation) -> Operation:
        """An op on scalars, which every subgroup does alike."""
        new = super().keep(op)
        own.clear_layouts(new)
        return new

    def index(self, value: Index) -> SSAValue:
        return value if isinstance(value, SSAValue) else self.ids.constant(value)

    # --- Values --------------------------------------------------------------------------------

    def offset(self, value: Index) -> Index:
        """An offset of the old program in the new one; a number where it is constant."""
        known = folded(value)
        return known if isinstance(known, int) else self.same(known)

    def cut_of(self, value: SSAValue) -> Distribution:
        """The layout of a vector of the old program."""
        d = own.layout_of(value)
        if d is None:
            op = value.owner if isinstance(value.owner, Operation) else self.op
            assert op is not None
            raise error_at(
                op,
                f"{op.name}: no layout says which subgroup owns which part of its {value.type}",
                hint="xegpu-propagate-layout{kind=subgroup} writes a layout to every value",
            )
        return d

    def stored_cut(self, op: xegpu.StoreNdOp | xegpu.StoreMatrixOp) -> Distribution:
        return own.from_attribute(op.ownership) or self.cut_of(op.value)

    def scatter_cuts(self, op: xegpu.ScatterAccess) -> tuple[Distribution, Distribution]:
        """A chunk is a last dimension that every subgroup holds whole."""
        value = op.results[0] if op.results else getattr(op, "value", op.offsets_operand)
        assert op.offsets_operand is not None and isinstance(value, SSAValue)
        stated = None if op.results else own.from_attribute(op.layout)
        d, shape = stated or self.cut_of(value), own.shape_of(value)
        last = len(own.shape_of(op.offsets_operand))
        if len(shape) == last:
            return d, d
        if not BoundMap(d, shape).is_whole(last):
            raise ly.LayoutError("a chunk belongs to one subgroup")
        return d, ly.slice_(d, [last])

    def fragments(
        self, value: SSAValue, cut: Distribution, what: str = "an operand"
    ) -> list[SSAValue]:
        """A value's fragments under a layout that gives every subgroup the elements that it has."""
        have, shape = self.cut_of(value), own.shape_of(value)
        found = self.held[value]
        if own.subgroup_part(have) == own.subgroup_part(cut):
            return found
        if not own.same_owners(have, cut, shape):
            assert self.op is not None
            raise error_at(
                self.op,
                f"{self.op.name}: {what} is owned as {own.attribute(have)}, the op "
                f"needs {own.attribute(cut)}",
                hint="a convert_layout between them; xegpu-propagate-layout puts it there",
            )
        if (
            len(set(found)) == 1
            and len(found) > 1
            and self.part(cut, shape) == own.shape_of(found[0])
        ):
            return [found[0]] * self.count(cut, shape)
        return self.regrouped(found, have, cut, shape)

    def regrouped(
        self,
        fragments: Sequence[SSAValue],
        have: Distribution,
        want: Distribution,
        shape: Sequence[int],
    ) -> list[SSAValue]:
        """The same elements of a subgroup in fragments of other shapes: slices of registers, nothing moves.

        Requires that both layouts give every subgroup the same elements; then the cuts are the same for all, and
        subgroup 0 tells where they are.
        """
        sources = list(zip((s for s, _ in self.boxes(have, shape)), fragments, strict=True))
        return [self.assembled(*box, sources) for box in self.boxes(want, shape)]

    def part(self, d: Distribution, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one fragment."""
        return tuple(own.subgroup_part(d).part_shape(shape))

    def count(self, d: Distribution, shape: Sequence[int]) -> int:
        """How many fragments a subgroup has."""
        return len(own.subgroup_part(d).parts(shape, 0))

    def grid(self, d: Distribution, shape: Sequence[int]) -> tuple[int, ...]:
        """How many fragments a subgroup has along each dimension; they are in row-major order."""
        rounds: list[int] = []
        kept = [i for i in range(d.field_rank) if i not in d.sliced]
        part = self.part(d, shape)
        for dim, extent in enumerate(shape):
            groups = d.sg_layout[kept[dim]] if d.sg_layout is not None else 1
            rounds.append(max(1, extent // (groups * part[dim])))
        return tuple(rounds)

    def starts(self, cut: Distribution, shape: Sequence[int]) -> list[tuple[Index, ...]]:
        """Where each fragment of this subgroup starts in the whole value."""
        return self.ids.starts(cut, tuple(shape))

    def boxes(self, cut: Distribution, shape: Sequence[int]) -> list[split.Box]:
        parts = own.subgroup_part(cut).parts(shape, 0)
        return [(part.offset, part.shape) for part in parts]

    def source(
        self, op: Operation, cut: Distribution
    ) -> Callable[[split.Shape, split.Shape], SSAValue]:
        (value,) = op.operands
        have, shape = operand_map(op, 0, cut), own.shape_of(value)
        fragments = self.fragments(value, have, "the source")
        sources = list(zip((s for s, _ in self.boxes(have, shape)), fragments, strict=True))
        return lambda start, size: self.assembled(start, size, sources)

    def places(
        self, offsets: Sequence[Index], cut: Distribution, shape: Sequence[int]
    ) -> list[list[Index]]:
        """All of them in front of the first op, which may be done by one subgroup only."""
        return list(super().places(offsets, cut, shape))

    def typed(self, value: SSAValue, cut: Distribution) -> VectorType:
        kind = vector_type(value)
        return VectorType(kind.element_type, list(self.part(cut, kind.get_shape())))

    def give(self, value: SSAValue, cut: Distribution, fragments: Sequence[SSAValue]) -> None:
        for n, fragment in enumerate(fragments):
            if fragment.name_hint is None and value.name_hint is not None:
                fragment.name_hint = (
                    f"{value.name_hint}_{n}" if len(fragments) > 1 else value.name_hint
                )
        self.held[value] = list(fragments)

    def mark(self, new: Operation, cut: Distribution) -> Operation:
        """What is left of the layout stands on an op that makes a fragment, or takes one from memory."""
        left = own.remainder(cut)
        if left is not None and not new.results:
            new.properties["layout"] = own.attribute(left)
        elif left is not None:
            for result in new.results:
                own.set_layout(result, left)
        return new

    def moving(self, new: Operation, cut: Distribution) -> Operation:
        return self.mark(new, cut)

    def alone(self, op: Operation) -> None:
        """The first subgroup does it."""
        first = self.first()
        if first is not None and any(r.first_use is not None for r in op.results):
            raise self.refuse(
                "returns a scalar that all subgroups use, but only one may execute it"
            )
        with self.when(first):
            self.keep(op)

    def first(self) -> SSAValue | None:
        """Is this the first subgroup? None where there is one."""
        return self.first_owner(own.replicated(self.subgroups, 1, (1,)), (1,))

    def first_owner(self, cut: Distribution, shape: Sequence[int]) -> SSAValue | None:
        """A condition that holds for one of the subgroups that own the same; None where none share."""
        return self.ids.first_replica(own.bound(cut, shape), self.subgroups)
