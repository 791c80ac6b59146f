"""The passes that make a kernel asynchronous, in the order in which they run: this reads as the story of sm_90a.

Each can be left out by name (`options.disable`); each needs those before it.

| pass | what it adds |
|---|---|
| positions | tiles are placed where they are loaded |
| rounding | f32 becomes tf32 where it is loaded |
| steps | several iterations of a loop of products are taken at once |
| shares | the workgroups of a cluster share a loop's iterations |
| masks | loops are split where masks begin or cease to hold everywhere |
| clusters | neighbouring programs share the copies of what both load (off: see CLUSTERS) |
| persistent | a workgroup runs many programs, side by side in the grid |
| rings | loads of products go through rings of shared memory, filled by TMA |
| puts | right operands that the program computes are written to rings too |
| products | products are done by warpgroups (wgmma) |
| partial | sums over columns stay apart, lane by lane, until a loop's end |
| slices | a product whose A is computed is done in slices of k |
| rotate | a loop's last product runs beside the next iteration |
| turns | warpgroups take turns at the matrix unit |
| overlap | a product is waited for one iteration later |
| stores | results leave through the copy engine |
| roles | one part of the workgroup copies, another computes |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects import gpu

from tilewright.dialects import stage
from tilewright.dialects.tw import PrintOp
from tilewright.passes.cleanup import cleanup
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.ownership import Ownership, plan_ownership
from tilewright.targets.cuda.passes.clusters import form_clusters
from tilewright.targets.cuda.passes.masks import split_masked
from tilewright.targets.cuda.passes.overlap import overlap_products
from tilewright.targets.cuda.passes.partial import keep_partial
from tilewright.targets.cuda.passes.persistent import make_persistent
from tilewright.targets.cuda.passes.positions import place_tiles
from tilewright.targets.cuda.passes.products import issue_products
from tilewright.targets.cuda.passes.puts import put_bytes, put_operands
from tilewright.targets.cuda.passes.rings import Budget, form_rings, ring_loads, will_form
from tilewright.targets.cuda.passes.roles import WARPGROUP, split_roles
from tilewright.targets.cuda.passes.rotate import rotate_loops
from tilewright.targets.cuda.passes.rounding import round_where_loaded
from tilewright.targets.cuda.passes.shares import share_loop
from tilewright.targets.cuda.passes.slices import slice_products
from tilewright.targets.cuda.passes.steps import merge_steps, narrow_steps
from tilewright.targets.cuda.passes.stores import engine_stores, panel_bytes
from tilewright.targets.cuda.passes.suits import warpgroups
from tilewright.targets.cuda.passes.turns import take_turns
from tilewright.targets.cuda.sharing import ALONE, Share, Work
from tilewright.targets.cuda.work import work_of
from tilewright.uarch.base import Machine

ABLATIONS = (
    "rings",
    "masks",
    "persistent",
    "steps",
    "shares",
    "clusters",
    "slices",
    "partial",
    "rotate",
    "turns",
    "overlap",
    "stores",
    "roles",
)
SPARE = (2 << 10, 16 << 10, 48 << 10, 96 << 10)
"""Bytes of shared memory kept from rings, for barriers and what else a kernel needs: tried in turn."""

CLUSTERS = False
"""Whether neighbouring programs form clusters. On an H200 products of 2048 to 8192 cubed are no faster with them
(0.96, 0.99 and 1.00 of the speed without): L2 feeds the copies of one workgroup per multiprocessor as it is."""

Run = Callable[[str, Callable[[], object]], None]


@dataclass(frozen=True)
class Asynchronous:
    """What was learnt of a kernel that was made asynchronous."""

    work: Work | None
    """Its loop, if several workgroups may compute one of its programs."""


def make_asynchronous(
    kernel: gpu.FuncOp,
    machine: Machine,
    options: CompileOptions,
    run: Run,
    remarks: list[str],
    spare: int = SPARE[0],
    share: Share = ALONE,
) -> Asynchronous | None:
    """Rewrites one kernel at workgroup level; None, and nothing is changed, where it has no use for this.

    `spare` bytes of shared memory are left for other things than rings and panels. `share.parts` workgroups
    share the iterations of the kernel's loop, if it has that form.
    """
    off = options.disable
    if "rings" in off or machine.name != "sm_90a":
        return None
    if any(isinstance(op, PrintOp) for op in kernel.walk()):
        remarks.append("copies and products do not run beside a program that prints")
        return None
    run("positions", lambda: place_tiles(kernel))
    run("rounding", lambda: round_where_loaded(kernel))
    run("cleanup", lambda: cleanup(kernel))
    if not will_form(kernel, machine, remarks):
        return None
    groups = warpgroups(kernel)
    if "masks" not in off:
        run("masks", lambda: split_masked(kernel))
        run("cleanup", lambda: cleanup(kernel))
    if "steps" not in off and (times := share.steps * narrow_steps(kernel)) > 1:
        run("steps", lambda: merge_steps(kernel, times))
        run("cleanup", lambda: cleanup(kernel))
    planned = share != ALONE or bool(off) or options.num_stages is not None
    work = None if planned else work_of(kernel, machine)
    if share.parts > 1:
        run("shares", lambda: share_loop(kernel, share.parts))
        off = off | {"persistent"}
    copied = ring_loads(kernel, machine)
    if not copied and groups == 1:
        # Threads load everything: several workgroups of a multiprocessor hide one another's waiting.
        off = off | {"persistent"}
    if "persistent" not in off and CLUSTERS and "clusters" not in off:
        run("clusters", lambda: form_clusters(kernel, machine))
    if "persistent" not in off:
        run("persistent", lambda: make_persistent(kernel, remarks))
    panels = panel_bytes(groups) if "stores" not in off else 0
    room = machine.memories["smem"].size - spare - panels
    room -= put_bytes(kernel, machine, copied)
    budget = Budget(room, options.num_stages)
    run("rings", lambda: form_rings(kernel, machine, budget, remarks))
    run("puts", lambda: put_operands(kernel, machine))
    run("products", lambda: issue_products(kernel, machine, remarks))
    if "slices" not in off:
        run("slices", lambda: slice_products(kernel, machine))
    if "partial" not in off:
        run("partial", lambda: keep_partial(kernel))
    if "rotate" not in off:
        run("rotate", lambda: rotate_loops(kernel, groups))
    if "turns" not in off:
        run("turns", lambda: take_turns(kernel, groups))
    if "overlap" not in off:
        run("overlap", lambda: overlap_products(kernel))
    if "stores" not in off:
        run("stores", lambda: engine_stores(kernel, groups, remarks))
    if "roles" not in off:
        run("roles", lambda: split_roles(kernel, machine, remarks))
    run("cleanup", lambda: cleanup(kernel))
    return Asynchronous(work)


def team_ownership(kernel: gpu.FuncOp) -> Ownership | None:
    """Ownership of a kernel that was made asynchronous: roles choose their own; None for any other kernel."""
    roles = next((op for op in kernel.walk() if isinstance(op, stage.RolesOp)), None)
    if roles is not None:
        return Ownership(sum(role.warps.value.data for role in roles.roles))
    if any(isinstance(op, stage.ProductIssueOp | stage.RingOp) for op in kernel.walk()):
        return plan_ownership(kernel.body.block, WARPGROUP * warpgroups(kernel))
    return None
