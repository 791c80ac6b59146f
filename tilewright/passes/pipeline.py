"""What a pass is, for every target: data. A list of passes is a pipeline, and reads as the story of its target.

    PASSES = (*BEGIN, Pass("carry-offsets", carry_offsets, W), CLEANUP, SPLIT, ..)
    run(PASSES, unit, observe, stage)

| who reads it | what for |
|---|---|
| `run` | does the passes of a list in order, but for those that `options.disable` leaves out |
| `tilewright opt -p NAME` | does one pass of a list alone, on every function at one of the levels that it requires |
| `tilewright check` | sees every pass that ran, and executes what it left |
| `--emit` | prints the program behind the last pass of a stage |
| `docs/make_passes.py` | prints the lists of the targets as tables |

A pass rewrites the kernel of a unit in place, or the whole module; it takes what it must know from the program's text
and from the unit, so that it can run behind any text at its level, in a pipeline or alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from typing import Any, ClassVar, Generic, TypeVar

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import UnsupportedError, did_you_mean
from tilewright.frozen import frozen, record
from tilewright.observer import Observer, ignore
from tilewright.passes.cleanup import cleanup
from tilewright.passes.kernel import kernel_of

M = TypeVar("M")
U = TypeVar("U", bound="Unit[Any]")
U_contra = TypeVar("U_contra", bound="Unit[Any]", contravariant=True)


@record
class Unit(Generic[M]):
    """What passes work on: a module with one kernel, the machine that it is for, and what is learnt on the way."""

    module: ModuleOp
    machine: M
    off: frozenset[str] = frozenset()
    """The names of what is left out (`options.disable`)."""
    remarks: list[str] = field(default_factory=list[str])
    """What the user should know of the code: what was replaced, or could not be done, and why."""
    only: gpu.FuncOp | None = None
    """The kernel, where the module has several."""
    together: ClassVar[bool] = False
    """Whether subgroups that share memory are done in one program (`subgroups-together`), for want of another way."""
    passes: int = 1
    """In how many passes its workgroups compute their tiles (`retile`)."""
    clean: bool = False
    """Whether nothing has run since the last cleanup."""

    @property
    def kernel(self) -> gpu.FuncOp:
        """The kernel. CompileError where the module has none, or several."""
        if self.only is None:
            self.only = kernel_of(self.module)
        return self.only

    def runs(self, name: str) -> bool:
        """Whether a target, machine or feature, by its name in `tilewright.implementations`, is the one at hand."""
        return False

    def on(self, name: str) -> bool:
        """Whether something that may be left out is not."""
        return name not in self.off


def always(unit: Unit[Any]) -> bool:
    """The condition of a pass that every kernel goes through."""
    return True


@frozen
class Pass(Generic[U_contra]):
    """One rewriting of a program."""

    name: str
    rewrite: Callable[..., object]
    """Rewrites the unit's kernel in place; the whole module, or `unit.module` itself, where `whole` is set."""
    requires: Collection[str] = ()
    """The levels of the kernels that it is for; empty: any."""
    given: str = "kernel"
    """What `rewrite` is given: attributes of the unit by name, in order, or the `unit` as it is."""
    optional: bool | str = False
    """Whether results stay right without it: `options.disable` may then name it, by its name or by this other one."""
    choices: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `options.disable` may leave out of it, by name, with its story."""
    when: Callable[[U_contra], bool] = always
    """Which kernels of a pipeline it has something to do for."""
    stage: str = ""
    """The stage (`--emit`) that the program is in behind it."""
    machine: bool = False
    """Whether it asks the machine; so does a pass that is given it."""
    whole: bool = False
    """Whether it looks at all of a module at once; so does a pass that is given it."""
    make: Callable[..., Pass[Any]] | None = None
    """What made it, whose parameters are its options; None where it has none."""
    told: str = ""
    """Its story, where `rewrite` does not tell it."""

    def __post_init__(self):
        names = self.given.split()
        object.__setattr__(self, "machine", self.machine or "machine" in names)
        object.__setattr__(self, "whole", self.whole or "module" in names)

    @property
    def story(self) -> str:
        """What it does to a program, as a line of its target's story: what `rewrite` says of itself first.

        Under `python -OO`, which keeps no docstrings, its name."""
        said = self.rewrite.__doc__ or self.name.replace("-", " ")
        first = said.partition("\n\n")[0].partition(". ")[0]
        return self.told or first[:1].lower() + " ".join(first[1:].split()).removesuffix(".")

    def apply(self, unit: U_contra) -> None:
        """Rewrites the unit's program."""
        self.rewrite(*(unit if n == "unit" else getattr(unit, n) for n in self.given.split()))

    @property
    def switches(self) -> dict[str, str]:
        """The names that `options.disable` may use of it, each with what is left out."""
        own = self.optional if isinstance(self.optional, str) else self.name
        return {**({own: self.story} if self.optional else {}), **self.choices}

    def is_due(self, unit: U_contra) -> bool:
        """Whether a pipeline does it for a unit."""
        if self.optional and (self.name in unit.off or self.optional in unit.off):
            return False
        return self.when(unit)

    def to(self, stage: str, story: str = "") -> Pass[U_contra]:
        """The pass at a place of a list: the stage behind it, and what it is for there."""
        return replace(self, stage=stage, told=story or self.told)


def _clean(unit: Unit[Any]) -> None:
    """Removes dead code and common subexpressions; hoists scalars and tiles out of loops."""
    cleanup(unit.kernel)
    unit.clean = True


CLEANUP = Pass[Unit[Any]]("cleanup", _clean, given="unit", when=lambda u: not u.clean)


def run(
    passes: Sequence[Pass[U]],
    unit: U,
    observe: Observer = ignore,
    stage: Observer = ignore,
    within: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> None:
    """Does passes in order: `observe` is called with each that ran, `stage` of each stage that is reached.

    `within` gives, for a pass's name, what it runs inside of: a part of a budget of time, say.
    """
    for n, each in enumerate(passes):
        with within(each.name):
            due = each.is_due(unit)
            if due:
                unit.clean = False
                each.apply(unit)
        if due:
            observe(each.name, unit.module)
        if each.stage and (n + 1 == len(passes) or passes[n + 1].stage != each.stage):
            stage(each.stage, unit.module)


@frozen
class Pipeline(Generic[U]):
    """The passes of a target, and how each is done alone."""

    target: str
    passes: Sequence[Pass[U]]
    """All of them, in order; where a kernel goes one of two ways, the one behind the other."""
    unit: Callable[[ModuleOp, str], U]
    """The unit of a module for a machine that is called so."""
    machine: str
    """The machine of passes that are done alone, where none is named."""
    more: Sequence[Pass[U]] = ()
    """Passes that no kernel goes through, but `opt` knows."""

    @property
    def switches(self) -> dict[str, str]:
        """What `options.disable` may name, each with what is left out."""
        return switches_of(self.passes)

    def check(self, off: Collection[str], target: str) -> None:
        """Raises UnsupportedError, in the words of a user's `target`, where it has nothing of a name to leave out."""
        check_switches(off, self.switches, target)

    def alone(self, each: Pass[U], module: ModuleOp, machine: str = "") -> list[str]:
        """Does one pass on a module in place, for every function that it is for; its remarks.

        One remark says so where there is none.
        """
        machine = machine or self.machine
        if each.whole:
            unit = self.unit(module, machine)
            each.apply(unit)
            if unit.module is not module:
                module.body.detach_block(module.body.block)
                unit.module.body.move_blocks(module.body)
            return unit.remarks
        # Imported here: it brings the XeGPU dialect, which most pipelines have no use for.
        from tilewright.passes.kernel import level_of
        from tilewright.passes.level import functions_of

        remarks: list[str] = []
        functions = functions_of(module)
        found = [f for f in functions if not each.requires or level_of(f) in each.requires]
        if functions and not found:
            levels = " or ".join(each.requires)
            remarks.append(f"{each.name} did nothing: no kernel is at {levels} level")
        for function in found:
            unit = self.unit(module, machine)
            unit.only, unit.remarks = function, remarks
            each.apply(unit)
        return remarks


def switches_of(passes: Sequence[Pass[Any]]) -> dict[str, str]:
    """What `options.disable` may name of some passes, each with what is left out."""
    found: dict[str, str] = {}
    for each in passes:
        for name, story in each.switches.items():
            found.setdefault(name, story)
    return found


def check_switches(off: Collection[str], known: Mapping[str, str], target: str) -> None:
    """Raises UnsupportedError where `off` names what a target does not know how to leave out."""
    for name in sorted(set(off).difference(known)):
        near = did_you_mean(name, known)
        raise UnsupportedError(
            f"target {target} has no pass {name!r} to disable",
            hint=f"{near + ' ' if near else ''}its optional passes are {', '.join(known)}"
            if known
            else "it has none",
        )
