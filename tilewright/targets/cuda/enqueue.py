"""One kernel launch in native code: the current stream, cuLaunchKernelEx, and nothing else.

The block that it reads holds what does not change from launch to launch; the configuration is copied
to the stack for its stream, so that threads share a block. The interpreter's lock is given up while
the driver works. Where the driver refuses, `otherwise` launches again and says why.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

from tilewright.codegen.pyfunction import NO_ARGUMENTS, compiled
from tilewright.targets.cuda import driver

# state: (finder, ordinal, otherwise, address of the block)
_TEXT = """
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@tw_none = external global i8

define ptr @tw_enqueue(ptr %state, ptr %unused) nounwind {
entry:
  %config = alloca [7 x i64], align 8
  %here = alloca ptr, align 8
  %finder = call ptr @PyTuple_GetItem(ptr %state, i64 0)
  %ordinal = call ptr @PyTuple_GetItem(ptr %state, i64 1)
  %number = call ptr @PyObject_CallOneArg(ptr %finder, ptr %ordinal)
  %none = icmp eq ptr %number, null
  br i1 %none, label %fail, label %found
fail:
  ret ptr null
found:
  %stream = call ptr @PyLong_AsVoidPtr(ptr %number)
  call void @Py_DecRef(ptr %number)
  %place = call ptr @PyTuple_GetItem(ptr %state, i64 3)
  %block = call ptr @PyLong_AsVoidPtr(ptr %place)
  %function.at = getelementptr i8, ptr %block, i64 8
  %parameters.at = getelementptr i8, ptr %block, i64 16
  %getter.at = getelementptr i8, ptr %block, i64 24
  %context.at = getelementptr i8, ptr %block, i64 32
  %config.at = getelementptr i8, ptr %block, i64 40
  %launch = load ptr, ptr %block
  %function = load ptr, ptr %function.at
  %parameters = load ptr, ptr %parameters.at
  %getter = load ptr, ptr %getter.at
  %fixed = load <7 x i64>, ptr %config.at, align 8
  store <7 x i64> %fixed, ptr %config, align 8
  %stream.at = getelementptr i8, ptr %config, i64 32
  store ptr %stream, ptr %stream.at
  %alone = icmp eq ptr %getter, null
  br i1 %alone, label %go, label %where
where:                                             ; several devices: is this one current?
  %code0 = call i32 %getter(ptr %here)
  %current = load ptr, ptr %here
  %context = load ptr, ptr %context.at
  %there = icmp eq ptr %current, %context
  br i1 %there, label %go, label %slow
go:
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 %launch(ptr %config, ptr %function, ptr %parameters, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %done, label %slow
done:
  call void @Py_IncRef(ptr @tw_none)
  ret ptr @tw_none
slow:
  %otherwise = call ptr @PyTuple_GetItem(ptr %state, i64 2)
  %result = call ptr @PyObject_CallNoArgs(ptr %otherwise)
  ret ptr %result
}
"""


class LaunchBlock(C.Structure):
    """What a launch needs, as `tw_enqueue` reads it."""

    _fields_ = (
        ("launch", C.c_void_p),
        ("function", C.c_void_p),
        ("parameters", C.c_void_p),
        ("getter", C.c_void_p),
        ("context", C.c_void_p),
        ("config", driver.LaunchConfig),
    )


def native_launch(
    finder: Callable[[int], int],
    device: driver.CudaDevice,
    function: int,
    parameters: int,
    config: driver.LaunchConfig,
    otherwise: Callable[[], None],
) -> Callable[[], None] | None:
    """The launch as a function of native code; None where there is none. Memory of `parameters` stays the caller's.

    `otherwise` does the same in Python: it is called where the driver refuses or another device is current.
    """
    functions = compiled(_TEXT)
    if functions is None:
        return None
    several = driver.device_count() > 1
    block = LaunchBlock(
        _address(driver.launcher()), function, parameters,
        _address(driver.context_getter()) if several else None, device.context, config,
    )  # fmt: skip
    state = (finder, device.ordinal, otherwise, C.addressof(block), block)
    return functions.make("tw_enqueue", NO_ARGUMENTS, state)


def _address(function: Any) -> int | None:
    return C.cast(function, C.c_void_p).value
