"""Loops in two stages compute what the plain loop computes, whatever the schedule, the length and what is carried."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tests.draws import fresh_rng
from tilewright.dialects.text import parse_module
from tilewright.passes.loop_pipeliner import (
    PipelineSchedule,
    expand,
    expand_ahead,
    expand_predicated,
)
from tilewright.reference import run

Rng = np.random.Generator
CARRIED = 3


def program(r: Rng) -> str:
    """A loop of sums and products of its counter, of what it carries and of each other."""
    names = ["%i", *(f"%a{n}" for n in range(CARRIED)), "%x"]
    body = ""
    for n in range(int(r.integers(3, 9))):
        x, y = r.choice(names, 2)
        body += f"        %v{n} = arith.{r.choice(['addi', 'muli', 'subi'])} {x}, {y} : index\n"
        names.append(f"%v{n}")
    ends = ", ".join(r.choice(names, CARRIED))
    types = ", ".join(["index"] * CARRIED)
    stores = "".join(
        f"      memref.store %r#{n}, %O[%n{n}] : memref<{CARRIED}xindex>\n" for n in range(CARRIED)
    )
    starts = ", ".join(f"%a{n} = %n{n}" for n in range(CARRIED))
    numbers = "".join(f"      %n{n} = arith.constant {n} : index\n" for n in range(CARRIED))
    return f"""
    gpu.module @m {{
    gpu.func @k(%O: memref<{CARRIED}xindex>, %from: index, %to: index, %x: index) kernel
        attributes {{tilewright.level = "workgroup"}} {{
{numbers}      %step = arith.constant 3 : index
      %r:{CARRIED} = scf.for %i = %from to %to step %step iter_args({starts}) -> ({types}) {{
{body}        scf.yield {ends} : {types}
      }}
{stores}      gpu.return
    }} }}"""


def loop_of(module: ModuleOp) -> scf.ForOp:
    return next(op for op in module.walk() if isinstance(op, scf.ForOp))


def schedule_of(
    loop: scf.ForOp, r: Rng, depth: int = 1, counts: int = 0
) -> PipelineSchedule | None:
    """One that is legal; None for a draw that is not."""
    block = loop.body.block
    ops = [op for op in block.ops if op is not block.last_op]
    late = {op: stage for op in ops if (stage := int(r.integers(depth + 1)))}
    if max(late.values(), default=0) < depth:
        return None
    plan = PipelineSchedule(loop, late, ops, counts)
    order: list[Operation] = []
    left = [ops[int(n)] for n in r.permutation(len(ops))]

    def there(value: SSAValue, stage: int) -> bool:
        age = plan.age(value, stage)
        if value is plan.counter and age < 0:
            return True
        end = plan.ends.get(value, value)
        makes = isinstance(end.owner, Operation) and end.owner in ops
        return age > 0 or (age == 0 and (not makes or end.owner in order))

    while left:
        op = next((o for o in left if all(there(v, plan.stage(o)) for v in plan.reads(o))), None)
        if op is None:
            return None
        order.append(op)
        left.remove(op)
    return PipelineSchedule(loop, late, order, counts)


def result(module: ModuleOp, trips: int, x: int) -> list[int]:
    out = np.full(CARRIED, -1, np.int64)
    run(module, (1, 1, 1), [out, 2, 2 + 3 * trips - int(trips > 0), x])
    return out.tolist()


@pytest.mark.parametrize("how", ["peeled", "predicated", *range(1, 4)])
def test_every_schedule_computes_the_same(how: str | int) -> None:
    """A number: the stages ahead of the one that counts."""
    r = fresh_rng()
    done = 0
    while done < 25:
        text = program(r)
        module = parse_module(text)
        loop = loop_of(module)
        plan = schedule_of(loop, r, how, how) if isinstance(how, int) else schedule_of(loop, r)
        if plan is None or (how == "predicated" and not ends_early(plan)):
            continue
        if how == "peeled":
            expand([plan])
        elif isinstance(how, int):
            expand_ahead(plan, lambda op, holds: op)
        else:
            start = loop.lb
            expand_predicated(plan, lambda op, holds: op, lambda value, start=start: start)
        module.verify()
        done += 1
        for trips in (0, 1, 2, 5):
            x = int(r.integers(-5, 6))
            assert result(module, trips, x) == result(parse_module(text), trips, x), text


def ends_early(plan: PipelineSchedule) -> bool:
    """Is nothing carried by the second stage? What is has no value where that has no iteration."""
    return not any(plan.end_stage(arg) for arg in plan.args)


def test_loops_in_a_row_need_one_prologue() -> None:
    """The second stage of one loop's last iteration runs in the first turn of the next."""
    text = """
    gpu.module @m { gpu.func @k(%O: memref<1xindex>, %to: index, %end: index) kernel
        attributes {tilewright.level = "workgroup"} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %a = scf.for %i = %c0 to %to step %c1 iter_args(%s = %c0) -> (index) {
        %x = arith.muli %i, %i : index
        %y = arith.addi %s, %x : index
        scf.yield %y : index
      }
      %b = scf.for %i = %to to %end step %c1 iter_args(%s = %a) -> (index) {
        %x = arith.addi %i, %c1 : index
        %y = arith.addi %s, %x : index
        scf.yield %y : index
      }
      memref.store %b, %O[%c0] : memref<1xindex>
      gpu.return
    } }"""
    module = parse_module(text)
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    plans: list[PipelineSchedule] = []
    for loop in loops:
        first, second, _ = loop.body.block.ops
        plans.append(PipelineSchedule(loop, {second: 1}, [second, first]))
    expand(plans)
    module.verify()
    for to in (0, 1, 3):
        for more in (0, 1, 4):
            outs = [np.zeros(1, np.int64) for _ in range(2)]
            for m, out in zip((module, parse_module(text)), outs, strict=True):
                run(m, (1, 1, 1), [out, to, to + more])
            assert outs[0] == outs[1]
