"""xegpu-lane-elements: lanes that move their own elements do what the block does, for maps of any kind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.xegpu.lane_elements import lane_elements
from tilewright.passes.xegpu.upgrade import upgrade

TEXT = """gpu.module @m {{
  gpu.func @k(%a: memref<23x41xi16>, %o: memref<{lanes}x{count}xi16>, %b: memref<?x?xi16>, %y: index, %x: index) kernel
      attributes {{tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = {lanes} : i64}} {{
    %c0 = arith.constant 0 : index
    %lane = gpu.lane_id
    %t = xegpu.create_nd_tdesc %a[%y, %x] : memref<23x41xi16> -> {desc}
    %v = xegpu.load_nd %t : {desc} -> vector<{units}x{unit}xi16>
    %f = vector.shape_cast %v : vector<{units}x{unit}xi16> to vector<{count}xi16>
    vector.store %f, %o[%lane, %c0] : memref<{lanes}x{count}xi16>, vector<{count}xi16>
    %rows = memref.dim %b, %c0 : memref<?x?xi16>
    %c1 = arith.constant 1 : index
    %columns = memref.dim %b, %c1 : memref<?x?xi16>
    %u = xegpu.create_nd_tdesc %b[%y, %x], [%rows, %columns], [%columns, 1] : memref<?x?xi16> -> {desc}
    xegpu.store_nd %v, %u : vector<{units}x{unit}xi16>, {desc}
    gpu.return
  }}
}}"""


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_any_map(lanes: int):
    rng = fresh_rng()
    for _ in range(2):
        down = 1 << int(rng.integers(0, lanes.bit_length()))
        layout, data = (down, lanes // down), [(1, 1), (1, 2), (2, 1)][rng.integers(3)]
        times = rng.integers(1, 4, 2)
        shape = [int(t) * n * d for t, n, d in zip(times, layout, data, strict=True)]
        count, unit = shape[0] * shape[1] // lanes, data[0] * data[1]
        sg_map = f"#xegpu.sg_map<wi_layout = {list(layout)}, wi_data = {list(data)}>"
        desc = f"!xegpu.tensor_desc<{shape[0]}x{shape[1]}xi16, {sg_map}>"
        text = TEXT.format(lanes=lanes, count=count, units=count // unit, unit=unit, desc=desc)
        a = rng.integers(-999, 999, (23, 41), np.int16)
        at = [int(n) for n in (rng.integers(-9, 30), rng.integers(-9, 50))]
        found: list[list[np.ndarray]] = []
        module = parse_module(text)
        upgraded = module.clone()
        upgrade(upgraded)
        apart = upgraded.clone()
        lane_elements(kernel_of(apart), lanes)
        assert "_nd %" not in print_module(apart)
        for each in (module, upgraded, apart):
            o, b = np.full((lanes, count), 7, np.int16), np.full((31, 37), 7, np.int16)
            reference.run(each, (1, 1, 1), [a.copy(), o, b, *at])
            found.append([o, b])
        for other in found[1:]:
            for one, same in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, same)
