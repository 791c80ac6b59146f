"""Checking mode at lane level: a subgroup is one party, its block accesses are one access each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.reference.kernels import module_of
from tilewright import reference

TDESC = "!xegpu.tensor_desc<8x16xf32>"


def run(
    arguments: str, body: str, args: list[Any], subgroups: int = 1, grid: int = 1
) -> reference.Report:
    """A run in checking mode of lanes in subgroups of 16; constants and ids are given to the body."""
    attributes = (
        f'tilewright.level = "lane", tilewright.subgroups = {subgroups} : i64, '
        "tilewright.lanes = 16 : i64"
    )
    constants = "".join(f"%c{n} = arith.constant {n} : index\n" for n in (0, 1, 2, 8, 16))
    ids = "%lane = gpu.lane_id\n%sg = gpu.subgroup_id\n%wg = gpu.block_id x\n"
    module = module_of(arguments, constants + ids + body, attributes)
    return reference.run(module, grid, args, check=True)


def kinds(report: reference.Report) -> list[str]:
    return [finding.kind for finding in report.findings]


def copy_of(row: str, more: str = "") -> str:
    """Each lane loads its own fragment of one block, and stores its own fragment of one."""
    return f"""
  %a = xegpu.create_nd_tdesc %x : memref<64x16xf32> -> {TDESC}
  %b = xegpu.create_nd_tdesc %y : memref<64x16xf32> -> {TDESC}
  %v = xegpu.load_nd %a[{row}, %c0] : {TDESC} -> vector<8xf32>
  {more}
  xegpu.store_nd %v, %b[{row}, %c0] : vector<8xf32>, {TDESC}
"""


ARRAYS = "%x: memref<64x16xf32>, %y: memref<64x16xf32>"


@pytest.mark.parametrize("row", ["%c8", "%own"])
def test_a_block_access_is_one_access_of_its_subgroup(row: str):
    """The same place for all lanes as a constant, and one per subgroup of two workgroups."""
    rng = fresh_rng()
    x, y = rng.standard_normal((64, 16)).astype(np.float32), np.full((64, 16), np.nan, np.float32)
    own = """
  %first = arith.muli %wg, %c2 : index
  %number = arith.addi %first, %sg : index
  %own = arith.muli %number, %c8 : index
"""
    many = row == "%own"
    report = run(ARRAYS, own + copy_of(row), [x, y], 2 if many else 1, 2 if many else 1)
    assert not report.findings, report
    rows = slice(0, 32) if many else slice(8, 16)
    np.testing.assert_array_equal(y[rows], x[rows])
    assert np.isnan(y).sum() == (32 if many else 56) * 16


def test_a_subgroup_overwrites_what_its_lanes_read_otherwise():
    """What one lane read, by rows, another writes, by columns: the subgroup's program orders them."""
    x = fresh_rng().standard_normal((64, 16)).astype(np.float32)
    expected = x.copy()
    expected[:8] = x[:8] + x[:16, 0]
    body = f"""
  %r = memref.load %x[%lane, %c0] : memref<64x16xf32>
  %s = vector.broadcast %r : f32 to vector<8xf32>
  %a = xegpu.create_nd_tdesc %x : memref<64x16xf32> -> {TDESC}
  %v = xegpu.load_nd %a[%c0, %c0] : {TDESC} -> vector<8xf32>
  %w = arith.addf %v, %s : vector<8xf32>
  xegpu.store_nd %w, %a[%c0, %c0] : vector<8xf32>, {TDESC}
"""
    report = run("%x: memref<64x16xf32>", body, [x])
    assert not report.findings, report
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("subgroups", [1, 2])
def test_blocks_of_two_parties_race(subgroups: int):
    """Two subgroups, or two workgroups, that store one block: named as what they are."""
    x, y = np.zeros((64, 16), np.float32), np.zeros((64, 16), np.float32)
    report = run(ARRAYS, copy_of("%c8"), [x, y], subgroups, 3 - subgroups)
    assert kinds(report) == ["race"]
    other = "(0, 0, 0) subgroup 1" if subgroups == 2 else "(1, 0, 0)"
    assert f"workgroup {other}" in report.errors[0].message and "store_nd" in report.errors[0].op


@pytest.mark.parametrize("barrier", [True, False])
def test_a_barrier_orders_blocks_of_subgroups(barrier: bool):
    """Each subgroup stores a block and loads the other's: the second subgroup's is its own party's."""
    body = f"""
  %other = arith.subi %c1, %sg : index
  %mine = arith.muli %sg, %c8 : index
  %theirs = arith.muli %other, %c8 : index
  %v = arith.constant dense<1.0> : vector<8xf32>
  %a = xegpu.create_nd_tdesc %x : memref<64x16xf32> -> {TDESC}
  %b = xegpu.create_nd_tdesc %y : memref<64x16xf32> -> {TDESC}
  xegpu.store_nd %v, %a[%mine, %c0] : vector<8xf32>, {TDESC}
  {"gpu.barrier" if barrier else ""}
  %w = xegpu.load_nd %a[%theirs, %c0] : {TDESC} -> vector<8xf32>
  xegpu.store_nd %w, %b[%theirs, %c0] : vector<8xf32>, {TDESC}
"""
    x, y = np.zeros((64, 16), np.float32), np.zeros((64, 16), np.float32)
    report = run(ARRAYS, body, [x, y], 2)
    assert kinds(report) == ([] if barrier else ["race"]), report
    assert not barrier or (y[:16] == 1).all()


@pytest.mark.parametrize("store", ["memref", "vector"])
@pytest.mark.parametrize("same", [True, False])
def test_lanes_that_write_one_element_write_one_value(store: str, same: bool):
    """Copies of a value may be stored by each who has one; different values may not."""
    number = "%sg" if same else "%lane"
    text = {
        "memref": "memref.store %f, %x[%sg, %c0] : memref<64x16xf32>",
        "vector": "%v = vector.broadcast %f : f32 to vector<4xf32>\n"
        "vector.store %v, %x[%sg, %c0] : memref<64x16xf32>, vector<4xf32>",
    }[store]
    body = f"""
  %i = arith.index_cast {number} : index to i32
  %f = arith.sitofp %i : i32 to f32
  {text}
"""
    x = np.full((64, 16), np.nan, np.float32)
    report = run("%x: memref<64x16xf32>", body, [x], 2)
    assert kinds(report) == ([] if same else ["race"]), report
    if same:
        assert x[:2, 0].tolist() == [0, 1]
    else:
        message = report.errors[0].message
        assert "lanes 0 and 1 of workgroup (0, 0, 0) subgroup 0" in message


@pytest.mark.parametrize("limit", [0, 1, 8])
def test_lanes_that_are_masked_write_nothing(limit: int):
    """Every lane at one address; with one that writes, or none, nothing differs."""
    body = f"""
  %limit = arith.constant {limit} : index
  %mask = arith.cmpi ult, %lane, %limit : index
  %i = arith.index_cast %lane : index to i32
  %f = arith.sitofp %i : i32 to f32
  xegpu.store %f, %x[%c0], %mask : f32, memref<64xf32>, index, i1
"""
    x = np.full(64, -1, np.float32)
    report = run("%x: memref<64xf32>", body, [x])
    assert kinds(report) == (["race"] if limit == 8 else []), report
    assert limit == 8 or x[0] == (0 if limit else -1)
