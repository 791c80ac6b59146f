"""Roles: parts of a workgroup's program that different warps run at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Block, Operation, Region
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.traits import NoTerminator, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import ORDER, Acts


@irdl_op_definition
class RoleOp(IRDLOperation):
    """One role of a `stage.roles`.

    ```mlir
    stage.role "compute" attributes {warps = 8 : i64, registers = 232 : i64} { ... }
    ```
    `warps` warps of the workgroup run it; `registers` is how many each of their lanes may hold (absent: what the
    kernel was loaded with).
    """

    name = "stage.role"
    role_name = prop_def(StringAttr)
    warps = prop_def(IntegerAttr)
    registers = opt_prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), RecursiveMemoryEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$role_name attr-dict-with-keyword $body"

    def __init__(self, name: str, warps: int, body: Region, registers: int | None = None):
        super().__init__(
            properties={
                "role_name": StringAttr(name),
                "warps": IntegerAttr(warps, i64),
                "registers": None if registers is None else IntegerAttr(registers, i64),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if self.warps.value.data < 1:
            raise VerifyException("stage.role: a role has at least one warp")
        if not isinstance(self.parent_op(), RolesOp):
            raise VerifyException("stage.role stands in a stage.roles")


@irdl_op_definition
class RolesOp(IRDLOperation):
    """Runs roles at the same time; goes on when all of them are done.

    ```mlir
    stage.roles {
      stage.role "copy" attributes {warps = 4 : i64, registers = 40 : i64} { ... }
      stage.role "compute" attributes {warps = 8 : i64, registers = 232 : i64} { ... }
    }
    ```
    Roles meet only in rings: a store of one is not seen by another.
    """

    name = "stage.roles"
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), RecursiveMemoryEffect())
    assembly_format = "$body attr-dict"

    def __init__(self, roles: Sequence[Operation]):
        super().__init__(regions=[Region(Block(roles))])

    @property
    def roles(self) -> tuple[RoleOp, ...]:
        return tuple(op for op in self.body.block.ops if isinstance(op, RoleOp))

    def verify_(self) -> None:
        if not self.body.block.ops.first or len(self.roles) != len(list(self.body.block.ops)):
            raise VerifyException("stage.roles holds roles, and nothing else")


@irdl_op_definition
class TakeTurnOp(IRDLOperation):
    """`stage.turn.take`: this warpgroup waits for its turn to issue products.

    The warpgroups of a role take turns in a circle: each may issue between take and pass, the first one first. Values
    do not depend on turns.
    """

    name = "stage.turn.take"
    traits = traits_def(Acts(ORDER))
    assembly_format = "attr-dict"


@irdl_op_definition
class PassTurnOp(IRDLOperation):
    """`stage.turn.pass`: it is the next warpgroup's turn."""

    name = "stage.turn.pass"
    traits = traits_def(Acts(ORDER))
    assembly_format = "attr-dict"
