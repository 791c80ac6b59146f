"""Looking into a running kernel: tw.print, tw.breakpoint."""

from __future__ import annotations

import pdb
from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.dialects import gpu
from xdsl.ir import Operation

from tilewright.diagnostics import location_of
from tilewright.dialects import tw
from tilewright.dialects.nesting import enclosing
from tilewright.printed import number, spelled
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import row_count, take


def row_of(value: Any, position: int) -> Any:
    """One instance's value: a number, an array, or a record."""
    if isinstance(value, np.ndarray):
        row = value[position if value.shape[0] > 1 else 0]
        return row.item() if row.ndim == 0 and row.dtype.kind in "biuf" else row
    return take(value, np.array([position if row_count(value) > 1 else 0]))


@meaning("tw.print")
def print_(site: Site, op: tw.PrintOp, *values: Any) -> None:
    """One line per instance that prints; a kernel's says which one it is."""
    inside = site.batch.count > 1 or in_kernel(op)
    for position in range(site.count):
        words = op.format.data.format(*(show(row_of(value, position)) for value in values))
        if site.batch.threads:
            print(words)  # as the driver's printf: the program itself says who it is, and counts
            continue
        if inside:
            who = site.machine.name_of_instance(int(site.instances[position]))
            words = f"[{who}] {words}"
        site.machine.context.lines.write(words)


def in_kernel(op: Operation) -> bool:
    """Whether an op stands in a kernel, not in a program of the host."""
    return enclosing(op, gpu.FuncOp) is not None


def show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        text, places = spelled(value.shape, "{}")
        return text.format(*(show(value[place].item()) for place in places))
    return number(value)


@meaning("tw.breakpoint")
def breakpoint_(site: Site, op: tw.BreakpointOp, *values: Any) -> None:
    """Opens pdb for the first workgroup of the group; `all_<name>` holds everybody's values."""
    variables: dict[str, Any] = {}
    for name, value in zip(op.names, values, strict=True):
        variables[name.data] = row_of(value, 0)
        if site.count > 1 and isinstance(value, np.ndarray):
            variables[f"all_{name.data}"] = np.broadcast_to(value, (site.count, *value.shape[1:]))
    who = site.machine.name_of_instance(int(site.instances[0]))
    open_debugger(f"{location_of(op) or op.name}: {who}", variables)


def open_debugger(title: str, variables: Mapping[str, Any]) -> None:
    """A pdb prompt in which `variables` are the local ones; `continue` goes on with the kernel."""
    print(f"breakpoint in {title}; variables: {', '.join(variables) or 'none'}")
    debugger = pdb.Pdb(nosigint=True)
    debugger.prompt = "(kernel) "
    code = compile("...", "<kernel>", "exec")
    debugger.runctx(code, {"np": np}, dict(variables))
