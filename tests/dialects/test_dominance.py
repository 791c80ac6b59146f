"""Every use lies behind its definition, or the text is refused at the use."""

from __future__ import annotations

import random

import pytest
from xdsl.ir import Block, Region

from tests.draws import fresh_seed
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.dominance import Dominators, following, reachable
from tilewright.dialects.text import parse_module

HEAD = (
    "func.func @main(%t: i1) attributes {llvm.emit_c_interface} {\n"
    "  %c = arith.constant 1 : index\n"
)
DIAMOND = HEAD + (
    "  cf.cond_br %t, ^left, ^right\n"
    "^left:\n  %x = arith.addi %c, %c : index\n  cf.br ^end\n"
    "^right:\n  cf.br ^end\n"
    "^end:\n  %y = arith.addi %x, %c : index\n  return\n}\n"
)
LATER = HEAD + (
    "  memref.copy %m, %m : memref<4xf32> to memref<4xf32>\n  cf.br ^done\n"
    "^done:\n  %m = memref.alloc() : memref<4xf32>\n  return\n}\n"
)
ITSELF = HEAD + (
    "  %r = scf.for %i = %c to %c step %c iter_args(%a = %c) -> (index) {\n"
    "    %q = arith.addi %r, %c : index\n    scf.yield %q : index\n  }\n  return\n}\n"
)
AROUND = (
    "%c = arith.constant 1 : index\nfunc.func @main() {\n  vector.print %c : index\n  return\n}\n"
)


def message(text: str) -> str | None:
    try:
        parse_module(text, "uses.mlir")
    except TilewrightError as error:
        return str(error)
    return None


@pytest.mark.parametrize("text, op, value, why", [
    (DIAMOND, "10:8: error: 'arith.addi'", "%x", "does not dominate this one"),
    (LATER, "3:3: error: 'memref.copy'", "%m", "does not dominate this one"),
    (ITSELF, "4:10: error: 'arith.addi'", "%r", "used inside the op that defines it"),
    (AROUND, "3:3: error: 'vector.print'", "%c", "outside of 'func.func', which cannot use values"),
])  # fmt: skip
def test_a_use_that_nothing_dominates_is_refused(text: str, op: str, value: str, why: str) -> None:
    told = message(text)
    assert told is not None and told.startswith(f"uses.mlir:{op} op operand #0 ({value}) does not")
    assert why in told and "hint: a value is seen by" in told and "operand is defined here" in told


def test_blocks_may_stand_in_any_order_and_unreachable_ones_use_what_they_like() -> None:
    loop = HEAD + (
        "  cf.br ^one\n^two:\n  %x = arith.addi %c, %y : index\n  cf.cond_br %t, ^one, ^end\n"
        "^one:\n  %y = arith.addi %c, %c : index\n  cf.br ^two\n^end:\n  return\n}\n"
    )
    assert message(loop) is None
    never = HEAD + (
        "  return\n^never:\n  %x = arith.addi %c, %y : index\n  cf.br ^nor\n"
        "^nor:\n  %y = arith.addi %c, %c : index\n  cf.br ^never\n}\n"
    )
    assert message(never) is None


def graph(rng: random.Random) -> Region:
    """A region of up to twelve blocks with branches at random, none to the entry."""
    from xdsl.dialects.test import TestTermOp

    blocks = [Block() for _ in range(rng.randint(1, 12))]
    for block in blocks:
        goals = [rng.choice(blocks[1:]) for _ in range(rng.randint(0, 3))] if blocks[1:] else []
        block.add_op(TestTermOp.create(successors=goals))
    return Region(blocks)


def test_dominators_are_the_blocks_that_cut_a_block_off() -> None:
    rng = random.Random(fresh_seed())
    for _ in range(100):
        region = graph(rng)
        found = Dominators(region.blocks[0], following)
        entry = region.blocks[0]
        reached = set(reachable(entry, following))
        for one in region.blocks:
            without = set[Block]() if one is entry else {entry}
            todo = list(without)
            while todo:
                last = todo.pop().last_op
                for goal in last.successors if last is not None else ():
                    if goal is not one and goal not in without:
                        without.add(goal)
                        todo.append(goal)
            assert found.reachable(one) == (one in reached)
            for other in reached:
                expected = one in reached and other not in without
                assert found.dominates(one, other) == expected


def test_loops_are_what_goes_back_to_a_head_without_it() -> None:
    rng = random.Random(fresh_seed())
    for _ in range(100):
        goals = {n: [rng.randrange(8) for _ in range(rng.randint(0, 3))] for n in range(8)}
        found = Dominators(0, goals.__getitem__)
        reached, expected = reachable(0, goals.__getitem__), dict[int, set[int]]()
        for latch in reached:
            for head in (h for h in goals[latch] if found.dominates(h, latch)):
                inside = {n for n in reached if n != head and latch in ways(goals, n, head)}
                expected.setdefault(head, {head}).update(inside)
        assert found.loops() == expected


def ways(goals: dict[int, list[int]], start: int, without: int) -> list[int]:
    """The nodes that are reached from one, itself among them, by ways without another."""
    return reachable(start, lambda n: [goal for goal in goals[n] if goal != without])
