"""Subgroup to instructions to lanes: every op keeps its meaning, and costs what it should."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import gpu

from tests.draws import fresh_rng
from tests.passes.xegpu.subgroup_programs import PROGRAMS, Array, text
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.dialects.xegpu import LoadNdOp
from tilewright.passes.expand_ops import EXPAND_OPS
from tilewright.passes.xegpu.pipeline import PIPELINE, SUBGROUP, distribute_to_lanes
from tilewright.tools.check_results import difference
from tilewright.uarch.xe import xe_machine

TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
}


def data(array: Array, rng: np.random.Generator) -> Any:
    if array.element.startswith("i"):
        return rng.integers(-100, 100, array.shape).astype(TYPES[array.element])
    return rng.standard_normal(array.shape).astype(TYPES[array.element])


def stages(module: Any, chip: str) -> list[tuple[str, Any]]:
    """The module when its ops are instructions, and when it is a lane's."""
    found: list[tuple[str, Any]] = []
    PIPELINE.alone(EXPAND_OPS, module, chip)
    for position, entry in enumerate(SUBGROUP):
        PIPELINE.alone(entry, module, chip)
        last = position == len(SUBGROUP) - 1
        if entry.name == "xegpu-blocking" or last:
            verify_module(module)
            found.append((entry.name, module if last else module.clone()))
    return found


def count(module: Any) -> Counter[str]:
    return Counter(op.name for op in module.walk())


EIGHT_LANES = (
    *(
        "rows reduced",
        "transpose",
        "bitcast to narrower",
        "slices",
        "narrow",
        "odd extents",
        "chunks",
    ),
    *(
        "an atomic of half a subgroup",
        "blocked shared memory",
        "convert_layout",
        "a packed operand",
    ),
)
"""Programs that 8 lanes without 2D blocks are tested with: every access is one lane's own."""


@pytest.mark.parametrize(
    ("name", "chip"), [(n, "pvc") for n in PROGRAMS] + [(n, "dg2") for n in EIGHT_LANES]
)
def test_ops_keep_their_meaning(name: str, chip: str):
    program = PROGRAMS[name]
    module = parse_module(text(program, xe_machine(chip).lanes), "program.mlir")
    rng = fresh_rng()
    inputs = [data(array, rng) for array in program.arrays]
    expected = [a.copy() for a in inputs]
    reference.run(module, (1,), expected)
    for stage, lowered in stages(module, chip):
        if stage == "cleanup" and chip == "pvc":
            lowered = parse_module(print_module(lowered), stage)
        found = [a.copy() for a in inputs]
        reference.run(lowered, (1,), found, check=True).raise_on_error()
        for right, given in zip(expected, found, strict=True):
            message = difference(right, given)
            assert message is None, f"{stage}: {message}"
    kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    for op in kernel.walk():
        for value in op.results:
            assert (
                len(getattr(value.type, "get_shape", tuple)()) <= 1
                or "tdesc" in op.name
                or ("mem" in op.name)
            ), op


def lowered(name: str, chip: str = "pvc") -> Any:
    module = parse_module(text(PROGRAMS[name], xe_machine(chip).lanes), "program.mlir")
    return stages(module, chip)[-1][1]


def test_a_transposed_load_moves_nothing():
    """What is only stored transposed is loaded so: no lane exchanges anything."""
    for name in ("transpose", "transpose of 16 bits"):
        module = lowered(name)
        assert not count(module)["gpu.shuffle"] and not count(module)["vector.shuffle"]
        loads = [op for op in module.walk() if isinstance(op, LoadNdOp)]
        assert loads and all(op.transposes for op in loads)


def test_a_bias_is_loaded_once():
    found = count(lowered("bias"))
    assert found["xegpu.load_nd"] == 4 and not found["gpu.shuffle"]


def test_conversions_exchange_bits():
    """16 x 16 elements between rows of lanes and columns of lanes: 4 exchanges, one shuffle each."""
    found = count(lowered("convert_layout"))
    assert found["gpu.shuffle"] == 8 * 4 * 2


def test_reductions_over_lanes():
    """Four blocks of rows, four steps of a butterfly over 16 lanes each; or one hardware op each."""
    assert count(lowered("rows reduced"))["gpu.shuffle"] == 16
    assert count(lowered("rows reduced", "dg2"))["gpu.shuffle"] == 4 * 3
    module = parse_module(text(PROGRAMS["rows reduced"], 16), "program.mlir")
    for entry in takewhile(lambda entry: entry.name != "cleanup", SUBGROUP):
        PIPELINE.alone(entry, module, "pvc")
    hardware = module.clone()
    PIPELINE.alone(distribute_to_lanes("hardware"), hardware, "pvc")
    assert count(hardware)["gpu.subgroup_reduce"] == 4 and not count(hardware)["gpu.shuffle"]
    rng = fresh_rng()
    arrays = [data(a, rng) for a in PROGRAMS["rows reduced"].arrays]
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    reference.run(module, (1,), expected)
    reference.run(hardware, (1,), found, check=True).raise_on_error()
    assert difference(expected[1], found[1]) is None


def test_slices_of_registers_are_free():
    found = count(lowered("shape_cast to 3-D"))
    assert not found["gpu.shuffle"] and not found["vector.shuffle"]


def test_fallback_says_why():
    """Found at once, and said where it is chosen how the block goes instead."""
    final = lowered("a pitch that blocks cannot have")
    kernel = next(op for op in final.walk() if isinstance(op, gpu.FuncOp))
    remarks = [r.data for r in kernel.attributes["tilewright.remarks"]]  # pyright: ignore
    assert len(remarks) == 2
    assert "goes element by element: base matrix pitch of 126 bytes is not possible" in remarks[0]
    assert "it is a multiple of 16" in remarks[0]
    assert not count(final)["xegpu.load_nd"] and count(final)["xegpu.load"]
