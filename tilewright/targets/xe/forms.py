"""The messages of Xe that lane code asks for, as neutral callees: `@xe_load2d_vnni_16b_32x16x2`.

A form says everything that one instruction fixes at compile time. Its name stands in the LLVM text, and a
callee table (`intel`, `igc`, `emu`) says what the name stands for. Sizes are rows x columns x blocks.

| callee | operands | result |
|---|---|---|
| `xe_load2d_*`  | base, width, height, pitch, x, y, private memory | the fragment, in private memory |
| `xe_store2d_*` | base, width, height, pitch, x, y, private memory | |
| `xe_prefetch2d_*` | base, width, height, pitch, x, y | |
| `xe_row_load_*`, `xe_row_store_*` | address[, words] | words |
| `xe_dpas_*` | A, B, C | D |

`width` and `pitch` count bytes, `height` rows, all i32; x and y count elements and rows. Where lane and
component of a fragment lie in the block is what SPV_INTEL_2d_block_io says (`positions`).
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.frozen import frozen

Kind = Literal["load", "vnni", "transpose", "store", "prefetch"]

SMALL, LARGE = 128, 256
"""Registers per thread: the two modes of a kernel."""
RISK = "registers"
"""How the remark begins that a kernel may spill, which the offline compiler's answer replaces."""

LOAD_CONTROLS = {"uncached": 0, "cached": 1, "streaming": 2, "read_invalidate": 3}
STORE_CONTROLS = {"uncached": 0, "write_through": 1, "write_back": 2, "streaming": 3}
_SHORT = {
    "uncached": "uc",
    "cached": "ca",
    "streaming": "st",
    "read_invalidate": "ri",
    "write_back": "wb",
    "write_through": "wt",
}

LOCALITY: dict[int, tuple[str, str]] = {
    3: ("cached", "cached"),
    2: ("uncached", "cached"),
    1: ("streaming", "cached"),
    0: ("streaming", "uncached"),
}
"""(first level, last level) of `locality<n>`: 3 all levels, 2 not the first, 1 streams through the first to the
last level, 0 is not kept (DESIGN, section 3)."""


@frozen
class Hints:
    """What the first and the last cache level are asked for, a pair that messages have (`uarch.xe.cache_pair`); both
    empty = the driver's default."""

    l1: str = ""
    l3: str = ""

    def __bool__(self) -> bool:
        return bool(self.l1)

    @property
    def suffix(self) -> str:
        return f"_{self.lsc()}" if self else ""

    def lsc(self, separator: str = "_") -> str:
        """`ca_uc`: first and last level."""
        return f"{_SHORT[self.l1]}{separator}{_SHORT[self.l3]}"


@frozen
class Block2D:
    """A 2D block message of elements of `bits` bits: `rows` x `columns`, `count` blocks side by side.

    A transposing load counts elements of the width that it transposes.
    """

    kind: Kind
    bits: int
    rows: int
    columns: int
    count: int = 1
    hints: Hints = Hints()

    @property
    def name(self) -> str:
        stem = {"load": "load2d", "vnni": "load2d_vnni", "transpose": "load2d_transpose"}.get(
            self.kind, f"{self.kind}2d"
        )
        size = f"{self.rows}x{self.columns}x{self.count}"
        return f"xe_{stem}_{self.bits}b_{size}{self.hints.suffix}"

    @property
    def pack(self) -> int:
        """Rows that a VNNI load puts into one component."""
        return 32 // self.bits if self.kind == "vnni" else 1

    @property
    def component_bits(self) -> int:
        """Bits of one component of the fragment."""
        return 32 if self.kind == "vnni" else self.bits

    def components(self, lanes: int) -> int:
        """Components that a lane holds."""
        return self.count * self._per_block(lanes)

    def word_bits(self, lanes: int) -> int:
        """Bits of a register's unit: a lane's neighbouring elements of a row wider than the subgroup are one."""
        along, _ = self._spread()
        group = max(1, along // lanes) if self.kind in ("load", "store") else 1
        return (
            self.component_bits * group
            if self.component_bits * group <= 64
            else self.component_bits
        )

    def _spread(self) -> tuple[int, int]:
        """(extent along lanes, extent along registers) of one block: rows and columns change places when it
        transposes; extents along lanes are padded to a power of two."""
        along, across = self.columns, self.rows // self.pack
        if self.kind == "transpose":
            along, across = self.rows, self.columns
        return 1 << (along - 1).bit_length(), across

    def _per_block(self, lanes: int) -> int:
        along, across = self._spread()
        if along >= lanes:
            return across * (along // lanes)
        return -(-across * along // lanes)

    def positions(self, lanes: int) -> NDArray[np.int64]:
        """(lane, component, part, 2): row and column in the message of every element; parts are the rows that
        VNNI packs. Columns count through all blocks. An element that pads a block has row -1."""
        along, across = self._spread()
        n = self._per_block(lanes)
        lane = np.arange(lanes)[:, None]
        i = np.arange(n)[None, :]
        if along >= lanes:
            group = along // lanes
            inner, outer = lane * group + i % group, i // group + 0 * lane
        else:
            inner, outer = lane % along + 0 * i, i * (lanes // along) + lane // along
        missing = outer >= across
        if self.kind == "transpose":
            row, column, wide = inner, outer, self.rows
        else:
            row, column, wide = outer, inner, self.columns
        missing = missing | (inner >= wide)
        out = np.empty((lanes, self.count, n, self.pack, 2), np.int64)
        for block in range(self.count):
            for part in range(self.pack):
                out[:, block, :, part, 0] = np.where(missing, -1, row * self.pack + part)
                out[:, block, :, part, 1] = column + block * self.columns
        return out.reshape(lanes, self.count * n, self.pack, 2)


@frozen
class Dpas:
    """D = A B + C on a subgroup: `m` x `k` by `k` x lanes. Types are Tilewright's names."""

    a: str
    b: str
    c: str
    m: int
    k: int
    lanes: int

    @property
    def name(self) -> str:
        return f"xe_dpas_{self.a}_{self.b}_{self.c}_{self.m}x{self.lanes}x{self.k}"

    @property
    def bits(self) -> int:
        """Of an element of A."""
        known = {"tf32": 32, "f16": 16, "bf16": 16}.get(self.a)
        return known if known is not None else int(self.a[1:])

    @property
    def a_components(self) -> tuple[int, int]:
        """(components, bits) of A per lane: i16 units with 16 lanes, 32-bit ones with 8 lanes or tf32."""
        unit = 32 if self.a == "tf32" or self.lanes == 8 else 16
        return max(1, self.m * self.k * self.bits // (self.lanes * unit)), unit


@frozen
class Lsc:
    """A lane's own access with cache policies: `count` words of `bits` bits, or a prefetch of a line."""

    kind: Literal["load", "store", "prefetch"]
    bits: int
    count: int
    hints: Hints


@frozen
class RowMessage:
    """A 1-D block message: `count` words of `bits` bits per lane, word i of lane l at i * lanes + l.

    The address is the same for all lanes, and nothing checks bounds; `shared`: in shared local memory.
    """

    kind: Literal["load", "store"]
    bits: int
    count: int
    shared: bool = False
    hints: Hints = Hints()

    @property
    def name(self) -> str:
        where = "_slm" if self.shared else ""
        return f"xe_row_{self.kind}_{self.bits}b_x{self.count}{where}{self.hints.suffix}"


@frozen
class NamedBarrierForm:
    """One half of a named barrier: `arrive` or `wait`, its number, and how many subgroups take part.

    Without a number, the callee's argument is it.
    """

    half: Literal["arrive", "wait"]
    number: int | None
    count: int


@frozen
class Fence:
    """A fence of `global` or `slm` memory, seen by `scope`, which may `flush` lines."""

    memory: str
    scope: str
    flush: str


Form = Block2D | Dpas | Lsc | RowMessage | NamedBarrierForm | Fence

_LONG = {short: long for long, short in _SHORT.items()}
_BLOCK = re.compile(
    r"(?:soft_)?(load|store|prefetch)2d(_vnni|_transpose)?_(\d+)b_(\d+)x(\d+)x(\d+)(?:_(\w\w)_(\w\w))?"
)
_DPAS = re.compile(r"dpas_([a-z0-9]+)_([a-z0-9]+)_([a-z0-9]+)_(\d+)x(\d+)x(\d+)")
_LSC = re.compile(r"lsc_(load|store|prefetch)(?:_(\d+)b_x(\d+))?_(\w\w)_(\w\w)")
_ROW = re.compile(r"row_(load|store)_(\d+)b_x(\d+)(_slm)?(?:_(\w\w)_(\w\w))?")
_NAMED = re.compile(r"nbar_(arrive|wait)_(\d+|n)_(\d+)")
_FENCE = re.compile(r"fence_([a-z]+)_([a-z]+)_([a-z]+)")


def _hints(l1: str | None, l3: str | None) -> Hints:
    return Hints(_LONG[l1], _LONG[l3]) if l1 and l3 else Hints()


def parse(callee: str) -> Form | None:
    """The form that a callee's name says; None for any other function."""
    if not callee.startswith("xe_"):
        return None
    name = callee[3:]
    if found := _BLOCK.fullmatch(name):
        verb, how, *sizes, l1, l3 = found.groups()
        bits, rows, columns, count = map(int, sizes)
        kind = (how or "")[1:] or verb
        return Block2D(kind, bits, rows, columns, count, _hints(l1, l3))  # pyright: ignore
    if found := _DPAS.fullmatch(name):
        a, b, c, m, lanes, k = found.groups()
        return Dpas(a, b, c, int(m), int(k), int(lanes))
    if found := _LSC.fullmatch(name):
        verb, bits, count, l1, l3 = found.groups()
        return Lsc(verb, int(bits or 8), int(count or 1), _hints(l1, l3))  # pyright: ignore
    if found := _ROW.fullmatch(name):
        verb, bits, count, shared, l1, l3 = found.groups()
        return RowMessage(verb, int(bits), int(count), shared is not None, _hints(l1, l3))  # pyright: ignore
    if found := _NAMED.fullmatch(name):
        half, number, count = found.groups()
        return NamedBarrierForm(half, None if number == "n" else int(number), int(count))  # pyright: ignore
    if found := _FENCE.fullmatch(name):
        return Fence(*found.groups())
    return None


def is_soft(callee: str) -> bool:
    """Is a block message to be made of single elements?"""
    return callee.startswith("xe_soft_")
