"""Values that are made of the two before them, again and again: what passes ask about them is asked of each once.

A walk of operands that does not know where it has been doubles with every step: 40 of them would not end. What such a
value is used for decides which passes ask, so a test draws both.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import knobs

SECONDS = 60
"""No measure of time: a walk that doubles would take days."""

STEPS = {
    "integers": ["tw.where(a > b, a + b, a - b)", "a ^ b", "tw.maximum(a, b) * 3", "a - b"],
    "floats": ["tw.where(a > b, a + b, a * b)", "tw.exp(a) - b", "tw.minimum(a, b)", "a * 2.0 + b"],
    "numbers": ["max(a, b) + min(a, b)", "(a * 3 + b) // 2 + a % 7", "a * b - b", "a + b"],
    "masks": ["a & b", "b & a", "a ^ b", "a | b"],
    "squares": ["a + tw.transpose(b)", "tw.transpose(a) * b", "a - b", "tw.max(a, 1) + b"],
}
TILE = "tw.load_tile(tw.init_tile(X, [{0}], (1, 32)))"
ROLES = {
    # name: (kind of step, the first two values, what is done with the last)
    "a value": ("floats", f"{TILE.format(0)}, {TILE.format(1)}", ["STORE(a + b)"]),
    "integers": ("integers", f"{TILE.format(0)}.to(tw.i32), tw.arange(32).to(tw.i32)", ["STORE(a + b)"]),
    "offsets": (
        "integers", "tw.arange(32).to(tw.i32), tw.arange(32).to(tw.i32) + 1",
        ["x = tw.load_gather(tw.init_tile(X, a & 15), b > 3)", "tw.store_scatter(x, tw.init_tile(Y, b & 31), a > b)"],
    ),
    "atomics": (
        "integers", "tw.arange(32).to(tw.i32), tw.arange(32).to(tw.i32) + 1",
        ["tw.atomic_rmw('add', 1.0, tw.init_tile(Y, a & 31), b > 0)"],
    ),
    "positions": (
        "integers", "tw.arange(32) + tw.program_id(0), tw.arange(32) * 2", [f"STORE({TILE.format(0)}, a < b)"],
    ),
    "masks": (
        "masks", "tw.arange(32) < X.shape[0], tw.arange(32) > tw.program_id(0)", [f"STORE({TILE.format(0)}, a & b)"],
    ),
    "places": (
        "numbers", "tw.program_id(0), X.shape[0]", [f"STORE({TILE.format('a')})", f"STORE({TILE.format('b % 5')})"],
    ),
    "bounds": (
        "numbers", "tw.program_id(0), X.shape[0]",
        ["s = COLUMN", "for k in range(a % 3, b % 9):", f"    s = s + tw.sum({TILE.format('k')})", "STORE(tw.sum(s))"],
    ),
    "views": (
        "numbers", "tw.program_id(0), X.shape[0]",
        ["x = tw.view(X, [a % 9], [b % 50])", "STORE(tw.load_tile(tw.init_tile(x, [0], (1, 32))))"],
    ),
    "conditions": ("numbers", "tw.program_id(0), X.shape[0]", ["if a > b:", f"    STORE({TILE.format(0)})"]),
    "moved tiles": (
        "numbers", "tw.program_id(0), X.shape[0]",
        ["t = tw.update_tile_offset(tw.init_tile(X, [a], (1, 32)), [0, b])", "STORE(tw.load_tile(t))"],
    ),
    "rearranged": ("squares", f"{TILE.format(0)} + COLUMN, {TILE.format(1)} * COLUMN", ["STORE(tw.sum(a + b, 0))"]),
    "operands": (
        "floats", f"{TILE.format(0)} + COLUMN, {TILE.format(1)} * COLUMN",
        ["STORE(tw.sum(tw.tile_mma(a.to(tw.bf16), tw.transpose(b.to(tw.bf16))), 0))"],
    ),
    "sums of rows": (
        "floats", f"{TILE.format(0)} + COLUMN, {TILE.format(1)} * COLUMN", ["STORE(tw.max(a, 0) + tw.sum(b, 0))"],
    ),
}  # fmt: skip
IN_LOOP = ("a value", "integers", "offsets", "positions", "masks", "places", "operands", "atomics")


def program(role: str, rng: Any, looped: bool) -> str:
    kind, first, last = ROLES[role]
    lines = ["def kernel(X, Y, STEPS: tw.constexpr):", "    COLUMN = tw.zeros((32, 1), tw.f32)"]
    body = [f"a, b = {first}", "for _ in tw.static_range(STEPS):"]
    body.append(f"    a, b = {', '.join(rng.choice(STEPS[kind], 2, replace=False))}")
    body += last
    if looped:
        lines.append("    for _ in range(0, X.shape[0], 32):")
    if looped and role == "operands":  # a product whose sum is carried, as in a matrix product
        lines.insert(2, "    acc = tw.zeros((32, 32), tw.f32)")
        body[-1] = "acc = tw.tile_mma(a.to(tw.bf16), tw.transpose(b.to(tw.bf16)), acc)"
    indent = "        " if looped else "    "
    lines += [indent + line for line in body]
    if looped and role == "operands":
        lines.append("    STORE(tw.sum(acc, 0))")
    text = "\n".join(lines)
    return f"import tilewright as tw\n{STORE}\n@tw.kernel\n{text}\n".replace("STORE(", "store(Y, ")


STORE = """
def store(Y, x, mask=None):
    tw.store_tile(x.to(Y.dtype), tw.init_tile(Y, [tw.program_id(0) * 32], (1, 32)), mask)
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "xe-pvc"])
@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_what_is_asked_of_shared_values_does_not_double(
    role: str, looped: bool, target: str, tmp_path: Path
) -> None:
    if looped and role not in IN_LOOP:
        return
    text = program(role, fresh_rng(), looped)
    path, scope = tmp_path / "shared.py", dict[str, Any](__name__="shared")
    path.write_text(text)
    exec(compile(text, str(path), "exec"), scope)

    def late(*_: Any) -> None:
        raise TimeoutError(text)

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with knobs.override(cache=False):
            scope["kernel"].compile(*[tw.spec((100,), tw.f32)] * 2, target=target, STEPS=40)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
