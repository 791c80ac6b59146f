"""Memory of programs: what is freed twice, or written outside of an allocation, is told and damages nothing."""

from __future__ import annotations

import ctypes as C
import random

import pytest

from tests.draws import fresh_seed
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import Limits, in_worker, run_program
from tilewright.runtime.program.heap import Heap
from tilewright.runtime.program.worker import WorkerError

HEAD = """\
memref.global "private" @g : memref<100xf32> = dense<1.0>
func.func @main() attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %far = arith.constant 20000 : index
  %f = arith.constant 1.0 : f32
  %a = memref.alloc() : memref<100xf32>
  %b = memref.alloc() : memref<100xf32>
"""


def outcome(body: str) -> str:
    module = parse_module(f"{HEAD}{body}\n  return\n}}\n", "memory.mlir")
    try:
        in_worker(lambda fail: run_program(module, fail=fail), Limits(memory=2 << 30, seconds=60))
    except WorkerError as error:
        return str(error)
    return "ran"


@pytest.mark.parametrize("body, words", [
    ("memref.dealloc %a : memref<100xf32>\nmemref.dealloc %a : memref<100xf32>", "frees memory that is not"),
    ("%s = memref.alloca() : memref<100xf32>\nmemref.dealloc %s : memref<100xf32>", "frees memory that is not"),
    ("%s = memref.get_global @g : memref<100xf32>\ngpu.dealloc %s : memref<100xf32>", "frees memory that is not"),
    ("scf.for %i = %c0 to %far step %c1 {\nmemref.store %f, %b[%i] : memref<100xf32>\n}", "SIGSEGV"),
    ("%n = arith.constant 4294967296 : index\n%m = memref.alloc(%n) : memref<?xf32>", "more than its 2048 MiB"),
    ("memref.dealloc %a : memref<100xf32>\nmemref.dealloc %b : memref<100xf32>", "ran"),
])  # fmt: skip
def test_what_becomes_of_a_program(body: str, words: str) -> None:
    assert words in outcome(body)


def test_allocations_do_not_overlap_and_come_back() -> None:
    rng, heap = random.Random(fresh_seed()), Heap()
    live: dict[int, tuple[int, int]] = {}
    for number in range(500):
        if live and rng.random() < 0.4:
            address = rng.choice(list(live))
            byte, size = live.pop(address)
            assert C.string_at(address, size) == bytes([byte]) * size
            heap.release(address)
            with pytest.raises(TilewrightError, match="not allocated"):
                heap.release(address)
        else:
            align = 1 << rng.randint(3, 16)
            size = rng.choice((align, 8 * align, 1 << 20))
            size = -(-size // align) * align
            address = heap.allocate(align, size)
            assert address % align == 0 and address not in live
            C.memset(address, number % 251, size)
            live[address] = (number % 251, size)
    for address in live:
        heap.release(address)
