"""array-arguments: values that no launch passes come from arrays, and values that a kernel returns go to arrays.

    gpu.func @k(%v: vector<8x16xf32>) {            gpu.func @k(%a: memref<8x16xf32>) {
      ..                                       ->    %t = xetile.init_tile %a[0, 0] : ..  %v = xetile.load_tile %t : ..
      gpu.return %w : vector<8x16xf32>               ..
    }                                                xetile.store_tile %w, %u : ..  gpu.return  }

| argument | array |
|---|---|
| vector | its shape; a lane's own vector is one that all lanes have |
| block tensor_desc, tile | the block, or the blocks of array_length side by side, are the whole array |

Results become further arguments, in order. Guarantees: the same results, for whoever passes arrays of those shapes.
Takes part: kernels that the module does not launch itself. What has no array (scattered descriptors, shared matrices,
results of lanes) stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects import arith, gpu, memref, vector
from xdsl.dialects.builtin import (
    FunctionType,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    VectorType,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu, xetile
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.vector import ShapeCastOp
from tilewright.passes.emit import Before
from tilewright.passes.kernel import LEVEL, level_of


def array_arguments(module: ModuleOp) -> None:
    """Rewrites the kernels of a module in place."""
    if any(isinstance(op, gpu.LaunchFuncOp | gpu.LaunchOp) for op in module.walk()):
        return
    for kernel in [op for op in module.walk() if isinstance(op, gpu.FuncOp)]:
        results = kernel.function_type.outputs.data
        given = [v for v in kernel.body.blocks[0].args if _array_of(v.type) is not None]
        if given or results:
            _rewrite(kernel, given, all(isinstance(t, VectorType) for t in results))


def _rewrite(kernel: gpu.FuncOp, given: list[BlockArgument], returns_vectors: bool) -> None:
    level, block = level_of(kernel), kernel.body.blocks[0]
    results = [*kernel.function_type.outputs.data]
    kernel.attributes[LEVEL] = StringAttr(level)
    made = Block()
    for argument in given:
        type = argument.type
        array = block.insert_arg(_array_of(type), argument.index)  # pyright: ignore[reportArgumentType]
        array.name_hint = argument.name_hint
        argument.replace_all_uses_with(_read(made, array, type, level == "lane"))
        block.erase_arg(argument)
    for op in made.ops:
        op.location = kernel.location
    Rewriter.inline_block(made, InsertPoint.at_start(block))
    if level != "lane" and returns_vectors:
        arrays = [block.insert_arg(_array_of(t), len(block.args)) for t in results]  # pyright: ignore
        for last in [op for op in kernel.walk() if isinstance(op, gpu.ReturnOp)]:
            _write(last, arrays)
        results = []
    kernel.properties["function_type"] = FunctionType.from_lists([*block.arg_types], results)


def _array_of(type: Attribute) -> MemRefType | None:
    """The array that stands for an argument; None where none does."""
    match type:
        case VectorType():
            return MemRefType(type.element_type, type.get_shape())
        case xegpu.TensorDescType() if not type.scattered and type.space.value == "global":
            *rows, columns = type.get_shape()
            return MemRefType(type.element_type, [*rows, columns * type.array_length])
        case xetile.TileType() if not type.scattered and not type.memory_space:
            rows, columns = type.get_shape()
            columns *= type.array_length
            across = StridedLayoutAttr([1, rows]) if type.order == (0, 1) else NoneAttr()
            return MemRefType(type.element_type, [rows, columns], across)
        case _:
            return None


def _read(made: Block, array: SSAValue, type: Attribute, lanes: bool) -> SSAValue:
    """What the argument was, from the array in its place."""

    def put(op: Operation) -> SSAValue:
        made.add_op(op)
        return op.results[0]

    if isinstance(type, xegpu.TensorDescType):
        return put(xegpu.CreateNdDescOp(array, type))
    if isinstance(type, xetile.TileType):
        return put(xetile.InitTileOp(array, type, offsets=[0, 0]))
    assert isinstance(type, VectorType)
    if lanes:
        zero = put(arith.ConstantOp(IntegerAttr(0, IndexType())))
        return put(vector.LoadOp(array, [zero] * type.get_num_dims(), type))
    value = put(xetile.LoadTileOp(_whole(put, array, type)))
    return value if value.type == type else put(ShapeCastOp(value, type))


def _write(last: gpu.ReturnOp, arrays: Sequence[SSAValue]) -> None:
    """What is returned is stored."""
    at = Before(last)
    for value, array in zip(last.operands, arrays, strict=True):
        type = vector_type(value)
        tile = _whole(at.add, array, type)
        at.insert(xetile.StoreTileOp(at.cast(value, tile.type.get_shape()), tile))  # pyright: ignore
    last.operands = ()


def _whole(put: Callable[[Operation], SSAValue], array: SSAValue, type: VectorType) -> SSAValue:
    """A tile of all of an array: of its rows, whatever its rank."""
    shape = type.get_shape()
    rows, columns = prod(shape[:-1]), shape[-1]
    if len(shape) != 2:
        plane = MemRefType(type.element_type, [rows, columns])
        array = put(
            memref.ReinterpretCastOp.from_dynamic(array, [0], [rows, columns], [columns, 1], plane)
        )
    tile = xetile.TileType([rows, columns], type.element_type)
    return put(xetile.InitTileOp(array, tile, offsets=[0, 0]))
