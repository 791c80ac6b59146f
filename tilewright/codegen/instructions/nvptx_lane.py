"""NVIDIA: what lanes exchange (shuffles, votes, reductions), special registers, packed conversions
and the approximate unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.codegen.instructions.nvptx_common import SM80, SM90, emission
from tilewright.codegen.instructions.table import Meaning, declare

_LANE = np.arange(32)

# Exchanges ----------------------------------------------------------------------------------------


def _shuffle(source: Callable[[Any, Any], Any], doc: str) -> Meaning:
    def shfl(value: Any, by: Any) -> Sequence[Any]:
        at = source(_LANE, by)
        inside = (at >= 0) & (at < 32)
        return [np.where(inside, value[np.where(inside, at, 0)], value)]

    shfl.__doc__ = doc
    return shfl


ALL: Final = (("i32", "-1"),)
"""The lanes that take part."""
for _mode, _source, _doc in (
    ("idx", lambda l, b: b % 32, "The value of lane `by`."),
    ("bfly", lambda l, b: l ^ b, "The value of lane `lane xor by`."),
    ("up", lambda l, b: l - b, "The value of lane `lane - by`; its own where there is none."),
    ("down", lambda l, b: l + b, "The value of lane `lane + by`; its own where there is none."),
):  # fmt: skip
    declare(
        f"nvptx.shfl.{_mode}",
        ("i32", "i32"),
        ("i32",),
        SM80,
        _shuffle(_source, _doc),
        emission(
            f"shfl.sync.{_mode}.i32",
            ("i32", "i32"),
            "i32",
            first=ALL,
            extra=(("i32", "0" if _mode == "up" else "31"),),
        ),
        scope="warp",
    )


def _redux(combine: Any, kind: Any) -> Meaning:
    def redux(value: Any) -> Sequence[Any]:
        """The 32 lanes' values combined, in every lane."""
        held = np.ascontiguousarray(value).astype(np.int32).view(kind)
        with np.errstate(over="ignore"):
            total = combine.reduce(held, dtype=kind)
        return [np.full(32, total, kind).view(np.int32)]

    return redux


for _name, _combine, _kind in (
    ("add", np.add, np.int32), ("min", np.minimum, np.int32), ("max", np.maximum, np.int32),
    ("umin", np.minimum, np.uint32), ("umax", np.maximum, np.uint32),
    ("and", np.bitwise_and, np.int32), ("or", np.bitwise_or, np.int32),
    ("xor", np.bitwise_xor, np.int32),
):  # fmt: skip
    declare(
        f"nvptx.redux.{_name}",
        ("i32",),
        ("i32",),
        SM80,
        _redux(_combine, _kind),
        emission(f"redux.sync.{_name}", ("i32",), "i32", extra=ALL),
        scope="warp",
    )


def _ballot(value: Any) -> Sequence[Any]:
    """A word whose bit l is lane l's value."""
    word = int(np.sum(np.asarray(value, np.int64) << _LANE))
    return [np.full(32, word, np.int64).astype(np.uint32).view(np.int32)]


def _vote(all_lanes: bool) -> Meaning:
    def vote(value: Any) -> Sequence[Any]:
        """Whether it holds in every lane (all) or in one (any)."""
        return [np.full(32, bool(np.all(value) if all_lanes else np.any(value)))]

    return vote


for _name, _meaning, _result in (
    ("ballot", _ballot, "i32"),
    ("any", _vote(False), "i1"),
    ("all", _vote(True), "i1"),
):
    declare(
        f"nvptx.vote.{_name}",
        ("i1",),
        (_result,),
        SM80,
        _meaning,
        emission(f"vote.{_name}.sync", ("i1",), _result, first=ALL),
        scope="warp",
    )

# Special registers --------------------------------------------------------------------------------


def _sreg_meaning(name: str) -> Meaning:
    def sreg() -> Sequence[Any]:
        return [_LANE.astype(np.int32)]

    sreg.__doc__ = f"The special register %{name} of each thread."
    return sreg


for _name in (
    "laneid", "warpid", "smid", "tid.x", "tid.y", "tid.z", "ntid.x", "ctaid.x", "ctaid.y",
    "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z", "cluster.ctarank", "cluster.nctarank",
    "cluster.ctaid.x", "cluster.ctaid.y", "clusterid.x", "clusterid.y", "nclusterid.x",
):  # fmt: skip
    declare(
        f"nvptx.sreg.{_name}",
        (),
        ("i32",),
        SM90 if "cluster" in _name else SM80,
        _sreg_meaning(_name),
        emission(f"read.ptx.sreg.{_name}", (), "i32"),
        scope="warp",
        timed=_name != "laneid",
    )

# Conversions of pairs: the first operand goes to the upper half ------------------------------------


def _pack(kind: Any, saturate: float | None) -> Meaning:
    def cvt(high: Any, low: Any) -> Sequence[Any]:
        """Two f32 rounded to nearest even, `high` in the upper half, `low` in the lower; f8 clamps
        to its largest finite value.
        """
        pair = np.array([low, high], np.float32)
        if saturate is not None:
            pair = np.clip(pair, -saturate, saturate)
        with np.errstate(over="ignore"):
            narrow = pair.astype(kind)
        return [int.from_bytes(narrow.tobytes(), "little")]

    return cvt


def _unpack_f8(kind: Any) -> Meaning:
    def cvt(pair: int) -> Sequence[Any]:
        """A pair of f8 as a pair of f16 (exact)."""
        narrow = np.frombuffer((int(pair) & 0xFFFF).to_bytes(2, "little"), kind)
        return [int.from_bytes(narrow.astype(np.float16).tobytes(), "little")]

    return cvt


for _name, _kind, _bits, _most, _needs in (
    ("bf16x2", ml_dtypes.bfloat16, 32, None, SM80),
    ("f16x2", np.float16, 32, None, SM80),
    ("e4m3x2", ml_dtypes.float8_e4m3fn, 16, 448.0, frozenset({"sm_89"})),
    ("e5m2x2", ml_dtypes.float8_e5m2, 16, 57344.0, frozenset({"sm_89"})),
):
    _mode = "rn.satfinite" if _most else "rn"
    declare(
        f"nvptx.cvt.{_mode}.{_name}.f32",
        ("f32", "f32"),
        (f"i{_bits}",),
        _needs,
        _pack(_kind, _most),
        emission(f"cvt.{_mode}.{_name}.f32 $0, $1, $2;", ("f32", "f32"), f"i{_bits}"),
    )
    if _most:
        declare(
            f"nvptx.cvt.rn.f16x2.{_name}",
            ("i16",),
            ("i32",),
            _needs,
            _unpack_f8(_kind),
            emission(f"cvt.rn.f16x2.{_name} $0, $1;", ("i16",), "i32"),
        )


def _to_tf32(value: Any) -> Sequence[Any]:
    """f32 rounded to nearest (ties away from zero) to tf32's 10 mantissa bits, as a word."""
    bits = int(np.float32(value).view(np.uint32))
    return [(bits + 0x1000) & 0xFFFFE000]


declare(
    "nvptx.cvt.rna.tf32.f32",
    ("f32",),
    ("i32",),
    SM80,
    _to_tf32,
    emission("cvt.rna.tf32.f32 $0, $1;", ("f32",), "i32"),
)

# Bytes ---------------------------------------------------------------------------------------------


def _prmt(a: int, b: int, which: int) -> Sequence[Any]:
    """Four bytes out of the eight of `a` (0 to 3) and `b` (4 to 7): digit i of `which` names byte i.

    Bit 3 of a digit asks for that byte's sign in all eight bits; what is above the four digits says nothing.
    """
    known = (int(a) & 0xFFFFFFFF) | (int(b) & 0xFFFFFFFF) << 32
    result = 0
    for i in range(4):
        digit = int(which) >> 4 * i & 15
        byte = known >> 8 * (digit & 7) & 255
        if digit & 8:
            byte = 255 * (byte >> 7)
        result |= byte << 8 * i
    return [result]


declare(
    "nvptx.prmt",
    ("i32", "i32", "i32"),
    ("i32",),
    SM80,
    _prmt,
    emission("prmt", ("i32", "i32", "i32"), "i32"),
)

# The approximate unit -----------------------------------------------------------------------------


def _approximate(name: str, function: Any, doc: str) -> None:
    def meaning(x: Any) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return [np.float32(function(np.float64(x)))]

    meaning.__doc__ = doc
    declare(
        f"nvptx.{name}.f32",
        ("f32",),
        ("f32",),
        SM80,
        meaning,
        emission(f"{name}.f32 $0, $1;", ("f32",), "f32"),
        exact=False,
        elementwise=True,
    )


_approximate("ex2.approx.ftz", np.exp2, "2 to the x, within 2 ulp; denormals are zero.")
_approximate(
    "lg2.approx.ftz", lambda x: np.log2(np.abs(x)), "log2 x of a positive x, within 2^-22."
)
_approximate("rcp.approx.ftz", lambda x: 1 / x, "1 / x, within 1 ulp; denormals are zero.")
_approximate(
    "rsqrt.approx.ftz", lambda x: 1 / np.sqrt(np.abs(x)), "1 / sqrt x, x positive, 2^-22.4."
)
_approximate("tanh.approx", np.tanh, "tanh x with a relative error of 2^-11.")
