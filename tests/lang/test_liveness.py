"""Which names loops and branches must carry."""

import ast

import pytest

from tilewright.lang.liveness import (
    binds,
    breaks,
    leaves,
    live_after_each,
    live_at_header,
    live_before,
)


def body(text):
    return ast.parse(text).body


@pytest.mark.parametrize(
    ("text", "after", "before"),
    [
        ("a = b", "a c", "b c"),
        ("a, (b, c) = d", "a b c", "d"),
        ("a += b", "a", "a b"),
        ("a[i] = b", "", "a b i"),
        ("a: int = b", "a", "b"),
        ("a: int", "a", "a"),
        ("if p:\n  a = 1\nelse:\n  a = b", "a", "b p"),
        ("if p:\n  a = 1", "a", "a p"),
        ("for i in r:\n  a = i", "a", "a r"),
        ("for i in r:\n  t = a\n  a = t + i", "a", "a r"),
        ("for i in r:\n  t = i\n  u = t", "", "r"),
        ("while a < n:\n  a = a + s", "a", "a n s"),
        ("return a\nb", "c", "a"),
        ("for i in r:\n  if p:\n    break\n  a = 1", "a", "a p r"),
        ("for i in r:\n  x = y\n  y = z\n  z = i", "x", "r x y z"),
    ],
)
def test_live_before(text, after, before):
    assert live_before(body(text), frozenset(after.split())) == frozenset(before.split())


def test_a_loop_carries_what_its_next_iteration_reads():
    (loop,) = body("for i in r:\n  t = i\n  a = a + t\n  dead = a")
    header = live_at_header(loop, frozenset({"out"}))
    assert binds(loop.body) & header == {"a"}


def test_one_pass_agrees_with_one_query_each():
    statements = body("a = b\nif a:\n  c = d\nfor i in c:\n  e = e + i\nf = e")
    after = frozenset({"f"})
    each = live_after_each(statements, after)
    assert each == [live_before(statements[i + 1 :], after) for i in range(len(statements))]


@pytest.mark.parametrize(
    ("text", "leaving", "breaking"),
    [
        ("a = 1", False, False),
        ("if p:\n  return", True, False),
        ("for i in r:\n  break", False, False),
        ("for i in r:\n  return", True, False),
        ("if p:\n  pass\nelse:\n  continue", True, False),
        ("if p:\n  if q:\n    break", True, True),
    ],
)
def test_ways_out(text, leaving, breaking):
    assert leaves(body(text)) is leaving
    assert breaks(body(text)) is breaking
