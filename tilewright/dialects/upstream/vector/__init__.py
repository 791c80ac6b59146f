"""vector: the ops and rules that stock xDSL lacks, and the format of `vector.print`."""

# pyright: reportUnusedImport=false
from xdsl.dialects import vector
from xdsl.dialects.vector import Vector
from xdsl.traits import Pure

from tilewright.dialects.fields import dialect
from tilewright.dialects.upstream.complete import (
    add_attributes,
    add_effect,
    add_listed_property,
    add_ops,
)
from tilewright.dialects.upstream.memref import ALIGNMENT
from tilewright.dialects.upstream.vector import rules
from tilewright.dialects.upstream.vector.compute import (
    ContractionOp,
    IteratorTypeAttr,
    MultiReductionOp,
)
from tilewright.dialects.upstream.vector.masking import MaskOp, YieldOp
from tilewright.dialects.upstream.vector.memory import (
    CompressStoreOp,
    ExpandLoadOp,
    GatherOp,
    PunctuationAttr,
    ScatterOp,
    TypeCastOp,
    complete_print,
)
from tilewright.dialects.upstream.vector.products import OuterProductOp, ScanOp
from tilewright.dialects.upstream.vector.shapes import (
    ConstantMaskOp,
    DeinterleaveOp,
    FromElementsOp,
    InterleaveOp,
    ShapeCastOp,
    StepOp,
    ToElementsOp,
    TransposeOp,
)
from tilewright.dialects.upstream.vector.slices import ExtractStridedSliceOp, InsertStridedSliceOp


def complete() -> None:
    complete_print()
    rules.complete()
    add_effect(Pure(), vector.BitcastOp, vector.CreateMaskOp, vector.ReductionOp)
    add_ops(Vector, dialect("vector", globals()).operations)
    add_attributes(Vector, (IteratorTypeAttr, PunctuationAttr))
    for access in (
        *(vector.LoadOp, vector.StoreOp, vector.MaskedLoadOp, vector.MaskedStoreOp),
        *(GatherOp, ScatterOp, ExpandLoadOp, CompressStoreOp),
    ):
        add_listed_property(access, "alignment", ALIGNMENT)
