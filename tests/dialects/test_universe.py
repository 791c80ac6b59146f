"""The plug-in of stock xdsl-opt: it reads, prints and verifies our dialects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import FormatProgram
from xdsl.universe import Universe

from tilewright.dialects import own_dialects
from tilewright.dialects.universe import TILEWRIGHT_UNIVERSE

PROGRAM = Path(__file__).parent / "programs" / "gemm.mlir"


def installed() -> bool:
    return "xetile" in Universe.get_multiverse().all_dialects


def xdsl_opt(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    code = "from xdsl.tools.xdsl_opt import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], input=stdin, capture_output=True, text=True
    )


def test_no_name_is_taken() -> None:
    """A universe that names a dialect of stock xDSL is refused."""
    from xdsl.dialects import get_all_dialects

    assert not set(TILEWRIGHT_UNIVERSE.all_dialects) & set(get_all_dialects())
    assert set(TILEWRIGHT_UNIVERSE.all_dialects) == set(own_dialects())


def test_every_format_can_be_read() -> None:
    """A format is read when it is first used, so that nothing else tells of one that nobody could read."""
    known = [op for load in own_dialects().values() for op in load().operations]
    told = [(op, op.assembly_format) for op in known if issubclass(op, IRDLOperation)]
    formats = [FormatProgram.from_str(text, op.get_irdl_definition()) for op, text in told if text]
    assert sum(bool(each.stmts) for each in formats) > 50


@pytest.mark.skipif(not installed(), reason="the package is not installed: no entry point")
def test_stock_xdsl_opt_reads_and_prints() -> None:
    once = xdsl_opt(str(PROGRAM))
    assert once.returncode == 0, once.stderr
    assert "xetile.tile_mma" in once.stdout and "gpu.launch_func @kernels::@gemm" in once.stdout
    generic = xdsl_opt(str(PROGRAM), "--print-op-generic")
    assert '"xetile.tile_mma"' in generic.stdout
    again = xdsl_opt("-f", "mlir", stdin=generic.stdout)
    assert again.returncode == 0, again.stderr
    assert again.stdout == once.stdout


@pytest.mark.skipif(not installed(), reason="the package is not installed: no entry point")
def test_stock_xdsl_opt_verifies() -> None:
    text = PROGRAM.read_text().replace("-> vector<256x1xf32>", "-> vector<256x2xf32>")
    text = text.replace(
        "%top [1] {wg_map = #map_c} : vector<256x1xf32>", "%top [1] : vector<256x2xf32>"
    )
    result = xdsl_opt("-f", "mlir", stdin=text)
    assert result.returncode != 0
    assert "reduction dimension of result must have size 1" in result.stderr + result.stdout


def test_what_a_kernel_imports_reads_no_format() -> None:
    """Formats are read when an op is first parsed or printed: hundreds that a program has no use for are not."""
    code = """
from xdsl.irdl.declarative_assembly_format_parser import FormatParser
read, seen = FormatParser.parse_format, []
FormatParser.parse_format = lambda self: (seen.append(self), read(self))[1]
import tilewright.lang.build, tilewright.targets.cpu.build
from tilewright.dialects.text import parse_module, print_module
assert not seen, len(seen)
text = "func.func @f(%a: i32) -> i32 { %b = arith.addi %a, %a : i32 return %b : i32 }"
assert "arith.addi %a, %a : i32" in print_module(parse_module(text)) and 0 < len(seen) < 5, len(seen)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
