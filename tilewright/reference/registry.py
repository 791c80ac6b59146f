"""The tables of meanings: op name -> what the op does, one row per instance.

Two decorators fill them, and anyone may: a new dialect writes one file that imports these.

`@meaning("arith.addf")` for an op that computes results from operands, with memory at most::

    @meaning("mydialect.scale")
    def scale(site: Site, op: Operation, value: Array, factor: Array) -> Array:
        return value * factor.reshape(-1, 1, 1)

Operands and results are *rows*: numpy arrays whose first axis counts the instances of the batch
(workgroups, times subgroups, times lanes), or is 1 when the value is the same for all of them. So
a scalar is `(n,)` or `(1,)`, a `vector<8x16xf32>` is `(n, 8, 16)` or `(1, 8, 16)`. Memrefs and
tiles are records of such arrays (`tilewright.reference.values`). An op with one result returns the
row value, with several a tuple, with none `None`. Operand arrays are never written to.
`site` (`tilewright.reference.site.Site`) gives the instances that run, their workgroup and
subgroup numbers, memory, and `site.report` for findings.

`@control("scf.for")` for an op with regions or branches: it is called once, before the program
runs, with a `SegmentBuilder` (`tilewright.reference.program`) that lays the op out as segments.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation

from tilewright.rules import Rules

if TYPE_CHECKING:
    from tilewright.reference.program import SegmentBuilder

Meaning = Callable[..., Any]
Control = Callable[["SegmentBuilder", Any], None]

meaning: Rules[Meaning] = Rules(once=True)
"""The meanings of ops; as a decorator it takes one more."""
control: Rules[Control] = Rules(once=True)
"""How ops of control flow are laid out."""
MEANINGS, CONTROLS = meaning.by_name, control.by_name
INSTRUCTIONS: list[Callable[[str], Any]] = []
"""Tables of machine instructions: by name the entry that has the meaning, or None."""

# Files that fill the tables, imported when the first program is laid out.
MEANING_MODULES: list[str] = [
    f"tilewright.reference.meanings.{name}"
    for name in (
        *("arith", "math", "index", "vector", "reductions", "scf", "cf", "func"),
        *("memref", "gpu", "xetile", "stage", "asynchronous", "clusters", "builtin"),
        *("debug", "printing", "linalg"),
        *("mach", "instructions", "mbarriers", "copies", "wgmma"),
    )
] + [
    "tilewright.reference.lanes",
    "tilewright.reference.xegpu",
    "tilewright.targets.instructions",
]


def load_meanings() -> None:
    """Imports every file of `MEANING_MODULES`; a target adds its own with `MEANING_MODULES.append`."""
    for module in MEANING_MODULES:
        import_module(module)


def has_meaning(op: Operation) -> bool:
    """Whether the executor can run the op itself (not what its regions hold)."""
    load_meanings()
    return op.name in MEANINGS or op.name in CONTROLS
