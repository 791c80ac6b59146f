"""mem2reg: what a thread keeps in memory becomes values; results stay, and so does memory that is more than that."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects.text import print_module, verify_module
from tilewright.passes.mem2reg import mem2reg

TEXT = """
gpu.module @m {{ gpu.func @k(%i: memref<8xf32>, %o: memref<8xf32>) kernel {{
  %true = arith.constant true
  %s = memref.alloca() : memref<2x1xf32>
  %x = memref.load %i[%c0] : memref<8xf32>
  %y = memref.load %i[%c1] : memref<8xf32>
  memref.store %x, %s[%c0, %c0] : memref<2x1xf32>
  {body}
  gpu.return
}} }}
"""
LOOP = """scf.for %n = %c0 to %c8 step %c1 {{
    %a = memref.load %s[%c1, %c0] : memref<2x1xf32>
    %b = memref.load %i[%n] : memref<8xf32>
    %d = arith.mulf %a, %b : f32
    memref.store %d, %o[%n] : memref<8xf32>
    {more}
  }}"""
STORED = "memref<2x1xf32>"
KEPT = f"memref.store %y, %s[%c1, %c0] : {STORED}\n"
PLAIN = LOOP.format(more="")
PROMOTED = {
    "read in a loop": KEPT + PLAIN,
    "moved": f"""%z = memref.load %s[%c0, %c0] : {STORED}
  memref.store %z, %s[%c1, %c0] : {STORED}
  memref.store %y, %s[%c0, %c0] : {STORED}
  {PLAIN}""",
    "written again behind": KEPT + PLAIN + f"memref.store %x, %s[%c1, %c0] : {STORED}",
}
LEFT = {
    "written in a loop": KEPT + LOOP.format(more=f"memref.store %d, %s[%c1, %c0] : {STORED}"),
    "written in a branch": f"{KEPT} scf.if %true {{ memref.store %x, %s[%c1, %c0] : {STORED} }} {PLAIN}",
    "an element that is computed": f"""{KEPT} %q = gpu.block_id x
  %e = memref.load %s[%q, %c0] : {STORED}
  memref.store %e, %o[%c0] : memref<8xf32>
  {PLAIN}""",
    "viewed": f"{KEPT} %v = memref.cast %s : {STORED} to memref<?x1xf32>\n{PLAIN}",
}


@pytest.mark.parametrize("name", PROMOTED | LEFT)
def test_results_stay(name: str) -> None:
    module = parse_module(TEXT.format(body=(PROMOTED | LEFT)[name]))
    x = fresh_rng().standard_normal(8).astype(np.float32)
    outs = [np.full(8, np.nan, np.float32) for _ in range(2)]
    reference.run(module.clone(), args=[x, outs[0]])
    assert mem2reg(module) == (name in PROMOTED)
    verify_module(module)
    assert (STORED in print_module(module)) == (name in LEFT)
    reference.run(module, args=[x, outs[1]])
    assert np.isfinite(outs[0]).all()
    np.testing.assert_array_equal(*outs)


def test_memory_that_nothing_wrote_is_left() -> None:
    module = parse_module(TEXT.format(body=LOOP.format(more="")))
    assert not mem2reg(module)
