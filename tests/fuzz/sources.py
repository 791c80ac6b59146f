"""Random kernels as text, in the Python that docs/language.md lists.

`tests.fuzz.eager` runs the same text as plain Python.
"""

# ruff: noqa: E501, B905
# pyright: basic

from __future__ import annotations

from tests.fuzz.expressions import ARRAYS, FLOATS, NUMBERS, Expressions, Ty

PLACES = ((1, 8), (4, 8), (8, 1), (3, 5))


class Source(Expressions):
    """A kernel and its helpers, statement by statement; the program of a subgroup where these are counted."""

    subgroups = 0

    def memory(self):
        """An array that each program has a part of, and its dtype."""
        return self.pick((("G", "i32"), ("GF", "f32")))

    def part(self):
        return f"[me, tw.program_id(1), {self.small(6)}, {self.small(10)}]"

    def body(self, count):
        before = dict(self.env)
        start = len(self.lines)
        for _ in range(count):
            self.statement()
        if len(self.lines) == start:
            self.say("pass")
        return before

    def assign(self, fresh=None):
        names = [v for v in self.env if v not in NUMBERS and not v.startswith(("i_", "q"))]
        if names and (fresh is False or (fresh is None and self.chance(0.6))):
            v = self.pick(names)
            ty = self.env[v]
            if self.chance(0.3):
                self.say(f"{v} {self.op(ty.dtype)}= {self.expr(ty, 2)}")
                return
            if self.chance(0.25):
                same = [w for w in names if self.env[w] == ty and w != v]
                if same:
                    w = self.pick(same)
                    self.say(
                        f"{v}, {w} = {self.expr(ty, 2)}, {self.expr(ty, 1)}"
                        if self.chance(0.5)
                        else f"{v}, {w} = {w}, {v}"
                    )
                    return
            self.say(f"{v} = {self.expr(ty, 3)}")
            return
        ty = self.ty()
        v = self.new()
        e = self.expr(ty, 3)
        if self.chance(0.1):
            self.say(f"{v} = w_ = {e}")
        else:
            self.say(f"{v} = {e}")
        self.env[v] = ty

    def statement(self):
        k = self.pick(
            ("assign",) * 7
            + (
                "if",
                "if",
                "for",
                "for",
                "while",
                "static",
                "tuple",
                "call",
                "break",
                "scatter",
                "atomic",
                "write",
                "elem",
                "rmw",
                "forin",
            )
        )
        if self.depth > 4 and k in ("if", "for", "while", "static", "forin"):
            k = "assign"
        if k == "assign":
            self.assign()
        elif k == "if":
            c = self.cond()
            self.say(f"if {c}:")
            self.depth += 1
            env = self.body(self.rng.randint(1, 3))
            self.env = dict(env)
            self.depth -= 1
            if self.chance(0.25):
                self.say(f"elif {self.cond()}:")
                self.depth += 1
                self.body(self.rng.randint(1, 2))
                self.env = dict(env)
                self.depth -= 1
            if self.chance(0.6):
                self.say("else:")
                self.depth += 1
                self.body(self.rng.randint(1, 2))
                self.env = dict(env)
                self.depth -= 1
            self.env = env
        elif k in ("for", "static", "forin"):
            i = self.new("i_")
            if k == "static":
                self.say(
                    f"for {i} in tw.static_range({self.rng.randint(0, 1)}, {self.rng.randint(1, 4)}):"
                )
                loop = 0
            elif k == "forin":
                t = Ty("index")
                self.say(f"for {i} in ({self.expr(t, 1)}, {self.expr(t, 1)}, {self.expr(t, 0)}):")
                loop = 0
            else:
                a, b = self.pick(("0", self.expr(Ty("index"), 1))), self.expr(Ty("index"), 2)
                self.say(
                    self.pick(
                        (
                            f"for {i} in range({b} % 6):",
                            f"for {i} in range({a} % 3, {b} % 9, {self.pick((1, 2, 3))}):",
                            f"for {i} in range({b} % 7, {a} % 3 - 1, {self.pick((-1, -2))}):",
                            f"for {i} in range(3):",
                        )
                    )
                )
                loop = 1
            env = dict(self.env)
            self.env[i] = Ty("index")
            was, self.inloop = self.inloop, loop
            self.depth += 1
            self.body(self.rng.randint(1, 3))
            self.depth -= 1
            self.inloop = was
            self.env = env
        elif k == "while":
            w = self.new("i_")
            self.say(f"{w} = tw.program_id(0) - 1")
            env = dict(self.env)
            self.say(f"while {w} < {self.rng.randint(1, 5)} and ({self.cond(1)}):")
            self.env[w] = Ty("index")
            self.depth += 1
            self.say(f"{w} += 1")
            was, self.inloop = self.inloop, 1
            self.body(self.rng.randint(1, 3))
            self.inloop = was
            self.depth -= 1
            self.env = env
        elif k == "break" and self.inloop:
            self.say(f"if {self.cond(1)}: {self.pick(('break', 'continue'))}")
        elif k == "tuple":
            a, b = self.ty(), self.ty()
            x, y = self.new(), self.new()
            self.say(
                self.pick(
                    (
                        "{x}, {y} = {a}, {b}",
                        "({x}, {y}) = ({a}, {b})",
                        "t_ = ({a}, {b})\n" + "    " * self.depth + "{x}, {y} = t_",
                    )
                ).format(x=x, y=y, a=self.expr(a, 2), b=self.expr(b, 2))
            )
            self.env[x], self.env[y] = a, b
        elif k == "call" and self.functions:
            name, params, results = self.pick(self.functions)
            names = [self.new() for _ in results]
            self.say(f"{', '.join(names)} = {name}({', '.join(self.expr(p, 1) for p in params)})")
            self.env.update(zip(names, results))
        elif k == "scatter" and not self.pure:
            s, (to, t) = self.pick(PLACES), self.pick((("W", "i32"), ("WF", "f32")))
            at = f"(tw.arange({s[0]})[:, None] * {s[1]} + tw.arange({s[1]})[None, :]) * {self.pick((1, 2))} + mine"
            m = f", {self.expr(Ty('i1', s), 1)}" if self.chance(0.6) else ""
            self.say(f"tw.store_scatter({self.expr(Ty(t, s), 2)}, tw.init_tile({to}, {at}){m})")
        elif k == "atomic" and not self.pure:
            s, (to, t) = self.pick(PLACES), self.pick((("H", "i32"), ("HF", "f32")))
            m = f", {self.expr(Ty('i1', s), 1)}" if self.chance(0.6) else ""
            self.say(
                f'tw.atomic_rmw("add", {self.expr(Ty(t, s), 2)}, tw.init_tile({to}, {self.expr(Ty(self.pick(("i32", "i64", "u8")), s), 2)} % 32){m})'
            )
        elif k == "write" and not self.pure:
            s, (to, t) = self.pick(PLACES), self.memory()
            m = f", {self.expr(Ty('i1', s), 1)}" if self.chance(0.5) else ""
            self.say(
                f"tw.store_tile({self.pick((self.expr(Ty(t, s), 2), self.const(t)))}, tw.init_tile({to}, {self.part()}, {s}){m})"
            )
        elif k == "elem" and not self.pure:
            to, t = self.memory()
            self.say(
                f"{to}{self.part()} {self.pick(('=', '+=', '*=' if t in FLOATS else '^='))} {self.expr(Ty(t), 2)}"
            )
        elif k == "rmw" and not self.pure:
            s, (to, t) = self.pick(PLACES), self.memory()
            v = self.new()
            self.say(f"{v} = tw.load_tile(tw.init_tile({to}, {self.part()}, {s}))")
            self.env[v] = Ty(t, s)
        else:
            self.assign()

    def function(self):
        name = f"f{len(self.functions)}"
        params = [self.ty() for _ in range(self.rng.randint(1, 3))]
        keep = self.env, self.lines, self.depth, self.pure, self.inloop
        self.env = {f"a{i}": t for i, t in enumerate(params)}
        self.lines = []
        self.depth = 1
        self.pure = True
        self.inloop = 0
        results = [self.ty() for _ in range(self.rng.randint(1, 2))]
        self.body(self.rng.randint(0, 3))

        def ret():
            return "return " + ", ".join(self.expr(t, 2) for t in results)

        if self.chance(0.4):
            self.say(f"if {self.cond(1)}:")
            self.depth += 1
            self.say(ret())
            self.depth -= 1
        self.say(ret())
        self.helpers += [
            f"def {name}({', '.join(f'a{i}' for i in range(len(params)))}):",
            *self.lines,
            "",
        ]
        self.env, self.lines, self.depth, self.pure, self.inloop = keep
        self.functions.append((name, params, results))

    def build(self):
        for _ in range(self.rng.randint(0, 2)):
            self.function()
        self.env = {k: Ty(t) for k, t in NUMBERS.items() if t != "i1"}
        row = "tw.program_id(0)"
        self.say(
            f"me = {row} * {self.subgroups} + tw.subgroup_id()" if self.subgroups else f"me = {row}"
        )
        self.say("mine = (me * 3 + tw.program_id(1)) * 64")
        for _ in range(self.rng.randint(2, self.size)):
            self.statement()
        if self.chance(0.2):
            self.say(f"if {self.cond(1)}:")
            self.say("    return")
        vs = [v for v in self.env if v not in NUMBERS]
        for j, v in enumerate(vs[-4:]):
            t = self.env[v]
            self.outs.append((v, t))
            if t.shape is None:
                self.say(f"Y{j}[me, tw.program_id(1)] = {v}")
            else:
                self.say(
                    f"tw.store_tile({v}, tw.init_tile(Y{j}, [me * {t.shape[0]}, tw.program_id(1) * {t.shape[1]}], {t.shape}))"
                )
        params = [
            *ARRAYS,
            *("W", "H", "G", "WF", "HF", "GF"),
            *[f"Y{j}" for j in range(len(self.outs))],
            *[f"{k}: tw.{t}" if t in ("i32",) else k for k, t in NUMBERS.items()],
            "P: tw.constexpr = 2",
        ]
        level = f'(level="subgroup", subgroups={self.subgroups})' if self.subgroups else ""
        return "\n".join(
            [
                *self.helpers,
                f"@tw.kernel{level}",
                f"def kernel({', '.join(params)}):",
                *self.lines,
                "",
            ]
        )
