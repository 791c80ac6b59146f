"""The thread pool's LLVM IR: how threads share the tasks of one launch.

Protocol.  Every worker has a slot, a word on a cache line of its own, on which it spins. A launch publishes (function,
argument, count) and writes POSTED to as many slots as it has tasks beside the caller's. A worker that sees it joins
(POSTED -> BUSY), draws task numbers until none is left, and leaves (IDLE). The caller draws tasks too; when it finds
none it withdraws what nobody took (POSTED -> IDLE), and waits for those that are BUSY. A launch therefore never waits
for a thread that has not started: a core that another process has taken costs nothing.

A worker that finds nothing to do spins for SPIN pauses, then sleeps on its slot (futex). Waking a thread is a system
call of some microseconds, so who joins wakes the sleepers among its own children, FAN of them, as in a heap; the
caller is the root. Slots are posted from the last to the first: a worker that sees itself posted sees its children so,
and a child that goes to sleep says so (ASLEEP) before the system looks at its slot, so that no call is missed.

The end of the pool is a state of its own (STOPPED). Were it POSTED and a flag, a worker that had seen the last launch
posted could join what the end posts, and forget it: it would sleep for ever.

Invariant: the fields of a launch change only while all slots are idle and the lock is held.

Ctrl-C.  A caller that is the process's main thread looks between two tasks, some 20 times a second, whether Python has
seen the signal.  If so it takes the tasks that are left out of the pool, lets those that run come to their end, gives
up its turn and runs Python's handlers.  A handler that raises ends the launch: the exception stays in the thread, this
phase and those after it do nothing more, and `tw_pool_run` returns to a caller that looks for it.  After one that does
not, the tasks that are left are launched again.  Handlers run without the pool's lock: they may launch, too.
"""

from __future__ import annotations

from typing import Final

from tilewright.uarch.cpu import Architecture

IDLE, POSTED, BUSY, STOPPED = range(4)
SPIN: Final = 20_000
FAN: Final = 3
SLOTS: Final = 512
"""Bytes of the pool's state before its slots; each group of fields, and each slot, has a cache line of its own."""

_OFFSETS: Final = {
    "function": 0,  # ptr to void(ptr argument, i64 task, i64 thread)
    "argument": 8,  # ptr
    "count": 16,  # i64, number of tasks
    "posted": 24,  # i64, number of slots
    "workers": 128,  # i64
    "next": 192,  # i64, the next task to draw
    "ids": 256,  # i32, slots handed out; slot i is that of thread i + 1, and the caller is thread 0
    "lock": 320,  # i32, held by the launching thread
    "left": 328,  # i64, the first task that an interrupted launch has not begun; -1 where there is none
    "ended": 384,  # ptr, the argument of a launch that a signal handler has ended
}
_ASLEEP: Final = 4
"""Where in a slot a worker says that it sleeps, i32."""


def _fields(*names: str) -> str:
    """Address computations `%name.at` of the named fields of the pool `%p`."""
    return "\n".join(
        f"  %{name}.at = getelementptr i8, ptr %p, i64 {_OFFSETS[name]}" for name in names
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

define internal void @drain(ptr %p, i64 %thread) nounwind {{
entry:
{_fields("function", "argument", "count", "next", "left")}
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  %count = load i64, ptr %count.at
  %caller = icmp eq i64 %thread, 0
  %start = call i64 {clock}
  br label %draw
draw:
  %since = phi i64 [ %start, %entry ], [ %since, %work ], [ %since, %clock ], [ %now, %look ]
  %open = call i1 @some(ptr %p)
  br i1 %open, label %claim, label %done
claim:
  %task = atomicrmw add ptr %next.at, i64 1 monotonic
  %some = icmp slt i64 %task, %count
  br i1 %some, label %work, label %done
work:
  call void %function(ptr %argument, i64 %task, i64 %thread)
  br i1 %caller, label %clock, label %draw
clock:
  %now = call i64 {clock}
  %age = sub i64 %now, %since
  %long = icmp ugt i64 %age, {look}
  br i1 %long, label %look, label %draw
look:
  %signal = call i1 @signalled()
  br i1 %signal, label %take, label %draw
take:
  %left = atomicrmw xchg ptr %next.at, i64 %count monotonic
  store i64 %left, ptr %left.at
  br label %done
done:
  ret void
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

define internal i1 @some(ptr %p) nounwind {{           ; are there tasks that nobody has drawn?
{_fields("count", "next")}
  %count = load atomic i64, ptr %count.at monotonic, align 8
  %next = load atomic i64, ptr %next.at monotonic, align 8
  %some = icmp slt i64 %next, %count
  ret i1 %some
}}

define internal void @wake(ptr %p, i64 %parent) nounwind {{   ; the sleepers among the children of a thread
entry:
{_fields("posted")}
  %posted = load atomic i64, ptr %posted.at monotonic, align 8
  %first = mul i64 %parent, {FAN}
  %end = add i64 %first, {FAN}
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %i1, %next ]
  %mine = icmp slt i64 %i, %end
  %there = icmp slt i64 %i, %posted
  %more = and i1 %mine, %there
  br i1 %more, label %ask, label %done
ask:
  %slot = call ptr @slot(ptr %p, i64 %i)
  %asleep.at = getelementptr i8, ptr %slot, i64 {_ASLEEP}
  %a = load atomic i32, ptr %asleep.at monotonic, align 4
  %asleep = icmp ne i32 %a, 0
  %some = call i1 @some(ptr %p)
  %useful = and i1 %asleep, %some
  br i1 %useful, label %call, label %next
call:
  %w = {futex}, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}

define internal ptr @worker(ptr %p) nounwind {{
entry:
{_fields("ids")}
  %id = atomicrmw add ptr %ids.at, i32 1 monotonic
  %i = zext i32 %id to i64
  %thread = add i64 %i, 1
  %slot = call ptr @slot(ptr %p, i64 %i)
  %asleep.at = getelementptr i8, ptr %slot, i64 {_ASLEEP}
  br label %spin
spin:
  %n = phi i32 [ 0, %entry ], [ %n1, %pause ], [ 0, %sleep ], [ 0, %join ], [ 0, %work ]
  %now = load atomic i32, ptr %slot acquire, align 4
  switch i32 %now, label %pause [ i32 {POSTED}, label %ask  i32 {STOPPED}, label %exit ]
pause:
  call void {a.pause}
  %n1 = add i32 %n, 1
  %tired = icmp eq i32 %n1, {SPIN}
  br i1 %tired, label %sleep, label %spin
sleep:                                             ; the kernel looks at the slot before it sleeps
  %s0 = atomicrmw xchg ptr %asleep.at, i32 1 seq_cst
  %f0 = {futex}, i32 128, i32 {IDLE}, ptr null, ptr null, i32 0)
  store atomic i32 0, ptr %asleep.at release, align 4
  br label %spin
ask:                                               ; who comes too late leaves the caller alone
  %some = call i1 @some(ptr %p)
  br i1 %some, label %join, label %pause
join:
  %pair = cmpxchg ptr %slot, i32 {POSTED}, i32 {BUSY} acq_rel acquire
  %inside = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %inside, label %work, label %spin
work:
  call void @wake(ptr %p, i64 %thread)
  call void @drain(ptr %p, i64 %thread)
  store atomic i32 {IDLE}, ptr %slot release, align 4
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
{_fields("function", "argument", "count", "posted", "next", "lock", "left", "workers", "ended")}
  %workers = load i64, ptr %workers.at
  br label %begin
begin:
  %from = phi i64 [ 0, %entry ], [ %left, %handle ]
  %ended = load atomic ptr, ptr %ended.at monotonic, align 8
  %over = icmp eq ptr %ended, %a
  br i1 %over, label %done, label %acquire
acquire:
  %held = atomicrmw xchg ptr %lock.at, i32 1 acquire
  %free = icmp eq i32 %held, 0
  br i1 %free, label %publish, label %busy
busy:
  %y = call i32 @sched_yield()
  br label %acquire
publish:
  store ptr %f, ptr %function.at
  store ptr %a, ptr %argument.at
  store atomic i64 %tasks, ptr %count.at monotonic, align 8
  store atomic i64 %from, ptr %next.at monotonic, align 8
  store i64 -1, ptr %left.at
  %some = sub i64 %tasks, %from
  %others = sub i64 %some, 1
  %few = icmp slt i64 %others, %workers
  %posted = select i1 %few, i64 %others, i64 %workers
  store atomic i64 %posted, ptr %posted.at monotonic, align 8
  br label %post.next
post.next:
  %i = phi i64 [ %posted, %publish ], [ %i1, %post ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %post, label %call
post:
  %i1 = sub i64 %i, 1
  %slot = call ptr @slot(ptr %p, i64 %i1)
  store atomic i32 {POSTED}, ptr %slot release, align 4
  br label %post.next
call:
  fence seq_cst
  call void @wake(ptr %p, i64 0)
  call void @drain(ptr %p, i64 0)
  br label %settle
settle:
  %j = phi i64 [ 0, %call ], [ %j1, %settled ]
  %open = icmp slt i64 %j, %posted
  br i1 %open, label %look, label %release
look:
  %that = call ptr @slot(ptr %p, i64 %j)
  br label %ask
ask:
  %state = load atomic i32, ptr %that acquire, align 4
  switch i32 %state, label %wait [ i32 {IDLE}, label %settled  i32 {POSTED}, label %withdraw ]
withdraw:
  %back = cmpxchg ptr %that, i32 {POSTED}, i32 {IDLE} acq_rel acquire
  br label %ask
wait:
  call void {a.pause}
  br label %ask
settled:
  %j1 = add i64 %j, 1
  br label %settle
release:
  %left = load i64, ptr %left.at
  store atomic i32 0, ptr %lock.at release, align 4
  %whole = icmp eq i64 %left, -1
  br i1 %whole, label %done, label %rest
rest:
  %nothing = icmp sge i64 %left, %tasks
  br i1 %nothing, label %done, label %handle
handle:
  %raised = call i1 @handled()
  br i1 %raised, label %end, label %begin
end:
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
  br label %head
head:                                              ; a slot is not that of the handle with its number
  %i = phi i64 [ 0, %entry ], [ %i1, %call ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %call, label %join.next
call:
  %slot = call ptr @slot(ptr %p, i64 %i)
  store atomic i32 {STOPPED}, ptr %slot seq_cst, align 4
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
