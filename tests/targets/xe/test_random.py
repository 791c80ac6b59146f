"""Random workgroup programs become valid SPIR-V or are refused with a reason; never anything else."""

from __future__ import annotations

import os

from hypothesis import given, note
from hypothesis import strategies as st

from tests.draws import examples
from tests.fuzz.programs import Program, programs
from tests.fuzz.test_programs import Case
from tilewright.diagnostics import CompileError, UnsupportedError
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.xe import spirv_reader

EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "2"))


@examples(EXAMPLES)
@given(program=programs(), seed=st.integers(0, 2**32 - 1))
def test_valid_or_refused(program: Program, seed: int) -> None:
    case = Case(program, seed)
    note(case.describe())
    try:
        found = get_target("xe-pvc").build(case.module, CompileOptions(target="xe-pvc"))
    except (UnsupportedError, CompileError) as error:
        assert error.message
        return
    for table in ("intel", "emu"):
        data = found.spirv(table)  # pyright: ignore
        assert spirv_reader.faults(spirv_reader.read(data)) == []
