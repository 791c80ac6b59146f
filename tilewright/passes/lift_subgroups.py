"""lift-subgroups: the program of one subgroup, where subgroups do not meet, is the program of a workgroup.

    gpu.func @k(..) kernel {tilewright.level = "subgroup"}     gpu.func @k(..) kernel {tilewright.level = "workgroup"}
      %s = gpu.subgroup_id                                ->     %b = gpu.block_id x
      ...                                                         %s = %b rem n ...

Requires a kernel at workgroup or subgroup level. Guarantees workgroup level; a launch then runs as many
workgroups along x for each of its own as a workgroup had subgroups (`subgroup_to_workgroup` refuses
kernels whose subgroups share memory or meet).
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, StringAttr


def lift_subgroups(kernel: gpu.FuncOp) -> int:
    """A kernel that is the program of one subgroup becomes a workgroup's; how many subgroups a workgroup had."""
    level = kernel.attributes.get("tilewright.level")
    if isinstance(level, StringAttr) and level.data == "workgroup":
        return 1
    # Imported here: they bring the XeGPU dialect, which most kernels have no use for.
    from tilewright.passes.level import infer_level
    from tilewright.passes.subgroup_to_workgroup import subgroup_to_workgroup

    if infer_level(kernel) != "subgroup":
        return 1
    stated = kernel.attributes.get("tilewright.subgroups")
    count = stated.value.data if isinstance(stated, IntegerAttr) else 1
    subgroup_to_workgroup(kernel, count, (count, 1, 1))
    return count
