"""benchmarks.documents: what it says of the RFCs' programs is so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.documents import programs, spilled, state, table
from tilewright.diagnostics import CompileError
from tilewright.targets.xe import offline


@pytest.mark.parametrize(
    "name, target, words",
    [
        ("xetile_2_1_gemm_prefetch", "cpu", "right, "),
        ("xetile_2_3_transpose_optimization", "reference", "right, "),
        ("xegpu_1_2_transpose_broadcast_reduction", "sm_90a", "compiles"),
        ("xegpu_1_3_two_cache_levels", "xe-pvc", "compiles, 2 passes, "),
        ("xetile_2_4_cooperative_slm", "xe-dg2", "compiles, 4 passes, 0 B spilled"),
    ],
)
def test_states(name: str, target: str, words: str):
    if offline.missing():  # it alone knows what is spilled
        words = words.removesuffix("0 B spilled")
    assert state(programs(), name, 512, target).startswith(words)


def test_a_wrong_result_is_said(monkeypatch: pytest.MonkeyPatch):
    rfc = programs()
    monkeypatch.setattr(rfc, "error_of", lambda *_, **__: 0.5)
    assert state(rfc, "xetile_2_1_gemm_prefetch", 512, "cpu") == "WRONG, 5e-01"


def test_bytes_of_another_machine_are_said_to_be_its():
    def stops():
        raise CompileError("ocloc was stopped")

    meta = {"machine": "xe-bmg", "pressure": 222, "registers": 256}
    pvc = SimpleNamespace(device="pvc", spilled=64)
    assert spilled(SimpleNamespace(meta=meta, isa=lambda: pvc)) == "64 B spilled as pvc"
    own = SimpleNamespace(meta=meta | {"machine": "xe-pvc"}, isa=lambda: pvc)
    assert spilled(own) == "64 B spilled"
    unknown = SimpleNamespace(meta=meta, isa=stops)
    assert spilled(unknown) == "222 of 256 registers, spills unknown"


def test_large_sizes_are_left_out_on_the_reference():
    lines = table([4096], ["reference"]).splitlines()
    assert len(lines) == 10 and lines[2] == "| `xetile_2_1_gemm_prefetch` | 4096 |  |"
