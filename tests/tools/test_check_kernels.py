"""`tilewright check` of every kernel of the examples, of ops/ and of the acceptance tests, on every target.

On sm_90a without a driver every stage above PTX runs, on xe-pvc the lanes' program.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tilewright.lang.kernel import Kernel
from tilewright.targets.cuda import driver
from tilewright.tools.cli import main

ROOT = Path(__file__).parents[2]
TARGETS = ("cpu", "sm_90a", "xe-pvc")
EVERY = bool(int(os.environ.get("TILEWRIGHT_CHECK_EVERY", "0")))
"""All kernels on all targets. By default each on the cpu, one in two on sm_90a; see test_check_xe.py for xe-pvc,
which takes ten times as long."""

SMALL = ["BM=16", "BN=32", "BK=16"]
PRODUCT = ["f16[20,40]", "f16[40,37]", "f32[20,37]"]
KERNELS: dict[str, dict[str, tuple[list[str], list[str]]]] = {
    "examples/01_gemm.py": {"gemm": (["f16[130,72]", "f16[72,136]", "f32[130,136]"], [])},
    "examples/02_fused_epilogue.py": {
        "gemm_bias_gelu": (
            ["f16[20,40]", "f16[40,37]", "f16[37]", "f16[20,37]", "f16[20,37]"],
            ["BM=16", "BN=32"],
        )
    },
    "examples/03_softmax.py": {"softmax": (["f32[6,60]", "f32[6,60]"], ["BN=64"])},
    "examples/04_attention.py": {
        "attention": ([*["f32[2,40,64]"] * 4, "0.125"], ["BM=32", "BN=32"])
    },
    "examples/05_every_stage.py": {"scale_rows": (["f32[20,70]", "f32[20,1]", "f32[20,70]"], [])},
    "tilewright/ops/attention.py": {
        "attention_kernel": (
            [*["f16[2,40,64]"] * 4, "0.125"],
            ["CAUSAL=True", "BM=16", "BN=32"],
        )
    },
    "tilewright/ops/matmul.py": {
        "matmul_kernel": (
            ["f16[2,20,40]", "f16[2,40,37]", "f32[2,20,37]", "f32[37]", "f32[2,20,37]"],
            SMALL,
        )
    },
    "tilewright/ops/norm.py": {
        "norm_rows": (
            ["f32[6,60]", "f32[60]", "f32[60]", "f32[6,60]", "0.00001"],
            ["CENTER=True", "BM=4", "BN=64"],
        )
    },
    "tilewright/ops/softmax.py": {
        "softmax_rows": (["bf16[6,60]", "bf16[6,60]"], ["BM=4", "BN=64"]),
        "softmax_blocks": (["f32[6,60]", "f32[6,60]"], ["BM=4", "BN=32"]),
    },
    "tests/acceptance/kernels.py": {
        "gemm": (PRODUCT, SMALL),
        "scores": (["f32[20,24]", "f32[37,24]", "f32[20,37]"], ["BM=16", "BN=32", "D=24"]),
        "gemm_init_in_loop": (PRODUCT, SMALL),
        "gemm_peeled": (PRODUCT, SMALL),
        "gemm_two_loops": (PRODUCT, SMALL),
        "gemm_swapped_grid": (PRODUCT, SMALL),
        "gemm_while": (PRODUCT, SMALL),
        "gemm_neutral": (PRODUCT, SMALL),
        "gate_up": (["f16[20,40]", "f16[40,37]", "f16[40,37]", "f32[20,37]"], SMALL),
        "split_k": (PRODUCT, ["S=2", "BM=16", "BN=32"]),
        "window_attention": (
            [*["f32[1,40,16]"] * 4, "0.3"],
            ["W=20", "CAP=10.0", "BM=16", "BN=16", "D=16"],
        ),
        "dequant_gemm": (["i8[20,40]", "f32[20,1]", "f16[40,37]", "f32[20,37]"], SMALL),
        "bias_gelu_rowsum": (
            ["f16[20,40]", "f16[40,37]", "f32[37]", "f32[20,37]", "f32[20,1]"],
            ["BM=16", "BN=64"],
        ),
        "column_stats": (["f32[20,37]", "f32[37]", "f32[37]"], ["BM=16", "BN=32"]),
        "gather_rows": (["f32[20,90]", "i32[9]", "f32[9,90]"], []),
        "transpose_through_slm": (["f32[20,37]", "f32[37,20]"], ["B=16"]),
    },
    "tests/acceptance/kernels_more.py": {
        "row_blocks": (PRODUCT, SMALL),
        "four_bit_weights": (
            ["f16[20,128]", "u8[64,37]", "f16[2,37]", "f32[20,37]"],
            ["BM=16", "BN=32"],
        ),
        "convolution": (
            ["f16[3,20,16]", "f16[9,16,37]", "f32[3,20,37]"],
            ["BM=16", "BN=32", "BK=16"],
        ),
        "running_sums": (["f16[20,60]", "f32[20,60]"], ["BM=16"]),
        "largest_four": (["f32[6,60]", "f32[6,4]", "i32[6,4]"], ["BN=64"]),
    },
}
NOT_CHECKED = {
    "square_roots": "its iteration need not end on negative inputs, and `check` draws them",
    "racy_sum": "an example of a race",
    "atomic_sum": "the other half of that example",
    "gathered_experts": "its indices must differ",
    "paged_attention": "its lengths and pages must exist",
    "cross_entropy": "its targets must be columns",
    "scatter_add": "its sums are taken in any order",
}


def cases() -> list[tuple[str, str, str]]:
    known = [(file, name) for file, kernels in KERNELS.items() for name in kernels]
    return [
        (file, name, target)
        for i, (file, name) in enumerate(known)
        for target in TARGETS
        if EVERY or target == "cpu" or (target == "sm_90a" and i % 2)
    ]


@pytest.mark.whole
@pytest.mark.parametrize(("file", "kernel", "target"), cases())
def test_every_stage(
    file: str, kernel: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, settings = KERNELS[file][kernel]
    command = ["check", f"{ROOT / file}:{kernel}", "--target", target, "--args", *arguments]
    for setting in settings:
        command += ["--set", setting]
    code = main(command)
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    assert "right: pass" in printed.out or target == "sm_90a", printed.out


def test_stages_of_a_gpu_run_without_its_driver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "missing", lambda: "there is no driver")
    args = KERNELS["examples/01_gemm.py"]["gemm"][0]
    file = f"{ROOT}/examples/01_gemm.py:gemm"
    assert main(["check", file, "--target", "sm_90a", "--args", *args]) == 0
    out = capsys.readouterr().out
    assert "right: pass multi-buffering" in out
    assert "not run: code generation for sm_90a: there is no driver" in out


@pytest.mark.parametrize("file", sorted({*KERNELS, "examples/07_find_a_race.py"}))
def test_no_kernel_is_forgotten(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("kernels_to_check", ROOT / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where a dataclass looks for its module
    spec.loader.exec_module(module)
    own = {n for n, v in vars(module).items() if isinstance(v, Kernel)}
    known = {*KERNELS.get(file, ()), *NOT_CHECKED}
    helpers = {
        n for n in own if getattr(vars(module)[n].function, "__module__", "") != module.__name__
    }
    assert own - helpers <= known, own - helpers - known
