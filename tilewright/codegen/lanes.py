"""What one lane of a GPU kernel can ask: its ids, its neighbours' registers, a barrier; and the
GPU's own functions.

The same ops print for NVIDIA (special registers and `shfl.sync`) and for SPIR-V (OpenCL builtins,
which LLVM's SPIR-V backend turns into BuiltIn variables and group instructions). On both,
gpu.subgroup_reduce is a butterfly of shuffles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from xdsl.ir import Operation

from tilewright.codegen.components import ComponentSource
from tilewright.codegen.convert import convert_float
from tilewright.codegen.elementwise import fast_flags, float_elementwise
from tilewright.codegen.lane_ops import Lanes, mangle
from tilewright.codegen.math import is_fast
from tilewright.codegen.printer import Printer, attribute, integer_attribute, prints, unsupported
from tilewright.codegen.reductions import F32, combiner
from tilewright.codegen.registers import Element, RegisterLayout
from tilewright.codegen.target import Handler
from tilewright.dialects.upstream.gpu.lanes import LANES

AXES = ("x", "y", "z")
CONVERGENT = " convergent"


def lanes_said(op: Operation, name: str, default: int) -> int:
    """Lanes of a subgroup, as an attribute of the function says that an op stands in."""
    function = op.parent_op()
    while function is not None and function.name != "func.func":
        function = function.parent_op()
    return default if function is None else integer_attribute(function, name, default)


def _axis(op: Operation) -> int:
    """0, 1 or 2 from the op's `dimension`."""
    found = attribute(op, "dimension")
    data = getattr(found, "data", found)
    return AXES.index(str(getattr(data, "value", data)))


def _name(op: Operation, key: str) -> str:
    found = attribute(op, key)
    data = getattr(found, "data", found)
    return str(getattr(data, "value", data)).lower().rsplit(".", 1)[-1]


# Shuffles of any type as shuffles of 32-bit words -------------------------------------------------

Word = Callable[[str], str]
"""One i32 register of this lane -> the i32 register of another."""


def through_words(p: Printer, e: Element, x: str, word: Word) -> str:
    """Move a scalar between lanes in 32-bit words."""
    bits = e.bits if e.name != "tf32" else 32
    integer = f"i{bits}"
    value = x
    if e.llvm in ("float", "double", "half"):
        value = p.emit(f"bitcast {e.llvm} {x} to {integer}")
    if bits < 32:
        wide = p.emit(f"zext {integer} {value} to i32")
        value = p.emit(f"trunc i32 {word(wide)} to {integer}")
    elif bits == 32:
        value = word(value)
    else:
        low = word(p.emit(f"trunc i64 {value} to i32"))
        high = word(p.emit(f"trunc i64 {p.emit(f'lshr i64 {value}, 32')} to i32"))
        upper = p.emit(f"shl i64 {p.emit(f'zext i32 {high} to i64')}, 32")
        value = p.emit(f"or i64 {upper}, {p.emit(f'zext i32 {low} to i64')}")
    if e.llvm in ("float", "double", "half"):
        value = p.emit(f"bitcast {integer} {value} to {e.llvm}")
    return value


def _by_component(p: Printer, op: Operation, each: Callable[[str], str]) -> None:
    """The op's result: `each` of every component of a scalar or fragment."""
    layout = p.layout(op.operands[0].type)
    source = ComponentSource(p, layout.element.llvm)
    numbers = source.add(layout, p.get(op.operands[0]))
    made = tuple(each(x) for x in source.assemble(numbers, [1] * numbers.size))
    back = ComponentSource(p, layout.element.llvm)
    ones = back.add(RegisterLayout(layout.element, (len(made),), (1,) * len(made), ()), made)
    p.set(op.results[0], back.assemble(ones, layout.counts))


def _shuffle_value(p: Printer, op: Operation, word: Word) -> None:
    """Every component moved between lanes."""
    element = p.layout(op.operands[0].type).element
    _by_component(p, op, lambda x: through_words(p, element, x, word))


def _reduce(p: Printer, op: Operation, size: int, xor: Callable[[int, str], str]) -> None:
    """Butterfly over `cluster_size` lanes (all by default), `cluster_stride` apart; narrow floats in f32."""
    e = p.layout(op.operands[0].type).element
    narrow = e.is_float and e.name not in ("f32", "f64")
    wide, one = F32 if narrow else e, Lanes(p, 1)
    combine = combiner(p, op, _name(op, "op"), wide, fast_flags(op))
    lanes = integer_attribute(op, "cluster_size", size)
    stride = integer_attribute(op, "cluster_stride", 1)

    def total(x: str) -> str:
        x = convert_float(p, one, x, e, wide) if narrow else x
        distance, left = stride, lanes
        while left > 1:
            x = combine(1, x, through_words(p, wide, x, partial(xor, distance)))
            distance, left = 2 * distance, left // 2
        return convert_float(p, one, x, wide, e) if narrow else x

    _by_component(p, op, total)


# NVIDIA -------------------------------------------------------------------------------------------


def _sreg(p: Printer, name: str) -> str:
    """A special register as i32."""
    return p.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}", [])


def _index(p: Printer, op: Operation, reg: str) -> None:
    p.set(op.results[0], [p.emit(f"zext i32 {reg} to i64")])


def _nv_coordinate(stem: str) -> Handler:
    return lambda p, op: _index(p, op, _sreg(p, f"{stem}.{AXES[_axis(op)]}"))


def _nv_global_id(p: Printer, op: Operation) -> None:
    axis = AXES[_axis(op)]
    block = p.emit(f"mul i32 {_sreg(p, f'ctaid.{axis}')}, {_sreg(p, f'ntid.{axis}')}")
    _index(p, op, p.emit(f"add i32 {block}, {_sreg(p, f'tid.{axis}')}"))


def _nv_linear_thread(p: Printer) -> str:
    plane = p.emit(f"mul i32 {_sreg(p, 'tid.z')}, {_sreg(p, 'ntid.y')}")
    row = p.emit(f"add i32 {plane}, {_sreg(p, 'tid.y')}")
    base = p.emit(f"mul i32 {row}, {_sreg(p, 'ntid.x')}")
    return p.emit(f"add i32 {base}, {_sreg(p, 'tid.x')}")


def _nv_lanes(op: Operation) -> int:
    """Lanes of the subgroups of an op's function: a warp's, or those of a part of one, which the function says."""
    return lanes_said(op, LANES, 32)


def _nv_lane(p: Printer, lanes: int) -> str:
    lane = _sreg(p, "laneid")
    return lane if lanes == 32 else p.emit(f"and i32 {lane}, {lanes - 1}")


def _nv_subgroup_id(p: Printer, op: Operation) -> None:
    shift = _nv_lanes(op).bit_length() - 1
    _index(p, op, p.emit(f"lshr i32 {_nv_linear_thread(p)}, {shift}"))


def _nv_num_subgroups(p: Printer, op: Operation) -> None:
    rows = p.emit(f"mul i32 {_sreg(p, 'ntid.x')}, {_sreg(p, 'ntid.y')}")
    threads = p.emit(f"mul i32 {rows}, {_sreg(p, 'ntid.z')}")
    lanes = _nv_lanes(op)
    up = p.emit(f"add i32 {threads}, {lanes - 1}")
    _index(p, op, p.emit(f"lshr i32 {up}, {lanes.bit_length() - 1}"))


def _nv_barrier(p: Printer, op: Operation) -> None:
    """Where a warp has several subgroups, they may come one after the other."""
    aligned = ".aligned" * (_nv_lanes(op) == 32)
    p.call("void", f"llvm.nvvm.barrier.cta.sync{aligned}.all", [("i32", "0")])


_NV_SHUFFLE = {"xor": "bfly", "up": "up", "down": "down", "idx": "idx", "rotate": "idx"}


def _nv_members(p: Printer, op: Operation) -> str:
    """The threads of a warp that are the subgroup: those who shuffle, wherever the others are."""
    lanes = _nv_lanes(op)
    if lanes == 32:
        return "-1"
    first = p.emit(f"and i32 {_sreg(p, 'laneid')}, {32 - lanes}")
    return p.emit(f"shl i32 {(1 << lanes) - 1}, {first}")


def _nv_word(p: Printer, members: str, mode: str, x: str, offset: str, segment: str) -> str:
    args = [("i32", members), ("i32", x), ("i32", offset), ("i32", segment)]
    return p.call("i32", f"llvm.nvvm.shfl.sync.{_NV_SHUFFLE[mode]}.i32", args)


def _nv_shuffle(p: Printer, op: Operation) -> None:
    """`width` lanes form a group; `valid` says whether the source lane lies in it."""
    mode = _name(op, "mode")
    if mode not in _NV_SHUFFLE:
        raise unsupported(op, f"mode '{mode}' on {p.target.name}")
    offset, width = p.one(op.operands[1]), p.one(op.operands[2])
    segment = p.emit(f"shl i32 {p.emit(f'sub i32 32, {width}')}, 8")
    if mode != "up":
        segment = p.emit(f"or i32 {segment}, 31")
    members = _nv_members(p, op)
    inside = p.emit(f"sub i32 {width}, 1")
    lane = p.emit(f"and i32 {_sreg(p, 'laneid')}, {inside}")
    if mode == "rotate":
        offset = p.emit(f"and i32 {p.emit(f'add i32 {lane}, {offset}')}, {inside}")
    _shuffle_value(p, op, lambda w: _nv_word(p, members, mode, w, offset, segment))
    p.set(op.results[1], [_in_group(p, mode, lane, offset, width)])


def _in_group(p: Printer, mode: str, lane: str, offset: str, width: str) -> str:
    """i1: does the source lane lie in the group of `width` lanes?"""
    if mode == "up":
        return p.emit(f"icmp uge i32 {lane}, {offset}")
    name = {"xor": "xor", "down": "add"}.get(mode)
    source = p.emit(f"{name} i32 {lane}, {offset}") if name else offset
    return p.emit(f"icmp ult i32 {source}, {width}")


def _nv_reduce(p: Printer, op: Operation) -> None:
    members = _nv_members(p, op)
    _reduce(p, op, _nv_lanes(op), lambda step, w: _nv_word(p, members, "xor", w, str(step), "31"))


def _nv_function(name: str) -> Handler:
    """The approximate unit's instruction where `afn` allows it, our own expansion elsewhere."""

    def approximate(o: Lanes, x: str) -> str:
        one = [("float", x)]
        if name == "math.exp":
            x = o.op("fmul", "float", x, o.cf(1.4426950408889634))
            return o.p.call("float", "llvm.nvvm.ex2.approx.ftz.f", [("float", x)])
        if name in ("math.log", "math.log2", "math.log10"):
            value = o.p.call("float", "llvm.nvvm.lg2.approx.f", one)
            factor = {"math.log": 0.6931471805599453, "math.log10": 0.3010299956639812}.get(name)
            return o.op("fmul", "float", value, o.cf(factor)) if factor else value
        unit = f"{_NV_APPROXIMATE[name]}.approx{'.ftz' if name == 'math.exp2' else ''}"
        return o.p.call("float", f"llvm.nvvm.{unit}.f", one)

    def print_op(p: Printer, op: Operation) -> None:
        if not is_fast(op) or p.layout(op.operands[0].type).element.name == "f64":
            prints.by_name[op.name](p, op)
            return
        float_elementwise(p, op, lambda o, s, x: approximate(o, x[0]), native_half=False)

    return print_op


_NV_APPROXIMATE = {
    "math.exp": "ex2",
    "math.exp2": "ex2",
    "math.log": "lg2",
    "math.log2": "lg2",
    "math.log10": "lg2",
    "math.sin": "sin",
    "math.cos": "cos",
    "math.rsqrt": "rsqrt",
}

NVPTX_HANDLERS: dict[str, Handler] = {
    "gpu.thread_id": _nv_coordinate("tid"),
    "gpu.block_id": _nv_coordinate("ctaid"),
    "gpu.block_dim": _nv_coordinate("ntid"),
    "gpu.grid_dim": _nv_coordinate("nctaid"),
    "gpu.global_id": _nv_global_id,
    "gpu.lane_id": lambda p, op: _index(p, op, _nv_lane(p, _nv_lanes(op))),
    "gpu.subgroup_size": lambda p, op: p.set(op.results[0], [str(_nv_lanes(op))]),
    "gpu.subgroup_id": _nv_subgroup_id,
    "gpu.num_subgroups": _nv_num_subgroups,
    "gpu.barrier": _nv_barrier,
    "gpu.shuffle": _nv_shuffle,
    "gpu.subgroup_reduce": _nv_reduce,
    **{name: _nv_function(name) for name in _NV_APPROXIMATE},
}


# SPIR-V -------------------------------------------------------------------------------------------

CODES = {"float": "f", "double": "d", "half": "Dh", "i64": "l", "i32": "i", "i16": "s", "i8": "c"}


def mangled(name: str, codes: str) -> str:
    """Itanium name of a function whose parameters have these codes."""
    return f"_Z{len(name)}{name}{codes or 'v'}"


def builtin_name(name: str, *types: str, unsigned: Collection[int] = ()) -> str:
    """Itanium name of an OpenCL builtin on these LLVM types, of which those numbered are `unsigned`; a vector type that
    comes again is a substitution."""
    seen: list[str] = []
    codes = ""
    for n, type in enumerate(types):
        count, _, scalar = type.strip("<>").partition(" x ")
        code = CODES[scalar or count]
        code = {"s": "t", "i": "j"}.get(code, code) if n in unsigned else code
        full = f"Dv{count}_{code}" if scalar else code
        if full in seen:
            codes += f"S{seen.index(full) - 1 if seen.index(full) else ''}_"
        else:
            codes += full
            seen += [full] if scalar else []
    return mangled(name, codes)


def _cl_coordinate(name: str) -> Handler:
    def print_op(p: Printer, op: Operation) -> None:
        reg = p.call("i64", mangled(name, "j"), [("i32", str(_axis(op)))])
        p.set(op.results[0], [reg])

    return print_op


def _cl_subgroup(name: str) -> Handler:
    return lambda p, op: _index(p, op, p.call("i32", builtin_name(name), []))


def _cl_barrier(p: Printer, op: Operation) -> None:
    """Workgroup scope; orders global and workgroup memory, sequentially consistent."""
    args = [("i32", "2"), ("i32", "2"), ("i32", "784")]
    p.call("void", "_Z22__spirv_ControlBarrieriii", args, attrs=CONVERGENT)


def _cl_word(p: Printer, mode: str, x: str, lane: str) -> str:
    name = f"sub_group_shuffle{mode}"
    args = [("i32", x), ("i32", lane)]
    return p.call("i32", mangled(name, "ij"), args, attrs=CONVERGENT)


def _cl_shuffle(p: Printer, op: Operation) -> None:
    """Within segments of `width` lanes: a lane whose source lies outside keeps its value, and `valid` is false."""
    mode = _name(op, "mode")
    offset, width = p.one(op.operands[1]), p.one(op.operands[2])
    if offset.isdigit() and width.isdigit() and int(offset) < int(width):
        # Nothing to choose: both ends of a pair lie in one segment, or all lanes read the same one of the only segment.
        # A compiler takes an operand's lane that it knows in the instruction that uses it, others by addresses.
        whole = int(width) == lanes_said(op, "spirv.intel_reqd_sub_group_size", 16)
        if mode == "xor" or (mode == "idx" and whole):
            word = "_xor" if mode == "xor" else ""
            _shuffle_value(p, op, lambda w: _cl_word(p, word, w, offset))
            p.set(op.results[1], ["true"])
            return
    lane = p.call("i32", builtin_name("get_sub_group_local_id"), [])
    inner = p.emit(f"urem i32 {lane}, {width}")
    if mode == "rotate":
        source = p.emit(f"urem i32 {p.emit(f'add i32 {inner}, {offset}')}, {width}")
    else:
        name = {"xor": "xor", "up": "sub", "down": "add"}.get(mode)
        source = p.emit(f"{name} i32 {inner}, {offset}") if name else offset
    valid = p.emit(f"icmp ult i32 {source}, {width}")
    other = p.emit(f"add i32 {p.emit(f'sub i32 {lane}, {inner}')}, {source}")
    other = p.emit(f"select i1 {valid}, i32 {other}, i32 {lane}")
    _shuffle_value(p, op, lambda w: _cl_word(p, "", w, other))
    p.set(op.results[1], [valid])


def _cl_reduce(p: Printer, op: Operation) -> None:
    size = lanes_said(op, "spirv.intel_reqd_sub_group_size", 16)
    _reduce(p, op, size, lambda step, w: _cl_word(p, "_xor", w, str(step)))


_CL_INTRINSICS = {
    f"math.{name}": name
    for name in (
        *("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan"),
        *("tanh", "sinh", "cosh", "asin", "acos", "atan"),
    )
} | {"math.powf": "pow"}
_CL_BUILTINS = {
    f"math.{name}": name
    for name in ("erf", "rsqrt", "log1p", "expm1", "cbrt", "atan2", "asinh", "acosh", "atanh")
}


def _cl_function(name: str) -> Handler:
    """A function of OpenCL.std, whose error bounds (at most 4 ulp) the driver's library keeps."""

    def body(o: Lanes, s: str, x: Sequence[str]) -> str:
        t = o.type(s)
        if name in _CL_INTRINSICS:
            intrinsic = f"llvm.{_CL_INTRINSICS[name]}.{mangle(o.count, s)}"
            return o.p.call(t, intrinsic, [(t, v) for v in x], flags=o.flags)
        callee = builtin_name(_CL_BUILTINS[name], *[t] * len(x))
        return o.p.call(t, callee, [(t, v) for v in x])

    return lambda p, op: float_elementwise(p, op, body, native_half=False)


SPIRV_HANDLERS: dict[str, Handler] = {
    "gpu.thread_id": _cl_coordinate("get_local_id"),
    "gpu.block_id": _cl_coordinate("get_group_id"),
    "gpu.block_dim": _cl_coordinate("get_local_size"),
    "gpu.grid_dim": _cl_coordinate("get_num_groups"),
    "gpu.global_id": _cl_coordinate("get_global_id"),
    "gpu.lane_id": _cl_subgroup("get_sub_group_local_id"),
    "gpu.subgroup_size": _cl_subgroup("get_sub_group_size"),
    "gpu.subgroup_id": _cl_subgroup("get_sub_group_id"),
    "gpu.num_subgroups": _cl_subgroup("get_num_sub_groups"),
    "gpu.barrier": _cl_barrier,
    "gpu.shuffle": _cl_shuffle,
    "gpu.subgroup_reduce": _cl_reduce,
    **{name: _cl_function(name) for name in (*_CL_INTRINSICS, *_CL_BUILTINS)},
}
