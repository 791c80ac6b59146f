"""Limits are refused with the op, the number and the limit; every table has its sources."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import uarch
from tilewright.diagnostics import UnsupportedError
from tilewright.uarch.xe import XeMachine

PVC, BMG, DG2 = (uarch.machine(n) for n in ("xe-pvc", "xe-bmg", "xe-dg2"))


@pytest.mark.parametrize("name", uarch.MACHINES)
def test_tables_are_complete(name: str):
    machine = uarch.machine(name)
    assert machine.name == name and machine.source
    for entry in (*machine.limits.values(), *machine.memories.values()):
        assert entry.source
    for instruction in machine.matrix:
        for m in (instruction.m[0], instruction.m[-1]):
            for n in (instruction.n[0], instruction.n[-1]):
                f = instruction.fragments(m, n)
                assert f.c.shape == (m, n)
                assert f.a is None or f.a.shape == (m, instruction.k)
                assert f.b is None or f.b.shape == (instruction.k, n)
                assert f.c.subgroups == instruction.subgroups
                assert f.c.lanes in machine.subgroup_sizes


def test_unknown_machine_lists_the_known():
    with pytest.raises(UnsupportedError, match="there is no machine table 'sm_70'"):
        uarch.machine("sm_70")


@pytest.mark.parametrize(
    ("machine", "limit", "number", "says"),
    [
        (
            "xe-pvc",
            "slm",
            200 << 10,
            "shared local memory of 204800 bytes is not possible on xe-pvc: it is at most 131072 bytes",
        ),
        ("xe-dg2", "slm", 100 << 10, "it is at most 65536 bytes"),
        (
            "xe-pvc",
            "block_surface_pitch",
            72,
            "base matrix pitch of 72 bytes is not possible on xe-pvc: it is a multiple of 16 bytes",
        ),
        ("sm_90a", "smem", 300_000, "it is at most 232448 bytes"),
        ("sm_90a", "tma_stride", 24, "it is a multiple of 16 bytes"),
        ("sm_90a", "setmaxnreg", 20, "it is at least 24"),
        ("sm_80", "cp_async_bytes", 12, "it is 4, 8 or 16 bytes"),
        (
            "x86-64",
            "tiles",
            9,
            "kernel of 9 live AMX tiles is not possible on x86-64: it is at most 8",
        ),
    ],
)
def test_limits(machine: str, limit: str, number: int, says: str):
    table = uarch.machine(machine)
    with pytest.raises(UnsupportedError) as error:
        table.require("some.op", limit, number)
    assert error.value.message.startswith("some.op: ") and says in error.value.message
    assert error.value.rule == table.limits[limit].source


@pytest.mark.parametrize(
    ("form", "bits", "width", "height", "count"),
    [
        ("load", 16, 16, 32, 2), ("load", 8, 32, 32, 2), ("load", 32, 16, 8, 1), ("transform", 16, 16, 32, 2),
        ("transform", 8, 16, 32, 4), ("transpose", 32, 8, 32, 1), ("store", 32, 16, 8, 1), ("prefetch", 16, 32, 32, 1),
    ],
)  # fmt: skip
def test_block_messages_that_exist(form, bits, width, height, count):
    for machine in (PVC, BMG):
        assert isinstance(machine, XeMachine)
        machine.block("xegpu.load_nd", form, bits, width, height, count)


@pytest.mark.parametrize(
    ("form", "bits", "width", "height", "count", "says"),
    [
        ("load", 16, 64, 8, 1, "width 64 is not within 2 to 32"),
        ("load", 16, 16, 33, 1, "height 33 is not within 1 to 32"),
        ("load", 16, 16, 8, 4, "4 blocks of width 16 span more than 32 elements"),
        ("load", 32, 8, 8, 4, "4 blocks, where 1 or 2 are possible"),
        ("load", 8, 6, 8, 1, "width 6 is no multiple of 4 bytes"),
        ("transpose", 16, 8, 16, 1, "has no 2D block transpose of 16-bit elements"),
        ("transform", 32, 8, 16, 1, "has no 2D block transform of 32-bit elements"),
        ("store", 32, 16, 16, 1, "height 16 is not within 1 to 8"),
    ],
)
def test_block_messages_that_do_not(form, bits, width, height, count, says):
    assert isinstance(PVC, XeMachine)
    with pytest.raises(UnsupportedError) as error:
        PVC.block("xegpu.load_nd", form, bits, width, height, count)
    assert says in error.value.message and "xe-pvc" in error.value.message


def test_dg2_has_no_block_messages():
    assert isinstance(DG2, XeMachine)
    with pytest.raises(UnsupportedError, match="xe-dg2 has no 2D block messages"):
        DG2.block("xegpu.load_nd", "load", 16, 16, 8)


def test_tables_are_read_only():
    with pytest.raises(TypeError):
        PVC.limits["slm"] = None  # type: ignore[index]
    with pytest.raises(AttributeError):
        PVC.name = "other"  # type: ignore[misc]


def test_a_wgmma_is_as_fast_as_the_data_sheet():
    """132 multiprocessors at 1.83 GHz give the dense peak of 989 TFLOP/s."""
    rate = uarch.machine("sm_90a").instruction("bf16", "bf16", "f32").flops_per_cycle
    assert rate is not None and np.isclose(132 * 1.83e9 * rate, 989e12, rtol=0.01)
