"""The launcher: what is compiled once, what is refused, what reaches the target."""

from __future__ import annotations

import contextvars
import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import LaunchError, UnsupportedError, cdiv, knobs
from tilewright.arguments import ArraySpec
from tilewright.runtime import compiled
from tilewright.runtime.compiled import uncollected
from tilewright.runtime.launch import Launcher
from tilewright.targets.cuda import driver

from .conftest import CopyProgram


def arrays(shape=(16, 16), dtype=np.float32):
    return np.ones(shape, dtype), np.zeros(shape, dtype)


def test_one_build_for_shapes_of_one_class(launcher, target):
    for shape in ((16, 16), (48, 16), (16, 80)):
        launcher.launch(1, arrays(shape), {})
    assert (target.builds, len(target.launches)) == (1, 3)
    launcher.launch(1, arrays((17, 16)), {})
    launcher.launch(1, arrays(dtype=np.float16), {})
    launcher.launch(1, arrays(), {"B": 8})
    assert target.builds == 4


def test_what_reaches_the_target(launcher, target):
    x, y = arrays()
    for _ in range(2):  # the second launch takes the short way
        launcher.launch((2, 3), (x, y), {"scale": 5})
        grid, args = target.launches[-1]
        assert grid == (2, 3, 1) and args[2] == 5 and len(args) == 3
        assert [a.pointer for a in args[:2]] == [x.ctypes.data, y.ctypes.data]
        assert args[0].strides == (16, 1) and args[0].shape == (16, 16)


def test_the_short_way_sees_new_memory(launcher, target):
    first, second = arrays(), arrays()
    launcher.launch(1, first, {})
    launcher.launch(1, second, {})
    assert target.launches[-1][1][1].pointer == second[1].ctypes.data
    assert target.builds == 1


def test_overlap_is_found_on_every_launch(launcher, target):
    whole = np.zeros((32, 16), np.float32)
    launcher.launch(1, (whole[:16], whole[16:]), {})
    launcher.launch(1, (whole[:16], whole[:16]), {})
    launcher.launch(1, (whole[4:20], whole[:16]), {})
    assert target.builds == 2


def test_columns_of_one_array_do_not_overlap(launcher, target):
    """Both ways of a launch, the first and the short one, look at elements: ranges of bytes meet here."""
    whole = np.zeros((16, 32), np.float32)
    for _ in range(3):
        launcher.launch(1, (whole[:, :16], whole[:, 16:]), {})
    assert target.builds == 1
    for start in (8, 16, 8, 16):
        launcher.launch(1, (whole[:, :16], whole[:, start : start + 16]), {})
    assert target.builds == 2 and len(target.launches) == 7


def test_values_of_constexprs_that_compare_equal_stay_apart(launcher, target):
    program = CopyProgram()
    for value in (16, True + 15, np.int64(16)):
        Launcher(program, {"target": "cpu"}).launch(1, arrays(), {"B": value})
    launcher.launch(1, arrays(), {"B": 1})
    launcher.launch(1, arrays(), {"B": True})
    assert target.builds + target.loads == 5


def test_grids(launcher, target):
    for grid, full in ((4, (4, 1, 1)), ((2,), (2, 1, 1)), ([1, 2, 3], (1, 2, 3)),
                       (np.int32(5), (5, 1, 1)), ((np.int64(2), 3), (2, 3, 1))):  # fmt: skip
        launcher.launch(grid, arrays(), {})
        assert target.launches[-1][0] == full


def test_what_a_call_leaves_open_is_asked_for_once(launcher, target):
    """Later launches of the same shapes find the answer where they find the code, whatever computes the grid."""
    given = arrays()
    for rows in (3, 5, 7):
        launcher.launch(lambda B: (rows, B), given, {})  # noqa: B023
        assert target.launches[-1][0] == (rows, 16, 1)
    assert launcher.program.resolved == 1
    launcher.launch(lambda c: c["B"], arrays((32, 16)), {})
    assert launcher.program.resolved == 2 and target.launches[-1][0] == (16, 1, 1)
    with pytest.raises(LaunchError, match="asks for 'BM'"):
        launcher.launch(lambda BM, B: BM, arrays(), {})
    for grid in (lambda BM: cdiv(100, BM), lambda BM: (100 // BM,)):
        with pytest.raises(LaunchError, match=r"is given BM, all constexprs.*(.|\n)*BM\.B"):
            launcher.launch(grid, arrays(), {})


@pytest.mark.parametrize("grid", [0, (0, 5), (5, 0), (1, 1, 0)])
def test_a_grid_of_zero_runs_nothing(grid, launcher, target):
    for _ in range(2):
        launcher.launch(grid, arrays(), {})
    assert target.launches == [] and target.builds == 0


@pytest.mark.parametrize("grid, words", [
    (-1, "-1"), ((1, -2), "-2"), ((1, 1, 1, 1), "1 to 3 axes"), ((), "1 to 3 axes"),
    (1.5, "1.5"), (True, "True"), ("x", "'x'"), (None, "None"), (1 << 40, "axis 0"),
])  # fmt: skip
def test_what_is_no_grid(grid, words, launcher, target):
    with pytest.raises(LaunchError, match=words):
        launcher.launch(grid, arrays(), {})
    assert target.launches == []


@pytest.mark.parametrize("args, kwargs, words", [
    ((), {}, "misses argument 'X'"),
    ((1,), {}, "misses argument 'Y'"),
    ((1, 2, 3, 4, 5), {}, "takes 4 arguments, but 5"),
    ((1, 2), {"X": 3}, "two values for argument 'X'"),
    ((1, 2), {"Z": 3}, "no argument 'Z'"),
])  # fmt: skip
def test_arity(args, kwargs, words, launcher):
    with pytest.raises(LaunchError, match=words) as caught:
        launcher.launch(1, args, kwargs)
    assert "(X, Y, scale=2.0, B=16)" in str(caught.value)


def test_read_only_arrays_may_be_read_but_not_stored_to(launcher, target):
    x, y = arrays()
    x.flags.writeable = False
    launcher.launch(1, (x, y), {})
    y.flags.writeable = False
    for _ in range(2):
        with pytest.raises(LaunchError, match="stores to Y, which is a read-only array"):
            launcher.launch(1, (x, y), {})
    assert len(target.launches) == 1


def test_elements_that_are_one_in_memory_may_be_read_but_not_stored_to(launcher, target):
    x, y = arrays()
    repeated = np.lib.stride_tricks.as_strided(x, x.shape, (0, *x.strides[1:]))
    launcher.launch(1, (repeated, y), {})
    with pytest.raises(LaunchError, match=r"stores to Y, which is a view whose \d+ elements"):
        launcher.launch(1, (x, repeated), {})
    launcher.launch(1, (x, np.lib.stride_tricks.as_strided(x, (0, *x.shape[1:]), x.strides)), {})


def test_flat_arrays_must_have_no_gaps(target, tmp_path):
    program = CopyProgram()
    program.contiguous = (0,)
    launcher = Launcher(program, {"target": "cpu"})
    x, y = arrays((32, 32))
    with knobs.override(cache_dir=tmp_path):
        launcher.launch(1, (x, y), {})
        launcher.launch(1, (x[::2][:1], y), {})  # one row: no gap
        for _ in range(2):
            with pytest.raises(LaunchError, match="indexes X as one flat array"):
                launcher.launch(1, (x[:, :16], y), {})
            with pytest.raises(LaunchError, match="ascontiguousarray"):
                launcher.launch(1, (x.T, y), {})


@pytest.mark.parametrize("value, words", [
    (np.zeros((2, 2)), "constexpr"), ([1, 2, {}], "constexpr"),
])  # fmt: skip
def test_constexprs_that_cannot_be(value, words, launcher):
    with pytest.raises(LaunchError, match=words):
        launcher.launch(1, arrays(), {"B": value})


def test_scalars_that_cannot_be(launcher):
    with pytest.raises(LaunchError, match="64 bits"):
        launcher.launch(1, arrays(), {"scale": 1 << 63})
    with pytest.raises(LaunchError, match="scale is a str"):
        launcher.launch(1, arrays(), {"scale": "2"})
    from tilewright import dtypes

    with pytest.raises(LaunchError, match=r"tw\.constexpr"):
        launcher.launch(1, arrays(), {"scale": dtypes.f32})


def test_scalars_of_other_types_compile_anew(launcher, target):
    for scale in (1.0, 2.0, 7, 8, np.float64(1), True):
        launcher.launch(1, arrays(), {"scale": scale})
    assert target.builds == 4


def test_shapes_without_memory_compile_but_do_not_launch(launcher, target):
    from tilewright import dtypes

    spec = ArraySpec((16, 16), dtypes.f32)
    kernel = launcher.compile((spec, spec), {})
    assert target.builds == 1 and "xetile.store_tile" in kernel.ir["xetile"]
    with pytest.raises(LaunchError, match="X has a shape but no memory"):
        launcher.launch(1, (spec, spec), {})


def test_a_compiled_kernel_launches_where_its_facts_hold(launcher, target):
    from tilewright import dtypes

    kernel = launcher.compile((ArraySpec((16, 16), dtypes.f32),) * 2, {})
    raw = np.zeros(64 * 64 + 64, np.float32)
    start = -(raw.ctypes.data // 4) % 16
    aligned = raw[start : start + 512].reshape(16, 32), raw[start + 512 :][:512].reshape(16, 32)
    kernel[2](*aligned, 2.0)
    assert target.launches[-1][0] == (2, 1, 1)
    for wrong in (
        (aligned[0], aligned[0], 2.0),  # overlap
        (aligned[0].T, aligned[1], 2.0),
        (aligned[0][:, 1:], aligned[1], 2.0),
        (aligned[0][:3], aligned[1], 2.0),  # 3 rows are no multiple of 16
        (aligned[0].astype("f2"), aligned[1], 2.0),
        (*aligned, 2),
        aligned,
    ):
        with pytest.raises(LaunchError):
            kernel[2](*wrong)
    aligned[1].flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        kernel[2](*aligned, 2.0)


def test_a_stored_kernel_is_loaded_not_built(launcher, target):
    launcher.launch(1, arrays(), {})
    again = Launcher(CopyProgram(), {"target": "cpu"})
    again.launch(1, arrays(), {})
    assert (target.builds, target.loads) == (1, 1)
    assert again.compile(arrays(), {}).from_cache
    x, y = arrays()
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):  # known of a loaded kernel too
        again.launch(1, (x, y), {})


def test_what_is_in_the_disk_key(launcher, target):
    launcher.launch(1, arrays(), {})
    other_source = Launcher(CopyProgram("copy 2"), {"target": "cpu"})
    other_options = Launcher(CopyProgram(), {"target": "cpu", "fastmath": False})
    threads = Launcher(CopyProgram(), {"target": "cpu", "num_threads": 1})
    for each in (other_source, other_options, threads):
        each.launch(1, arrays(), {})
    assert (target.builds, target.loads) == (3, 1)


def test_a_program_without_fingerprint_is_not_stored(target, tmp_path):
    with knobs.override(cache_dir=tmp_path):
        for _ in range(2):
            Launcher(CopyProgram(None), {"target": "cpu"}).launch(1, arrays(), {})
    assert (target.builds, target.loads, list(tmp_path.iterdir())) == (2, 0, [])


def test_a_damaged_entry_is_rebuilt(launcher, target, tmp_path):
    launcher.launch(1, arrays(), {})
    (path,) = tmp_path.rglob("*.kernel")
    path.write_bytes(path.read_bytes()[:-1])
    Launcher(CopyProgram(), {"target": "cpu"}).launch(1, arrays(), {})
    Launcher(CopyProgram(), {"target": "cpu"}).launch(1, arrays(), {})
    assert (target.builds, target.loads) == (2, 1)


def test_an_entry_that_its_target_cannot_load_is_rebuilt(launcher, target, monkeypatch):
    launcher.launch(1, arrays(), {})

    def refuse(artifacts, options):
        raise ValueError("not mine")

    monkeypatch.setattr(target, "load", refuse)
    Launcher(CopyProgram(), {"target": "cpu"}).launch(1, arrays(), {})
    assert target.builds == 2


def test_threads_that_need_one_kernel_compile_it_once(launcher, target):
    barrier = threading.Barrier(8)

    def launch():
        barrier.wait()
        launcher.launch(1, arrays(), {})

    contexts = [contextvars.copy_context() for _ in range(8)]
    workers = [threading.Thread(target=c.run, args=(launch,)) for c in contexts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (target.builds, len(target.launches)) == (1, 8)


def test_target_by_option_then_knob_then_device(target):
    launcher = Launcher(CopyProgram())
    with knobs.override(target="reference"):
        assert launcher.describe((*arrays(), 2.0, 16))[2].target == "reference"
        own = Launcher(CopyProgram(), {"target": "cpu"})
        assert own.describe((*arrays(), 2.0, 16))[2].target == "cpu"
    with knobs.override(target=None):
        assert launcher.describe((*arrays(), 2.0, 16))[2].target == "cpu"


class CudaArray:
    __cuda_array_interface__ = {
        "typestr": "<f4", "shape": (16, 16), "data": (4096, False), "strides": None, "version": 3,
    }  # fmt: skip


def test_devices(launcher, monkeypatch):
    monkeypatch.setattr(driver, "available", lambda: False)  # which would ask for the memory there
    x, _ = arrays()
    with pytest.raises(LaunchError, match="cpu and cuda:0"):
        launcher.launch(1, (x, CudaArray()), {})
    with pytest.raises(UnsupportedError, match="cannot reach arrays on cuda:0"):
        launcher.launch(1, (CudaArray(), CudaArray()), {})


@pytest.mark.parametrize("options, words", [
    ({"tarjet": "cpu"}, "tarjet"), ({"target": "tpu"}, "tpu"), ({"maps": "maybe"}, "maybe"),
])  # fmt: skip
def test_options_that_do_not_exist(options, words):
    with pytest.raises(UnsupportedError, match=words):
        Launcher(CopyProgram(), options)


def test_torch_tensors_take_the_short_way(launcher, target):
    torch = pytest.importorskip("torch")
    for _ in range(3):
        launcher.launch(1, (torch.ones(16, 16), torch.zeros(16, 16)), {})
    assert target.builds == 1 and len(target.launches) == 3


def test_targets_that_cannot_prepare(launcher, target, monkeypatch):
    plain = SimpleNamespace(launch=lambda grid, args: target.launches.append((grid, args)))
    monkeypatch.setattr(target, "build", lambda module, options: plain)
    x, y = arrays()
    for _ in range(3):
        launcher.launch(1, (x, y), {})
        assert [a.owner is o for a, o in zip(target.launches[-1][1], (x, y), strict=False)] == [
            True, True,
        ]  # fmt: skip
    assert len(target.launches) == 3


def test_guards_tell_tensors_apart() -> None:
    """Where torch has a guard that works, it says no to everything that code may depend on."""
    torch = pytest.importorskip("torch")
    from tilewright.runtime.guards import guard

    x, y = torch.zeros(4, 6), torch.zeros(6)
    check = guard([x, y])
    if check is None:
        pytest.skip("this torch has no guard that works as expected")
    assert check(torch.ones(4, 6), torch.ones(6))
    others = [(x.T, y), (x.half(), y), (torch.zeros(4, 12)[:, ::2], y), (x[:3], y), (x, y[::2])]
    assert not any(check(*o) for o in [*others, (torch._neg_view(x), y), (y, x)])


def test_no_garbage_is_collected_while_a_kernel_is_compiled(launcher, target, monkeypatch):
    collecting, build = [], target.build

    def fails_first(*args):
        collecting.append(gc.isenabled())
        if len(collecting) == 1:
            raise UnsupportedError("not yet")
        return build(*args)

    monkeypatch.setattr(target, "build", fails_first)
    with pytest.raises(UnsupportedError):
        launcher.launch(1, arrays(), {})
    assert gc.isenabled()
    launcher.launch(1, arrays(), {})
    assert gc.isenabled() and collecting == [False, False]


def test_threads_that_compile_at_a_time_leave_collection_on(monkeypatch):
    """A thread that found it off, because of another, switched it off after that one had switched it on."""
    found = gc.isenabled

    def other_thread_ends_meanwhile():
        enabled = found()
        gc.enable()
        return enabled

    gc.disable()
    try:
        monkeypatch.setattr(gc, "isenabled", other_thread_ends_meanwhile)
        with uncollected():
            pass
        assert found()
    finally:
        gc.enable()


def test_what_a_first_launch_leaves_counts_as_old(monkeypatch):
    """Nothing that a launch waits for searches it, and what a user has frozen stays so."""
    monkeypatch.setattr(compiled, "_imported", [])
    generations: list[int] = []
    gc.unfreeze()  # what others in this process have frozen
    gc.collect()
    if gc.get_freeze_count():
        pytest.skip("Python 3.12 counts what is immortal as frozen, like what a user has")
    gc.callbacks.append(lambda phase, info: generations.append(info["generation"]))
    try:
        with uncollected():
            kept = [[n] for n in range(10_000)]
        assert not generations and gc.get_count()[0] < 1000 and gc.get_freeze_count() == 0
        assert any(kept is each for each in gc.get_objects(2))
        with uncollected():  # no longer the first
            kept = [[n] for n in range(10_000)]
        assert not any(kept is each for each in gc.get_objects(2))
        gc.freeze()
        compiled._imported.clear()
        with uncollected():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        del gc.callbacks[-1]
