"""carry-offsets on random nests of loops and branches, whose tiles move, meet and change places."""

from __future__ import annotations

from itertools import product

import numpy as np

from tests.draws import fresh_rng
from tests.texts import Lines, parse_module
from tilewright import reference
from tilewright.dialects.text import print_module
from tilewright.passes.carry_offsets import carry_offsets

T, V = "!xetile.tile<2x4xf32>", "vector<2x4xf32>"
PROGRAMS = 12
WHOLE = """gpu.module @m {{ gpu.func @k(%A: memref<8x8xf32>, %B: memref<6x8xf32>, %O: memref<2x4xf32>, %n: index,
    %p: i1, %q: i1) kernel attributes {{tilewright.level = "workgroup"}} {{
  %zero = arith.constant dense<0.0> : vector<2x4xf32>
  %half = arith.constant dense<0.5> : vector<2x4xf32>
  %ta = xetile.init_tile %A[0, 0] : memref<8x8xf32> -> {tile}
  %tb = xetile.init_tile %A[1, 2] : memref<8x8xf32> -> {tile}
  %tc = xetile.init_tile %B[2, 1] : memref<6x8xf32> -> {tile}
  %to = xetile.init_tile %O[0, 0] : memref<2x4xf32> -> {tile}
{body}
  xetile.store_tile {sum}, %to : vector<2x4xf32>, {tile}
  gpu.return
}} }}"""


class Program(Lines):
    """A kernel under construction: three tiles and a sum, which every loop and branch hands on."""

    def __init__(self, rng: np.random.Generator):
        super().__init__()
        self.rng = rng

    def loaded(self, tile: str, total: str) -> str:
        value = self.put(f"xetile.load_tile {tile} : {T} -> {V}")
        total = self.put(f"arith.mulf {total}, %half : {V}")
        return self.put(f"arith.addf {total}, {value} : {V}")

    def body(self, values: list[str], tests: list[str], depth: int) -> list[str]:
        """The tiles and the sum behind some random ops on them."""
        *tiles, total = values
        for _ in range(self.rng.integers(1, 5)):
            i, j = self.rng.integers(len(tiles), size=2)
            match self.rng.integers(4 if depth < 3 else 3):
                case 0:
                    by = self.rng.choice(["[1, 0]", "[0, 1]", "[%c1, 2]", "[0, 0]"])
                    tiles[i] = self.put(f"xetile.update_tile_offset {tiles[i]}, {by} : {T}")
                case 1:
                    total = self.loaded(tiles[i], total)
                case 2:
                    test = self.rng.choice(tests)
                    tiles[i] = self.put(f"arith.select {test}, {tiles[i]}, {tiles[j]} : {T}")
                case _:
                    nest = self.rng.choice([self.loop, self.branch, self.while_loop])
                    *tiles, total = nest([*tiles, total], tests, depth + 1)
        return [*tiles, total]

    def ended(self, end: str, values: list[str], more: str = "") -> None:
        """A region's end, which hands the tiles on in some order."""
        *tiles, total = values
        order = [str(t) for t in self.rng.permutation(tiles)] if self.rng.random() < 0.5 else tiles
        types = ", ".join([T] * len(tiles) + [V] + ["index"] * bool(more))
        self.lines.append(f"{end} {', '.join([*order, total])}{more} : {types}")

    def begun(self, op: str, values: list[str], more: str = "") -> tuple[list[str], list[str]]:
        """A loop's first line: the names of what it carries, inside and behind it."""
        inside, result = [self.name() for _ in values], self.name()
        given = ", ".join(f"{a} = {v}" for a, v in zip(inside, values, strict=True))
        types = ", ".join([T] * (len(values) - 1) + [V] + ["index"] * bool(more))
        count = len(values) + bool(more)
        self.lines.append(f"{result}:{count} = {op.format(given=given + more, types=types)}")
        return inside, [f"{result}#{n}" for n in range(len(values))]

    def loop(self, values: list[str], tests: list[str], depth: int) -> list[str]:
        counter, end = self.name(), self.rng.choice(["%c0", "%c2", "%n"])
        op = f"scf.for {counter} = %c0 to {end} step %c1 iter_args({{given}}) -> ({{types}}) {{{{"
        inside, results = self.begun(op, values)
        first = self.put(f"arith.cmpi eq, {counter}, %c1 : index")
        self.ended("scf.yield", self.body(inside, [*tests, first], depth))
        self.lines.append("}")
        return results

    def branch(self, values: list[str], tests: list[str], depth: int) -> list[str]:
        result, types = self.name(), ", ".join([T] * (len(values) - 1) + [V])
        self.lines.append(
            f"{result}:{len(values)} = scf.if {self.rng.choice(tests)} -> ({types}) {{"
        )
        for end in ("} else {", "}"):
            self.ended("scf.yield", self.body(values, tests, depth))
            self.lines.append(end)
        return [f"{result}#{n}" for n in range(len(values))]

    def while_loop(self, values: list[str], tests: list[str], depth: int) -> list[str]:
        number = self.name()
        op = "scf.while ({given}) : ({types}) -> ({types}) {{"
        inside, results = self.begun(op, values, f", {number} = %c0")
        more = self.put(f"arith.cmpi slt, {number}, %n : index")
        self.ended(f"scf.condition({more})", self.body(inside, tests, depth), f", {number}")
        after, counted = [self.name() for _ in values], self.name()
        kinds = zip(after, [T] * (len(values) - 1) + [V], strict=True)
        arguments = ", ".join(f"{a}: {kind}" for a, kind in kinds)
        self.lines += ["} do {", f"^bb0({arguments}, {counted}: index):"]
        given = self.body(after, tests, depth)
        self.ended("scf.yield", given, f", {self.put(f'arith.addi {counted}, %c1 : index')}")
        self.lines.append("}")
        return results


def drawn(rng: np.random.Generator) -> str:
    program = Program(rng)
    *tiles, total = program.body(["%ta", "%tb", "%tc", "%zero"], ["%p", "%q"], 0)
    for tile in tiles:
        total = program.loaded(tile, total)
    return WHOLE.format(tile=T, body="\n".join(program.lines), sum=total)


def test_random_nests_give_the_same() -> None:
    rng = fresh_rng()
    for _ in range(PROGRAMS):
        text = drawn(rng)
        module = parse_module(text)
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 8), (6, 8))]
        results: list[list[np.ndarray]] = []
        for change in (False, True):
            if change:
                carry_offsets(module)
                module.verify()
                module = parse_module(print_module(module))
            results.append([])
            for n, p, q in product((0, 3), (False, True), (False, True)):
                results[-1].append(np.full((2, 4), np.nan, np.float32))
                args = [*arrays, results[-1][-1], n, p, q]
                reference.run(module, (1, 1, 1), args)
        np.testing.assert_array_equal(*results, err_msg=text)
