"""The thread pool's LLVM IR: how threads share the tasks of one launch.

Protocol.  A launch writes what it is (function, argument, count), puts as many tickets as it has tasks, and posts: it
changes the word, its number and how many workers it has tasks for, that all workers spin on. Who takes a ticket, the
caller or a worker, has one of the tasks, whatever launch it came for; so what a launch is, is read after the ticket,
and there is nothing to join or to leave. Who finds no ticket left adds the number of tasks that it has done to what is
done, and the caller, that has found none either, waits until all are. A launch therefore never waits for a thread that
has not started: a core that another process has taken costs nothing.

A worker that finds nothing to do spins for SPIN pauses, then sleeps on its slot (futex), a cache line of its own.
Waking a thread is a system call, of 3 to 25 us, so all that are awake share it: thread t wakes the sleepers among
t + 2^r for every 2^r > t (a binomial tree whose root is the caller), those with most behind them first. A worker says
that it sleeps (ASLEEP) before it looks a last time at what is posted, a launch posts before it looks who sleeps, so
that no call is missed.

What is done before another thread could take part, a microsecond of work, is not posted until it turns out to be more,
and what is done before a sleeper has come wakes nobody: the pool keeps how long a wake-up call takes, and of each
function what a task took in its last launch. Where a launch, with those shortly before it, is work for less than two
such calls, threads wake others only once they have been at it for so long.

The end of the pool is posted too (STOPPED), as a number of its own, with tasks for nobody.

Invariant: the fields of a launch change only while no ticket is left, all tasks are done and the lock is held.

Ctrl-C.  A caller that is the process's main thread looks between two tasks, some 20 times a second, whether Python has
seen the signal.  If so it takes the tickets that are left, lets those tasks that run come to their end, gives
up its turn and runs Python's handlers.  A handler that raises ends the launch: the exception stays in the thread, this
phase and those after it do nothing more, and `tw_pool_run` returns to a caller that looks for it.  After one that does
not, the tasks that are left are launched again.  Handlers run without the pool's lock: they may launch, too.
"""

from __future__ import annotations

from typing import Final

from tilewright.uarch.cpu import Architecture

STOPPED: Final = -1 << 16
SPIN: Final = 20_000
KNOWN: Final = 16
"""Functions, by their address, of which the pool keeps what a task takes."""
OFFSETS: Final = {
    "posted": 0,  # i64, the number of the launch in units of 2^16, and how many workers it has tasks for
    "function": 8,  # ptr to void(ptr argument, i64 task, i64 thread)
    "argument": 16,  # ptr
    "count": 24,  # i64, number of tasks
    "limit": 32,  # i64, ticks of the clock for which a thread works before it wakes sleepers
    "tickets": 128,  # i64, tasks that nobody has taken; at most 0 where there are none
    "done": 256,  # i64, tasks that workers have done
    "workers": 384,  # i64
    "ids": 448,  # i32, slots handed out; slot i is that of thread i + 1, and the caller is thread 0
    "lock": 512,  # i32, held by the launching thread
    "left": 520,  # i64, tasks that an interrupted launch has not begun
    "ended": 576,  # ptr, the argument of a launch that a signal handler has ended
    "wake_up": 640,  # i64, ticks that a wake-up call takes
    "last": 704,  # i64, the clock at the end of the last launch
    "work": 712,  # i64, ticks of work that it had, with all launches shortly before it
    "next": 720,  # i64, what posts the launch
    "lag": 728,  # i64, ticks for which its caller works before it posts it
    "known": 768,  # KNOWN times a function and ticks of a task of its
}
SLOTS: Final = OFFSETS["known"] + 16 * KNOWN
"""Bytes of the pool's state before its slots; each group of fields, and each slot, has a cache line of its own."""
_LONGEST: Final = 11
"""A wake-up call takes at most 2^-11 of the ticks of `Architecture.clock`, 30 us: others waited for a core."""
_SHORTLY: Final = 6
"""A launch follows another shortly, while workers are awake, at most 2^-6 of those ticks, 1 ms, after it."""
_TINY: Final = 16
"""Work of less than 2^-16 of those ticks, a microsecond, is done before another thread could share it."""


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
declare i32 @getpid()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyOS_InterruptOccurred()
declare void @PyErr_SetInterrupt()
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

define internal i64 @drain(ptr %p, i64 %thread) nounwind {{   ; returns how many tasks it has done
entry:
{_fields("function", "argument", "count", "limit", "tickets", "left", "lag", "known")}
  %caller = icmp eq i64 %thread, 0
  %start = call i64 {clock}
  br label %draw
draw:                                              ; %asked: the clock when it last looked for a signal
  %done = phi i64 [ 0, %entry ], [ %done1, %work ], [ %done1, %look ]
  %clock = phi i64 [ %start, %entry ], [ %now, %work ], [ %now, %look ]
  %asked = phi i64 [ %start, %entry ], [ %asked, %work ], [ %now, %look ]
  %wakes = phi i1 [ true, %entry ], [ %wakes1, %work ], [ %wakes1, %look ]
  %since = phi i64 [ %start, %entry ], [ %since1, %work ], [ %since1, %look ]
  %before = phi i64 [ 0, %entry ], [ %before1, %work ], [ %before1, %look ]
  br i1 %wakes, label %early, label %claim
early:
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %worked = sub i64 %clock, %start
  br i1 %caller, label %alone, label %called
alone:
  %lag = load i64, ptr %lag.at
  %enough = icmp uge i64 %worked, %lag
  br i1 %enough, label %post, label %claim
post:
  call void @post(ptr %p)
  br label %called
called:
  %due = icmp uge i64 %worked, %limit
  br i1 %due, label %wake, label %claim
wake:
  call void @wake(ptr %p, i64 %thread)
  %again = call i64 {clock}
  br label %claim
claim:                                             ; the time since %since is that of tasks after the first %before
  %wakes1 = phi i1 [ false, %draw ], [ true, %alone ], [ true, %called ], [ false, %wake ]
  %since1 = phi i64 [ %since, %draw ], [ %since, %alone ], [ %since, %called ], [ %again, %wake ]
  %before1 = phi i64 [ %before, %draw ], [ %before, %alone ], [ %before, %called ], [ %done, %wake ]
  %open = call i1 @some(ptr %p)
  br i1 %open, label %take, label %end
take:
  %ticket = atomicrmw sub ptr %tickets.at, i64 1 acquire
  %mine = icmp sgt i64 %ticket, 0
  br i1 %mine, label %work, label %end
work:
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  %count = load i64, ptr %count.at
  %task = sub i64 %count, %ticket
  call void %function(ptr %argument, i64 %task, i64 %thread)
  %done1 = add i64 %done, 1
  %now = call i64 {clock}
  %age = sub i64 %now, %asked
  %long = icmp ugt i64 %age, {look}
  %looks = and i1 %long, %caller
  br i1 %looks, label %look, label %draw
look:
  %signal = call i1 @signalled()
  br i1 %signal, label %stop, label %draw
stop:
  %tasks = atomicrmw xchg ptr %tickets.at, i64 0 monotonic
  %left = call i64 @llvm.smax.i64(i64 %tasks, i64 0)
  store i64 %left, ptr %left.at
  br label %end
end:
  %all = phi i64 [ %done, %claim ], [ %done, %take ], [ %done1, %stop ]
  %these = sub i64 %all, %before1
  %any = icmp sgt i64 %these, 0
  %tell = and i1 %any, %caller
  br i1 %tell, label %note, label %leave
note:
  %stopped = call i64 {clock}
  %took = sub i64 %stopped, %since1
  %each = udiv i64 %took, %these
  %that = load ptr, ptr %function.at
  %known = call ptr @known(ptr %p, ptr %that)
  store ptr %that, ptr %known
  %each.at = getelementptr i8, ptr %known, i64 8
  store i64 %each, ptr %each.at
  br label %leave
leave:
  ret i64 %all
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

define internal i1 @signalled() nounwind {{         ; has Python seen SIGINT, and is it this thread that handles it?
  %process = call i32 @getpid()
  %task = call i64 (i64, ...) @syscall(i64 {a.syscalls["gettid"]})
  %self = trunc i64 %task to i32
  %main = icmp eq i32 %process, %self
  br i1 %main, label %ask, label %no
ask:
  %state = call i32 @PyGILState_Ensure()
  %hit = call i32 @PyOS_InterruptOccurred()         ; which forgets it
  %seen = icmp ne i32 %hit, 0
  br i1 %seen, label %again, label %release
again:
  call void @PyErr_SetInterrupt()
  br label %release
release:
  call void @PyGILState_Release(i32 %state)
  ret i1 %seen
no:
  ret i1 false
}}

define internal i1 @handled() nounwind {{           ; runs Python's handlers; did one raise?
  %state = call i32 @PyGILState_Ensure()
  %code = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %raised = icmp ne i32 %code, 0
  ret i1 %raised
}}

define internal ptr @slot(ptr %p, i64 %i) nounwind {{
  %line = shl i64 %i, 6
  %off = add i64 %line, {SLOTS}
  %slot = getelementptr i8, ptr %p, i64 %off
  ret ptr %slot
}}

define internal void @post(ptr %p) nounwind {{         ; the launch that the caller has, unless it has
{_fields("posted", "next")}
  %next = load i64, ptr %next.at
  %now = load atomic i64, ptr %posted.at monotonic, align 8
  %told = icmp eq i64 %now, %next
  br i1 %told, label %done, label %tell
tell:
  %old = atomicrmw xchg ptr %posted.at, i64 %next seq_cst
  br label %done
done:
  ret void
}}

define internal i1 @some(ptr %p) nounwind {{           ; are there tasks that nobody has taken?
{_fields("tickets")}
  %tickets = load atomic i64, ptr %tickets.at monotonic, align 8
  %some = icmp sgt i64 %tickets, 0
  ret i1 %some
}}

define internal void @wake(ptr %p, i64 %thread) nounwind {{   ; the sleepers that a thread wakes, while there are tasks
entry:
{_fields("posted", "wake_up")}
  %posted = load atomic i64, ptr %posted.at monotonic, align 8
  %invited = and i64 %posted, 65535
  br label %head
head:
  %step = phi i64 [ 1, %entry ], [ %step1, %next ]
  %child = add i64 %thread, %step
  %there = icmp ule i64 %child, %invited
  br i1 %there, label %mine, label %done
mine:
  %below = icmp ugt i64 %step, %thread
  br i1 %below, label %ask, label %next
ask:
  %i = sub i64 %child, 1
  %slot = call ptr @slot(ptr %p, i64 %i)
  %a = load atomic i32, ptr %slot seq_cst, align 4
  %asleep = icmp ne i32 %a, 0
  %some = call i1 @some(ptr %p)
  %useful = and i1 %asleep, %some
  br i1 %useful, label %claim, label %next
claim:
  %was = atomicrmw xchg ptr %slot, i32 0 seq_cst
  %mine.now = icmp ne i32 %was, 0
  br i1 %mine.now, label %call, label %next
call:
  %start = call i64 {clock}
  %w = {futex}, i32 129, i32 1, ptr null, ptr null, i32 0)
  %end = call i64 {clock}
  %took = sub i64 %end, %start
  %usual = call i64 @llvm.umin.i64(i64 %took, i64 {look >> _LONGEST})
  store atomic i64 %usual, ptr %wake_up.at monotonic, align 8
  br label %next
next:
  %step1 = shl i64 %step, 1
  br label %head
done:
  ret void
}}

define internal ptr @worker(ptr %p) nounwind {{
entry:
{_fields("ids", "posted", "done")}
  %id = atomicrmw add ptr %ids.at, i32 1 monotonic
  %i = zext i32 %id to i64
  %thread = add i64 %i, 1
  %slot = call ptr @slot(ptr %p, i64 %i)
  br label %spin
spin:
  %n = phi i32 [ 0, %entry ], [ %n1, %pause ], [ 0, %awake ], [ 0, %work ], [ 0, %count ]
  %seen = phi i64 [ 0, %entry ], [ %now, %pause ], [ %now, %awake ], [ %now, %work ], [ %now, %count ]
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
  %s0 = atomicrmw xchg ptr %slot, i32 1 seq_cst
  %last = load atomic i64, ptr %posted.at seq_cst, align 8
  %nothing = icmp eq i64 %last, %now
  br i1 %nothing, label %wait, label %awake
wait:                                              ; the kernel looks at the slot before it sleeps
  %f0 = {futex}, i32 128, i32 1, ptr null, ptr null, i32 0)
  br label %awake
awake:
  store atomic i32 0, ptr %slot release, align 4
  br label %spin
work:
  %tasks = call i64 @drain(ptr %p, i64 %thread)
  %any = icmp ne i64 %tasks, 0
  br i1 %any, label %count, label %spin
count:
  %done = atomicrmw add ptr %done.at, i64 %tasks release
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
{_fields("posted", "function", "argument", "count", "limit", "tickets", "done", "lock", "left", "workers", "ended")}
{_fields("wake_up", "last", "work", "next", "lag")}
  %workers = load i64, ptr %workers.at
  br label %begin
begin:
  %some = phi i64 [ %tasks, %entry ], [ %left, %handle ]
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
  %known = call ptr @known(ptr %p, ptr %f)
  %whose = load ptr, ptr %known
  %same = icmp eq ptr %whose, %f
  %each.at = getelementptr i8, ptr %known, i64 8
  %each = load i64, ptr %each.at
  %here = mul i64 %each, %some
  %last = load i64, ptr %last.at
  %start = call i64 {clock}
  %rest = sub i64 %start, %last
  %shortly = icmp ult i64 %rest, {look >> _SHORTLY}
  %work = load i64, ptr %work.at
  %former = select i1 %shortly, i64 %work, i64 0
  %total = add i64 %former, %here
  store i64 %total, ptr %work.at
  %wake_up = load atomic i64, ptr %wake_up.at monotonic, align 8
  %calls = shl i64 %wake_up, 1
  %little = icmp ult i64 %total, %calls
  %quiet = and i1 %little, %same
  %tiny = icmp ult i64 %here, {look >> _TINY}
  %alone = and i1 %tiny, %same
  %lag = select i1 %alone, i64 {look >> _TINY}, i64 0
  store i64 %lag, ptr %lag.at
  %limit = select i1 %quiet, i64 %calls, i64 %lag
  store ptr %f, ptr %function.at
  store ptr %a, ptr %argument.at
  store i64 %tasks, ptr %count.at
  store atomic i64 %limit, ptr %limit.at monotonic, align 8
  store i64 0, ptr %left.at
  store atomic i64 0, ptr %done.at monotonic, align 8
  store atomic i64 %some, ptr %tickets.at release, align 8
  %others = sub i64 %some, 1
  %few = icmp slt i64 %others, %workers
  %invited = select i1 %few, i64 %others, i64 %workers
  %old = load atomic i64, ptr %posted.at monotonic, align 8
  %number = lshr i64 %old, 16
  %following = add i64 %number, 1
  %high = shl i64 %following, 16
  %new = or i64 %high, %invited
  store i64 %new, ptr %next.at
  %mine = call i64 @drain(ptr %p, i64 0)
  %left = load i64, ptr %left.at
  %begun = sub i64 %some, %left
  %theirs = sub i64 %begun, %mine
  br label %settle
settle:
  %found = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %found, %theirs
  br i1 %all, label %release, label %wait
wait:
  call void {a.pause}
  br label %settle
release:
  %end = call i64 {clock}
  store i64 %end, ptr %last.at
  store atomic i32 0, ptr %lock.at release, align 4
  %whole = icmp eq i64 %left, 0
  br i1 %whole, label %done, label %handle
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

define void @tw_pool_run(ptr %p, ptr %phases, ptr %a) nounwind {{   ; the phases of one launch, without Python's lock
{_fields("ended")}
  %state = call ptr @PyEval_SaveThread()
  call void %phases(ptr %a)
  %pair = cmpxchg ptr %ended.at, ptr %a, ptr null monotonic monotonic
  call void @PyEval_RestoreThread(ptr %state)
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
"""
