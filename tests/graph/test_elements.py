"""Elements that are written twice or never: what is refused, against a count of every element by plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright.diagnostics import CompileError


def graph(*tasks, shape="8, 8", symbols=""):
    lines = [f"def g({symbols}):", f"    x = input(f32[{shape}])", f"    y = output(f32[{shape}])"]
    lines += [f"    {line}" for task in tasks for line in task.splitlines()]
    return "\n".join([*lines, "    return y\n"])


def rows(name, extent, step, tile, first=0, op="copy", sign="="):
    at = f"{first} + i" if first else "i"
    part = f"[{at}:{first + tile} + i, 0:8]"
    return f'for i in space("{name}", block({extent}, {step})):\n    y{part} {sign} {op}(x{part})'


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([rows("k", 8, 2, 4)], "Task k: .* iterations of i write element 2 of dimension 0 of y more"),
        (
            [rows("k", 6, 4, 4), rows("m", 2, 2, 2, 6, "neg")],
            r"Task m: .* the store writes element \[6, 0\] of y, which Task k: .* writes as well",
        ),
        (
            [rows("m", 2, 2, 2, 6, "neg"), rows("k", 6, 4, 4)],
            r"Task k: .* the store writes element \[6, 0\] of y, which Task m: .* writes as well",
        ),
        ([rows("k", 4, 2, 2), rows("m", 3, 3, 3, 5)], r"element \[4, 0\] is never written"),
        ([rows("k", 8, 4, 2)], "is never written"),
    ],
)  # fmt: skip
def test_elements_written_twice_or_never_are_named(tasks, message):
    with pytest.raises(CompileError, match=message):
        G.parse_graph(graph(*tasks))


def test_parts_that_meet_are_right():
    x = fresh_rng().standard_normal((8, 8), np.float32)
    made = G.parse_graph(graph(rows("k", 6, 2, 2), rows("m", 2, 4, 4, 6, "neg"))).compile()(x)
    np.testing.assert_array_equal(made, np.concatenate([x[:6], -x[6:]]))


def test_what_is_accumulated_may_be_written_again():
    x = fresh_rng().standard_normal((8, 8), np.float32)
    made = G.parse_graph(graph(rows("k", 8, 4, 4), rows("m", 8, 2, 2, 0, "neg", "+="))).compile()(x)
    np.testing.assert_array_equal(made, np.zeros_like(x))


def test_symbols_are_counted_when_they_are_bound():
    first = 'for i in space("k", block(M, 4)):\n    y[i:i + 4, 0:8] = copy(x[i:i + 4, 0:8])'
    part = "[M + i:M + i + 4, 0:8]"
    second = f'for i in space("m", block(N, 4)):\n    y{part} = neg(x{part})'
    text = graph(first, second, symbols="M, N", shape="M + N, 8")
    text = text.replace("y = output", "n = input(f32[N])\n    m = input(f32[M])\n    y = output")
    run = G.parse_graph(text).compile()
    x = fresh_rng().standard_normal((14, 8), np.float32)
    n, m = np.zeros(6, np.float32), np.zeros(8, np.float32)
    np.testing.assert_array_equal(run(x, n, m), np.concatenate([x[:8], -x[8:]]))
    with pytest.raises(
        CompileError, match=r"writes element \[6, 0\] of y, which Task k: .* as well"
    ):
        run(x, np.zeros(8, np.float32), np.zeros(6, np.float32))


def test_the_last_step_may_be_a_short_one():
    """Rows 0, 1, 3 and 4 of five, in steps of 3: what is wrong is that the first Task wrote two of them."""
    first = 'for i in space("k", block(1, 3)):\n    y[i:i + 3, 0:8] = copy(x[i:i + 3, 0:8])'
    second = 'for i in space("m", block(5, 3)):\n    y[i:i + 2, 0:8] = copy(x[i:i + 2, 0:8])'
    with pytest.raises(CompileError, match="as well"):
        G.parse_graph(graph(first, second, shape="5, 8"))


def test_a_task_without_iterations_writes_nothing():
    """Its columns would be written twice, were there a row."""
    none = 'for i, j in space("k", block(0, 2), block(6, 1)):\n    y[i:i + 2, j:j + 3] = copy(0.0)'
    whole = 'for i in space("m", block(4, 4)):\n    y[i:i + 4, 0:8] = copy(x[i:i + 4, 0:8])'
    x = fresh_rng().standard_normal((4, 8), np.float32)
    text = graph(none, whole, shape="4, 8")
    np.testing.assert_array_equal(G.parse_graph(text).compile()(x), x)
    with pytest.raises(CompileError, match="never written"):
        G.parse_graph(graph(none, shape="4, 8"))


def drawn_store(rng, spans):
    """A store as text, and the elements that its iterations write along each dimension, as slices.

    It covers the spans, tile by tile; now and then a step, a tile or a place is another one.
    """
    entries, space, boxes = [], [], []
    for name, (low, high) in zip("ij", spans, strict=True):
        tile = int(rng.integers(1, 4))
        step, factor = tile, 1
        if rng.random() < 0.15:
            tile, factor = int(rng.integers(1, 5)), int(rng.integers(1, 3))
            low = max(0, low + int(rng.integers(-1, 2)))
        start = f"{factor} * {name} + {low}"
        entries.append(f"{start}:{start} + {tile}")
        space.append(f"block({high - low}, {step})")
        starts = [factor * at + low for at in range(0, high - low, step)]
        boxes.append([slice(at, at + tile) for at in starts])
    text = f"y[{', '.join(entries)}] = copy(0.0)"
    return f'for i, j in space("t{{n}}", {", ".join(space)}):\n    {text}', boxes


def test_random_stores_are_counted_as_loops_count_them():
    rng = fresh_rng()
    verdicts = {"twice": 0, "never": 0, "right": 0}
    for _ in range(300):
        extents = [int(n) for n in rng.integers(4, 9, 2)]
        cut = int(rng.integers(1, extents[0]))
        count = np.zeros(extents, int)
        tasks = []
        for n, rows_of in enumerate(((0, cut), (cut, extents[0]))):
            text, boxes = drawn_store(rng, (rows_of, (0, extents[1])))
            for box in itertools.product(*boxes):
                count[box] += 1
            tasks.append(text.format(n=n))
        text = graph(*tasks, shape=", ".join(map(str, extents)))
        try:
            G.parse_graph(text)
        except CompileError as error:
            if "reaches element" in error.message:
                continue
            twice = "more than once" in error.message or "as well" in error.message
            assert twice or "never written" in error.message, error
            assert (count > 1).any() if twice else (count == 0).any(), text
            verdicts["twice" if twice else "never"] += 1
        else:
            assert (count == 1).all(), text
            verdicts["right"] += 1
    assert min(verdicts.values()) > 0, verdicts
