"""opt: passes, splitting, expected errors, printing."""

from __future__ import annotations

import pytest

TWICE = """\
func.func @f(%a: i32) -> i32 {
  %b = arith.addi %a, %a : i32
  %c = arith.addi %a, %a : i32
  %d = arith.muli %b, %c : i32
  return %d : i32
}
"""


@pytest.fixture
def twice(tmp_path):
    path = tmp_path / "twice.mlir"
    path.write_text(TWICE)
    return path


def test_prints_what_it_reads(tilewright, twice, tmp_path):
    done = tilewright("opt", twice)
    assert done.code == 0 and done.out.count("arith.addi") == 2
    again = tmp_path / "again.mlir"
    assert tilewright("opt", twice, "-o", again).out == ""
    assert tilewright("opt", again).out == again.read_text() == done.out


def test_passes(tilewright, twice):
    for flags in (["-p", "cse"], ["--pass-pipeline", "builtin.module(canonicalize,cse)"]):
        done = tilewright("opt", twice, *flags)
        assert done.code == 0 and done.out.count("arith.addi") == 1


def test_generic_form(tilewright, twice):
    assert '"arith.addi"(' in tilewright("opt", twice, "--print-op-generic").out


def test_ir_after_all(tilewright, twice):
    done = tilewright("opt", twice, "-p", "canonicalize,cse", "--print-ir-after-all")
    first, second = done.err.split("IR after cse")
    assert "IR after canonicalize" in first
    assert (first.count("arith.addi"), second.count("arith.addi")) == (2, 1)


@pytest.mark.parametrize("flags, words", [
    (["-p", "canonicalise"], "did you mean canonicalize"),
    (["-p", "cse{speed=3}"], "speed"),
    (["-p", "cse{"], "pipeline"),
    (["--pass-pipeline", "cse"], "builtin.module"),
])  # fmt: skip
def test_pipelines_that_are_none(flags, words, tilewright, twice):
    done = tilewright("opt", twice, *flags)
    assert done.code == 2 and words in done.err


def test_list_has_ours_and_stock_passes(tilewright):
    listed = {line.split()[0] for line in tilewright("opt", "--list").out.splitlines()}
    assert {"cse", "outer-loops-to-grid"} <= listed


def test_split_input(tilewright, tmp_path):
    path = tmp_path / "parts.mlir"
    path.write_text(TWICE + "// -----\nfunc.func @bad( {\n}\n// -----\n" + TWICE)
    assert tilewright("opt", path).code == 1
    done = tilewright("opt", path, "--split-input-file", "-p", "cse")
    assert done.code == 1
    assert "parts.mlir:8:" in done.err  # lines of the whole file
    assert done.out.count("arith.addi") == 2 and done.out.count("// -----") == 1


BAD_ADD = '  %b = "arith.addi"(%a) : (i32) -> i32  // expected-error {{EXPECT}}\n'
BAD = "func.func @f(%a: i32) {\n" + BAD_ADD + "  return\n}\n"


def test_verify_diagnostics(tilewright, tmp_path):
    path = tmp_path / "bad.mlir"

    def run(text):
        path.write_text(text)
        return tilewright("opt", path, "--verify-diagnostics", "--split-input-file")

    plain = tilewright("opt", path) if path.exists() else run(BAD)
    message = plain.err.splitlines()[0].split("error: ")[1]
    assert run(BAD.replace("{{EXPECT}}", f"{{{{{message[:20]}}}}}")).code == 0
    wrong = run(BAD)
    assert wrong.code == 1 and "no comment expects" in wrong.err and "not produced" in wrong.err
    unraised = run(TWICE + "// expected-error {{never}}\n")
    assert unraised.code == 1 and "'never' was not produced" in unraised.err
    above = BAD.replace("  // expected-error {{EXPECT}}", "").replace(
        "  return", f"  // expected-error@-1 {{{{{message[:20]}}}}}\n  return"
    )
    assert run(above).code == 0
    assert (
        run(BAD.replace("{{EXPECT}}", f"{{{{{message[:20]}}}}}") + "// -----\n" + TWICE).code == 0
    )


def test_unregistered_dialects(tilewright, tmp_path):
    path = tmp_path / "foreign.mlir"
    path.write_text('"foreign.op"() : () -> ()\n')
    assert tilewright("opt", path).code == 1
    done = tilewright("opt", path, "--allow-unregistered-dialect")
    assert done.code == 0 and "foreign.op" in done.out


def test_a_pass_that_fails_is_diagnosed(tilewright, twice):
    done = tilewright("opt", twice, "-p", "apply-individual-rewrite")
    assert done.code in (1, 2) and "error" in done.err and "internal" not in done.err


def test_every_pass_says_what_it_does(tilewright):
    lines = tilewright("opt", "--list").out.splitlines()
    assert len(lines) > 80
    for line in lines:
        name, _, about = line.partition(" ")
        assert about.strip() and "See the module" not in about, line
        assert not about.strip().startswith(f"{name}:"), line


def test_a_fault_of_a_stock_pass_is_told_as_that(tilewright, tmp_path):
    path = tmp_path / "plain.mlir"
    path.write_text("func.func @main() {\n  return\n}\n")
    done = tilewright("opt", path, "-p", "canonicalize,apply-pdl-interp,cse")
    assert done.code == 1
    assert "plain.mlir:1:1: error: pass apply-pdl-interp of xDSL failed: AssertionError" in done.err
    assert "a bug in Tilewright" not in done.err


LANE = """gpu.module @m { gpu.func @f(%a: memref<16xf32>) kernel attributes {tilewright.level = "lane"} {
  gpu.return } }
"""


def test_a_pass_that_finds_no_kernel_says_so(tilewright, tmp_path):
    path = tmp_path / "lane.mlir"
    path.write_text(LANE)
    done = tilewright("opt", path, "-p", "xegpu-blocking{target=bmg}")
    assert done.code == 0
    assert "remark: xegpu-blocking did nothing: no kernel is at subgroup level" in done.err


@pytest.mark.parametrize("command", ["check", "compile"])
def test_passes_that_a_target_does_not_have_are_not_left_out(command, tilewright, tmp_path):
    path = tmp_path / "lane.mlir"
    path.write_text(LANE)
    done = tilewright(command, path, "--target", "xe-pvc", "--disable", "nonsense")
    assert done.code == 1 and "has no pass 'nonsense' to disable" in done.err
    assert "its optional passes are retile, k-loops, xegpu-merge-inductions, xegpu-pad" in done.err
