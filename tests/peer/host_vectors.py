# ruff: noqa: E501
"""The steps of random programs for MLIR's runner that make vectors of vectors and of memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from tests.peer.host_programs import (
    EXACT,
    EXTENTS,
    KEPT,
    LARGEST,
    MEMORY,
    SUMS,
    Drawing,
    Memory,
    Value,
)
from tests.peer.values import Shape, typed


def vector(d: Drawing, least: int = 1, where: Callable[[Value], bool] = lambda v: True) -> Value:
    """A vector of numbers."""
    found = d.value(lambda v: v.dtype in MEMORY and len(v.shape) >= least and where(v))
    if found is not None:
        return found
    shape = tuple(d.pick((2, 4, 8)) for _ in range(max(least, 1)))
    return d.made(shape, d.pick(MEMORY))


# What moves elements.
def broadcast(d: Drawing) -> None:
    a = d.number(lambda v: len(v.shape) < 3)
    inner = tuple(d.pick(EXTENTS) if n == 1 else n for n in a.shape)
    shape = (
        *(d.pick((1, 2, 4)) for _ in range(d.draw(st.integers(not inner, 3 - len(inner))))),
        *inner,
    )
    if math.prod(shape) <= LARGEST:
        d.add(f"vector.broadcast {a.name} : {a.type} to TYPE", shape, a.dtype, a.bound)


def shape_cast(d: Drawing) -> None:
    a = vector(d)
    count = math.prod(a.shape)
    rows = d.pick([n for n in range(1, count + 1) if count % n == 0])
    columns = d.pick([n for n in range(1, count // rows + 1) if (count // rows) % n == 0])
    shape = d.pick([(count,), (rows, count // rows), (rows, columns, count // rows // columns)])
    d.add(f"vector.shape_cast {a.name} : {a.type} to TYPE", shape, a.dtype, a.bound)


def transpose(d: Drawing) -> None:
    a = vector(d, 2)
    order = d.draw(st.permutations(range(len(a.shape))))
    shape = tuple(a.shape[n] for n in order)
    d.add(f"vector.transpose {a.name}, {[*order]} : {a.type} to TYPE", shape, a.dtype, a.bound)


def extract(d: Drawing) -> None:
    a = vector(d)
    deep = d.draw(st.integers(1, len(a.shape)))
    at = position(d, a.shape[:deep])
    value = Value("", a.shape[deep:], a.dtype)
    d.add(
        f"vector.extract {a.name}[{at}] : {value.type} from {a.type}",
        a.shape[deep:],
        a.dtype,
        a.bound,
    )


def position(d: Drawing, shape: Shape) -> str:
    """Numbers of the text, and the innermost maybe not."""
    known = [str(d.draw(st.integers(0, n - 1))) for n in shape]
    if d.chance(3):
        known[-1] = d.below(shape[-1]).name
    return ", ".join(known)


def insert(d: Drawing) -> None:
    a = vector(d)
    deep = d.draw(st.integers(1, len(a.shape)))
    part = d.made(a.shape[deep:], a.dtype)
    text = f"vector.insert {part.name}, {a.name}[{position(d, a.shape[:deep])}] : {part.type} into TYPE"
    d.add(text, a.shape, a.dtype, max(a.bound, part.bound))


def slices(d: Drawing) -> None:
    a = vector(d)
    rank = d.draw(st.integers(1, len(a.shape)))
    sizes = [d.draw(st.integers(1, n)) for n in a.shape[:rank]]
    at = [d.draw(st.integers(0, n - s)) for n, s in zip(a.shape, sizes, strict=False)]
    shape = (*sizes, *a.shape[rank:])
    stated = f"{{offsets = {at}, sizes = {sizes}, strides = {[1] * rank}}}"
    part = d.add(
        f"vector.extract_strided_slice {a.name} {stated} : {a.type} to TYPE",
        shape,
        a.dtype,
        a.bound,
    )
    b = d.other(a)
    at = [d.draw(st.integers(0, n - s)) for n, s in zip(a.shape, shape, strict=True)]
    stated = f"{{offsets = {at}, strides = {[1] * len(shape)}}}"
    text = f"vector.insert_strided_slice {part.name}, {b.name} {stated} : {part.type} into TYPE"
    d.add(text, a.shape, a.dtype, max(part.bound, b.bound))


def shuffle(d: Drawing) -> None:
    a = vector(d)
    b = d.other(a)
    count = 2 * a.shape[0]
    picked = d.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8))
    shape = (len(picked), *a.shape[1:])
    if math.prod(shape) <= LARGEST:
        text = f"vector.shuffle {a.name}, {b.name} {picked} : {a.type}, {b.type}"
        d.add(text, shape, a.dtype, max(a.bound, b.bound))


def interleave(d: Drawing) -> None:
    a = vector(d)
    if d.chance(2) and a.shape[-1] % 2 == 0:
        name, shape = d.fresh(), (*a.shape[:-1], a.shape[-1] // 2)
        d.line(f"{name}:2 = vector.deinterleave {a.name} : {a.type} -> {typed(shape, a.dtype)}")
        d.values += [replace(a, name=f"{name}#{n}", shape=shape) for n in (0, 1)]
    elif math.prod(a.shape) * 2 <= LARGEST:
        b = d.other(a)
        shape = (*a.shape[:-1], a.shape[-1] * 2)
        text = f"vector.interleave {a.name}, {b.name} : {a.type} -> TYPE"
        d.add(text, shape, a.dtype, max(a.bound, b.bound))


def elements(d: Drawing) -> None:
    a = vector(d)
    count = math.prod(a.shape)
    if count <= 8:
        name = d.fresh("e")
        d.line(f"{name}:{count} = vector.to_elements {a.name} : {a.type}")
        order = d.draw(st.permutations(range(count)))
        names = ", ".join(f"{name}#{n}" for n in order)
        d.add(f"vector.from_elements {names} : TYPE", a.shape, a.dtype, a.bound)


def bitcast(d: Drawing) -> None:
    a = vector(d, 1, lambda v: not v.real and v.dtype != "i8")
    half = {"i64": "i32", "i32": "i16", "i16": "i8"}.get(a.dtype)
    if half is not None:
        shape = (*a.shape[:-1], 2 * a.shape[-1])
        if math.prod(shape) <= LARGEST:
            d.add(f"vector.bitcast {a.name} : {a.type} to TYPE", shape, half)


def step(d: Drawing) -> None:
    a = d.emit("vector.step : TYPE", (d.pick(EXTENTS),), "index")
    d.values.append(a)
    d.add(f"arith.index_cast {a.name} : {a.type} to TYPE", a.shape, "i32")


# Sums.
def reduced(d: Drawing, kind: str, a: Value, count: int) -> tuple[Value, int]:
    """An operand of a sum of so many, and how large the sum may be."""
    if kind != "add" or not a.real:
        return a, a.bound
    a = d.within(a, max(EXACT[a.dtype] // (4 * count), KEPT))
    return a, a.bound * count


def reduction(d: Drawing) -> None:
    a = vector(d)
    kind = d.pick(SUMS[a.real])
    if len(a.shape) == 1 and d.chance(2):
        a, bound = reduced(d, kind, a, a.shape[0])
        acc = d.within(d.made((), a.dtype), KEPT) if d.chance(2) else None
        more = f", {acc.name}" if acc else ""
        d.add(
            f"vector.reduction <{kind}>, {a.name}{more} : {a.type} into {a.dtype}",
            (),
            a.dtype,
            bound + KEPT,
        )
        return
    dims = d.draw(st.sets(st.integers(0, len(a.shape) - 1), min_size=1))
    count = math.prod(a.shape[n] for n in dims)
    if a.dtype in ("f16", "bf16") and count > 8:
        return
    a, bound = reduced(d, kind, a, count)
    kept = tuple(n for p, n in enumerate(a.shape) if p not in dims)
    acc = d.within(d.made(kept, a.dtype), KEPT)
    core = f"vector.multi_reduction <{kind}>, {a.name}, {acc.name} {sorted(dims)} : {a.type} to {acc.type}"
    if d.chance(4):
        mask = d.mask(a.shape)
        core = f"vector.mask {mask.name} {{ {core} }} : {mask.type} -> {acc.type}"
    d.add(core, kept, a.dtype, bound + KEPT)


def scan(d: Drawing) -> None:
    a = vector(d)
    kind, dim = d.pick(SUMS[a.real]), d.draw(st.integers(0, len(a.shape) - 1))
    a, bound = reduced(d, kind, a, a.shape[dim])
    kept = (*a.shape[:dim], *a.shape[dim + 1 :])
    if not kept:
        return
    start = d.within(d.made(kept, a.dtype), KEPT)
    name, inclusive = d.fresh(), d.pick(("true", "false"))
    d.line(
        f"{name}:2 = vector.scan <{kind}>, {a.name}, {start.name} {{inclusive = {inclusive}, reduction_dim = {dim} : i64}} : {a.type}, {start.type}"
    )
    for value in (replace(a, name=f"{name}#0"), replace(start, name=f"{name}#1")):
        d.values.append(d.plain(replace(value, bound=bound + KEPT if a.real else 0)))


def contract(d: Drawing) -> None:
    """A product of matrices, batches of them, or with a vector, in any order of their dimensions, of several rows or
    sums; or what products combine to otherwise."""
    dims = d.pick(("m n k", "m k", "n k", "b m n k", "k", "m r n k", "m n k s")).split()
    extent = {name: d.pick((1, 2, 4, 5, 8)) for name in dims}
    while math.prod(extent.values()) > 4 * LARGEST:
        extent[max(extent, key=lambda name: extent[name])] = 2
    dtype = d.pick("f32 i32 i64")
    kind = "add" if d.chance(2) else d.pick(SUMS[dtype == "f32"])
    factors = [[n for n in dims if n != "n"], [n for n in dims if n not in ("m", "r")]]
    result = [n for n in dims if n not in ("k", "s")]
    factors = [d.draw(st.permutations(f)) for f in factors]
    result = d.draw(st.permutations(result)) if result else []
    a, b, c = (
        d.within(d.made(tuple(extent[n] for n in names), dtype), KEPT)
        for names in (*factors, result)
    )
    maps = ", ".join(
        f"affine_map<({', '.join(dims)}) -> ({', '.join(n)})>" for n in (*factors, result)
    )
    kinds = ", ".join('"reduction"' if n in ("k", "s") else '"parallel"' for n in dims)
    stated = (
        f"{{indexing_maps = [{maps}], iterator_types = [{kinds}], kind = #vector.kind<{kind}>}}"
    )
    text = (
        f"vector.contract {stated} {a.name}, {b.name}, {c.name} : {a.type}, {b.type} into {c.type}"
    )
    terms = math.prod(extent[n] for n in dims if n in ("k", "s"))
    d.add(text, c.shape, dtype, KEPT * KEPT * terms + KEPT)


def outer(d: Drawing) -> None:
    a = d.within(vector(d, 1, lambda v: len(v.shape) == 1), KEPT)
    if len(a.shape) > 1:
        return
    if d.chance(3):
        b = d.within(d.made((), a.dtype), KEPT)
        d.add(
            f"vector.outerproduct {a.name}, {b.name} : {a.type}, {b.type}",
            a.shape,
            a.dtype,
            KEPT * KEPT,
        )
        return
    b = d.within(d.made((d.pick((1, 2, 4)),), a.dtype), KEPT)
    shape = a.shape + b.shape
    kind = d.pick("add mul minimumf maxnumf" if a.real else "add mul minsi maxui xor")
    if kind == "mul" and a.real:
        return
    c = d.within(d.made(shape, a.dtype), KEPT)
    d.add(
        f"vector.outerproduct {a.name}, {b.name}, {c.name} {{kind = #vector.kind<{kind}>}} : {a.type}, {b.type}",
        shape,
        a.dtype,
        KEPT * KEPT + KEPT,
    )


# Vectors of memory.
def rows(d: Drawing) -> None:
    """vector.load, store, maskedload, expandload, gather and their like of a row that lies in memory."""
    wide = [m for m in d.memory if m.strides[-1] == 1 and m.shape[-1] >= 2]
    if not wide:
        return
    m = d.pick(wide)
    size = d.draw(st.integers(1, m.shape[-1]))
    before = [d.below(n).name for n in m.shape[:-1]]
    at = ", ".join([*before, d.below(m.shape[-1] - size + 1).name])
    kind, row = (
        d.pick("load maskedload expandload gather store maskedstore compressstore scatter"),
        Value("", (size,), m.dtype),
    )
    if kind == "load":
        d.add(f"vector.load {m.name}[{at}] : {m.type}, TYPE", (size,), m.dtype, KEPT)
        return
    a = d.within(d.made((size,), m.dtype), KEPT)
    if kind == "store":
        d.line(f"vector.store {a.name}, {m.name}[{at}] : {m.type}, {row.type}")
        return
    mask = d.mask((size,))
    if kind in ("maskedload", "expandload"):
        d.add(
            f"vector.{kind} {m.name}[{at}], {mask.name}, {a.name} : {m.type}, {mask.type}, {a.type} into TYPE",
            (size,),
            m.dtype,
            KEPT,
        )
        return
    if kind in ("maskedstore", "compressstore"):
        d.line(
            f"vector.{kind} {m.name}[{at}], {mask.name}, {a.name} : {m.type}, {mask.type}, {a.type}"
        )
        return
    order = d.draw(st.permutations(range(size)))
    places = d.emit(f"arith.constant dense<{[*order]}> : TYPE", (size,), d.pick("i32 index"))
    types = f"{m.type}, {places.type}, {mask.type}, {a.type}"
    if kind == "gather":
        d.add(
            f"vector.gather {m.name}[{at}] [{places.name}], {mask.name}, {a.name} : {types} into TYPE",
            (size,),
            m.dtype,
            KEPT,
        )
    else:
        d.line(f"vector.scatter {m.name}[{at}] [{places.name}], {mask.name}, {a.name} : {types}")


def atomic(d: Drawing) -> None:
    m = d.pick(d.memory)
    a = d.within(d.made((), m.dtype), KEPT)
    # MLIR 22 makes LLVM's of these.
    kind = d.pick(
        "maximumf minimumf assign" if m.dtype == "f32" else "addi andi ori maxs mins maxu minu"
    )
    if m.dtype in ("f16", "bf16") or d.vectors_only:
        return
    text = f"memref.atomic_rmw {kind} {a.name}, {m.name}[{d.at(m)}] : ({a.dtype}, {m.type}) -> TYPE"
    d.add(text, (), m.dtype, KEPT)


def copy(d: Drawing) -> None:
    if d.vectors_only:
        return
    m = d.pick(d.memory)
    same = [o for o in d.memory if (o.shape, o.dtype) == (m.shape, m.dtype) and o.root != m.root]
    if same:
        o = d.pick(same)
        d.line(f"memref.copy {m.name}, {o.name} : {m.type} to {o.type}")
        return
    new = Memory(d.fresh("m"), m.shape, m.dtype, replace(m, strides=()).strides, 0, "")
    strides = tuple(math.prod(m.shape[n + 1 :]) for n in range(len(m.shape)))
    new = replace(new, strides=strides, root=new.name)
    d.line(f"{new.name} = memref.alloca() : {new.type}")
    d.line(f"memref.copy {m.name}, {new.name} : {m.type} to {new.type}")
    d.memory.append(new)


VECTORS: tuple[Callable[[Drawing], None], ...] = (
    *(broadcast, shape_cast, transpose, extract, insert, slices, shuffle, interleave, elements),
    *(bitcast, step, reduction, reduction, scan, contract, outer, rows, rows, atomic, copy),
)
