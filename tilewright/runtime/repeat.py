"""`Launcher.again` in native code: a launch seen before, without a frame of the interpreter.

    found = guarded[(grid, *(a.data_ptr() for a in arguments))]
    if found and found.check(*arguments): found.run()  else: otherwise(*arguments, **keywords)

Anything unusual (keywords, a number among the arguments, other knobs, an exception) goes to `otherwise`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.codegen.pyfunction import VECTOR, compiled

# state: (otherwise, guarded, current, [knobs], grid, "data_ptr")
_TEXT = """
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@tw_true = external global i8

define ptr @tw_repeat(ptr %state, ptr %args, i64 %n, ptr %keywords) nounwind {
entry:
  %otherwise = call ptr @PyTuple_GetItem(ptr %state, i64 0)
  %plain = icmp eq ptr %keywords, null
  br i1 %plain, label %knobs, label %slow
knobs:                                             ; are the knobs those under which launches were bound?
  %current = call ptr @PyTuple_GetItem(ptr %state, i64 2)
  %now = call ptr @PyObject_CallNoArgs(ptr %current)
  %lost = icmp eq ptr %now, null
  br i1 %lost, label %clear, label %compare
compare:
  %holder = call ptr @PyTuple_GetItem(ptr %state, i64 3)
  %then = call ptr @PyList_GetItem(ptr %holder, i64 0)
  call void @Py_DecRef(ptr %now)
  %same = icmp eq ptr %now, %then
  br i1 %same, label %key, label %slow
key:                                               ; (grid, address, address, ...)
  %size = add i64 %n, 1
  %tuple = call ptr @PyTuple_New(i64 %size)
  %full = icmp eq ptr %tuple, null
  br i1 %full, label %clear, label %first
first:
  %grid = call ptr @PyTuple_GetItem(ptr %state, i64 4)
  call void @Py_IncRef(ptr %grid)
  %s0 = call i32 @PyTuple_SetItem(ptr %tuple, i64 0, ptr %grid)
  %name = call ptr @PyTuple_GetItem(ptr %state, i64 5)
  br label %addresses
addresses:
  %i = phi i64 [ 0, %first ], [ %i1, %address ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %ask, label %look
ask:
  %at = getelementptr ptr, ptr %args, i64 %i
  %pointer = call ptr @PyObject_VectorcallMethod(ptr %name, ptr %at, i64 1, ptr null)
  %none = icmp eq ptr %pointer, null
  br i1 %none, label %drop, label %address
address:
  %i1 = add i64 %i, 1
  %s1 = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i1, ptr %pointer)
  br label %addresses
drop:
  call void @Py_DecRef(ptr %tuple)
  br label %clear
look:
  %guarded = call ptr @PyTuple_GetItem(ptr %state, i64 1)
  %found = call ptr @PyDict_GetItemWithError(ptr %guarded, ptr %tuple)
  call void @Py_DecRef(ptr %tuple)
  %missing = icmp eq ptr %found, null
  br i1 %missing, label %clear, label %check
check:                                             ; do the tensors look as they did?
  call void @Py_IncRef(ptr %found)
  %guard = call ptr @PyTuple_GetItem(ptr %found, i64 0)
  %answer = call ptr @PyObject_Vectorcall(ptr %guard, ptr %args, i64 %n, ptr null)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %forget, label %decide
decide:
  call void @Py_DecRef(ptr %answer)
  %alike = icmp eq ptr %answer, @tw_true
  br i1 %alike, label %run, label %forget
run:
  %launch = call ptr @PyTuple_GetItem(ptr %found, i64 1)
  %result = call ptr @PyObject_CallNoArgs(ptr %launch)
  call void @Py_DecRef(ptr %found)
  ret ptr %result
forget:
  call void @Py_DecRef(ptr %found)
  br label %clear
clear:
  call void @PyErr_Clear()
  br label %slow
slow:
  %other = call ptr @PyObject_Vectorcall(ptr %otherwise, ptr %args, i64 %n, ptr %keywords)
  ret ptr %other
}
"""


def repeater(
    otherwise: Callable[..., None],
    guarded: dict[Any, Any],
    current: Callable[[], object],
    bound_under: list[object],
    grid: Any,
) -> Callable[..., None] | None:
    """The launch on a grid that looks in `guarded` first; None where native code cannot do that."""
    functions = compiled(_TEXT)
    if functions is None:
        return None
    state = (otherwise, guarded, current, bound_under, grid, "data_ptr")
    return functions.make("tw_repeat", VECTOR, state)
