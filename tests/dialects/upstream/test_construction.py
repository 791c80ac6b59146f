"""Ops hold what xDSL's own constructor gives them, and are refused as it refuses them."""

from collections.abc import Callable
from typing import Any

import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, UnitAttr, i1, i32
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import IRDLOperation

from tilewright.dialects import mach
from tilewright.dialects.mach.types import ptr
from tilewright.dialects.upstream import construction


def _held(make: Callable[..., Operation], init: Any, patch: pytest.MonkeyPatch) -> Any:
    """What an op holds that is made by a constructor, or its error."""
    patch.setattr(IRDLOperation, "__init__", init)
    block = Block(arg_types=[ptr, i32, i1, i32])
    try:
        op = make(*block.args)
    except Exception as error:
        return type(error), str(error)
    uses = [[(use.operation, use.index) for use in value.uses] for value in op.operands]
    assert all((op, i) in each for i, each in enumerate(uses))
    return (
        [(value.type, getattr(value, "index", None)) for value in op.operands],
        [(value.type, value.op is op, value.index) for value in op.results],
        list(op.properties.items()),
        list(op.attributes.items()),
        [len(region.blocks) for region in op.regions],
    )


def _region(*types: Attribute) -> Region:
    return Region(Block([scf.YieldOp()], arg_types=types))


@pytest.mark.parametrize(
    "make",
    [
        lambda p, i, c, j: arith.AddiOp(i, j),
        lambda p, i, c, j: arith.MinSIOp(i, arith.ConstantOp(IntegerAttr(3, i32))),
        lambda p, i, c, j: arith.CmpiOp(i, j, "slt"),
        lambda p, i, c, j: arith.SelectOp(c, i, j),
        lambda p, i, c, j: mach.LoadOp(p, i32, alignment=4, nontemporal=True),
        lambda p, i, c, j: mach.PtrAddOp(pointer=p, offset=j),
        lambda p, i, c, j: mach.CallOp("f", [i, j], [i32, i1]),
        lambda p, i, c, j: scf.ForOp(i, j, i, [j], _region(i32, i32)),
        lambda p, i, c, j: scf.IfOp(c, [i32, i1], _region(), _region()),
        lambda p, i, c, j: scf.YieldOp(i, p),
        lambda p, i, c, j: scf.YieldOp(),
        lambda p, i, c, j: scf.YieldOp.build(operands=[i]),
        lambda p, i, c, j: scf.YieldOp.build(operands=[[i, None]]),
        lambda p, i, c, j: scf.YieldOp.build(operands=[[i], [j]]),
        lambda p, i, c, j: math.FmaOp(i, j, i),
        lambda p, i, c, j: math.FmaOp(i, j, i, arith.FastMathFlagsAttr("fast")),
        lambda p, i, c, j: math.FmaOp.build(operands=[i, i, j], attributes={"at": UnitAttr()}),
        lambda p, i, c, j: memref.AllocOp([i], [], MemRefType(i32, [-1])),
        lambda p, i, c, j: arith.AddiOp.build(operands=[i], result_types=[i32]),
        lambda p, i, c, j: arith.AddiOp.build(operands=[i, None], result_types=[i32]),
        lambda p, i, c, j: arith.AddiOp.build(operands=[i, [j]], result_types=[[i32]]),
        lambda p, i, c, j: arith.AddiOp(i, mach.CallOp("f", [], [i32, i1])),
        lambda p, i, c, j: arith.AddiOp.build(operands=[i, [i, j]], result_types=[i32]),
        lambda p, i, c, j: mach.StoreOp(i),
        lambda p, i, c, j: mach.StoreOp(i, p, aligned=3),
        lambda p, i, c, j: mach.StoreOp(i, p, None, None, None, None, None),
    ],
)
def test_an_op_is_what_the_stock_constructor_makes(make: Any, monkeypatch: Any) -> None:
    held = [_held(make, init, monkeypatch) for init in (construction._stock, construction._init)]
    assert held[0] == held[1]


def test_ops_are_inserted_by_an_implicit_builder() -> None:
    block = Block()
    with ImplicitBuilder(block):
        one = arith.ConstantOp(IntegerAttr(1, i32))
        arith.AddiOp(one, one)
    assert [op.name for op in block.ops] == ["arith.constant", "arith.addi"]
