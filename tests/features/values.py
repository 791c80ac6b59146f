# ruff: noqa: E501
"""Programs about values: every type of element in tiles, casts, reductions, transposes, vectors and functions."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

from tests.features.memory import gives
from tests.features.program import NUMPY, Program

FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8")
ALL = (*FLOATS, *INTEGERS, "i1", "f8E5M2", "f8E4M3FN")
PROGRAMS: dict[str, Program] = {}


def put(
    name: str, source: str, element: str, body: str, target: str, function: Any, **more: Any
) -> None:
    """A program that loads all of %a as %v and stores %r to all of %b; arrays are `element shape`."""
    text = f"load %v = %a[0, 0] {source}\n{body}\nstore %r, %b[0, 0] {target.split()[1]}"
    PROGRAMS[name] = Program(f"a: {element} {source}, b: {target}", text, gives(function), **more)


def _ordered(predicate: str, a: Any, b: Any) -> Any:
    sign = -1 if predicate[0] == "s" else 1
    tests = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    equal = {"eq": np.equal, "ne": np.not_equal}
    return (tests | equal)[predicate[-2:]](sign * a, sign * b)


# Elements of every type, tiles of every size, over every edge.
for _t in (*ALL, "ui8"):
    for _shape in ("8x16", "7x5", "1x1"):
        _m, _n = map(int, _shape.split("x"))
        PROGRAMS[f"copy of {_shape} {_t}"] = Program(
            f"a: {_t} 20x30, b: {_t} {_shape}",
            f"load %v = %a[3, 4] {_shape}\nstore %v, %b[0, 0] {_shape}",
            gives(lambda a, m=_m, n=_n: a[3 : 3 + m, 4 : 4 + n]),
        )
for _t in ALL:
    _said, _value = (
        ("true", True)
        if _t == "i1"
        else (f"3.0 : {_t}", 3.0)
        if _t[0] in "bf"
        else (f"3 : {_t}", 3)
    )
    PROGRAMS[f"padding of {_t}"] = Program(
        f"a: {_t} 20x12, b: {_t} 16x16",
        f"load %v = %a[-2, -4] 16x16 {{padding = {_said}}}\nstore %v, %b[0, 0] 16x16",
        gives(lambda a, p=_value: np.pad(a[:14], ((2, 0), (4, 0)), constant_values=p)),
    )

# Bits in order; with signs, true is -1.
for _predicate in ("ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge", "eq", "ne"):
    put(
        f"{_predicate} of bits", "8x16", "i1",
        f"%w = xetile.transpose %v, [1, 0] : vector<8x16xi1> -> vector<16x8xi1>\n"
        f"%x = vector.shape_cast %w : vector<16x8xi1> to vector<8x16xi1>\n"
        f"%r = arith.cmpi {_predicate}, %v, %x : vector<8x16xi1>",
        "i1 8x16",
        lambda a, p=_predicate: _ordered(p, a.astype(int), a.T.reshape(8, 16).astype(int)),
    )  # fmt: skip

# Casts.
for _from, _to, _op in (
    *(
        ("f32", "f16", "truncf"),
        ("f64", "bf16", "truncf"),
        ("f32", "f8E5M2", "truncf"),
        ("f16", "f8E4M3FN", "truncf"),
    ),
    *(
        ("f16", "f64", "extf"),
        ("f8E5M2", "f32", "extf"),
        ("f8E4M3FN", "f16", "extf"),
        ("i8", "f16", "sitofp"),
    ),
    *(
        ("i64", "f64", "sitofp"),
        ("i32", "bf16", "sitofp"),
        ("ui8", "f32", "uitofp"),
        ("f64", "i64", "fptosi"),
    ),
    *(
        ("f16", "i8", "fptosi"),
        ("i8", "i64", "extsi"),
        ("i64", "i8", "trunci"),
        ("i16", "f8E5M2", "sitofp"),
    ),
):
    _body = f"%r = arith.{_op} %v : vector<8x16x{_from}> to vector<8x16x{_to}>"
    put(f"{_op} of {_from} to {_to}", "8x16", _from, _body, f"{_to} 8x16", lambda a, t=_to: a.astype(NUMPY[t]))  # fmt: skip
del PROGRAMS["uitofp of ui8 to f32"]  # arith takes signless numbers

# Transposes of every width, of whole tiles, odd ones, a row and a column.
for _t in ALL:
    for _m, _n in ((16, 32), (7, 5), (1, 16), (16, 1)):
        _body = (
            f"%r = xetile.transpose %v, [1, 0] : vector<{_m}x{_n}x{_t}> -> vector<{_n}x{_m}x{_t}>"
        )
        put(
            f"transpose of {_m}x{_n} {_t}",
            f"{_m}x{_n}",
            _t,
            _body,
            f"{_t} {_n}x{_m}",
            lambda a: a.T,
        )

# Reductions of every kind, along each dimension and both; of runs.
KINDS: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": np.minimum,
    "maxui": np.maximum,
    "minnumf": np.fmin,
    "maxnumf": np.fmax,
    "minimumf": np.minimum,
    "maximumf": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduced(kind: str, a: Any, axis: tuple[int, ...]) -> Any:
    whole = a.view(f"u{a.itemsize}") if kind.endswith("ui") else a
    for dim in axis:
        whole = KINDS[kind].reduce(whole, axis=dim, keepdims=True, dtype=whole.dtype)
    return whole.view(a.dtype)


for _t, _kinds in {
    **dict.fromkeys(FLOATS, ("add", "mul", "minnumf", "maxnumf", "minimumf", "maximumf")),
    **dict.fromkeys(
        INTEGERS, ("add", "mul", "minsi", "maxsi", "minui", "maxui", "and", "or", "xor")
    ),
    "i1": ("and", "or", "xor"),
    **dict.fromkeys(("f8E5M2", "f8E4M3FN"), ("minnumf", "maxnumf", "minimumf", "maximumf")),
}.items():
    for _kind in _kinds:
        for _dims in ((0,), (1,), (0, 1)):
            _m, _n = (
                (4, 8) if _kind == "mul" else (5, 7) if _t in ("f64", "i8", "f8E4M3FN") else (8, 16)
            )
            _out = f"{1 if 0 in _dims else _m}x{1 if 1 in _dims else _n}"
            _body = f"%r = xetile.reduction <{_kind}>, %v {[*_dims]} : vector<{_m}x{_n}x{_t}> -> vector<{_out}x{_t}>"
            put(
                f"reduction {_kind} of {_t} along {_dims}",
                f"{_m}x{_n}",
                _t,
                _body,
                f"{_t} {_out}",
                lambda a, k=_kind, d=_dims: reduced(k, a, d),
                error=0.05 if _t in ("f16", "bf16") else 2e-6,
            )
for _t in ("f64", "f16", "i8"):
    _body = f"%r = xetile.reduction <add>, %v [1] {{reduction_size = 8 : i64}} : vector<8x32x{_t}> -> vector<8x4x{_t}>"
    put(f"reduction of runs of {_t}", "8x32", _t, _body, f"{_t} 8x4", lambda a: a.reshape(8, 4, 8).sum(2, dtype=a.dtype), error=0.01)  # fmt: skip

# Broadcasts of each dimension, and of runs.
for _t in ("f64", "f16", "i8", "i1", "i64"):
    for _source, _dim, _out in (("1x32", 0, "16x32"), ("16x1", 1, "16x32"), ("1x1", 0, "16x1")):
        _shape = tuple(map(int, _out.split("x")))
        _body = f"%r = xetile.broadcast %v [{_dim}] : vector<{_source}x{_t}> -> vector<{_out}x{_t}>"
        put(f"broadcast of {_source} {_t}", _source, _t, _body, f"{_t} {_out}", lambda a, s=_shape: np.broadcast_to(a, s))  # fmt: skip
    _body = f"%r = xetile.broadcast %v [1] {{broadcast_size = 4 : i64}} : vector<8x4x{_t}> -> vector<8x16x{_t}>"
    put(
        f"broadcast of runs of {_t}",
        "8x4",
        _t,
        _body,
        f"{_t} 8x16",
        lambda a: np.repeat(a, 4, axis=1),
    )

# Vectors of elements that tests/movement.py has not.
for _t in ("f64", "i8", "i1", "i64"):
    for _name, _body, _out, _function in (
        ("shape_cast", "%r = vector.shape_cast %v : vector<8x16xT> to vector<4x32xT>", "4x32", lambda a: a.reshape(4, 32)),
        ("slice", "%r = vector.extract_strided_slice %v {offsets = [2, 4], sizes = [4, 8], strides = [1, 1]} : vector<8x16xT> to vector<4x8xT>", "4x8", lambda a: a[2:6, 4:12]),
        ("row", "%e = vector.extract %v[3] : vector<16xT> from vector<8x16xT>\n%r = vector.insert %e, %v[5] : vector<16xT> into vector<8x16xT>", "8x16", lambda a: np.concatenate([a[:5], a[3:4], a[6:]])),
        ("deinterleave", "%r, %odd = vector.deinterleave %v : vector<8x16xT> -> vector<8x8xT>", "8x8", lambda a: a[:, ::2]),
        ("interleave", "%r = vector.interleave %v, %v : vector<8x16xT> -> vector<8x32xT>", "8x32", lambda a: np.repeat(a, 2, axis=1)),
    ):  # fmt: skip
        put(f"vector {_name} of {_t}", "8x16", _t, _body.replace("xT>", f"x{_t}>"), f"{_t} {_out}", _function)  # fmt: skip

for _t, _from, _to in (
    *(("f32", "5x7", "7x5"), ("f16", "1x35", "5x7"), ("i8", "16x16", "256x1"), ("i1", "6x10", "3x20")),
    *(("f32", "64x6", "128x3"), ("bf16", "32x1", "4x8"), ("i64", "13x8", "1x104"), ("f64", "24x16", "12x32")),
):  # fmt: skip
    put(
        f"shape_cast of {_from} {_t} to {_to}",
        _from,
        _t,
        f"%r = vector.shape_cast %v : vector<{_from}x{_t}> to vector<{_to}x{_t}>",
        f"{_t} {_to}",
        lambda a, s=_to: a.reshape([int(n) for n in s.split("x")]),
    )

# Functions of numbers wider and narrower than f32; of f64 powers need the C library.
FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("tan", "sinh", "cosh", "expm1", "cbrt", "tanh", "sin", "exp")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("atan", "asinh")},
    "erf": np.vectorize(lambda x: float(mpmath.erf(x))),
}  # fmt: skip
_BOUNDS = {"f64": 1e-14, "f32": 5e-6, "f16": 2e-3}
for _t, _error in _BOUNDS.items():
    for _name, _function in FUNCTIONS.items():
        put(f"math.{_name} of {_t}", "8x16", _t, f"%r = math.{_name} %v : vector<8x16x{_t}>", f"{_t} 8x16", _function, error=_error)  # fmt: skip
    _half = f"%h = arith.constant dense<0.2> : vector<8x16x{_t}>\n%s = arith.mulf %v, %h : vector<8x16x{_t}>\n"
    for _name in ("asin", "acos", "atanh"):
        _function = getattr(np, f"arc{_name[1:]}")
        put(f"math.{_name} of {_t}", "8x16", _t, f"{_half}%r = math.{_name} %s : vector<8x16x{_t}>", f"{_t} 8x16", lambda a, f=_function: f(0.2 * a), error=max(_error, 1e-6))  # fmt: skip
    put(f"math.atan2 of {_t}", "8x16", _t, f"{_half}%r = math.atan2 %v, %s : vector<8x16x{_t}>", f"{_t} 8x16", lambda a: np.arctan2(a, 0.2 * a), error=_error)  # fmt: skip
for _t in INTEGERS:
    _body = f"%n = arith.constant dense<3> : vector<8x16x{_t}>\n%r = math.ipowi %v, %n : vector<8x16x{_t}>"
    put(f"math.ipowi of {_t}", "8x16", _t, _body, f"{_t} 8x16", lambda a: a**3)

# What vector's own op multiplies, of values that tiles load.
_MAPS = ", ".join(
    f"affine_map<(d0, d1, d2) -> ({dims})>" for dims in ("d0, d2", "d1, d2", "d1, d0")
)
PROGRAMS["vector.contract of loaded tiles"] = Program(
    "a: bf16 8x32, b: bf16 16x32, c: f32 16x8",
    f"""load %x = %a[0, 0] 8x32
    load %y = %b[0, 0] 16x32
    %z = arith.constant dense<1.0> : vector<16x8xf32>
    %r = vector.contract {{indexing_maps = [{_MAPS}], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}} %x, %y, %z : vector<8x32xbf16>, vector<16x32xbf16> into vector<16x8xf32>
    store %r, %c[0, 0] 16x8""",
    gives(lambda a, b: b @ a.T + 1),
    error=1e-5,
)


# Contractions: batches, several dimensions of one kind, vectors, other combinations than sums.
def _contraction(spec: str, kind: str, element: str, to: str, shapes: tuple[str, str, str]) -> None:
    """Of all 8x16 elements of %a in the shape of each operand; what they combine to begins with 3."""
    maps = spec.replace("->", ",").split(",")
    dims = sorted({*spec} - {*",->"})
    listed = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(m)})>" for m in maps)
    kinds = ", ".join('"parallel"' if d in maps[2] else '"reduction"' for d in dims)
    left, right, out = ([int(n) for n in shape.split("x")] for shape in shapes)
    whole = f"{np.prod(out[:-1], dtype=int)}x{out[-1]}"

    def function(a: Any) -> Any:
        x, y = (np.asarray(a, np.float64).reshape(shape) for shape in (left, right))
        each = np.einsum(
            f"{maps[0]},{maps[1]}->{maps[2]}{''.join(d for d in dims if d not in maps[2])}", x, y
        )
        each = each.reshape(*out, -1)
        total = each.sum(-1) + 3 if kind == "add" else np.maximum(each.max(-1), 3)
        return total.reshape(whole_shape)

    whole_shape = tuple(map(int, whole.split("x")))
    put(
        f"contraction {spec} {kind} of {element}",
        "8x16",
        element,
        f"""%x = vector.shape_cast %v : vector<8x16x{element}> to vector<{shapes[0]}x{element}>
        %y = vector.shape_cast %v : vector<8x16x{element}> to vector<{shapes[1]}x{element}>
        %c = arith.constant dense<{3.0 if to[0] in "bf" else 3}> : vector<{shapes[2]}x{to}>
        %d = vector.contract {{indexing_maps = [{listed}], iterator_types = [{kinds}], kind = #vector.kind<{kind}>}} %x, %y, %c : vector<{shapes[0]}x{element}>, vector<{shapes[1]}x{element}> into vector<{shapes[2]}x{to}>
        %r = vector.shape_cast %d : vector<{shapes[2]}x{to}> to vector<{whole}x{to}>""",
        f"{to} {whole}",
        function,
    )


_contraction("bmk,bkn->nbm", "add", "bf16", "f32", ("2x8x8", "2x8x8", "8x2x8"))
_contraction("kmr,nk->mnr", "add", "f32", "f32", ("8x4x4", "16x8", "4x16x4"))
_contraction("mk,kn->mn", "maximumf", "f32", "f32", ("8x16", "16x8", "8x8"))
_contraction("kl,lmk->m", "add", "i8", "i32", ("8x16", "16x1x8", "1"))
