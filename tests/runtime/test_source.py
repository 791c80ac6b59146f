"""The fingerprint of a kernel's source: equal when nothing has changed, else different."""

from __future__ import annotations

import importlib.util
import sys
import textwrap

import pytest

import tilewright as tw
from tilewright.runtime.source import source_fingerprint

BASE = """
import math
import tilewright as tw
import numpy as np

BLOCK = 16
SCALE = np.float32(2)
PAIR = (1, 2.0)
STATE = object()

def helper(x):
    return deeper(x) + BLOCK

def deeper(x):
    return x * 2

def make(factor):
    @tw.kernel
    def closed(X):
        tw.store_tile(factor, tw.init_tile(X, [0], (1, 1)))
    return closed

@tw.kernel
def kernel(X):
    x = helper(tw.load_tile(tw.init_tile(X, [0], (1, BLOCK))) * math.pi)
    tw.store_tile(x, tw.init_tile(X, [0], (1, BLOCK)))

@tw.kernel
def opaque(X):
    tw.store_tile(STATE, tw.init_tile(X, [0], (1, 1)))

closed = make(3)
"""


@pytest.fixture
def module_of(tmp_path):
    """Imports a text as a module of its own, at one path, whatever was there before."""

    def load(text):
        path = tmp_path / "user_kernels.py"
        path.write_text(textwrap.dedent(text))
        import linecache

        linecache.checkcache()
        spec = importlib.util.spec_from_file_location("user_kernels", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["user_kernels"] = module
        spec.loader.exec_module(module)
        return module

    yield load
    sys.modules.pop("user_kernels", None)


def test_the_same_text_gives_the_same_fingerprint(module_of):
    first = source_fingerprint(module_of(BASE).kernel)
    assert first is not None and first == source_fingerprint(module_of(BASE).kernel)


@pytest.mark.parametrize("old, new", [
    ("x = helper(", "x = 1 + helper("),
    ("BLOCK = 16", "BLOCK = 32"),
    ("return x * 2", "return x * 4"),
    ("return deeper(x) + BLOCK", "return deeper(x)"),
    ("import math\n", "class math:\n    pi = 3\n"),
])  # fmt: skip
def test_what_changes_it(old, new, module_of):
    before = source_fingerprint(module_of(BASE).kernel)
    assert old in BASE
    after = source_fingerprint(module_of(BASE.replace(old, new)).kernel)
    assert before != after


def test_what_does_not_concern_a_kernel(module_of):
    before = source_fingerprint(module_of(BASE).kernel)
    assert before == source_fingerprint(module_of(BASE.replace("PAIR = (1", "PAIR = (5")).kernel)


def test_closures(module_of):
    module = module_of(BASE)
    prints = [source_fingerprint(module.make(f)) for f in (3, 4, 3.0)]
    assert None not in prints and len(set(prints)) == 3
    assert source_fingerprint(module.closed) == prints[0]


def test_a_value_without_stable_text_is_not_stored(module_of):
    assert source_fingerprint(module_of(BASE).opaque) is None


def test_kernels_of_the_package_itself():
    from tilewright.ops.attention import attention_kernel
    from tilewright.ops.matmul import matmul_kernel

    prints = {source_fingerprint(k) for k in (attention_kernel, matmul_kernel)}
    assert None not in prints and len(prints) == 2


def test_no_source_no_fingerprint():
    scope = {"tw": tw}
    exec("def f(X):\n    pass", scope)
    assert source_fingerprint(scope["f"]) is None
