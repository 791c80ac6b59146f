"""Kernels as text for the executor's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.texts import parse_module
from tilewright import reference


def module_of(arguments: str, body: str, attributes: str = "", outside: str = ""):
    """A module with one kernel @k; `arguments` and `body` are MLIR text."""
    return parse_module(
        f"""builtin.module {{
        {outside}
        gpu.module @m {{
        gpu.func @k({arguments}) kernel {"attributes {" + attributes + "}" if attributes else ""} {{
        {body}
        gpu.return
        }}
        }}
        }}""",
        "kernel.mlir",
    )


def run(
    arguments: str,
    body: str,
    args: Sequence[Any],
    grid: Any = (1,),
    *,
    subgroups: int | None = None,
    **options: Any,
) -> reference.Report:
    """Runs a kernel given as text; with `subgroups` it is one of subgroup level."""
    attributes = ""
    if subgroups is not None:
        attributes = f'tilewright.level = "subgroup", tilewright.subgroups = {subgroups} : i64'
    return reference.run(module_of(arguments, body, attributes), grid, args, **options)
