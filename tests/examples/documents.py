"""The documents: their parts that are no fragment of their own, and what stands for each."""

from __future__ import annotations

DOCUMENTS = {
    "early": "The early XeTile RFC",
    "later": "The XeTile RFC",
    "slides": "The slides",
    "xegpu": "The XeGPU RFC",
    "tiledkernel": "TiledKernel",
}

OTHERS: dict[str, list[tuple[str, str]]] = {
    "early": [],
    "later": [
        ("12-40, 52-57, 90", "what the dialect is for; no program"),
        ("343-347", "matrices on the host: arguments of `subview_order`"),
        (
            "383-387",
            '"Incorrect lowering": refused, each by the verifier (`tests/dialects/xetile/test_rules.py`)',
        ),
        ("391-429", "program `xetile_2_1_gemm_prefetch`"),
        ("431-612", "program `xetile_2_2_transpose_broadcast_reduction`"),
        ("614-628", "program `xetile_2_3_transpose_optimization`"),
        ("630-720", "program `xetile_2_4_cooperative_slm`"),
        ("722-802", "program `xetile_2_5_two_cache_levels`"),
    ],
    "slides": [
        ("224-230", "the lowering: every level is text (`tile-to-instruction.md`)"),
    ],
    "xegpu": [
        ("17-19, 38-49", "what the dialect is for; no program"),
        (
            "339-360, 728-783",
            "rules of ownership: `tilewright.layout` computes them (`tests/layout`)",
        ),
        (
            "903-946",
            "program `xegpu_1_1_gemm_prefetch`",
        ),
        ("947-1008", "program `xegpu_1_2_transpose_broadcast_reduction`"),
        ("1010-1090", "program `xegpu_1_3_two_cache_levels`"),
    ],
    "tiledkernel": [
        ("11-19", "a graph of operations, tasks and buffers: `examples/graph`"),
        ("21", "a product in registers: `examples/graph/register_gemm.py`"),
        ("23", "a product through shared memory: `examples/graph/shared_gemm.py`"),
        ("25-33", "TiledGraph, TiledEdge, TiledNode: `graph.md`"),
        (
            "35-48",
            "a macro kernel used a level up: `examples/graph/shared_gemm.py`, `back_to_back.py`",
        ),
        ("51-95", "two products back to back: `examples/graph/back_to_back.py`"),
    ],
}
"""Lines, and what stands for them: programs have their own table, graphs their own tests."""


def lines(places: str, document: str) -> str:
    """Those lines of a document that `early 33-36; later 58-61` names; empty when it names none."""
    for place in places.split("; "):
        name, _, numbers = place.partition(" ")
        assert name in DOCUMENTS, place
        if name == document:
            return numbers
    return ""


def first(numbers: str) -> int:
    """The first line of `33-36, 40`."""
    return int(numbers.partition(",")[0].partition("-")[0])
