"""Sizes that a workgroup cannot have on a CPU are refused where the program names them.

A pass over a tile visits every element of it, whatever array lies under it; a workgroup's memory stays with its
thread.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType, ModuleOp, VectorType
from xdsl.ir import Operation

from tilewright.codegen.tiles import itemsize
from tilewright.diagnostics import unsupported
from tilewright.uarch import Machine


def check_sizes(module: ModuleOp, machine: Machine) -> None:
    """UnsupportedError at the first tile with too many elements, or allocation with too many bytes."""
    for op in module.walk():
        for value in (*op.results, *op.operands):
            if isinstance(value.type, VectorType):
                shape = value.type.get_shape()
                name = f"a tile of {' x '.join(map(str, shape))}"
                _require(op, machine, name, "tile_elements", prod(shape))
        if isinstance(op, memref.AllocOp | memref.AllocaOp):
            type = op.memref.type
            if isinstance(type, MemRefType) and type.has_static_shape():
                check_memory(op, machine, prod(type.get_shape()) * itemsize(type.element_type))


def check_memory(op: Operation, machine: Machine, number: int) -> None:
    """UnsupportedError where a workgroup would need so many bytes."""
    _require(op, machine, op.name, "workgroup_bytes", number)


def _require(op: Operation, machine: Machine, name: str, limit: str, number: int) -> None:
    fault = machine.fault(name, limit, number)
    if fault is not None:
        hint = "cover the array by more workgroups of smaller tiles"
        rule = machine.limits[limit].source
        raise unsupported(op, fault, hint=hint, rule=rule)
