"""What the emitter must know of a target.

Nothing here imports the IR: code that lies on disk is loaded and launched without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from xdsl.ir import Operation

    from tilewright.codegen.printer import Printer
    from tilewright.codegen.registers import Representation

Handler: TypeAlias = "Callable[[Printer, Operation], None]"
"""Prints one op: reads its operands' registers, emits LLVM lines, sets its results' registers."""


def _no_handlers() -> Mapping[str, Handler]:
    return {}


@dataclass(frozen=True)
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
    """Abilities that an instruction may require and LLVM has no feature name for."""
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

    def has(self, feature: str) -> bool:
        return feature in self.features or feature in self.provides

    def feature_string(self) -> str:
        """Features in LLVM's `+a,+b` form."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    def key(self) -> str:
        """Everything of the target that the printed text or the machine code depends on."""
        return f"{self.triple}|{self.cpu}|{self.feature_string()}|{self.values}"


X86_LEVELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "x86-64": (),
        "avx2": ("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt", "sse4.2", "movbe"),
        "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"),
        "vnni": ("avx512vnni", "avx512vbmi", "avx512vbmi2"),
        "amx": ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16"),
    }
)
"""Feature levels of x86, each on top of the ones before it."""


def x86(level: str = "avx512", extra: frozenset[str] = frozenset(), *, cpu: str = "") -> LLVMTarget:
    """An x86-64 target: a level of `X86_LEVELS` plus `extra` features (LLVM names, without `+`).

    `cpu` names LLVM's scheduling model; by default one that fits the level.
    """
    if level not in X86_LEVELS:
        raise ValueError(f"x86 level '{level}' is not one of {', '.join(X86_LEVELS)}")
    names = list(X86_LEVELS)
    features = set(extra)
    for name in names[: names.index(level) + 1]:
        features.update(X86_LEVELS[name])
    model = {
        "x86-64": "x86-64",
        "avx2": "haswell",
        "avx512": "skylake-avx512",
        "vnni": "icelake-server",
        "amx": "sapphirerapids",
    }[level]
    width = 512 if "avx512f" in features else 256 if "avx2" in features else 128
    return LLVMTarget(
        name=f"x86/{level}",
        triple="x86_64-unknown-linux-gnu",
        cpu=cpu or model,
        features=frozenset(features),
        values="simd",
        function_attributes=f'nounwind "no-trapping-math"="true" "prefer-vector-width"="{width}"',
    )


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
    from tilewright.codegen.nvptx_printing import NVPTX_PRINTING_HANDLERS
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
        provides=NVPTX_ABILITIES[cpu] | versions,
        handlers={
            **NVPTX_HANDLERS,
            **NVPTX_VALUE_HANDLERS,
            **NVPTX_MASKED_HANDLERS,
            **NVPTX_PRINTING_HANDLERS,
        },
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
        atomic_floats=("f16", "f32", "f64"),
        least_atomic=32,
        lacks_atomics=frozenset({"mulf", "muli", "maximumf", "minimumf"}),
        handlers=SPIRV_HANDLERS,
    )
