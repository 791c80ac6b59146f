"""What the emitter must know of a target.

Nothing here imports the IR: code that lies on disk is loaded and launched without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.frozen import field, frozen

if TYPE_CHECKING:
    from tilewright.codegen.printer import Printer
    from tilewright.codegen.registers import Representation
    from tilewright.uarch.cpu import Architecture

TEXTS_AT_ONCE = 8
"""At most so many texts become code at a time."""
Handler: TypeAlias = "Callable[[Printer, Any], None]"
"""Prints one op: reads its operands' registers, emits LLVM lines, sets its results' registers."""


def _no_handlers() -> Mapping[str, Handler]:
    return {}


@frozen
class LLVMTarget:
    """A code generator of LLVM as the emitter sees it. Frozen: part of a cache key through `key()`."""

    name: str
    triple: str
    cpu: str
    features: frozenset[str]
    values: str
    """What registers hold, by the name of a `Representation`: "simd", "lanes", "fragments"."""
    kernel_convention: str = ""
    function_convention: str = ""
    function_attributes: str = ""
    provides: frozenset[str] = frozenset()
    """Abilities that LLVM has no feature name for: those that an instruction may require, and `f16 conversion`,
    `bf16 conversion` and `f16 arithmetic` (in instructions), `fused` (multiply-add), `maxima` (of floats, as IEEE
    says; `maxnum`: only those that drop NaN), `library` (C's), `exchange` (of words of 16 bytes)."""
    atomic_floats: tuple[str, ...] = ("f32", "f64")
    """Element types of floats that atomics take; see `atomic_loops` for the others."""
    least_atomic: int = 8
    """Bits of the shortest word that atomics take."""
    lacks_atomics: frozenset[str] = frozenset({"mulf", "muli"})
    """Kinds of atomics without an instruction."""
    handlers: Mapping[str, Handler] = field(default_factory=_no_handlers, hash=False, compare=False)
    """Ops that this target prints in its own way, by op name; the rest is common."""

    def __str__(self) -> str:
        return self.name

    @property
    def representation(self) -> Representation:
        """How values of the IR are mapped to registers."""
        from tilewright.codegen.registers import REPRESENTATIONS

        return REPRESENTATIONS[self.values]

    @property
    def family(self) -> str:
        """What its instructions' names begin with: `x86`, `nvptx`, `spirv`."""
        return self.name.partition("/")[0]

    def has(self, feature: str) -> bool:
        return feature in self.features or feature in self.provides

    def feature_string(self) -> str:
        """Features in LLVM's `+a,+b` form."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    def key(self) -> str:
        """Everything of the target that the printed text or the machine code depends on."""
        return f"{self.triple}|{self.cpu}|{self.feature_string()}|{self.values}"


def for_cpu(
    architecture: Architecture, level: str, extra: frozenset[str] = frozenset(), *, cpu: str = ""
) -> LLVMTarget:
    """A level of an architecture's table plus `extra` features (LLVM names, without `+`).

    `cpu` names LLVM's scheduling model; by default one that fits the level.
    """
    a = architecture
    if level not in a.levels:
        raise ValueError(f"{a.name} level '{level}' is not one of {', '.join(a.levels)}")
    features = a.features(level) | extra
    found = a.levels[level]
    return LLVMTarget(
        name=f"{a.name}/{level}",
        triple=a.triple,
        cpu=cpu or found.core,
        features=features,
        values="simd",
        function_attributes=f'nounwind "no-trapping-math"="true"{found.vectors.attributes}',
        provides=frozenset(x for x, needed in a.abilities.items() if needed in ("", *features)),
    )


def x86(level: str = "avx512", extra: frozenset[str] = frozenset(), *, cpu: str = "") -> LLVMTarget:
    """An x86-64 target: see `for_cpu`."""
    from tilewright.uarch.x86 import X86_64

    return for_cpu(X86_64, level, extra, cpu=cpu)


_OF_A_GPU = frozenset({"f16 conversion", "f16 arithmetic", "fused"})

NVPTX_ABILITIES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "sm_80": frozenset({"sm_80"}),
        "sm_86": frozenset({"sm_80", "sm_86"}),
        "sm_89": frozenset({"sm_80", "sm_86", "sm_89"}),
        "sm_90": frozenset({"sm_80", "sm_86", "sm_89", "sm_90"}),
        "sm_90a": frozenset({"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"}),
    }
)
"""What code for an NVIDIA architecture may use: its own instructions and those of its ancestors."""


def nvptx(cpu: str = "sm_80", ptx: int = 80) -> LLVMTarget:
    """NVIDIA: fragments as scalars, shared memory in 32-bit pointers.

    `cpu` is a key of `NVPTX_ABILITIES`; `ptx` 80 for PTX 8.0, which every driver from 525 on reads.
    """
    from tilewright.codegen.lanes import NVPTX_HANDLERS
    from tilewright.codegen.nvptx_masked import NVPTX_MASKED_HANDLERS
    from tilewright.codegen.nvptx_values import NVPTX_VALUE_HANDLERS

    if cpu not in NVPTX_ABILITIES:
        raise ValueError(f"NVIDIA architecture '{cpu}' is not one of {', '.join(NVPTX_ABILITIES)}")
    versions = {f"ptx{n}" for n in (80, 81, 82, 83, 84, 85, 86) if n <= ptx}
    return LLVMTarget(
        name=f"nvptx/{cpu}",
        triple="nvptx64-nvidia-cuda",
        cpu=cpu,
        features=frozenset({f"ptx{ptx}"}),
        values="fragments",
        kernel_convention="ptx_kernel",
        function_attributes="nounwind",
        provides=NVPTX_ABILITIES[cpu] | versions | _OF_A_GPU | {"bf16 conversion", "maxima"},
        handlers={**NVPTX_HANDLERS, **NVPTX_VALUE_HANDLERS, **NVPTX_MASKED_HANDLERS},
    )


def spirv(version: str = "") -> LLVMTarget:
    """SPIR-V for OpenCL consumers: lane vectors of at most 16 components. `version` pins it
    ("1.2"), else what is needed.
    """
    from tilewright.codegen.lanes import SPIRV_HANDLERS

    return LLVMTarget(
        name="spirv",
        triple=f"spirv64{'v' + version if version else ''}-unknown-unknown",
        cpu="",
        features=frozenset(),
        values="lanes",
        kernel_convention="spir_kernel",
        function_convention="spir_func",
        function_attributes="nounwind",
        provides=_OF_A_GPU | {"maxnum"},
        atomic_floats=("f16", "f32", "f64"),
        least_atomic=32,
        lacks_atomics=frozenset({"mulf", "muli", "maximumf", "minimumf"}),
        handlers=SPIRV_HANDLERS,
    )
