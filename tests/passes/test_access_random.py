"""Random loop nests, executed by hand: every access is where access analysis says that it is.

A program is drawn at random (arithmetic, tiles moved and made anew, nested for and while loops and
branches that carry scalars and tiles), run by a small interpreter for a random workgroup, and at every
load the analysis' expressions are evaluated with the loop counters of that moment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st
from xdsl.dialects import arith, gpu, memref, scf
from xdsl.ir import Block, Operation, SSAValue

from tests.texts import Lines
from tilewright.dialects import xetile
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.affine import Expr, Kind, Symbol

from .access_ir import analyse, tile


class Writer(Lines):
    """Writes a random program as text. All scalars are small and not negative."""

    def __init__(self, seed: int):
        super().__init__()
        self.random = random.Random(seed)

    def constant(self, low: int, high: int) -> str:
        return self.put(f"arith.constant {self.random.randint(low, high)} : index")

    def scalar(self, scalars: list[str]) -> str:
        """A new scalar from those in sight."""
        r = self.random
        a, b = r.choice(scalars), r.choice(scalars)
        match r.randrange(8):
            case 0 | 1:
                return self.put(f"arith.addi {a}, {b} : index")
            case 2:
                return self.put(f"arith.muli {a}, {self.constant(0, 4)} : index")
            case 3:
                return self.put(f"arith.divui {a}, {self.constant(1, 5)} : index")
            case 4:
                return self.put(f"arith.remui {a}, {self.constant(1, 7)} : index")
            case 5:
                return self.put(f"arith.{r.choice(['minui', 'maxui'])} {a}, {b} : index")
            case 6:
                flag = self.put(f"arith.cmpi {r.choice(['ult', 'eq', 'sge'])}, {a}, {b} : index")
                return self.put(f"arith.select {flag}, {a}, {b} : index")
            case _:
                return self.put(f"arith.addi {a}, {self.constant(1, 40)} : index")

    def small(self, scalars: list[str], most: int) -> str:
        """A scalar of at most ``most``, so that loops end soon."""
        bound = self.put(f"arith.constant {most + 1} : index")
        return self.put(f"arith.remui {self.random.choice(scalars)}, {bound} : index")

    def body(self, depth: int, scalars: list[str], tiles: list[str]) -> None:
        scalars, tiles = list(scalars), list(tiles)
        for _ in range(self.random.randint(2, 5)):
            match self.random.randrange(9):
                case 0 | 1 | 2:
                    scalars.append(self.scalar(scalars))
                case 3:
                    at = [self.random.choice(scalars) for _ in range(2)]
                    tiles.append(self.put(tile("%A", *at)))
                case 4:
                    tiles.append(self.moved(self.random.choice(tiles), scalars))
                case 5 | 6 if depth:
                    self.loop(depth - 1, scalars, tiles)
                case 7 if depth:
                    self.branch(depth - 1, scalars, tiles)
                case _:
                    self.load(self.random.choice(tiles))
        self.load(tiles[-1])

    def load(self, name: str) -> None:
        self.put(f"xetile.load_tile {name} : TILE -> VALUE")

    def moved(self, name: str, scalars: list[str]) -> str:
        r = self.random
        deltas = [r.choice([str(r.randint(0, 64)), r.choice(scalars)]) for _ in range(2)]
        return self.put(f"xetile.update_tile_offset {name}, [{', '.join(deltas)}] : TILE")

    def carried(self, scalars: list[str], tiles: list[str]) -> list[tuple[str, str]]:
        """(initial value, type) of one or two scalars and perhaps a tile."""
        r = self.random
        found = [(r.choice(scalars), "index") for _ in range(r.randint(1, 2))]
        return found + [(r.choice(tiles), "TILE") for _ in range(r.randint(0, 2))]

    def yields(
        self, types: list[str], args: list[str], scalars: list[str], tiles: list[str]
    ) -> str:
        """Values for the next iteration: mostly the argument moved on, at times anything in sight."""
        r = self.random
        same = {t: [a for a, u in zip(args, types, strict=True) if u == t] for t in types}
        values: list[str] = []
        for kind, arg in zip(types, args, strict=True):
            pool = scalars if kind == "index" else tiles
            match r.randrange(6):
                case 0:
                    values.append(arg)
                case 1:
                    values.append(r.choice(same[kind]))
                case 2:
                    values.append(r.choice(pool))
                case _ if kind == "index":
                    step = r.choice([self.constant(0, 32), r.choice(scalars)])
                    values.append(self.put(f"arith.addi {arg}, {step} : index"))
                case _:
                    values.append(self.moved(arg, scalars))
        return f"scf.yield {', '.join(values)} : {', '.join(types)}"

    def loop(self, depth: int, scalars: list[str], tiles: list[str]) -> None:
        init = self.carried(scalars, tiles)
        types = [t for _, t in init]
        args = [self.name() for _ in init]
        result, counter = self.name(), self.name()
        pairs = ", ".join(f"{a} = {v}" for a, (v, _) in zip(args, init, strict=True))
        results = f"({', '.join(types)})"
        inside = [a for a, t in zip(args, types, strict=True) if t == "index"]
        inside_tiles = [a for a, t in zip(args, types, strict=True) if t == "TILE"]
        if self.random.random() < 0.7:
            low, high = self.small(scalars, 2), self.small(scalars, 7)
            step = self.constant(1, 3)
            self.lines.append(
                f"{result}:{len(init)} = scf.for {counter} = {low} to {high} step {step} "
                f"iter_args({pairs}) -> {results} {{"
            )
            inside.append(counter)
        else:
            trips, start = self.small(scalars, 4), self.small(scalars, 3)
            stride = self.constant(1, 2)
            first = self.name()
            after, more, after_args = self.name(), self.name(), [self.name() for _ in args]
            self.lines += [
                f"{result}:{len(init) + 1} = scf.while ({first} = {start}, {pairs}) : "
                f"(index, {', '.join(types)}) -> (index, {', '.join(types)}) {{",
                f"{more} = arith.cmpi ult, {first}, {trips} : index",
                f"scf.condition({more}) {first}, {', '.join(args)} : index, {', '.join(types)}",
                "} do {",
                f"^bb{self.count}({after}: index, "
                + ", ".join(f"{a}: {t}" for a, t in zip(after_args, types, strict=True))
                + "):",
            ]
            renamed = dict(zip(args, after_args, strict=True))
            args = after_args
            inside = [renamed[a] for a in inside] + [after]
            inside_tiles = [renamed[a] for a in inside_tiles]
            counter = after
        self.body(depth, scalars + inside, tiles + inside_tiles)
        ending = self.yields(types, args, scalars + inside, tiles + inside_tiles)
        if f"{result}:{len(init) + 1}" in self.lines_text():
            following = self.put(f"arith.addi {counter}, {stride} : index")
            ending = ending.replace("scf.yield ", f"scf.yield {following}, ", 1)
            ending = ending.replace(" : ", " : index, ", 1)
            first_result = 1
        else:
            first_result = 0
        self.lines += [ending, "}"]
        for i, kind in enumerate(types):
            (scalars if kind == "index" else tiles).append(f"{result}#{i + first_result}")

    def lines_text(self) -> str:
        return "\n".join(self.lines)

    def branch(self, depth: int, scalars: list[str], tiles: list[str]) -> None:
        a, b = self.random.choice(scalars), self.random.choice(scalars)
        flag = self.put(f"arith.cmpi ult, {a}, {b} : index")
        result = self.name()
        self.lines.append(f"{result}:2 = scf.if {flag} -> (index, TILE) {{")
        for last in (False, True):
            self.body(depth, scalars, tiles)
            ends = self.scalar(scalars), self.moved(self.random.choice(tiles), scalars)
            self.lines.append(f"scf.yield {ends[0]}, {ends[1]} : index, TILE")
            self.lines.append("}" if last else "} else {")
        scalars.append(f"{result}#0")
        tiles.append(f"{result}#1")


class Run:
    """Executes a kernel for one workgroup; ``loads`` yields at each load, with the state then."""

    def __init__(
        self, analysis: AccessAnalysis, ids: tuple[int, int], sizes: tuple[int, int], arg: int
    ):
        self.analysis, self.ids, self.sizes = analysis, ids, sizes
        self.env: dict[SSAValue, object] = {}
        self.counters: dict[Symbol, int] = {}
        self.env[analysis.func.body.block.args[3]] = arg

    def loads(self) -> Iterator[xetile.LoadTileOp]:
        yield from self.block(self.analysis.func.body.block)

    def number(self, value: SSAValue | int) -> int:
        found = value if isinstance(value, int) else self.env[value]
        assert isinstance(found, int)
        return found

    def values(self, values) -> list[object]:
        return [self.env[v] for v in values]

    def block(self, block: Block) -> Iterator[xetile.LoadTileOp]:
        for op in block.ops:
            yield from self.op(op)

    def op(self, op: Operation) -> Iterator[xetile.LoadTileOp]:
        match op:
            case xetile.LoadTileOp():
                yield op
                return
            case scf.ForOp() | scf.WhileOp() | scf.IfOp():
                yield from self.region(op)
                return
            case scf.YieldOp() | scf.ConditionOp() | gpu.ReturnOp():
                return
            case arith.ConstantOp():
                result: object = op.value.value.data
            case gpu.BlockIdOp():
                result = self.ids["xy".index(op.dimension.data)]
            case memref.DimOp():
                result = self.sizes[self.number(op.index)]
            case xetile.InitTileOp():
                result = tuple(self.number(v) for v in op.mixed_offsets)
            case xetile.UpdateTileOffsetOp():
                at = self.env[op.tile]
                assert isinstance(at, tuple)
                deltas = map(self.number, op.mixed_offsets)
                result = tuple(x + d for x, d in zip(at, deltas, strict=True))
            case arith.SelectOp():
                result = self.env[op.lhs if self.env[op.cond] else op.rhs]
            case _:
                result = self.arithmetic(op)
        self.env[op.results[0]] = result

    def arithmetic(self, op: Operation) -> int:
        a, b = (self.number(v) for v in op.operands)
        match op:
            case arith.CmpiOp():
                return int(
                    [a == b, a != b, a < b, a <= b, a > b, a >= b, a < b][op.predicate.value.data]
                )
            case _:
                table = {
                    "addi": a + b, "muli": a * b, "minui": min(a, b), "maxui": max(a, b),
                    "divui": a // max(b, 1), "remui": a % max(b, 1),
                }  # fmt: skip
                return table[op.name.removeprefix("arith.")]

    def region(self, op: scf.ForOp | scf.WhileOp | scf.IfOp) -> Iterator[xetile.LoadTileOp]:
        match op:
            case scf.IfOp():
                block = (op.true_region if self.env[op.cond] else op.false_region).block
                yield from self.block(block)
                results = self.values(block.last_op.operands)
            case scf.ForOp():
                loop, block = self.analysis.loop(op), op.body.block
                results = self.values(op.iter_args)
                bounds = [self.number(v) for v in (op.lb, op.ub, op.step)]
                for n, i in enumerate(range(*bounds)):
                    self.counters[loop.counter] = n
                    self.env.update(zip(block.args, [i, *results], strict=True))
                    yield from self.block(block)
                    results = self.values(block.last_op.operands)
                self.check_trips(loop, len(range(*bounds)))
            case _:
                loop = self.analysis.loop(op)
                before, after = op.before_region.block, op.after_region.block
                state, n = self.values(op.arguments), 0
                while True:
                    self.counters[loop.counter] = n
                    self.env.update(zip(before.args, state, strict=True))
                    yield from self.block(before)
                    flag, *results = self.values(before.last_op.operands)
                    if not flag:
                        break
                    self.env.update(zip(after.args, results, strict=True))
                    yield from self.block(after)
                    state, n = self.values(after.last_op.operands), n + 1
                self.check_trips(loop, n)
        self.env.update(zip(op.results, results, strict=True))

    def check_trips(self, loop, trips: int) -> None:
        if loop.trips is not None:
            assert self.evaluate(loop.trips) == trips
        self.counters.pop(loop.counter, None)

    # Expressions, at this moment.
    def evaluate(self, expr: Expr) -> int:
        total = 0
        for monomial, factor in expr.terms.items():
            for symbol in monomial:
                factor *= self.symbol(symbol)
            total += factor
        return total

    def symbol(self, symbol: Symbol) -> int:
        value = self.meaning(symbol)
        assert symbol.lower is None or symbol.lower <= value, symbol
        assert symbol.upper is None or value <= symbol.upper, symbol
        return value

    def meaning(self, symbol: Symbol) -> int:
        key = symbol.key
        match symbol.kind:
            case Kind.PROGRAM_ID:
                return self.ids[key]
            case Kind.COUNTER:
                return self.counters[symbol]
            case Kind.EXTENT:
                return self.sizes[key[1]]
            case Kind.VALUE:
                return self.env[key]
            case _:
                args = [self.evaluate(a) for a in symbol.args]
                match key[0].partition(".")[0]:
                    case "floordiv" | "divu":
                        return args[0] // args[1]
                    case "mod" | "remu":
                        return args[0] % args[1]
                    case "ceildiv":
                        return -(-args[0] // args[1])
                    case "min" | "minu":
                        return min(args)
                    case "max" | "maxu":
                        return max(args)
                    case "select":
                        return args[1] if args[0] else args[2]
                    case "cmp":
                        a, b = args
                        return int(
                            [a == b, a != b, a < b, a <= b, a > b, a >= b, a < b][int(key[0][4:])]
                        )
                    case other:
                        raise AssertionError(f"no meaning for {other}")


def draw_program(seed: int) -> tuple[AccessAnalysis, str]:
    writer = Writer(seed)
    writer.put(tile("%A", "%m", "%s"))
    writer.body(3, ["%c8", "%m", "%n", "%x", "%s", "%K"], ["%v1"])
    text = "\n".join(writer.lines)
    return analyse(text, arguments="%s: index"), text


IDS = st.tuples(st.integers(0, 5), st.integers(0, 5))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), IDS, st.integers(0, 50))
@example(seed=481, ids=(0, 0), argument=0)  # tiles behind a loop that is rebuilt, at what it gives
def test_accesses_are_where_the_expressions_say(seed: int, ids: tuple[int, int], argument: int):
    analysis, text = draw_program(seed)
    run = Run(analysis, ids, (argument + 3, 5 * argument + 1), argument)
    for _, op in zip(range(400), run.loads(), strict=False):
        access = analysis.find(op)
        assert access is not None
        where = tuple(run.evaluate(e) for e in access.offsets)
        assert where == run.env[op.tile], f"{access} in\n{text}"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30), st.lists(IDS, min_size=2, max_size=4))
def test_accesses_depend_on_nothing_else(seed: int, workgroups: list[tuple[int, int]]):
    """Two executions that agree in what an access depends on, agree in where it goes."""
    analysis, text = draw_program(seed)
    seen: dict[tuple[object, ...], object] = {}
    for ids in workgroups:
        run = Run(analysis, ids, (37, 95), 11)
        for _, op in zip(range(200), run.loads(), strict=False):
            access = analysis.of(op)
            own = [i for axis, i in enumerate(ids) if access.depends_on(analysis.program_id(axis))]
            when = [run.counters[loop.counter] for loop in access.loops if access.depends_on(loop)]
            place = run.env[op.tile]
            assert seen.setdefault((op, *own, *when), place) == place, f"{access} in\n{text}"
