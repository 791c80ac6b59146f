"""Names of ops, attributes and types that nothing here defines: what is meant, and what makes known ones of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tilewright.diagnostics import did_you_mean, nearest

_LOWERED = {
    "stablehlo": "stablehlo-opt --stablehlo-legalize-to-linalg",
    "mhlo": "mlir-hlo-opt --hlo-legalize-to-linalg",
    "torch": "torch-mlir-opt --torch-backend-to-linalg-on-tensors-backend-pipeline",
    "transform": "mlir-opt --transform-interpreter --test-transform-dialect-erase-schedule",
    "tosa": 'mlir-opt --pass-pipeline="builtin.module(func.func(tosa-to-linalg-named,tosa-to-scf,tosa-to-linalg,'
    'tosa-to-arith,tosa-to-tensor))"',
    "shape": 'mlir-opt --pass-pipeline="builtin.module(func.func(shape-to-shape-lowering,convert-shape-constraints),'
    'convert-shape-to-std,canonicalize)"',
    "quant": "mlir-opt --lower-quant-ops",
    "bufferization.dealloc": "mlir-opt --bufferization-lower-deallocations",
    "gpu.warp_execute_on_lane_0": "mlir-opt --test-vector-warp-distribute=rewrite-warp-ops-to-scf-if",
}
"""What makes known dialects of others."""
OF_A_MACHINE = frozenset(
    (
        *("nvgpu", "nvvm", "amdgpu", "rocdl", "xevm", "spirv", "llvm", "amx", "x86vector"),
        *("arm_neon", "arm_sve", "arm_sme", "emitc", "wasmssa"),
    )
)
"""Dialects of one machine, or of one compiler behind MLIR."""
_NOT_RUN = {
    "sparse_tensor": "sparse tensors are not run; dense ones are, without an encoding in their types",
    "complex": "complex numbers are run in functions and kernels, not in tensors; carry their real and imaginary parts",
    "async": "run what regions of async hold in their order: asynchronous are launches alone, gpu.launch_func async",
    **dict.fromkeys(
        OF_A_MACHINE,
        "these are the ops of one machine, or of one compiler behind MLIR: give the program as it was before the pass "
        "that made them (gpu, vector, memref, scf), and name the machine with --target",
    ),
    "gpu.binary": "give the gpu.module as it was before gpu-module-to-binary",
    **dict.fromkeys(
        ("omp", "acc"), "give the loops as they were before, scf.parallel or scf.forall"
    ),
}
"""What to do with dialects that nothing makes known ones of."""
UNKNOWN = re.compile(r"operation (\S+) is not registered", re.IGNORECASE)
UNKNOWN_ATTRIBUTE = re.compile(r"^'([\w.]+)' is not registered")
_FORMLESS = re.compile(r"[Oo]peration (\S+) does not have a custom format")


def is_alias(name: str, rest: str) -> bool:
    """Is `name`, followed by `rest` of the text, an alias that lacks its sign?"""
    return "." not in name and re.match(r"\s*=\s*[#!]", rest) is not None


def hint_for_attribute(message: str, sign: str, known: Mapping[str, str]) -> str | None:
    """What is meant by an unknown name behind a `sign` (# or !); `known`: the sign of every attribute and type."""
    unknown = UNKNOWN_ATTRIBUTE.search(message)
    if unknown is None:
        return None
    name = unknown[1]
    if known.get(name, sign) != sign:
        return f"{name} is {'a type' if sign == '#' else 'an attribute'}: {known[name]}{name}<..>"
    signed = (known[n] + n for n in known)
    return did_you_mean(sign + name, signed, 2, 0.7) or _of_dialect(name, known)


def _of_dialect(name: str, known: Iterable[str]) -> str:
    """What to do with an op, attribute or type that is like none of the `known`."""
    dialect, dot, _ = name.partition(".")
    if not dot:
        return "an op is written with its dialect: arith.addf, scf.for, func.func; other languages are not read"
    of = [n for n in known if n.startswith(f"{dialect}.")]
    if of and instead_of(name) is None:
        near = nearest(name, of, 3, 0)
        return f"the nearest names of {dialect} are {', '.join(near)}; mlir-opt may lower it to known ones"
    if dialect in ("tt", "ttg", "triton"):
        return "docs/from-triton.md tells how a kernel of Triton's is written here"
    return instead_of(name) or (
        "mlir-opt, or the project that the dialect is of, makes linalg, tensor, vector, scf, memref and arith of it, "
        "which are known"
    )


def instead_of(name: str) -> str | None:
    """What to do with an op of a dialect that is not run; None where nothing is known of the dialect."""
    dialect = name.partition(".")[0]
    if (how := _LOWERED.get(name) or _LOWERED.get(dialect)) is not None:
        return f"{how} makes linalg, tensor, vector, scf, memref and arith of it, which are known"
    return _NOT_RUN.get(name) or _NOT_RUN.get(dialect)


def hint_for_op(message: str, names: Iterable[str], rest: str) -> str | None:
    """What is meant by an op that has no meaning here; None where the message is about something else."""
    unknown = UNKNOWN.search(message)
    if unknown is not None and is_alias(unknown[1], rest):
        return f"an alias has a sign: #{unknown[1]} = .. for an attribute, !{unknown[1]} = .. for a type"
    if unknown is not None:
        known = list(names)
        own = instead_of(unknown[1]) is None
        near = did_you_mean(unknown[1], known, 3, 0.7) if own else None
        return near or _of_dialect(unknown[1], known)
    if (formless := _FORMLESS.search(message)) is not None:
        return instead_of(formless[1])
    return None
