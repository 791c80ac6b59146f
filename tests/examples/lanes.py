"""What the fragments about sg_map must give: which elements each lane has (examples/rfc/xegpu_lane_fragments.mlir)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.arrays import BF16, F16, Case, garbage, made, numbers, wide

F32, I8, U8, I32 = np.float32, np.int8, np.uint8, np.int32


def _owned(part: Any, layout: tuple[int, int], data: tuple[int, int]) -> Any:
    """By the RFC's rule: [lanes, elements] of a block, units in row-major order, each unit packed."""
    rows, columns = part.shape[0] // (layout[0] * data[0]), part.shape[1] // (layout[1] * data[1])
    split = part.reshape(rows, layout[0], data[0], columns, layout[1], data[1])
    return split.transpose(1, 4, 0, 3, 2, 5).reshape(layout[0] * layout[1], -1)


def _loads(*each: tuple[Any, tuple[int, int], tuple[int, int], tuple[int, int]]) -> Case:
    """Blocks at [8, 16] of matrices: type, shape, wi_layout, wi_data of each."""
    args: list[Any] = []
    pairs: list[tuple[Any, Any]] = []
    for dtype, (rows, columns), layout, data in each:
        a = numbers(64, 64, dtype=dtype)
        owned = _owned(a[8 : 8 + rows, 16 : 16 + columns], layout, data)
        args += [a, garbage(*owned.shape, dtype=dtype)]
        pairs.append((args[-1], owned))
    return args, pairs


ROW, COLUMN = (1, 16), (16, 1)
ONE, TWO, FOUR = (1, 1), (1, 2), (1, 4)


def fragments() -> Case:
    return _loads((BF16, (8, 16), ROW, ONE), (I8, (8, 32), ROW, TWO), (BF16, (12, 32), ROW, ONE))


def pairs_of_columns() -> Case:
    return _loads((BF16, (12, 32), ROW, TWO))


def vnni_fragment() -> Case:
    return _loads((BF16, (16, 16), ROW, (2, 1)))


def transposed_fragments() -> Case:
    return _loads(
        (F32, (16, 8), COLUMN, ONE), (F16, (16, 16), COLUMN, ONE), (BF16, (16, 16), COLUMN, TWO)
    )


def pvc_a() -> Case:
    single, pairs = ((8, 16), ROW, ONE), ((8, 32), ROW, TWO)
    return _loads((BF16, *single), (F16, *single), (U8, *pairs), (I8, *pairs))


def pvc_a_tf32() -> Case:
    return _loads((F32, (8, 8), (2, 8), ONE))


def pvc_b() -> Case:
    pairs, fours = ((16, 16), ROW, (2, 1)), ((32, 16), ROW, (4, 1))
    return _loads(
        (BF16, *pairs), (F16, *pairs), (F32, (8, 16), ROW, ONE), (U8, *fours), (I8, *fours)
    )


def pvc_c() -> Case:
    single = ((8, 16), ROW, ONE)
    return _loads((F32, *single), (I32, *single), (BF16, *single))


def arc_a() -> Case:
    pairs, fours = ((8, 16), (1, 8), TWO), ((8, 32), (1, 8), FOUR)
    return _loads(
        (BF16, *pairs), (F16, *pairs), (F32, (8, 8), (1, 8), ONE), (U8, *fours), (I8, *fours)
    )


def arc_b() -> Case:
    pairs, fours = ((16, 8), (1, 8), (2, 1)), ((32, 8), (1, 8), (4, 1))
    return _loads(
        (BF16, *pairs), (F16, *pairs), (F32, (8, 8), (1, 8), ONE), (U8, *fours), (I8, *fours)
    )


def arc_c() -> Case:
    single = ((8, 8), (1, 8), ONE)
    return _loads((F32, *single), (I32, *single), (BF16, *single), (F32, (8, 8), (8, 1), ONE))


def _lines(lanes: int, *each: tuple[Any, int]) -> Case:
    args: list[Any] = []
    pairs: list[tuple[Any, Any]] = []
    for dtype, packed in each:
        a = numbers(1024, dtype=dtype)
        owned = _owned(a[None, 64 : 64 + 2 * lanes * packed], (1, lanes), (1, packed))
        args += [a, garbage(*owned.shape, dtype=dtype)]
        pairs.append((args[-1], owned))
    return args, pairs


def pvc_lines() -> Case:
    return _lines(16, (F32, 1))


def pvc_packed_lines() -> Case:
    return _lines(16, (BF16, 2), (I8, 4))


def arc_lines() -> Case:
    return _lines(8, (F32, 1))


def arc_packed_lines() -> Case:
    return _lines(8, (BF16, 2), (I8, 4))


def _chunks(lanes: int) -> Case:
    args: list[Any] = []
    pairs: list[tuple[Any, Any]] = []
    for dtype, chunk in ((F32, 4), (BF16, 8), (I8, 8)):
        a, o = numbers(1024, dtype=dtype), garbage(lanes, chunk, dtype=dtype)
        args += [a, o]
        pairs.append((o, a[: 8 * lanes].reshape(lanes, 8)[:, :chunk]))
    return args, pairs


def pvc_chunks() -> Case:
    return _chunks(16)


def arc_chunks() -> Case:
    return _chunks(8)


def array_length() -> Case:
    a, o = numbers(64, 64, dtype=BF16), garbage(16, 16, dtype=BF16)
    blocks = [_owned(a[8:16, at : at + 16], ROW, ONE) for at in (16, 32)]
    return [a, o], [(o, np.concatenate(blocks, axis=1))]


single = made((64,), (16, 1), lambda a: a[:48:3], into=np.s_[:, 0])


def dpas_pvc() -> Case:
    a, b, c = numbers(64, 64, dtype=BF16), numbers(64, 64, dtype=BF16), garbage(64, 64)
    return [a, b, c], [(c[:8, :16], wide(a[8:16, 16:32]) @ wide(b[16:32, 32:48]))]


def dpas_arc() -> Case:
    a, b, c = numbers(64, 64, dtype=I8), numbers(64, 64, dtype=I8), garbage(64, 64, dtype=I32)
    return [a, b, c], [(c[:8, :8], wide(a[8:16, 16:48]) @ wide(b[16:48, 32:40]))]


def sg_map_2d() -> Case:
    a, b, c = numbers(8, 16, dtype=BF16), numbers(16, 16, dtype=BF16), garbage(8, 16)
    return [a, b, c], [(c, wide(a) @ wide(b))]


def sg_map_chunks() -> Case:
    """Lane l reads 4 elements in a row; a 1-D block store distributes element i * 16 + l to lane l."""
    a, c = numbers(64), garbage(64)
    return [a, c], [(c.reshape(4, 16), a.reshape(16, 4).T)]
