"""xegpu-propagate-layout{kind=subgroup}: which subgroup owns what.

Part of :mod:`tilewright.passes.xegpu.propagate_layout`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from xdsl.dialects import gpu, vector
from xdsl.dialects.builtin import IntegerAttr, VectorType, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright import dtypes
from tilewright import layout as ly
from tilewright.diagnostics import (
    Note,
    TilewrightError,
    UnsupportedError,
    error_at,
    location_of,
    remark_at,
)
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import is_vector
from tilewright.dialects.upstream.vector import MultiReductionOp, ShapeCastOp, StepOp
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.layout import Distribution, LayoutError
from tilewright.layout.digits import row_strides
from tilewright.passes.carried import behind
from tilewright.passes.emit import Before, Behind
from tilewright.passes.kernel import SUBGROUPS, add_remarks
from tilewright.passes.level import among, run_around
from tilewright.passes.ownership import values_of
from tilewright.passes.vector_reductions import reductions_alike
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.cooperative import cooperative
from tilewright.passes.xegpu.layout_defaults import (
    bytes_of,
    choose_subgroups,
    distributed,
    most_of_a_row,
    product_layout,
    reduced_dims,
    wanted_whole,
)
from tilewright.passes.xegpu.layout_propagation import LayoutConstraint, LayoutPropagation
from tilewright.passes.xegpu.layout_relations import is_free, relations
from tilewright.passes.xegpu.wg_to_sg import stated_layouts
from tilewright.uarch.base import MatrixInstruction
from tilewright.uarch.xe import XeMachine


def propagate_subgroup(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Writes a layout to every vector of a workgroup's kernel."""
    _plain_loads(kernel)
    _plain_operands(kernel)
    reductions_alike(kernel)
    _steps_of_shapes(kernel)
    _duplicate_free(kernel)
    _sink_conversions(kernel)
    subgroups = _count(kernel, machine)
    kernel.attributes[SUBGROUPS] = IntegerAttr(subgroups, i64)
    state = LayoutPropagation(kernel)
    _fix(state, subgroups)
    state.run()
    _defaults(state, subgroups, machine)
    _once_only(state, subgroups)
    state.repair(subgroups)
    state.index_uses()
    state.slide()
    _write(state, subgroups)


def _plain_loads(kernel: Operation) -> None:
    """Loads that transpose, or load several tiles, in ops that distribute alone; lanes choose the form."""
    for op in list(kernel.walk()):
        if not isinstance(op, xegpu.LoadNdOp) or op.mixed_offsets is None:
            continue
        turned = op.transposes and op.transpose_bit_width is None and not op.packed
        count = op.tdesc.array_length
        if not turned and (count == 1 or len(own.shape_of(op.value)) != 3):
            continue
        at = Before(op)
        old = op.tdesc
        desc = op.tensor_desc
        if count > 1:
            made = desc.owner
            if not isinstance(made, xegpu.CreateNdDescOp):
                continue
            plain = TensorDescType(old.get_shape(), old.element_type, None, old.ownership)
            desc = at.add(retyped(made, made.operands, [plain], {}))
        tiles: list[SSAValue] = []
        for n in range(count):
            offsets = at.shifted(op.mixed_offsets, [n * old.get_shape()[-1]])
            kind = VectorType(old.element_type, list(old.get_shape()))
            value = at.add(xegpu.LoadNdOp(desc, kind, offsets, hints=hints_of(op)))
            tiles.append(at.transpose(value, op.transpose or ()) if turned else value)
        if count == 1:
            at.replace(tiles[0])
            continue
        kind = op.value.type
        whole = at.constant(kind, 0)
        for n, tile in enumerate(tiles):
            whole = at.add(vector.InsertOp(tile, whole, [n]))
        at.replace(whole)


def _plain_operands(kernel: Operation) -> None:
    """A right operand that is loaded packed is loaded plain: lanes pack it again."""
    for op in list(kernel.walk()):
        if not isinstance(op, xegpu.LoadNdOp) or not op.packed or op.mixed_offsets is None:
            continue
        uses = list(op.value.uses)
        if not all(isinstance(use.operation, xegpu.DpasOp) and use.index == 1 for use in uses):
            continue
        kind, at = VectorType(op.tdesc.element_type, list(op.tdesc.get_shape())), Before(op)
        plain = xegpu.LoadNdOp(op.tensor_desc, kind, op.mixed_offsets, hints=hints_of(op))
        at.replace(at.add(plain))


def _steps_of_shapes(kernel: Operation) -> None:
    """Indices 0, 1, .. in rows and columns are made from a step per dimension: nobody holds them all."""
    for op in list(kernel.walk()):
        if not isinstance(op, ShapeCastOp) or not isinstance(op.source.owner, StepOp):
            continue
        shape = own.shape_of(op.result)
        if sum(n > 1 for n in shape) < 2:
            continue
        at = Before(op)
        at.replace(at.linear([0] * len(shape), row_strides(shape), shape))


def _duplicate_free(kernel: Operation) -> None:
    """Every use of a value that costs nothing gets its own."""
    for op in list(kernel.walk()):
        if not is_free(op) or not is_vector(op.results[0]):
            continue
        uses = list(op.results[0].uses)
        for use in uses[1:]:
            use.operation.operands[use.index] = Behind(op).add(op.clone())


def _sink_conversions(kernel: Operation) -> None:
    """convert_layout in front of a reduction goes behind it, where there is less to move; a scalar, which
    everyone has, needs none."""
    for op in list(kernel.walk()):
        if not isinstance(op, xegpu.ConvertLayoutOp):
            continue
        if not is_vector(op.source):
            Rewriter.replace_op(op, [], [op.source])
            continue
        uses = list(op.result.uses)
        if len(uses) != 1 or not isinstance(reduction := uses[0].operation, MultiReductionOp):
            continue
        if uses[0].index != 0 or not is_vector(reduction.dest):
            continue
        target = own.from_attribute(op.target_layout)
        if own.layout_of(reduction.dest) is None and target is not None:
            own.set_layout(reduction.dest, ly.slice_(target, reduced_dims(reduction)))
        Rewriter.replace_op(op, [], [op.source])


def _count(kernel: gpu.FuncOp, machine: XeMachine) -> int:
    """The number of subgroups that the text states, or a choice."""
    stated_by = [(op, d.subgroups) for op, d in stated_layouts(kernel)]
    # Layouts in a branch that a run of subgroups takes distribute to those alone.
    found = [each for each in stated_by if run_around(each[0]) is None] or stated_by
    counts = Counter(n for _, n in found)
    if len(counts) > 1:
        raise _ambiguous(found, counts)
    if counts:
        return found[0][1]
    stated = kernel.attributes.get(SUBGROUPS)
    if isinstance(stated, IntegerAttr):
        return stated.value.data
    return choose_subgroups(kernel, machine)


def _ambiguous(found: Sequence[tuple[Operation, int]], counts: Counter[int]) -> TilewrightError:
    """Points at an op whose layout has the rarest number of subgroups, and at one that has the usual."""
    usual, rare = counts.most_common()[0][0], counts.most_common()[-1][0]
    odd, other = (next(op for op, n in found if n == number) for number in (rare, usual))
    listed = ", ".join(map(str, sorted(counts)))
    error = error_at(
        odd,
        f"layouts of the kernel distribute to different numbers of subgroups: {listed}; this one to {rare}",
        hint="a workgroup has one number of subgroups: the product of sg_layout is the same everywhere",
    )
    return error.with_note(Note(f"this one to {usual}", location_of(other)))


def _fix(state: LayoutPropagation, subgroups: int) -> None:
    """What the text says, and the operands that stores and unknown ops want."""
    for op in state.kernel.walk():
        for result in op.results:
            if not is_vector(result):
                continue
            d = own.layout_of(result)
            if d is not None and d.sg_layout is not None:
                _assign_stated(state, result, d)
        match op:
            case xegpu.StoreNdOp():
                _constrain_stated(state, op, 0, op.ownership)
            case xegpu.StoreMatrixOp() | xegpu.StoreScatterOp():
                _constrain_stated(state, op, 0, op.layout)
            case xegpu.ConvertLayoutOp():
                _constrain_stated(state, op, 0, op.input_layout)
            case xegpu.DpasOp():
                _fix_product(state, op)
            case _:
                if not _is_known(op):
                    _replicate(state, op, among(op, subgroups))


def _assign_stated(state: LayoutPropagation, value: SSAValue, d: Distribution) -> None:
    shape = own.shape_of(value)
    with suppress(LayoutError):
        d = own.completed(d, shape)
    if (fault := d.fault(shape)) is not None:
        op = value.owner
        assert isinstance(op, Operation)
        raise error_at(op, f"{own.attribute(d)} does not distribute {[*shape]}: {fault}")
    state.fix(value, d)


def _constrain_stated(state: LayoutPropagation, op: Operation, operand: int, text: object) -> None:
    d = own.from_attribute(text)  # pyright: ignore[reportArgumentType]
    if d is not None and d.sg_layout is not None and is_vector(op.operands[operand]):
        d = own.completed(d, own.shape_of(op.operands[operand]))
        state.constrain(LayoutConstraint(op, operand, d))


def _fix_product(state: LayoutPropagation, op: xegpu.DpasOp) -> None:
    """The result's map follows from those of A and B where only they are given."""
    a, b = (own.from_attribute(x) for x in (op.layout_a, op.layout_b))
    if a is not None and b is not None:
        a, b = (own.completed(d, own.shape_of(v)) for d, v in ((a, op.lhs), (b, op.rhs)))
    if op.layout_cd is not None or a is None or b is None:
        return
    if a.sg_layout is None or b.sg_layout is None or a.sg_data is None or b.sg_data is None:
        return
    c = replace(
        a, sg_data=(a.sg_data[0], b.sg_data[1]), inst_data=None, lane_data=None, lane_layout=None
    )
    state.fix(op.result, c)


def _is_known(op: Operation) -> bool:
    """Whether the distribution knows the op under more than one layout."""
    vectors = [v for v in (*op.operands, *op.results) if is_vector(v)]
    if not vectors or is_free(op) or op.name.startswith(("scf.", "xegpu.", "arith.", "math.")):
        return True
    return any(True for _ in relations(op)) or isinstance(
        op, (vector.BroadcastOp, MultiReductionOp)
    )


def _replicate(state: LayoutPropagation, op: Operation, subgroups: int) -> None:
    """Every subgroup does the whole of an op that nothing is known about."""
    for n, operand in enumerate(op.operands):
        if is_vector(operand):
            shape = own.shape_of(operand)
            state.constrain(LayoutConstraint(op, n, own.replicated(subgroups, len(shape), shape)))
    for result in op.results:
        if is_vector(result):
            shape = own.shape_of(result)
            state.fix(result, own.replicated(subgroups, len(shape), shape))


# --- Defaults --------------------------------------------------------------------------------


def _defaults(state: LayoutPropagation, subgroups: int, machine: XeMachine) -> None:
    """Products first, then what is reduced, then the largest value; each is propagated before the next."""
    values = _open_values(state)
    products = [v for v in values if isinstance(v.owner, xegpu.DpasOp)]
    for value in sorted(products, key=_rank(state)):
        op = value.owner
        assert isinstance(op, xegpu.DpasOp)
        d = product_layout(
            own.shape_of(value), among(op, subgroups), instruction_of(op, machine), wanted_whole(op)
        )
        if state.assign(value, d):
            state.run()
    reductions = [op for op in state.kernel.walk() if isinstance(op, MultiReductionOp)]
    for op in sorted(reductions, key=lambda op: _rank(state)(op.source)):
        most = most_of_a_row(op.source, state.kernel, machine)
        d = distributed(own.shape_of(op.source), among(op, subgroups), reduced_dims(op), most)
        if state.assign(op.source, d):
            state.run()
    for value in sorted(_open_values(state), key=_rank(state)):
        op = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
        assert op is not None
        if state.assign(value, distributed(own.shape_of(value), among(op, subgroups))):
            state.run()


def _once_only(state: LayoutPropagation, subgroups: int) -> None:
    """Old values that several subgroups would need: the atomic is distributed, where that is possible."""
    for op in state.kernel.walk():
        if not isinstance(op, xegpu.AtomicRMWOp) or not is_vector(op.result):
            continue
        shape, kind = own.shape_of(op.result), op.result.type
        assert isinstance(kind, VectorType)
        d = state.layouts[op.result]
        if op.result in state.fixed or op.result.first_use is None or own.replicas(d, shape) == 1:
            continue
        state.layouts[op.result] = cooperative(shape, kind.element_type, among(op, subgroups))


def _rank(state: LayoutPropagation):
    def rank(value: SSAValue) -> tuple[int, int]:
        op = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
        kind = value.type
        assert isinstance(kind, VectorType) and op is not None
        return -state.depth(op), -bytes_of(own.shape_of(value), kind)

    return rank


def _open_values(state: LayoutPropagation) -> list[SSAValue]:
    """Vectors without a layout."""
    roots = dict.fromkeys(state.find(v) for v in values_of(state.kernel) if is_vector(v))
    return [root for root in roots if root not in state.layouts]


def instruction_of(op: xegpu.DpasOp, machine: XeMachine) -> MatrixInstruction | None:
    """The machine's instruction for the types of a product; None where it has none."""
    types = [v.type for v in (op.lhs, op.rhs, op.result)]
    names: list[str] = []
    for type in types:
        name = dtypes.from_mlir(type.element_type).name
        names.append(name)
    try:
        return machine.instruction(*names)
    except UnsupportedError:
        return None


# --- Writing ---------------------------------------------------------------------------------


def _write(state: LayoutPropagation, subgroups: int) -> None:
    """Conversions where needed, and every layout in the text."""
    kernel = state.kernel
    _convert(state)
    for value, d in state.layouts.items():
        own.set_layout(value, d)
    for op in kernel.walk():
        match op:
            case xegpu.StoreNdOp() | xegpu.StoreMatrixOp() | xegpu.StoreScatterOp():
                d = own.from_attribute(op.properties.get("layout"))
                if isinstance(op, xegpu.StoreNdOp) and d is None:
                    d = own.from_attribute(op.ownership)
                if d is not None and is_vector(op.operands[0]):
                    d = own.completed(d, own.shape_of(op.operands[0]))
                if (d is None or d.sg_layout is None) and is_vector(op.operands[0]):
                    d = state.layouts[state.find(op.operands[0])]
                if d is not None:
                    op.properties["layout"] = own.attribute(d)
            case xegpu.PrefetchNdOp():
                stated = own.from_attribute(op.ownership)
                share = among(op, subgroups)
                d = cooperative(op.tdesc.get_shape(), op.tdesc.element_type, share, stated)
                op.properties["layout"] = own.attribute(d)
            case xegpu.ConvertLayoutOp():
                d = state.layouts[state.find(op.source)]
                op.properties["input_layout"] = own.attribute(d)
            case xegpu.DpasOp():
                for name, value in (("layout_a", op.lhs), ("layout_b", op.rhs)):
                    op.properties[name] = own.attribute(state.layouts[state.find(value)])
            case _:
                pass


def _convert(state: LayoutPropagation) -> None:
    """One convert_layout per value and wanted layout, behind the value."""
    made: dict[tuple[SSAValue, Distribution], SSAValue] = {}
    remarks: list[str] = []
    for need in state.needs():
        value = need.value
        if state.satisfied(value, need.layout):
            continue
        owner = value.owner
        if isinstance(owner, Operation) and is_free(owner) and value not in state.fixed:
            state.layouts[value] = need.layout
            continue
        key = (value, need.layout)
        if key not in made:
            have = state.layouts[state.find(value)]
            new = xegpu.ConvertLayoutOp(value, own.attribute(need.layout), own.attribute(have))
            if value.name_hint is not None:
                new.result.name_hint = value.name_hint
            new.location = owner.location if isinstance(owner, Operation) else need.op.location
            Rewriter.insert_op(new, behind(value))
            made[key] = new.result
            state.adopt(new.result, need.layout)
            remarks.append(_remark(value, need, have))
        need.op.operands[need.operand] = made[key]
    add_remarks(state.kernel, remarks)


def _remark(value: SSAValue, need: LayoutConstraint, have: Distribution) -> str:
    """Both maps, and what settles their difference."""
    text = (
        f"{need.op.name} needs {own.attribute(need.layout)}, its operand {need.operand} is owned as "
        f"{own.attribute(have)}: a convert_layout of {value.type} resolves it"
    )
    return remark_at(need.op, text)
