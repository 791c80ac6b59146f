"""The execution level of a kernel: who runs its text, a workgroup, a subgroup or a lane.

A kernel says it with the attribute `tilewright.level`.  Foreign text does not, and the level is inferred:
a map that distributes over subgroups (`wg_map`, `sg_layout`) means that the text is the workgroup's; XeTile
without one is a subgroup's, as the RFC has it; so is XeGPU whose values have the shapes of their descriptors;
XeGPU on smaller, one-dimensional values is a lane's.
"""

from __future__ import annotations

from math import prod
from typing import cast

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import StringAttr, VectorType
from xdsl.ir import Attribute, Operation, ParametrizedAttribute

from tilewright.dialects import xegpu

LEVEL = "tilewright.level"
"""The attribute's name; its value is one of `LEVELS`."""
LEVELS = ("workgroup", "subgroup", "lane")


def infer_level(function: Operation) -> str:
    """The level of a gpu.func or func.func: its attribute, or what its ops say."""
    stated = function.attributes.get(LEVEL)
    if isinstance(stated, StringAttr):
        return stated.data
    ops = list(function.walk())
    if any(_distributes(a) for op in ops for a in _attributes(op)):
        return "workgroup"
    if any(op.name.startswith("xetile.") for op in ops):
        return "subgroup"
    if any(_is_lane_op(op) for op in ops):
        return "lane"
    return "subgroup" if any(op.name.startswith("xegpu.") for op in ops) else "lane"


def functions_at(module: Operation, level: str) -> list[gpu.FuncOp]:
    """The kernels of a level, and the func.func that tests of passes are written as: same body, same fields.

    A func.func that launches kernels is the host's.
    """
    functions = [
        f
        for f in module.walk()
        if isinstance(f, gpu.FuncOp) or (isinstance(f, func.FuncOp) and _is_kernel_text(f))
    ]
    return [cast(gpu.FuncOp, f) for f in functions if infer_level(f) == level]


def _is_kernel_text(function: func.FuncOp) -> bool:
    ops = list(function.walk())
    return any(op.name.startswith("xegpu.") for op in ops) and not any(
        op.name in ("gpu.launch", "gpu.launch_func", "func.call") for op in ops
    )


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
    return _rank(value) == 1 and len(shape) == 2


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


BLOCK = "tilewright.block"
"""Attribute of a kernel below workgroup level: `array<i64: x, y, z>`, the threads of its launch."""
LANES = 16
"""Lanes of a subgroup of a launch that does not say: that of PVC and BMG."""


def subgroups_of_launch(kernel: Operation, level: str, threads: int) -> int:
    """How many subgroups a launch of `threads` threads has.

    XeTile and the older block form of XeGPU (offsets on create_nd_tdesc) are launched with one thread per
    subgroup, today's text with one per lane.
    """
    if level == "workgroup":
        return 1
    if level == "subgroup" and _counts_subgroups(kernel):
        return threads
    return -(-threads // LANES)


def _counts_subgroups(kernel: Operation) -> bool:
    ops = list(kernel.walk())
    old = (xegpu.UpdateNdOffsetOp, xegpu.CreateDescOp, xegpu.CompileHintOp)
    return any(
        op.name.startswith("xetile.")
        or isinstance(op, old)
        or (isinstance(op, xegpu.CreateNdDescOp) and op.has_offsets)
        for op in ops
    )
