"""Subgroups of a workgroup as fibres: each has a stack, and barriers switch between them.

One thread runs a workgroup at a time: it starts the subgroup 0, which runs until it waits, then subgroup 1, and so
on, round after round.  A barrier counts generations: a subgroup that waits looks, when its turn comes, whether its
generation is over (`until`).  Runs are therefore the same every time, a switch costs nanoseconds, and a round in which
nobody got further is a deadlock.  Any subset of the subgroups may meet at a named barrier, and arrive without waiting.
Workgroups are drawn from a counter that all worker threads share.  Shared memory is filled with ones (NaN) for each
workgroup.

The offsets are those of `context`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tilewright.targets.emu import context as c
from tilewright.targets.emu.switch import SWITCHES, Switch

SYMBOLS: Final = ("tw_emu_barrier", "tw_emu_arrive", "tw_emu_wait", "tw_emu_yield", "tw_emu_fail")
"""Functions that kernels call."""


def _at(name: str, base: str, offset: int | str) -> str:
    """Address `%name` of a word."""
    return f"  %{name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def _word(name: str, base: str, offset: int, type: str = "i64") -> str:
    """Address `%name.at` of a word, and its value `%name`."""
    return _at(f"{name}.at", base, offset) + f"  %{name} = load {type}, ptr %{name}.at\n"


def _put(value: str, base: str, offset: int, name: str) -> str:
    return _at(f"{name}.to", base, offset) + f"  store i64 {value}, ptr %{name}.to\n"


def _fiber(name: str, number: str) -> str:
    """Address `%name` of the record of a subgroup."""
    return (
        _word(f"{name}.table", "%c", c.FIBERS, "ptr")
        + f"  %{name}.offset = mul i64 {number}, {c.FIBER_BYTES}\n"
        + _at(name, f"%{name}.table", f"%{name}.offset")
    )


def _named() -> str:
    """`%known.at`, `%arrived`, `%gen`: words of the named barrier `%id`; `%p`: that of the current subgroup for it."""
    return f"""\
{_word("table", "%c", c.NAMED, "ptr")}\
  %offset = mul i64 %id, {c.NAMED_BYTES}
{_at("n", "%table", "%offset")}\
{_word("cur", "%c", c.CURRENT)}\
  %row = mul i64 %cur, {c.BARRIERS}
  %cell = add i64 %row, %id
{_word("passed", "%c", c.PASSED, "ptr")}\
  %p = getelementptr i64, ptr %passed, i64 %cell
{_word("known", "%n", c.NAMED_PARTICIPANTS)}\
{_word("gen", "%n", c.NAMED_GENERATION)}\
{_word("arrived", "%n", c.NAMED_ARRIVED)}\
  %fresh = icmp eq i64 %known, 0
  %agrees = icmp eq i64 %known, %count
  %fine = or i1 %fresh, %agrees
  br i1 %fine, label %go, label %misuse
misuse:
  call void @tw_emu_fail(ptr %c, i64 %site, i64 {c.MISUSE})
  unreachable
go:
  store i64 %count, ptr %known.at
"""


def _arrival(count: str) -> str:
    """One more of `count` has arrived: the last begins the next generation, `%next`."""
    return f"""\
  %next = add i64 %gen, 1
  %now = add i64 %arrived, 1
  %last = icmp eq i64 %now, {count}
  %kept = select i1 %last, i64 0, i64 %now
  %current = select i1 %last, i64 %next, i64 %gen
  store i64 %kept, ptr %arrived.at
  store i64 %current, ptr %gen.at
"""


def fibers_ir(switch: Switch) -> str:
    """LLVM IR text of the scheduler and of `SYMBOLS`."""
    return f"""\
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

{switch.ir()}\
define internal void @main(ptr %c) noinline nounwind {{
{_word("cur", "%c", c.CURRENT)}\
{_word("kernel", "%c", c.KERNEL, "ptr")}\
  call void %kernel(ptr %c, i64 %cur)
{_fiber("f", "%cur")}\
{_put(str(c.DONE), "%f", c.FIBER_STATUS, "status")}\
  call void @tw_emu_yield(ptr %c)
  unreachable
}}

define void @tw_emu_yield(ptr %c) noinline nounwind {{
{_word("cur", "%c", c.CURRENT)}\
{_fiber("f", "%cur")}\
{_word("s", "%c", c.SCHEDULER, "ptr")}\
  call void @switch(ptr %f, ptr %s)
  ret void
}}

define void @tw_emu_fail(ptr %c, i64 %site, i64 %code) nounwind {{
{_put("%code", "%c", c.FAILURE, "code")}\
{_put("%site", "%c", c.FAILURE_SITE, "site")}\
  call void @tw_emu_yield(ptr %c)
  unreachable
}}

define internal void @until(ptr %c, i64 %site, i64 %status, i64 %id, ptr %gen.at, i64 %wanted) nounwind {{
entry:
{_word("cur", "%c", c.CURRENT)}\
{_fiber("f", "%cur")}\
{_put("%site", "%f", c.FIBER_SITE, "place")}\
{_put("%id", "%f", c.FIBER_BARRIER, "which")}\
  br label %look
look:
  %gen = load i64, ptr %gen.at
  %over = icmp sge i64 %gen, %wanted
  br i1 %over, label %done, label %wait
wait:
{_put("%status", "%f", c.FIBER_STATUS, "status")}\
  call void @tw_emu_yield(ptr %c)
  br label %look
done:
{_put(str(c.READY), "%f", c.FIBER_STATUS, "ready")}\
{_put("1", "%c", c.PROGRESS, "progress")}\
  ret void
}}

define void @tw_emu_barrier(ptr %c, i64 %site) nounwind {{
{_word("n", "%c", c.SUBGROUPS)}\
{_word("gen", "%c", c.GENERATION)}\
{_word("arrived", "%c", c.ARRIVED)}\
{_arrival("%n")}\
  call void @until(ptr %c, i64 %site, i64 {c.AT_BARRIER}, i64 0, ptr %gen.at, i64 %next)
  ret void
}}

define void @tw_emu_arrive(ptr %c, i64 %site, i64 %id, i64 %count) nounwind {{
{_named()}\
{_arrival("%count")}\
  store i64 %next, ptr %p
  ret void
}}

define void @tw_emu_wait(ptr %c, i64 %site, i64 %id, i64 %count) nounwind {{
{_named()}\
  %mine = load i64, ptr %p
  %never = icmp eq i64 %mine, 0
  %waits = select i1 %never, i64 1, i64 %mine
  store i64 %waits, ptr %p
  call void @until(ptr %c, i64 %site, i64 {c.AT_NAMED}, i64 %id, ptr %gen.at, i64 %waits)
  %following = add i64 %waits, 1
  store i64 %following, ptr %p
  ret void
}}

define i64 @tw_emu_run(ptr %c) nounwind {{
entry:
{_at("scheduler", "%c", c.SCHEDULER)}\
{_at("current", "%c", c.CURRENT)}\
{_at("progress", "%c", c.PROGRESS)}\
{_word("n", "%c", c.SUBGROUPS)}\
{_word("gx", "%c", c.GRID)}\
{_word("gy", "%c", c.GRID + 8)}\
{_word("total", "%c", c.WORKGROUPS)}\
{_word("bytes", "%c", c.SHARED_SIZE)}\
{_word("stack", "%c", c.STACK_SIZE)}\
{_word("shared", "%c", c.SHARED, "ptr")}\
{_word("stacks", "%c", c.STACKS, "ptr")}\
{_word("named", "%c", c.NAMED, "ptr")}\
{_word("passed", "%c", c.PASSED, "ptr")}\
{_word("counter", "%c", c.COUNTER, "ptr")}\
  br label %draw
draw:
  %w = atomicrmw add ptr %counter, i64 1 monotonic
  %some = icmp slt i64 %w, %total
  br i1 %some, label %begin, label %finished
finished:
  ret i64 0
begin:
  %x = urem i64 %w, %gx
  %rest = udiv i64 %w, %gx
  %y = urem i64 %rest, %gy
  %z = udiv i64 %rest, %gy
{_put("%x", "%c", c.WORKGROUP, "x")}\
{_put("%y", "%c", c.WORKGROUP + 8, "y")}\
{_put("%z", "%c", c.WORKGROUP + 16, "z")}\
{_put("0", "%c", c.ARRIVED, "arrived")}\
{_put("0", "%c", c.GENERATION, "generation")}\
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %bytes, i1 false)
  %uses = icmp ne ptr %named, null
  br i1 %uses, label %clear, label %start
clear:
  call void @llvm.memset.p0.i64(ptr %named, i8 0, i64 {c.BARRIERS * c.NAMED_BYTES}, i1 false)
  %cells = mul i64 %n, {8 * c.BARRIERS}
  call void @llvm.memset.p0.i64(ptr %passed, i8 0, i64 %cells, i1 false)
  br label %start
start:
  %i = phi i64 [ 0, %begin ], [ 0, %clear ], [ %i1, %new ]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %new, label %round
new:
{_fiber("g", "%i")}\
  %i1 = add i64 %i, 1
  %reach = mul i64 %i1, %stack
{_at("top", "%stacks", "%reach")}\
{_at("goal", "%top", -switch.entry)}\
  store ptr @enter, ptr %goal
{_at("context", "%top", -switch.context)}\
  store ptr %c, ptr %context
{_at("run", "%top", -switch.main)}\
  store ptr @main, ptr %run
{_at("low", "%top", -switch.low)}\
  store ptr %low, ptr %g
{_put(str(c.READY), "%g", c.FIBER_STATUS, "gstatus")}\
  br label %start
round:
  store i64 0, ptr %progress
  br label %next
next:
  %k = phi i64 [ 0, %round ], [ %k1, %look ], [ %k1, %resume ]
  %alive = phi i1 [ false, %round ], [ %alive, %look ], [ true, %resume ]
  %k1 = add i64 %k, 1
  %inside = icmp slt i64 %k, %n
  br i1 %inside, label %look, label %after
look:
{_fiber("f", "%k")}\
{_word("status", "%f", c.FIBER_STATUS)}\
  %done = icmp eq i64 %status, {c.DONE}
  br i1 %done, label %next, label %turn
turn:
  %ready = icmp eq i64 %status, {c.READY}
  %before = load i64, ptr %progress
  %with = select i1 %ready, i64 1, i64 %before
  store i64 %with, ptr %progress
  store i64 %k, ptr %current
  %to = load ptr, ptr %f
  call void @switch(ptr %scheduler, ptr %to)
{_word("failure", "%c", c.FAILURE)}\
  %fine = icmp eq i64 %failure, 0
  br i1 %fine, label %resume, label %failed
resume:
  br label %next
failed:
  ret i64 %failure
after:
  %further = load i64, ptr %progress
  %some.further = icmp ne i64 %further, 0
  br i1 %alive, label %again, label %draw
again:
  br i1 %some.further, label %round, label %stuck
stuck:
{_put(str(c.DEADLOCK), "%c", c.FAILURE, "dead")}\
  ret i64 {c.DEADLOCK}
}}
"""


@cache
def scheduler(target: Any) -> Any:
    """The scheduler's code in this process, compiled once for the `target`."""
    from tilewright.codegen.jit import compile_object
    from tilewright.codegen.loading import LoadedObject

    text = f'target triple = "{target.triple}"\n{fibers_ir(SWITCHES[target.family])}'
    return LoadedObject(compile_object(text, target), target)
