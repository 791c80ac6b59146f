"""What Debian's offline compiler accepts (ocloc 22.43, IGC 1.0.12504): the sibling of the product, for reading ISA.

That compiler is older than the SPIR-V extensions of the product, but knows the instructions:

| callee | stands for |
|---|---|
| load2d, vnni, transpose | `llvm.genx.GenISA.LSC2DBlockRead`, by name; at most 16 components at once |
| the same with policies, store2d, prefetch2d | inline vISA: `lsc_load_block2d`, `lsc_store_block2d` |
| dpas | OpenCL builtins `intel_sub_group_*_matrix_mad_*`; `llvm.genx.GenISA.sub.group.dpas` for tf32 |
| row load, store | OpenCL builtins `intel_sub_group_block_read`, `_write`; policies are left out |
| lsc load, store, prefetch | `__builtin_IB_lsc_*` |

LLVM's SPIR-V backend passes no vector to inline assembly, so the text is put in afterwards: a call of an
undefined `xe_*` function becomes OpAsmCallINTEL (`inject`). Limit: a load of more than 16 components per lane is
several messages here and one in the product. (IGC's vISA documentation; seen to compile.)
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.ir import Operation

from tilewright.codegen.lanes import builtin_name
from tilewright.codegen.printer import Arg, Printer, integer_attribute
from tilewright.targets.xe.forms import (
    Block2D,
    Dpas,
    Fence,
    Form,
    Hints,
    Lsc,
    NamedBarrierForm,
    RowMessage,
    parse,
)
from tilewright.targets.xe.tables.base import Table, lanes_of
from tilewright.targets.xe.tables.intel import PLAIN_EXTENSIONS, fence, lsc, named_barrier, row
from tilewright.targets.xe.tables.rewrite import (
    Instruction,
    SpirvModule,
    is_function,
    literal,
    take,
)

MOST_COMPONENTS = 16


# Blocks -------------------------------------------------------------------------------------------------


def _surface(p: Printer, args: list[Arg]) -> list[Arg]:
    """base as i64; width, height and pitch less one; x; y."""
    base, width, height, pitch, x, y = args[:6]
    address = p.emit(f"ptrtoint {base[0]} {base[1]} to i64")
    less = [("i32", _less_one(p, a[1])) for a in (width, height, pitch)]
    return [("i64", address), *less, x, y]


def _less_one(p: Printer, text: str) -> str:
    return str(int(text) - 1) if text.lstrip("-").isdigit() else p.emit(f"sub i32 {text}, 1")


def _words(form: Block2D, lanes: int) -> int:
    """Register units of a lane: what counts as a component here."""
    return form.components(lanes) * form.component_bits // form.word_bits(lanes)


def _split(form: Block2D, lanes: int, most: int) -> list[tuple[Block2D, int, int]]:
    """Messages of at most so many components each, in the order of the fragment: (form, x, y)."""
    if _words(form, lanes) <= most:
        return [(form, 0, 0)]
    if form.count > 1:
        one = replace(form, count=1)
        return [
            (part, x + i * form.columns, y)
            for i in range(form.count)
            for part, x, y in _split(one, lanes, most)
        ]
    if form.kind == "transpose":
        half = replace(form, columns=form.columns // 2)
        second = [(part, x + half.columns, y) for part, x, y in _split(half, lanes, most)]
    else:
        half = replace(form, rows=form.rows // 2)
        second = [(part, x, y + half.rows) for part, x, y in _split(half, lanes, most)]
    return [*_split(half, lanes, most), *second]


def _moved(p: Printer, arg: Arg, by: int) -> Arg:
    if by == 0:
        return arg
    if arg[1].lstrip("-").isdigit():
        return arg[0], str(int(arg[1]) + by)
    return arg[0], p.emit(f"add i32 {arg[1]}, {by}")


def _load(p: Printer, op: Operation, form: Block2D, args: list[Arg]) -> None:
    lanes = lanes_of(op)
    *surface, x, y = _surface(p, args)
    _, data = args[6]
    offset = 0
    # Parts that are read at once: taking them out of a longer fragment would cost moves here.
    word = form.word_bits(lanes)
    granule = integer_attribute(op, "xe.granule", MOST_COMPONENTS * word // 8)
    most = max(1, min(MOST_COMPONENTS, granule * 8 // word))
    for part, dx, dy in _split(form, lanes, most):
        n = _words(part, lanes)
        type = f"<{n} x i{word}>" if n > 1 else f"i{word}"
        at = [*surface, _moved(p, x, dx), _moved(p, y, dy)]
        if part.hints:
            value = p.call(type, part.name, at)
        else:
            suffix = f"v{n}i{word}" if n > 1 else f"i{word}"
            flags = [("i1", str(part.kind == kind).lower()) for kind in ("transpose", "vnni")]
            sizes = [("i32", str(s)) for s in (part.bits, part.columns, part.rows, part.count)]
            name = f"llvm.genx.GenISA.LSC2DBlockRead.{suffix}"
            value = _genisa(p, type, name, [*at, *sizes, *flags])
        place = data
        if offset:
            place = p.emit(f"getelementptr inbounds i8, ptr {data}, i64 {offset}")
        p.line(f"store {type} {value}, ptr {place}, align {min(64, offset & -offset or 64)}")
        offset += n * word // 8


def _genisa(p: Printer, result: str, name: str, args: list[Arg]) -> str:
    """A call of IGC's own intrinsic: a function to LLVM, which must not take it for one of its own."""
    p.declarations.setdefault(
        name, f"declare spir_func {result} @{name}({', '.join(t for t, _ in args)})"
    )
    return p.emit(f"call spir_func {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})")


def _store(p: Printer, op: Operation, form: Block2D, args: list[Arg]) -> None:
    lanes = lanes_of(op)
    n, word = _words(form, lanes), form.word_bits(lanes)
    type = f"<{n} x i{word}>" if n > 1 else f"i{word}"
    value = p.emit(f"load {type}, ptr {args[6][1]}, align 64")
    p.call("void", form.name, [(type, value), *_surface(p, args)])


# Products -----------------------------------------------------------------------------------------------


def _dpas(p: Printer, op: Operation, form: Dpas, args: list[Arg]) -> str:
    (result,) = (t for r in op.results for t in p.registers(r.type))
    if form.a not in ("f16", "bf16", "i8", "u8") or form.m == 1:
        (a, b, c) = args
        types = ".".join(_suffix(t) for t in (result, c[0], a[0], b[0]))
        numbers = [_PRECISION[form.a], _PRECISION[form.b], 8, form.m]
        given = [c, a, b, *(("i32", str(n)) for n in numbers), ("i1", "false")]
        return _genisa(p, result, f"llvm.genx.GenISA.sub.group.dpas.{types}", given)
    name = f"intel_sub_group_{form.a}_{form.b}_matrix_mad_k{form.k}"
    unsigned = [n for n, type in enumerate((form.a, form.b)) if type.startswith("u")]
    return p.call(result, builtin_name(name, *(t for t, _ in args), unsigned=unsigned), args)


_PRECISION = {"u8": 1, "u4": 2, "i8": 4, "i4": 5, "tf32": 8, "bf16": 9, "f16": 10}
"""Numbers of this release; a wrong one makes it loop for ever."""
_SUFFIXES = {"float": "f32", "half": "f16", "i16": "i16", "i32": "i32"}


def _suffix(type: str) -> str:
    """`v8f32`: a type in the name of an intrinsic."""
    count, _, scalar = type.strip("<>").partition(" x ")
    return f"v{count}{_SUFFIXES[scalar]}" if scalar else _SUFFIXES[count]


def visa(form: Form) -> tuple[str, str] | None:
    """vISA text and constraints of an undefined callee; None where it has a name that IGC knows."""
    match form:
        case Block2D():
            hints = form.hints or Hints("", "")
            shape = f"d{form.bits}.{_blocks(form)}{form.columns}x{form.rows}"
            first = 0 if form.kind == "prefetch" else 1
            flat = f"flat[{','.join(f'${i}' for i in range(first, first + 6))}]"
            where = ",".join(["rw.u"] * 6)
            if form.kind == "store":
                policies = hints.lsc(".") if hints else "uc.wb"
                return (
                    f"lsc_store_block2d.ugm.{policies} (M1, 1) {flat} $0:{shape}nn",
                    f"rw,{where}",
                )
            policies = hints.lsc(".") if hints else "ca.ca"
            if form.kind == "prefetch":
                return f"lsc_load_block2d.ugm.{policies} (M1, 1) %null:{shape}nn {flat}", where
            how = {"load": "nn", "vnni": "nt", "transpose": "tn"}[form.kind]
            return f"lsc_load_block2d.ugm.{policies} (M1, 1) $0:{shape}{how} {flat}", f"=rw,{where}"
        case _:
            return None


def _blocks(form: Block2D) -> str:
    return f"{form.count}x" if form.count > 1 else ""


# A lane's own accesses ----------------------------------------------------------------------------------

_POLICIES = {"uc_uc": 1, "uc_ca": 2, "ca_uc": 3, "ca_ca": 4, "st_uc": 5, "st_ca": 6, "ri_ca": 7}
_WRITES = {"uc_uc": 1, "uc_wb": 2, "wt_uc": 3, "wt_wb": 4, "st_uc": 5, "st_wb": 6, "wb_wb": 7}


def _lsc(p: Printer, op: Operation, form: Lsc, args: list[Arg]) -> str:
    codes = _WRITES if form.kind == "store" else _POLICIES
    policy = codes[form.hints.lsc()]
    pointer = args[0]
    scalar = {32: "uint", 64: "ulong"}.get(form.bits)
    if form.kind == "prefetch":
        given = [pointer, ("i32", "0"), ("i32", str(policy))]
        return p.call("void", "__builtin_IB_lsc_prefetch_global_uint", given)
    if scalar is None or form.count not in (1, 2, 3, 4, 8):
        return lsc(p, op, replace(form, hints=Hints()), args)
    name = f"__builtin_IB_lsc_{form.kind}_global_{scalar}{form.count if form.count > 1 else ''}"
    if form.kind == "load":
        (type,) = (t for r in op.results for t in p.registers(r.type))
        return p.call(type, name, [pointer, ("i32", "0"), ("i32", str(policy))])
    return p.call("void", name, [pointer, ("i32", "0"), args[1], ("i32", str(policy))])


def _callee(p: Printer, op: Operation, callee: str, form: Form, args: list[Arg]) -> str:
    match form:
        case Block2D(kind="prefetch"):
            return p.call("void", form.name, _surface(p, args))
        case Block2D(kind="store"):
            _store(p, op, form, args)
            return ""
        case Block2D():
            _load(p, op, form, args)
            return ""
        case Dpas():
            return _dpas(p, op, form, args)
        case Lsc():
            return _lsc(p, op, form, args)
        case RowMessage():
            return row(p, replace(form, hints=Hints()), args)
        case NamedBarrierForm():
            return named_barrier(p, form, args)
        case Fence():
            return fence(p, form)


# Putting vISA into SPIR-V -------------------------------------------------------------------------------

_ASM_TARGET, _ASM, _ASM_CALL, _ASM_CAPABILITY = 5609, 5610, 5611, 5606


def inject(data: bytes) -> bytes:
    """Calls of undefined `xe_*` functions -> inline vISA: OpAsmCallINTEL has the operands of OpFunctionCall."""
    words = SpirvModule.of(data)
    texts: dict[int, tuple[str, str]] = {}
    for number, name in words.imports().items():
        form = parse(name)
        found = None if form is None else visa(form)
        if found is not None:
            texts[number] = found
    if not texts:
        return data
    taken = take(words, list(texts), lambda _, operands: (_ASM_CALL, operands))
    target = words.fresh()
    asm: list[Instruction] = [(_ASM_TARGET, [target, *literal("spirv64-unknown-unknown")])]
    for number, (result, type) in taken.types.items():
        text, constraints = texts[number]
        asm.append((_ASM, [result, number, type, target, *literal(text), *literal(constraints)]))
    words.insert(is_function, asm)
    words.require(_ASM_CAPABILITY, "SPV_INTEL_inline_assembly")
    return words.data()


TABLE = Table("igc", _callee, PLAIN_EXTENSIONS, finish=inject)
