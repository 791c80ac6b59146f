"""Workgroups that compute one program together: a cluster's neighbours, each with a part of a loop."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from tilewright.dialects.effects import ORDER, Acts


@irdl_op_definition
class RankOp(IRDLOperation):
    """`%r = stage.rank`: the place of this workgroup in its cluster, 0 to the kernel's `stage.cluster` - 1."""

    name = "stage.rank"
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


@irdl_op_definition
class ClusterSumOp(IRDLOperation):
    """`%t = stage.cluster.sum %v : vector<64x64xf32>`: the sum of what the workgroups of a cluster bring.

    Every workgroup of the cluster comes here equally often. The values are added in the order of the ranks, whatever
    workgroup comes first. Rank 0 has the sum; what the others have is undefined.
    """

    name = "stage.cluster.sum"
    T: ClassVar = VarConstraint("T", base(VectorType))
    value = operand_def(T)
    result = result_def(T)
    traits = traits_def(Acts(ORDER))
    assembly_format = "$value attr-dict `:` type($value)"

    def __init__(self, value: SSAValue):
        super().__init__(operands=[value], result_types=[value.type])
