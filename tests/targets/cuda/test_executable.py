"""Launches of compiled kernels: parameters of every kind, torch tensors, streams, graphs, the stored form."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tests.codegen.harness import module
from tests.targets.cuda.harness import architecture, needs_gpu
from tests.texts import parse_module
from tilewright import dtypes, uarch
from tilewright.arguments import ArrayArg
from tilewright.codegen import emit_module
from tilewright.codegen.remote import generate_ptx
from tilewright.diagnostics import LaunchError, UnsupportedError
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target, split_name
from tilewright.targets.cuda.executable import CudaExecutable, fits, launch_grid
from tilewright.targets.cuda.lowered import (
    Extent,
    LaunchPlan,
    LoweredThread,
    Pointer,
    Programs,
    Scalar,
    Stride,
    TensorMapOf,
    annotate,
    plan_of,
)
from tilewright.targets.cuda.target import check_resources, llvm_target, machine_name
from tilewright.targets.host import scalar_word
from tilewright.targets.host_arguments import scalar_format
from tilewright.targets.stages import StageTexts

# y[i, 0] = a * x[i, 0] for i < extent, one thread per i; y's second argument gets the grid.
AXPY = """
    func.func @k(%x : !llvm.ptr<1>, %y : !llvm.ptr<1>, %n : index, %sx : index, %sy : index, %a : f32, %g : i32)
        attributes {mach.kernel} {
      %block = gpu.block_id x
      %t = gpu.thread_id x
      %first = arith.muli %block, %c64 : index
      %i = arith.addi %first, %t : index
      %in = arith.cmpi slt, %i, %n : index
      scf.if %in {
        %ox = arith.muli %i, %sx : index
        %oy = arith.muli %i, %sy : index
        %bx = arith.muli %ox, %c4 : index
        %by = arith.muli %oy, %c4 : index
        %px = mach.ptr_add %x, %bx : !llvm.ptr<1>
        %py = mach.ptr_add %y, %by : !llvm.ptr<1>
        %v = mach.load %px : !llvm.ptr<1> -> f32
        %gf = arith.sitofp %g : i32 to f32
        %m = arith.mulf %v, %a : f32
        %w = arith.addf %m, %gf : f32
        mach.store %w, %py : f32, !llvm.ptr<1>
      }
      func.return
    }"""
SLOTS = (
    Pointer(0),
    Pointer(1),
    Extent(0, 0),
    Stride(0, 0),
    Stride(1, 0),
    Scalar(2, "f"),
    Programs(0, 32),
)


def lowered() -> LoweredThread:
    return LoweredThread(module(AXPY), "k", SLOTS, 64)


def executable(machine: str) -> CudaExecutable:
    low = lowered()
    annotate(low)
    target = llvm_target(machine, low.module)
    llvm = emit_module(low.module, target)
    ptx = generate_ptx(llvm, target)
    ir = StageTexts(AXPY, lambda module, stage: stage("mach", module))
    return CudaExecutable(ptx.encode(), plan_of(low), machine, ["a remark"], ir, llvm)


def test_names_of_machines() -> None:
    assert split_name("sm_80") == split_name("cuda-sm_80") == ("cuda", "sm_80")
    assert machine_name(CompileOptions(target="sm_90a")) == "sm_90a"
    assert machine_name(CompileOptions(target="cuda", machine="sm_80")) == "sm_80"
    assert get_target("sm_80").name == "cuda"
    with pytest.raises(UnsupportedError, match="no machine 'sm_75'"):
        machine_name(CompileOptions(target="sm_75"))
    assert fits((9, 0), "sm_90a") and not fits((10, 0), "sm_90a") and fits((12, 0), "sm_80")


def test_launch_bounds_are_in_the_code() -> None:
    code = executable("sm_90a")
    assert ".reqntid 64, 1, 1" in code.asm["ptx"] and ".target sm_90a" in code.asm["ptx"]


def test_stages_are_found_by_their_names() -> None:
    ir = StageTexts("module {}", lambda module, stage: stage("mach", module))
    assert [*ir] == ["mach"] and "ptx" not in ir
    with pytest.raises(KeyError, match="no stage is called 'ptx'; there are mach"):
        ir["ptx"]


def test_the_stored_form_gives_the_same_executable() -> None:
    code = executable("sm_80")
    again = get_target("cuda").load(code.artifacts(), CompileOptions(target="cuda"))
    assert isinstance(again, CudaExecutable)
    assert (again.plan, again.asm["ptx"], again.ir.source, again.remarks) == (
        code.plan,
        code.asm["ptx"],
        code.ir.source,
        code.remarks,
    )
    broken = dict(code.artifacts())
    texts = json.loads(broken["plan"])
    texts["plan"]["slots"] = [["Pointer", {"nonsense": 1}]]
    broken["plan"] = json.dumps(texts).encode()
    with pytest.raises(ValueError, match="nonsense"):
        get_target("cuda").load(broken, CompileOptions(target="cuda"))


def test_plans_have_a_text_form() -> None:
    slots = (TensorMapOf(0, (1, 0), (64, 128), "bf16"), Scalar(1, "q"))
    plan = LaunchPlan("k", slots, 384, 1 << 17, (2, 1, 1), 1)
    assert LaunchPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "change, message",
    [
        ({"shared_bytes": 300000}, "needs 300000 bytes of shared memory, and sm_90a has 232448"),
        ({"threads": 1056}, "needs 1056 threads in a workgroup, and sm_90a has 1024"),
        ({"barriers": 17}, "needs 17 named barriers"),
        (
            {"registers": {"a": 40000, "b": 40000}},
            "needs 80000 registers of all roles, and sm_90a has 65536",
        ),
    ],
)
def test_the_ledger_names_number_and_limit(change: dict[str, object], message: str) -> None:
    low = lowered()
    for name, value in change.items():
        setattr(low, name, value)
    with pytest.raises(UnsupportedError, match=message):
        check_resources(low, uarch.machine("sm_90a"))


@pytest.mark.parametrize("line", ['gpu.printf "%d", %i : index', "vector.print %i : index"])
def test_printing_is_refused_with_a_way_out(line: str) -> None:
    text = f"""
    gpu.module @m {{
      gpu.func @k() kernel attributes {{tilewright.level = "workgroup", tilewright.args = []}} {{
        %i = gpu.block_id x
        {line}
        gpu.return
      }}
    }}"""
    with pytest.raises(UnsupportedError, match="has no form in compiled code on a GPU") as refused:
        get_target("cuda").build(parse_module(text), CompileOptions(target="sm_90a"))
    assert "reference" in (refused.value.hint or "")


def test_grids() -> None:
    plan = LaunchPlan("k", (), 128, 0, (2, 1, 1), 0)
    assert launch_grid(plan, (5, 3, 1), 132) == (6, 3, 1)
    persistent = LaunchPlan("k", (), 128, 0, (2, 1, 1), 1)
    assert launch_grid(persistent, (5, 3, 1), 132) == (16, 1, 1)
    assert launch_grid(persistent, (500, 3, 1), 131) == (130, 1, 1)
    with pytest.raises(LaunchError, match="axis 1 of the grid is 70000"):
        launch_grid(plan, (1, 70000, 1), 132)


@pytest.mark.parametrize("name", [*(d.name for d in dtypes.ALL if d.name != "tf32"), "f8e8m0"])
def test_numbers_lie_in_their_slots_as_numpy_converts_them(name: str) -> None:
    dtype = dtypes.from_name(name)
    kind = scalar_format(dtype.arith)
    numbers = (
        [1, 0] if dtype.is_bool else [*dtype.integers] if dtype.is_integer else [2.0, 0.5, 1e300]
    )
    for number in numbers:
        with np.errstate(over="ignore"):
            expected = np.array(number).astype(dtype.numpy).tobytes()
        word = scalar_word(kind, number) & (1 << 64) - 1
        assert word.to_bytes(8, "little")[: dtype.itemsize] == expected, number


# On the GPU ----------------------------------------------------------------------------------------


def arguments(x: object, y: object, a: float) -> list[object]:
    return [describe(x, "x"), describe(y, "y"), a]


@needs_gpu
def test_launches_on_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    code = executable("sm_90a" if architecture() == "sm_90a" else "sm_80")
    x = torch.randn(1000, 3, device="cuda")
    y = torch.full((1000, 5), float("nan"), device="cuda")
    for a in (2.0, -0.0, 0.0, float("nan"), 2.0):
        code.launch((16, 1, 1), arguments(x, y, a))  # pyright: ignore
        torch.testing.assert_close(y[:, 0], x[:, 0] * a + 16, equal_nan=True)
        assert torch.isnan(y[:, 1:]).all()
    again = CudaExecutable.from_artifacts(code.artifacts(), code.ir, code.asm["llvm"])
    prepared = again.prepare(arguments(x, y, 1.0))  # pyright: ignore
    other = torch.randn(1000, 3, device="cuda")
    prepared((16, 1, 1), [other.data_ptr(), y.data_ptr(), 3.0])
    torch.testing.assert_close(y[:, 0], other[:, 0] * 3 + 16)


@needs_gpu
def test_streams_and_graphs() -> None:
    torch = pytest.importorskip("torch")
    code = executable("sm_80")
    x, y = torch.randn(64, 1, device="cuda"), torch.zeros(64, 1, device="cuda")
    launch = code.prepare(arguments(x, y, 1.0))  # pyright: ignore
    values = [x.data_ptr(), y.data_ptr(), 2.0]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.fill_(5.0)
        launch((1, 1, 1), values)
    side.synchronize()
    assert (y == 11).all(), "it ran on the stream, after the fill"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch((1, 1, 1), values)
    x.fill_(1.0)
    graph.replay()
    torch.cuda.synchronize()
    assert (y == 3).all()


@needs_gpu
def test_threads_without_a_context_and_other_devices() -> None:
    import threading

    torch = pytest.importorskip("torch")
    code = executable("sm_80")
    x, y = torch.ones(64, 1, device="cuda"), torch.zeros(64, 1, device="cuda")
    launch = code.prepare(arguments(x, y, 1.0))  # pyright: ignore
    torch.cuda.synchronize()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            launch((1, 1, 1), [x.data_ptr(), y.data_ptr(), 4.0])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failures and (y == 5).all()
    if torch.cuda.device_count() > 1:
        far, out = torch.ones(64, 1, device="cuda:1"), torch.zeros(64, 1, device="cuda:1")
        code.launch((1, 1, 1), arguments(far, out, 6.0))  # pyright: ignore
        torch.cuda.synchronize(1)
        assert (out == 7).all() and torch.cuda.current_device() == 0


@needs_gpu
def test_code_for_another_architecture_is_refused() -> None:
    if architecture() == "sm_90a":
        pytest.skip("this GPU runs both")
    array = ArrayArg(0, (64, 1), (1, 1), dtypes.f32, "cuda:0", False, None)
    with pytest.raises(UnsupportedError, match="this code is for sm_90a"):
        executable("sm_90a").launch((1, 1, 1), [array, array, 1.0])


@needs_gpu
def test_host_time_of_a_launch_seen_before() -> None:
    """Not a benchmark: ten times the bar, so that a slow machine passes and a lost cache does not."""
    import time

    torch = pytest.importorskip("torch")
    code = executable("sm_80")
    x, y = torch.ones(64, 1, device="cuda"), torch.zeros(64, 1, device="cuda")
    launch = code.prepare(arguments(x, y, 1.0))  # pyright: ignore
    values = [x.data_ptr(), y.data_ptr(), 4.0]
    launch((1, 1, 1), values)
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            launch((1, 1, 1), values)
        times.append((time.perf_counter() - start) / 50)
    assert min(times) < 50e-6, min(times)
    if os.environ.get("TILEWRIGHT_SHOW"):
        print("prepared launch", np.median(times) * 1e6, "us")


@needs_gpu
def test_dlpack_and_the_cuda_array_interface() -> None:
    """Arrays that are not torch's, on their device and after their stream's work."""
    torch = pytest.importorskip("torch")
    code = executable("sm_80")
    last = torch.cuda.device_count() - 1
    x = torch.ones(64, 1, device=f"cuda:{last}")
    y = torch.zeros(64, 1, device=f"cuda:{last}")

    class Interface:
        def __init__(self, tensor):
            self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "stream": 1}

    class Pack:
        def __init__(self, tensor):
            self.__dlpack__ = tensor.__dlpack__
            self.__dlpack_device__ = tensor.__dlpack_device__

    for wrap, factor in ((Interface, 3.0), (Pack, 5.0)):
        args = arguments(wrap(x), wrap(y), factor)
        assert [(a.pointer, a.device) for a in args[:2]] == [
            (x.data_ptr(), f"cuda:{last}"), (y.data_ptr(), f"cuda:{last}")
        ]  # fmt: skip
        code.launch((1, 1, 1), args)  # pyright: ignore
        torch.cuda.synchronize(last)
        assert (y == factor + 1).all()
