"""What a kernel is given: address, extents and strides of arrays, whoever made them.

:func:`describe` reads numpy arrays (with the types of ``ml_dtypes``), torch tensors, anything with
``__cuda_array_interface__``, and anything that speaks DLPack, without copying. It refuses what no
kernel can address, with the reason.

One normalisation is made: the stride of a last dimension whose extent is 0 or 1 can be anything,
because it is never used, and is given as 1. So ``x[:, None]`` and ``x[3:4]`` are rows like others.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.arguments import HOST, NOWHERE, ArrayArg, ArraySpec, contiguous_strides
from tilewright.diagnostics import LaunchError
from tilewright.dtypes import DType
from tilewright.prepacked import Prepacked, keep
from tilewright.targets.base import Device, get_target

ALIGNMENT = 256
"""Bytes: what cuMemAlloc, and the allocators of frameworks, promise at least."""


def describe(obj: Any, name: str = "argument") -> ArrayArg:
    """The :class:`ArrayArg` of ``obj``; LaunchError says why a kernel cannot take it.

    ``name`` is the parameter's name in messages. Nothing is copied: stores of the kernel are seen
    in ``obj``. An array without dimensions is one of one element.
    """
    if type(obj) is np.ndarray:
        return _from_numpy(obj, name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return _from_torch(obj, name)
    if isinstance(obj, np.ndarray):
        if hasattr(obj, "mask"):
            raise LaunchError(
                f"{name} is a masked array, which kernels do not support",
                hint="pass x.data and the mask as two arrays",
            )
        return _from_numpy(obj, name)
    if isinstance(obj, ArraySpec):
        return _from_spec(obj)
    if isinstance(obj, ArrayArg):
        return obj
    if hasattr(obj, "__cuda_array_interface__"):
        return _from_cuda(obj, name)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj, name)
    raise LaunchError(
        f"{name} is {with_article(type(obj).__name__)}, which is neither an array nor a number",
        hint="pass each array as an argument of its own"
        if isinstance(obj, (tuple, list)) and any(hasattr(x, "shape") for x in obj)
        else "kernels take numpy arrays, torch tensors, DLPack objects, ints, floats and bools",
    )


def prepack(array: Any) -> Prepacked:
    """Keeps the packed forms of an array of the host, a weight say, as long as what it returns lives.

    Launches are given the array as before. Its elements must not change, or `update()` be called when they have. What
    is kept costs about the array's own bytes for each form in which kernels pack it (f16 widened to f32: twice as
    many); `nbytes` tells. An array that no launch packs costs nothing. Raises LaunchError for what has no memory.
    """
    arg = describe(array, "array")
    if arg.device == NOWHERE:
        raise LaunchError("prepack of a shape, which has no memory")
    return keep(array, arg.pointer, arg.shape, arg.strides)


def is_array(obj: Any) -> bool:
    """Whether ``obj`` is meant as an array (and not as a scalar)."""
    return isinstance(obj, (np.ndarray, ArraySpec, ArrayArg)) or (
        hasattr(obj, "__dlpack__") or hasattr(obj, "__cuda_array_interface__")
    )


def unwritable(arg: ArrayArg) -> str | None:
    """Why a kernel must not store to an array; None where it may."""
    if arg.readonly:
        return "a read-only array"
    for axis, (extent, stride) in enumerate(zip(arg.shape, arg.strides, strict=True)):
        if extent > 1 and stride == 0 and 0 not in arg.shape:
            return f"a view whose {extent} elements along dimension {axis} are one in memory"
    return None


def element_strides(
    byte_strides: Sequence[int], shape: Sequence[int], itemsize: int, name: str
) -> tuple[int, ...]:
    """Strides in elements; refuses strides that are not whole elements."""
    strides: list[int] = []
    for axis, (stride, extent) in enumerate(zip(byte_strides, shape, strict=True)):
        whole, rest = divmod(stride, itemsize)
        if rest and extent > 1:
            raise LaunchError(
                f"{name} steps {stride} bytes along dimension {axis}, which is no multiple of its "
                f"{itemsize}-byte elements",
                hint="copy it with numpy.ascontiguousarray",
            )
        strides.append(whole)
    if strides and shape[-1] <= 1:
        strides[-1] = 1
    return tuple(strides)


def _from_numpy(array: np.ndarray[Any, Any], name: str) -> ArrayArg:
    dtype = _dtype(array.dtype, name)
    shape = array.shape or (1,)
    return ArrayArg(
        array.__array_interface__["data"][0],
        shape,
        element_strides(array.strides or (0,), shape, dtype.itemsize, name),
        dtype,
        HOST,
        not array.flags.writeable,
        array,
    )


def _dtype(dtype: np.dtype[Any], name: str) -> DType:
    found = _DTYPES.get(dtype)
    if found is None:
        try:
            found = dtypes.from_numpy(dtype)
        except TypeError as error:
            raise LaunchError(
                f"{name} has an unsupported element type: {error}", hint=_instead(dtype)
            ) from None
        _DTYPES[dtype] = found
    return found


_DTYPES: dict[np.dtype[Any], DType] = {}


def _instead(dtype: np.dtype[Any]) -> str | None:
    """What to pass in place of an array of elements that kernels do not know."""
    if not dtype.isnative and dtype.names is None:
        return "x.astype(x.dtype.newbyteorder('='))"
    if dtype.name in ("int4", "uint4", "int2", "uint2") or dtype.name.startswith(
        ("float4", "float6")
    ):
        return (
            "tiles have no elements below a byte: x.astype(np.int8) has one per byte; or keep two in "
            "a byte of a u8 array, and take them apart in the kernel with & and >>"
        )
    if dtype.names:
        return (
            f"pass each field as an array of its own: np.ascontiguousarray(x[{dtype.names[0]!r}])"
        )
    return _KINDS.get(dtype.kind)


_KINDS = {
    "c": "pass real and imaginary part as two arrays: x.real.copy(), x.imag.copy()",
    "O": "an array of Python objects: give it a dtype, np.asarray(x, np.float32)",
    "U": "number the strings: np.unique(x, return_inverse=True)[1]",
    "S": "number the strings, np.unique(x, return_inverse=True)[1], or pass their bytes: x.view(np.uint8)",
    "M": "x.view(np.int64) counts the units of its dtype",
    "m": "x.view(np.int64) counts the units of its dtype",
    "f": "x.astype(np.float64)",
}
"""What to pass in place of arrays, by the kind of their numpy dtype."""


_torch_cache: dict[Any, DType] = {}


def _from_torch(tensor: Any, name: str) -> ArrayArg:
    dtype = _torch_cache.get(tensor.dtype)
    if dtype is None:
        dtype = dtypes.BY_NUMPY_NAME.get(str(tensor.dtype).removeprefix("torch."))
        if dtype is None:
            raise LaunchError(
                f"{name} has an unsupported element type: {tensor.dtype}",
                hint=_KINDS["c"] if tensor.is_complex() else None,
            )
        _torch_cache[tensor.dtype] = dtype
    if str(tensor.layout) != "torch.strided" or tensor.is_nested:
        layout = "nested" if tensor.is_nested else tensor.layout
        raise LaunchError(
            f"{name} is a tensor of layout {layout}",
            hint="x.to_padded_tensor(0) has strides"
            if tensor.is_nested
            else "x.to_dense() has strides",
        )
    if tensor.is_neg():
        raise LaunchError(
            f"{name} is a view with a pending change of sign", hint="pass x.resolve_neg()"
        )
    shape = tuple(tensor.shape) or (1,)
    strides = tuple(tensor.stride()) or (1,)
    if shape[-1] <= 1:
        strides = (*strides[:-1], 1)
    device = tensor.device
    if device.type == "meta":
        return ArrayArg(0, shape, strides, dtype, NOWHERE, False, tensor)
    place = HOST if device.type == HOST else f"{device.type}:{device.index or 0}"
    pointer = _address(tensor)
    if not pointer and 0 not in shape:
        raise LaunchError(
            f"{name} is a tensor without memory",
            hint="its storage was freed, or it stands for others (torch.func, fake tensors): launch on those",
        )
    return ArrayArg(pointer, shape, strides, dtype, place, False, tensor)


def _address(tensor: Any) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # there is no storage
        return 0


def torch_type(dtype: DType) -> Any:
    """The torch dtype of ``dtype``; LaunchError when torch has none."""
    import torch  # pyright: ignore[reportMissingImports]

    for name, known in dtypes.BY_NUMPY_NAME.items():
        if known is dtype:
            return getattr(torch, name)
    raise LaunchError(f"torch has no dtype for {dtype}")


def _from_cuda(obj: Any, name: str) -> ArrayArg:
    interface = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise LaunchError(f"{name} is a masked array, which kernels do not support")
    dtype = _dtype(np.dtype(interface["typestr"]), name)
    shape = tuple(int(n) for n in interface["shape"]) or (1,)
    pointer, readonly = interface["data"]
    byte_strides = interface.get("strides")
    if not byte_strides:
        byte_strides = [s * dtype.itemsize for s in contiguous_strides(shape)]
    strides = element_strides(byte_strides, shape, dtype.itemsize, name)
    place = _device("cuda").place(int(pointer), interface.get("stream"))
    return ArrayArg(int(pointer), shape, strides, dtype, place, bool(readonly), obj)


def _device(kind: str) -> Device:
    """The target whose kernels run on devices that other libraries call so."""
    found = get_target(kind)
    assert isinstance(found, Device)
    return found


_DLPACK_HOST_DEVICES = (1, 3, 13)  # kDLCPU, kDLCUDAHost, kDLCUDAManaged
_DLPACK_DEVICES = {2: "cuda"}
"""DLDeviceType -> what targets and other libraries call such a device."""


def _from_dlpack(obj: Any, name: str) -> ArrayArg:
    kind, ordinal = obj.__dlpack_device__()
    if (device := _DLPACK_DEVICES.get(int(kind))) is not None:
        with _device(device).exporting(int(ordinal)) as stream:
            capsule = obj.__dlpack__(stream=stream)
        return from_capsule(capsule, name, f"{device}:{int(ordinal)}")
    if kind not in _DLPACK_HOST_DEVICES:
        raise LaunchError(
            f"{name} lives on DLPack device type {int(kind)}, which no target reads",
            hint="copy it to the host",
        )
    try:
        view = np.from_dlpack(obj)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise LaunchError(f"{name} cannot be read through DLPack: {error}") from None
    return _from_numpy(view, name)


class _DLTensor(ctypes.Structure):
    """DLTensor of DLPack, the first member of DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DLPACK_DTYPES = {
    **{(0, 8 * n): d for n, d in zip((1, 2, 4, 8), (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64), strict=True)},
    **{(1, 8 * n): d for n, d in zip((1, 2, 4, 8), (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64), strict=True)},
    (2, 16): dtypes.f16, (2, 32): dtypes.f32, (2, 64): dtypes.f64, (4, 16): dtypes.bf16,
    (6, 8): dtypes.i1, (10, 8): dtypes.f8e4m3, (12, 8): dtypes.f8e5m2,
}  # fmt: skip
"""(DLDataTypeCode, bits) -> dtype."""


def from_capsule(capsule: Any, name: str, device: str) -> ArrayArg:
    """The array of a DLPack capsule, which stays with the result and frees it in the end."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
    dtype = _DLPACK_DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        what = f"DLPack type code {tensor.code} of {tensor.bits} bits, {tensor.lanes} lanes"
        raise LaunchError(f"{name} has an unsupported element type: {what}")
    shape = tuple(tensor.shape[i] for i in range(tensor.rank)) or (1,)
    given = tensor.strides if tensor.rank else None
    strides = tuple(given[i] for i in range(tensor.rank)) if given else contiguous_strides(shape)
    if shape[-1] <= 1:
        strides = (*strides[:-1], 1)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return ArrayArg(pointer, shape, strides, dtype, device, False, capsule)


def _from_spec(spec: ArraySpec) -> ArrayArg:
    shape = tuple(spec.shape) or (1,)
    strides = spec.strides or contiguous_strides(shape)
    return ArrayArg(0, shape, tuple(strides), spec.dtype, NOWHERE, False, spec)


def with_article(noun: str) -> str:
    """``an int``, ``a list``."""
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def tensor_types() -> frozenset[Any]:
    """The classes of torch's plain tensors where torch is loaded (not of subclasses that compute
    differently).
    """
    torch = sys.modules.get("torch")
    return frozenset({torch.Tensor, torch.nn.Parameter}) if torch is not None else frozenset()


def is_cut(obj: Any) -> bool:
    """Whether `obj` is a tensor whose gradient ends here: autograd is on, and records no kernel."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and isinstance(obj, torch.Tensor)
        and obj.requires_grad
        and torch.is_grad_enabled()
    )


def likeness(obj: Any) -> tuple[Any, int] | None:
    """A cheap key of all that :func:`describe` reads but the address, and the address.

    Arrays with equal keys have equal descriptions, but for ``pointer`` (whose low six bits are in
    the key) and ``owner``. None for objects that must be described each time.
    """
    kind = type(obj)
    if kind is np.ndarray:
        pointer = data_of(obj)
        return (obj.dtype, obj.shape, obj.strides, pointer & 63, obj.flags.writeable), pointer
    torch = sys.modules.get("torch")
    if torch is None or (kind is not torch.Tensor and kind is not torch.nn.Parameter):
        return None
    if obj.layout is not torch.strided or obj.is_nested or obj.is_neg():
        return None
    pointer = _address(obj)
    if not pointer:
        return None
    cut = obj.requires_grad and torch.is_grad_enabled()
    return (obj.dtype, obj.shape, obj.stride(), pointer & 63, obj.device, cut), pointer


def aligned(shape: tuple[int, ...], dtype: Any, zeroed: bool = False) -> np.ndarray[Any, Any]:
    """Memory that starts where allocators of frameworks and devices would have it start; numpy's starts 16 bytes
    behind, where a row of any matrix takes a cache line more."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = (np.zeros if zeroed else np.empty)(size + ALIGNMENT, np.uint8)
    start = -data_of(memory) % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def _read_data(array: np.ndarray[Any, Any]) -> int:
    """The first field of numpy's PyArrayObject, in a fifth of the time that __array_interface__ takes."""
    return ctypes.c_size_t.from_address(id(array) + object.__basicsize__).value


_probe = np.empty(1)
data_of: Callable[[np.ndarray[Any, Any]], int] = (
    _read_data
    if _read_data(_probe) == _probe.ctypes.data
    else lambda array: array.__array_interface__["data"][0]
)
