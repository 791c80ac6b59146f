"""The kernel of a module, and what becomes of the maps that its author wrote."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.traits import SymbolTable

from tilewright.arguments import Grid
from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects.kernel_attributes import LEVEL, SUBGROUPS
from tilewright.dialects.nesting import ops_around
from tilewright.dialects.xetile import TileType
from tilewright.passes.carried import operands_of, reached

BLOCK = "tilewright.block"
"""Attribute of a kernel: `array<i64: x, y, z>`, the threads of its launch."""
PROGRAMS = "tilewright.split"
"""Attribute of a kernel: programs along x for each of the launch's."""
MERGED = "tilewright.merged"
"""Attribute of a kernel: `array<i64: x, y, z>`, programs of the launch along each axis that one of the kernel's stands
for, the last for what is left; three more numbers where so many of the kernel's do: `24, 1, 1, 17, 1, 1`."""
SPILLS = "tilewright.spills"
"""Attribute of a kernel: what its registers do not hold may lie in memory."""
IN_PASSES = "tilewright.passes"
"""Attribute of a kernel: the parts that its tiles are computed in, one after the other."""
REMARKS = "tilewright.remarks"
"""Attribute of a kernel: what its author should know of its lowering, an array of strings."""


def add_remarks(kernel: Operation, remarks: Sequence[str]) -> None:
    """Puts remarks onto a kernel, behind those that it has."""
    if remarks:
        known = kernel.attributes.get(REMARKS)
        old = list(known.data) if isinstance(known, ArrayAttr) else []
        kernel.attributes[REMARKS] = ArrayAttr([*old, *map(StringAttr, remarks)])


def programs_of(kernel: Operation) -> int:
    """How many programs along x stand for one of the launch's."""
    return integer(kernel, PROGRAMS, 1)


Factors: TypeAlias = "tuple[Fraction, Fraction, Fraction]"
"""Of the launch's programs, along each axis, those that one of a kernel's stands for."""


def factors_of(kernel: Operation, name: str = MERGED) -> Factors | None:
    """What an attribute like `MERGED` says."""
    known = kernel.attributes.get(name)
    if not isinstance(known, DenseArrayBase):
        return None
    x, y, z, *of = (int(n) for n in known.get_values())  # pyright: ignore[reportUnknownArgumentType]
    a, b, c = of or (1, 1, 1)
    return Fraction(x, a), Fraction(y, b), Fraction(z, c)


def factors_attr(factors: Sequence[Fraction | int]) -> DenseArrayBase:
    """An attribute like `MERGED`."""
    of = [f.denominator for f in factors]
    numbers = [f.numerator for f in factors] + (of if max(of) > 1 else [])
    return DenseArrayBase.from_list(i64, numbers)


def merged_of(kernel: Operation) -> Factors:
    """How many of the launch's programs along each axis one of a kernel's stands for."""
    return factors_of(kernel) or (Fraction(1), Fraction(1), Fraction(1))


def programs_of_launch(kernel: Operation, grid: Grid) -> Grid:
    """The programs of a kernel along each axis for a launch's grid."""
    x, y, z = (-(-n // each) for n, each in zip(grid, merged_of(kernel), strict=True))
    return x * programs_of(kernel), y, z


def integer(op: Operation, name: str, default: int) -> int:
    """An integer attribute of a kernel."""
    found = op.attributes.get(name)
    return found.value.data if isinstance(found, IntegerAttr) else default


def subgroups_of(kernel: Operation) -> int:
    """How many subgroups a kernel says that its workgroups have; 1 where it says nothing."""
    return integer(kernel, SUBGROUPS, 1)


def block_of(kernel: Operation) -> tuple[int, int, int] | None:
    """The threads of the kernel's launch, where it says them."""
    return three(kernel, BLOCK)


def three(op: Operation, name: str) -> Grid | None:
    """An attribute of one integer for each axis."""
    known = op.attributes.get(name)
    if not isinstance(known, DenseArrayBase):
        return None
    x, y, z = (int(n) for n in known.get_values())  # pyright: ignore[reportUnknownArgumentType]
    return x, y, z


def level_of(kernel: Operation) -> str:
    """Who runs the text of a kernel: what it says, or what its ops tell."""
    stated = kernel.attributes.get(LEVEL)
    if isinstance(stated, StringAttr):
        if stated.data not in ("workgroup", "subgroup", "lane"):
            raise error_at(
                kernel,
                f"{LEVEL} says {stated.data!r}, which no kernel is",
                hint="workgroup, subgroup or lane: who runs the text",
            )
        return stated.data
    # Imported here: it brings the XeGPU dialect, for which most kernels have no use.
    from tilewright.passes.level import infer_level

    return infer_level(kernel)


def kernel_of(module: ModuleOp) -> gpu.FuncOp:
    """The module's only kernel. CompileError where it has none or several."""
    found = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    if len(found) != 1:
        names = ", ".join(op.sym_name.data for op in found) or "none"
        place = found[1] if found else module
        raise error_at(
            place,
            f"a module to compile has one kernel; this one has {names}",
            rule="a kernel is a gpu.func with the attribute kernel, or a func of loops over tiles",
            hint="name the one to compile behind the file: FILE.mlir:KERNEL" if found else None,
        )
    return found[0]


def launches_by_kernel(module: Operation) -> dict[gpu.FuncOp, list[gpu.LaunchFuncOp]]:
    """The kernels in a module, each with its launches: a name is what the nearest module around calls so."""
    ops = list(module.walk())
    found: dict[gpu.FuncOp, list[gpu.LaunchFuncOp]] = {
        op: [] for op in ops if isinstance(op, gpu.FuncOp)
    }
    for op in ops:
        if isinstance(op, gpu.LaunchFuncOp):
            tables = (each for each in ops_around(op) if each.has_trait(SymbolTable))
            named = (SymbolTable.lookup_symbol(table, op.kernel) for table in tables)
            kernel = next((each for each in named if each is not None), None)
            if isinstance(kernel, gpu.FuncOp) and kernel in found:
                found[kernel].append(op)
    return found


def leave_out_maps(kernel: gpu.FuncOp, remarks: list[str], *, strict: bool, instead: str) -> None:
    """Notes that a target does not use the maps of `kernel`: what holds `instead` is in the remark.

    Raises UnsupportedError at the first op that has a map where the user asked for them (`strict`).
    """
    for op in kernel.walk():
        maps = any(name.startswith("wg_map") and op.properties[name] for name in op.properties)
        tiles = [r.type for r in op.results if isinstance(r.type, TileType)]
        if not maps and not any(t.wg_map is not None or t.sg_map is not None for t in tiles):
            continue
        if strict:
            raise unsupported(
                op,
                f"{op.name} has a map, which this target cannot follow: {instead}",
                hint="without options(maps='strict') the map is ignored, with a remark",
            )
        remarks.append(f"{op.name}: its map is not used, {instead}")
        return


def program_ids(ssa: SSAValue) -> list[gpu.BlockIdOp]:
    """The numbers of a program that go into a value, but for what loops carry."""
    owners = (value.owner for value in reached([ssa], operands_of))
    return [op for op in owners if isinstance(op, gpu.BlockIdOp)]
