"""gpu: ids and sizes, `gpu.block_id x`, `gpu.subgroup_id : index`; new ops: those of clusters."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.irdl import IRDLOperation, base, traits_def
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import spelled
from tilewright.dialects.fields import Inferred, Op, Prop, op_definition
from tilewright.dialects.upstream.complete import (
    OpClass,
    add_ops,
    add_optional_property,
    set_format,
)


class _OfClusters(Op):
    dimension: Prop[gpu.DimensionAttr] = Prop(gpu.DimensionAttr)
    result = Inferred(IndexType)
    traits = traits_def(Pure())


@op_definition
class ClusterIdOp(_OfClusters):
    """`gpu.cluster_id x`: which cluster of the grid the workgroup is in."""

    name = "gpu.cluster_id"


@op_definition
class ClusterDimOp(_OfClusters):
    """`gpu.cluster_dim x`: how many clusters the grid has."""

    name = "gpu.cluster_dim"


@op_definition
class ClusterDimBlocksOp(_OfClusters):
    """`gpu.cluster_dim_blocks x`: how many workgroups a cluster has."""

    name = "gpu.cluster_dim_blocks"


@op_definition
class ClusterBlockIdOp(_OfClusters):
    """`gpu.cluster_block_id x`: which workgroup of its cluster it is."""

    name = "gpu.cluster_block_id"


CLUSTERS = (ClusterIdOp, ClusterDimOp, ClusterDimBlocksOp, ClusterBlockIdOp)


def _upper_bound(parser: Parser) -> IntegerAttr | None:
    if parser.parse_optional_keyword("upper_bound") is None:
        return None
    value = parser.parse_integer(allow_boolean=False)
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return IntegerAttr(value, IndexType())


_BOUND = spelled("Bound", _upper_bound, lambda held: f"upper_bound {held.value.data}")


@irdl_custom_directive
class Typed(CustomDirective):
    """MLIR prints the type of every op of this family but lane_id; it may be left out."""

    def parse(self, parser: Parser, state: ParsingState) -> None:
        if parser.parse_optional_punctuation(":") is not None:
            parser.parse_type()

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if not isinstance(op, gpu.LaneIdOp):
            printer.print_string(" : index")


_ALONG = (
    gpu.BlockIdOp, gpu.BlockDimOp, gpu.GridDimOp, gpu.ThreadIdOp, gpu.GlobalIdOp, *CLUSTERS
)  # fmt: skip
_WHOLE = (gpu.LaneIdOp, gpu.SubgroupIdOp, gpu.NumSubgroupsOp, gpu.SubgroupSizeOp)
_FORMATS: dict[tuple[OpClass, ...], str] = {
    _ALONG: "$dimension custom<Bound>($upper_bound) attr-dict",
    _WHOLE: "custom<Bound>($upper_bound) attr-dict custom<Typed>()",
}


def complete() -> None:
    for ops, text in _FORMATS.items():
        for op in ops:
            add_optional_property(op, "upper_bound", base(IntegerAttr))
            set_format(text, op, using=(_BOUND, Typed))
    add_ops(gpu.GPU, CLUSTERS)
