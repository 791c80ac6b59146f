"""The mistakes of a first hour, through `tilewright run`: each is shown where it was made, with exit code 1."""

from __future__ import annotations

import re

import pytest

KERNEL = """\
import numpy as np
import tilewright as tw

@tw.kernel
def k(A, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (16, 32)))
    b = tw.load_tile(tw.init_tile(A, [0, 0], (32, 16)))
    {body}
    tw.store_tile({value}, tw.init_tile(C, [0, 0], (16, 32)))

x = np.ones((64, 64), np.float32)
{call}
"""
LAUNCH = "k[1](x, x.copy())"

BODIES = {
    # name: (statement, value stored, what is underlined, words of the message)
    "shapes of +": ("", "a + b", "a + b", "16x32 and 32x16 do not broadcast"),
    "shapes of tile_mma": ("", "tw.tile_mma(a, a)", "a", "[M, K] by [K, N]"),
    "types of tile_mma": ("b = b.to(tw.f16)", "tw.tile_mma(a, b)", "b", "multiplies f32 by f16"),
    "shape of a store": ("", "b", "b", "to a 16x32 tile"),
    "if on a tile": ("a = a if a > 0 else -a", "a", "a > 0", "must be a scalar"),
    "while on a tile": ("while a > 0: a = a - 1", "a", "a > 0", "must be a scalar"),
    "loop over a tile": ("for r in a: a = a + r", "a", "a", "a loop over"),
    "and of masks": ("m = (a > 0) and (a < 4)", "a", "a > 0", "and on"),
    "element of a value": ("", "a[0, 0, 0]", "a[0, 0, 0]", "no subscripts"),
    "part of an array": ("", "A[0:2, 0]", "A[0:2, 0]", "a slice of an array is no element"),
    "assignment to an element": ("a[0, 0] = 3.0", "a", "a[0, 0]", "to an element or a slice is not supported"),
    "numpy on a value": ("", "np.einsum('ij->ij', a)", "np.einsum('ij->ij', a)", "run time"),
    "unknown name": ("", "aa", "aa", "aa is not defined"),
    "unknown function": ("", "tw.relu(a)", "tw.relu", "no attribute relu"),
    "operator @": ("", "a @ b", "a @ b", "@ is not defined"),
    "transpose by .T": ("", "b.T", "b.T", "no attribute T"),
    "axis of two": ("", "tw.max(a, a)", "a", "axis is 0 or 1"),
    "no such axis": ("", "tw.sum(a, 2)", "2", "axis is 0 or 1"),
    "value of a tile": ("t = tw.init_tile(A, [0, 0], (16, 32))", "t + 1", "t + 1", "tile"),
    "three extents": ("tw.init_tile(A, [0, 0], (2, 4, 4))", "a", "(2, 4, 4)", "(rows, columns)"),
    "extent of run time": (
        "tw.init_tile(A, [0, 0], (A.shape[0], 4))", "a", "(A.shape[0], 4)", "compile time",
    ),
    "offsets of another rank": ("tw.init_tile(A, [0], (4, 4))", "a", "[0]", "1 offset"),
    "axis of the grid": ("tw.program_id(3)", "a", "3", "axis is 0, 1 or 2"),
    "comprehension": (
        "xs = {a for _ in range(2)}", "a", "{a for _ in range(2)}", "a set comprehension is not supported",
    ),
    "result": ("return a", "a", "return a", "returns"),
    "type of a loop": (
        "for i in range(A.shape[0]): a = a.to(tw.f16)", "a", "for i in range(A.shape[0]): a = a.to(tw.f16)",
        "changes its type",
    ),
    "bound in one branch": (
        "if A.shape[0] > 3: z = a", "z", "z", "bound in one branch only",
    ),
}  # fmt: skip

CALLS = {
    "no grid": ("k(x, x)", "k(x, x)", "without a grid"),
    "four axes": ("k[1, 2, 3, 4](x, x)", "k[1, 2, 3, 4](x, x)", "1 to 3 axes"),
    "a grid of floats": ("k[64 / 16](x, x)", "k[64 / 16](x, x)", "no integer"),
    "an argument too few": ("k[1](x)", "k[1](x)", "misses argument 'C'"),
    "an argument too many": ("k[1](x, x, x)", "k[1](x, x, x)", "takes 2 arguments"),
    "no such constexpr": ("k[1](x, x, BM=3)", "k[1](x, x, BM=3)", "no argument 'BM'"),
    "a list": ("k[1]([[1.0]], x)", "k[1]([[1.0]], x)", "neither an array nor a number"),
    "complex numbers": ("k[1](x + 0j, x)", "k[1](x + 0j, x)", "real and imaginary part"),
    "elements of 4 bits": (
        "import ml_dtypes; y = x.astype(ml_dtypes.int4); k[1](y, x)", "k[1](y, x)",
        "no elements below a byte",
    ),
    "bytes swapped": ("k[1](x.astype('>f4'), x)", "k[1](x.astype('>f4'), x)", "hint: x.astype"),
    "an array not to be written": (
        "y = x.copy(); y.flags.writeable = False; k[1](x, y)", "k[1](x, y)", "read-only",
    ),
    "target of no such name": (
        "k.options(target='gpu')[1](x, x)", "k.options(target='gpu')", "the targets are",
    ),
    "option of no such name": (
        "k.options(threads=4)[1](x, x)", "k.options(threads=4)", "the options are",
    ),
    "outside of a kernel": (
        "tw.zeros((4, 4), tw.f32)", "tw.zeros((4, 4), tw.f32)", "inside a kernel only",
    ),
    "no such function": ("tw.load_tiles(x)", "tw.load_tiles", "did you mean load_tile?"),
    "an error of one's own": ("y = 1 / (x.size - 4096)", "1 / (x.size - 4096)", "ZeroDivisionError"),
}  # fmt: skip


def shown(tilewright, path) -> tuple[str, str]:
    """The report, and the text that its first carets underline."""
    done = tilewright("run", path)
    assert done.code == 1, done
    assert re.match(rf"{re.escape(str(path))}:\d+:\d+: error: ", done.err), done.err
    line, marks = done.err.splitlines()[1:3]
    start = marks.index("^")
    return done.err, line[start : start + len(marks.rstrip()) - start]


@pytest.mark.parametrize("name", BODIES)
def test_in_a_kernel(name, tilewright, tmp_path):
    body, value, under, words = BODIES[name]
    path = tmp_path / "first.py"
    path.write_text(KERNEL.format(body=body or "pass", value=value, call=LAUNCH))
    report, underlined = shown(tilewright, path)
    assert words in report
    assert underlined == under


@pytest.mark.parametrize("name", CALLS)
def test_at_a_launch(name, tilewright, tmp_path):
    call, under, words = CALLS[name]
    path = tmp_path / "first.py"
    path.write_text(KERNEL.format(body="pass", value="a", call=call))
    report, underlined = shown(tilewright, path)
    assert words in report
    assert underlined.startswith(under)


def test_a_forgotten_store_is_a_warning(tilewright, tmp_path):
    path = tmp_path / "first.py"
    text = KERNEL.format(body="pass", value="a", call=LAUNCH)
    path.write_text("\n".join(s for s in text.splitlines() if "store_tile" not in s))
    done = tilewright("run", path)
    assert done.code == 0
    assert (
        f"{path}:5:1: warning: kernel k stores nothing" in done.err and "def k(A, C):" in done.err
    )


def test_a_function_that_no_launch_can_name(tilewright, tmp_path):
    path = tmp_path / "first.mlir"
    path.write_text("gpu.module @m { gpu.func @k(%a: memref<64xf32>) { gpu.return } }")
    done = tilewright("compile", path)
    assert done.code == 0 and f"{path}:1:17: warning: gpu.func @k is no kernel" in done.err
    strict = tilewright("compile", path, "--strict")
    assert strict.code == 1 and f"{path}:1:17: error: gpu.func @k is no kernel" in strict.err
    path.write_text(path.read_text().replace(") {", ") kernel {"))
    assert tilewright("compile", path, "--strict").code == 0


MLIR = {
    "nothing": (b"", "no function to run"),
    "only blanks": (b"\n \n", "no function to run"),
    "bytes": (b"\x00\xff\xfe\x80", "no UTF-8 text"),
    "prose": (b"hello world\n", "operation hello is not registered"),
    "unknown op": (b'func.func @main() { "no.op"() : () -> () return }', "no.op is not registered"),
    "an op's name": (
        b"func.func @main() {\n  %0 = arith.adi %0, %0 : i32\n  return\n}",
        ":2:8: error: operation arith.adi is not registered\n",
    ),
    "an alias without its sign": (
        b"map = #xegpu.layout<sg_layout = [8, 4]>\n", "hint: an alias has a sign: #map = ..",
    ),
    "a type as an attribute": (
        b"#t = #xegpu.tensor_desc<8x16xf16>\n", "hint: xegpu.tensor_desc is a type: !xegpu.tensor_desc<..>",
    ),
    "an attribute as a type": (
        b"!l = !xegpu.layout<sg_layout = [8, 4]>\n", "hint: xegpu.layout is an attribute: #xegpu.layout<..>",
    ),
    "an attribute's name": (
        b"#l = #xegpu.layouts<sg_layout = [8, 4]>\n", ":1:7: error: 'xegpu.layouts' is not registered\n",
    ),
    "an alias's name": (
        b"!t = !xegpu.tensor_desc<8x16xf16, #map>\n", ":1:35: error: undefined symbol alias '#map'",
    ),
    "an element type": (b"!t = vector<8xfp16>\n", ":1:15: error: a type of elements is expected here"),
    "markdown": (b"# Title\n", ":1:1: error: a name is expected after '#'"),
    "another language": (b'{"a": 1}\n', ":1:1: error: an op or an alias is expected here"),
    "a symbol twice": (
        b"func.func @main() { return }\nfunc.func @main() { return }\n",
        ":2:1: error: 'func.func' op Redefinition of symbol \"main\"",
    ),
    "undefined value": (
        b"func.func @main() {\n  %1 = arith.addi %0, %0 : i32\n  return\n}", "%0 is used but not defined",
    ),
    "wrong type": (
        b"func.func @main() {\n  %0 = arith.constant 1 : i32\n  %1 = arith.addf %0, %0 : i32\n  return\n}",
        ":3:8: error: 'arith.addf' op does not take i32 here",
    ),
    "wrong type, what to do": (
        b"func.func @main(%x: f32) {\n  %0 = arith.addi %x, %x : f32\n  return\n}", "hint: arith has an op for each",
    ),
    "a region that does not end": (
        b"func.func @main() {\n  %0 = arith.constant 1 : i32\n", ":2:30: error: the text ends in a region\n",
    ),
    "too few elements": (
        b"func.func @main() {\n  %0 = arith.constant dense<[1, 2]> : vector<3xi32>\n  return\n}",
        ":2:23: error: shape mismatch in dense literal",
    ),
    "a number of a type that has none": (
        b"func.func @main() {\n  %0 = arith.constant 1 : memref<4xf32>\n  return\n}",
        ":2:27: error: a number has no such type as memref<4xf32>\n",
    ),
    "extents apart": (
        b"!t = memref<4 8xf32>\n", ":1:15: error: an 'x' is expected between the extents of a shape and its elements\n",
    ),
    "a name twice": (
        b"func.func @main() {\n  %0 = arith.constant 1 : i32\n  %0 = arith.constant 2 : i32\n  return\n}",
        "hint: a name is one value's within a function",
    ),
    "a function that is not there": (
        b"func.func @main() {\n  call @f() : () -> ()\n  return\n}", "hint: the module defines what is named",
    ),
    "no terminator": (
        b"func.func @main() {\n  %0 = arith.constant 1 : i32\n}", "hint: a block ends with its terminator",
    ),
    "no main": (b"func.func @f(%a: f32) { return }", "its argument 0 is f32"),
    "an index too few": (
        b"func.func @main() {\n  %m = memref.alloc() : memref<4x4xf32>\n  %c = arith.constant 0 : index\n"
        b"  %v = memref.load %m[%c] : memref<4x4xf32>\n  return\n}",
        ":4:8: error: 'memref.load' op expected an index for each dimension",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MLIR)
def test_in_mlir_text(name, tilewright, tmp_path):
    text, words = MLIR[name]
    path = tmp_path / "first.mlir"
    path.write_bytes(text)
    done = tilewright("run", path)
    assert done.code == 1 and words in done.err


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["rnu", "x.mlir"], 2, "hint: did you mean run?"),
        (["helpp"], 2, "hint: did you mean help?"),
        (["run"], 2, "required: file\nhint: tilewright run --help"),
        (["run", "{}/notes.md"], 1, "note: this file is read as MLIR text"),
        (["opt", "{}/ok.mlir", "--cse"], 2, "hint: a pass is named with -p: -p cse"),
        (["info", "--josn"], 2, "hint: did you mean --json?"),
        (["run", "{}/none.mlir"], 1, "No such file"),
        (["run", "{}/none.py"], 1, "No such file"),
        (["run", "{}"], 1, "Is a directory"),
        (["run", "{}/ok.mlir", "--target", "gpu"], 1, "the targets are"),
        (["run", "{}/ok.mlir", "--target", "pvc"], 1, "did you mean xe-pvc?"),
        (["run", "{}/ok.mlir", "--target", "sm90"], 1, "did you mean sm_90a?"),
        (["run", "{}/ok.mlir", "--entry", "other"], 1, "no function @other"),
        (["run", "{}/two.py", "--args", "f32[4]"], 2, "name one as"),
        (["run", "{}/two.py:c", "--args", "f32[4]"], 2, "no kernel 'c'"),
        (["run", "{}/two.py:a"], 1, "misses argument 'A'"),
        (["run", "{}/two.py:a", "--args", "f32[4"], 2, "neither an array"),
        (["run", "{}/two.py:a", "--args", "q32[4]"], 2, "no dtype is called 'q32'"),
        (["run", "{}/two.py:a", "--args", "f32[4]", "--grid", "x"], 2, "--grid"),
        (["check", "{}/two.py:a", "--args", "f32[4]", "--grid", "0"], 2, "--grid"),
        (["run", "{}/two.py:a", "--args", "f32[4]", "--set", "N=1"], 2, "no constexpr 'N'"),
        (["tune", "{}/two.py:a", "--args", "f32[4]", "--try", "N=1,2"], 2, "no constexpr 'N'"),
        (
            ["run", "{}/two.py:a", "--args", "f32[4]", "--set", "N=abc"],
            2,
            "N=abc is neither a number nor a dtype",
        ),
        (["tune", "{}/two.py:a", "--try", "N=1,abc"], 2, "N=abc is neither a number nor a dtype"),
        (
            ["tune", "{}/two.py:a", "--try", "N=1", "--budget", "-1"],
            2,
            "argument --budget: -1 seconds",
        ),
        (
            ["tune", "{}/two.py:a", "--try", "N=1", "--budget", "nan"],
            2,
            "argument --budget: nan seconds",
        ),
        (["run", "{}/ok.mlir", "--set", "N=1"], 2, "an MLIR text has no constexprs"),
        (["run", "{}/ok.mlir", "--args", "f32[4]"], 1, "takes 0 arguments, 1 given"),
        (["run", "{}/ok.mlir:main"], 2, "name the file alone"),
        (["compile", "{}/ok.mlir:main"], 2, "no kernel 'main'; its kernels are"),
        (["compile", "{}/none.py"], 1, "No such file"),
        (["compile", "{}/blank.py"], 1, "rule: a kernel is a function of the file"),
        (["compile", "{}/two.py:a", "--args", "f32[4]", "--emit", "x"], 1, "its stages are"),
        (["compile", "{}/two.py:a", "--args", "f32[4]", "--target", "sm_1"], 1, "machines are"),
        (["opt", "{}/ok.mlir", "-p", "x"], 2, "no pass is called 'x'"),
        (["show", "{}/ok.mlir", "-o", "{}/x.xyz"], 2, ".html, .svg or .png"),
        (["bench", "x"], 2, "invalid choice"),
    ],
)
def test_on_the_command_line(arguments, code, words, tilewright, tmp_path):
    (tmp_path / "ok.mlir").write_text("func.func @main() { return }")
    (tmp_path / "notes.md").write_text("# Notes\n")
    (tmp_path / "blank.py").write_text("")
    store = "(A): tw.store_tile(1, tw.init_tile(A, [0], (1, 1)))\n"
    kernels = "".join(f"@tw.kernel\ndef {name}{store}" for name in "ab")
    (tmp_path / "two.py").write_text(f"import tilewright as tw\n{kernels}")
    done = tilewright(*(a.replace("{}", str(tmp_path)) for a in arguments))
    assert done.code == code and words in done.err


PROGRAM = "// gr\xfc\xdfe\nfunc.func @main() {\n\treturn\n}\n"
SCRIPT = "# gr\xfc\xdfe\nprint(1)\n"


@pytest.mark.parametrize(
    "name, data, place",
    [
        ("lines.mlir", PROGRAM.replace("\n", "\r\n").encode(), None),
        ("mark.mlir", PROGRAM.encode("utf-8-sig"), None),
        ("mark.py", SCRIPT.encode("utf-8-sig"), None),
        ("cookie.py", ("# coding: latin-1\n" + SCRIPT).encode("latin-1"), None),
        ("latin.mlir", PROGRAM.encode("latin-1"), ":1:6: error: this byte (0xfc)"),
        ("latin.py", SCRIPT.encode("latin-1"), ":1:5: error: this byte (0xfc)"),
        ("wide.mlir", PROGRAM.encode("utf-16"), ":1:1: error: this byte (0xff)"),
    ],
)
def test_encodings(name, data, place, tilewright, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    done = tilewright("run", path)
    assert done.code == (0 if place is None else 1), done.err
    assert place is None or (f"{path}{place}" in done.err and "saved as UTF-8" in done.err)
