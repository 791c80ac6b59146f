"""One call that tells whether tensors look as they did: PyTorch's own guard, where it has one.

Reading type, shape, strides, dtype and device of a few tensors costs microseconds in Python. Dynamo
checks the same in C++ before it runs compiled code (`TensorGuards`, not a public name): where this
torch has it and it works as expected here, launches use it, else they read attribute by attribute.
"""

from __future__ import annotations

import ctypes as C
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

Seen: TypeAlias = tuple[Callable[..., bool], Callable[[], None], object, int, Any]
"""A launch that was bound: check of its tensors, the launch, the launcher's epoch when it was bound, and memory that
holds `number of tensors, address, ...` (u64): its place, and its owner. Native code reads it (`repeat.py`)."""


def seen(
    check: Callable[..., bool], run: Callable[[], None], epoch: object, addresses: Sequence[int]
) -> Seen:
    memory = (C.c_uint64 * (len(addresses) + 1))(len(addresses), *addresses)
    return check, run, epoch, C.addressof(memory), memory


@cache
def _guard_type() -> Any:
    """The class, tried on two tensors; None where there is none or it does something else."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    try:
        kind = torch._C._dynamo.guards.TensorGuards
        x, y = torch.zeros(4, 6), torch.zeros(6)
        check = _make(kind, [x, y])
        other = (
            (x.T.contiguous(), y), (x.double(), y), (x[:, ::2], y), (x.t(), y),
            (torch._neg_view(x), y), (x, y[::2]), (torch.zeros(4, 12)[:, ::2], y), (x, None),
        )  # fmt: skip
        good = check(x, y) is True and check(torch.ones(4, 6), torch.ones(6)) is True
        return kind if good and not any(check(*o) for o in other) else None
    except (AttributeError, TypeError, RuntimeError, ImportError):
        return None


def _make(kind: Any, tensors: Sequence[Any]) -> Callable[..., bool]:
    # None in these lists would let a dimension vary.
    sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
    return kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def guard(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """check(*others): are these of the types, devices, dtypes, shapes and strides of `tensors`?

    None where torch has no such check. It may say no to some that are alike.
    """
    kind = _guard_type()
    if kind is None:
        return None
    try:
        check = _make(kind, tensors)
        return check if check(*tensors) else None
    except (AttributeError, TypeError, RuntimeError):
        return None
