"""Ops of linalg that are several structured ops, and ops of tensors that stock xDSL lacks; `bufferize` writes them out.

    linalg.softmax dimension(1) ins(%x : tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
    linalg.pack %x padding_value(%p : f32) inner_dims_pos = [0] inner_tiles = [8] into %e
        : tensor<13xf32> -> tensor<2x8xf32>
    tensor.generate %n { ^bb0(%i: index): .. tensor.yield %v : f32 } : tensor<?xf32>

`tensor.pack` and `tensor.unpack` are what older texts call the ops of linalg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from xdsl.dialects import tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    ShapedType,
    TensorType,
    i32,
    i64,
)
from xdsl.dialects.utils.dynamic_index_list import DynamicIndexList
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, traits_def
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import numbered_word
from tilewright.dialects.fields import (
    Body,
    Flag,
    Inferred,
    Int,
    Ints,
    Op,
    Operand,
    Operands,
    OptInts,
    OptOperand,
    Result,
    Results,
    op_definition,
)
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.complete import OpClass
from tilewright.dialects.upstream.subview import ParallelInsertSliceOp


def _shape(value: SSAValue) -> Sequence[int]:
    assert isinstance(value.type, ShapedType)
    return value.type.get_shape()


def _verify_softmax(op: SoftmaxOp) -> None:
    rank = len(_shape(op.input))
    if not 0 <= op.dimension < rank:
        raise VerifyException(f"expected a dimension from 0 to {rank - 1}")
    if _shape(op.output) != _shape(op.input):
        raise VerifyException("expected the shape of the input")
    if op.res and [op.output.type] != [*op.result_types]:
        raise VerifyException(f"expected a result of type {op.output.type}")


@op_definition
class SoftmaxOp(Op):
    """exp(x - max) / sum of these along a dimension."""

    name = "linalg.softmax"
    input: Operand = Operand()
    output: Operand = Operand()
    dimension: Int = Int(IntegerAttr.constr(i64))
    res: Results[TensorType] = Results(TensorType)
    assembly_format = (
        "attr-dict `dimension` `` `(` $dimension `)` `ins` `(` $input `:` type($input) `)` "
        "`outs` `(` $output `:` type($output) `)` (`->` type($res)^)?"
    )
    CHECK = _verify_softmax


@irdl_custom_directive
class Into(CustomDirective):
    """The type of what is written; a tensor is also the type of the result."""

    dest: TypeDirective
    results: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        kind = parser.parse_type()
        self.dest.set(state, [kind])
        self.results.set(state, [kind] if isinstance(kind, TensorType) else [])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.dest.print(printer, state, op)


def _verify_packing(op: Packing) -> None:
    packs = op.name.endswith(".pack")
    plain, packed = (_shape(v) for v in (op.source, op.dest)[:: 1 if packs else -1])
    rank, dims, sizes = len(plain), op.inner_dims_pos, op.static_inner_tiles
    if len({*dims} & {*range(rank)}) != len(dims) or len(sizes) != len(dims):
        raise VerifyException(f"expected different inner_dims_pos from 0 to {rank - 1}")
    if len(packed) != rank + len(dims) or sorted(op.outer(rank)) != [*range(rank)]:
        raise VerifyException(f"expected outer_dims_perm of {rank} and {len(dims)} dimensions")
    if [*packed[rank:]] != [*sizes]:
        raise VerifyException(f"expected tiles of {[*sizes]}, got {[*packed[rank:]]}")
    for place, d in enumerate(op.outer(rank)):
        size = op.tiles().get(d, 1)
        if DYNAMIC_INDEX in (size, plain[d]):
            continue
        if packs and op.padding_value is None and plain[d] % size:
            raise VerifyException(
                f"expected a padding_value: dimension {d} has {plain[d]} elements, not whole tiles of {size}"
            )
        if packed[place] not in (DYNAMIC_INDEX, -(-plain[d] // size)):
            raise VerifyException(f"expected {-(-plain[d] // size)} tiles along dimension {d}")


class Packing(Op):
    """Tiles of a matrix one behind the other, or the matrix of such tiles."""

    source: Operand = Operand()
    dest: Operand = Operand()
    padding_value: OptOperand = OptOperand()
    inner_tiles: Operands[IndexType] = Operands(IndexType)
    inner_dims_pos: Ints = Ints()
    static_inner_tiles: Ints = Ints()
    res: Results[TensorType] = Results(TensorType)
    outer_dims_perm: OptInts = OptInts()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format: ClassVar = (
        "$source (`padding_value` `(` $padding_value^ `:` type($padding_value) `)`)? "
        "(`outer_dims_perm` `=` $outer_dims_perm^)? `inner_dims_pos` `=` $inner_dims_pos "
        "`inner_tiles` `=` custom<DynamicIndexList>($inner_tiles, $static_inner_tiles) "
        "`into` $dest attr-dict `:` type($source) `->` custom<Into>(type($dest), type($res))"
    )
    custom_directives = (DynamicIndexList, Into)

    def tiles(self) -> dict[int, int]:
        """Extent of the tile by dimension of the matrix; `DYNAMIC_INDEX` where a value says it."""
        pairs = zip(self.inner_dims_pos, self.static_inner_tiles, strict=True)
        return dict(pairs)

    def outer(self, rank: int) -> Sequence[int]:
        """The dimension of the matrix that each outer dimension of the tiles goes along."""
        given = self.outer_dims_perm
        return range(rank) if given is None else given

    CHECK = _verify_packing


@op_definition
class PackOp(Packing):
    name = "linalg.pack"


@op_definition
class UnPackOp(Packing):
    name = "linalg.unpack"

    @classmethod
    def create(
        cls, *, operands: Sequence[SSAValue] = (), properties: Mapping[str, Attribute] = {}, **rest: Any
    ) -> Any:  # fmt: skip
        """MLIR's has no padding, and so no groups of operands to tell apart."""
        sizes = DenseArrayBase.from_list(i32, [1, 1, 0, max(0, len(operands) - 2)])
        held = {AttrSizedOperandSegments.attribute_name: sizes, **properties}
        return super().create(operands=operands, properties=held, **rest)


@op_definition
class TensorPackOp(Packing):
    name = "tensor.pack"


@op_definition
class TensorUnPackOp(Packing):
    name = "tensor.unpack"


WINOGRAD = {"F_2_3": (2, 3), "F_4_3": (4, 3), "F_2_5": (2, 5)}
"""Elements of a tile of results, and of a filter, along a dimension."""


class Winograd(Op):
    """`linalg.winograd_filter_transform fmr(F_2_3) ins(%x : ..) outs(%y : ..) -> ..`: what a convolution by Winograd's
    algorithm multiplies, or its sums of tiles. A dimension along which a filter has one element is left as it is.

    Image NHWC, filter FHWC; transformed, (h, w, C, F) of filters and (h, w, tiles, tiles, N, C) of images and results.
    """

    source: Operand[TensorType] = Operand(TensorType)
    dest: Operand[TensorType] = Operand(TensorType)
    fmr: Int = Int(IntegerAttr.constr(i32), lambda value: IntegerAttr(value, 32))
    res: Result[TensorType] = Result(TensorType)
    assembly_format = (
        "`fmr` `(` custom<Fmr>($fmr) `)` attr-dict `ins` `(` $source `:` type($source) `)` "
        "`outs` `(` $dest `:` type($dest) `)` `->` type($res)"
    )
    custom_directives = (numbered_word("Fmr", tuple(WINOGRAD), "tiles and filter", 32),)

    def verify_(self) -> None:
        source, made = _shape(self.source), _shape(self.dest)
        if self.res.type != self.dest.type or not 0 <= self.fmr < len(WINOGRAD):
            raise VerifyException("expected the result to be of the type that it is written to")
        ranks = {"filter": (4, 4), "input": (4, 6), "output": (6, 4)}[self.what]
        if (len(source), len(made)) != ranks:
            raise VerifyException(f"expected ranks {ranks[0]} and {ranks[1]}")
        kind = self.source.type.element_type
        if not isinstance(kind, AnyFloat) or kind != self.dest.type.element_type:
            raise VerifyException("expected floats of one type")
        wide = sum(self.tile) - 1
        for d in (0, 1):
            for shape, at, sizes in self.extents(d):
                if shape[at] not in (DYNAMIC_INDEX, *sizes):
                    raise VerifyException(
                        f"expected {' or '.join(map(str, sizes))} elements along dimension {at}, got {shape[at]}"
                    )
            if self.what == "filter" and (source[1 + d] == 1) != (made[d] == 1):
                raise VerifyException(f"a filter of one element has one, others {wide}")
        if 1 == self.digits[0] == self.digits[1]:
            raise VerifyException("expected a filter of several elements along a dimension")
        fits = zip(*self.alike(), strict=True)
        if any(DYNAMIC_INDEX not in (a, b) and a != b for a, b in fits):
            raise VerifyException("expected the shape that the source's makes")

    @property
    def what(self) -> str:
        """filter, input or output."""
        return self.name.split("_")[1]

    @property
    def tile(self) -> tuple[int, int]:
        """Elements of a tile of results, and of a filter, where it has several."""
        return list(WINOGRAD.values())[self.fmr]

    @property
    def digits(self) -> Sequence[int]:
        """Elements of a transformed tile along both dimensions."""
        return _shape(self.source if self.what == "output" else self.dest)[:2]

    def extents(self, d: int) -> Sequence[tuple[Sequence[int], int, Sequence[int]]]:
        """Shapes, a dimension, and what it may have."""
        wide = sum(self.tile) - 1
        source, made = _shape(self.source), _shape(self.dest)
        transformed = source if self.what == "output" else made
        found: list[tuple[Sequence[int], int, Sequence[int]]] = [(transformed, d, (1, wide))]
        if self.what == "filter":
            return [*found, (source, 1 + d, (1, self.tile[1]))]
        plain = made if self.what == "output" else source
        tiles, (m, r) = transformed[2 + d], self.tile
        if tiles != DYNAMIC_INDEX:
            more = r - 1 if self.what == "input" else 0
            found.append((plain, 1 + d, (tiles if transformed[d] == 1 else tiles * m + more,)))
        return found

    def alike(self) -> tuple[Sequence[int], Sequence[int]]:
        """Extents that both sides have."""
        source, made = _shape(self.source), _shape(self.dest)
        if self.what == "filter":
            return (source[3], source[0]), made[2:]
        plain, transformed = (source, made) if self.what == "input" else (made, source)
        return (plain[0], plain[3]), transformed[4:]


@op_definition
class FilterTransformOp(Winograd):
    name = "linalg.winograd_filter_transform"


@op_definition
class InputTransformOp(Winograd):
    name = "linalg.winograd_input_transform"


@op_definition
class OutputTransformOp(Winograd):
    name = "linalg.winograd_output_transform"


@op_definition
class GenerateOp(Op):
    """Each element is what a region makes of its indices."""

    name = "tensor.generate"
    extents: Operands[IndexType] = Operands(IndexType)
    result: Result[TensorType] = Result(TensorType)
    body: Body = Body()
    assembly_format = "$extents $body attr-dict `:` type($result)"

    def verify_(self) -> None:
        if [*terminator(self.body.block).operand_types] != [self.result.type.element_type]:
            raise VerifyException(f"expected the body to yield {self.result.type.element_type}")


def _verify_places(
    whole: SSAValue, slices: SSAValue, indices: SSAValue, dims: Sequence[int]
) -> None:
    """Slices of a tensor at places that another tensor has: the last dimension of `indices` counts off `dims`."""
    extents, given = _shape(whole), _shape(indices)
    if not dims or sorted({*dims}) != [*dims] or not 0 <= dims[0] <= dims[-1] < len(extents):
        raise VerifyException(
            f"expected different dimensions from 0 to {len(extents) - 1}, in their order, got {[*dims]}"
        )
    if not given or given[-1] != len(dims):
        raise VerifyException(f"expected indices whose last dimension has {len(dims)} elements")
    kept = [n for d, n in enumerate(extents) if d not in dims]
    ones = [1 if d in dims else n for d, n in enumerate(extents)]
    made = list(_shape(slices))
    if made not in ([*given[:-1], *kept], [*given[:-1], *ones]):
        raise VerifyException(f"expected slices of shape {[*given[:-1], *kept]}, got {made}")
    if slices.type.element_type != whole.type.element_type:  # pyright: ignore
        raise VerifyException("expected slices of the tensor's elements")


@op_definition
class GatherOp(Op):
    """`%r = tensor.gather %x[%i] gather_dims([0, 2]) : (tensor<3x4x5xf32>, tensor<6x2xi32>) -> tensor<6x4xf32>`, or
    `-> tensor<6x1x4x1xf32>`: r[n, .., c] = x[i[n, 0], c, i[n, 1]].
    """

    name = "tensor.gather"
    source: Operand[TensorType] = Operand(TensorType)
    indices: Operand[TensorType] = Operand(TensorType)
    gather_dims: Ints = Ints()
    result: Result[TensorType] = Result(TensorType)
    unique: Flag = Flag()
    traits = traits_def(Pure())
    assembly_format = (
        "$source `[` $indices `]` `gather_dims` `(` $gather_dims `)` (`unique` $unique^)? attr-dict "
        "`:` functional-type(operands, results)"
    )

    def verify_(self) -> None:
        _verify_places(self.source, self.result, self.indices, self.gather_dims)


@op_definition
class ScatterOp(Op):
    """`%r = tensor.scatter %s into %x[%i] scatter_dims([0]) unique`, of slices, a tensor and indices as in a gather:
    x, with r[i[n, 0], c] = s[n, c]. No place is written twice.
    """

    name = "tensor.scatter"
    source: Operand[TensorType] = Operand(TensorType)
    dest: Operand[TensorType] = Operand(TensorType)
    indices: Operand[TensorType] = Operand(TensorType)
    scatter_dims: Ints = Ints()
    result: Result[TensorType] = Result(TensorType)
    unique: Flag = Flag()
    traits = traits_def(Pure())
    assembly_format = (
        "$source `into` $dest `[` $indices `]` `scatter_dims` `(` $scatter_dims `)` (`unique` $unique^)? attr-dict "
        "`:` functional-type(operands, results)"
    )

    def verify_(self) -> None:
        _verify_places(self.dest, self.source, self.indices, self.scatter_dims)
        if not self.unique:
            raise VerifyException(
                "requires 'unique': which of several slices is written last is open"
            )
        if self.result.type != self.dest.type:
            raise VerifyException("expected a result of the type that is written to")


@op_definition
class RankOp(Op):
    """The number of dimensions."""

    name = "tensor.rank"
    tensor: Operand[TensorType] = Operand(TensorType)
    result = Inferred(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$tensor attr-dict `:` type($tensor)"


@op_definition
class BitcastOp(Op):
    """The bits of each element as another type's."""

    name = "tensor.bitcast"
    source: Operand[TensorType] = Operand(TensorType)
    dest: Result[TensorType] = Result(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `to` type($dest)"

    def verify_(self) -> None:
        if _shape(self.source) != _shape(self.dest):
            raise VerifyException("expected a result of the source's shape")
        kinds = (self.source.type.element_type, self.dest.type.element_type)
        if len({getattr(kind, "bitwidth", None) for kind in kinds}) != 1:
            raise VerifyException("expected elements of as many bits")


def verify_pad(op: tensor.PadOp) -> None:
    """An extent that operands give may be stated by the type, as in MLIR; stock xDSL wants it open."""
    low, high = op.static_low.get_values(), op.static_high.get_values()
    source, made = _shape(op.source), op.result.type.get_shape()
    if not len(source) == len(low) == len(high) == len(made) == len(op.region.block.args):
        raise VerifyException("expected low, high, a result and indices of the source's rank")
    if any(a.type != IndexType() for a in op.region.block.args):
        raise VerifyException("expected the body to take indices")
    for d, (extent, before, after, size) in enumerate(zip(source, low, high, made, strict=True)):
        known = DYNAMIC_INDEX not in (extent, before, after)
        if known and size != before + extent + after:
            raise VerifyException(
                f"expected {before + extent + after} elements along dimension {d}"
            )
    if [*terminator(op.region.block).operand_types] != [op.result.type.element_type]:
        raise VerifyException(f"expected the body to yield {op.result.type.element_type}")


def verify_cast(op: tensor.CastOp) -> None:
    source, dest = (v.type.get_element_type() for v in (op.source, op.dest))  # pyright: ignore
    if source != dest:
        raise VerifyException(f"{op.source.type} and {op.dest.type} are cast incompatible")


def verify_reshape(op: tensor.ReshapeOp) -> None:
    """A result whose extents the shape gives at run time has any number of elements, unlike in stock xDSL."""
    source, made, given = (_shape(v) for v in (op.source, op.result, op.shape))
    if len(given) != 1 or given[0] not in (DYNAMIC_INDEX, len(made)):
        raise VerifyException(f"expected a shape of {len(made)} extents")
    if DYNAMIC_INDEX not in (*source, *made) and prod(source) != prod(made):
        raise VerifyException("source and result tensor should have the same number of elements")


LINALG: Sequence[OpClass] = (
    *(SoftmaxOp, PackOp, UnPackOp),
    *(FilterTransformOp, InputTransformOp, OutputTransformOp),
)
TENSOR: Sequence[OpClass] = (
    TensorPackOp,
    TensorUnPackOp,
    BitcastOp,
    GatherOp,
    GenerateOp,
    RankOp,
    ScatterOp,
    ParallelInsertSliceOp,
)
