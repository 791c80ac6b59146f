"""Workgroups that compute one program together: a cluster's neighbours, each with a part of a loop."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.irdl import VarConstraint, base, traits_def
from xdsl.traits import Pure

from tilewright.dialects.effects import ORDER, Acts
from tilewright.dialects.fields import Inferred, Op, Operand, op_definition


@op_definition
class RankOp(Op):
    """`%r = stage.rank`: the place of this workgroup in its cluster, 0 to the kernel's `stage.cluster` - 1."""

    name = "stage.rank"
    result = Inferred(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"


@op_definition
class ClusterSumOp(Op):
    """`%t = stage.cluster.sum %v : vector<64x64xf32>`: the sum of what the workgroups of a cluster bring.

    Every workgroup of the cluster comes here equally often. The values are added in the order of the ranks, whatever
    workgroup comes first. Rank 0 has the sum; what the others have is undefined.
    """

    name = "stage.cluster.sum"
    T: ClassVar = VarConstraint("T", base(VectorType))
    value: Operand = Operand(T)
    result = Inferred(T, "value")
    traits = traits_def(Acts(ORDER))
    assembly_format = "$value attr-dict `:` type($value)"
