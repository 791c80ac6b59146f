"""The execution level of a kernel: who runs its text, a workgroup, a subgroup or a lane.

A kernel says it with the attribute `tilewright.level`.  Foreign text does not, and the level is inferred:
a map that distributes over subgroups (`wg_map`, `sg_layout`) means that the text is the workgroup's; XeTile
without one is a subgroup's, as the RFC has it; so is XeGPU whose values have the shapes of their descriptors;
XeGPU on smaller, one-dimensional values is a lane's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import gcd, prod
from typing import Any, cast

from xdsl.dialects import func, gpu, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    StringAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, Region

from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.nesting import enclosing, ops_around
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu import RotateOp, ShuffleOp, SubgroupReduceOp
from tilewright.dialects.upstream.gpu.lanes import DEFAULT_LANES, LANES
from tilewright.passes.kernel import BLOCK, LEVEL, SUBGROUPS, integer, launches_by_kernel, level_of


def infer_level(function: Operation) -> str:
    """The level of a gpu.func or func.func whose attribute does not say it (`passes.kernel.level_of`)."""
    ops = list(function.walk())
    if any(_distributes(a) for op in ops for a in _attributes(op)):
        return "workgroup"
    if any(op.name.startswith("xetile.") for op in ops):
        return "subgroup"
    if any(_is_lane_op(op) for op in ops):
        return "lane"
    if any(op.name.startswith("linalg.") for op in ops):
        # No memref is a lane's: the workgroup computes it.
        return "workgroup" if not any(isinstance(op, gpu.ThreadIdOp) for op in ops) else "lane"
    return "subgroup" if any(op.name.startswith("xegpu.") for op in ops) else "lane"


def functions_of(module: Operation) -> list[gpu.FuncOp]:
    """The kernels of a module, and the func.func that are written like them: same body, same fields.

    A func.func that launches kernels is the host's; a function of several blocks is none that passes know.
    """
    return [
        cast(gpu.FuncOp, f)
        for f in module.walk()
        if (isinstance(f, gpu.FuncOp) or (isinstance(f, func.FuncOp) and _is_kernel_text(f)))
        and len(f.body.blocks) == 1
    ]


def _is_kernel_text(function: func.FuncOp) -> bool:
    host = ("gpu.launch", "gpu.launch_func", "func.call")
    return not any(op.name in host for op in function.walk())


RANGE = "sg_id_range"
"""On an scf.if of a workgroup's text: the run of subgroups that does its region, as `#xegpu.range`."""


def range_of(op: Operation) -> xegpu.RangeAttr | None:
    """The run of subgroups that does the region of an op; None where the op names none."""
    found = op.attributes.get(RANGE)
    return found if isinstance(found, xegpu.RangeAttr) else None


def region_of_run(op: scf.IfOp) -> Region:
    """What the run of subgroups does of an scf.if that names one.

    Raises UnsupportedError where the op gives values, or has the others do something.
    """
    if op.results or op.false_region.blocks:
        raise unsupported(
            op,
            f"{op.name} of some subgroups ({RANGE}) cannot return values or have an else",
            hint="store them in the branch, to memory that the others read",
        )
    return op.true_region


def run_around(op: Operation) -> xegpu.RangeAttr | None:
    """The run of subgroups that does an op of a workgroup's text; None where all do."""
    within = takewhile(lambda each: not isinstance(each, gpu.FuncOp | func.FuncOp), ops_around(op))
    return next((run for each in within if (run := range_of(each)) is not None), None)


def among(op: Operation, subgroups: int) -> int:
    """How many subgroups do an op of a workgroup's text that has so many: all, or the run that it stands in."""
    run = run_around(op)
    return subgroups if run is None else run.bounds[1] - run.bounds[0]


def subgroups_at(op: Operation) -> int | None:
    """How many subgroups do an op of a workgroup's text: those of the range that it stands in, else what the kernel
    says, else the subgroups that its maps distribute to; None where nothing says it."""
    if (run := run_around(op)) is not None:
        return run.bounds[1] - run.bounds[0]
    scope = enclosing(op, gpu.FuncOp, func.FuncOp)
    if scope is None:
        return None
    stated = scope.attributes.get(SUBGROUPS)
    if isinstance(stated, IntegerAttr):
        return stated.value.data
    return _distributed_to(scope)


def _distributed_to(scope: Operation) -> int | None:
    """The subgroups that the first map distributes to, outside of the regions that a few do."""
    for region in scope.regions:
        for op in (op for block in region.blocks for op in block.ops):
            for attribute in _attributes(op):
                if (grid := _grid(attribute)) is not None:
                    return prod(grid)
            if range_of(op) is None and (inside := _distributed_to(op)) is not None:
                return inside
    return None


def _grid(attribute: Attribute) -> tuple[int, ...] | None:
    """The grid of subgroups in an attribute or type."""
    own = getattr(attribute, "sg_layout", None)
    if isinstance(own, ArrayAttr):
        return ints(cast("ArrayAttr[IntAttr]", own))
    if isinstance(attribute, ParametrizedAttribute):
        return next((g for p in attribute.parameters if (g := _grid(p)) is not None), None)
    return None


def _attributes(op: Operation) -> list[Attribute]:
    types = [value.type for value in (*op.operands, *op.results)]
    return [*op.attributes.values(), *op.properties.values(), *types]


def _distributes(attribute: Attribute) -> bool:
    """Whether an attribute or type holds a map over subgroups."""
    text_names = ("xetile.wg_map", "xetile.xe_map")
    if attribute.name in text_names:
        return True
    if attribute.name == "xegpu.layout" and "sg_layout" in str(attribute):
        return True
    return isinstance(attribute, ParametrizedAttribute) and any(
        _distributes(parameter) for parameter in attribute.parameters
    )


def _is_lane_op(op: Operation) -> bool:
    """Whether a block load, store or dpas works on one lane's share: one-dimensional and smaller than its tile."""
    if op.name in ("xegpu.load", "xegpu.store", "xegpu.atomic_rmw"):
        return _is_lane_access(op)
    if op.name in ("gpu.lane_id", "gpu.shuffle"):
        return True
    if op.name == "xegpu.dpas":
        return all(_rank(value.type) == 1 for value in op.operands)
    if op.name not in ("xegpu.load_nd", "xegpu.store_nd"):
        return False
    value = op.results[0].type if op.results else op.operands[0].type
    descriptor = op.operands[0 if op.results else 1].type
    shape = getattr(descriptor, "get_shape", lambda: ())()
    return isinstance(value, VectorType) and (
        _rank(value) == 1 and (len(shape) == 2 or prod(value.get_shape()) < prod(shape))
    )


def _is_lane_access(op: Operation) -> bool:
    """Whether a gather or scatter has one lane's value, of a descriptor of all lanes or by its own offset."""
    assert isinstance(op, (xegpu.LoadGatherOp, xegpu.StoreScatterOp, xegpu.AtomicRMWOp))
    if op.tdesc is None:
        return op.lane_count == 1
    value = op.value.type
    return prod(value.get_shape() if isinstance(value, VectorType) else ()) < prod(
        op.tdesc.get_shape()
    )


def _rank(type_: Attribute) -> int:
    return type_.get_num_dims() if isinstance(type_, VectorType) else 0


MOST_THREADS = 1 << 16
"""Of a workgroup: far more than any GPU's 1024, and few enough that each may have a stack of its own."""


def threads_of_launch(block: Sequence[int], place: Any) -> int:
    """The threads of a workgroup of a launch; CompileError at `place` (an op or a location) where it has none, or too
    many.
    """
    threads = prod(block)
    if min(block) < 1 or threads > MOST_THREADS:
        extents = " x ".join(map(str, block))
        raise error_at(place, f"a workgroup of {extents} threads; it has 1 to {MOST_THREADS}")
    return threads


def subgroups_of_launch(kernel: Operation, level: str, threads: int) -> int:
    """How many subgroups a launch of `threads` threads has.

    XeTile and the older block form of XeGPU (offsets on create_nd_tdesc) are launched with one thread per
    subgroup, today's text with one per lane.
    """
    if level == "workgroup":
        return 1
    if level == "subgroup" and _counts_subgroups(kernel):
        return threads
    return -(-threads // lanes_of_launch(kernel, threads))


def lanes_of_launch(kernel: Operation, threads: int) -> int:
    """How many lanes a subgroup of a launch of `threads` threads has: what the text says, else DEFAULT_LANES, or as
    many as exchange values at once; fewer where these do not divide the threads and the text asks nothing about
    subgroups."""
    if LANES in kernel.attributes or threads % DEFAULT_LANES == 0 or _knows_subgroups(kernel):
        return integer(kernel, LANES, max([DEFAULT_LANES, *map(_together, kernel.walk())]))
    return gcd(threads, DEFAULT_LANES)


def _together(op: Operation) -> int:
    """How many lanes at least must be one subgroup where an op is done, such as a shuffle among 32."""
    match op:
        case ShuffleOp():
            return constant(op.width) or 0
        case RotateOp():
            return op.width
        case SubgroupReduceOp():
            return (op.cluster_size or 0) * (op.cluster_stride or 1)
        case _:
            return 0


_OF_SUBGROUPS = (
    *("xegpu.", "xetile.", "gpu.subgroup_", "gpu.num_subgroups", "gpu.lane_id"),
    *("gpu.shuffle", "gpu.rotate"),
)
"""What begins the names of ops whose meaning depends on who is in a subgroup."""


def _knows_subgroups(kernel: Operation) -> bool:
    """Also by a function that it may call."""
    table = kernel.parent_op()
    called = [
        op for op in (table.walk() if table is not None else ()) if isinstance(op, func.FuncOp)
    ]
    return any(
        op.name.startswith(_OF_SUBGROUPS) for each in (kernel, *called) for op in each.walk()
    )


def state_launch(kernel: gpu.FuncOp) -> None:
    """A program of subgroups or lanes without a number of subgroups gets it from its `known_block_size`, or from the
    launches in its module, where these are numbers and agree."""
    level = level_of(kernel)
    if level not in ("subgroup", "lane") or SUBGROUPS in kernel.attributes:
        return
    block = _launched_block(kernel)
    if block is None:
        return
    threads = threads_of_launch(block, kernel)
    subgroups = subgroups_of_launch(kernel, level, threads)
    if level == "lane":
        kernel.attributes[LANES] = IntegerAttr(lanes_of_launch(kernel, threads), i64)
    kernel.attributes[LEVEL] = StringAttr(level)
    kernel.attributes[SUBGROUPS] = IntegerAttr(subgroups, i64)
    kernel.attributes[BLOCK] = DenseArrayBase.from_list(i64, block)


def _launched_block(kernel: gpu.FuncOp) -> tuple[int, int, int] | None:
    stated = kernel.get_attr_or_prop("known_block_size")
    if isinstance(stated, DenseArrayBase) and len(stated) == 3:
        x, y, z = (int(n) for n in stated.get_values())
        return x, y, z
    table = kernel.parent_op()
    module = None if table is None else table.parent_op()
    if not isinstance(table, gpu.ModuleOp) or module is None:
        return None
    found = {
        (constant(op.blockSizeX), constant(op.blockSizeY), constant(op.blockSizeZ))
        for op in launches_by_kernel(module)[kernel]
    }
    x, y, z = found.pop() if len(found) == 1 else (None, None, None)
    return None if x is None or y is None or z is None else (x, y, z)


def _counts_subgroups(kernel: Operation) -> bool:
    ops = list(kernel.walk())
    old = (xegpu.UpdateNdOffsetOp, xegpu.CreateDescOp, xegpu.CompileHintOp)
    return any(
        op.name.startswith("xetile.")
        or isinstance(op, old)
        or (isinstance(op, xegpu.CreateNdDescOp) and op.has_offsets)
        for op in ops
    )
