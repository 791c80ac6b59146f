"""What a launch on the pool has of Python: its lock, its signals, and the function that Python calls.

Ctrl-C.  A caller that is the process's main thread looks between two tasks, some 20 times a second, whether Python has
seen the signal.  If so it takes the tickets that are left, lets those tasks that run come to their end, gives
up its turn and runs Python's handlers.  A handler that raises ends the launch: the exception stays in the thread, this
phase and those after it do nothing more, and `tw_pool_run` returns to a caller that looks for it.  After one that does
not, the tasks that are left are launched again.  Handlers run without the pool's lock: they may launch, too.
"""

from __future__ import annotations

from tilewright.uarch.cpu import Architecture


def python_ir(a: Architecture, ended: int) -> str:
    """LLVM IR text of `tw_pool_run` and of what launches ask of Python; `ended`: where the pool keeps the argument of a
    launch that a handler has ended."""
    return f"""\
declare i32 @getpid()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyOS_InterruptOccurred()
declare void @PyErr_SetInterrupt()
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyLong_AsVoidPtr(ptr)
declare void @Py_IncRef(ptr)

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

define ptr @tw_pool_run(ptr %none, ptr %args, i64 %n) nounwind {{   ; the pool, phases and argument, for Python
entry:
  %p = call ptr @address_in(ptr %args, i64 0)
  %phases = call ptr @address_in(ptr %args, i64 1)
  %a = call ptr @address_in(ptr %args, i64 2)
  %ended.at = getelementptr i8, ptr %p, i64 {ended}
  %state = call ptr @PyEval_SaveThread()
  call void %phases(ptr %a)
  %pair = cmpxchg ptr %ended.at, ptr %a, ptr null monotonic monotonic
  call void @PyEval_RestoreThread(ptr %state)
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %well, label %raise
well:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
raise:
  ret ptr null
}}

define internal ptr @address_in(ptr %args, i64 %i) nounwind {{
  %at = getelementptr ptr, ptr %args, i64 %i
  %number = load ptr, ptr %at
  %address = call ptr @PyLong_AsVoidPtr(ptr %number)
  ret ptr %address
}}
"""
