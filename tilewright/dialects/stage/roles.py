"""Roles: parts of a workgroup's program that different warps run at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, Region
from xdsl.irdl import traits_def
from xdsl.traits import NoTerminator, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import ORDER, Acts
from tilewright.dialects.fields import Body, Int, Op, OptInt, Str, op_definition


@op_definition
class RoleOp(Op):
    """One role of a `stage.roles`.

    ```mlir
    stage.role "compute" attributes {warps = 8 : i64, registers = 232 : i64} { ... }
    ```
    `warps` warps of the workgroup run it; `registers` is how many each of their lanes may hold (absent: what the
    kernel was loaded with).
    """

    name = "stage.role"
    role_name: Str = Str()
    warps: Int = Int()
    body: Body = Body()
    registers: OptInt = OptInt()
    traits = traits_def(NoTerminator(), RecursiveMemoryEffect())
    assembly_format = "$role_name attr-dict-with-keyword $body"

    def verify_(self) -> None:
        if self.warps < 1:
            raise VerifyException("stage.role: a role has at least one warp")
        if not isinstance(self.parent_op(), RolesOp):
            raise VerifyException("stage.role must be inside stage.roles")


@op_definition
class RolesOp(Op):
    """Runs roles at the same time; goes on when all of them are done.

    ```mlir
    stage.roles {
      stage.role "copy" attributes {warps = 4 : i64, registers = 40 : i64} { ... }
      stage.role "compute" attributes {warps = 8 : i64, registers = 232 : i64} { ... }
    }
    ```
    Roles meet only in multi-buffers: a store of one is not seen by another.
    """

    name = "stage.roles"
    body: Body = Body()
    traits = traits_def(NoTerminator(), RecursiveMemoryEffect())
    assembly_format = "$body attr-dict"

    def __init__(self, roles: Sequence[Operation]):
        super().__init__(Region(Block(roles)))

    @property
    def roles(self) -> tuple[RoleOp, ...]:
        return tuple(op for op in self.body.block.ops if isinstance(op, RoleOp))

    def verify_(self) -> None:
        if not self.body.block.ops.first or len(self.roles) != len(list(self.body.block.ops)):
            raise VerifyException("stage.roles contains stage.role ops only")


@op_definition
class PingPongAcquireOp(Op):
    """`stage.ping_pong.acquire`: this warpgroup waits until it may issue products.

    The warpgroups of a role take turns in a circle: each may issue between take and pass, the first one first. Values
    do not depend on the order.
    """

    name = "stage.ping_pong.acquire"
    traits = traits_def(Acts(ORDER))
    assembly_format = "attr-dict"


@op_definition
class PingPongReleaseOp(Op):
    """`stage.ping_pong.release`: it is the next warpgroup's turn."""

    name = "stage.ping_pong.release"
    traits = traits_def(Acts(ORDER))
    assembly_format = "attr-dict"


@op_definition
class SchedBarrierOp(Op):
    """`stage.sched_barrier`: what the program computes before it is not computed behind it, nor the other way round.

    For arithmetic beside products in flight, which the assembler would move across a wait for them.
    """

    name = "stage.sched_barrier"
    traits = traits_def(Acts(ORDER))
    assembly_format = "attr-dict"
