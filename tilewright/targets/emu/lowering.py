"""lanes-to-vectors: a kernel of lanes or of subgroups becomes the program of one subgroup in last-stage ops.

    %lane = gpu.lane_id                                     (a constant: 0 .. 15)
    %o = arith.muli %lane, %c4 : index              ->      (a constant: 0 .. 60)
    %v = memref.load %a[%o] : memref<?xf32>                 %v = mach.gather %p, ... -> vector<16xf32>
    %w = arith.addf %v, %v : f32                            %w = arith.addf %v, %v : vector<16xf32>
    scf.if %differs { memref.store %w, .. }                 scf.if (any lane) { mach.scatter %w, .. under the mask }

A value of type T that lanes hold differently becomes vector<16xT>, a lane's vector<8xT> vector<8x16xT>; what all lanes
agree on stays as it is (`uniformity`).  Conditions that lanes agree on stay branches, others become masks.  What a
subgroup does together (block loads, dpas, shuffles, barriers) becomes vector code by the fragment rules of
`tilewright.layout`.  At subgroup level values are the subgroup's own already: there is one lane.

Requires: a verified kernel at lane or subgroup level. Guarantees: a module with the function `tw_subgroup(context, n)`
that does what subgroup n of a workgroup does. Raises UnsupportedError for an op that has no form here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, func, gpu, math, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    ModuleOp,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.divisions import divide, not_zero
from tilewright.diagnostics import TilewrightError, unsupported
from tilewright.dialects import mach
from tilewright.dialects.elementwise import (
    DIVISIONS,
    is_elementwise,
    retyped,
)
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.uniformity import UNIFORM, Kind, Ramp, Uniformity
from tilewright.rules import Rules
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import EmuBuilder, Idx, element_of, index, ptr, signless, vec
from tilewright.targets.emu.context import ARGUMENTS, BY_ZERO, NOT_ALL_LANES, NOT_UNIFORM, SHARED
from tilewright.targets.host_arguments import argument_places

_FILES = ("blocks", "control", "exchange", "memory", "products", "sync", "vectors")
lowers: Rules[Callable[[Lowering, Any], None]] = Rules(
    *(f"tilewright.targets.emu.{name}" for name in _FILES)
)
"""How ops are lowered, by name; the rest is elementwise or refused."""


class Lowering:
    """One kernel being lowered. `lanes` is 1 at subgroup level."""

    def __init__(self, kernel: gpu.FuncOp, lanes: int, subgroups: int, block: tuple[int, int, int]):
        self.kernel = kernel
        self.lanes = lanes
        self.subgroups = subgroups
        """Of a workgroup."""
        self.launch_block = block
        self.kinds = Uniformity(lanes)
        self.module = ModuleOp([])
        self.env: dict[SSAValue, v.Value] = {}
        self.mask: SSAValue | None = None
        """The lanes that stand here, vector<Lxi1>; None: all."""
        self.op: Operation = kernel
        self.sites: list[Operation] = []
        """Ops that name themselves at run time: barriers and checks."""
        self.shared: dict[Any, int] = {}
        """Where allocations lie in the memory that a workgroup shares."""
        self.shared_bytes = 0
        self.private_bytes = 0
        self.uses_named = False
        entry = Block(arg_types=[ptr, index])
        self.b = EmuBuilder(self.module, entry)
        arguments = [a.type for a in kernel.body.blocks[0].args]
        self.places, self.context_bytes = argument_places(arguments, ARGUMENTS)
        """Of the arguments in the context, and its size."""
        self.base = self.b.value(mach.IntFromPtrOp(entry.args[0]))
        self.subgroup = entry.args[1]
        self._fields: dict[int, SSAValue] = {}
        self.operands: dict[Any, SSAValue] = {}
        """Where operands of products lie in memory, by block and value."""

    # Running ------------------------------------------------------------------------------------------------------

    def run(self) -> ModuleOp:
        from tilewright.targets.emu import control

        entry = self.b.entry
        region = Region(entry)
        control.bind_arguments(self)
        control.body(self, region)
        function = func.FuncOp("tw_subgroup", ([ptr, index], []), region)
        self.module.body.block.add_op(function)
        return self.module

    def block(self, block: Block) -> None:
        """All ops of a block but its terminator."""
        last = block.last_op
        for op in block.ops:
            if op is not last or op.name == "gpu.return":
                self.convert(op)

    def convert(self, op: Operation) -> None:
        self.op = op
        self.b.location = op.location
        handler = lowers.of(op.name)
        if handler is not None:
            handler(self, op)
        elif _is_converted(op):
            self.elementwise(op)
        else:
            hint = "run the kernel with --target reference, kernel.options(target='reference')"
            raise self.refuse("has no form for the emulator", hint)

    def refuse(self, why: str, hint: str | None = None) -> TilewrightError:
        return unsupported(self.op, f"{self.op.name}: {why}", hint=hint)

    def site(self) -> SSAValue:
        """The number by which the running program names the op at hand."""
        self.sites.append(self.op)
        return self.b.constant(i64, len(self.sites) - 1)

    def field(self, at: int) -> SSAValue:
        """A word of the context that does not change while a subgroup runs, read once, at the entry."""
        if at not in self._fields:
            pointer = mach.PtrAddOp(self.b.entry.args[0], self.b.constant(index, at))
            load = mach.LoadOp(pointer.result, index)
            self.b.entry.insert_ops_after([pointer, load], pointer.offset.owner)  # pyright: ignore
            self._fields[at] = load.result
        return self._fields[at]

    def shared_address(self, key: Any, size: int) -> Idx:
        """The address of the allocation `key` of memory that a workgroup shares."""
        if key not in self.shared:
            self.shared[key], step = self.shared_bytes, -(-max(size, 1) // 64) * 64
            self.shared_bytes += step
        return self.b.plus(self.field(SHARED), self.shared[key])

    # Values -------------------------------------------------------------------------------------------------------

    def widened(self, type: Attribute) -> VectorType[Any]:
        """The type of what lanes hold differently."""
        type = signless(type)
        return vec(element_of(type), *shape_of_type(type), self.lanes)

    def plain(self, value: SSAValue) -> v.Plain:
        found = self.env[value]
        assert isinstance(found, v.Uniform | v.Growing | v.Varying)
        return found

    def set(self, result: SSAValue, value: SSAValue | v.Value) -> None:
        """Enter a result: as it is, or as an SSA value whose type tells whether it has lanes."""
        if isinstance(value, SSAValue):
            wide = self.lanes > 1 and value.type == self.widened(result.type)
            value = v.Varying(value) if wide else v.Uniform(value)
        self.env[result] = value

    def is_uniform(self, value: SSAValue) -> bool:
        return isinstance(self.env[value], v.Uniform)

    def uniform(self, value: SSAValue | v.Plain, what: str = "an operand") -> SSAValue:
        """The value that all lanes agree on, which is checked when the program runs."""
        found = self.plain(value) if isinstance(value, SSAValue) else value
        if isinstance(found, v.Uniform):
            return found.value
        wide = self.wide_of(found)
        shape = shape_of_type(wide.type)
        if len(shape) != 1:
            raise self.refuse(f"{what} differs between lanes")
        first = self.b.extract(wide, 0)
        if self.mask is not None:  # the first lane that is here
            number = self.b.value(math.CountTrailingZerosOp(self._bits(self.mask)))
            at = self.b.cast(number, index)
            first = self.b.value(vector.ExtractOp(wide, [at], first.type))
        if isinstance(first.type, IndexType | IntegerType):
            same = self.b.cmp("eq", wide, first)
        else:
            same = self.b.value(arith.CmpfOp(*self.b.alike(wide, first), "ueq"))  # pyright: ignore
        self.demand_of_all(same, NOT_UNIFORM)
        return first

    def index(self, value: SSAValue | int, what: str = "an operand") -> Idx:
        """An index that all lanes agree on, a constant as a number."""
        if isinstance(value, int):
            return value
        found = self.env[value]
        if isinstance(found, v.Uniform) and (number := constant(found.value)) is not None:
            return number
        made = self.uniform(value, what)
        return self.b.cast(made, index)

    def as_index(self, value: v.Uniform) -> Idx:
        """A uniform number as an index, a constant one as a number."""
        number = constant(value.value)
        return self.b.cast(value.value, index) if number is None else number

    def indices(
        self, numbers: Sequence[int | SSAValue], what: str = "an offset"
    ) -> tuple[Idx, ...]:
        return tuple(self.index(n, what) for n in numbers)

    def wide(self, value: SSAValue) -> SSAValue:
        """The value of all lanes, with the lanes last; at subgroup level the value itself."""
        return self.wide_of(self.plain(value))

    def wide_of(self, found: v.Plain) -> SSAValue:
        b = self.b
        match found:
            case v.Varying():
                return found.value
            case v.Growing():
                kind = self.widened(found.type)
                if isinstance(found.base, int):
                    return b.dense(kind, [found.base + s for s in found.steps])
                base = b.cast(found.base, kind.element_type)
                return b.idx(b.plus(base, b.dense(kind, found.steps)))
            case v.Uniform():
                if self.lanes == 1:
                    return found.value
                return self._spread(found.value)

    def _spread(self, plain: SSAValue) -> SSAValue:
        kind, owner = self.widened(plain.type), plain.owner
        if not isinstance(plain.type, VectorType):
            return self.b.broadcast(plain, kind)
        held = owner.value if isinstance(owner, arith.ConstantOp) else None
        if isinstance(held, DenseIntOrFPElementsAttr) and held.is_splat():
            return self.b.constant(kind, held.get_values()[0])  # pyright: ignore
        return self.b.broadcast(self.b.shape(plain, *plain.type.get_shape(), 1), kind)

    def as_kind(self, value: SSAValue, kind: Kind) -> v.Value:
        """A plain value in the form that its kind has where control flow meets."""
        found = self.env[value]
        if not isinstance(found, v.Uniform | v.Growing | v.Varying) or self.lanes == 1:
            return found
        if kind is UNIFORM:
            return v.Uniform(self.uniform(found))
        if isinstance(kind, Ramp):
            if isinstance(found, v.Growing):
                return found
            first = self.b.extract(self.wide_of(found), 0)
            return v.Growing(self.b.cast(first, index), kind.steps, value.type)
        return v.Varying(self.wide_of(found))

    # Masks --------------------------------------------------------------------------------------------------------

    def all(self, mask: SSAValue) -> SSAValue:
        """i1: is every lane's bit set?"""
        return self.b.cmp("eq", bits := self._bits(mask), self.b.constant(bits.type, -1))

    def any(self, mask: SSAValue) -> SSAValue:
        """i1: is any lane's bit set?"""
        return self.b.cmp("ne", bits := self._bits(mask), self.b.constant(bits.type, 0))

    def _bits(self, mask: SSAValue) -> SSAValue:
        """An integer with a bit of each lane."""
        kind = vec(IntegerType(self.lanes), 1)
        return self.b.extract(self.b.value(vector.BitcastOp(mask, kind)), 0)

    def mask_and(self, other: SSAValue) -> SSAValue:
        """The lanes that stand here and in `other`."""
        return self.b.all_of([other] if self.mask is None else [self.mask, other])

    def demand(self, condition: SSAValue, code: int) -> None:
        """The subgroup stops with an error at this op unless `condition` (i1) holds."""
        number, code_ = self.site(), self.b.constant(i64, code)
        with self.b.when(self.b.negated(condition)):
            self.b.call("tw_emu_fail", [self.b.pointer(self.base), number, code_])

    def demand_of_all(self, fine: SSAValue, code: int) -> None:
        """The same of every lane that is here: of its own i1."""
        if self.mask is not None:
            fine = self.b.either(fine, self.b.negated(self.mask))
        self.demand(self.all(fine), code)

    def together(self) -> None:
        """What follows is done by all lanes of the subgroup."""
        if self.mask is not None:
            self.demand(self.all(self.mask), NOT_ALL_LANES)

    # Elementwise ops ----------------------------------------------------------------------------------------------

    def elementwise(self, op: Operation) -> None:
        """arith, math and index ops: the same op on vectors with one more dimension."""
        if self.once(op) or self._growing(op):
            return
        operands = [self.wide(x) for x in op.operands]
        if isinstance(op, arith.SelectOp):
            if self.is_uniform(op.cond) and not isinstance(op.cond.type, VectorType):
                operands[0] = self.uniform(op.cond)
            else:
                shape = shape_of_type(operands[1].type)
                operands[0] = self.b.broadcast(operands[0], vec(i1, *shape))
        if _divides(op):
            self._divide(op, *operands)
            return
        self._create(op, operands, [self.widened(r.type) for r in op.results])

    def once(self, op: Operation) -> bool:
        """The same op for all lanes together, where they agree on its operands. False where they do not."""
        found = [self.env[x] for x in op.operands]
        operands = [x.value for x in found if isinstance(x, v.Uniform)]
        if len(operands) < len(found):
            return False
        if _divides(op):
            self._divide(op, *operands)
        else:
            self._create(op, operands, [signless(r.type) for r in op.results])
        return True

    def _create(
        self, op: Operation, operands: Sequence[SSAValue], types: Sequence[Attribute]
    ) -> None:
        new = self.b.op(retyped(op, operands, types))
        for before, after in zip(op.results, new.results, strict=True):
            self.set(before, after)

    def _divide(self, op: Operation, x: SSAValue, y: SSAValue) -> None:
        """A division of integers that does not trap; by 0, a scalar of a lane that stands here is an error."""
        b = self.b
        if not isinstance(op.results[0].type, VectorType) and (fine := not_zero(b, op, y)):
            wide = isinstance(y.type, VectorType)
            (self.demand_of_all if wide else self.demand)(fine, BY_ZERO)

        def clone(x: SSAValue, y: SSAValue) -> SSAValue:
            return b.value(retyped(op, [x, y], [x.type]))

        self.set(op.results[0], divide(b, op, x, y, clone))

    def _growing(self, op: Operation) -> bool:
        """Arithmetic on ramps: on their bases, the steps are known (`uniformity`). False where it is none."""
        result = op.results[0]
        kind = self.kinds[result]
        values = [self.env[x] for x in op.operands]
        if len(op.results) != 1 or not any(isinstance(x, v.Growing) for x in values):
            return False
        if not isinstance(kind, Ramp) and kind is not UNIFORM:
            return False
        name = op.name.partition(".")[2].removesuffix("i")
        b = self.b
        first, *rest = (self._base(x) for x in values)
        if first is None or None in rest:
            return False
        base, make = first, {"add": b.plus, "sub": b.minus, "mul": b.times}.get(name)
        for other in rest:
            assert other is not None
            operands = [b.idx(first), b.idx(other)]
            base = make(first, other) if make else b.value(retyped(op, operands, [index]))
        if kind is UNIFORM:
            self.env[result] = v.Uniform(b.cast(b.idx(base), result.type))
        else:
            self.env[result] = v.Growing(base, kind.steps, result.type)
        return True

    def _base(self, value: v.Value) -> Idx | None:
        if isinstance(value, v.Growing):
            return value.base
        if isinstance(value, v.Uniform):
            return self.as_index(value)
        return None


def _is_converted(op: Operation) -> bool:
    """Is it the same op on vectors with one more dimension? Constants and index ops are, too."""
    if op.name == "arith.constant" or (op.name.startswith("index.") and op.name != "index.sizeof"):
        return True
    return is_elementwise(op)


def _divides(op: Operation) -> bool:
    """A division of integers traps where the divisor is 0, also in lanes that are not here."""
    return op.name in DIVISIONS
