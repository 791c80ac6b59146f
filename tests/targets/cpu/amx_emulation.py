"""AMX without AMX: the LLVM text of a kernel with tiles as vectors of 256 x i32 and tile instructions as functions.

Says whether the use of tiles is right (panels, strides, signs, tails) on any machine with AVX-512, beside vectors of
what that machine has; says nothing about the instructions themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tilewright import knobs
from tilewright.codegen.jit import compile_object
from tilewright.codegen.loading import Ahead, LoadedObject
from tilewright.targets.cpu import build
from tilewright.targets.cpu import target as cpu
from tilewright.targets.cpu.machine import CpuMachine, chosen, machine
from tilewright.uarch.x86 import X86_64

WITH_AVX512 = ("avx512", "vnni", "amx")
NEEDS_AVX512 = "code for AMX machines uses AVX-512 besides"

TILE = "<256 x i32>"

_COMMON = f"""
define internal {TILE} @emu.tilezero(i16 %r, i16 %c) noinline {{
  ret {TILE} zeroinitializer
}}
define internal {TILE} @emu.tileload(i16 %r, i16 %c, ptr %p, i64 %s) noinline {{
entry:
  %t = alloca [1024 x i8], align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  %o = mul i64 %i, %s
  %q = getelementptr i8, ptr %p, i64 %o
  %v = load <16 x i32>, ptr %q, align 1
  %d = mul i64 %i, 64
  %w = getelementptr i8, ptr %t, i64 %d
  store <16 x i32> %v, ptr %w, align 64
  %n = add i64 %i, 1
  %more = icmp slt i64 %n, 16
  br i1 %more, label %loop, label %done
done:
  %x = load {TILE}, ptr %t, align 64
  ret {TILE} %x
}}
define internal void @emu.tilestore(i16 %r, i16 %c, ptr %p, i64 %s, {TILE} %x) noinline {{
entry:
  %t = alloca [1024 x i8], align 64
  store {TILE} %x, ptr %t, align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  %d = mul i64 %i, 64
  %w = getelementptr i8, ptr %t, i64 %d
  %v = load <16 x i32>, ptr %w, align 64
  %o = mul i64 %i, %s
  %q = getelementptr i8, ptr %p, i64 %o
  store <16 x i32> %v, ptr %q, align 1
  %n = add i64 %i, 1
  %more = icmp slt i64 %n, 16
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _extend(name: str, operand: str, scalar: str, kind: str) -> str:
    """One element as an f32 or i32."""
    if kind == "bf16":
        return f"""  %{name}i = zext i16 %{operand} to i32
  %{name}s = shl i32 %{name}i, 16
  %{name} = bitcast i32 %{name}s to float
"""
    if kind == "f16":
        return f"""  %{name}h = bitcast i16 %{operand} to half
  %{name} = fpext half %{name}h to float
"""
    return f"  %{name} = {'sext' if kind == 's8' else 'zext'} {scalar} %{operand} to i32\n"


def _dot(name: str, left: str, right: str) -> str:
    """C[m, n] += sum over k of A[m, k] B[k, n], B in groups of four bytes of k."""
    size = 2 if left in ("bf16", "f16") else 1
    scalar, number = ("i16", "float") if size == 2 else ("i8", "i32")
    group = 4 // size
    multiply, add = ("fmul", "fadd") if size == 2 else ("mul", "add")
    return f"""
define internal {TILE} @emu.{name}(i16 %m, i16 %n, i16 %k, {TILE} %c, {TILE} %a, {TILE} %b) noinline {{
entry:
  %pc = alloca [1024 x i8], align 64
  %pa = alloca [1024 x i8], align 64
  %pb = alloca [1024 x i8], align 64
  store {TILE} %c, ptr %pc, align 64
  store {TILE} %a, ptr %pa, align 64
  store {TILE} %b, ptr %pb, align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %kk = urem i64 %i, {16 * group}
  %mn = udiv i64 %i, {16 * group}
  %nn = urem i64 %mn, 16
  %mm = udiv i64 %mn, 16
  %am = mul i64 %mm, {16 * group}
  %ai = add i64 %am, %kk
  %qa = getelementptr {scalar}, ptr %pa, i64 %ai
  %kg = udiv i64 %kk, {group}
  %kr = urem i64 %kk, {group}
  %bg = mul i64 %kg, {16 * group}
  %bn = mul i64 %nn, {group}
  %bs = add i64 %bg, %bn
  %bi = add i64 %bs, %kr
  %qb = getelementptr {scalar}, ptr %pb, i64 %bi
  %ra = load {scalar}, ptr %qa
  %rb = load {scalar}, ptr %qb
{_extend("x", "ra", scalar, left)}{_extend("y", "rb", scalar, right)}\
  %qc = getelementptr {number}, ptr %pc, i64 %mn
  %old = load {number}, ptr %qc
  %xy = {multiply} {number} %x, %y
  %new = {add} {number} %old, %xy
  store {number} %new, ptr %qc
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {256 * 16 * group}
  br i1 %more, label %loop, label %done
done:
  %out = load {TILE}, ptr %pc, align 64
  ret {TILE} %out
}}
"""


_DOTS = {
    "tdpbf16ps": ("bf16", "bf16"),
    "tdpfp16ps": ("f16", "f16"),
    "tdpbssd": ("s8", "s8"),
    "tdpbsud": ("s8", "u8"),
    "tdpbusd": ("u8", "s8"),
    "tdpbuud": ("u8", "u8"),
}


def emulate(text: str) -> str:
    """The module with emulated tiles, free of AMX features."""
    lines = [
        line
        for line in text.splitlines()
        if not re.match(r"declare .*@llvm\.x86\.(tile|tdp)", line)
    ]
    out = "\n".join(lines).replace("x86_amx", TILE)
    names = {
        "tileloadd64": "tileload",
        "tileloaddt164": "tileload",
        "tilestored64": "tilestore",
        "tilezero": "tilezero",
    }
    for old, new in names.items():
        out = out.replace(f"@llvm.x86.{old}.internal", f"@emu.{new}")
    used = ""
    for name, kinds in _DOTS.items():
        if f"@llvm.x86.{name}.internal" in out:
            used += _dot(name, *kinds)
            out = out.replace(f"@llvm.x86.{name}.internal", f"@emu.{name}")
    out = re.sub(r"\+amx-[a-z0-9]+,?", "", out)
    return out + _COMMON + used


def emulate_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Target cpu compiles for a machine with AMX where no level or tier is asked for; what it made runs on this one."""
    host = machine(None).target
    amx = CpuMachine.of(X86_64, "amx", frozenset({"amx-fp16"}))
    features = frozenset(f for f in amx.target.features if f.startswith("amx") or host.has(f))
    dots = X86_64.dots(features, amx.vector_bytes, "")
    amx = replace(amx, target=replace(amx.target, features=features), dots=dots)

    def hosted(text: str) -> str:
        text = emulate(text).replace(
            f'"target-cpu"="{amx.target.cpu}"', f'"target-cpu"="{host.cpu}"'
        )
        features = f'"target-features"="{host.feature_string()}"'
        return re.sub('"target-features"="[^"]*"', lambda _: features, text)

    def compiled(text: str, target: Any) -> bytes:
        return (
            compile_object(hosted(text), host)
            if target is amx.target
            else compile_object(text, target)
        )

    class HostedAhead(Ahead):
        """What kernels have in common, for the machine at hand: such code has instructions beside tiles' as well."""

        def __init__(self, target: Any):
            self._hosted = hosted if target is amx.target else str
            super().__init__(host if target is amx.target else target)

        def begin(self, text: str) -> None:
            super().begin(self._hosted(text))

        def get(self, texts: Sequence[str]) -> list[bytes]:
            return super().get([*map(self._hosted, texts)])

    def emulated(level: str | None) -> CpuMachine:
        return amx if level is None and knobs.current().cpu is None else chosen(level)

    monkeypatch.setattr(cpu, "chosen", emulated)
    monkeypatch.setattr(build, "compile_object", compiled)
    monkeypatch.setattr(build, "Ahead", HostedAhead)
    monkeypatch.setattr(
        cpu,
        "LoadedObject",
        lambda data, target, symbols: LoadedObject(
            data, host if target is amx.target else target, symbols
        ),
    )
