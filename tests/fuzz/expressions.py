"""Random expressions of the tile language as text, each of a type: integers, whose results are exact, and floats."""

# One statement or expression of the language a line, as it is written there.
# ruff: noqa: E501, E731, B905
# pyright: basic

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

DT = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "X": ("i32", (9, 13)),
    "B": ("u8", (6, 20)),
    "C": ("i16", (3, 5, 7)),
    "V": ("i64", (16,)),
    "A": ("i8", (20, 12)),
    "E": ("f32", (7, 18)),
    "F": ("f16", (12, 9)),
    "D": ("bf16", (9, 14)),
}
FLOATS = ("f32", "f16", "bf16")
NUMBERS = {"n": "index", "m": "i32", "k": "u8", "flag": "i1", "x": "f32"}
"""Arguments that kernels read."""
GRID = (2, 3)
UNARY = ("neg", "inv", "pow")
FUNCTIONS = (
    "tw.exp(tw.minimum({}, 4))",
    "tw.exp2(tw.minimum({}, 6))",
    "tw.log(tw.abs({}) + 0.5)",
    "tw.log2(tw.abs({}) + 1)",
    "tw.sqrt(tw.abs({}))",
    "tw.rsqrt(tw.abs({}) + 0.25)",
    "tw.sin(tw.maximum(tw.minimum({}, 9), -9))",
    "tw.cos(tw.maximum(tw.minimum({}, 9), -9))",
    *(f"tw.{f}({{}})" for f in ("tanh", "atan", "erf", "sigmoid", "floor", "ceil", "round", "abs")),
)
"""Of floats, where they are finite and their error is bounded."""


@dataclass(frozen=True)
class Ty:
    dtype: str
    shape: Any = None  # (rows, columns), or None of a scalar


BITS = {"index": 64, "i1": 1, **{d: int(d[1:]) for d in DT}}


class Expressions:
    """The text of expressions of a type, over the names that are bound so far."""

    def __init__(self, rng: Random, size: int = 8):
        self.rng, self.depth = rng, 1
        self.lines: list[str] = []
        self.env: dict[str, Ty] = {}
        self.count = 0
        self.helpers: list[str] = []
        self.functions: list[tuple[str, list[Ty], list[Ty]]] = []
        self.inloop = 0
        self.outs: list[tuple[str, Ty]] = []
        self.size = size
        self.pure = False

    # -- small choices
    def pick(self, xs: Any) -> Any:
        return self.rng.choice(list(xs))

    def chance(self, p):
        return self.rng.random() < p

    def new(self, base="v"):
        self.count += 1
        return f"{base}{self.count}"

    def say(self, text):
        self.lines.append("    " * self.depth + text)

    def ty(self):
        if self.chance(0.45):
            return Ty(
                self.pick(
                    (
                        "index",
                        "index",
                        "index",
                        "i32",
                        "i64",
                        "u8",
                        "i16",
                        "u32",
                        "i8",
                        "u64",
                        *FLOATS,
                    )
                )
            )
        return Ty(
            self.pick((*DT, *FLOATS, *FLOATS)),
            self.pick(((1, 8), (8, 1), (4, 8), (4, 8), (8, 4), (1, 16), (3, 5))),
        )

    def op(self, dtype, of="+-*^&|"):
        return self.pick([o for o in of if o in "+-*" or dtype not in FLOATS])

    def known(self, ty):
        return [n for n, t in self.env.items() if t == ty]

    def const(self, dtype):
        if dtype == "i1":
            return self.pick(("True", "False"))
        if dtype in FLOATS:
            return self.pick(("0", "1", "-2", "0.5", "-1.25", "3.0", "0.0625"))
        lo = 0 if dtype[0] == "u" else -3
        return (
            str(self.rng.randint(lo, 7))
            if self.chance(0.8)
            else str(self.pick((100, 127, 63, 0, 1)))
        )

    # -- expressions
    def cond(self, d=2):
        """A run-time scalar condition."""
        kind = (
            self.pick(
                (
                    "cmp",
                    "cmp",
                    "cmp",
                    "in",
                    "range",
                    "chain",
                    "and",
                    "or",
                    "not",
                    "flag",
                    "num",
                    "const",
                )
            )
            if d > 0
            else "cmp"
        )
        t = Ty(self.pick(("index", "i32", "u8", "i64")))
        if kind == "cmp" and self.chance(0.2):
            t = Ty(self.pick(FLOATS))
        if kind == "cmp":
            return f"{self.expr(t, d - 1)} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {self.pick((self.const(t.dtype), self.expr(t, d - 1)))}"
        if kind == "in":
            return f"{self.atom(t)} {self.pick(('in', 'not in'))} ({self.const(t.dtype)}, {self.expr(t, 0)}, {self.const(t.dtype)})"
        if kind == "range":
            return f"{self.expr(Ty('index'), d - 1)} {self.pick(('in', 'not in'))} range({self.const('index')}, {self.expr(Ty('index'), 0)}, {self.pick((1, 2, 3, -1, -2))})"
        if kind == "chain":
            return f"{self.const(t.dtype)} {self.pick(('<', '<='))} {self.expr(t, d - 1)} {self.pick(('<', '<=', '!='))} {self.expr(t, 0)}"
        if kind in ("and", "or"):
            return f"({self.cond(d - 1)}) {kind} ({self.cond(d - 1)})"
        if kind == "not":
            return f"not ({self.cond(d - 1)})"
        if kind == "flag" and not self.pure:
            return "flag"
        if kind == "num":
            return f"({self.expr(t, d - 1)})"
        return self.pick(
            ("True", "False", "1 < 2", "not 3")
            if self.pure
            else ("True", "P == 2", "P > 2", "not P")
        )

    def atom(self, ty):
        known = self.known(ty)
        if known and self.chance(0.85):
            return self.pick(known)
        return self.leaf(ty)

    def leaf(self, ty):
        d = ty.dtype
        if ty.shape is None:
            if d == "index":
                o = ["tw.program_id(0)", "tw.program_id(1)", "tw.num_programs(0)"]
                if not self.pure:
                    o += ["n", "n", "X.shape[0]", "V.shape[0]", "C.shape[2]"]
                return self.pick(o)
            own = [a for a, (t, _) in ARRAYS.items() if t == d] if not self.pure else []
            named = [a for a, t in NUMBERS.items() if t == d] if not self.pure else []
            if own and self.chance(0.7):
                return self.element(self.pick(own))
            if named:
                return self.pick(named)
            return f"tw.program_id({self.rng.randint(0, 1)}).to(tw.{d})"
        if d == "i1":
            return self.mask(ty, 1)
        own = [a for a, (t, _) in ARRAYS.items() if t == d and a != "V"] if not self.pure else []
        if own and self.chance(0.7):
            return self.load(self.pick(own), ty.shape)
        if d == "i64" and not self.pure and self.chance(0.6):
            return f"tw.load_gather(tw.init_tile(V, {self.expr(Ty(self.pick(('i64', 'i32', 'u8')), ty.shape), 1)} % 16))"
        r, c = ty.shape
        return self.pick(
            (
                f"tw.full({ty.shape}, {self.const(d)}, tw.{d})",
                f"tw.zeros({ty.shape}, tw.{d})",
                f"tw.full({ty.shape}, {self.expr(Ty('index'), 0)}, tw.{d})",
                f"tw.arange(0, {c}, axis=1, shape={ty.shape}).to(tw.{d})",
                f"tw.arange(2, {r + 2}, axis=0, shape={ty.shape}).to(tw.{d})",
                f"(tw.arange({r})[:, None] * {self.rng.randint(1, 9)} + tw.arange({c})[None, :]).to(tw.{d})",
            )
        )

    def element(self, a):
        return f"{a}[{', '.join(self.small(e) for e in ARRAYS[a][1])}]"

    def small(self, extent):
        """An index around an extent."""
        t = self.pick(("const", "id", "expr", "expr"))
        if t == "const":
            return str(self.rng.randint(0, extent))
        if t == "id":
            return f"tw.program_id({self.rng.randint(0, 1)}) + {self.rng.randint(0, extent)}"
        return f"{self.paren(self.expr(Ty('index'), 1))} % {extent + 1}"

    def place(self, a, shape):
        *lead, r, c = (1, *ARRAYS[a][1]) if len(ARRAYS[a][1]) == 1 else ARRAYS[a][1]
        at = [self.small(e) for e in lead]
        for e, s in ((r, shape[0]), (c, shape[1])):
            at.append(
                self.pick(
                    (
                        f"tw.program_id({self.rng.randint(0, 1)}) * {s}",
                        str(self.rng.randint(-2, e)),
                        self.small(e),
                    )
                )
            )
        return at[1:] if len(ARRAYS[a][1]) == 1 else at

    def load(self, a, shape):
        at = self.place(a, shape)
        base = a
        if self.chance(0.2):
            sh = ", ".join(self.pick(("None", self.small(e))) for e in ARRAYS[a][1])
            base = f"tw.view({a}, [{', '.join(self.small(e) for e in ARRAYS[a][1])}], [{sh}])"
        pad = f", padding={self.const(ARRAYS[a][0])}" if self.chance(0.4) else ""
        mask = f", {self.expr(Ty('i1', shape), 1)}" if self.chance(0.25) else ""
        tile = f"tw.init_tile({base}, [{', '.join(at)}], {shape})"
        if self.chance(0.15):
            tile = f"tw.update_tile_offset({tile}, [{self.small(2)}, {self.small(3)}])"
        return f"tw.load_tile({tile}{mask}{pad})"

    def paren(self, e):
        return f"({e})"

    def expr(self, ty, d=3):
        if d <= 0 or self.chance(0.15):
            return self.atom(ty)
        return (
            self.mask
            if ty.dtype == "i1" and ty.shape
            else self.scalar
            if ty.shape is None
            else self.tile
        )(ty, d)

    def arith(self, ty, d, x, y):
        if ty.dtype in FLOATS:
            k = self.pick("++--**/mf")
            if k == "f":
                return f"tw.fma({x}, {y}, {self.const(ty.dtype)})"
            if k == "m":
                return f"tw.{self.pick(('max', 'min'))}imum({x}, {y})"
            y = f"(tw.abs({y}) + {self.pick((1, 0.5))})" if k == "/" else y
            return (
                f"({x} {k} {y if self.chance(0.75) else self.const(ty.dtype) if k != '/' else 4})"
            )
        # Numbers of compile time are Python's, without bounds: indices stay far from them.
        b = 16 if ty.dtype == "index" else BITS[ty.dtype]
        k = self.pick(
            (
                "+",
                "-",
                "*",
                "+",
                "-",
                "*",
                "&",
                "|",
                "^",
                "//",
                "%",
                "<<",
                ">>",
                "//v",
                "%v",
                "<<v",
                ">>v",
            )
        )
        if k in ("//", "%"):
            c = self.pick((1, 2, 3, 4, 7, 8, 10)) * (
                1 if ty.dtype[0] == "u" or self.chance(0.8) else -1
            )
            return f"({x} {k} {c})"
        if k in ("<<", ">>"):
            return f"({x} {k} {self.rng.randint(0, b - 1)})"
        if k == "//v" or k == "%v":
            return f"({x} {k[:-1]} ({y} % 5 + 1))"
        if k in ("<<v", ">>v"):
            return f"({x} {k[:-1]} ({y} & {b - 1}))"
        if self.chance(0.25):
            y = self.const(ty.dtype)
        return f"({x} {k} {y})" if self.chance(0.85) else f"({y} {k} {x})"

    def scalar(self, ty, d):
        k = self.pick(
            ("arith",) * 6
            + (
                "cond",
                "min",
                "max",
                "to",
                "neg",
                "item",
                "sumlist",
                "call",
                "max3",
                "ifcount",
                "inv",
                "pow",
            )
        )
        e = lambda dd=d - 1: self.expr(ty, dd)
        if ty.dtype == "i1":
            return f"({self.cond(1)})"
        if k == "arith":
            return self.arith(ty, d, e(), e())
        if k == "cond":
            return f"({e()} if {self.cond(d - 1)} else {e()})"
        if k in ("min", "max"):
            return f"{k}({e()}, {e()})"
        if k == "max3":
            return f"max({e()}, {self.atom(ty)}, {self.atom(ty)})"
        if k in UNARY:
            return self.unary(k, lambda: self.atom(ty), ty.dtype)
        if k == "to" and ty.dtype != "index":
            return f"{self.atom(Ty(self.pick(('index', 'i32', 'u8', 'i64'))))}.to(tw.{ty.dtype})"
        if k == "item" and ty.dtype != "index":
            s = self.pick(((1, 8), (4, 8), (8, 1)))
            return (
                f"tw.{self.pick(('sum', 'max', 'min'))}({self.expr(Ty(ty.dtype, s), d - 2)}).item()"
            )
        if k == "sumlist" and ty.dtype == "index":
            v = self.new("q")
            self.env[v] = Ty("index")
            t = f"sum([{self.expr(ty, 1)} for {v} in range({self.rng.randint(1, 4)})])"
            del self.env[v]
            return t
        if k == "call":
            return self.call(ty) or e()
        return e()

    def unary(self, k, of, dtype):
        if k == "inv" and dtype in FLOATS:
            return self.pick(FUNCTIONS).format(of())
        if k == "pow":
            return f"({of()} ** {self.rng.randint(0, 3)})"
        return f"({'-' if k == 'neg' else '~'}{of()})"

    def call(self, ty):
        fit = [f for f in self.functions if f[2] == [ty]]
        if not fit:
            return None
        name, params, _ = self.pick(fit)
        return f"{name}({', '.join(self.atom(p) for p in params)})"

    def mask(self, ty, d):
        k = self.pick(("cmp", "cmp", "cmp", "and", "or", "xor", "not", "col", "any"))
        if k == "any" and 1 in ty.shape:
            big, axis = ((3, ty.shape[1]), 0) if ty.shape[0] == 1 else ((ty.shape[0], 4), 1)
            x = self.expr(Ty(self.pick((*DT, "i1") if d > 1 else DT), big), d - 1)
            return f"tw.{self.pick(('any', 'all'))}({x}, {axis})"
        if k in ("cmp", "any"):
            t = Ty(self.pick((*DT, *FLOATS)), ty.shape)
            return f"({self.expr(t, d - 1)} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {self.pick((self.const(t.dtype), self.atom(t)))})"
        if k == "not":
            return f"(~{self.expr(ty, d - 1)})"
        if k == "col":
            return f"((tw.arange({ty.shape[0]})[:, None] {self.pick(('<', '>='))} {self.expr(Ty('index'), 1)}) {self.pick('&|^')} (tw.arange({ty.shape[1]})[None, :] {self.pick(('<', '!='))} {self.expr(Ty('index'), 0)}))"
        return f"({self.expr(ty, d - 1)} {dict(zip(('and', 'or', 'xor'), '&|^'))[k]} {self.expr(ty, d - 1)})"

    def tile(self, ty, d):
        (r, c), t = ty.shape, ty.dtype
        e = lambda s=ty.shape, tt=t, dd=d - 1: self.expr(Ty(tt, s), dd)
        k = self.pick(
            ("arith",) * 6
            + (
                "where",
                "where",
                "min",
                "max",
                "to",
                "neg",
                "inv",
                "transpose",
                "reshape",
                "reduce",
                "bcast",
                "interleave",
                "bc",
                "scalar",
                "mma",
                "call",
                "mask",
                "abs",
                "whereS",
                "pow",
                "outer",
                "inv",
                "inv",
            )
        )
        if k == "arith":
            return self.arith(ty, d, e(), e())
        if k == "bc":
            return self.arith(ty, d, e(), e(self.pick(((r, 1), (1, c)))))
        if k == "outer":
            return f"({e((r, 1))} {self.op(t, '+-*^')} {e((1, c))})"
        if k == "scalar":
            s = self.pick(("index", t))
            y = self.expr(Ty(s), 1)
            return f"({e()} {self.op(t)} {y})"
        if k == "where":
            return f"tw.where({self.expr(Ty('i1', self.pick((ty.shape, ty.shape, (r, 1), (1, c)))), d - 1)}, {e()}, {self.pick((e(), self.const(t)))})"
        if k == "whereS":
            return f"({e()} if {self.cond(1)} else {e()})"
        if k in ("min", "max"):
            return f"tw.{k}imum({e()}, {self.pick((e(), self.const(t)))})"
        if k == "to":
            of = self.pick((*DT, *FLOATS))
            x = self.paren(self.expr(Ty(of, ty.shape), d - 1))
            if of in FLOATS and t not in FLOATS:
                x = f"tw.minimum(tw.maximum({x}, {-90 if t[0] == 'i' else 0}), 99)"
            return f"{x}.to(tw.{t})"
        if k == "mask":
            return f"{self.paren(self.expr(Ty('i1', ty.shape), d - 1))}.to(tw.{t})"
        if k in UNARY:
            return self.unary(k, e, t)
        if k == "abs" and t[0] != "u":
            return f"tw.abs({e()})"
        if k == "transpose":
            return f"tw.transpose({e((c, r))})"
        if k == "reshape":
            return f"tw.reshape({e(self.pick(((c, r), (1, r * c), (r * c, 1))))}, {ty.shape})"
        if k == "reduce" and (r == 1 or c == 1):
            f = ("tw.sum", "tw.max", "tw.min", "tw.prod", "xor", "or", "and")
            f = self.pick(f[:4] if t in FLOATS else f)
            big, axis = ((8, c), 0) if r == 1 else ((r, 4), 1)
            x = e(big, "i1") if f == "tw.sum" and t == "i32" and self.chance(0.3) else e(big)
            return f"{f}({x}, {axis})" if "." in f else f'tw.reduction("{f}", {x}, {axis})'
        if k == "bcast" and r > 1:
            return f"tw.broadcast({e((1, c))}, 0, {r})"
        if k == "interleave" and c % 2 == 0:
            h = (r, c // 2)
            if self.chance(0.5):
                return f"tw.interleave({e(h)}, {e(h)})"
            if c <= 8:
                return f"tw.deinterleave({e((r, 2 * c))})[{self.rng.randint(0, 1)}]"
        if k == "mma" and t in ("i32", "f32"):
            kk = self.pick((4, 8, 16, 3))
            a, b = self.pick((("i8", "i8"), ("u8", "u8"), ("u8", "i8")))
            a, b = (self.pick(FLOATS),) * 2 if t == "f32" else (a, b)
            acc = f", {e()}" if self.chance(0.5) else ""
            return f"tw.tile_mma({e((r, kk), a)}, {e((kk, c), b)}{acc})"
        if k == "call":
            return self.call(ty) or e()
        return e()
