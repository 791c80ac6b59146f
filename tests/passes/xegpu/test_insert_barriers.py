"""xegpu-insert-barriers: one where another subgroup's access needs it, none where disjointness is proven.

What is lowered also runs in checking mode, which finds races: a barrier too few fails there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp

from tests.calls import calls
from tests.draws import fresh_rng
from tests.lowering.programs import lowered, ops
from tests.texts import parse_module
from tilewright.passes.xegpu.pipeline import INSERT_BARRIERS, PIPELINE, WORKGROUP

TEXT = """
#c = #xegpu.layout<sg_layout = [4, 2], sg_data = [16, 32]>
#r = #xegpu.layout<sg_layout = [8, 1], sg_data = [8, 64]>
gpu.module @m {{
gpu.func @f(%a: memref<64x128xf32>, %o: memref<64x128xf32>, %p: memref<64x128xf32>) kernel
    attributes {{tilewright.level = "workgroup", tilewright.args = [{facts}, {facts}, {facts}]}} {{
  %ta = xegpu.create_nd_tdesc %a : memref<64x128xf32> -> !xegpu.tensor_desc<64x64xf32>
  %to = xegpu.create_nd_tdesc %o : memref<64x128xf32> -> !xegpu.tensor_desc<64x64xf32>
  %tp = xegpu.create_nd_tdesc %p : memref<64x128xf32> -> !xegpu.tensor_desc<64x64xf32>
  %slm = memref.alloc() : memref<64x256xf32, 3>
  %m = xegpu.create_mem_desc %slm : memref<64x256xf32, 3> -> !xegpu.mem_desc<64x256xf32>
  %x = xegpu.load_nd %ta[0, 0] <{{layout = #c}}> : !xegpu.tensor_desc<64x64xf32> -> vector<64x64xf32>
{body}
  gpu.return
}} }}
"""
TILE = "!xegpu.tensor_desc<64x64xf32>"
VALUE = "vector<64x64xf32>"
MATRIX = "!xegpu.mem_desc<64x256xf32>"


def load(name: str, tile: str, at: str, layout: str) -> str:
    return f"{name} = xegpu.load_nd {tile}[{at}] <{{layout = {layout}}}> : {TILE} -> {VALUE}\n"


def store(name: str, tile: str, at: str, layout: str) -> str:
    return f"xegpu.store_nd {name}, {tile}[{at}] <{{layout = {layout}}}> : {VALUE}, {TILE}\n"


def put(name: str, at: str, layout: str) -> str:
    index = ", index" if "%" in at else ""
    return f"xegpu.store_matrix {name}, %m[0, {at}] <{{layout = {layout}}}> : {VALUE}, {MATRIX}{index}\n"


def get(name: str, at: str, layout: str) -> str:
    index = ", index" if "%" in at else ""
    return f"{name} = xegpu.load_matrix %m[0, {at}] <{{layout = {layout}}}> : {MATRIX}{index} -> {VALUE}\n"


def check(body: str, facts: str = "{noalias}") -> ModuleOp:
    module = parse_module(TEXT.format(body=body, facts=facts), "barriers.mlir")
    rng = fresh_rng()
    args: list[Any] = [rng.standard_normal((64, 128)).astype(np.float32) for _ in range(3)]
    return lowered(module, (1, 1, 1), args, WORKGROUP)


def barriers(body: str, facts: str = "{noalias}") -> int:
    return len(ops(check(body, facts), "gpu.barrier"))


def test_another_owner_reads_what_was_stored():
    body = store("%x", "%to", "0, 0", "#c") + load("%y", "%to", "0, 0", "#r")
    found = check(body + store("%y", "%tp", "0, 0", "#r"))
    assert len(ops(found, "gpu.barrier")) == 1
    (fence,) = ops(found, "xegpu.fence")
    assert "global" in str(fence)


def test_the_same_owner_needs_none():
    body = store("%x", "%to", "0, 0", "#c") + load("%y", "%to", "0, 0", "#c")
    assert barriers(body + store("%y", "%tp", "0, 0", "#c")) == 0


def test_other_elements_need_none():
    body = store("%x", "%to", "0, 0", "#c") + load("%y", "%to", "0, 64", "#r")
    assert barriers(body + store("%y", "%tp", "0, 0", "#r")) == 0


def test_arrays_that_may_overlap_need_one():
    body = store("%x", "%to", "0, 0", "#c") + load("%y", "%tp", "0, 0", "#r")
    body += store("%y", "%tp", "0, 64", "#r")
    assert barriers(body) == 0
    assert barriers(body, "{}") > 0


def test_a_write_waits_for_reads():
    body = load("%y", "%to", "0, 0", "#r") + store("%x", "%to", "0, 0", "#c")
    assert barriers(body + store("%y", "%tp", "0, 0", "#r")) == 1


def test_shared_memory_hands_a_value_on():
    found = check(put("%x", "0", "#c") + get("%y", "0", "#r") + store("%y", "%to", "0, 0", "#r"))
    assert len(ops(found, "gpu.barrier")) == 1
    (fence,) = ops(found, "xegpu.fence")
    assert "slm" in str(fence)


LOOP = "%r = scf.for %k = %c0 to %c6 step %c1 iter_args(%v = %x) -> ({value}) {{\n{body}scf.yield %w : {value}\n}}\n"


def loop(body: str) -> str:
    return LOOP.format(value=VALUE, body=body) + store("%r", "%to", "0, 0", "#c")


def test_one_buffer_in_a_loop_needs_two_per_iteration():
    found = check(
        loop(
            put("%v", "0", "#c") + get("%y", "0", "#r") + "%w = math.absf %y : vector<64x64xf32>\n"
        )
    )
    loops = [op for op in found.walk() if isinstance(op, scf.ForOp)]
    assert sum(op.name == "gpu.barrier" for op in loops[0].walk()) >= 2


def test_a_ring_of_two_slots_needs_one_per_iteration():
    ring = "%s = arith.remui %k, %c2 : index\n%at = arith.muli %s, %c64 : index\n"
    body = ring + put("%x", "%at", "#c") + get("%y", "%at", "#r")
    body += "%q = arith.addf %y, %y {layout_result_0 = #r} : vector<64x64xf32>\n"
    found = check(
        "scf.for %k = %c0 to %c6 step %c1 {\n" + body + store("%q", "%to", "0, 0", "#r") + "}\n"
    )
    assert len(ops(found, "gpu.barrier")) in (1, 2)


def test_a_ring_of_offsets():
    """XeTile 2.4's ring: slot k mod 128 is read while k + 64 mod 128 is written."""
    body = put("%x", "0", "#c")
    body += "scf.for %k = %c0 to %c128 step %c64 {\n%s = arith.remui %k, %c128 : index\n"
    body += "%n = arith.addi %k, %c64 : index\n%f = arith.remui %n, %c128 : index\n"
    body += (
        get("%y", "%s", "#r")
        + "%z = arith.addf %y, %y {layout_result_0 = #r} : vector<64x64xf32>\n"
    )
    body += put("%z", "%f", "#r") + "}\n"
    found = check(body + get("%e", "0", "#c") + store("%e", "%to", "0, 0", "#c"))
    loops = [op for op in found.walk() if isinstance(op, scf.ForOp)]
    assert sum(op.name == "gpu.barrier" for op in loops[0].walk()) <= 1


@pytest.mark.parametrize(("ahead", "slots"), [(1, 2), (1, 3), (2, 3), (3, 4), (1, 4)])
def test_rings(ahead: int, slots: int):
    """Slot k is read, slot k + ahead written: the write waits for a read, the read for a write."""
    ring = 64 * slots
    body = "".join(put("%x", str(64 * n), "#c") for n in range(ahead))
    body += f"%ring = arith.constant {ring} : index\n%by = arith.constant {64 * ahead} : index\n"
    body += "%end = arith.constant 640 : index\n"
    body += "scf.for %k = %c0 to %end step %c64 {\n%s = arith.remui %k, %ring : index\n"
    body += "%n = arith.addi %k, %by : index\n%f = arith.remui %n, %ring : index\n"
    body += get("%y", "%s", "#r")
    body += "%z = arith.addf %y, %y {layout_result_0 = #r} : vector<64x64xf32>\n"
    body += put("%z", "%f", "#r") + "}\n"
    found = check(body + get("%e", "0", "#c") + store("%e", "%to", "0, 0", "#c"))
    loop = next(op for op in found.walk() if isinstance(op, scf.ForOp))
    assert sum(op.name == "gpu.barrier" for op in loop.walk()) == 1


@pytest.mark.parametrize("outside", [True, False])
def test_a_barrier_stands_in_front_of_a_loop_that_only_reads(outside: bool):
    body = put("%x", "0", "#c")
    if outside:
        body += "scf.for %k = %c0 to %c6 step %c1 {\n" + get("%y", "0", "#r")
        body += store("%y", "%to", "0, 0", "#r") + "}\n"
    else:
        body += "%go = arith.cmpi eq, %c0, %c0 : index\nscf.if %go {\n" + get("%y", "0", "#r")
        body += store("%y", "%to", "0, 0", "#r") + "}\n"
    found = check(body)
    (barrier,) = ops(found, "gpu.barrier")
    assert isinstance(barrier.parent_op(), scf.IfOp) is not outside


def test_atomics_need_no_order_among_themselves():
    body = """
    %flat = memref.reinterpret_cast %o to offset: [0], sizes: [8192], strides: [1]
      : memref<64x128xf32> to memref<8192xf32, strided<[1]>>
    %i = vector.step {layout_result_0 = #xegpu.layout<sg_layout = [8], sg_data = [8]>} : vector<64xindex>
    %j = vector.step {layout_result_0 = #xegpu.layout<sg_layout = [8], sg_data = [4]>} : vector<64xindex>
    %t = arith.constant dense<true> : vector<64xi1>
    %v = arith.constant dense<1.0> : vector<64xf32>
    %1 = xegpu.atomic_rmw addf %flat[%i], %t, %v
      : memref<8192xf32, strided<[1]>>, vector<64xindex>, vector<64xi1>, vector<64xf32> -> vector<64xf32>
    %2 = xegpu.atomic_rmw addf %flat[%j], %t, %v
      : memref<8192xf32, strided<[1]>>, vector<64xindex>, vector<64xi1>, vector<64xf32> -> vector<64xf32>
    """
    assert barriers(body) == 0


def test_tiles_that_a_loop_passes_over_need_none():
    """Stores of all iterations lie apart, however far the loop has come."""
    body = "scf.for %i = %c0 to %c128 step %c64 {\n" + store("%x", "%to", "0, %i", "#c") + "}\n"
    assert barriers(body) == 0
    body = body.replace("step %c64", "step %c16")
    assert barriers(body) == 1


Q = "#xegpu.layout<sg_layout = [2, 2], sg_data = [32, 32]>"
S = "#xegpu.layout<sg_layout = [4, 1], sg_data = [16, 64]>"


def run_of_four(inside: str) -> str:
    """A region of subgroups 2 to 5, whose layouts are `Q` and `S`."""
    return f"""
  %id = gpu.subgroup_id : index
  %low = arith.cmpi sge, %id, %c2 : index
  %high = arith.cmpi slt, %id, %c6 : index
  %some = arith.andi %low, %high : i1
  scf.if %some {{
    {inside}
  }} {{sg_id_range = #xegpu.range<[2, 6]>}}
"""


@pytest.mark.parametrize(
    ("inside", "all_meet", "some_meet"),
    [
        # Other owners inside: all wait in front of the branch, and behind it.
        (load("%y", "%to", "0, 0", "#q") + store("%y", "%tp", "0, 0", "#q"), 2, 0),
        # The run alone hands a value on: its own barrier, twice.
        (
            load("%y", "%ta", "0, 0", "#q") + put("%y", "0", "#q") + get("%z", "0", "#s")
            + store("%z", "%tp", "0, 0", "#s") + load("%v", "%tp", "0, 0", "#q") + store("%v", "%ta", "0, 64", "#q"),
            1, 2,
        ),
    ],
    ids=["from outside", "inside"],
)  # fmt: skip
def test_a_run_of_subgroups_is_a_scope(inside: str, all_meet: int, some_meet: int):
    """A barrier of all subgroups inside of the branch would hang: lowered code runs, and so is checked for that."""
    body = store("%x", "%to", "0, 0", "#c") + run_of_four(inside) + load("%w", "%tp", "0, 0", "#c")
    body += store("%w", "%tp", "0, 64", "#c")
    module = check(body.replace("#q", Q).replace("#s", S))
    assert len(ops(module, "gpu.barrier")) == all_meet
    waits = ops(module, "xegpu.nbarrier_wait")
    assert len(waits) == some_meet
    assert not any(isinstance(op.parent_op(), scf.IfOp) for op in ops(module, "gpu.barrier")), (
        "not all subgroups come there"
    )


@pytest.mark.parametrize("around", ["{}", "scf.for %i = %c0 to %c3 step %c1 {{\n{}\n}}"])
def test_time_grows_linearly(around: str):
    """Boxes that are apart are not compared one by one: counted in calls rather than in seconds."""

    def work(n: int) -> int:
        ops = "".join(store("%x", "%to", f"0, {64 * k}", "#c") for k in range(n))
        ops += "".join(load(f"%y{k}", "%tp", f"0, {64 * k}", "#r") for k in range(n))
        module = parse_module(TEXT.format(body=around.format(ops), facts="{noalias}"), "many.mlir")
        made = calls(lambda: PIPELINE.alone(INSERT_BARRIERS, module))
        assert not ops or "gpu.barrier" not in str(module)
        return made

    work(2)
    assert work(160) < 2.5 * work(80)
