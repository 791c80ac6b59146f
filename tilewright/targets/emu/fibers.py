"""Subgroups of a workgroup as fibres: each has a stack, and barriers switch between them.

One thread runs a workgroup at a time: it starts the subgroup 0, which runs until it waits, then subgroup 1, and so
on, round after round; a barrier that the last participant reaches makes the others ready.  Runs are therefore the same
every time, a switch costs nanoseconds, and a round in which nobody could run is a deadlock.  Any subset of the
subgroups may meet at a named barrier, and arrive without waiting.  Workgroups are drawn from a counter that all worker
threads share.  Shared memory is filled with ones (NaN) for each workgroup.

The offsets are those of `context`.  The switch is for the System V convention of x86-64: rbx, rbp, r12 to r15 and the
stack belong to the caller, everything else is saved by LLVM around the call.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tilewright.targets.emu import context as c

SYMBOLS: Final = (
    "tw_emu_barrier",
    "tw_emu_arrive",
    "tw_emu_wait",
    "tw_emu_yield",
    "tw_emu_fail",
)
"""Functions that kernels call."""

_SAVED = ("rbp", "rbx", "r12", "r13", "r14", "r15")


def _word(name: str, base: str, offset: int | str) -> str:
    """Address `%name.at` of a word, and its value `%name`."""
    return (
        f"  %{name}.at = getelementptr i8, ptr {base}, i64 {offset}\n"
        f"  %{name} = load i64, ptr %{name}.at\n"
    )


def _put(value: str, base: str, offset: int, name: str) -> str:
    return (
        f"  %{name}.to = getelementptr i8, ptr {base}, i64 {offset}\n"
        f"  store i64 {value}, ptr %{name}.to\n"
    )


def _fiber(name: str, number: str) -> str:
    """Address `%name` of the record of a subgroup."""
    return (
        f"  %{name}.table.at = getelementptr i8, ptr %c, i64 {c.FIBERS}\n"
        f"  %{name}.table = load ptr, ptr %{name}.table.at\n"
        f"  %{name}.offset = mul i64 {number}, {c.FIBER_BYTES}\n"
        f"  %{name} = getelementptr i8, ptr %{name}.table, i64 %{name}.offset\n"
    )


def _named() -> str:
    """`%n`: the record of the named barrier `%id`; `%p`: the word of the current subgroup for it."""
    return f"""\
  %table.at = getelementptr i8, ptr %c, i64 {c.NAMED}
  %table = load ptr, ptr %table.at
  %offset = mul i64 %id, {c.NAMED_BYTES}
  %n = getelementptr i8, ptr %table, i64 %offset
{_word("cur", "%c", c.CURRENT)}\
  %row = mul i64 %cur, {c.BARRIERS}
  %cell = add i64 %row, %id
  %passed.at = getelementptr i8, ptr %c, i64 {c.PASSED}
  %passed = load ptr, ptr %passed.at
  %p = getelementptr i64, ptr %passed, i64 %cell
{_word("known", "%n", c.NAMED_PARTICIPANTS)}\
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


def fibers_ir() -> str:
    """LLVM IR text of the scheduler and of `SYMBOLS`."""
    push = "\\0A".join(f"pushq %{r}" for r in _SAVED)
    pop = "\\0A".join(f"popq %{r}" for r in reversed(_SAVED))
    return f"""\
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @switch(ptr %from, ptr %to) naked noinline nounwind {{
  call void asm sideeffect "{push}\\0Amovq %rsp, (%rdi)\\0Amovq %rsi, %rsp\\0A{pop}\\0Aretq", "~{{memory}}"()
  unreachable
}}

define internal void @enter() naked noinline nounwind {{
  call void asm sideeffect "movq %r12, %rdi\\0Acallq *%r13\\0Aud2", "~{{memory}}"()
  unreachable
}}

define internal void @main(ptr %c) noinline nounwind {{
{_word("cur", "%c", c.CURRENT)}\
  %kernel.at = getelementptr i8, ptr %c, i64 {c.KERNEL}
  %kernel = load ptr, ptr %kernel.at
  call void %kernel(ptr %c, i64 %cur)
{_fiber("f", "%cur")}\
{_put(str(c.DONE), "%f", c.FIBER_STATUS, "status")}\
{_word("live", "%c", c.LIVE)}\
  %left = sub i64 %live, 1
  store i64 %left, ptr %live.at
  call void @suspend(ptr %c)
  unreachable
}}

define internal void @suspend(ptr %c) noinline nounwind {{
{_word("cur", "%c", c.CURRENT)}\
{_fiber("f", "%cur")}\
  %s.at = getelementptr i8, ptr %c, i64 {c.SCHEDULER}
  %s = load ptr, ptr %s.at
  call void @switch(ptr %f, ptr %s)
  ret void
}}

define void @tw_emu_yield(ptr %c) nounwind {{
  call void @suspend(ptr %c)
  ret void
}}

define void @tw_emu_fail(ptr %c, i64 %site, i64 %code) nounwind {{
{_put("%code", "%c", c.FAILURE, "code")}\
{_put("%site", "%c", c.FAILURE_SITE, "site")}\
  call void @suspend(ptr %c)
  unreachable
}}

define internal void @wake(ptr %c, i64 %status, i64 %id, i64 %generation) nounwind {{
entry:
{_word("n", "%c", c.SUBGROUPS)}\
  %passed.at = getelementptr i8, ptr %c, i64 {c.PASSED}
  %passed = load ptr, ptr %passed.at
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %tail ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %done
look:
{_fiber("f", "%i")}\
{_word("mine", "%f", c.FIBER_STATUS)}\
{_word("at", "%f", c.FIBER_BARRIER)}\
  %kind = icmp eq i64 %mine, %status
  %place = icmp eq i64 %at, %id
  %hit = and i1 %kind, %place
  br i1 %hit, label %found, label %tail
found:
  %all = icmp slt i64 %generation, 0
  br i1 %all, label %release, label %count
count:
  %row = mul i64 %i, {c.BARRIERS}
  %cell = add i64 %row, %id
  %p = getelementptr i64, ptr %passed, i64 %cell
  %waits = load i64, ptr %p
  %over = icmp sle i64 %waits, %generation
  br i1 %over, label %pass, label %tail
pass:
  %waits1 = add i64 %waits, 1
  store i64 %waits1, ptr %p
  br label %release
release:
  store i64 {c.READY}, ptr %mine.at
  br label %tail
tail:
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}}

define void @tw_emu_barrier(ptr %c, i64 %site) nounwind {{
{_word("n", "%c", c.SUBGROUPS)}\
{_word("here", "%c", c.ARRIVED)}\
  %here1 = add i64 %here, 1
  %last = icmp eq i64 %here1, %n
  br i1 %last, label %open, label %wait
open:
  store i64 0, ptr %here.at
  call void @wake(ptr %c, i64 {c.AT_BARRIER}, i64 0, i64 -1)
  ret void
wait:
  store i64 %here1, ptr %here.at
{_word("cur", "%c", c.CURRENT)}\
{_fiber("f", "%cur")}\
{_put(str(c.AT_BARRIER), "%f", c.FIBER_STATUS, "status")}\
{_put("%site", "%f", c.FIBER_SITE, "place")}\
{_put("0", "%f", c.FIBER_BARRIER, "which")}\
  call void @suspend(ptr %c)
  ret void
}}

define void @tw_emu_arrive(ptr %c, i64 %site, i64 %id, i64 %count) nounwind {{
{_named()}\
{_word("gen", "%n", c.NAMED_GENERATION)}\
{_word("arrived", "%n", c.NAMED_ARRIVED)}\
  %gen1 = add i64 %gen, 1
  store i64 %gen1, ptr %p
  %arrived1 = add i64 %arrived, 1
  %last = icmp eq i64 %arrived1, %count
  br i1 %last, label %open, label %shut
open:
  store i64 0, ptr %arrived.at
  store i64 %gen1, ptr %gen.at
  call void @wake(ptr %c, i64 {c.AT_NAMED}, i64 %id, i64 %gen1)
  ret void
shut:
  store i64 %arrived1, ptr %arrived.at
  ret void
}}

define void @tw_emu_wait(ptr %c, i64 %site, i64 %id, i64 %count) nounwind {{
{_named()}\
{_word("gen", "%n", c.NAMED_GENERATION)}\
  %mine = load i64, ptr %p
  %never = icmp eq i64 %mine, 0
  %waits = select i1 %never, i64 1, i64 %mine
  store i64 %waits, ptr %p
  %over = icmp sle i64 %waits, %gen
  br i1 %over, label %pass, label %wait
pass:
  %waits1 = add i64 %waits, 1
  store i64 %waits1, ptr %p
  ret void
wait:
{_fiber("f", "%cur")}\
{_put(str(c.AT_NAMED), "%f", c.FIBER_STATUS, "status")}\
{_put("%site", "%f", c.FIBER_SITE, "place")}\
{_put("%id", "%f", c.FIBER_BARRIER, "which")}\
  call void @suspend(ptr %c)
  ret void
}}

define i64 @tw_emu_run(ptr %c) nounwind {{
entry:
  %scheduler = getelementptr i8, ptr %c, i64 {c.SCHEDULER}
  %current = getelementptr i8, ptr %c, i64 {c.CURRENT}
  %live.to = getelementptr i8, ptr %c, i64 {c.LIVE}
{_word("n", "%c", c.SUBGROUPS)}\
{_word("gx", "%c", c.GRID)}\
{_word("gy", "%c", c.GRID + 8)}\
{_word("total", "%c", c.WORKGROUPS)}\
{_word("bytes", "%c", c.SHARED_SIZE)}\
{_word("stack", "%c", c.STACK_SIZE)}\
  %shared.at = getelementptr i8, ptr %c, i64 {c.SHARED}
  %shared = load ptr, ptr %shared.at
  %stacks.at = getelementptr i8, ptr %c, i64 {c.STACKS}
  %stacks = load ptr, ptr %stacks.at
  %named.at = getelementptr i8, ptr %c, i64 {c.NAMED}
  %named = load ptr, ptr %named.at
  %passed.at = getelementptr i8, ptr %c, i64 {c.PASSED}
  %passed = load ptr, ptr %passed.at
  %counter.at = getelementptr i8, ptr %c, i64 {c.COUNTER}
  %counter = load ptr, ptr %counter.at
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
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %bytes, i1 false)
  store i64 %n, ptr %live.to
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
  %top = getelementptr i8, ptr %stacks, i64 %reach
  %ret = getelementptr i8, ptr %top, i64 -8
  store ptr @enter, ptr %ret
  %r12 = getelementptr i8, ptr %top, i64 -32
  store ptr %c, ptr %r12
  %r13 = getelementptr i8, ptr %top, i64 -40
  store ptr @main, ptr %r13
  %low = getelementptr i8, ptr %top, i64 -56
  store ptr %low, ptr %g
{_put(str(c.READY), "%g", c.FIBER_STATUS, "gstatus")}\
  br label %start
round:
  br label %next
next:
  %k = phi i64 [ 0, %round ], [ %k1, %skip ], [ %k1, %ran ]
  %ran.so.far = phi i1 [ false, %round ], [ %ran.so.far, %skip ], [ true, %ran ]
  %k1 = add i64 %k, 1
  %inside = icmp slt i64 %k, %n
  br i1 %inside, label %look, label %after
look:
{_fiber("f", "%k")}\
{_word("status", "%f", c.FIBER_STATUS)}\
  %ready = icmp eq i64 %status, {c.READY}
  br i1 %ready, label %resume, label %skip
skip:
  br label %next
resume:
  store i64 %k, ptr %current
  %to = load ptr, ptr %f
  call void @switch(ptr %scheduler, ptr %to)
{_word("failure", "%c", c.FAILURE)}\
  %fine = icmp eq i64 %failure, 0
  br i1 %fine, label %ran, label %failed
ran:
  br label %next
failed:
  ret i64 %failure
after:
  %alive = load i64, ptr %live.to
  %over = icmp eq i64 %alive, 0
  br i1 %over, label %draw, label %again
again:
  br i1 %ran.so.far, label %round, label %stuck
stuck:
{_put(str(c.DEADLOCK), "%c", c.FAILURE, "dead")}\
  ret i64 {c.DEADLOCK}
}}
"""


@cache
def scheduler(target: Any) -> Any:
    """The scheduler's code in this process, compiled once for the x86 `target`."""
    from tilewright.codegen.jit import LoadedObject, compile_object

    text = f'target triple = "{target.triple}"\n{fibers_ir()}'
    return LoadedObject(compile_object(text, target), target)
