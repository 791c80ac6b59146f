"""Who looks at a program between its passes: `check`, printers of stages, tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

Observer: TypeAlias = "Callable[[str, ModuleOp], None]"
"""Is told a name (of a pass that ran, or of a stage), with the module as it is there (not to be changed)."""


def ignore(name: str, module: ModuleOp) -> None:
    """The observer that looks at nothing."""
