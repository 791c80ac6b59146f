"""The `tgraph` dialect: a TiledGraph as MLIR. `tilewright/graph/mlir.py` goes from graphs to it and back.

```mlir
tgraph.graph "total" ["M"] {
^bb0(%M: index):
  %x = tgraph.buffer "x" "input" affine_map<(d0) -> (d0, 8)>(%M) : memref<?x8xf32, "global">
  %y = tgraph.buffer "y" "output" affine_map<(d0) -> (d0)>(%M) : memref<?xf32, "global">
  tgraph.task "y" ["i", "j"] ["each", "each"] affine_map<(d0) -> (d0, 8)>(%M) steps [1, 1] {
  ^bb1(%i: index, %j: index):
    %0 = tgraph.load %x ["index", "index"] affine_map<(d0, d1) -> (d0, d1)>
      sizes affine_map<(d0, d1) -> (1, 1)>(%i, %j) : memref<?x8xf32, "global"> -> tensor<f32>
    %1 = tgraph.operation "copy"(%0) [] {} : tensor<f32> -> tensor<f32>
    tgraph.store %1, %y ["index"] affine_map<(d0) -> (d0)> sizes affine_map<(d0) -> (1)>(%i)
      combine "add" : tensor<f32>, memref<?xf32, "global">
  }
  tgraph.return %y : memref<?xf32, "global">
}
```
Buffers are memrefs in the memory space of their level, edges are loads and stores with affine maps, and what flows
between is tensors. The names of iteration variables and symbols are attributes: names of values mean nothing in MLIR.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Region
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import dialect
from tilewright.dialects.movement import memref_type

ROLES = ("input", "output", "local")
MAPPINGS = ("each", "block", "group", "sequential")
KINDS = ("index", "slice", "gather")
COMBINES = ("add", "mul", "max", "min")


def words(attribute: ArrayAttr[StringAttr]) -> list[str]:
    """The strings of an array of them."""
    return [each.data for each in attribute]


def _one_of(word: StringAttr, known: Sequence[str], what: str) -> None:
    if word.data not in known:
        raise VerifyException(f"{word.data!r} is no {what}: {', '.join(known)}")


def _applies(maps: AffineMapAttr, count: int, results: int, what: str) -> None:
    if maps.data.num_dims != count or maps.data.num_symbols:
        raise VerifyException(f"{what} is a map of {maps.data.num_dims} dimensions, given {count}")
    if len(maps.data.results) != results:
        raise VerifyException(f"{what} has {len(maps.data.results)} results, {results} are needed")


def _indices(body: Region, names: ArrayAttr[StringAttr], what: str) -> None:
    types = [argument.type for argument in body.block.args]
    if len(types) != len(names) or not all(isinstance(t, IndexType) for t in types):
        raise VerifyException(f"the body has an index for each of its {len(names)} {what}")


@irdl_op_definition
class GraphOp(IRDLOperation):
    """A graph; its symbols are the body's arguments."""

    name = "tgraph.graph"
    sym_name = prop_def(StringAttr)
    symbols = prop_def(ArrayAttr[StringAttr])
    body = region_def("single_block")
    assembly_format = "$sym_name $symbols $body attr-dict"

    def verify_(self) -> None:
        _indices(self.body, self.symbols, "symbols")
        if not isinstance(self.body.block.last_op, ReturnOp):
            raise VerifyException("a graph ends with tgraph.return")


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """The outputs of a graph, in their order."""

    name = "tgraph.return"
    outputs = var_operand_def(MemRefType)
    traits = traits_def(IsTerminator())
    assembly_format = "$outputs attr-dict `:` type($outputs)"


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A Buffer: a memref in the memory space of its level; `extents` are affine in the symbols.

    `alias` is the Buffer whose memory it is, with `start` the one of which it is a part, from there on; `zeroed`: it
    holds 0 when the graph starts.
    """

    name = "tgraph.buffer"
    sym_name = prop_def(StringAttr)
    role = prop_def(StringAttr)
    extents = prop_def(AffineMapAttr)
    zeroed = opt_prop_def(UnitAttr)
    start = opt_prop_def(AffineMapAttr)
    symbols = var_operand_def(IndexType())
    alias = opt_operand_def(MemRefType)
    buffer = result_def(MemRefType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$sym_name $role $extents `(` $symbols `)` (`alias` $alias^ `:` type($alias))? (`start` $start^)? "
        "(`zeroed` $zeroed^)? attr-dict `:` type($buffer)"
    )

    def verify_(self) -> None:
        _one_of(self.role, ROLES, "role")
        kind = self.buffer.type
        _applies(self.extents, len(self.symbols), kind.get_num_dims(), "extents")
        if self.start is not None:
            _applies(self.start, len(self.symbols), kind.get_num_dims(), "start")
            if self.alias is None:
                raise VerifyException("what starts within a Buffer is a part of it: alias")
        if not isinstance(kind.memory_space, StringAttr):
            raise VerifyException('a Buffer has a memory space: memref<..., "global">')


@irdl_op_definition
class TaskOp(IRDLOperation):
    """A Task: a body under an iteration space, one variable for each of `axes`."""

    name = "tgraph.task"
    sym_name = prop_def(StringAttr)
    axes = prop_def(ArrayAttr[StringAttr])
    mappings = prop_def(ArrayAttr[StringAttr])
    extents = prop_def(AffineMapAttr)
    steps = prop_def(ArrayAttr[IntegerAttr])
    symbols = var_operand_def(IndexType())
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = (
        "$sym_name $axes $mappings $extents `(` $symbols `)` `steps` $steps $body attr-dict"
    )

    def verify_(self) -> None:
        count = len(self.axes)
        _indices(self.body, self.axes, "axes")
        _applies(self.extents, len(self.symbols), count, "extents")
        for mapping in self.mappings:
            _one_of(mapping, MAPPINGS, "mapping of an axis")
        if len(self.mappings) != count or len(self.steps) != count:
            raise VerifyException(f"{count} axes have as many mappings and steps")
        if any(step.value.data < 1 for step in self.steps):
            raise VerifyException("a step is a positive number")


_PLACE = (
    "$buffer $kinds $starts `sizes` $sizes `(` $indices `)` (`by` $gathers^ `:` type($gathers))?"
)


class _Edge(IRDLOperation):
    """For every dimension of a Buffer an index, a slice of a size, or a gather by a tensor of indices."""

    buffer = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    gathers = var_operand_def(TensorType)
    kinds = prop_def(ArrayAttr[StringAttr])
    starts = prop_def(AffineMapAttr)
    sizes = prop_def(AffineMapAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def verify_(self) -> None:
        rank, count = memref_type(self.buffer).get_num_dims(), len(self.indices)
        for word in self.kinds:
            _one_of(word, KINDS, "kind of an entry")
        if len(self.kinds) != rank:
            raise VerifyException(f"{len(self.kinds)} entries for a Buffer of {rank} dimensions")
        _applies(self.starts, count, rank, "starts")
        _applies(self.sizes, count, rank, "sizes")
        gathers = words(self.kinds).count("gather")
        if len(self.gathers) != gathers:
            raise VerifyException(f"{gathers} gathers have {len(self.gathers)} tensors of indices")


@irdl_op_definition
class LoadOp(_Edge):
    """A load edge."""

    name = "tgraph.load"
    value = result_def(TensorType)
    assembly_format = f"{_PLACE} attr-dict `:` type($buffer) `->` type($value)"


@irdl_op_definition
class StoreOp(_Edge):
    """A store edge, which accumulates by `combine`."""

    name = "tgraph.store"
    value = operand_def(TensorType)
    combine = opt_prop_def(StringAttr)
    assembly_format = (
        f"$value `,` {_PLACE} (`combine` $combine^)? attr-dict `:` type($value) `,` type($buffer)"
    )

    def verify_(self) -> None:
        super().verify_()
        if self.combine is not None:
            _one_of(self.combine, COMBINES, "way to accumulate")


@irdl_op_definition
class OperationOp(IRDLOperation):
    """A tensor operation, by its name in the table of operations, or a macro kernel.

    Operands are tensors, numbers (f64) and expressions (index), in the order of the operation. `names` lists its
    attributes: `details` has the values of some, the last operands are those of the others, in that order.
    """

    name = "tgraph.operation"
    op = prop_def(StringAttr)
    names = prop_def(ArrayAttr[StringAttr])
    details = prop_def(DictionaryAttr)
    inputs = var_operand_def()
    result = result_def(TensorType)
    assembly_format = (
        "$op `(` $inputs `)` $names $details attr-dict `:` type($inputs) `->` type($result)"
    )

    @property
    def expressions(self) -> list[str]:
        """The attributes whose values are operands."""
        return [name for name in words(self.names) if name not in self.details.data]

    def verify_(self) -> None:
        if not set(self.details.data) <= set(words(self.names)):
            raise VerifyException(f"details are those of the names {', '.join(words(self.names))}")
        if len(self.expressions) > len(self.inputs):
            raise VerifyException(
                f"{', '.join(self.expressions)}: as many operands, not {len(self.inputs)}"
            )


TGRAPH = dialect("tgraph", globals())
