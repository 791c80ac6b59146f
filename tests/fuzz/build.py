"""A random program as kernel IR, built with the dialects' ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, gpu, math, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
    FloatAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    StridedLayoutAttr,
    StringAttr,
    VectorType,
    i1,
    i8,
    i16,
    i32,
)
from xdsl.ir import Attribute, Block, OpResult, Region, SSAValue

from tests.fuzz.moves import MOVES
from tests.fuzz.programs import Place, Program, Scatter, Step, Value, family
from tilewright.dialects import xetile
from tilewright.dialects.upstream.vector import ShapeCastOp, StepOp
from tilewright.runtime.key import ArrayType, mlir_facts

MLIR: dict[str, Attribute] = {
    "f32": Float32Type(),
    "f16": Float16Type(),
    "bf16": BFloat16Type(),
    "i32": i32,
    "i16": i16,
    "i8": i8,
}


def vector_of(value: Value) -> VectorType[Any]:
    return VectorType(MLIR[value.dtype], value.shape)


def number(value: float, type: Attribute) -> Any:
    if isinstance(type, IntegerType):
        return IntegerAttr(int(value), type)
    assert isinstance(type, AnyFloat)
    return FloatAttr(float(value), type)


class Kernel:
    """The IR while it is built. Ops go where the innermost `ImplicitBuilder` stands."""

    def __init__(self, program: Program, signature: Sequence[ArrayType]):
        self.program = program
        self.block = Block(arg_types=[argument.mlir() for argument in signature])
        self.signature = signature
        self.values: list[SSAValue] = []
        with ImplicitBuilder(self.block):
            self.ids = [
                gpu.BlockIdOp(gpu.DimensionAttr(axis)).result
                for axis in (gpu.DimensionEnum.X, gpu.DimensionEnum.Y)
            ]
            self.views = [self.view(position) for position in range(len(signature))]
            for step in program.steps:
                self.values.append(self.step(step))
            inputs = len(program.arrays)
            for output, position in enumerate(program.stores):
                value = program.steps[position].result
                if program.way(output) != "tile":
                    self.scatter(inputs + output, position, program.scatter(output))
                    continue
                at = tuple(Place(axis, n, 0) for axis, n in enumerate(value.shape))
                tile = self.tile(inputs + output, value, at)
                xetile.StoreTileOp(self.values[position], tile)
            gpu.ReturnOp([])

    def scatter(self, array: int, position: int, at: Scatter) -> None:
        tile, mask = self.scattered(array, self.program.steps[position].result, at)
        if self.program.way(array - len(self.program.arrays)) == "add":
            xetile.AtomicRmwOp("addi", self.values[position], tile, mask)
        else:
            xetile.StoreScatterOp(self.values[position], tile, mask)

    def scattered(self, array: int, value: Value, at: Scatter) -> tuple[SSAValue, SSAValue]:
        """A scattered tile and its mask."""
        argument, shape = self.block.args[array], value.shape
        sizes, _, _ = self.views[array]
        type_ = MemRefType(MLIR[value.dtype], [DYNAMIC_INDEX], StridedLayoutAttr([1], 0))
        size = arith.MuliOp(*sizes).result
        flat = memref.ReinterpretCastOp.from_dynamic(argument, [0], [size], [1], type_).result
        whole = VectorType(IndexType(), shape)

        def splat(scalar: SSAValue) -> SSAValue:
            return vector.BroadcastOp(scalar, whole).vector

        def along(dim: int) -> SSAValue:
            ends = [shape[0], 1] if dim == 0 else [1, shape[1]]
            line = StepOp(VectorType(IndexType(), [shape[dim]])).result
            cast = ShapeCastOp(line, VectorType(IndexType(), ends)).result
            return xetile.BroadcastOp(cast, whole, [1 - dim]).result

        rows, columns = along(0), along(1)
        linear = arith.MuliOp(self.ids[0], self.index(self.program.grid[1])).result
        linear = arith.AddiOp(linear, self.ids[1]).result
        scalar = arith.MuliOp(linear, self.index(at.programs)).result
        scalar = arith.AddiOp(scalar, self.index(at.start)).result
        total = arith.MuliOp(rows, splat(self.index(at.rows))).result
        other = arith.MuliOp(columns, splat(self.index(at.columns))).result
        total = arith.AddiOp(arith.AddiOp(total, other).result, splat(scalar)).result
        total = arith.RemUIOp(total, splat(self.index(at.modulus))).result
        mask = arith.CmpiOp(columns, splat(self.index(at.limit)), "slt").result
        scattered = xetile.TileType(shape, MLIR[value.dtype], xetile.TileAttr(scattered=True))
        return xetile.InitTileOp(flat, scattered, offset_vector=total).result, mask

    def _gather(self, step: Step) -> SSAValue:
        tile, mask = self.scattered(step.extra["array"], step.result, step.extra["at"])
        padding = step.extra["padding"]
        attribute = number(padding, MLIR[step.result.dtype]) if padding else None
        return xetile.LoadGatherOp(tile, mask, attribute).result

    def index(self, value: int) -> SSAValue:
        return arith.ConstantOp(IntegerAttr(value, IndexType())).result

    def view(self, position: int) -> tuple[list[Any], list[Any], tuple[int, int]]:
        """Sizes, strides and order of an argument, as init_tile wants them."""
        argument, known = self.block.args[position], self.signature[position]
        metadata = memref.ExtractStridedMetaDataOp(argument)
        sizes: list[Any] = [memref.DimOp(argument, self.index(dim)).result for dim in range(2)]
        strides: list[Any] = [1 if dim == known.unit else metadata.strides[dim] for dim in range(2)]
        return sizes, strides, (0, 1) if known.unit == 0 else (1, 0)

    def offset(self, place: Place) -> SSAValue:
        scaled = arith.MuliOp(self.ids[place.axis], self.index(place.factor)).result
        return arith.AddiOp(scaled, self.index(place.start)).result

    def tile(
        self, array: int, value: Value, at: Sequence[Place | SSAValue], map_: Any = None
    ) -> SSAValue:
        sizes, strides, order = self.views[array]
        wg_map = xetile.WgMapAttr(*map_) if map_ is not None else None
        attributes = None
        if wg_map is not None or order == (0, 1):
            attributes = xetile.TileAttr(wg_map=wg_map, order=order)
        type_ = xetile.TileType(value.shape, MLIR[value.dtype], attributes)
        offsets = [self.offset(p) if isinstance(p, Place) else p for p in at]
        return xetile.InitTileOp(
            self.block.args[array], type_, offsets=offsets, sizes=sizes, strides=strides
        ).result

    def step(self, step: Step) -> SSAValue:
        args = [self.values[i] for i in step.args]
        return getattr(self, f"_{step.kind}")(step, *args)

    def _load(self, step: Step) -> SSAValue:
        tile = self.tile(step.extra["array"], step.result, step.extra["at"], step.extra["map"])
        padding = step.extra["padding"]
        attribute = number(padding, MLIR[step.result.dtype]) if padding else None
        return xetile.LoadTileOp(tile, padding=attribute).result

    def _store(self, step: Step, a: SSAValue) -> SSAValue:
        xetile.StoreTileOp(a, self.tile(step.extra["to"], step.result, step.extra["at"]))
        return a

    def _put(self, step: Step, a: SSAValue) -> SSAValue:
        xetile.StoreScatterOp(a, *self.scattered(step.extra["to"], step.result, step.extra["at"]))
        return a

    def _shift(self, step: Step, a: SSAValue) -> SSAValue:
        """A tile loaded and stored again and again, both moving."""
        extra = step.extra
        array, start, by = extra["from"]

        def moved(i: SSAValue, at: Sequence[Place], by: Sequence[int]) -> list[SSAValue]:
            return [
                arith.AddiOp(self.offset(p), arith.MuliOp(i, self.index(d)).result).result
                for p, d in zip(at, by, strict=True)
            ]

        def body(i: SSAValue, carried: SSAValue) -> list[SSAValue]:
            value = xetile.LoadTileOp(self.tile(array, step.result, moved(i, start, by))).result
            if extra["op"] is not None:
                value = self.binary(extra["op"], value, carried)
            there = moved(i, extra["at"], extra["by"])
            xetile.StoreTileOp(value, self.tile(extra["to"], step.result, there))
            return [carried]

        return self._loop(self.index(extra["times"]), [a], 1, body)

    def binary(self, op: str, a: SSAValue, b: SSAValue) -> SSAValue:
        cls: Any = {
            "addf": arith.AddfOp,
            "subf": arith.SubfOp,
            "mulf": arith.MulfOp,
            "maximumf": arith.MaximumfOp,
            "minimumf": arith.MinimumfOp,
            "maxnumf": arith.MaxnumfOp,
            "minnumf": arith.MinnumfOp,
            "addi": arith.AddiOp,
            "subi": arith.SubiOp,
            "muli": arith.MuliOp,
            "minsi": arith.MinSIOp,
            "maxsi": arith.MaxSIOp,
            "minui": arith.MinUIOp,
            "xori": arith.XOrIOp,
            "andi": arith.AndIOp,
        }[op]
        return cls(a, b).results[0]

    def _binary(self, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.binary(step.extra["op"], a, b)

    def _unary(self, step: Step, a: SSAValue) -> SSAValue:
        cls: Any = {
            "negf": arith.NegfOp,
            "absf": math.AbsFOp,
            "tanh": math.TanhOp,
            "floor": math.FloorOp,
        }[step.extra["op"]]
        return cls(a).results[0]

    def _splat(self, step: Step) -> SSAValue:
        scalar = arith.ConstantOp(number(step.extra["number"], MLIR[step.result.dtype])).result
        return vector.BroadcastOp(scalar, vector_of(step.result)).vector

    def _cast(self, step: Step, a: SSAValue) -> SSAValue:
        assert isinstance(a.type, VectorType)
        source, target = a.type.element_type, MLIR[step.result.dtype]
        if family(step.result.dtype) == "float":
            wider = source in (i32, i16, i8)
            cls: Any = (
                arith.SIToFPOp
                if wider
                else (arith.ExtFOp if step.result.dtype == "f32" else arith.TruncFOp)
            )
        else:
            cls = arith.ExtSIOp if source.width.data < target.width.data else arith.TruncIOp  # type: ignore[attr-defined]
        return cls(a, vector_of(step.result)).results[0]

    def _transpose(self, step: Step, a: SSAValue) -> SSAValue:
        return xetile.TransposeOp(a).result

    def _reduce(self, step: Step, a: SSAValue) -> SSAValue:
        extra = step.extra
        return xetile.ReductionOp(
            extra["op"], a, [extra["dim"]], reduction_size=extra["size"]
        ).result

    def _broadcast(self, step: Step, a: SSAValue) -> SSAValue:
        extra = step.extra
        return xetile.BroadcastOp(
            a, vector_of(step.result), [extra["dim"]], broadcast_size=extra["size"]
        ).result

    def _select(self, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
        mask = VectorType(i1, step.result.shape)
        if family(step.result.dtype) == "float":
            less = arith.CmpfOp(a, b, "olt")
        else:
            less = arith.CmpiOp(a, b, "slt")
        assert less.result.type == mask
        return arith.SelectOp(less, a, b).result

    def _move(self, step: Step, *args: SSAValue) -> SSAValue:
        return MOVES[step.extra["op"]].build(self, step, *args)

    def _mma(self, step: Step, a: SSAValue, b: SSAValue, c: SSAValue | None = None) -> SSAValue:
        return xetile.TileMmaOp(a, b, c, result_type=vector_of(step.result)).result

    def _layout(self, step: Step, a: SSAValue) -> SSAValue:
        if "shared" in step.extra:
            return self.through_memory(step, a)
        return xetile.ConvertLayoutOp(a, xetile.WgMapAttr(*step.extra["map"])).result

    def through_memory(self, step: Step, a: SSAValue) -> SSAValue:
        """The value stored to shared memory and loaded again, by other owners perhaps."""
        return self.handed_on(step, a, self.shared_memory(step))

    def shared_memory(self, step: Step) -> SSAValue:
        space = IntegerAttr(3, IntegerType(64))
        kind = MemRefType(MLIR[step.result.dtype], step.result.shape, memory_space=space)
        return memref.AllocOp([], [], kind).memref

    def handed_on(self, step: Step, a: SSAValue, slm: SSAValue) -> SSAValue:
        shape, element = step.result.shape, MLIR[step.result.dtype]

        def tile(map_: Any) -> SSAValue:
            attributes = xetile.TileAttr(wg_map=xetile.WgMapAttr(*map_), memory_space=3)
            type_ = xetile.TileType(shape, element, attributes)
            zero = self.index(0)
            return xetile.InitTileOp(slm, type_, offsets=[zero, zero]).result

        xetile.StoreTileOp(a, tile(step.extra["shared"]))
        if step.extra["barrier"]:
            gpu.BarrierOp()
        return xetile.LoadTileOp(tile(step.extra["map"])).result

    def _if(self, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
        two, zero = self.index(2), self.index(0)
        rest = arith.RemUIOp(self.ids[step.extra["axis"]], two).result
        even = arith.CmpiOp(rest, zero, "eq").result
        yes, no = Block(), Block()
        for block, value in ((yes, a), (no, b)):
            with ImplicitBuilder(block):
                scf.YieldOp(value)
        return scf.IfOp(even, [a.type], Region(yes), Region(no)).output[0]

    def _loop(self, bound: SSAValue, inits: Sequence[SSAValue], by: int, body: Any) -> OpResult:
        block = Block(arg_types=[IndexType(), *(init.type for init in inits)])
        low, step = self.index(0), self.index(by)
        with ImplicitBuilder(block):
            scf.YieldOp(*body(*block.args))
        return scf.ForOp(low, bound, step, inits, block).results[-1]

    def _repeat(self, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
        slm = self.shared_memory(step) if "shared" in step.extra else None

        def body(_: SSAValue, total: SSAValue) -> list[SSAValue]:
            if slm is not None:
                total = self.handed_on(step, total, slm)
            return [self.binary(step.extra["op"], total, b)]

        return self._loop(self.index(step.extra["times"]), [a], 1, body)

    def _dot(self, step: Step) -> SSAValue:
        extra, (m, n) = step.extra, step.result.shape
        k, a = extra["k"], extra["a"]
        factors = [extra["b"], *([extra["also"]] if extra.get("also") is not None else [])]
        left = Value((m, k), self.program.arrays[a].dtype)
        right = Value((k, n), self.program.arrays[factors[0]].dtype)
        row, column = (self.offset(place) for place in extra["at"])
        zero = self.index(0)
        bound = self.index(extra["depth"])
        sums = [self._splat(Step("splat", (), step.result, {"number": 0})) for _ in factors]

        def products(ta: SSAValue, tbs: Sequence[SSAValue], sums: Any) -> list[SSAValue]:
            va = xetile.LoadTileOp(ta).result
            before = extra.get("before")
            if before == "cast":
                va = self._cast(Step("cast", (), Value(left.shape, right.dtype)), va)
            elif before is not None:
                va = self._unary(Step("unary", (), left, {"op": before}), va)
            vbs = [xetile.LoadTileOp(tb).result for tb in tbs]
            return [xetile.TileMmaOp(va, vb, c).result for vb, c in zip(vbs, sums, strict=True)]

        if extra["style"] == "init":

            def fresh(i: SSAValue, *sums: SSAValue) -> list[SSAValue]:
                tiles = [self.tile(b, right, (i, column)) for b in factors]
                return products(self.tile(a, left, (row, i)), tiles, sums)

            last = self._loop(bound, sums, k, fresh)
        else:

            def moving(_: SSAValue, ta: SSAValue, *rest: SSAValue) -> list[SSAValue]:
                tbs, sums = rest[: len(factors)], rest[len(factors) :]
                return [
                    xetile.UpdateTileOffsetOp(ta, [0, k]).result,
                    *(xetile.UpdateTileOffsetOp(tb, [k, 0]).result for tb in tbs),
                    *products(ta, tbs, sums),
                ]

            tiles = [self.tile(b, right, (zero, column)) for b in factors]
            last = self._loop(bound, [self.tile(a, left, (row, zero)), *tiles, *sums], k, moving)
        if len(factors) == 1:
            return last
        plus = "addi" if step.result.dtype == "i32" else "addf"
        return self.binary(plus, last.op.results[-2], last)


def build(program: Program, signature: Sequence[ArrayType]) -> ModuleOp:
    """The module of a program for arrays of these types; it has been verified."""
    kernel = Kernel(program, signature)
    types = [argument.mlir() for argument in signature]
    function = gpu.FuncOp(
        "fuzz", FunctionType.from_lists(types, []), Region(kernel.block), kernel=True
    )
    function.attributes["tilewright.level"] = StringAttr("workgroup")
    function.attributes["tilewright.args"] = mlir_facts(tuple(signature))
    device = gpu.ModuleOp(StringAttr("fuzz"), Region(Block([function])))  # pyright: ignore[reportArgumentType]
    module = ModuleOp([device])
    module.verify()
    return module
