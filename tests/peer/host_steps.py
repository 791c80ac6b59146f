# ruff: noqa: E501
"""The steps of random programs for MLIR's runner that loop and branch, and structured ops; and the strategy that draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.peer.host_programs import (
    COMPARE,
    EXACT,
    KEPT,
    Drawing,
    Memory,
    Value,
)
from tests.peer.host_vectors import VECTORS
from tests.peer.values import Shape

Step = Callable[[Drawing], None]


def load(d: Drawing) -> None:
    d.load()


# Control flow.
def region(d: Drawing, steps: int, *known: Value) -> None:
    d.depth += 1
    d.values += known
    for _ in range(d.draw(st.integers(0, steps))):
        d.pick(STEPS)(d)


def body(
    d: Drawing, like: list[Value], *known: Value, end: str = "scf.yield", steps: int = 2
) -> None:
    """A region that yields values of the types of `like`."""
    values, memory = [*d.values], [*d.memory]
    region(d, steps, *known)
    given: list[Value] = []
    for a in like:
        same = [v for v in d.values if v.type == a.type]
        given.append(d.within(same[-1] if same else d.made(a.shape, a.dtype), KEPT))
    names = ", ".join(v.name for v in given)
    d.line(f"{end} {names} : {', '.join(v.type for v in given)}" if given else end)
    d.depth -= 1
    d.values, d.memory = values, memory


def carried(d: Drawing) -> list[Value]:
    return [d.within(d.number(), KEPT) for _ in range(d.draw(st.integers(0, 2)))]


def named(d: Drawing, name: str, like: list[Value]) -> list[Value]:
    return [
        replace(a, name=f"{name}#{n}" if len(like) > 1 else name, bound=KEPT)
        for n, a in enumerate(like)
    ]


def loop(d: Drawing) -> None:
    start, end, by = d.below(3), d.below(6), d.index(d.pick((1, 2)))
    if d.depth > 3:
        return
    like, name = carried(d), d.fresh("r")
    inner = [replace(a, name=f"{name}_{n}", bound=KEPT) for n, a in enumerate(like)]
    given = ", ".join(f"{i.name} = {a.name}" for i, a in zip(inner, like, strict=True))
    types = ", ".join(a.type for a in like)
    several = f"{name}:{len(like)}" if len(like) > 1 else name
    head = f"scf.for {name}_i = {start.name} to {end.name} step {by.name}"
    head = f"{several} = {head} iter_args({given}) -> ({types})" if like else head
    d.line(f"{head} {{")
    body(d, like, Value(f"{name}_i", (), "index"), *inner)
    d.line("}")
    d.values += named(d, name, like)


def until(d: Drawing) -> None:
    """A loop that ends when its counter does, or when what it carries says so."""
    if d.depth > 3:
        return
    end, zero, one = d.below(5), d.index(0), d.index(1)
    a, name = d.within(d.number(), KEPT), d.fresh("w")
    types = f"index, {a.type}"
    d.line(
        f"{name}:2 = scf.while ({name}_i = {zero.name}, {name}_a = {a.name}) : ({types}) -> ({types}) {{"
    )
    d.line(f"  {name}_p = arith.cmpi ult, {name}_i, {end.name} : index")
    d.line(f"  scf.condition({name}_p) {name}_i, {name}_a : {types}")
    d.line("} do {")
    d.line(f"^bb0({name}_j: index, {name}_b: {a.type}):")
    values, memory = [*d.values], [*d.memory]
    region(d, 2, replace(a, name=f"{name}_b", bound=KEPT), Value(f"{name}_j", (), "index"))
    result = d.within([v for v in d.values if v.type == a.type][-1], KEPT)
    following = d.emit(f"arith.addi {name}_j, {one.name} : index", (), "index")
    d.line(f"scf.yield {following.name}, {result.name} : {types}")
    d.depth -= 1
    d.values, d.memory = values, memory
    d.line("}")
    d.values.append(replace(a, name=f"{name}#1", bound=KEPT))


def branch(d: Drawing) -> None:
    if d.depth > 3:
        return
    a = d.number(lambda v: not v.shape)
    if a.shape:
        a = d.made((), a.dtype)
    op, kinds = COMPARE[a.real]
    p = d.emit(f"arith.{op} {d.pick(kinds)}, {a.name}, {d.other(a).name} : {a.type}", (), "i1")
    like = carried(d)
    name, types = d.fresh("r"), ", ".join(v.type for v in like)
    several = f"{name}:{len(like)}" if len(like) > 1 else name
    kind = d.pick("if switch region")
    start = f"{several} = " if like else ""
    result = f" -> ({types})" if like else ""
    if kind == "if":
        d.line(f"{start}scf.if {p.name}{result} {{")
        body(d, like)
        if like or d.chance(2):
            d.line("} else {")
            body(d, like)
    elif kind == "switch":
        choice = d.below(3)
        d.line(f"{start}scf.index_switch {choice.name}{' -> ' + types if like else ''}")
        for case in ("case 0 {", "case 2 {", "default {"):
            d.line(case)
            body(d, like, steps=1)
            d.line("}")
        d.values += named(d, name, like)
        return
    else:
        d.line(f"{start}scf.execute_region{result} {{")
        body(d, like)
    d.line("}")
    d.values += named(d, name, like)


def places(d: Drawing) -> None:
    """Loops over all elements of an array, in any order: each becomes what another's and its own make."""
    m = d.pick([m for m in d.memory if len(m.shape) < 3] or d.memory)
    sources = [s for s in d.memory if s.root != m.root]
    if not sources or d.depth > 2 or d.vectors_only:
        return
    s, name, rank = d.pick(sources), d.fresh("p"), len(m.shape)
    kind = d.pick("parallel forall affine")
    indices = [f"{name}_{n}" for n in range(rank)]
    zero, one = d.index(0), d.index(1)
    ends = [d.index(n) for n in m.shape]
    known = ", ".join
    if kind == "parallel":
        d.line(
            f"scf.parallel ({known(indices)}) = ({known([zero.name] * rank)}) to ({known(e.name for e in ends)}) step ({known([one.name] * rank)}) {{"
        )
    elif kind == "forall":
        d.line(f"scf.forall ({known(indices)}) in ({known(str(n) for n in m.shape)}) {{")
    else:
        for index, n in zip(indices, m.shape, strict=True):
            d.line(f"affine.for {index} = 0 to {n} {{")
    values = [*d.values]
    d.depth += 1
    read = numbered(d, indices, m.shape, s.shape)
    access = "affine" if kind == "affine" else "memref"
    if kind == "affine" and {*read} <= {*indices} and d.chance(2):
        by = d.index(d.draw(st.integers(0, 5))).name
        at = known(
            f"({d.pick(SUBSCRIPTS).format(index, by)}) mod {n}"
            for n, index in zip(s.shape, read, strict=True)
        )
        x = d.emit(f"affine.load {s.name}[{at}] : {s.type}", (), s.dtype, KEPT)
    else:
        at = known(
            d.emit(
                f"affine.apply affine_map<(d0) -> ({d.pick(MAPS).format(n)})>({index})",
                (),
                "index",
            ).name
            for n, index in zip(s.shape, read, strict=True)
        )
        x = d.emit(f"memref.load {s.name}[{at}] : {s.type}", (), s.dtype, KEPT)
    own = d.emit(f"{access}.load {m.name}[{known(indices)}] : {m.type}", (), m.dtype, KEPT)
    d.values = [x, own]
    for _ in range(d.draw(st.integers(0, 3))):
        d.pick(SCALAR)(d)
    found = [v for v in d.values if v.dtype == m.dtype and not v.shape]
    result = d.within(found[-1], KEPT)
    d.line(f"{access}.store {result.name}, {m.name}[{known(indices)}] : {m.type}")
    if kind == "parallel":
        d.line("scf.reduce")
    d.values = values
    d.depth -= 1
    for _ in range(rank if kind == "affine" else 1):
        d.line("}")


def combined(d: Drawing) -> None:
    """What the elements of an array combine to, in a parallel loop."""
    m = d.pick(d.memory)
    if m.dtype in ("f16", "bf16") or d.depth > 2 or d.vectors_only:
        return
    real, name = m.dtype in EXACT, d.fresh("c")
    op = d.pick("maximumf minimumf" if real else "addi muli xori maxsi minui")
    start = d.within(d.made((), m.dtype), KEPT)
    zero, one = d.index(0), d.index(1)
    ends, rank = [d.index(n) for n in m.shape], len(m.shape)
    indices = ", ".join(f"{name}_{n}" for n in range(rank))
    zeros, ones = (", ".join([v.name] * rank) for v in (zero, one))
    most = ", ".join(e.name for e in ends)
    d.line(
        f"{name} = scf.parallel ({indices}) = ({zeros}) to ({most}) step ({ones}) init ({start.name}) -> {m.dtype} {{"
    )
    d.line(f"{name}_x = memref.load {m.name}[{indices}] : {m.type}")
    d.line(f"scf.reduce({name}_x : {m.dtype}) {{\n^bb0({name}_p: {m.dtype}, {name}_q: {m.dtype}):")
    d.line(f"{name}_r = arith.{op} {name}_p, {name}_q : {m.dtype}")
    d.line(f"scf.reduce.return {name}_r : {m.dtype}\n}}\n}}")
    d.values.append(Value(name, (), m.dtype, KEPT))


def numbered(d: Drawing, indices: Sequence[str], shape: Shape, other: Shape) -> list[str]:
    """Indices for another array: some of these, or the digits of an element's number."""
    if not d.draw(st.booleans()):
        return [d.pick(indices) for _ in other]
    extents = [", ".join(map(str, of)) for of in (shape, other[1:])]
    number = d.emit(
        f"affine.linearize_index [{', '.join(indices)}] by ({extents[0]}) : index", (), "index"
    )
    if len(other) < 2:
        return [number.name for _ in other]
    digits, types = d.fresh("d"), ", ".join(["index"] * len(other))
    d.line(
        f"{digits}:{len(other)} = affine.delinearize_index {number.name} into ({extents[1]}) : {types}"
    )
    return [f"{digits}#{n}" for n in range(len(other))]


SUBSCRIPTS = ("{0} + symbol({1})", "symbol({1}) - {0} * 2", "{0} * symbol({1}) + {0}", "{1} + {0}")
MAPS = ("d0 mod {0}", "(d0 * 3 + 1) mod {0}", "(d0 floordiv 2) mod {0}", "(-d0) mod {0}")


# Structured ops.
def structured(d: Drawing) -> None:
    if not d.structured or d.depth > 1:
        return
    m = d.pick(d.arguments)
    others = [o for o in d.arguments if o.root != m.root and o.dtype == m.dtype]
    kind = d.pick("fill generic reduce matmul map")
    if kind == "fill":
        a = d.within(d.made((), m.dtype), KEPT)
        d.line(f"linalg.fill ins({a.name} : {a.type}) outs({m.name} : {m.type})")
    elif kind == "map" and (same := [o for o in others if o.shape == m.shape]):
        o = d.pick(same)
        op = "arith.maximumf" if m.dtype in EXACT else d.pick("arith.muli arith.xori arith.maxui")
        d.line(
            f"linalg.map {{ {op} }} ins({m.name}, {o.name} : {m.type}, {o.type}) outs({m.name} : {m.type})"
        )
    elif kind == "matmul":
        matmul(d)
    elif others:
        generic(d, m, d.pick(others), kind == "reduce")


def generic(d: Drawing, m: Memory, o: Memory, sums: bool) -> None:
    """Each element of m with one of o, at some of its indices; or with all of o along the dimensions m lacks."""
    dims = [f"i{n}" for n in range(len(m.shape))]
    free, at, reduced = [*range(len(m.shape))], list[str](), list[int]()
    for n in o.shape:
        fitting = [f for f in free if m.shape[f] == n]
        if fitting and not (sums and d.chance(3)):
            free.remove(f := d.pick(fitting))
            at.append(f"i{f}")
        elif sums:
            at.append(f"r{len(reduced)}")
            reduced.append(n)
        else:
            at.append("0")
            if n < 1:
                return
    every = ", ".join([*dims, *(f"r{n}" for n in range(len(reduced)))])
    maps = f"[affine_map<({every}) -> ({', '.join(at)})>, affine_map<({every}) -> ({', '.join(dims)})>]"
    kinds = ", ".join(['"parallel"'] * len(dims) + ['"reduction"'] * len(reduced))
    d.line(
        f"linalg.generic {{indexing_maps = {maps}, iterator_types = [{kinds}]}} ins({o.name} : {o.type}) outs({m.name} : {m.type}) {{"
    )
    name = d.fresh("b")
    d.line(f"^bb0({name}_x: {o.dtype}, {name}_y: {m.dtype}):")
    values, memory = d.values, d.memory
    d.depth += 1
    d.memory = [s for s in memory if s.root != m.root]  # iterations run in any order
    d.values = [Value(f"{name}_x", (), o.dtype, KEPT)]
    if not reduced:
        d.values.append(Value(f"{name}_y", (), m.dtype, KEPT))
    for _ in range(d.draw(st.integers(0, 3))):
        d.pick(SCALAR)(d)
    result = d.within([v for v in d.values if v.dtype == m.dtype and not v.shape][-1], KEPT)
    if reduced:
        op = d.pick(
            "arith.maximumf arith.minimumf"
            if m.dtype in EXACT
            else "arith.addi arith.maxsi arith.xori arith.muli"
        )
        result = d.like(f"{op} {name}_y, {result.name} : TYPE", result)
    d.line(f"linalg.yield {result.name} : {m.dtype}")
    d.depth -= 1
    d.values, d.memory = values, memory
    d.line("}")


def matmul(d: Drawing) -> None:
    """Into an array of its own, of which a vector is read: sums are larger than what arrays hold."""
    dtype = d.pick("f32 i32 i8")
    m, n, k = (d.pick((1, 4, 5, 8)) for _ in range(3))
    a, b = (d.within(d.made(shape, dtype), KEPT) for shape in ((m, k), (k, n)))
    sums = "i32" if dtype == "i8" else dtype
    made: list[Memory] = []
    for name, shape, kind in (("x", a.shape, dtype), ("y", b.shape, dtype), ("z", (m, n), sums)):
        name = d.fresh(name)
        made.append(Memory(name, shape, kind, (shape[1], 1), 0, name))
        d.line(f"{name} = memref.alloc() : {made[-1].type}")
    zero = d.index(0)
    start = d.splat(1, Value("", (m, n), sums))
    for v, array in zip((a, b, start), made, strict=True):
        d.line(
            f"vector.transfer_write {v.name}, {array.name}[{zero.name}, {zero.name}] : {v.type}, {array.type}"
        )
    x, y, z = made
    d.line(f"linalg.matmul ins({x.name}, {y.name} : {x.type}, {y.type}) outs({z.name} : {z.type})")
    pad = d.splat(0, Value("", (), sums))
    d.add(
        f"vector.transfer_read {z.name}[{zero.name}, {zero.name}], {pad.name} : {z.type}, TYPE",
        (m, n),
        sums,
        KEPT * KEPT * k + 1,
    )


SCALAR: tuple[Step, ...] = (
    Drawing.binary,
    Drawing.integers,
    Drawing.unary,
    Drawing.cast,
    Drawing.select,
)
STEPS: tuple[Step, ...] = (
    *SCALAR,
    *(Drawing.binary, Drawing.indices, Drawing.view, Drawing.view, Drawing.store, Drawing.store),
    *((load,) * 3),
    *VECTORS,
    *(loop, until, branch, places, combined, structured, structured, structured),
)


@dataclass(frozen=True)
class Function:
    """The lines of a function's body, and its arguments, which it reads and writes."""

    lines: list[str]
    arguments: list[Memory]


@st.composite
def functions(draw: st.DrawFn, form: str, steps: int = 10) -> Function:
    d = Drawing(draw, form)
    d.load()
    for _ in range(draw(st.integers(2, steps))):
        d.pick(STEPS)(d)
    for _ in range(2):
        d.store()
    for m in d.arguments:
        keep(d, m)
    return Function(d.lines, d.arguments)


def keep(d: Drawing, m: Memory) -> None:
    """The newest value that fits an array is stored to it: else hardly any would be seen."""
    fitting = [v for v in d.values if v.dtype == m.dtype and 0 < len(v.shape) <= len(m.shape)]
    if fitting and len(d.values) > 1:
        a = d.within(fitting[-1], KEPT)
        at = ", ".join(d.index(0).name for _ in m.shape)
        d.line(f"vector.transfer_write {a.name}, {m.name}[{at}] : {a.type}, {m.type}")
