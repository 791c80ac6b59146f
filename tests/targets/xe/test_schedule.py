"""Passes that make kernels fit: epilogues piece by piece, loads in every step, loops that surely run."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pytest
from xdsl.ir import SSAValue

from tests.targets.xe import kernels
from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects import xegpu
from tilewright.passes.kernel import kernel_of
from tilewright.passes.xegpu.block_messages import created
from tilewright.targets.xe.guard_loops import guard_loops
from tilewright.targets.xe.liveness import Liveness
from tilewright.targets.xe.registers import liveness_of
from tilewright.targets.xe.rematerialize_loads import rematerialize_loads
from tilewright.targets.xe.schedule import schedule_for_pressure
from tilewright.targets.xe.version_stores import version_stores


def epilogue(pieces: int) -> str:
    """c * a + r, summed up first and stored afterwards; the factor is shared by every second piece. Then a word of
    shared memory is read."""
    made = "".join(
        f"""
    %r{i} = xegpu.load_nd %tr[{8 * i}, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
    %m{i} = arith.mulf %x{i}, %f{i % 2} : vector<8xf32>
    %y{i} = arith.addf %m{i}, %r{i} : vector<8xf32>
    %z{i} = arith.truncf %y{i} : vector<8xf32> to vector<8xf16>"""
        for i in range(pieces)
    )
    return (
        kernels.head(
            "%a: memref<64x16xf32>, %r: memref<64x16xf32>, %f: memref<16x16xf32>, %out: memref<64x16xf16>, "
            "%word: memref<16xf32>"
        ).replace(
            "tilewright.level",
            "tilewright.args = [{noalias}, {noalias}, {noalias}, {noalias}, {noalias}], tilewright.level",
        )
        + """
    %t = xegpu.create_nd_tdesc %a : memref<64x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %tr = xegpu.create_nd_tdesc %r : memref<64x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %tf = xegpu.create_nd_tdesc %f : memref<16x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %o = xegpu.create_nd_tdesc %out : memref<64x16xf16> -> !xegpu.tensor_desc<8x16xf16>
    %shared = memref.alloc() : memref<64xi8, 3>
    %md = xegpu.create_mem_desc %shared : memref<64xi8, 3> -> !xegpu.mem_desc<1x16xf32>"""
        + "".join(
            f"""
    %f{i} = xegpu.load_nd %tf[{8 * i}, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>"""
            for i in range(2)
        )
        + "".join(
            f"""
    %x{i} = xegpu.load_nd %t[{8 * i}, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>"""
            for i in range(pieces)
        )
        + made
        + "".join(
            f"\n    xegpu.store_nd %z{i}, %o[{8 * i}, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"
            for i in range(pieces)
        )
        + """
    %seven = arith.constant 7.0 : f32
    xegpu.store_matrix %seven, %md[%c0, %lane] : f32, !xegpu.mem_desc<1x16xf32>, index, index
    %w = xegpu.load_matrix %md[%c0, %lane] : !xegpu.mem_desc<1x16xf32>, index, index -> f32
    xegpu.store %w, %word[%lane], %true : f32, memref<16xf32>, index, i1"""
        + kernels.FOOT
    )


def test_an_epilogue_goes_piece_by_piece(rng: np.random.Generator) -> None:
    """Every piece is stored before the next one is begun, though another order would load the factors once; what is
    read of shared memory keeps no store back."""
    module = parse_module(epilogue(8), "kernel.mlir")
    schedule_for_pressure(kernel_of(module), liveness_of(kernel_of(module), 16))
    module.verify()
    steps = [
        op.name
        for op in kernel_of(module).walk()
        if op.name in ("arith.addf", "arith.truncf", "xegpu.store_nd")
    ]
    assert steps == 8 * ["arith.addf", "arith.truncf", "xegpu.store_nd"]
    a, r = (rng.standard_normal((64, 16)).astype(np.float32) for _ in range(2))
    f = rng.standard_normal((16, 16)).astype(np.float32)
    out, word = np.full((64, 16), np.nan, np.float16), np.full(16, np.nan, np.float32)
    reference.run(module, (1, 1, 1), [a, r, f, out, word])
    np.testing.assert_array_equal(out, (a * np.tile(f, (4, 1)) + r).astype(np.float16))
    np.testing.assert_array_equal(word, 7)


def overlapping(pieces: int) -> str:
    """Doubles numbers and stores them wider, in an array that may overlap the one they come from, which is read once
    more behind all that."""
    made = {
        "x{i} = xegpu.load_nd %t[{row}, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>": "x",
        "y{i} = arith.extf %x{i} : vector<8xf16> to vector<8xf32>": "y",
        "z{i} = arith.addf %y{i}, %y{i} : vector<8xf32>": "z",
    }
    tensor = "!xegpu.tensor_desc<8x16x"
    lines = [f"%{form.format(i=i, row=8 * i)}" for form in made for i in range(pieces)]
    lines += [
        f"xegpu.store_nd %z{i}, %o[{8 * i}, 0] : vector<8xf32>, {tensor}f32>" for i in range(pieces)
    ]
    lines += [
        f"%w = xegpu.load_nd %t[{8 * pieces - 8}, 0] : {tensor}f16> -> vector<8xf16>",
        f"xegpu.store_nd %w, %to[0, 0] : vector<8xf16>, {tensor}f16>",
    ]
    rows = 8 * pieces
    return (
        kernels.head(
            f"%a: memref<{rows}x16xf16>, %out: memref<{rows}x16xf32>, %again: memref<8x16xf16>"
        )
        + f"""
    %t = xegpu.create_nd_tdesc %a : memref<{rows}x16xf16> -> {tensor}f16>
    %o = xegpu.create_nd_tdesc %out : memref<{rows}x16xf32> -> {tensor}f32>
    %to = xegpu.create_nd_tdesc %again : memref<8x16xf16> -> {tensor}f16>
    """
        + "\n    ".join(lines)
        + kernels.FOOT
    )


def test_stores_to_what_may_overlap_wait_for_loads_only(rng: np.random.Generator) -> None:
    """Everything is loaded before the first store; what is wider than that is made store by store."""
    module = parse_module(overlapping(4), "kernel.mlir")
    kernel = kernel_of(module)
    schedule_for_pressure(kernel, liveness_of(kernel, 16))
    module.verify()
    moved = ("xegpu.load_nd", "arith.addf", "xegpu.store_nd")
    steps = [op.name for op in kernel.walk() if op.name in moved]
    load, add, store = moved
    assert steps == [load, add, *3 * [load], store, *3 * [add, store], load, store]
    memory = np.zeros(4096, np.float16)
    memory[:512] = rng.standard_normal(512)
    a, out = memory[:512].reshape(32, 16), memory[256:1280].view(np.float32).reshape(32, 16)
    want, again = 2 * a.astype(np.float32), np.full((8, 16), np.nan, np.float16)
    reference.run(module, (1, 1, 1), [a, out, again])
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(again.view(np.uint16), a[-8:].view(np.uint16))


def reused(facts: str, behind: str) -> str:
    """A loop that multiplies two fragments from outside; `behind` makes %s, which is stored."""
    return (
        kernels.head("%a: memref<8x16xf16>, %b: memref<16x16xf16>, %c: memref<8x16xf16>").replace(
            "tilewright.level", f"tilewright.args = [{facts}, {facts}, {facts}], tilewright.level"
        )
        + """
    %zero = arith.constant dense<0.0> : vector<8xf32>
    %ta = xegpu.create_nd_tdesc %a : memref<8x16xf16> -> !xegpu.tensor_desc<8x16xf16>
    %tb = xegpu.create_nd_tdesc %b : memref<16x16xf16> -> !xegpu.tensor_desc<16x16xf16>
    %tbo = xegpu.create_nd_tdesc %b : memref<16x16xf16> -> !xegpu.tensor_desc<8x16xf16>
    %tco = xegpu.create_nd_tdesc %c : memref<8x16xf16> -> !xegpu.tensor_desc<8x16xf16>
    %w = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
    %x = vector.shape_cast %w : vector<8xf16> to vector<8xf16>
    %y = xegpu.load_nd %tb[0, 0] <{packed}> : !xegpu.tensor_desc<16x16xf16> -> vector<16xf16>
    %f = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %zero) -> (vector<8xf32>) {
      %d = xegpu.dpas %x, %y, %acc : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
      scf.yield %d : vector<8xf32>
    }
    %r = arith.truncf %f : vector<8xf32> to vector<8xf16>"""
        + behind
        + kernels.FOOT
    )


STORED = "xegpu.store_nd %s, %tco[0, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"


@pytest.mark.parametrize(
    "facts, behind, moved",
    [
        ("{noalias}", f"%s = arith.addf %r, %r : vector<8xf16>\n{STORED}", ["a", "b"]),
        ("{noalias}", f"%s = arith.addf %r, %w : vector<8xf16>\n{STORED}", ["b"]),
        (
            "{noalias}",
            f"%s = arith.addf %r, %r : vector<8xf16>\n{STORED}".replace("co", "bo"),
            ["a"],
        ),
        ("{}", f"%s = arith.addf %r, %r : vector<8xf16>\n{STORED}", []),
    ],
    ids=["read inside only", "read behind", "written", "may overlap"],
)
def test_reload(facts: str, behind: str, moved: list[str], rng: np.random.Generator) -> None:
    """What a loop alone reads of arrays that nothing writes is loaded in it."""
    module = parse_module(reused(facts, behind), "kernel.mlir")
    given = [rng.standard_normal(s).astype(np.float16) for s in ((8, 16), (16, 16), (8, 16))]

    def outcome() -> list[np.ndarray]:
        held = [x.copy() for x in given]
        reference.run(module, (1, 1, 1), held)
        return held

    before = outcome()
    assert rematerialize_loads(kernel_of(module)) == bool(moved)
    module.verify()
    for one, other in zip(before, outcome(), strict=True):
        np.testing.assert_array_equal(one, other)
    loop = next(op for op in kernel_of(module).walk() if op.name == "scf.for")
    loads = [op for op in loop.walk() if isinstance(op, xegpu.LoadNdOp)]
    made = [created(op) for op in loads]
    assert sorted(str(m.source.name_hint) for m in made if m is not None) == moved


def exchanged(place: str, behind: str = "") -> str:
    """Lanes give their number and a sum to a neighbour in every step, at row `place` of shared memory."""
    return (
        kernels.head("%out: memref<16xf32>, %n: index")
        + f"""
    %other = arith.subi %c15, %lane : index
    %number = arith.index_cast %lane : index to i32
    %float = arith.sitofp %number : i32 to f32
    %zero = arith.constant dense<0.0> : vector<1xf32>
    %shared = memref.alloc() : memref<256xi8, 3>
    %md = xegpu.create_mem_desc %shared : memref<256xi8, 3> -> !xegpu.mem_desc<4x16xf32>
    %f = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (vector<1xf32>) {{
      %step = arith.remui %i, %c1 : index
      %a = vector.extract %acc[0] : f32 from vector<1xf32>
      %given = arith.addf %a, %float : f32
      gpu.barrier
      xegpu.store_matrix %given, %md[{place}, %lane] : f32, !xegpu.mem_desc<4x16xf32>, index, index
      gpu.barrier
      %got = xegpu.load_matrix %md[{place}, %other] : !xegpu.mem_desc<4x16xf32>, index, index -> f32
      %next = vector.broadcast %got : f32 to vector<1xf32>
      scf.yield %next : vector<1xf32>
    }}
    {behind}
    %x = vector.extract %f[0] : f32 from vector<1xf32>
    xegpu.store %x, %out[%lane], %true : f32, memref<16xf32>, index, i1"""
        + kernels.FOOT
    )


READ_AGAIN = (
    "%again = xegpu.load_matrix %md[%c0, %lane] : !xegpu.mem_desc<4x16xf32>, index, index -> f32\n"
    "xegpu.store %again, %out[%lane], %true : f32, memref<16xf32>, index, i1"
)


@pytest.mark.parametrize(
    "text, once",
    [
        (exchanged("%c1"), True),
        (exchanged("%step"), False),
        (exchanged("%c1", READ_AGAIN), False),
    ],
    ids=["its own", "where steps say", "read behind"],
)
def test_a_loop_of_exchanges_runs_once(text: str, once: bool) -> None:
    """Barriers and shared memory of a loop's own do not keep it from a run too many."""
    module = parse_module(text, "kernel.mlir")
    guard_loops(kernel_of(module))
    module.verify()
    loop = next(op for op in kernel_of(module).walk() if op.name == "scf.for")
    assert ("mach.nonempty" in loop.attributes) == once
    for steps in (0, 1, 2):
        if READ_AGAIN in text and not steps:
            continue  # reads what nothing wrote
        out = np.full(16, np.nan, np.float32)
        reference.run(module, (1, 1, 1), [out, steps])
        lanes = np.arange(16, dtype=np.float32)
        np.testing.assert_array_equal(out, [0 * lanes, 15 - lanes, 15 + 0 * lanes][steps])


def masked(stores: int) -> str:
    """Rows of an argument's length, of which lanes store the columns that are inside."""
    rows = "".join(
        f"""
    %i{i} = arith.constant {i} : index
    %in{i} = arith.cmpi slt, %i{i}, %rows : index
    %m{i} = arith.andi %in{i}, %column : i1
    %o{i} = arith.muli %i{i}, %c16 : index
    %p{i} = arith.addi %o{i}, %lane : index
    %x{i} = vector.extract %v[{i}] : f32 from vector<8xf32>
    xegpu.store %x{i}, %out[%p{i}], %m{i} : f32, memref<128xf32>, index, i1"""
        for i in range(stores)
    )
    return (
        kernels.head("%a: memref<8x16xf32>, %out: memref<128xf32>, %rows: index, %columns: index")
        + """
    %column = arith.cmpi slt, %lane, %columns : index
    %t = xegpu.create_nd_tdesc %a : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>"""
        + rows
        + kernels.FOOT
    )


@pytest.mark.parametrize("rows, columns", [(8, 16), (5, 16), (8, 3), (0, 16)])
def test_whole_stores(rows: int, columns: int, rng: np.random.Generator) -> None:
    """One branch where all is inside, the masks elsewhere; a few stores stay as they are."""
    module = parse_module(masked(8), "kernel.mlir")
    assert version_stores(kernel_of(module))
    module.verify()
    assert [op.name for op in kernel_of(module).body.block.ops].count("scf.if") == 1
    a = rng.standard_normal((8, 16)).astype(np.float32)
    out = np.full(128, np.nan, np.float32)
    reference.run(module, (1, 1, 1), [a, out, rows, columns])
    want = np.full((8, 16), np.nan, np.float32)
    want[:rows, :columns] = a[:rows, :columns]
    np.testing.assert_array_equal(out, want.reshape(-1))
    assert not version_stores(kernel_of(parse_module(masked(3), "kernel.mlir")))


def normalised(pieces: int) -> str:
    """Fragments are summed up, one by one; every one times the sum is stored."""
    shape = f"{8 * pieces}x16xf32"
    return (
        kernels.head(f"%a: memref<{shape}>, %out: memref<{shape}>").replace(
            "tilewright.level", "tilewright.args = [{noalias}, {noalias}], tilewright.level"
        )
        + f"""
    %t = xegpu.create_nd_tdesc %a : memref<{shape}> -> !xegpu.tensor_desc<8x16xf32>
    %o = xegpu.create_nd_tdesc %out : memref<{shape}> -> !xegpu.tensor_desc<8x16xf32>
    %s0 = arith.constant dense<0.0> : vector<8xf32>"""
        + "".join(
            f"""
    %x{i} = xegpu.load_nd %t[{8 * i}, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
    %y{i} = arith.addf %x{i}, %x{i} : vector<8xf32>
    %s{i + 1} = arith.addf %y{i}, %s{i} : vector<8xf32>"""
            for i in range(pieces)
        )
        + "".join(
            f"""
    %z{i} = arith.mulf %y{i}, %s{pieces} : vector<8xf32>
    xegpu.store_nd %z{i}, %o[{8 * i}, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
            for i in range(pieces)
        )
        + kernels.FOOT
    )


@pytest.mark.parametrize("text", [epilogue, normalised])
def test_the_work_for_an_order_is_linear(
    text: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times as many operations are weighed four times as often, also where all of them could come at once and
    read one value."""
    weighed = 0
    total = Liveness.total

    def counted(self: Liveness, values: Collection[SSAValue]) -> int:
        nonlocal weighed
        weighed += 1
        return total(self, values)

    monkeypatch.setattr(Liveness, "total", counted)
    counts: list[int] = []
    for pieces in (16, 64):
        module = parse_module(text(pieces), "kernel.mlir")
        weighed = 0
        schedule_for_pressure(kernel_of(module), liveness_of(kernel_of(module), 16))
        counts.append(weighed)
    assert counts[1] <= 4.5 * counts[0]


def test_positions_are_computed_behind_the_barrier_in_front_of_their_stores(
    rng: np.random.Generator,
) -> None:
    """Where and whether a lane stores need not fill registers up to the barrier; what was loaded stays in front."""
    text = (
        kernels.head("%a: memref<64xf32>, %out: memref<64xf32>, %n: index")
        + """
    %some = vector.broadcast %lane : index to vector<4xindex>
    %steps = arith.constant dense<[0, 16, 32, 48]> : vector<4xindex>
    %at = arith.addi %some, %steps : vector<4xindex>
    %count = vector.broadcast %n : index to vector<4xindex>
    %masks = arith.cmpi ult, %at, %count : vector<4xindex>
    %x = xegpu.load %a[%lane], %true : memref<64xf32>, index, i1 -> f32
    %v = vector.broadcast %x : f32 to vector<4xf32>
    %y = arith.mulf %v, %v : vector<4xf32>
    gpu.barrier"""
        + "".join(
            f"""
    %m{i} = vector.extract %masks[{i}] : i1 from vector<4xi1>
    %p{i} = vector.extract %at[{i}] : index from vector<4xindex>
    %y{i} = vector.extract %y[{i}] : f32 from vector<4xf32>
    xegpu.store %y{i}, %out[%p{i}], %m{i} : f32, memref<64xf32>, index, i1"""
            for i in range(4)
        )
        + kernels.FOOT
    )
    module = parse_module(text, "kernel.mlir")
    kernel = kernel_of(module)
    schedule_for_pressure(kernel, liveness_of(kernel, 16))
    module.verify()
    names = [op.name for op in kernel.body.block.ops]
    wall = names.index("gpu.barrier")
    assert (
        min(names.index("arith.cmpi"), names.index("arith.addi")) > wall > names.index("arith.mulf")
    )
    a, out = rng.standard_normal(64).astype(np.float32), np.zeros(64, np.float32)
    reference.run(module, (1, 1, 1), [a, out, 40])
    lanes = np.arange(64)
    np.testing.assert_array_equal(out, np.where(lanes < 40, a[lanes % 16] ** 2, 0))


def test_an_op_stands_in_front_of_the_users_of_all_its_results(rng: np.random.Generator) -> None:
    """The even numbers are wanted in front of the barrier, the odd ones behind it."""
    text = (
        kernels.head("%a: memref<64xf32>, %out: memref<64xf32>")
        + """
    %some = vector.broadcast %lane : index to vector<4xindex>
    %steps = arith.constant dense<[0, 16, 32, 48]> : vector<4xindex>
    %at = arith.addi %some, %steps : vector<4xindex>
    %even, %odd = vector.deinterleave %at : vector<4xindex> -> vector<2xindex>
    %p0 = vector.extract %even[0] : index from vector<2xindex>
    %x0 = xegpu.load %a[%p0], %true : memref<64xf32>, index, i1 -> f32
    gpu.barrier
    %p1 = vector.extract %odd[1] : index from vector<2xindex>
    xegpu.store %x0, %out[%p1], %true : f32, memref<64xf32>, index, i1"""
        + kernels.FOOT
    )
    module = parse_module(text, "kernel.mlir")
    schedule_for_pressure(kernel_of(module), liveness_of(kernel_of(module), 16))
    a, out = rng.standard_normal(64).astype(np.float32), np.zeros(64, np.float32)
    reference.run(module, (1, 1, 1), [a, out])
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 48, 0, np.tile(a[:16], 4)))
