"""Tensor programs, of linalg or of TOSA as mlir-opt lowers it, which mlir-opt tiles, fuses, pads, packs, vectorizes,
bufferizes and makes kernels of at random, run here with the results that mlir-runner has of the program as it was.

`TILEWRIGHT_PEER_EXAMPLES` says how many there are. A program that MLIR's own passes changed, or that they do not lower
any more, is none: it is counted. Hardly any may be refused here; none may have another result.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.arrays import error
from tests.draws import examples
from tests.passes.linalg.programs import Array, printed, run_on
from tests.peer import tosa
from tests.peer.mlir_opt import TO_LLVM, Refused, mlir_opt, mlir_runner, needs_mlir_runner
from tests.peer.schedules import MEMORY_PASSES, ONE_SHOT, lowered_packs, on_gpu, source, step
from tests.peer.test_runner import EXAMPLES
from tilewright.diagnostics import TilewrightError


def theirs(text: str) -> list[Array]:
    plain = "func.func(convert-elementwise-to-linalg,lower-vector-mask,linalg-generalize-named-ops)"
    lowered = mlir_opt(lowered_packs(text), pipeline=f"{plain},{ONE_SHOT},{TO_LLVM}")
    return printed(mlir_runner(lowered))


def changed(text: str, random: Random) -> str:
    """A program after some steps; on buffers, in the end, or not."""
    for _ in range(random.randint(1, 5)):
        try:
            text = step(text, random)
        except Refused:
            continue
    if random.random() < 0.5:
        return text
    text = mlir_opt(lowered_packs(text), pipeline=ONE_SHOT)
    for _ in range(random.randint(0, 5)):
        try:
            text = mlir_opt(text, pipeline=random.choice(MEMORY_PASSES))
        except Refused:
            continue
    return text


def same(found: list[Array], wanted: list[Array], exact: bool) -> bool:
    """Equal, or as near as functions that round come."""
    if [a.shape for a in found] != [a.shape for a in wanted]:
        return False
    pairs = [*zip(found, wanted, strict=True)]
    return all(np.array_equal(a, b) or (not exact and error(a, b) < 1e-5) for a, b in pairs)


@needs_mlir_runner
@pytest.mark.parametrize("kind", ["linalg", "tosa"])
def test_results_agree(kind: str, capfd: pytest.CaptureFixture[str]):
    compared, refused = list[bool](), dict[str, str]()

    @examples(EXAMPLES // 4)
    @given(random=st.randoms(use_true_random=False))
    def each(random: Random) -> None:
        text, exact = (source(random), True) if kind == "linalg" else tosa.source(random)
        wanted = theirs(text)
        try:
            text = changed(text, random)
            compared.append(same(theirs(text), wanted, exact))
        except Refused:
            compared.append(False)
        if not compared[-1]:
            return
        if random.random() < 0.4:
            with suppress(Refused):
                text = on_gpu(text, random)
        note(text)
        for target in ("cpu", "reference"):
            try:
                found, said = run_on(text, target, capfd)
            except TilewrightError as why:
                refused[text] = f"{target}: {why.message}"
                continue
            assert same(found, wanted, exact), f"{target} ({said}): {found} for {wanted}"

    each()
    print(f"{sum(compared)} of {len(compared)} compared; refused: {[*refused.values()]}")
    assert len(compared) < 20 or sum(compared) > len(compared) // 2
    assert len(refused) <= 1 + len(compared) // 10
