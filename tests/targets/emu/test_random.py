"""Random programs of lanes: arithmetic, conditions and loops that lanes agree on or not, memory, shuffles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_seed
from tests.targets.emu.agree import agree, lane_kernel
from tests.texts import Lines

BINARY = (
    "addi",
    "subi",
    "muli",
    "andi",
    "ori",
    "xori",
    "minsi",
    "maxui",
    "shrui",
    "divsi",
    "remui",
)
PREDICATES = ("eq", "ne", "slt", "sle", "ult", "ugt")


class Drawing(Lines):
    """A program's text; values are i32, and each is known to be the same in all lanes or not."""

    def __init__(self, rng: np.random.Generator):
        super().__init__()
        self.rng = rng

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def constant(self, value: int) -> str:
        return self.put(f"arith.constant {value} : i32")

    def condition(self, known: list[str]) -> str:
        a, b = self.pick(known), self.pick(known)
        return self.put(f"arith.cmpi {self.pick(PREDICATES)}, {a}, {b} : i32")

    def small(self, known: list[str], limit: int) -> str:
        """A number from 0 to limit - 1, as an index."""
        n = self.constant(limit)
        rest = self.put(f"arith.remui {self.pick(known)}, {n} : i32")
        return self.put(f"arith.index_cast {rest} : i32 to index")

    def statement(self, known: list[str], depth: int, together: bool) -> None:
        kinds = ["binary"] * 5 + ["select", "load", "store", "ramp"]
        if together:
            kinds += ["shuffle", "reduce"]
        if depth:
            kinds += ["if", "for", "while"] * 2
        getattr(self, self.pick(kinds))(known, depth, together)

    def block(self, known: list[str], depth: int, together: bool, n: int) -> list[str]:
        inner = list(known)
        for _ in range(n):
            self.statement(inner, depth, together)
        return inner

    def binary(self, known, depth, together):
        op, a, b = self.pick(BINARY), self.pick(known), self.pick(known)
        if op in ("divsi", "remui", "shrui"):
            limit = self.constant(7)
            small = self.put(f"arith.andi {b}, {limit} : i32")
            one = self.constant(1)
            b = small if op == "shrui" else self.put(f"arith.addi {small}, {one} : i32")
        known.append(self.put(f"arith.{op} {a}, {b} : i32"))

    def ramp(self, known, depth, together):
        """Index arithmetic on the lane's number, which the compiler follows."""
        number = self.pick((1, 2, 3, 4, 8, 16))
        n = self.put(f"arith.constant {number} : index")
        op = self.pick(("addi", "muli", "divui", "remui", "subi"))
        value = self.put(f"arith.{op} {self.pick(('%me', '%lane', '%t'))}, {n} : index")
        known.append(self.put(f"arith.index_cast {value} : index to i32"))

    def select(self, known, depth, together):
        c = self.condition(known)
        known.append(self.put(f"arith.select {c}, {self.pick(known)}, {self.pick(known)} : i32"))

    def load(self, known, depth, together):
        known.append(self.put(f"memref.load %a[{self.small(known, 64)}] : memref<64xi32>"))

    def store(self, known, depth, together):
        """To memory of the lane's own."""
        at = self.small(known, 4)
        self.lines.append(f"memref.store {self.pick(known)}, %o[%me, {at}] : memref<64x5xi32>")

    def shuffle(self, known, depth, together):
        mode = self.pick(("xor", "up", "down", "idx"))
        by = self.constant(int(self.rng.integers(0, 16)))
        width = self.constant(self.pick((4, 8, 16)))
        x = self.pick(known)
        value, valid = self.name(), self.name()
        self.lines.append(f"{value}, {valid} = gpu.shuffle {mode} {x}, {by}, {width} : i32")
        other = self.pick(known)
        known.append(self.put(f"arith.select {valid}, {value}, {other} : i32"))

    def reduce(self, known, depth, together):
        kind = self.pick(("add", "maxsi", "xor"))
        known.append(self.put(f"gpu.subgroup_reduce {kind} {self.pick(known)} : (i32) -> i32"))

    def region(self, known, depth, n, together):
        inner = self.block(known, depth - 1, together, n)
        self.lines.append(f"scf.yield {self.pick(inner)} : i32")

    def if_(self, known, depth, together):
        c = self.condition(known)
        name = self.name()
        self.lines.append(f"{name} = scf.if {c} -> (i32) {{")
        self.region(known, depth, 2, False)
        self.lines.append("} else {")
        self.region(known, depth, 2, False)
        self.lines.append("}")
        known.append(name)

    def for_(self, known, depth, together):
        """Bounds that lanes agree on, where collectives may stand in the body, or not."""
        same = bool(self.rng.integers(2))
        top = self.put("arith.constant 3 : index") if same else self.small(known, 5)
        name, i, acc = self.name(), self.name(), self.name()
        start = self.pick(known)
        self.lines.append(
            f"{name} = scf.for {i} = %c0 to {top} step %c1 iter_args({acc} = {start}) -> (i32) {{"
        )
        inner = [*known, acc]
        inner.append(self.put(f"arith.index_cast {i} : index to i32"))
        self.region(inner, depth, 3, together and same)
        self.lines.append("}")
        known.append(name)

    def while_(self, known, depth, together):
        """At most so many rounds as a counter allows, and as long as lanes want."""
        name, x, k = self.name(), self.name(), self.name()
        rounds = self.constant(int(self.rng.integers(1, 5)))
        self.lines.append(
            f"{name}:2 = scf.while ({x} = {self.pick(known)}, {k} = {rounds}) : (i32, i32) -> (i32, i32) {{"
        )
        zero, one = self.constant(0), self.constant(1)
        wants = self.condition([*known, x])
        left = self.put(f"arith.cmpi sgt, {k}, {zero} : i32")
        go = self.put(f"arith.andi {wants}, {left} : i1")
        self.lines.append(f"scf.condition({go}) {x}, {k} : i32, i32")
        y, m = self.name(), self.name()
        self.lines += ["} do {", f"^bb0({y}: i32, {m}: i32):"]
        inner = self.block([*known, y], depth - 1, False, 2)
        one = self.constant(1)
        less = self.put(f"arith.subi {m}, {one} : i32")
        self.lines += [f"scf.yield {self.pick(inner)}, {less} : i32, i32", "}"]
        known.append(f"{name}#0")


for word in ("if", "for", "while"):
    setattr(Drawing, word, getattr(Drawing, f"{word}_"))

HEAD = """
%lane = gpu.lane_id
%sg = gpu.subgroup_id
%b = gpu.block_id x
%t = gpu.thread_id x
%m0 = arith.muli %b, %c32 : index
%m1 = arith.muli %sg, %c16 : index
%m2 = arith.addi %m0, %m1 : index
%me = arith.addi %m2, %lane : index
%l = arith.index_cast %lane : index to i32
%u = arith.index_cast %m2 : index to i32
%x = memref.load %a[%me] : memref<64xi32>
"""


@pytest.mark.parametrize("number", range(12))
def test_random_programs(number):
    seed = fresh_seed()
    drawing = Drawing(np.random.default_rng(seed))
    known = ["%l", "%u", "%x", drawing.constant(5), drawing.constant(-3)]
    known = drawing.block(known, 3, True, 10)
    last = drawing.pick(known[-3:])
    body = HEAD + "\n".join(drawing.lines)
    body += f"\nmemref.store {last}, %o[%me, %c4] : memref<64x5xi32>"
    rng = np.random.default_rng(seed)
    a = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    a[::3] %= 16
    module = lane_kernel("%a: memref<64xi32>, %o: memref<64x5xi32>", body, subgroups=2)
    try:
        agree(module, [a, np.full((64, 5), -7, np.int32)], (2, 1, 1))
    except Exception as error:
        raise AssertionError(f"seed {seed}\n{body}") from error
