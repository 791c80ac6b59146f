"""`Launcher.again` in native code: a launch seen before, without a frame of the interpreter.

    seen = slots[hash(words)] or guarded[(grid, words)]             # words: what `words_of` tells of each argument
    if unchanged() and seen and seen.check(*tensors): seen.run()    else: otherwise(*arguments, **keywords)

A slot holds what was found last among words of its hash: comparing it takes a tenth of the time of a tuple
and a look into a dictionary. It carries its words and the epoch in which it was bound, so that it cannot be
out of step with either. Anything unusual (keywords, an argument that is no array and not the very object of
that launch, other knobs, an empty tensor, an exception) goes to `otherwise`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from tilewright.codegen.pyfunction import VECTOR, compiled
from tilewright.runtime.guards import WRITEABLE, NumpyArray, Seen

MOST = 16
"""Arguments."""
_WORDS = 128
"""Of all of them."""
_SLOTS = 256

# state: (otherwise, guarded, variable, [knobs, value, epoch], grid, "data_ptr", slots, [unchanged], ndarray, [tensors])
_TEXT = """
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_Pack(i64, ...)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare i32 @PySet_Contains(ptr, ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@tw_none = external global i8
@tw_true = external global i8
declare ptr @memcpy(ptr, ptr, i64)

define internal i64 @word(ptr %object, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %object, i64 %offset
  %word = load i64, ptr %at
  ret i64 %word
}

define ptr @tw_repeat(ptr %state, ptr %args, i64 %n, ptr %keywords) nounwind {
entry:
  %words = alloca [WORDS x i64], align 8
  %tensors = alloca [MOST x ptr], align 8
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
  br i1 %still, label %kinds, label %slow
kinds:
  %ndarray = call ptr @PyTuple_GetItem(ptr %state, i64 8)
  %known.kinds = call ptr @PyTuple_GetItem(ptr %state, i64 9)
  %tensor.kinds = call ptr @PyList_GetItem(ptr %known.kinds, i64 0)
  br label %next
next:                                              ; %size words so far, %t tensors
  %i = phi i64 [ 0, %kinds ], [ %i1, %word ]
  %size = phi i64 [ 0, %kinds ], [ %size1, %word ]
  %t = phi i64 [ 0, %kinds ], [ %t1, %word ]
  %hash = phi i64 [ 0, %kinds ], [ %hash1, %word ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %ask, label %slot
ask:
  %at = getelementptr ptr, ptr %args, i64 %i
  %argument = load ptr, ptr %at
  %place = getelementptr i64, ptr %words, i64 %size
  %type = call i64 @word(ptr %argument, i64 8)
  %kind = inttoptr i64 %type to ptr
  %itself = ptrtoint ptr %argument to i64
  %is.array = icmp eq ptr %kind, %ndarray
  br i1 %is.array, label %array, label %tensor
array:                                             ; data, rank and flags, dtype, shape, strides
  %data = call i64 @word(ptr %argument, i64 DATA)
  %dtype = call i64 @word(ptr %argument, i64 DTYPE)
  %rank = call i64 @word(ptr %argument, i64 RANK)
  %flags = call i64 @word(ptr %argument, i64 FLAGS)
  %dims = and i64 %rank, 255
  %writeable = and i64 %flags, WRITEABLE
  %facts = or i64 %dims, %writeable
  %lists = shl i64 %dims, 1
  %more.words = add i64 %lists, 2
  %last.word = add i64 %size, %more.words
  %room = icmp ult i64 %last.word, WORDS
  br i1 %room, label %facts.of, label %slow
facts.of:
  %facts.to = getelementptr i64, ptr %place, i64 1
  store i64 %facts, ptr %facts.to
  %dtype.to = getelementptr i64, ptr %place, i64 2
  store i64 %dtype, ptr %dtype.to
  %shape.to = getelementptr i64, ptr %place, i64 3
  %strides.to = getelementptr i64, ptr %shape.to, i64 %dims
  %shape = call i64 @word(ptr %argument, i64 SHAPE)
  %strides = call i64 @word(ptr %argument, i64 STRIDES)
  %shape.at = inttoptr i64 %shape to ptr
  %strides.at = inttoptr i64 %strides to ptr
  %run.bytes = shl i64 %dims, 3
  %s3 = call ptr @memcpy(ptr %shape.to, ptr %shape.at, i64 %run.bytes)
  %s4 = call ptr @memcpy(ptr %strides.to, ptr %strides.at, i64 %run.bytes)
  br label %word
tensor:
  %is.tensor = call i32 @PySet_Contains(ptr %tensor.kinds, ptr %kind)
  %ours = icmp eq i32 %is.tensor, 1
  br i1 %ours, label %pointer.of, label %word
pointer.of:
  %pointer = call ptr @PyObject_VectorcallMethod(ptr %name, ptr %at, i64 1, ptr null)
  %none = icmp eq ptr %pointer, null
  br i1 %none, label %clear, label %read
read:
  %number = call ptr @PyLong_AsVoidPtr(ptr %pointer)
  call void @Py_DecRef(ptr %pointer)
  %empty = icmp eq ptr %number, null               ; no integer, or no memory
  br i1 %empty, label %clear, label %counted
counted:
  %address = ptrtoint ptr %number to i64
  %tensor.to = getelementptr ptr, ptr %tensors, i64 %t
  store ptr %argument, ptr %tensor.to
  %t2 = add i64 %t, 1
  br label %word
word:                                              ; the first of an argument
  %first = phi i64 [ %data, %facts.of ], [ %itself, %tensor ], [ %address, %counted ]
  %others = phi i64 [ %more.words, %facts.of ], [ 0, %tensor ], [ 0, %counted ]
  %t1 = phi i64 [ %t, %facts.of ], [ %t, %tensor ], [ %t2, %counted ]
  store i64 %first, ptr %place
  %one.more = add i64 %size, 1
  %size1 = add i64 %one.more, %others
  %mixed = xor i64 %hash, %first
  %hash1 = mul i64 %mixed, -7046029254386353131    ; 2^64 divided by the golden ratio
  %i1 = add i64 %i, 1
  %full = icmp uge i64 %size1, WORDS
  br i1 %full, label %slow, label %next
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
  %alike.n = icmp eq i64 %count, %size
  %go = and i1 %under, %alike.n
  br i1 %go, label %each, label %key
each:
  %j = phi i64 [ 0, %match ], [ %j1, %equal ]
  %left = icmp slt i64 %j, %size
  br i1 %left, label %one, label %hit
one:
  %j1 = add i64 %j, 1
  %a.at = getelementptr i64, ptr %words, i64 %j
  %b.at = getelementptr i64, ptr %theirs, i64 %j1
  %a = load i64, ptr %a.at
  %b = load i64, ptr %b.at
  %ab = icmp eq i64 %a, %b
  br i1 %ab, label %equal, label %key
equal:
  br label %each
hit:
  call void @Py_IncRef(ptr %last)
  br label %check
key:                                               ; (grid, words)
  %length = shl i64 %size, 3
  %bytes = call ptr @PyBytes_FromStringAndSize(ptr %words, i64 %length)
  %lacking = icmp eq ptr %bytes, null
  br i1 %lacking, label %clear, label %pair
pair:
  %grid = call ptr @PyTuple_GetItem(ptr %state, i64 4)
  %tuple = call ptr (i64, ...) @PyTuple_Pack(i64 2, ptr %grid, ptr %bytes)
  call void @Py_DecRef(ptr %bytes)
  %lost.too = icmp eq ptr %tuple, null
  br i1 %lost.too, label %clear, label %look
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
  %sure = icmp eq ptr %guard, @tw_none             ; there are none
  br i1 %sure, label %run, label %guarded.by
guarded.by:
  %answer = call ptr @PyObject_Vectorcall(ptr %guard, ptr %tensors, i64 %t, ptr null)
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
_NUMBERS = {
    "MOST": MOST, "WORDS": _WORDS, "SHIFT": 64 - (_SLOTS - 1).bit_length(), "WRITEABLE": WRITEABLE,
    "DATA": NumpyArray.data.offset, "RANK": NumpyArray.rank.offset, "FLAGS": NumpyArray.flags.offset,
    "DTYPE": NumpyArray.dtype.offset, "SHAPE": NumpyArray.shape.offset, "STRIDES": NumpyArray.strides.offset,
}  # fmt: skip


def repeater(
    otherwise: Callable[..., bool | None],
    guarded: dict[Any, Seen],
    variable: ContextVar[Any],
    bound_under: list[object],
    grid: Any,
    watch: list[Callable[[], bool]],
    tensors: list[frozenset[Any]],
) -> Callable[..., Any] | None:
    """The launch on a grid that looks in `guarded` first; None where native code cannot do that.

    `bound_under`: the knobs under which launches are bound, the value of `variable` that gave them, and an object
    that is another after all of them were forgotten. `watch`: a check that the program is what it was.
    """
    functions = compiled(re.sub("[A-Z]{4,}", lambda name: str(_NUMBERS[name[0]]), _TEXT))
    if functions is None:
        return None
    slots: list[Seen | None] = [None] * _SLOTS
    state = (
        otherwise,
        guarded,
        variable,
        bound_under,
        grid,
        "data_ptr",
        slots,
        watch,
        np.ndarray,
        tensors,
    )
    return functions.make("tw_repeat", VECTOR, state)
