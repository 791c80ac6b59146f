"""What the language refuses: for each mistake one located report, never a traceback or wrong code."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.lang.reference import refused, written

F4, I4, U1 = (np.zeros((8, 8), dtype) for dtype in ("f4", "i4", "u1"))
SCALE, TABLE, LOOKUP, counter = 3, (1, 10, 100), np.arange(3), 0


def recursive(n):
    return tw.program_id(0) + recursive(n)


def mutual(n):
    return mutual_back(n + tw.program_id(0))


def mutual_back(n):
    return mutual(n)


def broken(x):
    return x + tw.zeros((5, 5), tw.f32)


def outer(x):
    return broken(x)


def raises(n):
    raise ValueError("not today")


def returns_nothing(x):
    x + 1


@tw.kernel
def other(A):
    tw.store_tile(1, tw.init_tile(A, [0, 0], (1, 1)))


KERNELS = {
    # of a group: the parameters, what a kernel begins with, the arguments
    **{f"arithmetic, {x.dtype.str[1:]}": (
        "A",
        "t = tw.init_tile(A, [0, 0], (4, 8))\na, b = tw.load_tile(t), tw.load_tile(tw.init_tile(A, [0, 0], (4, 4)))",
        (x,),
    ) for x in (F4, I4, U1)},
    "calls": ("A", "x = tw.load_tile(tw.init_tile(A, [0, 0], (8, 8)))", (F4,)),
    "compute": ("A", "a, b = (tw.load_tile(tw.init_tile(A, [0, 0], shape)) for shape in ((4, 8), (8, 4)))", (F4,)),
    "control": ("X, n", "t = tw.init_tile(X, [0, 0], (8, 8))\nx = tw.load_tile(t)", (F4, 2)),
    "elementwise": ("X", "x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))", (I4,)),
    "memory": ("X, n", "t, s = tw.init_tile(X, [0, 0], (4, 8)), tw.init_tile(X, tw.arange(0, 8))\nx = tw.load_tile(t)",
               (F4, 4)),
    "tiles": ("X, n", "t = tw.init_tile(X, [0, 0], (4, 4))", (F4, 4)),
    "views": ("X, n, s: tw.f32", "x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))", (F4, 4, 0.5)),
    "others": ("A", "", (F4,)),
    "elsewhere": ("A", "x = tw.load_tile(tw.init_tile(A, [0, 0], (8, 8)))", (F4,)),
}  # fmt: skip
CASES = {
    # statement, words of the message (of the hint alone, or with anything in place of .*), what is underlined
    "arithmetic, f4": [
        ("tw.store_tile(a * 2 + b, t)", "+: shapes 4x8 and 4x4 do not broadcast", "a * 2 + b"),
        ("a + tw.zeros((1, 5), tw.f32)", "shapes 4x8 and 1x5 do not broadcast", "a + tw.zeros((1, 5), tw.f32)"),
        ("tw.where(tw.arange(5) > 1, a, 0)", "shapes 1x5 and 4x8 do not broadcast", "tw.where(tw.arange(5) > 1, a, 0)"),
        ("tw.store_tile((a > 0) + (a < 1), t)", "the operands are masks", "(a > 0) + (a < 1)"),
        ("tw.store_tile(t + 1, t)", "4x8 tile of f32 .* tw.load_tile(tile)", "t + 1"),
        ("tw.store_tile(a & a, t)", "& is not defined on floats (f32)", "a & a"),
    ],
    "arithmetic, i4": [
        ("tw.store_tile(a * 0.5, t)", "a float scalar .* x.to(tw.f32)", "a * 0.5"),
    ],
    "arithmetic, u1": [
        ("tw.store_tile(a + 300, t)", "300 is no value of u8", "a + 300"),
    ],
    "calls": [
        ("recursive(1)", "recursive calls itself", "recursive(n)"),
        ("mutual(1)", "mutual calls itself", "mutual(n)"),
        ("outer(x)", "shapes 8x8 and 5x5 do not broadcast", "x + tw.zeros((5, 5), tw.f32)"),
        ("math.exp(x)", "use tw.exp", "math.exp(x)"),
        ("np.tanh(x)", "use tw.tanh", "np.tanh(x)"),
        ("broken(x, 1)", "broken: too many positional arguments", "broken(x, 1)"),
        ("raises(1)", "raises raised ValueError: not today", "raises(1)"),
        ("lod_tile = SCALEE", "did you mean SCALE?", "SCALEE"),
        ("tw.lode_tile(x)", "did you mean load_tile?", "tw.lode_tile"),
        ("y = x + LOOKUP[0]", "LOOKUP is a numpy array outside of the kernel", "LOOKUP"),
        ("tw.f16(x)", "x.to(tw.f16)", "tw.f16(x)"),
        ("SCALE(x)", "cannot be called", "SCALE(x)"),
        ("x[0, None]", "reduce to one, which is x.item()", "x[0, None]"),
        ("TABLE[tw.program_id(0)]", "known only at run time", "tw.program_id(0)"),
        ("max(x, x)", "tw.maximum(a, b) is elementwise", "max(x, x)"),
        ("a, b = x", "cannot be unpacked", "a, b"),
        ("a, b = TABLE", "3 values are unpacked into 2 names", "a, b"),
        ("enumerate(range(tw.program_id(0)))", "not a sequence", "enumerate(range(tw.program_id(0)))"),
        ("x.dtpye", "did you mean dtype?", "x.dtpye"),
    ],
    "compute": [
        ("tw.tile_mma(a, a)", "the shapes are 4x8 and 4x8", "a"),
        ("tw.tile_mma(a, b.to(tw.f16))", "multiplies f32 by f16", "b.to(tw.f16)"),
        ("tw.tile_mma(a, b, tw.zeros((4, 4), tw.f16))", "accumulates in f32, but c is f16", "tw.zeros((4, 4), tw.f16)"),
        ("tw.tile_mma(a, b, tw.zeros((4, 8), tw.f32))", "accumulates in 4x4, but c is 4x8", "tw.zeros((4, 8), tw.f32)"),
        ("tw.tile_mma(a, tw.init_tile(A, [0, 0], (8, 4)))",
         "tw.load_tile(tile) returns its elements", "tw.init_tile(A, [0, 0], (8, 4))"),
        ("tw.tile_mma(a.to(tw.i64), b.to(tw.i64))", "does not multiply i64", "a.to(tw.i64)"),
        ("a @ b", "tw.tile_mma(a, b, acc)", "a @ b"),
        ("tw.sum(a, 2)", "axis is 0 or 1, not 2", "2"),
        ('tw.reduction("mean", a, 1)', "'mean' is no kind of reduction", '"mean"'),
        ('tw.reduction("maxsi", a, 1)', "is for integers", '"maxsi"'),
        ('tw.reduction("add", a, 1, reduction_size=3)', "reduction_size=3 does not divide the extent 8", "3"),
        ("tw.broadcast(a, 0, 8)", "has extent 4", "a"),
        ("a.T", "tw.transpose(x)", "a.T"),
        ("tw.interleave(a, b)", "takes two values of one type, not", "b"),
        ("tw.deinterleave(tw.sum(a, 1))", "takes columns in pairs, and x has 1", "tw.sum(a, 1)"),
        ("tw.tile_mma(a)", "missing a required argument: 'b'", "tw.tile_mma(a)"),
        ('a.to("f16")', "to() takes a dtype", 'a.to("f16")'),
        ("tw.convert_layout(a, tw.wg_map([3, 1], [8, 8]), tw.wg_map([3, 1], [8, 8]))",
         "data is not evenly distributed"),
    ],
    "control": [
        ("if tw.program_id(0) > 0:\n    v = x\ntw.store_tile(v, t)", "v is bound in one branch only", "v"),
        ("for _ in range(n):\n    v = x\ntw.store_tile(v, t)", "v is bound inside the loop", "v"),
        ("if n > 0:\n    v = tw.zeros((1, 8), tw.f32)\nelse:\n    v = tw.zeros((1, 4), tw.f32)\ntw.store_tile(v, t)",
         "v differs between the branches: 1x8 value of f32 and 1x4 value of f32", "if n > 0:"),
        ("if x > 0:\n    tw.store_tile(x, t)", "must be a scalar .* tw.where", "x > 0"),
        ("for i in tw.static_range(4):\n    if i == n:\n        break\n    tw.store_tile(x, t)",
         "break out of an unrolled loop", "break"),
        ("for i in range(n):\n    if i == 3:\n        return\n    tw.store_tile(x, t)",
         "return inside a loop", "return"),
        ("while True:\n    tw.store_tile(x, t)", "always True", "True"),
        ("for _ in range(n):\n    tw.store_tile(x, t)\nelse:\n    tw.store_tile(x, t)", "else after a loop"),
        ("for _ in range(2.5):\n    tw.store_tile(x, t)", "range takes integers", "2.5"),
        ("for _ in tw.static_range(100000):\n    tw.store_tile(x, t)", "100000 iterations to unroll"),
    ],
    "elementwise": [
        ("tw.exp(x)", "exp is not defined on i32", "x"),
        ("tw.log(-1.0)", "math domain error", "-1.0"),
        ("tw.where(x, x, x)", "condition must be a mask", "x"),
        ("tw.fma(x, x, x)", "fma is not defined on i32", "x"),
        ("tw.full((4, 4), 0.5, tw.i32)", "0.5 cannot be combined with i32", "0.5"),
        ("tw.arange(0, tw.program_id(0))", "stop must be an integer of compile time", "tw.program_id(0)"),
        ("tw.arange(0, 5, shape=(4, 4))", "arange(0, 5) has 5 elements", "(4, 4)"),
        ('tw.zeros((4, 4), "f32")', "dtype must be a dtype", '"f32"'),
        ("x.item()", "item() takes a value of one element", "x.item()"),
    ],
    "memory": [
        ("tw.store_tile(t, x)", "takes a tile, not 4x8 value of f32", "x"),
        ("tw.store_tile(x.to(tw.f16), t)", "memory ops do not convert", "x.to(tw.f16)"),
        ("tw.store_tile(x, tw.init_tile(X, [0, 0], (2, 8)))", "writes 4x8 value of f32 to a 2x8 tile of f32", "x"),
        ("tw.load_tile(X)", "make a tile of the array", "X"),
        ("tw.load_tile(s)", "use tw.load_gather", "s"),
        ("tw.load_gather(t)", "use tw.load_tile", "t"),
        ("tw.load_tile(t, padding=n)", "padding must be a number of compile time", "n"),
        ('tw.load_tile(t, padding="zero")', "padding must be a number", '"zero"'),
        ("tw.load_gather(s, x)", "mask must be a value of i1", "x"),
        ("tw.load_tile(t, tw.arange(0, 4) < n)",
         "mask is 1x4 value of i1, the tile is 4x8 tile", "tw.arange(0, 4) < n"),
        ("tw.store_tile(x, t, n)", "mask must be a value of i1", "n"),
        ('tw.load_tile(t, l2_hint="warm")', "'warm' is no cache hint", '"warm"'),
        ('tw.load_tile(t, l1_hint="write_back")', "l1_hint"),
        ("tw.prefetch_tile(t, locality=7)", "locality is 0, 1, 2 or 3", "7"),
        ('tw.atomic_rmw("nand", x, t)', "'nand' is no kind of atomic operation", '"nand"'),
        ('tw.atomic_rmw("addi", x, t)', "use 'addf'", '"addi"'),
    ],
    "tiles": [
        ("tw.init_tile(X, [0, 0, 0], (4, 4))", "3 offsets for the array X (2-D, f32)", "[0, 0, 0]"),
        ("tw.init_tile(X, [0, 1.5], (4, 4))", "an offset must be an integer, not the constant 1.5", "[0, 1.5]"),
        ("tw.init_tile(X, [0, 0], (4, n))", "shape contains run-time index scalar", "(4, n)"),
        ("tw.init_tile(X, [0, 0], (0, 4))", "extents of a tile are at least 1", "(0, 4)"),
        ("tw.init_tile(X, [0, 0])", "a block tile needs a shape", "[0, 0]"),
        ("tw.init_tile(t, [0, 0], (4, 4))", "not of 4x4 tile of f32", "t"),
        ("tw.init_tile(X, [0, 0], (4, 4), memory_space=3)", "memory_space=3", "3"),
        ("tw.update_tile_offset(t, [1])", "deltas must be [rows, columns]", "[1]"),
        ("tw.init_tile(X, tw.zeros((4, 4), tw.f32))", "offsets must be integers, not f32", "tw.zeros((4, 4), tw.f32)"),
        ("tw.init_tile(X, [0, 0], (4, 4), wg_map=[2, 2])", "wg_map must be a tw.wg_map", "[2, 2]"),
        ("tw.wg_map([2, 2], [4])", "sg_data must be two positive integers", "[4]"),
        ("tw.alloc_slm((4, n), tw.f32)", "an extent of shared local memory", "(4, n)"),
        ("tw.init_tile(X, [0, 0], (4, 4), layout=3)", "unexpected keyword argument 'layout'"),
    ],
    "views": [
        ("tw.view(x, [0, 0], [1, 1])", "a part of an array, not of 4x8 value of f32", "x"),
        ("tw.view(tw.alloc_slm((4, 8), tw.f32), [0, 0], [1, 1])", "in global memory, not of shared local memory"),
        ("tw.view(X, [n], [1, 1])", "1 offset for the array X (2-D, f32)", "[n]"),
        ("tw.view(X, [n, 0], [s, 1])", "an extent", "[s, 1]"),
        ("tw.view(X, [None, 0], [1, 1])", "an offset", "[None, 0]"),
        ("tw.load_gather(tw.init_tile(tw.view(X, [n, 0], [4, 8]), tw.arange(0, 8)))",
         "a scattered tile indexes an array as one flat one, which the array a view of X"),
    ],
    "others": [
        ('tw.program_id("x")', "axis is 0, 1 or 2, not the constant 'x'", '"x"'),
        ("tw.store_tile(returns_nothing(tw.program_id(0)), tw.init_tile(A, [0, 0], (1, 1)))",
         "store_tile writes a value, not None (what a function without return gives)"),
        ("returns_nothing(tw.program_id(0)) + 1",
         "hint: a function without return gives None", "returns_nothing(tw.program_id(0)) + 1"),
        ("if A.shape[0] > 4: x = 1\nelse: x = tw.zeros((8, 4), tw.f32)\ntw.store_tile(x, A)",
         "hint: make a value of the same shape with tw.full((8, 4), x, dtype), or use another name"),
        ("tw.zeros((4, 8), tw.f32).reshape(2, 2, 8)", "hint: a tile covers the two innermost dimensions", "2"),
        ("t = tw.init_tile(A, [0, 0], (8, 8))\nt += [8, 0]",
         "hint: a tile is moved with tw.update_tile_offset(tile, [rows, columns])", "t += [8, 0]"),
        ("tw.alloc_slm((A.shape[0], 8), tw.f32)", "hint: make the extent a tw.constexpr parameter", "(A.shape[0], 8)"),
        ("i = tw.arange(8)\ntw.load_gather(tw.init_tile(A, [i, i]))",
         "hint: a scattered tile has one vector of offsets into the flattened array", "[i, i]"),
        ("x = tw.load_tile(tw.init_tile(A, [0, 0], (1, 8)))\ntw.load_gather(tw.init_tile(A, x))",
         "hint: x.to(tw.i32)", "x"),
        ('s = tw.alloc_slm((8, 8), tw.i8)\ntw.load_tile(tw.init_tile(s, [0, 0], (8, 8)), padding=float("-inf"))',
         "hint: i8 holds integers from -128 to 127", 'float("-inf")'),
        ('s = tw.alloc_slm((8, 8), tw.f8e4m3)\ntw.load_tile(tw.init_tile(s, [0, 0], (8, 8)), padding=float("-inf"))',
         "padding -inf is no value of f8e4m3", 'float("-inf")'),
        ('tw.zeros((8, 8), tw.f8e4m3) < float("inf")', "inf is no value of f8e4m3"),
        ("a, c = tw.zeros((8, 8), tw.f32), tw.zeros((1, 8), tw.f32)\ntw.tile_mma(a, a, c)",
         "hint: tw.tile_mma(a, b) + c broadcasts c", "c"),
        ("range = 4\nfor i in range(4):\n    pass",
         "hint: the kernel's range hides Python's: give it another name", "range(4)"),
        ("tw.sum(tw.zeros((8, 8), tw.f32), (0, 1))", "hint: axis=None is both", "(0, 1)"),
        ('tw.reduction("max", tw.zeros((8, 8), tw.f32), 1)', "hint: tw.max(x, axis) is that of any dtype", '"max"'),
        ('print("x = %f" % A[0, 0])', 'hint: an f-string holds what is known at run time: f"{x}"'),
        ("tw.load_tile(tw.init_tile(A, [0, 0], (8, 16)), wg_map=tw.wg_map([2, 2], [3, 8]))",
         "8 elements over 2 subgroups of 3 each in dimension 0", "tw.wg_map([2, 2], [3, 8])"),
        ("tw.init_tile(A, [0, 0], (8, 16), wg_map=tw.wg_map([2, 2], [3, 8]))",
         "hint: in every dimension sg_data divides the extent"),
        ("tw.transpose(tw.zeros((16, 8), tw.f32), wg_map=tw.wg_map([2, 2], [3, 8]))",
         "8 elements over 2 subgroups of 3 each in dimension 0"),
        ("x = tw.zeros((8, 8), tw.f32)\ntw.tile_mma(x, x, wg_map=tw.wg_map([2, 2], [3, 8]))",
         "8 elements over 2 subgroups of 3 each in dimension 0"),
        ("tw.sum(tw.zeros((8, 16), tw.f32), 1, wg_map=tw.wg_map([2, 1], [3, 1]))",
         "8 elements over 2 subgroups of 3 each in dimension 0"),
        ("tw.broadcast(tw.zeros((8, 1), tw.f32), 1, 16, wg_map=tw.wg_map([2, 2], [3, 8]))",
         "8 elements over 2 subgroups of 3 each in dimension 0"),
        ("tw.convert_layout(tw.zeros((8, 16), tw.f32), tw.wg_map([2, 2], [3, 8]))",
         "8 elements over 2 subgroups of 3 each in dimension 0"),
        ("counter += 1", "counter is read before the function binds it", "counter"),
        ("tw.store_tile(counter, tw.init_tile(A, [0, 0], (1, 1)))\ncounter = 1",
         "counter is read before the function binds it", "counter"),
        ("tw.init_tile(A, [8 / 2, 0], (4, 4))", "hint: a // b of integers is an integer, a / b is not", "[8 / 2, 0]"),
        ("tw.init_tile(A, 0, (4, 4))", "hint: one per dimension of the array, outermost first: [m, n]", "0"),
        ("tw.zeros((4, 4), np.float16)", "hint: use tw.f16", "np.float16"),
        ("x = tw.zeros((4, 4), A.dtype)\ntw.store_tile(tw.sum(x, 1), tw.init_tile(A, [0, 0], (1, 4)))",
         "hint: store tw.transpose(value)", "tw.sum(x, 1)"),
        ("x = tw.load_tile(tw.init_tile(A, [0, 0], (4, 4)))\nwhile tw.sum(x, None) > 1:\n    x = x * 0.5",
         "hint: x.item() is the only element of a value", "tw.sum(x, None) > 1"),
        ("tw.load_tile(A, [0, 0], (4, 4))", "too many positional arguments"),
        ("for row in A:\n    pass", "a loop over 2-D array of f32", "A"),
        ("A + 1", "+ does not combine 2-D array of f32 and the constant 1", "A + 1"),
        ("if A:\n    pass", "2-D array of f32 is neither true nor false", "A"),
        ("t = tw.init_tile(A, [0, 0], (4, 4))\nx = 1 and t and 2", "4x4 tile of f32 is neither true nor false", "t"),
        ("x = tw.zeros((4, 4), tw.f32)\nx if x > 0 else 0", "a condition must be a scalar", "x > 0"),
        ("x = tw.zeros((4, 4), tw.f32)\nx > 0 and x < 1", "and on 4x4 value of i1", "x > 0"),
        ("x = tw.zeros((4, 4), tw.f32)\n0 < x < 1", "a chained comparison of tiles", "0 < x < 1"),
        ('"s" + 1', "TypeError: can only concatenate str", '"s" + 1'),
        ("A.shape[5]", "IndexError: tuple index out of range", "A.shape[5]"),
        ('tw.program_id(0) / "a"',
         "/ does not combine run-time index scalar and the constant 'a'", 'tw.program_id(0) / "a"'),
        ("1 in tw.arange(4)", "the constant 1 in 1x4 value of index", "1 in tw.arange(4)"),
        ("tw.arange(4) in (1, 2)", "1x4 value of index in tuple of 2", "tw.arange(4) in (1, 2)"),
        ("tw.program_id(0) not in A", "run-time index scalar in 2-D array of f32", "tw.program_id(0) not in A"),
        ("tw.arange(4) in range(3)", "1x4 value of index in a range", "tw.arange(4) in range(3)"),
        ("1 in range(0, 9, tw.program_id(0))", "the constant 1 in a range whose step is of run time"),
        ("3 in A", "the constant 3 in 2-D array of f32", "3 in A"),
        ("print(A)", "print of 2-D array of f32"),
        ("return tw.zeros((2, 2), tw.f32)", "the kernel returns 2x2 value of f32"),
        ("10**400 * tw.program_id(0)", "an integer of 1329 bits is no value of index", "10**400 * tw.program_id(0)"),
        ("tw.zeros((4, 4), tw.f32) + 10**400", "an integer of 1329 bits is no value of f32"),
        ("tw.init_tile(A, [0, 2**63], (4, 4))", "which does not fit 64 bits", "[0, 2**63]"),
        ("tw.zeros((4, 4), tw.i32) << 40", "is shifted by 40", "tw.zeros((4, 4), tw.i32) << 40"),
        ("tw.init_tile(A, [tw.zeros((4, 4), tw.i32), 0], (4, 4))",
         "an offset must be an integer scalar, not 4x4 value of i32"),
        ("tw.full((4, 4), tw.zeros((4, 4), tw.f32), tw.f32)",
         "value must be a scalar, not 4x4 value of f32", "tw.zeros((4, 4), tw.f32)"),
        ("t = tw.init_tile(A, [0, 0], (4, 4))\nfor i in range(3): tw.load_tile(t); t = tw.init_tile(A, [0, 0], (4, 8))",
         "t changes its type in this loop: 4x4 tile of f32 before it, 4x8 tile of f32 after"),
        ("s = tw.alloc_slm((8, 8), tw.f32)\nt = tw.init_tile(A, [0, 0], (4, 4))\n"
         "for i in range(3): tw.load_tile(t); t = tw.init_tile(s, [0, 0], (4, 4))",
         "4x4 tile of f32 before it, 4x4 tile of f32, shared local after"),
        ("x = A\nfor i in range(3): x[0, 0]; x = tw.view(A, [i, 0], [2, 2])",
         "x changes its type in this loop: 2-D array of f32 before it"),
        ("tw.maximum(A, A)", "a number or a value is expected, not 2-D array of f32", "tw.maximum(A, A)"),
        ("tw.fma(A, 1, 2)", "a number or a value is expected, not 2-D array of f32", "tw.fma(A, 1, 2)"),
        ("x = A if tw.program_id(0) else tw.alloc_slm((4, 4), tw.f32)", "the two choices differ: memref<"),
        ("x = tw.view(A, [0, 0], [2, 2]) if tw.program_id(0) else tw.view(A, [1, 0], [2, 2])",
         "the two choices differ: one is a part of an array (tw.view)"),
        ("if tw.program_id(0):\n    x = tw.f32\nelse:\n    x = tw.f16\ntw.zeros((4, 4), x)",
         "x differs between the branches: the dtype tw.f32 and the dtype tw.f16"),
        ('1 if tw.program_id(0) else "a"', "the two choices differ: the constant 1 and the constant 'a'"),
        ("tw.load_gather(tw.init_tile(tw.alloc_slm(4, tw.f32), tw.arange(0, 4)), tw.arange(0, 3) < 2)",
         "mask is 1x3 value of i1, the tile is 1x4 scattered tile of f32", "tw.arange(0, 3) < 2"),
        ("math.floor(tw.program_id(0) / 2)",
         "math.floor is called with a value of run time", "math.floor(tw.program_id(0) / 2)"),
        ("3j", "a complex number is not supported", "3j"),
        ("x: int\nx + 1", "the name x is not defined", "x"),
        ("tw.store_tile(tw.zeros((4, 4), tw.tf32), tw.init_tile(A, [0, 0], (4, 4)))",
         "writes 4x4 value of tf32 to a 4x4 tile of f32", "tw.zeros((4, 4), tw.tf32)"),
        ("max()", "max expected at least 1 argument", "max()"),
        ("for i in range(1, 2, 3, 4):\n    pass", "range takes 1 to 3 arguments, not 4"),
        ("for i in range(1, 2, 0):\n    pass", "the step of a range is 0", "0"),
        ("a, b = divmod(tw.program_id(0), 3)", "hint: use x // y, x % y", "divmod(tw.program_id(0), 3)"),
        ('print(f"{tw.program_id(0):3d}")', "hint: {tw.program_id(0)}; numbers are printed with six digits"),
        ('open("/nope")', "FileNotFoundError", 'open("/nope")'),
    ],
    "elsewhere": [
        ("tw.dot(x, x)", "hint: use tw.tile_mma(a, b, acc)", "tw.dot"),
        ("tw.load(A)", "hint: use tw.load_tile(", "tw.load"),
        ("tw.clamp(x, 0, 1)", "hint: use tw.minimum(tw.maximum(x, low), high)", "tw.clamp"),
        ("tw.range(0, 4, num_stages=3)", "hint: use range(...)", "tw.range"),
        ("tw.rand(0, x)", "hint: pass an array of random numbers", "tw.rand"),
        ("tw.load_tle(A)", "hint: did you mean load_tile?", "tw.load_tle"),
        ("x.astype(tw.f16)", "hint: use x.to(dtype)", "x.astype"),
        ("x.mean(1)", "hint: use tw.sum(x, 1) / x.shape[1]", "x.mean"),
        ("x.T", "hint: use tw.transpose(x)", "x.T"),
        ("A.stride(0)", "hint: use A.strides", "A.stride"),
        ("x.frobnicate()", "hint: it has dtype, shape", "x.frobnicate"),
        ("x @ x", "hint: tw.tile_mma(a, b, acc)", "x @ x"),
        ("np.clip(x, 0, 1)", "hint: use tw.minimum", "np.clip(x, 0, 1)"),
        ("np.exp(x)", "hint: use tw.exp(x)", "np.exp(x)"),
        ("sum(x)", "hint: use tw.sum(x, axis", "sum(x)"),
        ("pow(x, 2)", "hint: use x**y", "pow(x, 2)"),
        ("len(A)", "hint: its extents are x.shape", "len(A)"),
        ("enumerate(x)", "hint: its extents are x.shape", "enumerate(x)"),
        ("xs = []; xs.append(x)", "hint: xs = xs + (x,)", "xs.append(x)"),
        ("np.random.rand(3)", "hint: before the launch", "np.random.rand(3)"),
        ("tw.load_tile(tw.init_tile(A, [0, 0], (1, 4)), other=0)",
         "hint: padding=...", "tw.load_tile(tw.init_tile(A, [0, 0], (1, 4)), other=0)"),
        ("tw.sum(x, 1, keep_dims=True)", "hint: leave keep_dims out", "tw.sum(x, 1, keep_dims=True)"),
        ("tw.max(x, x)", "hint: tw.maximum(a, b)", "x"),
        ("x.float()", "hint: use x.to(tw.f32)", "x.float"),
        ("A.dtype.element_ty", "hint: A.dtype is the dtype of the elements", "A.dtype.element_ty"),
        ("X + 1", "hint: did you mean x?", "X"),
        ("A[A.shape[0] / 2, 0]", "hint: a // b rounds down", "A[A.shape[0] / 2, 0]"),
        ("x[:, None]", "hint: leave it out", "x[:, None]"),
        ("x[::2, :]", "hint: every other column: even, odd = tw.deinterleave(x)", "x[::2, :]"),
        ("x[..., 0]", "hint: values are indexed by numbers of compile time", "x[..., 0]"),
        ("x[:, tw.program_id(0):]", "hint: a part somewhere else is loaded", "x[:, tw.program_id(0):]"),
        ("x[:, 1.5:]", "bounds that are integers of compile time", "x[:, 1.5:]"),
        ("x.to(tw.i16, bitcast=True)", "f32 has no bits that are read as i16", "x.to(tw.i16, bitcast=True)"),
        ("x[9:]", "a slice of 0 of 8 elements", "x[9:]"),
        ("tw.concat(x, 1)", "concat takes values: tw.concat((a, b), 1)", "x"),
        ("tw.roll(x, tw.program_id(0), 1)", "hint: load the tile from another place", "tw.program_id(0)"),
        ("tw.associative_scan(x, 1, max)", "hint: tw.maximum(a, b) is elementwise",
         "tw.associative_scan(x, 1, max)"),
        ("tw.associative_scan(x, 1, 2)", "combine is a function, not", "2"),
        ("tw.associative_scan(x, 1, tw.abs)", "hint: tw.abs(x", "tw.associative_scan(x, 1, tw.abs)"),
        ("for i in x: pass", "hint: its parts are loaded as tiles", "x"),
        ("[i for i in (1, 2) if A[0, 0] > 0]", "hint: tw.where(mask, a, b)", "A[0, 0] > 0"),
        ("[i for i in range(A.shape[0])]",
         "hint: write that loop, and count or sum in a variable", "range(A.shape[0])"),
        ("[i for i in 4]", "hint: range(n) counts to a number", "4"),
        ("sum([x, x], start=x)", "hint: give start by position", "sum([x, x], start=x)"),
        ("x[A.shape[0], None]", "hint: load smaller tiles", "x[A.shape[0], None]"),
        ("tw.zeros((8, 4), tw.f32) + tw.arange(8)",
         "hint: the row of 8 as a column: x[:, None]", "tw.zeros((8, 4), tw.f32) + tw.arange(8)"),
        ("tw.zeros((4, 8), tw.f32) * tw.arange(8, axis=0)",
         "hint: the column of 8 as a row: x[None, :]", "tw.zeros((4, 8), tw.f32) * tw.arange(8, axis=0)"),
        ("tw.load_tile(tw.init_tile(A, [0, 0], (8, 4)), tw.arange(8) < 3)", "hint: x[:, None]", "tw.arange(8) < 3"),
        ("tw.init_tile(A, [tw.sum(x).to(tw.i32), 0], (8, 4))",
         "hint: x.item() is its number", "[tw.sum(x).to(tw.i32), 0]"),
        ("x.to('bf16')", "hint: use tw.bf16", "x.to('bf16')"),
        ("A.dtype == 'float32'", "hint: use tw.f32", "A.dtype == 'float32'"),
        ("np.float16 != A.dtype", "hint: use tw.f16", "np.float16 != A.dtype"),
        ("range(A)", "hint: range(x.shape[0])", "A"),
        ("for i in A.shape[0]: pass", "hint: range(n) counts", "A.shape[0]"),
        ("A.shape(0)", "hint: x[i]", "A.shape(0)"),
        ("A[0, 0] = x", "hint: write it as a tile: tw.store_tile", "A[0, 0] = x"),
        ("A[:, 0] = x", "hint: write it as a tile: tw.store_tile", "A[:, 0] = x"),
        ("x = A[:, 0]", "hint: load a part: tw.load_tile", "A[:, 0]"),
        ("x[0, 0] = 1.0", "hint: values and tuples cannot be changed: make a new one, a value by tw.where", "x[0, 0]"),
        ("tw.exp(tw.init_tile(A, [0, 0], (8, 8)))", "hint: a tile is a region of memory; tw.load_tile(tile)"),
        ("tw.maximum(tw.init_tile(A, [0, 0], (8, 8)), x)", "hint: a tile is a region of memory; tw.load_tile(tile)"),
        ("x + A", "one element is A[i, j]", "x + A"),
        ("print(x, sep=',')", "hint: its values stand in one line", "print(x, sep=',')"),
        ("x.to(tw.u32) + 2**40", "hint: convert the other operand first: x.to(tw.u64) has both"),
        ("x.to(tw.u8) - -1", "hint: convert the other operand first: x.to(tw.i16) has both"),
        ("other[1](A)", "hint: other(...)", "other[1]"),
        ("range(A.shape[0] / 2)", "hint: a // b divides integers", "A.shape[0] / 2"),
        ("tw.reduction('maximumf', tw.arange(8), 1)", "hint: maxsi and minsi", "'maximumf'"),
        ("tw.reduction('maxsi', x, 1)", "hint: add, mul, maximumf", "'maxsi'"),
        ("tw.full((8, 8), x, tw.f32)", "hint: tw.zeros(shape, dtype) + value", "x"),
        ("for i, j in range(A.shape[0]): pass", "hint: for i in range(n)", "i, j"),
        ("tw.interleave(x, tw.zeros((8, 8), tw.f16))", "hint: convert one", "tw.zeros((8, 8), tw.f16)"),
        ("tw.device_assert(A)", "hint: a condition is a comparison", "A"),
        ("3j", "hint: carry its real and imaginary part", "3j"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "group, case",
    [
        pytest.param(group, case, id=f"{group}: {case[0]}")
        for group, cases in CASES.items()
        for case in cases
    ],
)
def test_report(group: str, case: tuple[str, ...]) -> None:
    statement, message, *underlined = case
    parameters, head, arguments = KERNELS[group]
    kernel = written(parameters, f"{head}\n{statement}", globals())
    text, under = refused(kernel, *arguments)
    if message.startswith("hint: "):
        assert message[6:] in text.partition("hint: ")[2], text
    else:
        assert all(part in text for part in message.split(" .* ")), text
    assert underlined in ([], [under])


def test_a_call_without_end_is_told_once():
    text, _ = refused(written("A", "recursive(1)", globals()), F4)
    assert text.count("recursive is called here") == 2 and "32 calls deep" in text


def test_errors_in_helpers_show_the_chain_of_calls():
    text, _ = refused(written("A", "outer(tw.zeros((8, 8), tw.f32))", globals()), F4)
    assert text.index("broken is called here") < text.index("outer is called here")
    assert "return broken(x)" in text and "    outer(tw.zeros(" in text
