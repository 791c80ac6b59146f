"""What a target is: something that turns a kernel's module into an executable and launches it.

The launcher (:mod:`tilewright.runtime.launch`) knows targets only through the two protocols here,
and finds them by name in :func:`get_target`. A target's package is imported when it is first asked
for, so that a machine without a driver still imports Tilewright.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from tilewright.arguments import HOST_ALIGNMENT, Argument, ArrayArg, Grid, numpy_view
from tilewright.diagnostics import UnsupportedError, did_you_mean
from tilewright.frozen import frozen
from tilewright.observer import Observer, ignore

if TYPE_CHECKING:
    import numpy as np
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.dtypes import DType
    from tilewright.passes.launch_cost import Choice
    from tilewright.passes.pipeline import Pipeline
    from tilewright.passes.planner import Request
    from tilewright.reference import Report
    from tilewright.reference.engine import Schedule
    from tilewright.uarch import Machine, Rates


@frozen
class CompileOptions:
    """The settings under which one kernel is compiled and launched."""

    target: str = "cpu"
    """A name of :data:`TARGETS`, or a machine of one (``xe-pvc``)."""
    machine: str | None = None
    """The machine's table in ``uarch/``, or None for the one at hand."""
    num_threads: int | None = None
    """Threads of one launch (cpu); None for all cores. Read at launch, never compiled in."""
    num_stages: int | None = None
    """Depth of software pipelines; None lets the planner choose."""
    fastmath: bool = True
    """Whether FMA contraction and approximate functions are allowed."""
    maps: Literal["advice", "strict"] = "advice"
    """Whether a map that the target cannot realise is replaced with a remark, or refused."""
    disable: frozenset[str] = field(default_factory=frozenset[str])
    """Names of optimisation passes that are left out."""

    @property
    def code_key(self) -> str:
        """The settings that the code depends on, as text, for cache keys."""
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "num_threads"}
        parts["disable"] = sorted(self.disable)
        return repr(parts)


class Executable(Protocol):
    """A compiled kernel, ready to run. Safe to launch from several threads at the same time."""

    @property
    def ir(self) -> Mapping[str, str]:
        """The text of every stage by name, first stage first; empty texts are left out."""
        ...

    @property
    def asm(self) -> Mapping[str, str]:
        """Target text by name: ``llvm``, ``asm``, ``ptx``, ``spirv``; made when asked for."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """What the compiler replaced, fell back to, or could not use, one sentence each."""
        ...

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        """Runs the kernel; returns when its stores are visible (cpu) or enqueued (cuda)."""
        ...


PreparedLaunch: TypeAlias = Callable[[Grid, "Sequence[int | float | bool]"], None]
"""Runs a kernel on arguments like those that it was prepared for: addresses stand for the arrays."""


@runtime_checkable
class Bindable(Protocol):
    """A prepared launch that can be bound to addresses and numbers, for the same launch again."""

    def bind(
        self, grid: Grid, values: Sequence[int | float | bool], often: bool = False
    ) -> Callable[[], None]:
        """The launch with these values; what they name must not change while it is in use.

        `often`: it may cost milliseconds to make.
        """
        ...


@runtime_checkable
class Preparable(Protocol):
    """An executable that does what it can once for all launches whose arguments look alike."""

    def prepare(self, args: Sequence[Argument]) -> PreparedLaunch:
        """A launch for arguments of these shapes, strides and types, wherever they lie."""
        ...


@runtime_checkable
class Storable(Protocol):
    """An executable that can be kept on disk and loaded again by :meth:`Target.load`."""

    def artifacts(self) -> Mapping[str, bytes]:
        """Everything that :meth:`Target.load` needs, by name: object code, metadata, texts."""
        ...


@runtime_checkable
class Advising(Protocol):
    """An executable that can find out more about itself than its target did while it compiled."""

    def advise(self) -> None:
        """Puts into `remarks` what a look at the finished code gives, in seconds at most."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """An executable that compiles more when it is launched."""

    def foresee(self, grid: Grid, args: Sequence[Argument]) -> None:
        """Compiles now, into the cache, what a launch like this one would compile; runs nothing."""
        ...


@runtime_checkable
class Interpretable(Protocol):
    """An executable whose last stage the reference executor runs, as a launch would."""

    def interpret(
        self, module: ModuleOp, grid: Grid, args: Sequence[Argument], schedule: Schedule, seed: int
    ) -> Report:
        """What checking mode finds in `module`, the last stage that its build showed, run on arrays in place.

        `schedule` and `seed` say when work beside the program is done.
        """
        ...


class Target(Protocol):
    """One kind of machine. A target holds no state that belongs to a kernel.

    What is asked of a target besides `build`, `fingerprint` and `load` has an answer here, which is that of a CPU
    without a table.
    """

    name: str
    """What users call it: `cpu`."""
    compiles: bool = True
    """Whether it makes code; else launches run the text."""
    on_host: bool = True
    """Whether launches take arrays of the host (which the target may copy to a device, and back)."""
    alignment: int = HOST_ALIGNMENT
    """Bytes: the largest alignment of arrays that code is specialised on; beyond the host's, on smaller ones, too."""
    row: int = 0
    """Bytes that a row has at least where code is specialised on whether it has as many; 0: it is not."""
    aligned: bool = False
    """Whether code needs arrays at multiples of their elements' size, and is better where they lie at larger ones."""
    takes_branches: bool = False
    """Whether blocks that branch to each other run as they stand."""
    emulator: str | None = None
    """The target that runs here, lane by lane, texts below workgroup level that this one compiles for a GPU."""

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> Executable:
        """Compiles ``module`` (one gpu.module with one kernel; it may be changed in place).

        ``observe`` is called after every pass.

        Raises CompileError for programs that are not legal and UnsupportedError for legal
        programs that this machine cannot run.
        """
        ...

    def begin(self) -> None:
        """A kernel is going to be built: what its launches need besides may be made meanwhile."""

    def fingerprint(self, options: CompileOptions) -> str:
        """All that the code depends on besides module and options: CPU features, LLVM version."""
        ...

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> Executable:
        """The executable whose :meth:`Storable.artifacts` these are, on the same fingerprint."""
        ...

    def describe(self, options: CompileOptions) -> str:
        """What it compiles for, for people."""
        return self.fingerprint(options)

    def machine(self, options: CompileOptions) -> Machine | None:
        """The table of the machine that ``options`` name, or that is at hand; None where there is none."""
        return None

    def rates(self, options: CompileOptions) -> Rates:
        """What launches are costed by: by default what the machine's table says."""
        from tilewright.uarch.base import GENERIC

        machine = self.machine(options)
        return GENERIC if machine is None else machine.rates

    def choices(
        self, request: Request, options: CompileOptions, every: bool = False
    ) -> Sequence[Choice]:
        """What the planner would give the constexprs that a launch leaves to it, the best first.

        `every`: all that a search might try, the same one first. Raises UnsupportedError where nothing makes a legal
        kernel.
        """
        from tilewright.passes.planner import choices

        return choices(request, self.rates(options), every=every)

    def tiles_products(self, a: DType, b: DType, options: CompileOptions) -> bool:
        """Do `choices` tell tiles of kernels that multiply such elements better than `rates` do?"""
        return False

    def product_tile(
        self,
        shape: tuple[int, int, int, int],
        types: tuple[DType, DType, DType],
        along_k: tuple[bool, bool],
        options: CompileOptions,
    ) -> tuple[int, int] | None:
        """Rows and columns of a tile of C for a batch of plain products C = A B of arrays; None where the target has no
        model that tells at once.

        `shape`: batches, M, N, K. `types`: elements of A and B, and what they are added up as. `along_k`: do elements
        of A, of B that follow one another along k lie together?
        """
        return None

    def samples(self, request: Request, options: CompileOptions) -> Sequence[Mapping[str, int]]:
        """Values for a request's constexprs whose times say how fast this machine is; none where the target's planner
        asks for no more than :meth:`rates`."""
        return []

    def fitted(
        self, timed: Sequence[tuple[Request, Mapping[str, int], float]], options: CompileOptions
    ) -> Mapping[str, float]:
        """Numbers of the target's own that explain the seconds of launches with the values of :meth:`samples`."""
        return {}

    def retiled(self, request: Request, options: CompileOptions) -> str:
        """What a launch that covers the arrays makes of the tile sizes of a kernel that leaves nothing to the planner,
        for people; "" where it takes them as they are."""
        return ""

    def resolve_auto(self, request: Request, options: CompileOptions) -> Mapping[str, Any]:
        """Values for the constexprs that a launch leaves to the planner."""
        return self.choices(request, options)[0].values

    def of_chosen(self, options: CompileOptions) -> CompileOptions:
        """The settings for a kernel whose sizes were chosen for the launch, which are to be taken as they are."""
        return options

    def identity(self, options: CompileOptions) -> str:
        """The machine whose times are measured with these options, for what is kept on disk: other than
        `fingerprint`, the same whatever version compiles."""
        return self.name

    def seconds(self, run: Callable[[], None], calls: int, arrays: Sequence[ArrayArg]) -> float:
        """How long one of so many launches in a row takes, on `arrays`, with all that it started."""
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls

    def fetched(self, array: ArrayArg) -> np.ndarray[Any, Any]:
        """A copy, on the host, of what an array holds when all launches are done."""
        return numpy_view(array).copy()

    def put(self, array: ArrayArg, content: np.ndarray[Any, Any]) -> None:
        """Writes what :meth:`fetched` gave back."""
        numpy_view(array)[...] = content

    def missing(self) -> str | None:
        """What is missing to run kernels here, as a sentence; None where they run."""
        return None

    def use(self) -> str:
        """What becomes of its kernels here: `runs`, `emulates` (on the CPU), or `compiles` (ahead of time only)."""
        return "runs" if self.missing() is None else "compiles"

    def tools(self) -> Mapping[str, str]:
        """What looks at and runs its kernels here besides Tilewright, by name, with its version or how to get it."""
        return {}

    def mirrored(self, arrays: Sequence[ArrayArg]) -> AbstractContextManager[list[ArrayArg]]:
        """Inside: arrays of the host where kernels reach them; after it what was written is on the host."""
        return nullcontext(list(arrays))


@runtime_checkable
class Device(Protocol):
    """A target that other libraries share a device's memory with."""

    def place(self, pointer: int, stream: int | None) -> str:
        """The device (`cuda:0`) that an address lies on; what `stream` holds now comes before what is launched next."""
        ...

    def exporting(self, ordinal: int) -> AbstractContextManager[int]:
        """Inside: the device is current, for a library that exports an array; the stream that shall wait for it."""
        ...


@frozen
class Entry:
    """A line of the table of targets."""

    package: str
    """Exports ``TARGET``."""
    about: str
    machines: str = ""
    """How the names of its machines begin where they stand alone (``sm_80``)."""


TARGETS: Mapping[str, Entry] = {
    "reference": Entry(
        "tilewright.targets.reference", "numpy meaning of every op, with checking mode"
    ),
    "cpu": Entry("tilewright.targets.cpu", "x86-64 (AMX, AVX-512, AVX2) and Arm (NEON, SVE2)"),
    "emu": Entry(
        "tilewright.targets.emu", "kernels of lanes and subgroups on the CPU, lane by lane"
    ),
    "cuda": Entry("tilewright.targets.cuda", "NVIDIA sm_80 and sm_90a through the driver", "sm_"),
    "xe": Entry("tilewright.targets.xe", "Intel Xe: pvc, bmg, dg2"),
}
"""Every target by the name that users call it."""

_loaded: dict[str, Target] = {}


def pipelines() -> Sequence[Pipeline[Any]]:
    """The passes of every target that has some (the `PIPELINE` of its package's `pipeline`)."""
    found: list[Pipeline[Any]] = []
    for entry in TARGETS.values():
        spec = importlib.util.find_spec(entry.package)
        if spec is not None and spec.submodule_search_locations:
            found.append(importlib.import_module(f"{entry.package}.pipeline").PIPELINE)
    return found


def split_name(name: str) -> tuple[str, str | None]:
    """Target and machine of a user's target name: ``cpu`` -> (cpu, None), ``xe-pvc`` -> (xe, pvc),
    ``sm_80`` and ``cuda-sm_80`` -> (cuda, sm_80).

    Raises UnsupportedError when no such target exists.
    """
    for family, entry in TARGETS.items():
        if entry.machines and name.startswith(entry.machines):
            return family, name
    family, _, machine = name.partition("-")
    if family not in TARGETS:
        from tilewright.uarch import MACHINES

        near = did_you_mean(name, [*TARGETS, *MACHINES])
        meant = f"{near} " if near else ""
        known = f"the targets are {', '.join(TARGETS)}; machines are named as xe-pvc and sm_90a are"
        raise UnsupportedError(f"no target is called {name!r}", hint=meant + known)
    return family, machine or None


def get_target(name: str) -> Target:
    """The target called ``name`` (``cpu``, ``xe-pvc``), imported when first asked for.

    Raises UnsupportedError when it does not exist or is not part of this installation.
    """
    found = _loaded.get(name)
    if found is None:
        family, _ = split_name(name)
        package = TARGETS[family].package
        try:
            found = importlib.import_module(package).TARGET
        except ModuleNotFoundError as error:
            if error.name is None or not package.startswith(error.name):
                raise
            raise UnsupportedError(
                f"target {family!r} is not part of this installation",
                hint="tilewright info lists what is here",
            ) from None
        except AttributeError:
            raise UnsupportedError(f"target {family!r} cannot run kernels yet") from None
        _loaded[name] = found
    return found


def pass_names(given: Any) -> frozenset[str]:
    """What `disable` says: one name, or several; UnsupportedError for anything else."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    names: frozenset[Any] = frozenset(cast("Iterable[Any]", given) if several else [given])
    if not all(isinstance(name, str) for name in names):
        raise UnsupportedError(f"disable={given!r} is not the name of a pass, or several")
    return names


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, Integral) and int(value) >= 1)


def _is_name(value: Any) -> bool:
    return value is None or isinstance(value, str)


_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "target": (_is_name, "the name of a target"),
    "machine": (_is_name, "the name of a machine"),
    "num_threads": (_is_count, "a positive number"),
    "num_stages": (_is_count, "a positive number"),
    "fastmath": (lambda value: isinstance(value, bool), "True or False"),
    "maps": (lambda value: value in ("advice", "strict"), "'advice' or 'strict'"),
}
"""What the value of an option must be."""


def with_options(options: CompileOptions, changes: Mapping[str, Any]) -> CompileOptions:
    """``options`` with ``changes``; UnsupportedError names an option that does not exist, or a value it cannot have."""
    known = [f.name for f in fields(options)]
    for name in changes:
        if name not in known:
            raise UnsupportedError(
                f"there is no option {name!r}", hint=f"the options are {', '.join(known)}"
            )
    fixed = dict(changes)
    if "disable" in fixed:
        fixed["disable"] = pass_names(fixed["disable"])
    for name in fixed.keys() & _VALUES.keys():
        allowed, what = _VALUES[name]
        if not allowed(fixed[name]):
            raise UnsupportedError(f"{name}={fixed[name]!r} is not {what}")
    if (target := fixed.get("target")) is not None:
        split_name(target)
    return replace(options, **fixed)


def rates_of(name: str) -> Rates:
    """What launches on a target are costed by."""
    return get_target(name).rates(CompileOptions(target=name))
