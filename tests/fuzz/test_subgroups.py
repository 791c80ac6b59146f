# ruff: noqa: E501
"""Random programs of subgroups, in XeGPU and vector operations: the emulator and Xe's passes agree with the reference."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import examples
from tests.fuzz.test_programs import EXAMPLES
from tests.targets.emu.agree import same, subgroup_kernel
from tilewright import reference
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.xe import opencl

TYPES: dict[str, Any] = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
LIMITS = {"bf16": 2e-2, "f16": 2e-3, "f32": 1e-5}
OUT = (64, 64)
FLAT = OUT[0] * OUT[1]
KINDS = (
    "sum", "square", "turn", "slice", "reduce", "memory", "select",
    "load", "gather", "atomic", "product", "cast", "rows", "loop", "branch",
)  # fmt: skip
NARROWER = {
    "i16": "i8", "i32": "i16", "i64": "i32", "bf16": "f8E4M3FN", "f16": "f8E5M2", "f32": "bf16", "f64": "f32",
}  # fmt: skip
PRODUCTS = {"f16": "f32", "bf16": "f32", "i8": "i32"}
"""Types that dpas multiplies, and that of its sums."""
LAYOUTS = (
    "",
    ", #xegpu.mem_layout<stride = [1, 64]>",
    ", #xegpu.mem_layout<stride = [1, 64], block = [8, 8]>",
)


def step(draw: random.Random, v: str, n: int, shape: tuple[int, int], t: str, source: str) -> str:
    """%vN from `v` and %v0, all of them tiles of one type; `source`: the type of %a."""
    h, w = shape
    tile, floats = f"vector<{h}x{w}x{t}>", t[0] != "i"
    kind = draw.choice(KINDS)
    if kind == "sum":
        return f"%v{n} = arith.{'addf' if floats else 'addi'} {v}, %v0 : {tile}"
    if kind == "square":
        return f"%v{n} = arith.{'mulf' if floats else 'muli'} {v}, {v} : {tile}"
    if kind == "turn":
        return f"""%q{n} = vector.transpose {v}, [1, 0] : {tile} to vector<{w}x{h}x{t}>
            %v{n} = vector.shape_cast %q{n} : vector<{w}x{h}x{t}> to {tile}"""
    if kind == "slice" and h > 1:
        half = f"vector<{h // 2}x{w}x{t}>"
        return f"""%p{n} = vector.extract_strided_slice {v} {{offsets = [{h // 2}, 0], sizes = [{h // 2}, {w}], strides = [1, 1]}} : {tile} to {half}
            %v{n} = vector.insert_strided_slice %p{n}, {v} {{offsets = [0, 0], strides = [1, 1]}} : {half} into {tile}"""
    if kind == "reduce":
        axis = draw.choice([0, 1])
        rest, kept = (f"{w}", f"1x{w}") if axis == 0 else (f"{h}", f"{h}x1")
        op = draw.choice(["add", "maximumf" if floats else "maxsi"])
        return f"""%z{n} = arith.constant dense<{"0.0" if floats else "0"}> : vector<{rest}x{t}>
            %s{n} = vector.multi_reduction <{op}>, {v}, %z{n} [{axis}] : {tile} to vector<{rest}x{t}>
            %u{n} = vector.shape_cast %s{n} : vector<{rest}x{t}> to vector<{kept}x{t}>
            %v{n} = vector.broadcast %u{n} : vector<{kept}x{t}> to {tile}"""
    if kind == "memory":
        size = FLAT * np.dtype(TYPES[t]).itemsize
        matrix = f"!xegpu.mem_desc<{OUT[0]}x{OUT[1]}x{t}{draw.choice(LAYOUTS)}>"
        return f"""%m{n} = memref.alloc() : memref<{size}xi8, 3>
            %d{n} = xegpu.create_mem_desc %m{n} : memref<{size}xi8, 3> -> {matrix}
            xegpu.store_matrix {v}, %d{n}[%row, 8] : {tile}, {matrix}, index
            gpu.barrier
            %v{n} = xegpu.load_matrix %d{n}[%row, 8] : {matrix}, index -> {tile}"""
    add = f"arith.{'addf' if floats else 'addi'}"
    bits = np.dtype(TYPES[t]).itemsize * 8
    if kind == "load":
        return f"""{loaded(draw, f"%w{n}", shape, t, source)}
            %v{n} = {add} {v}, %w{n} : {tile}"""
    if kind in ("gather", "atomic"):
        offsets, mask = f"vector<{h}x{w}xindex>", f"vector<{h}x{w}xi1>"
        access = f"memref<{FLAT}x{t}>, {offsets}, {mask}"
        where = f"""%s{n} = vector.step : vector<{h * w}xindex>
            %r{n} = vector.shape_cast %s{n} : vector<{h * w}xindex> to {offsets}
            %e{n} = arith.constant dense<{draw.choice([1, 3, 7])}> : {offsets}
            %o{n} = arith.muli %r{n}, %e{n} : {offsets}
            %l{n} = arith.constant dense<{draw.choice([h * w, h * w * 2, 5])}> : {offsets}
            %k{n} = arith.cmpi ult, %o{n}, %l{n} : {offsets}"""
        if kind == "gather":
            return f"""{where}
            %g{n} = xegpu.load %f[%o{n}], %k{n} : {access} -> {tile}
            %v{n} = arith.select %k{n}, %g{n}, {v} : {mask}, {tile}"""
        if bits < 32:
            return f"%v{n} = {add} {v}, {v} : {tile}"
        return f"""{where}
            %g{n} = xegpu.atomic_rmw {add[6:]} %sums[%o{n}], %k{n}, %v0 : {access}, {tile} -> {tile}
            %v{n} = {add} {v}, %v0 : {tile}"""
    if kind == "product" and t in PRODUCTS and w * bits >= 256:
        sums, b = f"vector<{h}x{w}x{PRODUCTS[t]}>", f"vector<{w}x{w}x{t}>"
        back = "truncf" if floats else "trunci"
        return f"""{loaded(draw, f"%b{n}", (w, w), t, source)}
            %d{n} = xegpu.dpas {v}, %b{n} : {tile}, {b} -> {sums}
            %v{n} = arith.{back} %d{n} : {sums} to {tile}"""
    if kind == "cast" and t in NARROWER:
        less = f"vector<{h}x{w}x{NARROWER[t]}>"
        down, up = ("truncf", "extf") if floats else ("trunci", draw.choice(["extsi", "extui"]))
        return f"""%n{n} = arith.{down} {v} : {tile} to {less}
            %v{n} = arith.{up} %n{n} : {less} to {tile}"""
    if kind == "rows":
        row = f"vector<{w}x{t}>"
        turned = ", ".join(str(draw.randrange(2 * w)) for _ in range(w))
        return f"""%y{n} = vector.extract {v}[{draw.randrange(h)}] : {row} from {tile}
            %x{n} = vector.extract %v0[{draw.randrange(h)}] : {row} from {tile}
            %z{n} = vector.shuffle %y{n}, %x{n} [{turned}] : {row}, {row}
            %v{n} = vector.insert %z{n}, {v} [{draw.randrange(h)}] : {row} into {tile}"""
    if kind == "loop":
        return f"""%v{n} = scf.for %i{n} = %zero to %upper step %one iter_args(%j{n} = {v}) -> ({tile}) {{
            %h{n} = {add} %j{n}, %v0 : {tile}
            scf.yield %h{n} : {tile}
            }}"""
    if kind == "branch":
        return f"""%t{n} = arith.cmpi ult, %sg, %one : index
            %v{n} = scf.if %t{n} -> ({tile}) {{
            %h{n} = {add} {v}, %v0 : {tile}
            scf.yield %h{n} : {tile}
            }} else {{
            scf.yield {v} : {tile}
            }}"""
    return f"""%c{n} = arith.cmp{"f olt" if floats else "i slt"}, {v}, %v0 : {tile}
            %v{n} = arith.select %c{n}, %v0, {v} : vector<{h}x{w}xi1>, {tile}"""


def loaded(draw: random.Random, v: str, shape: tuple[int, int], t: str, source: str) -> str:
    """`v` from a tile of %a, read in one of the ways that its type has."""
    h, w = shape
    name, tile, desc = v[1:], f"vector<{h}x{w}x{t}>", f"!xegpu.tensor_desc<{h}x{w}x{t}>"
    y, x = draw.choice([0, 5, 30, -1]), draw.choice([0, 8, 40, -2])
    bits = np.dtype(TYPES[t]).itemsize * 8
    way = draw.choice(["today", "moved", "transposed" if bits >= 32 else "packed"])
    if way == "moved":
        return f"""%t{name} = xegpu.create_nd_tdesc %a[{y}, 3] : {source} -> {desc}
            %u{name} = xegpu.update_nd_offset %t{name}, [%row, {x}] : {desc}
            xegpu.prefetch_nd %u{name} : {desc}
            {v} = xegpu.load_nd %u{name} : {desc} -> {tile}"""
    if way == "transposed":
        desc = f"!xegpu.tensor_desc<{w}x{h}x{t}>"
        return f"""%t{name} = xegpu.create_nd_tdesc %a : {source} -> {desc}
            {v} = xegpu.load_nd %t{name}[{y}, {x}] <{{transpose = array<i64: 1, 0>}}> : {desc} -> {tile}"""
    head = f"%t{name} = xegpu.create_nd_tdesc %a : {source} -> {desc}"
    parts = 32 // bits
    if way == "packed" and h % parts == 0:
        packed, turned = (f"vector<{h // parts}x{z}x{t}>" for z in (f"{w}x{parts}", f"{parts}x{w}"))
        return f"""{head}
            %p{name} = xegpu.load_nd %t{name}[{y}, {x}] <{{packed}}> : {desc} -> {packed}
            %q{name} = vector.transpose %p{name}, [0, 2, 1] : {packed} to {turned}
            {v} = vector.shape_cast %q{name} : {turned} to {tile}"""
    return f"""{head}
            {v} = xegpu.load_nd %t{name}[{y}, {x}] : {desc} -> {tile}"""


def program(draw: random.Random, t: str, array: tuple[int, int]) -> Any:
    """A tile of %a, inside or partly outside, some steps, and a tile of %b."""
    h, w = draw.choice([1, 2, 4, 8, 16]), draw.choice([8, 16, 32])
    source, target = (f"memref<{r}x{c}x{t}>" for r, c in (array, OUT))
    tile, desc = f"vector<{h}x{w}x{t}>", f"!xegpu.tensor_desc<{h}x{w}x{t}>"
    y = draw.choice([0, 3, 8, array[0] - h + 2, -1])
    x = draw.choice([0, 8, 16, array[1] - w, array[1] - w + 4, -4])
    steps = draw.randrange(1, 5)
    body = f"""%sg = gpu.subgroup_id : index
        %ch = arith.constant {h} : index
        %zero = arith.constant 0 : index
        %one = arith.constant 1 : index
        %upper = arith.constant 3 : index
        %row = arith.muli %sg, %ch : index
        %cy = arith.constant {y} : index
        %at = arith.addi %row, %cy : index
        %ta = xegpu.create_nd_tdesc %a : {source} -> {desc}
        %tb = xegpu.create_nd_tdesc %b : {target} -> {desc}
        %v0 = xegpu.load_nd %ta[%at, {x}] : {desc} -> {tile}
        """
    body += "\n".join(step(draw, f"%v{n}", n + 1, (h, w), t, source) for n in range(steps))
    body += f"\nxegpu.store_nd %v{steps}, %tb[%at, {draw.choice([0, 4, 48, -4])}] : {tile}, {desc}"
    flat = f"memref<{FLAT}x{t}>"
    return subgroup_kernel(
        f"%a: {source}, %b: {target}, %f: {flat}, %sums: {flat}",
        body,
        subgroups=draw.choice([1, 2, 4]),
    )


@examples(EXAMPLES // 4)
@given(seed=st.integers(0, 2**32 - 1))
def test_subgroups(seed: int) -> None:
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    t = draw.choice(list(TYPES))
    shape = (draw.choice([24, 32, 40]), draw.choice([32, 48, 64]))
    parts = 1 if t[0] == "i" else 8
    arrays = [(rng.integers(-8, 9, s) / parts).astype(TYPES[t]) for s in (shape, OUT, FLAT, FLAT)]
    module = program(draw, t, shape)
    wanted = [a.copy() for a in arrays]
    reference.run(module, (1, 1, 1), wanted)
    for target in ("emu", *(["xe"] if opencl.device() else [])):
        found = [a.copy() for a in arrays]
        code = get_target(target).build(module.clone(), CompileOptions(target=target))
        code.launch((1, 1, 1), [describe(a) for a in found])
        for mine, meant in zip(found, wanted, strict=True):
            same(mine, meant, LIMITS.get(t, 1e-9))
