"""Atomics of every kind and type on Xe: one instruction, or a loop of compare and exchange on the word around it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.targets.xe import kernels
from tests.targets.xe.conftest import agree, build
from tests.targets.xe.test_execution import random

FLOATS = ("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "assign")
INTEGERS = ("addi", "muli", "maxs", "mins", "maxu", "minu", "ori", "andi", "xori", "assign")
CASES = [(k, t) for t in ("f32", "f16", "bf16") for k in FLOATS]
CASES += [(k, t) for t in ("i32", "i8") for k in INTEGERS]


def text(kind: str, element: str) -> str:
    """Lanes combine with the five elements from the third on, odd places of their words among them; some do not."""
    a = f"memref<16x{element}>"
    return (
        kernels.head(f"%a: {a}, %sum: {a}, %old: {a}")
        + f"""
    %on = arith.cmpi ult, %lane, %c13 : index
    %some = arith.remui %lane, %c5 : index
    %few = arith.addi %some, %c2 : index
    %x = xegpu.load %a[%lane], %true : {a}, index, i1 -> {element}
    %was = xegpu.atomic_rmw {kind} %sum[%few], %on, %x : {a}, index, i1, {element} -> {element}
    xegpu.store %was, %old[%lane], %true : {element}, {a}, index, i1"""
        + kernels.FOOT
    )


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("kind, element", CASES)
def test_every_atomic(kind: str, element: str, rng: np.random.Generator) -> None:
    value, start, old = (random(rng, (16,), element) for _ in range(3))
    if kind in ("addf", "mulf"):  # the order of lanes does not show in whole numbers
        value, start = (rng.choice([-2, 1, 2], 16).astype(value.dtype) for _ in range(2))
    if kind == "assign":  # the last of several lanes stays, whichever that is
        value[:] = value[0]
    agree(text(kind, element), [value, start, old], [1])


@pytest.mark.parametrize("target", ["xe-bmg", "xe-dg2"])
@pytest.mark.parametrize("kind, element", [("addf", "bf16"), ("maximumf", "f32"), ("muli", "i8")])
def test_they_compile_for_every_machine(kind: str, element: str, target: str) -> None:
    module = text(kind, element).replace("lanes = 16", f"lanes = {8 if target == 'xe-dg2' else 16}")
    assert "cmpxchg" in build(module, target).asm["llvm"]


@pytest.mark.parametrize("kind, word", [("addi", "atomicrmw add"), ("muli", "cmpxchg")])
@pytest.mark.parametrize("type, space", [("memref<4xi32>", 1), ("memref<4xi32, 3>", 3)])
def test_memory_is_addressed_where_it_lies(kind: str, word: str, type: str, space: int) -> None:
    """Arrays of the launch are in address space 1, shared memory is in 3; 0 would be the lane's own."""
    made = f"%m = memref.alloca() : {type}" if space == 3 else ""
    module = (
        kernels.head(f"%{'a' if space == 3 else 'm'}: memref<4xi32>, %x: i32")
        + f"""
    {made}
    %old = memref.atomic_rmw {kind} %x, %m[%c2] : (i32, {type}) -> i32
    %row = vector.load %m[%c2] : {type}, vector<2xi32>
    vector.store %row, %m[%c2] : {type}, vector<2xi32>"""
        + kernels.FOOT
    )
    text = build(module, "xe-pvc").asm["llvm"]
    assert f"{word} ptr addrspace({space})" in text
    assert not re.search(r"(atomicrmw \w+|cmpxchg|load .*|store .*) ptr %", text)
