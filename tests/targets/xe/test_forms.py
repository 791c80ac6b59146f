"""Names of callees, and where messages put elements: compared with the layout algebra's distributions of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import layout as ly
from tilewright.layout.blocks import lane_map
from tilewright.targets.xe.forms import Block2D, Dpas, Fence, Hints, Lsc, NamedBarrierForm, parse

FORMS = [
    (Block2D("load", 16, 32, 16, 2), (2, 32, 16), 1, 16),
    (Block2D("vnni", 16, 32, 16, 2), (2, 32, 16), 2, 16),
    (Block2D("load", 8, 8, 32), (8, 32), 1, 16),
    (Block2D("load", 32, 8, 8), (8, 8), 1, 16),
    (Block2D("vnni", 8, 32, 16), (32, 16), 4, 16),
    (Block2D("store", 32, 8, 16), (8, 16), 1, 16),
]


@pytest.mark.parametrize("form, shape, packed, lanes", FORMS, ids=lambda x: getattr(x, "name", ""))
def test_positions(form: Block2D, shape: tuple[int, ...], packed: int, lanes: int) -> None:
    lane_layout, lane_data = lane_map(shape, form.bits, lanes, 0, packed)
    layout = ly.layout(lane_layout=lane_layout, lane_data=lane_data).over(shape)
    parts = [np.asarray(p).reshape(-1, lanes, layout.registers)[0] for p in layout.table()]
    column = parts[-1] + (parts[0] * shape[-1] if len(shape) == 3 else 0)
    want = np.stack([parts[-2], column], axis=-1)
    have = form.positions(lanes).reshape(lanes, -1, 2)
    np.testing.assert_array_equal(have, want)
    assert form.components(lanes) * form.pack == layout.registers


@pytest.mark.parametrize(
    "form",
    [
        *(f for f, *_ in FORMS),
        Block2D("transpose", 32, 16, 8, 1, Hints("uncached", "cached")),
        Block2D("prefetch", 16, 8, 16, 2, Hints("streaming", "uncached")),
        Dpas("tf32", "tf32", "f32", 8, 8, 16),
        Dpas("u8", "i8", "i32", 4, 32, 8),
    ],
    ids=lambda f: f.name,
)
def test_names_say_the_form(form: Block2D | Dpas) -> None:
    assert parse(form.name) == form


def test_other_names() -> None:
    assert parse("xe_lsc_load_32b_x4_st_ca") == Lsc("load", 32, 4, Hints("streaming", "cached"))
    assert parse("xe_nbar_arrive_3_8") == NamedBarrierForm("arrive", 3, 8)
    assert parse("xe_fence_slm_workgroup_none") == Fence("slm", "workgroup", "none")
    assert parse("xe_something") is None
    assert parse("malloc") is None
