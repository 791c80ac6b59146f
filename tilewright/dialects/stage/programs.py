"""Programs of the grid: those that one workgroup runs one after the other, and those that a cluster of them shares."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, VectorType
from xdsl.ir import Operation
from xdsl.irdl import traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import ORDER, Acts
from tilewright.dialects.fields import Inferred, Int, Op, Operand, Result, op_definition

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


@op_definition
class RankOp(Op):
    """`%r = stage.rank`: the place of this workgroup in its cluster, 0 to the kernel's `stage.cluster` - 1."""

    name = "stage.rank"
    result = Inferred(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"


@op_definition
class ClusterSumOp(Op):
    """`%t = stage.cluster.sum %v : vector<64x64xf32> to vector<64x32xf32>`: the sum of what the workgroups of a cluster
    bring.

    Every workgroup of the cluster comes here equally often. The values are added in the order of the ranks, whatever
    workgroup comes first. The first ranks have each its part of the columns, as many of them as there are parts: rank 0
    all of the sum where the result is as wide as the value. What the others have is undefined.
    """

    name = "stage.cluster.sum"
    value: Operand[VectorType] = Operand(VectorType)
    result: Result[VectorType] = Result(VectorType)
    traits = traits_def(Acts(ORDER))
    assembly_format = "$value attr-dict `:` type($value) `to` type($result)"

    def verify_(self) -> None:
        whole, part = (v.type.get_shape() for v in (self.value, self.result))
        if whole[:-1] != part[:-1] or whole[-1] % part[-1]:
            raise VerifyException(f"{self.name}: {part} is no part of the columns of {whole}")
