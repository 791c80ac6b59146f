"""The product: today's SPIR-V extensions of Intel, one op per callee.

| callee | op | extension |
|---|---|---|
| load2d, vnni, transpose | OpSubgroup2DBlockLoad[Transform, Transpose]INTEL | SPV_INTEL_2d_block_io |
| store2d, prefetch2d | OpSubgroup2DBlockStoreINTEL, ..PrefetchINTEL | the same |
| dpas | OpSubgroupMatrixMultiplyAccumulateINTEL | SPV_INTEL_subgroup_matrix_multiply_accumulate |
| row load, store | OpSubgroupBlockReadINTEL, OpSubgroupBlockWriteINTEL | SPV_INTEL_subgroups |
| cache policies | CacheControlLoadINTEL, CacheControlStoreINTEL on the pointer | SPV_INTEL_cache_controls |
| named barriers | OpAsmCallINTEL of nbarrier.signal, nbarrier.wait | SPV_INTEL_inline_assembly |
| fences | OpMemoryBarrier; one that flushes is inline vISA | |

The backend finds these ops by the mangled names of their builtins. (Khronos and Intel SPIR-V registries.)
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.codegen.lanes import CODES, mangled
from tilewright.codegen.printer import Arg, Printer
from tilewright.codegen.registers import LANES
from tilewright.targets.xe.forms import (
    LOAD_CONTROLS,
    STORE_CONTROLS,
    Block2D,
    Dpas,
    Fence,
    Form,
    Hints,
    Lsc,
    NamedBarrierForm,
    RowMessage,
)
from tilewright.targets.xe.tables.base import Table
from tilewright.targets.xe.tables.rewrite import DECORATE, Instruction, SpirvModule, is_type, take

PLAIN_EXTENSIONS = (
    "SPV_INTEL_inline_assembly",
    "SPV_INTEL_split_barrier",
    "SPV_INTEL_bfloat16_conversion",
    "SPV_INTEL_subgroups",
    "SPV_EXT_shader_atomic_float_add",
    "SPV_EXT_shader_atomic_float_min_max",
    "SPV_EXT_shader_atomic_float16_add",
)
EXTENSIONS = (
    "SPV_INTEL_2d_block_io",
    "SPV_INTEL_subgroup_matrix_multiply_accumulate",
    *PLAIN_EXTENSIONS,
)


_BLOCKS = {
    "load": mangled("__spirv_Subgroup2DBlockLoadINTEL", "iiiiPU3AS1KviiiDv2_iPv"),
    "vnni": mangled("__spirv_Subgroup2DBlockLoadTransformINTEL", "iiiiPU3AS1KviiiDv2_iPv"),
    "transpose": mangled("__spirv_Subgroup2DBlockLoadTransposeINTEL", "iiiiPU3AS1KviiiDv2_iPv"),
    "prefetch": mangled("__spirv_Subgroup2DBlockPrefetchINTEL", "iiiiPU3AS1KviiiDv2_i"),
    "store": mangled("__spirv_Subgroup2DBlockStoreINTEL", "iiiiPvPU3AS1viiiDv2_i"),
}

_A, _B = 0x1, 0x2
_OPERANDS = {"f16": 0xC00, "bf16": 0x3000, "tf32": 0x300}
_ACCUMULATOR_BF16 = 0xC


def mma_flags(form: Dpas) -> int:
    """Matrix multiply-accumulate operands mask: what the words of A, B, C and D hold."""
    if form.a in _OPERANDS:
        return _OPERANDS[form.a] | (_ACCUMULATOR_BF16 if form.c == "bf16" else 0)
    bits = {"8": (0x10, 0x20), "4": (0x40, 0x80)}[form.a[1:]]
    signed = (_A if form.a.startswith("i") else 0) | (_B if form.b.startswith("i") else 0)
    return signed | bits[0] | bits[1]


def decorated(p: Printer, pointer: str, hints: Hints, store: bool) -> str:
    """The same address with the cache policies of an access through it.

    The backend folds an address computation that adds nothing, so it is asked for by a call, which `finish` makes
    OpPtrAccessChain with decorations.
    """
    if not hints:
        return pointer
    controls = STORE_CONTROLS if store else LOAD_CONTROLS
    first, last = (controls[policy] for policy in (hints.l1, hints.l3))
    name = f"{_POLICY}{'store' if store else 'load'}_{first}_{last}"
    return p.call("ptr addrspace(1)", name, [("ptr addrspace(1)", pointer), ("i64", "0")])


_POLICY = "xe_policy_"
_CACHE_CONTROLS, _CONTROL_LOAD, _CONTROL_STORE, _PTR_ACCESS_CHAIN = 6441, 6442, 6443, 67


def finish(data: bytes) -> bytes:
    """Put the cache policies into the words: one decoration per cache level (0 first, 1 last)."""
    words = SpirvModule.of(data)
    names = {n: name for n, name in words.imports().items() if name.startswith(_POLICY)}
    if not names:
        return data
    taken = take(words, list(names), lambda _, a: (_PTR_ACCESS_CHAIN, [a[0], a[1], *a[3:]]))
    added: list[Instruction] = []
    for function, results in taken.calls.items():
        kind, *controls = names[function].removeprefix(_POLICY).split("_")
        decoration = _CONTROL_STORE if kind == "store" else _CONTROL_LOAD
        for result in results:
            for level, control in enumerate(controls):
                added.append((DECORATE, [result, decoration, level, int(control)]))
    words.insert(is_type, added)
    words.require(_CACHE_CONTROLS, "SPV_INTEL_cache_controls")
    return words.data()


def position(p: Printer, x: Arg, y: Arg) -> Arg:
    """`<2 x i32>` of element and row."""
    value = p.emit(f"insertelement <2 x i32> poison, i32 {x[1]}, i32 0")
    return "<2 x i32>", p.emit(f"insertelement <2 x i32> {value}, i32 {y[1]}, i32 1")


def _block(p: Printer, form: Block2D, args: list[Arg]) -> str:
    base, width, height, pitch, x, y, *data = args
    base = (base[0], decorated(p, base[1], form.hints, form.kind == "store"))
    sizes = [("i32", str(n)) for n in (form.bits // 8, form.columns, form.rows, form.count)]
    at = position(p, x, y)
    if form.kind == "store":
        given = [*sizes, *data, base, width, height, pitch, at]
    else:
        given = [*sizes, base, width, height, pitch, at, *data]
    return p.call("void", _BLOCKS[form.kind], given)


def _dpas(p: Printer, op: Operation, form: Dpas, args: list[Arg]) -> str:
    (result,) = (t for r in op.results for t in p.registers(r.type))
    code = "".join(_code(t) for t, _ in args)
    name = mangled("__spirv_SubgroupMatrixMultiplyAccumulateINTEL", f"i{code}i")
    given = [("i32", str(form.k)), *args, ("i32", str(mma_flags(form)))]
    return p.call(result, name, given)


def _code(type: str) -> str:
    """Itanium letters of a type."""
    if not type.startswith("<"):
        return CODES[type]
    count, _, scalar = type[1:-1].partition(" x ")
    return f"Dv{count}_{CODES[scalar]}"


def lsc(p: Printer, op: Operation, form: Lsc, args: list[Arg]) -> str:
    """A plain access through a pointer with policies."""
    pointer = args[0]
    at = decorated(p, pointer[1], form.hints, form.kind == "store")
    align = form.bits // 8
    if form.kind == "load":
        (type,) = (t for r in op.results for t in LANES.registers(r.type))
        return p.emit(f"load {type}, {pointer[0]} {at}, align {align}")
    if form.kind == "store":
        type, value = args[1]
        p.line(f"store {type} {value}, {pointer[0]} {at}, align {align}")
        return ""
    return p.call("void", "_Z8prefetchPU3AS1Kcm", [(pointer[0], at), ("i64", "1")])


_ROW_TYPES = {8: ("uc", "h"), 16: ("us", "t"), 32: ("", "j"), 64: ("ul", "m")}


def row(p: Printer, form: RowMessage, args: list[Arg]) -> str:
    """intel_sub_group_block_read_us4 and its kind: the backend makes them SPV_INTEL_subgroups' block ops."""
    suffix, letter = _ROW_TYPES[form.bits]
    base = args[0]
    if form.hints and not form.shared:
        base = (base[0], decorated(p, base[1], form.hints, form.kind == "store"))
    if base[1].startswith("@"):
        # Of a variable the op would point to its array, and the backend has no builtin of that name.
        base = (base[0], p.emit(f"getelementptr inbounds i8, {base[0]} {base[1]}, i64 0"))
    stem = f"intel_sub_group_block_{'read' if form.kind == 'load' else 'write'}"
    name = f"{stem}_{suffix}" if suffix else stem
    name += str(form.count) if form.count > 1 else ""
    space = f"PU3AS{3 if form.shared else 1}"
    type = f"i{form.bits}" if form.count == 1 else f"<{form.count} x i{form.bits}>"
    if form.kind == "load":
        return p.call(type, mangled(name, f"{space}K{letter}"), [base])
    code = letter if form.count == 1 else f"Dv{form.count}_{letter}"
    p.call("void", mangled(name, f"{space}{letter}{code}"), [base, (type, args[1][1])])
    return ""


def named_barrier(p: Printer, form: NamedBarrierForm, args: list[Arg]) -> str:
    """vISA text: SPIR-V has no named barrier whose halves are apart."""
    which = "$0(0,0)<0;1,0>" if form.number is None else f"0x{form.number:x}:ub"
    text = (
        f"nbarrier.signal {which} 0x{form.count:x}:ub"
        if form.half == "arrive"
        else f"nbarrier.wait {which}"
    )
    constraints = ",".join(["rw.u"] * len(args))
    given = ", ".join(f"{type} {value}" for type, value in args)
    p.line(f'call void asm sideeffect "{text}", "{constraints}"({given})')
    return ""


_SCOPES = {"workgroup": 2, "local": 2, "tile": 1, "gpu": 1, "system": 0}


_LSC_SCOPES = {
    "workgroup": "group",
    "local": "local",
    "tile": "tile",
    "gpu": "gpu",
    "system": "system",
}


def fence(p: Printer, form: Fence) -> str:
    """OpMemoryBarrier; SPIR-V cannot say what happens to cache lines, vISA can."""
    if form.flush != "none":
        memory = "ugm" if form.memory == "global" else "slm"
        text = f"lsc_fence.{memory}.{form.flush}.{_LSC_SCOPES[form.scope]}"
        p.line(f'call void asm sideeffect "{text}", ""()')
        return ""
    semantics = 0x10 | (0x200 if form.memory == "global" else 0x100)
    args = [("i32", str(_SCOPES[form.scope])), ("i32", str(semantics))]
    return p.call("void", "_Z21__spirv_MemoryBarrierii", args)


def _callee(p: Printer, op: Operation, callee: str, form: Form, args: list[Arg]) -> str:
    match form:
        case Block2D():
            return _block(p, form, args)
        case Dpas():
            return _dpas(p, op, form, args)
        case Lsc():
            return lsc(p, op, form, args)
        case RowMessage():
            return row(p, form, args)
        case NamedBarrierForm():
            return named_barrier(p, form, args)
        case Fence():
            return fence(p, form)


TABLE = Table("intel", _callee, EXTENSIONS, finish=finish)
