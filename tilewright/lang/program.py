"""Where a program stands among others, how they wait for each other, and what they tell the user."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

from xdsl.dialects import arith, cf, gpu, vector
from xdsl.dialects.builtin import i8
from xdsl.ir import Operation, SSAValue

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dialects import tw as tw_dialect
from tilewright.frozen import frozen
from tilewright.lang.arithmetic import binary, truth
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import computed, constant_ssa, index_operand, item, to
from tilewright.lang.reductions import reduction
from tilewright.lang.registry import language
from tilewright.lang.values import Array, Tile, Value, describe_type
from tilewright.printed import spelled

_DIMENSIONS = (gpu.DimensionEnum.X, gpu.DimensionEnum.Y, gpu.DimensionEnum.Z)


@language
def program_id(axis: int) -> Value:
    """This program's place in the grid along ``axis`` (0, 1 or 2), counted from 0.

    >>> @tw.kernel
    ... def number(Y):
    ...     i = tw.program_id(0)
    ...     tw.store_tile(i, tw.init_tile(Y, [i], (1, 1)))
    >>> y = np.empty(3, np.int32); number[3](y); y.tolist()
    [0, 1, 2]
    """
    return _index(gpu.BlockIdOp(_dimension(axis)))


@language
def num_programs(axis: int) -> Value:
    """The extent of the grid along ``axis`` (0, 1 or 2).

    >>> @tw.kernel
    ... def count(Y):
    ...     tw.store_tile(tw.num_programs(0), tw.init_tile(Y, [tw.program_id(0)], (1, 1)))
    >>> y = np.empty(2, np.int32); count[2](y); y.tolist()
    [2, 2]
    """
    return _index(gpu.GridDimOp(_dimension(axis)))


def _dimension(axis: object) -> gpu.DimensionAttr:
    if isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < 3:
        return gpu.DimensionAttr(_DIMENSIONS[axis])
    raise ArgumentError(
        "axis",
        f"axis is 0, 1 or 2, not {describe_type(axis)}",
        rule="a grid has three axes, named at compile time",
    )


def _index(op: Operation) -> Value:
    return Value(emitter().result(op), dtypes.index, ())


@language
def barrier() -> None:
    """Orders shared local memory: everything written before it is seen after it, by the workgroup.

    At subgroup level every subgroup of the workgroup must come by.

    >>> @tw.kernel
    ... def nothing(Y):
    ...     tw.barrier()
    ...     tw.store_tile(1, tw.init_tile(Y, [0], (1, 1)))
    >>> y = np.zeros(1, np.int32); nothing[1](y); int(y[0])
    1
    """
    emitter("barrier").emit(gpu.BarrierOp())


@language
def subgroup_id() -> Value:
    """This subgroup's number in its workgroup, in kernels of ``level="subgroup"``.

    >>> @tw.kernel(level="subgroup", subgroups=2)
    ... def number(Y):
    ...     i = tw.subgroup_id()
    ...     tw.store_tile(i, tw.init_tile(Y, [i], (1, 1)))
    >>> y = np.empty(2, np.int32); number.options(target="reference")[1](y); y.tolist()
    [0, 1]
    """
    _subgroup_level("subgroup_id")
    return _index(gpu.SubgroupIdOp())


@language
def num_subgroups() -> Value:
    """The number of subgroups of a workgroup, in kernels of ``level="subgroup"``.

    >>> @tw.kernel(level="subgroup", subgroups=2)
    ... def count(Y):
    ...     tw.store_tile(tw.num_subgroups(), tw.init_tile(Y, [tw.subgroup_id()], (1, 1)))
    >>> y = np.empty(2, np.int32); count.options(target="reference")[1](y); y.tolist()
    [2, 2]
    """
    _subgroup_level("num_subgroups")
    return _index(gpu.NumSubgroupsOp())


@frozen
class NamedBarrier:
    """A barrier among ``count`` subgroups; made by :func:`named_barrier`."""

    id: int | Value
    count: int | Value

    def arrive(self) -> None:
        """This subgroup is here; it goes on without waiting."""
        self._emit(waits=False)

    def wait(self) -> None:
        """Waits until ``count`` subgroups have arrived; what they wrote before is seen."""
        self._emit(waits=True)

    def _emit(self, waits: bool) -> None:
        from tilewright.dialects import xegpu  # which few kernels are of

        emit, operands = emitter("named_barrier").emit, list[SSAValue]()
        for what, number in (("id", self.id), ("count", self.count)):
            found = index_operand(number, what)
            if isinstance(found, int):
                operands.append(constant_ssa(found, dtypes.u8))
            else:
                operands.append(emit(arith.IndexCastOp(found, i8)).result)
        barrier = emit(xegpu.InitNbarrierOp(*operands)).result
        emit((xegpu.NbarrierWaitOp if waits else xegpu.NbarrierArriveOp)(barrier))


@language
def named_barrier(id: int | Value, count: int | Value) -> NamedBarrier:
    """Barrier number ``id`` among ``count`` subgroups, with ``.arrive()`` and ``.wait()``.

    In kernels of ``level="subgroup"``. A subgroup that waits must have arrived, or be one that only
    waits; the barrier is ready for its next use when ``count`` subgroups have arrived.

    >>> @tw.kernel(level="subgroup", subgroups=2)
    ... def relay(Y):
    ...     meeting = tw.named_barrier(0, 2)
    ...     meeting.arrive()
    ...     meeting.wait()
    ...     tw.store_tile(1, tw.init_tile(Y, [tw.subgroup_id()], (1, 1)))
    >>> y = np.zeros(2, np.int32); relay.options(target="reference")[1](y); y.tolist()
    [1, 1]
    """
    _subgroup_level("named_barrier")
    for name, x in (("id", id), ("count", count)):
        if not isinstance(x, (int, Value)):
            raise ArgumentError(name, f"{name} must be an integer, not {describe_type(x)}")
        if isinstance(x, int) and not 0 <= x < 256:
            raise ArgumentError(name, f"{name} must be from 0 to 255, not {x}")
    return NamedBarrier(id, count)


def _subgroup_level(what: str) -> None:
    if emitter(what).level != "subgroup":
        raise CompileError(
            f"{what} in a kernel at workgroup level",
            rule="a workgroup-level kernel is one program; subgroups appear at subgroup level",
            hint='decorate it with @tw.kernel(level="subgroup", subgroups=n)',
        )


# --- Compile time ----------------------------------------------------------------------------

T = TypeVar("T")


@language
def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """A range whose loop is unrolled: the variable is a number of compile time in every copy.

    ``start``, ``stop`` and ``step`` are numbers of compile time, as of Python's range.

    >>> @tw.kernel
    ... def steps(Y):
    ...     for i in tw.static_range(3):
    ...         tw.store_tile(i * i, tw.init_tile(Y, [i], (1, 1)))
    >>> y = np.empty(3, np.int32); steps[1](y); y.tolist()
    [0, 1, 4]
    """
    bounds = (start, step) if stop is None else (start, stop, step)
    for bound in bounds:
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise CompileError(
                f"static_range takes integers of compile time, not {describe_type(bound)}",
                hint="use range(...) for a loop at run time",
            )
    if step == 0:
        raise ArgumentError("step", "step is 0")
    return range(0, start, step) if stop is None else range(start, stop, step)


@language
def static_assert(condition: bool, message: str = "") -> None:
    """Refuses to compile the kernel when ``condition``, a value of compile time, is false.

    ``message`` is what the CompileError says.

    >>> @tw.kernel
    ... def even(Y, N: tw.constexpr = 4):
    ...     tw.static_assert(N % 2 == 0, "N must be even")
    ...     tw.store_tile(N, tw.init_tile(Y, [0], (1, 1)))
    >>> y = np.empty(1, np.int32); even[1](y); int(y[0])
    4
    """
    if isinstance(condition, (Value, Tile, Array)):
        raise ArgumentError(
            "condition",
            f"static_assert of {describe_type(condition)}",
            hint="use tw.device_assert or assert for run-time conditions",
        )
    if not condition:
        raise CompileError(
            f"static assertion failed{': ' + message if message else ''}",
            hint="the kernel states what it needs; call it with other constexprs",
        )


# --- Telling the user ------------------------------------------------------------------------


@language
def device_print(*values: object) -> None:
    """Prints ``values``, strings and numbers in one line, as Python's print; ``print`` is the same.

    The line starts with the program that printed it. Lines of different programs come in any order.
    Numbers have six digits; of a tile with more than 64 elements its shape and corners are printed.
    A launch prints 1000 lines at most (``TILEWRIGHT_PRINT_LINES``), and says how many it left out. On a
    GPU so many programs print, when the host waits for them; on Intel's GPUs, none can: run the kernel on
    the cpu or the reference target.

    >>> @tw.kernel
    ... def hello(Y):
    ...     tw.device_print("program", tw.program_id(0))
    ...     tw.store_tile(1, tw.init_tile(Y, [0], (1, 1)))
    >>> y = np.empty(1, np.int32); hello.options(num_threads=1)[2](y)
    [workgroup (0, 0, 0)] program 0
    [workgroup (1, 0, 0)] program 1
    """
    texts: list[str] = []
    operands: list[Any] = []
    for value in values:
        if isinstance(value, FormatString):
            texts.append(value.format.format(*(_shown(v, operands) for v in value.values)))
        elif isinstance(value, Value):
            texts.append(_shown(value, operands))
        elif isinstance(value, (Tile, Array)):
            raise CompileError(
                f"print of {describe_type(value)}", hint="print its elements: tw.load_tile(tile)"
            )
        else:
            texts.append(str(value))
    text = " ".join(texts).replace("{", "{{").replace("}", "}}").replace(_HOLE, "{}")
    emitter("device_print").emit(tw_dialect.PrintOp(text, operands))


_HOLE = "\0"
"""Stands for an operand while a line's text is put together: no text that is printed holds it."""


def _shown(value: Value, operands: list[Any]) -> str:
    """A value's place in the text of a line; the elements that are shown of it become operands, as f64, i64 or i1."""
    text, places = spelled(value.shape, _HOLE)
    for place in places:
        one = value
        if value.shape:
            op = vector.ExtractOp(computed(value), place, value.dtype.arith)
            one = Value(emitter("device_print").result(op), value.dtype, ())
        if not value.dtype.is_bool:
            one = to(one, dtypes.f64 if value.dtype.is_float else dtypes.i64)
        operands.append(computed(one))
    return text


@frozen
class FormatString:
    """An f-string that holds run-time values."""

    described = "an f-string of run-time values"
    format: str
    values: tuple[Value, ...]


@language
def device_assert(condition: Value | bool, message: str = "assertion failed") -> None:
    """Stops the program with an error when ``condition`` is false; of a mask: false anywhere.

    ``assert condition, message`` in a kernel is the same. On Intel GPUs the program goes on, and its launch raises
    the error.

    >>> @tw.kernel
    ... def checked(X):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 2)))
    ...     tw.device_assert(x >= 0, "negative input")
    >>> checked.options(target="reference")[1](np.ones(2, np.float32))
    """
    if isinstance(condition, (bool, int, float)):
        static_assert(builtins.bool(condition), message)
        return
    if not isinstance(condition, Value):
        raise ArgumentError(
            "condition",
            f"device_assert of {describe_type(condition)}",
            hint="a condition is a comparison of values: x >= 0",
        )
    if not isinstance(message, str):
        raise ArgumentError(
            "message",
            f"the message must be a string of compile time, not {describe_type(message)}",
            hint="tw.device_print(...) prints values of run time",
        )
    if condition.shape:
        condition = binary("!=", condition, 0) if not condition.dtype.is_bool else condition
        while condition.ndim < 2:
            from tilewright.lang.convert import broadcast_to

            condition = broadcast_to(condition, (1, *condition.shape))
        condition = item(reduction("and", condition, None))
    emitter("device_assert").emit(cf.AssertOp(truth(condition).ssa, message))
