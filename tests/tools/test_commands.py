"""run, compile, info, bench, tune: what they print, and how they refuse."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from benchmarks.suites import SUITES
from tilewright.targets.cuda import driver
from tilewright.tools import bench

ARGS = ["--args", "f32[40,64]", "f32[40,64]", "2.0"]


def test_compile_python(tilewright, kernels, tmp_path):
    done = tilewright("compile", f"{kernels}:scaled", *ARGS, "--target", "reference")
    assert done.code == 0 and "xetile.store_tile" in done.out and "tile<16x32xf32>" in done.out
    out = tmp_path / "scaled.mlir"
    flags = ["--target", "reference", "--set", "BM=8", "-o", out]
    assert tilewright("compile", f"{kernels}:scaled", *ARGS, *flags).out == ""
    assert "tile<8x32xf32>" in out.read_text()
    # What is printed can be read again.
    assert tilewright("opt", out).code == 0


def test_compile_for_the_cpu(tilewright, kernels):
    listed = tilewright("compile", f"{kernels}:scaled", *ARGS, "--list").out.split()
    assert {"xetile", "llvm", "asm", "object"} <= set(listed)
    for stage in listed:
        done = tilewright("compile", f"{kernels}:scaled", *ARGS, "--emit", stage)
        assert done.code == 0 and len(done.out) > 100
    assert "define " in tilewright("compile", f"{kernels}:scaled", *ARGS, "--emit", "llvm").out


def test_what_is_no_object_is_not_called_one(tilewright, kernels):
    flags = [*ARGS, "--target", "sm_90a"]
    assert "object" not in tilewright("compile", f"{kernels}:scaled", *flags, "--list").out.split()
    done = tilewright("compile", f"{kernels}:scaled", *flags, "--emit", "object")
    assert done.code == 1 and "no stage 'object'" in done.err and "ptx" in done.err


def test_compile_mlir(tilewright, xetile):
    done = tilewright("compile", xetile, "--emit", "llvm")
    assert done.code == 0 and "define " in done.out
    assert tilewright("compile", xetile, "--args", "f32[3]").code == 2


@pytest.mark.parametrize("flags, code, words", [
    (["--emit", "spirv"], 1, "its stages are"),
    (["--target", "tpu"], 1, "no target is called 'tpu'"),
    (["--args", "f32[4,4]"], 1, "misses argument 'Y'"),
    (["--set", "BM=x"], 2, "BM=x is neither"),
    (["--set", "QQ=3"], 2, "QQ"),
])  # fmt: skip
def test_compile_refuses(flags, code, words, tilewright, kernels):
    arguments = [] if "--args" in flags else ARGS
    done = tilewright("compile", f"{kernels}:scaled", *arguments, *flags)
    assert done.code == code and words in done.err, done.err


def test_a_kernel_that_is_not_legal(tilewright, kernels):
    for command in ("compile", "check"):
        done = tilewright(command, f"{kernels}:broken", "--args", "f32[16,16]")
        assert done.code == 1 and "some_kernels.py:14" in done.err and "^" in done.err


def test_run_kernel_on_the_grid_that_covers_its_arrays(tilewright, kernels):
    flags = [*ARGS, "--seed", "5", "--target", "reference"]
    done = tilewright("run", f"{kernels}:scaled", *flags)
    assert done.code == 0 and "grid 3,2" in done.out and "nan" not in done.out and not done.err
    assert done.out == tilewright("run", f"{kernels}:scaled", *flags, "--grid", "3,2").out
    # Of a part, the rest of the output is NaN, and a warning says so.
    for command, grid in (("check", "0"), ("run", "0"), ("run", "3,0"), ("run", "1,1,1,1")):
        done = tilewright(command, f"{kernels}:scaled", *flags, "--grid", grid)
        assert done.code == 2 and f"error: --grid {grid}: one to three positive numbers" in done.err
    done = tilewright("run", f"{kernels}:scaled", *flags, "--grid", "1")
    assert done.code == 0 and "Y: float32[40x64], mean nan" in done.out
    assert "the grid 1 covers a part of the arrays: 3,2 cover them" in done.err


def test_run_kernel_refuses_to_guess_a_grid(tilewright, kernels):
    kernels.write_text(
        kernels.read_text().replace("tw.program_id(1) * BN", "tw.program_id(1) * tw.program_id(1)")
    )
    flags = [*ARGS, "--target", "reference"]
    done = tilewright("run", f"{kernels}:scaled", *flags)
    assert done.code == 2 and "along axis 1" in done.err and "--grid" in done.err
    assert tilewright("run", f"{kernels}:scaled", *flags, "--grid", "3,2").code == 0


def test_run_kernel(tilewright, kernels):
    flags = [*ARGS, "--grid", "3,2", "--seed", "5", "--target", "reference"]
    done = tilewright("run", f"{kernels}:scaled", *flags)
    assert done.code == 0 and "seed 5" in done.out
    norms = [float(line.split("norm ")[1].split(",")[0]) for line in done.out.splitlines()[1:]]
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-5)
    assert tilewright("run", f"{kernels}:scaled", *flags).out == done.out


def test_run_file(tilewright, kernels):
    kernels.write_text(
        kernels.read_text()
        + "if __name__ == '__main__':\n    import sys\n    from tilewright import knobs\n"
        + "    print(sys.argv[1:], knobs.current().target)\n    sys.exit(int(sys.argv[1]))\n"
    )
    done = tilewright("run", "--target", "reference", kernels, "--", "7", "--flag")
    assert (done.code, done.out.strip()) == (7, "['7', '--flag'] reference")


@pytest.mark.parametrize("line, words", [
    ("broken[1](np.zeros((16, 16), np.float32))", "tile_mma"),
    ("scaled[1](1)", "misses argument 'Y'"),
    ("undefined_name", "NameError"),
    ("open('/no/such/file')", "FileNotFoundError"),
])  # fmt: skip
def test_run_file_that_fails(line, words, tilewright, kernels):
    kernels.write_text(kernels.read_text() + line + "\n")
    done = tilewright("run", kernels)
    assert done.code == 1 and words in done.err
    assert "some_kernels.py" in done.err or "misses" in done.err


def test_run_a_syntax_error(tilewright, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("x = 1\ny = (\n")
    done = tilewright("run", path)
    assert done.code == 1 and "bad.py:2:" in done.err


MLIR = """\
func.func private @printMemrefF32(memref<*xf32>)
func.func @main() {
  %c = arith.constant 3.0 : f32
  %i = arith.constant 0 : index
  %m = memref.alloc() : memref<1xf32>
  memref.store %c, %m[%i] : memref<1xf32>
  %u = memref.cast %m : memref<1xf32> to memref<*xf32>
  // CHECK: [3]
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
"""


def test_run_mlir(tilewright, tmp_path):
    path = tmp_path / "main.mlir"
    path.write_text(MLIR)
    done = tilewright("run", path, "--target", "reference")
    assert done.code == 0 and "[3]" in done.out
    assert tilewright("run", path, "--target", "reference", "--filecheck").code == 0
    path.write_text(MLIR.replace("CHECK: [3]", "CHECK: [4]"))
    assert tilewright("run", path, "--target", "reference", "--filecheck").code == 1
    assert tilewright("run", path, "--entry", "other", "--target", "reference").code == 1


def test_info(tilewright):
    done = tilewright("info")
    assert done.code == 0
    assert all(word in done.out for word in ("reference", "cpu", "TILEWRIGHT_CACHE_DIR", "xdsl"))
    facts = json.loads(tilewright("info", "--json").out)
    assert facts["targets"]["reference"]["ready"] is True
    assert facts["libraries"]["numpy"]


def test_info_is_written_for_people(tilewright):
    """No fingerprints, no reprs: what a setting shows is what one would set."""
    said = tilewright("info").out
    assert not any(word in said for word in ("None", "True", "False", "1073741824", "|spirv|"))
    assert "1G" in said and "not set" in said and "SPIR-V for xe-pvc" in said


def test_clear_cache(tilewright, kernels):
    tilewright("compile", f"{kernels}:scaled", *ARGS, "--emit", "llvm")
    assert json.loads(tilewright("info", "--json").out)["cache"]["kernels"] == 1
    assert "deleted 1 kernels" in tilewright("info", "--clear-cache").out
    assert json.loads(tilewright("info", "--json").out)["cache"]["kernels"] == 0


SMALL = {"compile": [], "launch": [], "workgroups": ["--sizes", "3"], "ops": ["--sizes", "5"]}


@pytest.mark.parametrize("suite", SUITES)
def test_bench_at_a_tiny_size(suite, tilewright):
    flags = SMALL.get(suite, ["--sizes", "32"])
    if suite.startswith("gpu-") and not driver.available():
        refused = tilewright("bench", suite, "--rounds", "1")
        assert refused.code == 3 and ("GPU" in refused.err or "torch" in refused.err)
        return
    done = tilewright(
        "bench", suite, *flags, "--target", "reference", "--against", "numpy", "--rounds", "1",
        "--json", "-",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["environment"]["libraries"]["numpy"] and found["environment"]["clock"]
    for row in found["rows"]:
        assert row["results"][0]["name"] == "tilewright"
        assert all(r["seconds"] > 0 for r in row["results"])


def test_bench_says_where_its_suites_are(tilewright, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    done = tilewright("bench", "gemm")
    assert done.code == 3 and "source tree" in done.err


def test_bench_prints_a_table(tilewright, tmp_path):
    out = tmp_path / "gemm.json"
    flags = [
        "--sizes",
        "32",
        "--dtype",
        "f32",
        "--rounds",
        "1",
        "--against",
        "numpy",
        "--json",
        out,
    ]
    done = tilewright("bench", "gemm", *flags, "--target", "reference")
    assert done.code == 0 and "gemm f32 32" in done.out and "GFLOP/s" in done.out
    assert len(json.loads(out.read_text())["rows"]) == 1


@pytest.mark.parametrize("suite", ["gemm", "attention", "softmax", "rms_norm", "layer_norm"])
def test_bench_has_the_peer_that_was_asked_for(suite, tilewright):
    flags = ["--sizes", "32", "--rounds", "1", "--target", "reference", "--json", "-"]
    done = tilewright("bench", suite, "--against", "numpy", *flags)
    names = [r["name"] for r in json.loads(done.out)["rows"][0]["results"]]
    assert done.code == 0 and "numpy f32" in names


@pytest.mark.parametrize("flags, words", [
    (["gemm", "--dtype", "f99"], "f99"), (["gemm", "--against", "mkl"], "mkl"),
    (["all", "--sizes", "3"], "--sizes"),
])  # fmt: skip
def test_bench_refuses(flags, words, tilewright):
    done = tilewright("bench", *flags, "--target", "reference")
    assert done.code == 2 and words in done.err


def test_tune_keeps_what_auto_finds(tilewright, kernels):
    kernels.write_text(
        kernels.read_text().replace("BN: tw.constexpr = 32", "BN: tw.constexpr = tw.auto")
    )
    flags = ["--target", "reference", "--try", "BN=32,64", "--set", "BM=8", "--budget", "1"]
    done = tilewright(
        "tune", f"{kernels}:scaled", *ARGS, "--grid", "cdiv(40, BM), cdiv(64, BN)", *flags
    )
    assert done.code == 0, done.err
    assert "BN=32" in done.out and "BN=64" in done.out and "kept in" in done.out
    best = next(s for s in ("BN=32", "BN=64") if s in done.out.split("1.00 x")[0])
    compiled = tilewright(
        "compile", f"{kernels}:scaled", *ARGS, "--set", "BM=8", "--target", "reference"
    )
    assert f"tile<8x{best[3:]}xf32>" in compiled.out


def tuned(tilewright, kernels, *flags):
    options = ["--target", "reference", "--budget", "5", *flags]
    return tilewright("tune", f"{kernels}:scaled", *ARGS, *options)


def test_tune_derives_the_grid(tilewright, kernels):
    done = tuned(tilewright, kernels, "--try", "BM=8,32", "BN=32,64")
    assert done.code == 0 and "kept in" in done.out and not done.err, done.err
    assert [f"BM={m} BN={n}" in done.out for m in (8, 32) for n in (32, 64)] == [True] * 4


def test_tune_keeps_nothing_that_was_checked_on_a_part(tilewright, kernels, tmp_path):
    done = tuned(tilewright, kernels, "--try", "BM=8,32", "--grid", "1")
    assert done.code == 2 and "BM=8: the grid 1 covers a part of the arrays: 5,2" in done.err
    assert not list((tmp_path / "cache").rglob("*.record"))


def test_what_a_machine_or_a_file_refuses_is_no_internal_error(tilewright, kernels, tmp_path):
    for option in (["--seed", "-1"], ["--schedules", "-1"]):
        done = tilewright("check", f"{kernels}:scaled", *ARGS, *option)
        assert done.code == 2 and "-1 is less than 0" in done.err
    done = tilewright("run", f"{kernels}:scaled", "--args", "f32[99999999999999,64]", *ARGS[2:])
    assert done.code == 1 and "error: there is not enough memory" in done.err
    done = tilewright("compile", f"{kernels}:scaled", *ARGS, "-o", "/dev/full")
    assert done.code == 1 and "No space left on device" in done.err
    (tmp_path / "ends.py").write_text("raise SystemExit(7)\n")
    done = tilewright("compile", f"{tmp_path}/ends.py:k", *ARGS)
    assert done.code == 1 and "ends.py:1:1: error: SystemExit: 7" in done.err


def test_streams_may_be_closed(kernels):
    """`tilewright .. >&-`: Python has no stream then."""
    words = [sys.executable, "-m", "tilewright.tools.cli", "compile", f"{kernels}:scaled", *ARGS]
    for closed in ("<&-", ">&-", "2>&-"):
        command = f"{shlex.join(words)} {closed}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done
        assert ("gpu.func" in done.stdout or "func.func" in done.stdout) == (closed != ">&-")


def test_tune_reports_every_candidate(tilewright, kernels):
    """Refused, wrong, too late: each is told of; and one candidate of several is no search."""
    text = kernels.read_text().replace("x * s", "x * (s if BM < 32 else 3.0)")
    kernels.write_text(text)
    done = tuned(tilewright, kernels, "--try", "BM=8,-1,32")
    assert done.code == 0 and "not kept, because one candidate of 3" in done.err, done.err
    assert "BM=-1: shape is (-1, 32)" in done.out
    assert "BM=32: Y differs from the first's by 5.0e-01" in done.out
    done = tuned(tilewright, kernels, "--try", "BM=8,16", "--budget", "0")
    assert "BM=16: not tried" in done.out and "kept in" not in done.out


@pytest.mark.parametrize("flags, words", [
    ([], "--try"), (["--try", "BM"], "NAME=VALUE"), (["--try", "BM=8", "--grid", "f(3)"], "f(3)"),
    (["--try", "BM=8", "--grid", "1 +"], "--grid"), (["--try", "BM=8", "--grid", "3 // 0"], "zero"),
])  # fmt: skip
def test_tune_refuses(flags, words, tilewright, kernels):
    done = tilewright("tune", f"{kernels}:scaled", *ARGS, *flags, "--target", "reference")
    assert done.code == 2 and words in done.err
