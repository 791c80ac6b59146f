"""The thread pool's LLVM IR: how threads share the tasks of one launch.

Protocol. A launch writes what it is (function, argument, count), puts as many tickets as it has tasks, and posts: it
changes the word, its number and how many workers it has tasks for, that all workers spin on. Who takes a ticket, the
caller or a worker, has one of the tasks, whatever launch it came for; so what a launch is, is read after the ticket,
and there is nothing to join or to leave. Tickets and the number of tasks done are halves of one word, so that whoever
has done a task says so and takes the next ticket, or finds none, in one step: cores hand the line of that word round,
which is what a launch of short tasks costs; of these several are taken at once, one behind the other. The caller that
has found no ticket waits until all tasks are done. A launch therefore never waits for a thread that has not started: a
core that another process has taken costs nothing.

A worker that finds nothing to do spins for SPIN pauses, a new one for none (it may share a core with who is about to
launch), then sleeps on its slot (futex), a cache line of its own. Waking a thread is a system call, of 3 to 25 us, and
as long again passes until it runs. So all that are awake, those just woken too, share the sleepers: each takes the next
one (NEXT) until there is none. A worker says that it sleeps (ASLEEP) before it looks a last time at what is posted, a
launch posts before it looks who sleeps, so that no call is missed.

What is done before others could take part, a microsecond of work or two, the caller does by itself, without tickets,
until it turns out to be more; and what is done before a sleeper has come wakes nobody: the pool keeps how long a
wake-up call takes, and of each function what a task took in its last launch, without what it waited for its ticket.
Where a launch, with those shortly before it, is work for less than two such calls, threads wake others only once they
have been at it for so long.

The end of the pool is posted too (STOPPED), as a number of its own, with tasks for nobody.

Invariant: the fields of a launch change only while no ticket is left, all tasks are done and the lock is held.
"""

from __future__ import annotations

from typing import Final

from tilewright.targets.cpu.pool_python import python_ir
from tilewright.uarch.cpu import Architecture

STOPPED: Final = -1 << 16
SPIN: Final = 20_000
KNOWN: Final = 16
"""Functions, by their address, of which the pool keeps what a task takes."""
OFFSETS: Final = {
    "posted": 0,  # i64, the number of the launch in units of 2^16, and how many workers it has tasks for
    "function": 8,  # ptr to void(ptr argument, i64 task, i64 thread)
    "argument": 16,  # ptr
    "count": 24,  # i64, number of the task behind the last one that has a ticket
    "limit": 32,  # i64, ticks of the clock for which a thread works before it wakes sleepers
    "asleep": 40,  # i32, workers that sleep or are about to
    "tickets": 128,  # i64, tasks that nobody has taken, at most 0 where there are none, and 2^32 times those done
    "lock": 256,  # i32, held by the launching thread
    "ids": 260,  # i32, slots handed out; slot i is that of thread i + 1, and the caller is thread 0
    "left": 264,  # i64, tasks that an interrupted launch has not begun
    "ended": 272,  # ptr, the argument of a launch that a signal handler has ended
    "workers": 280,  # i64
    "wake_up": 288,  # i64, ticks that a wake-up call takes
    "last": 296,  # i64, the clock at the end of the last launch
    "work": 304,  # i64, ticks of work that it had, with all launches shortly before it
    "next": 312,  # i64, the thread that is woken next, if it sleeps
    "known": 320,  # KNOWN times a function and ticks of a task of its
}
SLOTS: Final = OFFSETS["known"] + 16 * KNOWN
"""Bytes before the slots. What all watch, what threads hand round, what callers keep, each slot: own cache lines."""
_LONGEST: Final = 11
"""A wake-up call takes at most 2^-11 of the ticks of `Architecture.clock`, 30 us: others waited for a core."""
_SHORTLY: Final = 6
"""A launch follows another shortly, while workers are awake, at most 2^-6 of those ticks, 1 ms, after it."""
MOST: Final = 1 << 30
"""Tasks that have tickets at a time."""
_TINY: Final = 19
_APART: Final = 4
"""Work of less than four times 2^-19 of those ticks, 0.1 us, and once more for each worker, is done before they share
it: 2 us on 16 threads, where cores hand lines round for so long, 0.6 on two."""
_TOGETHER: Final = 15
_SHARES: Final = 32
"""Tasks of 2^-15 of those ticks, 2 us, together have their tickets taken at once, where each thread has 32 times as
many before it: to take one, a core waits until all that it has stored is seen."""


def _fields(*names: str) -> str:
    """Address computations `%name.at` of the named fields of the pool `%p`."""
    return "\n".join(
        f"  %{name}.at = getelementptr i8, ptr %p, i64 {OFFSETS[name]}" for name in names
    )


def pool_ir(a: Architecture) -> str:
    """LLVM IR text of `tw_pool_start`, `tw_pool_launch`, `tw_pool_wait`, `tw_pool_run`, `tw_pool_stop`."""
    futex = f"call i64 (i64, ...) @syscall(i64 {a.syscalls['futex']}, ptr %slot"
    clock, look = a.clock
    return f"""\
target triple = "{a.triple}"
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

define internal void @drain(ptr %p, i64 %thread) nounwind {{
entry:
{_fields("function", "argument", "count", "limit", "tickets", "left", "workers")}
  %caller = icmp eq i64 %thread, 0
  %workers = load i64, ptr %workers.at
  %threads = add i64 %workers, 1
  %shares = mul i64 %threads, {_SHARES}
  %start = call i64 {clock}
  br label %draw
draw:                                              ; %asked: the clock when it last looked for a signal
  %step = phi i64 [ -1, %entry ], [ %step1, %counted ], [ %step1, %look ]
  %want = phi i64 [ 1, %entry ], [ %want1, %counted ], [ %want1, %look ]
  %done = phi i64 [ 0, %entry ], [ %done1, %counted ], [ %done1, %look ]
  %busy = phi i64 [ 0, %entry ], [ %busy1, %counted ], [ %busy1, %look ]
  %clock = phi i64 [ %start, %entry ], [ %now, %counted ], [ %now, %look ]
  %asked = phi i64 [ %start, %entry ], [ %asked, %counted ], [ %now, %look ]
  %wakes = phi i1 [ true, %entry ], [ %wakes1, %counted ], [ %wakes1, %look ]
  br i1 %wakes, label %early, label %take
early:
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %worked = sub i64 %clock, %start
  %due = icmp uge i64 %worked, %limit
  br i1 %due, label %wake, label %take
wake:
  call void @wake(ptr %p)
  br label %take
take:
  %wakes1 = phi i1 [ false, %draw ], [ true, %early ], [ false, %wake ]
  %word = atomicrmw add ptr %tickets.at, i64 %step acq_rel
  %ticket = call i64 @tickets_in(i64 %word)
  %mine = icmp sgt i64 %ticket, 0
  br i1 %mine, label %begin, label %end
begin:
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  %count = load i64, ptr %count.at
  %first = sub i64 %count, %ticket
  %got = call i64 @llvm.umin.i64(i64 %want, i64 %ticket)
  %behind = add i64 %first, %got
  %began = call i64 {clock}
  br label %work
work:
  %task = phi i64 [ %first, %begin ], [ %task1, %work ]
  call void %function(ptr %argument, i64 %task, i64 %thread)
  %task1 = add i64 %task, 1
  %further = icmp ult i64 %task1, %behind
  br i1 %further, label %work, label %counted
counted:                                           ; and how many tickets it takes next
  %now = call i64 {clock}
  %took = sub i64 %now, %began
  %busy1 = add i64 %busy, %took
  %done1 = add i64 %done, %got
  %rest = sub i64 %ticket, %got
  %fair = udiv i64 %rest, %shares
  %mean = udiv i64 %busy1, %done1
  %each = or i64 %mean, 1
  %short = udiv i64 {look >> _TOGETHER}, %each
  %few = call i64 @llvm.umin.i64(i64 %fair, i64 %short)
  %want1 = call i64 @llvm.smax.i64(i64 %few, i64 1)
  %said = shl i64 %got, 32
  %step1 = sub i64 %said, %want1
  %age = sub i64 %now, %asked
  %long = icmp ugt i64 %age, {look}
  %looks = and i1 %long, %caller
  br i1 %looks, label %look, label %draw
look:
  %signal = call i1 @signalled()
  br i1 %signal, label %stop, label %draw
stop:                                              ; takes the tickets that are left, and says what it has done
  %old = load atomic i64, ptr %tickets.at monotonic, align 8
  %tickets = call i64 @tickets_in(i64 %old)
  %left = call i64 @llvm.smax.i64(i64 %tickets, i64 0)
  %more = add i64 %old, %said
  %new = sub i64 %more, %left
  %pair = cmpxchg ptr %tickets.at, i64 %old, i64 %new release monotonic
  %stopped = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %stopped, label %keep, label %stop
keep:
  store i64 %left, ptr %left.at
  br label %end
end:
  %all = phi i64 [ %done, %take ], [ %done1, %keep ]
  %ticks = phi i64 [ %busy, %take ], [ %busy1, %keep ]
  br i1 %caller, label %note, label %leave
note:
  %that = load ptr, ptr %function.at
  call void @note(ptr %p, ptr %that, i64 %all, i64 %ticks)
  br label %leave
leave:
  ret void
}}

define internal i64 @tickets_in(i64 %word) nounwind {{
  %low = trunc i64 %word to i32
  %tickets = sext i32 %low to i64
  ret i64 %tickets
}}

define internal void @note(ptr %p, ptr %function, i64 %tasks, i64 %ticks) nounwind {{   ; what tasks of a function took
  %any = icmp sgt i64 %tasks, 0
  br i1 %any, label %keep, label %done
keep:
  %each = udiv i64 %ticks, %tasks
  %known = call ptr @known(ptr %p, ptr %function)
  store ptr %function, ptr %known
  %each.at = getelementptr i8, ptr %known, i64 8
  store i64 %each, ptr %each.at
  br label %done
done:
  ret void
}}

define internal ptr @known(ptr %p, ptr %function) nounwind {{   ; where the pool keeps what a task of a function takes
{_fields("known")}
  %address = ptrtoint ptr %function to i64
  %line = lshr i64 %address, 4
  %i = urem i64 %line, {KNOWN}
  %off = shl i64 %i, 4
  %known = getelementptr i8, ptr %known.at, i64 %off
  ret ptr %known
}}

define internal ptr @slot(ptr %p, i64 %i) nounwind {{
  %line = shl i64 %i, 6
  %off = add i64 %line, {SLOTS}
  %slot = getelementptr i8, ptr %p, i64 %off
  ret ptr %slot
}}

define internal i1 @some(ptr %p) nounwind {{           ; are there tasks that nobody has taken?
{_fields("tickets")}
  %word = load atomic i64, ptr %tickets.at monotonic, align 8
  %low = trunc i64 %word to i32
  %some = icmp sgt i32 %low, 0
  ret i1 %some
}}

define internal void @wake(ptr %p) nounwind {{   ; sleepers that a launch has tasks for, while it has
entry:
{_fields("posted", "wake_up", "asleep", "next")}
  %sleepers = load atomic i32, ptr %asleep.at seq_cst, align 4
  %none = icmp eq i32 %sleepers, 0
  br i1 %none, label %done, label %head
head:
  %some = call i1 @some(ptr %p)
  br i1 %some, label %take, label %done
take:
  %who = atomicrmw add ptr %next.at, i64 1 monotonic
  %posted = load atomic i64, ptr %posted.at monotonic, align 8
  %invited = and i64 %posted, 65535
  %there = icmp ule i64 %who, %invited
  br i1 %there, label %ask, label %done
ask:
  %i = sub i64 %who, 1
  %slot = call ptr @slot(ptr %p, i64 %i)
  %a = load atomic i32, ptr %slot seq_cst, align 4
  %asleep = icmp ne i32 %a, 0
  br i1 %asleep, label %claim, label %head
claim:
  %was = atomicrmw xchg ptr %slot, i32 0 seq_cst
  %mine = icmp ne i32 %was, 0
  br i1 %mine, label %call, label %head
call:
  %start = call i64 {clock}
  %w = {futex}, i32 129, i32 1, ptr null, ptr null, i32 0)
  %end = call i64 {clock}
  %took = sub i64 %end, %start
  %usual = call i64 @llvm.umin.i64(i64 %took, i64 {look >> _LONGEST})
  store atomic i64 %usual, ptr %wake_up.at monotonic, align 8
  br label %head
done:
  ret void
}}

define internal ptr @worker(ptr %p) nounwind {{
entry:
{_fields("ids", "posted", "asleep")}
  %id = atomicrmw add ptr %ids.at, i32 1 monotonic
  %i = zext i32 %id to i64
  %thread = add i64 %i, 1
  %slot = call ptr @slot(ptr %p, i64 %i)
  br label %spin
spin:
  %n = phi i32 [ {SPIN - 1}, %entry ], [ %n1, %pause ], [ 0, %awake ], [ 0, %work ]
  %seen = phi i64 [ 0, %entry ], [ %now, %pause ], [ %now, %awake ], [ %now, %work ]
  %now = load atomic i64, ptr %posted.at acquire, align 8
  %old = icmp eq i64 %now, %seen
  br i1 %old, label %pause, label %new
new:
  %end = icmp eq i64 %now, {STOPPED}
  br i1 %end, label %exit, label %invited
invited:
  %number = and i64 %now, 65535
  %mine = icmp ule i64 %thread, %number
  br i1 %mine, label %work, label %pause
pause:
  call void {a.pause}
  %n1 = add i32 %n, 1
  %tired = icmp eq i32 %n1, {SPIN}
  br i1 %tired, label %sleep, label %spin
sleep:
  %more = atomicrmw add ptr %asleep.at, i32 1 seq_cst
  %s0 = atomicrmw xchg ptr %slot, i32 1 seq_cst
  %last = load atomic i64, ptr %posted.at seq_cst, align 8
  %nothing = icmp eq i64 %last, %now
  br i1 %nothing, label %wait, label %awake
wait:                                              ; the kernel looks at the slot before it sleeps
  %f0 = {futex}, i32 128, i32 1, ptr null, ptr null, i32 0)
  br label %awake
awake:
  store atomic i32 0, ptr %slot release, align 4
  %fewer = atomicrmw sub ptr %asleep.at, i32 1 seq_cst
  br label %spin
work:
  call void @drain(ptr %p, i64 %thread)
  br label %spin
exit:
  ret ptr null
}}

define i32 @tw_pool_start(ptr %p, ptr %handles, i64 %workers) nounwind {{
entry:
{_fields("workers")}
  store i64 %workers, ptr %workers.at
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %create, label %done
create:
  %handle = getelementptr i64, ptr %handles, i64 %i
  %code = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %p)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %next
next:
  %i1 = add i64 %i, 1
  br label %head
failed:
  call void @tw_pool_stop(ptr %p, ptr %handles, i64 %i)
  ret i32 %code
done:
  ret i32 0
}}

define void @tw_pool_launch(ptr %p, ptr %f, ptr %a, i64 %tasks) nounwind {{
entry:
{_fields("posted", "function", "argument", "count", "limit", "tickets", "lock", "left", "workers", "ended")}
{_fields("wake_up", "last", "work", "next")}
  %workers = load i64, ptr %workers.at
  br label %begin
begin:
  %some = phi i64 [ %tasks, %entry ], [ %rest, %more ], [ %rest, %handle ]
  %ended = load atomic ptr, ptr %ended.at monotonic, align 8
  %over = icmp eq ptr %ended, %a
  %none = icmp slt i64 %some, 1
  %nothing = or i1 %over, %none
  br i1 %nothing, label %done, label %acquire
acquire:
  %held = atomicrmw xchg ptr %lock.at, i32 1 acquire
  %free = icmp eq i32 %held, 0
  br i1 %free, label %estimate, label %busy
busy:
  %y = call i32 @sched_yield()
  br label %acquire
estimate:                                          ; what is left to do of this launch and those shortly before it
  %first = sub i64 %tasks, %some
  %known = call ptr @known(ptr %p, ptr %f)
  %whose = load ptr, ptr %known
  %same = icmp eq ptr %whose, %f
  %each.at = getelementptr i8, ptr %known, i64 8
  %each = load i64, ptr %each.at
  %here = mul i64 %each, %some
  %last = load i64, ptr %last.at
  %start = call i64 {clock}
  %rest.time = sub i64 %start, %last
  %shortly = icmp ult i64 %rest.time, {look >> _SHORTLY}
  %work = load i64, ptr %work.at
  %former = select i1 %shortly, i64 %work, i64 0
  %total = add i64 %former, %here
  store i64 %total, ptr %work.at
  store i64 0, ptr %left.at
  %others = sub i64 %some, 1
  %invited = call i64 @llvm.umin.i64(i64 %others, i64 %workers)
  %threads = add i64 %invited, {_APART}
  %shared = mul i64 %threads, {look >> _TINY}
  %tiny = icmp ult i64 %here, %shared
  %alone = and i1 %tiny, %same
  br i1 %alone, label %own, label %share
own:                                               ; by the caller itself, as long as it takes no longer
  %i = phi i64 [ %first, %estimate ], [ %i1, %own ]
  call void %f(ptr %a, i64 %i, i64 0)
  %i1 = add i64 %i, 1
  %now = call i64 {clock}
  %worked = sub i64 %now, %start
  %short = icmp ult i64 %worked, %shared
  %further = icmp slt i64 %i1, %tasks
  %on = and i1 %short, %further
  br i1 %on, label %own, label %told
told:
  %these = sub i64 %i1, %first
  call void @note(ptr %p, ptr %f, i64 %these, i64 %worked)
  br i1 %further, label %share, label %release
share:
  %from = phi i64 [ %first, %estimate ], [ %i1, %told ]
  %open = sub i64 %tasks, %from
  %part = call i64 @llvm.umin.i64(i64 %open, i64 {MOST})
  %behind = add i64 %from, %part
  %wake_up = load atomic i64, ptr %wake_up.at monotonic, align 8
  %calls = shl i64 %wake_up, 1
  %little = icmp ult i64 %total, %calls
  %quiet = and i1 %little, %same
  %limit = select i1 %quiet, i64 %calls, i64 0
  store ptr %f, ptr %function.at
  store ptr %a, ptr %argument.at
  store i64 %behind, ptr %count.at
  store atomic i64 %limit, ptr %limit.at monotonic, align 8
  store atomic i64 1, ptr %next.at monotonic, align 8
  store atomic i64 %part, ptr %tickets.at release, align 8
  %old = load atomic i64, ptr %posted.at monotonic, align 8
  %number = lshr i64 %old, 16
  %following = add i64 %number, 1
  %high = shl i64 %following, 16
  %new = or i64 %high, %invited
  %posted = atomicrmw xchg ptr %posted.at, i64 %new seq_cst
  call void @drain(ptr %p, i64 0)
  %left = load i64, ptr %left.at
  %begun = sub i64 %part, %left
  br label %settle
settle:
  %found = load atomic i64, ptr %tickets.at acquire, align 8
  %tickets = call i64 @tickets_in(i64 %found)
  %high.part = sub i64 %found, %tickets
  %ready = lshr i64 %high.part, 32
  %all = icmp eq i64 %ready, %begun
  br i1 %all, label %release, label %wait
wait:
  call void {a.pause}
  br label %settle
release:
  %untaken = phi i64 [ 0, %told ], [ %left, %settle ]
  %next = phi i64 [ %tasks, %told ], [ %behind, %settle ]
  %end = call i64 {clock}
  store i64 %end, ptr %last.at
  store atomic i32 0, ptr %lock.at release, align 4
  %later = sub i64 %tasks, %next
  %rest = add i64 %later, %untaken
  %whole = icmp eq i64 %rest, 0
  br i1 %whole, label %done, label %more
more:
  %interrupted = icmp ne i64 %untaken, 0
  br i1 %interrupted, label %handle, label %begin
handle:
  %raised = call i1 @handled()
  br i1 %raised, label %end.it, label %begin
end.it:
  store atomic ptr %a, ptr %ended.at monotonic, align 8
  br label %done
done:
  ret void
}}

define void @tw_pool_wait(ptr %counter, i64 %least) nounwind {{   ; until tasks drawn before have counted so far
entry:
  br label %look
look:
  %now = load atomic i64, ptr %counter acquire, align 8
  %enough = icmp sge i64 %now, %least
  br i1 %enough, label %done, label %pause
pause:
  call void {a.pause}
  br label %look
done:
  ret void
}}

define void @tw_pool_stop(ptr %p, ptr %handles, i64 %workers) nounwind {{
entry:
{_fields("posted")}
  %posted = atomicrmw xchg ptr %posted.at, i64 {STOPPED} seq_cst
  br label %head
head:                                              ; a slot is not that of the handle with its number
  %i = phi i64 [ 0, %entry ], [ %i1, %call ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %call, label %join.next
call:
  %slot = call ptr @slot(ptr %p, i64 %i)
  %asleep = atomicrmw xchg ptr %slot, i32 0 seq_cst
  %w = {futex}, i32 129, i32 1, ptr null, ptr null, i32 0)
  %i1 = add i64 %i, 1
  br label %head
join.next:
  %j = phi i64 [ 0, %head ], [ %j1, %join ]
  %running = icmp slt i64 %j, %workers
  br i1 %running, label %join, label %done
join:
  %at = getelementptr i64, ptr %handles, i64 %j
  %handle = load i64, ptr %at
  %code = call i32 @pthread_join(i64 %handle, ptr null)
  %j1 = add i64 %j, 1
  br label %join.next
done:
  ret void
}}
{python_ir(a, OFFSETS["ended"])}"""
