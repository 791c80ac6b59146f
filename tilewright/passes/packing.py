"""packing: operands of contractions that every workgroup would pack again are packed once per launch.

    %c = stage.contract ... {                        %p = stage.pack %A, %used, %reads { extf } : ...
    ^bb0(%k : index):                                ...
      %t = xetile.init_tile %A[%m, %k]               %c = stage.contract ... {
      %x = xetile.load_tile %t                ->     ^bb0(%k : index):
      %y = arith.extf %x                               %y = stage.panel %p[%m, %k]
      stage.yield %y, ...                              stage.yield %y, ... }

Requires: contracts (see `contraction`).
Guarantees: the same operands. A pack is made when nothing in the launch may write the array, the
operand is one load seen through transposes, casts and elementwise ops that keep zero zero (so that
padding stays zero), and the tile provably starts where a panel does: panels begin anew with tiles that
start at multiples of their own size only. Otherwise a remark says why not, and each workgroup packs for
itself. The pack says how often a launch reads each element: what is read
only a few times the target leaves where it is, and whoever reads it packs it in its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, UnrealizedConversionCastOp, VectorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.fused import ContractOp, PackOp, PanelOp, PanelsType, YieldOp
from tilewright.dialects.movement import vector_type
from tilewright.dialects.nesting import terminator
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.frozen import frozen, record
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.fold_identities import splat
from tilewright.passes.materialise import Materialiser, NoValue

ZERO_TO_ZERO = {
    *("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci", "arith.sitofp"),
    *("arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.negf", "math.absf", "math.absi"),
    *("math.sqrt", "math.tanh", "math.sin", "math.erf", "arith.bitcast"),
}


MANY = Expr.of(1 << 20)
"""Reads of an element that nobody can count."""


@frozen
class Panels:
    """What the target wants of an operand: consecutive x per panel, consecutive k per group, the element type, and the
    depth of a block of k (0: panels hold all k)."""

    lanes: int
    group: int
    element: Attribute
    depth: int
    align: int = 1
    """Ranges of k start at multiples of this."""
    biased: bool = False
    """Integers are stored with their top bit flipped."""
    pitch: int = 0
    """Panels begin anew at every multiple of it; 0: they follow one another."""
    aligned: bool = False
    """Blocks of k are those of the other operand: elsewhere than at their multiples panels hold all k."""
    lies: bool = False
    """It is read where it is: panels serve what is left over, and who keeps them."""


PanelsOf = Callable[[SSAValue, SSAValue, Attribute], tuple[Panels | None, Panels | None]]
"""Tiles A and B and the element type of C -> panels of A and of B; None for one that stays where it is."""


@record
class Chain:
    """An operand as one load and the ops on it."""

    load: xt.LoadTileOp
    ops: list[Operation]
    transposed: bool


class PackingRewriter:
    """Rewrites one kernel."""

    def __init__(self, function: gpu.FuncOp, panels_of: PanelsOf, remarks: list[str]):
        self.function = function
        self.panels_of = panels_of
        self.remarks = remarks
        self.analysis = AccessAnalysis(function)
        self.bounds: dict[PackOp, Expr] = {}
        self.reads: dict[PackOp, Expr] = {}
        self.made: dict[object, PackOp] = {}

    def run(self) -> None:
        for op in list(self.function.walk()):
            if isinstance(op, ContractOp):
                self.contract(op)

    def contract(self, op: ContractOp) -> None:
        for i, (a, b) in enumerate(op.pairs):
            element = op.inits[i].type.element_type  # pyright: ignore
            wanted = self.panels_of(a, b, element)
            for side, (value, panels) in enumerate(zip((a, b), wanted, strict=True)):
                if panels is None:
                    continue
                reason = self.operand(op, value, side, 2 * i + side, panels)
                if reason is not None:
                    self.remarks.append(
                        f"operand {'AB'[side]} of a contraction is packed by every workgroup: {reason}"
                    )

    def operand(
        self, op: ContractOp, value: SSAValue, side: int, position: int, wanted: Panels
    ) -> str | None:
        """Pack one operand; the reason where that is not possible."""
        if not isinstance(value, OpResult) or value.op.parent is not op.body.block:
            return None
        chain = chain_of(value, op.body.block)
        if chain is None:
            return "it is more than one load with elementwise ops that keep zero"
        access = self.analysis.find(chain.load)
        if access is None or access.scattered:
            return "its tile is not known"
        source = access.base
        if not isinstance(source, BlockArgument) or not isinstance(source.type, MemRefType):
            return "its array is not an argument"
        if not self.analysis.read_only(access.root):
            return "the kernel may write the array that it reads"
        if chain.load.padding_value != 0:
            return "its padding is not zero"
        k_axis = (1 - side) ^ int(chain.transposed)
        starts = self.starts(access, op, k_axis)
        if isinstance(starts, str):
            return starts
        x, k = starts
        if any(c % wanted.lanes for c in x.terms.values()):
            wanted = replace(wanted, pitch=access.tile_type.get_shape()[1 - k_axis])
        if any(c % (wanted.pitch or 1) for c in x.terms.values()) or not x.is_nonnegative:
            return f"its tiles start neither at multiples of {wanted.lanes} nor of their own size"
        if wanted.aligned and any(c % wanted.depth for c in k.terms.values()):
            wanted = replace(wanted, depth=0)
        if any(c % wanted.align for c in k.terms.values()) or not k.is_nonnegative:
            return f"its ranges of k do not start at multiples of {wanted.align}"
        if any(not e.is_nonnegative for e in access.offsets[:-2]):
            return "its leading offsets may be negative"
        if not self.is_whole(access):
            return "its tiles end before the array does, or are of another view of it"
        pack = self.pack(access, chain, wanted, k_axis)
        if pack is None:
            return "its extent cannot be computed before the launch"
        self.use(op, value, chain, pack, position)
        return None

    def is_whole(self, access: Access) -> bool:
        """Whether the matrix that the tiles are of is the array, which is what is packed."""
        rank, analysis = len(access.extents), self.analysis
        missing = rank - len(access.base.type.get_shape())  # pyright: ignore
        return all(
            access.extents[d] == analysis.extent(access.base, d - missing)
            and access.strides[d] == analysis.stride(access.base, d - missing)
            for d in range(missing, rank)
        )

    def starts(self, access: Access, op: ContractOp, k_axis: int) -> tuple[Expr, Expr] | str:
        """Offsets of x and k at the start of the range; a reason if they are not affine."""
        k, x = access.offsets[-2 + k_axis], access.offsets[-1 - k_axis]
        inner = op.body.block.args[0]
        known = {s: Expr.of(0) for s in k.symbols if s.kind is Kind.VALUE and s.key is inner}
        k = k.substitute(known)
        if any(s in x.symbols for s in known):
            return "both of its offsets move with k"
        return x, k

    def pack(self, access: Access, chain: Chain, wanted: Panels, k_axis: int) -> PackOp | None:
        """The pack of an array, made once for all that read it alike."""
        signature = tuple(
            (type(o), tuple(sorted(o.properties.items())), tuple(o.result_types)) for o in chain.ops
        )
        constants = tuple(
            v
            for o in chain.ops
            for v in o.operands
            if isinstance(v, OpResult) and isinstance(v.op, arith.ConstantOp)
        )
        key = (access.base, wanted, k_axis, signature, constants)
        x_dim = len(access.offsets) - 1 - k_axis
        bound = self.bound(access, x_dim)
        reads = Expr.of(0) if wanted.lies else self.times_read(access, x_dim)
        if key in self.made:
            return self.shared(self.made[key], bound, access.extents[x_dim], reads)
        place = self.place()
        at = Materialiser(place)
        try:
            used = at.ssa(bound)
        except NoValue:
            return None
        try:
            times = at.ssa(reads)
        except NoValue:
            reads = MANY
            times = at.ssa(reads)
        body = prologue(chain)
        panels = PanelsType(wanted.lanes, wanted.group, wanted.element, k_axis, wanted.biased)
        zero = IntegerAttr(0, 64)
        pack = PackOp(access.base, used, times, body, panels, wanted.depth, zero, wanted.pitch)
        pack.location = chain.load.location  # pyright: ignore
        at.insert(pack)
        self.made[key] = pack
        self.bounds[pack], self.reads[pack] = bound, reads
        return pack

    def times_read(self, access: Access, dim: int) -> Expr:
        """How often a launch reads an element: the loads of all workgroups over the tiles that the array has."""
        loads = Expr.of(1)
        for axis in range(3):
            loads = loads * Expr.symbol(self.analysis.grid_dim(axis))
        for loop in access.loops:
            if loop.trips is None:
                return MANY
            loads = loads * loop.trips
        tile = access.tile_type.get_shape()[dim - len(access.offsets)]
        if not of_the_launch(loads):
            return MANY
        symbols = self.analysis.symbols
        tiles = symbols.ceildiv(access.extents[dim], Expr.of(tile))
        for extent in access.extents[:-2]:
            tiles = tiles * extent
        return symbols.ceildiv(loads, symbols.maximum(tiles, Expr.of(1)))

    def shared(self, pack: PackOp, bound: Expr, extent: Expr, reads: Expr) -> PackOp | None:
        """A pack that one more load reads: where the two end at different places, it covers the whole array."""
        if self.reads[pack] != MANY:
            at = Materialiser(InsertPoint.before(pack))
            total = self.reads[pack] + reads
            try:
                pack.operands[2] = at.ssa(total)
            except NoValue:
                total = MANY
                pack.operands[2] = at.ssa(total)
            self.reads[pack] = total
        if bound != self.bounds[pack] and self.bounds[pack] != extent:
            try:
                whole = Materialiser(InsertPoint.before(pack)).ssa(extent)
            except NoValue:
                return None
            pack.operands[1] = whole
            self.bounds[pack] = extent
        return pack

    def place(self) -> InsertPoint:
        """After the packs at the top of the kernel."""
        for op in self.function.body.block.ops:
            if not isinstance(
                op, PackOp | arith.ConstantOp | memref.DimOp | gpu.GridDimOp
            ) and not op.name.startswith("arith."):
                return InsertPoint.before(op)
        raise AssertionError("a kernel ends with gpu.return")

    def bound(self, access: Access, dim: int) -> Expr:
        """x from there on is read by no workgroup: where the last tile ends, or else the array's extent."""
        x = access.offsets[dim]
        trips = {loop.counter: loop.trips for loop in access.loops}
        last: dict[Symbol, Expr] = {}
        for symbol in x.symbols:
            if (x.coefficient(symbol).constant or -1) < 0:
                return access.extents[dim]
            if symbol.kind is Kind.PROGRAM_ID and isinstance(symbol.key, int):
                last[symbol] = Expr.symbol(self.analysis.grid_dim(symbol.key)) - 1
            elif symbol.kind is Kind.COUNTER and (count := trips.get(symbol)) is not None:
                last[symbol] = count - 1
            else:
                return access.extents[dim]
        end = x.substitute(last) + access.tile_type.get_shape()[dim - len(access.offsets)]
        return end if of_the_launch(end) else access.extents[dim]

    def use(
        self, op: ContractOp, value: OpResult, chain: Chain, pack: PackOp, position: int
    ) -> None:
        """Read the operand from its panels."""
        block = op.body.block
        last = terminator(block)
        tile = chain.load.tile.owner
        assert isinstance(tile, xt.InitTileOp)
        at = Materialiser(InsertPoint.before(last))
        offsets = [at.constant(x) if isinstance(x, int) else x for x in tile.mixed_offsets]
        assert isinstance(value.type, VectorType)
        panel = PanelOp(
            pack.result,
            offsets,
            VectorType(pack.result.type.element_type, value.type.get_shape()),
            chain.transposed,
        )
        at.insert(panel)
        last.operands[position] = panel.result
        eliminate_dead(block)


def of_the_launch(expr: Expr) -> bool:
    """Is it the same number for all workgroups, known before they start?"""
    known = (Kind.GRID_DIM, Kind.EXTENT, Kind.APPLY)
    return all(s.kind in known for s in expr.atoms | expr.symbols)


def chain_of(value: SSAValue, block: Block) -> Chain | None:
    """The operand as a chain over one load; None if it is something else."""
    ops: list[Operation] = []
    transposed = False
    while isinstance(value, OpResult) and value.op.parent is block:
        op = value.op
        if isinstance(op, xt.LoadTileOp):
            tile = op.tile.owner
            if (
                op.permutation is not None
                or len(op.values) != 1
                or not isinstance(tile, xt.InitTileOp)
            ):
                return None
            return Chain(op, ops[::-1], transposed)
        if isinstance(op, xt.TransposeOp):
            transposed ^= op.permutation == (1, 0)
        elif isinstance(op, xt.ConvertLayoutOp):
            pass
        elif isinstance(op, UnrealizedConversionCastOp) or op.name in ZERO_TO_ZERO:
            ops.append(op)
        elif op.name in ("arith.mulf", "arith.muli"):
            known = [splat(v) is not None for v in op.operands]
            if not any(known):
                return None
            ops.append(op)
            value = op.operands[known[0]]
            continue
        else:
            return None
        value = op.operands[0]
    return None


def prologue(chain: Chain) -> Region:
    """The chain's ops on one element, as the region of a pack."""
    first = chain.load.values[0].type
    block = Block(arg_types=[first.element_type])
    current: SSAValue = block.args[0]
    for op in chain.ops:
        operands: list[SSAValue] = []
        for v in op.operands:
            if len(op.operands) == 2 and (number := splat(v)) is not None:
                constant = arith.ConstantOp(number_attr(element_of(v.type), number))
                block.add_op(constant)
                operands.append(constant.result)
            else:
                operands.append(current)
        result = vector_type(op.results[0])
        new = retyped(op, operands, [result.element_type])
        block.add_op(new)
        current = new.results[0]
    block.add_op(YieldOp([current]))
    return Region(block)
