"""Fragments of the matrix instructions against the formulas of their vendors' documents.

The formulas are written out here per element, as the documents give them; the tables hold digits.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.layout.plans import broadcast
from tilewright import layout as ly
from tilewright import uarch
from tilewright.diagnostics import UnsupportedError
from tilewright.layout import Axis, memory, plan
from tilewright.uarch import fragments as fr
from tilewright.uarch.arm import AARCH64, NEON, SVE_256
from tilewright.uarch.cpu import MicroKernel
from tilewright.uarch.sm90 import smem_tile
from tilewright.uarch.x86 import AVX2, AVX512, SSE, X86_64

PVC, DG2 = uarch.machine("xe-pvc"), uarch.machine("xe-dg2")
SM80, SM90, X86 = (uarch.machine(n) for n in ("sm_80", "sm_90a", "x86-64"))


def check(layout: ly.Layout, where, subgroups: int = 1):
    """``where(lane, register[, warp])`` gives (row, column) of every place."""
    assert layout.subgroups == subgroups
    for s in range(subgroups):
        for lane in range(layout.lanes):
            args = (s,) if subgroups > 1 else ()
            want = [where(lane, i, *args) for i in range(layout.registers)]
            assert layout.fragment(s, lane).tolist() == [list(w) for w in want]


# Intel: SPV_INTEL_subgroup_matrix_multiply_accumulate.
@pytest.mark.parametrize("m", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("machine", "type", "per_unit", "lanes"),
    [
        (PVC, "bf16", 1, 16),
        (PVC, "i8", 2, 16),
        (PVC, "i4", 4, 16),
        (DG2, "f16", 2, 8),
        (DG2, "u8", 4, 8),
    ],
)
def test_dpas_a(machine, type, per_unit, lanes, m):
    accumulator = "i32" if type[0] in "iu" else "f32"
    a = machine.instruction(type, type, accumulator).fragments(m).a
    # Register i of lane l is element i % unit of the unit A[i / unit][unit*l ..].
    check(a, lambda l, i: (i // per_unit, per_unit * l + i % per_unit))
    assert a.lanes == lanes


@pytest.mark.parametrize("m", [2, 4, 8])
def test_dpas_a_tf32_packs_two_rows(m):
    a = PVC.instruction("tf32", "tf32", "f32").fragments(m).a
    check(a, lambda l, j: (2 * j + (l >> 3), l & 7))


def test_dpas_a_tf32_of_one_row_ignores_the_upper_lanes():
    a = PVC.instruction("tf32", "tf32", "f32").fragments(1).a
    check(a, lambda l, j: (0, l & 7))


@pytest.mark.parametrize(
    ("machine", "type", "pack"),
    [(PVC, "f16", 2), (PVC, "u8", 4), (PVC, "tf32", 1), (DG2, "bf16", 2), (DG2, "i8", 4)],
)
def test_dpas_b_is_vnni_and_c_is_plain(machine, type, pack):
    accumulator = "i32" if type[0] in "iu" else "f32"
    instruction = machine.instruction(type, type, accumulator)
    f = instruction.fragments()
    # Dword d of lane l packs B[pack*d ..][l], lowest row in the lowest bits.
    check(f.b, lambda l, i: (pack * (i // pack) + i % pack, l))
    check(f.c, lambda l, i: (i, l))
    assert instruction.k == 8 * pack


@pytest.mark.parametrize(
    ("machine", "type", "a", "b"),
    [
        (PVC, "bf16", ([1, 16], [1, 1]), ([1, 16], [2, 1])),
        (PVC, "tf32", ([2, 8], [1, 1]), ([1, 16], [1, 1])),
        (PVC, "i8", ([1, 16], [1, 2]), ([1, 16], [4, 1])),
        (DG2, "f16", ([1, 8], [1, 2]), ([1, 8], [2, 1])),
        (DG2, "u8", ([1, 8], [1, 4]), ([1, 8], [4, 1])),
    ],
)
def test_dpas_fragments_are_the_rfcs_sg_maps(machine, type, a, b):
    """XeGPU RFC, "Rules of sg_map setting": one ownership, written in two ways."""
    accumulator = "i32" if type[0] in "iu" else "f32"
    instruction = machine.instruction(type, type, accumulator)
    f, k, n = instruction.fragments(), instruction.k, instruction.n[0]
    assert ly.sg_map(*a).over([8, k]) == f.a
    assert ly.sg_map(*b).over([k, n]) == f.b
    assert ly.sg_map([1, n], [1, 1]).over([8, n]) == f.c


# NVIDIA: PTX ISA, matrix fragments.
def test_mma_sync_16_bit():
    f = SM80.instruction("bf16", "bf16", "f32").fragments()
    # Registers of A go down the rows before the columns: a2, a3 are eight rows below a0, a1.
    check(
        f.a,
        lambda l, i: (
            l // 4 + (8 if i % 4 >= 2 else 0),
            l % 4 * 2 + (i & 1) + (8 if i >= 4 else 0),
        ),
    )
    check(f.b, lambda l, i: (l % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), l // 4))
    check(f.c, lambda l, i: (l // 4 + (8 if i >= 2 else 0), l % 4 * 2 + (i & 1)))


def test_mma_sync_tf32():
    f = SM80.instruction("tf32", "tf32", "f32").fragments()
    check(f.a, lambda l, i: (l // 4 + (8 if i % 2 else 0), l % 4 + (4 if i >= 2 else 0)))
    check(f.b, lambda l, i: (l % 4 + 4 * i, l // 4))


def test_mma_sync_8_bit():
    f = SM80.instruction("i8", "u8", "i32").fragments()
    check(
        f.a,
        lambda l, i: (
            l // 4 + (8 if 4 <= i < 8 or i >= 12 else 0),
            l % 4 * 4 + (i & 3) + (16 if i >= 8 else 0),
        ),
    )
    check(f.b, lambda l, i: (l % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), l // 4))


def test_mma_sync_f64():
    f = SM80.instruction("f64", "f64", "f64").fragments()
    check(f.a, lambda l, i: (l // 4, l % 4))
    check(f.b, lambda l, i: (l % 4, l // 4))
    check(f.c, lambda l, i: (l // 4, l % 4 * 2 + i))


@pytest.mark.parametrize("n", [8, 64, 176, 256])
def test_wgmma_accumulator(n: int):
    c = SM90.instruction("bf16", "bf16", "f32").fragments(n=n).c
    check(
        c,
        lambda l, i, w: (16 * w + l // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + l % 4 * 2 + i % 2),
        subgroups=4,
    )
    assert c.registers == n // 2


def test_wgmma_accumulator_to_register_operand_is_renaming():
    """P = softmax(QK) feeds the next product: no shuffle, no shared memory, the registers in order."""
    instruction = SM90.instruction("bf16", "bf16", "f32")
    c = instruction.fragments(n=64).c
    a = fr.wgmma_a(64, instruction.pack_a)
    assert plan.convert(c, a).kind is ly.Move.NOTHING
    assert fr.wgmma_a(16, 2) == instruction.fragments().a


def test_mma_sync_is_one_warp_of_wgmma():
    """One design for sm_80 and sm_90: the fragments of a warp are the same."""
    wide = SM90.instruction("f16", "f16", "f32").fragments(n=64).c
    warp = fr.mma_c(16, 64)
    for lane in (0, 13, 31):
        assert np.array_equal(wide.fragment(0, lane), warp.fragment(0, lane))


def test_reduction_along_n_stays_in_a_quad():
    c = SM90.instruction("bf16", "bf16", "f32").fragments(n=128).c
    along = plan.reduce(c, 1)
    assert (along.kind, along.butterfly()) == (ly.Move.SHUFFLE, [1, 2])
    assert along.result.registers == 2
    down = plan.reduce(c, 0)
    assert down.kind is ly.Move.SLM and down.butterfly() == [4, 8, 16]
    assert len(down.partners(Axis.SUBGROUP)) == 4


def test_row_values_broadcast_without_movement():
    c = SM90.instruction("bf16", "bf16", "f32").fragments(n=128).c
    assert broadcast(c.contracted(1), c, 1).kind is ly.Move.REGISTERS


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_128_byte_swizzle_frees_ldmatrix_of_conflicts(itemsize: int):
    """Eight rows of 16 bytes at a pitch of 128 bytes: one bank group without, all of them with."""
    columns = 128 // itemsize
    chunk = 16 // itemsize
    rows = ly.layout(lane_layout=[8, 1], lane_data=[1, chunk]).over([8, chunk])
    place = ly.Layout.of(
        (8, columns), [*rows.digits, ly.Digit(Axis.REGISTER, chunk, columns // chunk, 1, chunk)]
    )
    plain = ly.row_major([8, columns])
    swizzled = smem_tile(8, columns, itemsize)
    assert memory.bank_conflicts(place, plain, itemsize, vector=chunk) == 8
    assert memory.bank_conflicts(place, swizzled, itemsize, vector=chunk) == 1


def test_smem_tile_is_panels_of_128_bytes():
    tile = smem_tile(64, 128, 2)
    r, c = np.indices((64, 128))
    byte = c // 64 * 64 * 128 + r * 128 + ((c % 64 // 8) ^ (r % 8)) * 16 + c % 8 * 2
    assert np.array_equal(tile.address(r, c) * 2, byte)
    with pytest.raises(ly.LayoutError, match="96 columns are no multiple of the 64"):
        smem_tile(64, 96, 2)


# x86.
@pytest.mark.parametrize(
    "kernel", [m for m in X86_64.micro_kernels if "amx-tile" in m.features], ids=lambda m: m.name
)
def test_amx_tiles(kernel: MicroKernel):
    instruction = X86.instruction(*kernel.types)
    f, pack = instruction.fragments(), kernel.group
    assert instruction.k == 16 * pack
    k = instruction.k
    check(f.a, lambda l, i: (i // k, i % k))
    # Tile row i holds B[pack*i ..][n], pack together for every n.
    check(f.b, lambda l, i: (i // (16 * pack) * pack + i % pack, i // pack % 16))
    check(f.c, lambda l, i: (i // 16, i % 16))


MICRO_KERNELS = X86_64.micro_kernels + AARCH64.micro_kernels
KERNELS = pytest.mark.parametrize(
    "kernel", MICRO_KERNELS, ids=[f"{m.name}-{m.types[0]}-{m.types[1]}" for m in MICRO_KERNELS]
)


@KERNELS
def test_panels_are_addressed_as_the_packer_does(kernel: MicroKernel):
    """targets/cpu: element (x, k) lies at (k / group * lanes + x % lanes) * group + k % group."""
    k = 2 * max(kernel.k_step, kernel.group)
    lanes, group = kernel.lanes_b, kernel.group
    at, x = np.indices((k, 2 * kernel.nr))
    want = x // lanes * lanes * k + (at // group * lanes + x % lanes) * group + at % group
    assert np.array_equal(fr.b_panel(kernel, k, 2 * kernel.nr).address(at, x), want)


def test_micro_kernels_fit_the_registers():
    registers = {"zmm": 32, "ymm": 16, "xmm": 16, "128": 32, "256": 32}
    for kernel in MICRO_KERNELS:
        if kernel.rows > 1:
            # Two tiles of A and two of B beside the accumulators: eight in all.
            assert kernel.accumulators + kernel.mr // 16 + kernel.nr // 16 <= 8
            continue
        row = kernel.panels * kernel.nr // kernel.columns
        assert kernel.accumulators + row + 1 <= registers[kernel.name.split(".")[1]]


def test_levels_hide_the_latency_of_an_fma_and_load_less_than_they_multiply():
    for level in (SSE, AVX2, AVX512, NEON, SVE_256):
        name, vectors = level.name, level.nv * level.panels
        assert name == "SSE2" or level.mr * vectors > 8, name
        assert level.mr + vectors < level.mr * vectors, name
        assert level.kc % 64 == 0, f"{name}: packing moves up to 64 k at once"
        assert 256 % (level.nv * level.vector_bytes // 4) == 0, f"{name}: tiles start at panels"


def test_panels_refuse_what_must_be_padded():
    kernel = X86_64.able({"avx2", "fma"}, "f32", "f32", "f32")[0]
    refused = r"B of 10 x k=8 does not fill panels of \d+ x 1 of fma\.ymm"
    with pytest.raises(ly.LayoutError, match=refused):
        fr.b_panel(kernel, 8, 10)


def test_micro_kernels_by_features():
    names = lambda *a: [m.name for m in X86_64.able(*a)]  # noqa: E731
    assert names({"avx2", "fma", "avx512f"}, "f32", "f32", "f32") == [
        "fma.zmm",
        "fma.ymm",
        "generic.xmm",
    ]
    assert names((), "f32", "f32", "f32") == ["generic.xmm"]
    assert names({"amx-tile", "amx-bf16"}, "bf16", "bf16", "f32") == ["tdpbf16ps"]
    assert names({"avx2"}, "bf16", "bf16", "f32") == []


def test_refusals_name_op_number_and_limit():
    with pytest.raises(
        UnsupportedError, match=r"xe-dg2 has no matrix instruction for tf32 x tf32 -> f32"
    ):
        DG2.instruction("tf32", "tf32", "f32")
    with pytest.raises(
        UnsupportedError, match=r"dpas of bf16 x bf16 has no M = 3: M is 1, 2, 4 or 8"
    ):
        PVC.instruction("bf16", "bf16", "f32").fragments(3)
    with pytest.raises(UnsupportedError, match=r"has no N = 20: N is 8 to 256 in steps of 8"):
        SM90.instruction("bf16", "bf16", "f32").fragments(n=20)
