"""The fingerprint of a kernel's source: equal when nothing has changed, else different."""

from __future__ import annotations

import gc
import importlib.util
import pickle
import shutil
import sys
import textwrap
import weakref

import pytest

import tilewright as tw
from tilewright.runtime.references import references


def source_fingerprint(kernel):
    return references(kernel).fingerprint


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
        # Bytecode of a text as long, written in the same second, would count as this one's.
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
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


CHANGING = """
import tilewright as tw
from enum import IntEnum

S = 2.0
TABLE = [1, 2]
OPTIONS = {"scale": 1}

class Config:
    FACTOR = 3

class Settings:
    def __init__(self):
        self.bias = 5

class Mode(IntEnum):
    FAST = 7

SETTINGS = Settings()

def inner(x):
    return x + TABLE[1]

def helper(x, more=0):
    return inner(x) * S + more

def make(offset):
    def add(x):
        return x + offset
    def change(new):
        nonlocal offset
        offset = new
    @tw.kernel
    def kernel(Y):
        y = helper(tw.program_id(0) + 1) * Config.FACTOR + SETTINGS.bias + int(Mode.FAST) + OPTIONS["scale"]
        tw.store_tile(add(y), tw.init_tile(Y, [0], (1, 1)))
    return kernel, change

kernel, change = make(0)
"""
CHANGES = [
    ("S = 3.0", 40.0), ("TABLE[1] = 7", 61.0), ("TABLE.append(1)", 31.0),
    ("OPTIONS['scale'] = 9", 39.0), ("Config.FACTOR = 10", 73.0), ("SETTINGS.bias = 0", 26.0),
    ("exec('def inner(x): return 0', globals())", None), ("change(100)", 131.0),
    ("helper.__defaults__ = (1,)", 34.0), ("range = None", 31.0),
]  # fmt: skip


def launched(module, target="cpu"):
    import numpy as np

    y = np.full(1, np.nan, np.float32)
    module.kernel.options(target=target)[1](y)
    return y[0]


@pytest.mark.parametrize("statement, after", CHANGES)
def test_what_a_kernel_refers_to_may_change(statement, after, module_of):
    """Between two launches: constants, what they hold, helpers of helpers, attributes, closures, defaults."""
    module = module_of(CHANGING)
    assert launched(module) == 31
    before = references(module.kernel)
    assert before.unchanged()
    exec(statement, vars(module))
    if after is None:  # a helper without a text: refused, and not what it was
        with pytest.raises(tw.CompileError):
            launched(module)
        return
    assert before.unchanged() == (statement == "range = None")
    assert launched(module) == after


def test_a_constant_that_comes_out_equal_changes_nothing(module_of, monkeypatch):
    module = module_of(CHANGING)
    assert launched(module) == 31
    monkeypatch.setattr("tilewright.runtime.launch.compile_program", None)
    for text in ("2.0", "2e0", "float('2')"):
        module.S = eval(text)
        assert launched(module) == 31
    module.S = 2  # an integer is no float
    with pytest.raises(TypeError):
        launched(module)


def test_a_held_launch_and_other_options_see_a_change(module_of):
    import numpy as np

    module = module_of(CHANGING)
    y = np.zeros(1, np.float32)
    held = [module.kernel.options(target=t)[1] for t in ("cpu", "reference")]
    for s, want in ((2.0, 31), (3.0, 40), (2.0, 31)):
        module.S = s
        for launch in held:
            launch(y)
            assert y[0] == want
        assert module.kernel.compile(y, target="cpu").executable is not None


@pytest.mark.parametrize("old, new", [
    ("FACTOR = 3", "FACTOR = 4"), ("FAST = 7", "FAST = 8"), ("bias = 5", "bias = 6"),
    ("TABLE = [1, 2]", "TABLE = [1, 3]"), ('"scale": 1', '"scale": 2'), ("more=0", "more=S"),
])  # fmt: skip
def test_what_changes_it_in_classes_and_containers(old, new, module_of):
    before = references(module_of(CHANGING).kernel).fingerprint
    assert before is not None and old in CHANGING
    assert references(module_of(CHANGING.replace(old, new)).kernel).fingerprint != before


def test_a_kernel_is_freed_with_its_code(module_of):
    module = module_of(CHANGING)
    launched(module)

    def mapped() -> int:
        with open("/proc/self/maps") as file:
            return len(file.readlines())

    made = []
    for i in range(6):
        module.kernel, _ = module.make(i)
        assert launched(module) == 31 + i
        made.append(weakref.ref(module.kernel))
        made.append(weakref.ref(module.kernel.function))
        if i == 2:
            gc.collect()
            then = mapped()
    del module.kernel
    gc.collect()
    assert not any(ref() for ref in made)
    assert mapped() <= then


def test_functions_that_were_compiled_can_be_pickled(module_of):
    module = module_of(CHANGING)
    launched(module)
    kept = vars(module.helper)
    assert kept and pickle.loads(pickle.dumps(kept)) == dict.fromkeys(kept)
