"""Programs of the grid that one workgroup runs one after the other: its number, and how many there are."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, i64
from xdsl.ir import Operation
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

CLUSTER = "stage.cluster"
"""Attribute of a kernel: workgroups of a cluster, neighbours along the x of the launch."""


def cluster_size(kernel: Operation) -> int:
    """Workgroups of a cluster."""
    found = kernel.attributes.get(CLUSTER)
    return found.value.data if isinstance(found, IntegerAttr) else 1


@irdl_op_definition
class WorkerOp(IRDLOperation):
    """`%i, %n, %r = stage.worker`: the number of this workgroup's cluster, how many clusters were launched, its rank.

    A cluster is as many neighbouring workgroups as the kernel's attribute `stage.cluster` says (1 without it).
    However many there are, together they run every program of the grid; this is what the kernel's loop over programs
    starts from and steps by.
    """

    name = "stage.worker"
    number = result_def(IndexType)
    count = result_def(IndexType)
    rank = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType(), IndexType(), IndexType()])


@irdl_op_definition
class ProgramsOp(IRDLOperation):
    """`%n = stage.programs {axis = 0 : i64}`: programs along an axis of the user's grid."""

    name = "stage.programs"
    axis = prop_def(IntegerAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict"

    def __init__(self, axis: int):
        super().__init__(properties={"axis": IntegerAttr(axis, i64)}, result_types=[IndexType()])

    def verify_(self) -> None:
        if not 0 <= self.axis.value.data <= 2:
            raise VerifyException(f"{self.name}: a grid has no axis {self.axis.value.data}")
