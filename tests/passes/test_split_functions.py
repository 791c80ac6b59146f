"""A long function's nests of loops are functions of their own: the same bits, from texts that are compiled at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from xdsl.dialects import arith, func, scf

import tilewright as tw
from tests.arrays import error
from tests.targets.cpu.test_thin import RUNNABLE
from tilewright.codegen.jit import compile_object
from tilewright.codegen.native import native
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes import split_functions as split

TYPES = {"f32": np.float32, "bf16": tw.bf16.numpy}


@tw.kernel
def product(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(tw.maximum(acc, 0.0).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("kind", TYPES)
def test_parts_compute_what_the_whole_does(rng, level, kind):
    m, n, k = (int(x) for x in rng.integers(100, 300, 3))
    a, b = (rng.standard_normal(s).astype(TYPES[kind]) for s in ((m, k), (k, n)))
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    found: list[np.ndarray] = []
    for off in (("split-functions",), ()):
        run = product.options(target="cpu", machine=level, disable=off)
        c = np.full((m, n), np.nan, TYPES[kind])
        run[tw.cdiv(m, 128), tw.cdiv(n, 128)](a, b, c, BM=128, BN=128, BK=64)
        found.append(c)
    assert found[0].tobytes() == found[1].tobytes()
    assert error(found[0], expected) < (1e-2 if kind == "bf16" else 1e-5)


def texts(machine: str, **options: object) -> str:
    a = np.zeros((256, 256), tw.bf16.numpy)
    run = product.options(target="cpu", machine=machine, **options)
    return run.compile(a, a, a, BM=256, BN=256, BK=64).asm["llvm"]


@pytest.mark.parametrize("machine", ["x86-64", "avx512", "amx"])
def test_a_long_function_has_parts_and_none_has_more_than_half(machine):
    def longest(text: str) -> int:
        return max(body.count("\n") for body in text.split("define ")[1:])

    whole, parts = texts(machine, disable=("split-functions",)), texts(machine)
    assert "tw_workgroup_part" not in whole and "tw_workgroup_part0" in parts
    assert longest(parts) < 0.75 * longest(whole), (longest(parts), longest(whole))


LOOPS = """
func.func @f(%p: !llvm.ptr, %n: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  scf.for %i = %zero to %n step %one {
    scf.for %j = %zero to %i step %one {
      scf.for %k = %zero to %j step %one {
        mach.store %x, %p : f32, !llvm.ptr
      }
    }
  }
  func.return
}
"""


def test_a_loop_without_turns_is_not_called(monkeypatch):
    monkeypatch.setattr(split, "LONG", 10)
    monkeypatch.setattr(split, "LEAST", 3)
    module = parse_module(LOOPS)
    split.split_functions(module)
    verify_module(module)
    part, function = module.body.block.ops
    (call,) = (op for op in function.walk() if isinstance(op, func.CallOp))
    guard = call.parent_op()
    assert isinstance(guard, scf.IfOp) and isinstance(guard.cond.owner, arith.CmpiOp)
    assert part.sym_name.data == call.callee.string_value() == "f_part0"
    assert sum(isinstance(op, scf.ForOp) for op in part.walk()) == 2  # a call of one costs


def test_texts_become_the_same_objects_on_several_threads_at_once():
    made = [texts("x86-64", disable=("split-functions",)), texts("avx512"), texts("amx")]
    target = native()
    alone = [compile_object(text, target) for text in made]
    found: dict[int, bytes] = {}

    def make(i: int) -> None:
        found[i] = compile_object(made[i % 3], target)

    threads = [threading.Thread(target=make, args=(i,)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(9)] == alone * 3
