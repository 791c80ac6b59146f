"""Programs of the grid that one workgroup runs one after the other: its number, and how many there are."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Operation
from xdsl.irdl import traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import Inferred, Int, Op, op_definition

CLUSTER = "stage.cluster"
"""Attribute of a kernel: workgroups of a cluster, neighbours along the x of the launch."""


def cluster_size(kernel: Operation) -> int:
    """Workgroups of a cluster."""
    found = kernel.attributes.get(CLUSTER)
    return found.value.data if isinstance(found, IntegerAttr) else 1


@op_definition
class WorkerOp(Op):
    """`%i, %n = stage.worker`: the number of this workgroup, and how many were launched.

    However many there are, together they run every program of the grid; this is what the kernel's loop over programs
    starts from and steps by.
    """

    name = "stage.worker"
    number = Inferred(IndexType)
    count = Inferred(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"


@op_definition
class ProgramsOp(Op):
    """`%n = stage.programs {axis = 0 : i64}`: programs along an axis of the user's grid."""

    name = "stage.programs"
    axis: Int = Int()
    result = Inferred(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def verify_(self) -> None:
        if not 0 <= self.axis <= 2:
            raise VerifyException(f"{self.name}: a grid has no axis {self.axis}")
