"""The kernel object: launching, compiling, options, and calls that do not fit."""

import gc
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tilewright import knobs
from tilewright.lang.choosing import AutoRequest


@tw.kernel
def scale(X, Y, s, BM: tw.constexpr = 4, BN: "tw.constexpr" = 8):
    """Y = s X."""
    at = [tw.program_id(0) * BM, tw.program_id(1) * BN]
    x = tw.load_tile(tw.init_tile(X, at, (BM, BN)))
    tw.store_tile(x * s, tw.init_tile(Y, at, (BM, BN)))


on_reference = scale.options(target="reference")


@pytest.fixture
def x():
    return fresh_rng().standard_normal((10, 12)).astype(np.float32)


@pytest.mark.parametrize(
    "grid",
    [
        (3, 2),
        [3, 2],
        (3, 2, 1),
        lambda c: (tw.cdiv(10, c.BM), tw.cdiv(12, c["BN"])),
        lambda BM, BN: (tw.cdiv(10, BM), tw.cdiv(12, BN)),
        lambda BM, **rest: (tw.cdiv(10, BM), tw.cdiv(12, rest["BN"])),
    ],
)
def test_grids(x, grid):
    y = poison(*x.shape, dtype=x.dtype)
    on_reference[grid](x, y, 2.0)
    np.testing.assert_array_equal(y, x * 2)


def test_constexprs_by_position_and_keyword(x):
    for args, kwargs in (((10, 12), {}), ((10,), {"BN": 12}), ((), {"BM": 10, "BN": 12})):
        y = poison(*x.shape, dtype=x.dtype)
        on_reference[1](x, y, 2.0, *args, **kwargs)
        np.testing.assert_array_equal(y, x * 2)
    y = poison(*x.shape, dtype=x.dtype)
    on_reference[lambda c: tw.cdiv(10, c.BM)](Y=y, X=x, s=3, BN=12)
    np.testing.assert_array_equal(y, x * 3)


def test_the_target_may_come_from_outside(x):
    y = poison(*x.shape, dtype=x.dtype)
    with tw_target("reference"):
        scale[3, 2](x, y, 2.0)
    np.testing.assert_array_equal(y, x * 2)


def tw_target(name):
    from tilewright import knobs

    return knobs.override(target=name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: on_reference[1](x, x), "misses argument 's'"),
        (lambda x: on_reference[1](x, x, 1, 2, 3, 4), "takes 5 arguments, but 6"),
        (lambda x: on_reference[1](x, x, 1, BK=3), "has no argument 'BK'"),
        (lambda x: on_reference[1](x, x, 1, X=x), "two values for argument 'X'"),
        (lambda x: on_reference[1](x, "x", 1), "neither an array nor a number"),
        (lambda x: on_reference[1, 1, 1, 1](x, x, 1), "1 to 3 axes"),
        (lambda x: on_reference[-1](x, x, 1), "axis 0 of the grid is -1"),
        (lambda x: on_reference["3"](x, x, 1), "no integer"),
        (lambda x: on_reference[lambda BM, BK: 1](x, x, 1), "asks for 'BK'"),
        (lambda x: on_reference(x, x, 1), "without a grid"),
        (lambda x: on_reference[1](x, x, 1, BM=x), "cannot be told apart|was given an array"),
    ],
)
def test_calls_that_do_not_fit(x, call, message):
    before = x.copy()
    with pytest.raises(tw.LaunchError, match=message):
        call(x)
    np.testing.assert_array_equal(x, before)


def test_what_the_kernel_refuses_never_runs(x):
    y = x.copy()
    with pytest.raises(tw.CompileError, match="memory ops do not convert"):
        on_reference[3, 2](x, y.astype(np.float16), 2.0)
    with pytest.raises(tw.CompileError, match=r"2 offsets for the array X \(1-D"):
        on_reference[3, 2](x[0], y, 2.0)
    frozen = y.copy()
    frozen.flags.writeable = False
    with pytest.raises(tw.LaunchError, match="read-only"):
        on_reference[3, 2](x, frozen, 2.0)
    on_reference[3, 2](frozen, y, 1.0)
    np.testing.assert_array_equal(y, x)


@tw.kernel
def declared(Y, n: tw.i32, s: "tw.f64" = 1, m: tw.u8 = 255, to: tw.index = 0):
    tw.static_assert(n.dtype == tw.i32 and s.dtype == tw.f64 and m.dtype == tw.u8)
    Y[to] = n.to(tw.f64) * s + (m + 1).to(tw.f64)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_numbers_are_of_the_dtypes_that_a_kernel_declares(target):
    """From the first launch to those that are repeated by native code."""
    kernel = declared.options(target=target)
    for n in range(40 if target == "cpu" else 2):
        y = np.full(2, np.nan)
        for number in (n, np.int64(n), np.uint8(n)):
            kernel[1](y, number, 0.1)  # not the f32 next to it
            assert y[0] == n * 0.1
        kernel[1](y, True, np.float32(0.5), 7, np.int32(1))
        assert y[1] == 8.5


@tw.kernel
def calling(Y, k, s: tw.f32):
    declared(Y, k, s, 7)
    declared(Y, 2, 0.1, to=1)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_an_inlined_kernel_gets_the_dtypes_that_it_declares(target):
    y = np.full(2, np.nan)
    calling.options(target=target)[1](y, 3, 0.5)
    np.testing.assert_array_equal(y, [3 * 0.5 + 8, 2 * 0.1])
    with pytest.raises(tw.CompileError, match=r"n is a float, but declared declares n: tw\.i32"):
        calling.options(target=target)[1](y, 3.5, 0.5)


@tw.kernel
def of_floats(Y, a: tw.f64, b: tw.f32, c: tw.f16, d: tw.bf16, e: tw.f8e4m3, f: tw.f8e5m2):
    for n, x in enumerate((a, b, c, d, e, f)):
        Y[n] = x.to(tw.f64)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_numbers_of_every_float(target):
    """Those of 8 bits were 0 on CPUs."""
    y, kernel = np.full(6, np.nan), of_floats.options(target=target)
    kernel[1](y, *[-1.75] * 6)
    np.testing.assert_array_equal(y, -1.75)
    kernel[1](y, *[float("-inf")] * 6)
    np.testing.assert_array_equal(y, [*[-np.inf] * 4, np.nan, -np.inf])


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_numbers_beyond_a_float_are_infinite(target):
    y, kernel = np.full(6, np.nan), of_floats.options(target=target)
    kernel[1](y, *[-1e300] * 6)
    np.testing.assert_array_equal(y, [-1e300, *[-np.inf] * 3, np.nan, -np.inf])


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((2.0,), "n = 2.0 is a float, but the kernel declares n: tw.i32"),
        ((np.float64(1.5),), "n = 1.5 is a float"),
        ((1 << 31,), "n = 2147483648 is no value of i32, as which the kernel declares it"),
        ((0, 1, -1), "m = -1 is no value of u8"),
        ((0, 1, 0, 1 << 63), "to = 9223372036854775808 does not fit 64 bits"),
    ],
)
def test_numbers_that_a_declared_dtype_lacks(numbers, message):
    with pytest.raises(tw.LaunchError, match=re.escape(message)):
        declared[1](np.zeros(2), *numbers)


def test_empty_grids_and_arrays(x):
    y = x.copy()
    on_reference[0](x, y, 2.0)
    np.testing.assert_array_equal(y, x)
    empty = np.zeros((0, 12), np.float32)
    on_reference[1, 1](empty, empty, 2.0)


def test_overlapping_arrays(x):
    expected = x.copy()
    expected[:, 1:] = 0
    on_reference[3, 2](x, x, 2.0)  # in place: every element is read and written by one program
    assert x.flags.writeable and expected.shape == x.shape


def test_a_kernel_without_a_store(x):
    @tw.kernel
    def reads(X):
        tw.load_tile(tw.init_tile(X, [0, 0], (4, 4)))

    before = x.copy()
    with pytest.warns(UserWarning, match="kernel reads stores nothing"):
        reads.options(target="reference")[1](x)
    np.testing.assert_array_equal(x, before)


def test_compile(x):
    compiled = scale.compile(x, x, 1.5, target="reference", BM=2)
    assert "xetile.load_tile" in compiled.ir["xetile"] and "2x8xf32" in compiled.ir["xetile"]
    assert list(compiled.remarks) == []
    y = poison(*x.shape, dtype=x.dtype)
    compiled[5, 2](x, y, 1.5)
    np.testing.assert_array_equal(y, x * np.float32(1.5))
    spec = tw.spec((128, 128), tw.f16)
    assert "4x8xf16" in scale.compile(spec, spec, 2.0, target="reference").ir["xetile"]
    with pytest.raises(tw.LaunchError, match="no memory"):
        on_reference[1](spec, spec, 2.0)


def test_options(x):
    with pytest.raises(tw.UnsupportedError, match="no option 'threads'"):
        scale.options(threads=3)
    with pytest.raises(tw.UnsupportedError, match="no target is called 'tpu'"):
        scale.options(target="tpu")
    with pytest.raises(tw.UnsupportedError, match="is not 'advice' or 'strict'"):
        scale.options(maps="loose")
    for wrong in (
        {"num_threads": 0}, {"num_threads": "2"}, {"num_threads": 1.5}, {"num_stages": -2}, {"fastmath": "no"},
        {"disable": 3}, {"disable": [3]}, {"target": 3}, {"machine": 3},
    ):  # fmt: skip
        with pytest.raises(tw.UnsupportedError, match="is not "):
            scale.options(**wrong)
    assert scale.options(num_threads=np.int64(1)) is not None
    assert scale.options(target="reference") is scale.options(target="reference")
    assert scale.options(num_threads=1) is not scale.options(num_threads=2)
    for same in ((), [], set[str](), iter(())):
        assert scale.options(disable=same) is scale.options(disable=())
    assert scale.options(disable="packing") is scale.options(disable=["packing"])
    assert scale.options(disable="packing") is not scale.options(disable=())
    with pytest.raises(tw.UnsupportedError, match="maps"):
        scale.options(maps=["strict"])
    both = scale.options(target="reference").options(fastmath=False)
    assert "fastmath" not in both.compile(x, x, 1.0).ir["xetile"]
    assert scale.__name__ == "scale" and scale.__doc__ == "Y = s X."
    assert "scale(X, Y, s" in repr(scale)


def test_kernels_are_pickled_by_name():
    """What `multiprocessing` hands to its workers."""
    assert pickle.loads(pickle.dumps(scale)) is scale
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(scale.options(num_threads=2))


@tw.kernel
def planned(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    at = [tw.program_id(0) * BM, 0]
    tw.store_tile(tw.load_tile(tw.init_tile(X, at, (BM, BN))), tw.init_tile(Y, at, (BM, BN)))


def test_auto_constexprs_are_chosen_once_per_shapes(x, monkeypatch):
    from tilewright.targets.base import get_target

    asked: list[AutoRequest] = []

    def resolve_auto(request, options):
        asked.append(request)
        module = request.build(dict.fromkeys(request.names, 4))
        assert "xetile.load_tile" in str(module)
        return {"BM": 5, "BN": 12}

    target = get_target("reference")
    monkeypatch.setattr(target, "resolve_auto", resolve_auto, raising=False)
    kernel = planned.options(target="reference")
    with knobs.override(cache=False):  # an earlier run's choice is kept on disk
        for _ in range(2):
            y = poison(*x.shape, dtype=x.dtype)
            kernel[lambda c: tw.cdiv(10, c.BM)](x, y)
            np.testing.assert_array_equal(y, x)
        assert len(asked) == 1 and asked[0].names == ("BM", "BN")
        kernel[1](x, x, BN=12)
    assert len(asked) == 2 and asked[1].names == ("BM",) and asked[1].given == {"BN": 12}


ADDED = 1.0


@tw.kernel
def adding(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    at = [tw.program_id(0) * BM, tw.program_id(1) * BN]
    x = tw.load_tile(tw.init_tile(X, at, (BM, BN)))
    tw.store_tile(x + ADDED, tw.init_tile(Y, at, (BM, BN)))


def test_what_a_choice_built_is_compiled_unless_the_program_has_changed(monkeypatch):
    from tilewright.lang import build

    plain, built = build.build, []

    def noted(function, signature, constexprs, **how):
        built.append(constexprs)
        return plain(function, signature, constexprs, **how)

    monkeypatch.setattr(build, "build", noted)
    x = fresh_rng().standard_normal((40, 64)).astype(np.float32)
    with knobs.override(cache=False):
        for added, again in ((1.0, 0), (2.0, 1)):
            kernel, y = adding.options(target="cpu", num_threads=1), poison(*x.shape, dtype=x.dtype)
            kernel, values = kernel.resolve(
                kernel.launcher.bind((x, y), {})
            )  # builds what is chosen
            monkeypatch.setitem(globals(), "ADDED", added)
            before = len(built)
            sizes = dict(zip(("BM", "BN"), values[2:], strict=True))
            kernel[tw.cdiv(40, sizes["BM"]), tw.cdiv(64, sizes["BN"])](x, y, **sizes)
            np.testing.assert_array_equal(y, x + np.float32(added))
            assert built[-1] == sizes and len(built) == before + again


def test_no_garbage_is_collected_while_compile_chooses(monkeypatch):
    from tilewright.targets.base import get_target

    target, collecting = get_target("cpu"), []

    def resolve_auto(request, options):
        collecting.append(gc.isenabled())
        return dict.fromkeys(request.names, 16)

    monkeypatch.setattr(target, "resolve_auto", resolve_auto, raising=False)
    with knobs.override(cache=False):
        planned.options(target="cpu").compile(*(tw.spec((10, 12), tw.f32) for _ in range(2)))
    assert collecting == [False] and gc.isenabled()


@pytest.mark.parametrize("target", ["reference", "cpu", "sm_90a", "xe-pvc"])
def test_auto_is_chosen_on_every_target(target):
    kernel = planned.compile(*[tw.spec((512, 512), tw.f32)] * 2, target=target)
    assert "xetile.load_tile" in kernel.ir["xetile"]


def test_importing_is_cheap():
    """No part of the compiler is loaded before a kernel is used (a bound on work, not on time)."""
    code = "import sys, tilewright; print([m for m in ('xdsl','llvmlite','numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    code = "import tilewright as tw; assert set(tw.__all__) <= set(dir(tw)); [getattr(tw, n) for n in tw.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        tw.lod  # noqa: B018


CHECKED = """
import numpy as np
import tilewright as tw

def helper(x: tw.Value, n: int = 2) -> tw.Value:
    return tw.exp(x * n) + 1

@tw.kernel
def gemm(A: tw.Array, B: tw.Array, C: tw.Array, BM: tw.constexpr = 256, BK: tw.constexpr = tw.auto):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BM
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BM), wg_map=tw.wg_map([8, 4], [32, 64]))
    acc = tw.zeros((BM, BM), tw.f32)
    for k in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
    if m > 0 and n < A.shape[0]:
        acc = helper(acc) if m == n else -acc
    total = float(m) / 2 + abs(n) + min(m, 3)
    tw.store_tile((acc * total).to(C.dtype), tw.init_tile(C, [m, n], (BM, BM)))

x = np.zeros((4, 4), np.float32)
gemm[tw.cdiv(4, 256), 1](x, x, x, BM=128)
k = gemm.options(target="cpu", num_threads=2).compile(x, x, x)
text: str = k.ir["xetile"]
"""

REJECTED = """
import tilewright as tw

@tw.kernel
def k(A: tw.Array):
    tw.load_tile(A)
    tw.init_tile(A, [0, 0], shap=(4, 4))
    tw.zeros((4, 4))
    tw.program_idd(0)
"""


def test_an_editor_can_check_a_kernel(tmp_path):
    pyright = pytest.importorskip("pyright")
    import json

    for name, text in (("good.py", CHECKED), ("bad.py", REJECTED)):
        (tmp_path / name).write_text(text)
    config = {"include": ["."], "typeCheckingMode": "standard", "extraPaths": ["."]}
    import tilewright

    config["extraPaths"] = [tilewright.__path__[0].rpartition("/")[0]]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    try:
        result = pyright.run(
            "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path),
            capture_output=True, text=True,
        )  # fmt: skip
        report = json.loads(result.stdout)
    except (OSError, ValueError) as error:
        pytest.skip(f"pyright does not run here: {error}")
    found = {}
    for diagnostic in report["generalDiagnostics"]:
        line = diagnostic["range"]["start"]["line"]
        found.setdefault(diagnostic["file"].rpartition("/")[2], []).append(
            (line, diagnostic["message"])
        )
    assert "good.py" not in found, found["good.py"]
    assert {line for line, _ in found["bad.py"]} == {5, 6, 7, 8}
