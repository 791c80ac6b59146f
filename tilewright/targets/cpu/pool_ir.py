"""The thread pool's LLVM IR: how threads share the tasks of one launch.

Protocol.  A launch publishes (function, argument, count), opens the gate and raises the generation.  A worker
that sees a new generation joins by adding one to the gate while it is open, draws task numbers until none is
left, and leaves by subtracting one.  The caller draws tasks too; when it finds none it closes the gate, so that
a worker that wakes late cannot join, and waits for those inside.  A launch therefore never waits for a thread
that has not started: a core that another process has taken costs nothing.

Invariants: the fields of a launch change only while the gate is closed and empty and the lock is held;
gate = number of workers inside + OPEN while open.  A worker that finds nothing to do spins for SPIN pauses,
then sleeps on the generation (futex), so that launches in quick succession cost about a microsecond.

Ctrl-C.  A caller that is the process's main thread looks between two tasks, every LOOK cycles, whether Python has
seen the signal.  If so it takes the tasks that are left out of the pool, lets those that run come to their end, gives
up its turn and runs Python's handlers.  A handler that raises ends the launch: the exception stays in the thread, this
phase and those after it do nothing more, and `tw_pool_run` returns to a caller that looks for it.  After one that does
not, the tasks that are left are launched again.  Handlers run without the pool's lock: they may launch, too.
"""

from __future__ import annotations

from typing import Final

OPEN: Final = 1 << 16
SPIN: Final = 20_000
SIZE: Final = 512
"""Bytes of the pool's state; each group of fields has a cache line of its own."""
LOOK: Final = 1 << 27
"""Cycles of the time stamp counter, some 50 ms."""

_OFFSETS: Final = {
    "generation": 0,  # i32, the futex word
    "quit": 4,  # i32
    "function": 64,  # ptr to void(ptr argument, i64 task, i64 thread)
    "argument": 72,  # ptr
    "count": 80,  # i64, number of tasks
    "gate": 128,  # i64
    "next": 192,  # i64, the next task to draw
    "sleepers": 256,  # i32
    "ids": 260,  # i32, thread numbers handed out; the caller is thread 0
    "lock": 320,  # i32, held by the launching thread
    "left": 328,  # i64, the first task that an interrupted launch has not begun; -1 where there is none
    "ended": 384,  # ptr, the argument of a launch that a signal handler has ended
}
_SYSCALL: Final = "call i64 (i64, ...) @syscall(i64 202, ptr %generation.at"
"""The futex system call (202) on the generation, up to its operation."""
_WAIT: Final = f"{_SYSCALL}, i32 128, i32 %last, ptr null, ptr null, i32 0)"
_WAKE: Final = f"{_SYSCALL}, i32 129, i32 {(1 << 31) - 1}, ptr null, ptr null, i32 0)"


def _fields(*names: str) -> str:
    """Address computations `%name.at` of the named fields of the pool `%p`."""
    return "\n".join(
        f"  %{name}.at = getelementptr i8, ptr %p, i64 {_OFFSETS[name]}" for name in names
    )


def pool_ir() -> str:
    """LLVM IR text of `tw_pool_start`, `tw_pool_launch`, `tw_pool_run`, `tw_pool_stop`."""
    return f"""\
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
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
  %start = call i64 @llvm.readcyclecounter()
  br label %draw
draw:
  %since = phi i64 [ %start, %entry ], [ %since, %work ], [ %since, %clock ], [ %now, %look ]
  %task = atomicrmw add ptr %next.at, i64 1 monotonic
  %some = icmp slt i64 %task, %count
  br i1 %some, label %work, label %done
work:
  call void %function(ptr %argument, i64 %task, i64 %thread)
  br i1 %caller, label %clock, label %draw
clock:
  %now = call i64 @llvm.readcyclecounter()
  %age = sub i64 %now, %since
  %long = icmp ugt i64 %age, {LOOK}
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
  %task = call i64 (i64, ...) @syscall(i64 186)     ; gettid
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

define internal ptr @worker(ptr %p) nounwind {{
entry:
{_fields("generation", "quit", "gate", "sleepers", "ids")}
  %id = atomicrmw add ptr %ids.at, i32 1 monotonic
  %id1 = add i32 %id, 1
  %thread = zext i32 %id1 to i64
  br label %watch
watch:                                             ; last: the generation that this worker has served
  %last = phi i32 [ 0, %entry ], [ %now, %join ], [ %now, %leave ]
  br label %spin
spin:
  %n = phi i32 [ 0, %watch ], [ %n1, %pause ], [ 0, %woken ]
  %now = load atomic i32, ptr %generation.at acquire, align 4
  %fresh = icmp ne i32 %now, %last
  br i1 %fresh, label %called, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  %n1 = add i32 %n, 1
  %tired = icmp eq i32 %n1, {SPIN}
  br i1 %tired, label %sleep, label %spin
sleep:                                             ; the kernel compares generation with last before it sleeps
  %s0 = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  %f0 = {_WAIT}
  %s1 = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  br label %woken
woken:
  br label %spin
called:
  %quit = load atomic i32, ptr %quit.at acquire, align 4
  %leaving = icmp ne i32 %quit, 0
  br i1 %leaving, label %exit, label %join
join:
  %gate = load atomic i64, ptr %gate.at acquire, align 8
  %bit = and i64 %gate, {OPEN}
  %shut = icmp eq i64 %bit, 0
  br i1 %shut, label %watch, label %enter
enter:
  %gate1 = add i64 %gate, 1
  %pair = cmpxchg ptr %gate.at, i64 %gate, i64 %gate1 acq_rel acquire
  %inside = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %inside, label %leave, label %rejoin
rejoin:
  br label %called
leave:
  call void @drain(ptr %p, i64 %thread)
  %g = atomicrmw sub ptr %gate.at, i64 1 acq_rel
  br label %watch
exit:
  ret ptr null
}}

define i32 @tw_pool_start(ptr %p, ptr %handles, i64 %workers) nounwind {{
entry:
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
{_fields("generation", "function", "argument", "count", "gate", "next", "sleepers", "lock", "left", "ended")}
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
  store i64 %tasks, ptr %count.at
  store atomic i64 %from, ptr %next.at monotonic, align 8
  store i64 -1, ptr %left.at
  %some = sub i64 %tasks, %from
  %alone = icmp sle i64 %some, 1
  br i1 %alone, label %work, label %open
open:
  store atomic i64 {OPEN}, ptr %gate.at release, align 8
  %g = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %s = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %s, 0
  br i1 %asleep, label %wake, label %work
wake:
  %w = {_WAKE}
  br label %work
work:
  call void @drain(ptr %p, i64 0)
  %c = atomicrmw and ptr %gate.at, i64 {OPEN - 1} acq_rel
  br label %settle
settle:
  %gate = load atomic i64, ptr %gate.at acquire, align 8
  %empty = icmp eq i64 %gate, 0
  br i1 %empty, label %release, label %wait
wait:
  call void @llvm.x86.sse2.pause()
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
{_fields("generation", "quit")}
  store atomic i32 1, ptr %quit.at release, align 4
  %g = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %w = {_WAKE}
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %join ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %join, label %done
join:
  %at = getelementptr i64, ptr %handles, i64 %i
  %handle = load i64, ptr %at
  %code = call i32 @pthread_join(i64 %handle, ptr null)
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}
"""
