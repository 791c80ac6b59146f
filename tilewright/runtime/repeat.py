"""`Launcher.again` in native code: a launch seen before, without a frame of the interpreter.

    seen = slots[hash(addresses)] or guarded[(grid, *addresses)]    # addresses: a.data_ptr() of each argument
    if unchanged() and seen and seen.check(*arguments): seen.run()  else: otherwise(*arguments, **keywords)

A slot holds what was found last among addresses of its hash: comparing it takes a tenth of the time of a tuple
and a look into a dictionary. It carries its addresses and the epoch in which it was bound, so that it cannot be
out of step with either. Anything unusual (keywords, a number among the arguments, other knobs, an empty
tensor, an exception) goes to `otherwise`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tilewright.codegen.pyfunction import VECTOR, compiled
from tilewright.runtime.guards import Seen

MOST_TENSORS = 8
_SLOTS = 256

# state: (otherwise, guarded, variable, [knobs, value, epoch], grid, "data_ptr", slots, [unchanged])
_TEXT = """
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromVoidPtr(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@tw_none = external global i8
@tw_true = external global i8

define ptr @tw_repeat(ptr %state, ptr %args, i64 %n, ptr %keywords) nounwind {
entry:
  %addresses = alloca [MOST x ptr], align 8
  %value.at = alloca ptr, align 8
  %otherwise = call ptr @PyTuple_GetItem(ptr %state, i64 0)
  %plain = icmp eq ptr %keywords, null
  %few = icmp ule i64 %n, MOST
  %fits = and i1 %plain, %few
  br i1 %fits, label %knobs, label %slow
knobs:                                             ; are the knobs those under which launches were bound?
  %variable = call ptr @PyTuple_GetItem(ptr %state, i64 2)
  %got = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %value.at)
  %lost = icmp ne i32 %got, 0
  br i1 %lost, label %clear, label %compare
compare:
  %value = load ptr, ptr %value.at
  %bound = call ptr @PyTuple_GetItem(ptr %state, i64 3)
  %then = call ptr @PyList_GetItem(ptr %bound, i64 1)
  %same = icmp eq ptr %value, %then
  call void @Py_DecRef(ptr %value)
  %name = call ptr @PyTuple_GetItem(ptr %state, i64 5)
  br i1 %same, label %source, label %slow
source:                                            ; is the program what it was?
  %watch = call ptr @PyTuple_GetItem(ptr %state, i64 7)
  %unchanged = call ptr @PyList_GetItem(ptr %watch, i64 0)
  %yes = call ptr @PyObject_CallNoArgs(ptr %unchanged)
  %unknown = icmp eq ptr %yes, null
  br i1 %unknown, label %clear, label %told
told:
  call void @Py_DecRef(ptr %yes)
  %still = icmp eq ptr %yes, @tw_true
  br i1 %still, label %addresses.next, label %slow
addresses.next:
  %i = phi i64 [ 0, %told ], [ %i1, %address ]
  %hash = phi i64 [ 0, %told ], [ %hash1, %address ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %ask, label %slot
ask:
  %at = getelementptr ptr, ptr %args, i64 %i
  %pointer = call ptr @PyObject_VectorcallMethod(ptr %name, ptr %at, i64 1, ptr null)
  %none = icmp eq ptr %pointer, null
  br i1 %none, label %clear, label %read
read:
  %number = call ptr @PyLong_AsVoidPtr(ptr %pointer)
  call void @Py_DecRef(ptr %pointer)
  %empty = icmp eq ptr %number, null               ; no integer, or no memory
  br i1 %empty, label %clear, label %address
address:
  %place = getelementptr ptr, ptr %addresses, i64 %i
  store ptr %number, ptr %place
  %bits = ptrtoint ptr %number to i64
  %mixed = xor i64 %hash, %bits
  %hash1 = mul i64 %mixed, -7046029254386353131    ; 2^64 divided by the golden ratio
  %i1 = add i64 %i, 1
  br label %addresses.next
slot:
  %slots = call ptr @PyTuple_GetItem(ptr %state, i64 6)
  %index = lshr i64 %hash, SHIFT
  %last = call ptr @PyList_GetItem(ptr %slots, i64 %index)
  %vacant = icmp eq ptr %last, @tw_none
  br i1 %vacant, label %key, label %match
match:
  %made = call ptr @PyTuple_GetItem(ptr %last, i64 2)
  %now = call ptr @PyList_GetItem(ptr %bound, i64 2)
  %held = call ptr @PyTuple_GetItem(ptr %last, i64 3)
  %theirs = call ptr @PyLong_AsVoidPtr(ptr %held)
  %count = load i64, ptr %theirs
  %under = icmp eq ptr %made, %now
  %alike.n = icmp eq i64 %count, %n
  %go = and i1 %under, %alike.n
  br i1 %go, label %each, label %key
each:
  %j = phi i64 [ 0, %match ], [ %j1, %equal ]
  %left = icmp slt i64 %j, %n
  br i1 %left, label %one, label %hit
one:
  %j1 = add i64 %j, 1
  %a.at = getelementptr ptr, ptr %addresses, i64 %j
  %b.at = getelementptr ptr, ptr %theirs, i64 %j1
  %a = load ptr, ptr %a.at
  %b = load ptr, ptr %b.at
  %ab = icmp eq ptr %a, %b
  br i1 %ab, label %equal, label %key
equal:
  br label %each
hit:
  call void @Py_IncRef(ptr %last)
  br label %check
key:                                               ; (grid, address, address, ...)
  %size = add i64 %n, 1
  %tuple = call ptr @PyTuple_New(i64 %size)
  %full = icmp eq ptr %tuple, null
  br i1 %full, label %clear, label %first
first:
  %grid = call ptr @PyTuple_GetItem(ptr %state, i64 4)
  call void @Py_IncRef(ptr %grid)
  %s0 = call i32 @PyTuple_SetItem(ptr %tuple, i64 0, ptr %grid)
  br label %fill
fill:
  %k = phi i64 [ 0, %first ], [ %k1, %filled ]
  %rest = icmp slt i64 %k, %n
  br i1 %rest, label %number.of, label %look
number.of:
  %k1 = add i64 %k, 1
  %c.at = getelementptr ptr, ptr %addresses, i64 %k
  %c = load ptr, ptr %c.at
  %long = call ptr @PyLong_FromVoidPtr(ptr %c)
  %out = icmp eq ptr %long, null
  br i1 %out, label %drop, label %filled
filled:
  %s1 = call i32 @PyTuple_SetItem(ptr %tuple, i64 %k1, ptr %long)
  br label %fill
drop:
  call void @Py_DecRef(ptr %tuple)
  br label %clear
look:
  %guarded = call ptr @PyTuple_GetItem(ptr %state, i64 1)
  %known = call ptr @PyDict_GetItemWithError(ptr %guarded, ptr %tuple)
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %drop, label %keep
keep:
  call void @Py_IncRef(ptr %known)
  call void @Py_DecRef(ptr %tuple)
  call void @Py_IncRef(ptr %known)
  %s2 = call i32 @PyList_SetItem(ptr %slots, i64 %index, ptr %known)
  br label %check
check:                                             ; do the tensors look as they did?
  %found = phi ptr [ %last, %hit ], [ %known, %keep ]
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
""".replace("MOST", str(MOST_TENSORS)).replace("SHIFT", str(64 - (_SLOTS - 1).bit_length()))


def repeater(
    otherwise: Callable[..., None],
    guarded: dict[Any, Seen],
    variable: ContextVar[Any],
    bound_under: list[object],
    grid: Any,
    watch: list[Callable[[], bool]],
) -> Callable[..., None] | None:
    """The launch on a grid that looks in `guarded` first; None where native code cannot do that.

    `bound_under`: the knobs under which launches are bound, the value of `variable` that gave them, and an object
    that is another after all of them were forgotten. `watch`: a check that the program is what it was.
    """
    functions = compiled(_TEXT)
    if functions is None:
        return None
    slots: list[Seen | None] = [None] * _SLOTS
    state = (otherwise, guarded, variable, bound_under, grid, "data_ptr", slots, watch)
    return functions.make("tw_repeat", VECTOR, state)
