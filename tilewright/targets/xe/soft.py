"""Messages and products in plain LLVM: functions that any OpenCL device executes.

What the `emu` table stands for, and what a machine without block messages (DG2), or a matrix too narrow for
them, does for a block: guarded accesses of single elements. Semantics are those of SPV_INTEL_2d_block_io: outside
of the matrix loads give 0 and stores are dropped. A product adds along k in ascending order.

Every function is `internal`; ATTRIBUTE stands where the table says whether it may be inlined.
"""

from __future__ import annotations

import numpy as np

from tilewright.codegen.registers import llvm_vector
from tilewright.layout.bits import bit_runs, is_sum_of_bits
from tilewright.targets.xe.forms import Block2D, Dpas, RowMessage

LANE = "_Z22get_sub_group_local_idv"
SHUFFLE = "_Z17sub_group_shuffleij"


class _Text:
    """Lines of one function with fresh register names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def emit(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def function(self, name: str, head: str, result: str = "void", value: str = "") -> str:
        """The lines as a function of the arguments in `head`."""
        body = "\n".join([*self.lines, f"  ret {result} {value}".rstrip()])
        return (
            f"define internal spir_func {result} @{name}({head}) ATTRIBUTE {{\nentry:\n{body}\n}}\n"
        )

    def affine(self, lane: str, table: np.ndarray) -> str:
        """An i32 that is `table[l]` in lane l: a constant, or built of the lane's bits."""
        parts: list[str] = []
        for low, bits, step in bit_runs(table):
            part = self.emit(f"lshr i32 {lane}, {low}") if low else lane
            if 1 << low + bits < len(table):
                part = self.emit(f"and i32 {part}, {(1 << bits) - 1}")
            parts.append(part if step == 1 else self.emit(f"mul i32 {part}, {step}"))
        value, *others = [*parts, str(table[0])] if table[0] or not parts else parts
        for part in others:
            value = self.emit(f"add i32 {value}, {part}")
        return value


def declarations() -> dict[str, str]:
    """What the bodies call, by name."""
    return {
        LANE: f"declare spir_func i32 @{LANE}()",
        SHUFFLE: f"declare spir_func i32 @{SHUFFLE}(i32, i32) convergent",
    }


def block(name: str, form: Block2D, lanes: int) -> str:
    """The function of a block load or store."""
    t = _Text()
    bytes = form.bits // 8
    integer = f"i{form.bits}"
    lane = t.emit(f"call spir_func i32 @{LANE}()")
    columns = t.emit(f"sdiv i32 %width, {bytes}")
    pitch = t.emit("sext i32 %pitch to i64")
    loads = form.kind != "store"
    table = form.positions(lanes)
    word = f"i{form.component_bits}"
    cache: dict[tuple[str, tuple[int, ...]], str] = {}

    def lane_number(what: str, numbers: np.ndarray) -> str:
        """Of the lanes' own part, shared by the components that it is the same for."""
        base = numbers - numbers[0]
        assert is_sum_of_bits(base), "lanes are distributed by the bits of their number"
        key = (what, tuple(base.tolist()))
        if key not in cache:
            part = t.affine(lane, base)
            origin = "%y" if what == "row" else "%x"
            cache[key] = origin if part == "0" else t.emit(f"add i32 {origin}, {part}")
        offset = int(numbers[0])
        return cache[key] if offset == 0 else t.emit(f"add i32 {cache[key]}, {offset}")

    for i in range(table.shape[1]):
        value = "0"
        for part in range(form.pack):
            rows, cols = table[:, i, part, 0], table[:, i, part, 1]
            if (rows < 0).any():
                # A lane or register that only pads the block: it holds 0 and is not stored.
                inside: str | None = _present(t, lane, rows >= 0)
                if inside is None:
                    continue
            else:
                inside = "true"
            row = lane_number("row", np.where(rows < 0, _filled(rows), rows))
            column = lane_number("column", np.where(rows < 0, _filled(cols, rows), cols))
            legal = t.emit(f"icmp ult i32 {row}, %height")
            legal = t.emit(f"and i1 {legal}, {t.emit(f'icmp ult i32 {column}, {columns}')}")
            if inside != "true":
                legal = t.emit(f"and i1 {legal}, {inside}")
            at = t.emit(f"mul i64 {t.emit(f'sext i32 {row} to i64')}, {pitch}")
            wide = t.emit(f"mul i32 {column}, {bytes}")
            at = t.emit(f"add i64 {at}, {t.emit(f'sext i32 {wide} to i64')}")
            safe = t.emit(f"select i1 {legal}, i64 {at}, i64 0")
            address = t.emit(f"getelementptr i8, ptr addrspace(1) %base, i64 {safe}")
            if loads:
                read = t.emit(f"load {integer}, ptr addrspace(1) {address}, align {bytes}")
                read = t.emit(f"select i1 {legal}, {integer} {read}, {integer} 0")
                if form.pack > 1:
                    read = t.emit(f"zext {integer} {read} to i32")
                    if part:
                        read = t.emit(f"shl i32 {read}, {part * form.bits}")
                        read = t.emit(f"or i32 {value}, {read}")
                value = read
            else:
                place = t.emit(f"getelementptr {word}, ptr %data, i64 {i}")
                held = t.emit(f"load {word}, ptr {place}, align {bytes}")
                t.count += 1
                n = t.count
                t.line(f"br i1 {legal}, label %put{n}, label %next{n}")
                t.lines.append(f"put{n}:")
                t.line(f"store {integer} {held}, ptr addrspace(1) {address}, align {bytes}")
                t.line(f"br label %next{n}")
                t.lines.append(f"next{n}:")
        if loads:
            place = t.emit(f"getelementptr {word}, ptr %data, i64 {i}")
            t.line(f"store {word} {value}, ptr {place}, align {form.component_bits // 8}")
    head = "ptr addrspace(1) %base, i32 %width, i32 %height, i32 %pitch, i32 %x, i32 %y, ptr %data"
    return t.function(name, head)


def _filled(numbers: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Positions of lanes that only pad, as the bits of their number would have them."""
    known = numbers if rows is None else np.where(rows < 0, -1, numbers)
    out = known.copy()
    first = int(known[0])
    for lane in range(len(out)):
        if out[lane] < 0:
            low = lane & -lane
            out[lane] = out[lane - low] + (int(out[low]) - first if low != lane else 0)
    return out


def _present(t: _Text, lane: str, mask: np.ndarray) -> str | None:
    """i1: does the lane hold an element? None where no lane does."""
    count = int(mask.sum())
    if count == 0:
        return None
    assert mask[:count].all(), "the lanes that hold elements come first"
    return t.emit(f"icmp ult i32 {lane}, {count}")


def row(name: str, form: RowMessage, lanes: int) -> str:
    """The function of a 1-D block message: every lane accesses its own words."""
    t = _Text()
    word, type = f"i{form.bits}", llvm_vector(form.count, f"i{form.bits}")
    pointer = f"ptr addrspace({3 if form.shared else 1})"
    lane = t.emit(f"call spir_func i32 @{LANE}()")
    value = "poison"
    for i in range(form.count):
        at = lane if i == 0 else t.emit(f"add i32 {lane}, {i * lanes}")
        address = t.emit(f"getelementptr {word}, {pointer} %base, i32 {at}")
        if form.kind == "load":
            read = t.emit(f"load {word}, {pointer} {address}, align {min(4, form.bits // 8)}")
            value = (
                read
                if form.count == 1
                else t.emit(f"insertelement {type} {value}, {word} {read}, i32 {i}")
            )
        else:
            held = _component(t, type, "%data", form.count, i)
            t.line(f"store {word} {held}, {pointer} {address}, align {min(4, form.bits // 8)}")
    if form.kind == "store":
        return t.function(name, f"{pointer} %base, {type} %data")
    return t.function(name, f"{pointer} %base", type, value)


def _widened(t: _Text, type: str, bits: int, value: str, acc: str) -> str:
    """An i32 whose low `bits` hold an element -> the accumulator's type (float or i32)."""
    if acc == "i32":
        shift = 32 - bits
        if type.startswith("u"):
            return t.emit(f"and i32 {value}, {(1 << bits) - 1}")
        up = t.emit(f"shl i32 {value}, {shift}")
        return t.emit(f"ashr i32 {up}, {shift}")
    if type == "bf16":
        return t.emit(f"bitcast i32 {t.emit(f'shl i32 {value}, 16')} to float")
    if type == "f16":
        half = t.emit(f"bitcast i16 {t.emit(f'trunc i32 {value} to i16')} to half")
        return t.emit(f"fpext half {half} to float")
    # tf32: 10 bits of mantissa, rounded to nearest even as arith.truncf does.
    odd = t.emit(f"and i32 {t.emit(f'lshr i32 {value}, 13')}, 1")
    up = t.emit(f"add i32 {value}, {t.emit(f'add i32 {odd}, 4095')}")
    return t.emit(f"bitcast i32 {t.emit(f'and i32 {up}, -8192')} to float")


def dpas(name: str, form: Dpas) -> str:
    """The function of a product: each lane owns a column; A's elements come from other lanes."""
    t = _Text()
    count, unit = form.a_components
    a_type = llvm_vector(count, f"i{unit}")
    acc = "i32" if form.c == "i32" else "float"
    c_element = {"f32": "float", "f16": "half", "bf16": "i16", "i32": "i32"}[form.c]
    c_type = llvm_vector(form.m, c_element)
    per_unit = unit // form.bits
    per_word = 32 // form.bits
    units_per_row = form.k // per_unit
    start = [_component(t, c_type, "%c", form.m, m) for m in range(form.m)]
    start = [_to_acc(t, form.c, x, acc) for x in start]
    a_parts = [_component(t, a_type, "%a", count, i) for i in range(count)]
    a_wide = [x if unit == 32 else t.emit(f"zext i{unit} {x} to i32") for x in a_parts]
    t.line("br label %loop")
    t.lines.append("loop:")
    t.line("%k = phi i32 [ 0, %entry ], [ %next, %loop ]")
    for m in range(form.m):
        t.line(f"%acc{m} = phi {acc} [ {start[m]}, %entry ], [ %sum{m}, %loop ]")
    b_word = t.emit(f"extractelement <8 x i32> %b, i32 {t.emit(f'udiv i32 %k, {per_word}')}")
    b_shift = t.emit(f"mul i32 {t.emit(f'urem i32 %k, {per_word}')}, {form.bits % 32}")
    b_value = _widened(t, form.b, form.bits, t.emit(f"lshr i32 {b_word}, {b_shift}"), acc)
    source = t.emit(f"udiv i32 %k, {per_unit}")
    a_shift = t.emit(f"mul i32 {t.emit(f'urem i32 %k, {per_unit}')}, {form.bits % 32}")
    for m in range(form.m):
        lane = source
        component = m
        if units_per_row < form.lanes:  # several rows of A share a component (tf32)
            rows = form.lanes // units_per_row
            component, row = divmod(m, rows)
            lane = t.emit(f"add i32 {source}, {row * units_per_row}") if row else source
        moved = t.emit(f"call spir_func i32 @{SHUFFLE}(i32 {a_wide[component]}, i32 {lane})")
        value = _widened(t, form.a, form.bits, t.emit(f"lshr i32 {moved}, {a_shift}"), acc)
        if acc == "i32":
            t.line(f"%sum{m} = add i32 %acc{m}, {t.emit(f'mul i32 {value}, {b_value}')}")
        else:
            args = f"float {value}, float {b_value}, float %acc{m}"
            t.line(f"%sum{m} = call float @llvm.fmuladd.f32({args})")
    t.line("%next = add i32 %k, 1")
    t.line(f"%more = icmp ult i32 %next, {form.k}")
    t.line("br i1 %more, label %loop, label %exit")
    t.lines.append("exit:")
    results = [_from_acc(t, form.c, f"%sum{m}") for m in range(form.m)]
    value = results[0] if form.m == 1 else "poison"
    if form.m > 1:
        for m, x in enumerate(results):
            value = t.emit(f"insertelement {c_type} {value}, {c_element} {x}, i32 {m}")
    return t.function(name, f"{a_type} %a, <8 x i32> %b, {c_type} %c", c_type, value)


def _component(t: _Text, type: str, value: str, count: int, i: int) -> str:
    return value if count == 1 else t.emit(f"extractelement {type} {value}, i32 {i}")


def _to_acc(t: _Text, type: str, value: str, acc: str) -> str:
    if type == "f16":
        return t.emit(f"fpext half {value} to float")
    if type == "bf16":
        wide = t.emit(f"shl i32 {t.emit(f'zext i16 {value} to i32')}, 16")
        return t.emit(f"bitcast i32 {wide} to {acc}")
    return value


def _from_acc(t: _Text, type: str, value: str) -> str:
    if type == "f16":
        return t.emit(f"fptrunc float {value} to half")
    if type == "bf16":
        bits = t.emit(f"bitcast float {value} to i32")
        odd = t.emit(f"and i32 {t.emit(f'lshr i32 {bits}, 16')}, 1")
        up = t.emit(f"add i32 {bits}, {t.emit(f'add i32 {odd}, 32767')}")
        return t.emit(f"trunc i32 {t.emit(f'lshr i32 {up}, 16')} to i16")
    return value
